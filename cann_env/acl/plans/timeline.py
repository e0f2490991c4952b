"""What a run did, on one time axis: streams, engines, moves of memory and calls of the host.

The engine plays what a device does between two instants at which it is idle; here those pieces are put behind
each other, at the time of the program, as one schedule that can be drawn and traced.
"""

from __future__ import annotations

import bisect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, Level
from cann_env.options import RunOptions, Submission
from cann_env.schedule import (
    FAR,
    BlockRun,
    CommandRun,
    EventWait,
    HostCall,
    Schedule,
    Stall,
    TransferRun,
    Waiting,
)  # fmt: skip
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.acl.state import work as acl_work
    from cann_env.acl.state.epochs import Epoch
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work

_WAITING: Final = ("rt.memcpy", "rt.memset", "rt.memcpy2d", "rt.reset_device", "acl.finalize", "mdl.execute")


def timeline(run: Simulator, *, device: int = 0) -> Schedule:
    """What a device did so far, as one schedule: time zero is that of the program.

    Streams are numbered in the order in which they were first used. What only marks an instant of a prefetch
    is left out; where memory arrives after all work, a command of 1 ns marks that. The schedule is to be
    looked at: it has no decisions and cannot be replayed.

    Args:
        run: The run.
        device: Number of the device.

    Raises:
        InputError: The device did nothing.
    """
    epochs = [epoch for number, epoch in run.schedules() if number == device]
    joined = _Joined(run, device)
    for epoch in epochs:
        joined.add(epoch)
    if not joined.runs:
        raise InputError(f"the program gave device {device} nothing to do; there is no timeline")
    return joined.schedule()


def save_trace(run: Simulator, path: str | Path, *, device: int = 0) -> Path:
    """Write the timeline for Perfetto, ``chrome://tracing`` or MindStudio Insight.

    Raises:
        InputError: The device did nothing, or the file cannot be written.
    """
    from cann_env.render.trace import write_trace

    names = [HostCall(call.call, -1, call.start_ns, call.end_ns) for call in _timed(run)]
    return write_trace(replace(timeline(run, device=device), host=tuple(names)), path)


def save_picture(run: Simulator, path: str | Path, *, device: int = 0) -> Path:
    """Draw the timeline; the ending of the path names the format (``.png``, ``.svg``, ``.pdf``).

    Raises:
        InputError: The device did nothing, matplotlib is not installed, or the file cannot be written.
    """
    from cann_env.render.gantt import gantt

    gantt(timeline(run, device=device), path)
    return Path(path)


