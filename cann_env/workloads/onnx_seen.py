"""How an operator of CANN sees the tensors of an ONNX operator, in shapes that the cost model can price.

A stack of vectors times one matrix is one product, a convolution in one dimension has images one pixel high,
a gather finds whole rows. What is left without tensors is work that the cost model knows nothing of; its
operations and bytes are timed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from cann_env.graph import Operand
from cann_env.workloads.onnx_work import labels_of

if TYPE_CHECKING:
    from cann_env.workloads.onnx_tensors import Operator, Tensor


class Seen(NamedTuple):
    """What a kernel runs and on what.

    Attributes:
        op: In CANN's words.
        inputs: The tensors it reads.
        outputs: The tensors it writes.
    """

    op: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()


View = Callable[["Operator", str], Seen]
"""Says how the operator of that name in CANN sees an operator of ONNX."""

_MULTIPLIED = {dtype: dtype for dtype in ("float16", "bfloat16", "float32", "int8")} | {"uint8": "int8"}
"""Types of matrices that the cube multiplies, and as which."""


def whole(op: Operator, name: str) -> Seen:
    """All tensors as they are."""
    return Seen(name, tuple(map(_operand, op.data)), tuple(map(_operand, op.results)))


def unknown(op: Operator, name: str) -> Seen:
    """No tensors: the cost model does not know how the work goes."""
    del op
    return Seen(name)


def rows(op: Operator, name: str) -> Seen:
    """A gather along an axis: rows are what lies together behind it."""
    axis = op.attributes.get("axis", 0)
    return _of_rows(op, name, axis % len(op.needed(0).shape) + 1)


def indexed(op: Operator, name: str) -> Seen:
    """A gather by tuples of indices: rows are what lies together behind the dimensions that they name."""
    return _of_rows(op, name, op.attributes.get("batch_dims", 0) + op.needed(1).shape[-1])


def _of_rows(op: Operator, name: str, leading: int) -> Seen:
    table = op.needed(0)
    source = Operand((prod(table.shape[:leading]), prod(table.shape[leading:])), table.dtype)
    return Seen(name, (source, *_others(op, 0)), tuple(map(_operand, op.results)))


def convolution(filters: int) -> View:
    """Convolution whose filters are input ``filters``, in one or two dimensions."""

    def seen(op: Operator, name: str) -> Seen:
        image, weights, out = (_flat(tensor) for tensor in (op.needed(0), op.needed(filters), op.results[0]))
        if image is None or weights is None or out is None or image.dtype not in _MULTIPLIED:
            return Seen(name)
        return Seen(name, (image, weights, *_others(op, 0, filters)), (out,))

    return seen


def transposed_convolution(op: Operator, name: str) -> Seen:
    """The gradient of a convolution with the same filters: those come first."""
    seen = convolution(1)(op, name)
    if not seen.inputs:
        return seen
    image, weights, *others = seen.inputs
    return Seen(name, (weights, image, *others), seen.outputs)


def product(op: Operator, name: str) -> Seen:
    """Product of two matrices, either of which may be given transposed."""
    left, right = _matrix(op.needed(0)), _operand(op.needed(1))
    if left is None:
        return Seen(name)
    others = _others(op, 0, 1)
    return Seen(_integer(left, name), (left, right, *others), tuple(map(_operand, op.results)))


def stacked(left: int, right: int) -> View:
    """Stacked product with broadcasting; a stack times a single matrix is one product of more rows."""

    def seen(op: Operator, name: str) -> Seen:
        a, b, out = op.needed(left), op.needed(right), op.results[0]
        first = _matrix(a)
        if first is None or not a.elements or not b.elements:
            return Seen(name)
        turned_a, turned_b = (op.attributes.get(key, 0) for key in ("transA", "transB"))
        k = a.shape[-2 if turned_a else -1]
        m, n = prod(a.shape[-2:]) // k, prod(b.shape[-2:]) // k
        stacks = [prod(a.shape[:-2]), prod(b.shape[:-2]), out.elements // (m * n)]
        single = stacks[1] == 1 and not (turned_a and stacks[0] > 1)
        if single:
            m, stacks = m * stacks[2], []
        shapes = ((k, m) if turned_a else (m, k), (n, k) if turned_b else (k, n), (m, n))
        types = (first.dtype, _MULTIPLIED.get(b.dtype, b.dtype), out.dtype)
        one, two, three = (
            Operand((*stacks[place : place + 1], *shape), dtype)
            for place, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
        )
        named = _integer(first, name if single else f"Batch{name}")
        return Seen(named, (one, two, *_others(op, left, right)), (three,))

    return seen


def packed(op: Operator, name: str) -> Seen:
    """Product with weights of a few bits, which are widened on the way; attributes K and N say how many."""
    left, out = _matrix(op.needed(0)), op.results[0]
    k, n = op.attributes["K"], op.attributes["N"]
    if left is None:
        return Seen(name)
    m = out.elements // n
    weights = Operand((k, n), "int4" if op.attributes.get("bits", 4) <= 4 else "int8")
    return Seen(
        name, (Operand((m, k), left.dtype), weights, *_others(op, 0, 1)), (Operand((m, n), out.dtype),)
    )


def contraction(op: Operator, name: str) -> Seen:
    """Einsum of two tensors that is a stacked product, whatever the order of its indices."""
    terms, sizes, right = labels_of(op)
    if len(terms) != 2 or "." in "".join(terms) or len(op.inputs) != 2:
        return Seen("Einsum")
    first = _matrix(op.needed(0))
    one, two, kept = set(terms[0]), set(terms[1]), set(right)
    diagonal = len(one) + len(two) < len(terms[0] + terms[1])
    if first is None or diagonal or (one ^ two) - kept:
        return Seen("Einsum")

    def size(labels: set[str]) -> int:
        return prod(sizes[label] for label in labels)

    batch, m, n, k = size(one & two & kept), size(one - two), size(two - one), size((one & two) - kept)
    second, out = op.needed(1), op.results[0]
    return Seen(
        name,
        (Operand((batch, m, k), first.dtype), Operand((batch, k, n), second.dtype)),
        (Operand((batch, m, n), out.dtype),),
    )


def heads(op: Operator, name: str) -> Seen:
    """Fused attention, as (batch, heads, sequence, size); keys and values kept from earlier steps count."""
    query, key = op.needed(0), op.needed(1)
    named = int(op.attributes.get("q_num_heads", op.attributes.get("num_heads", 0)))
    count = query.shape[1] if len(query.shape) == 4 else max(1, named)
    batch, sequence = query.shape[0], query.shape[-2]
    width = query.elements // (batch * count * sequence)
    past = op.operand(6 if op.op == "MultiHeadAttention" else 4)
    context = key.shape[-2] + (past.shape[2] if past is not None else 0)
    pairs = max(1, key.elements // (batch * key.shape[-2] * width))
    kept = Operand((batch, pairs, context, width), key.dtype)
    asked = Operand((batch, count, sequence, width), query.dtype)
    out = op.results[0]
    given = Operand((batch, count, sequence, out.elements // (batch * count * sequence)), out.dtype)
    return Seen(name, (asked, kept, kept), (given,))


def _operand(tensor: Tensor) -> Operand:
    return Operand(tensor.shape, tensor.dtype)


def _matrix(tensor: Tensor) -> Operand | None:
    dtype = _MULTIPLIED.get(tensor.dtype)
    return Operand(tensor.shape, dtype) if dtype else None


def _integer(left: Operand, name: str) -> str:
    return "QuantBatchMatmulV3" if left.dtype == "int8" else name


def _flat(tensor: Tensor) -> Operand | None:
    """An image or a filter in two dimensions, or None if it has more or cannot be multiplied."""
    dtype, shape = _MULTIPLIED.get(tensor.dtype, tensor.dtype), tensor.shape
    if len(shape) == 3:
        return Operand((shape[0], shape[1], 1, shape[2]), dtype, "NCHW")
    return Operand(shape, dtype, "NCHW") if len(shape) == 4 else None


def _others(op: Operator, *places: int) -> tuple[Operand, ...]:
    """What is read beside the inputs at some places: bias, scales, zero points."""
    names = {op.needed(place).name for place in places}
    return tuple(_operand(tensor) for tensor in op.data if tensor.name not in names)
