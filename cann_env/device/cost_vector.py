"""How long a vector kernel lasts: its work against ports, memory, L2 and arithmetic of a chip.

A kernel pays its launch, waits once for memory in each of its phases, and then moves and computes. What it
reads and writes passes the ports of its cores, each direction for itself; L2 is read faster than HBM. What is
not found there comes from HBM, and a part of what is written goes there while the kernel runs; HBM is faster
when all bytes go one way. Memory and arithmetic overlap in part (the root of the sum of their squares), and a
pipeline has to fill, which costs a short kernel as much as its work and a long one a fixed time at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.rates import Q20
from cann_env.units import NS_PER_S

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.device.work import VectorWork


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorModel:
    """The hardware that vector kernels meet. Rates are bytes per nanosecond, which is GB/s.

    Attributes:
        cores: Vector cores that work at once.
        clock_ghz: Core clock.
        port_rate: One core, from HBM, and as much on the way out.
        l2_rate: One core, from L2.
        hbm_rate: Raw bandwidth of HBM.
        mixed_efficiency: Fraction of it when as much is written as read.
        one_way: Fraction of it when all bytes go one way.
        written: Part of the bytes written that reach HBM while the kernel runs; the rest stays in L2.
        l2_bytes: Most that can stay there.
        arithmetic: Speed of arithmetic in terms of a 910B core's cycles.
        launch_ns: Launch, drain and one wait for memory.
        launch_per_block_ns: Added for each block of the first wave.
        phase_ns: Each further wait.
        fill_ns: Most that filling the pipeline adds.
        request_ns: Time of a core for a row that it asks for alone.
    """

    cores: int
    clock_ghz: float
    port_rate: float
    l2_rate: float
    hbm_rate: float
    mixed_efficiency: float
    one_way: float
    written: float
    l2_bytes: float
    arithmetic: float
    launch_ns: float
    launch_per_block_ns: float
    phase_ns: float
    fill_ns: float
    request_ns: float


def fixed_ns(model: VectorModel, work: VectorWork, blocks: int) -> float:
    """Launch and waits: what a kernel lasts that moves and computes next to nothing."""
    at_once = min(blocks, model.cores)
    return model.launch_ns + model.launch_per_block_ns * at_once + model.phase_ns * (work.phases - 1)


def hbm_bytes(model: VectorModel, work: VectorWork, found_bytes: int = 0) -> tuple[float, float]:
    """Bytes that HBM delivers and takes while a kernel runs: not found in L2, and not staying there."""
    missed = work.fetched_bytes * (1 - _hit(work, found_bytes))
    return missed, max(work.written_bytes * model.written, work.written_bytes - model.l2_bytes)


def _hit(work: VectorWork, found_bytes: int) -> float:
    """Part of what a kernel reads that lies in L2."""
    return min(found_bytes, work.read_bytes) / work.read_bytes if work.read_bytes else 0.0


def hbm_ns(model: VectorModel, missed: float, written: float) -> float:
    """Time of HBM for bytes that it delivers and bytes that it takes."""
    both = missed + written
    if not both:
        return 0.0
    mixed = 4 * missed * written / (both * both)
    efficiency = model.one_way + (model.mixed_efficiency - model.one_way) * mixed
    return both / (model.hbm_rate * efficiency)


def port_ns(model: VectorModel, work: VectorWork, at_once: int, found_bytes: int) -> float:
    """Time of the cores' ports: of reading from HBM and then from L2, or of writing if that is longer."""
    hit = _hit(work, found_bytes)
    read = work.read_bytes * ((1 - hit) / model.port_rate + hit / model.l2_rate)
    return max(read, work.written_bytes / model.port_rate) / at_once


