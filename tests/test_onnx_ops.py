"""What each ONNX operator costs: multiply-adds, operations, bytes, and the class of core, counted by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from onnx_files import DEVICE, INT8, INT64, UINT8, Save, kernels, node, onnx, work, write_model

from cann_env.graph import KernelClass
from cann_env.workloads.from_onnx import from_onnx, macs
from cann_env.workloads.onnx_ops import RULES, VIEWS
from cann_env.workloads.onnx_shapes import SHAPE_RULES
from cann_env.workloads.onnx_tensors import Tensor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model: nodes, inputs by name, output names, weights by name."""
    return partial(write_model, tmp_path / "model.onnx")


PRODUCTS = {
    "stacked MatMul": (node("MatMul", "a b", "y"), {"a": [2, 3, 4, 5], "b": [3, 5, 6]}, "cube", 6 * 24 * 5),
    "MatMul with a vector": (node("MatMul", "a b", "y"), {"a": [7], "b": [2, 7, 3]}, "cube", 6 * 7),
    "Gemm of transposed": (
        node("Gemm", "a b", "y", transA=1, transB=1),
        {"a": [5, 4], "b": [6, 5]},
        "cube",
        120,
    ),
    "FusedMatMul": (
        node("FusedMatMul", "a b", "y", domain="com.microsoft", transA=1),
        {"a": [2, 5, 4], "b": [5, 6]},
        "cube",
        2 * 24 * 5,
    ),
    "Einsum": (
        node("Einsum", "a b", "y", equation="bij,bjk->bik"),
        {"a": [2, 3, 4], "b": [2, 4, 5]},
        "cube",
        120,
    ),
    "Einsum with dots": (
        node("Einsum", "a b", "y", equation="...ij, ...jk"),
        {"a": [2, 3, 4], "b": [2, 4, 5]},
        "cube",
        120,
    ),
    "Conv in groups": (
        node("Conv", "a b", "y", group=2),
        {"a": [1, 4, 6, 6], "b": [8, 2, 3, 3]},
        "cube",
        128 * 18,
    ),
    "Conv in one dimension": (
        node("Conv", "a b", "y"),
        {"a": [2, 4, 9], "b": [8, 4, 3]},
        "cube",
        2 * 56 * 12,
    ),
    "ConvTranspose": (
        node("ConvTranspose", "a b", "y"),
        {"a": [1, 2, 4, 4], "b": [2, 3, 2, 2]},
        "cube",
        32 * 12,
    ),
    "ConvInteger": (
        node("ConvInteger", "a b", "y"),
        {"a": (UINT8, [1, 2, 4, 4]), "b": (INT8, [3, 2, 3, 3])},
        "cube",
        12 * 18,
    ),
    "QLinearConv": (
        node("QLinearConv", "a s z b s z s z", "y"),
        {"a": (UINT8, [1, 2, 4, 4]), "s": [1], "z": (UINT8, [1]), "b": (UINT8, [3, 2, 3, 3])},
        "cube",
        12 * 18,
    ),
    "QLinearMatMul": (
        node("QLinearMatMul", "a s z b s z s z", "y"),
        {"a": (UINT8, [4, 5]), "s": [1], "z": (UINT8, [1]), "b": (UINT8, [5, 6])},
        "cube",
        120,
    ),
    "MatMulNBits": (
        node("MatMulNBits", "a b s", "y", domain="com.microsoft", K=32, N=6, bits=4, block_size=32),
        {"a": [4, 32], "b": (UINT8, [6, 1, 16]), "s": [6]},
        "cube",
        4 * 6 * 32,
    ),
    "Attention": (
        node("Attention", "q k v", "y"),
        {"q": [2, 8, 16, 4], "k": [2, 2, 32, 4], "v": [2, 2, 32, 6]},
        "mix",
        2 * 8 * 16 * 32 * (4 + 6),
    ),
    "Attention over kept keys": (
        node("Attention", "q k v - pk pv", "y", q_num_heads=8, kv_num_heads=8),
        {"q": [2, 1, 32], "k": [2, 1, 32], "v": [2, 1, 32], "pk": [2, 8, 31, 4], "pv": [2, 8, 31, 4]},
        "mix",
        2 * 32 * 32 * (1 + 1),
    ),
    "fused Attention of ONNX Runtime": (
        node("Attention", "x w", "y", domain="com.microsoft", num_heads=2),
        {"x": [2, 8, 16], "w": [16, 48]},
        "mix",
        16 * 16 * 48 + 2 * 16 * 8 * 16,
    ),
    "MultiHeadAttention": (
        node("MultiHeadAttention", "q k v", "y", domain="com.microsoft", num_heads=4),
        {"q": [2, 8, 16], "k": [2, 10, 16], "v": [2, 10, 16]},
        "mix",
        2 * 8 * 10 * 32,
    ),
    "LSTM": (
        node("LSTM", "x w r", "y", hidden_size=8),
        {"x": [5, 2, 3], "w": [1, 32, 3], "r": [1, 32, 8]},
        "mix",
        5 * 2 * 32 * (3 + 8),
    ),
    "GRU in two directions": (
        node("GRU", "x w r", "y", hidden_size=8, direction="bidirectional"),
        {"x": [5, 2, 3], "w": [2, 24, 3], "r": [2, 24, 8]},
        "mix",
        5 * 2 * 2 * 24 * (3 + 8),
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_multiply_adds_of_one_operator(save: Save, case: str) -> None:
    """Results times the length of the sum behind each; attention: scores and values for each pair."""
    made, inputs, kernel_class, count = PRODUCTS[case]
    graph = from_onnx(save([made], inputs, ["y"]), DEVICE)
    assert macs(graph) == count
    assert kernels(graph)["y"].kernel_class == KernelClass(kernel_class)


TILES = {
    "six products side by side": (node("MatMul", "a b", "y"), {"a": [6, 4, 5], "b": [6, 5, 3]}, 6),
    "six rows of one product": (node("MatMul", "a b", "y"), {"a": [6, 4, 5], "b": [5, 3]}, 1),
    "three by two": (node("Gemm", "a b", "y"), {"a": [65, 8], "b": [8, 64]}, 6),
    "all cores": (node("Gemm", "a b", "y"), {"a": [257, 8], "b": [8, 512]}, 24),
    "four groups": (node("Conv", "a b", "y", group=4), {"a": [1, 64, 6, 6], "b": [64, 16, 3, 3]}, 4),
    "two images of 100 pixels": (node("Conv", "a b", "y"), {"a": [2, 4, 10, 10], "b": [8, 4, 1, 1]}, 7),
    "eight heads": (node("Attention", "a a a", "y"), {"a": [1, 8, 130, 4]}, 16),
    "vector work of 5 KiB": (node("Relu", "a", "y"), {"a": [5, 512]}, 5),
    "a sum over 40 KiB": (node("ReduceMax", "a", "y", keepdims=0), {"a": [20, 1024]}, 40),
    "control work": (node("NonZero", "a", "y"), {"a": [20, 1024]}, 1),
}


@pytest.mark.parametrize("case", TILES)
def test_blocks_of_one_operator(save: Save, case: str) -> None:
    """32 x 32 results of each product, 128 rows of each head; a KiB of the larger side of the rest."""
    made, inputs, blocks = TILES[case]
    assert kernels(from_onnx(save([made], inputs, ["y"]), DEVICE))["y"].blocks == blocks


def test_elements_narrower_than_a_byte_are_packed() -> None:
    """Nine elements of 4 bits take 36 bits: 5 bytes."""
    assert Tensor("w", (3, 3), "int4").size_bytes == 5
    assert Tensor("w", (), "bfloat16").size_bytes == 2


def test_fused_attention_counts_what_its_parts_count(save: Save) -> None:
    """(2, 4, 16, 8) heads: the fused operator and two stacked products have the same multiply-adds."""
    inputs = {"q": [2, 4, 16, 8], "k": [2, 4, 16, 8], "v": [2, 4, 16, 8]}
    parts = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p v", "y"),
    ]
    whole = from_onnx(save([node("Attention", "q k v", "y")], inputs, ["y"]), DEVICE)
    assert macs(whole) == macs(from_onnx(save(parts, inputs, ["y"]), DEVICE)) == 2 * 2 * 4 * 16 * 16 * 8


VECTORS = {
    "LayerNormalization": (node("LayerNormalization", "x w", "y"), {"x": [2, 8], "w": [8]}, 8 * 16, 48, 32),
    "RotaryEmbedding": (
        node("RotaryEmbedding", "x c s p", "y"),
        {"x": [1, 2, 4, 8], "c": [16, 4], "s": [16, 4], "p": (INT64, [1, 4])},
        4 * 64,
        128 + 128 + 128 + 32,
        128,
    ),
    "Gelu": (node("Gelu", "x", "y"), {"x": [2, 8]}, 16 * 16, 32, 32),
    "Erf": (node("Erf", "x", "y"), {"x": [2, 8]}, 8 * 16, 32, 32),
    "Gather": (node("Gather", "t i", "y"), {"t": [100, 8], "i": (INT64, [3])}, 0, 48 + 24, 48),
    "MaxPool": (node("MaxPool", "x", "y", kernel_shape=[3, 3]), {"x": [1, 1, 5, 5]}, 9 * 9, 50, 18),
    "GlobalAveragePool": (node("GlobalAveragePool", "x", "y"), {"x": [1, 4, 5, 5]}, 100, 200, 8),
    "Concat": (node("Concat", "x x2", "y", axis=0), {"x": [2, 8], "x2": [3, 8]}, 0, 80, 80),
    "sum of three": (node("Sum", "x x2 x3", "y"), {"x": [8], "x2": [8], "x3": [8]}, 16, 48, 16),
    "QuantizeLinear": (
        node("QuantizeLinear", "x s z", "y"),
        {"x": [2, 8], "s": [], "z": (INT8, [])},
        4 * 16,
        32 + 2 + 1,
        16,
    ),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", "x x2 w", "y", domain="com.microsoft"),
        {"x": [1, 2, 8], "x2": [1, 2, 8], "w": [8]},
        8 * 16,
        80,
        32,
    ),
    "GroupNormalization": (
        node("GroupNormalization", "x w b", "y", num_groups=2),
        {"x": [1, 4, 2], "w": [4], "b": [4]},
        8 * 8,
        32,
        16,
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_work_of_one_vector_operator(save: Save, case: str) -> None:
    made, inputs, flops, read, written = VECTORS[case]
    kernel = kernels(from_onnx(save([made], inputs, ["y"]), DEVICE))["y"]
    assert work(kernel) == ("vector", flops, read, written, 1)


def test_results_whose_size_depends_on_data_take_their_bound(save: Save) -> None:
    """At most all 12 elements of (3, 4) are not zero: 2 indices of 8 bytes each, on a control processor."""
    kernel = kernels(from_onnx(save([node("NonZero", "x", "y")], {"x": [3, 4]}, ["y"]), DEVICE))["y"]
    assert work(kernel) == ("aicpu", 12, 24, 192, 1)


FUSED = {
    "FusedConv FusedGemm FusedMatMul MatMulIntegerToFloat MatMulNBits MultiHeadAttention",
    "com.microsoft.Attention",
    "QLinearAdd QLinearMul SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization",
    "SimplifiedLayerNormalization FastGelu BiasGelu QuickGelu",
}


def test_every_row_names_an_operator() -> None:
    """A misspelt name would make a real operator unsupported without a sound."""
    real = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    fused = {name for row in FUSED for name in row.split()}
    assert fused == set(RULES) - real
    assert set(SHAPE_RULES) <= set(RULES)
    assert real >= VIEWS
