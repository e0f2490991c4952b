"""Rates as whole numbers: amounts per nanosecond in units of 2**-20, so that sums and shares stay exact."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import floor

from cann_env.units import NS_PER_S

Q20 = 1 << 20
"""Units of 2**-20 in one."""


def exact(number: float) -> Fraction:
    """The decimal number that was written in the file, not its nearest binary fraction."""
    return Fraction(str(number))


@cache
def rate_q20(per_s: int, *factors: float) -> int:
    """``per_s`` times ``factors`` per second as whole units of 2**-20 per nanosecond, at least 1."""
    product = Fraction(per_s)
    for factor in factors:
        product *= exact(factor)
    return max(1, floor(product * Q20 / NS_PER_S))


def time_ns(amount: int, rate: int) -> int:
    """Nanoseconds that ``amount`` (in ones) takes at ``rate`` (2**-20 per nanosecond), rounded up."""
    return -(-amount * Q20 // rate)
