"""Small made-up recordings, and tidy tables of them."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.commands import KernelClass, Operand
from cann_env.profiles.recording import Recording, Task, TaskKind, ordered
from cann_env.profiles.tidy import read_tidy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

US = 1000
K, COPY, WAIT, RECORD = TaskKind.KERNEL, TaskKind.COPY, TaskKind.WAIT, TaskKind.RECORD
PEER, OTHER = TaskKind.PEER_WAIT, TaskKind.OTHER


def task(name: str, stream: int, start_us: float, us: float, kind: TaskKind = K, **more: object) -> Task:
    """A task with times in microseconds; a kernel of one cube block unless said otherwise."""
    kernel = {"kernel_class": KernelClass.CUBE, "blocks": 1} if kind is K else {}
    made = Task(
        name=name,
        kind=kind,
        stream=stream,
        start_ns=round(start_us * US),
        duration_ns=round(us * US),
    )
    launch = more.pop("launch_us", None)
    if launch is not None:
        more["launch_ns"] = round(float(str(launch)) * US)
    return replace(made, **(kernel | more))


def recorded(*tasks: Task, **more: object) -> Recording:
    """A recording of some tasks, on an Ascend 910A."""
    placed, origin = ordered(list(tasks))
    made = Recording(name="made_up", format="test", chip="Ascend910A", tasks=placed, origin_ns=origin)
    return replace(made, **more)


def tensor(*shape: int, dtype: str = "float16") -> Operand:
    """A tensor in the plain layout."""
    return Operand(shape, dtype)


def write_tidy(path: Path, columns: str, rows: Sequence[Sequence[object]]) -> Path:
    """Write a tidy table; ``columns`` are its names, separated by blanks."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split())
        writer.writerows(rows)
    return path


def tidy(path: Path, columns: str, rows: Sequence[Sequence[object]]) -> Recording:
    """Write a tidy table and read it."""
    return read_tidy(write_tidy(path, columns, rows))
