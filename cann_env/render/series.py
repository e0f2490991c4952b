"""Step functions over time: busy cores of a pool, HBM in use.

Schedule rows go in; exact integer steps come out, and their averages over equal bins for plots.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.capacity import aligned_bytes, capacity_bytes, is_resident
from cann_env.graph import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        held = block.blocks * schedule.demand_of(block).get(pool, 0)
        if held:
            changes += [(block.start_ns, held), (block.finish_ns, -held)]
    return from_changes(changes)


def capacity(schedule: Schedule, pool: str) -> int:
    """Cores (or channels) of ``pool``, all dies together."""
    return schedule.device.pools.get(pool, 0) * schedule.device.dies


def hbm_capacity(schedule: Schedule) -> int:
    """Device memory of a die in this run, in bytes."""
    return capacity_bytes(schedule.graph, schedule.device, schedule.options)


def hbm_in_use(schedule: Schedule, die: int | None = None) -> Series:
    """Bytes that lie in the HBM of a die, or of all dies together, until the last command finishes.

    A device buffer takes space from its grant until it is freed, unless a pool was taken beforehand, which
    counts all the time; a managed one from the moment it is given space until it is evicted, freed or, where
    it is written back, has arrived at the host.
    """
    dies = range(schedule.device.dies) if die is None else (die,)
    changes = [change for each in dies for change in _hbm_changes(schedule, each)]
    last_ns = schedule.makespan_ns
    return from_changes((time, delta) for time, delta in changes if time <= last_ns)


def _hbm_changes(schedule: Schedule, die: int) -> Iterator[tuple[int, int]]:
    pool, device, buffers = schedule.options.pool_bytes, schedule.device, schedule.graph.buffers
    yield 0, pool or 0
    for buffer in buffers:
        there = buffer.level is Level.HBM or is_resident(buffer, device)
        if buffer.die == die and there:
            yield 0, aligned_bytes(buffer, device)
    for row in schedule.allocations if pool is None else ():
        if buffers[row.buffer].die == die:
            yield row.grant_ns, row.size_bytes
            yield row.free_ns, -row.size_bytes
    for move in schedule.transfers:
        if buffers[move.buffer].die == die and move.cause in _SPACE:
            time = move.finish_ns if move.cause == "writeback" else move.reserve_ns
            yield time, _SPACE[move.cause] * aligned_bytes(buffers[move.buffer], device)


_SPACE = {"fault": 1, "prefetch": 1, "touch": 1, "evict": -1, "writeback": -1, "free": -1}
