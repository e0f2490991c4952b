"""The database of the Ascend profilers (``ascend_pytorch_profiler*.db``, ``msprof_*.db``).

The tables are those that the documentation of msprof describes ("Profile Data File Reference (DB)", CANN
commercial edition): times in nanoseconds since 1970, names by their number in STRING_IDS, device tasks in
TASK, joined to what they are by ``globalTaskId`` and to the host's calls by ``connectionId``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles import sqlite_facts
from cann_env.profiles.ascend import DeviceTask, Operation, Part, Profile
from cann_env.profiles.ascend_tasks import device_tasks
from cann_env.profiles.ascend_trace import ON_CHIP, operation_type
from cann_env.profiles.fields import number, operands
from cann_env.profiles.operator_table import level
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.profiles.sqlite_facts import is_of, number_or_none
from cann_env.profiles.sqlite_names import Names
from cann_env.profiles.sqlite_tables import open_database
from cann_env.profiles.streams import NO_STREAM, choose_device
from cann_env.profiles.words import Meaning, meaning
from cann_env.units import InputError

if TYPE_CHECKING:
    from decimal import Decimal

    from cann_env.profiles.sqlite_tables import Database, Record

_TASK = ("startNs", "endNs", "streamId", "taskType")
_TASK_MORE = ("deviceId", "connectionId", "globalTaskId", "contextId", "taskId")
_COMPUTE = (
    *("name", "opType", "taskType", "blockDim", "blockNum", "mixBlockDim", "mixBlockNum"),
    *("inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes", "outputFormats"),
)
_CORE_TIME = re.compile(r"^(?:aicore|aic|aiv)(?:_total)?_time(?:\(us\))?$")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What other tables say of tasks, by ``globalTaskId``."""

    kernels: dict[int, Task]
    parts: dict[int, Part]
    copies: dict[int, tuple[int, str]]


def read_database(path: str | Path, device: int | None = None) -> Recording:
    """Read the tasks of one device.

    Args:
        path: The file.
        device: Number of the device, where the file holds several.

    Raises:
        InputError: No such database, no table of tasks in it, or a value that is not what its column says;
            names the table and the row.
    """
    path = Path(path)
    report = Report()
    with open_database(path) as database:
        database.demand("TASK", "which holds the tasks of the device")
        database.demand("STRING_IDS", "which holds all names")
        names = Names(database, report)
        rows = list(database.rows("TASK", _TASK_MORE, _TASK))
        if not rows:
            raise InputError(f"{path}: table TASK is empty; it should hold the tasks of the device")
        chosen = choose_device((row.integer("deviceId") for row in rows), device, path)
        own = [row for row in rows if is_of(row, chosen)]
        profile = _profile(path.name, database, names, own, chosen, report)
        tasks, origin_ns = ordered(device_tasks(profile, report))
        traits = {"profiler": "Ascend profiler, database", "level": level(tasks)}
        return Recording(
            name=path.name,
            format="database of the Ascend profiler",
            tasks=tasks,
            origin_ns=origin_ns,
            clock_hz=sqlite_facts.clock_hz(database, chosen),
            chip=sqlite_facts.chip(database, chosen),
            traits=traits | sqlite_facts.traits(database, chosen),
            report=report,
        )


def _profile(
    name: str, database: Database, names: Names, rows: list[Record], device: int | None, report: Report
) -> Profile:
    operations = _operations(database, names, device)
    kernels = _kernels(database, names)
    for key, core_ns in _core_times(database, names, rows, report).items():
        if key in kernels:
            kernels[key] = replace(kernels[key], core_ns=core_ns)
    facts = _Facts(kernels, _parts(database, names, operations), _copies(database, names))
    return Profile(
        name=name,
        tasks=[_task(row, names, facts) for row in rows],
        operations=list(operations.values()),
        calls=sqlite_facts.calls(database, names),
        hints=sqlite_facts.hints(database, names),
        steps=sqlite_facts.steps(database, names),
    )


def _task(row: Record, names: Names, facts: _Facts) -> DeviceTask:
    start, length = row.span_ns()
    key = row.integer("globalTaskId")
    word = names.string(row, "taskType")
    stream = row.integer("streamId")
    if stream is None or stream < 0:
        raise InputError(
            f"{row.place}, column streamId: {row.raw('streamId')!r} is not the number of a stream"
        )
    detail = facts.kernels.get(key) if key is not None else None
    part = facts.parts.get(key) if key is not None else None
    size, direction = facts.copies.get(key, (0, "")) if key is not None else (0, "")
    return DeviceTask(
        name=detail.name if detail else word,
        word=word,
        stream=stream,
        start_ns=start,
        duration_ns=length,
        task_id=row.integer("taskId"),
        subtask=number_or_none(row, "contextId"),
        call=number_or_none(row, "connectionId"),
        detail=None if part else detail,
        size_bytes=size,
        direction=direction,
        part=part,
        place=row.place,
    )


