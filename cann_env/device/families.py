"""What operators do to vector cores and memory: structure, by type of operator, and no hardware constant.

An operator belongs to a family, which says how much of its tensors is touched and how (whole, in parts,
in rows), how many cycles of arithmetic an element costs a vector core of the second generation (910B), and
in how many phases that wait for each other the work comes. Cycles are of the usual implementations:
transcendental functions are polynomials of some 60 instructions on 64 lanes, normalisations and gated
activations go over a row several times, moves and simple arithmetic are nearly free.
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
        row_cycles: Of a core, for each row shorter than a burst (512 bytes).
    """

    access: Access = Access.WHOLE
    cycles: float = 0.06
    phases: int = 1
    in_place: int = 0
    row_cycles: float = 20.0


SIMPLE = Family()
"""Arithmetic of an instruction or two an element, and whatever is not known."""

_WRITE = Family(access=Access.WRITE)
_PART = Family(access=Access.PART)
_JOIN = Family(access=Access.JOIN)
_ROWS = Family(access=Access.ROWS)
_ADD_ROWS = Family(access=Access.ADD_ROWS)
_CLEAR = Family(access=Access.CLEAR)
_REDUCE = Family(cycles=0.1, phases=2)
_OPTIMISER = Family(cycles=0.5, phases=2)
_TRIGONOMETRY = Family(cycles=1.3)
_GATE = Family(cycles=0.3, phases=2)
_NORM = Family(cycles=0.35, phases=2)
_NORM_GRAD = Family(cycles=1.2, phases=6)
_SOFTMAX = Family(cycles=0.6, phases=6)
_TRANSPOSE = Family(cycles=0.4, phases=5)
_FORMAT = Family(cycles=0.15, phases=3)
_POOL = Family(cycles=2.5, phases=4)
_SEARCH = Family(cycles=1.0, phases=3)
_ROTARY = Family(cycles=0.33, phases=2)

_MEMBERS: dict[Family, str] = {
    _WRITE: "ZerosLike OnesLike Fill FillV2 BroadcastTo BroadcastToD Tile TileD Range",
    _PART: "Slice SliceD StridedSlice StridedSliceD StridedSliceV2 AsStrided",
    _JOIN: "Concat ConcatD ConcatV2D Split SplitD SplitV SplitVD Pack Unpack",
    _ROWS: "GatherV2 GatherV2D Gather GatherV3 Index EmbeddingLookup",
    _ADD_ROWS: "UnsortedSegmentSum UnsortedSegmentSumD EmbeddingDenseGrad EmbeddingDenseGradV2 ScatterAdd",
    _CLEAR: "AtomicAddrClean MemSet",
    _REDUCE: """ReduceSum ReduceSumD ReduceMean ReduceMeanD ReduceMax ReduceMaxD ReduceMin LpNormV2
        LpNormReduceV2 BiasAddGrad ArgMaxWithValue ArgMaxV2 ArgMaxD""",
    _TRIGONOMETRY: "Cos Sin Tan Erf Pow",
    _GATE: "SwiGlu SwiGluGrad Gelu GeluGrad FastGelu FastGeluGrad GeluV2 Silu SiluGrad Swish Tanh Sigmoid",
    _NORM: "RmsNorm AddRmsNorm LayerNorm LayerNormV3 LayerNormV4 LayerNormBetaGammaBackpropV2",
    _NORM_GRAD: "RmsNormGrad LayerNormGrad LayerNormGradV3 LayerNormXBackpropV3",
    _SOFTMAX: """Softmax SoftmaxV2 SoftmaxGrad LogSoftmaxV2 LogSoftmaxGrad ScaledMaskedSoftmax
        ScaledMaskedSoftmaxGradV2 SoftmaxCrossEntropyWithLogits""",
    _ROTARY: "RotaryPositionEmbedding RotaryPositionEmbeddingGrad RotaryMul RotaryMulGrad ApplyRotaryPosEmb",
    _TRANSPOSE: "Transpose TransposeD",
    _FORMAT: "TransData",
    _POOL: "MaxPoolWithArgmaxV1 MaxPoolGradWithArgmaxV1 MaxPool MaxPoolV3 AvgPool AvgPoolV2 AdaptiveAvgPool3d",
    _SEARCH: "Sort TopKV2 TopK NonZero NLLLoss NLLLossGrad",
    _OPTIMISER: "Adam ApplyAdam ApplyAdamD ApplyAdamW ApplyFtrl ApplyMomentum SGD",
}
FAMILIES: Mapping[str, Family] = {
    op: family for family, ops in _MEMBERS.items() for op in ops.split()
} | {
    "ApplyAdamWV2": Family(cycles=0.5, phases=2, in_place=3),
    "DropOutDoMask": Family(cycles=0.2, phases=2),
}
"""Family by type of operator; an operator that is not here is :data:`SIMPLE`."""
