"""Who ran where and when: the finished :class:`Schedule` and the figures people read off it.

Rows are plain integers (nanoseconds, bytes, indices into the graph), in the order things started.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cann_env.device.cost import Q20, link_rate_q20
from cann_env.graph import CopyKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions


class CommandRun(NamedTuple):
    """One command: its stream, its place in that stream's queue, and its times."""

    command: int
    stream: int
    position: int
    issue_ns: int
    start_ns: int
    finish_ns: int


class BlockRun(NamedTuple):
    """Blocks of one kernel that started together.

    ``kernel`` counts within the command (0 for copies, callbacks and collectives); ``work_class`` is one of
    ``device.spec.CLASSES``, the class it really ran as; each block occupies that class's demand from
    ``start_ns`` to ``finish_ns``. ``kernel_start_ns`` is when the first blocks of this kernel started.
    """

    command: int
    kernel: int
    work_class: str
    blocks: int
    die: int
    start_ns: int
    finish_ns: int
    kernel_start_ns: int


class TransferRun(NamedTuple):
    """A buffer that moved between levels, or came to be or ceased to be in HBM; ``cause`` says how.

    ============= ======================================================================================
    cause         meaning
    ============= ======================================================================================
    ``fault``     migrates from the host because a command touches it; space is held from ``reserve_ns``
    ``prefetch``  the same because it was asked for beforehand
    ``touch``     takes space, at one instant, because a command is about to write all of it
    ``evict``     makes room at one instant: the host's copy is good
    ``writeback`` makes room: chosen at ``reserve_ns``, copied to the host, space given back at ``finish_ns``
    ``free``      gives its space back at one instant: nobody needs it any more
    ``lift``      ``size_bytes`` of it are copied from HBM into L2
    ============= ======================================================================================
    """

    buffer: int
    cause: str
    reserve_ns: int
    start_ns: int
    finish_ns: int
    size_bytes: int = 0


class Allocation(NamedTuple):
    """Where a device buffer lay in the address space of its home die.

    ``command`` is the first writer: the place is chosen when it is issued (``issue_ns``), the bytes are there
    from ``grant_ns`` (later only where something was still being written back) and given back at ``free_ns``,
    when the last user has finished. ``size_bytes`` is what the allocator took, rounding included.
    """

    buffer: int
    command: int
    address: int
    size_bytes: int
    issue_ns: int
    grant_ns: int
    free_ns: int


class CacheHit(NamedTuple):
    """What the kernel of a command found in L2 when it started: bytes of the operands it reads."""

    command: int
    kernel: int
    at_ns: int
    hit_bytes: int


class EventWait(NamedTuple):
    """``consumer``'s stream waits for an event recorded right behind ``producer``."""

    producer: int
    consumer: int


class HostCall(NamedTuple):
    """Time of the host thread.

    ``call`` is ``issue``, ``prefetch``, ``lift``, ``offload`` or ``wait``; ``target`` a command, a buffer or -1.
    """

    call: str
    target: int
    start_ns: int
    end_ns: int


class Stall(NamedTuple):
    """Waiting time summed over commands, by cause (ns).

    The first five are what a head at the front of its stream was waiting for; ``host`` is how long a command
    whose predecessors were done, and which was released, had not been submitted.
    """

    event: int
    fault: int
    slot: int
    cores: int
    dma: int
    host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What remains of a run.

    Attributes:
        graph, device, options: What was run, on what, and how.
        actions: The decisions that made it, in order; replaying them makes the same schedule.
        commands: One row a command, in order of start.
        blocks: See :class:`BlockRun`.
        transfers: See :class:`TransferRun`.
        allocations: Where each device buffer lay that some command allocated.
        hits: Kernels that found something in L2.
        waits: Event waits that were really submitted (implied ones are pruned), those for the reuse of memory
            included.
        host: What the host thread did.
        stall: Sums of waiting by cause.
        lower_bound_ns: The bound at time zero, for expected durations.
        peak_hbm_bytes: Most HBM of one die reserved at one instant.
        noise: Factor on each command's duration, in units of 2**-20 (all 2**20 without noise).
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    actions: tuple[int, ...]
    commands: tuple[CommandRun, ...]
    blocks: tuple[BlockRun, ...]
    transfers: tuple[TransferRun, ...]
    waits: tuple[EventWait, ...]
    host: tuple[HostCall, ...]
    stall: Stall
    lower_bound_ns: int
    peak_hbm_bytes: int
    noise: tuple[int, ...]
    allocations: tuple[Allocation, ...] = ()
    hits: tuple[CacheHit, ...] = ()

    @property
    def makespan_ns(self) -> int:
        """When the last command finished."""
        return max(run.finish_ns for run in self.commands)


# --- metrics ------------------------------------------------------------------------------------------

