"""Tables of a profiler's SQLite file, read by name: whatever columns a version lacks are empty."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from cann_env.profiles.fields import integer, is_missing, time_ns
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table, read by the names of its columns."""

    table: str
    number: int
    file: str
    values: Mapping[str, object]

    @property
    def place(self) -> str:
        """File, table and row."""
        return f"{self.file}, table {self.table}, row {self.number}"

    def raw(self, column: str) -> object:
        """What stands in a column; None if it says nothing or is not there."""
        value = self.values.get(column.lower())
        return None if is_missing(value) else value

    def integer(self, column: str) -> int | None:
        """A whole number; None if the column says nothing.

        Raises:
            InputError: Not a whole number.
        """
        value = self.raw(column)
        return None if value is None else integer(value, f"{self.place}, column {column}")

    def time_ns(self, column: str) -> int:
        """A time in nanoseconds, stored as a number or as text.

        Raises:
            InputError: Not a time, or missing.
        """
        return time_ns(self.raw(column), f"{self.place}, column {column}", "ns")

    def span_ns(self) -> tuple[int, int]:
        """Start and length of a row with ``startNs`` and ``endNs``.

        Raises:
            InputError: One is missing or no time, or the end comes before the start.
        """
        start, end = self.time_ns("startNs"), self.time_ns("endNs")
        if end < start:
            raise InputError(f"{self.place}: endNs {end} comes before startNs {start}")
        return start, end - start


class Database:
    """An open file. Nothing is written to it, nor beside it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        with self._reading("its schema"):
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            names = sorted(str(row[0]) for row in found)
        self._names = {name.upper(): name for name in names}

    def has(self, table: str) -> bool:
        """Whether there is such a table, in any case of letters."""
        return table.upper() in self._names

    def demand(self, table: str, why: str) -> None:
        """Refuses a file without a table.

        Raises:
            InputError: There is no such table; names those that there are.
        """
        if self.has(table):
            return
        names = sorted(self._names.values())
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        listed = ", ".join(names[:_SHOWN]) + more if names else "none"
        raise InputError(f"{self._path} has no table {table}, {why}; its tables: {listed}")

    def rows(self, table: str, columns: Sequence[str], required: Sequence[str] = ()) -> Iterator[Record]:
        """Rows of a table with some of its columns; no row if there is no such table.

        Raises:
            InputError: The table lacks a required column, or the file is damaged.
        """
        name = self._names.get(table.upper())
        if name is None:
            return
        with self._reading(f"table {name}"):
            quoted = '"' + name.replace('"', '""') + '"'
            there = {str(row[1]).lower() for row in self._connection.execute(f"PRAGMA table_info({quoted})")}
            for column in required:
                if column.lower() not in there:
                    listed = ", ".join(sorted(there)[:_SHOWN])
                    raise InputError(f"{self._path}, table {name} has no column {column}; it has {listed}")
            wanted = [column.lower() for column in (*required, *columns) if column.lower() in there]
            if not wanted:
                return
            select = ", ".join(f'"{column}"' for column in wanted)
            for count, (number, *values) in enumerate(self._select(select, quoted), start=1):
                row = count if number is None else number
                yield Record(name, row, self._path.name, dict(zip(wanted, values, strict=True)))

    def _select(self, columns: str, table: str) -> sqlite3.Cursor:
        try:
            return self._connection.execute(f"SELECT rowid, {columns} FROM {table}")
        except sqlite3.OperationalError:  # views and tables by their key number no rows
            return self._connection.execute(f"SELECT NULL, {columns} FROM {table}")

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self._path}: {what} cannot be read: {error}") from error


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Opens a file to read it only.

    Raises:
        InputError: There is no such file, or it is no SQLite database.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True)
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be opened: {error}") from error
    try:
        yield Database(path, connection)
    finally:
        connection.close()
