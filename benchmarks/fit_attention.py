"""Fits the efficiency of fused attention to recorded kernels: its part of ``fit_cost.py``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from fit_cube import FitRow, load, modelled_ns

from cann_env.device.attention import attention_flops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_samples import Sample

    from cann_env.device.spec import DeviceSpec

NAME = "attention"

PRIOR = 0.275
"""What is taken of the peak where no recording tells: on a 910B2 the fused operator of torch_npu is published
with 97.3 of 354 TFLOPS at 8192 rows, 72.6 at 4096 and 122.9 at 16384 (PTO tile library, README)."""


@dataclass(frozen=True, slots=True)
class AttentionFit:
    """Efficiency of all chips together and of those with recordings of their own."""

    shared: float
    own: Mapping[str, float]
    known: bool

    def predict(self, samples: Sequence[Sample]) -> list[int | None]:
        """Modelled times of the kernels of one recording; None for those of other families."""
        return [self._one(sample) if takes(sample) else None for sample in samples]

    def _one(self, sample: Sample) -> int:
        efficiency = self.own.get(sample.chip, self.shared)
        return modelled_ns(with_efficiency(load(sample.chip), efficiency), sample.kernel)

    def rows(self) -> list[FitRow]:
        """The constants by chip."""
        source = "measured: fitted to recorded kernels" if self.known else "documented: PTO tile library"
        key = "classes.mix.compute_efficiency"
        chips = {"all": self.shared, **self.own}
        return [FitRow(chip, key, value, "fraction", source) for chip, value in chips.items()]


def takes(sample: Sample) -> bool:
    """Whether a recorded kernel is fused attention of known shape."""
    return attention_flops(sample.kernel) > 0


def fit(samples: Sequence[Sample]) -> AttentionFit:
    """Fit to recordings; kernels of other families are passed over."""
    reached: dict[str, list[float]] = defaultdict(list)
    for sample in filter(takes, samples):
        whole = with_efficiency(load(sample.chip), 1.0)
        # Launch is some microseconds of hundreds, so the ratio of times is that of rates.
        reached[sample.chip].append(modelled_ns(whole, sample.kernel) / sample.duration_ns)
    own = {chip: round(median(values), 4) for chip, values in reached.items()}
    return AttentionFit(median(own.values()) if own else PRIOR, own, bool(own))


def with_efficiency(device: DeviceSpec, efficiency: float) -> DeviceSpec:
    """A device whose mix kernels reach a fraction of their peak."""
    mix = replace(device.classes["mix"], compute_efficiency=efficiency)
    return replace(device, classes={**device.classes, "mix": mix})
