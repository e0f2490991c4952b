"""Random graphs of three shapes: layers, forks and joins, and a chain.

A :class:`numpy.random.Generator` and a few sizes go in, a :class:`~cann_env.graph.CommandGraph` comes out.
Each graph begins with one copy from the host that its first commands read, and ends with a copy to the host
for every command that nothing else follows. Inner commands are kernels, and by the shares of
:class:`~cann_env.workloads.kernels.Traits` now and then copies inside the device or host functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.workloads.checks import check_shares, check_sizes
from cann_env.workloads.draws import PARTS, between, chance, octave, pick
from cann_env.workloads.kernels import Traits, random_kernel
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.random import Generator

    from cann_env.graph import CommandGraph, Kernel

_HOST_COPY_BYTES = (1 << 14, 1 << 20)
_CALLBACK_NS = (5_000, 50_000)
_WEIGHTS_BYTES = 1 << 22
_DEFAULT = Traits()


def layered(
    rng: Generator,
    commands: int,
    width: int,
    density: float,
    cores: Mapping[str, int],
    *,
    traits: Traits = _DEFAULT,
    name: str = "layered",
) -> CommandGraph:
    """Draw layers of up to ``width`` commands, each command fed by the layer before.

    Every command has at least one predecessor in the layer before its own, and at least one successor in
    the layer after; each further pair of neighbouring layers is joined with probability ``density``.

    Args:
        rng: Source of every draw.
        commands: Commands between the copies from and to the host, at least 1.
        width: Most commands of a layer, at least 1.
        density: Probability of an edge that is not needed, from 0 to 1.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        traits: What the commands are like.
        name: Of the graph.

    Raises:
        InputError: A size is out of range.
    """
    check_sizes(commands=commands, width=width)
    check_shares(density=density)
    parents: list[list[int]] = []
    above: list[int] = []
    while len(parents) < commands:
        size = min(between(rng, 1, width), commands - len(parents))
        layer = list(range(len(parents), len(parents) + size))
        parents += _draw_parents(rng, above, size, density)
        above = layer
    return _fill(_Source(rng, cores, traits), name, parents)


def fork_join(
    rng: Generator,
    stages: int,
    branches: int,
    length: int,
    cores: Mapping[str, int],
    *,
    traits: Traits = _DEFAULT,
    name: str = "fork_join",
) -> CommandGraph:
    """Draw ``stages`` forks in a row; each opens 1 to ``branches`` chains of 1 to ``length``, then joins.

    A stage is one command that forks, its chains, and one command that joins and begins the next stage.

    Args:
        rng: Source of every draw.
        stages: Forks in a row, at least 1.
        branches: Most chains of a fork, at least 1.
        length: Most commands of a chain, at least 1.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        traits: What the commands are like.
        name: Of the graph.

    Raises:
        InputError: A size is out of range.
    """
    check_sizes(stages=stages, branches=branches, length=length)
    parents: list[list[int]] = [[]]
    for _ in range(stages):
        fork = len(parents) - 1
        ends = []
        for _ in range(between(rng, 1, branches)):
            last = fork
            for _ in range(between(rng, 1, length)):
                parents.append([last])
                last = len(parents) - 1
            ends.append(last)
        parents.append(ends)
    return _fill(_Source(rng, cores, traits), name, parents)


def chain(
    rng: Generator,
    commands: int,
    cores: Mapping[str, int],
    *,
    traits: Traits = _DEFAULT,
    name: str = "chain",
) -> CommandGraph:
    """Draw ``commands`` commands in a row.

    Args:
        rng: Source of every draw.
        commands: Commands between the copies from and to the host, at least 1.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        traits: What the commands are like.
        name: Of the graph.

    Raises:
        InputError: A size is out of range.
    """
    check_sizes(commands=commands)
    return _fill(_Source(rng, cores, traits), name, [[i - 1] if i else [] for i in range(commands)])


def _draw_parents(rng: Generator, above: Sequence[int], size: int, density: float) -> list[list[int]]:
    """For each command of a layer its predecessors in the layer above, so that none above stays childless."""
    if not above:
        return [[] for _ in range(size)]
    chosen = [{pick(rng, above)} for _ in range(size)]
    share = round(density * PARTS)
    for parent in above:
        for mine in chosen:
            if between(rng, 1, PARTS) <= share:
                mine.add(parent)
        if not any(parent in mine for mine in chosen):
            pick(rng, chosen).add(parent)
    return [sorted(mine) for mine in chosen]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where commands are drawn from."""

    rng: Generator
    cores: Mapping[str, int]
    traits: Traits


def _fill(source: _Source, name: str, parents: Sequence[Sequence[int]]) -> CommandGraph:
    """Give every vertex a command; ``parents`` lists for each vertex earlier ones."""
    sketch = Sketch(name)
    start = sketch.upload("input", octave(source.rng, *_HOST_COPY_BYTES))
    has_child = {parent for mine in parents for parent in mine}
    outputs: list[str | None] = []
    for i, mine in enumerate(parents):
        reads = [output for parent in mine if (output := outputs[parent]) is not None] if mine else [start]
        after = [f"c{parent}" for parent in mine if outputs[parent] is None]
        add = _add_inner if i in has_child else _add_last
        outputs.append(add(source, sketch, f"c{i}", reads, after))
    for i, output in enumerate(outputs):
        if i not in has_child and output is not None:
            sketch.download(f"output{i}", output)
    return sketch.graph()


def _add_inner(source: _Source, sketch: Sketch, name: str, reads: list[str], after: list[str]) -> str | None:
    """Add a command; returns the buffer it writes, None for a host function.

    Buffers here are named after the command that writes them, so ``reads`` also names the commands to follow.
    """
    rng, traits = source.rng, source.traits
    kind = between(rng, 1, PARTS)
    callbacks, copies = round(traits.callback_share * PARTS), round(traits.copy_share * PARTS)
    if kind <= callbacks:
        sketch.callback(name, between(rng, *_CALLBACK_NS), [*reads, *after])
        return None
    if kind <= callbacks + copies and reads:
        return sketch.duplicate(name, reads[0], [*reads[1:], *after])
    kernels = _draw_kernels(source, name)
    return _launch(source, sketch, name, kernels, reads, after)


def _add_last(source: _Source, sketch: Sketch, name: str, reads: list[str], after: list[str]) -> str:
    """Add a kernel command whose result is small enough to be copied to the host."""
    kernels = _draw_kernels(source, name)
    kernels[-1] = replace(kernels[-1], bytes_written=octave(source.rng, *_HOST_COPY_BYTES))
    return _launch(source, sketch, name, kernels, reads, after)


def _draw_kernels(source: _Source, name: str) -> list[Kernel]:
    rng, traits = source.rng, source.traits
    count = between(rng, 2, 3) if chance(rng, traits.fused_share) else 1
    return [
        random_kernel(rng, f"{name}.{k}" if count > 1 else name, traits, source.cores) for k in range(count)
    ]


def _launch(
    source: _Source, sketch: Sketch, name: str, kernels: list[Kernel], reads: list[str], after: list[str]
) -> str:
    if chance(source.rng, source.traits.weights_share):
        size_bytes = max(1, min(kernels[0].bytes_read // 2, _WEIGHTS_BYTES))
        reads = [*reads, sketch.weights(f"{name}/weights", size_bytes, source.traits.weights)]
    return sketch.launch(name, kernels, reads, kernels[-1].bytes_written, after=after)
