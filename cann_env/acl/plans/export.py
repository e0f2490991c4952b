"""A schedule written for a device: as a program of ``acl``, as stream code of PyTorch, as stream labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cann_env.acl.api import simulate
from cann_env.acl.plans.export_acl import acl_program
from cann_env.acl.plans.export_ge import stream_labels, stream_pass
from cann_env.acl.plans.export_torch import torch_program
from cann_env.acl.plans.plan import runtime_options
from cann_env.options import Submission
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.simulator import Simulator
    from cann_env.schedule import Schedule

FORMS: Final[dict[str, Callable[[Schedule], str]]] = {
    "acl": acl_program,
    "torch_npu": torch_program,
    "ge": stream_labels,
    "ge_pass": stream_pass,
}
"""How a schedule can be written, by name."""


def export(schedule: Schedule, form: str = "acl", path: str | Path | None = None) -> str:
    """Write a schedule for use on a device.

    Args:
        schedule: What to write.
        form: ``acl``: a program in Python that carries it out through the runtime's interface; run as
            :func:`run_as` prepares it, its timeline is that of the schedule. ``torch_npu``: a template in
            PyTorch with streams and events, each command a function of the user's. ``ge``: labels of
            streams by node, as attributes of CANN's graph engine, in JSON. ``ge_pass``: the same as C++
            source of a pass that assigns streams.
        path: File to write as well; None for none.

    Returns:
        The text.

    Raises:
        InputError: The form is none of these, or the schedule cannot be written so; names the command.
    """
    if form not in FORMS:
        raise InputError(f"form is {form!r}; write one of {', '.join(FORMS)}")
    text = FORMS[form](schedule)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def run_as(schedule: Schedule) -> Simulator:
    """Begin a new run in which a program of a schedule behaves as the schedule: same device, same runtime."""
    return simulate(schedule.device, submission=Submission.SINK, options=runtime_options(schedule))
