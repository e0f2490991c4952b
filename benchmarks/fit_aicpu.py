"""Fits what an AI CPU kernel takes before it computes: its part of ``fit_cost.py``.

Few recordings have such kernels of known shape, and those are tiny: the fixed part is all there is to fit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from fit_cube import FitRow, load, modelled_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_samples import Sample

    from cann_env.device.spec import DeviceSpec

NAME = "aicpu"


@dataclass(frozen=True, slots=True)
class AicpuFit:
    """Fixed part (ns) of all chips together, and of those with recordings; None if there is no recording."""

    shared: int | None
    own: Mapping[str, int]

    def predict(self, samples: Sequence[Sample]) -> list[int | None]:
        """Modelled times of the kernels of one recording; None for other families, and if none is known."""
        return [self._one(sample) if takes(sample) else None for sample in samples]

    def _one(self, sample: Sample) -> int | None:
        fixed = self.own.get(sample.chip, self.shared)
        return None if fixed is None else modelled_ns(with_fixed(load(sample.chip), fixed), sample.kernel)

    def rows(self) -> list[FitRow]:
        """The constants by chip."""
        return [
            FitRow(chip, "classes.aicpu.launch_base", value, "ns", "measured: median of recorded kernels")
            for chip, value in self.own.items()
        ]


def takes(sample: Sample) -> bool:
    """Whether a recorded kernel ran on AI CPUs."""
    return sample.kernel.kernel_class.value == "aicpu"


def fit(samples: Sequence[Sample]) -> AicpuFit:
    """Fit to recordings; kernels of other families are passed over."""
    left: dict[str, list[int]] = defaultdict(list)
    for sample in filter(takes, samples):
        rest = modelled_ns(with_fixed(load(sample.chip), 0), sample.kernel)
        left[sample.chip].append(max(0, sample.duration_ns - rest))
    own = {chip: round(median(values)) for chip, values in left.items()}
    return AicpuFit(round(median(own.values())) if own else None, own)


def with_fixed(device: DeviceSpec, fixed_ns: int) -> DeviceSpec:
    """A device whose AI CPU kernels take a fixed time before they compute."""
    aicpu = replace(device.classes["aicpu"], launch_base_ns=fixed_ns)
    return replace(device, classes={**device.classes, "aicpu": aicpu})
