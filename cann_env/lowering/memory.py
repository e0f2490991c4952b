"""Who uses which buffer how, and what that asks of the memory, as arrays over commands and over buffers."""

from __future__ import annotations

import heapq
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.graph import BufferKind, Level
from cann_env.options import Allocator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions

    Sizes = NDArray[np.int64]
    """Bytes; an array of Python's integers, of dtype object, where 64 bits might not do."""


def aligned_sizes(graph: CommandGraph, device: DeviceSpec) -> list[int]:
    """Bytes that each buffer takes in HBM."""
    step = device.memory.alignment_bytes
    return [-(-buffer.size_bytes // step) * step for buffer in graph.buffers]


def taken_sizes(sizes: Sequence[int], device: DeviceSpec, options: RunOptions) -> list[int]:
    """Bytes of the address space that a device buffer of each aligned size takes: what the allocator gives.

    ``malloc`` rounds no further. The pool gives multiples of its block, or the smallest of its size classes,
    of which there are four for each doubling.
    """
    if options.allocator is Allocator.MALLOC:
        return list(sizes)
    block = options.pool_block_bytes
    if block is not None:
        return [-(-size // block) * block for size in sizes]
    least = device.memory.pool_min_block_bytes
    classes = {size: _size_class(size, least) for size in set(sizes)}
    return [classes[size] for size in sizes]


def _size_class(size: int, least: int) -> int:
    size = max(size, least)
    step = max(1 << (size - 1).bit_length() - 3, 1)  # a quarter of the largest power of two below the size
    return -(-size // step) * step


def moves(graph: CommandGraph, device: DeviceSpec) -> list[bool]:
    """For each buffer whether it migrates: managed, where host and device have memories of their own."""
    if device.memory.host_shares_dram:
        return [False] * len(graph.buffers)
    managed = BufferKind.MANAGED
    return [buffer.kind is managed for buffer in graph.buffers]


def places(graph: CommandGraph, moving: Sequence[bool]) -> list[bool]:
    """For each buffer whether it gets a place in the address space when it is first written."""
    absent = Level.ABSENT
    return [
        buffer.level is absent and not moves_ for buffer, moves_ in zip(graph.buffers, moving, strict=True)
    ]


def operand_modes(graph: CommandGraph, placed: Sequence[bool]) -> list[dict[int, int]]:
    """Buffers of each command with the bits READ, WRITE and ALLOCATE (first to write one that gets a place).

    Args:
        graph: What runs.
        placed: For each buffer whether it gets a place, see :func:`places`.
    """
    index = graph.buffer_index
    unwritten = list(placed)
    modes: list[dict[int, int]] = []
    for command in graph.commands:
        mode = {index[name]: at.READ for name in command.reads}
        for name in command.writes:
            b = index[name]
            bits = mode.get(b, 0) | at.WRITE
            if unwritten[b]:
                unwritten[b] = False
                bits |= at.ALLOCATE
            mode[b] = bits
        modes.append(mode)
    return modes


class Operands(NamedTuple):
    """An entry for each buffer that each command uses, command by command; int64 arrays of one length."""

    command: Image
    buffer: Image
    mode: Image

    def at(self, chosen: NDArray[np.bool_]) -> Operands:
        """Some of the entries."""
        return Operands(self.command[chosen], self.buffer[chosen], self.mode[chosen])

    def sums(self, amounts: Sizes, commands: int) -> Sizes:
        """For each command the sum of ``amounts`` (one a buffer) over its entries."""
        out = np.zeros(commands, amounts.dtype)
        np.add.at(out, self.command, amounts[self.buffer])
        return out

    def last_places(self, order: Image, buffers: int) -> Image:
        """For each buffer the place in an order of all commands of its last user, -1 if nobody uses it."""
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        last = np.full(buffers, -1, np.int64)
        np.maximum.at(last, self.buffer, place[self.command])
        return last


def operands_of(modes: Sequence[Mapping[int, int]]) -> Operands:
    """The entries of :func:`operand_modes` as arrays."""
    counts = list(map(len, modes))
    return Operands(
        np.repeat(np.arange(len(counts)), counts),
        np.array(list(chain.from_iterable(modes)), np.int64),
        np.array(list(chain.from_iterable(mode.values() for mode in modes)), np.int64),
    )


class Claims(NamedTuple):
    """What each command asks of the memory of one die.

    Attributes:
        managed: (commands,) bytes of its operands that migrate.
        outputs: (3, commands) what its outputs reserve and take, see :attr:`Needs.amounts`.
        largest: (commands,) bytes that the largest output takes.
    """

    managed: Sizes
    outputs: Sizes
    largest: Sizes


def peak_need(
    operands: Operands,
    taken: Sizes,
    *,
    commands: int,
    here: NDArray[np.bool_],
    fixed: NDArray[np.bool_],
    resident: NDArray[np.bool_],
) -> int:
    """Most bytes of a die that are needed at once if every buffer is there from its first to its last use.

    Commands run one by one in program order. What lies in device memory at first counts from the start, and
    what never leaves it to the end.

    Args:
        operands: Of all commands.
        taken: Bytes of each buffer.
        commands: How many there are.
        here: Which buffers have their home on the die.
        fixed: Which of all buffers lie in device memory from the start to the end.
        resident: Which others lie there at first.
    """
    first = np.full(taken.size, commands, np.int64)
    np.minimum.at(first, operands.buffer, operands.command)
    last = operands.last_places(np.arange(commands), taken.size)
    moved = here & ~fixed & (last >= 0)
    first[resident] = 0
    change = np.zeros(commands + 1, taken.dtype)
    np.add.at(change, first[moved], taken[moved])
    np.subtract.at(change, last[moved] + 1, taken[moved])
    change[0] += sum(taken[here & fixed].tolist())
    most: int = max(accumulate(change.tolist()))
    return most


def frugal_order(
    graph: CommandGraph, modes: Sequence[Mapping[int, int]], placed: Sequence[bool], charges: Sequence[int]
) -> tuple[int, ...]:
    """A topological order that at each step takes the command that leaves the fewest bytes behind.

    Args:
        graph: What runs.
        modes: See :func:`operand_modes`.
        placed: See :func:`places`.
        charges: Bytes that each buffer reserves.
    """
    users: list[list[int]] = [[] for _ in charges]
    for c, mode in enumerate(modes):
        for b in mode:
            users[b].append(c)
    left = list(map(len, users))

    def left_behind(c: int) -> tuple[int, int]:
        taken = sum(charges[b] for b, bits in modes[c].items() if bits & at.ALLOCATE)
        return taken - sum(charges[b] for b in modes[c] if placed[b] and left[b] == 1), c

    missing = [len(before) for before in graph.predecessors]
    ready = [left_behind(c) for c, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: dict[int, None] = {}
    while ready:
        _, c = heapq.heappop(ready)
        if c in order:  # it was entered again when it came to leave less behind, and was taken then
            continue
        order[c] = None
        for b in modes[c]:
            left[b] -= 1
        for after in graph.successors[c]:
            missing[after] -= 1
        last_users = [next(d for d in users[b] if d not in order) for b in modes[c] if left[b] == 1]
        for d in {*graph.successors[c], *last_users}:
            if missing[d] == 0:
                heapq.heappush(ready, left_behind(d))
    return tuple(order)
