"""Which tasks of a recording become commands: one step of them, subtasks put together, markers left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cann_env.profiles.recording import TaskKind, Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.profiles.recording import Recording, Report, Task

SILENT = (TaskKind.RECORD, TaskKind.WAIT, TaskKind.RESET)
"""Kinds that become edges, not commands."""

_OF_COLLECTIVES = frozenset((TaskKind.COLLECTIVE, TaskKind.PEER_WAIT))
_ROUNDED_NS = 500

_SPANNED = 3
"""A task that outlasts so many later ones of its stream marks them; it does not run before them."""


class Entry(NamedTuple):
    """A task of the graph to be.

    Attributes:
        number: Index in ``recording.tasks``; of several subtasks, the first.
        task: With times from the first task that was kept.
        waits: Whether it holds a wait for another device.
    """

    number: int
    task: Task
    waits: bool

    @property
    def moment_ns(self) -> int:
        """When it took its turn: a start, or for what only marks an instant that instant."""
        return self.task.finish_ns if self.task.kind in SILENT else self.task.start_ns


def entries_of(recording: Recording, step: int | None, report: Report) -> tuple[Entry, ...]:
    """Tasks of one step, or all, by start; those that run on one stream never overlap by design of a stream.

    Raises:
        InputError: There is no such step, or nothing is left.
    """
    if step is not None and step not in recording.steps:
        known = ", ".join(map(str, recording.steps)) or "none"
        raise InputError(f"{recording.name} has no step {step}; its steps are {known}")
    chosen = [
        Entry(i, task, task.kind is TaskKind.PEER_WAIT)
        for i, task in enumerate(recording.tasks)
        if (step is None or task.step == step) and not _is_mark(task, report)
    ]
    kept = _without_markers(_put_together(chosen, report), report)
    if all(entry.task.kind in SILENT for entry in kept):
        raise InputError(
            f"{recording.name} holds nothing that runs; at least one kernel, copy or wait is needed"
        )
    origin = min(entry.task.start_ns for entry in kept)
    shifted = [entry._replace(task=_earlier(entry.task, origin)) for entry in kept]
    return tuple(sorted(shifted, key=_place))


def _is_mark(task: Task, report: Report) -> bool:
    """Whether the profiler itself put a task there, to mark its begin and end."""
    if task.kind is not TaskKind.OTHER or not task.name.upper().startswith("PROFIL"):
        return False
    report.note(Verdict.DROPPED, "marks of the profiler", task.place)
    return True


def by_stream(entries: Iterable[Entry]) -> dict[int, list[int]]:
    """Positions of the entries of each stream, in their order."""
    streams: dict[int, list[int]] = {}
    for i, entry in enumerate(entries):
        streams.setdefault(entry.task.stream, []).append(i)
    return streams


def _earlier(task: Task, origin: int) -> Task:
    launch = None if task.launch_ns is None else task.launch_ns - origin
    return replace(task, start_ns=task.start_ns - origin, launch_ns=launch)


def _place(entry: Entry) -> tuple[int, int, int, int]:
    task = entry.task
    return task.start_ns, task.stream, task.finish_ns, -1 if task.task_id is None else task.task_id


def _put_together(entries: Sequence[Entry], report: Report) -> list[Entry]:
    """One entry for all subtasks of a task id, which may overlap, or of a collective without ids."""
    groups: dict[tuple[int, int | None, int], list[Entry]] = {}
    loose: dict[int, list[Entry]] = {}
    for entry in entries:
        task = entry.task
        if task.task_id is None and task.kind not in SILENT:
            loose.setdefault(task.stream, []).append(entry)
        else:
            own = entry.number if task.kind in SILENT else -1
            groups.setdefault((task.stream, task.task_id, own), []).append(entry)
    merged = []
    for group in groups.values():
        merged += [_merged(group, report)] if _is_one_task(group) else group
    for members in loose.values():
        for run in _overlapping(members):
            merged += [_merged(run, report)] if _is_one_collective(run) else run
    return merged


def _overlapping(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Runs of entries that overlap by more than their times are rounded, in the given order."""
    runs: list[list[Entry]] = []
    reach = 0
    for entry in entries:
        if runs and entry.task.start_ns < reach - _ROUNDED_NS:
            runs[-1].append(entry)
            reach = max(reach, entry.task.finish_ns)
        else:
            runs.append([entry])
            reach = entry.task.finish_ns
    return runs


def _is_one_collective(run: Sequence[Entry]) -> bool:
    """Whether tasks that overlap on one stream, which runs one at a time, are subtasks of a collective."""
    kinds = {entry.task.kind for entry in run}
    return len(run) > 1 and bool(kinds & _OF_COLLECTIVES) and TaskKind.KERNEL not in kinds


def _is_one_task(group: Sequence[Entry]) -> bool:
    """Whether rows of one id are subtasks, of which some overlap, and not the id used again."""
    overlap = False
    reach = group[0].task.finish_ns
    for entry in group[1:]:
        if entry.task.start_ns > reach + _REUSED_NS:
            return False
        overlap = overlap or entry.task.start_ns < reach
        reach = max(reach, entry.task.finish_ns)
    return overlap


_REUSED_NS = 10_000_000
"""Rows of one id that lie further apart are different tasks."""


def _merged(group: Sequence[Entry], report: Report) -> Entry:
    first = min(group, key=_place)
    finish = max(entry.task.finish_ns for entry in group)
    named = next((entry.task for entry in group if entry.task.op), first.task)
    report.note(Verdict.RECOGNISED, "subtasks put together", first.task.place, len(group))
    kinds = {entry.task.kind for entry in group}
    whole = replace(
        first.task,
        name=named.name,
        op=named.op,
        kind=TaskKind.KERNEL if kinds == {TaskKind.KERNEL} else TaskKind.COLLECTIVE,
        duration_ns=finish - first.task.start_ns,
        size_bytes=sum(entry.task.size_bytes for entry in group),
    )
    return Entry(first.number, whole, any(entry.waits for entry in group))


def _without_markers(entries: list[Entry], report: Report) -> list[Entry]:
    entries = sorted(entries, key=_place)
    dropped: set[int] = set()
    for members in by_stream(entries).values():
        for place, i in enumerate(members):
            finish = entries[i].task.finish_ns
            later = members[place + 1 : place + 1 + _SPANNED]
            spanned = [j for j in later if entries[j].task.start_ns < finish >= entries[j].task.finish_ns]
            if len(spanned) == _SPANNED:
                dropped.add(i)
                report.note(Verdict.DROPPED, "tasks that only span later ones", entries[i].task.place)
            elif later and finish > entries[later[0]].task.start_ns:
                report.note(Verdict.GUESSED, "overlapping tasks of one stream, queued", entries[i].task.place)
    return [entry for i, entry in enumerate(entries) if i not in dropped]
