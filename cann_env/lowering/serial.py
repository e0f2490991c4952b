"""Whether a graph fits into the memory at all: run one command at a time, by bytes and by addresses.

A program is only made for a graph that some serial order lets through; the engine's banker holds on to that
order, so that no episode ends for want of memory.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.lowering.memory import frugal_order
from cann_env.units import MemoryAllocationError, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cann_env.lowering.needs import Needs


class Shortage(NamedTuple):
    """An allocation that fails: whose, how many bytes it asks for, how many are free, and in one piece."""

    command: int
    requested: int
    free: int
    largest: int


class Serial(NamedTuple):
    """A serial run that fits.

    Attributes:
        order: Indices of all commands in the order in which they run.
        held: For each die what outputs hold of it, see :meth:`Needs.held`.
    """

    order: tuple[int, ...]
    held: list[NDArray[np.int64]]


def serial_run(needs: Needs) -> Serial:
    """A run in which the graph fits, one command at a time.

    Program order is tried first, then one that always takes the command that leaves least behind. (To find an
    order that fits whenever there is one is NP-hard.)

    Raises:
        MemoryAllocationError: It fits in neither; names the command, what it asks for and what there is.
    """
    graph, device = needs.graph, needs.device
    for die in range(device.dies):
        start = needs.fixed(die) + needs.resident(die) + (needs.options.pool_bytes or 0)
        if start > needs.capacity:
            pool = "its pool included, " if needs.options.pool_bytes is not None else ""
            raise MemoryAllocationError(
                f"graph {graph.name!r} starts with {format_size(start)} ({start} bytes) in the memory of die "
                f"{die}, {pool}but {needs.there_is}; {needs.hint}"
            )
    found = []
    for order in _orders(needs):
        held = [needs.held(np.array(order), die) for die in range(device.dies)]
        shortages = (_shortage(needs, order, die, held[die]) for die in range(device.dies))
        shortage = next((each for each in shortages if each is not None), None)
        if shortage is None:
            return Serial(order, held)
        found.append(shortage)
    command, requested, free, largest = min(found, key=lambda s: (s.requested - s.free, s.command))
    raise MemoryAllocationError(
        f"graph {graph.name!r} does not fit even when run one command at a time, in program order or freeing "
        f"early: command {graph.commands[command].name!r} requested {requested} bytes "
        f"({format_size(requested)}), {free} bytes are free, the largest free block has {largest}; "
        f"{needs.there_is}; {needs.hint}"
    )


def _orders(needs: Needs) -> Iterator[tuple[int, ...]]:
    yield needs.graph.topological_order
    yield frugal_order(needs.graph, needs.modes, needs.placed, needs.charges)


def _shortage(needs: Needs, order: Sequence[int], die: int, held: NDArray[np.int64]) -> Shortage | None:
    """The first allocation that fails on a die in a serial run, by bytes or else by addresses."""
    demand = needs.demand(np.array(order), die, held) + (needs.options.pool_bytes or 0)
    too_much = np.flatnonzero(demand > needs.capacity)
    if too_much.size:
        place = int(too_much[0])
        asked = _asked(needs, order[place], die)
        free = needs.capacity - (int(demand[place]) - asked)
        return Shortage(order[place], asked, free, free)
    return _misplacement(needs, order, die)


def _asked(needs: Needs, c: int, die: int) -> int:
    """Bytes that a command asks for on a die: its outputs and the buffers that have to come for it."""
    claims = needs.claims[die]
    return int(claims.outputs[1, c] + claims.managed[c])


def _misplacement(needs: Needs, order: Sequence[int], die: int) -> Shortage | None:
    """The first place that is not found in a serial run, as the engine looks for places: best fit."""
    claims, space = needs.claims[die], needs.space(die)
    if sum(claims.outputs[1].tolist()) <= space:
        return None
    modes = needs.modes
    placed = [
        placed and buffer.die == die for placed, buffer in zip(needs.placed, needs.graph.buffers, strict=True)
    ]
    left = np.bincount(needs.operands.buffer, minlength=len(placed)).tolist()
    holes = [(0, space)]
    at_address: dict[int, int] = {}
    for c in order:
        for b in (b for b, bits in modes[c].items() if placed[b] and bits & at.ALLOCATE):
            address = _best_fit(holes, needs.taken[b])
            if address is None:
                lengths = [length for _, length in holes]
                return Shortage(c, needs.taken[b], sum(lengths), max(lengths, default=0))
            at_address[b] = address
        for b in modes[c]:
            left[b] -= 1
            if placed[b] and left[b] == 0:
                _give_back(holes, at_address[b], needs.taken[b])
    return None


def _best_fit(holes: list[tuple[int, int]], size: int) -> int | None:
    """Take the low end of the smallest hole that is large enough, the lowest of equals; None without one."""
    fits = [hole for hole in holes if hole[1] >= size]
    if not fits:
        return None
    address, length = min(fits, key=lambda hole: (hole[1], hole[0]))
    holes.remove((address, length))
    if length > size:
        insort(holes, (address + size, length - size))
    return address


def _give_back(holes: list[tuple[int, int]], address: int, size: int) -> None:
    """Return a place to the sorted list of holes, which never touch each other."""
    before = next((hole for hole in holes if hole[0] + hole[1] == address), None)
    behind = next((hole for hole in holes if hole[0] == address + size), None)
    if before is not None:
        holes.remove(before)
        address, size = before[0], before[1] + size
    if behind is not None:
        holes.remove(behind)
        size += behind[1]
    insort(holes, (address, size))
