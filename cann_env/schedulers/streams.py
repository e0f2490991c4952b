"""Static stream allocation from the literature: which stream each command goes to, decided before the run.

=================== ====================================================================================
name                streams
=================== ====================================================================================
nimble              chains of a maximum matching on the minimum equivalent graph: commands share a stream
                    only if a path joins them, with the fewest waits between streams (Kwon et al., NeurIPS
                    2020)
nimble_fewest       the same on the transitive closure: the fewest streams without losing concurrency
opara               the stream of the first input that has no earlier consumer, else a new one; commands
                    that hold the least of a resource first, as the released program does (Chen et al.,
                    IEEE Transactions on Computers, 2025)
opara_overlap       the same streams; compute-bound and memory-bound commands in turn, as the paper says
ios                 stages with a barrier between them, see :mod:`cann_env.schedulers.ios`
level_round_robin   streams in turn within a level (Taskflow's cudaFlow; Lin and Huang, Euro-Par 2021)
smallest_free       the smallest number that a finished command has given back (DALI's second executor)
=================== ====================================================================================

The sources number streams without end. Here a *logical* stream becomes a stream of the run: where there are
more logical ones, :func:`fold` puts each on the stream with the least work; only the streams of a level start
over (:func:`modulo`), as the source does. A topological order is needed
in several places; it is always that of descending tails, so that of equals the most urgent goes first.
Commands of a stream are issued in order. Buffers are prefetched one after another where the mask keeps
prefetches from doing harm, else on demand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.options import PrefetchMask
from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, carry_out
from cann_env.schedulers.chains import chains, closure, matching, reduction
from cann_env.schedulers.ios import Stages
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.program import Program
    from cann_env.schedulers.policy import Plan, Scheduler
    from cann_env.tasks import Tasks


class Allocation(NamedTuple):
    """What an allocator decides: commands in the order of their launch, and the logical stream of each."""

    order: tuple[int, ...]
    streams: tuple[int, ...]


Allocator = Callable[["Tasks"], Allocation]
"""Makes an allocation; it does not know how many streams there are."""


def topological(tasks: Tasks) -> list[int]:
    """All commands, predecessors first, by descending tail."""
    order: list[int] = np.argsort(tasks.rank).tolist()
    return order


def ranked_successors(tasks: Tasks) -> list[int]:
    """For each command, by its rank, the set of its successors' ranks, see :mod:`cann_env.schedulers.chains`."""
    rank = tasks.rank.tolist()
    return [sum(1 << rank[after] for after in tasks.successors(task)) for task in topological(tasks)]


def nimble(tasks: Tasks) -> Allocation:
    """Chains of a maximum matching on the minimum equivalent graph.

    Of all allocations in which commands share a stream only if a path joins them, none needs fewer waits: one
    for each edge of that graph that is not matched.
    """
    return _chained(tasks, reduction(ranked_successors(tasks)))


def nimble_fewest(tasks: Tasks) -> Allocation:
    """Chains of a maximum matching on the transitive closure: as many as commands that no path joins."""
    return _chained(tasks, closure(ranked_successors(tasks)))


def _chained(tasks: Tasks, edges: Sequence[int]) -> Allocation:
    chain = chains(matching(edges))
    return Allocation(tuple(topological(tasks)), tuple(chain[rank] for rank in tasks.rank.tolist()))


def opara(tasks: Tasks) -> Allocation:
    """Streams by first consumer; of what is ready, what holds the least part of a pool goes first."""
    fraction = _fraction(tasks).tolist()
    return Allocation(_kahn(tasks, lambda ready, _: min(ready, key=lambda t: _by(fraction, tasks, t))), _heirs(tasks))


def opara_overlap(tasks: Tasks) -> Allocation:
    """Streams by first consumer; of what is ready, commands bound by memory and others in turn."""
    fraction = _fraction(tasks).tolist()
    bound = memory_bound(tasks).tolist()

    def choose(ready: Iterable[int], before: int) -> int:
        return min(ready, key=lambda t: (before >= 0 and bound[t] == bound[before], *_by(fraction, tasks, t)))

    return Allocation(_kahn(tasks, choose), _heirs(tasks))


def memory_bound(tasks: Tasks) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Commands whose part of the bandwidth of HBM is no smaller than their part of any pool; shape (n,)."""
    hbm = tasks.resources.index("hbm")
    share: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        tasks.demand[:, hbm] / tasks.capacity[hbm] >= _fraction(tasks)
    )
    return share


def _fraction(tasks: Tasks) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Largest part of a pool that each command holds; shape (n,)."""
    pools = tasks.resources.index("hbm")
    part: np.ndarray[tuple[int], np.dtype[np.float64]] = np.max(
        tasks.demand[:, :pools] / np.maximum(tasks.capacity[:pools], 1), axis=1
    )
    return part


def _by(fraction: Sequence[float], tasks: Tasks, task: int) -> tuple[float, int]:
    return fraction[task], int(tasks.rank[task])


