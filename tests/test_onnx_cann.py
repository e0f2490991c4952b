"""What the cost model of a device sees of ONNX operators: CANN's names, products, rows, heads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from onnx_files import INT8, INT64, UINT8, Save, floats, kernels, node, write_model

from cann_env.device import load_device
from cann_env.device.attention import attention_flops
from cann_env.device.cost import cost_of, is_streamed, minimum_kernel_ns, roofline
from cann_env.device.products import operand_bytes, product_of
from cann_env.graph import KernelClass
from cann_env.workloads.from_onnx import from_onnx
from cann_env.workloads.onnx_cann import NAMES
from cann_env.workloads.onnx_ops import RULES
from cann_env.workloads.onnx_seen import unknown

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.graph import CommandGraph

B2 = load_device("ascend910b2")


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model: nodes, inputs by name, output names, weights by name."""
    return partial(write_model, tmp_path / "model.onnx")


PRODUCTS = {
    "one": (node("MatMul", "a b", "y"), {"a": [4, 5], "b": [5, 6]}, "MatMulV2", (1, 4, 6, 5)),
    "rows of a stack": (
        node("MatMul", "a b", "y"),
        {"a": [2, 3, 4, 5], "b": [5, 6]},
        "MatMulV2",
        (1, 24, 6, 5),
    ),
    "a stack of one": (
        node("MatMul", "a b", "y"),
        {"a": [2, 3, 4, 5], "b": [1, 1, 5, 6]},
        "MatMulV2",
        (1, 24, 6, 5),
    ),
    "stack by stack": (
        node("MatMul", "a b", "y"),
        {"a": [2, 3, 4, 5], "b": [3, 5, 6]},
        "BatchMatMulV2",
        (6, 4, 6, 5),
    ),
    "one against a stack": (
        node("MatMul", "a b", "y"),
        {"a": [4, 5], "b": [7, 5, 6]},
        "BatchMatMulV2",
        (7, 4, 6, 5),
    ),
    "both broadcast": (
        node("MatMul", "a b", "y"),
        {"a": [2, 1, 4, 5], "b": [1, 3, 5, 6]},
        "BatchMatMulV2",
        (6, 4, 6, 5),
    ),
    "a row": (node("MatMul", "a b", "y"), {"a": [7], "b": [2, 7, 3]}, "BatchMatMulV2", (2, 1, 3, 7)),
    "a column": (node("MatMul", "a b", "y"), {"a": [2, 4, 7], "b": [7]}, "MatMulV2", (1, 8, 1, 7)),
    "Gemm of transposed": (
        node("Gemm", "a b c", "y", transA=1, transB=1),
        {"a": [5, 4], "b": [6, 5], "c": [6]},
        "MatMulV2",
        (1, 4, 6, 5),
    ),
    "FusedMatMul": (
        node("FusedMatMul", "a b", "y", domain="com.microsoft", transA=1),
        {"a": [2, 5, 4], "b": [5, 6]},
        "BatchMatMulV2",
        (2, 4, 6, 5),
    ),
    "QLinearMatMul": (
        node("QLinearMatMul", "a s z b s z s z", "y"),
        {"a": (UINT8, [4, 5]), "s": [1], "z": (UINT8, [1]), "b": (UINT8, [5, 6])},
        "QuantBatchMatmulV3",
        (1, 4, 6, 5),
    ),
    "MatMulNBits": (
        node("MatMulNBits", "a b s", "y", domain="com.microsoft", K=32, N=6, bits=4, block_size=32),
        {"a": [4, 32], "b": (UINT8, [6, 1, 16]), "s": [6]},
        "WeightQuantBatchMatmulV2",
        (1, 4, 6, 32),
    ),
    "Einsum": (
        node("Einsum", "a b", "y", equation="bhqd,bkhd->bhqk"),
        {"a": [2, 3, 4, 8], "b": [2, 5, 3, 8]},
        "BatchMatMulV2",
        (6, 4, 5, 8),
    ),
    "Conv": (
        node("Conv", "a b", "y", pads=[1, 1, 1, 1], strides=[2, 2]),
        {"a": [2, 32, 8, 8], "b": [64, 32, 3, 3]},
        "Conv2D",
        (1, 2 * 4 * 4, 64, 9 * 32),
    ),
    "Conv of few channels": (
        node("Conv", "a b", "y"),
        {"a": [1, 3, 8, 8], "b": [20, 3, 1, 1]},
        "Conv2D",
        (1, 64, 32, 16),
    ),
    "Conv in wide groups": (
        node("Conv", "a b", "y", group=2),
        {"a": [1, 64, 8, 8], "b": [96, 32, 1, 1]},
        "Conv2D",
        (2, 64, 48, 32),
    ),
    "depthwise Conv": (
        node("Conv", "a b", "y", group=32, pads=[1, 1, 1, 1]),
        {"a": [1, 32, 8, 8], "b": [32, 1, 3, 3]},
        "Conv2D",
        (2, 64, 16, 9 * 16),
    ),
    "Conv in one dimension": (
        node("Conv", "a b", "y"),
        {"a": [2, 16, 9], "b": [16, 16, 3]},
        "Conv2D",
        (1, 2 * 7, 16, 3 * 16),
    ),
    "ConvInteger": (
        node("ConvInteger", "a b", "y"),
        {"a": (UINT8, [1, 32, 4, 4]), "b": (INT8, [16, 32, 3, 3])},
        "Conv2D",
        (1, 4, 16, 9 * 32),
    ),
    "ConvTranspose": (
        node("ConvTranspose", "a b", "y", strides=[2, 2]),
        {"a": [1, 32, 4, 4], "b": [32, 16, 2, 2]},
        "Conv2DBackpropInput",
        (1, 16, 4 * 16, 32),
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_are_read_as_their_operators_multiply(save: Save, case: str) -> None:
    """Batch, rows, columns and depth; channels are padded to 16 (integers: 32), narrow groups join.

    Sixteen groups of a depthwise convolution make one product of 16 channels by 16 filters, mostly zeros.
    """
    made, inputs, op, sizes = PRODUCTS[case]
    kernel = kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"]
    product = product_of(kernel)
    assert product is not None
    assert kernel.op == op
    assert (product.batch, product.rows, product.columns, product.depth) == sizes
    assert product.dtype == ("int8" if "Integer" in case or "QLinear" in case else "float16")
    assert cost_of(B2, kernel.kernel_class, kernel).compute_ns > 0


def test_what_lies_the_other_way_round_is_turned(save: Save) -> None:
    made, inputs, *_ = PRODUCTS["Gemm of transposed"]
    product = product_of(kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"])
    assert product is not None
    assert product.turned


@pytest.mark.parametrize("case", ["Conv", "MatMulNBits", "ConvInteger", "ConvTranspose", "both broadcast"])
def test_the_kernel_moves_the_bytes_of_its_tensors(save: Save, case: str) -> None:
    """Scales and weights of 4 bits among them, and whatever is padded only on the way to the cube."""
    made, inputs, *_ = PRODUCTS[case]
    kernel = kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"]
    assert sum(map(operand_bytes, kernel.inputs)) == kernel.bytes_read
    assert sum(map(operand_bytes, kernel.outputs)) == kernel.bytes_written


def test_depthwise_convolutions_unfold_every_channel(save: Save) -> None:
    """Twice the channels are twice the work: 256 and 512 of 56 x 56 pixels, beyond launch and fill."""

    def lasts(channels: int) -> int:
        made = node("Conv", "a b", "y", group=channels, pads=[1, 1, 1, 1])
        path = save([made], {"a": [8, channels, 56, 56], "b": [channels, 1, 3, 3]}, ["y"])
        return _alone_ns(from_onnx(path, B2))

    assert lasts(512) == pytest.approx(2 * lasts(256), rel=0.1)


GATHERS = {
    "of rows": (node("Gather", "t i", "y"), {"t": [100, 8], "i": (INT64, [3])}, (100, 8)),
    "of columns": (node("Gather", "t i", "y", axis=1), {"t": [100, 8], "i": (INT64, [3])}, (800, 1)),
    "of a token": (node("Gather", "t i", "y", axis=-2), {"t": [2, 5, 8], "i": (INT64, [])}, (10, 8)),
    "by two indices": (node("GatherND", "t i", "y"), {"t": [4, 5, 8], "i": (INT64, [3, 2])}, (20, 8)),
}


@pytest.mark.parametrize("case", GATHERS)
def test_gathers_find_whole_rows(save: Save, case: str) -> None:
    made, inputs, table = GATHERS[case]
    kernel = kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"]
    assert (kernel.op, kernel.inputs[0].shape, kernel.inputs[1].dtype) == ("GatherV2", table, "int64")


def test_a_table_may_have_one_element(save: Save) -> None:
    """It would travel in the arguments elsewhere; a gather still has a table."""
    path = save([node("Gather", "t i", "y")], {"i": (INT64, [3])}, ["y"], {"t": floats(1, 1)})
    assert kernels(from_onnx(path, B2))["y"].inputs[0].shape == (1, 1)


def test_heads_of_attention_are_those_of_its_operator(save: Save) -> None:
    """8 heads of 4 ask for one token each, of 32 that 2 heads keep: 2 x 2 x 8 x 32 x 4 multiply-adds."""
    inputs = {"q": [1, 8, 1, 4], "k": [1, 2, 32, 4], "v": [1, 2, 32, 4]}
    kernel = kernels(from_onnx(save([node("Attention", "q k v", "y")], inputs, ["y"]), B2))["y"]
    assert kernel.op == "FlashAttentionScore"
    assert [operand.shape for operand in kernel.inputs] == [(1, 8, 1, 4), (1, 2, 32, 4), (1, 2, 32, 4)]
    assert attention_flops(kernel) == kernel.flops == 2 * 2 * 8 * 32 * 4


def test_kept_keys_count(save: Save) -> None:
    """One new token and 31 kept, of 8 heads of 4."""
    made = node("Attention", "q k v - pk pv", "y", q_num_heads=8, kv_num_heads=8)
    inputs = {"q": [2, 1, 32], "k": [2, 1, 32], "v": [2, 1, 32], "pk": [2, 8, 31, 4], "pv": [2, 8, 31, 4]}
    kernel = kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"]
    assert kernel.inputs[1].shape == (2, 8, 32, 4)
    assert attention_flops(kernel) == kernel.flops


VECTORS = {
    "Relu": "Relu",
    "Softmax": "SoftmaxV2",
    "Transpose": "Transpose",
    "GlobalAveragePool": "ReduceMeanD",
    "Gelu": "Gelu",
    "LogSoftmax": "LogSoftmaxV2",
}


@pytest.mark.parametrize("op", VECTORS)
def test_vector_work_is_priced_by_its_tensors(save: Save, op: str) -> None:
    """On an image of 8 x 4 x 32 x 32 halves, 64 KiB: a block a KiB, up to the 48 cores."""
    kernel = kernels(from_onnx(save([node(op, "x", "y")], {"x": [8, 4, 32, 32]}, ["y"]), B2))["y"]
    assert (kernel.op, kernel.blocks) == (VECTORS[op], 48)
    assert is_streamed(B2, KernelClass.VECTOR, kernel)


def test_numbers_alone_are_priced_as_before(save: Save) -> None:
    """A product of 32-bit integers, and a convolution in three dimensions: no cube operator takes them."""
    cases = {
        "MatMulV2": (
            node("MatMul", "a b", "y"),
            {"a": (INT64, [4, 5]), "b": (INT64, [5, 6])},
        ),
        "Conv2D": (node("Conv", "a b", "y"), {"a": [1, 4, 4, 4, 4], "b": [8, 4, 1, 1, 1]}),
        "Einsum": (node("Einsum", "a b", "y", equation="ij,kl->i"), {"a": [2, 3], "b": [4, 5]}),
    }
    diagonal = node("Einsum", "a b", "y", equation="ii,ij->j")
    for op, (made, inputs) in (*cases.items(), ("Einsum", (diagonal, {"a": [3, 3], "b": [3, 5]}))):
        kernel = kernels(from_onnx(save([made], inputs, ["y"]), B2))["y"]
        assert (kernel.op, kernel.inputs, kernel.outputs) == (op, (), ())


def test_operators_that_the_cost_model_does_not_know() -> None:
    """These are timed by operations and bytes; control processors have no other model."""
    by_numbers = {name for name, (_, view) in NAMES.items() if view is unknown}
    recurrent = {"RNN", "GRU", "LSTM"}
    assert by_numbers == recurrent | {"com.microsoft.Attention", "DeformConv", "GatherElements"}
    control = {name for name, rule in RULES.items() if rule.kernel_class == KernelClass.AICPU}
    assert control == {
        *("Compress", "NonZero", "Unique", "MaxUnpool", "Multinomial", "MaxRoiPool"),
        *("NonMaxSuppression", "RoiAlign", "TopK", "Det"),
    }


def test_every_operator_has_a_name() -> None:
    """A row without a name would be timed by its numbers without a sound, a name without a row never."""
    assert set(NAMES) == set(RULES)


def _alone_ns(graph: CommandGraph) -> int:
    (kernel,) = (k for command in graph.commands for k in command.kernels)
    cost = roofline(B2, kernel.kernel_class).of(kernel)
    return minimum_kernel_ns(B2, kernel.kernel_class, cost, kernel.blocks)
