"""Walks an ONNX model with every size known: :class:`OnnxModel` and input shapes in, plain operators out.

Each node is visited once, in order; results that nobody reads are left out. Shapes come from ONNX's own
rules, else from our table, else from what the file declares. Small constants that may decide a shape are
evaluated on the way, so chains such as Shape, Gather, Concat, Reshape are resolved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.units import InputError
from cann_env.workloads.onnx_constants import Constants
from cann_env.workloads.onnx_model import Declared
from cann_env.workloads.onnx_ops import VIEWS, find_rule
from cann_env.workloads.onnx_shapes import RESULT_TYPE_OF, SHAPE_RULES, Facts, rescaled_reshape
from cann_env.workloads.onnx_tensors import BITS, Operator, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.workloads.onnx_model import Node, OnnxModel
    from cann_env.workloads.onnx_shapes import Shape

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Types of floating point numbers that one type of storage stands for."""

_RANDOM = frozenset(("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform"))
_FLOAT_PARAMETERS = frozenset(("Range", "Resize", "Upsample"))


def input_shapes(model: OnnxModel, batch: int | None, dims: Mapping[str, int]) -> dict[str, Shape]:
    """Shapes of what is given for each run, every size known.

    Args:
        model: The model.
        batch: Size of the first dimension of every input where that is dynamic, or as fixed as the first
            input's; None keeps fixed ones and takes 1 for dynamic ones.
        dims: Sizes of dynamic dimensions, by their name or as ``<input>.<axis>``; they win over ``batch``.

    Raises:
        InputError: A dimension stays dynamic, a size is no whole number of at least 1, or ``dims`` names what
            the model does not have.
    """
    labels = {name: _labels(name, declared) for name, declared in model.inputs.items()}
    _check_sizes({label for row in labels.values() for label in row if isinstance(label, str)}, batch, dims)
    firsts = [row[0] for row in labels.values() if row]
    own = next((size for size in firsts if isinstance(size, int)), None)
    sizes: dict[str, int] = {label: batch or 1 for label in firsts if isinstance(label, str)} | dict(dims)

    def size_of(name: str, axis: int, label: int | str) -> int:
        if isinstance(label, int):
            return batch if batch is not None and axis == 0 and label == own else label
        if label not in sizes:
            raise InputError(
                f"input {name!r} of the model is dynamic in dimension {axis}, {label!r}; "
                f"set its size, for example dims={{{label!r}: 128}}"
            )
        return sizes[label]

    return {
        name: tuple(size_of(name, axis, label) for axis, label in enumerate(row))
        for name, row in labels.items()
    }


