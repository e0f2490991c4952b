"""Problems that are made around a schedule, so that their least makespan is known at any size.

A rectangle of cores and time is cut in two, again and again, until there are as many pieces as kernels are
wanted: each piece becomes a kernel as wide and as long as the piece. The pieces leave no gap, so the work of
the pool is its capacity times the length of the rectangle, and no schedule is shorter. Precedences and loads
of weights are added only where the pieces, as they lie, satisfy them, so the schedule stays possible.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    Kernel,
    KernelClass,
    Level,
    Scheme,
)
from cann_env.units import InputError
from cann_env.workloads.checks import check_not_negative, check_shares, check_sizes
from cann_env.workloads.draws import between, chance
from cann_env.workloads.project import UNIT_NS, PosedProblem, ideal_device, ideal_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.random import Generator

CLASS_OF_POOL = {"aic": KernelClass.CUBE, "aiv": KernelClass.VECTOR, "aicpu": KernelClass.AICPU}
"""Pools that can be cut, and the class of the kernels that come of it."""

_NEAR = 8  # a predecessor is one of so many pieces that end last before a piece begins


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedProblem:
    """A problem and a schedule of it that nothing can beat.

    Attributes:
        problem: With ``least_ns`` and ``best_ns`` equal to the length of the rectangle.
        starts_ns: When each command starts in the planted schedule, by its index.
        load_starts_ns: When the prefetch of each buffer starts in it, by its index: each occupies the link
            until its user starts, and the next one begins there and then.
    """

    problem: PosedProblem
    starts_ns: tuple[int, ...]
    load_starts_ns: tuple[int, ...]


class _Piece(NamedTuple):
    """Some cores of a pool for some units of time."""

    pool: str
    cores: int
    start: int
    end: int

    @property
    def cuts(self) -> int:
        """Places where it can be cut in two."""
        return self.cores - 1 + self.end - self.start - 1


class _Load(NamedTuple):
    """Weights of a piece, on the link for some units of time."""

    piece: int
    start: int
    end: int


def planted(
    rng: Generator,
    *,
    kernels: int,
    cores: Mapping[str, int],
    length: int = 1000,
    predecessors: int = 3,
    loads: float = 0.0,
    tight: bool = True,
    name: str = "planted",
) -> PlantedProblem:
    """Make a problem whose least makespan is ``length`` units of time, a microsecond each.

    The kernels are batch kernels of fixed duration, as many blocks as their piece has cores, on the ideal
    device (see :func:`~cann_env.workloads.project.pose`). A share of them read cold weights, one buffer each,
    of a size that keeps the link from the host busy from time zero to the start of the last of them, without
    a gap.

    Args:
        rng: Source of every draw.
        kernels: Kernels of all pools together, at least one for each pool.
        cores: Capacity of each pool, of ``aic``, ``aiv`` and ``aicpu``; each pool is cut for itself.
        length: Units of time of all rectangles.
        predecessors: Most predecessors of a kernel, drawn among those that end last before it starts.
        loads: Share of the kernels that read cold weights, from 0 to 1; at most one at each instant.
        tight: Whether the device has just the memory that the planted schedule holds at its peak.
        name: Of the graph.

    Raises:
        InputError: A number is out of range, or there is not enough to cut.
    """
    check_sizes(kernels=kernels, length=length)
    check_not_negative(predecessors=predecessors)
    check_shares(loads=loads)
    _check_cores(cores, kernels, length)
    pieces = [
        piece
        for pool, count in _split(kernels, cores).items()
        for piece in _cut(rng, _Piece(pool, cores[pool], 0, length), count)
    ]
    _shuffle(rng, pieces)
    loaded = _loads(rng, pieces, loads)
    commands = _commands(rng, pieces, loaded, predecessors)
    buffers = [
        Buffer(
            name=f"w{load.piece}",
            size_bytes=(load.end - load.start) * UNIT_NS,
            kind=BufferKind.MANAGED,
            level=Level.HOST,
        )
        for load in loaded
    ]
    options = ideal_options(kernels)
    if loaded:
        options = replace(options, prefetches=min(len(loaded), options.commands))
        if tight:
            options = replace(options, hbm_bytes=_peak(pieces, loaded) * UNIT_NS)
    problem = PosedProblem(
        name=name,
        graph=CommandGraph(name, tuple(commands), tuple(buffers)),
        device=ideal_device(dict(cores)),
        options=options,
        least_ns=length * UNIT_NS,
        best_ns=length * UNIT_NS,
    )
    return PlantedProblem(
        problem=problem,
        starts_ns=tuple(piece.start * UNIT_NS for piece in pieces),
        load_starts_ns=tuple(load.start * UNIT_NS for load in loaded),
    )


def _check_cores(cores: Mapping[str, int], kernels: int, length: int) -> None:
    for pool, count in cores.items():
        if pool not in CLASS_OF_POOL or count < 1:
            raise InputError(
                f"'cores' gives pool {pool!r} {count}; name some of {', '.join(CLASS_OF_POOL)}, "
                "each with 1 or more"
            )
    if not 1 <= len(cores) <= kernels:
        raise InputError(f"'kernels' is {kernels}; write at least one for each of the pools {list(cores)}")
    for pool, count in _split(kernels, cores).items():
        if count > cores[pool] * length:
            raise InputError(
                f"{count} kernels cannot be cut from {cores[pool]} {pool} and a 'length' of {length}; "
                f"write a 'length' of at least {-(-count // cores[pool])}"
            )


def _split(kernels: int, cores: Mapping[str, int]) -> dict[str, int]:
    """How many kernels each pool gets: one, and the rest as its cores are among all."""
    total, rest = sum(cores.values()), kernels - len(cores)
    counts, passed = {}, 0
    for pool, count in cores.items():
        before, passed = passed, passed + count
        counts[pool] = 1 + rest * passed // total - rest * before // total
    return counts


def _cut(rng: Generator, whole: _Piece, count: int) -> list[_Piece]:
    """Cut a rectangle into pieces, in time or between cores; large pieces are cut sooner."""
    pieces = [whole]
    while len(pieces) < count:
        # The larger of two, each drawn among all: neither all alike nor mostly crumbs.
        draws = [between(rng, 0, len(pieces) - 1) for _ in range(2)]
        at = max(draws, key=lambda i: pieces[i].cores * (pieces[i].end - pieces[i].start))
        if pieces[at].cuts == 0:
            at = max(range(len(pieces)), key=lambda i: pieces[i].cuts)
        piece = pieces.pop(at)
        pieces += _halves(rng, piece)
    return pieces


def _halves(rng: Generator, piece: _Piece) -> tuple[_Piece, _Piece]:
    across = piece.cores > 1 and (piece.end - piece.start == 1 or chance(rng, 0.5))
    if across:
        cores = between(rng, 1, piece.cores - 1)
        return piece._replace(cores=cores), piece._replace(cores=piece.cores - cores)
    instant = between(rng, piece.start + 1, piece.end - 1)
    return piece._replace(end=instant), piece._replace(start=instant)


def _shuffle(rng: Generator, pieces: list[_Piece]) -> None:
    """In any order: ties that are broken by number must not find the schedule."""
    for i in range(len(pieces) - 1, 0, -1):
        j = between(rng, 0, i)
        pieces[i], pieces[j] = pieces[j], pieces[i]


def _loads(rng: Generator, pieces: Sequence[_Piece], share: float) -> list[_Load]:
    """Loads one behind the other from time zero on, each until a piece starts."""
    users: dict[int, int] = {}
    for i, piece in enumerate(pieces):
        if piece.start > 0 and piece.start not in users and chance(rng, share):
            users[piece.start] = i
    begin = 0
    found = []
    for start in sorted(users):
        found.append(_Load(users[start], begin, start))
        begin = start
    return found


def _commands(rng: Generator, pieces: Sequence[_Piece], loads: Sequence[_Load], most: int) -> list[Command]:
    by_end = sorted(range(len(pieces)), key=lambda i: (pieces[i].end, i))
    ends = [pieces[i].end for i in by_end]
    reads = {load.piece: (f"w{load.piece}",) for load in loads}
    commands = []
    for i, piece in enumerate(pieces):
        over = bisect_right(ends, piece.start)
        near = by_end[max(over - _NEAR, 0) : over]
        drawn = (
            {near[between(rng, 0, len(near) - 1)] for _ in range(between(rng, 0, most))} if near else set()
        )
        kernel = Kernel(
            name=f"k{i}",
            kernel_class=CLASS_OF_POOL[piece.pool],
            blocks=piece.cores,
            scheme=Scheme.BATCH,
            duration_ns=(piece.end - piece.start) * UNIT_NS,
        )
        commands.append(
            Command(
                name=f"k{i}",
                kind=CommandKind.KERNEL,
                kernels=(kernel,),
                reads=reads.get(i, ()),
                after=tuple(f"k{j}" for j in sorted(drawn)),
            )
        )
    return commands


def _peak(pieces: Sequence[_Piece], loads: Sequence[_Load]) -> int:
    """Most units of weights that are held at once: from the start of a load to the end of its user."""
    changes = sorted(
        change
        for load in loads
        for change in (
            (load.start, load.end - load.start),
            (pieces[load.piece].end, load.start - load.end),
        )
    )
    held = most = 0
    for _, change in changes:  # at one instant what is given back comes first
        held += change
        most = max(most, held)
    return most
