"""Tiny ONNX models written by hand, and what tests read off their graphs. Without onnx, skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from toys import toy_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.graph import CommandGraph, Kernel

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
INT8, UINT8 = onnx.TensorProto.INT8, onnx.TensorProto.UINT8
DEVICE = toy_device(pools={"aic": 24, "aiv": 48, "aicpu": 6})

Save = Callable[..., Path]


def write_model(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a model; an input is a shape of floats, or its type and shape."""
    given = [
        helper.make_tensor_value_info(name, *(spec if isinstance(spec, tuple) else (FLOAT, spec)))
        for name, spec in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "model", given, results, constants)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node named after its first output; ``-`` leaves an input out."""
    names = [name.strip("-") for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=outputs.split()[0], **attributes)


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, dtype=np.float32)


def kernels(graph: CommandGraph) -> dict[str, Kernel]:
    return {command.name: command.kernels[0] for command in graph.commands if command.kernels}


def work(kernel: Kernel) -> tuple[str, int, int, int, int]:
    """Class, operations, bytes read and written, blocks."""
    return (
        kernel.kernel_class.value,
        kernel.flops,
        kernel.bytes_read,
        kernel.bytes_written,
        kernel.blocks,
    )
