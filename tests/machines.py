"""List scheduling on unlike machines once more, as slowly and plainly as the papers put it.

Each machine is a list of (start, finish); nothing here is shared with what is checked. Costs are rows of
numbers, one a machine; edges map (predecessor, successor) to the time the data take between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Costs = Sequence[Sequence[int]]
Edges = Mapping[tuple[int, int], int]
Times = dict[int, tuple[int, int, int]]
"""From each task to its machine, start and finish."""


def random_instance(
    rng: np.random.Generator, most: int = 14
) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    """Up to ``most`` tasks on two to four machines, with numbers so large that none are equal."""
    tasks, machines = int(rng.integers(2, most + 1)), int(rng.integers(2, 5))
    costs = rng.integers(10**6, 10**8, (tasks, machines)).tolist()
    pairs = [(a, b) for b in range(tasks) for a in range(b) if rng.random() < 0.3]
    return costs, {pair: int(rng.integers(1, 10**8)) for pair in pairs}


@dataclass
class Plain:
    """The machines while they fill."""

    costs: Costs
    edges: Edges
    busy: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    times: Times = field(default_factory=dict)

    @property
    def machines(self) -> range:
        return range(len(self.costs[0]))

    def ready(self) -> list[int]:
        placed = self.times
        return [
            task
            for task in range(len(self.costs))
            if task not in placed and all(a in placed for a, b in self.edges if b == task)
        ]

    def arrival(self, task: int, machine: int) -> int:
        own = [(self.times[a], delay) for (a, b), delay in self.edges.items() if b == task]
        return max([0, *(finish + (delay if m != machine else 0) for (m, _, finish), delay in own)])

    def gap(self, task: int, machine: int) -> int:
        """Earliest start in a gap between what runs there, or behind it."""
        cost, arrival = self.costs[task][machine], self.arrival(task, machine)
        rows = [(0, 0), *sorted(self.busy.get(machine, []))]
        for (_, before), (after, _) in pairwise(rows):
            start = max(before, arrival)
            if start + cost <= after:
                return start
        return max(rows[-1][1], arrival)

    def end(self, task: int, machine: int) -> int:
        """Earliest start behind everything that runs there."""
        return max([self.arrival(task, machine), *(finish for _, finish in self.busy.get(machine, []))])

    def put(self, task: int, machine: int, start: int) -> None:
        finish = start + self.costs[task][machine]
        self.busy.setdefault(machine, []).append((start, finish))
        self.times[task] = machine, start, finish


def _paths(costs: Costs, edges: Edges, delays: bool) -> tuple[list[float], list[float]]:
    """Longest mean path from the start of each task to the end, and from the beginning to its start."""

    @cache
    def up(task: int) -> float:
        return fmean(costs[task]) + max(
            (delay * delays + up(b) for (a, b), delay in edges.items() if a == task), default=0
        )

    @cache
    def down(task: int) -> float:
        return max(
            (down(a) + fmean(costs[a]) + delay * delays for (a, b), delay in edges.items() if b == task),
            default=0,
        )

    tasks = range(len(costs))
    return [up(task) for task in tasks], [down(task) for task in tasks]


def _by_rank(plain: Plain, rank: Sequence[float], machine: Callable[[int], int]) -> Times:
    while ready := plain.ready():
        task = max(ready, key=lambda t: rank[t])
        to = machine(task)
        plain.put(task, to, plain.gap(task, to))
    return plain.times


def heft(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)
    up, _ = _paths(costs, edges, delays=True)
    return _by_rank(plain, up, lambda t: min(plain.machines, key=lambda m: plain.gap(t, m) + costs[t][m]))


def cpop(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)
    up, down = _paths(costs, edges, delays=True)
    through = [a + b for a, b in zip(up, down, strict=True)]
    path = {t for t, length in enumerate(through) if abs(length - max(through)) < 1e-3}
    pinned = min(plain.machines, key=lambda m: sum(costs[t][m] for t in path))

    def machine(task: int) -> int:
        if task in path:
            return pinned
        return min(plain.machines, key=lambda m: plain.gap(task, m) + costs[task][m])

    return _by_rank(plain, through, machine)


def peft(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)

    @cache
    def rest(task: int, p: int) -> float:
        after = [(b, delay) for (a, b), delay in edges.items() if a == task]
        return max(
            (min(rest(b, q) + costs[b][q] + delay * (p != q) for q in plain.machines) for b, delay in after),
            default=0,
        )

    rank = [fmean(rest(t, p) for p in plain.machines) for t in range(len(costs))]
    return _by_rank(
        plain, rank, lambda t: min(plain.machines, key=lambda m: plain.gap(t, m) + costs[t][m] + rest(t, m))
    )


def etf(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)
    level, _ = _paths(costs, edges, delays=False)
    while ready := plain.ready():
        task, to = min(product(ready, plain.machines), key=lambda pair: (plain.end(*pair), -level[pair[0]]))
        plain.put(task, to, plain.end(task, to))
    return plain.times


def dls(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)
    level, _ = _paths(costs, edges, delays=False)

    def dynamic(pair: tuple[int, int]) -> float:
        task, m = pair
        return level[task] - plain.end(task, m) + fmean(costs[task]) - costs[task][m]

    while ready := plain.ready():
        task, to = max(product(ready, plain.machines), key=dynamic)
        plain.put(task, to, plain.end(task, to))
    return plain.times


def mcp(costs: Costs, edges: Edges) -> Times:
    plain = Plain(costs, edges)
    up, _ = _paths(costs, edges, delays=True)
    return _by_rank(plain, up, lambda t: min(plain.machines, key=lambda m: plain.gap(t, m)))


def parallel(durations: Sequence[int], edges: Edges, machines: int, key: Sequence[int]) -> list[int]:
    """Starts of parallel schedule generation: whenever something ends, what is ready, the least key first."""
    starts: dict[int, int] = {}
    now = 0
    while len(starts) < len(durations):
        ended = {t for t, start in starts.items() if start + durations[t] <= now}
        ready = [
            t
            for t in range(len(durations))
            if t not in starts and all(a in ended for a, b in edges if b == t)
        ]
        room = machines - (len(starts) - len(ended))
        for task in sorted(ready, key=lambda t: key[t])[:room]:
            starts[task] = now
        ends = [start + durations[t] for t, start in starts.items()]
        now = min((end for end in ends if end > now), default=now)
    return [starts[t] for t in range(len(durations))]
