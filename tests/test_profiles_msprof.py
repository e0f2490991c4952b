"""What msprof writes: tables of operators, tables of tasks, and folders with slices of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from profile_tables import (
    COLLECTIVE,
    EPOCH_US,
    MATMUL,
    SUMMARY,
    SUMMARY_FIRST,
    SUMMARY_OLD,
    TASK,
    TASKS,
    TASKS_OLD,
    at,
    counts,
    table,
    write,
)

from cann_env.commands import CopyKind, KernelClass, Operand
from cann_env.profiles.msprof_folder import read_msprof_folder
from cann_env.profiles.op_summary import read_op_summary
from cann_env.profiles.recording import TaskKind
from cann_env.profiles.task_time import read_task_time
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "mindstudio_profiler_output"
STAMP = "20240102030405"


def task(after: int, kind: str, **values: str) -> dict[str, str]:
    """One task of 2.5 us so many microseconds after the clock's round number."""
    times = {"task_start": f"{EPOCH_US + after}.000\t", "task_stop": f"{EPOCH_US + after + 2}.500\t"}
    return TASK | times | {"kernel_type": kind, "task_id": str(after)} | values


# --- op_summary ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [SUMMARY, SUMMARY_OLD, SUMMARY_FIRST], ids=["now", "old", "first"])
def test_every_table_of_operators_gives_the_same_kernel(tmp_path: Path, columns: tuple[str, ...]) -> None:
    recording = read_op_summary(write(tmp_path / "op_summary_1.csv", table(columns, MATMUL)))
    (found,) = recording.tasks
    assert recording.origin_ns == EPOCH_US * 1000 + 125
    assert (found.name, found.op) == ("aclnnMatmul_MatMulV3", "MatMulV3")
    assert found.kernel_class == (None if columns is SUMMARY_FIRST else KernelClass.CUBE)
    assert (found.stream, found.task_id, found.blocks, found.duration_ns) == (2, 11, 20, 100_500)
    assert found.inputs == (Operand((64, 32), "bfloat16"), Operand((32, 16), "bfloat16"))
    assert (found.core_ns, recording.clock_hz) == (96_250, 1_650_000_000)


def test_cores_of_one_kind_leave_the_class_to_the_operator(tmp_path: Path) -> None:
    """A chip whose cores are cube and vector in one: its tables have no column for the other kind of core."""
    path = write(tmp_path / "op_summary_1.csv", table(SUMMARY_FIRST, MATMUL, at("200", OP_Type="Add")))
    recording = read_op_summary(path)
    assert [found.kernel_class for found in recording.tasks] == [None, None]
    what = "kernels on cores of one kind, their class left to the operator"
    assert counts(recording)[what] == 2
    write(
        tmp_path / "task_time_1.csv", table(TASKS_OLD, task(0, "KERNEL_AICORE", stream_id="2", task_id="11"))
    )
    write(path, table(SUMMARY_FIRST, at("0"), at("300", Accelerator_Core="AI_CPU")))
    joined = read_msprof_folder(tmp_path)
    assert [found.kernel_class for found in joined.tasks] == [None, KernelClass.AICPU]
    split = write(
        tmp_path / "op_summary_2.csv", table(SUMMARY_FIRST, at("0"), at("300", Accelerator_Core="MIX_AIC"))
    )
    assert [found.kernel_class for found in read_op_summary(split).tasks] == [
        KernelClass.CUBE,
        KernelClass.MIX,
    ]


def test_collectives_that_name_a_stream_keep_it(tmp_path: Path) -> None:
    row = at("0", Accelerator_Core="COMMUNICATION", Stream_ID="9")
    recording = read_op_summary(write(tmp_path / "op_summary_1.csv", table(SUMMARY, row)))
    assert [(found.kind, found.stream) for found in recording.tasks] == [(TaskKind.COLLECTIVE, 9)]


# --- task_time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [TASKS, TASKS_OLD, ("kernel_type", "task_start(us)", "task_stop(us)")])
def test_every_table_of_tasks_gives_the_same_task(tmp_path: Path, columns: tuple[str, ...]) -> None:
    recording = read_task_time(write(tmp_path / "task_time_1.csv", table(columns, TASK)))
    (found,) = recording.tasks
    assert recording.origin_ns == EPOCH_US * 1000 + 1
    assert (found.kind, found.kernel_class) == (TaskKind.KERNEL, KernelClass.VECTOR)
    assert found.name == ("add" if "kernel_name" in columns else "KERNEL_AIVEC")
    assert (found.stream, found.task_id) == ((3, 5) if "stream_id" in columns else (0, None))
    assert found.duration_ns == 2500


