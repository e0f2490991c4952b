"""Operations of fused attention, from the shapes of its tensors."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cann_env.commands import Kernel, Operand

FORWARD = frozenset(("FlashAttentionScore", "PromptFlashAttention", "FusedInferAttentionScore"))
BACKWARD = frozenset(("FlashAttentionScoreGrad",))

CAUSAL_MASK = (2048, 2048)
"""Shape of the mask that stands for a causal one of any size (sparse modes 2 to 4 of the operator)."""

_STATISTICS = 8
"""Copies that the operator keeps of each row's maximum and sum, the innermost size of those tensors."""

_PRODUCTS = 2
_BACKWARD_OVER_FORWARD = 2.5


def attention_flops(kernel: Kernel) -> int:
    """Operations of the matrix products of a fused attention or its gradient; 0 for another operator.

    The forward pass multiplies twice, its gradient five times (it computes the scores anew; FlashAttention-2,
    Dao, 2023). Under a causal mask only what it leaves is computed. Heads and rows are read from the
    row statistics that the operator keeps; where they are not recorded, from queries of four dimensions.
    """
    backward = kernel.op in BACKWARD
    if kernel.op not in FORWARD | BACKWARD or len(kernel.inputs) < 3:
        return 0
    query, key = kernel.inputs[:2]
    heads = _heads(kernel)
    if heads is None or not prod(query.shape) or not prod(key.shape):
        return 0
    batch, count, rows = heads
    width = prod(query.shape) // (batch * count * rows)
    keys = _keys(query, key, heads)
    full = 2 * _PRODUCTS * batch * count * rows * keys * width
    if any(operand.shape[-2:] == CAUSAL_MASK for operand in kernel.inputs[3:]):
        # Row i of the last rows sees all keys but those after it.
        full -= full * min(rows, keys) // (2 * keys)
    return int(full * _BACKWARD_OVER_FORWARD) if backward else full


def _heads(kernel: Kernel) -> tuple[int, int, int] | None:
    """Batch, heads and rows."""
    for operand in (*kernel.outputs, *kernel.inputs[3:]):
        if len(operand.shape) == 4 and operand.shape[-1] == _STATISTICS and operand.dtype == "float32":
            batch, heads, rows, _ = operand.shape
            return (batch, heads, rows) if min(batch, heads, rows) > 0 else None
    shape = kernel.inputs[0].shape
    return (shape[0], shape[1], shape[2]) if len(shape) == 4 and min(shape) > 0 else None


def _keys(query: Operand, key: Operand, heads: tuple[int, int, int]) -> int:
    """Rows of the keys: the size at the place where the queries have theirs."""
    rows = heads[2]
    if query.shape[:3] == heads and len(key.shape) == len(query.shape):
        return max(1, key.shape[2])
    places = [place for place, size in enumerate(query.shape) if size == rows]
    if places and len(key.shape) == len(query.shape):
        return max(1, key.shape[places[0]])
    return rows
