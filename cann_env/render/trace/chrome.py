"""A schedule as a Chrome trace: streams, engines, the host thread and transfers, arrows and counters."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from cann_env.archive import archive_of, to_json
from cann_env.graph import CommandKind
from cann_env.render.moves import CARRIERS, TITLES, seen
from cann_env.render.palette import POOL_TITLES
from cann_env.render.rows import KernelSpan, command_classes, kernel_spans, pack
from cann_env.render.series import busy, hbm_in_use
from cann_env.render.trace.arrows import Arrows, Place, arrows_of
from cann_env.render.trace.counters import found_in_l2, link_rates, moving, queued
from cann_env.render.trace.events import (
    Event,
    Process,
    Timed,
    arrow_end,
    counter,
    in_order,
    piece,
    process_name,
    track_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cann_env.graph import Buffer, Command
    from cann_env.schedule import BlockRun, Schedule

_CAUSES = (*CARRIERS, "touch", "evict", "free")


def chrome_trace(schedule: Schedule) -> dict[str, Any]:
    """The schedule as a Chrome trace.

    Processes: *Streams* has one track a stream (a slice a command, the kernels of a fused command
    inside it) and counters of the commands that each one holds; *Engines* has lanes for each pool (a slice
    for the blocks of a kernel that started together) and a counter of its busy cores; *Host* has the calls
    of the host thread; *Transfers* has lanes for each cause of a transfer, cut at the end of the last
    command, and counters of the HBM in use on each die, of what moves from the host, to the host and into L2,
    of the bytes found in L2 so far, and of the mean rates over each link.

    Arrows, by category: ``event`` (event waits), ``data`` (a copy to the readers of its bytes, a producer to
    a copy), ``move`` (a buffer moved into HBM to its readers), ``HostToDevice`` (a call to what it
    submitted).

    Returns:
        ``{"traceEvents": [...], "displayTimeUnit": "ns", "otherData": {...}}``, ready for ``json.dump``;
        events other than metadata are ordered by time, and a slice stands before those inside it.
        ``otherData`` has the run's figures and, as ``archive``, all it takes to make the schedule once more.
    """
    ends = arrows_of(schedule)
    metadata: list[Event] = [process_name(process) for process in Process]
    parts: list[list[Timed]] = [[*_counters(schedule)]]
    for part in (
        _host(schedule, ends),
        _transfers(schedule, ends),
        _engines(schedule),
        _streams(schedule, ends),
    ):
        names, timed = part
        metadata += names
        parts.append(timed)
    return {
        "traceEvents": metadata + in_order(parts),
        "displayTimeUnit": "ns",
        "otherData": {
            "writer": "cann_env",
            "graph": schedule.graph.name,
            "device": schedule.device.name,
            "record_ns": schedule.device.dispatch.record_ns,
            "makespan_ns": schedule.makespan_ns,
            "lower_bound_ns": schedule.lower_bound_ns,
            "peak_hbm_bytes": schedule.peak_hbm_bytes,
            "archive": to_json(archive_of(schedule)),
        },
    }


_Part = tuple[list[Event], list[Timed]]
"""Metadata of a group of tracks, and what happens on them."""


def _arrow_ends(ends: Arrows, place: Place, process: Process, row: int) -> Iterator[Timed]:
    for end in ends.get(place, ()):
        yield arrow_end(process, row, end.at_ns, end.number, end.category, head=end.head)


# --- streams ----------------------------------------------------------------------------------------------


def _streams(schedule: Schedule, ends: Arrows) -> _Part:
    """In the order of submission, in which whoever leads to a command stands before it."""
    used = 1 + max(run.stream for run in schedule.commands)
    inside: dict[int, list[KernelSpan]] = defaultdict(list)
    spans = kernel_spans(schedule.blocks)
    for span in spans:
        command = schedule.graph.commands[span.command]
        if command.kind is CommandKind.KERNEL and len(command.kernels) > 1:
            inside[span.command].append(span)
    classes = command_classes(spans)
    waits: dict[int, list[int]] = defaultdict(list)
    for wait in schedule.waits:
        waits[wait.consumer].append(wait.producer)
    timed: list[Timed] = []
    calls = [call.target for call in schedule.host if call.call == "issue"]
    turn = {command: place for place, command in enumerate(calls)}
    for run in sorted(schedule.commands, key=lambda run: turn.get(run.command, len(turn))):
        command = schedule.graph.commands[run.command]
        timed.append(
            piece(
                Process.STREAMS,
                run.stream,
                command.name,
                run.start_ns,
                run.finish_ns,
                command.kind.value,
                command=run.command,
                position=run.position,
                issue_ns=run.issue_ns,
                **_details(command, classes.get(run.command)),
                **({"waits_for": waits[run.command]} if run.command in waits else {}),
            )
        )
        bound = [*_arrow_ends(ends, Place("command", run.command), Process.STREAMS, run.stream)]
        # What leads to a command as a whole is bound before a kernel within it opens.
        timed += [end for end in bound if end.at_ns == run.start_ns]
        timed += [_kernel(schedule, run.stream, span) for span in inside[run.command]]
        timed += [end for end in bound if end.at_ns != run.start_ns]
    return [*track_names(Process.STREAMS, [f"stream {stream}" for stream in range(used)])], timed


def _details(command: Command, work_class: str | None) -> dict[str, str | int]:
    """What a viewer shows of a command beside its times."""
    found: dict[str, str | int] = {"request": command.request} if command.request else {}
    if command.kernels:
        found["work_class"] = work_class or command.kernels[0].kernel_class.value
    if len(command.kernels) == 1:
        found["blocks"] = command.kernels[0].blocks
        found |= {"op": command.kernels[0].op} if command.kernels[0].op else {}
    if command.copy is not None:
        found |= {"copy": command.copy.value, "size_bytes": command.size_bytes}
    return found


def _kernel(schedule: Schedule, stream: int, span: KernelSpan) -> Timed:
    return piece(
        Process.STREAMS,
        stream,
        schedule.graph.commands[span.command].kernels[span.kernel].name,
        span.start_ns,
        span.finish_ns,
        span.work_class,
        command=span.command,
        kernel=span.kernel,
        blocks=span.blocks,
    )


# --- engines ----------------------------------------------------------------------------------------------


def _engines(schedule: Schedule) -> _Part:
    names: list[str] = []
    timed: list[Timed] = []
    for pool in schedule.device.pool_names:
        lanes = _by_die(schedule, pool)
        for die in sorted(lanes):
            blocks = sorted(lanes[die], key=lambda block: (block.start_ns, block.command, block.kernel))
            rows = pack([(block.start_ns, block.finish_ns) for block in blocks])
            timed += [
                _block(schedule, len(names) + row, block) for row, block in zip(rows, blocks, strict=True)
            ]
            names += _lanes(schedule, die, POOL_TITLES.get(pool, pool), rows)
    return [*track_names(Process.ENGINES, names)], timed


def _lanes(schedule: Schedule, die: int, title: str, rows: Iterable[int]) -> list[str]:
    prefix = f"die {die} " if schedule.device.dies > 1 else ""
    return [f"{prefix}{title} lane {lane}" for lane in range(max(rows, default=-1) + 1)]


def _by_die(schedule: Schedule, pool: str) -> dict[int, list[BlockRun]]:
    lanes: dict[int, list[BlockRun]] = defaultdict(list)
    for block in schedule.blocks:
        if schedule.demand_of(block).get(pool, 0):
            lanes[block.die].append(block)
    return lanes


def _block(schedule: Schedule, row: int, block: BlockRun) -> Timed:
    command = schedule.graph.commands[block.command]
    return piece(
        Process.ENGINES,
        row,
        command.kernels[block.kernel].name if command.kernels else command.name,
        block.start_ns,
        block.finish_ns,
        block.work_class,
        command=block.command,
        kernel=block.kernel,
        blocks=block.blocks,
    )


# --- host and transfers -----------------------------------------------------------------------------------


def _host(schedule: Schedule, ends: Arrows) -> _Part:
    targets: dict[str, Sequence[Command | Buffer]] = {
        "issue": schedule.graph.commands,
        **dict.fromkeys(("prefetch", "lift", "offload"), schedule.graph.buffers),
    }
    timed: list[Timed] = []
    for number, call in enumerate(schedule.host):
        known = targets.get(call.call, ())
        name = f"{call.call} {known[call.target].name}" if known else call.call
        timed.append(piece(Process.HOST, 0, name, call.start_ns, call.end_ns, call.call, target=call.target))
        timed += _arrow_ends(ends, Place("call", number), Process.HOST, 0)
    return [*track_names(Process.HOST, ["host thread"])], timed


def _transfers(schedule: Schedule, ends: Arrows) -> _Part:
    names: list[str] = []
    timed: list[Timed] = []
    for (_, die, cause), found in sorted(_begun(schedule).items()):
        end_ns = schedule.makespan_ns
        numbers = sorted(found, key=lambda n: (schedule.transfers[n].start_ns, schedule.transfers[n].buffer))
        moves = seen([schedule.transfers[n] for n in numbers], end_ns)
        rows = pack([(move.start_ns, move.finish_ns) for move in moves])
        for number, row, move in zip(numbers, rows, moves, strict=True):
            buffer = schedule.graph.buffers[move.buffer]
            timed.append(
                piece(
                    Process.TRANSFERS,
                    len(names) + row,
                    buffer.name,
                    move.start_ns,
                    move.finish_ns,
                    cause,
                    buffer=move.buffer,
                    size_bytes=move.size_bytes or buffer.size_bytes,
                    reserve_ns=move.reserve_ns,
                )
            )
            timed += _arrow_ends(ends, Place("move", number), Process.TRANSFERS, len(names) + row)
        names += _lanes(schedule, die, cause, rows)
    return [*track_names(Process.TRANSFERS, names)], timed


def _begun(schedule: Schedule) -> dict[tuple[int, int, str], list[int]]:
    """Numbers of the transfers that have begun by the end, by place of their cause, die and cause."""
    found: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for number, move in enumerate(schedule.transfers):
        if move.start_ns <= schedule.makespan_ns:
            place = _CAUSES.index(move.cause)
            found[place, schedule.graph.buffers[move.buffer].die, move.cause].append(number)
    return found


# --- counters ---------------------------------------------------------------------------------------------


def _counters(schedule: Schedule) -> Iterator[Timed]:
    for pool in schedule.device.pool_names:
        series = busy(schedule, pool)
        if series.values.max() > 0:
            yield from counter(Process.ENGINES, f"busy {POOL_TITLES.get(pool, pool)}", "busy", series)
    for stream, series in queued(schedule).items():
        yield from counter(Process.STREAMS, f"queue of stream {stream}", "commands", series)
    several = schedule.device.dies > 1
    for die in range(schedule.device.dies):
        name = f"HBM in use on die {die}" if several else "HBM in use"
        yield from counter(Process.TRANSFERS, name, "bytes", hbm_in_use(schedule, die))
    for pool, title in TITLES.items():
        series = moving(schedule, pool)
        if series.values.max() > 0:
            yield from counter(Process.TRANSFERS, f"moving {title}", "transfers", series)
    if schedule.hits:
        yield from counter(Process.TRANSFERS, "found in L2", "bytes", found_in_l2(schedule))
    for (link, die), series in link_rates(schedule).items():
        name = f"rate of link {link}" + (f" on die {die}" if several else "")
        yield from counter(Process.TRANSFERS, name, "bytes/s", series)
