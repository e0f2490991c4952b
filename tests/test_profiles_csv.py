"""Tables of operators: every column set of ``kernel_details.csv``, and what their rows become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_tables import (
    COLLECTIVE,
    EPOCH_US,
    FIRST,
    LEVEL_0,
    LEVEL_0_FIRST,
    LEVEL_0_STEPS,
    LEVEL_1,
    LEVEL_2,
    LEVEL_2_NEW,
    LEVEL_2_OLD,
    MATMUL,
    at,
    counts,
    read,
    table,
)

from cann_env.commands import KernelClass, Operand
from cann_env.profiles.kernel_details import read_kernel_details
from cann_env.profiles.recording import TaskKind
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

COLUMN_SETS = {
    "first release": FIRST,
    "level 0, first": LEVEL_0_FIRST,
    "level 0": LEVEL_0,
    "level 0 with steps": LEVEL_0_STEPS,
    "level 1": LEVEL_1,
    "level 2, old": LEVEL_2_OLD,
    "level 2": LEVEL_2,
    "level 2, new": LEVEL_2_NEW,
}


# --- every column set ---------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", COLUMN_SETS.values(), ids=COLUMN_SETS)
def test_every_column_set_gives_the_same_kernel(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """100.5 us from 0.125 us on the recorder's clock; what a level does not hold is absent, not invented."""
    second = at("200.250", Task_ID="12", Duration="1.001", Type="Add", Accelerator_Core="AI_VECTOR_CORE")
    recording = read(tmp_path, table(columns, MATMUL, second))
    first, last = recording.tasks
    assert recording.origin_ns == EPOCH_US * 1000 + 125
    assert (first.start_ns, first.duration_ns, last.start_ns, last.duration_ns) == (0, 100_500, 200_125, 1001)
    assert (first.name, first.op, first.kernel_class) == (
        "aclnnMatmul_MatMulV3",
        "MatMulV3",
        KernelClass.CUBE,
    )
    assert last.kernel_class == KernelClass.VECTOR
    assert {task.kind for task in recording.tasks} == {TaskKind.KERNEL}
    assert first.blocks == 20
    shaped = "Input Shapes" in columns
    assert first.inputs == ((Operand((64, 32), "bfloat16"), Operand((32, 16), "bfloat16")) if shaped else ())
    assert first.outputs == ((Operand((64, 16), "bfloat16"),) if shaped else ())
    placed = "Stream ID" in columns
    assert (first.stream, first.task_id) == ((2, 11) if placed else (0, None))
    assert first.step == (7 if "Step Id" in columns else None)
    counted = "aicore_time(us)" in columns
    assert first.core_ns == (96_250 if counted else None)
    assert recording.clock_hz == (1_650_000_000 if counted else None)
    assert recording.traits["level"] == ("1 or 2" if shaped else "0")
    assert first.place.endswith("kernel_details.csv, line 2")


def test_other_spellings_of_titles_and_units(tmp_path: Path) -> None:
    text = "name, START TIME (ns) ,duration(µs),Stream_Id\nadd,1700000000000000123,2.5,4\n"
    recording = read(tmp_path, text)
    assert recording.origin_ns == 1_700_000_000_000_000_123
    assert (recording.tasks[0].duration_ns, recording.tasks[0].stream) == (2500, 4)


