"""Tables with one row an operator: what ``kernel_details.csv`` and ``op_summary_*.csv`` have in common.

Both hold the same columns under different titles, more of them at higher profiling levels. Neither holds
copies or events, and collectives stand in them as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.commands import KernelClass
from cann_env.profiles.fields import operands
from cann_env.profiles.recording import Recording, Task, TaskKind, Verdict, ordered
from cann_env.profiles.streams import NO_STREAM, choose_device, device_trait, give_streams
from cann_env.profiles.subtasks import collapse
from cann_env.profiles.tables import Column, read_table
from cann_env.profiles.words import Meaning, meaning
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cann_env.commands import Operand
    from cann_env.profiles.recording import Report
    from cann_env.profiles.tables import Row, Table

COLUMNS = (
    Column("name", ("Name", "Op Name"), required=True),
    Column("start", ("Start Time", "Task Start Time"), required=True),
    Column("duration", ("Duration", "Task Duration"), required=True),
    Column("op", ("Type", "OP Type")),
    Column("core", ("Accelerator Core", "Task Type", "Core Type")),
    Column("step", ("Step Id",)),
    Column("device", ("Device_id",)),
    Column("task_id", ("Task ID",)),
    Column("stream", ("Stream ID",)),
    Column("context", ("Context ID",)),
    Column("blocks", ("Block Num", "Block Dim")),
    Column("mix_blocks", ("Mix Block Num", "Mix Block Dim")),
    Column("input_shapes", ("Input Shapes",)),
    Column("input_types", ("Input Data Types",)),
    Column("input_layouts", ("Input Formats",)),
    Column("output_shapes", ("Output Shapes",)),
    Column("output_types", ("Output Data Types",)),
    Column("output_layouts", ("Output Formats",)),
    Column("core_time", ("aicore_time", "aic_time")),
    Column("core_cycles", ("aic_total_cycles", "total_cycles")),
    Column("vector_time", ("aiv_time",)),
    Column("vector_cycles", ("aiv_total_cycles",)),
)
"""All titles of the columns that are read, from the first releases on."""


_SPLIT = frozenset({"mix_blocks", "context", "vector_time"})
_ROUNDING_NS = 1_000
_CLOSE = 0.01
_LEAST_MEGAHERTZ = 500  # no core runs slower; where all kernels ran in waves, all rates are below
_COLLECTIVE_NAMES = ("hcom_", "hccl")


@dataclass(frozen=True, slots=True)
class Operator:
    """One row: the task, and what only the table knows of it.

    Attributes:
        task: Its stream is :data:`NO_STREAM` if the row names none.
        device: Number of the device; None if the row names none.
        context: Number of the part of its task that the row is about; None if the task has one part.
        samples: Counters of its cores: blocks that counted, nanoseconds, and cycles of all blocks.
    """

    task: Task
    device: int | None
    context: int | None
    samples: tuple[tuple[int, int, int], ...] = ()


def read_operators(path: Path, report: Report) -> list[Operator]:
    """Rows of a table of operators, in its order.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    table = read_table(path, COLUMNS, report)
    unit = _start_unit(table, report)
    operators = [_operator(row, unit, report) for row in table.rows]
    return operators if _SPLIT & table.header.places.keys() else _left_open(operators, report)


def _left_open(operators: Sequence[Operator], report: Report) -> list[Operator]:
    """Leave the class of kernels to their operators where all of them ran on cores of one kind.

    On chips whose cube and vector cores are apart, ``AI_CORE`` is a cube core; on the first generation it is
    the one kind of core there is, and an addition runs on it as a product does.
    """
    if {row.task.kernel_class for row in operators} & {KernelClass.VECTOR, KernelClass.MIX}:
        return list(operators)
    left = []
    for row in operators:
        if row.task.kernel_class == KernelClass.CUBE and row.task.op:
            what = "kernels on cores of one kind, their class left to the operator"
            report.note(Verdict.GUESSED, what, row.task.place)
            left.append(replace(row, task=replace(row.task, kernel_class=None)))
        else:
            left.append(row)
    return left


def as_recording(
    operators: Sequence[Operator], path: Path, device: int | None, profiler: str, report: Report
) -> Recording:
    """The recording of one device.

    Raises:
        InputError: There are rows of several devices and none is chosen, or the one chosen has none.
    """
    own = of_device(operators, device, path)
    if not own:
        raise InputError(f"{path} has a header and no row; it should hold one row an operator")
    tasks = collapse([operator.task for operator in own], [operator.context for operator in own], report)
    final, origin_ns = ordered(give_streams(tasks, report))
    return Recording(
        name=path.name,
        format=f"operators of {profiler}",
        tasks=final,
        origin_ns=origin_ns,
        clock_hz=clock_hz(own),
        traits={"profiler": profiler, "level": level(final)} | device_trait(row.device for row in own),
        report=report,
    )


