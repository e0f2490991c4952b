"""List scheduling by a rank fixed beforehand, each task inserted where it ends first: HEFT, CPOP and PEFT.

All take a :class:`~cann_env.schedulers.shop.Shop`: unlike machines as in the papers, or the classes of work
of a device, see :func:`~cann_env.schedulers.shop.shop_of`. Where every task can run on one processor only
nothing is left to choose but the order: HEFT and CPOP then insert by longest path to the end and by longest
path through the task, PEFT by longest path to the end without the task itself.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.shop import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.schedulers.shop import Placed, Shop

_EQUAL = 1e-9


def mean_costs(shop: Shop) -> list[float]:
    """Mean time of each task over the processors that it can run on (ns)."""
    return [float(np.mean(shop.cost_ns[task, list(own)])) for task, own in enumerate(shop.allowed)]


def upward_ranks(shop: Shop) -> list[float]:
    """Longest path from the start of each task to the end of the graph, in mean times and delays (ns)."""
    rank = mean_costs(shop)
    for task in reversed(shop.order):
        rank[task] += max(
            (shop.delay_ns.get((task, later), 0) + rank[later] for later in shop.after[task]), default=0.0
        )
    return rank


def downward_ranks(shop: Shop) -> list[float]:
    """Longest path from the beginning of the graph to the start of each task, likewise (ns)."""
    cost = mean_costs(shop)
    rank = [0.0] * shop.tasks
    for task in shop.order:
        rank[task] = max(
            (rank[pred] + cost[pred] + shop.delay_ns.get((pred, task), 0) for pred in shop.before[task]),
            default=0.0,
        )
    return rank


def optimistic_costs(shop: Shop) -> list[list[float]]:
    """PEFT's table: for each task and processor the least time that what comes after it can take (ns).

    Rows are tasks; a path may change processors at the price of the delay.
    """
    processors = shop.cost_ns.shape[1]
    table = [[0.0] * processors for _ in range(shop.tasks)]
    for task in reversed(shop.order):
        for later in shop.after[task]:
            delay = shop.delay_ns.get((task, later), 0)
            rest = {q: table[later][q] + float(shop.cost_ns[later, q]) for q in shop.allowed[later]}
            moved = min(rest.values()) + delay
            for p in range(processors):
                table[task][p] = max(table[task][p], min(rest.get(p, moved), moved))
    return table


def insert_by(
    shop: Shop, rank: Sequence[float], value: Callable[[int, int, int], float], pinned: dict[int, int]
) -> Placed:
    """Place the ready task of the highest rank, ties by index, again and again, each at its earliest start.

    Args:
        shop: What is scheduled.
        rank: Of each task.
        value: From a task, a processor and its finish there (ns) to a number; it goes where that is least.
        pinned: Tasks whose processor is given.
    """
    board = Board(shop)
    ready = [(-rank[task], task) for task in board.ready()]
    heapq.heapify(ready)
    while ready:
        _, task = heapq.heappop(ready)
        starts = {
            p: board.between_ns(task, p) for p in ((pinned[task],) if task in pinned else shop.allowed[task])
        }
        best = min(starts, key=lambda p: (value(task, p, starts[p] + int(shop.cost_ns[task, p])), p))
        for later in board.place(task, best, starts[best]):
            heapq.heappush(ready, (-rank[later], later))
    return board.placed()


def heft(shop: Shop) -> Placed:
    """Heterogeneous Earliest Finish Time (Topcuoglu, Hariri and Wu, IEEE TPDS 2002).

    By descending upward rank each task goes where it ends first, into a gap if it fits. With one processor to
    choose from this is serial schedule generation by longest path to the end, which makes active schedules.
    """
    return insert_by(shop, upward_ranks(shop), lambda task, p, finish: finish, {})


def critical_tasks(shop: Shop) -> list[int]:
    """CPOP's critical path: from the entry of the largest sum of ranks along the largest sums (indices)."""
    up, down = upward_ranks(shop), downward_ranks(shop)
    path = [max((task for task in shop.order if not shop.before[task]), key=lambda t: (up[t], -t))]
    while shop.after[path[-1]]:
        path.append(max(shop.after[path[-1]], key=lambda t: (round(up[t] + down[t], 6), -t)))
    return path


def cpop(shop: Shop) -> Placed:
    """Critical Path on a Processor (Topcuoglu, Hariri and Wu, IEEE TPDS 2002).

    Rank is the longest path through a task. The tasks of the critical path all go to the processor on which
    together they take least, those that cannot run there to the one that ends them first.
    """
    path = critical_tasks(shop)
    common = [p for p in range(shop.cost_ns.shape[1]) if any(p in shop.allowed[task] for task in path)]
    slowest = shop.cost_ns.max(axis=1)

    def together(p: int) -> int:
        return sum(int(c if (c := shop.cost_ns[task, p]) >= 0 else slowest[task]) for task in path)

    best = min(common, key=lambda p: (together(p), p))
    pinned = {task: best for task in path if best in shop.allowed[task]}
    rank = [up + down for up, down in zip(upward_ranks(shop), downward_ranks(shop), strict=True)]
    return insert_by(shop, rank, lambda task, p, finish: finish, pinned)


def peft(shop: Shop) -> Placed:
    """Predict Earliest Finish Time (Arabnejad and Barbosa, IEEE TPDS 2014).

    Rank is the mean of the optimistic costs, see :func:`optimistic_costs`; a task goes where its finish and
    the optimistic cost behind it sum to least.
    """
    table = optimistic_costs(shop)
    rank = [float(np.mean([table[task][p] for p in own])) for task, own in enumerate(shop.allowed)]
    return insert_by(shop, rank, lambda task, p, finish: finish + table[task][p], {})