def body_ns(model: VectorModel, work: VectorWork, blocks: int, found_bytes: int, hbm: float) -> float:
    """Time after the launch: ports and HBM, arithmetic, and the fill of the pipeline.

    Args:
        model: The hardware.
        work: The kernel's.
        blocks: Of the kernel; those beyond the cores run in waves.
        found_bytes: Bytes of its inputs that lie in L2 when it starts.
        hbm: Time of HBM, see :func:`hbm_ns`.
    """
    at_once = min(blocks, model.cores)
    port = port_ns(model, work, at_once, found_bytes)
    memory = sqrt(sqrt(port**4 + hbm**4))
    compute = work.cycles / (at_once * model.clock_ghz * model.arithmetic)
    compute += work.requests * model.request_ns / at_once
    body = sqrt(memory * memory + compute * compute)
    return body + model.fill_ns * body / (body + model.fill_ns) if body else 0.0


def alone_ns(model: VectorModel, work: VectorWork, blocks: int, found_bytes: int = 0) -> int:
    """How long a kernel lasts that has the die to itself.

    Args:
        model: The hardware.
        work: The kernel's.
        blocks: Of the kernel, at least 1.
        found_bytes: Bytes of its inputs that lie in L2 when it starts.
    """
    hbm = hbm_ns(model, *hbm_bytes(model, work, found_bytes))
    return ceil(fixed_ns(model, work, blocks) + body_ns(model, work, blocks, found_bytes, hbm))


def vector_model(device: DeviceSpec) -> VectorModel | None:
    """What a device file says of its vector cores; None if it says nothing of work on tensors.

    Where vector units sit inside the cube cores, those are counted.
    """
    spec = device.classes["vector"].streaming
    if spec is None:
        return None
    demand = device.classes["vector"].demand
    cores = min((device.pools[pool] // held for pool, held in demand.items()), default=1)
    clock = device.clock_hz / NS_PER_S
    port = spec.port_bytes_per_cycle * clock
    return VectorModel(
        cores=cores,
        clock_ghz=clock,
        port_rate=port,
        l2_rate=max(port, device.memory.l2_bandwidth_bytes_per_s / NS_PER_S / cores),
        hbm_rate=device.links["hbm"].bandwidth_bytes_per_s / NS_PER_S,
        mixed_efficiency=spec.mixed_efficiency,
        one_way=spec.one_way,
        written=spec.written,
        l2_bytes=device.memory.l2_bytes * spec.held,
        arithmetic=spec.arithmetic,
        launch_ns=spec.launch_ns,
        launch_per_block_ns=device.classes["vector"].launch_per_block_ns,
        phase_ns=spec.phase_ns,
        fill_ns=spec.fill_ns,
        request_ns=spec.request_ns,
    )


class Priced(NamedTuple):
    """A vector kernel in the engine's terms.

    Attributes:
        launch_ns: Paid once.
        compute_ns: Of one wave of blocks, though all inputs are found in L2.
        bytes_q20: Of one block, in units of 2**-20 byte, that load HBM if nothing is found.
        rate_q20: Most that one block moves per nanosecond, in the same units.
    """

    launch_ns: int
    compute_ns: int
    bytes_q20: int
    rate_q20: int


def priced(model: VectorModel, work: VectorWork, blocks: int, waves: int, link_q20: int) -> Priced:
    """Split a kernel's time so that the engine, which knows launch, arithmetic and rate, finds it again.

    With nothing in L2 the kernel alone lasts :func:`alone_ns`. With all inputs there, what it reads comes at
    L2's pace, down to the time that ports and arithmetic need.

    Args:
        model: The hardware.
        work: The kernel's.
        blocks: Of the kernel.
        waves: In which the engine runs them.
        link_q20: What the HBM link carries, in units of 2**-20 byte per nanosecond.
    """
    whole = alone_ns(model, work, blocks)
    missed, written = hbm_bytes(model, work)
    hbm = hbm_ns(model, missed, written)
    least = ceil(body_ns(model, work, blocks, work.read_bytes, 0.0) / waves)
    room = max(1, whole - floor(fixed_ns(model, work, blocks)))
    # HBM goes faster one way than the link does in the mean: then its time on the link counts.
    loaded_q20 = floor(min((missed + written) * Q20, hbm * link_q20, room * link_q20))
    bytes_q20 = loaded_q20 // blocks
    rate = max(1, -(-bytes_q20 * waves // room))
    wave = max(least, -(-bytes_q20 // rate))
    return Priced(max(0, whole - waves * wave), least, bytes_q20, rate)
