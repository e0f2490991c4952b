"""What work costs on a device: operations and bytes become nanoseconds and rates (a roofline).

Pure functions of numbers and a :class:`DeviceSpec`. Bytes are counted in units of 2**-20 byte and rates
in such units per nanosecond (``q20``), so that shares of a bandwidth stay exact integers; every
duration is rounded up. All results fit in an int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cann_env.device.attention import attention_flops
from cann_env.device.cost_cube import product_work
from cann_env.device.cost_vector import priced, vector_model
from cann_env.device.products import MULTIPLIES, product_of
from cann_env.device.rates import Q20, exact, rate_q20
from cann_env.device.spec import CLASSES, LINKS
from cann_env.device.typed import typed
from cann_env.device.work import work_of
from cann_env.units import NS_PER_S, InputError

if TYPE_CHECKING:
    from fractions import Fraction

    from cann_env.commands import Kernel
    from cann_env.device.products import Product
    from cann_env.device.spec import ClassSpec, DeviceSpec

Demand = tuple[tuple[str, int], ...]
"""What one block holds: pairs of a pool and its units."""

_LIMIT = 1 << 62
_MULTIPLYING = ("cube", "mix")
_VECTOR = ("vector", "mix")
_LINK_OF_ENGINE = {"h2d": "h2d", "d2h": "d2h", "sdma": "hbm"}


@dataclass(frozen=True, slots=True)
class KernelCost:
    """What one kernel costs on one class of core.

    Attributes:
        launch_ns: Paid once by the kernel, before its first blocks compute.
        compute_ns: Time of one block's arithmetic.
        bytes_q20: Bytes one block moves, in units of 2**-20 byte.
        rate_q20: Most that one block moves per nanosecond, in the same units; at least 1.
    """

    launch_ns: int
    compute_ns: int
    bytes_q20: int
    rate_q20: int


@dataclass(frozen=True, slots=True)
class Roofline:
    """How fast one class of work goes on a device; made once, it prices any number of kernels of the class.

    Attributes:
        device: Where.
        work_class: One of :data:`~cann_env.device.spec.CLASSES`.
        cores: Blocks that one die runs at once, at least 1.
        rate_q20: Most that one block moves per nanosecond, in units of 2**-20 byte.
        link_q20: What the link that its bytes cross carries, in the same units.
    """

    device: DeviceSpec
    work_class: str
    cores: int
    rate_q20: int
    link_q20: int

    def of(self, kernel: Kernel) -> KernelCost:
        """Cost of a kernel: by its tensors if they and its operator are known, else by operations and bytes.

        A measured duration comes before either; see :func:`kernel_cost`.

        Raises:
            InputError: The class has no rate for the type of the arithmetic, or the cost exceeds 2**62 ns.
        """
        if kernel.duration_ns is None and kernel.op:
            known = self._of_operator(typed(kernel))
            if known is not None:
                return known
        return self._of_numbers(kernel, kernel.flops, kernel.dtype)

    def _of_numbers(self, kernel: Kernel, flops: int, dtype: str) -> KernelCost:
        return self.cost(
            flops=flops,
            dtype=dtype,
            size_bytes=kernel.bytes_read + kernel.bytes_written,
            blocks=kernel.blocks,
            duration_ns=kernel.duration_ns,
        )

    def _of_operator(self, kernel: Kernel) -> KernelCost | None:
        """Cost of a product, attention or vector work; None if it is none of these or has no tensors."""
        if self.work_class in _MULTIPLYING:
            product = product_of(kernel) if self.device.classes["cube"].product else None
            if product is not None:
                return self._of_product(kernel, product)
            attention = attention_flops(kernel)
            if attention:
                return self._of_numbers(kernel, attention, kernel.inputs[0].dtype or kernel.dtype)
        return self._of_tensors(kernel) if is_streamed(self.device, self.work_class, kernel) else None

    def _of_product(self, kernel: Kernel, product: Product) -> KernelCost:
        """Cost of a product: what HBM need not deliver is compute, what nothing hides is launch."""
        _check_rate(self.device, "cube", product.dtype)
        blocks, at_once = kernel.blocks, min(kernel.blocks, self.cores)
        work = product_work(self.device, kernel, product, at_once, self.link_q20)
        compute = -(-work.busy_ns // -(-blocks // self.cores))
        bytes_q20 = -(-work.read_bytes // blocks) * Q20
        alone = min(work.read_rate_q20, self.link_q20 // at_once)
        # What is written behind the kernel loads HBM only as far as it does not prolong it.
        room = max(0, compute * alone - bytes_q20)
        bytes_q20 += min(room, -(-work.behind_bytes // blocks) * Q20)
        launch = _launch_ns(self.device, self.work_class, at_once) + work.exposed_ns
        return KernelCost(
            _fit(launch, "lasts too long", self.work_class),
            _fit(compute, "has too many operations", self.work_class),
            _fit(bytes_q20, "moves too many bytes", self.work_class),
            work.read_rate_q20,
        )

    def _of_tensors(self, kernel: Kernel) -> KernelCost:
        """Cost of vector work on tensors."""
        model = vector_model(self.device)
        assert model is not None  # the caller has looked
        waves = -(-kernel.blocks // self.cores)
        parts = priced(model, work_of(kernel), kernel.blocks, waves, self.link_q20)
        _fit(parts.launch_ns + waves * parts.compute_ns, "lasts too long", self.work_class)
        _fit(parts.bytes_q20, "moves too many bytes", self.work_class)
        return KernelCost(*parts)

    def cost(
        self, *, flops: int, dtype: str, size_bytes: int, blocks: int, duration_ns: int | None
    ) -> KernelCost:
        """Cost of a kernel or a transfer, see :func:`kernel_cost`, of numbers that are in range."""
        work_class = self.work_class
        bytes_q20 = _fit(-(-size_bytes // blocks) * Q20, "moves too many bytes", work_class)
        at_once = min(blocks, self.cores)
        if duration_ns is not None:
            compute = _fit(-(-duration_ns // -(-blocks // self.cores)), "lasts too long", work_class)
            alone = min(self.rate_q20, self.link_q20 // at_once)
            return KernelCost(0, compute, min(bytes_q20, compute * alone), self.rate_q20)
        compute = _compute_ns(self.device, work_class, flops, dtype, blocks) if flops else 0
        launch = _launch_ns(self.device, work_class, at_once)
        compute = _fit(compute, "has too many operations", work_class)
        return KernelCost(launch, compute, bytes_q20, self.rate_q20)

    def minimum_ns(self, cost: KernelCost, blocks: int, bytes_q20: int | None = None) -> int:
        """Least time of a kernel, see :func:`minimum_kernel_ns`.

        Args:
            cost: Of the kernel.
            blocks: Of the kernel.
            bytes_q20: Bytes of a block that cross the link (units of 2**-20 byte); None for all of ``cost``.

        Raises:
            InputError: The time exceeds 2**62 ns.
        """
        if bytes_q20 is None:
            bytes_q20 = cost.bytes_q20
        one_block = max(cost.compute_ns, -(-bytes_q20 // cost.rate_q20))
        on_cores = cost.launch_ns + -(-blocks // self.cores) * one_block
        on_link = -(-blocks * bytes_q20 // self.link_q20)
        return _fit(max(on_cores, on_link), "lasts too long", self.work_class)


def roofline(device: DeviceSpec, work_class: str, demand: Demand | None = None) -> Roofline:
    """How fast a class of work goes on a device; see :func:`cores_of_class` for ``demand``.

    Raises:
        InputError: The device cannot run the class, or never has what a block demands.
    """
    cores = cores_of_class(device, work_class, demand)
    if cores == 0 and demand is not None:
        held = ", ".join(f"{units} {pool}" for pool, units in demand)
        raise InputError(f"{device.name} cannot run class {work_class!r} with blocks that hold {held}")
    if cores == 0:
        raise InputError(f"{device.name} cannot run class {work_class!r}: its file demands no core for it")
    link = link_rate_q20(device, _link_of(work_class))
    return Roofline(device, work_class, cores, _block_rate_q20(device, work_class), link)


def cores_of_class(device: DeviceSpec, work_class: str, demand: Demand | None = None) -> int:
    """Blocks of a class that one die can run at once; 0 if the device cannot run the class.

    Args:
        device: Where.
        work_class: One of :data:`~cann_env.device.spec.CLASSES`.
        demand: What a block holds in place of what the class takes, see :class:`~cann_env.graph.Kernel`.

    Raises:
        InputError: ``work_class`` is none of :data:`~cann_env.device.spec.CLASSES`.
    """
    held = _class(device, work_class).demand
    if held and demand is not None:
        held = dict(demand)
    return min([device.pools.get(pool, 0) // cores for pool, cores in held.items()], default=0)


def link_rate_q20(device: DeviceSpec, link: str) -> int:
    """What a link carries per nanosecond, in units of 2**-20 byte: its bandwidth times its efficiency.

    Raises:
        InputError: ``link`` is none of :data:`~cann_env.device.spec.LINKS`.
    """
    if link not in device.links:
        raise InputError(f"link {link!r} of {device.name} is not known; write one of {', '.join(LINKS)}")
    spec = device.links[link]
    return rate_q20(spec.bandwidth_bytes_per_s, spec.efficiency)


def l2_rate_q20(device: DeviceSpec) -> int:
    """What the L2 of a die delivers per nanosecond, in units of 2**-20 byte."""
    return rate_q20(device.memory.l2_bandwidth_bytes_per_s, 1.0)


def sdma_rate_q20(device: DeviceSpec) -> int:
    """Most that one transfer inside the device moves per nanosecond, in units of 2**-20 byte."""
    return _block_rate_q20(device, "sdma")


def kernel_cost(
    device: DeviceSpec,
    work_class: str,
    *,
    flops: int,
    dtype: str,
    size_bytes: int,
    blocks: int,
    duration_ns: int | None,
    demand: Demand | None = None,
) -> KernelCost:
    """Cost of a kernel of equal blocks, or of a transfer by a DMA engine (one block, no operations).

    A block takes max(arithmetic at the efficiency the device file states, its bytes at its share of the
    bandwidth); the kernel pays its launch once. A transfer has its link's latency as launch, so add
    no other fixed cost.

    Args:
        device: Where it runs.
        work_class: One of :data:`~cann_env.device.spec.CLASSES`.
        flops: Operations of the whole kernel.
        dtype: Type of the arithmetic; not looked at when there are no operations to time.
        size_bytes: Bytes the whole kernel reads and writes.
        blocks: Blocks, at least 1; more than the cores of the class run in waves.
        duration_ns: Measured time of the whole kernel. It replaces the model: there is no launch, a block
            computes for its wave's part, and its bytes are cut to what it can move in that time with the
            die to itself, so that the kernel alone takes the measured time.
        demand: See :func:`cores_of_class`.

    Raises:
        InputError: The device cannot run the class, the class has no rate for ``dtype``, a number is negative
            or the cost exceeds 2**62 ns (146 years).
    """
    for name, number, least in (
        ("flops", flops, 0),
        ("size_bytes", size_bytes, 0),
        ("blocks", blocks, 1),
        ("duration_ns", duration_ns or 0, 0),
    ):
        if number < least:
            raise InputError(f"kernel of class {work_class!r} has {name} {number}; it is at least {least}")
    return roofline(device, work_class, demand).cost(
        flops=flops, dtype=dtype, size_bytes=size_bytes, blocks=blocks, duration_ns=duration_ns
    )


def cost_of(device: DeviceSpec, work_class: str, kernel: Kernel) -> KernelCost:
    """Cost of a kernel of a graph on one class of work, see :meth:`Roofline.of`.

    Raises:
        InputError: As :func:`kernel_cost`.
    """
    return roofline(device, work_class, kernel.demand).of(kernel)


def is_streamed(device: DeviceSpec, work_class: str, kernel: Kernel) -> bool:
    """Whether a kernel is priced as vector work on tensors: it names them, and multiplies no matrices.

    Vector cores do it, mix kernels that leave the cube idle, and cores that hold both units.
    """
    able = work_class in _VECTOR or (work_class == "cube" and not device.pools["aiv"])
    named = kernel.duration_ns is None and kernel.op and (kernel.inputs or kernel.outputs)
    if not able or not named or device.classes["vector"].streaming is None:
        return False
    return kernel.op not in MULTIPLIES and not attention_flops(kernel)


def minimum_kernel_ns(
    device: DeviceSpec, work_class: str, cost: KernelCost, blocks: int, demand: Demand | None = None
) -> int:
    """Least time of a kernel that has a whole die to itself; no schedule can beat it.

    All bytes of ``cost`` are taken to cross the HBM link. Where some may be found in L2, pass a cost
    without them. See :func:`cores_of_class` for ``demand``.

    Raises:
        InputError: The device cannot run the class, or the time exceeds 2**62 ns.
    """
    return roofline(device, work_class, demand).minimum_ns(cost, blocks)


def _class(device: DeviceSpec, work_class: str) -> ClassSpec:
    if work_class not in device.classes:
        raise InputError(
            f"class {work_class!r} of {device.name} is not known; write one of {', '.join(CLASSES)}"
        )
    return device.classes[work_class]


def _link_of(work_class: str) -> str:
    return _LINK_OF_ENGINE.get(work_class, "hbm")


def _launch_ns(device: DeviceSpec, work_class: str, first_wave: int) -> int:
    """Launch of a kernel, or the fixed cost of a transfer, which is its link's latency."""
    if work_class in _LINK_OF_ENGINE:
        return device.links[_link_of(work_class)].latency_ns
    spec = device.classes[work_class]
    return spec.launch_base_ns + spec.launch_per_block_ns * first_wave


