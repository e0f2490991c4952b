"""Fits the constants of products of matrices to recorded kernels: the cube's part of ``fit_cost.py``.

Shared values are fitted to all chips at once, then those that differ from chip to chip once more on each
chip, held to the shared ones. Both searches go along one constant at a time and pay a little for each step
away from a prior, so that what no kernel tells stays where it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf, log
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_samples import MATMUL_LIKE

from cann_env.device.cost import roofline
from cann_env.device.keys import PRODUCT
from cann_env.device.load import load_device
from cann_env.device.spec import ProductSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernel_samples import Sample

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Kernel


NAME = "products"


class Constant(NamedTuple):
    """A constant of :class:`~cann_env.device.spec.ProductSpec`.

    Attributes:
        prior: What is taken where nothing tells more.
        least, most: Bounds.
        why: Where the prior comes from.
        unit: As a device file writes it.
        own: Fitted for each chip by itself, where there are enough of its kernels.
    """

    prior: float
    least: float
    most: float
    unit: str
    why: str
    own: bool = False


CONSTANTS: Mapping[str, Constant] = {
    "load_bytes_per_cycle": Constant(110, 30, 110, "B/cycle", "l2_read_rate of the platform ini", own=True),
    "read_bytes_per_cycle": Constant(32, 6, 64, "B/cycle", "ddr_rate of the platform ini", own=True),
    "store_bytes_per_cycle": Constant(64, 10, 128, "B/cycle", "half of the 128 of the store path"),
    "unfold_bytes_per_cycle": Constant(64, 10, 256, "B/cycle", "two blocks of 32 bytes a cycle"),
    "turned": Constant(2.0, 1, 4, "times", "rows of 256 bytes where a burst has 512", own=True),
    "exposed": Constant(0.1, 0.01, 0.6, "fraction", "most of it overlaps"),
    "resident": Constant(0.5, 0.01, 1, "fraction", "one of two operands was just written"),
    "convolution_efficiency": Constant(0.8, 0.2, 1, "fraction", "as of large matrices"),
    "input_gradient_efficiency": Constant(0.8, 0.2, 1, "fraction", "as of large matrices"),
    "filter_gradient_efficiency": Constant(0.8, 0.2, 1, "fraction", "as of large matrices"),
    "fill": Constant(1000, 100, 10_000, "ns", "two accesses to HBM"),
}
"""The constants with their priors."""

STORES_AS_IT_READS = ("ascend910a", "ascend310b1", "ascend310b4", "ascend310p1", "ascend310p3")
"""Chips without a path of its own from the accumulators to memory: results leave through the same port."""

_STEPS = (0.25, 0.12, 0.06, 0.03, 0.015)
_HELD = 0.002
_HELD_OWN = 0.03
_SOURCE = "measured: fitted to recorded products"
_CAP = 0.8
_WHOLE = 0.5
_FEWEST = 5


class FitRow(NamedTuple):
    """One constant: on which chip (``all`` if shared), its key in the device file, value, unit and source."""

    chip: str
    key: str
    value: float
    unit: str
    source: str


class Group(NamedTuple):
    """Kernels of one file and shape: how many, the first of them, and their median time."""

    file: str
    chip: str
    kernel: Kernel
    duration_ns: float
    count: int


def takes(sample: Sample) -> bool:
    """Whether a recorded kernel is a product of matrices."""
    return sample.kernel.op in MATMUL_LIKE


@dataclass(frozen=True, slots=True)
class CubeFit:
    """Fitted constants: those shared, and those of chips that had kernels enough."""

    shared: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]]

    def values(self, chip: str) -> dict[str, float]:
        """Constants of a chip."""
        values = {**self.shared, **self.own.get(chip, {})}
        if chip in STORES_AS_IT_READS:
            values["store_bytes_per_cycle"] = values["read_bytes_per_cycle"]
        return values

    def predict(self, samples: Sequence[Sample]) -> list[int | None]:
        """Modelled times (ns) of the kernels of one recording; None for those of other families."""
        chips = {sample.chip for sample in samples}
        devices = {chip: with_constants(load(chip), self.values(chip)) for chip in chips}
        return [
            modelled_ns(devices[sample.chip], sample.kernel) if takes(sample) else None for sample in samples
        ]

    def rows(self) -> list[FitRow]:
        """The constants, those of all chips first."""
        chips = {"all": self.shared, **{chip: self.values(chip) for chip in self.own}}
        return [
            FitRow(chip, f"{PRODUCT}.{name}", _rounded(values[name]), CONSTANTS[name].unit, _SOURCE)
            for chip, values in chips.items()
            for name in CONSTANTS
        ]


def fit(samples: Sequence[Sample]) -> CubeFit:
    """Fit to recordings; kernels of other families are passed over."""
    groups = groups_of(filter(takes, samples))
    prior = {name: constant.prior for name, constant in CONSTANTS.items()}
    shared = _search(prior, groups, tuple(CONSTANTS), _HELD, 0.0)
    own: dict[str, dict[str, float]] = {}
    names = tuple(name for name, constant in CONSTANTS.items() if constant.own)
    for chip in sorted({group.chip for group in groups}):
        of_chip = [group for group in groups if group.chip == chip]
        if len({group.kernel.inputs for group in of_chip}) < _FEWEST:
            continue
        found = _search(shared, of_chip, names, _HELD_OWN, _WHOLE)
        own[chip] = {name: found[name] for name in names}
    return CubeFit(shared, own)


def groups_of(samples: Iterable[Sample]) -> list[Group]:
    """Kernels by file, operator, blocks and shapes."""
    times: dict[object, list[Sample]] = defaultdict(list)
    for sample in samples:
        kernel = sample.kernel
        times[sample.file, kernel.op, kernel.blocks, kernel.inputs, kernel.outputs].append(sample)
    return [
        Group(of[0].file, of[0].chip, of[0].kernel, median(sample.duration_ns for sample in of), len(of))
        for of in times.values()
    ]


def with_constants(device: DeviceSpec, values: Mapping[str, float]) -> DeviceSpec:
    """A device whose products of matrices go as given."""
    exact: dict[str, Any] = {name: float(f"{value:.6g}") for name, value in values.items()}
    exact["fill_ns"] = round(exact.pop("fill"))
    cube = replace(device.classes["cube"], product=ProductSpec(**exact))
    return replace(device, classes={**device.classes, "cube": cube})


def modelled_ns(device: DeviceSpec, kernel: Kernel) -> int:
    """Time of a kernel that has a die to itself."""
    roof = roofline(device, kernel.kernel_class.value, kernel.demand)
    return roof.minimum_ns(roof.of(kernel), kernel.blocks)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _loss(found: CubeFit, groups: Sequence[Group], weight: float) -> float:
    """Mean error as a logarithm, and some of that of the sum of each file.

    What is far off counts as if it were less so.
    """
    chips = {group.chip for group in groups}
    devices = {chip: with_constants(load(chip), found.values(chip)) for chip in chips}
    ratios = [modelled_ns(devices[group.chip], group.kernel) / group.duration_ns for group in groups]
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for group, ratio in zip(groups, ratios, strict=True):
        recorded = group.duration_ns * group.count
        sums[group.file][0] += recorded * ratio
        sums[group.file][1] += recorded
    one = sum(min(_CAP, abs(log(ratio))) for ratio in ratios) / len(ratios)
    whole = sum(abs(log(modelled / recorded)) for modelled, recorded in sums.values()) / len(sums)
    return one + weight * whole


_LOADED: dict[str, DeviceSpec] = {}


def load(chip: str) -> DeviceSpec:
    """A device, read once."""
    if chip not in _LOADED:
        _LOADED[chip] = load_device(chip)
    return _LOADED[chip]


def _search(
    start: Mapping[str, float],
    groups: Sequence[Group],
    names: Sequence[str],
    held: float,
    whole: float,
) -> dict[str, float]:
    """Walk along one constant at a time, in ever shorter steps, while that lowers the error."""

    def price(values: Mapping[str, float]) -> float:
        away = sum(abs(log(values[name] / start[name])) for name in names)
        return _loss(CubeFit(values, {}), groups, whole) + held * away

    best, least = dict(start), price(start)
    for step in _STEPS:
        for name in names:
            for factor in (1 + step, 1 / (1 + step)):
                best, least = _walk(best, least, name, factor, price)
    return best


def _walk(
    best: dict[str, float],
    least: float,
    name: str,
    factor: float,
    price: Callable[[Mapping[str, float]], float],
) -> tuple[dict[str, float], float]:
    constant, last = CONSTANTS[name], inf
    while least < last:
        last = least
        tried = {**best, name: best[name] * factor}
        if not constant.least <= tried[name] <= constant.most:
            break
        found = price(tried)
        if found < least - 1e-9:
            best, least = tried, found
    return best, least
