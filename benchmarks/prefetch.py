"""What prefetching is worth in training steps whose activations do not fit into device memory.

``python benchmarks/prefetch.py [--factors 1.0 0.7 0.5] [--order program] [--graphs NAME ...] [--json]`` runs
each prefetcher, around the same order of issue, on residual networks and transformers in three sizes each.
The order ``program`` binds the commands into a chain as they are written down, on one stream, one submitted
ahead. A column is a memory of so many times what the step needs to keep every buffer from its first to its
last use; a cell is the time of the step over its time with memory without limit, and in brackets over the
time of fetching on demand with eviction of what was used last the longest ago.

In program order the row ``bound`` is the least that the links to the host allow, see ``link_bound.py``: where
it is above 1 no plan can reach the time without limit. The last tables set each policy beside that bound.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from link_bound import link_bound
from tables import arguments, mean, number, print_json, print_table, progress, ratio

from cann_env.device.load import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS, PREFETCHERS, EpisodeError, decide, make_prefetcher
from cann_env.schedulers.usage import simulate
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
LINK_BOUND = 1.001
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
    """One run; None where it did not finish, or where no bound is known.

    Attributes:
        graph, policy, factor: What was run.
        slowdown: Time of the step over that with memory without limit.
        over_lru: Over that of fetching on demand with LRU.
        bound: The least that the links allow, over the time with memory without limit; at least 1.
        over_bound: Time of the step over that least.
        seconds: What planning and running took.
    """

    graph: str
    policy: str
    factor: float
    slowdown: float | None
    over_lru: float | None
    bound: float | None
    over_bound: float | None
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


def options_of(order: str, factor: float) -> RunOptions:
    """Options of a run, but for those that belong to a prefetcher."""
    streams, run_ahead = (1, 2) if order == PROGRAM else (8, None)
    return RunOptions(
        streams=streams, run_ahead=run_ahead, prefetches=16, l2_prefetches=0, memory_factor=factor
    )


def time_ns(graph: CommandGraph, device: DeviceSpec, policy: str, order: str, factor: float) -> int | None:
    """Time of the step; None if it does not finish."""
    issue = ORDERS["single_stream" if order == PROGRAM else order]
    try:
        program = compile_graph(graph, device, PREFETCHERS[policy].adapt(options_of(order, factor)))
        return decide(program, make_prefetcher(policy, issue())).end_ns
    except EpisodeError:
        return None


def bound_ns(graph: CommandGraph, device: DeviceSpec, factor: float) -> int:
    """The least time of the step in program order that the links to the host allow."""
    tight, wide = (compile_graph(graph, device, options_of(PROGRAM, f)) for f in (factor, WITHOUT_LIMIT))
    return link_bound(tight, simulate(wide, ORDERS["single_stream"]())).bound_ns


def measure(
    graphs: Sequence[str],
    policies: Sequence[str],
    factors: Sequence[float],
    order: str,
    device: DeviceSpec,
    begin: Callable[[str], None],
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        graph = graph_of(name, device, order)
        ideal = time_ns(graph, device, "aggressive", order, WITHOUT_LIMIT)
        for factor in factors:
            least = bound_ns(graph, device, factor) if order == PROGRAM else None
            lru: int | None = None
            for policy in policies:
                begin(f"{name} {factor:g} {policy}")
                began = time.perf_counter()
                taken = time_ns(graph, device, policy, order, factor)
                seconds = time.perf_counter() - began
                lru = taken if policy == DEMAND_LRU else lru
                ratios = (ratio(taken, ideal), ratio(taken, lru), ratio(least, ideal), ratio(taken, least))
                rows.append(Row(name, policy, factor, *ratios, seconds))
    return rows


def show(title: str, rows: Sequence[Row], policies: Sequence[str], factors: Sequence[float]) -> None:
    """Policies by memory; geometric means over the graphs in ``rows``."""
    lines = []
    for policy in policies:
        cells = [[r for r in rows if r.policy == policy and r.factor == factor] for factor in factors]
        means = [(mean([r.slowdown for r in cell]), mean([r.over_lru for r in cell])) for cell in cells]
        spent = sum(row.seconds for cell in cells for row in cell)
        lines.append(
            [policy, *(f"{number(slow)} ({number(over, 2)})" for slow, over in means), number(spent, 1)]
        )
    bounds = [mean([r.bound for r in rows if r.factor == factor]) for factor in factors]
    if any(bounds):
        lines.append(["bound", *(f"{number(bound)}       " for bound in bounds), ""])
    print_table(title, ["policy", *(f"{factor:g}" for factor in factors), "seconds"], lines)


def show_bounds(rows: Sequence[Row], graphs: Sequence[str], factors: Sequence[float]) -> None:
    """Where the link is the bound, and how near to the bound the best policy and the plan come."""
    lines = []
    for name in graphs:
        for factor in factors:
            cell = [r for r in rows if r.graph == name and r.factor == factor and r.over_bound]
            if not cell:
                continue
            best = min(cell, key=lambda row: row.over_bound or 0)
            plan = next((r.over_bound for r in cell if r.policy == "migration"), None)
            what = "the link" if linked(best) else "the commands"
            lines.append(
                [
                    name,
                    f"{factor:g}",
                    number(best.bound),
                    what,
                    number(plan),
                    number(best.over_bound),
                    best.policy,
                ]
            )
    if lines:
        print_table(
            "What bounds the step, and time over that bound",
            [
                "graph",
                "memory",
                "bound / without limit",
                "is set by",
                "migration / bound",
                "best / bound",
                "by",
            ],
            lines,
        )


def show_over_bounds(rows: Sequence[Row], policies: Sequence[str]) -> None:
    """Time of each policy over the bound, means over all cells in which memory is short."""
    short = [row for row in rows if row.factor < 1.0 and row.bound]
    sides = ([r for r in short if not linked(r)], [r for r in short if linked(r)])
    cells = [len({(row.graph, row.factor) for row in side}) for side in sides]
    lines = [
        [p, *(number(mean([r.over_bound for r in side if r.policy == p])) for side in sides)]
        for p in policies
    ]
    if short:
        columns = [f"{who}: {count} cells" for who, count in zip(("commands", "link"), cells, strict=True)]
        print_table("Time over the bound with memory below 1, by what sets it", ["policy", *columns], lines)


def linked(row: Row) -> bool:
    """Whether the link and not the commands bounds the step."""
    return (row.bound or 1.0) > LINK_BOUND


def main() -> None:
    """Measure and print."""
    every = [*RESNETS, *TRANSFORMERS]
    parser = arguments(__doc__)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 0.7, 0.5])
    parser.add_argument("--order", choices=[PROGRAM, *ORDERS], default=PROGRAM)
    parser.add_argument("--graphs", choices=every, nargs="+", default=every)
    parser.add_argument("--policies", choices=PREFETCHERS, nargs="+", default=list(PREFETCHERS))
    given = parser.parse_args()
    policies = [DEMAND_LRU, *(name for name in given.policies if name != DEMAND_LRU)]
    with progress(len(given.graphs) * len(given.factors) * len(policies)) as begin:
        device = load_device(given.device)
        rows = measure(given.graphs, policies, given.factors, given.order, device, begin)
    if given.json:
        print_json(order=given.order, rows=rows)
        return
    for name in given.graphs:
        show(name, [row for row in rows if row.graph == name], policies, given.factors)
    if len(given.graphs) > 1:
        show("geometric mean", rows, policies, given.factors)
    show_bounds(rows, given.graphs, given.factors)
    show_over_bounds(rows, policies)


if __name__ == "__main__":
    main()
