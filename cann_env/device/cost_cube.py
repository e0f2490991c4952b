"""How long a product of matrices takes on cube cores, from its shape: tiles, waves and what feeds them.

The result is cut into tiles as large as the cube's accumulator, dealt to the cores in waves; where there are
too few tiles, the depth is cut too. In a wave a core multiplies, loads both operands of its tile from L2,
reads from HBM what L2 does not hold, and stores. The longest of these four binds; a fixed part of the others
is not hidden behind it, as not all of them can run at any time. A convolution unfolds its image on the
way, which bounds it where it has few channels.

The form is that of a roofline with tile and wave quantisation (as in NVIDIA's matrix multiplication guide,
2023, and Timeloop, Parashar et al., ISPASS 2019); the constants come from the device file.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.products import Form, operand_bytes
from cann_env.device.rates import Q20, exact, rate_q20, time_ns

if TYPE_CHECKING:
    from cann_env.commands import Kernel
    from cann_env.device.products import Product
    from cann_env.device.spec import ClassSpec, DeviceSpec, ProductSpec

TILES = ((128, 256), (256, 128), (128, 128))
"""Rows and columns of a result's tile; the first two fill 128 KiB of accumulators in float32."""

LEAST_DEPTH = 512
"""A depth is not cut into shorter pieces than this."""

_CUBE = 16
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_ENOUGH_WAVES = 4
_DRIFT = (9, 20)
"""Part of a tile's depth by which cores that begin together drift apart; from one product of depth 151936
that took 18.4 ms on a 910B4 (msinsight test trace)."""


class ProductWork(NamedTuple):
    """What a product asks of a die.

    Attributes:
        busy_ns: The longest of multiplying, loading and storing, on all cores that take part.
        exposed_ns: Time that nothing hides, whatever HBM does.
        read_bytes: What has to come from HBM, the whole kernel.
        behind_bytes: What goes to HBM behind the kernel, if there is time.
        read_rate_q20: Most that a core reads from HBM, in units of 2**-20 byte per nanosecond.
    """

    busy_ns: int
    exposed_ns: int
    read_bytes: int
    behind_bytes: int
    read_rate_q20: int


class _Waves(NamedTuple):
    """A product cut into tiles: times on the busiest core (ns), bytes that all cores load and re-read."""

    multiply_ns: int
    load_ns: int
    again_bytes: int


