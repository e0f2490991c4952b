"""Tables of a graph: commands, kernels, edges, operands, buffers and their users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.engine import layout as at
from cann_env.graph import Buffer, Command, CommandGraph, CommandKind, CopyKind, HostMemory, Level
from cann_env.lowering.kernels import first_mix, kernel_rows
from cann_env.lowering.memory import (
    aligned_sizes,
    is_fixed,
    is_placed,
    moves,
    operand_modes,
    taken_sizes,
)
from cann_env.options import Allocator, Objective, RunOptions, Submission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec


@dataclass(slots=True)
class Tables:
    """Rows gathered so far, one list a table."""

    commands: list[list[int]] = field(default_factory=list)
    kernels: list[list[int]] = field(default_factory=list)
    preds: list[int] = field(default_factory=list)
    succs: list[int] = field(default_factory=list)
    operands: list[list[int]] = field(default_factory=list)
    buffers: list[list[int]] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)


def tails(graph: CommandGraph, durations: Sequence[int], *, within_request: bool) -> list[int]:
    """Longest optimistic path from the start of each command to the end of the graph (or of its request)."""
    out = [0] * len(durations)
    for c in reversed(graph.topological_order):
        after = [
            out[d]
            for d in graph.successors[c]
            if not within_request or graph.commands[d].request == graph.commands[c].request
        ]
        out[c] = durations[c] + max(after, default=0)
    return out


def _host_ns(command: Command, device: DeviceSpec, options: RunOptions, outputs: int) -> int:
    """Host time of submitting a command, its allocations and their release included, events not."""
    if options.submission is Submission.SINK:
        return 0
    host, memory = device.host, device.memory
    call = {
        CommandKind.KERNEL: host.launch_kernel_ns,
        CommandKind.COPY: host.memcpy_async_ns,
        CommandKind.CALLBACK: host.launch_callback_ns,
        CommandKind.COLLECTIVE: host.launch_kernel_ns,
    }[command.kind]
    if options.allocator is Allocator.POOL:
        return call + outputs * (memory.pool_malloc_ns + memory.pool_free_ns)
    return call + outputs * (memory.malloc_ns + memory.free_ns)


def _blocks_host(command: Command) -> int:
    pageable = command.host_memory is HostMemory.PAGEABLE
    return int(command.kind is CommandKind.COPY and command.copy is not CopyKind.D2D and pageable)


def requests_of(graph: CommandGraph) -> dict[str, int]:
    """Number of each request, in the order in which they first occur."""
    return {name: i for i, name in enumerate(dict.fromkeys(c.request for c in graph.commands))}


def _hits(
    graph: CommandGraph, device: DeviceSpec, options: RunOptions, sizes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """For each command the bytes its operands have, and the largest part of them that L2 may hold (2**-20).

    Outputs of kernels enter L2 whole if they fit, what else is read up to the cap of a prefetch.
    """
    capacity = l2_bytes(device, options)
    cap = lift_cap(device, options)
    written = {
        graph.buffer_index[name]
        for command in graph.commands
        if command.kind is CommandKind.KERNEL
        for name in command.writes
    }
    most = [
        size if b in written and size <= capacity else min(size, cap, capacity)
        for b, size in enumerate(sizes)
    ]
    traffic, hits = [], []
    for command in graph.commands:
        if command.kind is not CommandKind.KERNEL:
            traffic.append(0)
            hits.append(0)
            continue
        reads = [graph.buffer_index[name] for name in command.reads]
        total = sum(sizes[b] for b in reads) + sum(sizes[graph.buffer_index[name]] for name in command.writes)
        hit = min(sum(most[b] for b in reads), capacity * device.dies)
        traffic.append(total)
        hits.append(hit * at.Q20 // total if total else 0)
    return traffic, hits


def l2_bytes(device: DeviceSpec, options: RunOptions) -> int:
    """L2 of a die in this run."""
    return device.memory.l2_bytes if options.l2_bytes is None else options.l2_bytes


def lift_cap(device: DeviceSpec, options: RunOptions) -> int:
    """Most bytes that one prefetch lifts into L2 in this run; 0 where there is none."""
    if options.l2_prefetches == 0 or l2_bytes(device, options) == 0:
        return 0
    cap = options.l2_prefetch_bytes
    return device.memory.l2_prefetch_max_bytes if cap is None else cap


def _level(buffer: Buffer) -> int:
    return {Level.ABSENT: at.NOWHERE, Level.HOST: at.ON_HOST, Level.HBM: at.IN_HBM}[buffer.level]


def gather(graph: CommandGraph, device: DeviceSpec, options: RunOptions, order: Sequence[int]) -> Tables:
    """Rows of all tables that depend on the graph; ``order`` is the serial order."""
    tables = Tables()
    sizes = aligned_sizes(graph, device)
    taken = taken_sizes(sizes, device, options)
    moving = moves(graph, device)
    modes = operand_modes(graph, moving)
    requests = requests_of(graph)
    traffic, hits = _hits(graph, device, options, sizes)
    rows = [kernel_rows(command, device, hit) for command, hit in zip(graph.commands, hits, strict=True)]
    least = [sum(row[at.PK_MIN_NS] for row in own) for own in rows]
    tail = tails(graph, least, within_request=options.objective is Objective.LATENCY)
    rank = {c: r for r, c in enumerate(sorted(range(len(tail)), key=lambda c: (-tail[c], c)))}
    place = {c: i for i, c in enumerate(order)}
    for c, command in enumerate(graph.commands):
        outputs = [taken[b] for b, mode in modes[c].items() if mode & at.ALLOCATE]
        managed = [sizes[b] for b in modes[c] if moving[b]]
        tables.commands.append(
            [
                len(tables.kernels), len(rows[c]),
                len(tables.preds), len(graph.predecessors[c]),
                len(tables.succs), len(graph.successors[c]),
                len(tables.operands), len(modes[c]),
                tail[c], place[c], rank[c], least[c], command.release_ns,
                _host_ns(command, device, options, len(outputs)), _blocks_host(command),
                requests[command.request], sum(outputs), sum(managed), traffic[c], first_mix(rows[c][0]),
            ]
        )  # fmt: skip
        tables.kernels.extend(rows[c])
        tables.preds.extend(graph.predecessors[c])
        tables.succs.extend(graph.successors[c])
        tables.operands.extend([b, mode] for b, mode in modes[c].items())
    users_of: list[list[list[int]]] = [[] for _ in graph.buffers]
    for c in sorted(rank, key=rank.__getitem__):
        for b, mode in modes[c].items():
            users_of[b].append([c, mode])
    pooled = options.pool_bytes is not None
    for b, buffer in enumerate(graph.buffers):
        users = users_of[b]
        placed = is_placed(buffer, moving[b])
        level = at.IN_HBM if is_fixed(buffer, moving[b]) else _level(buffer)
        pageable = buffer.host_memory is HostMemory.PAGEABLE
        tables.buffers.append(
            [
                sizes[b], taken[b] if placed else sizes[b], taken[b] * (not pooled) if placed else sizes[b],
                int(moving[b]), level, int(pageable), buffer.die,
                next((c for c, mode in users if mode & at.ALLOCATE), -1), len(tables.users), len(users),
            ]
        )  # fmt: skip
        tables.users.extend(users)
    return tables
