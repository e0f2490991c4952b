"""Kernels with believable work: matrix products, elementwise passes, attention, and random ones.

Shapes or a random generator go in, a :class:`~cann_env.graph.Kernel` comes out. Work is counted in operations
and bytes; the only thing asked of a device is how many blocks of a class it runs at once (``cores``), because
kernels are compiled for a number of cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.device.cost import cores_of_class
from cann_env.graph import Kernel, KernelClass, Level, Scheme
from cann_env.units import InputError
from cann_env.workloads.checks import check_shares, check_weights
from cann_env.workloads.draws import between, chance, octave, pick_weighted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.random import Generator

    from cann_env.device.spec import DeviceSpec

FP16_BYTES = 2

_CLASSES = tuple(KernelClass)

_TILE_ROWS = 128
_TILE_COLUMNS = 256
_VECTOR_ELEMENTS_PER_BLOCK = 4096

_FLOPS_PER_NS = {
    KernelClass.CUBE: 11_796,
    KernelClass.VECTOR: 322,
    KernelClass.MIX: 4_276,
    KernelClass.AICPU: 7,
}
_BYTES_PER_NS = {
    KernelClass.CUBE: 57,
    KernelClass.VECTOR: 57,
    KernelClass.MIX: 172,
    KernelClass.AICPU: 14,
}
"""What one core of an Ascend 910B2 reaches: these turn a wanted time into operations and bytes. On another
device the same kernels last longer or shorter."""

_HBM_BYTES_PER_NS = 1_200

_COMPUTE_BOUND_SHARE = {
    KernelClass.CUBE: 0.7,
    KernelClass.VECTOR: 0.15,
    KernelClass.MIX: 0.6,
    KernelClass.AICPU: 0.5,
}
_FALLBACK_LONGEST_NS = 4_000
_FALLBACK_FLOPS_PERCENT = 2

_WIDTHS = {"narrow": 35, "half": 30, "wide": 15, "full": 12, "waves": 8}
"""How often a random kernel takes up to a quarter, a half, or all of its cores, exactly all, or more."""

_WIDTHS_OF_ONE_WAVE = {**_WIDTHS, "waves": 0}


def blocks_at_once(device: DeviceSpec) -> dict[str, int]:
    """Count for each kernel class the blocks one die runs at once; 0 if it cannot run the class."""
    return {kernel_class.value: cores_of_class(device, kernel_class) for kernel_class in KernelClass}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What random commands are like; weights are relative, shares go from 0 to 1.

    Attributes:
        cube, vector, mix, aicpu: Weights of the kernel classes; one the device cannot run is left out.
        fallback_share: Vector and AI CPU kernels that may run on the other class; these are short.
        batch_share: Kernels whose blocks all start at once.
        fused_share: Commands that hold two or three kernels.
        callback_share: Commands that are host functions.
        copy_share: Commands that are copies inside the device.
        weights_share: Commands that read weights of their own.
        weights: Where weights lie at first: ``host`` (cold) or ``hbm`` (resident).
        shortest_ns, longest_ns: About how long a kernel works alone on an Ascend 910B2, after its launch.
    """

    cube: int = 40
    vector: int = 40
    mix: int = 15
    aicpu: int = 5
    fallback_share: float = 0.1
    batch_share: float = 0.1
    fused_share: float = 0.1
    callback_share: float = 0.02
    copy_share: float = 0.04
    weights_share: float = 0.25
    weights: Level = Level.HOST
    shortest_ns: int = 2_000
    longest_ns: int = 300_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        classes = {name.value: getattr(self, name.value) for name in KernelClass}
        if min(classes.values()) < 0 or sum(classes.values()) == 0:
            raise InputError(f"the class weights are {classes}; write numbers >= 0, one of them above zero")
        shares = ("fallback", "batch", "fused", "callback", "copy", "weights")
        check_shares(**{f"{name}_share": getattr(self, f"{name}_share") for name in shares})
        check_shares(**{"callback_share and copy_share together": self.callback_share + self.copy_share})
        check_weights(self.weights)
        if not 1 <= self.shortest_ns <= self.longest_ns:
            raise InputError(
                f"'shortest_ns' {self.shortest_ns} and 'longest_ns' {self.longest_ns} are no range; "
                "write 1 <= shortest_ns <= longest_ns"
            )


def matmul(
    name: str, rows: int, inner: int, columns: int, cores: Mapping[str, int], *, batch: int = 1
) -> Kernel:
    """Multiply ``batch`` pairs of a (rows, inner) and an (inner, columns) float16 matrix on cube cores."""
    tiles = batch * _ceil(rows, _TILE_ROWS) * _ceil(columns, _TILE_COLUMNS)
    return Kernel(
        name=name,
        kernel_class=KernelClass.CUBE,
        blocks=_capped(tiles, cores[KernelClass.CUBE]),
        flops=2 * batch * rows * inner * columns,
        bytes_read=FP16_BYTES * batch * inner * (rows + columns),
        bytes_written=FP16_BYTES * batch * rows * columns,
    )


