"""Tables of profilers: CSV files whose columns differ from version to version, read by name.

A column is known by all the titles it ever had. Titles are compared without case, blanks and underscores, and
a unit in brackets is a property of the column, not of its name: ``Start Time(us)``, ``Start Time`` and
``start_time (ns)`` are one column in three units. A header may stand below other lines and may be repeated,
as it is where files were joined; from there on its own columns hold.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from cann_env.profiles.fields import bare, duration_ns, integer, is_missing, time_ns
from cann_env.profiles.recording import Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cann_env.profiles.recording import Report

_HEADER_LINES = 20
_TITLE = re.compile(r"(?P<name>.*?)(?:\((?P<unit>ns|us|ms|s)\))?", re.DOTALL)
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a reader looks for.

    Attributes:
        key: What the reader calls it.
        titles: What files call it, without units; the first is the one that messages name.
        required: Whether a table without it is refused.
    """

    key: str
    titles: tuple[str, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """One header line: where each column stands.

    Attributes:
        titles: As written.
        places: Index of each column found, by key.
        units: Unit of each column found; empty if its title has none.
    """

    titles: tuple[str, ...]
    places: Mapping[str, int]
    units: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A place in a table; its text is what messages begin with."""

    file: str
    line: int
    title: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, column {self.title!r}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, read by the keys of its columns."""

    file: str
    line: int
    header: Header
    cells: Sequence[str]

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}, line {self.line}"

    def has(self, key: str) -> bool:
        """Whether the row says anything in a column."""
        return bool(_said(self._raw(key)))

    def cell(self, key: str) -> Cell:
        """The place of a column in this row, for messages."""
        index = self.header.places.get(key)
        return Cell(self.file, self.line, key if index is None else self.header.titles[index])

    def text(self, key: str) -> str:
        """What stands in a column, without blanks and quotes; empty if nothing does (``N/A`` is nothing)."""
        return _said(self._raw(key))

    def integer(self, key: str, *, least: int | None = 0) -> int | None:
        """A whole number; None if the column is missing or says nothing.

        Raises:
            InputError: Not a whole number of at least ``least``.
        """
        said = _said(self._raw(key))
        return integer(said, self.cell(key), least=least) if said else None

    def time_ns(self, key: str, unit: str = "us") -> int:
        """A time in the unit of the column's title, in ``unit`` if that has none.

        Raises:
            InputError: Not a time, or missing.
        """
        return time_ns(self._raw(key), self.cell(key), self.header.units.get(key) or unit)

    def duration_ns(self, key: str, unit: str = "us") -> int:
        """A length of time in the unit of the column's title, in ``unit`` if that has none.

        Raises:
            InputError: Not a time of at least zero, or missing.
        """
        return duration_ns(self._raw(key), self.cell(key), self.header.units.get(key) or unit)

    def _raw(self, key: str) -> str:
        index = self.header.places.get(key)
        return "" if index is None or index >= len(self.cells) else self.cells[index]


@dataclass(slots=True)
class Table:
    """Rows of a file, in its order.

    Attributes:
        file: As messages name it.
        header: The first header.
        rows: All rows but headers and blank lines.
    """

    file: str
    header: Header
    rows: list[Row] = field(default_factory=list)


def plain(title: str) -> str:
    """A title as titles are compared: ``Device_id`` and ``device ID`` are the same."""
    name, _ = _split(title)
    return name


def read_lines(path: Path, limit: int | None = None) -> list[tuple[int, list[str]]]:
    """Cells of a file with the number of their line, at most ``limit`` rows of them.

    Raises:
        InputError: The file cannot be read, is no text, or its quotes do not match.
    """
    text = _text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for cells in reader:
            rows.append((line, cells))
            line = reader.line_num + 1
            if limit is not None and len(rows) >= limit:
                break
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: the line is no comma separated values: {error}; are its quotes closed?"
        ) from error
    return rows


def read_table(path: Path, columns: Sequence[Column], report: Report) -> Table:
    """Read a table whose header has all required ``columns``.

    Raises:
        InputError: The file cannot be read, has no such header, or has a row that does not fit it.
    """
    lines = read_lines(path)
    first = _first_header(path, lines, columns)
    table = Table(str(path), _header(lines[first][1], columns))
    if first:
        report.note(Verdict.DROPPED, "lines above the header", f"{path}, line {lines[0][0]}", first)
    table.rows.extend(_rows(table, lines[first + 1 :], columns, report))
    return table


