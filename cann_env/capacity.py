"""How much memory a die has in a run: the device's, as many bytes as the options say, or a multiple of need.

Graph, device and options go in, bytes come out. The judge and the figures of a schedule ask here; whoever
makes schedules has an account of its own.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from cann_env.graph import BufferKind, Level
from cann_env.options import Allocator

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Buffer, CommandGraph
    from cann_env.options import RunOptions


def aligned_bytes(buffer: Buffer, device: DeviceSpec) -> int:
    """Size of a buffer in whole allocation units."""
    unit = device.memory.alignment_bytes
    return -(-buffer.size_bytes // unit) * unit


def is_resident(buffer: Buffer, device: DeviceSpec) -> bool:
    """Whether a buffer lies in device memory from the start to the end and nothing ever moves it."""
    if buffer.kind is BufferKind.DEVICE:
        return buffer.level is Level.HBM
    return device.memory.host_shares_dram and buffer.level is not Level.ABSENT


def taken_bytes(buffer: Buffer, device: DeviceSpec, options: RunOptions) -> int:
    """What the allocator takes for a buffer that gets a place."""
    size = aligned_bytes(buffer, device)
    if options.allocator is Allocator.MALLOC:
        return size
    if options.pool_block_bytes is not None:
        return -(-size // options.pool_block_bytes) * options.pool_block_bytes
    size = max(size, device.memory.pool_min_block_bytes)
    quarter = 1  # classes are 4, 5, 6 and 7 quarters of each power of two
    while 7 * quarter < size:
        quarter *= 2
    return -(-size // quarter) * quarter


def gets_place(buffer: Buffer, device: DeviceSpec) -> bool:
    """Whether a buffer gets a place in the address space when it is first written."""
    fixed = buffer.kind is BufferKind.DEVICE or device.memory.host_shares_dram
    return fixed and buffer.level is Level.ABSENT


def peak_need_bytes(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> int:
    """Most bytes of one die in use at once, if commands run in program order and no buffer leaves early.

    A buffer counts from the first to the last command that uses it, one that lies there at first from the
    start, and a resident one always.
    """
    index = graph.buffer_index
    spans: dict[int, tuple[int, int]] = {}
    for i, command in enumerate(graph.commands):
        for name in (*command.reads, *command.writes):
            spans[index[name]] = (spans.get(index[name], (i, i))[0], i)
    change = [[0] * (len(graph.commands) + 1) for _ in range(device.dies)]
    for b, buffer in enumerate(graph.buffers):
        placed = gets_place(buffer, device)
        size = taken_bytes(buffer, device, options) if placed else aligned_bytes(buffer, device)
        if is_resident(buffer, device):
            change[buffer.die][0] += size
        elif b in spans:
            first, last = spans[b]
            change[buffer.die][0 if buffer.level is Level.HBM else first] += size
            change[buffer.die][last + 1] -= size
    peak = 0
    for changes in change:
        live = 0
        for step in changes:
            live += step
            peak = max(peak, live)
    return peak


def capacity_bytes(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> int:
    """Bytes of HBM of each die; a multiple of need is rounded down to whole allocation units."""
    if options.memory_factor is None:
        return options.hbm_bytes or device.memory.hbm_bytes
    wanted = floor(Fraction(str(options.memory_factor)) * peak_need_bytes(graph, device, options))
    unit = device.memory.alignment_bytes
    return max(wanted - wanted % unit, unit)
