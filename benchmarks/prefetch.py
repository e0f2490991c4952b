"""What prefetching is worth in training steps whose activations do not fit into device memory.

``python benchmarks/prefetch.py [--factors 1.0 0.7] [--order program] [--graphs NAME ...] [--json]`` runs
each prefetcher, around the same order of issue, on residual networks and transformers in three sizes each.
The order ``program`` binds the commands into a chain as they are written down, on one stream, one submitted
ahead. A column is a memory of so many times what the step needs to keep every buffer from its first to its
last use; a cell is the time of the step over its time with memory without limit, and in brackets over the
time of fetching on demand with eviction of what was used last the longest ago. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cann_env.device.load import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS, PREFETCHERS, EpisodeError, decide, make_prefetcher
from cann_env.units import CannEnvError
from cann_env.workloads.kernels import blocks_at_once
from cann_env.workloads.training_resnet import ResnetShape, training_resnet
from cann_env.workloads.training_transformer import training_transformer
from cann_env.workloads.transformer import TransformerShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec

WITHOUT_LIMIT = 1000.0
DEMAND_LRU = "on_demand_lru"
PROGRAM = "program"
RESNETS = {
    "resnet50-b32": ResnetShape(batch=32),
    "resnet50-b128": ResnetShape(batch=128),
    "wide-resnet50-b64": ResnetShape(width=256, batch=64),
}
TRANSFORMERS = {
    "transformer-2048": TransformerShape(layers=8, hidden=2048, heads=16, sequence=2048, batch=16),
    "transformer-4096": TransformerShape(layers=4, hidden=4096, heads=32, sequence=2048, batch=16),
    "transformer-8192": TransformerShape(layers=4, hidden=8192, heads=64, sequence=2048, batch=16),
}


class Row(NamedTuple):
    """One run: time of the step over that with memory without limit, and over that of demand with LRU.

    None where the run did not finish.
    """

    graph: str
    policy: str
    factor: float
    slowdown: float | None
    over_lru: float | None
    seconds: float


def graph_of(name: str, device: DeviceSpec, order: str) -> CommandGraph:
    """A training step by name."""
    cores = blocks_at_once(device)
    if name in RESNETS:
        graph = training_resnet(RESNETS[name], cores, name=name)
    else:
        graph = training_transformer(TRANSFORMERS[name], cores, name=name)
    return chain(graph) if order == PROGRAM else graph


def chain(graph: CommandGraph) -> CommandGraph:
    """The same commands, each after the one written before it."""
    first, *rest = graph.commands
    bound = [
        replace(command, after=(before.name,)) for before, command in zip(graph.commands, rest, strict=False)
    ]
    return CommandGraph(graph.name, (first, *bound), graph.buffers)


def time_ns(graph: CommandGraph, device: DeviceSpec, policy: str, order: str, factor: float) -> int | None:
    """Time of the step; None if it does not finish or does not fit at all."""
    streams, run_ahead = (1, 2) if order == PROGRAM else (8, None)
    issue = ORDERS["single_stream" if order == PROGRAM else order]
    options = RunOptions(
        streams=streams, run_ahead=run_ahead, prefetches=16, l2_prefetches=0, memory_factor=factor
    )
    try:
        program = compile_graph(graph, device, PREFETCHERS[policy].adapt(options))
        return decide(program, make_prefetcher(policy, issue())).end_ns
    except EpisodeError:
        return None


def measure(
    graphs: Sequence[str],
    policies: Sequence[str],
    factors: Sequence[float],
    order: str,
    device: DeviceSpec,
    done: Callable[[str], None],
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        graph = graph_of(name, device, order)
        ideal = time_ns(graph, device, "aggressive", order, WITHOUT_LIMIT)
        for factor in factors:
            lru: int | None = None
            for policy in policies:
                done(f"{name} {factor:g} {policy}")
                began = time.perf_counter()
                taken = time_ns(graph, device, policy, order, factor)
                seconds = time.perf_counter() - began
                lru = taken if policy == DEMAND_LRU else lru
                rows.append(Row(name, policy, factor, _ratio(taken, ideal), _ratio(taken, lru), seconds))
    return rows


def _ratio(time_ns: int | None, other_ns: int | None) -> float | None:
    return time_ns / other_ns if time_ns and other_ns else None


def _mean(ratios: Sequence[float | None]) -> float | None:
    """Geometric mean; None if one is missing."""
    known = [ratio for ratio in ratios if ratio]
    if not known or len(known) < len(ratios):
        return None
    return math.exp(sum(math.log(ratio) for ratio in known) / len(known))


def print_table(title: str, rows: Sequence[Row], policies: Sequence[str], factors: Sequence[float]) -> None:
    """Policies by memory; geometric means over the graphs in ``rows``."""
    print(f"\n{title}")
    print(f"{'':16}" + "".join(f"{factor:>16g}" for factor in factors) + f"{'seconds':>10}")
    for policy in policies:
        line = f"{policy:16}"
        for factor in factors:
            cell = [row for row in rows if row.policy == policy and row.factor == factor]
            slow, over = _mean([row.slowdown for row in cell]), _mean([row.over_lru for row in cell])
            line += f"{slow:8.3f} ({over:5.2f})" if slow and over else f"{'-':>16}"
        print(line + f"{sum(row.seconds for row in rows if row.policy == policy):10.1f}")


def main() -> None:
    """Measure and print."""
    every = [*RESNETS, *TRANSFORMERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 0.9, 0.7, 0.5])
    parser.add_argument("--order", choices=[PROGRAM, *ORDERS], default=PROGRAM)
    parser.add_argument("--graphs", choices=every, nargs="+", default=every)
    parser.add_argument("--policies", choices=PREFETCHERS, nargs="+", default=list(PREFETCHERS))
    parser.add_argument("--device", default="ascend910b2")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    policies = [DEMAND_LRU, *(name for name in given.policies if name != DEMAND_LRU)]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(given.graphs) * len(given.factors) * len(policies))

        def done(what: str) -> None:
            progress.update(task, advance=1, description=what)

        try:
            device = load_device(given.device)
            rows = measure(given.graphs, policies, given.factors, given.order, device, done)
        except CannEnvError as error:
            sys.exit(str(error))
    if given.json:
        print(json.dumps({"order": given.order, "rows": [row._asdict() for row in rows]}))
        return
    for name in given.graphs:
        print_table(name, [row for row in rows if row.graph == name], policies, given.factors)
    print_table("geometric mean", rows, policies, given.factors)


if __name__ == "__main__":
    main()
