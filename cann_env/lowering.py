"""Fill the tables of a program image from a graph, a device and the options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cann_env.device.cost import KernelCost, cores_of_class, kernel_cost, link_rate_q20, minimum_kernel_ns
from cann_env.device.spec import CLASSES, LINKS, POOLS
from cann_env.engine import layout as at
from cann_env.graph import BufferKind, Command, CommandGraph, CommandKind, CopyKind, HostMemory, Level
from cann_env.options import Allocator, Objective, RunOptions, Submission, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import Kernel

_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_KIND_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}
_HBM = 1 << LINKS.index("hbm")


@dataclass(slots=True)
class _Tables:
    """Rows gathered so far, one list a table."""

    commands: list[list[int]] = field(default_factory=list)
    kernels: list[list[int]] = field(default_factory=list)
    preds: list[int] = field(default_factory=list)
    succs: list[int] = field(default_factory=list)
    operands: list[list[int]] = field(default_factory=list)
    buffers: list[list[int]] = field(default_factory=list)
    users: list[int] = field(default_factory=list)


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


def _cost_row(device: DeviceSpec, cost: KernelCost) -> list[int]:
    return [cost.launch_ns, cost.compute_ns, cost.bytes_q20, cost.rate_q20]


def _block_ns(cost: KernelCost) -> int:
    return max(cost.compute_ns, -(-cost.bytes_q20 // cost.rate_q20))


def _compute_row(kernel: Kernel, device: DeviceSpec) -> list[int]:
    """Row of a kernel that runs on cores."""
    classes = [
        str(name) for name in (kernel.kernel_class, kernel.fallback) if name and cores_of_class(device, name)
    ]
    if kernel.scheme == "batch":
        classes = [name for name in classes if cores_of_class(device, name) >= kernel.blocks]
    costs = [
        kernel_cost(
            device,
            name,
            flops=kernel.flops,
            dtype=kernel.dtype,
            size_bytes=kernel.bytes_read + kernel.bytes_written,
            blocks=kernel.blocks,
            duration_ns=kernel.duration_ns,
        )
        for name in classes
    ]
    least = min(
        minimum_kernel_ns(device, name, cost, kernel.blocks)
        for name, cost in zip(classes, costs, strict=True)
    )
    alone = len(classes) == 1
    return [
        CLASSES.index(classes[0]),
        -1 if alone else CLASSES.index(classes[1]),
        kernel.blocks,
        1 if kernel.scheme == "batch" else 0,
        *_cost_row(device, costs[0]),
        *_cost_row(device, costs[-1]),
        _HBM,
        1,
        least,
        _block_ns(costs[0]) if alone else 0,
    ]


def _copy_row(command: Command, device: DeviceSpec) -> list[int]:
    """Row of a copy: one block on a DMA channel, whose bytes cross its link and the device memory."""
    assert command.copy is not None  # a graph admits no copy without direction
    engine = _COPY_CLASS[command.copy]
    cost = kernel_cost(
        device, engine, flops=0, dtype="", size_bytes=command.size_bytes, blocks=1, duration_ns=None
    )
    flow, weight = _HBM, 2
    if command.copy is not CopyKind.D2D:
        flow = 1 << LINKS.index(engine) | (_HBM if device.links[engine].shares_hbm else 0)
        weight = 1
    least = cost.launch_ns + _block_ns(cost)
    figures = _cost_row(device, cost)
    return [
        CLASSES.index(engine), -1, 1, 0, *figures, *figures, flow, weight, least, _block_ns(cost)
    ]  # fmt: skip


def _fixed_row(command: Command) -> list[int]:
    """Row of a callback or a collective: one block that takes a given time."""
    figures = [0, command.duration_ns, 0, 1]
    engine = CLASSES.index(_KIND_CLASS[command.kind])
    return [engine, -1, 1, 0, *figures, *figures, 0, 0, command.duration_ns, command.duration_ns]


def kernel_rows(command: Command, device: DeviceSpec) -> list[list[int]]:
    """Kernel rows of one command, in the order in which they run."""
    if command.kind is CommandKind.KERNEL:
        return [_compute_row(kernel, device) for kernel in command.kernels]
    if command.kind is CommandKind.COPY:
        return [_copy_row(command, device)]
    return [_fixed_row(command)]


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


def _requests(graph: CommandGraph) -> dict[str, int]:
    return {name: i for i, name in enumerate(dict.fromkeys(c.request for c in graph.commands))}


def _first_mix(row: Sequence[int]) -> int:
    """1 if a command begins with a mix kernel, 0 if not, 2 if that depends on which class is free."""
    mix = CLASSES.index("mix")
    if row[at.PK_FALLBACK] >= 0 and mix in (row[at.PK_CLASS], row[at.PK_FALLBACK]):
        return 2
    return int(row[at.PK_CLASS] == mix)


def _gather(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> _Tables:
    tables = _Tables()
    sizes = aligned_sizes(graph, device)
    modes = operand_modes(graph)
    requests = _requests(graph)
    rows = [kernel_rows(command, device) for command in graph.commands]
    least = [sum(row[at.PK_MIN_NS] for row in own) for own in rows]
    tail = tails(graph, least, within_request=options.objective is Objective.LATENCY)
    rank = {c: r for r, c in enumerate(sorted(range(len(tail)), key=lambda c: (-tail[c], c)))}
    for c, command in enumerate(graph.commands):
        outputs = [sizes[b] for b, mode in modes[c].items() if mode & at.ALLOCATE]
        managed = [sizes[b] for b in modes[c] if graph.buffers[b].kind is BufferKind.MANAGED]
        tables.commands.append(
            [
                len(tables.kernels), len(rows[c]),
                len(tables.preds), len(graph.predecessors[c]),
                len(tables.succs), len(graph.successors[c]),
                len(tables.operands), len(modes[c]),
                tail[c], rank[c], least[c], command.release_ns,
                _host_ns(command, device, options, len(outputs)), _blocks_host(command),
                requests[command.request], sum(outputs), sum(managed), _first_mix(rows[c][0]),
            ]
        )  # fmt: skip
        tables.kernels.extend(rows[c])
        tables.preds.extend(graph.predecessors[c])
        tables.succs.extend(graph.successors[c])
        tables.operands.extend([b, mode] for b, mode in modes[c].items())
    for b, buffer in enumerate(graph.buffers):
        users = sorted((c for c, mode in enumerate(modes) if b in mode), key=rank.__getitem__)
        tables.buffers.append(
            [
                sizes[b], int(buffer.kind is BufferKind.MANAGED), int(buffer.level is Level.HBM),
                len(tables.users), len(users),
            ]
        )  # fmt: skip
        tables.users.extend(users)
    return tables


def _device_tables(device: DeviceSpec, tables: _Tables) -> tuple[list[list[int]], ...]:
    """Rows of classes, pools and links, the last two with the work of the whole graph."""
    classes = []
    for name in CLASSES:
        spec = device.classes[name]
        demand = [(POOLS.index(pool), cores) for pool, cores in spec.demand.items()]
        demand += [(0, 0)] * (2 - len(demand))
        classes.append([*demand[0], *demand[1], spec.max_active, int(name == "mix")])
    areas = [0] * len(POOLS)
    moved = [0] * len(LINKS)
    for row in tables.kernels:
        area = row[at.PK_AREA_NS] * row[at.PK_BLOCKS]
        pool, demand_1, pool_2, demand_2 = classes[row[at.PK_CLASS]][:4]
        areas[pool] += area * demand_1
        areas[pool_2] += area * demand_2
        for link in range(len(LINKS)):
            if row[at.PK_FLOW] >> link & 1:
                weight = row[at.PK_HBM_WEIGHT] if link == at.LINK_HBM else 1
                moved[link] += min(row[at.PK_BYTES], row[at.PK_BYTES_2]) * row[at.PK_BLOCKS] * weight
    for size, managed, resident, _, users in tables.buffers:
        if managed and not resident and users:
            moved[at.LINK_H2D] += size * at.Q20
    pools = [[device.pools[name], areas[i]] for i, name in enumerate(POOLS)]
    links = [
        [link_rate_q20(device, name), moved[i], 1 << i | (_HBM if device.links[name].shares_hbm else 0)]
        for i, name in enumerate(LINKS)
    ]
    return classes, pools, links


def _request_rows(graph: CommandGraph, commands: Sequence[Sequence[int]]) -> list[list[int]]:
    rows = []
    for name in _requests(graph):
        own = [row for row, c in zip(commands, graph.commands, strict=True) if c.request == name]
        release = min(row[at.PC_RELEASE_NS] for row in own)
        best = max(row[at.PC_RELEASE_NS] + row[at.PC_TAIL_NS] for row in own) - release
        rows.append([len(own), release, best])
    return rows


def _late_rows(commands: Sequence[Sequence[int]]) -> list[list[int]]:
    late = sorted((row[at.PC_RELEASE_NS], c) for c, row in enumerate(commands) if row[at.PC_RELEASE_NS] > 0)
    rest = 0
    rows = []
    for release, c in reversed(late):
        rest = max(rest, release + commands[c][at.PC_TAIL_NS])
        rows.append([c, release, rest])
    return rows[::-1]


def _worst_ns(tables: _Tables, links: Sequence[Sequence[int]], device: DeviceSpec) -> int:
    """A time that no finished episode exceeds: everything one by one at its slowest, four times over."""
    total = 0
    for row in tables.kernels:
        for v in (0, at.PK_VARIANT):
            block = row[at.PK_COMPUTE_NS + v] + row[at.PK_BYTES + v] // row[at.PK_RATE + v] + 1
            total += row[at.PK_LAUNCH_NS + v] + row[at.PK_BLOCKS] * block
    total += sum(row[1] // row[0] + 1 for row in links)
    call = device.dispatch.wake_ns + device.dispatch.mix_switch_ns + device.host.sync_ns
    per_edge = device.dispatch.record_ns + device.host.record_event_ns + device.host.wait_event_ns
    faults = sum(row[0] // device.memory.page_bytes + 1 for row in tables.buffers) * device.memory.fault_ns
    total += sum(row[at.PC_HOST_NS] + 4 * call for row in tables.commands)
    total += len(tables.preds) * per_edge + faults
    return 4 * total + max(row[at.PC_RELEASE_NS] for row in tables.commands)


def _fault_rate(device: DeviceSpec) -> int:
    """Rate of a migration on demand (q20/ns): each group of pages pays one fault."""
    group = device.memory.page_bytes * device.memory.fault_group_pages * at.Q20
    rate = link_rate_q20(device, "h2d")
    return max(1, group // (-(-group // rate) + device.memory.fault_ns))


def lower(graph: CommandGraph, device: DeviceSpec, options: RunOptions, order: Sequence[int]) -> Image:
    """Lay out and fill a program image; the bound and the length of a state are filled in later."""
    tables = _gather(graph, device, options)
    classes, pools, links = _device_tables(device, tables)
    requests = _request_rows(graph, tables.commands)
    late = _late_rows(tables.commands)
    eager = options.submission is Submission.EAGER
    priorities = options.stream_priorities or (0,) * options.streams
    honoured = device.limits.stream_priorities
    streams = [[min(p, honoured - 1), 0] for p in priorities]
    by_rank = sorted(range(len(tables.commands)), key=lambda c: tables.commands[c][at.PC_RANK])
    managed = [row for row in tables.buffers if row[at.PB_MANAGED]]
    written = {b for b, mode in tables.operands if mode & at.WRITE and tables.buffers[b][at.PB_MANAGED]}
    implied = options.window is Window.STARTABLE
    worst = _worst_ns(tables, links, device)
    latency = options.objective is Objective.LATENCY
    header = {
        at.P_COMMANDS: len(tables.commands),
        at.P_KERNELS: len(tables.kernels),
        at.P_EDGES: len(tables.preds),
        at.P_OPERANDS: len(tables.operands),
        at.P_BUFFERS: len(tables.buffers),
        at.P_USERS: len(tables.users),
        at.P_CLASSES: len(classes),
        at.P_POOLS: len(pools),
        at.P_LINKS: len(links),
        at.P_REQUESTS: len(requests),
        at.P_LATE: len(late),
        at.P_STREAMS: options.streams,
        at.P_WINDOW: options.commands,
        at.P_PREFETCHES: options.prefetches,
        at.P_CHOICES: 1 if implied else options.streams,
        at.P_IMPLIED: int(implied),
        at.P_RUN_AHEAD: options.in_flight_limit,
        at.P_QUEUE_DEPTH: device.limits.queue_depth,
        at.P_MAX_EVENTS: device.limits.max_events,
        at.P_MAX_ACTIVE: device.limits.max_concurrent_streams,
        at.P_HBM_BYTES: options.hbm_bytes or device.memory.hbm_bytes,
        at.P_CAN_PREFETCH: int(device.memory.managed_prefetch),
        at.P_LATENCY: int(latency),
        at.P_GAP_NS: device.dispatch.gap_ns,
        at.P_MIX_SWITCH_NS: device.dispatch.mix_switch_ns,
        at.P_RECORD_NS: device.dispatch.record_ns,
        at.P_WAIT_NS: device.dispatch.wait_ns,
        at.P_WAKE_NS: device.dispatch.wake_ns,
        at.P_HOST_EVENT_NS: (device.host.record_event_ns + device.host.wait_event_ns) * eager,
        at.P_HOST_PREFETCH_NS: device.host.prefetch_ns * eager,
        at.P_HOST_SYNC_NS: device.host.sync_ns * eager,
        at.P_FAULT_RATE: _fault_rate(device),
        at.P_LINK_LATENCY_NS: device.links["h2d"].latency_ns,
        at.P_STEP_BUDGET: 4 * (len(tables.commands) + len(tables.buffers)) + len(late),
        at.P_GROUP_CAPACITY: sum(row[at.PP_CAPACITY] for row in pools) + len(managed) + 1,
        at.P_OUTPUT_BYTES: sum(row[at.PC_OUTPUT_BYTES] for row in tables.commands),
        at.P_MANAGED_PEAK: max(row[at.PC_MANAGED_BYTES] for row in tables.commands),
        at.P_MANAGED_WRITTEN: sum(tables.buffers[b][at.PB_BYTES] for b in written),
        at.P_RESIDENT_BYTES: sum(
            row[at.PB_BYTES] for row in tables.buffers if row[at.PB_RESIDENT] and not row[at.PB_MANAGED]
        ),
        at.P_WORST_NS: worst * len(requests) if latency else worst,
        at.P_HOST_NS: sum(row[at.PC_HOST_NS] for row in tables.commands),
    }
    blocks: dict[int, Sequence[Sequence[int]] | Sequence[int]] = {
        at.P_AT_COMMAND: tables.commands,
        at.P_AT_KERNEL: tables.kernels,
        at.P_AT_PRED: tables.preds,
        at.P_AT_SUCC: tables.succs,
        at.P_AT_OPERAND: tables.operands,
        at.P_AT_BUFFER: tables.buffers,
        at.P_AT_USER: tables.users,
        at.P_AT_CLASS: classes,
        at.P_AT_POOL: pools,
        at.P_AT_LINK: links,
        at.P_AT_STREAM: streams,
        at.P_AT_LATE: late,
        at.P_AT_REQUEST: requests,
        at.P_AT_RANKED: by_rank,
        at.P_AT_SERIAL: order,
    }
    return _assemble(header, blocks)


def _assemble(header: dict[int, int], blocks: dict[int, Sequence[Sequence[int]] | Sequence[int]]) -> Image:
    flat = {offset: np.asarray(rows, np.int64).reshape(-1) for offset, rows in blocks.items()}
    image = np.zeros(at.P_HEADER + sum(rows.size for rows in flat.values()), np.int64)
    for word, value in header.items():
        image[word] = value
    place = at.P_HEADER
    for offset, rows in flat.items():
        image[offset] = place
        image[place : place + rows.size] = rows
        place += rows.size
    return image
