"""Scheduling problems from the literature as cases of the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cann_env.units import InputError
from cann_env.workloads.from_psplib import from_psplib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.workloads.project import PosedProblem


def open_psplib(
    name: str, *, device: str | None, options: Mapping[str, Any], model: Mapping[str, Any]
) -> PosedProblem:
    """Read a problem, see :func:`~cann_env.workloads.from_psplib.from_psplib`.

    Args:
        name: Path of its file, or ``<archive>:<member>``.
        device: What was asked for; a problem brings its own.
        options: Fields of its options to replace.
        model: Arguments of ``from_onnx`` that were asked for; they do not apply.

    Raises:
        InputError: The file is missing or malformed, or something was asked for that does not apply.
    """
    if device is not None:
        raise InputError(
            f"--device {device} does not apply to {name!r}: a problem defines its own capacities"
        )
    if model:
        asked = ", ".join(f"--{key}" for key in model)
        raise InputError(f"{asked} applies to models; {name!r} is a scheduling problem")
    problem = from_psplib(name)
    return replace(problem, options=replace(problem.options, **options))
