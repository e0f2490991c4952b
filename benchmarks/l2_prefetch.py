"""What lifting weights from HBM into L2 is worth in decoding, against how much is lifted.

``python benchmarks/l2_prefetch.py [--megabytes 0 1 2 ...] [--graphs NAME ...] [--plot FILE] [--json]``
decodes one token a request on one stream. The weights of each matrix product that follows vector kernels or a
collective are lifted as soon as these begin, up to so many megabytes a product. Lifted too little, L2 saves
little; lifted too much, the lift ends after the product has begun, which then gets nothing of it and shares
HBM with it. A duplicate asks for each lift twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from decoding import DecodeShape, LiftAhead, decoding, quiet_lifts
from tables import arguments, draw, number, print_json, print_table, progress

from cann_env.device.load import load_device
from cann_env.options import PrefetchMask, RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS, record_schedule, rollout
from cann_env.units import InputError
from cann_env.workloads.kernels import blocks_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph

SHAPES = {
    "7b-8way-b16": DecodeShape(),
    "32b-8way-b32": DecodeShape(hidden=5120, inner=27648, requests=32, groups=5),
    "70b-8way-b64": DecodeShape(hidden=8192, inner=28672, requests=64, groups=8),
    "7b-alone-b16": DecodeShape(devices=1, collective_ns=0),
}
MEGABYTES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 16.0, 18.0)


class Row(NamedTuple):
    """One amount.

    Attributes:
        graph: What was run.
        megabytes: Most that is lifted for one product.
        layer_megabytes: Lifted for one layer.
        microseconds: Time of the step.
        speed: Time without lifts over that time.
        late: Part of the lifts that end after their product has begun.
        duplicate_speed: As ``speed``, if each lift is asked for twice.
        best: No other amount of the same graph is faster.
    """

    graph: str
    megabytes: float
    layer_megabytes: float
    microseconds: float
    speed: float
    late: float
    duplicate_speed: float
    best: bool = False


def options_of(megabytes: float) -> RunOptions:
    """One stream, one command submitted ahead, lifts at the caller's risk."""
    return RunOptions(
        streams=1,
        run_ahead=2,
        commands=4,
        prefetches=0,
        l2_prefetches=8,
        prefetch_mask=PrefetchMask.FREE,
        l2_prefetch_bytes=int(megabytes * 1e6),
    )


def run(graph: CommandGraph, device: DeviceSpec, megabytes: float, times: int) -> tuple[int, float]:
    """Time of the step (ns), and the part of the lifts that came too late."""
    program = compile_graph(graph, device, options_of(megabytes))
    lifts = quiet_lifts(graph)
    policy = LiftAhead(ORDERS["single_stream"](), lifts, times=times)
    outcome = rollout(program, policy)
    schedule = record_schedule(program, outcome.actions)
    start_of = {run.command: run.start_ns for run in schedule.commands}
    begun = {lift.weight: start_of[lift.user] for lift in lifts}
    moves = [move for move in schedule.transfers if move.cause == "lift"]
    late = sum(move.finish_ns > begun[move.buffer] for move in moves)
    return outcome.end_ns, late / max(len(moves), 1)


def measure(
    graphs: Sequence[str], sweep: Sequence[float], device: DeviceSpec, begin: Callable[[str], None]
) -> list[Row]:
    """Run everything; the best amount of each graph is marked."""
    rows = []
    for name in graphs:
        shape = SHAPES[name]
        graph = decoding(shape, blocks_at_once(device), name=name)
        sizes = [graph.buffers[lift.weight].size_bytes for lift in quiet_lifts(graph)]
        alone, _ = run(graph, device, 0.0, times=0)
        own = []
        for megabytes in sweep:
            begin(f"{name} {megabytes:g} MB")
            taken, late = run(graph, device, megabytes, times=1)
            twice, _ = run(graph, device, megabytes, times=2)
            lifted = sum(min(size, megabytes * 1e6) for size in sizes) / shape.layers / 1e6
            own.append(Row(name, megabytes, lifted, taken / 1e3, alone / taken, late, alone / twice))
        best = max(row.speed for row in own)
        rows += [row._replace(best=row.speed == best) for row in own]
    return rows


def show(name: str, rows: Sequence[Row]) -> None:
    """One graph by amount."""
    lines = [
        [
            f"{row.megabytes:g}{' *' if row.best else '  '}",
            number(row.layer_megabytes, 1),
            number(row.microseconds, 1),
            number(row.speed, 4),
            f"{row.late:.0%}",
            number(row.duplicate_speed, 4),
            number(row.speed / row.duplicate_speed, 4),
        ]
        for row in rows
    ]
    columns = [
        "MB a product",
        "MB a layer",
        "us",
        "speed x none",
        "late",
        "duplicated x none",
        "once x duplicated",
    ]
    best = next(row for row in rows if row.best)
    note = (
        f"* best: {best.megabytes:g} MB a product, {best.speed - 1:+.2%}; "
        f"asked for twice {best.duplicate_speed - 1:+.2%}; the most of all {rows[-1].speed - 1:+.2%}"
    )
    print_table(name, columns, lines, [note])


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, plot=True)
    parser.add_argument("--megabytes", type=float, nargs="+", default=list(MEGABYTES))
    parser.add_argument("--graphs", choices=SHAPES, nargs="+", default=list(SHAPES))
    given = parser.parse_args()
    with progress(len(given.graphs) * len(given.megabytes)) as begin:
        device = load_device(given.device)
        if not blocks_at_once(device)["mix"]:
            raise InputError(f"{device.name} has no kernels of class 'mix', which attention needs here")
        rows = measure(given.graphs, sorted(given.megabytes), device, begin)
    if given.plot:
        lines = {
            name: [(row.layer_megabytes, 1 / row.speed) for row in rows if row.graph == name]
            for name in given.graphs
        }
        draw(
            given.plot,
            "Prefetch into L2 in decoding",
            ("MB lifted a layer", "time over that without prefetch"),
            lines,
        )
    if given.json:
        print_json(rows=rows)
        return
    for name in given.graphs:
        show(name, [row for row in rows if row.graph == name])


if __name__ == "__main__":
    main()
