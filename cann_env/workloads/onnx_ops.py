"""The table of ONNX operators: which class of core runs each, and which function counts its work.

An operator is looked up by name, those of ``com.microsoft`` too. What is not here is unsupported: control
flow, sequences, texts, training. To support an operator, add its name to a row; if its shape cannot be
inferred by ONNX itself, add a rule to :mod:`cann_env.workloads.onnx_shapes`.

Operations an element of vector work are assumed: 1 for what is one instruction, 4 for divisions and roots,
8 for exponentials and normalisations, 16 for longer formulas. Control work is one block on a control
processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.graph import KernelClass
from cann_env.workloads.onnx_work import (
    Cost,
    attention,
    conv,
    conv_transpose,
    einsum,
    gemm,
    matmul,
    movement,
    packed_attention,
    packed_matmul,
    recurrent,
    single,
    variadic,
    vector,
    window,
)

if TYPE_CHECKING:
    from cann_env.workloads.onnx_tensors import Operator


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator runs.

    Attributes:
        kernel_class: The class of core.
        cost: Counts its work.
    """

    kernel_class: KernelClass
    cost: Cost


VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"))
"""Operators that only look at their first input another way: no kernel, no memory. (A Dropout whose mask is
read is a kernel.)"""

CONSTANT_VIEWS = VIEWS | {"Transpose", "DequantizeLinear"}
"""What is also a view where the input is a weight: it is read transposed, or dequantised on the way."""


def _rows(kernel_class: KernelClass, cost: Cost, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), Rule(kernel_class, cost))


_CUBE, _VECTOR, _MIX, _AICPU = KernelClass.CUBE, KernelClass.VECTOR, KernelClass.MIX, KernelClass.AICPU

RULES: dict[str, Rule] = {
    # Matrix products.
    **_rows(_CUBE, conv(1), "Conv ConvInteger FusedConv"),
    **_rows(_CUBE, conv(3), "QLinearConv"),
    **_rows(_CUBE, conv_transpose, "ConvTranspose"),
    **_rows(_CUBE, gemm, "Gemm FusedGemm"),
    **_rows(_CUBE, matmul(0, 1), "MatMul MatMulInteger FusedMatMul MatMulIntegerToFloat"),
    **_rows(_CUBE, matmul(0, 3), "QLinearMatMul"),
    **_rows(_CUBE, packed_matmul, "MatMulNBits"),
    **_rows(_CUBE, einsum, "Einsum"),
    # Matrix products and vector work in one kernel.
    **_rows(_MIX, attention, "Attention MultiHeadAttention"),
    **_rows(_MIX, packed_attention, "com.microsoft.Attention"),
    **_rows(_MIX, conv(1), "DeformConv"),
    **_rows(_MIX, recurrent(1), "RNN"),
    **_rows(_MIX, recurrent(3), "GRU"),
    **_rows(_MIX, recurrent(4), "LSTM"),
    # One instruction an element.
    **_rows(
        _VECTOR, vector(1), "Abs Add And BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast"
    ),
    **_rows(
        _VECTOR, vector(1), "CastLike Ceil Clip Equal Floor Greater GreaterOrEqual IsInf IsNaN LeakyRelu"
    ),
    **_rows(_VECTOR, vector(1), "Less LessOrEqual Mul Neg Not Or PRelu Relu Round Shrink Sign Sub Where Xor"),
    **_rows(
        _VECTOR,
        vector(1),
        "Dropout ThresholdedRelu ReduceL1 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
    ),
    **_rows(
        _VECTOR, vector(1), "ReduceSumSquare CumSum CumProd ArgMax ArgMin GlobalAveragePool GlobalMaxPool"
    ),
    **_rows(_VECTOR, variadic, "Sum Max Min Mean"),
    **_rows(_VECTOR, window, "AveragePool MaxPool LpPool LRN"),
    # Divisions, roots, scaling to and from integers.
    **_rows(
        _VECTOR, vector(4), "Div Mod Reciprocal Sqrt HardSigmoid HardSwish Softsign ReduceL2 GlobalLpPool"
    ),
    **_rows(
        _VECTOR, vector(4), "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd QLinearMul"
    ),
    **_rows(_VECTOR, vector(4), "BatchNormalization RotaryEmbedding Resize Upsample GridSample"),
    # Exponentials and normalisations.
    **_rows(
        _VECTOR, vector(8), "Celu Cos Elu Erf Exp Log Pow Selu Sigmoid Sin Softplus Tan Tanh ReduceLogSum"
    ),
    **_rows(_VECTOR, vector(8), "Softmax LogSoftmax Hardmax LpNormalization ReduceLogSumExp"),
    **_rows(
        _VECTOR, vector(8), "LayerNormalization GroupNormalization InstanceNormalization RMSNormalization"
    ),
    **_rows(_VECTOR, vector(8), "MeanVarianceNormalization SkipLayerNormalization EmbedLayerNormalization"),
    **_rows(_VECTOR, vector(8), "SimplifiedLayerNormalization SkipSimplifiedLayerNormalization"),
    # Longer formulas.
    **_rows(_VECTOR, vector(16), "Acos Acosh Asin Asinh Atan Atanh Cosh Sinh Mish Swish SwiGLU"),
    **_rows(_VECTOR, vector(16), "Gelu FastGelu BiasGelu QuickGelu"),
    **_rows(_VECTOR, vector(16), "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli"),
    # Data that moves and does not change.
    **_rows(
        _VECTOR, movement, "CenterCropPad Concat DepthToSpace Expand EyeLike Gather GatherElements GatherND"
    ),
    **_rows(_VECTOR, movement, "OneHot Pad Range ReverseSequence Scatter ScatterElements ScatterND Slice"),
    **_rows(_VECTOR, movement, "SpaceToDepth Split TensorScatter Tile Transpose Trilu Col2Im"),
    # Results that depend on comparisons: control processors.
    **_rows(_AICPU, single(1), "Compress NonZero Unique MaxUnpool Multinomial MaxRoiPool"),
    **_rows(_AICPU, single(8), "NonMaxSuppression RoiAlign TopK Det"),
}


def find_rule(domain: str, op: str) -> Rule | None:
    """The rule of an operator, or None if it is unsupported."""
    return RULES.get(f"{domain}.{op}", RULES.get(op))


def is_view(op: Operator) -> bool:
    """Whether the operator needs no kernel: a view, or a cast between types that are stored alike."""
    source, results = op.operand(0), op.results
    if source is None or len(results) != 1 or op.outputs[0] is None:
        return False
    return op.op in VIEWS or (op.op in ("Cast", "CastLike") and source.dtype == results[0].dtype)
