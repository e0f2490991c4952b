"""The table of CANN operators that do the work of ONNX operators in graph mode, and how they see the tensors.

The names are those of the operator library's prototypes (``op_proto`` of CANN), the static forms where shapes
decide (``ReduceMeanD``): every size of a model is known. An operator that is in
:mod:`cann_env.workloads.onnx_ops` but not here goes under its own name and shows no tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.workloads.onnx_seen import (
    Seen,
    View,
    contraction,
    convolution,
    heads,
    indexed,
    packed,
    product,
    rows,
    stacked,
    transposed_convolution,
    unknown,
    whole,
)

if TYPE_CHECKING:
    from cann_env.workloads.onnx_tensors import Operator

_TABLE: dict[View, str] = {
    convolution(1): "Conv:Conv2D ConvInteger:Conv2D FusedConv:Conv2D",
    convolution(3): "QLinearConv:Conv2D",
    transposed_convolution: "ConvTranspose:Conv2DBackpropInput",
    product: "Gemm:MatMulV2 FusedGemm:MatMulV2",
    stacked(0, 1): """
        MatMul:MatMulV2 MatMulInteger:MatMulV2 FusedMatMul:MatMulV2 MatMulIntegerToFloat:MatMulV2
    """,
    stacked(0, 3): "QLinearMatMul:MatMulV2",
    packed: "MatMulNBits:WeightQuantBatchMatmulV2",
    contraction: "Einsum:BatchMatMulV2",
    heads: "Attention:FlashAttentionScore MultiHeadAttention:FlashAttentionScore",
    rows: "Gather:GatherV2",
    indexed: "GatherND:GatherV2",
    unknown: """
        com.microsoft.Attention:Attention DeformConv:DeformableConv2D RNN:DynamicRNN GRU:DynamicGRUV2
        LSTM:DynamicRNN GatherElements:GatherElements
    """,
    whole: """
        Abs:Abs Add:Add And:LogicalAnd BitCast:Bitcast BitShift:RightShift BitwiseAnd:BitwiseAnd
        BitwiseNot:Invert BitwiseOr:BitwiseOr BitwiseXor:BitwiseXor Cast:Cast CastLike:Cast Ceil:Ceil
        Clip:ClipByValue Equal:Equal Floor:Floor Greater:Greater GreaterOrEqual:GreaterEqual IsInf:IsInf
        IsNaN:IsNan LeakyRelu:LeakyRelu Less:Less LessOrEqual:LessEqual Mul:Mul Neg:Neg Not:LogicalNot
        Or:LogicalOr PRelu:PRelu Relu:Relu Round:Round Shrink:HardShrink Sign:Sign Sub:Sub Where:SelectV2
        Xor:LogicalXor Dropout:DropOutDoMask ThresholdedRelu:ThresholdV2D
        ReduceL1:LpNormReduceV2 ReduceMax:ReduceMaxD ReduceMean:ReduceMeanD ReduceMin:ReduceMinD
        ReduceProd:ReduceProdD ReduceSum:ReduceSumD ReduceSumSquare:SquareSumV1 CumSum:Cumsum CumProd:Cumprod
        ArgMax:ArgMaxV2 ArgMin:ArgMin GlobalAveragePool:ReduceMeanD GlobalMaxPool:ReduceMaxD Sum:AddN
        Max:Maximum Min:Minimum Mean:AddN AveragePool:AvgPoolV2 MaxPool:MaxPoolV3 LpPool:LpPool LRN:LRN
        Div:RealDiv Mod:FloorMod Reciprocal:Reciprocal Sqrt:Sqrt HardSigmoid:HardSigmoid HardSwish:HardSwish
        Softsign:Softsign ReduceL2:LpNormReduceV2 GlobalLpPool:LpNormReduceV2
        QuantizeLinear:AscendQuant DequantizeLinear:AscendDequant DynamicQuantizeLinear:DynamicQuant
        QLinearAdd:Add QLinearMul:Mul BatchNormalization:BNInfer RotaryEmbedding:RotaryMul
        Resize:ResizeBilinearV2 Upsample:ResizeNearestNeighborV2 GridSample:GridSampler2D
        Celu:CeluV2 Cos:Cos Elu:Elu Erf:Erf Exp:Exp Log:Log Pow:Pow Selu:Selu Sigmoid:Sigmoid Sin:Sin
        Softplus:Softplus Tan:Tan Tanh:Tanh ReduceLogSum:ReduceLogSum Softmax:SoftmaxV2
        LogSoftmax:LogSoftmaxV2 Hardmax:ArgMaxWithValue LpNormalization:LpNormV2
        ReduceLogSumExp:ReduceLogSumExp LayerNormalization:LayerNormV3 GroupNormalization:GroupNormV2
        InstanceNormalization:InstanceNormV3 RMSNormalization:RmsNorm MeanVarianceNormalization:InstanceNormV3
        SkipLayerNormalization:AddLayerNorm EmbedLayerNormalization:AddLayerNorm
        SimplifiedLayerNormalization:RmsNorm SkipSimplifiedLayerNormalization:AddRmsNorm
        Acos:Acos Acosh:Acosh Asin:Asin Asinh:Asinh Atan:Atan Atanh:Atanh Cosh:Cosh Sinh:Sinh Mish:Mish
        Swish:Swish SwiGLU:SwiGlu Gelu:Gelu FastGelu:FastGelu BiasGelu:Gelu QuickGelu:FastGelu
        RandomNormal:RandomStandardNormal RandomNormalLike:RandomStandardNormal RandomUniform:RandomUniform
        RandomUniformLike:RandomUniform Bernoulli:RandomUniform
        CenterCropPad:StridedSlice Concat:ConcatD DepthToSpace:DepthToSpace Expand:BroadcastTo EyeLike:Fill
        OneHot:OneHot Pad:PadV3 Range:Range ReverseSequence:ReverseSequence Scatter:ScatterElements
        ScatterElements:ScatterElements ScatterND:TensorScatterUpdate Slice:StridedSlice
        SpaceToDepth:SpaceToDepth Split:SplitVD TensorScatter:ScatterElements Tile:Tile Transpose:Transpose
        Trilu:Triu Col2Im:Col2im Compress:MaskedSelect NonZero:NonZero Unique:UniqueWithCountsExt2
        MaxUnpool:MaxUnpool2D Multinomial:Multinomial MaxRoiPool:ROIPooling
        NonMaxSuppression:NonMaxSuppressionV6
        RoiAlign:ROIAlign TopK:TopKV2 Det:MatrixDeterminant
    """,
}

NAMES: dict[str, tuple[str, View]] = {
    onnx: (cann, view)
    for view, pairs in _TABLE.items()
    for onnx, cann in (pair.split(":") for pair in pairs.split())
}
"""Operator of CANN, and how it sees the tensors, by operator of ONNX (with its domain if that decides)."""


def seen_by_cann(op: Operator) -> Seen:
    """What CANN runs for an operator, and on which tensors.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: The operator does not fit its inputs.
    """
    name, view = NAMES.get(f"{op.domain}.{op.op}", NAMES.get(op.op, (op.op, unknown)))
    return view(op, name)
