"""Tasks that the hardware runs in parts: rows that share a stream and a task id and overlap in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.commands import KernelClass
from cann_env.profiles.recording import Task, TaskKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.profiles.recording import Report


def collapse(tasks: Sequence[Task], contexts: Sequence[int | None], report: Report) -> list[Task]:
    """Make one task of parts that overlap; parts that follow one another stay tasks, in the given order.

    A stream runs its tasks one by one, the parts of one (subtasks of FFTS+) it does not. Ids come again, in
    the next run of a graph or when the numbers are used up: the id alone does not say what belongs together.

    Args:
        tasks: Any order.
        contexts: Number of the part that each is; None for a task in one part.
        report: Counts what was made one and what was kept.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for index, task in enumerate(tasks):
        if task.task_id is not None and task.stream >= 0:
            groups.setdefault((task.stream, task.task_id), []).append(index)
    merged: dict[int, Task | None] = {}
    for group in groups.values():
        for parts in _runs(tasks, group):
            if len(parts) > 1:
                merged.update(dict.fromkeys(parts))
                merged[min(parts)] = _one([tasks[index] for index in parts])
                report.note(
                    Verdict.RECOGNISED,
                    "overlapping parts of a task, made one",
                    tasks[parts[0]].place,
                    len(parts),
                )
        if len({contexts[index] for index in group}) > 1:
            kept = [index for index in group if index not in merged]
            report.note(
                Verdict.RECOGNISED,
                "parts of a task that follow one another, kept",
                tasks[group[0]].place,
                len(kept),
            )
    result = (merged.get(index, task) for index, task in enumerate(tasks))
    return [task for task in result if task is not None]


def _runs(tasks: Sequence[Task], group: Iterable[int]) -> list[list[int]]:
    """Maximal runs that overlap, in order of time."""
    runs: list[list[int]] = []
    end_ns = 0
    for index in sorted(group, key=lambda i: (tasks[i].start_ns, tasks[i].finish_ns, i)):
        task = tasks[index]
        if runs and task.start_ns < end_ns:
            runs[-1].append(index)
            end_ns = max(end_ns, task.finish_ns)
        else:
            runs.append([index])
            end_ns = task.finish_ns
    return runs


def _one(parts: Sequence[Task]) -> Task:
    """The whole: from the first start to the last finish, in all else the longest part."""
    longest = max(parts, key=lambda part: part.duration_ns)
    start_ns = min(part.start_ns for part in parts)
    classes = {part.kernel_class for part in parts}
    known = [part.core_ns for part in parts if part.core_ns is not None]
    mixed = longest.kind == TaskKind.KERNEL and {KernelClass.CUBE, KernelClass.VECTOR} <= classes
    return replace(
        longest,
        start_ns=start_ns,
        duration_ns=max(part.finish_ns for part in parts) - start_ns,
        kernel_class=KernelClass.MIX if mixed else longest.kernel_class,
        size_bytes=sum(part.size_bytes for part in parts),
        core_ns=max(known) if known else None,
    )
