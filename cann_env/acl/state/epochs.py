"""Devices, and what they did between instants at which they were idle.

What a device does after it was idle does not depend on how it got there (but for what lies in its cache,
which is taken as empty), so that the engine need only play what was submitted since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.acl.state.frames import Frames
from cann_env.acl.state.memory import Space
from cann_env.acl.state.order import clashes
from cann_env.acl.state.play import play
from cann_env.acl.state.score import score_of
from cann_env.acl.state.work import Way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.score import Runtime
    from cann_env.acl.state.work import Work
    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a device did between two instants at which it was idle.

    Attributes:
        base_ns: Time zero of the schedule on the program's clock.
        schedule: As the engine played it.
        works: Indices of the work, in the order of the graph's commands; -1 for what stands for none.
    """

    base_ns: int
    schedule: Schedule
    works: tuple[int, ...]


@dataclass(slots=True)
class Device:
    """A device as this run sees it.

    Attributes:
        number: As ``set_device`` names it.
        spec: What it can do.
        used_bytes: Memory that is given out.
        peak_bytes: Most of it at once since the device was last idle.
        works: Indices of work since then.
        stuck: Those that can never end.
        stale: Work was added since the engine last played.
        epochs: What is over.
        tried: Pieces of work from which on a cut of the past is tried again.
        limits: Limits of cores by kind.
        copies: Stream of synchronous copies; made when first needed.
        frames: Where small pages lie.
    """

    number: int
    spec: DeviceSpec
    used_bytes: int = 0
    peak_bytes: int = 0
    works: list[int] = field(default_factory=list)
    stuck: set[int] = field(default_factory=set)
    stale: bool = False
    current: Epoch | None = None
    epochs: list[Epoch] = field(default_factory=list)
    tried: int = 0
    limits: dict[int, int] = field(default_factory=dict)
    copies: Stream | None = None
    frames: Frames = field(default_factory=Frames)


def play_device(
    device: Device,
    log: Sequence[Work],
    streams: Mapping[int, Stream],
    runtime: Runtime,
    held: Sequence[Allocation] = (),
) -> None:
    """Find out when the work of a device starts and ends; what has happened already stays as it was.

    Args:
        device: The device.
        log: All work.
        streams: By handle, as far as they are not gone.
        runtime: How the runtime behaves.
        held: All memory, of which that of the device takes room if the runtime's behaviour was prescribed.
    """
    if not device.stale or not device.works:
        return
    works = [log[i] for i in device.works]
    alive = _alive(log, works)
    device.stuck = {work.index for work in works if work.index not in alive}
    device.stale = False
    works = [work for work in works if work.index in alive]
    if not works:
        return
    for clash in clashes(log, works, ()):
        clash.allocation.racy = True
    epoch = played(device, works, log, streams, runtime, held)
    base, schedule = epoch.base_ns, epoch.schedule
    for work in works:
        if work.at_once and not work.begun:
            work.start_ns = work.finish_ns = work.submitted_ns
    for run in schedule.commands:
        index = epoch.works[run.command]
        if index >= 0 and not log[index].begun:
            log[index].start_ns = base + run.start_ns
        if index >= 0 and not log[index].ended:
            log[index].finish_ns = base + run.finish_ns
    _late_moves(schedule, works, base)
    device.current = epoch


def played(
    device: Device,
    works: Sequence[Work],
    log: Sequence[Work],
    streams: Mapping[int, Stream],
    runtime: Runtime,
    held: Sequence[Allocation] = (),
) -> Epoch:
    """What a device does with some work alone; the work itself stays as it was."""
    prescribed = runtime.options is not None
    base = 0 if prescribed else min(work.submitted_ns for work in works)
    score = score_of(
        works, device=device.spec, base_ns=base, live_bytes=device.peak_bytes, runtime=runtime,
        priorities={handle: stream.priority for handle, stream in streams.items()},
        dies={handle: stream.die for handle, stream in streams.items()},
        ranks=_ranks(log, device.number, runtime.order),
        held=[allocation for allocation in held if prescribed and _takes_room(allocation, device)],
    )  # fmt: skip
    indices = tuple(-1 if work is None else work.index for work in score.works)
    return Epoch(base, play(score, device.spec), indices)


def _takes_room(allocation: Allocation, device: Device) -> bool:
    """Whether memory is a device's, held, and no pool's, which gives it out as work needs it."""
    there = allocation.device == device.number and allocation.space in (Space.DEVICE, Space.MANAGED)
    return there and not allocation.freed and not allocation.pool


def _ranks(log: Sequence[Work], device: int, order: Sequence[int]) -> dict[int, int]:
    """Place of work in the graph of a program, by index; prefetches have none."""
    if not order:
        return {}
    works = [work.index for work in log if work.device == device and work.prefetch is None]
    return dict(zip(works, order, strict=False))


def hear_from_others(device: Device, log: Sequence[Work]) -> None:
    """Work that waits for work of other devices begins when that has ended; play again if this has moved."""
    for work in (log[i] for i in device.works):
        ends = [log[j].finish_ns for j in work.all_waits if log[j].device != device.number]
        latest = max(ends, default=0)
        if latest > work.others_ns and not work.begun:
            work.others_ns = latest
            device.stale = True


def close_device(device: Device, log: Sequence[Work]) -> None:
    """All work has ended: what was played is kept, and the next work begins anew."""
    if device.current is not None:
        device.epochs.append(device.current)
    for index in device.works:
        move = log[index].prefetch
        if move is not None:
            if move[1] is not Way.LIFT:
                move[0].allocation.on_device = move[1] is Way.PREFETCH
            continue
        for touch in log[index].touches:
            if touch.range.allocation.space is Space.MANAGED:
                touch.range.allocation.on_device = True
    device.current, device.works, device.stale, device.tried = None, [], False, 0


def _late_moves(schedule: Schedule, works: Sequence[Work], base_ns: int) -> None:
    """A prefetch ends when its bytes have arrived."""
    arrived: dict[str, list[int]] = {}
    for row in schedule.transfers:
        if row.finish_ns < 1 << 61:
            arrived.setdefault(schedule.graph.buffers[row.buffer].name, []).append(base_ns + row.finish_ns)
    for work in works:
        if work.prefetch is not None and not work.ended:
            times = arrived.get(work.prefetch[0].allocation.name, [])
            later = [time for time in times if time >= work.finish_ns]
            work.finish_ns = min(later, default=work.finish_ns)


def _alive(log: Sequence[Work], works: Sequence[Work]) -> set[int]:
    """Work that can end: nothing it waits for, or its stream, waits for ever."""
    inside = {work.index for work in works}
    alive: set[int] = set()
    queues: dict[int, list[Work]] = {}
    for work in reversed(works):
        queues.setdefault(work.stream, []).append(work)
    moved = True
    while moved:
        moved = False
        for queue in queues.values():
            while queue and _can_end(log, queue[-1], inside, alive):
                alive.add(queue.pop().index)
                moved = True
    return alive


def _can_end(log: Sequence[Work], work: Work, inside: set[int], alive: set[int]) -> bool:
    if any(signal.after is None for signal in work.signals):
        return False
    return all(
        j in alive or log[j].ended or (j not in inside and log[j].finish_ns >= 0) for j in work.all_waits
    )
