"""A schedule as a trace that Perfetto, ``chrome://tracing`` and MindStudio Insight open.

Schedule rows become trace events: slices on tracks that nest properly, arrows for event waits,
counters. Times are microseconds, written so that whole nanoseconds survive.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.graph import CommandKind
from cann_env.render.moves import CARRIERS, TITLES, seen
from cann_env.render.palette import POOL_TITLES
from cann_env.render.rows import KernelSpan, kernel_spans, pack
from cann_env.render.series import Series, busy, from_changes, hbm_in_use
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cann_env.graph import Buffer, Command
    from cann_env.schedule import BlockRun, Schedule, TransferRun

Event = dict[str, Any]


class Process(IntEnum):
    """The groups of tracks, in the order they are shown; the value is the trace's ``pid``."""

    STREAMS = 1
    ENGINES = 2
    HOST = 3
    TRANSFERS = 4


_TRACKS_PER_PROCESS = 1_000_000
_CAUSES = (*CARRIERS, "touch", "evict", "free")


def chrome_trace(schedule: Schedule) -> dict[str, Any]:
    """The schedule as a Chrome trace.

    Processes: *Streams* has one track a stream (a slice a command, the kernels of a fused command
    inside it, an arrow for each event wait); *Engines* has lanes for each pool (a slice for the blocks of
    a kernel that started together) and a counter of its busy cores; *Host* has the calls of the host
    thread; *Transfers* has lanes for each cause of a transfer, cut at the end of the last command, and
    counters of the HBM in use on each die and of what moves from the host, to the host and into L2.

    Returns:
        ``{"traceEvents": [...], "displayTimeUnit": "ns", "otherData": {...}}``, ready for ``json.dump``;
        events other than metadata are ordered by time, and a slice stands before those inside it.
    """
    spans = kernel_spans(schedule.blocks)
    names: list[Event] = [_process_name(process) for process in Process]
    timed: list[Event] = []
    for part in (_streams(schedule, spans), _engines(schedule), _host(schedule), _transfers(schedule)):
        for event in part:
            (names if event["ph"] == "M" else timed).append(event)
    timed.sort(key=_order)
    return {
        "traceEvents": names + timed,
        "displayTimeUnit": "ns",
        "otherData": {
            "graph": schedule.graph.name,
            "device": schedule.device.name,
            "makespan_ns": schedule.makespan_ns,
            "lower_bound_ns": schedule.lower_bound_ns,
            "peak_hbm_bytes": schedule.peak_hbm_bytes,
        },
    }


def write_trace(schedule: Schedule, path: str | Path) -> Path:
    """Write :func:`chrome_trace` as JSON.

    Returns:
        The path written.

    Raises:
        InputError: The file cannot be written.
    """
    target = Path(path)
    try:
        with target.open("w", encoding="utf-8") as file:
            json.dump(chrome_trace(schedule), file, separators=(",", ":"))
    except OSError as error:
        raise InputError(f"trace {str(target)!r} cannot be written: {error.strerror}") from error
    return target


def _order(event: Event) -> tuple[float, int, float]:
    rank = {"C": 0, "X": 1, "s": 2, "f": 3}[event["ph"]]
    return event["ts"], rank, -event.get("dur", 0.0)


