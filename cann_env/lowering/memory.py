"""Who uses which buffer how, and what a graph needs of the memory when run one command at a time."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from cann_env.engine import layout as at
from cann_env.graph import BufferKind, Level
from cann_env.options import Allocator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Buffer, CommandGraph
    from cann_env.options import RunOptions


def aligned_sizes(graph: CommandGraph, device: DeviceSpec) -> list[int]:
    """Bytes that each buffer takes in HBM."""
    step = device.memory.alignment_bytes
    return [-(-buffer.size_bytes // step) * step for buffer in graph.buffers]


def operand_modes(graph: CommandGraph, moving: Sequence[bool]) -> list[dict[int, int]]:
    """Buffers of each command with the bits READ, WRITE and ALLOCATE (first to write one that gets a place).

    Args:
        graph: What runs.
        moving: For each buffer whether it migrates, see :func:`moves`.
    """
    written: set[int] = set()
    modes: list[dict[int, int]] = []
    for command in graph.commands:
        mode: dict[int, int] = {}
        for name in command.reads:
            mode[graph.buffer_index[name]] = at.READ
        for name in command.writes:
            b = graph.buffer_index[name]
            mode[b] = mode.get(b, 0) | at.WRITE
            buffer = graph.buffers[b]
            if b not in written and is_placed(buffer, moving[b]):
                mode[b] |= at.ALLOCATE
            written.add(b)
        modes.append(mode)
    return modes


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
    return [_size_class(size, device.memory.pool_min_block_bytes) for size in sizes]


def _size_class(size: int, least: int) -> int:
    size = max(size, least)
    step = max(1 << (size - 1).bit_length() - 3, 1)  # a quarter of the largest power of two below the size
    return -(-size // step) * step


def moves(graph: CommandGraph, device: DeviceSpec) -> list[bool]:
    """For each buffer whether it migrates: managed, where host and device have memories of their own."""
    return [
        buffer.kind is BufferKind.MANAGED and not device.memory.host_shares_dram for buffer in graph.buffers
    ]


def is_placed(buffer: Buffer, moving: bool) -> bool:
    """Whether a buffer gets a place in the address space when it is first written."""
    return not moving and buffer.level is Level.ABSENT


def is_fixed(buffer: Buffer, moving: bool) -> bool:
    """Whether a buffer lies in device memory from the start to the end."""
    return not moving and buffer.level is not Level.ABSENT


def peak_need(graph: CommandGraph, sizes: Sequence[int], moving: Sequence[bool], die: int) -> int:
    """Most bytes of a die that are needed at once if every buffer is there from its first to its last use.

    Commands run one by one in program order. What lies in device memory at first counts from the start, and
    what never leaves it to the end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for c, command in enumerate(graph.commands):
        for name in (*command.reads, *command.writes):
            b = graph.buffer_index[name]
            first.setdefault(b, c)
            last[b] = c
    change = [0] * (len(graph.commands) + 1)
    for b, buffer in enumerate(graph.buffers):
        if buffer.die != die:
            continue
        if is_fixed(buffer, moving[b]):
            change[0] += sizes[b]
        elif b in first:
            change[0 if buffer.level is Level.HBM else first[b]] += sizes[b]
            change[last[b] + 1] -= sizes[b]
    return max(accumulate(change))


def serial_demand(
    graph: CommandGraph, device: DeviceSpec, charges: Sequence[int], order: Sequence[int], die: int
) -> Iterator[tuple[int, int]]:
    """Bytes of a die needed while each command runs, if they run one by one in this order.

    Buffers that migrate count while a command uses them; ``charges`` says how many bytes each one reserves.
    """
    moving = moves(graph, device)
    modes = operand_modes(graph, moving)
    here = [buffer.die == die for buffer in graph.buffers]
    left = [0] * len(charges)
    for mode in modes:
        for b in mode:
            left[b] += 1
    live = sum(
        charges[b] for b, buffer in enumerate(graph.buffers) if here[b] and is_fixed(buffer, moving[b])
    )
    for c in order:
        live += sum(charges[b] for b, bits in modes[c].items() if here[b] and bits & at.ALLOCATE)
        yield c, live + sum(charges[b] for b in modes[c] if here[b] and moving[b])
        for b in modes[c]:
            left[b] -= 1
            if here[b] and left[b] == 0 and is_placed(graph.buffers[b], moving[b]):
                live -= charges[b]


def frugal_order(graph: CommandGraph, device: DeviceSpec, charges: Sequence[int]) -> tuple[int, ...]:
    """A topological order that at each step takes the command that leaves the fewest bytes behind."""
    moving = moves(graph, device)
    modes = operand_modes(graph, moving)
    placed = [is_placed(buffer, moves_) for buffer, moves_ in zip(graph.buffers, moving, strict=True)]
    left = [0] * len(charges)
    for mode in modes:
        for b in mode:
            left[b] += 1

    def left_behind(c: int) -> tuple[int, int]:
        taken = sum(charges[b] for b, bits in modes[c].items() if bits & at.ALLOCATE)
        return taken - sum(charges[b] for b in modes[c] if placed[b] and left[b] == 1), c

    missing = [len(before) for before in graph.predecessors]
    ready = [c for c, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        c = min(ready, key=left_behind)
        ready.remove(c)
        order.append(c)
        for b in modes[c]:
            left[b] -= 1
        for after in graph.successors[c]:
            missing[after] -= 1
            if missing[after] == 0:
                ready.append(after)
    return tuple(order)
