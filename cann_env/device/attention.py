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

_MOST_HEADS = 256
_PRODUCTS = 2
_BACKWARD_OVER_FORWARD = 2.5


def attention_flops(kernel: Kernel) -> int:
    """Operations of the matrix products of a fused attention or its gradient; 0 for another operator.

    The forward pass multiplies twice, its gradient five times (it computes the scores anew; FlashAttention-2,
    Dao, 2023). Under a causal mask only what it leaves is computed. Rows are read from the row statistics
    that the operator keeps; where they are not recorded, of three sizes the longer of the first two is taken
    for them (``BSH`` and ``SBH``), of four the third (``BNSD``), or the second if it is the longer and more
    than any model has heads (``BSND``). Several sequences in a row (``TND``) are then taken for one.
    """
    backward = kernel.op in BACKWARD
    if kernel.op not in FORWARD | BACKWARD or len(kernel.inputs) < 3:
        return 0
    query, key = kernel.inputs[:2]
    found = _rows_and_keys(kernel, query, key)
    if found is None or not prod(query.shape) or not prod(key.shape):
        return 0
    rows, keys = found
    full = 2 * _PRODUCTS * prod(query.shape) * keys
    if any(operand.shape[-2:] == CAUSAL_MASK for operand in kernel.inputs[3:]):
        # Row i of the last rows sees all keys but those after it.
        full -= full * min(rows, keys) // (2 * keys)
    return int(full * _BACKWARD_OVER_FORWARD) if backward else full


def _rows_and_keys(kernel: Kernel, query: Operand, key: Operand) -> tuple[int, int] | None:
    """Rows of the queries and of the keys of a sequence."""
    for operand in (*kernel.outputs, *kernel.inputs[3:]):
        if len(operand.shape) == 4 and operand.shape[-1] == _STATISTICS and operand.dtype == "float32":
            heads = operand.shape[:3]
            return (heads[2], _keys(query, key, heads)) if min(operand.shape) > 0 else None
    if len(query.shape) not in (3, 4) or len(key.shape) != len(query.shape):
        return None
    place = _place_of_rows(key.shape)
    return query.shape[place], key.shape[place]


def _place_of_rows(shape: tuple[int, ...]) -> int:
    """Where rows stand: of three sizes the longer of the first two, of four the third as a rule."""
    if len(shape) == 3:
        return 0 if shape[0] > shape[1] else 1
    return 1 if shape[1] > max(shape[2], _MOST_HEADS) else 2


def _keys(query: Operand, key: Operand, heads: tuple[int, ...]) -> int:
    """Rows of the keys: the size at the place where the queries have theirs."""
    rows = heads[2]
    if query.shape[:3] == heads and len(key.shape) == len(query.shape):
        return max(1, key.shape[2])
    places = [place for place, size in enumerate(query.shape) if size == rows]
    if places and len(key.shape) == len(query.shape):
        return max(1, key.shape[places[0]])
    return rows
