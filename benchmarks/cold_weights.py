"""Serving with weights that begin on the host: prefetch in the order of use against fetching on demand.

``python benchmarks/cold_weights.py [--tokens 64 256 ...] [--graphs NAME ...] [--plot FILE] [--json]`` passes
more and more tokens through transformers of several widths. Their weights take the same time to arrive
whatever the tokens, so the ratio of transfer to compute falls from row to row. Both ways issue in the same
order on one stream, with memory enough for all. Prefetch can hide the shorter of the two behind the longer
one: where they are alike the gain is largest, and where one of them dominates there is little to hide. On
demand each page costs a fault besides; the column without faults shows what remains if it does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tables import arguments, draw, number, print_json, print_table, progress

from cann_env.device.cost import Q20, link_rate_q20
from cann_env.device.load import load_device
from cann_env.graph import BufferKind, Level
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS, PREFETCHERS, decide, make_prefetcher
from cann_env.workloads.kernels import blocks_at_once
from cann_env.workloads.transformer import TransformerShape, transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph

SHAPES = {
    "transformer-1024": TransformerShape(layers=8, hidden=1024, heads=16, sequence=256),
    "transformer-2048": TransformerShape(layers=6, hidden=2048, heads=16, sequence=256),
    "transformer-4096": TransformerShape(layers=4, hidden=4096, heads=32, sequence=256),
}
TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LIKE = 2.0


class Row(NamedTuple):
    """One number of tokens.

    Attributes:
        graph, tokens: What was run.
        ratio: Time of the transfers alone over that of the commands with warm weights.
        on_demand_ms, prefetch_ms: Times of the pass.
        bound_ms: The longer of the two times; no way of prefetching is faster.
        gain: On demand over prefetch.
        gain_without_faults: The same on a device whose faults cost nothing.
        over_bound: Prefetch over that bound.
    """

    graph: str
    tokens: int
    ratio: float
    on_demand_ms: float
    prefetch_ms: float
    bound_ms: float
    gain: float
    gain_without_faults: float
    over_bound: float


def time_ns(graph: CommandGraph, device: DeviceSpec, policy: str) -> int:
    """Time of one pass."""
    options = PREFETCHERS[policy].adapt(
        RunOptions(streams=1, run_ahead=2, commands=4, prefetches=16, l2_prefetches=0)
    )
    program = compile_graph(graph, device, options)
    return decide(program, make_prefetcher(policy, ORDERS["single_stream"]())).end_ns


def measure_one(name: str, tokens: int, device: DeviceSpec) -> Row:
    """Run one number of tokens both ways."""
    shape = SHAPES[name]
    shape = replace(shape, batch=-(-tokens // shape.sequence))
    cold, warm = (
        transformer(shape, blocks_at_once(device), weights=level, name=name)
        for level in (Level.HOST, Level.HBM)
    )
    faultless = replace(device, memory=replace(device.memory, fault_ns=0))
    size = sum(buffer.size_bytes for buffer in cold.buffers if buffer.kind is BufferKind.MANAGED)
    transfer = size * Q20 // link_rate_q20(device, "h2d")
    compute = time_ns(warm, device, "on_demand")
    bound = max(transfer, compute)
    demand, ahead = time_ns(cold, device, "on_demand"), time_ns(cold, device, "aggressive")
    gains = (
        demand / ahead,
        time_ns(cold, faultless, "on_demand") / time_ns(cold, faultless, "aggressive"),
    )
    times = (demand / 1e6, ahead / 1e6, bound / 1e6)
    return Row(name, shape.tokens, transfer / compute, *times, *gains, ahead / bound)


def measure(
    graphs: Sequence[str], tokens: Sequence[int], device: DeviceSpec, begin: Callable[[str], None]
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        for count in tokens:
            begin(f"{name} {count} tokens")
            rows.append(measure_one(name, count, device))
    return rows


def show(name: str, rows: Sequence[Row]) -> None:
    """One graph by tokens."""
    lines = []
    for row in rows:
        alike = 1 / LIKE <= row.ratio <= LIKE
        what = "of like size" if alike else "transfer dominates" if row.ratio > 1 else "compute dominates"
        times = (row.on_demand_ms, row.prefetch_ms, row.bound_ms)
        ratios = (row.gain, row.gain_without_faults, row.over_bound)
        lines.append(
            [
                str(row.tokens),
                number(row.ratio, 2),
                what,
                *(number(value, 2) for value in times),
                *(number(value, 3) for value in ratios),
            ]
        )
    columns = [
        "tokens",
        "transfer / compute",
        "",
        "on demand ms",
        "prefetch ms",
        "bound ms",
        "on demand / prefetch",
        "without faults",
        "prefetch / bound",
    ]
    print_table(name, columns, lines)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, plot=True)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--graphs", choices=SHAPES, nargs="+", default=list(SHAPES))
    given = parser.parse_args()
    with progress(len(given.graphs) * len(given.tokens)) as begin:
        rows = measure(given.graphs, sorted(given.tokens), load_device(given.device), begin)
    if given.plot:
        lines = {
            name: [(row.ratio, 1 / row.gain) for row in rows if row.graph == name] for name in given.graphs
        }
        labels = ("time of the transfers over time of the commands", "prefetch over on demand")
        draw(given.plot, "Prefetch of cold weights", labels, lines)
    if given.json:
        print_json(rows=rows)
        return
    for name in given.graphs:
        show(name, [row for row in rows if row.graph == name])


if __name__ == "__main__":
    main()
