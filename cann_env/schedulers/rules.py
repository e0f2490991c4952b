"""List schedulers of the literature as planners: their orders and schedules, played through the engine.

A schedule made of durations alone is not yet decisions: commands need streams, and the engine knows of
events, queues and shared bandwidth. What the sources leave open here is tried in all obvious ways, and the
best kept. An order is played without queues, as soon as a command can start at all or not before its operands
are there and half its blocks find cores, and with commands queued right behind their last predecessor. A
schedule is played in these ways in the order of start, and on the streams that best fit makes of it.
Prefetching, which these sources do not know, is one buffer at a time while the link is free, or none; with
and without prefetches into L2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, best_of, carry_out
from cann_env.schedulers.darts import Darts
from cann_env.schedulers.dmdas import StarPU
from cann_env.schedulers.etf import dls, etf, mcp
from cann_env.schedulers.graphene import graphene
from cann_env.schedulers.heft import cpop, heft, peft
from cann_env.schedulers.mem_cp import MemCP
from cann_env.schedulers.shop import Placed, Shop, shop_of
from cann_env.tasks import Tasks, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.program import Program
    from cann_env.schedulers.policy import Plan, Scheduler


def critical_path(tasks: Tasks) -> Sequence[int]:
    """Longest path to the end first."""
    return [-tail for tail in tasks.tail_ns.tolist()]


def shortest_first(tasks: Tasks) -> Sequence[int]:
    """Shortest command first."""
    return [int(own) for own in tasks.duration_ns]


def longest_first(tasks: Tasks) -> Sequence[int]:
    """Longest command first."""
    return [-int(own) for own in tasks.duration_ns]


def most_successors(tasks: Tasks) -> Sequence[int]:
    """Most commands behind it first, direct and indirect."""
    count = len(tasks.duration_ns)
    behind = [0] * count  # sets of commands, a bit each
    for task in np.argsort(-tasks.rank).tolist():
        for later in tasks.successors(task):
            behind[task] |= behind[later] | 1 << later
    return [-own.bit_count() for own in behind]


def ordered(tasks: Tasks, key: Callable[[Tasks], Sequence[int]]) -> tuple[int, ...]:
    """All tasks, the least key first, ties by descending tail."""
    return tuple(np.lexsort((tasks.rank, np.asarray(key(tasks), np.int64))).tolist())


def best_fit(placed: Placed, before: Sequence[Sequence[int]], streams: int) -> tuple[int, ...]:
    """Streams for a schedule: each command goes to the one that was busy last but is free at its start.

    Of equals that of a predecessor is taken, then the lowest; if none is free, the one that is free first.
    """
    free_at = [0] * streams
    last = [-1] * streams
    labels = [0] * len(before)
    for task in start_order(placed):
        start = placed.start_ns[task]
        own = set(before[task])
        open_ = [s for s in range(streams) if free_at[s] <= start]
        if open_:
            to = max(open_, key=lambda s: (free_at[s], last[s] in own, -s))
        else:
            to = min(range(streams), key=lambda s: (free_at[s], s))
        labels[task], free_at[to], last[to] = to, max(start, free_at[to]), task
        free_at[to] = max(placed.finish_ns[task], free_at[to])
    return tuple(labels)


def start_order(placed: Placed) -> tuple[int, ...]:
    """All tasks by start, then by finish, then by index."""
    return tuple(np.lexsort((placed.finish_ns, placed.start_ns)).tolist())


def best_way(program: Program, assignments: Sequence[Assignment]) -> Assignment:
    """The best of some assignments, also fetching on demand where buffers move, and with lifts into L2.

    Raises:
        EpisodeError: None of them finishes.
    """
    options = program.options
    fetches = [Fetch.WHILE_FREE] if options.prefetches else []
    if program.moves_buffers or not fetches:
        fetches.append(Fetch.ON_DEMAND)
    lifts = (False, True) if program.has_l2 and options.l2_prefetches else (False,)
    ways = (
        replace(assignment, rule=replace(assignment.rule, fetch=fetch, lift=lift))
        for fetch, lift, assignment in product(fetches, lifts, assignments)
    )
    return best_of(program, ways)[0]


_WITHOUT_LABELS = (
    Rule(launch=Launch.JUST_IN_TIME),
    Rule(launch=Launch.JUST_IN_TIME, fit=0.5, patient=True),
    Rule(launch=Launch.CHAINED),
)


def in_order(order: tuple[int, ...], choosy: tuple[bool, ...] = ()) -> list[Assignment]:
    """An order, without queues, at once and patiently, and behind last predecessors."""
    return [Assignment(order=order, choosy=choosy, rule=rule) for rule in _WITHOUT_LABELS]


def on_streams(program: Program, shop: Shop, placed: Placed) -> list[Assignment]:
    """A schedule, on the streams that best fit makes of it and in the order of start.

    Without queues a command that was placed on its preferred class rather than its fallback waits for that.
    """
    order = start_order(placed)
    labels = best_fit(placed, shop.before, program.options.streams)
    ways = [Assignment(order=order, labels=labels, rule=Rule(launch=Launch.LABELS)), *in_order(order)]
    choosy = tuple(
        len(own) > 1 and p == shop.preferred[task]
        for task, (own, p) in enumerate(zip(shop.allowed, placed.processor, strict=True))
    )
    return [*ways, *in_order(order, choosy)] if any(choosy) else ways


@dataclass(frozen=True, slots=True)
class ByPriority:
    """List scheduling by a number for each command, the least first.

    Attributes:
        key: From the tasks to their numbers.
    """

    key: Callable[[Tasks], Sequence[int]]

    def assign(self, program: Program) -> Assignment:
        """Order, and the way of playing it that does best under expected durations.

        Raises:
            EpisodeError: No way of playing it finishes.
        """
        return best_way(program, in_order(ordered(tasks_of(program), self.key)))

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return carry_out(program, self.assign(program)).plan


@dataclass(frozen=True, slots=True)
class ByOrder:
    """List scheduling in an order that is found by scheduling a shop.

    Attributes:
        order: From the shop to all its tasks.
    """

    order: Callable[[Shop], tuple[int, ...]]

    def assign(self, program: Program) -> Assignment:
        """Order, and the way of playing it that does best under expected durations.

        Raises:
            EpisodeError: No way of playing it finishes.
        """
        return best_way(program, in_order(self.order(shop_of(program))))

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return carry_out(program, self.assign(program)).plan


@dataclass(frozen=True, slots=True)
class BySchedule:
    """A schedule of the program as a shop, carried out.

    Attributes:
        schedule: From the shop to where and when each task runs.
    """

    schedule: Callable[[Shop], Placed]

    def assign(self, program: Program) -> Assignment:
        """Order and streams, and the way of playing them that does best under expected durations.

        Raises:
            EpisodeError: No way of playing them finishes.
        """
        shop = shop_of(program)
        return best_way(program, on_streams(program, shop, self.schedule(shop)))

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return carry_out(program, self.assign(program)).plan


RULES: dict[str, Scheduler] = {
    "heft": lambda seed: BySchedule(heft),
    "peft": lambda seed: BySchedule(peft),
    "cpop": lambda seed: BySchedule(cpop),
    "dls": lambda seed: BySchedule(dls),
    "etf": lambda seed: BySchedule(etf),
    "mcp": lambda seed: BySchedule(mcp),
    "critical_path": lambda seed: ByPriority(critical_path),
    "shortest_first": lambda seed: ByPriority(shortest_first),
    "longest_first": lambda seed: ByPriority(longest_first),
    "most_successors": lambda seed: ByPriority(most_successors),
    "graphene": lambda seed: ByOrder(graphene),
    "mem_cp": lambda seed: MemCP(),
    "dmdas": lambda seed: StarPU(),
    "darts": lambda seed: Darts(),
}