def _kahn(tasks: Tasks, choose: Callable[[Iterable[int], int], int]) -> tuple[int, ...]:
    """Topological order that takes of all ready commands the one chosen; -1 stands for no command before."""
    missing = np.diff(tasks.pred_at).tolist()
    ready = {task for task, count in enumerate(missing) if count == 0}
    order = [-1]
    while ready:
        order.append(choose(ready, order[-1]))
        ready.remove(order[-1])
        for after in tasks.successors(order[-1]):
            missing[after] -= 1
            if missing[after] == 0:
                ready.add(after)
    return tuple(order[1:])


def _heirs(tasks: Tasks) -> tuple[int, ...]:
    """Streams by first consumer."""
    streams = [-1] * len(tasks.rank)
    consumed: set[int] = set()
    count = 0
    for task in topological(tasks):
        heir_of = -1
        for before in tasks.predecessors(task):
            if before not in consumed and heir_of < 0:
                heir_of = before
            consumed.add(before)
        if heir_of < 0:
            streams[task] = count
            count += 1
        else:
            streams[task] = streams[heir_of]
    return tuple(streams)


def levels(tasks: Tasks) -> list[int]:
    """Most edges on a path to each command."""
    level = [0] * len(tasks.rank)
    for task in topological(tasks):
        level[task] = max((level[before] + 1 for before in tasks.predecessors(task)), default=0)
    return level


def level_round_robin(tasks: Tasks) -> Allocation:
    """Level by level; within a level each command goes to the next stream, from the first one on."""
    level = levels(tasks)
    order = sorted(topological(tasks), key=lambda task: level[task])
    streams = [0] * len(order)
    place: dict[int, int] = {}
    for task in order:
        streams[task] = place.get(level[task], 0)
        place[level[task]] = streams[task] + 1
    return Allocation(tuple(order), tuple(streams))


def smallest_free(tasks: Tasks) -> Allocation:
    """Commands in topological order; each gives its stream back, and its consumers take the smallest free ones.

    Those without inputs take streams at the outset, as they all may run at once.
    """
    order = topological(tasks)
    place = {task: at for at, task in enumerate(order)}
    streams = [-1] * len(order)
    free: list[int] = []
    count = 0
    for task in order:
        takers: list[int] = []
        if streams[task] < 0:
            takers = [t for t in order if not tasks.predecessors(t)]
        for taker in takers:
            streams[taker], count = count, count + 1
        heapq.heappush(free, streams[task])
        for after in sorted(tasks.successors(task), key=place.__getitem__):
            if streams[after] >= 0:
                continue
            if free:
                streams[after] = heapq.heappop(free)
            else:
                streams[after], count = count, count + 1
    return Allocation(tuple(order), tuple(streams))


def fold(tasks: Tasks, allocation: Allocation, streams: int) -> tuple[int, ...]:
    """The stream of the run for each command: no change as long as logical streams suffice.

    Otherwise logical streams, in the order in which they first have work, go whole to the stream whose
    commands together last the shortest so far, the lowest of equals.
    """
    logical = allocation.streams
    if max(logical) < streams:
        return logical
    work: dict[int, int] = {}
    for task in allocation.order:
        work[logical[task]] = work.get(logical[task], 0) + int(tasks.duration_ns[task])
    load = [(0, stream) for stream in range(streams)]
    home = {}
    for number, lasts in work.items():
        least, stream = heapq.heappop(load)
        home[number] = stream
        heapq.heappush(load, (least + lasts, stream))
    return tuple(home[number] for number in logical)


def modulo(tasks: Tasks, allocation: Allocation, streams: int) -> tuple[int, ...]:
    """The stream of the run for each command: after the last one comes the first again."""
    return tuple(number % streams for number in allocation.streams)


def fetch_of(program: Program) -> Fetch:
    """One buffer after another if prefetches do no harm, else on demand."""
    return Fetch.WHILE_FREE if program.options.prefetch_mask is PrefetchMask.STRICT else Fetch.ON_DEMAND


@dataclass(frozen=True, slots=True)
class Static:
    """A planner that plays a static allocation.

    Attributes:
        allocator: Where it comes from.
        folded: How logical streams become those of the run.
    """

    allocator: Allocator
    folded: Callable[[Tasks, Allocation, int], tuple[int, ...]] = fold

    def assign(self, program: Program) -> Assignment:
        """Order and streams."""
        tasks = tasks_of(program)
        allocation = self.allocator(tasks)
        return Assignment(
            order=allocation.order,
            labels=self.folded(tasks, allocation, program.options.streams),
            rule=Rule(launch=Launch.LABELS, fifo=True, fetch=fetch_of(program)),
        )

    def plan(self, program: Program) -> Plan:
        """All decisions.

        Raises:
            EpisodeError: The allocation does not finish the graph.
        """
        return carry_out(program, self.assign(program)).plan


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
