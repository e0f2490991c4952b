"""Prefetching by plans of demand paging: Belady's pairs, and a circular pool.

Both take the order of use from a run of the order of issue without prefetching, write down which buffer is
brought in for which command and what has to be finished before, and let :class:`Follow` carry that out in
order.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cann_env.graph import Level
from cann_env.schedulers.prefetch import Follow, Move
from cann_env.schedulers.usage import Usage, simulate
from cann_env.units import InputError, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedulers.policy import Policy

POOL_BYTES = 512 << 20
"""Bytes of CANN's circular pool, unless the memory is smaller (TensorFlow adapter guide)."""

_NEVER = 1 << 62


@dataclass(slots=True)
class _Cache:
    """Managed buffers of one die under demand paging with Belady's choice of whom to evict.

    ``room``: bytes for managed buffers at each position; ``held``: what is there, with the position of its
    last use, -1 if it was there from the start.
    """

    usage: Usage
    die: int
    room: NDArray[np.int64]
    held: dict[int, int] = field(default_factory=dict)
    bytes_held: int = 0

    def use(self, place: int) -> list[Move]:
        """Bring in what the command at a position needs; returns one move for each buffer that it reads."""
        c = self.usage.sequence[place]
        graph = self.usage.program.graph
        operands = [b for b in self.usage.managed_of[c] if graph.buffers[b].die == self.die]
        moves = []
        for b in operands:
            if b not in self.held:
                gates = self._make_room(place, self.usage.sizes[b], set(operands))
                if b in self.usage.read_by[c]:
                    moves.append(Move(b, c, done=tuple(sorted(gates))))
                self.bytes_held += self.usage.sizes[b]
            self.held[b] = place
        for b in operands:
            if graph.buffers[b].level is Level.ABSENT and self.usage.positions[b][-1] == place:
                self._drop(b)
        return moves

    def _make_room(self, place: int, size: int, kept: set[int]) -> set[int]:
        """Evict, furthest next use first; returns the last users of what was evicted."""
        gates = set()
        while self.bytes_held + size > self.room[place]:
            victims = [b for b in self.held if b not in kept]
            if not victims:
                break
            victim = max(victims, key=lambda b: (self._next_use(b, place), -b))
            if self.held[victim] >= 0:
                gates.add(self.usage.sequence[self.held[victim]])
            self._drop(victim)
        return gates

    def _next_use(self, buffer: int, place: int) -> int:
        return next((later for later in self.usage.positions[buffer] if later > place), _NEVER)

    def _drop(self, buffer: int) -> None:
        del self.held[buffer]
        self.bytes_held -= self.usage.sizes[buffer]


def belady(usage: Usage) -> tuple[Move, ...]:
    """Fetches of demand paging that evicts the buffer whose next use is furthest, in order.

    Each waits for the last users of what is evicted for it. With equal sizes and a single stream no other
    plan fetches less often.
    """
    graph = usage.program.graph
    caches = []
    for die in usage.dies:
        cache = _Cache(usage, die, usage.capacity_bytes - usage.device_bytes(die))
        for b, buffer in enumerate(graph.buffers):
            if usage.managed[b] and buffer.level is Level.HBM and buffer.die == die:
                cache.held[b] = -1
                cache.bytes_held += usage.sizes[b]
        caches.append(cache)
    return tuple(
        move for place in range(len(usage.sequence)) for cache in caches for move in cache.use(place)
    )


@dataclass(frozen=True, slots=True)
class Conservative:
    """Belady's fetches, none but these, in order, each as early as its evictions do no harm.

    Attributes:
        order: The policy that decides everything else.
    """

    order: Policy

    def choose(self, program: Program) -> Policy:
        """The policy for a program.

        Raises:
            EpisodeError: The order of issue does not finish.
        """
        usage = Usage.in_schedule(program, simulate(program, self.order))
        return Follow(deepcopy(self.order), belady(usage), in_order=True)


class _Entry(NamedTuple):
    """A piece of the ring: where it begins, and for which command it is held."""

    begin: int
    consumer: int


