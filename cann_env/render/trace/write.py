"""Traces on disk: one JSON file, or a folder as the Ascend PyTorch profiler leaves one."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cann_env.render.trace.chrome import chrome_trace
from cann_env.render.trace.kernel_details import kernel_details
from cann_env.render.trace.mindstudio import mindstudio_trace
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.schedule import Schedule


class TraceForm(enum.StrEnum):
    """How a trace is laid out.

    ``chrome``: one object with the simulator's own tracks, for Perfetto and ``chrome://tracing``.
    ``mindstudio``: as the Ascend PyTorch profiler writes ``trace_view.json``, for MindStudio Insight and
    tools that read profiles.
    """

    CHROME = "chrome"
    MINDSTUDIO = "mindstudio"


FOLDER_ENDING: Final = "_ascend_pt"
"""What the name of a profiler's folder ends in."""

_OUTPUT = "ASCEND_PROFILER_OUTPUT"


def write_trace(schedule: Schedule, path: str | Path, form: TraceForm | str | None = None) -> Path:
    """Write a schedule as a trace; equal schedules give equal bytes.

    Args:
        schedule: What to write.
        path: A JSON file. A path that ends in ``_ascend_pt``, or an existing folder, becomes a profiler's
            folder: ``ASCEND_PROFILER_OUTPUT`` in it holds ``trace_view.json`` and ``kernel_details.csv``.
        form: See :class:`TraceForm`; None for ``mindstudio`` in a folder and ``chrome`` in a file.

    Returns:
        The path of the file or folder.

    Raises:
        InputError: The form is unknown, a folder is to hold a Chrome trace, or something cannot be written.
    """
    target = Path(path)
    folder = target.name.endswith(FOLDER_ENDING) or target.is_dir()
    wanted = _form(form, TraceForm.MINDSTUDIO if folder else TraceForm.CHROME)
    if folder and wanted is TraceForm.CHROME:
        raise InputError(
            f"trace {str(target)!r} is a folder, which holds the form 'mindstudio'; write the name of a file "
            "for the form 'chrome'"
        )
    try:
        if folder:
            _write_folder(schedule, target)
        else:
            make = chrome_trace if wanted is TraceForm.CHROME else mindstudio_trace
            target.write_text(_text(make(schedule)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"trace {str(target)!r} cannot be written: {error.strerror}") from error
    return target


def _form(form: TraceForm | str | None, usual: TraceForm) -> TraceForm:
    if form is None:
        return usual
    if form not in tuple(TraceForm):
        raise InputError(f"form is {form!r}; write one of {', '.join(repr(str(each)) for each in TraceForm)}")
    return TraceForm(form)


def _write_folder(schedule: Schedule, target: Path) -> None:
    output = target / _OUTPUT
    target.mkdir(exist_ok=True)
    output.mkdir(exist_ok=True)
    (output / "trace_view.json").write_text(_text(mindstudio_trace(schedule)), encoding="utf-8")
    (output / "kernel_details.csv").write_text(kernel_details(schedule), encoding="utf-8", newline="")


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))
