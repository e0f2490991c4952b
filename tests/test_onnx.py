"""Models become graphs: small ones by hand, views, weights, folding and batches."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx_files import DEVICE, FLOAT, INT64, Save, floats, helper, kernels, node, onnx, work, write_model
from toys import toy_device

from cann_env.graph import BufferKind, CommandKind, CopyKind, Level
from cann_env.workloads.from_onnx import from_onnx, macs
from cann_env.workloads.onnx_shapes import rescaled_reshape

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model: nodes, inputs by name, output names, weights by name."""
    return partial(write_model, tmp_path / "model.onnx")


def test_convolution_and_relu(save: Save) -> None:
    """x (1, 3, 8, 8) -> Conv with 4 filters of 3 x 3 x 3, padded -> c (1, 4, 8, 8) -> Relu -> y.

    256 results of 27 multiply-adds are 13824 operations; in float16 x has 384 bytes, the filters 216, the
    bias 8 and the result 512. Two cores take 32 pixels each. The Relu does one operation a result.
    """
    path = save(
        [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")],
        {"x": [1, 3, 8, 8]},
        ["y"],
        {"w": floats(4, 3, 3, 3), "b": floats(4)},
    )
    graph = from_onnx(path, DEVICE)
    assert [c.name for c in graph.commands] == ["h2d/x", "c", "y", "d2h/y"]
    assert work(kernels(graph)["c"]) == ("cube", 13824, 384 + 216 + 8, 512, 2)
    assert work(kernels(graph)["y"]) == ("vector", 256, 512, 512, 1)
    assert graph.predecessors == ((), (0,), (1,), (2,))
    assert {b.name: (b.size_bytes, b.kind.value, b.level.value) for b in graph.buffers} == {
        "x": (384, "device", "absent"),
        "w": (216, "managed", "host"),
        "b": (8, "managed", "host"),
        "c": (512, "device", "absent"),
        "y": (512, "device", "absent"),
    }
    copies = [c for c in graph.commands if c.kind == CommandKind.COPY]
    assert [(c.copy, c.size_bytes) for c in copies] == [(CopyKind.H2D, 384), (CopyKind.D2H, 512)]


ATTENTION = [
    node("MatMul", "x wq", "q"),
    node("MatMul", "x wk", "k"),
    node("MatMul", "x wv", "v"),
    node("Transpose", "k", "kt", perm=[0, 2, 1]),
    node("MatMul", "q kt", "scores"),
    node("Mul", "scores scale", "scaled"),
    node("Softmax", "scaled", "shares", axis=-1),
    node("MatMul", "shares v", "y"),
]
WEIGHTS = {"wq": floats(16, 16), "wk": floats(16, 16), "wv": floats(16, 16), "scale": np.float32(0.25)}


def test_attention_of_one_head(save: Save) -> None:
    """x (1, 8, 16) -> q, k, v (1, 8, 16) -> q k' (1, 8, 8), scaled, softmax -> times v (1, 8, 16).

    Each projection has 128 results of 16 multiply-adds, the scores 64 of 16, the weighted values 128 of 8.
    The scale is one number and travels with the kernel: Mul reads the 64 scores only.
    """
    graph = from_onnx(save(ATTENTION, {"x": [1, 8, 16]}, ["y"], WEIGHTS), DEVICE)
    found = kernels(graph)
    assert work(found["q"]) == ("cube", 2 * 128 * 16, 256 + 512, 256, 1)
    assert work(found["kt"]) == ("vector", 0, 256, 256, 1)
    assert work(found["scores"]) == ("cube", 2 * 64 * 16, 512, 128, 1)
    assert work(found["scaled"]) == ("vector", 64, 128, 128, 1)
    assert work(found["shares"]) == ("vector", 8 * 64, 128, 128, 1)
    assert work(found["y"]) == ("cube", 2 * 128 * 8, 128 + 256, 256, 1)
    assert macs(graph) == 3 * 128 * 16 + 64 * 16 + 128 * 8
    assert "scale" not in graph.buffer_index
    index = graph.command_index
    assert graph.predecessors[index["y"]] == (index["v"], index["shares"])


def test_quantised_linear(save: Save) -> None:
    """x (4, 64) is quantised, multiplied by int8 weights (64, 32) to int32 (4, 32), and scaled back.

    8192 multiply-adds at int8 on 256 + 2048 bytes and one byte of zero point; the product has 512 bytes.
    """
    path = save(
        [
            node("DynamicQuantizeLinear", "x", "xq xs xz"),
            node("MatMulInteger", "xq w xz wz", "p"),
            node("Cast", "p", "pf", to=FLOAT),
            node("Mul", "pf xs", "y"),
        ],
        {"x": [4, 64]},
        ["y"],
        {"w": np.zeros((64, 32), np.int8), "wz": np.int8(0)},
    )
    found = kernels(from_onnx(path, DEVICE))
    assert work(found["xq"]) == ("vector", 4 * 256, 512, 256 + 2 + 1, 1)
    assert work(found["p"]) == ("cube", 2 * 8192, 256 + 2048 + 1, 512, 1)
    assert found["p"].dtype == "int8"
    assert work(found["pf"]) == ("vector", 128, 512, 256, 1)
    assert work(found["y"]) == ("vector", 128, 256 + 2, 256, 1)
    assert found["y"].dtype == "float16"


def test_blocks_are_tiles_up_to_the_cores(save: Save) -> None:
    """A product (128, 64) x (64, 128) has 4 x 4 pieces of 32 x 32; its 32 KiB are added to a KiB a block."""
    nodes = [node("MatMul", "a b", "p"), node("Add", "p p", "y")]
    path = save(nodes, {"a": [128, 64], "b": [64, 128]}, ["y"])
    found = kernels(from_onnx(path, DEVICE))
    assert (found["p"].blocks, found["y"].blocks) == (16, 32)
    assert found["y"].bytes_read == 32 * 1024
    narrow = kernels(from_onnx(path, toy_device()))
    assert (narrow["p"].blocks, narrow["y"].blocks) == (2, 4)


def test_types_decide_the_bytes(save: Save) -> None:
    path = save([node("MatMul", "x w", "y")], {"x": [4, 8]}, ["y"], {"w": floats(8, 2)})
    for dtype, width in (("float16", 2), ("bfloat16", 2), ("float32", 4)):
        kernel = kernels(from_onnx(path, DEVICE, dtype=dtype))["y"]
        assert (kernel.dtype, kernel.bytes_read, kernel.bytes_written) == (dtype, 48 * width, 8 * width)


def test_views_cost_nothing(save: Save) -> None:
    """x -> Reshape -> Unsqueeze -> Cast between floats -> Relu -> Dropout -> y: one kernel, from x to r."""
    path = save(
        [
            node("Reshape", "x to", "a"),
            node("Unsqueeze", "a axis", "b"),
            node("Cast", "b", "c", to=onnx.TensorProto.FLOAT16),
            node("Relu", "c", "r"),
            node("Dropout", "r", "y mask"),
        ],
        {"x": [2, 6]},
        ["y"],
        {"to": np.array([3, -1]), "axis": np.array([0])},
    )
    graph = from_onnx(path, DEVICE)
    assert [(c.name, c.reads, c.writes) for c in graph.commands] == [
        ("h2d/x", (), ("x",)),
        ("r", ("x",), ("r",)),
        ("d2h/y", ("r",), ()),
    ]


def test_shapes_computed_from_shapes(save: Save) -> None:
    """Shape, Gather, Concat, Reshape keep the batch and split heads, as exporters write it; none runs."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n first", "n1"),
        node("Concat", "n1 rest", "to", axis=0),
        node("Reshape", "x to", "h"),
        node("Transpose", "h", "y", perm=[0, 2, 1, 3]),
    ]
    weights = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1, 2, 8])}
    path = save(nodes, {"x": ["batch", "tokens", 16]}, ["y"], weights)
    graph = from_onnx(path, DEVICE, batch=3, dims={"tokens": 5})
    assert list(kernels(graph)) == ["y"]
    assert kernels(graph)["y"].bytes_written == 3 * 5 * 16 * 2


def test_what_depends_on_constants_alone_is_a_weight(save: Save) -> None:
    """A generator and a sum of weights are folded; a transposed weight is read where it lies."""
    nodes = [
        node("ConstantOfShape", "shape", "g"),
        node("Add", "w g", "sum"),
        node("Transpose", "w", "wt", perm=[1, 0]),
        node("MatMul", "x sum", "a"),
        node("MatMul", "a wt", "y"),
    ]
    path = save(nodes, {"x": [2, 4]}, ["y"], {"w": floats(4, 6), "shape": np.array([4, 6])})
    graph = from_onnx(path, DEVICE, weights=Level.HBM)
    assert list(kernels(graph)) == ["a", "y"]
    managed = {b.name: b for b in graph.buffers if b.kind == BufferKind.MANAGED}
    assert set(managed) == {"sum", "w"}
    assert {b.level for b in managed.values()} == {Level.HBM}
    assert macs(graph) == 2 * (12 * 4 + 8 * 6) // 2


def test_parameters_travel_with_the_kernel(save: Save) -> None:
    """Starts and ends of a Slice are no buffers; of x (8, 8) it reads the 3 x 4 floats that it keeps."""
    weights = {"start": np.array([0, 2]), "end": np.array([3, 6])}
    graph = from_onnx(save([node("Slice", "x start end", "y")], {"x": [8, 8]}, ["y"], weights), DEVICE)
    assert work(kernels(graph)["y"]) == ("vector", 0, 24, 24, 1)
    assert [b.name for b in graph.buffers] == ["x", "y"]


def test_random_numbers_are_drawn_each_time(save: Save) -> None:
    """A generator of noise has no inputs, yet it is no weight; a weight as output is not copied back."""
    nodes = [node("RandomNormal", "", "noise", shape=[4]), node("Add", "x noise", "y")]
    nodes[0].name = "draw"
    graph = from_onnx(save(nodes, {"x": [4]}, ["y", "w"], {"w": floats(4)}), DEVICE)
    assert [c.name for c in graph.commands] == ["h2d/x", "draw", "y", "d2h/y"]


def test_tied_weights_lie_once(save: Save) -> None:
    """A table of 32 tokens serves as embedding and, transposed, as the last product."""
    nodes = [
        node("Gather", "table ids", "e"),
        node("Transpose", "table", "tt", perm=[1, 0]),
        node("MatMul", "e tt", "y"),
    ]
    graph = from_onnx(save(nodes, {"ids": (INT64, [3])}, ["y"], {"table": floats(32, 8)}), DEVICE)
    assert [b.name for b in graph.buffers if b.kind == BufferKind.MANAGED] == ["table"]
    assert all("table" in c.reads for c in graph.commands if c.kernels)


def test_quantised_weights_stay_quantised(save: Save) -> None:
    """DequantizeLinear of a weight: the product reads its 48 bytes of int8, and no kernel widens them."""
    nodes = [node("DequantizeLinear", "w s", "wf"), node("MatMul", "x wf", "y")]
    weights = {"w": np.zeros((8, 6), np.int8), "s": np.float32(0.1)}
    graph = from_onnx(save(nodes, {"x": [2, 8]}, ["y"], weights), DEVICE)
    assert work(kernels(graph)["y"]) == ("cube", 2 * 12 * 8, 32 + 48, 24, 1)
    assert graph.buffers[graph.buffer_index["w"]].size_bytes == 48


def test_what_no_output_needs_is_not_run(save: Save) -> None:
    nodes = [node("Relu", "x", "y"), node("Exp", "unused", "e"), node("Neg", "e", "dead")]
    graph = from_onnx(save(nodes, {"x": [4], "unused": [4]}, ["y"]), DEVICE)
    assert [c.name for c in graph.commands] == ["h2d/x", "y", "d2h/y"]


def test_weights_beside_the_file_are_not_loaded(save: Save, tmp_path: Path) -> None:
    """Sizes are in the model; the file of the weights may be missing."""
    path = save([node("MatMul", "x w", "y")], {"x": [2, 64]}, ["y"], {"w": floats(64, 64)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    graph = from_onnx(path, DEVICE)
    assert graph.buffers[graph.buffer_index["w"]].size_bytes == 64 * 64 * 2


def test_nodes_of_one_name_become_two_commands(save: Save) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="act"),
        helper.make_node("Relu", ["a"], ["y"], name="act"),
    ]
    graph = from_onnx(save(nodes, {"x": [4]}, ["y"]), DEVICE, name="twice")
    assert list(kernels(graph)) == ["act", "act#2"]
    assert graph.name == "twice"


# --- batch ----------------------------------------------------------------------------------------------

RESCALED = [
    ((1, 2048), (1, 2048, 1, 1), (1, 2048), (4, 2048, 1, 1), (4, 2048)),
    ((1, -1, 12, 64), (1, 128, 768), (1, 128, 12, 64), (4, 128, 768), (4, 128, 12, 64)),
    ((12, -1, 64), (1, 128, 768), (12, 128, 64), (4, 128, 768), (48, 128, 64)),
    ((128, -1, 64), (128, 1, 768), (128, 12, 64), (128, 4, 768), (128, 48, 64)),
    ((-1, 768), (1, 128, 768), (128, 768), (4, 128, 768), (-1, 768)),
    ((0, 0, 12, 64), (1, 128, 768), (1, 128, 12, 64), (4, 128, 768), (0, 0, 12, 64)),
    ((3, 4), (3, 4), (3, 4), (3, 4), (3, 4)),
]


@pytest.mark.parametrize(("target", "before_in", "before_out", "now_in", "expected"), RESCALED)
def test_reshapes_grow_where_their_input_grows(
    target: tuple[int, ...],
    before_in: tuple[int, ...],
    before_out: tuple[int, ...],
    now_in: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    found = rescaled_reshape(target, before_in, before_out, now_in)
    assert found == expected
    if min(found) > 0:
        assert prod(found) == prod(now_in)


def test_reshapes_that_follow_the_batch_are_left_alone(save: Save) -> None:
    """x (n, 4, 6) is turned to (4, n, 6) and merged by arithmetic on its shape: 12 rows for n = 3."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("Shape", "t", "rest", start=2),
        node("Shape", "t", "lead", end=2),
        node("ReduceProd", "lead", "rows", keepdims=1),
        node("Concat", "rows rest", "to", axis=0),
        node("Reshape", "t to", "m"),
        node("MatMul", "m w", "y"),
    ]
    graph = from_onnx(save(nodes, {"x": ["n", 4, 6]}, ["y"], {"w": floats(6, 2)}), DEVICE, batch=3)
    assert macs(graph) == 12 * 2 * 6


def test_batch_moves_every_input_that_has_it(save: Save) -> None:
    """x and z have the batch of 2, the table p has 5 rows of its own; dims may size a batch by its name."""
    nodes = [node("Add", "x z", "a"), node("MatMul", "a p", "y")]
    path = save(nodes, {"x": [2, 5], "z": [2, 5], "p": [5, 3]}, ["y"])
    sizes = {c.name: c.size_bytes for c in from_onnx(path, DEVICE, batch=7).commands if c.size_bytes}
    assert sizes == {"h2d/x": 70, "h2d/z": 70, "h2d/p": 30, "d2h/y": 42}
    named = save([node("Relu", "x", "y")], {"x": ["n", 5]}, ["y"])
    assert from_onnx(named, DEVICE).commands[0].size_bytes == 10
    assert from_onnx(named, DEVICE, batch=4).commands[0].size_bytes == 40
    assert from_onnx(named, DEVICE, dims={"n": 6}).commands[0].size_bytes == 60
