"""Setting aside what a device did, so that the engine need not play it again and again.

Where a device is idle, that is simple. Where it is always busy, as in a pipeline, the past is cut off once
two plays, of what is cut off and of what remains, give the times that the play of both gave; what remains
begins with work that is over, so that it finds the device as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl.state.epochs import close_device, played
from cann_env.acl.state.memory import Space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.acl.state.epochs import Device, Epoch
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.score import Runtime
    from cann_env.acl.state.work import Work

_LONG: Final = 128
"""Pieces of work since a device was idle from which on a cut is tried."""

_KEPT: Final = 32
"""Pieces of work that are over and stay nevertheless."""


def set_aside(device: Device, log: Sequence[Work], streams: Mapping[int, Stream], runtime: Runtime) -> None:
    """Set aside what a device did, all of it if it is idle."""
    if all(log[i].ended for i in device.works):
        close_device(device, log)
    elif runtime.options is None and len(device.works) >= max(_LONG, device.tried):
        device.tried = 2 * len(device.works)
        if _cut(device, log, streams, runtime):
            device.tried = 0


def _cut(device: Device, log: Sequence[Work], streams: Mapping[int, Stream], runtime: Runtime) -> bool:
    works = [log[i] for i in device.works]
    over = next((place for place, work in enumerate(works) if not work.ended), len(works)) - _KEPT
    past, rest = works[: max(0, over)], works[max(0, over) :]
    if len(past) < _KEPT or device.stuck or not all(map(_is_plain, works)) or not _is_closed(log, past):
        return False
    one = played(device, past, log, streams, runtime)
    if not _agrees(one, past):
        return False
    gone = {work.index for work in past}
    pinned = [
        work for work in rest if work.begun or work.previous in gone or not gone.isdisjoint(work.all_waits)
    ]
    before = {work.index: work.others_ns for work in pinned}
    for work in pinned:
        work.others_ns = work.start_ns
    starts = _starts(played(device, rest, log, streams, runtime))
    for work in pinned:
        work.others_ns = max(before[work.index], 2 * work.start_ns - starts[work.index])
    other = played(device, rest, log, streams, runtime)
    if not _agrees(other, rest):
        for work in pinned:
            work.others_ns = before[work.index]
        return False
    device.epochs.append(one)
    device.current, device.works = other, [work.index for work in rest]
    return True


def _is_plain(work: Work) -> bool:
    """Nothing moves between levels of memory for it, and it is known when it runs."""
    managed = any(touch.range.allocation.space is Space.MANAGED for touch in work.touches)
    return work.prefetch is None and not managed and work.finish_ns >= 0


def _is_closed(log: Sequence[Work], works: Sequence[Work]) -> bool:
    """Nothing waits for work of its device that is not among them and not set aside already."""
    first, inside = works[0].index, {work.index for work in works}
    return all(
        j in inside or j < first or log[j].device != works[0].device for w in works for j in w.all_waits
    )


def _starts(epoch: Epoch) -> dict[int, int]:
    return {epoch.works[row.command]: epoch.base_ns + row.start_ns for row in epoch.schedule.commands}


def _agrees(epoch: Epoch, works: Sequence[Work]) -> bool:
    """Whether all work runs when it did before."""
    times = {
        epoch.works[row.command]: (epoch.base_ns + row.start_ns, epoch.base_ns + row.finish_ns)
        for row in epoch.schedule.commands
    }
    return all(times.get(work.index) == (work.start_ns, work.finish_ns) for work in works)
