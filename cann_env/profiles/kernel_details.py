"""``kernel_details.csv`` of the Ascend PyTorch profiler, of every level and release."""

from __future__ import annotations

from pathlib import Path

from cann_env.profiles.operator_table import (
    clock_hz,
    detail,
    give_streams,
    of_device,
    read_operators,
)
from cann_env.profiles.recording import Recording, Report, ordered
from cann_env.profiles.subtasks import collapse


def read_kernel_details(path: str | Path, device: int | None = None) -> Recording:
    """Read the kernels of one device, and the collectives between them.

    The table holds no copies and no events: what stands between two kernels is a gap. Level 0 has neither
    streams nor shapes.

    Args:
        path: The file.
        device: Number of the device, where the file holds several.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    path = Path(path)
    report = Report()
    operators = of_device(read_operators(path, report), device, path)
    contexts = [operator.context for operator in operators]
    tasks = collapse([operator.task for operator in operators], contexts, report)
    final, origin_ns = ordered(give_streams(tasks, report))
    return Recording(
        name=path.name,
        format="kernel_details.csv of the Ascend PyTorch profiler",
        tasks=final,
        origin_ns=origin_ns,
        clock_hz=clock_hz(operators),
        traits={"profiler": "torch_npu", "detail": detail(final)},
        report=report,
    )
