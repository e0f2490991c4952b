"""Tables of operators that are garbage: refused with the file, the line and the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_tables import (
    COLLECTIVE,
    LEVEL_0,
    LEVEL_1,
    LEVEL_2,
    MATMUL,
    SUMMARY,
    TASK,
    TASKS,
    at,
    counts,
    line,
    read,
    table,
    write,
)

from cann_env.profiles.kernel_details import read_kernel_details
from cann_env.profiles.read import read_profile
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (
            "Start Time",
            "abc",
            "column 'Start Time(us)': 'abc' is not a time; write microseconds such as 12.5",
        ),
        (
            "Start Time",
            "N/A",
            "column 'Start Time(us)': 'N/A' is not a time; write microseconds such as 12.5",
        ),
        ("Duration", "", "column 'Duration(us)': '' is not a time; write microseconds such as 12.5"),
        (
            "Duration",
            "-1.5",
            "column 'Duration(us)': '-1.5' is a negative duration; write microseconds such as",
        ),
        ("Duration", "1e999", "column 'Duration(us)': '1e999' is not a time"),
        ("Stream ID", "two", "column 'Stream ID': 'two' is not a whole number of at least 0"),
        ("Stream ID", "-2", "column 'Stream ID': '-2' is not a whole number of at least 0"),
        ("Task ID", "1.5", "column 'Task ID': '1.5' is not a whole number of at least 0"),
        ("Step Id", "first", "column 'Step Id': 'first' is not a whole number of at least 0"),
        ("Device_id", "npu", "column 'Device_id': 'npu' is not a whole number of at least 0"),
        ("Block Num", "many", "column 'Block Dim': 'many' is not a whole number of at least 0"),
        ("Mix Block Num", "-1", "column 'Mix Block Dim': '-1' is not a whole number of at least 0"),
        ("Context ID", "x", "column 'Context ID': 'x' is not a whole number of at least 0"),
        ("Input Shapes", "4,x", "column 'Input Shapes': 'x' is not a size; write shapes such as 32,64;64,16"),
        (
            "Output Shapes",
            "4;-2",
            "column 'Output Shapes': '-2' is not a size; write shapes such as 32,64;64,16",
        ),
        (
            "aicore_time",
            "fast",
            "column 'aicore_time(us)': 'fast' is not a time; write microseconds such as 12.5",
        ),
        ("aiv_total_cycles", "0.5", "column 'aiv_total_cycles': '0.5' is not a whole number of at least 0"),
    ],
)
def test_a_bad_field_is_refused_with_file_line_and_column(
    tmp_path: Path, column: str, value: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, table(LEVEL_2, MATMUL, MATMUL | {column: value}))
    assert f"kernel_details.csv, line 3, {words}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "kernel_details.csv is empty; it should hold a table with a header"),
        ("\n\n ,\n", "kernel_details.csv holds blank lines only"),
        ("Name,Duration(us)\nadd,1\n", "has no column 'Start Time'; line 1 has: 'Name', 'Duration(us)'"),
        ("hello\n", "has no column 'Name', 'Start Time', 'Duration'; line 1 has: 'hello'"),
        (table(LEVEL_1), "kernel_details.csv has a header and no row; it should hold one row an operator"),
        (
            table(LEVEL_1, MATMUL) + "7,1,2\n",
            "line 3 ends after 3 of 21 columns, before 'Name'; is the file cut off?",
        ),
        (
            table(LEVEL_0, MATMUL) + "0,a,b,c,1,2,3,4,5\n",
            "line 3: 9 values stand under 8 columns; is a value with commas",
        ),
        (table(LEVEL_0, MATMUL) + '0,"a\n', "line 3: the line is no comma separated values"),
        (table(LEVEL_0, MATMUL) + "0,\0\n", "line 3: a zero byte in a text file"),
    ],
    ids=[
        "empty",
        "blank",
        "no start",
        "prose",
        "no rows",
        "cut off",
        "loose commas",
        "open quote",
        "zero byte",
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert "kernel_details.csv" in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(table(LEVEL_0, MATMUL).encode() + b"\xff\xd8\n")
    with pytest.raises(InputError, match=r"kernel_details\.csv, line 3: byte \d+ is no UTF-8 text"):
        read_kernel_details(path)
    with pytest.raises(InputError, match=r"nothing\.csv cannot be read"):
        read_kernel_details(tmp_path / "nothing.csv")


def test_short_rows_are_taken_and_counted(tmp_path: Path) -> None:
    """A row may end where nothing more is needed: the rest of it says nothing."""
    short = ",".join(line(LEVEL_1, at("300")).split(",")[:11])
    recording = read(tmp_path, table(LEVEL_1, MATMUL) + short + "\n")
    assert (recording.tasks[1].duration_ns, recording.tasks[1].blocks) == (100_500, None)
    assert counts(recording) == {"rows shorter than their header, taken as empty there": 1}


TABLES = (
    table(LEVEL_2, MATMUL, COLLECTIVE, at("300")).encode(),
    table(SUMMARY, MATMUL, COLLECTIVE).encode(),
    table(TASKS, TASK, TASK).encode(),
)


@settings(deadline=None, max_examples=25)
@given(
    start=st.sampled_from(TABLES),
    cuts=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30), st.binary(max_size=6)), max_size=4),
)
def test_whatever_is_done_to_a_table_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, cuts: list[tuple[int, int, bytes]]
) -> None:
    """Pieces are cut out and others put in: an error names the file, a recording has no negative time."""
    data = start
    for place, length, piece in cuts:
        place %= len(data) + 1
        data = data[:place] + piece + data[place + length :]
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes(data)
    try:
        recording = read_profile(path)
    except InputError as error:
        assert "table.csv" in str(error)
    else:
        assert all(
            task.start_ns >= 0 and task.duration_ns >= 0 and task.stream >= 0 for task in recording.tasks
        )


def test_paths_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for read_one in (read_profile, read_kernel_details):
        with pytest.raises(InputError, match="cannot be read"):
            read_one(str(write(tmp_path / "a.csv", "")) + "\0")
