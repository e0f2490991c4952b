"""Device models: what a system-on-chip can do, read from ``configs/devices/*.toml``.

A :class:`DeviceSpec` is plain data. Every value in a device file carries its unit and where it
comes from (``measured``, ``documented`` or ``assumed``); the loader refuses what it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

POOLS = ("aic", "aiv", "aicpu", "h2d", "d2h", "sdma", "callback", "hcom")
"""What a block can occupy: three pools of cores, three DMA engines, the host's callback thread and
the collective engine. A die has each of them once."""

CLASSES = ("cube", "vector", "mix", "aicpu", "h2d", "d2h", "sdma", "callback", "hcom")
"""Classes of work; each says which pools a block takes and how fast it goes there."""

LINKS = ("hbm", "h2d", "d2h", "die")
"""Shared bandwidths that the engine divides max-min fairly."""

ASSUMED = "assumed"
"""What tables and titles say of numbers that no recording of the chip stands behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSpec:
    """How one class of work runs.

    Attributes:
        demand: Cores a block takes, by pool; ``{}`` if the device cannot run this class.
        max_active: Streams of this class whose head may be active at once.
        flops_per_cycle: Operations a core does per cycle, by dtype, at peak; empty for engines.
        compute_efficiency: Fraction of the peak that is reached, in (0, 1].
        bytes_per_cycle: Most bytes a core moves to and from HBM per cycle.
        launch_base_ns: Launch part of a kernel, paid once.
        launch_per_block_ns: Added launch time for each block of the first wave.
    """

    demand: Mapping[str, int]
    max_active: int
    flops_per_cycle: Mapping[str, float]
    compute_efficiency: float
    bytes_per_cycle: float
    launch_base_ns: int
    launch_per_block_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A shared bandwidth.

    Attributes:
        bandwidth_bytes_per_s: Raw bandwidth, one direction.
        efficiency: Fraction of it that data sees, in (0, 1].
        latency_ns: Fixed cost of one transfer.
        shares_hbm: Copies over this link also load the HBM link.
    """

    bandwidth_bytes_per_s: int
    efficiency: float
    latency_ns: int
    shares_hbm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpec:
    """Capacities and the cost of moving pages.

    Attributes:
        hbm_bytes: Device memory a program can use, per die.
        l2_bytes: Last-level cache per die.
        l2_bandwidth_bytes_per_s: Read bandwidth of the L2.
        l2_prefetch_max_bytes: Most bytes one prefetch into L2 may lift.
        page_bytes: Granularity of migration on demand.
        fault_ns: Latency of one page fault.
        fault_group_pages: Pages brought by one fault.
        alignment_bytes: Alignment of an allocation.
        malloc_ns, free_ns: Host time of an allocation and a release through the runtime.
        pool_malloc_ns, pool_free_ns: The same from a pool.
        pool_min_block_bytes: Least that a pool with size classes gives.
        host_shares_dram: Host and device use one DRAM (zero copy is possible).
        managed_prefetch: The runtime can prefetch managed memory here.
    """

    hbm_bytes: int
    l2_bytes: int
    l2_bandwidth_bytes_per_s: int
    l2_prefetch_max_bytes: int
    page_bytes: int
    fault_ns: int
    fault_group_pages: int
    alignment_bytes: int
    malloc_ns: int
    free_ns: int
    pool_malloc_ns: int
    pool_free_ns: int
    pool_min_block_bytes: int
    host_shares_dram: bool
    managed_prefetch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSpec:
    """What runs out.

    Attributes:
        max_streams: Streams that can be created.
        max_concurrent_streams: Streams whose head may be active at once, all classes together.
        queue_depth: Commands a stream's queue can hold.
        max_events: Event ids.
        stream_priorities: Number of priority levels that are honoured; 1 if priorities are ignored.
    """

    max_streams: int
    max_concurrent_streams: int
    queue_depth: int
    max_events: int
    stream_priorities: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """Host time of one API call, in nanoseconds."""

    launch_kernel_ns: int
    memcpy_async_ns: int
    launch_callback_ns: int
    record_event_ns: int
    wait_event_ns: int
    prefetch_ns: int
    sync_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSpec:
    """Device time between commands.

    Attributes:
        gap_ns: Between two queued commands of one stream.
        mix_switch_ns: The same where one of them is a mix kernel and the other is not.
        record_ns: An event record occupies its stream.
        wait_ns: A wait that is already satisfied occupies its stream.
        wake_ns: From an event record to the start of a stream that was blocked on it.
    """

    gap_ns: int
    mix_switch_ns: int
    record_ns: int
    wait_ns: int
    wake_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value comes from.

    Attributes:
        kind: ``measured``, ``documented`` or ``assumed``.
        note: In a few words: which document or measurement, or why it was assumed.
    """

    kind: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One system-on-chip.

    Attributes:
        name: For example ``ascend910b2``.
        title: What it is sold as.
        dies: Dies in the package; pools, HBM and L2 are per die.
        clock_hz: Core clock.
        pools: Capacity of each of :data:`POOLS`, per die. A device made in code may have more behind them, of
            any name, for kernels that state their own demand.
        classes: One :class:`ClassSpec` for each of :data:`CLASSES`.
        links: One :class:`LinkSpec` for each of :data:`LINKS`.
        memory, limits, host, dispatch: See there.
        sources: Provenance of every value by its dotted key, for example ``pools.aic``.
        calibrated: False where no recorded trace of this chip exists (every latency is scaled); see
            :attr:`label`.
    """

    name: str
    title: str
    dies: int
    clock_hz: int
    pools: Mapping[str, int]
    classes: Mapping[str, ClassSpec]
    links: Mapping[str, LinkSpec]
    memory: MemorySpec
    limits: LimitSpec
    host: HostSpec
    dispatch: DispatchSpec
    sources: Mapping[str, Source]
    calibrated: bool

    @property
    def label(self) -> str:
        """The name for tables and titles; it says so where the device's numbers are assumed."""
        return self.name if self.calibrated else f"{self.name} ({ASSUMED})"

    @property
    def pool_names(self) -> tuple[str, ...]:
        """All pools: :data:`POOLS`, then the further ones."""
        return *POOLS, *(name for name in self.pools if name not in POOLS)
