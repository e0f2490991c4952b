"""Tiny projects, and plain accounts of schedules on them: oracles that share nothing with what they judge."""

from __future__ import annotations

from itertools import chain, permutations
from typing import TYPE_CHECKING

import numpy as np

from cann_env.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def project(
    durations: Sequence[int],
    demand: Sequence[Sequence[int]],
    capacity: Sequence[int],
    edges: Sequence[tuple[int, int]] = (),
    releases: Sequence[int] | None = None,
) -> Tasks:
    """A project from plain lists; an edge leads from a task to a later one."""
    count = len(durations)
    before = [[a for a, b in edges if b == task] for task in range(count)]
    after = [[b for a, b in edges if a == task] for task in range(count)]
    tails = [0] * count
    for task in reversed(range(count)):
        tails[task] = durations[task] + max((tails[b] for b in after[task]), default=0)
    rank = [0] * count
    for place, task in enumerate(sorted(range(count), key=lambda task: (-tails[task], task))):
        rank[task] = place
    return Tasks(
        duration_ns=np.array(durations, np.int64),
        tail_ns=np.array(tails, np.int64),
        release_ns=np.array(releases or [0] * count, np.int64),
        resources=tuple(f"r{i}" for i in range(len(capacity))),
        capacity=np.array(capacity, np.int64),
        demand=np.array(demand, np.int64).reshape(count, len(capacity)),
        pred_at=np.cumsum([0, *map(len, before)]),
        pred=np.array([*chain(*before)], np.int64),
        succ_at=np.cumsum([0, *map(len, after)]),
        succ=np.array([*chain(*after)], np.int64),
        rank=np.array(rank, np.int64),
    )


def random_project(rng: np.random.Generator, most: int = 12, *, released: bool | None = None) -> Tasks:
    """Up to so many tasks on up to three resources, some of which are never short; half are released late."""
    count, resources = int(rng.integers(1, most + 1)), int(rng.integers(1, 4))
    capacity = rng.integers(1, 6, resources)
    demand = np.minimum(rng.integers(0, 6, (count, resources)), capacity)
    capacity[rng.random(resources) < 0.2] += 100
    density = float(rng.choice([0.0, 0.1, 0.3]))
    edges = [(a, b) for b in range(count) for a in range(b) if rng.random() < density]
    late = rng.random() < 0.5 if released is None else released
    releases = rng.integers(0, 15, count).tolist() if late else None
    return project(rng.integers(1, 10, count).tolist(), demand.tolist(), capacity.tolist(), edges, releases)


def ready(tasks: Tasks, starts: Sequence[int], task: int) -> int:
    """When the predecessors of a task have ended and it is known."""
    ends = [starts[p] + int(tasks.duration_ns[p]) for p in tasks.predecessors(task)]
    return max([int(tasks.release_ns[task]), *ends])


def fits(tasks: Tasks, placed: dict[int, int], task: int, start: int) -> bool:
    """Whether a task has room from a start to its end beside those that are placed, at every instant."""
    for instant in range(start, start + int(tasks.duration_ns[task])):
        used = tasks.demand[task].copy()
        for other, begin in placed.items():
            if begin <= instant < begin + tasks.duration_ns[other]:
                used += tasks.demand[other]
        if (used > tasks.capacity).any():
            return False
    return True


def makespan(tasks: Tasks, starts: Sequence[int]) -> int:
    return max(int(start + length) for start, length in zip(starts, tasks.duration_ns, strict=True))


def is_feasible(tasks: Tasks, starts: Sequence[int]) -> bool:
    """Precedence, releases, and every resource at every instant."""
    count = len(tasks.duration_ns)
    if any(starts[task] < ready(tasks, starts, task) for task in range(count)):
        return False
    for instant in range(makespan(tasks, starts)):
        runs = [task for task in range(count) if 0 <= instant - starts[task] < tasks.duration_ns[task]]
        if (tasks.demand[runs].sum(axis=0) > tasks.capacity).any():
            return False
    return True


def could_start_earlier(tasks: Tasks, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Tasks and starts at which each could begin, all others left where they are; active if there is none."""
    for task in range(len(starts)):
        others = {other: start for other, start in enumerate(starts) if other != task}
        for start in range(ready(tasks, starts, task), starts[task]):
            if fits(tasks, others, task, start):
                yield task, start


def waits_needlessly(tasks: Tasks, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Tasks and instants at which each is ready and has room, but waits; non-delay if there is none."""
    for task in range(len(starts)):
        for instant in range(ready(tasks, starts, task), starts[task]):
            runs = [o for o in range(len(starts)) if 0 <= instant - starts[o] < tasks.duration_ns[o]]
            if (tasks.demand[[*runs, task]].sum(axis=0) <= tasks.capacity).all():
                yield task, instant


def plain_serial(tasks: Tasks, keys: Sequence[int]) -> list[int]:
    """Serial generation, instant by instant."""
    placed: dict[int, int] = {}
    count = len(tasks.duration_ns)
    while len(placed) < count:
        eligible = [
            task
            for task in range(count)
            if task not in placed and all(p in placed for p in tasks.predecessors(task))
        ]
        task = min(eligible, key=lambda task: (keys[task], task))
        ends = [placed[p] + int(tasks.duration_ns[p]) for p in tasks.predecessors(task)]
        start = max([int(tasks.release_ns[task]), *ends])
        while not fits(tasks, placed, task, start):
            start += 1
        placed[task] = start
    return [placed[task] for task in range(count)]


def plain_parallel(tasks: Tasks, keys: Sequence[int]) -> list[int]:
    """Parallel generation, instant by instant."""
    placed: dict[int, int] = {}
    count = len(tasks.duration_ns)
    now = 0
    while len(placed) < count:
        waiting = [
            task
            for task in range(count)
            if task not in placed
            and tasks.release_ns[task] <= now
            and all(p in placed and placed[p] + tasks.duration_ns[p] <= now for p in tasks.predecessors(task))
        ]
        for task in sorted(waiting, key=lambda task: (keys[task], task)):
            running = [o for o in placed if placed[o] <= now < placed[o] + tasks.duration_ns[o]]
            if (tasks.demand[[*running, task]].sum(axis=0) <= tasks.capacity).all():
                placed[task] = now
        now += 1
    return [placed[task] for task in range(count)]


def optimum(tasks: Tasks) -> int:
    """Least makespan: some active schedule has it, and serial generation reaches all of them."""
    count = len(tasks.duration_ns)
    best = int(tasks.duration_ns.sum() + tasks.release_ns.max())
    bound = int((tasks.tail_ns + tasks.release_ns).max())
    for keys in permutations(range(count)):
        if best == bound:
            break
        if all(keys[p] < keys[task] for task in range(count) for p in tasks.predecessors(task)):
            best = min(best, makespan(tasks, plain_serial(tasks, keys)))
    return best
