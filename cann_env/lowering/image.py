"""Fill the tables of a program image from a graph, a device and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.device.cost import l2_rate_q20, link_rate_q20, sdma_rate_q20
from cann_env.device.spec import CLASSES, LINKS, POOLS
from cann_env.engine import layout as at
from cann_env.lowering.tables import Tables, gather, l2_bytes, lift_cap, requests_of
from cann_env.options import Eviction, Objective, PrefetchMask, RunOptions, Submission, Window
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import CommandGraph

_MOST_BYTES = 1 << 62  # q20 over one link
_MOST_NS = 1 << 61
_HBM = 1 << LINKS.index("hbm")


def _device_tables(device: DeviceSpec, tables: Tables) -> tuple[list[list[int]], ...]:
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
                moved[link] += row[at.PK_LEAST_BYTES] * row[at.PK_BLOCKS] * weight
    pools = [[device.pools[name], areas[i]] for i, name in enumerate(POOLS)]
    links = []
    for die in range(device.dies):
        for i, name in enumerate(LINKS):
            kinds = 1 << i | (_HBM if device.links[name].shares_hbm else 0)
            links.append([link_rate_q20(device, name), moved[i], kinds << die * at.LINK_KINDS])
        links.append([l2_rate_q20(device), 0, 1 << die * at.LINK_KINDS + at.LINK_L2])
    return classes, pools, links


def _die_rows(device: DeviceSpec, options: RunOptions, tables: Tables, hbm_bytes: int) -> list[list[int]]:
    """What each die has and what the whole graph wants of it."""
    rows = []
    pool = options.pool_bytes
    for die in range(device.dies):
        here = [row for row in tables.buffers if row[at.PB_DIE] == die]
        fixed = sum(
            row[at.PB_BYTES] for row in here if not row[at.PB_MANAGED] and row[at.PB_LEVEL] == at.IN_HBM
        )
        placed = [
            row for row in here
            if not row[at.PB_MANAGED] and row[at.PB_LEVEL] == at.NOWHERE and row[at.PB_USERS]
        ]  # fmt: skip
        managed = [
            sum(
                tables.buffers[b][at.PB_BYTES]
                for b, _ in tables.operands[row[at.PC_OPERAND] : row[at.PC_OPERAND] + row[at.PC_OPERANDS]]
                if tables.buffers[b][at.PB_MANAGED] and tables.buffers[b][at.PB_DIE] == die
            )
            for row in tables.commands
        ]
        rows.append(
            [
                fixed + (pool or 0), fixed, hbm_bytes - fixed if pool is None else pool,
                sum(row[at.PB_CHARGE] for row in placed), sum(row[at.PB_TAKEN] for row in placed),
                len(placed), max(managed),
            ]
        )  # fmt: skip
    return rows


def _request_rows(graph: CommandGraph, commands: Sequence[Sequence[int]]) -> list[list[int]]:
    rows = []
    for name in requests_of(graph):
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


def _demand_rows(tables: Tables, dies: int) -> list[list[int]]:
    """What each command asks of the memory of each die."""
    rows = []
    for row in tables.commands:
        demand = [[0, 0, 0] for _ in range(dies)]
        for b, mode in tables.operands[row[at.PC_OPERAND] : row[at.PC_OPERAND] + row[at.PC_OPERANDS]]:
            buffer = tables.buffers[b]
            mine = demand[buffer[at.PB_DIE]]
            if buffer[at.PB_MANAGED]:
                mine[at.PM_MANAGED] += buffer[at.PB_BYTES]
            if mode & at.ALLOCATE:
                mine[at.PM_CHARGE] += buffer[at.PB_CHARGE]
                mine[at.PM_TAKEN] += buffer[at.PB_TAKEN]
        rows += demand
    return rows


def _rest_rows(tables: Tables, order: Sequence[int], die: int, fixed: Sequence[int]) -> list[list[int]]:
    """What the rest of a serial run needs of a die, from each place of the order on.

    Args:
        tables: Of the graph.
        order: Indices of all commands.
        die: The die.
        fixed: Its row.
    """
    left = [row[at.PB_USERS] for row in tables.buffers]
    live = [fixed[at.PD_FIXED_BYTES], 0, 0]
    profile = []
    for c in order:
        row = tables.commands[c]
        operands = tables.operands[row[at.PC_OPERAND] : row[at.PC_OPERAND] + row[at.PC_OPERANDS]]
        here = [(b, mode, tables.buffers[b]) for b, mode in operands if tables.buffers[b][at.PB_DIE] == die]
        largest = 0
        for _, mode, buffer in here:
            if mode & at.ALLOCATE:
                live = [live[0] + buffer[at.PB_CHARGE], live[1] + buffer[at.PB_TAKEN], live[2] + 1]
                largest = max(largest, buffer[at.PB_TAKEN])
        working = sum(buffer[at.PB_BYTES] for _, _, buffer in here if buffer[at.PB_MANAGED])
        room = max(live[1] + (live[2] - 2) * largest, 0)
        profile.append([live[0] + working, room, largest])
        for b, _, buffer in here:
            left[b] -= 1
            if left[b] == 0 and buffer[at.PB_WRITER] >= 0:
                live = [live[0] - buffer[at.PB_CHARGE], live[1] - buffer[at.PB_TAKEN], live[2] - 1]
    rest = [[0, 0, 0]]
    for row in reversed(profile):
        rest.append([max(pair) for pair in zip(row, rest[-1], strict=True)])
    return rest[::-1]


def _budget(tables: Tables) -> int:
    """Decisions beyond which an episode is cut short, late releases aside."""
    return 4 * (len(tables.commands) + len(tables.buffers))


def _worst_ns(tables: Tables, links: Sequence[Sequence[int]], device: DeviceSpec, lift_ns: int) -> int:
    """A time that no finished episode exceeds: everything one by one at its slowest, four times over."""
    total = 0
    for row in tables.kernels:
        for v in (0, at.PK_VARIANT):
            block = row[at.PK_COMPUTE_NS + v] + row[at.PK_BYTES + v] // row[at.PK_RATE + v] + 1
            total += row[at.PK_LAUNCH_NS + v] + row[at.PK_BLOCKS] * block
    total += sum(row[1] // row[0] + 1 for row in links)
    managed = [row[at.PB_BYTES] for row in tables.buffers if row[at.PB_MANAGED]]
    both = 2 * (device.links["h2d"].latency_ns + device.links["d2h"].latency_ns)
    slowest = min(links[at.LINK_H2D][0], links[at.LINK_D2H][0], _fault_rate(device))
    moved = sum(row[at.PC_MANAGED_BYTES] for row in tables.commands)
    steps = _budget(tables)
    total += 2 * (moved + steps * max(managed, default=0)) * at.Q20 // slowest
    total += (len(tables.operands) + steps) * both + steps * lift_ns
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


def lower(
    graph: CommandGraph, device: DeviceSpec, options: RunOptions, order: Sequence[int], hbm_bytes: int
) -> Image:
    """Lay out and fill a program image; the bound and the length of a state are filled in later.

    ``order`` holds the indices of all commands in an order whose serial run fits; ``hbm_bytes`` is the memory
    of a die.
    """
    tables = gather(graph, device, options, order)
    classes, pools, links = _device_tables(device, tables)
    requests = _request_rows(graph, tables.commands)
    late = _late_rows(tables.commands)
    eager = options.submission is Submission.EAGER
    priorities = options.stream_priorities or (0,) * options.streams
    honoured = device.limits.stream_priorities
    homes = options.stream_dies or tuple(s % device.dies for s in range(options.streams))
    streams = [[min(p, honoured - 1), die] for p, die in zip(priorities, homes, strict=True)]
    by_rank = sorted(range(len(tables.commands)), key=lambda c: tables.commands[c][at.PC_RANK])
    managed = [row for row in tables.buffers if row[at.PB_MANAGED]]
    implied = options.window is Window.STARTABLE
    lifted = min(lift_cap(device, options), max((row[at.PB_BYTES] for row in tables.buffers), default=0))
    lift_ns = lifted * at.Q20 // sdma_rate_q20(device) + device.links["hbm"].latency_ns
    worst = _worst_ns(tables, links, device, lift_ns)
    latency = options.objective is Objective.LATENCY
    dies = _die_rows(device, options, tables, hbm_bytes)
    header = {
        at.P_COMMANDS: len(tables.commands),
        at.P_EDGES: len(tables.preds),
        at.P_BUFFERS: len(tables.buffers),
        at.P_DIES: device.dies,
        at.P_CLASSES: len(classes),
        at.P_POOLS: len(pools),
        at.P_LINKS: len(links),
        at.P_REQUESTS: len(requests),
        at.P_LATE: len(late),
        at.P_STREAMS: options.streams,
        at.P_WINDOW: options.commands,
        at.P_SLOTS: options.slots,
        at.P_PREFETCHES: options.prefetches,
        at.P_LIFTS: options.l2_prefetches,
        at.P_OFFLOADS: options.offloads,
        at.P_LANES: options.prefetch_streams,
        at.P_FREE_MASK: int(options.prefetch_mask is PrefetchMask.FREE),
        at.P_LRU: int(options.eviction is Eviction.LRU),
        at.P_CHOICES: 1 if implied else options.streams,
        at.P_IMPLIED: int(implied),
        at.P_RUN_AHEAD: options.in_flight_limit,
        at.P_QUEUE_DEPTH: device.limits.queue_depth,
        at.P_MAX_EVENTS: device.limits.max_events,
        at.P_MAX_ACTIVE: device.limits.max_concurrent_streams,
        at.P_HBM_BYTES: hbm_bytes,
        at.P_L2_BYTES: l2_bytes(device, options),
        at.P_LIFT_BYTES: lift_cap(device, options),
        at.P_LIFT_RATE: sdma_rate_q20(device),
        at.P_CLOCKS: 0 if eager else options.streams,
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
        at.P_OFFLOAD_LATENCY_NS: device.links["d2h"].latency_ns,
        at.P_LIFT_LATENCY_NS: device.links["hbm"].latency_ns,
        at.P_STEP_BUDGET: _budget(tables) + len(late),
        at.P_GROUP_CAPACITY: sum(row[at.PP_CAPACITY] for row in pools) * device.dies + len(managed) + 1,
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
        at.P_AT_DIE: dies,
        at.P_AT_CLASS: classes,
        at.P_AT_POOL: pools,
        at.P_AT_LINK: links,
        at.P_AT_STREAM: streams,
        at.P_AT_LATE: late,
        at.P_AT_REQUEST: requests,
        at.P_AT_RANKED: by_rank,
        at.P_AT_SERIAL: order,
        at.P_AT_DEMAND: _demand_rows(tables, device.dies),
        at.P_AT_REST: [
            row for die in range(device.dies) for row in _rest_rows(tables, order, die, dies[die])
        ],
    }
    coming = sum(row[at.PB_BYTES] for row in managed)
    _check_range(graph, pools, links, coming, header[at.P_WORST_NS])
    return _assemble(header, blocks)


def _check_range(
    graph: CommandGraph,
    pools: Sequence[Sequence[int]],
    links: Sequence[Sequence[int]],
    coming: int,
    worst_ns: int,
) -> None:
    """Refuse work whose sums do not fit 64-bit integers; ``coming`` are the bytes of managed buffers."""
    for name, row in zip(LINKS, links[: len(LINKS)], strict=True):
        moved = row[at.PL_BYTES] + (coming * at.Q20 if name == "h2d" else 0)
        if moved >= _MOST_BYTES:
            raise InputError(
                f"graph {graph.name!r} moves {moved // at.Q20} bytes over link {name!r}; at most "
                f"{_MOST_BYTES // at.Q20} bytes a graph can be counted; split it into several graphs"
            )
    if max(worst_ns, *(row[at.PP_AREA_NS] for row in pools)) >= _MOST_NS:
        raise InputError(
            f"graph {graph.name!r} could last {worst_ns} ns; at most {_MOST_NS} ns can be counted; "
            "split it into several graphs"
        )


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