def test_kinds_of_tasks(tmp_path: Path) -> None:
    kinds = {
        "KERNEL_AICORE": TaskKind.KERNEL,
        "KERNEL_AICPU": TaskKind.KERNEL,
        "EVENT_RECORD": TaskKind.RECORD,
        "EVENT_WAIT": TaskKind.WAIT,
        "EVENT_RESET": TaskKind.RESET,
        "NOTIFY_WAIT": TaskKind.PEER_WAIT,
        "NOTIFY_RECORD": TaskKind.OTHER,
        "MEMCPY_ASYNC": TaskKind.COPY,
        "SDMA_SQE": TaskKind.COPY,
        "PROFILING_ENABLE": TaskKind.OTHER,
        "PLACE_HOLDER_SQE": TaskKind.OTHER,
        "FFTS_PLUS": TaskKind.KERNEL,
        "TELEPORT": TaskKind.OTHER,
    }
    rows = [task(10 * index, kind, kernel_name="N/A") for index, kind in enumerate(kinds)]
    recording = read_task_time(write(tmp_path / "task_time_1.csv", table(TASKS, *rows)))
    assert {found.name: found.kind for found in recording.tasks} == kinds
    assert {found.copy for found in recording.tasks} == {None, CopyKind.D2D}
    assert counts(recording) == {"tasks of the unknown type 'TELEPORT', taken as occupying their stream": 1}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"task_start": "soon"},
            "column 'task_start(us)': 'soon' is not a time; write microseconds such as 12.5",
        ),
        ({"task_time": "-1"}, "column 'task_time(us)': '-1' is a negative duration"),
        (
            {"task_time": "N/A", "task_stop": "5"},
            "column 'task_stop(us)': '5' is before the start, '170000000000000",
        ),
        ({"task_time": "", "task_stop": ""}, "column 'task_time(us)': '' is not a time"),
        ({"stream_id": "x"}, "column 'stream_id': 'x' is not a whole number of at least 0"),
        ({"task_id": "1.5"}, "column 'task_id': '1.5' is not a whole number of at least 0"),
        ({"Device_id": "npu"}, "column 'Device_id': 'npu' is not a whole number of at least 0"),
    ],
)
def test_a_bad_field_of_a_task_is_refused(tmp_path: Path, values: dict[str, str], words: str) -> None:
    path = write(tmp_path / "task_time_1.csv", table(TASKS, TASK, TASK | values))
    with pytest.raises(InputError) as caught:
        read_task_time(path)
    assert f"task_time_1.csv, line 3, {words}" in str(caught.value)


def test_statistics_and_empty_tables_are_refused(tmp_path: Path) -> None:
    """The first releases wrote sums over tasks under this name."""
    sums = write(
        tmp_path / "task_time_0.csv", "Time(%),Time(us),Count,Avg(us),Type,API,Task ID\n50,3,2,1.5,a,b,1\n"
    )
    with pytest.raises(InputError, match="has no column 'task_start'; line 1 has: 'Time"):
        read_task_time(sums)
    with pytest.raises(InputError, match="has a header and no row"):
        read_task_time(write(tmp_path / "task_time_1.csv", table(TASKS)))


def test_one_device_of_several(tmp_path: Path) -> None:
    path = write(
        tmp_path / "task_time_1.csv", table(TASKS, TASK, TASK | {"Device_id": "1", "task_time": "7"})
    )
    with pytest.raises(InputError, match="holds tasks of devices 0, 1; choose one, such as device=0"):
        read_task_time(path)
    recording = read_task_time(path, device=1)
    assert [found.duration_ns for found in recording.tasks] == [7000]
    assert recording.traits["device"] == "1"


# --- folders ------------------------------------------------------------------------------------------


def test_tasks_and_operators_are_joined(tmp_path: Path) -> None:
    """A kernel in both tables, a copy in one, an operator in the other, and a collective shown by its parts.

    ```
    stream 2   matmul 0-2.5 us    copy 10-12.5    lone operator 50-150.5
    stream 5   notify wait 20-22.5               (all within the collective, 15-35)
    ```
    """
    folder = tmp_path / "PROF_1" / OUTPUT
    tasks = [
        task(0, "AI_CORE", stream_id="2"),
        task(10, "MEMCPY_ASYNC", stream_id="2"),
        task(20, "NOTIFY_WAIT", stream_id="5"),
    ]
    operators = [
        at("0", Task_ID="0", Duration="2.6"),
        at("50", Task_ID="50"),
        COLLECTIVE | {"Start Time": f"{EPOCH_US + 15}", "Duration": "20"},
        COLLECTIVE | {"Start Time": f"{EPOCH_US + 300}", "Duration": "20"},
    ]
    write(folder / f"task_time_{STAMP}.csv", table(TASKS, *tasks))
    write(folder / f"op_summary_{STAMP}.csv", table(SUMMARY, *operators))
    recording = read_msprof_folder(tmp_path / "PROF_1")
    assert [(found.kind, found.stream, found.start_ns, found.finish_ns) for found in recording.tasks] == [
        (TaskKind.KERNEL, 2, 0, 2500),
        (TaskKind.COPY, 2, 10_000, 12_500),
        (TaskKind.PEER_WAIT, 5, 20_000, 22_500),
        (TaskKind.KERNEL, 2, 50_000, 150_500),
        (TaskKind.COLLECTIVE, 6, 300_000, 320_000),
    ]
    matmul = recording.tasks[0]
    assert (matmul.name, matmul.op, matmul.blocks) == ("aclnnMatmul_MatMulV3", "MatMulV3", 20)
    assert len(matmul.inputs) == 2
    assert recording.clock_hz == 1_650_000_000
    assert counts(recording) == {
        "operators that the table of tasks lacks": 2,
        "collectives of no stated stream, on streams of their own": 1,
        "collectives as a whole, whose tasks are recorded": 1,
    }


