"""The tidy CSV: one row a task, with plain column names, most of which may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles.recording import Recording


def read_tidy(path: str | Path) -> Recording:
    """Read a tidy CSV.

    Columns: ``stream``, ``start_us``, ``dur_us``; and, where known, ``task_id``, ``type``, ``name``,
    ``bytes``, ``direction``, ``block_dim``, ``op_type``, ``input_shapes``, ``input_types``,
    ``output_shapes``, ``host_launch_us``, ``step``, ``event``.

    Raises:
        InputError: Names file, line and column.
    """
    raise NotImplementedError
