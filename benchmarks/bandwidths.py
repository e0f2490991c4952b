"""Bandwidth of vector kernels by chip and size, measured and modelled: a table of ``fit_cost.py``."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.work import work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fit_cost import Priced

MB = 10**6
_SIMPLE = """
    Add Mul Muls Sub RealDiv Exp Cast Relu ReLU ReluGrad TensorMove AddN BiasAdd ForeachAddList
    ForeachMulScalar ZerosLike OnesLike Square
"""
SIMPLE = frozenset(_SIMPLE.split())
"""Operators that do little but move: of others, time is not only bandwidth."""


class BandwidthRow(NamedTuple):
    """Kernels of one chip and size: bytes in and out over time (GB/s), or time (us) of the small ones."""

    chip: str
    kernels_of: str
    kernels: int
    unit: str
    measured_low: float
    measured: float
    measured_high: float
    left_out: float
    fitted: float


def bandwidths(unseen: Sequence[Priced], seen: Iterable[Priced]) -> list[BandwidthRow]:
    """Measured beside modelled, without and with the recording.

    Args:
        unseen: Kernels priced by constants fitted without their recording.
        seen: The same kernels, in any order, priced by those fitted to all.
    """
    fitted = {(one.sample.file, one.sample.start_ns): one.modelled_ns for one in seen}
    groups: dict[tuple[str, str], list[tuple[int, float, float, float]]] = defaultdict(list)
    for one in unseen:
        kind = _kind(one)
        if kind:
            sample = one.sample
            size = _bytes(one)
            times = sample.duration_ns, one.modelled_ns, fitted[sample.file, sample.start_ns]
            groups[sample.chip, kind].append((size, *times))
    return [_row(chip, kind, inside) for (chip, kind), inside in sorted(groups.items())]


def _bytes(one: Priced) -> int:
    work = work_of(one.sample.kernel)
    return work.read_bytes + work.written_bytes


def _kind(one: Priced) -> str | None:
    """Size and direction; None for what is neither large nor small, or not only bandwidth."""
    if one.family != "vector" or one.sample.kernel.op not in SIMPLE:
        return None
    size, work = _bytes(one), work_of(one.sample.kernel)
    if size < 10_000:
        return "below 10 kB"
    if size > 256 * MB:
        return "over 256 MB" if work.read_bytes else "over 256 MB, only written"
    return "10 to 200 MB" if 10 * MB <= size <= 200 * MB else None


def _row(chip: str, kind: str, inside: Sequence[tuple[int, float, float, float]]) -> BandwidthRow:
    small = kind == "below 10 kB"
    columns = [sorted(one[i] / 1000 if small else one[0] / one[i] for one in inside) for i in (1, 2, 3)]
    measured = columns[0]
    return BandwidthRow(
        chip, kind, len(inside), "us" if small else "GB/s",
        measured[0], median(measured), measured[-1], median(columns[1]), median(columns[2]),
    )  # fmt: skip
