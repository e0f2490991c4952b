"""Lower bounds of the makespan that see when work can begin and what must follow it.

The engine's own bound adds up work over the whole run. Most of it cannot begin at time zero nor last until
the end: each piece has a *head* before which it cannot start and a *tail* that must follow it. All terms are
valid for every schedule of the engine with expected durations, whatever the agent does; each takes at most
quadratic time. They bound the makespan; of the sum of latencies they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cann_env.device.spec import CLASSES, LINKS
from cann_env.engine import layout as at
from cann_env.solvers.pieces import (
    Holds,
    Kernels,
    Load,
    Paths,
    class_slots,
    holds_of,
    kernel_rows,
    kernels_of,
    link_rate,
    loads_of,
    paths_of,
    pool_capacity,
    slot_count,
)

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program

_MOST_HEADS = 512  # more instants than these are looked at only in part: any part of them is a bound
_MOST_EDGES = 32
_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class StrongBounds:
    """No schedule with the expected durations ends before any of these instants.

    Attributes:
        terms: ns by name. ``engine``: what the engine says. ``path``: longest path, weights that have to come
            in included. ``pool X``: work of a pool between heads and tails, launches included. ``windows X``:
            the same with what must lie within a window of time though it could begin before or end after it.
            ``one by one X``: kernels of which no two fit the pool together. ``slots``, ``streams``, ``class
            X``: commands that hold a place among those active at once. ``link X``: bytes; ``host``: calls.
    """

    terms: dict[str, int]

    @property
    def lower_bound_ns(self) -> int:
        """The largest term."""
        return max(self.terms.values())

    @property
    def binding(self) -> str:
        """The name of the largest term; the simplest among equals."""
        return max(self.terms, key=lambda name: self.terms[name])


def strong_bounds(program: Program) -> StrongBounds:
    """Bound the makespan of a program from below.

    Work that lies between a latest head and a largest tail is the preemptive one-machine bound (Jackson 1955,
    Carlier 1982), on a pool of several cores its fully elastic form (Baptiste, Le Pape and Nuijten 1999).
    Windows are those of Fernandez and Bussell (1973).
    """
    loads = loads_of(program)
    paths = paths_of(program, loads)
    kernels = kernels_of(program, paths)
    holds = holds_of(kernels)
    terms = {"engine": program.lower_bound_ns, "path": int((paths.head + paths.tail).max())}
    terms |= _pool_terms(program, kernels, holds)
    terms |= _slot_terms(program, paths, kernels)
    terms |= _link_terms(program, paths, kernels, loads)
    if paths.call.any():
        terms["host"] = carried(paths.release, paths.tail, paths.call, 1)
    terms |= _window_terms(program, kernels, holds, max(terms.values()))
    return StrongBounds(terms)


def carried(head: Image, tail: Image, work: Image, capacity: int) -> int:
    """Largest head + work + tail over all sets of jobs whose heads and tails are no smaller than these.

    Args:
        head: Instants before which a job does not begin (ns).
        tail: Times that must follow its end (ns).
        work: Of a job, in units of ``capacity`` times ns.
        capacity: Work that is done in a nanosecond, by all jobs together.
    """
    order = np.argsort(-tail, kind="stable")
    head, tail, work = head[order], tail[order], work[order]
    best = 0
    for first in _some(np.unique(head[work > 0]), _MOST_HEADS).tolist():
        total = np.cumsum(np.where(head >= first, work, 0))
        ends = np.where(total > 0, first - (-total // capacity) + tail, 0)
        best = max(best, int(ends.max(initial=0)))
    return best


def windows(hold: Holds, units: Image, capacity: int, bound: int) -> int:
    """A bound from a bound: what must lie in each window of time if the makespan were ``bound``.

    Args:
        hold: Intervals, of which each kind has ``number``.
        units: What one of each kind holds.
        capacity: Units there are.
        bound: A lower bound of the makespan (ns).

    Returns:
        The bound raised by what does not fit its window, at least ``bound``.
    """
    latest = bound - hold.tail - hold.length
    weight = units * hold.number
    begins = _some(np.unique(np.append(hold.head, latest)), _MOST_EDGES)
    ends = _some(np.unique(np.append(hold.head + hold.length, bound - hold.tail)), _MOST_EDGES)
    excess = 0
    for begin in begins.tolist():
        later = ends[ends > begin]
        inside = np.minimum(hold.length, hold.head + hold.length - begin)
        within = np.minimum(np.minimum(inside, later[:, None] - latest), later[:, None] - begin)
        energy = np.maximum(within, 0) @ weight
        excess = max(excess, int((-(-energy // capacity) - (later - begin)).max(initial=0)))
    return bound + excess


def _some(values: Image, most: int) -> Image:
    """At most so many of some values, evenly spread; all of them if they are few."""
    if values.size <= most:
        return values
    return values[np.linspace(0, values.size - 1, most).astype(np.int64)]


def _pool_terms(program: Program, kernels: Kernels, holds: Holds) -> dict[str, int]:
    terms = {}
    dies = int(program.image[at.P_DIES])
    for pool, capacity in enumerate(pool_capacity(program).tolist()):
        units = kernels.units[:, pool]
        if not units.any():
            continue
        work = units[holds.kernel] * holds.number * holds.length
        terms[f"pool {_pool_name(program, pool)}"] = carried(holds.head, holds.tail, work, capacity * dies)
        alone = kernels.rigid & (2 * units * kernels.blocks > capacity)
        if dies == 1 and alone.any():
            mine = kernels.head[alone], kernels.tail[alone], kernels.length[alone]
            terms[f"one by one {_pool_name(program, pool)}"] = carried(*mine, 1)
    return terms


def _slot_terms(program: Program, paths: Paths, kernels: Kernels) -> dict[str, int]:
    """Commands hold a slot while they run, and a stream somewhat longer: until the next may follow."""
    after = paths.tail - paths.duration
    terms = {"slots": carried(paths.head, after, paths.duration, slot_count(program))}
    image, streams = program.image, program.options.streams
    gap = min(int(image[at.P_GAP_NS]), int(image[at.P_MIX_SWITCH_NS]))
    terms["streams"] = carried(paths.head, after, paths.duration + gap, streams) - gap
    for work, most in class_slots(program, kernels).items():
        mine = kernels.work_class == work
        used = kernels.head[mine], kernels.tail[mine], kernels.length[mine]
        terms[f"class {CLASSES[work]}"] = carried(*used, most)
    return terms


def _link_terms(program: Program, paths: Paths, kernels: Kernels, loads: tuple[Load, ...]) -> dict[str, int]:
    image = program.image
    latency = int(image[at.P_LINK_LATENCY_NS])
    from_host = int(image[int(image[at.P_AT_LINK]) + at.LINK_H2D * at.PL_WIDTH + at.PL_FLOW])
    load_tail = [max(paths.tail[list(load.users)].tolist()) for load in loads]
    terms = {}
    for kind in (at.LINK_HBM, at.LINK_H2D, at.LINK_D2H):
        moved = np.where((kernels.flow >> kind) & 1, kernels.bytes, 0)
        if kind == at.LINK_HBM:
            moved = moved * kernel_rows(program)[:, at.PK_HBM_WEIGHT]
        coming = [load.size * at.Q20 for load in loads] if (from_host >> kind) & 1 else []
        head = np.append(kernels.head + kernels.launch, [latency] * len(coming))
        tail = np.append(kernels.tail, load_tail[: len(coming)])
        work = np.append(moved, coming).astype(np.int64)
        if work.any():
            some = work > 0
            name = f"link {LINKS[kind]}"
            terms[name] = carried(
                head[some], tail[some].astype(np.int64), work[some], link_rate(program, kind)
            )
    return terms


def _window_terms(program: Program, kernels: Kernels, holds: Holds, bound: int) -> dict[str, int]:
    """Windows of each pool, and what they raise the bound to, until none raises it any more."""
    dies = int(program.image[at.P_DIES])
    terms: dict[str, int] = {}
    for _ in range(_ROUNDS):
        before = bound
        for pool, capacity in enumerate(pool_capacity(program).tolist()):
            units = kernels.units[holds.kernel, pool]
            some = units > 0
            if not some.any():
                continue
            mine = Holds(*(column[some] for column in holds))
            raised = windows(mine, units[some], capacity * dies, bound)
            if raised > bound:
                bound = terms[f"windows {_pool_name(program, pool)}"] = raised
        if bound == before:
            break
    return terms


def _pool_name(program: Program, pool: int) -> str:
    return program.device.pool_names[pool]