def _kernels(database: Database, names: Names) -> dict[int, Task]:
    """Kernels by ``globalTaskId``; of when they ran these tables say nothing."""
    found = {}
    for table in ("COMMUNICATION_SCHEDULE_TASK_INFO", "COMPUTE_TASK_INFO"):
        for row in database.rows(table, _COMPUTE, ("globalTaskId",)):
            key = row.integer("globalTaskId")
            if key is not None:
                found[key] = _kernel(row, names)
    return found


def _kernel(row: Record, names: Names) -> Task:
    said = meaning(names.string(row, "taskType")) or Meaning(TaskKind.KERNEL)
    blocks = row.integer("blockDim") or row.integer("blockNum") or 0
    mix_blocks = row.integer("mixBlockDim") or row.integer("mixBlockNum") or 0
    if min(blocks, mix_blocks) < 0:
        raise InputError(f"{row.place}: {min(blocks, mix_blocks)} blocks; a kernel has at least one")
    sides = [
        operands(
            names.string(row, f"{side}Shapes"),
            names.string(row, f"{side}DataTypes"),
            names.string(row, f"{side}Formats"),
            f"{row.place}, column {side}Shapes",
        )
        for side in ("input", "output")
    ]
    return Task(
        name=names.string(row, "name"),
        kind=said.kind,
        stream=NO_STREAM,
        start_ns=0,
        duration_ns=0,
        op=names.string(row, "opType"),
        kernel_class=said.kernel_class,
        blocks=blocks or None,
        mix_blocks=mix_blocks,
        inputs=sides[0],
        outputs=sides[1],
    )


def _operations(database: Database, names: Names, device: int | None) -> dict[int, Operation]:
    """Collectives by their number, or by their row where they have none."""
    found = {}
    columns = ("opName", "opType", "connectionId", "opId", "deviceId")
    for row in database.rows("COMMUNICATION_OP", columns, ("startNs", "endNs")):
        if not is_of(row, device):
            continue
        start, length = row.span_ns()
        name = names.string(row, "opName")
        key = row.integer("opId")
        found[-row.number if key is None else key] = Operation(
            name=name,
            op=names.string(row, "opType") or operation_type(name),
            start_ns=start,
            duration_ns=length,
            call=number_or_none(row, "connectionId"),
            place=row.place,
        )
    return found


def _parts(database: Database, names: Names, operations: dict[int, Operation]) -> dict[int, Part]:
    found = {}
    columns = ("name", "taskType", "size", "linkType", "opId")
    for row in database.rows("COMMUNICATION_TASK_INFO", columns, ("globalTaskId",)):
        key = row.integer("globalTaskId")
        if key is None:
            continue
        number = row.integer("opId")
        operation = operations.get(number) if number is not None else None
        size = number_or_none(row, "size")
        found[key] = Part(
            name=names.string(row, "taskType") or names.string(row, "name"),
            size_bytes=size or 0,
            on_chip=names.link(row, "linkType") in ON_CHIP,
            operation=operation.name if operation else "",
        )
    return found


def _copies(database: Database, names: Names) -> dict[int, tuple[int, str]]:
    found = {}
    for row in database.rows("MEMCPY_INFO", ("size", "memcpyOperation"), ("globalTaskId",)):
        key = row.integer("globalTaskId")
        if key is not None:
            found[key] = number_or_none(row, "size") or 0, names.copy(row, "memcpyOperation")
    return found


def _core_times(database: Database, names: Names, rows: list[Record], report: Report) -> dict[int, int]:
    """The time that cores counted for each task (ns), the longer of both kinds.

    Releases differ in the unit of this table: microseconds, or nanoseconds where read as microseconds most
    cores would have counted for longer than their task took.
    """
    found: dict[int, Decimal] = {}
    first = ""
    for row in database.rows("TASK_PMU_INFO", ("value",), ("globalTaskId", "name")):
        key = row.integer("globalTaskId")
        if key is not None and row.raw("value") is not None and _CORE_TIME.match(names.string(row, "name")):
            value = number(row.raw("value"), f"{row.place}, column value", "a time of a core")
            found[key] = max(value, found.get(key, value))
            first = first or row.place
    known = {row.integer("globalTaskId"): row.span_ns()[1] for row in rows}
    longer = sum(1 for key, value in found.items() if value * 1000 > known.get(key, value * 1000))
    scale = 1 if 2 * longer > len(found) else 1000
    if found:
        unit = "ns" if scale == 1 else "us"
        report.note(Verdict.GUESSED, f"times of cores, read as {unit}", first, len(found))
    return {key: round(value * scale) for key, value in found.items() if value > 0}
