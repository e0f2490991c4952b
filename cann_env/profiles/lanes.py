"""Work that overlaps on one stream, laid side by side: a stream of a recording is a queue, one at a time.

Profilers show on one stream what ran at once where a graph was launched as one, where a kernel may begin
before the one ahead has ended, or where several queues share a number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Report, Task, TaskKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_OVERLAP_NS = 1_000
"""Overlap that comes from clocks which count whole microseconds."""

EARLY_NS = 10_000
"""So much sooner a kernel may be there that was launched to begin before the one ahead has ended."""


def lay_out(tasks: Iterable[Task], report: Report) -> list[Task]:
    """Tasks such that none begins before the one ahead on its stream has ended.

    What begins up to :data:`EARLY_NS` early, by less than half of either, is there to wait for the one ahead:
    it begins when that has ended. What overlaps more goes to further streams, numbered after the recorded
    ones. It waits there for all of its own stream that was over when it began, and what follows waits for it
    likewise, by events made up for that.

    Args:
        tasks: In any order, on any clock.
        report: Takes how many were moved.
    """
    by_stream: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        by_stream[task.stream].append(task)
    following = max(by_stream, default=-1) + 1
    laid: list[Task] = []
    for stream in sorted(by_stream):
        queue = _in_turn(sorted(by_stream[stream], key=_order), report)
        lanes = _lanes(queue)
        width = max(lanes, default=0) + 1
        numbers = [stream, *range(following, following + width - 1)]
        following += width - 1
        if width == 1:
            laid += queue
            continue
        moved = [task for task, lane in zip(queue, lanes, strict=True) if lane]
        what = "work that overlapped on its stream, laid beside it"
        report.note(Verdict.GUESSED, what, moved[0].place, len(moved))
        laid += _joined(queue, lanes, numbers)
    return laid


def _order(task: Task) -> tuple[int, int, int]:
    return task.start_ns, task.finish_ns, -1 if task.task_id is None else task.task_id


def _in_turn(queue: list[Task], report: Report) -> list[Task]:
    """The tasks of a stream; those that were a little early begin in their turn and end when they did."""
    turned: list[Task] = []
    for task in queue:
        early = turned[-1].finish_ns - task.start_ns if turned else 0
        half = min(turned[-1].duration_ns, task.duration_ns) // 2 if turned else 0
        if 0 < early <= min(EARLY_NS, half):
            report.note(
                Verdict.GUESSED, "work that began before the one ahead had ended, begun later", task.place
            )
            start, length = task.start_ns + early, task.duration_ns - early
            turned.append(replace(task, start_ns=start, duration_ns=length))
        else:
            turned.append(task)
    return turned


def _lanes(queue: list[Task]) -> list[int]:
    """For each task the first lane that is free when it begins."""
    free: list[int] = []
    lanes = []
    for task in queue:
        fit = (lane for lane, at in enumerate(free) if at <= task.start_ns + MOST_OVERLAP_NS)
        lane = next(fit, len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = task.finish_ns
        lanes.append(lane)
    return lanes


def _joined(queue: list[Task], lanes: list[int], numbers: list[int]) -> list[Task]:
    """The tasks on the streams of their lanes, with events for the order between the lanes."""
    joined: list[Task] = []
    last: dict[int, Task] = {}  # over when the next one begins, by lane
    running: dict[int, Task] = {}
    seen: dict[tuple[int, int], int] = {}  # what a lane has waited for of another, by the finish
    for task, lane in zip(queue, lanes, strict=True):
        for other, earlier in list(running.items()):
            if earlier.finish_ns <= task.start_ns:
                last[other] = running.pop(other)
        for other, earlier in sorted(last.items()):
            if other != lane and seen.get((lane, other), -1) < earlier.finish_ns:
                seen[lane, other] = earlier.finish_ns
                joined += _event(earlier, numbers[other], task, numbers[lane])
        joined.append(replace(task, stream=numbers[lane]))
        running[lane] = task
    return joined


def _event(earlier: Task, producer: int, later: Task, consumer: int) -> list[Task]:
    event = f"lane {producer}>{consumer} at {earlier.finish_ns}"
    mark = Task(
        name="order of the stream",
        kind=TaskKind.RECORD,
        stream=producer,
        start_ns=earlier.finish_ns,
        duration_ns=0,
        task_id=earlier.task_id,
        event=event,
        place=later.place,
    )
    wait = replace(mark, kind=TaskKind.WAIT, stream=consumer, start_ns=later.start_ns, task_id=later.task_id)
    return [mark, wait]
