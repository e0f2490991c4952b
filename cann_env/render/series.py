"""Step functions over time: busy cores of a pool, HBM in use.

Schedule rows go in; exact integer steps come out, and their averages over equal bins for plots.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.graph import BufferKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cann_env.schedule import Schedule


class Series(NamedTuple):
    """A right-continuous step function.

    Attributes:
        times_ns: Strictly increasing, first one 0; shape (n,).
        values: The value from each time to the next; the last one holds for ever; shape (n,).
    """

    times_ns: NDArray[np.int64]
    values: NDArray[np.int64]

    def mean_over(self, edges_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Time averages between neighbouring edges.

        Args:
            edges_ns: Increasing, none below 0; shape (bins + 1,).

        Returns:
            Averages, shape (bins,).
        """
        area = np.concatenate([[0.0], np.cumsum(np.diff(self.times_ns) * self.values[:-1])])
        at = np.searchsorted(self.times_ns, edges_ns, side="right") - 1
        integral = area[at] + (edges_ns - self.times_ns[at]) * self.values[at]
        return np.diff(integral) / np.diff(edges_ns)

    def max_over(self, edges_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Highest value in each half-open bin between neighbouring edges; shape (bins,)."""
        first = np.searchsorted(self.times_ns, edges_ns[:-1], side="right") - 1
        last = np.searchsorted(self.times_ns, edges_ns[1:], side="left")
        bounds = np.stack([first, np.maximum(last, first + 1)], axis=1).ravel()
        padded = np.append(self.values, self.values[-1])
        return np.maximum.reduceat(padded, bounds)[::2].astype(np.float64)


def from_changes(changes: Iterable[tuple[int, int]]) -> Series:
    """The step function that starts at 0 and changes by each ``(time_ns, delta)``; order is free."""
    deltas: dict[int, int] = defaultdict(int)
    deltas[0] = 0
    for time, delta in changes:
        deltas[time] += delta
    times = [time for time in sorted(deltas) if deltas[time] != 0 or time == 0]
    values = np.cumsum(np.array([deltas[time] for time in times], np.int64))
    return Series(np.array(times, np.int64), values)


def busy(schedule: Schedule, pool: str) -> Series:
    """Cores (or channels) of ``pool`` that blocks hold, all dies together."""
    changes: list[tuple[int, int]] = []
    for block in schedule.blocks:
        held = block.blocks * schedule.device.classes[block.work_class].demand.get(pool, 0)
        if held:
            changes += [(block.start_ns, held), (block.finish_ns, -held)]
    return from_changes(changes)


def capacity(schedule: Schedule, pool: str) -> int:
    """Cores (or channels) of ``pool``, all dies together."""
    return schedule.device.pools.get(pool, 0) * schedule.device.dies


def hbm_capacity(schedule: Schedule) -> int:
    """Device memory of the run, in bytes."""
    return schedule.options.hbm_bytes or schedule.device.memory.hbm_bytes


def hbm_in_use(schedule: Schedule) -> Series:
    """Bytes of HBM that buffers hold, all dies together.

    A device buffer is held from the issue of its first user to the finish of its last; a managed one
    from the reservation of a transfer that brings it to the end of the one that evicts it.
    """
    return from_changes([*_device_changes(schedule), *_managed_changes(schedule)])


def _aligned(schedule: Schedule, size_bytes: int) -> int:
    unit = schedule.device.memory.alignment_bytes
    return -(-size_bytes // unit) * unit


def _device_changes(schedule: Schedule) -> Iterable[tuple[int, int]]:
    runs = {run.command: run for run in schedule.commands}
    users: dict[str, list[int]] = defaultdict(list)
    for i, command in enumerate(schedule.graph.commands):
        for name in {*command.reads, *command.writes}:
            users[name].append(i)
    for buffer in schedule.graph.buffers:
        if buffer.kind is not BufferKind.DEVICE:
            continue
        size = _aligned(schedule, buffer.size_bytes)
        if buffer.level is Level.HBM:
            yield 0, size
        elif users[buffer.name]:
            yield min(runs[i].issue_ns for i in users[buffer.name]), size
            yield max(runs[i].finish_ns for i in users[buffer.name]), -size


def _managed_changes(schedule: Schedule) -> Iterable[tuple[int, int]]:
    resident: set[int] = set()
    for i, buffer in enumerate(schedule.graph.buffers):
        if buffer.kind is BufferKind.MANAGED and buffer.level is Level.HBM:
            resident.add(i)
            yield 0, _aligned(schedule, buffer.size_bytes)
    moves = [
        (move.finish_ns if move.cause == "evict" else move.reserve_ns, move.cause == "evict", move.buffer)
        for move in schedule.transfers
        if schedule.graph.buffers[move.buffer].kind is BufferKind.MANAGED
    ]
    for time, leaves, i in sorted(moves, key=lambda move: (move[0], not move[1])):
        if leaves == (i in resident):
            resident.symmetric_difference_update({i})
            size = _aligned(schedule, schedule.graph.buffers[i].size_bytes)
            yield time, -size if leaves else size
