"""Which product of matrices an operator's tensors make: rows, columns and depth, whatever the layout.

A convolution and its two gradients are the product that their cube instructions make of them, with the
channels padded to the cube's depth. Only shapes are looked at, so a square matrix that may or may not be
transposed counts as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cann_env.commands import Kernel, Operand

_PRODUCTS = """
    MatMul MatMulV2 MatMulV3 BatchMatMul BatchMatMulV2 BatchMatMulV3 Gemm GEMM GemmV2 GemmV3
    MatmulV2 MatmulV3 MatMulCommon TransposeBatchMatMul QuantBatchMatmulV3 WeightQuantBatchMatmulV2
    GroupedMatmul GroupedMatMul
"""
PRODUCTS = frozenset(_PRODUCTS.split())
"""Operators that multiply their first two tensors."""

_SINGLE = frozenset(("MatMul", "MatMulV2", "MatMulV3", "Gemm", "GEMM"))

CONVOLUTIONS = frozenset(("Conv2D", "Conv2DV2"))
INPUT_GRADIENTS = frozenset(("Conv2DBackpropInput", "Conv2DBackpropInputD", "Conv2DBackpropInputV2"))
FILTER_GRADIENTS = frozenset(("Conv2DBackpropFilter", "Conv2DBackpropFilterD", "Conv2DBackpropFilterV2"))

MULTIPLIES = PRODUCTS | CONVOLUTIONS | INPUT_GRADIENTS | FILTER_GRADIENTS
"""All operators whose work is a product of matrices."""

ELEMENT_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
}
"""Bytes of an element by its type; other types take one."""

_PACKED = frozenset(("int4", "uint4", "float4e2m1"))
"""Two elements a byte."""

_CUBE = 16
_PIECE = 32
"""Rows and columns of a result that a core is given at least."""

_INTEGERS = frozenset(("int32", "int64", "uint32", "uint64", "bool"))


class Form(StrEnum):
    """How the cube comes by the operands of a product: as matrices, or unfolded from images."""

    MATRIX = "matrix"
    CONVOLUTION = "convolution"
    INPUT_GRADIENT = "input_gradient"
    FILTER_GRADIENT = "filter_gradient"


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` products of ``rows x depth`` by ``depth x columns``.

    Attributes:
        form: How the operands reach the cube.
        batch, rows, columns, depth: At least 1.
        dtype: Of the operands.
        turned: The first matrix lies the other way round in memory (``depth x rows``).
    """

    form: Form
    batch: int
    rows: int
    columns: int
    depth: int
    dtype: str
    turned: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the operands."""
        return ELEMENT_BYTES.get(self.dtype, 1)


def product_of(kernel: Kernel) -> Product | None:
    """The product a kernel computes; None if its operator is none, or its tensors do not tell."""
    op = kernel.op
    if op in PRODUCTS:
        return _matrices(kernel)
    tensors = [
        operand for operand in kernel.inputs if operand.dtype not in _INTEGERS and operand.shape != (0,)
    ]
    if not kernel.outputs or len(tensors) < 2:
        return None
    out = kernel.outputs[0]
    if op in CONVOLUTIONS:
        dtype = tensors[0].dtype or out.dtype or kernel.dtype
        return _convolution(Form.CONVOLUTION, out, tensors[1], dtype, _groups(tensors[0], tensors[1]))
    if op in INPUT_GRADIENTS:
        return _convolution(Form.INPUT_GRADIENT, tensors[1], tensors[0], tensors[1].dtype or kernel.dtype)
    if op in FILTER_GRADIENTS:
        return _convolution(Form.FILTER_GRADIENT, tensors[1], out, tensors[1].dtype or kernel.dtype)
    return None


def operand_bytes(operand: Operand, dtype: str = "") -> int:
    """Bytes of a tensor, of elements of ``dtype`` where its own type is not known."""
    dtype = operand.dtype or dtype
    if dtype in _PACKED:
        return -(-prod(operand.shape) // 2)
    return prod(operand.shape) * ELEMENT_BYTES.get(dtype, 1)


def likely_product_blocks(product: Product, cores: int) -> int:
    """Blocks of a product where they are not recorded: all cores, or one for 32 x 32 results if that is less.

    A product of 32 x 1000 was recorded on 21 cores of a 910B2, each with 48 columns (AlexNet training).
    """
    pieces = product.batch * -(-product.rows // _PIECE) * -(-product.columns // _PIECE)
    return max(1, min(cores, pieces))


def matrix_of(operand: Operand, *, blocked: bool = False) -> tuple[int, int, int]:
    """Batch, rows and columns of a tensor that is a stack of matrices; a vector is one row.

    ``FRACTAL_NZ`` lists blocks of 16 rows and of as many columns as fill 32 bytes, columns outermost.

    Args:
        operand: The tensor.
        blocked: It lies in such blocks even if its layout does not say so.
    """
    shape = operand.shape
    if (blocked or "NZ" in operand.layout) and len(shape) >= 4:
        columns, rows, in_rows, in_columns = shape[-4:]
        return prod(shape[:-4]), rows * in_rows, columns * in_columns
    if len(shape) < 2:
        return 1, 1, prod(shape)
    return prod(shape[:-2]), shape[-2], shape[-1]


def _matrices(kernel: Kernel) -> Product | None:
    if len(kernel.inputs) < 2:
        return None
    # One product of matrices with four dimensions has them in blocks, whether its layout was recorded or not.
    blocked = kernel.op in _SINGLE
    first, second = (matrix_of(operand, blocked=blocked) for operand in kernel.inputs[:2])
    if min(*first, *second) < 1:
        return None
    out = matrix_of(kernel.outputs[0], blocked=blocked) if kernel.outputs else None
    shape = _shape(first, second, out)
    if shape is None:
        return None
    rows, columns, depth, turned = shape
    # In blocks of 16 by 16 a matrix is read the same way whichever way it lies.
    in_blocks = "NZ" in kernel.inputs[0].layout or (blocked and len(kernel.inputs[0].shape) == 4)
    turned = turned and not in_blocks
    batch = max(first[0], second[0], out[0] if out else 1)
    if kernel.op.startswith("Grouped") and first[0] == 1:
        # The rows are dealt to as many products as there are second matrices.
        rows = -(-rows // batch)
    return Product(Form.MATRIX, batch, rows, columns, depth, kernel.inputs[0].dtype or kernel.dtype, turned)


def _shape(
    first: tuple[int, int, int], second: tuple[int, int, int], out: tuple[int, int, int] | None
) -> tuple[int, int, int, bool] | None:
    """Rows, columns, depth and whether the first matrix is turned, of the first reading that fits."""
    for turned in (False, True):
        rows, depth = first[2:0:-1] if turned else first[1:]
        for other in (False, True):
            columns, second_depth = second[1:] if other else second[2:0:-1]
            if second_depth == depth and (out is None or out[1:] == (rows, columns)):
                return rows, columns, depth, turned
    return None


def _convolution(form: Form, image: Operand, weights: Operand, dtype: str, groups: int = 1) -> Product | None:
    """The product of a convolution or a gradient.

    Args:
        form: Which of the three.
        image: The tensor on the output's side of the convolution: its result or the gradient of that.
        weights: The filter or its gradient.
        dtype: Of the operands.
        groups: Of channels that do not meet, of a convolution.
    """
    pixels, filters = _pixels(image), _filter(weights, groups)
    if pixels is None or filters is None:
        return None
    batch, taps, channels = filters
    rows, columns, depth = {
        Form.INPUT_GRADIENT: (pixels, taps, channels),
        Form.FILTER_GRADIENT: (channels, taps, pixels),
    }.get(form, (pixels, channels, taps))
    return Product(form, batch, rows, columns, depth, dtype) if min(rows, columns, depth) > 0 else None


def _groups(image: Operand, weights: Operand) -> int:
    """Groups of channels, as those of the image over those of a filter, if neither lies in blocks."""
    if len(image.shape) != 4 or len(weights.shape) != 4 or "FRACTAL" in weights.layout:
        return 1
    channels = image.shape[3 if image.layout == "NHWC" else 1]
    own = weights.shape[{"HWCN": 2, "NHWC": 3}.get(weights.layout, 1)]
    return channels // own if own and channels and channels % own == 0 else 1


def _pixels(image: Operand) -> int | None:
    shape = image.shape
    if len(shape) == 5:
        return shape[0] * shape[2] * shape[3]
    if len(shape) != 4:
        return None
    return prod(shape[:3]) if image.layout == "NHWC" else shape[0] * shape[2] * shape[3]


def _filter(weights: Operand, groups: int) -> tuple[int, int, int] | None:
    """Products, taps times input channels, and output channels of each, as the cube pads them.

    Groups narrower than the cube's depth are multiplied together, with zeros where they do not meet.
    """
    shape = weights.shape
    if len(shape) != 4:
        return None
    in_depth = 32 // max(1, ELEMENT_BYTES.get(weights.dtype, 1))
    if "FRACTAL" in weights.layout:
        return 1, shape[0] * shape[3], shape[1] * shape[2]
    if weights.layout == "HWCN":
        high, wide, channels, out = shape
    elif weights.layout == "NHWC":
        out, high, wide, channels = shape
    else:
        out, channels, high, wide = shape
    together = min(groups, max(1, in_depth // max(1, channels)))
    depth, columns = channels * together, out // groups * together
    return (
        -(-groups // together),
        high * wide * -(-depth // in_depth) * in_depth,
        -(-columns // _CUBE) * _CUBE,
    )
