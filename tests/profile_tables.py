"""Small made-up tables of profilers: the column sets of every release and level, and how to write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.profiles.kernel_details import read_kernel_details

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles.recording import Recording

EPOCH_US = 1_700_000_000_000_000
"""A recorder's clock: microseconds that a float does not hold to the nanosecond."""

SHAPES = ("Input Shapes", "Input Data Types", "Input Formats")
SHAPES = (*SHAPES, *(title.replace("Input", "Output") for title in SHAPES))
COUNTERS = ("aicore_time(us)", "aic_total_cycles", "aiv_time(us)", "aiv_total_cycles")

LEVEL_0_FIRST = (
    *("Name", "Type", "Accelerator Core"),
    *("Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim"),
)
LEVEL_0 = ("Device_id", *LEVEL_0_FIRST[:-1], "Block Num")
LEVEL_0_STEPS = ("Step Id", *LEVEL_0)
FIRST = (*LEVEL_0_FIRST[:3], "Start Time", *LEVEL_0_FIRST[4:], *SHAPES)
LEVEL_1 = (
    *("Step Id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core"),
    *("Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Mix Block Dim", "HF32 Eligible"),
    *(*SHAPES, "Context ID"),
)
LEVEL_2_OLD = (*(title for title in LEVEL_1 if title not in ("OP State", "HF32 Eligible")), *COUNTERS)
LEVEL_2 = (LEVEL_1[0], "Device_id", *LEVEL_1[1:], *COUNTERS, "cube_utilization(%)")
LEVEL_2_NEW = tuple(title.replace("Block Dim", "Block Num") for title in LEVEL_2)

SUMMARY_FIRST = (
    *("Model Name", "Model ID", "Task ID", "Stream ID", "Infer ID", "Op Name", "OP Type", "Task Type"),
    *("Task Start Time", "Task Duration(us)", "Task Wait Time(us)", "Block Dim"),
    *(*SHAPES, "aicore_time(us)", "total_cycles"),
)
SUMMARY = (
    *("Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type"),
    *("Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num"),
    *("HF32 Eligible", *SHAPES, "Context ID", *COUNTERS),
)
SUMMARY_OLD = tuple(title.replace("Block Num", "Block Dim") for title in SUMMARY[1:])
TASKS_OLD = (
    *(
        "kernel_name",
        "kernel_type",
        "stream_id",
        "task_id",
        "task_time(us)",
        "task_start(us)",
        "task_stop(us)",
    ),
)
TASKS = ("Device_id", *TASKS_OLD)

MATMUL = {
    "Step Id": "7",
    "Device_id": "0",
    "Model ID": "4294967295",
    "Model Name": "net",
    "Infer ID": "1",
    "Task ID": "11",
    "Stream ID": "2",
    "Name": "aclnnMatmul_MatMulV3",
    "Type": "MatMulV3",
    "OP State": "dynamic",
    "Accelerator Core": "AI_CORE",
    "Start Time": f"{EPOCH_US}.125\t",
    "Duration": "100.5",
    "Wait Time": "0",
    "Block Num": "20",
    "Mix Block Num": "0",
    "HF32 Eligible": "NO",
    "Input Shapes": '"64,32;32,16"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "Input Formats": "ND;FORMAT_ND",
    "Output Shapes": '"64,16"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
    "Context ID": "N/A",
    "aicore_time": "96.25",
    "aic_total_cycles": "3176250",
    "total_cycles": "3176250",
    "aiv_time": "0",
    "aiv_total_cycles": "0",
    "cube_utilization(%)": "0.0",
}
"""A kernel by what its columns are called nowadays: 96.25 us on 20 cores at 1650 MHz."""

COLLECTIVE = {
    "Name": "hcom_allReduce__1_0_1",
    "Type": "hcom_allReduce_",
    "Accelerator Core": "HCCL",
    "Start Time": f"{EPOCH_US}.5",
    "Duration": "500",
    "Step Id": "7",
    "Device_id": "0",
    "Block Num": "0",
}
"""A collective, which fills few columns: the others say N/A."""

TASK = {
    "Device_id": "0",
    "kernel_name": "add",
    "kernel_type": "KERNEL_AIVEC",
    "stream_id": "3",
    "task_id": "5",
    "task_time": "2.5",
    "task_start": f"{EPOCH_US}.001\t",
    "task_stop": f"{EPOCH_US + 2}.501\t",
}
_NOW = {
    "Block Dim": "Block Num",
    "Mix Block Dim": "Mix Block Num",
    "Op Name": "Name",
    "OP Type": "Type",
    "Task Type": "Accelerator Core",
    "Task Start Time": "Start Time",
    "Task Duration": "Duration",
    "Task Wait Time": "Wait Time",
}


def line(columns: tuple[str, ...], values: dict[str, str]) -> str:
    """One line of a table; what ``values`` does not name is N/A."""
    return ",".join(_quoted(values.get(_now(title), "N/A")) for title in columns)


def table(columns: tuple[str, ...], *rows: dict[str, str], end: str = "\n") -> str:
    """A table with a header."""
    return end.join([",".join(columns), *(line(columns, row) for row in rows), ""])


def write(path: Path, text: str) -> Path:
    """Write a file and give its path back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def read(tmp_path: Path, text: str, device: int | None = None) -> Recording:
    """What the reader of ``kernel_details.csv`` makes of a text."""
    return read_kernel_details(write(tmp_path / "kernel_details.csv", text), device)


def counts(recording: Recording) -> dict[str, int]:
    """The report: how often, by what it is about."""
    return {str(row["what"]): int(row["count"]) for row in recording.report.rows()}


def at(after_us: str, **values: str) -> dict[str, str]:
    """Values of a kernel that starts so long after the clock's round number; ``Task_ID`` for ``Task ID``."""
    whole, _, part = after_us.partition(".")
    spaced = {key if key in MATMUL else key.replace("_", " "): value for key, value in values.items()}
    return MATMUL | {"Start Time": f"{EPOCH_US + int(whole)}.{part or '0'}"} | spaced


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"') else cell


def _now(title: str) -> str:
    name = title.removesuffix("(us)")
    return _NOW.get(name, name)
