"""Whether a graph fits into the memory at all: run one command at a time, by bytes and by addresses.

A program is only made for a graph that some serial order lets through; the engine's banker holds on to that
order, so that no episode ends for want of memory.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from cann_env.engine import layout as at
from cann_env.graph import Level
from cann_env.lowering.memory import (
    aligned_sizes,
    frugal_order,
    is_fixed,
    is_placed,
    moves,
    operand_modes,
    peak_need,
    serial_demand,
    taken_sizes,
)
from cann_env.units import MemoryAllocationError, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions


class Shortage(NamedTuple):
    """An allocation that fails: whose, how many bytes it asks for, how many are free, and in one piece."""

    command: int
    requested: int
    free: int
    largest: int


@dataclass(frozen=True)
class Needs:
    """What a graph needs of the memory of a device, and what there is.

    Attributes:
        graph, device, options: What runs, where and how.
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions

    @cached_property
    def sizes(self) -> list[int]:
        """Aligned size of each buffer (bytes)."""
        return aligned_sizes(self.graph, self.device)

    @cached_property
    def taken(self) -> list[int]:
        """Bytes that each buffer takes: what the allocator gives for a place, elsewhere its size."""
        rounded = taken_sizes(self.sizes, self.device, self.options)
        return [
            rounded[b] if is_placed(buffer, self.moving[b]) else self.sizes[b]
            for b, buffer in enumerate(self.graph.buffers)
        ]

    @cached_property
    def moving(self) -> list[bool]:
        """For each buffer whether it migrates."""
        return moves(self.graph, self.device)

    @cached_property
    def peak(self) -> int:
        """Most bytes of one die that are needed at once if nothing ever has to leave."""
        dies = range(self.device.dies)
        return max(peak_need(self.graph, self.taken, self.moving, die) for die in dies)

    @cached_property
    def least(self) -> int:
        """Bytes of a die with which the graph can run one by one in program order, places aside."""
        order = self.graph.topological_order
        pool = self.options.pool_bytes or 0
        return max(
            pool + max(self.fixed(die) + self.resident(die), *(need for _, need in self._demand(order, die)))
            for die in range(self.device.dies)
        )

    def _demand(self, order: Sequence[int], die: int) -> Iterator[tuple[int, int]]:
        return serial_demand(self.graph, self.device, self.charges, order, die)

    @cached_property
    def capacity(self) -> int:
        """Memory of a die in this run (bytes), in whole units of the alignment."""
        factor = self.options.memory_factor
        if factor is None:
            return self.options.hbm_bytes or self.device.memory.hbm_bytes
        unit = self.device.memory.alignment_bytes
        wanted = floor(Fraction(str(factor)) * self.peak)
        return max(wanted - wanted % unit, unit)

    @cached_property
    def charges(self) -> list[int]:
        """Bytes that each buffer reserves beyond what is reserved for ever."""
        if self.options.pool_bytes is None:
            return self.taken
        return [
            0 if is_placed(buffer, self.moving[b]) else self.taken[b]
            for b, buffer in enumerate(self.graph.buffers)
        ]

    @property
    def there_is(self) -> str:
        """How much memory a die has in this run, and why."""
        options = self.options
        words = (
            f"{self.device.name} has {self.capacity} bytes ({format_size(self.capacity)}) a die in this run"
        )
        if options.memory_factor is not None:
            words += f", {options.memory_factor} times the {self.peak} bytes of 'memory_factor' 1"
        elif options.hbm_bytes is not None:
            words += ", as 'hbm_bytes' says"
        if options.pool_bytes is not None:
            words += f", of which 'pool_bytes' sets {options.pool_bytes} aside for device buffers"
        return words

    @property
    def hint(self) -> str:
        """What would be right."""
        factor = f", that is 'memory_factor' {self.least / self.peak:.3g}" if self.peak else ""
        return f"it needs at least {self.least} bytes{factor}, or more where places are wanting"

    def fixed(self, die: int) -> int:
        """Bytes of device buffers that lie on a die from the start to the end."""
        return sum(
            self.sizes[b]
            for b, buffer in enumerate(self.graph.buffers)
            if buffer.die == die and is_fixed(buffer, self.moving[b])
        )

    def resident(self, die: int) -> int:
        """Bytes of buffers that lie on a die at first and may leave it."""
        return sum(
            self.sizes[b]
            for b, buffer in enumerate(self.graph.buffers)
            if buffer.die == die and self.moving[b] and buffer.level is Level.HBM
        )

    def space(self, die: int) -> int:
        """Size of the address space that is handed out on a die."""
        pool = self.options.pool_bytes
        return self.capacity - self.fixed(die) if pool is None else pool


def serial_order(needs: Needs) -> tuple[int, ...]:
    """An order in which the graph fits when run one command at a time.

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
        shortage = next((s for die in range(device.dies) if (s := _shortage(needs, order, die))), None)
        if shortage is None:
            return order
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
    yield frugal_order(needs.graph, needs.device, needs.charges)


def _shortage(needs: Needs, order: Sequence[int], die: int) -> Shortage | None:
    """The first allocation that fails on a die in a serial run, by bytes or else by addresses."""
    pool = needs.options.pool_bytes or 0
    for c, demand in serial_demand(needs.graph, needs.device, needs.charges, order, die):
        if pool + demand > needs.capacity:
            asked = _asked(needs, c, die)
            free = needs.capacity - (pool + demand - asked)
            return Shortage(c, asked, free, free)
    return _misplacement(needs, order, die)


def _asked(needs: Needs, c: int, die: int) -> int:
    """Bytes that a command asks for on a die: its outputs and the buffers that have to come for it."""
    graph = needs.graph
    mode = operand_modes(graph, needs.moving)[c]
    return sum(
        needs.taken[b]
        for b, bits in mode.items()
        if graph.buffers[b].die == die and (needs.moving[b] or bits & at.ALLOCATE)
    )


def _misplacement(needs: Needs, order: Sequence[int], die: int) -> Shortage | None:
    """The first place that is not found in a serial run, as the engine looks for places: best fit."""
    graph = needs.graph
    modes = operand_modes(graph, needs.moving)
    placed = [
        is_placed(buffer, needs.moving[b]) and buffer.die == die for b, buffer in enumerate(graph.buffers)
    ]
    left = [0] * len(placed)
    for mode in modes:
        for b in mode:
            left[b] += 1
    if sum(needs.taken[b] for b, count in enumerate(left) if placed[b] and count) <= needs.space(die):
        return None
    holes = [(0, needs.space(die))]
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
