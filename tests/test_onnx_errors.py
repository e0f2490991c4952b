"""Models that must be refused: each message names the file, the node or the input, and what is right."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from onnx_files import DEVICE, FLOAT, Save, helper, kernels, node, onnx, work, write_model
from toys import toy_device

from cann_env.graph import Level
from cann_env.units import InputError
from cann_env.workloads.from_onnx import from_onnx, light_models

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model: nodes, inputs by name, output names, weights by name."""
    return partial(write_model, tmp_path / "model.onnx")


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_onnx(path, options.pop("device", DEVICE), **options)
    return str(caught.value)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.999])
def test_truncated_file_is_named(tmp_path: Path, part: float) -> None:
    whole = light_models()["squeezenet"].read_bytes()
    path = tmp_path / "short.onnx"
    path.write_bytes(whole[: int(len(whole) * part)])
    message = refusal(path)
    assert str(path) in message
    assert "truncated" in message


def test_unknown_model_lists_the_light_ones() -> None:
    assert (
        "model 'resnet5' is no file and no light model; the light models are alexnet, densenet121"
        in refusal("resnet5")
    )


def test_dynamic_dimensions_must_be_set(save: Save) -> None:
    path = save([node("Relu", "x", "y")], {"x": ["n", "tokens", None]}, ["y"])
    assert (
        "model 'model.onnx': input 'x' of the model is dynamic in dimension 1, 'tokens'; set its size, for "
        in (message := refusal(path))
    )
    assert "dims={'tokens': 128}" in message
    assert "dimension 2, 'x.2'" in refusal(path, dims={"tokens": 8})
    assert from_onnx(path, DEVICE, dims={"tokens": 8, "x.2": 4}).commands[0].size_bytes == 64
    assert "dims names 'token'; the dynamic dimensions of the inputs are: 'n', 'tokens', 'x.2'" in refusal(
        path, dims={"token": 8}
    )
    assert "dims['tokens'] is 0; write a whole number of at least 1" in refusal(path, dims={"tokens": 0})
    assert "batch is 0; write a whole number of at least 1" in refusal(path, batch=0)


def test_unsupported_operator_is_named_and_can_be_counted_by_bytes(save: Save) -> None:
    """Frobnicate is nobody's operator; with fallback it moves 16 of its 32 bytes, as many as it writes."""
    path = save(
        [node("Frobnicate", "x", "f", domain="com.example"), node("Relu", "f", "y")], {"x": [16]}, ["y"]
    )
    model = onnx.load(path)
    model.graph.value_info.append(helper.make_tensor_value_info("f", FLOAT, [8]))
    onnx.save(model, path)
    assert "node 'f' (operator Frobnicate) is not supported; --fallback (fallback=True)" in refusal(path)
    assert work(kernels(from_onnx(path, DEVICE, fallback=True))["f"]) == ("vector", 0, 16, 16, 1)


def test_fallback_needs_a_shape(save: Save) -> None:
    path = save(
        [node("Frobnicate", "x", "f", domain="com.example"), node("Relu", "f", "y")], {"x": [16]}, ["y"]
    )
    assert "node 'f' (operator Frobnicate): the shape of its output 'f' cannot be known" in refusal(
        path, fallback=True
    )


def test_control_flow_is_refused_even_with_fallback(save: Save) -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "body", [], [helper.make_tensor_value_info("r", FLOAT, [4])]
    )
    choice = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=body, else_branch=body)
    path = save([choice], {"x": [4], "c": (onnx.TensorProto.BOOL, [])}, ["y"])
    assert "node 'choice' (operator If) runs a subgraph" in refusal(path, fallback=True)


def test_inputs_that_do_not_fit_are_named(save: Save) -> None:
    path = save([node("MatMul", "a b", "y")], {"a": [2, 3], "b": [4, 5]}, ["y"])
    assert "node 'y' (operator MatMul) does not fit its inputs 'a' (2, 3), 'b' (4, 5): " in refusal(path)
    path = save([node("FusedMatMul", "a", "y", domain="com.microsoft")], {"a": [2, 3]}, ["y"])
    assert (
        "node 'y' (operator FusedMatMul) does not fit its inputs 'a' (2, 3): input 1 is left out"
        in refusal(path)
    )
    path = save([node("Relu", "nowhere", "y")], {"a": [2]}, ["y"])
    assert "node 'y' (operator Relu) reads 'nowhere', which nothing before it makes" in refusal(path)
    path = save([node("Relu", "a", "y"), node("Exp", "a", "y")], {"a": [2]}, ["y"])
    assert "tensor 'y' of the model is made twice" in refusal(path)
    path = save([node("Relu", "a", "b")], {"a": [2]}, ["y"])
    assert "output 'y' of the model is made by no node" in refusal(path)


def test_texts_are_refused(save: Save) -> None:
    path = save([node("Identity", "a", "y")], {"a": (onnx.TensorProto.STRING, [2])}, ["y"])
    assert "tensor 'a' of the model has the type 'string'; only numbers can be moved" in refusal(path)


def test_options_are_checked(save: Save) -> None:
    path = save([node("Attention", "q q q", "y")], {"q": [1, 2, 8, 4]}, ["y"])
    assert "dtype is 'half'; write one of float16, bfloat16, float32" in refusal(path, dtype="half")
    assert "weights are at level <Level.ABSENT: 'absent'>" in refusal(path, weights=Level.ABSENT)
    no_mix = toy_device(classes={"mix": {"demand": {}}})
    assert "node 'y' (operator Attention) runs on mix cores, which toy does not have" in refusal(
        path, device=no_mix
    )


def test_missing_package_names_the_extra(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save([node("Relu", "x", "y")], {"x": [4]}, ["y"])
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert 'pip install "cann-env[onnx]"' in refusal(path)
