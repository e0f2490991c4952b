"""Intervals of geometric means: small cases by hand, coverage by drawing, and refused input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cann_env.intervals import Interval, geometric_mean_interval
from cann_env.units import InputError


def test_equal_ratios_leave_no_doubt() -> None:
    assert geometric_mean_interval([2.0, 2.0, 2.0]) == pytest.approx(Interval(2.0, 2.0))


def test_two_cases_by_hand() -> None:
    """Two draws of 1 and 4: 1 in a quarter of them, 2 in half, 4 in a quarter."""
    assert geometric_mean_interval([1.0, 4.0], confidence=0.95) == pytest.approx(Interval(1.0, 4.0))
    assert geometric_mean_interval([1.0, 4.0], confidence=0.4) == pytest.approx(Interval(2.0, 2.0))


def test_inverse_ratios_give_the_inverse_interval() -> None:
    """It does not matter which of two schedulers is the baseline."""
    ratios = [0.5, 0.9, 1.3, 2.0, 0.7]
    low, high = geometric_mean_interval(ratios)
    assert geometric_mean_interval([1 / ratio for ratio in ratios]) == pytest.approx(
        Interval(1 / high, 1 / low)
    )


def test_the_same_seed_gives_the_same_interval() -> None:
    ratios = [0.8, 1.1, 0.95, 1.4]
    assert geometric_mean_interval(ratios, resamples=50) == geometric_mean_interval(ratios, resamples=50)
    assert geometric_mean_interval(ratios, resamples=50) != geometric_mean_interval(
        ratios, resamples=50, seed=1
    )


def test_the_true_mean_lies_within_about_as_often_as_said() -> None:
    """A percentile bootstrap of 30 cases covers a little less than it says, not much."""
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        low, high = geometric_mean_interval(
            np.exp(rng.normal(0.1, 0.3, 30)).tolist(), resamples=400, seed=seed
        )
        inside += low <= math.exp(0.1) <= high
    assert 0.88 <= inside / 200 <= 0.98


@pytest.mark.parametrize(
    ("ratios", "given", "message"),
    [
        ([], {}, "there are no ratios"),
        ([1.0, 0.0], {}, "ratio 0.0 has no geometric mean"),
        ([math.nan], {}, "ratio nan has no geometric mean"),
        ([1.0], {"confidence": 1.0}, "confidence is 1.0; write a number between 0 and 1"),
        ([1.0], {"resamples": 0}, "resamples is 0; write a whole number of at least 1"),
    ],
    ids=["none", "zero", "nan", "confidence", "resamples"],
)
def test_wrong_input_is_refused(ratios: list[float], given: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        geometric_mean_interval(ratios, **given)  # type: ignore[arg-type]
