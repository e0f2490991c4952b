"""A device for recordings of other makers' chips, which no device file describes.

It takes no time for anything but the recorded work. Cores never bind: what the recording shows at once may
run at once, and what it shows one after another must be held apart by streams, events, launches and channels.
What more is said of the device is read off the recording itself, and marked as measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.commands import CopyKind
from cann_env.device.spec import Source
from cann_env.profiles.recording import TaskKind
from cann_env.units import NS_PER_S, InputError
from cann_env.workloads.project import ideal_device
from cann_env.workloads.recorded_links import UNEXPLAINED_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.device.spec import DeviceSpec, HostSpec, LinkSpec
    from cann_env.profiles.recording import Recording, Task

FOREIGN_PROFILERS = ("Kineto",)
"""Profilers of other makers' chips, by the trait ``profiler`` of what they recorded."""

NAME = "foreign"
"""What every such device is called."""

_CHANNELS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_LARGE_BYTES = 65_536
_MARKS = (TaskKind.RECORD, TaskKind.WAIT, TaskKind.RESET)


def is_foreign(recording: Recording) -> bool:
    """Whether a recording is of a chip that is none of Ascend's, so that no device file can fit it."""
    return recording.traits.get("profiler") in FOREIGN_PROFILERS


def stands_in(device: DeviceSpec | None) -> bool:
    """Whether a device is one of :func:`foreign_device`, whose gaps are those of a recording already."""
    return device is not None and device.name == NAME


def foreign_device(recording: Recording) -> DeviceSpec:
    """A device on which a recording of another maker's chip can be played.

    - Cores and collective operations: as many as all streams together could ever hold.
    - Copies: one at a time in each direction, or as many as the recording shows at once; a link carries what
      the fastest copy of 64 KiB or more needs.
    - Between queued neighbours of a stream: the recording's usual gap. All else on the device is free.
    - Host: a call costs the median time from one launch to the next.

    Args:
        recording: Of any chip; see :func:`is_foreign`.

    Raises:
        InputError: The recording holds nothing that runs.
    """
    work = [task for task in recording.tasks if task.kind not in _MARKS]
    if not work:
        raise InputError(f"{recording.name} holds nothing that runs; at least one kernel or copy is needed")
    streams = _by_stream(work)
    cores = sum(max(task.blocks or 1 for task in tasks) for tasks in streams.values())
    channels = {
        pool: max(1, most_at_once(task for task in work if task.copy is way))
        for way, pool in _CHANNELS.items()
    }
    pools = {"aic": cores, "aiv": cores, "aicpu": cores, "hcom": len(streams), **channels}
    ideal = ideal_device(pools, idle=len(streams))
    gap, spacing = queued_gap_ns(streams.values()), launch_spacing_ns(work)
    links = dict(ideal.links)
    for way in (CopyKind.H2D, CopyKind.D2H):
        links[way.value] = _link(links[way.value], way, work, channels[way.value])
    return replace(
        ideal,
        name=NAME,
        title=recording.chip or "a device of another maker",
        links=links,
        host=_host(ideal.host, spacing),
        dispatch=replace(ideal.dispatch, gap_ns=gap),
        sources={**ideal.sources, **_sources(recording, work)},
        calibrated=False,
    )


def queued_gap_ns(streams: Iterable[Sequence[Task]]) -> int:
    """Usual time between two neighbours of a stream of which the second was there when the first ended.

    A launch takes a while to reach the device: the least that the recording shows from launch to start. Of
    the gaps behind that, those up to :data:`~cann_env.workloads.recorded_links.UNEXPLAINED_NS` are taken for
    the device's own, longer ones have other causes.

    Args:
        streams: The work of each stream, by start.

    Returns:
        The median of the device's own gaps, or the smallest gap if all are longer (ns); 0 if there are none.
    """
    queues = list(streams)
    latency = min(
        (task.start_ns - task.launch_ns for queue in queues for task in queue if task.launch_ns is not None),
        default=0,
    )
    gaps = [
        max(0, second.start_ns - first.finish_ns)
        for queue in queues
        for first, second in pairwise(queue)
        if second.launch_ns is not None and second.launch_ns + latency <= first.finish_ns
    ]
    own = [gap for gap in gaps if gap <= UNEXPLAINED_NS]
    return int(statistics.median(own)) if own else min(gaps, default=0)


def launch_spacing_ns(work: Iterable[Task]) -> int:
    """Median time from one launch of the host to the next (ns); 0 if fewer than two are recorded."""
    launches = sorted({task.launch_ns for task in work if task.launch_ns is not None})
    steps = [later - earlier for earlier, later in pairwise(launches)]
    return int(statistics.median(steps)) if steps else 0


def most_at_once(work: Iterable[Task]) -> int:
    """Most tasks that ran at one time; one that ends when another starts does not count with it."""
    changes: list[tuple[int, int]] = []
    for task in work:
        if task.duration_ns:
            changes += [(task.start_ns, 1), (task.finish_ns, -1)]
    most = running = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def _by_stream(work: Iterable[Task]) -> dict[int, list[Task]]:
    streams: dict[int, list[Task]] = defaultdict(list)
    for task in work:
        streams[task.stream].append(task)
    return streams


def _link(link: LinkSpec, way: CopyKind, work: Iterable[Task], channels: int) -> LinkSpec:
    rate = _rate(way, work)
    return replace(link, bandwidth_bytes_per_s=rate * channels) if rate else link


def _rate(way: CopyKind, work: Iterable[Task]) -> int:
    """Bytes per second of the fastest large copy in a direction; 0 if there is none."""
    rates = [
        task.size_bytes * NS_PER_S // task.duration_ns
        for task in work
        if task.copy is way and task.size_bytes >= _LARGE_BYTES and task.duration_ns
    ]
    return max(rates, default=0)


def _host(host: HostSpec, spacing_ns: int) -> HostSpec:
    return replace(
        host, launch_kernel_ns=spacing_ns, memcpy_async_ns=spacing_ns, launch_callback_ns=spacing_ns
    )


def _sources(recording: Recording, work: Sequence[Task]) -> dict[str, Source]:
    said = f"in the recording {recording.name}"
    sources = {"dispatch.gap": Source(kind="measured", note=f"usual gap of queued neighbours {said}")}
    if any(task.launch_ns is not None for task in work):
        note = f"median time between launches {said}"
        for key in ("launch_kernel", "memcpy_async", "launch_callback"):
            sources[f"host.{key}"] = Source(kind="measured", note=note)
    for way in (CopyKind.H2D, CopyKind.D2H):
        if _rate(way, work):
            note = f"fastest copy of 64 KiB or more {said}, times the copies at once"
            sources[f"links.{way.value}.bandwidth"] = Source(kind="measured", note=note)
    unbound = Source(kind="assumed", note="never in the way: all that the streams of the recording can hold")
    return sources | {f"pools.{pool}": unbound for pool in ("aic", "aiv", "aicpu", "hcom", "callback")}
