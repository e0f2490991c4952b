"""One side stream for all prefetches, or several that share the link.

``python benchmarks/prefetch_streams.py [--streams 1 2 4 ...] [--graphs NAME ...] [--plot FILE] [--json]``
runs two kinds of graphs. ``cold-*``: two requests to a transformer whose weights begin on the host, with room
for all of them and with room for a fifth; as many prefetches as there are streams are under way, always the
most urgent ones. ``decode-*``: decoding with weights in HBM, those of the next layers lifted into L2, 4 or 18
MB of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from decoding import LiftAhead, decoding, quiet_lifts
from l2_prefetch import SHAPES
from tables import arguments, draw, number, print_json, print_table, progress

from cann_env.device.load import load_device
from cann_env.graph import CommandGraph, merge_requests
from cann_env.options import PrefetchMask, RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS, decide
from cann_env.schedulers.prefetch import Aggressive
from cann_env.schedulers.usage import Usage
from cann_env.workloads.kernels import blocks_at_once
from cann_env.workloads.transformer import TransformerShape, transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec

COLD = {
    "cold-1024": TransformerShape(layers=8, hidden=1024, heads=16, sequence=2048, batch=4),
    "cold-2048": TransformerShape(layers=8, hidden=2048, heads=16, sequence=2048, batch=4),
    "cold-4096": TransformerShape(layers=8, hidden=4096, heads=32, sequence=1024, batch=4),
}
DECODE = {f"decode-{name}": name for name in ("7b-8way-b16", "32b-8way-b32", "70b-8way-b64")}
STREAMS = (1, 2, 4, 8, 16, 32)
_REQUESTS = 2
_SPACE = 1.25
_LAYERS_AHEAD = 2


class Row(NamedTuple):
    """One number of streams: time, and the time of one stream over it; that without prefetch over it."""

    graph: str
    setting: str
    streams: int
    milliseconds: float
    speed: float
    over_none: float


def cold_times(
    name: str, streams: Sequence[int], device: DeviceSpec, begin: Callable[[str], None]
) -> list[Row]:
    """Rows of one transformer with cold weights."""
    model = transformer(COLD[name], blocks_at_once(device), name=name)
    graph = merge_requests(name, [(f"r{i}", model, 0) for i in range(_REQUESTS)])
    rows = []
    for setting, part in (("room for all weights", 1.0), ("room for a fifth", 0.2)):
        hbm_bytes = _room(graph, device, part)

        def run(count: int, hbm_bytes: int = hbm_bytes) -> int:
            options = RunOptions(
                streams=1,
                run_ahead=2,
                commands=4,
                prefetches=64 if count else 0,
                l2_prefetches=0,
                prefetch_streams=max(count, 1),
                hbm_bytes=hbm_bytes,
            )
            program = compile_graph(graph, device, options)
            return decide(program, Aggressive(ORDERS["single_stream"]())).end_ns

        rows += _rows(name, setting, streams, run, begin)
    return rows


def _room(graph: CommandGraph, device: DeviceSpec, part: float) -> int:
    """Memory for device buffers, some holes between them, and a part of the weights."""
    usage = Usage.of(compile_graph(graph, device, RunOptions(streams=1, run_ahead=2)))
    weights = sum(size for size, managed in zip(usage.sizes, usage.managed, strict=True) if managed)
    return int(_SPACE * int(usage.device_bytes(0).max()) + part * weights)


def decode_times(
    name: str, streams: Sequence[int], device: DeviceSpec, begin: Callable[[str], None]
) -> list[Row]:
    """Rows of one decoding step."""
    graph = decoding(SHAPES[DECODE[name]], blocks_at_once(device), name=name)
    lifts = quiet_lifts(graph)
    ahead = _LAYERS_AHEAD * len(lifts) // SHAPES[DECODE[name]].layers
    rows = []
    for megabytes in (4, 18):

        def run(count: int, megabytes: int = megabytes) -> int:
            options = RunOptions(
                streams=1,
                run_ahead=2,
                commands=4,
                prefetches=0,
                l2_prefetches=16,
                prefetch_streams=max(count, 1),
                prefetch_mask=PrefetchMask.FREE,
                l2_prefetch_bytes=megabytes * 1_000_000,
            )
            policy = LiftAhead(ORDERS["single_stream"](), lifts, times=min(count, 1), ahead=ahead)
            return decide(compile_graph(graph, device, options), policy).end_ns

        rows += _rows(name, f"lifts of {megabytes} MB", streams, run, begin)
    return rows


def _rows(
    name: str,
    setting: str,
    streams: Sequence[int],
    run: Callable[[int], int],
    begin: Callable[[str], None],
) -> list[Row]:
    none, one = run(0), run(1)
    rows = []
    for count in streams:
        begin(f"{name}, {setting}, {count}")
        taken = run(count)
        rows.append(Row(name, setting, count, taken / 1e6, one / taken, none / taken))
    return rows


def measure(
    graphs: Sequence[str], streams: Sequence[int], device: DeviceSpec, begin: Callable[[str], None]
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        rows += (cold_times if name in COLD else decode_times)(name, streams, device, begin)
    return rows


def show(rows: Sequence[Row], streams: Sequence[int]) -> None:
    """Graphs and settings by number of streams."""
    lines = []
    for graph, setting in dict.fromkeys((row.graph, row.setting) for row in rows):
        own = [row for row in rows if (row.graph, row.setting) == (graph, setting)]
        best = max(row.speed for row in own)
        cells = [f"{row.speed:.3f}{'*' if row.speed == best else ' '} ({row.over_none:.2f})" for row in own]
        lines.append([f"{graph}, {setting}", number(own[0].milliseconds, 2), *cells])
    columns = ["graph", f"ms at {streams[0]}", *(str(count) for count in streams)]
    notes = [
        "A cell: speed over that of one prefetch stream; in brackets over that without prefetch; * is best.",
        "Over the link to the host one stream fills the link, and more delay what is needed first. One lift into",
        "L2 moves at the port of its engine, a third of what HBM has: there a few streams may be better.",
    ]
    print_table("Speed by number of prefetch streams", columns, lines, notes)


def main() -> None:
    """Measure and print."""
    every = [*COLD, *DECODE]
    parser = arguments(__doc__, plot=True)
    parser.add_argument("--streams", type=int, nargs="+", default=list(STREAMS))
    parser.add_argument("--graphs", choices=every, nargs="+", default=every)
    given = parser.parse_args()
    streams = sorted(given.streams)
    with progress(2 * len(given.graphs) * len(streams)) as begin:
        rows = measure(given.graphs, streams, load_device(given.device), begin)
    if given.plot:
        names = dict.fromkeys((row.graph, row.setting) for row in rows)
        lines = {
            f"{graph}, {setting}": [
                (row.streams, 1 / row.speed) for row in rows if (row.graph, row.setting) == (graph, setting)
            ]
            for graph, setting in names
        }
        draw(given.plot, "Prefetch streams", ("streams", "time over that of one stream"), lines)
    if given.json:
        print_json(rows=rows)
        return
    show(rows, streams)


if __name__ == "__main__":
    main()
