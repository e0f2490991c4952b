"""``task_time_*.csv`` of msprof: all tasks of all streams, also copies, events and waits; no shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.profiles.streams import NO_STREAM, choose_device, device_trait, give_streams
from cann_env.profiles.subtasks import collapse
from cann_env.profiles.tables import Column, Row, read_table
from cann_env.profiles.words import Meaning, meaning
from cann_env.units import InputError

COLUMNS = (
    Column("start", ("task_start", "Task Start Time"), required=True),
    Column("kind", ("kernel_type", "Task Type", "Type"), required=True),
    Column("name", ("kernel_name", "Op Name")),
    Column("duration", ("task_time", "Task Duration", "Duration")),
    Column("stop", ("task_stop", "Task End Time")),
    Column("stream", ("stream_id",)),
    Column("task_id", ("task_id",)),
    Column("device", ("Device_id",)),
)
"""Titles of the columns that are read. The first releases wrote statistics of tasks under the same file name,
with no start times; those are refused."""


@dataclass(frozen=True, slots=True)
class DeviceTask:
    """One row; ``device`` is None if it names none."""

    task: Task
    device: int | None


def read_tasks(path: Path, report: Report) -> list[DeviceTask]:
    """Rows of a table of tasks, in its order.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    return [_task(row, report) for row in read_table(path, COLUMNS, report).rows]


def read_task_time(path: str | Path, device: int | None = None) -> Recording:
    """Read the tasks of one device from one file, see :mod:`cann_env.profiles.msprof_folder` for more.

    Args:
        path: The file.
        device: Number of the device, where the file holds several.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    path = Path(path)
    report = Report()
    rows = read_tasks(path, report)
    chosen = choose_device({row.device for row in rows}, device, path)
    own = [row.task for row in rows if row.device in (None, chosen)]
    if not own:
        raise InputError(f"{path} has a header and no row; it should hold one row a task")
    tasks, origin_ns = ordered(give_streams(collapse(own, [None] * len(own), report), report))
    return Recording(
        name=path.name,
        format="tasks of msprof",
        tasks=tasks,
        origin_ns=origin_ns,
        traits={"profiler": "msprof"} | device_trait([chosen]),
        report=report,
    )


def _task(row: Row, report: Report) -> DeviceTask:
    word = row.text("kind")
    what = meaning(word) if word else None
    if what is None:
        report.note(
            Verdict.GUESSED, f"tasks of the unknown type {word!r}, taken as occupying their stream", row.place
        )
        what = Meaning(TaskKind.OTHER)
    stream = row.integer("stream")
    start_ns = row.time_ns("start")
    task = Task(
        name=row.text("name") or word,
        kind=what.kind,
        stream=NO_STREAM if stream is None else stream,
        start_ns=start_ns,
        duration_ns=_duration_ns(row, start_ns),
        task_id=row.integer("task_id"),
        kernel_class=what.kernel_class,
        copy=what.copy,
        place=row.place,
    )
    return DeviceTask(task, row.integer("device"))


def _duration_ns(row: Row, start_ns: int) -> int:
    if row.has("duration") or not row.has("stop"):
        return row.duration_ns("duration")
    stop_ns = row.time_ns("stop")
    if stop_ns < start_ns:
        raise InputError(
            f"{row.cell('stop')}: {row.text('stop')!r} is before the start, {row.text('start')!r}"
        )
    return stop_ns - start_ns
