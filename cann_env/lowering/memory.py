"""Who uses which buffer how, and what a graph needs of the memory when run one command at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine import layout as at
from cann_env.graph import BufferKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph


def aligned_sizes(graph: CommandGraph, device: DeviceSpec) -> list[int]:
    """Bytes that each buffer takes in HBM."""
    step = device.memory.alignment_bytes
    return [-(-buffer.size_bytes // step) * step for buffer in graph.buffers]


def operand_modes(graph: CommandGraph) -> list[dict[int, int]]:
    """Buffers of each command with the bits READ, WRITE and ALLOCATE (first to write a device buffer)."""
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
            if b not in written and buffer.kind is BufferKind.DEVICE and buffer.level is Level.ABSENT:
                mode[b] |= at.ALLOCATE
            written.add(b)
        modes.append(mode)
    return modes


def serial_demand(
    graph: CommandGraph, sizes: Sequence[int], order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """HBM bytes needed while each command runs, if they run one by one in this order.

    Managed buffers count while a command uses them, and for ever once one has written them.
    """
    modes = operand_modes(graph)
    left = [0] * len(sizes)
    for mode in modes:
        for b in mode:
            left[b] += 1
    managed = [buffer.kind is BufferKind.MANAGED for buffer in graph.buffers]
    live = sum(
        size
        for size, buffer in zip(sizes, graph.buffers, strict=True)
        if buffer.kind is BufferKind.DEVICE and buffer.level is Level.HBM
    )
    dirty: set[int] = set()
    for c in order:
        live += sum(sizes[b] for b, bits in modes[c].items() if bits & at.ALLOCATE)
        yield c, live + sum(sizes[b] for b in modes[c] if managed[b] and b not in dirty)
        for b, bits in modes[c].items():
            left[b] -= 1
            if managed[b]:
                if bits & at.WRITE and b not in dirty:
                    dirty.add(b)
                    live += sizes[b]
            elif left[b] == 0 and graph.buffers[b].level is Level.ABSENT:
                live -= sizes[b]


def frugal_order(graph: CommandGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """A topological order that at each step takes the command that leaves the fewest bytes behind."""
    modes = operand_modes(graph)
    device = [b.kind is BufferKind.DEVICE and b.level is Level.ABSENT for b in graph.buffers]
    left = [0] * len(sizes)
    for mode in modes:
        for b in mode:
            left[b] += 1

    def left_behind(c: int) -> tuple[int, int]:
        taken = sum(sizes[b] for b, bits in modes[c].items() if bits & at.ALLOCATE)
        return taken - sum(sizes[b] for b in modes[c] if device[b] and left[b] == 1), c

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