def _compute_ns(device: DeviceSpec, work_class: str, flops: int, dtype: str, blocks: int) -> int:
    spec = device.classes[work_class]
    _check_rate(device, work_class, dtype)
    per_ns = _flops_per_ns(spec.flops_per_cycle[dtype], device.clock_hz, spec.compute_efficiency)
    return -(-flops * per_ns.denominator // (blocks * per_ns.numerator))


def _check_rate(device: DeviceSpec, work_class: str, dtype: str) -> None:
    rates = device.classes[work_class].flops_per_cycle
    if dtype not in rates:
        known = ", ".join(rates) or "none, it does no arithmetic"
        raise InputError(
            f"class {work_class!r} of {device.name} has no rate for dtype {dtype!r}; it has: {known}"
        )


@cache
def _flops_per_ns(per_cycle: float, clock_hz: int, efficiency: float) -> Fraction:
    """What a core reaches; every kernel of a class and dtype asks for the same."""
    return exact(per_cycle) * clock_hz * exact(efficiency) / NS_PER_S


def _block_rate_q20(device: DeviceSpec, work_class: str) -> int:
    """Cap of one block: the port of its core, or of its engine; an engine without one has its whole link."""
    port = device.classes[work_class].bytes_per_cycle
    if port > 0:
        return rate_q20(device.clock_hz, port)
    return link_rate_q20(device, _link_of(work_class))


def _fit(number: int, problem: str, work_class: str) -> int:
    if number >= _LIMIT:
        raise InputError(f"kernel of class {work_class!r} {problem}: {number} does not fit below 2**62")
    return number
