"""Rows of stages: what can run side by side on streams of its own, and the cheapest way on in such steps.

A *stage* is a set of *groups*, connected parts of a graph that no edge joins. Each group runs on a stream of
its own, its commands one after another; the next stage begins when all groups are done. :func:`cheapest_row`
is dynamic programming over what is done, as in IOS (Ding et al., MLSys 2021), pruned as there: a stage has at
most so many groups, a group so many commands.

Where a graph is wide, even that is too much. Then only the stages of the most urgent groups are looked at,
and of the sets of commands that may be done after so many of them only the most promising are kept: the
result is no longer the best there is, but never worse than one command a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cann_env.schedulers.chains import members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Stage: TypeAlias = tuple[int, ...]
"""Groups, each a set of vertices as bits of an integer (see :mod:`cann_env.schedulers.chains`)."""


class Row(NamedTuple):
    """Stages one after another, and what they cost together (ns)."""

    stages: tuple[Stage, ...]
    cost_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far the search goes.

    Attributes:
        groups: Most groups a stage, if there are as many streams.
        commands: Most commands a group.
        stages: Most stages looked at from one set of commands that are done.
        states: Most sets kept of those with the same number of commands done.
    """

    groups: int = 8
    commands: int = 3
    stages: int = 24
    states: int = 8


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a graph, its n vertices numbered in a topological order, the most urgent first.

    Attributes:
        predecessors, successors: For each vertex those within the block.
        duration_ns: Least time of each vertex.
    """

    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    duration_ns: tuple[int, ...]

    @property
    def everything(self) -> int:
        """The set of all vertices."""
        return (1 << len(self.duration_ns)) - 1

    def work_ns(self, chosen: int) -> int:
        """Sum of the least times of a set."""
        return sum(self.duration_ns[vertex] for vertex in members(chosen))

    def longest_ns(self, chosen: int) -> int:
        """Longest path within a set, by least times."""
        ends: dict[int, int] = {}
        for vertex in members(chosen):
            ready = max((ends[before] for before in members(self.predecessors[vertex] & chosen)), default=0)
            ends[vertex] = ready + self.duration_ns[vertex]
        return max(ends.values(), default=0)

    def startable(self, done: int) -> int:
        """Vertices that are not done and whose predecessors are."""
        left = self.everything & ~done
        return sum(1 << vertex for vertex in members(left) if self.predecessors[vertex] & ~done == 0)

    def connected(self, group: int) -> bool:
        """Whether a set hangs together."""
        reached = fresh = group & -group
        while fresh:
            around = 0
            for vertex in members(fresh):
                around |= self.predecessors[vertex] | self.successors[vertex]
            fresh = around & group & ~reached
            reached |= fresh
        return reached == group


def groups_after(block: Block, done: int, most: int) -> list[int]:
    """Connected sets of at most ``most`` vertices that hold all their predecessors but those that are done.

    The most urgent come first, and of those with the same first vertex the largest.
    """
    found: set[int] = set()
    fresh = {1 << vertex for vertex in members(block.startable(done))}
    while fresh:
        found |= fresh
        grown = set()
        for group in fresh:
            if group.bit_count() < most:
                grown |= {group | 1 << vertex for vertex in _growth(block, done, group)}
        fresh = grown - found
    connected = [group for group in found if block.connected(group)]
    return sorted(connected, key=lambda group: (group & -group, -group.bit_count(), group))


def _growth(block: Block, done: int, group: int) -> Iterator[int]:
    """Vertices a set can grow by: successors, and what those still wait for."""
    around = 0
    for vertex in members(group):
        around |= block.successors[vertex]
    fresh = around
    while fresh:
        before = 0
        for vertex in members(fresh):
            before |= block.predecessors[vertex]
        fresh = before & ~around & ~done & ~group
        around |= fresh
    held = done | group
    for vertex in members(around & ~held):
        if block.predecessors[vertex] & ~held == 0:
            yield vertex


def stages_after(block: Block, done: int, groups: int, commands: int) -> Iterator[Stage]:
    """All stages that can come next, each once; first those of the most urgent groups.

    Groups that share no vertex are joined by no edge, as each holds all its predecessors.
    """
    candidates = groups_after(block, done, commands)
    seen: set[Stage] = set()
    for size in range(commands, 0, -1):
        urgent: list[int] = []
        for group in candidates:
            if group.bit_count() <= size and not any(group & other for other in urgent):
                urgent.append(group)
        for width in range(min(groups, len(urgent)), 0, -1):
            stage = tuple(urgent[:width])
            if stage not in seen:
                seen.add(stage)
                yield stage
    for stage in _combinations(candidates, groups):
        if stage not in seen:
            yield stage


def _combinations(candidates: list[int], most: int) -> Iterator[Stage]:
    """Sets of one to ``most`` disjoint groups."""
    stack: list[tuple[int, int, Stage]] = [(0, 0, ())]
    while stack:
        at, taken, stage = stack.pop()
        if stage:
            yield stage
        if len(stage) == most:
            continue
        for following in range(len(candidates) - 1, at - 1, -1):
            if not candidates[following] & taken:
                stack.append((following + 1, taken | candidates[following], (*stage, candidates[following])))


class _Reached(NamedTuple):
    """How a set of vertices came to be done: cost up to then, what was done before, and the stage."""

    cost_ns: int
    before: int
    stage: Stage


def cheapest_row(block: Block, cost: Callable[[Stage], int], limits: Limits) -> Row:
    """The cheapest row of stages; see above for when it really is.

    Args:
        block: What to run.
        cost: Makespan of a stage alone (ns), at least the longest of its groups.
        limits: How far to go.
    """
    singles = tuple((1 << vertex,) for vertex in range(len(block.duration_ns)))
    best = Row(singles, sum(cost(stage) for stage in singles))
    layers: list[dict[int, _Reached]] = [{} for _ in range(len(singles) + 1)]
    layers[0][0] = _Reached(0, 0, ())
    for layer in layers[:-1]:
        for done in _promising(block, layer, limits.states):
            _extend(block, cost, limits, layers, done, best.cost_ns)
    last = layers[-1].get(block.everything)
    return best if last is None else Row(_stages_of(layers, block.everything), last.cost_ns)


def _promising(block: Block, layer: dict[int, _Reached], most: int) -> list[int]:
    """Sets worth going on from: all if there are few, else those that have come forward fastest."""
    if len(layer) <= most:
        return list(layer)
    total = block.work_ns(block.everything)

    def promise(done: int) -> tuple[int, int]:
        spent = layer[done].cost_ns
        path = spent + block.longest_ns(block.everything & ~done)
        return max(path, spent * total // max(block.work_ns(done), 1)), done

    return sorted(layer, key=promise)[:most]


def _extend(
    block: Block,
    cost: Callable[[Stage], int],
    limits: Limits,
    layers: list[dict[int, _Reached]],
    done: int,
    bound: int,
) -> None:
    """Note what each stage after a set leads to, unless it surely costs ``bound`` or more, or was known."""
    spent = layers[done.bit_count()][done].cost_ns
    for stage in islice(stages_after(block, done, limits.groups, limits.commands), limits.stages):
        after = done | sum(stage)
        layer = layers[after.bit_count()]
        known = layer[after].cost_ns if after in layer else bound
        rest = block.longest_ns(block.everything & ~after)
        least = spent + max(map(block.work_ns, stage))
        if least >= known or least + rest >= bound:
            continue
        reached = spent + cost(stage)
        if reached < known and reached + rest < bound:
            layer[after] = _Reached(reached, done, stage)


def _stages_of(layers: list[dict[int, _Reached]], done: int) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    while done:
        reached = layers[done.bit_count()][done]
        stages.append(reached.stage)
        done = reached.before
    return tuple(reversed(stages))
