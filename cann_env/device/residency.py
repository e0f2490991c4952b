"""Which inputs of recorded kernels lay in L2: the engine's rule of recency, for an order without buffers.

A recording names no buffers, so tensors are told apart by their number of elements and their type: an input
is the newest tensor of its kind that was written, another input of the same kernel the one before. What was
read already counts only for a reader that sees the same shape. What was written stays until newer bytes push
it out; reading renews its place, and of what is larger than L2 as much stays as fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from cann_env.device.products import operand_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.commands import Kernel, Operand


TOO_MUCH = 4
"""A kernel that touches as many times the capacity pushes out some of its own inputs, twice that all."""


@dataclass(slots=True)
class _Held:
    """A tensor in L2: what it looks like, how many of its bytes are left, and as what it was read last."""

    kind: tuple[int, str]
    size: int
    read_as: tuple[int, ...] | None = None


def found_bytes(kernels: Iterable[Kernel], l2_bytes: int) -> list[int]:
    """Bytes of the inputs of each kernel that lie in L2 when it starts, in the order in which they ran.

    Args:
        kernels: In the order of their start.
        l2_bytes: Capacity.
    """
    held: dict[int, _Held] = {}
    total, number = 0, 0
    found = []
    for kernel in kernels:
        seen = _read(held, kernel)
        found.append(int(sum(held[place].size for place in seen) * _survives(kernel, l2_bytes)))
        for operand in kernel.outputs:
            size = min(operand_bytes(operand), l2_bytes)
            if size:
                total = _make_room(held, total, l2_bytes - size) + size
                number += 1
                held[number] = _Held(_kind(operand), size)
    return found


def _survives(kernel: Kernel, l2_bytes: int) -> float:
    """Part of its inputs in L2 that a kernel comes to before it has pushed them out itself."""
    touched = sum(map(operand_bytes, (*kernel.inputs, *kernel.outputs)))
    return min(1.0, max(0.0, 2 - touched / (TOO_MUCH * l2_bytes))) if l2_bytes else 0.0


def _kind(operand: Operand) -> tuple[int, str]:
    return prod(operand.shape), operand.dtype


def _read(held: dict[int, _Held], kernel: Kernel) -> list[int]:
    """Find the inputs of a kernel, and make them the most recent."""
    seen: list[int] = []
    for operand in kernel.inputs:
        place = _newest(held, operand, seen)
        if place is not None:
            seen.append(place)
            held[place].read_as = operand.shape
    for place in seen:
        held[place] = held.pop(place)
    return seen


def _newest(held: dict[int, _Held], operand: Operand, seen: list[int]) -> int | None:
    kind = _kind(operand)
    return next(
        (
            place
            for place in reversed(held)
            if held[place].kind == kind and held[place].read_as in (None, operand.shape) and place not in seen
        ),
        None,
    )


def _make_room(held: dict[int, _Held], total: int, room: int) -> int:
    """Push out the oldest bytes until no more than ``room`` are left; the last victim loses only a part."""
    while total > room:
        place = next(iter(held))
        excess = total - room
        if held[place].size <= excess:
            total -= held.pop(place).size
        else:
            held[place].size -= excess
            total = room
    return total
