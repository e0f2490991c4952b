"""List scheduling that compares all ready tasks on all processors (ETF, DLS), and MCP.

They take a :class:`~cann_env.schedulers.shop.Shop`, as those of :mod:`~cann_env.schedulers.heft` do.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from cann_env.schedulers.heft import insert_by, mean_costs, upward_ranks
from cann_env.schedulers.shop import Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedulers.shop import Placed, Shop

Key = tuple[float, float]


def static_levels(shop: Shop) -> list[float]:
    """Longest path from the start of each task to the end of the graph, delays left out (ns)."""
    level = mean_costs(shop)
    for task in reversed(shop.order):
        level[task] += max((level[later] for later in shop.after[task]), default=0.0)
    return level


def _least_first(shop: Shop, key: Callable[[int, int, int], Key]) -> Placed:
    """Place the pair of ready task and processor of the least key, behind what is there, until none is left.

    ``key`` takes a task, a processor and the task's earliest start there, and grows with the start. Starts
    only ever move back, so that an old key is a lower bound and only the least has to be looked at again.
    """
    board = Board(shop)
    done = [False] * shop.tasks
    heap: list[tuple[Key, int, int, int]] = []

    def offer(task: int, processor: int) -> None:
        start = board.behind_ns(task, processor)
        heapq.heappush(heap, (key(task, processor, start), task, processor, start))

    for task in board.ready():
        for p in shop.allowed[task]:
            offer(task, p)
    while heap:
        _, task, processor, start = heapq.heappop(heap)
        if done[task]:
            continue
        if board.behind_ns(task, processor) > start:
            offer(task, processor)
            continue
        done[task] = True
        for later in board.place(task, processor, start):
            for p in shop.allowed[later]:
                offer(later, p)
    return board.placed()


def etf(shop: Shop) -> Placed:
    """Earliest Task First (Hwang, Chow, Anger and Lee, SIAM Journal on Computing 1989).

    What can start first goes first, ties by static level. Where all processors are alike this is list
    scheduling that never lets a processor idle, by longest path to the end.
    """
    level = static_levels(shop)
    return _least_first(shop, lambda task, p, start: (float(start), -level[task]))


def dls(shop: Shop) -> Placed:
    """Dynamic Level Scheduling (Sih and Lee, IEEE TPDS 1993).

    The pair of the largest dynamic level goes first: static level, less the earliest start, plus what the
    processor is faster than the mean. Where all processors are alike the last term is 0, and a long path may
    go before what could start a little sooner.
    """
    level, mean = static_levels(shop), mean_costs(shop)

    def key(task: int, p: int, start: int) -> Key:
        return (start - level[task] - (mean[task] - float(shop.cost_ns[task, p])), 0.0)

    return _least_first(shop, key)


def latest_starts(shop: Shop) -> list[float]:
    """As-late-as-possible start of each task if the longest path sets the end (ns)."""
    rank = upward_ranks(shop)
    end = max(rank, default=0.0)
    return [end - own for own in rank]


def _descendants(shop: Shop, task: int) -> set[int]:
    found: set[int] = set()
    stack = list(shop.after[task])
    while stack:
        later = stack.pop()
        if later not in found:
            found.add(later)
            stack.extend(shop.after[later])
    return found


def mcp(shop: Shop) -> Placed:
    """Modified Critical Path (Wu and Gajski, IEEE TPDS 1990).

    Tasks go by their lists of as-late-as-possible starts, own and all descendants', ascending, compared
    entry by entry; each is inserted where it can start first. It was made for processors that are alike.
    """
    latest = latest_starts(shop)
    alike: dict[float, int] = {}
    for own in latest:
        alike[own] = alike.get(own, 0) + 1
    lists = [
        [own, *sorted(latest[later] for later in _descendants(shop, task))] if alike[own] > 1 else [own]
        for task, own in enumerate(latest)
    ]
    places = sorted(range(shop.tasks), key=lambda task: (lists[task], task))
    rank = [0.0] * shop.tasks
    for place, task in enumerate(places):
        rank[task] = -float(place)
    return insert_by(shop, rank, lambda task, p, finish: finish - float(shop.cost_ns[task, p]), {})