_CORE_POOLS = frozenset({"aic", "aiv"})
_KERNEL_CLASSES = frozenset({"cube", "vector", "mix", "aicpu"})
_COPY_CLASSES = frozenset({"h2d", "d2h", "sdma"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of one schedule.

    Attributes:
        makespan_ns: When the last command finished.
        lower_bound_ns: The schedule's bound at time zero.
        gap: Makespan over lower bound, less one; below zero only if noise made the work shorter.
        utilisation: By pool: time of running blocks times their demand, over capacity times makespan.
        ai_core_busy: Fraction of the makespan in which at least one aic or aiv works.
        peak_hbm_bytes: Most HBM reserved at one instant.
        stall_ns: Waiting summed over commands, by cause.
        link_bytes: Bytes that crossed each link: a copy within HBM reads and writes its bytes there, managed
            buffers move in whole allocation units.
        link_utilisation: By link: those bytes over what it could have carried in the makespan.
        copy_ns: Time in which at least one copy or migration is under way.
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
    stall_ns: dict[str, int]
    link_bytes: dict[str, int]
    link_utilisation: dict[str, float]
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
    copies += [(row.start_ns, row.finish_ns) for row in schedule.transfers]
    kernels = [(row.start_ns, row.finish_ns) for row in schedule.blocks if row.work_class in _KERNEL_CLASSES]
    copy_ns = _covered_ns(copies)
    latency = _latencies(schedule)
    link_bytes = _link_bytes(schedule)
    ordered = sorted(latency.values())
    return Metrics(
        makespan_ns=schedule.makespan_ns,
        lower_bound_ns=schedule.lower_bound_ns,
        gap=schedule.makespan_ns / schedule.lower_bound_ns - 1.0,
        utilisation=_utilisation(schedule, makespan),
        ai_core_busy=_ai_core_ns(schedule) / makespan,
        peak_hbm_bytes=schedule.peak_hbm_bytes,
        stall_ns=schedule.stall._asdict(),
        link_bytes=link_bytes,
        link_utilisation={
            link: size * Q20 / (link_rate_q20(schedule.device, link) * makespan)
            for link, size in link_bytes.items()
        },
        copy_ns=copy_ns,
        overlap_ns=copy_ns + _covered_ns(kernels) - _covered_ns(copies + kernels),
        latency_ns=latency,
        latency_mean_ns=sum(ordered) / len(ordered),
        latency_p90_ns=ordered[-(-9 * len(ordered) // 10) - 1],
        events=len(schedule.waits),
        streams=len({run.stream for run in schedule.commands}),
    )


def _covered_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of some intervals."""
    total, end = 0, 0
    for start, finish in sorted(intervals):
        total += max(finish - max(start, end), 0)
        end = max(end, finish)
    return total


def _utilisation(schedule: Schedule, makespan_ns: int) -> dict[str, float]:
    device = schedule.device
    dies = len({row.die for row in schedule.blocks})
    held = dict.fromkeys(device.pools, 0)
    for row in schedule.blocks:
        for pool, demand in device.classes[row.work_class].demand.items():
            held[pool] += demand * row.blocks * (row.finish_ns - row.start_ns)
    return {
        pool: held[pool] / (capacity * dies * makespan_ns) if capacity else 0.0
        for pool, capacity in device.pools.items()
    }


def _ai_core_ns(schedule: Schedule) -> int:
    classes = schedule.device.classes
    return _covered_ns(
        (row.start_ns, row.finish_ns)
        for row in schedule.blocks
        if not _CORE_POOLS.isdisjoint(classes[row.work_class].demand)
    )


def _link_bytes(schedule: Schedule) -> dict[str, int]:
    links, unit = schedule.device.links, schedule.device.memory.alignment_bytes
    total = dict.fromkeys(links, 0)
    for command in schedule.graph.commands:
        total["hbm"] += sum(kernel.bytes_read + kernel.bytes_written for kernel in command.kernels)
        if command.copy is CopyKind.D2D:
            total["hbm"] += 2 * command.size_bytes
        elif command.copy is not None:
            total[command.copy] += command.size_bytes
            total["hbm"] += command.size_bytes if links[command.copy].shares_hbm else 0
    for move in schedule.transfers:
        link = "d2h" if move.cause == "evict" else "h2d"
        if move.cause != "evict" or move.finish_ns > move.start_ns:
            size = -(-schedule.graph.buffers[move.buffer].size_bytes // unit) * unit
            total[link] += size
            total["hbm"] += size if links[link].shares_hbm else 0
    return total


def _latencies(schedule: Schedule) -> dict[str, int]:
    released: dict[str, int] = {}
    finished: dict[str, int] = {}
    for run in sorted(schedule.commands):
        command = schedule.graph.commands[run.command]
        released[command.request] = min(released.get(command.request, command.release_ns), command.release_ns)
        finished[command.request] = max(finished.get(command.request, 0), run.finish_ns)
    return {request: finished[request] - released[request] for request in finished}
