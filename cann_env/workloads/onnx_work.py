"""How much work one ONNX operator is: tensors of known shape in, operations, bytes and tiles out.

Every cost function here takes an :class:`Operator` and returns its :class:`Work`; the table in
:mod:`cann_env.workloads.onnx_ops` says which function belongs to which operator. Nothing here knows a
device or the ONNX package.

Counted are multiply-adds of matrix products (two operations each), a few operations an element for the
rest, every operand once. Whole tiles are what a kernel's blocks share out: 128 x 256 elements of a matrix
product, 16 KiB of the larger side of anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from cann_env.workloads.onnx_tensors import Operator, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

TILE_ROWS, TILE_COLUMNS = 128, 256
TILE_BYTES = 16 * 1024


class Work(NamedTuple):
    """What one kernel does: operations, bytes moved, and tiles it can be cut into."""

    flops: int
    bytes_read: int
    bytes_written: int
    tiles: int


Cost = Callable[[Operator], Work]
"""A cost function."""


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors."""
    return sum(tensor.size_bytes for tensor in tensors)


def vector(per_element: int) -> Cost:
    """So many operations for each element of the largest operand or result."""

    def cost(op: Operator) -> Work:
        tensors = [tensor for tensor in (*op.inputs, *op.outputs) if tensor is not None]
        elements = max(tensor.elements for tensor in tensors)
        return _streamed(op, per_element * elements)

    return cost


def variadic(op: Operator) -> Work:
    """One operation for each element and each operand after the first."""
    return _streamed(op, (len(op.inputs) - 1) * sum(tensor.elements for tensor in op.results))


def window(op: Operator) -> Work:
    """One operation for each element of the result and each place of its window (pooling, LRN)."""
    area = prod(op.attributes.get("kernel_shape", [op.attributes.get("size", 1)]))
    return _streamed(op, area * op.results[0].elements)


def movement(op: Operator) -> Work:
    """No arithmetic: of the first operand only what reaches the results is read (Slice, Gather, Concat)."""
    written = total_bytes(op.results)
    read = min(total_bytes(op.data[:1]), written) + total_bytes(op.data[1:])
    return Work(0, read, written, _byte_tiles(read, written))


def single(per_element: int) -> Cost:
    """So many operations for each element of the first operand, in one piece: control work."""

    def cost(op: Operator) -> Work:
        return _streamed(op, per_element * op.needed(0).elements)._replace(tiles=1)

    return cost


