"""A population search over schedules, forwards and backwards in turn.

After the bi-population genetic algorithm of Debels and Vanhoucke (Operations Research 2007): one population
holds schedules justified to the left, the other one schedules justified to the right. Children of the one are
generated in the other direction and belong to the other population, so that every schedule is also a step of
forward-backward improvement (Tormos and Lova, Annals of Operations Research 2001; Valls, Ballestin and
Quintanilla, European Journal of Operational Research 2005). A child keeps what its mother does in the busiest
of a few intervals and puts the rest before and behind it in the order of its father. Some children are
generated in parallel, the others serially.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.generation.project import (
    Q_AT_DURATION,
    Q_AT_LOAD,
    Q_AT_TAIL,
    Q_RELEASES,
    Q_TASKS,
)
from cann_env.generation.schemes import FAR, lay_scratch, parallel, serial

if TYPE_CHECKING:
    from cann_env.engine import Image

# Image of a search: header, then rows of n starts.
(
    E_SIZE,  # schedules of a population
    E_RANDOM,  # state of the generator of random numbers, never 0
    E_COUNT,  # schedules generated so far
    E_LIMIT,  # go on to so many
    E_BOUND,  # stop at a schedule as short as this
    E_BEST,  # makespan of the best schedule
    E_BACKWARDS,  # 1 if the next generation runs backwards
    E_BIAS,  # spread of the keys of the first population, in thousandths of the tail
    E_MUTATE,  # tasks moved at random in a child, in thousandths
    E_SHAKE,  # the same where both parents are nearly alike
    E_EAGER,  # children that are generated in parallel, in thousandths
    E_STALE,  # generations since the best schedule was found
    E_PATIENCE,  # generations without a better schedule until a new population is begun
    E_BEGUN,  # 1 once there is a population
    E_FIRST,  # 1 while a first population is made
    E_ROW,  # member of the present generation that comes next
    E_AT_BEST,  # n starts of the best schedule
    E_AT_KEYS,  # n keys of the schedule that is generated
    E_AT_START,  # n starts of the schedule that is generated
    E_AT_LENGTH,  # makespans, forwards and then backwards, of each schedule
    E_AT_POOL,  # starts: those of the forward population, then those of the backward one
    E_HEADER,
) = range(22)
_INTERVALS = 4  # of so many intervals of the mother the busiest is kept


def search_words(tasks: int, size: int) -> int:
    """Length of a search image (int64 words)."""
    return E_HEADER + 3 * tasks + 2 * size * (1 + tasks)


@kernel
def _random(e: Image, below: int) -> int:
    """A random number from 0 to one less than a limit (Marsaglia's xorshift)."""
    x = e[E_RANDOM]
    x ^= x << 13
    x ^= (x >> 7) & ((1 << 57) - 1)
    x ^= x << 17
    e[E_RANDOM] = x
    number: int = ((x >> 11) & ((1 << 52) - 1)) % below
    return number


@kernel
def _lay_search(n: int, e: Image) -> None:
    e[E_AT_BEST] = E_HEADER
    e[E_AT_KEYS] = E_HEADER + n
    e[E_AT_START] = E_HEADER + 2 * n
    e[E_AT_LENGTH] = E_HEADER + 3 * n
    e[E_AT_POOL] = E_HEADER + 3 * n + 2 * e[E_SIZE]


@kernel
def _keep_best(q: Image, e: Image, backwards: int, makespan: int) -> None:
    """Remember the schedule that was just generated if it is the best, as starts of the project itself."""
    if makespan >= e[E_BEST] or (backwards == 1 and q[Q_RELEASES] == 1):
        return
    e[E_BEST] = makespan
    e[E_STALE] = 0
    for i in range(q[Q_TASKS]):
        start = e[e[E_AT_START] + i]
        if backwards == 1:
            start = makespan - start - q[q[Q_AT_DURATION] + i]
        e[e[E_AT_BEST] + i] = start


@kernel
def _generate(q: Image, b: Image, e: Image, w: Image, backwards: int, row: int) -> int:
    """Generate the schedule of the present keys into a row of a population; returns its makespan."""
    eager = _random(e, 1000) < e[E_EAGER]
    if backwards == 1 and eager:
        makespan = parallel(b, e, e[E_AT_KEYS], e[E_AT_START], w)
    elif backwards == 1:
        makespan = serial(b, e, e[E_AT_KEYS], e[E_AT_START], w)
    elif eager:
        makespan = parallel(q, e, e[E_AT_KEYS], e[E_AT_START], w)
    else:
        makespan = serial(q, e, e[E_AT_KEYS], e[E_AT_START], w)
    _store(q, e, backwards, row, makespan)
    return makespan


@kernel
def _store(q: Image, e: Image, backwards: int, row: int, makespan: int) -> None:
    n, starts = q[Q_TASKS], e[E_AT_START]
    e[E_COUNT] += 1
    _keep_best(q, e, backwards, makespan)
    member = backwards * e[E_SIZE] + row
    if makespan > e[e[E_AT_LENGTH] + member]:
        return
    e[e[E_AT_LENGTH] + member] = makespan
    for i in range(n):
        e[e[E_AT_POOL] + member * n + i] = e[starts + i]


@kernel
def _first_member(q: Image, e: Image, w: Image, row: int) -> None:
    """A schedule by descending tail with random deviations; every other one never waits."""
    n = q[Q_TASKS]
    bias = e[E_BIAS]
    for i in range(n):
        e[e[E_AT_KEYS] + i] = -q[q[Q_AT_TAIL] + i] * (1000 - bias + _random(e, 2 * bias + 1))
    if row % 2 == 0:
        makespan = serial(q, e, e[E_AT_KEYS], e[E_AT_START], w)
    else:
        makespan = parallel(q, e, e[E_AT_KEYS], e[E_AT_START], w)
    _store(q, e, 0, row, makespan)


@kernel
def _busiest(q: Image, e: Image, starts: int, makespan: int) -> tuple[int, int]:
    """The busiest of a few random intervals of a schedule."""
    n = q[Q_TASKS]
    best = -1
    first = 0
    last = makespan
    length = makespan // 4 + _random(e, makespan // 2 + 1)
    for _ in range(_INTERVALS):
        begin = _random(e, makespan - length + 1)
        end = begin + length
        load = 0
        for i in range(n):
            start = e[starts + i]
            within = min(start + q[q[Q_AT_DURATION] + i], end) - max(start, begin)
            if within > 0:
                load += within * q[q[Q_AT_LOAD] + i]
        if load > best:
            best = load
            first = begin
            last = end
    return first, last


@kernel
def _chosen(e: Image, backwards: int, but: int) -> int:
    """The better of two random members of a population, another one than ``but``."""
    size = e[E_SIZE]
    lengths = e[E_AT_LENGTH] + backwards * size
    one = (but + 1 + _random(e, size - 1)) % size
    two = (but + 1 + _random(e, size - 1)) % size
    better: int = one if e[lengths + one] <= e[lengths + two] else two
    return better


@kernel
def _alike(q: Image, e: Image, one: int, other: int) -> bool:
    """Whether two schedules differ in no more than a tenth of their tasks."""
    differ = 0
    for i in range(q[Q_TASKS]):
        if e[one + i] != e[other + i]:
            differ += 1
    few: bool = 10 * differ <= q[Q_TASKS]
    return few


@kernel
def _cross(q: Image, e: Image, backwards: int, row: int) -> None:
    """Keys of a child of two parents, which are of the population that the child does not belong to."""
    n, size = q[Q_TASKS], e[E_SIZE]
    source = 1 - backwards
    mother = _chosen(e, source, row)
    father = row
    father_starts = e[E_AT_POOL] + (source * size + father) * n
    mother_starts = e[E_AT_POOL] + (source * size + mother) * n
    length = e[e[E_AT_LENGTH] + source * size + mother]
    span = max(length, e[e[E_AT_LENGTH] + source * size + father]) + 1
    first, last = _busiest(q, e, mother_starts, length)
    rate = e[E_MUTATE]
    reach = span // 8
    if _alike(q, e, mother_starts, father_starts):
        rate = e[E_SHAKE]
        reach = span // 2
    for i in range(n):
        key = e[mother_starts + i]
        if not first <= key < last:
            key = e[father_starts + i]
            key += -span if key < first else span
        if _random(e, 1000) < rate:
            key += _random(e, 2 * reach + 1) - reach
        e[e[E_AT_KEYS] + i] = -(key + q[q[Q_AT_DURATION] + i])  # what ends last comes first the other way


@kernel
def _begin_generation(e: Image) -> None:
    """A new population where there is none, or where the last one has not found anything for long."""
    if e[E_BEGUN] == 0 or e[E_STALE] > e[E_PATIENCE]:
        e[E_FIRST] = 1
        e[E_STALE] = 0
        for member in range(2 * e[E_SIZE]):
            e[e[E_AT_LENGTH] + member] = FAR
    else:
        e[E_FIRST] = 0
        e[E_STALE] += 1


@kernel
def _end_generation(e: Image) -> None:
    e[E_ROW] = 0
    if e[E_FIRST] == 1:
        e[E_BEGUN] = 1
        e[E_BACKWARDS] = 1
    else:
        e[E_BACKWARDS] = 1 - e[E_BACKWARDS]


@kernel
def _settle(q: Image, e: Image, w: Image) -> None:
    """Justify the best schedule to the left: a backward one is late wherever it may be."""
    for i in range(q[Q_TASKS]):
        e[e[E_AT_KEYS] + i] = e[e[E_AT_BEST] + i]
    e[E_BEST] = serial(q, e, e[E_AT_KEYS], e[E_AT_BEST], w)


@kernel
def _evolve(q: Image, b: Image, e: Image, w: Image) -> None:
    _lay_search(q[Q_TASKS], e)
    lay_scratch(q, w)
    while e[E_COUNT] < e[E_LIMIT] and e[E_BEST] > e[E_BOUND]:
        row = e[E_ROW]
        if row == 0:
            _begin_generation(e)
        if e[E_FIRST] == 1:
            _first_member(q, e, w, row)
        else:
            _cross(q, e, e[E_BACKWARDS], row)
            _generate(q, b, e, w, e[E_BACKWARDS], row)
        e[E_ROW] = row + 1
        if e[E_ROW] == e[E_SIZE]:
            _end_generation(e)
    if e[E_BEST] < FAR:
        _settle(q, e, w)


@kernel
def evolve(q: Image, b: Image, e: Image, w: Image) -> None:
    """Go on with a search until its limit or its bound is reached.

    Args:
        q: Project image.
        b: Image of the project backwards.
        e: Search image; E_SIZE to E_PATIENCE are the caller's.
        w: Scratch.
    """
    _evolve(constant_pointer(q), constant_pointer(b), pointer(e), pointer(w))


@kernel
def _justify(q: Image, b: Image, e: Image, w: Image) -> None:
    n = q[Q_TASKS]
    _lay_search(n, e)
    lay_scratch(q, w)
    for i in range(n):
        e[e[E_AT_KEYS] + i] = -(e[e[E_AT_START] + i] + q[q[Q_AT_DURATION] + i])
    length = serial(b, e, e[E_AT_KEYS], e[E_AT_START], w)
    for i in range(n):
        e[e[E_AT_START] + i] = length - e[e[E_AT_START] + i] - q[q[Q_AT_DURATION] + i]


@kernel
def justify(q: Image, b: Image, e: Image, w: Image) -> None:
    """Push a schedule to the right: every task as late as the others allow, what ends last first.

    Args:
        q: Project image.
        b: Image of the project backwards.
        e: Search image; its starts at ``E_AT_START`` are read and overwritten.
        w: Scratch.
    """
    _justify(constant_pointer(q), constant_pointer(b), pointer(e), pointer(w))


@kernel
def _generate_one(q: Image, e: Image, w: Image, eager: int) -> int:
    _lay_search(q[Q_TASKS], e)
    lay_scratch(q, w)
    if eager == 1:
        return parallel(q, e, e[E_AT_KEYS], e[E_AT_START], w)
    return serial(q, e, e[E_AT_KEYS], e[E_AT_START], w)


@kernel
def generate(q: Image, e: Image, w: Image, eager: int) -> int:
    """Generate one schedule from the keys at ``E_AT_KEYS``, in parallel if ``eager`` is 1; its makespan."""
    return _generate_one(constant_pointer(q), pointer(e), pointer(w), eager)