def product_work(
    device: DeviceSpec, kernel: Kernel, product: Product, cores: int, link_q20: int
) -> ProductWork:
    """What a product asks of a die.

    Args:
        device: Where; its cube class has a :class:`~cann_env.device.spec.ProductSpec`.
        kernel: What runs.
        product: Of the kernel, see :func:`~cann_env.device.products.product_of`.
        cores: How many work on it at once.
        link_q20: What the HBM link carries, in units of 2**-20 byte per nanosecond.
    """
    cube = device.classes["cube"]
    spec = _spec(cube)
    read = sum(operand_bytes(operand, product.dtype) for operand in kernel.inputs)
    written = sum(operand_bytes(operand, product.dtype) for operand in kernel.outputs)
    port = rate_q20(device.clock_hz, spec.read_bytes_per_cycle)
    store_ns = time_ns(-(-written // cores), rate_q20(device.clock_hz, spec.store_bytes_per_cycle))
    l2 = device.memory.l2_bytes
    first = _first_bytes(read, l2, spec)
    # What L2 cannot take in stalls the cores until HBM has it.
    spilled_ns = max(0, written - l2) * Q20 // link_q20
    pace = min(port, max(1, link_q20 // cores))
    found: list[tuple[int, ProductWork]] = []
    for waves in _ways(device, cube, spec, product, cores):
        total = first + waves.again_bytes
        share = (total + cores - 1) // cores
        read_ns = time_ns(share, pace)
        busy = max(waves.multiply_ns, waves.load_ns, store_ns)
        longest = max(busy, read_ns)
        rest = waves.multiply_ns + waves.load_ns + store_ns + read_ns - longest
        exposed = spec.fill_ns + spilled_ns + int(rest * exact(spec.exposed))
        found.append((exposed + longest, ProductWork(busy, exposed, total, written, port)))
    return min(found)[1]


def _spec(cube: ClassSpec) -> ProductSpec:
    assert cube.product is not None  # the caller looks before it asks
    return cube.product


def _first_bytes(read: int, l2: int, spec: ProductSpec) -> int:
    """What of the operands is not in L2 at the start: the more they fill it, the less is still there."""
    if read >= l2:
        return read
    return read - int(exact(spec.resident) * read * (l2 - read) / l2)


def _ways(
    device: DeviceSpec, cube: ClassSpec, spec: ProductSpec, product: Product, cores: int
) -> list[_Waves]:
    if product.form is not Form.MATRIX:
        return [_unfolded(device, cube, spec, product, cores)]
    return [_tiled(device, cube, spec, product, cores, tile) for tile in TILES]


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _rate(device: DeviceSpec, cube: ClassSpec, dtype: str, efficiency: float = 1.0) -> int:
    """Operations of one core per nanosecond, in 2**-20."""
    return rate_q20(device.clock_hz, cube.flops_per_cycle[dtype], efficiency)


def _tiled(
    device: DeviceSpec,
    cube: ClassSpec,
    spec: ProductSpec,
    product: Product,
    cores: int,
    tile: tuple[int, int],
) -> _Waves:
    high = min(tile[0], _up(product.rows, _CUBE))
    wide = min(tile[1], _up(product.columns, _CUBE))
    down, across = -(-product.rows // high), -(-product.columns // wide)
    tiles = product.batch * down * across
    depth = _busiest_depth(tiles, product.depth, cores)
    size = product.element_bytes
    multiply = 2 * high * wide * _up(depth, max(1, 32 // size))
    row_bytes = high * spec.turned if product.turned else high
    load = int((exact(row_bytes) + wide) * depth * size)
    return _Waves(
        time_ns(multiply, _rate(device, cube, product.dtype)),
        time_ns(load, rate_q20(device.clock_hz, spec.load_bytes_per_cycle)),
        _again_bytes(device.memory.l2_bytes, product, (high, wide), (down, across), cores),
    )


def _busiest_depth(tiles: int, depth: int, cores: int) -> int:
    """Depth, over all its tiles, of the core that has most to do: its waves times the depth of a piece."""
    if tiles >= _ENOUGH_WAVES * cores:
        return -(-tiles // cores) * depth
    least = min(depth, LEAST_DEPTH)
    return min(-(-tiles * cut // cores) * max(-(-depth // cut), least) for cut in _SPLITS)


def _again_bytes(l2: int, product: Product, tile: tuple[int, int], grid: tuple[int, int], cores: int) -> int:
    """Bytes that HBM delivers more than once because L2 does not hold them until they are needed again.

    The cores of a wave work on a block of tiles about as high as wide, one block of columns after the other.
    The first matrix is read anew for each of them if L2 does not hold the rows of a block; the second if it
    exceeds L2, for each of as many rows as L2 holds or the block has. Where cores drift apart by more than
    L2 holds of their block, what they share is gone: each loads for itself.
    """
    (high, wide), (down, across) = tile, grid
    strip = product.depth * product.element_bytes
    width = min(across, max(1, isqrt(cores * high // wide)))
    height = min(down, -(-cores // width))
    first, second = product.batch * product.rows * strip, product.batch * product.columns * strip
    again = 0
    if height * high * strip > l2:
        again += (-(-across // width) - 1) * first
    if second > l2:
        again += (-(-down // max(height, l2 // (high * strip))) - 1) * second
    apart, whole = _DRIFT
    held = (height * high + width * wide) * strip * apart
    if cores == 1 or held <= l2 * whole:
        return again
    loaded = first * across + second * down
    return max(again, (loaded - first - second) * (held - l2 * whole) // held)


def _unfolded(device: DeviceSpec, cube: ClassSpec, spec: ProductSpec, product: Product, cores: int) -> _Waves:
    size = product.element_bytes
    dtype = "hfloat32" if product.dtype == "float32" and "hfloat32" in cube.flops_per_cycle else product.dtype
    efficiency = {
        Form.CONVOLUTION: spec.convolution_efficiency,
        Form.INPUT_GRADIENT: spec.input_gradient_efficiency,
        Form.FILTER_GRADIENT: spec.filter_gradient_efficiency,
    }[product.form]
    high, wide, deep = product.batch * product.rows, product.columns, product.depth
    padded = product.batch * _up(product.rows, _CUBE) * _up(wide, _CUBE) * _up(deep, max(1, 32 // size))
    unfolded = {Form.CONVOLUTION: high * deep, Form.FILTER_GRADIENT: deep * wide}.get(product.form, 0)
    return _Waves(
        time_ns(-(-2 * padded // cores), _rate(device, cube, dtype, efficiency)),
        time_ns(-(-unfolded * size // cores), rate_q20(device.clock_hz, spec.unfold_bytes_per_cycle)),
        0,
    )
