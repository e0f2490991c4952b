"""Graphene: place the troublesome tasks first, the rest around them (Grandl et al., OSDI 2016, as DAGPS).

Troublesome is what is long, or what leaves much of the device idle however it is packed. For each of several
thresholds those tasks, and what lies between them, are placed on an empty device; then what must come before
them backwards from there, what comes after forwards, the rest where it fits, in each of the four orders that
never leave a task without a place. The order of start in the shortest schedule is what remains of it.

The processor of a task is the one that it is made for; with all processors alike nothing is lost.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.etf import static_levels
from cann_env.schedulers.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from cann_env.schedulers.shop import Shop

LONG = (0.1, 0.3, 0.5, 0.8)
"""Thresholds: tasks of at least this part of the longest time are troublesome."""
FRAGMENTING = (0.5, 0.9)
"""Thresholds: so are those of whose resources less than this part can be filled beside them."""
_ORDERS = ("OCP", "OPC", "POC", "COP")


@dataclass(slots=True)
class _Grid:
    """A schedule in the making, whose tasks may be placed before or after what is there; times may be < 0."""

    shop: Shop
    cost: list[int]
    demand: NDArray[np.int64]
    level: list[float]
    depth: list[float]
    start: dict[int, int] = field(default_factory=dict)
    _line: Timeline = field(init=False)

    def __post_init__(self) -> None:
        self._line = Timeline(self.shop.capacity)

    def forwards(self, group: set[int]) -> None:
        """Place a group, predecessors first, each as early as what is placed before it allows."""
        for task in _sorted(group, self.shop.before, self.shop.after, self.level):
            ends = [self.start[p] + self.cost[p] for p in self.shop.before[task] if p in self.start]
            ready = max([int(self.shop.release_ns[task]), *ends])
            self._place(task, self._line.earliest(self.demand[task], self.cost[task], ready))

    def backwards(self, group: set[int]) -> None:
        """Place a group, successors first, each as late as what is placed after it allows."""
        end = self.end_ns
        for task in _sorted(group, self.shop.after, self.shop.before, self.depth):
            starts = [self.start[later] for later in self.shop.after[task] if later in self.start]
            self._place(task, self._line.latest(self.demand[task], self.cost[task], min([end, *starts])))

    def _place(self, task: int, start_ns: int) -> None:
        self.start[task] = start_ns
        self._line.take(self.demand[task], start_ns, start_ns + self.cost[task])

    @property
    def end_ns(self) -> int:
        """When the last task that is placed ends."""
        return max((start + self.cost[task] for task, start in self.start.items()), default=0)

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return self.end_ns - min(self.start.values(), default=0)


def _sorted(
    group: set[int],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    rank: Sequence[float],
) -> Iterable[int]:
    """The tasks of a group by descending rank, those ``before`` a task within the group sooner."""
    waiting = {task: sum(other in group for other in before[task]) for task in group}
    ready = [(-rank[task], task) for task, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        _, task = heapq.heappop(ready)
        yield task
        for other in after[task]:
            if other in group:
                waiting[other] -= 1
                if waiting[other] == 0:
                    heapq.heappush(ready, (-rank[other], other))


def _reach(tasks: Iterable[int], links: Sequence[Sequence[int]], order: Iterable[int]) -> set[int]:
    """All tasks that the links lead to from some; ``order`` has the beginnings of links first."""
    found: set[int] = set()
    given = set(tasks)
    for task in order:
        if task in given or task in found:
            found.update(links[task])
    return found


def fragmenting(demand: NDArray[np.int64], capacity: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much of the device each task lets be used, from 0 to 1, beside copies of itself; shape (n,)."""
    if not capacity.size:
        return np.ones(len(demand))
    used = demand > 0
    fits = np.where(used, capacity // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=1)
    fits = np.where(used.any(axis=1), fits, 1)
    filled = demand * fits[:, None] / capacity
    return np.where(used.any(axis=1), np.where(used, filled, 0.0).max(axis=1), 1.0)


def troublesome(shop: Shop, cost: Sequence[int], demand: NDArray[np.int64]) -> list[frozenset[int]]:
    """Sets of troublesome tasks, one for each threshold and without repetition."""
    length = np.asarray(cost, np.float64) / max(1, *cost)
    filled = fragmenting(demand, shop.capacity)
    sets = [frozenset(np.flatnonzero(length >= least).tolist()) for least in LONG]
    for least in (1.1, *LONG[1:]):
        for most in FRAGMENTING:
            sets.append(frozenset(np.flatnonzero((length >= least) | (filled < most)).tolist()))
    return list(dict.fromkeys(sets))


def _place_all(grid: _Grid, first: set[int], groups: dict[str, set[int]], order: str) -> _Grid:
    grid.forwards(first)
    for name in order:
        if name == "P" or (name == "O" and order == "COP"):
            grid.backwards(groups[name])
        else:
            grid.forwards(groups[name])
    return grid


def graphene(shop: Shop) -> tuple[int, ...]:
    """Order in which to start the tasks of a shop; see the top of this file."""
    if not shop.tasks:
        return ()
    best_on = list(shop.preferred)
    every = np.arange(shop.tasks)
    cost = shop.cost_ns[every, best_on].tolist()
    demand = shop.demand[every, best_on]
    level = static_levels(shop)
    depth = [0.0] * shop.tasks
    for task in shop.order:
        depth[task] = cost[task] + max((depth[pred] for pred in shop.before[task]), default=0.0)
    best: _Grid | None = None
    for chosen in troublesome(shop, cost, demand):
        later = _reach(chosen, shop.after, shop.order)
        sooner = _reach(chosen, shop.before, reversed(shop.order))
        first = set(chosen) | (later & sooner)
        groups = {"P": sooner - first, "C": later - first}
        groups["O"] = set(every.tolist()) - first - groups["P"] - groups["C"]
        for order in _ORDERS:
            grid = _place_all(_Grid(shop, cost, demand, level, depth), first, groups, order)
            if best is None or grid.span_ns < best.span_ns:
                best = grid
    start = best.start if best else {}
    place = {task: at for at, task in enumerate(shop.order)}
    return tuple(sorted(start, key=lambda task: (start[task], place[task])))