class _Joined:
    """Rows of all epochs, under the making."""

    def __init__(self, run: Simulator, device: int) -> None:
        self._run = run
        self._device = device
        self._places: dict[int, int] = {}
        self._streams: dict[int, int] = {}
        self._buffers: dict[str, int] = {}
        self._held: list[Buffer] = []
        self._positions: dict[int, int] = {}
        self._epochs: list[Epoch] = []
        self._submitted: list[tuple[int, int]] = []
        self.commands: list[Command] = []
        self.runs: list[CommandRun] = []
        self.blocks: list[BlockRun] = []
        self.transfers: list[TransferRun] = []
        self.waiting: list[Waiting] = []

    def add(self, epoch: Epoch) -> None:
        """Rows of one epoch, shifted to the time of the program."""
        self._epochs.append(epoch)
        base, schedule = epoch.base_ns, epoch.schedule
        for row in sorted(schedule.commands, key=lambda row: (row.start_ns, row.command)):
            index = epoch.works[row.command]
            if index < 0 or self._run.log[index].prefetch is not None:
                continue
            work = self._run.log[index]
            stream = self._streams.setdefault(work.stream, len(self._streams))
            position = self._positions.get(stream, 0)
            self._positions[stream] = position + 1
            self._places[index] = len(self.commands)
            self.commands.append(self._command(work))
            self.runs.append(
                CommandRun(
                    self._places[index], stream, position, work.submitted_ns,
                    base + row.start_ns, base + row.finish_ns,
                )
            )  # fmt: skip
        for block in schedule.blocks:
            index = epoch.works[block.command]
            if index in self._places:
                self.blocks.append(
                    block._replace(
                        command=self._places[index],
                        start_ns=base + block.start_ns,
                        finish_ns=base + block.finish_ns,
                        kernel_start_ns=base + block.kernel_start_ns,
                    )
                )
        for wait in schedule.waiting:
            index = epoch.works[wait.command]
            if index in self._places:
                command, start, finish = self._places[index], base + wait.start_ns, base + wait.finish_ns
                self.waiting.append(Waiting(command, wait.cause, start, finish))
        for move in schedule.transfers:
            if move.start_ns < FAR:
                self.transfers.append(
                    move._replace(
                        buffer=self._buffer(schedule.graph.buffers[move.buffer]),
                        reserve_ns=base + move.reserve_ns,
                        start_ns=base + move.start_ns,
                        finish_ns=move.finish_ns if move.finish_ns >= FAR else base + move.finish_ns,
                    )
                )

    def _command(self, work: Work) -> Command:
        name = f"{len(self.commands)}:{work.label or work.call}"
        return replace(work.command, name=name, reads=(), writes=(), after=(), release_ns=0, stream_hint=None)

    def _buffer(self, buffer: Buffer) -> int:
        if buffer.name not in self._buffers:
            self._buffers[buffer.name] = len(self._held)
            level = Level.HOST if buffer.kind is BufferKind.MANAGED else Level.HBM
            self._held.append(replace(buffer, level=level))
        return self._buffers[buffer.name]

    def schedule(self) -> Schedule:
        """All of it."""
        run, last = self._run, self._epochs[-1].schedule
        self._last_arrival()
        self._submitted = sorted(
            (run.log[index].submitted_ns, place) for index, place in self._places.items()
        )
        order = sorted(self.runs, key=lambda row: (row.start_ns, row.command))
        return Schedule(
            graph=CommandGraph("program", tuple(self.commands), tuple(self._held)),
            device=last.device,
            options=RunOptions(streams=len(self._streams), submission=Submission(run.submission)),
            actions=(),
            commands=tuple(order),
            blocks=tuple(sorted(self.blocks, key=lambda block: block.start_ns)),
            transfers=tuple(sorted(self.transfers, key=lambda move: move.start_ns)),
            waits=tuple(self._waits()),
            host=tuple(self._call(call) for call in _timed(run)),
            stall=_stall([epoch.schedule.stall for epoch in self._epochs]),
            lower_bound_ns=0,
            peak_hbm_bytes=max(epoch.schedule.peak_hbm_bytes for epoch in self._epochs),
            noise=(1 << 20,) * len(self.commands),
            waiting=tuple(sorted(self.waiting, key=lambda row: (row.start_ns, row.command))),
        )

    def _last_arrival(self) -> None:
        """A mark where memory arrives after all work: what draws schedules ends with the last command."""
        moved = [work for work in self._run.log if work.prefetch is not None and work.device == self._device]
        if not moved:
            return
        latest = max(moved, key=lambda work: work.finish_ns)
        if latest.finish_ns <= max(row.finish_ns for row in self.runs):
            return
        place = len(self.commands)
        stream = self._streams.setdefault(latest.stream, len(self._streams))
        self.commands.append(replace(self._command(latest), name=f"{place}:moved"))
        position = self._positions.get(stream, 0)
        self.runs.append(
            CommandRun(place, stream, position, latest.submitted_ns, latest.finish_ns - 1, latest.finish_ns)
        )

    def _call(self, call: acl_work.HostCall) -> HostCall:
        """What a call was to the host: it submitted something, waited, or did something else."""
        first = bisect.bisect_right(self._submitted, (call.start_ns, FAR))
        if first < len(self._submitted) and self._submitted[first][0] <= call.end_ns:
            return HostCall("issue", self._submitted[first][1], call.start_ns, call.end_ns)
        waits = "synchronize" in call.call or call.call in _WAITING
        return HostCall("wait" if waits else "call", -1, call.start_ns, call.end_ns)

    def _waits(self) -> list[EventWait]:
        """Events between streams, to work that is no mark of a prefetch."""
        log = self._run.log
        return [
            EventWait(self._places[j], place)
            for index, place in self._places.items()
            for j in dict.fromkeys(log[index].all_waits)
            if j in self._places and log[j].stream != log[index].stream
        ]


def _timed(run: Simulator) -> list[acl_work.HostCall]:
    """Calls that took time."""
    return [call for call in run.calls if call.end_ns > call.start_ns]


def _stall(stalls: list[Stall]) -> Stall:
    return Stall(*(sum(values) for values in zip(*stalls, strict=True)))
