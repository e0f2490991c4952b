"""What follows from the times of a hand-made schedule: where buffers lay, and the wait for the host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.capacity import is_resident
from cann_env.graph import Level
from cann_env.options import Allocator
from cann_env.schedule import Allocation

if TYPE_CHECKING:
    from collections.abc import Container

    from cann_env.graph import Buffer
    from cann_env.schedule import Schedule


def with_consequences(schedule: Schedule, keep: Container[str] = ()) -> Schedule:
    """The schedule with places of 64, 128, 192 ... bytes and the right wait for the host.

    Each place is above all earlier ones while it fits, so that nothing has to wait for memory; when it does
    not, the lowest free place is taken.
    """
    if "allocations" not in keep:
        schedule = replace(schedule, allocations=_places(schedule))
    if "stall" not in keep:
        schedule = replace(schedule, stall=schedule.stall._replace(host=host_wait_ns(schedule)))
    return schedule


def host_wait_ns(schedule: Schedule) -> int:
    runs = {run.command: run for run in schedule.commands}
    total = 0
    for i, before in enumerate(schedule.graph.predecessors):
        if i in runs:
            ready = [runs[p].finish_ns for p in before if p in runs]
            total += max(runs[i].issue_ns - max(schedule.graph.commands[i].release_ns, *ready, 0), 0)
    return total


def _places(schedule: Schedule) -> tuple[Allocation, ...]:
    graph, shared = schedule.graph, schedule.device.memory.host_shares_dram
    runs = {run.command: run for run in schedule.commands}
    found: list[Allocation] = []
    absent = [
        (i, buffer)
        for i, buffer in enumerate(graph.buffers)
        if buffer.level is Level.ABSENT and (shared or buffer.kind.value == "device")
    ]
    wanted = []
    for i, buffer in absent:
        users = [
            c for c, x in enumerate(graph.commands) if buffer.name in (*x.reads, *x.writes) and c in runs
        ]
        if users:
            end = max(runs[c].finish_ns for c in users)
            wanted.append((runs[users[0]].issue_ns, i, users[0], end))
    for issue_ns, i, command, free_ns in sorted(wanted):
        buffer = graph.buffers[i]
        mine = [row for row in found if graph.buffers[row.buffer].die == buffer.die]
        size = _taken(schedule, buffer)
        address = _address(schedule, buffer, mine, size, issue_ns)
        found.append(Allocation(i, command, address, size, issue_ns, issue_ns, free_ns))
    return tuple(found)


def _taken(schedule: Schedule, buffer: Buffer) -> int:
    aligned = -(-buffer.size_bytes // 64) * 64
    block = schedule.options.pool_block_bytes
    if schedule.options.allocator is Allocator.POOL and block:
        return -(-aligned // block) * block
    return aligned  # up to 512 bytes every multiple of 64 but 576 is a size class


def _address(schedule: Schedule, buffer: Buffer, mine: list[Allocation], size: int, at_ns: int) -> int:
    limit = schedule.options.hbm_bytes or schedule.device.memory.hbm_bytes
    residents = [
        -(-other.size_bytes // 64) * 64
        for other in schedule.graph.buffers
        if other.die == buffer.die and is_resident(other, schedule.device)
    ]
    bottom = sum(residents)
    if schedule.options.pool_bytes is not None:
        limit = bottom + schedule.options.pool_bytes
    above = max([bottom, *(row.address + row.size_bytes for row in mine)])
    if above + size <= limit:
        return above
    live = sorted((row.address, row.size_bytes) for row in mine if row.free_ns > at_ns)
    for address, length in live:
        if bottom + size <= address:
            break
        bottom = address + length
    return bottom
