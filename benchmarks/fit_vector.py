"""Fits the constants of vector work to recorded kernels: its part of ``fit_cost.py``.

Least absolute error of the logarithm of the time, by reweighted least squares with damping. All chips share
their constants, as fractions of data sheets or times; a chip with recordings may move a few of its own, held
back by a prior. Kernels that are the same but for their turn are one sample, weighted by the root of their
number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from fit_cube import FitRow, load
from kernel_samples import MATMUL_LIKE

from cann_env.device.attention import attention_flops
from cann_env.device.cost_vector import VectorModel, alone_ns, vector_model
from cann_env.device.keys import STREAMING
from cann_env.device.residency import found_bytes
from cann_env.device.typed import typed_in_order
from cann_env.device.work import VectorWork, likely_blocks, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernel_samples import Sample
    from numpy.typing import NDArray

    from cann_env.commands import Kernel

NAME = "vector"

START = {
    "mixed_efficiency": 0.75,
    "one_way": 0.95,
    "written": 0.8,
    "launch_ns": 1400.0,
    "phase_ns": 1000.0,
    "fill_ns": 2000.0,
    "request_ns": 250.0,
    "arithmetic": 1.0,
}
"""First guesses of what is fitted; the ports of cores come from the data sheets."""

OWN = ("launch_ns", "phase_ns", "arithmetic")
"""What a chip with recordings may have of its own."""

PRIOR = 0.004
"""Weight of the common value of a constant against all samples of a chip together."""

LEAST_ERROR = 0.03
"""Errors below this weigh alike: it is the noise of repeated kernels."""

STEP = 0.01
ROUNDS = 30


Values = dict[str, float]


class Case(NamedTuple):
    """What the model knows of a kernel."""

    chip: str
    work: VectorWork
    blocks: int
    found: int


@dataclass(frozen=True, slots=True)
class VectorFit:
    """Constants of all chips together, and of those with recordings."""

    shared: Values
    own: Mapping[str, Values]

    def predict(self, samples: Sequence[Sample]) -> list[int | None]:
        """Modelled times of the kernels of one recording; None for those of other families."""
        return [
            None if case is None else time_ns(case, self.own.get(case.chip, self.shared))
            for case in cases(samples)
        ]

    def rows(self) -> list[FitRow]:
        """The constants by chip."""
        rows = []
        for chip, values in {"all": self.shared, **self.own}.items():
            for name, value in values.items():
                if chip == "all" or name in OWN:
                    rows.append(FitRow(chip, *_as_written(name, value), "measured: fitted to recordings"))
        return rows


def _as_written(name: str, value: float) -> tuple[str, float, str]:
    """Key, value and unit of a constant in a device file."""
    if name.endswith("_ns"):
        return f"{STREAMING}.{name.removesuffix('_ns')}", round(value / 1000, 2), "us"
    return f"{STREAMING}.{name}", round(value, 3), "times" if name == "arithmetic" else "fraction"


def takes(sample: Sample) -> bool:
    """Whether a recorded kernel is vector work on tensors."""
    kernel = sample.kernel
    return (
        sample.core not in ("AI_CPU", "MIX_AIC")
        and kernel.kernel_class.value in ("vector", "mix")
        and kernel.op not in MATMUL_LIKE
        and not attention_flops(kernel)
    )


def fit(samples: Sequence[Sample]) -> VectorFit:
    """Fit to recordings; kernels of other families are passed over."""
    files: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        files[sample.file].append(sample)
    times: dict[Case, list[int]] = defaultdict(list)
    for inside in files.values():
        for sample, case in zip(inside, cases(inside), strict=True):
            if case is not None and sample.duration_ns > 0:
                times[case].append(sample.duration_ns)
    shared = _least_error(times, START, {})
    own = {}
    for chip in dict.fromkeys(case.chip for case in times):
        start = {name: shared[name] for name in OWN}
        inside = {case: ns for case, ns in times.items() if case.chip == chip}
        own[chip] = shared | _least_error(inside, start, shared)
    return VectorFit(shared, own)


def cases(samples: Sequence[Sample]) -> list[Case | None]:
    """What the model knows of the kernels of one recording, in their order; None for other families."""
    samples = with_types(samples)
    if not samples:
        return []
    chip = samples[0].chip
    model = _model(chip)
    found = found_bytes([sample.kernel for sample in samples], int(model.l2_bytes))
    return [
        Case(chip, work_of(sample.kernel), _blocks(sample, model), hit) if takes(sample) else None
        for sample, hit in zip(samples, found, strict=True)
    ]


def _blocks(sample: Sample, model: VectorModel) -> int:
    return sample.kernel.blocks if sample.blocks_known else likely_blocks(sample.kernel, model.cores)


@cache
def _model(chip: str) -> VectorModel:
    model = vector_model(load(chip))
    assert model is not None  # every shipped device has the table
    return model


def time_ns(case: Case, values: Values) -> int:
    """Modelled time of a kernel with other constants than its device file's."""
    model = _model(case.chip)
    changed = {name: min(v, 1.0) if name in ("mixed_efficiency", "one_way", "written") else v
               for name, v in values.items()}  # fmt: skip
    return alone_ns(replace(model, **changed), case.work, case.blocks, case.found)


def with_types(samples: Sequence[Sample]) -> list[Sample]:
    """Outputs of a table that names no types for them get the type as which they are read next."""
    bare = [sample.kernel if sample.blocks_known else _untyped(sample.kernel) for sample in samples]
    return [
        replace(sample, kernel=kernel) for sample, kernel in zip(samples, typed_in_order(bare), strict=True)
    ]


def _untyped(kernel: Kernel) -> Kernel:
    return replace(kernel, outputs=tuple(replace(output, dtype="") for output in kernel.outputs))


def _least_error(times: Mapping[Case, Sequence[int]], start: Values, rest: Values) -> Values:
    """Values near ``start`` with the least error; with a ``rest`` they are also pulled back to the start."""
    known = list(times)
    measured = np.array([log(median(times[case])) for case in known])
    weights = np.array([len(times[case]) ** 0.5 for case in known])
    first = np.log(list(start.values()))
    pull = PRIOR * weights.sum() if rest else 0.0
    weights = np.append(weights, np.full(first.size, pull))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        values = rest | dict(zip(start, map(exp, x), strict=True))
        modelled = np.array([log(time_ns(case, values)) for case in known])
        return np.append(modelled - measured, x - first)

    found = _descend(residuals, weights, first)
    return dict(zip(start, map(exp, found), strict=True))


def _descend(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    weights: NDArray[np.float64],
    x: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Levenberg-Marquardt steps on a sum of absolute values (Marquardt, SIAM Journal, 1963)."""
    r, damp = residuals(x), 1e-2
    cost = float(weights @ np.abs(r))
    for _ in range(ROUNDS):
        slopes = np.stack([(residuals(x + step) - r) / STEP for step in np.eye(x.size) * STEP], 1)
        share = weights / np.maximum(np.abs(r), LEAST_ERROR)
        normal = slopes.T @ (slopes * share[:, None])
        step = np.linalg.solve(normal + damp * np.diag(np.diag(normal) + 1e-9), -slopes.T @ (share * r))
        tried = x + np.clip(step, -0.4, 0.4)
        better = residuals(tried)
        now = float(weights @ np.abs(better))
        if now < cost:
            done = cost - now < 1e-4 * cost
            x, r, cost, damp = tried, better, now, max(damp / 3, 1e-6)
            if done:
                break
        else:
            damp *= 4
    return x
