"""How far a mean over cases can be trusted: intervals by resampling the cases.

Ratios of one scheduler to another, a case each, go in; an :class:`Interval` of their geometric mean comes
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Interval(NamedTuple):
    """Both ends."""

    low: float
    high: float


def geometric_mean_interval(
    ratios: Sequence[float], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Percentile bootstrap of the geometric mean (Efron, Annals of Statistics, 1979).

    Cases are drawn with replacement, as many as there are, again and again. The interval says how much the
    mean hangs on which cases were chosen; nothing of how a case was measured.

    Args:
        ratios: One for each case, above 0.
        confidence: The part of the resampled means that lies within, between 0 and 1.
        resamples: How often cases are drawn, at least 1.
        seed: Of the draws; the same seed gives the same interval.

    Raises:
        InputError: There are no ratios, one is not a finite number above 0, or an argument is out of range.
    """
    if not ratios:
        raise InputError("there are no ratios; an interval needs at least one case")
    for ratio in ratios:
        if not (np.isfinite(ratio) and ratio > 0):
            raise InputError(f"ratio {ratio!r} has no geometric mean; ratios are finite numbers above 0")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence is {confidence!r}; write a number between 0 and 1")
    if resamples < 1:
        raise InputError(f"resamples is {resamples!r}; write a whole number of at least 1")
    logs = np.log(np.asarray(ratios, np.float64))
    drawn = np.random.default_rng(seed).integers(logs.size, size=(resamples, logs.size))
    tail = (1.0 - confidence) / 2.0
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), (tail, 1.0 - tail)))
    return Interval(float(low), float(high))
