"""Names in a profiler's database: STRING_IDS and the tables of enumerations, which older versions lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.profiles.fields import bare
from cann_env.profiles.recording import Verdict

if TYPE_CHECKING:
    from cann_env.profiles.recording import Report
    from cann_env.profiles.sqlite_tables import Database, Record

# Content of the tables as documented for msprof, for files that come without them.
_COPIES = {
    0: "host to host",
    1: "host to device",
    2: "device to host",
    3: "device to device",
    4: "managed memory",
    5: "addr device to device",
    6: "host to device ex",
    7: "device to host ex",
    65535: "other",
}
_LINKS = {
    0: "ON_CHIP",
    1: "HCCS",
    2: "PCIE",
    3: "ROCE",
    4: "SIO",
    5: "HCCS_SW",
    6: "STANDARD_ROCE",
    7: "RESERVED",
    65534: "N/A",
    65535: "INVALID_TYPE",
}


class Names:
    """Looks numbers up."""

    def __init__(self, database: Database, report: Report) -> None:
        self._report = report
        self._strings: dict[int, str] = {}
        for row in database.rows("STRING_IDS", (), ("id", "value")):
            number, value = row.integer("id"), row.raw("value")
            if number is not None:
                self._strings[number] = "" if value is None else str(value)
        self._copies = _enumeration(database, "ENUM_MEMCPY_OPERATION")
        self._links = _enumeration(database, "ENUM_HCCL_LINK_TYPE")

    def string(self, row: Record, column: str) -> str:
        """The text that a column refers to, or that stands in it; empty if it says nothing.

        Raises:
            InputError: Neither a number nor text.
        """
        value = row.raw(column)
        if value is None:
            return ""
        if isinstance(value, str) and not value.strip().isdigit():
            return bare(value)
        number = row.integer(column)
        if number is None or number not in self._strings:
            self._report.note(Verdict.DROPPED, "names that STRING_IDS does not hold", row.place)
            return ""
        return bare(self._strings[number])

    def copy(self, row: Record, column: str) -> str:
        """The way of a copy, in words; empty if it is not known."""
        return self._enumerated(row, column, self._copies, _COPIES)

    def link(self, row: Record, column: str) -> str:
        """The kind of a link; empty if it is not known."""
        return self._enumerated(row, column, self._links, _LINKS)

    def _enumerated(self, row: Record, column: str, table: dict[int, str], documented: dict[int, str]) -> str:
        value = row.raw(column)
        if value is None:
            return ""
        if isinstance(value, str) and not value.strip().isdigit():
            return bare(value)
        number = row.integer(column)
        if number is None:
            return ""
        if table:
            return table.get(number, "")
        # Before there were tables of enumerations these columns referred to STRING_IDS.
        named = self._strings.get(number, "")
        return named if named in documented.values() else documented.get(number, "")


def _enumeration(database: Database, table: str) -> dict[int, str]:
    found = {}
    for row in database.rows(table, (), ("id", "name")):
        number = row.integer("id")
        if number is not None:
            found[number] = str(row.raw("name") or "")
    return found