def conv(weights: int) -> Cost:
    """Convolution whose filters are input ``weights``: (filters, channels of a group, *window)."""

    def cost(op: Operator) -> Work:
        out, filters = op.results[0], op.needed(weights)
        groups = op.attributes.get("group", 1)
        pixels = out.elements // max(1, filters.shape[0])
        tiles = groups * matrix_tiles(pixels, filters.shape[0] // groups)
        return _product(op, out.elements * prod(filters.shape[1:]), tiles)

    return cost


def conv_transpose(op: Operator) -> Work:
    """Transposed convolution with filters (channels, filters of a group, *window)."""
    source, filters, out = op.needed(0), op.needed(1), op.results[0]
    groups = op.attributes.get("group", 1)
    pixels = out.elements // max(1, out.shape[1])
    tiles = groups * matrix_tiles(pixels, filters.shape[1])
    return _product(op, source.elements * prod(filters.shape[1:]), tiles)


def gemm(op: Operator) -> Work:
    """(m, k) times (k, n); both may be given transposed."""
    left, out = op.needed(0), op.results[0]
    k = left.shape[0 if op.attributes.get("transA", 0) else 1]
    return _product(op, out.elements * k, matrix_tiles(*out.shape))


def matmul(left: int, right: int) -> Cost:
    """Stacked matrix product of two inputs, with broadcasting; one tile grid for each matrix of ``right``."""

    def cost(op: Operator) -> Work:
        a, b, out = op.needed(left), op.needed(right), op.results[0]
        k = a.shape[-2 if op.attributes.get("transA", 0) else -1]
        n = out.shape[-1] if len(b.shape) > 1 else 1
        stacked = len(b.shape) > 2 and len(out.shape) > 2
        stack = prod(out.shape[:-2]) if stacked and prod(b.shape[:-2]) > 1 else 1
        rows = out.elements // max(1, stack * n)
        return _product(op, out.elements * k, stack * matrix_tiles(rows, n))

    return cost


def packed_matmul(op: Operator) -> Work:
    """Product with weights of a few bits (MatMulNBits): attributes K and N are the weights' true shape."""
    out = op.results[0]
    n = op.attributes["N"]
    return _product(op, out.elements * op.attributes["K"], matrix_tiles(out.elements // n, n))


def einsum(op: Operator) -> Work:
    """A multiply-add for each element of the result and each value of the summed indices."""
    terms, sizes, right = labels_of(op)
    summed = prod(size for label, size in sizes.items() if label not in right)
    out = op.results[0]
    columns = out.shape[-1] if out.shape else 1
    tiles = matrix_tiles(out.elements // max(1, columns), columns)
    return _product(op, out.elements * summed * max(1, len(terms) - 1), tiles)


def labels_of(op: Operator) -> tuple[list[str], dict[str, int], str]:
    """Indices of the operands of an Einsum, the size of each, and those of the result."""
    left, _, right = op.attributes["equation"].replace(" ", "").partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, op.inputs, strict=True):
        if tensor is not None:
            head, _, tail = term.partition("...")
            sizes.update(zip(head, tensor.shape, strict=False))
            sizes.update(zip(tail[::-1], tensor.shape[::-1], strict=False))
    if not right:
        right = "".join(label for label in sizes if left.count(label) == 1)
    return terms, sizes, right


def recurrent(gates: int) -> Cost:
    """RNN, GRU, LSTM: x (steps, batch, inputs) in either layout, w (directions, gates * hidden, inputs)."""

    def cost(op: Operator) -> Work:
        x, w, r = op.needed(0), op.needed(1), op.needed(2)
        directions, hidden = w.shape[0], r.shape[2]
        steps = x.shape[0] * x.shape[1]
        batch = x.shape[0] if op.attributes.get("layout", 0) else x.shape[1]
        macs = steps * directions * gates * hidden * (x.shape[2] + hidden)
        return _product(op, macs, directions * matrix_tiles(batch, gates * hidden))

    return cost


def attention(op: Operator) -> Work:
    """Fused attention over query, key, value: scores and weighted values; a causal mask saves nothing.

    Operands are (batch, sequence, heads * size) or (batch, heads, sequence, size). Keys and values kept from
    earlier steps count, too.
    """
    query, key = op.needed(0), op.needed(1)
    heads = _heads(op, query)
    width = query.elements // (query.shape[0] * _sequence(query))
    context = _sequence(key) + _past(op)
    value_width = op.results[0].elements // (query.shape[0] * _sequence(query))
    rows = query.shape[0] * _sequence(query)
    macs = rows * context * (width + value_width)
    tiles = query.shape[0] * heads * matrix_tiles(_sequence(query), 1)
    return _product(op, macs, tiles)


def packed_attention(op: Operator) -> Work:
    """Fused attention that also projects its input (batch, sequence, width) to query, key and value."""
    source, weights, out = op.needed(0), op.needed(1), op.results[0]
    batch, sequence, width = source.shape
    past = op.operand(4)
    context = sequence + (past.shape[3] if past is not None else 0)
    rows = batch * sequence
    macs = rows * width * weights.shape[-1] + 2 * rows * context * out.shape[-1]
    tiles = max(matrix_tiles(rows, weights.shape[-1]), batch * op.attributes["num_heads"])
    return _product(op, macs, tiles)


def matrix_tiles(rows: int, columns: int) -> int:
    """Tiles of 128 x 256 that cover a matrix; at least one."""
    return max(1, -(-rows // TILE_ROWS) * -(-columns // TILE_COLUMNS))


def _heads(op: Operator, query: Tensor) -> int:
    named = op.attributes.get("q_num_heads", op.attributes.get("num_heads", 0))
    return query.shape[1] if len(query.shape) == 4 else max(1, int(named))


def _sequence(tensor: Tensor) -> int:
    return tensor.shape[-2]


def _past(op: Operator) -> int:
    """Length of the keys kept from earlier steps, (batch, heads, length, size)."""
    past = op.operand(6 if op.op == "MultiHeadAttention" else 4)
    return past.shape[2] if past is not None else 0


def _product(op: Operator, macs: int, tiles: int) -> Work:
    return Work(2 * macs, total_bytes(op.data), total_bytes(op.results), max(1, tiles))


def _streamed(op: Operator, flops: int) -> Work:
    read, written = total_bytes(op.data), total_bytes(op.results)
    return Work(flops, read, written, _byte_tiles(read, written))


def _byte_tiles(read: int, written: int) -> int:
    return max(1, -(-max(read, written) // TILE_BYTES))
