"""Static stream allocation from the literature: which stream each command goes to, decided before the run.

=================== ====================================================================================
name                streams
=================== ====================================================================================
nimble              chains of a maximum matching on the minimum equivalent graph: commands share a stream
                    only if a path joins them, with the fewest waits between streams (Kwon et al., NeurIPS
                    2020)
nimble_fewest       the same on the transitive closure: the fewest streams without losing concurrency
opara               the stream of the first input that has no earlier consumer, else a new one; of what is
                    ready, what holds the least of a resource goes first, as in the released program (Chen
                    et al., IEEE Transactions on Computers, 2025)
opara_overlap       the same streams; compute-bound and memory-bound commands in turn, as the paper says
ios                 stages with a barrier between them, see :mod:`cann_env.schedulers.ios`
level_round_robin   streams in turn within a level (Taskflow's cudaFlow; Lin and Huang, Euro-Par 2021)
smallest_free       the smallest number that a finished command has given back (DALI's second executor)
=================== ====================================================================================

All start from a topological order, which the sources leave open. Both the order of the program and that of
descending tails are played, and the better one is kept; it also breaks ties. What becomes known later is
launched later. The sources number streams without end. Where these *logical* streams are more than those of
the run, :func:`fold` puts each whole on the one with the least work; only those of a level start over
(:func:`modulo`), as in the source. Commands of a stream are issued in order. Buffers are prefetched one after
another where the mask keeps prefetches from doing harm, else on demand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cann_env.schedulers.assignment import Assignment, Launch, Result, Rule, best_of, fetch_of
from cann_env.schedulers.chains import chains, closure, matching, reduction
from cann_env.schedulers.ios import Stages
from cann_env.tasks import FULL_RATE, Tasks, tasks_of

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedulers.policy import Plan, Scheduler


class Allocation(NamedTuple):
    """Commands in the order of their launch, and for each command, by its index, its logical stream."""

    order: tuple[int, ...]
    streams: tuple[int, ...]


Allocator: TypeAlias = Callable[[Tasks, Sequence[int]], Allocation]
"""Makes an allocation from tasks and a topological order of them."""

Folding: TypeAlias = Callable[[Tasks, Allocation, int], tuple[int, ...]]
"""The stream of the run for each command, given the number of streams there are."""


def successor_sets(tasks: Tasks, order: Sequence[int]) -> list[int]:
    """For each place in a topological order the set of its successors' places, as bits."""
    place = _places(order)
    return [sum(1 << place[after] for after in tasks.successors(task)) for task in order]


