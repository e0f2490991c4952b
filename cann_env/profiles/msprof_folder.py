"""Output folders of msprof: operators and tasks in slices, of several devices, joined to one recording.

``task_time_*.csv`` has all tasks and no shapes, ``op_summary_*.csv`` the operators with their shapes and the
collectives as a whole. Rows of the same stream, task id and time are one task.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.commands import KernelClass
from cann_env.profiles.operator_table import Operator, as_recording, clock_hz, read_operators
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.profiles.streams import NO_STREAM, choose_device, device_trait, give_streams
from cann_env.profiles.subtasks import collapse
from cann_env.profiles.task_time import DeviceTask, read_tasks
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATORS = "op_summary_*.csv"
TASKS = "task_time_*.csv"
_PLACES = ("", "mindstudio_profiler_output", "summary", "device_*/summary")
_EXPORT = re.compile(r"(\d{12,})\.csv$")
_DEVICE_FOLDER = re.compile(r"device_(\d+)")
_DEVICE_NAME = re.compile(r"(?:op_summary|task_time)_(\d+)_\d+(?:_\d+)?\.csv")


def msprof_files(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern in an output folder of msprof, or in the places below it where releases put them."""
    return sorted(
        file
        for place in _PLACES
        for file in folder.glob(f"{place}/{pattern}" if place else pattern)
        if file.is_file()
    )


def read_msprof_folder(path: str | Path, device: int | None = None) -> Recording:
    """Read what one device did from all slices of a folder.

    Where the folder holds several exports of the profile, the newest is read.

    Args:
        path: A folder with ``op_summary_*.csv``, ``task_time_*.csv`` or both, or the ``PROF_*`` folder around
            it.
        device: Number of the device, where there are several.

    Raises:
        InputError: There is no such file, there are several devices and none is chosen, or a field is
            garbage; names the file, line and column.
    """
    path = Path(path)
    report = Report()
    operators = _operators(_newest(msprof_files(path, OPERATORS), report), report)
    tasks = _tasks(_newest(msprof_files(path, TASKS), report), report)
    if not operators and not tasks:
        raise InputError(f"{path} holds no {OPERATORS} and no {TASKS} with a row in it")
    if not tasks:
        return as_recording(operators, path, device, "msprof", report)
    chosen = choose_device({row.device for row in operators} | {row.device for row in tasks}, device, path)
    own = [row.task for row in tasks if row.device in (None, chosen)]
    known = [row for row in operators if row.device in (None, chosen)]
    if not own:
        return as_recording(known, path, chosen, "msprof", report)
    joined = _joined(own, known, report)
    final, origin_ns = ordered(give_streams(collapse(joined, [None] * len(joined), report), report))
    return Recording(
        name=path.name,
        format="tasks and operators of msprof",
        tasks=final,
        origin_ns=origin_ns,
        clock_hz=clock_hz(known),
        traits={"profiler": "msprof"} | device_trait([chosen]),
        report=report,
    )


def _newest(files: Sequence[Path], report: Report) -> list[Path]:
    """Of several exports, whose names end in the time they were made, the last one."""
    exports = {(file.parent, found[1] if (found := _EXPORT.search(file.name)) else "") for file in files}
    last = {folder: max(stamp for other, stamp in exports if other == folder) for folder, _ in exports}
    kept = []
    for file in files:
        found = _EXPORT.search(file.name)
        if found and found[1] != last[file.parent]:
            report.note(Verdict.DROPPED, "files of earlier exports", str(file))
        else:
            kept.append(file)
    return kept


def _operators(files: Sequence[Path], report: Report) -> list[Operator]:
    return [
        row if row.device is not None else replace(row, device=_device_of(file))
        for file in files
        for row in read_operators(file, report)
    ]


def _tasks(files: Sequence[Path], report: Report) -> list[DeviceTask]:
    return [
        row if row.device is not None else replace(row, device=_device_of(file))
        for file in files
        for row in read_tasks(file, report)
    ]


def _device_of(file: Path) -> int | None:
    """The device that a file of the first releases is about: its folder or its name says it."""
    for part in reversed(file.parent.parts):
        if found := _DEVICE_FOLDER.fullmatch(part):
            return int(found[1])
    named = _DEVICE_NAME.fullmatch(file.name)
    return int(named[1]) if named else None


def _joined(tasks: Sequence[Task], operators: Sequence[Operator], report: Report) -> list[Task]:
    """Tasks completed by what the operators know, then the operators that are not among them."""
    known: dict[tuple[int, int | None, int], Task] = {
        (row.task.stream, row.task.task_id, row.task.start_ns): row.task for row in operators
    }
    exact = [known.pop((task.stream, task.task_id, task.start_ns), None) for task in tasks]
    left: dict[tuple[int, int | None], list[Task]] = {}
    for row in known.values():
        left.setdefault((row.stream, row.task_id), []).append(row)
    result = []
    for task, same in zip(tasks, exact, strict=True):
        near = None if same else _same_time(task, left.get((task.stream, task.task_id), ()))
        if near is not None:
            del known[near.stream, near.task_id, near.start_ns]
            left[near.stream, near.task_id].remove(near)
            what = "operators whose start differs from that of their task, which counts"
            report.note(Verdict.GUESSED, what, near.place)
        found = same or near
        result.append(task if found is None else _completed(task, found))
    details = [task for task in tasks if task.kind in (TaskKind.COLLECTIVE, TaskKind.PEER_WAIT)]
    for operator in known.values():
        if operator.stream == NO_STREAM and _shown_in(operator, details):
            what = "collectives as a whole, whose tasks are recorded"
            report.note(Verdict.DROPPED, what, operator.place)
        else:
            report.note(Verdict.RECOGNISED, "operators that the table of tasks lacks", operator.place)
            result.append(operator)
    return result


def _same_time(task: Task, operators: Sequence[Task]) -> Task | None:
    """The operator that ran for most of the time of a task, and at hardly any other; None if none did.

    The two tables come from different logs of the hardware, whose clocks are read a few microseconds apart.
    """
    for operator in operators:
        shared = min(task.finish_ns, operator.finish_ns) - max(task.start_ns, operator.start_ns)
        if 2 * shared > max(task.duration_ns, operator.duration_ns):
            return operator
    return None


def _completed(task: Task, operator: Task) -> Task:
    """The operator with the length of its task, and of its kind where the operator's core is not told."""
    # An operator on a core of the one kind there is has no class, though its task is one of an AI core.
    left_open = operator.op and task.kernel_class == KernelClass.CUBE
    told = operator.kind != TaskKind.KERNEL or operator.kernel_class or task.kind == TaskKind.OTHER
    return replace(
        operator,
        kind=operator.kind if told else task.kind,
        kernel_class=operator.kernel_class or (None if left_open else task.kernel_class),
        start_ns=task.start_ns,
        duration_ns=task.duration_ns,
        copy=operator.copy or task.copy,
    )


def _shown_in(collective: Task, details: Sequence[Task]) -> bool:
    return any(collective.start_ns <= task.start_ns < collective.finish_ns for task in details)