def _us(ns: int) -> float:
    """Microseconds that give back ``ns`` whether a viewer rounds the thousandfold or cuts it off."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


def _track(process: Process, row: int) -> dict[str, int]:
    return {"pid": int(process), "tid": process * _TRACKS_PER_PROCESS + row}


def _slice(
    process: Process, row: int, name: str, start_ns: int, finish_ns: int, category: str, **args: Any
) -> Event:
    return {
        "ph": "X",
        **_track(process, row),
        "ts": _us(start_ns),
        "dur": _us(finish_ns - start_ns),
        "name": name,
        "cat": category,
        "args": args,
    }


def _process_name(process: Process) -> Event:
    return {
        "ph": "M",
        "pid": int(process),
        "name": "process_name",
        "args": {"name": process.name.capitalize()},
    }


def _track_names(process: Process, names: Sequence[str]) -> Iterator[Event]:
    yield {"ph": "M", "pid": int(process), "name": "process_sort_index", "args": {"sort_index": int(process)}}
    for row, name in enumerate(names):
        yield {"ph": "M", **_track(process, row), "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", **_track(process, row), "name": "thread_sort_index", "args": {"sort_index": row}}


def _counter(process: Process, name: str, unit: str, series: Series) -> Iterator[Event]:
    for time, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
        yield {"ph": "C", "pid": int(process), "name": name, "ts": _us(time), "args": {unit: value}}


def _streams(schedule: Schedule, spans: Iterable[KernelSpan]) -> Iterator[Event]:
    commands = schedule.graph.commands
    streams = sorted({run.stream for run in schedule.commands})
    yield from _track_names(Process.STREAMS, [f"stream {stream}" for stream in range(streams[-1] + 1)])
    runs = {run.command: run for run in schedule.commands}
    for run in schedule.commands:
        command = commands[run.command]
        yield _slice(
            Process.STREAMS,
            run.stream,
            command.name,
            run.start_ns,
            run.finish_ns,
            command.kind.value,
            command=run.command,
            position=run.position,
            issue_ns=run.issue_ns,
            **({"request": command.request} if command.request else {}),
        )
    for span in spans:
        command = commands[span.command]
        if command.kind is CommandKind.KERNEL and len(command.kernels) > 1:
            yield _slice(
                Process.STREAMS,
                runs[span.command].stream,
                command.kernels[span.kernel].name,
                span.start_ns,
                span.finish_ns,
                span.work_class,
                command=span.command,
                kernel=span.kernel,
                blocks=span.blocks,
            )
    for i, wait in enumerate(schedule.waits):
        producer, consumer = runs[wait.producer], runs[wait.consumer]
        # An arrow binds to a slice that is open, and the end of a slice lies outside it.
        leaves = max(producer.start_ns, producer.finish_ns - 1)
        yield _arrow("s", i, producer.stream, leaves)
        yield _arrow("f", i, consumer.stream, consumer.start_ns)


def _arrow(phase: str, i: int, stream: int, time_ns: int) -> Event:
    event = {
        "ph": phase,
        "id": i + 1,
        **_track(Process.STREAMS, stream),
        "ts": _us(time_ns),
        "name": "event",
        "cat": "event",
    }
    return event if phase == "s" else {**event, "bp": "e"}


def _engines(schedule: Schedule) -> Iterator[Event]:
    names: list[str] = []
    slices: list[Event] = []
    for pool in schedule.device.pool_names:
        title = POOL_TITLES.get(pool, pool)
        lanes = _by_die(schedule, pool)
        for die in sorted(lanes):
            blocks = sorted(lanes[die], key=lambda block: (block.start_ns, block.command, block.kernel))
            rows = pack([(block.start_ns, block.finish_ns) for block in blocks])
            slices += [
                _block_slice(schedule, len(names) + row, block)
                for row, block in zip(rows, blocks, strict=True)
            ]
            prefix = f"die {die} " if schedule.device.dies > 1 else ""
            names += [f"{prefix}{title} lane {lane}" for lane in range(max(rows) + 1)]
        if lanes:
            yield from _counter(Process.ENGINES, f"busy {title}", "busy", busy(schedule, pool))
    yield from _track_names(Process.ENGINES, names)
    yield from slices


def _by_die(schedule: Schedule, pool: str) -> dict[int, list[BlockRun]]:
    lanes: dict[int, list[BlockRun]] = defaultdict(list)
    for block in schedule.blocks:
        if schedule.demand_of(block).get(pool, 0):
            lanes[block.die].append(block)
    return lanes


def _block_slice(schedule: Schedule, row: int, block: BlockRun) -> Event:
    command = schedule.graph.commands[block.command]
    name = command.kernels[block.kernel].name if command.kernels else command.name
    return _slice(
        Process.ENGINES,
        row,
        name,
        block.start_ns,
        block.finish_ns,
        block.work_class,
        command=block.command,
        kernel=block.kernel,
        blocks=block.blocks,
    )


def _host(schedule: Schedule) -> Iterator[Event]:
    yield from _track_names(Process.HOST, ["host thread"])
    targets: dict[str, Sequence[Command | Buffer]] = {
        "issue": schedule.graph.commands,
        **dict.fromkeys(("prefetch", "lift", "offload"), schedule.graph.buffers),
    }
    for call in schedule.host:
        known = targets.get(call.call, ())
        name = f"{call.call} {known[call.target].name}" if known else call.call
        yield _slice(Process.HOST, 0, name, call.start_ns, call.end_ns, call.call, target=call.target)


def _transfers(schedule: Schedule) -> Iterator[Event]:
    names: list[str] = []
    slices: list[Event] = []
    for (_, die, cause), found in sorted(_moves(schedule).items()):
        moves = sorted(found, key=lambda move: (move.start_ns, move.buffer))
        rows = pack([(move.start_ns, move.finish_ns) for move in moves])
        for row, move in zip(rows, moves, strict=True):
            buffer = schedule.graph.buffers[move.buffer]
            slices.append(
                _slice(
                    Process.TRANSFERS,
                    len(names) + row,
                    buffer.name,
                    move.start_ns,
                    move.finish_ns,
                    cause,
                    size_bytes=move.size_bytes or buffer.size_bytes,
                    reserve_ns=move.reserve_ns,
                )
            )
        prefix = f"die {die} " if schedule.device.dies > 1 else ""
        names += [f"{prefix}{cause} lane {lane}" for lane in range(max(rows, default=-1) + 1)]
    yield from _track_names(Process.TRANSFERS, names)
    yield from slices
    for die in range(schedule.device.dies):
        name = f"HBM in use on die {die}" if schedule.device.dies > 1 else "HBM in use"
        yield from _counter(Process.TRANSFERS, name, "bytes", hbm_in_use(schedule, die))
    for pool, title in TITLES.items():
        series = _moving(schedule, pool)
        if series.values.max() > 0:
            yield from _counter(Process.TRANSFERS, f"moving {title}", "transfers", series)


def _moves(schedule: Schedule) -> dict[tuple[int, int, str], list[TransferRun]]:
    """Transfers that have begun by the end, by place of their cause, die and cause."""
    moves: dict[tuple[int, int, str], list[TransferRun]] = defaultdict(list)
    for move in seen(schedule.transfers, schedule.makespan_ns):
        place = _CAUSES.index(move.cause)
        moves[place, schedule.graph.buffers[move.buffer].die, move.cause].append(move)
    return moves


def _moving(schedule: Schedule, pool: str) -> Series:
    """How many transfers an engine moves."""
    moves = [m for m in seen(schedule.transfers, schedule.makespan_ns) if CARRIERS.get(m.cause) == pool]
    return from_changes([(m.start_ns, 1) for m in moves] + [(m.finish_ns, -1) for m in moves])