@dataclass(slots=True)
class _Ring:
    """A pool of fixed size that is given out in order, over and over again; the oldest entry comes first."""

    size: int
    place: int = 0
    entries: deque[_Entry] = field(default_factory=deque)

    def take(self, size: int, consumer: int) -> tuple[int, ...]:
        """Take the next bytes for a command; returns the commands that have to be finished before."""
        gates: list[int] = []
        if self.place + size > self.size:  # the rest stays unused in this round
            gates += self._reclaim(self.size)
            self.place = 0
        gates += self._reclaim(self.place + size)
        self.entries.append(_Entry(self.place, consumer))
        self.place += size
        return tuple(sorted(set(gates)))

    def _reclaim(self, end: int) -> list[int]:
        """Drop entries of the last round that begin before ``end``; returns their consumers."""
        dropped = []
        while self.entries and self.place <= self.entries[0].begin < end:
            dropped.append(self.entries.popleft().consumer)
        return dropped


def circular(usage: Usage, budget_bytes: int) -> tuple[Move, ...]:
    """Fetches through a circular pool, in order of use, each as early as the pool has room.

    What a command reads that began on the host takes a place of its own in the pool, whoever read it before.
    What was computed on the device does so only where more was used since its last use than the pool holds.

    Raises:
        InputError: The pool is smaller than what one command reads; names it and both sizes.
    """
    ring = _Ring(budget_bytes)
    moves: list[Move] = []
    graph = usage.program.graph
    for place, c in enumerate(usage.sequence):
        loads = [b for b in usage.managed_of[c] if _passes_through(usage, b, place, budget_bytes)]
        if not loads:
            continue
        size = sum(usage.sizes[b] for b in loads)
        if size > budget_bytes:
            raise InputError(
                f"the circular pool has {format_size(budget_bytes)} ({budget_bytes} bytes); command "
                f"{graph.commands[c].name!r} of graph {graph.name!r} needs {size} bytes at once"
            )
        gates = ring.take(size, c)
        moves += [Move(b, c, done=tuple(sorted({*gates, *_before(usage, b, place)}))) for b in loads]
    return tuple(moves)


def _passes_through(usage: Usage, buffer: int, place: int, budget_bytes: int) -> bool:
    if buffer not in usage.read_by[usage.sequence[place]]:
        return False
    level = usage.program.graph.buffers[buffer].level
    if level is Level.HOST:
        return True
    earlier = [use for use in usage.positions[buffer] if use < place]
    if not earlier:
        return False
    between = {b for c in usage.sequence[earlier[-1] + 1 : place] for b in usage.managed_of[c]}
    return sum(usage.sizes[b] for b in between) > budget_bytes


def _before(usage: Usage, buffer: int, place: int) -> tuple[int, ...]:
    """The last user of a buffer that begins on the device; it has to be there before it can come back."""
    if usage.program.graph.buffers[buffer].level is Level.HOST:
        return ()
    return (usage.sequence[max(use for use in usage.positions[buffer] if use < place)],)


@dataclass(frozen=True, slots=True)
class CircularPool:
    """Prefetching as CANN's graph engine does it for weights: in order of use, through a pool of fixed size.

    A prefetch waits for the commands that read what lay in its place. Bytes prefetched for commands that are
    not finished never exceed the pool.

    Attributes:
        order: The policy that decides everything else.
        budget_bytes: Size of the pool; None for what device buffers leave of the memory, up to 512 MiB, but
            enough for each command alone.
    """

    order: Policy
    budget_bytes: int | None = None

    def choose(self, program: Program) -> Policy:
        """The policy for a program.

        Raises:
            InputError: One command needs more than the pool.
            EpisodeError: The order of issue does not finish.
        """
        usage = Usage.in_schedule(program, simulate(program, self.order))
        budget = _default_budget(usage) if self.budget_bytes is None else self.budget_bytes
        return Follow(deepcopy(self.order), circular(usage, budget), in_order=True)


def _default_budget(usage: Usage) -> int:
    left = usage.capacity_bytes - max(int(usage.device_bytes(die).max(initial=0)) for die in (0, *usage.dies))
    reads: Sequence[int] = [sum(usage.sizes[b] for b in own) for own in usage.read_by]
    return max(min(left, POOL_BYTES), *reads, 1)
