"""Shapes that ONNX does not infer: fused operators of ``com.microsoft``, and sizes that depend on data.

Sizes that depend on data take their upper bound. Also here: how a hard-coded reshape grows with the batch.
Pure functions of shapes; they know neither a device nor the ONNX package.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Shape = tuple[int, ...]


class Facts(NamedTuple):
    """What a shape rule may look at: shapes of the inputs, small constant inputs, attributes.

    Both ``shapes`` and ``values`` hold None where an input is left out; ``values`` also where it is no small
    constant.
    """

    shapes: Sequence[Shape | None]
    values: Sequence[Sequence[float] | None]
    attributes: Mapping[str, Any]

    def shape(self, place: int) -> Shape:
        """Shape of an input that must be there.

        Raises:
            IndexError: It is left out.
        """
        shape = self.shapes[place] if place < len(self.shapes) else None
        if shape is None:
            raise IndexError(f"input {place} is left out")
        return shape


def _like(*places: int) -> Callable[[Facts], list[Shape]]:
    """Each output has the shape of the input at that place."""
    return lambda facts: [facts.shape(place) for place in places]


def _broadcast(*places: int) -> Callable[[Facts], list[Shape]]:
    def rule(facts: Facts) -> list[Shape]:
        shapes = [facts.shape(place) for place in places]
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        return [tuple(max(sizes) for sizes in zip(*padded, strict=True))]

    return rule


def _skip_normalization(facts: Facts) -> list[Shape]:
    x = facts.shape(0)
    statistics = (*x[:-1], 1)
    return [x, statistics, statistics, x]


def _embed(facts: Facts) -> list[Shape]:
    batch, sequence = facts.shape(0)
    width = facts.shape(2)[-1]
    return [(batch, sequence, width), (batch,), (batch, sequence, width)]


def _packed_attention(facts: Facts) -> list[Shape]:
    batch, sequence, _ = facts.shape(0)
    weights = facts.shape(1)[-1]
    width = facts.attributes.get("qkv_hidden_sizes", [0, 0, weights // 3])[2]
    heads = facts.attributes["num_heads"]
    past = facts.shapes[4][3] if len(facts.shapes) > 4 and facts.shapes[4] else 0
    return [(batch, sequence, width), (2, batch, heads, past + sequence, width // heads)]


def _attention(facts: Facts) -> list[Shape]:
    query, key, value = facts.shape(0), facts.shape(1), facts.shape(2)
    heads = facts.attributes["num_heads"]
    past = facts.shapes[6][2] if len(facts.shapes) > 6 and facts.shapes[6] else 0
    width = value[-1] * (heads if len(value) == 4 else 1)
    context = past + key[-2]
    kept = (query[0], heads, context)
    return [(*query[:2], width), (*kept, query[-1] // heads), (*kept, width // heads)]


def _fused_matmul(facts: Facts) -> list[Shape]:
    a, b = facts.shape(0), facts.shape(1)
    rows = a[-1 if facts.attributes.get("transA", 0) else -2]
    columns = b[-2 if facts.attributes.get("transB", 0) else -1]
    stack = _broadcast(0, 1)(Facts([a[:-2], b[:-2]], [], {}))[0]
    return [(*stack, rows, columns)]


def _matmul(facts: Facts) -> list[Shape]:
    return [(*facts.shape(0)[:-1], facts.shape(1)[-1])]


def _packed_matmul(facts: Facts) -> list[Shape]:
    return [(*facts.shape(0)[:-1], facts.attributes["N"])]


def _non_zero(facts: Facts) -> list[Shape]:
    x = facts.shape(0)
    return [(len(x), prod(x))]


def _non_max_suppression(facts: Facts) -> list[Shape]:
    (batch, boxes, _), classes = facts.shape(0), facts.shape(1)[1]
    limit = facts.values[2] if len(facts.values) > 2 else [0]
    kept = min(boxes, int(limit[0])) if limit else boxes
    return [(batch * classes * kept, 3)]


def _unique(facts: Facts) -> list[Shape]:
    x = facts.shape(0)
    axis = facts.attributes.get("axis")
    count = prod(x) if axis is None else x[axis]
    return [(count,) if axis is None else x, (count,), (count,), (count,)]


def _compress(facts: Facts) -> list[Shape]:
    x = facts.shape(0)
    return [(prod(x),) if facts.attributes.get("axis") is None else x]


SHAPE_RULES: dict[str, Callable[[Facts], list[Shape]]] = {
    **dict.fromkeys(("Gelu", "FastGelu", "BiasGelu", "QuickGelu", "RotaryEmbedding"), _like(0)),
    **dict.fromkeys(("GroupNormalization", "MeanVarianceNormalization"), _like(0)),
    "SimplifiedLayerNormalization": _like(0),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_normalization),
    "EmbedLayerNormalization": _embed,
    "Attention": _packed_attention,
    "MultiHeadAttention": _attention,
    "FusedMatMul": _fused_matmul,
    "MatMulIntegerToFloat": _matmul,
    "MatMulNBits": _packed_matmul,
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _broadcast(0, 3)),
    "NonZero": _non_zero,
    "NonMaxSuppression": _non_max_suppression,
    "Unique": _unique,
    "Compress": _compress,
}
"""Shapes of the outputs, as many as the rule knows, by operator. Asked only where ONNX has no answer."""

RESULT_TYPE_OF = {"EmbedLayerNormalization": 2, "MatMulIntegerToFloat": 2}
"""Which input has the type of the results, where it is not the first."""


def rescaled_reshape(target: Sequence[int], before_in: Shape, before_out: Shape, now_in: Shape) -> Shape:
    """Adapt the hard-coded target of a reshape to an input that grew along one axis.

    A target that starts with -1 or 0 adapts by itself. Otherwise the output axis grows that has as many
    elements before it as the input axis has: a reshape keeps the order of the elements.

    Args:
        target: As written in the model.
        before_in: Input's shape at the model's own batch.
        before_out: Output's shape then.
        now_in: Input's shape now.

    Returns:
        The target to use; unchanged if no axis grew or none fits.
    """
    if not target or target[0] in (-1, 0) or before_in == now_in:
        return tuple(target)
    axis = next(i for i, (old, new) in enumerate(zip(before_in, now_in, strict=True)) if old != new)
    lead, factor = prod(before_in[:axis]), Fraction(now_in[axis], before_in[axis])
    for i, size in enumerate(before_out):
        if prod(before_out[:i]) == lead and (size * factor).denominator == 1:
            return (*before_out[:i], int(size * factor), *before_out[i + 1 :])
    return tuple(target)