def nimble(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """Chains of a maximum matching on the minimum equivalent graph.

    Of all allocations in which commands share a stream only if a path joins them, none needs fewer waits:
    one for each edge of that graph that is not matched.
    """
    return _chained(order, reduction(successor_sets(tasks, order)))


def nimble_fewest(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """Chains of a maximum matching on the transitive closure: as many as commands that no path joins."""
    return _chained(order, closure(successor_sets(tasks, order)))


def _chained(order: Sequence[int], edges: Sequence[int]) -> Allocation:
    chain = chains(matching(edges))
    streams = [0] * len(order)
    for task, number in zip(order, chain, strict=True):
        streams[task] = number
    return Allocation(tuple(order), tuple(streams))


def opara(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """Streams by first consumer; of what is ready, what holds the least part of a pool goes first."""
    part = pool_part(tasks)
    return Allocation(_kahn(tasks, order, lambda task, _: (part[task],)), _heirs(tasks, order))


def opara_overlap(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """The same streams; bound by memory and not bound by it in turn, the least part first."""
    part, bound = pool_part(tasks), memory_bound(tasks)

    def key(task: int, before: int) -> tuple[float, ...]:
        return (before >= 0 and bound[task] == bound[before], part[task])

    return Allocation(_kahn(tasks, order, key), _heirs(tasks, order))


def memory_bound(tasks: Tasks) -> list[bool]:
    """Which commands would use at least half the bandwidth of HBM alone."""
    used = tasks.demand[:, tasks.resources.index("hbm")]
    bound: list[bool] = (2 * used >= FULL_RATE).tolist()
    return bound


def pool_part(tasks: Tasks) -> list[float]:
    """The largest part of any pool that each command holds."""
    pools = tasks.resources.index("hbm")
    parts: list[float] = np.max(
        tasks.demand[:, :pools] / np.maximum(tasks.capacity[:pools], 1), axis=1
    ).tolist()
    return parts


def _kahn(
    tasks: Tasks, order: Sequence[int], key: Callable[[int, int], tuple[float, ...]]
) -> tuple[int, ...]:
    """Topological order that takes of all ready commands the one with the smallest key.

    The key is that of a command and the one before it, -1 for none; ``order`` breaks ties.
    """
    place = _places(order)
    missing = np.diff(tasks.pred_at).tolist()
    ready = {task for task in order if missing[task] == 0}
    taken = [-1]
    while ready:
        task = min(ready, key=lambda task: (key(task, taken[-1]), place[task]))
        taken.append(task)
        ready.remove(task)
        for after in tasks.successors(task):
            missing[after] -= 1
            if missing[after] == 0:
                ready.add(after)
    return tuple(taken[1:])


def _heirs(tasks: Tasks, order: Sequence[int]) -> tuple[int, ...]:
    """Streams by first consumer."""
    streams = [-1] * len(order)
    consumed: set[int] = set()
    count = 0
    for task in order:
        inputs = tasks.predecessors(task)
        heir_of = next((before for before in inputs if before not in consumed), -1)
        consumed.update(inputs)
        if heir_of < 0:
            streams[task] = count
            count += 1
        else:
            streams[task] = streams[heir_of]
    return tuple(streams)


def levels(tasks: Tasks, order: Sequence[int]) -> list[int]:
    """Most edges on a path to each command."""
    level = [0] * len(order)
    for task in order:
        level[task] = max((level[before] + 1 for before in tasks.predecessors(task)), default=0)
    return level


def level_round_robin(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """Level by level; within a level each command goes to the next stream, from the first one on."""
    level = levels(tasks, order)
    by_level = sorted(order, key=level.__getitem__)
    streams = [0] * len(order)
    place: dict[int, int] = {}
    for task in by_level:
        streams[task] = place.get(level[task], 0)
        place[level[task]] = streams[task] + 1
    return Allocation(tuple(by_level), tuple(streams))


def smallest_free(tasks: Tasks, order: Sequence[int]) -> Allocation:
    """Each command in turn gives its stream back, and its consumers take the smallest free.

    Commands without inputs take streams at the outset, as all of them may run at once.
    """
    place = _places(order)
    streams = [-1] * len(order)
    sources = [task for task in order if not tasks.predecessors(task)]
    for number, task in enumerate(sources):
        streams[task] = number
    count = len(sources)
    free: list[int] = []
    for task in order:
        heapq.heappush(free, streams[task])
        for after in sorted(tasks.successors(task), key=place.__getitem__):
            if streams[after] >= 0:
                continue
            if not free:
                heapq.heappush(free, count)
                count += 1
            streams[after] = heapq.heappop(free)
    return Allocation(tuple(order), tuple(streams))


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for place, task in enumerate(order):
        places[task] = place
    return places


def fold(tasks: Tasks, allocation: Allocation, streams: int) -> tuple[int, ...]:
    """Logical streams as they are, if there are enough streams.

    Otherwise, in the order in which they first have work, each goes whole to the stream whose commands
    together last the shortest so far, the lowest of equals.
    """
    logical = allocation.streams
    if max(logical) < streams:
        return logical
    work: dict[int, int] = {}
    for task in allocation.order:
        work[logical[task]] = work.get(logical[task], 0) + int(tasks.duration_ns[task])
    loads = [(0, stream) for stream in range(streams)]
    home = {}
    for number, lasts in work.items():
        load, stream = loads[0]
        home[number] = stream
        heapq.heapreplace(loads, (load + lasts, stream))
    return tuple(home[number] for number in logical)


def modulo(tasks: Tasks, allocation: Allocation, streams: int) -> tuple[int, ...]:
    """After the last stream comes the first again."""
    return tuple(number % streams for number in allocation.streams)


def as_known(tasks: Tasks, order: Sequence[int]) -> tuple[int, ...]:
    """A topological order, changed so that what becomes known later is launched later."""
    known = tasks.release_ns.tolist()
    for task in order:
        known[task] = max(known[task], *(known[before] for before in tasks.predecessors(task)), 0)
    return tuple(sorted(order, key=known.__getitem__))


def topological_orders(program: Program, tasks: Tasks) -> tuple[tuple[int, ...], ...]:
    """By descending tail, and as the program says."""
    by_tail = tuple(np.argsort(tasks.rank).tolist())
    return tuple(dict.fromkeys((by_tail, program.graph.topological_order)))


@dataclass(frozen=True, slots=True)
class Static:
    """A planner that plays a static allocation.

    Attributes:
        allocator: Where it comes from.
        folding: How its logical streams become those of the run.
    """

    allocator: Allocator
    folding: Folding = fold

    def assignments(self, program: Program) -> list[Assignment]:
        """Order and streams from each of the :func:`topological_orders`."""
        tasks = tasks_of(program)
        rule = Rule(launch=Launch.LABELS, fifo=True, fetch=fetch_of(program))
        found = []
        for order in topological_orders(program, tasks):
            allocation = self.allocator(tasks, order)
            labels = self.folding(tasks, allocation, program.options.streams)
            launched = as_known(tasks, allocation.order)
            found.append(Assignment(order=launched, labels=labels, rule=rule))
        return found

    def assign(self, program: Program) -> Assignment:
        """The better of the assignments under expected durations, the first of equals.

        Raises:
            EpisodeError: None of them finishes the graph.
        """
        return best_of(program, self.assignments(program))[0]

    def best(self, program: Program) -> Result:
        """What it comes to; raises as :meth:`assign` does."""
        return best_of(program, self.assignments(program))[1]

    def plan(self, program: Program) -> Plan:
        """All decisions of the better assignment; raises as :meth:`assign` does."""
        return self.best(program).plan


STREAMS: dict[str, Scheduler] = {
    "nimble": lambda seed: Static(nimble),
    "nimble_fewest": lambda seed: Static(nimble_fewest),
    "opara": lambda seed: Static(opara),
    "opara_overlap": lambda seed: Static(opara_overlap),
    "ios": lambda seed: Stages(),
    "level_round_robin": lambda seed: Static(level_round_robin, modulo),
    "smallest_free": lambda seed: Static(smallest_free),
}
"""Static allocations by name."""
