"""Which inputs of recorded kernels lay in L2: the engine's rule of recency, for an order without buffers.

A recording names no buffers, so tensors are told apart by their number of elements and their type: an input
is the newest tensor of its kind that was written, another input of the same kernel the one before. What was
written stays until newer bytes push it out; reading renews its place, and what is larger than L2 runs through.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cann_env.device.work import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.commands import Kernel, Operand


def found_bytes(kernels: Iterable[Kernel], l2_bytes: int) -> list[int]:
    """Bytes of the inputs of each kernel that lie in L2 when it starts, in the order in which they ran.

    Args:
        kernels: In the order of their start.
        l2_bytes: Capacity.
    """
    held: dict[int, tuple[tuple[int, str], int]] = {}
    total, number = 0, 0
    found = []
    for kernel in kernels:
        hit = 0
        seen: list[int] = []
        for operand in kernel.inputs:
            place = _newest(held, _kind(operand), seen)
            if place is not None:
                seen.append(place)
                hit += held[place][1]
        for place in seen:
            held[place] = held.pop(place)
        for operand in kernel.outputs:
            size = size_bytes(operand)
            if not size:
                continue
            total = _make_room(held, total, l2_bytes - size)
            if size <= l2_bytes:
                number += 1
                held[number] = _kind(operand), size
                total += size
        found.append(hit)
    return found


def _kind(operand: Operand) -> tuple[int, str]:
    return prod(operand.shape), operand.dtype


def _newest(
    held: dict[int, tuple[tuple[int, str], int]], kind: tuple[int, str], seen: list[int]
) -> int | None:
    return next((place for place in reversed(held) if held[place][0] == kind and place not in seen), None)


def _make_room(held: dict[int, tuple[tuple[int, str], int]], total: int, room: int) -> int:
    """Push out the oldest bytes until no more than ``room`` are left; the last victim loses only a part."""
    room = max(room, 0)
    while total > room:
        place = next(iter(held))
        kind, size = held[place]
        if size <= total - room:
            del held[place]
            total -= size
        else:
            held[place] = kind, size - (total - room)
            total = room
    return total
