"""Random draws in whole numbers, so that one seed gives one graph on every machine.

Every generator of this package draws through these functions. They ask a :class:`numpy.random.Generator`
for raw bits or for integers, and compute with Python integers: no logarithm, no rounding that a platform
could do differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from numpy.random import Generator

    T = TypeVar("T")

PARTS = 1_000_000
"""Shares are resolved to one part in a million."""

_WORD_BITS = 32
_WORDS = 1 << _WORD_BITS


def between(rng: Generator, low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high``, both included, each equally likely.

    It is the number that ``rng.integers(low, high + 1)`` would draw, and leaves the generator in the same
    state. A graph asks for thousands, and that call takes several times longer than the draw itself.
    """
    span = high - low + 1
    if not 1 < span <= _WORDS:
        return int(rng.integers(low, high + 1))
    source = rng.bit_generator.ctypes
    # Lemire's method: the upper word of a product of 64 bits, drawn again where that would not be even.
    product: int = source.next_uint32(source.state) * span
    if product & (_WORDS - 1) < span:
        least = _WORDS % span
        while product & (_WORDS - 1) < least:
            product = source.next_uint32(source.state) * span
    return low + (product >> _WORD_BITS)


def chance(rng: Generator, share: float) -> bool:
    """Draw True with probability ``share``, resolved to one in a million."""
    return between(rng, 0, PARTS - 1) < round(share * PARTS)


def pick(rng: Generator, choices: Sequence[T]) -> T:
    """Draw one of several, each equally likely."""
    return choices[between(rng, 0, len(choices) - 1)]


def pick_weighted(rng: Generator, weights: Mapping[T, int]) -> T:
    """Draw one of several by integer weight.

    Raises:
        InputError: No weight is above zero.
    """
    total = sum(weights.values())
    if total <= 0:
        raise InputError(f"none of {[str(key) for key in weights]} has a weight above zero; give one 1")
    left = between(rng, 0, total - 1)
    for choice, weight in weights.items():
        left -= weight
        if left < 0:
            return choice
    raise AssertionError("the weights add up to more than their total")  # pragma: no cover


def octave(rng: Generator, low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high`` whose magnitude, not its value, is about uniform.

    The range is cut at ``low``, ``2 low``, ``4 low``, ...; one piece is drawn, then a number in it.
    """
    pieces = max(1, ((high - 1) // low).bit_length())
    start = low << between(rng, 0, pieces - 1)
    return between(rng, start, min(2 * start, high))


def exponential(rng: Generator, mean: int) -> int:
    """Draw an exponentially distributed whole number by von Neumann's comparison of uniform numbers.

    A run of falling uniform numbers that begins with x has odd length with probability exp(-x); each run of
    even length adds one to the result. No logarithm is taken.
    """
    whole = 0
    while True:
        first = last = _word(rng)
        length = 1
        while (following := _word(rng)) < last:
            last = following
            length += 1
        if length % 2 == 1:
            return (((whole << _WORD_BITS) + first) * mean) >> _WORD_BITS
        whole += 1


def _word(rng: Generator) -> int:
    return between(rng, 0, _WORDS - 1)
