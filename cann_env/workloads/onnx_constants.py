"""Contents of a model's small constants, computed when somebody asks: shapes, axes, scales, bounds.

:class:`OnnxModel` and the tensors known so far in, numpy arrays out. Large constants are never computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.workloads.onnx_model import Node, OnnxModel
    from cann_env.workloads.onnx_tensors import Tensor

    Array = np.ndarray[Any, Any]

_SMALL = 1024
"""Most elements of a constant that is computed."""


class Constants:
    """Constants of one walk.

    Args:
        model: The model.
        tensors: Every tensor met so far; the walk adds to it.
    """

    def __init__(self, model: OnnxModel, tensors: Mapping[str, Tensor]) -> None:
        """Start without values."""
        self._model = model
        self._tensors = tensors
        self._makers: dict[str, Node] = {}
        self._values: dict[str, Array | None] = {}

    def made_by(self, node: Node) -> None:
        """Remember that a node without other inputs than constants makes its outputs."""
        self._makers.update((name, node) for name in node.outputs if name)

    def value(self, name: str) -> Array | None:
        """Contents of a small constant; None if it is large or none, or depends on such a one.

        Raises:
            InputError: It cannot be read or computed: names the node or the weight.
        """
        if name not in self._values:
            tensor = self._tensors[name]
            small = tensor.constant and tensor.elements <= _SMALL
            self._values[name] = self._computed(name) if small else None
        return self._values[name]

    def numbers(self, name: str) -> list[float] | None:
        """The same as a flat list."""
        value = self.value(name) if name else None
        return None if value is None else [number.item() for number in value.reshape(-1)]

    def _computed(self, name: str) -> Array | None:
        node = self._makers.get(name)
        if node is None:
            return self._model.weight_value(name)
        if node.op in ("Shape", "Size"):
            return self._shape_of(node)
        values: dict[str, Array] = {}
        for source in filter(None, node.inputs):
            value = self.value(source)
            if value is None:
                return None
            values[source] = value
        try:
            results = self._model.evaluate(node, values)
        except ValueError as error:
            raise InputError(
                f"node {node.name!r} (operator {node.op}) makes the constant {name!r}, "
                f"which cannot be computed: {error}"
            ) from error
        return results[[output for output in node.outputs if output].index(name)]

    def _shape_of(self, node: Node) -> Array:
        source = self._tensors[node.inputs[0]]
        if node.op == "Size":
            return np.array(source.elements, dtype=np.int64)
        end = node.attributes.get("end", len(source.shape))
        return np.array(source.shape[node.attributes.get("start", 0) : end], dtype=np.int64)
