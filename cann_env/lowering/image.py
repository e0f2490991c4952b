"""Fill the tables of a program image from a graph, a device and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.device.cost import l2_rate_q20, link_rate_q20, sdma_rate_q20
from cann_env.device.spec import LINKS
from cann_env.engine import layout as at
from cann_env.lowering.classes import PAIRS
from cann_env.lowering.tables import gather, l2_bytes, lift_cap
from cann_env.options import Eviction, Objective, PrefetchMask, RunOptions, Submission, Window
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import CommandGraph
    from cann_env.lowering.needs import Needs
    from cann_env.lowering.serial import Serial
    from cann_env.lowering.tables import Tables

    _Rows = Sequence[Sequence[int]] | Sequence[int] | NDArray[np.int64]

_MOST_BYTES = 1 << 62  # q20 over one link
_MOST_NS = 1 << 61
_HBM = 1 << LINKS.index("hbm")


def _pool_rows(
    device: DeviceSpec, classes: Sequence[Sequence[int]], kernels: Sequence[tuple[Sequence[int], int]]
) -> list[list[int]]:
    """Capacity of each pool and the work of the whole graph on it; ``kernels`` are rows and how often."""
    areas = [0] * len(device.pool_names)
    for row, times in kernels:
        area = row[at.PK_AREA_NS] * row[at.PK_BLOCKS] * times
        owner = classes[row[at.PK_CLASS]]
        for pool in PAIRS:
            areas[owner[pool]] += area * owner[pool + 1]
    return [[device.pools[name], areas[i]] for i, name in enumerate(device.pool_names)]


def _link_rows(device: DeviceSpec, kernels: Sequence[tuple[Sequence[int], int]]) -> list[list[int]]:
    """Rate of each link and what the whole graph moves over it; ``kernels`` are rows and how often."""
    crossing: dict[tuple[int, int], int] = {}
    for row, times in kernels:
        way = row[at.PK_FLOW], row[at.PK_HBM_WEIGHT]
        crossing[way] = crossing.get(way, 0) + row[at.PK_LEAST_BYTES] * row[at.PK_BLOCKS] * times
    moved = [0] * len(LINKS)
    for (flow, weight), size in crossing.items():
        for link in range(len(LINKS)):
            if flow >> link & 1:
                moved[link] += size * (weight if link == at.LINK_HBM else 1)
    links = []
    for die in range(device.dies):
        for i, name in enumerate(LINKS):
            kinds = 1 << i | (_HBM if device.links[name].shares_hbm else 0)
            links.append([link_rate_q20(device, name), moved[i], kinds << die * at.LINK_KINDS])
        links.append([l2_rate_q20(device), 0, 1 << die * at.LINK_KINDS + at.LINK_L2])
    return links


def _die_rows(needs: Needs) -> list[list[int]]:
    """What each die has and what the whole graph wants of it."""
    rows = []
    pool = needs.options.pool_bytes or 0
    for die, claims in enumerate(needs.claims):
        fixed = needs.fixed(die)
        rows.append(
            [
                fixed + pool, fixed, needs.space(die),
                *(sum(asked) for asked in claims.outputs.tolist()), int(claims.managed.max()),
            ]
        )  # fmt: skip
    return rows


def _request_rows(tables: Tables) -> Image:
    """Commands, release and best latency of each request: (requests, PR_WIDTH)."""
    release_ns = np.array(tables.release_ns)
    rows = np.empty((max(tables.requests) + 1, at.PR_WIDTH), np.int64)
    rows[:, at.PR_COMMANDS] = np.bincount(tables.requests)
    rows[:, at.PR_RELEASE_NS] = release_ns.max()
    np.minimum.at(rows[:, at.PR_RELEASE_NS], tables.requests, release_ns)
    rows[:, at.PR_BEST_NS] = 0
    np.maximum.at(rows[:, at.PR_BEST_NS], tables.requests, release_ns + np.array(tables.tails))
    rows[:, at.PR_BEST_NS] -= rows[:, at.PR_RELEASE_NS]
    return rows


def _late_rows(tables: Tables) -> list[list[int]]:
    late = sorted((release, c) for c, release in enumerate(tables.release_ns) if release > 0)
    rest = 0
    rows = []
    for release, c in reversed(late):
        rest = max(rest, release + tables.tails[c])
        rows.append([c, release, rest])
    return rows[::-1]


def _demand_rows(needs: Needs) -> NDArray[np.int64]:
    """What each command asks of the memory of each die: (commands, dies, PM_WIDTH)."""
    fields = [(claims.managed, *claims.outputs[:2]) for claims in needs.claims]
    return np.transpose(np.array(fields), (2, 0, 1))


def _rest_rows(needs: Needs, run: Serial, die: int) -> NDArray[np.int64]:
    """What a serial run needs of a die from each place of its order on: (commands + 1, PQ_WIDTH)."""
    claims, at_place = needs.claims[die], np.array(run.order)
    _, taken, places = run.held[die]
    largest = claims.largest[at_place]
    working = needs.demand(at_place, die, run.held[die]) + (needs.options.pool_bytes or 0)
    room = np.maximum(taken + (places - 2) * largest, 0)
    rest = np.zeros((at_place.size + 1, at.PQ_WIDTH), working.dtype)
    for field, column in ((at.PQ_BYTES, working), (at.PQ_ROOM, room), (at.PQ_LARGEST, largest)):
        rest[:-1, field] = np.maximum.accumulate(column[::-1])[::-1]
    return rest


def _budget(graph: CommandGraph) -> int:
    """Decisions beyond which an episode is cut short, late releases aside."""
    return 4 * (len(graph.commands) + len(graph.buffers))


def _worst_ns(
    needs: Needs,
    tables: Tables,
    kernels: Sequence[tuple[Sequence[int], int]],
    links: Sequence[Sequence[int]],
    lift_ns: int,
) -> int:
    """A time that no finished episode exceeds: everything one by one at its slowest, four times over."""
    device = needs.device
    total = 0
    for row, times in kernels:
        for v in (0, at.PK_VARIANT):
            block = row[at.PK_COMPUTE_NS + v] + row[at.PK_BYTES + v] // row[at.PK_RATE + v] + 1
            total += (row[at.PK_LAUNCH_NS + v] + row[at.PK_BLOCKS] * block) * times
    total += sum(row[1] // row[0] + 1 for row in links)
    largest = max([size for size, moving in zip(needs.sizes, needs.moving, strict=True) if moving], default=0)
    both = 2 * (device.links["h2d"].latency_ns + device.links["d2h"].latency_ns)
    slowest = min(links[at.LINK_H2D][0], links[at.LINK_D2H][0], _fault_rate(device))
    steps = _budget(needs.graph)
    total += 2 * (tables.managed_bytes + steps * largest) * at.Q20 // slowest
    total += (len(tables.operands) + steps) * both + steps * lift_ns
    call = device.dispatch.wake_ns + device.dispatch.mix_switch_ns + device.host.sync_ns
    per_edge = device.dispatch.record_ns + device.host.record_event_ns + device.host.wait_event_ns
    page_bytes = device.memory.page_bytes
    faults = sum([size // page_bytes + 1 for size in needs.sizes]) * device.memory.fault_ns
    total += sum(tables.host_ns) + 4 * call * len(tables.host_ns)
    total += len(tables.preds) * per_edge + faults
    return 4 * total + max(tables.release_ns)


def _fault_rate(device: DeviceSpec) -> int:
    """Rate of a migration on demand (q20/ns): each group of pages pays one fault."""
    group = device.memory.page_bytes * device.memory.fault_group_pages * at.Q20
    rate = link_rate_q20(device, "h2d")
    return max(1, group // (-(-group // rate) + device.memory.fault_ns))


def lower(needs: Needs, run: Serial) -> Image:
    """Lay out and fill a program image; the bound and the length of a state are filled in later.

    Args:
        needs: What runs, where and how.
        run: A serial run that fits.

    Raises:
        InputError: Times or bytes that no 64 bits can count.
    """
    graph, device, options = needs.graph, needs.device, needs.options
    tables = gather(needs, run.order)
    kernels = list(zip(tables.kernel_rows, np.bincount(tables.kernels).tolist(), strict=True))
    classes = tables.class_rows
    pools, links = _pool_rows(device, classes, kernels), _link_rows(device, kernels)
    requests = max(tables.requests) + 1
    late = _late_rows(tables)
    eager = options.submission is Submission.EAGER
    implied = options.window is Window.STARTABLE
    lifted = min(lift_cap(device, options), max(needs.sizes, default=0))
    lift_ns = lifted * at.Q20 // sdma_rate_q20(device) + device.links["hbm"].latency_ns
    worst = _worst_ns(needs, tables, kernels, links, lift_ns)
    latency = options.objective is Objective.LATENCY
    header = {
        at.P_COMMANDS: len(graph.commands),
        at.P_EDGES: len(tables.preds),
        at.P_BUFFERS: len(graph.buffers),
        at.P_DIES: device.dies,
        at.P_CLASSES: len(classes),
        at.P_POOLS: len(pools),
        at.P_LINKS: len(links),
        at.P_REQUESTS: requests,
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
        at.P_HBM_BYTES: needs.capacity,
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
        at.P_STEP_BUDGET: _budget(graph) + len(late),
        at.P_GROUP_CAPACITY: sum(row[at.PP_CAPACITY] for row in pools) * device.dies + sum(needs.moving) + 1,
        at.P_WORST_NS: worst * requests if latency else worst,
        at.P_HOST_NS: sum(tables.host_ns),
    }
    coming = sum([size for size, moving in zip(needs.sizes, needs.moving, strict=True) if moving])
    _check_range(graph, pools, links, coming, header[at.P_WORST_NS])
    rest = [_rest_rows(needs, run, die) for die in range(device.dies)]
    blocks: dict[int, _Rows] = {
        at.P_AT_COMMAND: _rows(tables.columns, at.PC_WIDTH),
        at.P_AT_KERNEL: np.array(tables.kernel_rows, np.int64)[tables.kernels],
        at.P_AT_PRED: tables.preds,
        at.P_AT_SUCC: tables.succs,
        at.P_AT_OPERAND: tables.operands,
        at.P_AT_BUFFER: _rows(dict(enumerate(tables.buffers)), at.PB_WIDTH),
        at.P_AT_USER: tables.users,
        at.P_AT_DIE: _die_rows(needs),
        at.P_AT_CLASS: classes,
        at.P_AT_POOL: pools,
        at.P_AT_LINK: links,
        at.P_AT_STREAM: _stream_rows(device, options),
        at.P_AT_LATE: late,
        at.P_AT_REQUEST: _request_rows(tables),
        at.P_AT_FEATURE: np.zeros((header[at.P_COMMANDS], at.FEATURE_WORDS), np.int64),
        at.P_AT_RANKED: np.argsort(tables.ranks),
        at.P_AT_SERIAL: run.order,
        at.P_AT_DEMAND: _demand_rows(needs),
        at.P_AT_REST: np.concatenate(rest),
    }
    return _assemble(header, blocks)


def _stream_rows(device: DeviceSpec, options: RunOptions) -> list[list[int]]:
    priorities = options.stream_priorities or (0,) * options.streams
    honoured = device.limits.stream_priorities
    homes = options.stream_dies or tuple(s % device.dies for s in range(options.streams))
    return [[min(p, honoured - 1), die] for p, die in zip(priorities, homes, strict=True)]


def _rows(columns: Mapping[int, Sequence[int] | Image], width: int) -> Image:
    """Rows of a table of which the columns are given; what is not given is 0."""
    rows = np.zeros((len(columns[0]), width), np.int64)
    for field, column in columns.items():
        rows[:, field] = column
    return rows


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


def _assemble(header: dict[int, int], blocks: dict[int, _Rows]) -> Image:
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
