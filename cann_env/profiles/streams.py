"""Where tasks ran: the device to read of several, and streams for tasks that name none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Task, TaskKind, Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.profiles.recording import Report

NO_STREAM = -1
"""Stream of a task whose row names none, until :func:`give_streams`."""


def choose_device(found: Iterable[int | None], device: int | None, name: object) -> int | None:
    """The device to read, of those ``found``.

    Raises:
        InputError: There are several and none is chosen, or the one chosen is not among them.
    """
    devices = sorted({number for number in found if number is not None})
    listed = ", ".join(map(str, devices))
    if device is None:
        if len(devices) > 1:
            raise InputError(
                f"{name} holds tasks of devices {listed}; choose one, such as device={devices[0]} "
                f"(--recorded-device {devices[0]} on the command line)"
            )
        return devices[0] if devices else None
    if devices and device not in devices:
        raise InputError(f"{name} holds no task of device {device}; it has those of {listed}")
    return device


def device_trait(devices: Iterable[int | None]) -> dict[str, str]:
    """The trait of a recording that names its device; none if no row does."""
    named = next((number for number in devices if number is not None), None)
    return {} if named is None else {"device": str(named)}


def give_streams(tasks: Sequence[Task], report: Report) -> list[Task]:
    """Put tasks without a stream on streams above the recorded ones, collectives on other ones than kernels.

    On each, tasks follow one another: one that starts before another has ended gets a further stream.
    """
    lanes = _Lanes(max((task.stream for task in tasks), default=NO_STREAM) + 1)
    order = sorted(
        range(len(tasks)), key=lambda i: (tasks[i].kind == TaskKind.COLLECTIVE, tasks[i].start_ns, i)
    )
    given = list(tasks)
    for index in order:
        task = tasks[index]
        if task.stream != NO_STREAM:
            continue
        collective = task.kind == TaskKind.COLLECTIVE
        what = "collectives" if collective else "tasks"
        report.note(Verdict.GUESSED, f"{what} of no stated stream, on streams of their own", task.place)
        given[index] = replace(task, stream=lanes.place(task, collective))
    return given


class _Lanes:
    """Streams to put tasks on, numbered upwards from ``first`` as they are needed."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._free: dict[bool, list[tuple[int, int]]] = {False: [], True: []}

    def place(self, task: Task, collective: bool) -> int:
        """The lowest stream of its sort that is free when the task starts."""
        lanes = self._free[collective]
        for index, (stream, free_ns) in enumerate(lanes):
            if free_ns <= task.start_ns:
                lanes[index] = stream, task.finish_ns
                return stream
        lanes.append((self._next, task.finish_ns))
        self._next += 1
        return lanes[-1][0]
