"""Tables that a notebook shows, a terminal prints, a paper typesets and a spreadsheet opens.

Headings and rows of anything come in as :func:`table`; one :class:`Table` writes itself in four forms.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"[+-]?\d")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; made by :func:`table`. A notebook shows it, ``print`` writes it in columns.

    Attributes:
        headings: One for each column.
        rows: Each with as many cells as there are headings.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Of each column whether it stands right: it holds a number, and nothing but numbers and ``-``."""
        return tuple(_is_numeric([row[column] for row in self.rows]) for column in range(len(self.headings)))

    def __str__(self) -> str:
        """Columns of text, two spaces apart."""
        lines = (self.headings, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, self.numeric, strict=True)
            ).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """The table in Markdown."""
        rule = tuple("---:" if right else "---" for right in self.numeric)
        lines = (_escaped(self.headings), rule, *map(_escaped, self.rows))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def latex(self) -> str:
        """The table as a ``tabular`` of LaTeX, with the rules of the package ``booktabs``."""
        columns = "".join("r" if right else "l" for right in self.numeric)
        lines = [_latex_line(self.headings), r"\midrule", *map(_latex_line, self.rows)]
        body = "\n".join(lines)
        return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"

    def write_csv(self, path: str | Path) -> Path:
        """Write the table as CSV, with a line of headings.

        Raises:
            InputError: The file cannot be written.
        """
        target = Path(path)
        try:
            with target.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows((self.headings, *self.rows))
        except OSError as error:
            raise InputError(f"table {str(target)!r} cannot be written: {error.strerror}") from error
        return target


def table(headings: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of what ``str`` makes of each cell.

    Args:
        headings: One for each column.
        rows: In order.

    Raises:
        InputError: There is no column, or a row has another number of cells than there are headings.
    """
    if not headings:
        raise InputError("a table has no headings; write one for each column")
    titles = tuple(map(str, headings))
    lines = [tuple(map(str, row)) for row in rows]
    for number, line in enumerate(lines, start=1):
        if len(line) != len(titles):
            raise InputError(
                f"row {number} of a table has {len(line)} cells; there are {len(titles)} headings: "
                f"{', '.join(titles)}"
            )
    return Table(titles, tuple(lines))


def _is_numeric(cells: Sequence[str]) -> bool:
    numbers = [cell for cell in cells if cell not in ("", "-")]
    return bool(numbers) and all(_NUMBER.match(cell) for cell in numbers)


def _escaped(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.replace("|", r"\|").replace("\n", "<br>") for cell in cells)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(letter, letter) for letter in cell) for cell in cells) + r" \\"
