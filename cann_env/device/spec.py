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
class ProductSpec:
    """How products of matrices go, where their shapes are known; see :mod:`cann_env.device.cost_cube`.

    Attributes:
        load_bytes_per_cycle: Operands that a core loads from L2 per cycle.
        read_bytes_per_cycle: Operands that a core reads from HBM per cycle.
        store_bytes_per_cycle: Results that a core stores per cycle.
        unfold_bytes_per_cycle: Elements of an image that a core unfolds for a convolution per cycle.
        turned: Times that a first matrix takes to load which lies the other way round in memory.
        exposed: Part of multiplying, loading, reading and storing that the longest of them does not hide.
        resident: Part of operands much smaller than L2 that is found there.
        convolution_efficiency, input_gradient_efficiency, filter_gradient_efficiency: Fraction of the peak
            that a convolution and its two gradients reach where nothing else binds.
        fill_ns: From the first block to the first multiplication, and from the last to the end.
    """

    load_bytes_per_cycle: float
    read_bytes_per_cycle: float
    store_bytes_per_cycle: float
    unfold_bytes_per_cycle: float
    turned: float
    exposed: float
    resident: float
    convolution_efficiency: float
    input_gradient_efficiency: float
    filter_gradient_efficiency: float
    fill_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingSpec:
    """How vector work goes, where its tensors are known; see :mod:`cann_env.device.cost_vector`.

    Attributes:
        port_bytes_per_cycle: Most bytes that a core reads from HBM, and as many that it writes, per cycle.
        mixed_efficiency: Fraction of HBM's bandwidth when as much is written as read.
        one_way: Fraction of it when all bytes go one way.
        written: Part of what is written that reaches HBM while the kernel runs; the rest stays in L2.
        held: Part of L2 in which what was written last is found again.
        arithmetic: Speed of a core in cycles of a 910B vector core per cycle.
        launch_ns: Launch, drain and one wait for memory.
        phase_ns: Each further wait, where work comes in phases.
        fill_ns: Most that the fill of the pipeline adds.
        request_ns: Time of a core for a row that it asks for alone.
    """

    port_bytes_per_cycle: float
    mixed_efficiency: float
    one_way: float
    written: float
    held: float
    arithmetic: float
    launch_ns: int
    phase_ns: int
    fill_ns: int
    request_ns: int


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
        product: How it multiplies matrices of known shape; None if the file does not say, and for all classes
            but ``cube``.
        streaming: How it moves and computes tensors of known shape; None if the file does not say, and for
            all classes but ``vector``.
    """

    demand: Mapping[str, int]
    max_active: int
    flops_per_cycle: Mapping[str, float]
    compute_efficiency: float
    bytes_per_cycle: float
    launch_base_ns: int
    launch_per_block_ns: int
    product: ProductSpec | None = None
    streaming: StreamingSpec | None = None


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
        max_notifies: Notify ids.
        stream_priorities: Number of priority levels that are honoured; 1 if priorities are ignored.
    """

    max_streams: int
    max_concurrent_streams: int
    queue_depth: int
    max_events: int
    max_notifies: int
    stream_priorities: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """Host time of one API call.

    Attributes:
        launch_kernel_ns: Submits a kernel, or a collective.
        memcpy_async_ns: Submits a copy.
        launch_callback_ns: Submits a host function.
        record_event_ns: Submits the record of an event.
        wait_event_ns: Submits a wait for an event.
        prefetch_ns: Asks for the move of a buffer.
        sync_ns: Returns from a wait for the device.
    """

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
