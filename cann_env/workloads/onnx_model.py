"""Reads an ONNX file; the only module that imports ``onnx``.

File -> :class:`OnnxModel`: plain nodes, inputs and weights by name, and three questions answered by ONNX
itself: which shapes a node's outputs have, what a node of constants computes, and what a small weight holds.
Weights that lie in files beside the model are not loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

_NAMES = {"float": "float32", "double": "float64"}
_CODES = {name: code for code, name in _NAMES.items()}
_STANDARD_TWINS = {"FusedConv": "Conv", "FusedGemm": "Gemm"}


class Node(NamedTuple):
    """A node of the graph.

    Attributes:
        name: As written, or that of its first output; need not be unique.
        op: The operator.
        domain: Empty for ONNX's own operators.
        inputs: Names of tensors; empty for those left out.
        outputs: The same.
        attributes: Numbers, texts and lists of them.
        has_body: It runs a subgraph (If, Loop, Scan).
        proto: The ``onnx.NodeProto``.
    """

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    has_body: bool
    proto: Any


class Declared(NamedTuple):
    """What is said of a tensor: its type, and each size, or the label of a dynamic one (``None``: not said).

    A label is the name of the dimension, or ``<tensor>.<axis>`` where it has none.
    """

    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class OnnxModel:
    """A model's structure.

    Args:
        proto: The ``onnx.ModelProto``, without local functions.
        folder: Where small weights are looked for that lie outside the file.
    """

    proto: Any
    folder: Path

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes in program order."""
        return tuple(_node(node) for node in self.proto.graph.node)

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Weights by name, as ``onnx.TensorProto``."""
        return {tensor.name: tensor for tensor in self.proto.graph.initializer}

    @cached_property
    def inputs(self) -> dict[str, Declared]:
        """What is given for each run, by name."""
        return {
            value.name: _declared(value) for value in self.proto.graph.input if value.name not in self.weights
        }

    @cached_property
    def declared(self) -> dict[str, Declared]:
        """What the file says of other tensors, by name."""
        graph = self.proto.graph
        return {value.name: _declared(value) for value in (*graph.value_info, *graph.output)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(value.name for value in self.proto.graph.output)

    @cached_property
    def opsets(self) -> dict[str, int]:
        """Version of each set of operators, by domain."""
        return {_domain(entry.domain): entry.version for entry in self.proto.opset_import}

    @cached_property
    def notes(self) -> dict[str, str]:
        """What whoever made the file wrote down, by key."""
        return {entry.key: entry.value for entry in self.proto.metadata_props}

    @cached_property
    def _evaluator(self) -> Any:
        onnx = _onnx()
        from onnx.reference import ReferenceEvaluator

        proto = self.proto
        if any(tensor.external_data for tensor in proto.graph.initializer):
            proto = onnx.ModelProto()
            proto.CopyFrom(self.proto)
            onnx.load_external_data_for_model(proto, str(self.folder))
        return ReferenceEvaluator(proto)

    def compute(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """What the model gives for its inputs, by ONNX's reference evaluator: slow, and exact.

        Raises:
            ValueError: The evaluator cannot run the model: an operator it does not know, a weight that lies
                elsewhere, inputs that do not fit.
        """
        try:
            return list(self._evaluator.run(None, dict(inputs)))
        except Exception as error:  # whatever numpy or the evaluator raise for this model
            raise ValueError(str(error) or type(error).__name__) from error

    def weight_of(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Type and shape of a weight."""
        tensor = self.weights[name]
        return _dtype(tensor.data_type), tuple(tensor.dims)

    def weight_value(self, name: str) -> np.ndarray[Any, Any]:
        """What a weight holds.

        Raises:
            InputError: It lies in another file that cannot be read.
        """
        onnx = _onnx()
        try:
            value: np.ndarray[Any, Any] = onnx.numpy_helper.to_array(
                self.weights[name], base_dir=str(self.folder)
            )
        except Exception as error:  # files missing, cut short, or outside the folder
            raise InputError(
                f"weight {name!r} of the model cannot be read: {error}; keep its file beside it"
            ) from error
        return value

    def infer(
        self, node: Node, known: Mapping[str, Declared], values: Mapping[str, np.ndarray[Any, Any]]
    ) -> dict[str, Declared]:
        """Types and shapes of a node's outputs, as far as ONNX's own rules know them.

        Args:
            node: Which node.
            known: Type and fixed shape of every input.
            values: Contents of small inputs that may decide a shape.

        Returns:
            Nothing for an operator ONNX has no rules for; a shape is None if one of its sizes is not known.

        Raises:
            ValueError: The inputs do not fit the operator.
        """
        onnx = _onnx()
        op = _STANDARD_TWINS.get(node.op, node.op)
        domain = node.domain if op == node.op else ""
        version = self.opsets.get(domain)
        if version is None or not onnx.defs.has(op, version, domain):
            return {}
        proto = node.proto
        if op != node.op:
            proto = onnx.NodeProto()
            proto.CopyFrom(node.proto)
            proto.op_type, proto.domain = op, ""
        try:
            found = onnx.shape_inference.infer_node_outputs(
                onnx.defs.get_schema(op, version, domain),
                proto,
                {name: _type_proto(declared) for name, declared in known.items()},
                {name: onnx.numpy_helper.from_array(value, name) for name, value in values.items()},
                opset_imports=list(self.proto.opset_import),
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            raise ValueError(str(error)) from error
        return {name: _fixed(name, kind) for name, kind in found.items()}

    def evaluate(self, node: Node, values: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Compute a node whose inputs are known.

        Raises:
            ValueError: ONNX's reference evaluator cannot run it.
        """
        onnx = _onnx()
        if "value" in (attribute.name for attribute in node.proto.attribute if node.op == "Constant"):
            return [onnx.numpy_helper.to_array(node.proto.attribute[0].t)]
        from onnx.reference import ReferenceEvaluator

        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in values.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
        graph = onnx.helper.make_graph([node.proto], "constant", inputs, outputs)
        model = onnx.helper.make_model(graph, opset_imports=list(self.proto.opset_import))
        try:
            results: Any = ReferenceEvaluator(model).run(None, dict(values))
        except Exception as error:  # whatever numpy or the evaluator raise for this operator
            raise ValueError(str(error)) from error
        return list(results)


def light_folder() -> Path:
    """Folder inside the ``onnx`` package with well-known networks, their weights replaced by generators."""
    return Path(_onnx().__file__).parent / "backend" / "test" / "data" / "light"


def read_model(path: Path) -> OnnxModel:
    """Read a model.

    Raises:
        InputError: No such file, it is no ONNX model (truncated, for example), or it has no operators.
    """
    _onnx()
    if not path.is_file():
        raise InputError(f"model file {str(path)!r} does not exist; give the path of an .onnx file")
    return parse_model(path.read_bytes(), f"model file {str(path)!r}", path.parent)


def parse_model(data: bytes, what: str, folder: Path) -> OnnxModel:
    """Read a model that lies in memory.

    Args:
        data: The bytes of an ONNX file.
        what: What to call it in messages.
        folder: Where weights are looked for that lie outside of it.

    Raises:
        InputError: It is no ONNX model (truncated, for example), or it has no operators.
    """
    onnx = _onnx()
    try:
        proto = onnx.load_model_from_string(data)
    except Exception as error:  # the parser's own errors, whatever protobuf calls them
        raise InputError(f"{what} is no ONNX model, or truncated ({error}); export it again") from error
    if not proto.opset_import:
        raise InputError(f"{what} holds no whole graph, it may be truncated; export it again")
    if not proto.graph.node:
        raise InputError(f"{what} has no operators; give a model with at least one")
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    return OnnxModel(proto, folder)


def write_notes(source: Path, target: Path, notes: Mapping[str, str]) -> None:
    """Write a model to another file, with notes that :attr:`OnnxModel.notes` gives back.

    Raises:
        InputError: The source is no ONNX model.
    """
    onnx = _onnx()
    proto = read_model(source).proto
    kept = [entry for entry in proto.metadata_props if entry.key not in notes]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    for key, value in notes.items():
        proto.metadata_props.append(onnx.StringStringEntryProto(key=key, value=value))
    target.write_bytes(proto.SerializeToString())


def _onnx() -> Any:
    try:
        import onnx
        import onnx.inliner
        import onnx.shape_inference
    except ImportError as error:
        raise InputError(
            'reading models needs the package onnx, which is not installed; pip install "cann-env[onnx]"'
        ) from error
    return onnx


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _node(proto: Any) -> Node:
    onnx = _onnx()
    kinds = onnx.AttributeProto
    plain = {kinds.FLOAT, kinds.INT, kinds.STRING, kinds.FLOATS, kinds.INTS, kinds.STRINGS}
    attributes = {
        attribute.name: _text(onnx.helper.get_attribute_value(attribute))
        for attribute in proto.attribute
        if attribute.type in plain
    }
    return Node(
        name=proto.name or next(filter(None, proto.output), proto.op_type),
        op=proto.op_type,
        domain=_domain(proto.domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=attributes,
        has_body=any(attribute.type in (kinds.GRAPH, kinds.GRAPHS) for attribute in proto.attribute),
        proto=proto,
    )


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _dtype(code: int) -> str:
    name = str(_onnx().TensorProto.DataType.Name(code)).lower()
    return _NAMES.get(name, name)


def _type_proto(declared: Declared) -> Any:
    onnx = _onnx()
    code = onnx.TensorProto.DataType.Value(_CODES.get(declared.dtype, declared.dtype).upper())
    return onnx.helper.make_tensor_type_proto(code, declared.shape)


def _declared(value: Any) -> Declared:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return Declared(_dtype(kind.elem_type), None)
    sizes = (
        dim.dim_value
        if dim.dim_value > 0 or (dim.HasField("dim_value") and dim.dim_value == 0)
        else dim.dim_param
        for dim in kind.shape.dim
    )
    shape = tuple(size if size != "" else f"{value.name}.{axis}" for axis, size in enumerate(sizes))
    return Declared(_dtype(kind.elem_type), shape)


def _fixed(name: str, kind: Any) -> Declared:
    tensor = kind.tensor_type
    dims = tensor.shape.dim
    fixed = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return Declared(_dtype(tensor.elem_type), tuple(dim.dim_value for dim in dims) if fixed else None)
