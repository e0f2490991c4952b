"""Figures people read off a schedule: nothing is run again, everything is summed from its rows.

A :class:`~cann_env.schedule.Schedule` goes in, :class:`Metrics` come out.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cann_env.capacity import aligned_bytes, capacity_bytes, is_resident
from cann_env.device.cost import link_rate_q20
from cann_env.device.rates import Q20
from cann_env.graph import CopyKind
from cann_env.spans import covered_ns
from cann_env.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.graph import Command
    from cann_env.schedule import Allocation, Schedule, TransferRun

_CORE_POOLS = frozenset({"aic", "aiv"})
_KERNEL_CLASSES = frozenset({"cube", "vector", "mix", "aicpu"})
_COPY_CLASSES = frozenset({"h2d", "d2h", "sdma"})
_MOVES = {"fault": "h2d", "prefetch": "h2d", "writeback": "d2h"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of one schedule.

    Attributes:
        makespan_ns: When the last command finished.
        lower_bound_ns: The schedule's bound at time zero.
        gap: Makespan over lower bound, less one; below zero only if noise made the work shorter.
        utilisation: By pool: time of running blocks times their demand, over capacity times makespan.
        ai_core_busy: Fraction of the makespan in which at least one aic or aiv works.
        peak_hbm_bytes: Most HBM of one die reserved at one instant.
        fragmentation: Worst over all placements of device buffers: part of the free bytes of the address
            space that lie in holes too small for what was placed. It is 0 if all places have one size and the
            space is a multiple of it, as where each buffer takes one block of ``pool_block_bytes``; else
            equal places too leave a rest at the top that counts.
        rounding: Bytes that the allocator took beyond the sizes of the buffers, over all it took.
        stall_ns: Waiting summed over commands, by cause.
        link_bytes: Bytes that crossed each link, those read from L2 as link ``l2``: a copy within HBM reads
            and writes its bytes there, managed buffers move in whole allocation units. A transfer that is
            still under way when the last command finishes is not counted.
        link_utilisation: By link: those bytes over what all dies in use could have carried in the makespan.
        l2_hit_bytes: Bytes of operands that kernels found in L2 when they started.
        l2_hit_rate: Those over the sizes of all operands that kernels read.
        writeback_bytes: Bytes of managed buffers that had been written back to the host by the end.
        copy_ns: Time in which at least one copy or migration is under way, until the last command finishes.
        overlap_ns: The part of it in which at least one kernel runs too.
        latency_ns: By request, from the release of its first command to the finish of its last.
        latency_mean_ns: Mean over requests.
        latency_p90_ns: Nine requests of ten are done within this time (nearest rank).
        events: Event waits that were submitted.
        streams: Streams that were used.
    """

    makespan_ns: int
    lower_bound_ns: int
    gap: float
    utilisation: dict[str, float]
    ai_core_busy: float
    peak_hbm_bytes: int
    fragmentation: float
    rounding: float
    stall_ns: dict[str, int]
    link_bytes: dict[str, int]
    link_utilisation: dict[str, float]
    l2_hit_bytes: int
    l2_hit_rate: float
    writeback_bytes: int
    copy_ns: int
    overlap_ns: int
    latency_ns: dict[str, int]
    latency_mean_ns: float
    latency_p90_ns: int
    events: int
    streams: int

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers and dictionaries, ready for ``json.dumps``."""
        return asdict(self)


def metrics(schedule: Schedule) -> Metrics:
    """Compute the figures of a schedule; nothing is run again."""
    makespan = max(schedule.makespan_ns, 1)
    copies = [(row.start_ns, row.finish_ns) for row in schedule.blocks if row.work_class in _COPY_CLASSES]
    copies += [(row.start_ns, min(row.finish_ns, makespan)) for row in schedule.transfers]
    kernels = [(row.start_ns, row.finish_ns) for row in schedule.blocks if row.work_class in _KERNEL_CLASSES]
    copy_ns = covered_ns(copies)
    latency = _latencies(schedule)
    link_bytes = _link_bytes(schedule)
    ordered = sorted(latency.values())
    hit_bytes = sum(row.hit_bytes for row in schedule.hits)
    return Metrics(
        makespan_ns=schedule.makespan_ns,
        lower_bound_ns=schedule.lower_bound_ns,
        gap=schedule.makespan_ns / schedule.lower_bound_ns - 1.0,
        utilisation=_utilisation(schedule, makespan),
        ai_core_busy=ai_core_ns(schedule) / makespan,
        peak_hbm_bytes=schedule.peak_hbm_bytes,
        fragmentation=max(
            (part for die in _dies(schedule) for part in _fragments(schedule, die)), default=0.0
        ),
        rounding=_rounding(schedule),
        stall_ns=schedule.stall._asdict(),
        link_bytes=link_bytes,
        link_utilisation={
            link: size * Q20 / (_rate_q20(schedule, link) * len(_dies(schedule)) * makespan)
            for link, size in link_bytes.items()
        },
        l2_hit_bytes=hit_bytes,
        l2_hit_rate=hit_bytes / max(_operand_bytes(schedule), 1),
        writeback_bytes=sum(
            aligned_bytes(schedule.graph.buffers[move.buffer], schedule.device)
            for move in _finished(schedule)
            if move.cause == "writeback"
        ),
        copy_ns=copy_ns,
        overlap_ns=copy_ns + covered_ns(kernels) - covered_ns(copies + kernels),
        latency_ns=latency,
        latency_mean_ns=sum(ordered) / len(ordered),
        latency_p90_ns=ordered[-(-9 * len(ordered) // 10) - 1],
        events=len(schedule.waits),
        streams=len({run.stream for run in schedule.commands}),
    )


def _dies(schedule: Schedule) -> list[int]:
    """Dies on which something ran or moved."""
    buffers = schedule.graph.buffers
    used = {buffers[row.buffer].die for row in schedule.transfers if row.start_ns <= schedule.makespan_ns}
    used |= {buffers[row.buffer].die for row in schedule.allocations}
    return sorted(used.union(row.die for row in schedule.blocks))


def _finished(schedule: Schedule) -> list[TransferRun]:
    """The transfers that were over when the last command finished."""
    end_ns = schedule.makespan_ns
    return [row for row in schedule.transfers if row.finish_ns <= end_ns]


def _utilisation(schedule: Schedule, makespan_ns: int) -> dict[str, float]:
    device, dies = schedule.device, len({row.die for row in schedule.blocks})
    held = dict.fromkeys(device.pools, 0)
    for row in schedule.blocks:
        for pool, demand in schedule.demand_of(row).items():
            held[pool] += demand * row.blocks * (row.finish_ns - row.start_ns)
    return {
        pool: held[pool] / (capacity * dies * makespan_ns) if capacity else 0.0
        for pool, capacity in device.pools.items()
    }


def ai_core_ns(schedule: Schedule) -> int:
    """Time in which at least one aic or aiv works."""
    return covered_ns(
        (row.start_ns, row.finish_ns)
        for row in schedule.blocks
        if not _CORE_POOLS.isdisjoint(schedule.demand_of(row))
    )


def _latencies(schedule: Schedule) -> dict[str, int]:
    released: dict[str, int] = {}
    finished: dict[str, int] = {}
    for run in sorted(schedule.commands):
        command = schedule.graph.commands[run.command]
        released[command.request] = min(released.get(command.request, command.release_ns), command.release_ns)
        finished[command.request] = max(finished.get(command.request, 0), run.finish_ns)
    return {request: finished[request] - released[request] for request in finished}


# --- links and L2 -------------------------------------------------------------------------------------


def _rate_q20(schedule: Schedule, link: str) -> int:
    if link == "l2":
        return max(1, schedule.device.memory.l2_bandwidth_bytes_per_s * Q20 // NS_PER_S)
    return link_rate_q20(schedule.device, link)


def _sizes(schedule: Schedule, names: Iterable[str]) -> int:
    graph = schedule.graph
    return sum(aligned_bytes(graph.buffers[graph.buffer_index[name]], schedule.device) for name in names)


def _operand_bytes(schedule: Schedule) -> int:
    """Sizes of what kernels read; a buffer counts once for each kernel."""
    commands = schedule.graph.commands
    return sum(len(command.kernels) * _sizes(schedule, command.reads) for command in commands)


def _link_bytes(schedule: Schedule) -> dict[str, int]:
    links = schedule.device.links
    total = dict.fromkeys((*links, "l2"), 0)
    hits = {(row.command, row.kernel): row.hit_bytes for row in schedule.hits}
    dies = {row.command: row.die for row in schedule.blocks}
    for i, command in enumerate(schedule.graph.commands):
        for k, kernel in enumerate(command.kernels):
            size = kernel.bytes_read + kernel.bytes_written
            found, remote = _parts(schedule, command, size, hits.get((i, k), 0), dies[i])
            total["hbm"] += size - found
            total["l2"] += found
            total["die"] += remote
        if command.copy is CopyKind.D2D:
            total["hbm"] += 2 * command.size_bytes
        elif command.copy is not None:
            total[command.copy] += command.size_bytes
            total["hbm"] += command.size_bytes if links[command.copy].shares_hbm else 0
    for move in _finished(schedule):
        if move.cause == "lift":
            total["hbm"] += move.size_bytes
        elif move.cause in _MOVES:
            link, size = (
                _MOVES[move.cause],
                aligned_bytes(schedule.graph.buffers[move.buffer], schedule.device),
            )
            total[link] += size
            total["hbm"] += size if links[link].shares_hbm else 0
    return total


def _parts(schedule: Schedule, command: Command, size: int, hit: int, die: int) -> tuple[int, int]:
    """Bytes of a kernel that came from L2 and from other dies."""
    graph = schedule.graph
    operands = (*command.reads, *command.writes)
    remote = _sizes(schedule, (n for n in operands if graph.buffers[graph.buffer_index[n]].die != die))
    if not (hit or remote):
        return 0, 0
    every = _sizes(schedule, operands)
    found = min(size, -(-size * hit // every))
    return found, min(size - found, -(-size * remote // every))


# --- the address space --------------------------------------------------------------------------------


def _rounding(schedule: Schedule) -> float:
    taken = sum(row.size_bytes for row in schedule.allocations)
    asked = sum(schedule.graph.buffers[row.buffer].size_bytes for row in schedule.allocations)
    return (taken - asked) / taken if taken else 0.0


def _fragments(schedule: Schedule, die: int) -> Iterator[float]:
    """For each placement on a die the part of the free bytes that lie in holes too small for it."""
    buffers, options, device = schedule.graph.buffers, schedule.options, schedule.device
    resident = [b for b in buffers if b.die == die and is_resident(b, device)]
    bottom = sum(aligned_bytes(buffer, device) for buffer in resident)
    top = capacity_bytes(schedule.graph, device, options)
    if options.pool_bytes is not None:
        top = bottom + options.pool_bytes
    if options.pool_block_bytes is not None:
        top -= (top - bottom) % options.pool_block_bytes
    live: list[Allocation] = []
    for row in sorted(schedule.allocations, key=lambda row: (row.issue_ns, row.address)):
        if buffers[row.buffer].die != die:
            continue
        live = [other for other in live if other.free_ns > row.issue_ns]
        holes = _holes(live, bottom, top)
        free = sum(size * count for size, count in holes.items())
        yield sum(size * count for size, count in holes.items() if size < row.size_bytes) / max(free, 1)
        insort(live, row, key=lambda other: other.address)


def _holes(live: list[Allocation], bottom: int, top: int) -> Counter[int]:
    """How many holes there are of each size, between places in order of address."""
    holes: Counter[int] = Counter()
    for row in live:
        holes[max(row.address - bottom, 0)] += 1
        bottom = row.address + row.size_bytes
    holes[max(top - bottom, 0)] += 1
    return holes
