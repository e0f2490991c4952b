"""Types that a recording leaves out: that as which a tensor is read next, else that of its kernel's input."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Kernel, Operand

LOOK_AHEAD = 4
"""Kernels after one that may read what it wrote."""


def typed(kernel: Kernel, after: Sequence[Kernel] = ()) -> Kernel:
    """A kernel whose outputs all have a type, as far as that can be told.

    Args:
        kernel: As recorded.
        after: Those that follow it in its recording; only the first few are looked at.
    """
    if all(output.dtype for output in kernel.outputs):
        return kernel
    read = [operand for later in after[:LOOK_AHEAD] for operand in later.inputs if operand.dtype]
    first = next((operand.dtype for operand in kernel.inputs if operand.dtype), "")
    return replace(kernel, outputs=tuple(_typed(output, read, first) for output in kernel.outputs))


def typed_in_order(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The same of all kernels of a recording, in the order of their start."""
    return [typed(kernel, kernels[i + 1 : i + 1 + LOOK_AHEAD]) for i, kernel in enumerate(kernels)]


def _typed(output: Operand, read: Sequence[Operand], first: str) -> Operand:
    size = prod(output.shape)
    seen = next((operand.dtype for operand in read if prod(operand.shape) == size), first)
    return output if output.dtype else replace(output, dtype=seen)
