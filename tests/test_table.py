"""Tables: what they look like in text, Markdown, LaTeX and CSV, and how wrong ones are refused."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from cann_env.render.table import table
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = table(["who", "time", "part"], [["a_b", "1.5 ms", 0.25], ["c|d", "-", "50%"]])


def test_columns_of_numbers_stand_right() -> None:
    """A column of words, one of times with a gap, one of a number and a percentage."""
    assert SMALL.numeric == (False, True, True)
    assert str(SMALL) == "who    time  part\na_b  1.5 ms  0.25\nc|d       -   50%"


def test_columns_without_a_number_stand_left() -> None:
    assert table(["a", "b"], [["-", ""], ["-", "x1"]]).numeric == (False, False)
    assert table(["a"], []).numeric == (False,)


def test_markdown_keeps_what_would_end_a_cell() -> None:
    lines = [
        "| who | time | part |",
        "| --- | ---: | ---: |",
        "| a_b | 1.5 ms | 0.25 |",
        r"| c\|d | - | 50% |",
    ]
    assert SMALL.markdown().splitlines() == lines
    assert SMALL._repr_markdown_() == SMALL.markdown()
    assert table(["a"], [["x\ny"]]).markdown().endswith("| x<br>y |")


def test_latex_escapes_what_means_something_there() -> None:
    text = SMALL.latex()
    assert text.startswith("\\begin{tabular}{lrr}\n\\toprule\nwho & time & part \\\\\n\\midrule\n")
    assert "a\\_b & 1.5 ms & 0.25 \\\\\nc|d & - & 50\\% \\\\\n\\bottomrule\n\\end{tabular}\n" in text
    (line,) = (line for line in table(["x"], [["\\{~^$&#}"]]).latex().splitlines() if "textback" in line)
    assert line == r"\textbackslash{}\{\textasciitilde{}\textasciicircum{}\$\&\#\} \\"


def test_csv_comes_back(tmp_path: Path) -> None:
    path = SMALL.write_csv(tmp_path / "a.csv")
    with path.open(newline="", encoding="utf-8") as file:
        assert [tuple(row) for row in csv.reader(file)] == [SMALL.headings, *SMALL.rows]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere/a\.csv' cannot be written: No such file"):
        SMALL.write_csv(tmp_path / "nowhere" / "a.csv")


@pytest.mark.parametrize(
    ("headings", "rows", "message"),
    [
        ([], [], "a table has no headings"),
        (["a", "b"], [[1, 2], [3]], "row 2 of a table has 1 cells; there are 2 headings: a, b"),
    ],
    ids=["no headings", "short row"],
)
def test_wrong_tables_are_refused(headings: list[str], rows: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table(headings, rows)