def test_an_operator_a_little_off_its_task_is_that_task(tmp_path: Path) -> None:
    """The operator starts 0.4 us behind its task and is 0.2 us shorter; the next of the same id is not it.

    ```
    task        0-2.5                100-102.5
    operator     0.4-2.7  50-90
    ```
    """
    tasks = [task(0, "MIX_AIC", stream_id="2"), task(100, "MIX_AIC", stream_id="2", task_id="0")]
    near, far = at("0.4", Task_ID="0", Duration="2.3"), at("50", Task_ID="0", Name="far", Duration="40")
    write(tmp_path / f"task_time_{STAMP}.csv", table(TASKS, *tasks))
    write(tmp_path / f"op_summary_{STAMP}.csv", table(SUMMARY, near, far))
    recording = read_msprof_folder(tmp_path)
    assert [(found.start_ns, found.duration_ns, found.op, found.blocks) for found in recording.tasks] == [
        (0, 2500, "MatMulV3", 20),
        (50_000, 40_000, "MatMulV3", 20),
        (100_000, 2500, "", None),
    ]
    assert counts(recording) == {
        "operators whose start differs from that of their task, which counts": 1,
        "operators that the table of tasks lacks": 1,
    }


@pytest.mark.parametrize(
    ("word", "kind", "kernel_class"),
    [
        ("KERNEL_AICPU", TaskKind.KERNEL, KernelClass.AICPU),
        ("CCU_LAUNCH", TaskKind.COLLECTIVE, None),
        ("UNKNOWN", TaskKind.KERNEL, None),
    ],
)
def test_the_task_tells_the_kind_that_the_operator_does_not(
    tmp_path: Path, word: str, kind: TaskKind, kernel_class: KernelClass | None
) -> None:
    write(tmp_path / "task_time_1.csv", table(TASKS, task(0, word, stream_id="2")))
    write(tmp_path / "op_summary_1.csv", table(SUMMARY, at("0", Task_ID="0", Accelerator_Core="N/A")))
    (found,) = read_msprof_folder(tmp_path).tasks
    assert (found.name, found.kind, found.kernel_class) == ("aclnnMatmul_MatMulV3", kind, kernel_class)


def test_slices_and_devices(tmp_path: Path) -> None:
    """Two slices of two devices each, and an earlier export of the same profile beside them."""
    for part in (0, 1):
        rows = [task(100 * part + 10 * device, "AI_CORE", Device_id=str(device)) for device in (0, 1)]
        write(tmp_path / OUTPUT / f"task_time_slice_{part}_{STAMP}.csv", table(TASKS, *rows))
        write(tmp_path / OUTPUT / f"task_time_slice_{part}_20230102030405.csv", table(TASKS, *rows))
    with pytest.raises(InputError, match="holds tasks of devices 0, 1; choose one, such as device=0"):
        read_msprof_folder(tmp_path)
    recording = read_msprof_folder(tmp_path, device=1)
    assert [found.task_id for found in recording.tasks] == [10, 110]
    assert counts(recording) == {"files of earlier exports": 2}


@pytest.mark.parametrize("name", ["device_{}/summary/op_summary_7_1_1.csv", "summary/op_summary_{}_1_1.csv"])
def test_files_of_the_first_releases_name_their_device(tmp_path: Path, name: str) -> None:
    for device in (0, 1):
        write(tmp_path / name.format(device), table(SUMMARY_FIRST, at(f"{200 * device}")))
    with pytest.raises(InputError, match="holds tasks of devices 0, 1"):
        read_msprof_folder(tmp_path)
    recording = read_msprof_folder(tmp_path, device=1)
    assert (recording.origin_ns, recording.traits["device"]) == ((EPOCH_US + 200) * 1000, "1")


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds no op_summary_\*\.csv and no task_time_\*\.csv with a row in it"
    ):
        read_msprof_folder(tmp_path)
    write(tmp_path / "op_summary_1.csv", table(SUMMARY, MATMUL | {"Duration": "long"}))
    with pytest.raises(
        InputError, match=r"op_summary_1\.csv, line 2, column 'Task Duration\(us\)': 'long' is not"
    ):
        read_msprof_folder(tmp_path)
