"""What operators do to vector cores and memory: structure, by type of operator, and no hardware constant.

An operator belongs to a family, which says how much of its tensors is touched and how (whole, in parts,
in rows), how many cycles of arithmetic an element costs a vector core of the second generation (910B), and
in how many phases that wait for each other the work comes. Cycles are of the usual implementations:
transcendental functions are polynomials of some 60 instructions on 64 lanes, normalisations and gated
activations go over a row several times, moves and simple arithmetic are nearly free.

Cycles and phases were chosen with recordings of 910A and 910B in view (pipe counters and times of their
kernels). A test that leaves a recording out therefore does not leave out what this table knows of operators
that only that recording has.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Access(enum.Enum):
    """How an operator touches its tensors."""

    WHOLE = "reads every input, writes every output"
    WRITE = "makes its outputs of next to nothing"
    PART = "reads as much of its first input as it writes, row by row"
    ROWS = "gathers rows of its first input, one request a row"
    ADD_ROWS = "adds rows of its first input to rows of its output, one request a row"
    JOIN = "puts tensors together or takes one apart, row by row"
    CLEAR = "writes over its inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of vector work.

    Attributes:
        access: How the tensors are touched.
        cycles: Of a core, for each element of the largest tensor touched.
        phases: Parts of the work that wait for each other, such as a reduction across cores.
        in_place: Inputs that are written back, if the outputs are not listed.
        reads: Inputs that count, the first ones; 0 for all.
        row_cycles: Of a core, for each row shorter than a burst (512 bytes).
    """

    access: Access = Access.WHOLE
    cycles: float = 0.06
    phases: int = 1
    in_place: int = 0
    reads: int = 0
    row_cycles: float = 8.0


SIMPLE = Family()
"""Arithmetic of an instruction or two an element, and whatever is not known."""

_WRITE = Family(access=Access.WRITE)
_PART = Family(access=Access.PART)
_JOIN = Family(access=Access.JOIN, row_cycles=2.0)
_ROWS = Family(access=Access.ROWS)
_ADD_ROWS = Family(access=Access.ADD_ROWS)
_CLEAR = Family(access=Access.CLEAR)
_OPTIMISER = Family(cycles=0.7, phases=4)
_SEARCH = Family(cycles=1.0, phases=4)

_MEMBERS: dict[Family, str] = {
    _WRITE: "ZerosLike OnesLike Fill FillV2 BroadcastTo BroadcastToD Tile TileD",
    _PART: "Slice SliceD StridedSlice StridedSliceD StridedSliceV2 AsStrided",
    _JOIN: "Concat ConcatD ConcatV2D Split SplitD SplitV SplitVD Pack Unpack",
    _ROWS: "GatherV2 GatherV2D Gather GatherV3 Index EmbeddingLookup",
    _ADD_ROWS: "UnsortedSegmentSum UnsortedSegmentSumD EmbeddingDenseGrad EmbeddingDenseGradV2 ScatterAdd",
    _CLEAR: "AtomicAddrClean MemSet",
    Family(cycles=0.1): "ReduceSumD ReduceMeanD ReduceMaxD ReduceMinD ReduceProdD SquareSumV1 LpNormReduceV2",
    Family(cycles=0.02, phases=2): "BiasAddGrad",
    Family(cycles=0.1, phases=4): "LpNormV2 ReduceMean",
    Family(cycles=0.2, phases=6): "ReduceSum ReduceMax ReduceMin",
    Family(cycles=0.25, phases=2): "ArgMaxWithValue ArgMaxV2 ArgMaxD",
    Family(cycles=1.3): "Cos Sin Tan Erf",
    Family(phases=2): "Pow Pows Sub Equal NotEqual Less Greater SigmoidCrossEntropyWithLogits",
    Family(cycles=0.5, phases=8): "Range Tril Triu",
    Family(cycles=0.12, phases=2): "SwiGlu",
    Family(cycles=0.3, phases=2): "Gelu GeluGrad FastGelu FastGeluGrad GeluV2 Silu SiluGrad Swish",
    Family(cycles=0.4, phases=2): "SwiGluGrad",
    Family(cycles=0.32, phases=2): "RmsNorm AddRmsNorm",
    Family(
        cycles=0.55, phases=2
    ): "LayerNorm LayerNormV3 LayerNormV4 AddLayerNorm GroupNormV2 InstanceNormV3",
    Family(cycles=1.1, phases=14): "RmsNormGrad LayerNormGrad LayerNormGradV3 LayerNormXBackpropV3",
    Family(
        cycles=0.6, phases=3
    ): "Softmax SoftmaxV2 SoftmaxGrad ScaledMaskedSoftmax ScaledMaskedSoftmaxGradV2",
    Family(cycles=1.2, phases=6): "LogSoftmaxV2 LogSoftmaxGrad SoftmaxCrossEntropyWithLogits",
    Family(cycles=0.25, phases=2): "RotaryPositionEmbedding RotaryMul ApplyRotaryPosEmb",
    Family(cycles=0.35, phases=2): "RotaryPositionEmbeddingGrad RotaryMulGrad",
    Family(cycles=0.4, phases=8): "Transpose TransposeD",
    Family(cycles=0.05, phases=4): "TransData",
    Family(cycles=3.2, phases=6): "MaxPoolWithArgmaxV1",
    # Made for one shape, a MaxPoolWithArgmax of 6.7, 3.2 or 1.4 million elements lasts 65, 29 or 21 us on the
    # 32 cores of a 910A (AlexNet, mindinsight test traces): a tenth of what one for any shape takes.
    Family(cycles=0.35, phases=4): "MaxPoolWithArgmax MaxPool MaxPoolV3 AvgPool AvgPoolV2",
    Family(cycles=1.2, phases=10, reads=2): "MaxPoolGradWithArgmaxV1 MaxPoolGrad",
    Family(cycles=2.5, phases=4): "AdaptiveAvgPool3d AdaptiveAvgPool3dGrad",
    _SEARCH: "Sort TopKV2 TopK NonZero NLLLoss NLLLossGrad",
    Family(cycles=0.15, phases=3): "DropOutDoMask",
    _OPTIMISER: "Adam ApplyAdam ApplyAdamD ApplyAdamW ApplyFtrl ApplyMomentum SGD",
    Family(cycles=0.7, phases=4, in_place=3): "ApplyAdamWV2",
}
FAMILIES: Mapping[str, Family] = {op: family for family, ops in _MEMBERS.items() for op in ops.split()}
"""Family by type of operator; an operator that is not here is :data:`SIMPLE`."""
