"""The tidy table: what its columns mean, what may be missing, and how garbage is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cann_env.commands import CopyKind, KernelClass, Operand
from cann_env.profiles.recording import TaskKind, Verdict
from cann_env.profiles.tidy import read_tidy
from cann_env.units import InputError
from tests.recordings import tidy, write_tidy

if TYPE_CHECKING:
    from pathlib import Path

ALL = (
    "stream task_id type name start_us dur_us bytes direction block_dim op_type input_shapes input_types "
    "output_shapes output_types host_launch_us event step"
)


def test_every_column_is_read(tmp_path: Path) -> None:
    """A kernel, a copy and a wait, each with the fields of its kind and no others."""
    shapes = ("MatMulV2", "8,4;4,2", "FLOAT16;FLOAT16", "8,2", "FLOAT16")
    rows = [
        (2, 11, "AI_CORE", "mm", "10.5", "4.25", "99", "", 16, *shapes, 3.5, "", 7),
        (2, 12, "PCIE_DMA_SQE", "in", 20, 5, 4096, "host to device ex", "", *[""] * 5, "", "", 7),
        (3, 13, "EVENT_WAIT", "wait", 21, 0, "", "", "", *[""] * 5, "", "e1", 7),
    ]
    kernel, copy, wait = tidy(tmp_path / "a.csv", ALL, rows).tasks
    assert (kernel.kind, kernel.kernel_class, kernel.blocks) == (TaskKind.KERNEL, KernelClass.CUBE, 16)
    assert (kernel.start_ns, kernel.duration_ns, kernel.launch_ns) == (0, 4250, -7000)
    assert (kernel.op, kernel.size_bytes, kernel.step, kernel.task_id) == ("MatMulV2", 0, 7, 11)
    assert kernel.inputs == (Operand((8, 4), "float16"), Operand((4, 2), "float16"))
    assert kernel.outputs == (Operand((8, 2), "float16"),)
    assert (copy.kind, copy.copy, copy.size_bytes) == (TaskKind.COPY, CopyKind.H2D, 4096)
    assert (wait.kind, wait.event, wait.stream) == (TaskKind.WAIT, "e1", 3)
    assert wait.place.endswith("a.csv, line 4")


def test_three_columns_are_enough(tmp_path: Path) -> None:
    """A row of no type occupies its stream; the reader says that it guessed."""
    recording = tidy(tmp_path / "a.csv", "dur_us stream start_us", [(1, 5, 100), (2, 6, 90)])
    assert [(task.kind, task.stream, task.start_ns) for task in recording.tasks] == [
        (TaskKind.OTHER, 6, 0),
        (TaskKind.OTHER, 5, 10_000),
    ]
    assert recording.origin_ns == 90_000
    assert {key[0] for key in recording.report.counts} == {Verdict.GUESSED, Verdict.RECOGNISED}


def test_an_operator_without_a_core_is_a_kernel(tmp_path: Path) -> None:
    """Some recordings name the operator and not the core."""
    (task,) = tidy(tmp_path / "a.csv", "stream start_us dur_us op_type", [(1, 0, 2, "Mul")]).tasks
    assert (task.kind, task.op, task.kernel_class) == (TaskKind.KERNEL, "Mul", None)


def test_absolute_times_stay_exact(tmp_path: Path) -> None:
    """Microseconds since 1970 with three decimals do not fit into a float."""
    rows = [(1, "1700000000000000.123", "0.001"), (1, "1700000000000001.125", "0.002")]
    recording = tidy(tmp_path / "a.csv", "stream start_us dur_us", rows)
    assert recording.origin_ns == 1_700_000_000_000_000_123
    assert [(task.start_ns, task.duration_ns) for task in recording.tasks] == [(0, 1), (1002, 2)]


def test_headers_come_again(tmp_path: Path) -> None:
    """Tables that were put together repeat their header; empty lines are nothing."""
    columns = "stream start_us dur_us"
    recording = tidy(tmp_path / "a.csv", columns, [(1, 0, 1), columns.split(), ("", "", ""), (1, 2, 1)])
    assert len(recording.tasks) == 2
    assert recording.report.counts[Verdict.DROPPED, "repeated headers"] == 1


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ("stream start_us", (1, 2), "line 1 names no column 'dur_us'"),
        ("stream start_us dur_us dur_us", (1, 2, 3, 3), "line 1 names more than one column 'dur_us'"),
        ("stream start_us dur_us", (1, 2), "line 2 has 2 fields; the header names 3"),
        ("stream start_us dur_us", ("x", 2, 3), "line 2, column 'stream': 'x' is not"),
        ("stream start_us dur_us", (-1, 2, 3), "line 2, column 'stream': '-1' is not"),
        ("stream start_us dur_us", (1, "soon", 3), "line 2, column 'start_us': 'soon' is not"),
        ("stream start_us dur_us", (1, 2, -3), "line 2, column 'dur_us': '-3' is a negative duration"),
        ("stream start_us dur_us step", (1, 2, 3, "a"), "line 2, column 'step': 'a' is not"),
        (
            "stream start_us dur_us type direction",
            (1, 2, 3, "MEMCPY_ASYNC", "up"),
            "line 2, column 'direction': 'up' is no direction of a copy; write",
        ),
        (
            "stream start_us dur_us type op_type input_shapes",
            (1, 2, 3, "AI_CORE", "Mul", "4,x"),
            "line 2, column 'input_shapes': 'x' is not",
        ),
    ],
)
def test_garbage_is_refused_with_its_place(
    tmp_path: Path, columns: str, row: tuple[object, ...], message: str
) -> None:
    """File, line and column, and what would be right."""
    path = write_tidy(tmp_path / "bad.csv", columns, [row])
    with pytest.raises(InputError) as caught:
        read_tidy(path)
    assert "bad.csv, " in str(caught.value)
    assert message in str(caught.value)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    """Nothing to read is no recording."""
    with pytest.raises(InputError, match="holds no task"):
        tidy(tmp_path / "a.csv", "stream start_us dur_us", [])
