"""Integer arithmetic that rounds so that work is never lost and never ends too early."""

from __future__ import annotations

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    Q20,
)


@kernel
def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below ``a / b`` for ``a >= 0`` and ``b > 0``."""
    return (a + b - 1) // b


@kernel
def scaled(value: int, factor: int) -> int:
    """``value * factor / 2**20`` rounded up, without overflow for values up to 2**56."""
    if factor == Q20:
        return value
    whole = value // Q20
    return whole * factor + ceil_div((value - whole * Q20) * factor, Q20)
