"""Single operators that are computed: what they do to arrays, and how much work that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Arrays = Sequence[np.ndarray[Any, Any]]
    Shapes = Sequence[tuple[int, ...]]


class Known(NamedTuple):
    """An operator: its results of inputs and attributes, its operations of shapes, and its core."""

    function: Callable[[Arrays, Mapping[str, Any]], list[Any]]
    flops: Callable[[Shapes, Shapes], int]
    cube: bool = False


def _elements(inputs: Shapes, outputs: Shapes) -> int:
    return max(math.prod(shape) for shape in (*inputs, *outputs))


def _each(function: Callable[..., Any]) -> Known:
    return Known(lambda inputs, _: [function(*inputs)], _elements)


def _softmax(inputs: Arrays, attributes: Mapping[str, Any]) -> list[Any]:
    axes = attributes.get("axes", attributes.get("axis", -1))
    axis = axes[0] if isinstance(axes, (list, tuple)) else axes
    data = inputs[0].astype(np.float32)
    powers = np.exp(data - data.max(axis=axis, keepdims=True))
    return [powers / powers.sum(axis=axis, keepdims=True)]


def _largest(inputs: Arrays, attributes: Mapping[str, Any]) -> list[Any]:
    axis = attributes.get("dimension", inputs[1].item() if len(inputs) > 1 else 0)
    return [np.argmax(inputs[0], axis=int(axis))]


def _product(inputs: Arrays, attributes: Mapping[str, Any]) -> list[Any]:
    pairs = (("transpose_x1", "transpose_a", "adj_x1"), ("transpose_x2", "transpose_b", "adj_x2"))
    sides = []
    for side, names in zip(inputs[:2], pairs, strict=True):
        turned = any(attributes.get(name) for name in names)
        sides.append((np.swapaxes(side, -1, -2) if turned else side).astype(np.float32))
    result = sides[0] @ sides[1]
    return [result + inputs[2] if len(inputs) > 2 else result]


def _multiply_adds(inputs: Shapes, outputs: Shapes) -> int:
    inner = math.sqrt(math.prod(inputs[0]) * math.prod(inputs[1]) / max(math.prod(outputs[0]), 1))
    return round(2 * math.prod(outputs[0]) * inner)


OPERATORS: Final[dict[str, Known]] = {
    "Abs": _each(np.abs),
    "Add": _each(np.add),
    "ArgMaxD": Known(_largest, _elements),
    "ArgMaxV2": Known(_largest, _elements),
    "BatchMatMul": Known(_product, _multiply_adds, cube=True),
    "Cast": _each(lambda x: x),
    "Cos": _each(np.cos),
    "Div": _each(np.divide),
    "Equal": _each(np.equal),
    "Exp": _each(np.exp),
    "Greater": _each(np.greater),
    "Identity": _each(lambda x: x),
    "Less": _each(np.less),
    "Log": _each(np.log),
    "MatMul": Known(_product, _multiply_adds, cube=True),
    "MatMulV2": Known(_product, _multiply_adds, cube=True),
    "Maximum": _each(np.maximum),
    "Minimum": _each(np.minimum),
    "Mul": _each(np.multiply),
    "Neg": _each(np.negative),
    "Pow": _each(np.power),
    "RealDiv": _each(np.divide),
    "Relu": _each(lambda x: np.maximum(x, 0)),
    "Sigmoid": _each(lambda x: 1 / (1 + np.exp(-x.astype(np.float32)))),
    "Sin": _each(np.sin),
    "SoftmaxV2": Known(_softmax, _elements),
    "Sqrt": _each(np.sqrt),
    "Square": _each(np.square),
    "Sub": _each(np.subtract),
    "Tanh": _each(np.tanh),
}
"""By the name of CANN's operator."""
