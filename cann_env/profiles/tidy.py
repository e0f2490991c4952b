"""The tidy CSV: one row a task, plain column names, most of which may be missing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cann_env.commands import CopyKind
from cann_env.profiles.fields import bare, duration_ns, integer, is_missing, operands, shown, time_ns
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.profiles.words import Meaning, meaning
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cann_env.commands import Operand

NEEDED = ("stream", "start_us", "dur_us")
"""Columns that no tidy CSV can do without."""

COLUMNS = (
    *NEEDED,
    "task_id",
    "type",
    "name",
    "bytes",
    "direction",
    "block_dim",
    "mix_block_dim",
    "op_type",
    "input_shapes",
    "input_types",
    "input_formats",
    "output_shapes",
    "output_types",
    "output_formats",
    "host_launch_us",
    "event",
    "step",
)
"""All columns that are read, in any order."""

_OTHER, _KERNEL = Meaning(TaskKind.OTHER), Meaning(TaskKind.KERNEL)
_PREFIXES = (("REDUCE", Meaning(TaskKind.COLLECTIVE)), ("WRITE", _OTHER), ("MEMCPY", Meaning(TaskKind.COPY)))
_DIRECTIONS = (
    ("host to device", CopyKind.H2D),
    ("device to host", CopyKind.D2H),
    ("device to device", CopyKind.D2D),
    ("h2d", CopyKind.H2D),
    ("d2h", CopyKind.D2H),
    ("d2d", CopyKind.D2D),
)


class _Line(NamedTuple):
    """A row of the file and where it stands."""

    fields: Mapping[str, str]
    place: str

    def get(self, column: str) -> str:
        return self.fields.get(column) or ""

    def where(self, column: str) -> str:
        return f"{self.place}, column {column!r}"


def read_tidy(path: str | Path) -> Recording:
    """Read a tidy CSV.

    Needs the columns ``stream``, ``start_us`` and ``dur_us``; takes the other :data:`COLUMNS` where they are.
    Times may be absolute or relative, ``type`` any word of a profiler for a task. A row without one is a
    kernel if it names an operator, else a task that occupies its stream and nothing more. ``event`` is equal
    for the record and the waits of one event.

    Args:
        path: The file.

    Raises:
        InputError: Names file, line and column.
    """
    file = Path(path)
    report = Report()
    tasks, origin = ordered([_task(line, report) for line in _lines(file, report)])
    if not tasks:
        raise InputError(
            f"{file} holds no task; a tidy CSV has a row for each, below the names of the columns"
        )
    report.note(Verdict.RECOGNISED, "tasks", str(file), len(tasks))
    return Recording(name=file.stem, format="tidy CSV", tasks=tasks, origin_ns=origin, report=report)


def _lines(file: Path, report: Report) -> Iterator[_Line]:
    """Rows below the header; later copies of the header are passed over."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file} as text: {error}") from None
    rows = csv.reader(text.splitlines())
    names = [bare(name).lower() for name in next(rows, [])]
    _check_header(file, names)
    for row in rows:
        place = f"{file}, line {rows.line_num}"
        if not any(field.strip() for field in row):
            continue
        if [bare(field).lower() for field in row] == names:
            report.note(Verdict.DROPPED, "repeated headers", place)
            continue
        if len(row) != len(names):
            raise InputError(f"{place} has {len(row)} fields; the header names {len(names)} columns")
        yield _Line(dict(zip(names, row, strict=True)), place)


def _check_header(file: Path, names: list[str]) -> None:
    for name in NEEDED:
        if names.count(name) != 1:
            count = "no" if name not in names else "more than one"
            raise InputError(
                f"{file}, line 1 names {count} column {name!r}; a tidy CSV begins with the names of its "
                f"columns, {', '.join(NEEDED)} among them"
            )


def _task(line: _Line, report: Report) -> Task:
    what = _meaning(line, report)
    kernel = what.kind is TaskKind.KERNEL
    copy = _direction(line, what, report) if what.kind is TaskKind.COPY else None
    moves = what.kind in (TaskKind.COPY, TaskKind.COLLECTIVE)
    launch = line.get("host_launch_us")
    return Task(
        name=bare(line.get("name")) or bare(line.get("type")) or "task",
        kind=what.kind,
        stream=integer(line.get("stream"), line.where("stream"), least=0),
        start_ns=time_ns(line.get("start_us"), line.where("start_us")),
        duration_ns=duration_ns(line.get("dur_us"), line.where("dur_us")),
        task_id=_count(line, "task_id"),
        op=_op(line) if kernel else "",
        kernel_class=what.kernel_class if kernel else None,
        blocks=(_count(line, "block_dim") or None) if kernel else None,
        mix_blocks=(_count(line, "mix_block_dim") or 0) if kernel else 0,
        inputs=_operands(line, "input") if kernel else (),
        outputs=_operands(line, "output") if kernel else (),
        copy=copy,
        size_bytes=(_count(line, "bytes") or 0) if moves else 0,
        launch_ns=None if is_missing(launch) else time_ns(launch, line.where("host_launch_us")),
        event=None if is_missing(line.get("event")) else bare(line.get("event")),
        step=_count(line, "step"),
        place=line.place,
    )


def _meaning(line: _Line, report: Report) -> Meaning:
    word = line.get("type")
    found = meaning(word)
    if found is not None:
        return found
    if is_missing(word):
        if not is_missing(line.get("op_type")):
            report.note(Verdict.GUESSED, "kernels, by their operator", line.place)
            return _KERNEL
        report.note(Verdict.GUESSED, "tasks of no type, taken to occupy their stream", line.place)
        return _OTHER
    upper = bare(word).upper()
    for prefix, kind in _PREFIXES:
        if upper.startswith(prefix):
            return kind
    report.note(
        Verdict.GUESSED, f"tasks of type {shown(bare(word))}, taken to occupy their stream", line.place
    )
    return _OTHER


def _op(line: _Line) -> str:
    word = line.get("op_type")
    return "" if is_missing(word) else bare(word)


def _direction(line: _Line, what: Meaning, report: Report) -> CopyKind | None:
    text = bare(line.get("direction")).lower().replace("_", " ")
    for words, copy in _DIRECTIONS:
        if text.startswith(words):
            return copy
    if text:
        raise InputError(
            f"{line.where('direction')}: {shown(text)} is no direction of a copy; write 'host to device', "
            "'device to host' or 'device to device'"
        )
    if what.copy is None and "PCIE" in line.get("type").upper():
        report.note(
            Verdict.GUESSED, "copies over PCIe of no stated direction, taken to the device", line.place
        )
        return CopyKind.H2D
    return what.copy


def _count(line: _Line, column: str) -> int | None:
    value = line.get(column)
    return None if is_missing(value) else integer(value, line.where(column), least=0)


def _operands(line: _Line, side: str) -> tuple[Operand, ...]:
    shapes, types = line.get(f"{side}_shapes"), line.get(f"{side}_types")
    if is_missing(shapes) and is_missing(types):
        return ()
    return operands(shapes, types, line.get(f"{side}_formats"), line.where(f"{side}_shapes"))
