"""Idle time beside the work: what the profiler puts in, and how far host and device clocks are apart."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cann_env.commands import KernelClass
from cann_env.profiles.recording import TaskKind, Verdict
from cann_env.workloads.recorded_tasks import SILENT, by_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.profiles.recording import Report
    from cann_env.workloads.recorded_tasks import Entry

FAR_ABOVE_NS = 20_000
"""A gap that no device's dispatch comes near; what always lies above it was put in."""

ABOVE_A_HOST_NS = 50_000
"""The same where launches were not recorded: a host that is always late leaves as much as it takes."""

_ENOUGH = 4
"""So many pairs of neighbours tell a habit."""

_NEAR, _NEARLY = 1.25, 0.9
_MOST, _MANY = 0.6, 0.25
"""A habit shows as gaps of nearly one length: most of those that were queued, many of all."""

_Pair = tuple[KernelClass | None, bool]


class Neighbours(NamedTuple):
    """Two tasks that follow each other on a stream, as positions, and the idle time between them (ns)."""

    first: int
    second: int
    idle_ns: int


def neighbours(entries: Sequence[Entry]) -> Iterator[Neighbours]:
    """All pairs of a recording."""
    for members in by_stream(entries).values():
        for i, j in pairwise(members):
            yield Neighbours(i, j, entries[j].task.start_ns - entries[i].task.finish_ns)


def profiler_gaps(entries: Sequence[Entry], given_ns: int | None, report: Report) -> dict[int, int]:
    """Idle time that the profiler put before a task (ns), by the task's position.

    It is found where hardly any neighbour of a kind follows a kernel sooner than :data:`FAR_ABOVE_NS`, and
    the shortest idle times are nearly equal. Those that were already launched when the kernel began count;
    without launches :data:`ABOVE_A_HOST_NS` takes its place.

    Args:
        entries: The tasks.
        given_ns: Use this after every kernel on cores instead; 0 for none.
        report: Takes what was found.
    """
    groups: dict[_Pair, list[Neighbours]] = {}
    for pair in neighbours(entries):
        kernel, after = entries[pair.first].task, entries[pair.second].task
        parts = kernel.task_id is not None and kernel.task_id == after.task_id
        if kernel.kind is TaskKind.KERNEL and kernel.kernel_class is not KernelClass.AICPU and not parts:
            key = kernel.kernel_class, after.kind is TaskKind.KERNEL
            groups.setdefault(key, []).append(pair)
    gaps: dict[int, int] = {}
    main = 0
    for pairs in sorted(groups.values(), key=len, reverse=True):
        length = _habit_ns(entries, pairs, main) if given_ns is None else given_ns
        main = main or length
        # One profiler has one gap: what lies far from that of most kernels has another reason.
        if 0 < length <= 2 * main and main <= 2 * length:
            gaps.update((pair.second, length) for pair in pairs)
            what = f"gaps of the profiler, {length / 1000:.1f} us each"
            report.note(Verdict.GUESSED, what, entries[pairs[0].second].task.place, len(pairs))
    return gaps


def _habit_ns(entries: Sequence[Entry], pairs: Sequence[Neighbours], main: int) -> int:
    """Length of the gap behind kernels of one kind; ``main`` is that of most kernels, 0 if it has none."""
    queued = [pair.idle_ns for pair in pairs if _was_queued(entries, pair)]
    launched = any(entries[pair.second].task.launch_ns is not None for pair in pairs)
    every = sorted(pair.idle_ns for pair in pairs)
    idle = sorted(queued) if launched else every
    least = every[len(every) // 20]
    if len(idle) < _ENOUGH:
        return main if least >= _NEARLY * main else 0
    near = [one for one in idle if one <= _NEAR * least]
    enough = len(near) >= (_MOST if launched else _MANY) * len(idle)
    floor = FAR_ABOVE_NS if launched else ABOVE_A_HOST_NS
    return int(statistics.median(near)) if least >= floor and enough else 0


def foreign_gaps(entries: Sequence[Entry], report: Report) -> dict[int, int]:
    """Gaps between queued tasks on a device that no file describes (ns), by the later task's position.

    By the kinds of both tasks, the median over those that were launched before the one before them began.
    They take the place of the gaps of whichever device a recording is played on.
    """
    groups: dict[tuple[TaskKind, TaskKind], list[Neighbours]] = {}
    for pair in neighbours(entries):
        kinds = entries[pair.first].task.kind, entries[pair.second].task.kind
        if not set(SILENT).intersection(kinds):
            groups.setdefault(kinds, []).append(pair)
    gaps: dict[int, int] = {}
    for kinds, pairs in groups.items():
        queued = [pair.idle_ns for pair in pairs if _was_queued(entries, pair)]
        length = int(statistics.median(queued)) if len(queued) >= _ENOUGH else 0
        if 0 < length < FAR_ABOVE_NS:
            gaps.update((pair.second, length) for pair in pairs)
            what = f"gaps of a device that no file describes, {kinds[0]} > {kinds[1]}, {length / 1000:.1f} us"
            report.note(Verdict.GUESSED, what, entries[pairs[0].second].task.place, len(pairs))
    return gaps


def _was_queued(entries: Sequence[Entry], pair: Neighbours) -> bool:
    launch = entries[pair.second].task.launch_ns
    return launch is not None and launch < entries[pair.first].task.start_ns


def launch_latency(entries: Sequence[Entry], gaps: dict[int, int], report: Report) -> int:
    """From a launch on the host's clock to the start of a task that nothing else holds back (ns).

    The median over tasks that were launched when their stream had nothing to do, or first on it. Clocks of
    host and device are not aligned, so it may be negative.
    """
    waits = [
        entries[pair.second].task.start_ns - launch
        for pair in neighbours(entries)
        if (launch := entries[pair.second].task.launch_ns) is not None
        and launch > entries[pair.first].task.finish_ns + gaps.get(pair.second, 0)
    ]
    first = [entries[members[0]].task for members in by_stream(entries).values()]
    waits += [task.start_ns - task.launch_ns for task in first if task.launch_ns is not None]
    launched = sum(1 for entry in entries if entry.task.launch_ns is not None)
    if not launched:
        return 0
    report.note(Verdict.RECOGNISED, "launches by the host", count=launched)
    if not waits:
        report.note(Verdict.GUESSED, "clocks of host and device, taken to agree", count=launched)
        return 0
    latency = int(statistics.median(waits))
    what = f"clocks of host and device, {latency / 1000:.1f} us from launch to start"
    report.note(Verdict.GUESSED, what, count=len(waits))
    return latency