def of_device(operators: Sequence[Operator], device: int | None, name: object) -> list[Operator]:
    """The rows of one device, and those that name none.

    Raises:
        InputError: There are rows of several devices and none is chosen, or the one chosen has none.
    """
    chosen = choose_device({operator.device for operator in operators}, device, name)
    return [operator for operator in operators if operator.device in (None, chosen)]


def level(tasks: Sequence[Task]) -> str:
    """Profiling levels at which such a table is written: ``0``, or ``1 or 2`` where there are shapes."""
    return "1 or 2" if any(task.inputs or task.outputs for task in tasks) else "0"


def clock_hz(operators: Iterable[Operator]) -> int | None:
    """Core clock in whole MHz: cycles of all blocks, by time and blocks; None if counters do not tell.

    A kernel of more blocks than cores looks slower, since each block is given the time of all waves: only
    kernels within 1 % of the high rates count, by their time, as short ones round it.
    """
    samples = [sample for operator in operators for sample in operator.samples]
    rates = sorted((cycles / (blocks * ns) for blocks, ns, cycles in samples), reverse=True)
    if not rates:
        return None
    high = rates[len(rates) // 10]
    close = [(b * ns, cycles) for b, ns, cycles in samples if abs(cycles - high * b * ns) < _CLOSE * cycles]
    megahertz = round(sum(cycles for _, cycles in close) * 1_000 / sum(ns for ns, _ in close))
    return megahertz * 1_000_000 if megahertz >= _LEAST_MEGAHERTZ else None


def _operator(row: Row, start_unit: str, report: Report) -> Operator:
    what = _meaning(row, report)
    kernel = what.kind == TaskKind.KERNEL
    stream = row.integer("stream")
    task = Task(
        name=row.text("name"),
        kind=what.kind,
        stream=NO_STREAM if stream is None else stream,
        start_ns=row.time_ns("start", start_unit),
        duration_ns=row.duration_ns("duration"),
        task_id=row.integer("task_id"),
        op=row.text("op"),
        kernel_class=what.kernel_class,
        copy=what.copy,
        step=row.integer("step"),
        place=row.place,
    )
    samples: tuple[tuple[int, int, int], ...] = ()
    if kernel:
        task, samples = _with_work(task, row)
    return Operator(task, row.integer("device"), row.integer("context"), samples)


def _with_work(task: Task, row: Row) -> tuple[Task, tuple[tuple[int, int, int], ...]]:
    """The kernel with its blocks and tensors, and what its cores counted."""
    blocks, mix_blocks = row.integer("blocks") or 0, row.integer("mix_blocks") or 0
    core_ns, vector_ns = (row.duration_ns(key) if row.has(key) else 0 for key in ("core_time", "vector_time"))
    # The other kind of core of a mix kernel counts its own blocks.
    on_vector = row.text("core").upper() in ("AI_VECTOR_CORE", "MIX_AIV")
    counts = (
        (mix_blocks if on_vector else blocks, core_ns, row.integer("core_cycles") or 0),
        (blocks if on_vector else mix_blocks, vector_ns, row.integer("vector_cycles") or 0),
    )
    task = replace(
        task,
        blocks=blocks or None,
        mix_blocks=mix_blocks,
        inputs=_operands(row, "input"),
        outputs=_operands(row, "output"),
        core_ns=max(core_ns, vector_ns) or None,
    )
    return task, tuple(count for count in counts if all(count))


def _meaning(row: Row, report: Report) -> Meaning:
    word = row.text("core")
    if not word:
        collective = row.text("name").lower().startswith(_COLLECTIVE_NAMES)
        return Meaning(TaskKind.COLLECTIVE if collective else TaskKind.KERNEL)
    found = meaning(word)
    if found is None:
        report.note(Verdict.GUESSED, f"cores {word!r} of no known kind, taken as kernels", row.place)
        return Meaning(TaskKind.KERNEL)
    return found


def _operands(row: Row, side: str) -> tuple[Operand, ...]:
    shapes, types, layouts = (f"{side}_{what}" for what in ("shapes", "types", "layouts"))
    return operands(row.text(shapes), row.text(types), row.text(layouts), row.cell(shapes))


def _start_unit(table: Table, report: Report) -> str:
    """Unit of the start times, where the title has none: early releases wrote nanoseconds, then microseconds.

    Whole numbers are nanoseconds where that makes no kernel of a stream start before the last one ended; read
    as a unit too short, they would lie a thousand times too close.
    """
    if table.header.units.get("start") or not table.rows:
        return "us"
    tasks = sorted(
        (row.integer("stream") or 0, row.time_ns("start", "ns"), row.duration_ns("duration"))
        for row in table.rows
    )
    fractions = any("." in row.text("start") for row in table.rows)
    clashes = sum(a[0] == b[0] and a[1] + a[2] > b[1] + _ROUNDING_NS for a, b in pairwise(tasks))
    unit = "us" if fractions or 2 * clashes >= len(tasks) else "ns"
    report.note(
        Verdict.GUESSED, f"start times without a unit, read as {unit}", table.rows[0].place, len(table.rows)
    )
    return unit
