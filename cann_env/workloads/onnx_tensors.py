"""The plain form of an ONNX graph: tensors of known shape and the operators between them.

Made by :mod:`cann_env.workloads.onnx_walk`, read by the cost functions and by whoever makes commands of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BITS = {
    **dict.fromkeys(("bool", "int8", "uint8"), 8),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
    "complex128": 128,
}
"""Width of an element by its type."""


DATA_OPERANDS = dict.fromkeys(
    (
        *("Clip", "CumProd", "CumSum", "Expand", "OneHot", "Pad", "Resize", "Slice", "Split", "Tile", "TopK"),
        *("Trilu", "Upsample", "CenterCropPad", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"),
        *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
    ),
    1,
) | {"NonMaxSuppression": 2}
"""How many leading inputs are data, where the rest, if constant, travels in the kernel's arguments."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the model: its shape (all sizes known), its type, and whether it is a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes it takes, elements narrower than a byte packed."""
        return -(-self.elements * BITS[self.dtype] // 8)


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of the model.

    Attributes:
        name: Unique in the model.
        op: The operator, for example ``Conv``.
        domain: Empty for ONNX's own operators.
        inputs: One entry an input; None for those left out.
        outputs: The same for the outputs.
        attributes: Numbers, texts and lists of them.
    """

    name: str
    op: str
    domain: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]

    def operand(self, place: int) -> Tensor | None:
        """An input, or None if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def needed(self, place: int) -> Tensor:
        """An input that the operator cannot do without.

        Raises:
            IndexError: It is left out.
        """
        tensor = self.operand(place)
        if tensor is None:
            raise IndexError(f"input {place} is left out")
        return tensor

    @property
    def results(self) -> list[Tensor]:
        """Outputs that are not left out and not empty."""
        return [tensor for tensor in self.outputs if tensor is not None and tensor.elements]

    @property
    def data(self) -> list[Tensor]:
        """Inputs that are read from memory, each once.

        Constants of one element, and parameters such as axes, travel in the kernel's arguments instead.
        """
        leading = DATA_OPERANDS.get(self.op, len(self.inputs))
        found: dict[str, Tensor] = {}
        for place, tensor in enumerate(self.inputs):
            if tensor is None or not tensor.elements:
                continue
            if not tensor.constant or (place < leading and tensor.elements > 1):
                found[tensor.name] = tensor
        return list(found.values())
