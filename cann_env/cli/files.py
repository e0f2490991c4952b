"""The trace and the picture of a run: where they go, and a line for each that was written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.render.gantt import gantt
from cann_env.render.trace import FOLDER_ENDING, write_trace
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.cli.results import Result


_PICTURES = (".png", ".svg", ".pdf")


def check_paths(trace: Path | None, picture: Path | None) -> None:
    """Refuse paths that cannot be written, before the work is done.

    Raises:
        InputError: The folder does not exist, or the ending of the picture names no format.
    """
    if trace is not None and trace.name.endswith(FOLDER_ENDING):
        _check_profile(trace)
    else:
        check_folder(trace)
    check_folder(picture)
    check_picture("--gantt", picture)


def _check_profile(path: Path) -> None:
    """Refuse a profiler's folder that cannot be made."""
    if path.exists() and not path.is_dir():
        raise InputError(f"trace {str(path)!r} would be a folder, but there is a file of that name")
    if not path.resolve().parent.is_dir():
        raise InputError(f"trace {str(path)!r} cannot be written: its folder does not exist")


def check_folder(path: Path | None) -> None:
    """Refuse a file whose folder does not exist, or that is a folder itself.

    Raises:
        InputError: Names the file.
    """
    if path is not None and not path.resolve().parent.is_dir():
        raise InputError(f"file {str(path)!r} cannot be written: its folder does not exist")
    if path is not None and path.is_dir():
        raise InputError(f"file {str(path)!r} cannot be written: it is a folder; write the name of a file")


def check_picture(option: str, path: Path | None) -> None:
    """Refuse a picture whose ending names no format.

    Raises:
        InputError: Names the option and the endings there are.
    """
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise InputError(f"{option} is {str(path)!r}; write a name that ends in {', '.join(_PICTURES)}")


def write_files(result: Result, trace: Path | None, picture: Path | None, *, named_only: bool) -> list[str]:
    """Write the trace and the picture of a result.

    Args:
        result: What to write.
        trace: Where the trace goes; None for ``<input>-<scheduler>.json`` in the current folder.
        picture: Where the picture goes; None for ``<input>-<scheduler>.png`` in the current folder.
        named_only: Leave out what has no path.

    Returns:
        A line for people about each file.

    Raises:
        InputError: A file cannot be written, or a picture with a path lacks its library.
    """
    stem = re.sub(r"[^\w.-]+", "_", f"{result.case}-{result.scheduler}")
    lines = []
    if trace is not None or not named_only:
        path = write_trace(result.schedule, trace or Path(f"{stem}.json"))
        lines.append(f"Timeline  {path}  (open in https://ui.perfetto.dev or MindStudio Insight)")
    if picture is not None:
        gantt(result.schedule, picture)
        lines.append(f"Picture   {picture}")
    elif not named_only:
        lines.append(_default_picture(result, Path(f"{stem}.png")))
    return lines


def _default_picture(result: Result, path: Path) -> str:
    """Nobody asked for this one, so a missing library is worth a line, not an end."""
    try:
        gantt(result.schedule, path)
    except InputError as error:
        return f"Picture   left out: {error}"
    return f"Picture   {path}"
