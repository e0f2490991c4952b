"""Profiles named on the command line: which device they fit, which steps they hold, what to call them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cann_env.cli.printing import reading
from cann_env.device import device_names, load_device
from cann_env.options import RunOptions
from cann_env.profiles.read import read_profile
from cann_env.replay import device_of
from cann_env.replay.optimise import graph_to_schedule
from cann_env.units import InputError, format_time, parse_time_ns
from cann_env.workloads.foreign_device import foreign_device, is_foreign
from cann_env.workloads.from_profiler import from_profiler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cann_env.device import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.profiles.recording import Recording
    from cann_env.workloads.from_profiler import Imported

_ENDINGS = (".csv", ".json.gz", ".db")
_EVENT = re.compile(r'"(?:ph|traceEvents)"\s*:')
_LEAST_STREAMS = 8


class ProfileCase(NamedTuple):
    """A profile as something to schedule: where, how, and the graph of each of its steps, from 0."""

    name: str
    device: DeviceSpec
    options: RunOptions
    steps: int
    graph: Callable[[int], CommandGraph]


def is_profile(name: str) -> bool:
    """Whether a file is what profilers write: by its ending, or a ``.json`` that holds events of a trace."""
    path = Path(name)
    if not path.is_file():
        return False
    if name.endswith(".json"):
        return _EVENT.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    return name.endswith(_ENDINGS)


def open_profile(name: str, number: int | None = None) -> Recording:
    """Read a profile, see :func:`cann_env.profiles.read.read_profile`.

    Args:
        name: Path of a file or a folder.
        number: Which device of the recording, where there are several.

    Raises:
        InputError: There is none, or it cannot be read.
    """
    if not Path(name).exists():
        raise InputError(f"profile {name!r} does not exist; write the path of a profiler's file or folder")
    with reading(name):
        return read_profile(name, number)


def open_profile_case(
    name: str, *, device: str | None, options: Mapping[str, Any], model: Mapping[str, Any]
) -> ProfileCase:
    """Read a profile as something to schedule; each of its steps is an instance.

    Args:
        name: Path of a file or a folder.
        device: What was asked for; None for the one it was recorded on.
        options: Fields of its options to replace; it gets as many streams as were recorded, at least 8.
        model: Arguments of ``from_onnx`` that were asked for; they do not apply.

    Raises:
        InputError: It cannot be read, or something was asked for that does not apply.
    """
    if model:
        asked = ", ".join(f"--{key}" for key in model)
        raise InputError(f"{asked} applies to models; {name!r} is a profile")
    recording = open_profile(name)
    where = device_for(recording, device)
    steps = steps_of(recording, None)
    return ProfileCase(
        name=recording.name,
        device=where,
        options=RunOptions(**{"streams": max(_LEAST_STREAMS, len(recording.streams)), **options}),
        steps=len(steps),
        graph=lambda instance: graph_to_schedule(import_step(recording, steps[instance], where)),
    )


def device_for(recording: Recording, asked: str | None) -> DeviceSpec:
    """The device that was asked for, or else the one that the recording fits.

    A recording of another maker's chip is played on what stands in for it, see
    :func:`~cann_env.workloads.foreign_device.foreign_device`.

    Raises:
        InputError: The device is not known, or none was asked for and the recording does not tell.
    """
    if asked is None and is_foreign(recording):
        return foreign_device(recording)
    name = asked or device_of(recording)
    if name is None:
        where = "does not tell on which device it was recorded"
        if recording.chip:
            where = f"was recorded on {recording.chip!r}, for which no device file stands alone"
        raise InputError(
            f"profile {recording.name!r} {where}; write --device with one of {', '.join(device_names())}"
        )
    return load_device(name)


def import_step(recording: Recording, step: int | None, device: DeviceSpec, **how: Any) -> Imported:
    """Make a graph of a step, see :func:`~cann_env.workloads.from_profiler.from_profiler`.

    A device stands in for that of the recording where the recording does not tell.
    """
    unknown = device_of(recording) is None
    return from_profiler(recording, step=step, device=device if unknown else None, **how)


def steps_of(recording: Recording, asked: int | None) -> tuple[int | None, ...]:
    """The steps to look at: the one that was asked for, or else all; None stands for a whole recording.

    Raises:
        InputError: There is no such step.
    """
    if asked is None:
        return recording.steps if len(recording.steps) > 1 else (None,)
    if asked not in recording.steps:
        known = ", ".join(map(str, recording.steps)) or "none"
        raise InputError(f"--step is {asked}; the steps of profile {recording.name!r} are: {known}")
    return (asked,)


def tasks_outside(recording: Recording, step: int | None) -> int:
    """How many tasks belong to no step and are left out where steps are played; ``step`` is one of these."""
    return 0 if step is None else sum(task.step is None for task in recording.tasks)


def typical_step(recording: Recording) -> int | None:
    """The step whose makespan is the median of all, the earlier of equals; None if there are no several."""
    if len(recording.steps) < 2:
        return None
    lengths = sorted((_length_ns(recording, step), step) for step in recording.steps)
    return lengths[(len(lengths) - 1) // 2][1]


def step_lengths(recording: Recording) -> tuple[int, int]:
    """The shortest and the longest step (ns)."""
    lengths = [_length_ns(recording, step) for step in recording.steps]
    return min(lengths), max(lengths)


def _length_ns(recording: Recording, step: int) -> int:
    tasks = [task for task in recording.tasks if task.step == step]
    return max(task.finish_ns for task in tasks) - min(task.start_ns for task in tasks)


def parse_gap(text: str | None) -> int | None:
    """Read ``--profiler-gap``: a time, or None where it is to be found out.

    Raises:
        InputError: It is no time of at least 0.
    """
    gap = None if text is None else parse_time_ns(text)
    if gap is not None and gap < 0:
        raise InputError(f"--profiler-gap is {format_time(gap)}; write a time of at least 0, such as 88us")
    return gap


def parse_between(text: str | None) -> tuple[int, int] | None:
    """Read ``--between``: two times with a comma or two points between them; None for all.

    Raises:
        InputError: It is no such pair, or empty.
    """
    if text is None:
        return None
    parts = re.split(r",|\.\.", text)
    if len(parts) != 2:
        raise InputError(f"--between is {text!r}; write two times, such as 10ms..20ms")
    first, last = (parse_time_ns(part) for part in parts)
    if not 0 <= first < last:
        raise InputError(f"--between is {text!r}; the first time has to come before the second")
    return first, last


def file_stem(name: str, what: str) -> str:
    """The beginning of the names of files about a profile."""
    return re.sub(r"[^\w.-]+", "_", f"{name}-{what}")
