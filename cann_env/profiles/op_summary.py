"""``op_summary_*.csv`` of msprof: operators with their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles.operator_table import as_recording, read_operators
from cann_env.profiles.recording import Report

if TYPE_CHECKING:
    from cann_env.profiles.recording import Recording


def read_op_summary(path: str | Path, device: int | None = None) -> Recording:
    """Read the operators of one device from one file, see :mod:`cann_env.profiles.msprof_folder` for more.

    Args:
        path: The file.
        device: Number of the device, where the file holds several.

    Raises:
        InputError: The file is no such table, or a field of it is garbage; names the file, line and column.
    """
    report = Report()
    return as_recording(read_operators(Path(path), report), Path(path), device, "msprof", report)
