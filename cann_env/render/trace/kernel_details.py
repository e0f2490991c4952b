"""``kernel_details.csv`` of a simulated run, in the columns a profiler writes when it reads no counters.

Source of the columns: Ascend PyTorch Profiler, *timeline and summary data*, CANN 8.2 (hiascend.com).
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from cann_env.render.trace.mindstudio import ORIGIN_NS, text_us
from cann_env.render.trace.tasks import DeviceTask, TaskType, device_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Kernel, Operand
    from cann_env.schedule import Schedule

COLUMNS: Final = (
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "OP State",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Dim",
    "Mix Block Dim",
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Context ID",
)

_NOT_THERE: Final = "N/A"
_DTYPES: Final = {
    "float16": "FLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bfloat16": "DT_BF16",
    "int8": "INT8",
    "bool": "BOOL",
}
_KERNELS: Final = (
    TaskType.CUBE,
    TaskType.VECTOR,
    TaskType.MIX_CUBE,
    TaskType.MIX_VECTOR,
    TaskType.AI_CPU,
)


def kernel_details(schedule: Schedule) -> str:
    """A row for each kernel and each collective, by start; what is not known of a tensor is ``N/A``."""
    tasks = [task for task in device_tasks(schedule) if task.kind in (*_KERNELS, TaskType.COLLECTIVE)]
    tasks.sort(key=lambda task: (task.start_ns, task.stream, task.task_id))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    free = 0
    for place, task in enumerate(tasks):
        # The profiler's wait time is the gap to the kernel before, not time in a queue.
        wait_ns = max(0, task.start_ns - free) if place else 0
        rows.writerow(_row(schedule, task, wait_ns))
        free = max(free, task.finish_ns)
    return text.getvalue()


def _row(schedule: Schedule, task: DeviceTask, wait_ns: int) -> list[str | int]:
    times = [
        f"{text_us(ORIGIN_NS + task.start_ns)}\t",
        _short_us(task.finish_ns - task.start_ns),
        _short_us(wait_ns),
    ]
    if task.kernel is None:
        nothing = [_NOT_THERE] * (len(COLUMNS) - 12)
        kind = f"{task.name.split('__')[0]}_"
        return [
            0,
            2**32 - 1,
            _NOT_THERE,
            _NOT_THERE,
            task.name,
            kind,
            _NOT_THERE,
            "COMMUNICATION",
            *times,
            0,
            *nothing,
        ]
    kernel = schedule.graph.commands[task.command].kernels[task.kernel]
    return [
        0,
        2**32 - 1,
        task.task_id,
        task.stream,
        kernel.name,
        kernel.op or kernel.name,
        "dynamic",
        str(task.kind),
        *times,
        kernel.blocks,
        _mix_blocks(schedule, task, kernel),
        "NO",
        *_tensors(kernel.inputs),
        *_tensors(kernel.outputs),
        _NOT_THERE,
    ]


def _short_us(ns: int) -> str:
    """Microseconds without needless zeros."""
    return text_us(ns).rstrip("0").rstrip(".")


def _mix_blocks(schedule: Schedule, task: DeviceTask, kernel: Kernel) -> int:
    """Blocks of a mix kernel on the kind of core that does not lead it."""
    if task.kind is not TaskType.MIX_CUBE:
        return 0
    demand = dict(kernel.demand) if kernel.demand is not None else schedule.device.classes["mix"].demand
    return kernel.blocks * demand.get("aiv", 0) // max(demand.get("aic", 0), 1)


def _tensors(operands: Sequence[Operand]) -> list[str]:
    if not operands:
        return [_NOT_THERE] * 3
    shapes = ";".join(",".join(map(str, operand.shape)) for operand in operands)
    dtypes = ";".join(_DTYPES.get(operand.dtype, operand.dtype.upper()) for operand in operands)
    return [f'"{shapes}"', dtypes, ";".join(operand.layout for operand in operands)]