def _rows(
    table: Table, lines: Sequence[tuple[int, list[str]]], columns: Sequence[Column], report: Report
) -> Iterator[Row]:
    header = table.header
    known = {plain(title) for title in (*header.titles, *(t for column in columns for t in column.titles))}
    for line, cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        row = Row(table.file, line, header, cells)
        if plain(cells[0]) in known:
            again = _header(cells, columns)
            if not _lacks(again, columns):
                header = again
                report.note(Verdict.DROPPED, "repeated header lines", row.place)
                continue
        _check_width(row, columns, report)
        yield row


def _check_width(row: Row, columns: Sequence[Column], report: Report) -> None:
    have, want = len(row.cells), len(row.header.titles)
    if have > want and any(cell.strip() for cell in row.cells[want:]):
        raise InputError(
            f"{row.place}: {have} values stand under {want} columns; is a value with commas quoted?"
        )
    if have >= want:
        return
    for column in columns:
        if column.required and row.header.places[column.key] >= have:
            raise InputError(
                f"{row.place} ends after {have} of {want} columns, before "
                f"{row.header.titles[row.header.places[column.key]]!r}; is the file cut off?"
            )
    report.note(Verdict.GUESSED, "rows shorter than their header, taken as empty there", row.place)


def _first_header(path: Path, lines: Sequence[tuple[int, list[str]]], columns: Sequence[Column]) -> int:
    if not lines:
        raise InputError(f"{path} is empty; it should hold a table with a header")
    best: tuple[int, list[str], list[Column]] | None = None
    for index, (line, cells) in enumerate(lines[:_HEADER_LINES]):
        header = _header(cells, columns)
        lacks = _lacks(header, columns)
        if not lacks:
            return index
        if any(cell.strip() for cell in cells) and (best is None or len(lacks) < len(best[2])):
            best = line, cells, lacks
    if best is None:
        raise InputError(f"{path} holds blank lines only; it should hold a table with a header")
    line, cells, lacks = best
    wanted = ", ".join(repr(column.titles[0]) for column in lacks)
    raise InputError(f"{path} has no column {wanted}; line {line} has: {_list(cells)}")


def _list(cells: Sequence[str]) -> str:
    shown = ", ".join(repr(cell.strip()[:40]) for cell in cells[:_SHOWN])
    return shown if len(cells) <= _SHOWN else f"{shown} and {len(cells) - _SHOWN} more"


def _lacks(header: Header, columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.required and column.key not in header.places]


def _header(cells: Sequence[str], columns: Sequence[Column]) -> Header:
    names: dict[str, int] = {}
    units: list[str] = []
    for index, cell in enumerate(cells):
        name, unit = _split(cell)
        names.setdefault(name, index)
        units.append(unit)
    places = {
        column.key: names[title]
        for column in columns
        for title in reversed([plain(title) for title in column.titles])
        if title in names
    }
    return Header(
        tuple(cell.strip() for cell in cells), places, {key: units[index] for key, index in places.items()}
    )


@lru_cache(maxsize=1 << 16)
def _said(raw: str) -> str:
    """A cell without blanks and quotes, empty if it says nothing; most cells of a table say the same."""
    return "" if is_missing(raw) else bare(raw)


@lru_cache(maxsize=4096)
def _split(title: str) -> tuple[str, str]:
    text = bare(title).lower().replace("_", " ").replace("µ", "u").replace("μ", "u")
    text = re.sub(r"\s+", " ", re.sub(r"\s*\(\s*|\s*\)", lambda m: m[0].strip(), text))
    found = _TITLE.fullmatch(text)
    return (found["name"].strip(), found["unit"] or "") if found else (text, "")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a path may hold a byte that none can
        raise InputError(f"{path} cannot be read: {error}") from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte {error.start} is no UTF-8 text; is it a CSV file?"
        ) from error
    if "\0" in text:
        raise InputError(
            f"{path}, line {text[: text.index(chr(0))].count(chr(10)) + 1}: a zero byte in a text file"
        )
    return text
