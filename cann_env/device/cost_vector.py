"""How long a vector kernel lasts: its work against ports, memory, L2 and arithmetic of a chip.

A kernel pays its launch, waits once for memory in each of its phases, and then moves and computes. What it
reads and writes passes the ports of its cores, each direction for itself. What it does not find in L2 comes
from HBM, and a part of what it writes goes there while it runs; HBM is faster when all bytes go one way.
Memory and arithmetic overlap in part (the root of the sum of their squares), and a pipeline has to fill, which
costs a short kernel as much as its work and a long one a fixed time at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cann_env.device.work import VectorWork


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorModel:
    """The hardware that vector kernels meet. Rates are bytes per nanosecond, which is GB/s.

    Attributes:
        cores: Vector cores that work at once.
        clock_ghz: Core clock.
        port_rate: One core, one direction.
        hbm_rate: Raw bandwidth of HBM.
        hbm_efficiency: Fraction of it when as much is written as read.
        one_way_gain: How much faster HBM is when all bytes go one way.
        written_share: Part of the bytes written that reach HBM while the kernel runs; the rest stays in L2.
        l2_bytes: Most that can stay there.
        compute_efficiency: Speed of arithmetic in terms of a 910B core's cycles.
        launch_ns: Launch, drain and one wait for memory.
        launch_per_block_ns: Added for each block of the first wave.
        phase_ns: Each further wait.
        fill_ns: Most that filling the pipeline adds.
        request_ns: Time of a core for a row that it asks for alone.
    """

    cores: int
    clock_ghz: float
    port_rate: float
    hbm_rate: float
    hbm_efficiency: float
    one_way_gain: float
    written_share: float
    l2_bytes: int
    compute_efficiency: float
    launch_ns: float
    launch_per_block_ns: float
    phase_ns: float
    fill_ns: float
    request_ns: float


def fixed_ns(model: VectorModel, work: VectorWork, blocks: int) -> float:
    """Launch and waits: what a kernel lasts that moves and computes next to nothing."""
    at_once = min(blocks, model.cores)
    return model.launch_ns + model.launch_per_block_ns * at_once + model.phase_ns * (work.phases - 1)


def hbm_ns(model: VectorModel, work: VectorWork, found_bytes: int = 0) -> float:
    """Time of HBM for what is not found in L2 and for what is written back."""
    hit = min(found_bytes, work.read_bytes) / work.read_bytes if work.read_bytes else 0.0
    missed = work.fetched_bytes * (1 - hit)
    written = max(work.written_bytes * model.written_share, work.written_bytes - model.l2_bytes)
    both = missed + written
    if not both:
        return 0.0
    mixed = 4 * missed * written / (both * both)
    rate = model.hbm_rate * model.hbm_efficiency * (1 + model.one_way_gain * (1 - mixed))
    return both / rate


def body_ns(model: VectorModel, work: VectorWork, blocks: int, hbm: float) -> float:
    """Time after the launch: ports and HBM, arithmetic, and the fill of the pipeline.

    Args:
        model: The hardware.
        work: The kernel's.
        blocks: Of the kernel; those beyond the cores run in waves.
        hbm: Time of HBM, see :func:`hbm_ns`; 0 for a kernel that finds everything in L2.
    """
    at_once = min(blocks, model.cores)
    port = max(work.read_bytes, work.written_bytes) / (at_once * model.port_rate)
    memory = sqrt(sqrt(port**4 + hbm**4))
    compute = work.cycles / (at_once * model.clock_ghz * model.compute_efficiency)
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
    hbm = hbm_ns(model, work, found_bytes)
    return ceil(fixed_ns(model, work, blocks) + body_ns(model, work, blocks, hbm))