@pytest.mark.parametrize("lead", ["\ufeff", "", "\n\n", "device: 0\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_stands_before_the_header(tmp_path: Path, lead: str, end: str) -> None:
    recording = read(tmp_path, lead + table(LEVEL_1, MATMUL, end=end))
    assert len(recording.tasks) == 1
    assert recording.tasks[0].place.endswith(f"line {2 + lead.count(chr(10))}")
    assert ("lines above the header" in counts(recording)) == ("\n" in lead)


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(table(LEVEL_1, MATMUL).encode("utf-16"))
    assert len(read_kernel_details(path).tasks) == 1


def test_repeated_headers_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    """Joined files: the second header holds from there on, and may be another one."""
    second = table(("Step Id", *LEVEL_0_FIRST), at("500", Step_Id="8"))
    recording = read(tmp_path, table(LEVEL_1, MATMUL) + "\n,,,\n" + table(LEVEL_1, at("300")) + second)
    assert [task.start_ns for task in recording.tasks] == [0, 299_875, 499_875]
    assert [task.step for task in recording.tasks] == [7, 7, 8]
    assert [task.task_id for task in recording.tasks] == [11, 11, None]
    assert counts(recording)["repeated header lines"] == 2


def test_names_may_hold_commas_quotes_and_lines(tmp_path: Path) -> None:
    name = 'scope, "a" b\nadd'
    recording = read(tmp_path, table(LEVEL_1, at("0", Name=name), at("900")))
    assert recording.tasks[0].name == name
    assert [task.place.rsplit(", ", 1)[1] for task in recording.tasks] == ["line 2", "line 4"]


def test_of_two_titles_for_a_column_the_newer_counts(tmp_path: Path) -> None:
    recording = read(tmp_path, "Op Name,Block Dim,Name,Start Time,Duration,Block Num\nold,1,new,0.5,2,3\n")
    assert (recording.tasks[0].name, recording.tasks[0].blocks) == ("new", 3)


# --- what rows become ---------------------------------------------------------------------------------


def test_kinds_of_cores(tmp_path: Path) -> None:
    cores = {
        "AI_CORE": KernelClass.CUBE,
        "AI_VECTOR_CORE": KernelClass.VECTOR,
        "MIX_AIC": KernelClass.MIX,
        "MIX_AIV": KernelClass.MIX,
        "AI_CPU": KernelClass.AICPU,
        "DSA_SQE": None,
        "N/A": None,
    }
    rows = [at(str(200 * i), Accelerator_Core=core, Mix_Block_Num="40") for i, core in enumerate(cores)]
    recording = read(tmp_path, table(LEVEL_2, *rows))
    assert [task.kernel_class for task in recording.tasks] == list(cores.values())
    assert {task.kind for task in recording.tasks} == {TaskKind.KERNEL}
    assert {task.mix_blocks for task in recording.tasks} == {40}
    assert counts(recording) == {}


def test_cores_of_no_known_kind_are_counted(tmp_path: Path) -> None:
    recording = read(tmp_path, table(LEVEL_2, at("0", Accelerator_Core="WARP")))
    assert (recording.tasks[0].kind, recording.tasks[0].kernel_class) == (TaskKind.KERNEL, None)
    assert counts(recording) == {"cores 'WARP' of no known kind, taken as kernels": 1}


@pytest.mark.parametrize("word", ["HCCL", "COMMUNICATION"])
def test_collectives_have_streams_above_the_recorded(tmp_path: Path, word: str) -> None:
    """Streams: kernels on 2; collectives 0-500 and 600-700 on 3, the one from 100 to 150 beside them on 4."""
    rows = [
        COLLECTIVE | {"Accelerator Core": word, "Start Time": f"{EPOCH_US + after}", "Duration": length}
        for after, length in ((0, "500"), (100, "50"), (600, "100"))
    ]
    recording = read(tmp_path, table(LEVEL_2, *rows, at("10")))
    placed = {task.start_ns: (task.kind, task.stream) for task in recording.tasks}
    assert placed == {
        0: (TaskKind.COLLECTIVE, 3),
        10_000: (TaskKind.KERNEL, 2),
        100_000: (TaskKind.COLLECTIVE, 4),
        600_000: (TaskKind.COLLECTIVE, 3),
    }
    assert counts(recording) == {"collectives of no stated stream, on streams of their own": 3}


def test_collectives_are_told_by_their_name_where_cores_are_not(tmp_path: Path) -> None:
    bare = {"Accelerator Core": "N/A", "Type": "N/A"}
    recording = read(tmp_path, table(LEVEL_0, COLLECTIVE | bare, MATMUL | bare))
    assert {task.name: task.kind for task in recording.tasks} == {
        "hcom_allReduce__1_0_1": TaskKind.COLLECTIVE,
        "aclnnMatmul_MatMulV3": TaskKind.KERNEL,
    }


def test_level_0_kernels_share_a_stream_while_they_do_not_overlap(tmp_path: Path) -> None:
    rows = [at("0", Duration="10"), at("10", Duration="10"), at("15", Duration="10"), COLLECTIVE]
    recording = read(tmp_path, table(LEVEL_0, *rows))
    assert [task.stream for task in recording.tasks] == [0, 2, 0, 1]
    assert recording.streams == (0, 1, 2)


def test_parts_of_a_task_that_overlap_are_one(tmp_path: Path) -> None:
    """Task 11 runs a cube part 0-10 and vector parts 2-6 and 8-14; task 12 in two parts after each other."""
    vector = {"Accelerator_Core": "AI_VECTOR_CORE", "aicore_time": "0", "aiv_time": "3"}
    rows = [
        at("0", Duration="10", Context_ID="0", aicore_time="9"),
        at("2", Duration="4", Context_ID="1", **vector),
        at("8", Duration="6", Context_ID="2", **vector),
        at("20", Duration="5", Context_ID="0", Task_ID="12"),
        at("25", Duration="5", Context_ID="1", Task_ID="12"),
        at("40", Duration="1"),
    ]
    recording = read(tmp_path, table(LEVEL_2, *rows))
    assert [(t.task_id, t.start_ns, t.finish_ns) for t in recording.tasks] == [
        (11, 0, 14_000),
        (12, 20_000, 25_000),
        (12, 25_000, 30_000),
        (11, 40_000, 41_000),
    ]
    whole = recording.tasks[0]
    assert (whole.kernel_class, whole.core_ns, whole.op) == (KernelClass.MIX, 9000, "MatMulV3")
    assert counts(recording) == {
        "overlapping parts of a task, made one": 3,
        "parts of a task that follow one another, kept": 3,
    }


def test_the_longer_counter_is_the_time_of_the_cores(tmp_path: Path) -> None:
    rows = [at("0", aicore_time="3.5", aiv_time="7.25"), at("200", aicore_time="N/A", aiv_time="0.0")]
    recording = read(tmp_path, table(LEVEL_2, *rows))
    assert [task.core_ns for task in recording.tasks] == [7250, None]


@pytest.mark.parametrize(
    ("core", "values"),
    [
        ("AI_CORE", {"aicore_time": "10", "aic_total_cycles": "360000"}),
        ("AI_VECTOR_CORE", {"aiv_time": "10", "aiv_total_cycles": "360000"}),
        (
            "MIX_AIC",
            {
                "aicore_time": "10",
                "aic_total_cycles": "360000",
                "aiv_time": "5",
                "aiv_total_cycles": "360000",
            },
        ),
        (
            "MIX_AIV",
            {
                "aiv_time": "10",
                "aiv_total_cycles": "360000",
                "aicore_time": "5",
                "aic_total_cycles": "360000",
            },
        ),
    ],
)
def test_the_clock_is_cycles_by_time_and_blocks(tmp_path: Path, core: str, values: dict[str, str]) -> None:
    """At 1.8 GHz 20 blocks of 10 us count 360,000 cycles, 40 of the other core in 5 us the same."""
    base = {"aicore_time": "0", "aic_total_cycles": "0", "aiv_time": "0", "aiv_total_cycles": "0"} | values
    rows = [at(str(200 * i), Accelerator_Core=core, Mix_Block_Num="40", **base) for i in range(4)]
    assert read(tmp_path, table(LEVEL_2, *rows)).clock_hz == 1_800_000_000


def test_kernels_in_waves_do_not_bend_the_clock(tmp_path: Path) -> None:
    """Half of the kernels have more blocks than cores: each block is given the time of all waves."""
    waves = str(3_176_250 * 2)
    rows = [at(str(200 * i), Block_Num="256", aic_total_cycles=waves) for i in range(6)]
    rows += [at(str(2000 + 200 * i)) for i in range(6)]
    assert read(tmp_path, table(LEVEL_2, *rows)).clock_hz == 1_650_000_000


def test_kernels_in_waves_alone_tell_no_clock(tmp_path: Path) -> None:
    """256 blocks on 20 cores: shared among all of them, the cycles of 96 us say 129 MHz."""
    rows = [at(str(200 * i), Block_Num="256") for i in range(6)]
    assert read(tmp_path, table(LEVEL_2, *rows)).clock_hz is None


def test_one_device_of_several_is_chosen(tmp_path: Path) -> None:
    text = table(LEVEL_2, MATMUL, at("200", Device_id="3"), COLLECTIVE | {"Device_id": "N/A"})
    with pytest.raises(InputError, match="holds tasks of devices 0, 3; choose one, such as device=0"):
        read(tmp_path, text)
    recording = read(tmp_path, text, device=3)
    assert [task.kind for task in recording.tasks] == [TaskKind.COLLECTIVE, TaskKind.KERNEL]
    assert recording.traits["device"] == "3"
    with pytest.raises(InputError, match="holds no task of device 1; it has those of 0, 3"):
        read(tmp_path, text, device=1)


@settings(deadline=None, max_examples=30)
@given(ns=st.integers(0, 10**9), length=st.integers(0, 10**9))
def test_times_come_through_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, ns: int, length: int
) -> None:
    rows = [
        at("0", Duration="0"),
        at(f"{ns // 1000}.{ns % 1000:03d}", Duration=f"{length // 1000}.{length % 1000:03d}"),
    ]
    recording = read(tmp_path_factory.getbasetemp(), table(LEVEL_0, *rows))
    assert sorted((task.start_ns, task.duration_ns) for task in recording.tasks) == sorted(
        [(0, 0), (ns, length)]
    )


# --- start times without a unit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starts", "unit", "second_ns"),
    [
        (("1700000000000000.125", "1700000000000200.125"), "us", 200_000),
        (("1700000000000000", "1700000000000200"), "us", 200_000),
        (("1700000000000000125", "1700000000000200125"), "ns", 200_000),
    ],
)
def test_starts_without_a_unit(tmp_path: Path, starts: tuple[str, str], unit: str, second_ns: int) -> None:
    """Fractions are of microseconds, whole numbers of nanoseconds unless kernels would overlap."""
    recording = read(tmp_path, table(FIRST, *(MATMUL | {"Start Time": start} for start in starts)))
    assert [task.start_ns for task in recording.tasks] == [0, second_ns]
    assert counts(recording)[f"start times without a unit, read as {unit}"] == 2
