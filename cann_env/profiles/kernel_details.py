"""``kernel_details.csv`` of the Ascend PyTorch profiler, of every level and release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles.operator_table import as_recording, read_operators
from cann_env.profiles.recording import Report

if TYPE_CHECKING:
    from cann_env.profiles.recording import Recording


def read_kernel_details(path: str | Path, device: int | None = None) -> Recording:
    """Read the kernels of one device, and the collectives between them.

    The table holds no copies and no events: what stands between two kernels is a gap. Collectives name no
    stream, at level 0 kernels do not either: they are put on streams above the recorded ones, as few as keep
    them from overlapping. At level 0 there are no shapes.

    Args:
        path: The file.
        device: Number of the device, where the file holds several.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    report = Report()
    operators = read_operators(Path(path), report)
    return as_recording(operators, Path(path), device, "the Ascend PyTorch profiler", report)