@dataclass
class Walk:
    """One visit to every node of a model, in order, done when it is made.

    Attributes:
        model: The model.
        shapes: Of its inputs, from :func:`input_shapes`.
        dtype: Type in which every floating point tensor is stored.
        fallback: Go on at an operator that is not supported, if its shapes are known.
        own: The same walk at the model's own batch; hard-coded reshapes are rescaled against it.
        tensors: Every tensor by name.
        operators: Operators that run each time, in order.
        folded: Operators all of whose inputs are constants, in order: done before the first run.

    Raises:
        InputError: A node is malformed or not supported, or its shapes cannot be known: names node and
            operator.
    """

    model: OnnxModel
    shapes: Mapping[str, Shape]
    dtype: str
    fallback: bool = False
    own: Walk | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict, init=False)
    operators: list[Operator] = field(default_factory=list, init=False)
    folded: list[Operator] = field(default_factory=list, init=False)
    targets: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)
    _declared: dict[str, Declared] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Visit inputs, weights and nodes."""
        self._constants = Constants(self.model, self.tensors)
        self._read = {name for node in self.model.nodes for name in node.inputs if name}
        self._read.update(self.model.outputs)
        for name, shape in self.shapes.items():
            self._add(name, self.model.inputs[name].dtype, shape, constant=False)
        for name in self.model.weights:
            self._add(name, *self.model.weight_of(name), constant=True)
        taken: set[str] = set()
        for node in self.model.nodes:
            self._visit(node, _unique(node.name, taken))
        for name in self.model.outputs:
            if name not in self.tensors:
                raise InputError(f"output {name!r} of the model is made by no node; export the model again")

    def type_of(self, name: str) -> str:
        """Type of a tensor as the model means it, in whatever type it is stored."""
        return self._declared[name].dtype

    def _add(self, name: str, dtype: str, shape: Shape, *, constant: bool, stored: str | None = None) -> None:
        stored = stored or (self.dtype if dtype in FLOATS else dtype)
        if name in self.tensors:
            raise InputError(f"tensor {name!r} of the model is made twice; export the model again")
        if stored not in BITS:
            raise InputError(
                f"tensor {name!r} of the model has the type {dtype!r}; only numbers can be moved"
            )
        self._declared[name] = Declared(dtype, shape)
        self.tensors[name] = Tensor(name, shape, stored, constant)

    def _visit(self, node: Node, name: str) -> None:
        where = f"node {name!r} (operator {node.op})"
        unknown = [tensor for tensor in node.inputs if tensor and tensor not in self.tensors]
        if unknown:
            raise InputError(
                f"{where} reads {unknown[0]!r}, which nothing before it makes; export the model again"
            )
        folded = self._is_folded(node)
        if folded:
            self._constants.made_by(node)
        else:
            self._check_supported(node, where)
        kept = self.tensors[node.inputs[0]].dtype if folded and node.op == "DequantizeLinear" else None
        for tensor, (dtype, shape) in self._results(node, where).items():
            self._add(tensor, dtype, shape, constant=folded, stored=kept)
        operator = Operator(
            name=name,
            op=node.op,
            domain=node.domain,
            inputs=tuple(self.tensors.get(tensor) for tensor in node.inputs),
            outputs=tuple(self.tensors.get(tensor) for tensor in node.outputs),
            attributes=node.attributes,
        )
        (self.folded if folded else self.operators).append(operator)

    def _is_folded(self, node: Node) -> bool:
        if node.op in ("Shape", "Size"):
            return True
        if node.has_body or node.op.removesuffix("Like") in _RANDOM:
            return False
        return all(self.tensors[name].constant for name in node.inputs if name)

    def _check_supported(self, node: Node, where: str) -> None:
        if node.has_body:
            raise InputError(
                f"{where} runs a subgraph, so its work is not fixed; export the model without control flow"
            )
        if node.op not in VIEWS and find_rule(node.domain, node.op) is None and not self.fallback:
            raise InputError(f"{where} is not supported; --fallback (fallback=True) counts it by its bytes")

    def _results(self, node: Node, where: str) -> dict[str, tuple[str, Shape]]:
        """Type and shape of each output: by ONNX, else by our rule, else as the file declares."""
        known = {name: self._declared[name] for name in node.inputs if name}
        parameters = self._parameters(node)
        try:
            found = self.model.infer(node, known, parameters)
            wanted = [name for name in node.outputs if name in self._read]
            incomplete = [name for name in wanted if name not in found or found[name].shape is None]
            ruled = self._ruled(node) if incomplete else {}
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            shapes = ", ".join(f"{name!r} {declared.shape}" for name, declared in known.items())
            raise InputError(f"{where} does not fit its inputs {shapes}: {error}") from error
        for name in incomplete:
            better = ruled.get(name) or self._from_file(name, where)
            found[name] = Declared(found.get(name, better).dtype, better.shape)
        return {name: (found[name].dtype, _fixed(found[name])) for name in wanted}

    def _ruled(self, node: Node) -> dict[str, Declared]:
        rule = SHAPE_RULES.get(node.op)
        if rule is None:
            return {}
        facts = Facts(
            shapes=[self.tensors[name].shape if name else None for name in node.inputs],
            values=[self._constants.numbers(name) for name in node.inputs],
            attributes=node.attributes,
        )
        dtype = self._declared[node.inputs[RESULT_TYPE_OF.get(node.op, 0)]].dtype
        shapes = zip(node.outputs, rule(facts), strict=False)
        return {name: Declared(dtype, shape) for name, shape in shapes if name}

    def _from_file(self, name: str, where: str) -> Declared:
        declared = self.model.declared.get(name, Declared("", None))
        if declared.shape is None or self.own or any(isinstance(size, str) for size in declared.shape):
            raise InputError(
                f"{where}: the shape of its output {name!r} cannot be known; fix it in the exported model"
            )
        return declared

    def _parameters(self, node: Node) -> dict[str, np.ndarray[Any, Any]]:
        """Small constant inputs that may decide the shape of the outputs."""
        found = {}
        for name in filter(None, node.inputs):
            whole = self._declared[name].dtype in ("int32", "int64")
            if (whole or node.op in _FLOAT_PARAMETERS) and len(self.tensors[name].shape) < 2:
                value = self._constants.value(name)
                if value is not None:
                    found[name] = value
        if node.op == "Reshape" and len(node.inputs) > 1 and node.inputs[1] in found:
            found[node.inputs[1]] = self._target(node, found[node.inputs[1]])
        return found

    def _target(self, node: Node, written: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Target of a reshape, rescaled if it is hard-coded for the model's own batch."""
        output = node.outputs[0]
        target = self.targets[output] = tuple(written.tolist())
        if self.own is None or self.own.targets.get(output) != target:
            return written
        before_in, before_out = self.own.tensors[node.inputs[0]].shape, self.own.tensors[output].shape
        scaled = rescaled_reshape(target, before_in, before_out, self.tensors[node.inputs[0]].shape)
        return np.array(scaled, dtype=np.int64)


def _labels(name: str, declared: Declared) -> tuple[int | str, ...]:
    if declared.shape is None:
        raise InputError(f"input {name!r} of the model has no shape; fix its rank in the exported model")
    return declared.shape


def _check_sizes(dynamic: set[str], batch: int | None, dims: Mapping[str, int]) -> None:
    for name in dims:
        if name not in dynamic:
            known = ", ".join(map(repr, sorted(dynamic))) or "none"
            raise InputError(f"dims names {name!r}; the dynamic dimensions of the inputs are: {known}")
    sizes = {f"dims[{name!r}]": size for name, size in dims.items()} | (
        {} if batch is None else {"batch": batch}
    )
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(f"{name} is {size!r}; write a whole number of at least 1")


def _fixed(declared: Declared) -> Shape:
    return tuple(size for size in declared.shape or () if isinstance(size, int))


def _unique(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}#{count}"
    taken.add(name)
    return name