def elementwise(
    name: str, elements: int, cores: Mapping[str, int], *, inputs: int = 1, flops_per_element: int = 1
) -> Kernel:
    """Pass over ``inputs`` float16 tensors of ``elements`` each and write one of the same size."""
    return Kernel(
        name=name,
        kernel_class=KernelClass.VECTOR,
        blocks=_capped(_ceil(elements, _VECTOR_ELEMENTS_PER_BLOCK), cores[KernelClass.VECTOR]),
        flops=flops_per_element * elements,
        bytes_read=FP16_BYTES * inputs * elements,
        bytes_written=FP16_BYTES * elements,
    )


def flash_attention(name: str, heads: int, sequence: int, width: int, cores: Mapping[str, int]) -> Kernel:
    """Attend in one kernel on cube and vector cores.

    Args:
        name: Of the kernel.
        heads: Heads of all samples together.
        sequence: Tokens of one sample, each of which attends to all of them.
        width: Of one head.
        cores: Blocks of each kernel class that run at once.
    """
    return Kernel(
        name=name,
        kernel_class=KernelClass.MIX,
        blocks=_capped(heads * _ceil(sequence, _TILE_ROWS), cores[KernelClass.MIX]),
        flops=4 * heads * sequence * sequence * width,
        bytes_read=3 * FP16_BYTES * heads * sequence * width,
        bytes_written=FP16_BYTES * heads * sequence * width,
    )


def random_kernel(rng: Generator, name: str, traits: Traits, cores: Mapping[str, int]) -> Kernel:
    """Draw a kernel: its class, how many cores it takes, how long, and whether compute or memory bounds it.

    Raises:
        InputError: The device runs none of the classes that ``traits`` allow.
    """
    kernel_class = pick_weighted(rng, {c: getattr(traits, c) if cores[c] else 0 for c in _CLASSES})
    fallback = _draw_fallback(rng, kernel_class, traits, cores)
    batch = chance(rng, traits.batch_share)
    slots = min(cores[c] for c in (kernel_class, fallback) if c is not None)
    blocks = _draw_blocks(rng, slots, waves=not batch and fallback is None)
    duration_ns = octave(rng, traits.shortest_ns, traits.longest_ns)
    flops, moved = _draw_work(rng, kernel_class, blocks, cores[kernel_class], duration_ns)
    if fallback is not None:
        # Arithmetic is far slower and a launch far longer on the other class: only little work moves over.
        flops = max(1, flops * _FALLBACK_FLOPS_PERCENT // 100)
        moved = max(8, moved * min(duration_ns, _FALLBACK_LONGEST_NS) // duration_ns)
    written = moved // between(rng, 2, 5)
    return Kernel(
        name=name,
        kernel_class=kernel_class,
        fallback=fallback,
        blocks=blocks,
        scheme=Scheme.BATCH if batch else Scheme.NORMAL,
        flops=flops,
        bytes_read=moved - written,
        bytes_written=written,
    )


def _draw_fallback(
    rng: Generator, kernel_class: KernelClass, traits: Traits, cores: Mapping[str, int]
) -> KernelClass | None:
    other = {KernelClass.VECTOR: KernelClass.AICPU, KernelClass.AICPU: KernelClass.VECTOR}.get(kernel_class)
    if other is None or not cores[other] or not chance(rng, traits.fallback_share):
        return None
    return other


def _draw_blocks(rng: Generator, slots: int, *, waves: bool) -> int:
    width = pick_weighted(rng, _WIDTHS if waves else _WIDTHS_OF_ONE_WAVE)
    low, high = {
        "narrow": (1, slots // 4),
        "half": (slots // 4, slots // 2),
        "wide": (slots // 2, slots),
        "full": (slots, slots),
        "waves": (slots + 1, 3 * slots),
    }[width]
    return between(rng, max(1, low), max(1, low, high))


def _draw_work(
    rng: Generator, kernel_class: KernelClass, blocks: int, slots: int, duration_ns: int
) -> tuple[int, int]:
    """Draw (flops, bytes) that keep ``blocks`` blocks busy for about ``duration_ns`` in all their waves."""
    per_block_ns = duration_ns // _ceil(blocks, slots)
    at_once = min(blocks, slots)
    flops = per_block_ns * _FLOPS_PER_NS[kernel_class] * blocks
    moved = per_block_ns * min(_BYTES_PER_NS[kernel_class], _HBM_BYTES_PER_NS // at_once) * blocks
    if chance(rng, _COMPUTE_BOUND_SHARE[kernel_class]):
        moved = moved * between(rng, 5, 60) // 100
    else:
        flops = flops * between(rng, 2, 60) // 100
    return max(1, flops), max(8, moved)


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _capped(blocks: int, cores: int) -> int:
    return max(1, min(blocks, cores))
