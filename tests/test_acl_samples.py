"""Programs in the style of those written for devices run as they are, with the values of their models."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import node, onnx, write_model

import cann_env.acl as acl

HERE = Path(__file__).parent / "acl_samples"
RNG = np.random.default_rng(7)
WEIGHT, BIAS = (RNG.normal(size=shape).astype(np.float32) for shape in ((8, 4), (4,)))
IMAGES = [RNG.normal(size=(1, 8)).astype(np.float32) for _ in range(5)]


def scores(images: np.ndarray) -> np.ndarray:
    """What the model gives: ``softmax(x w + b)``."""
    powers = np.exp(images @ WEIGHT + BIAS)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two outputs, scores and the best place; asked for as an offline model with the ONNX file beside it."""
    path = tmp_path_factory.mktemp("models") / "net.onnx"
    nodes = [
        node("MatMul", "x w", "product"),
        node("Add", "product b", "sum"),
        node("Softmax", "sum", "scores"),
        node("ArgMax", "scores", "best", axis=1, keepdims=0),
    ]
    write_model(path, nodes, {"x": ["batch", 8]}, ["scores", "best"], {"w": WEIGHT, "b": BIAS})
    model = onnx.load(path)
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 4])
    )
    model.graph.output[1].CopyFrom(onnx.helper.make_tensor_value_info("best", onnx.TensorProto.INT64, ["n"]))
    onnx.save(model, path)
    return str(path.with_suffix(".om"))


@pytest.fixture(autouse=True)
def quiet():
    """A new machine for each program, on which no warning is let pass."""
    acl.simulate("ascend910b2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert acl.hazards() == []


def main_of(name: str) -> Any:
    return runpy.run_path(str(HERE / f"{name}.py"))["main"]


def test_classification(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = main_of("classify")(model, IMAGES)
    np.testing.assert_allclose(np.concatenate(results), scores(np.concatenate(IMAGES)), rtol=1e-5)
    best = int(scores(IMAGES[0]).argmax())
    assert capsys.readouterr().out.startswith(f"label:{best} ")


def test_classification_on_a_board_whose_processor_is_the_host(model: str) -> None:
    acl.simulate("ascend310b1")
    results = main_of("classify")(model, IMAGES)
    np.testing.assert_allclose(np.concatenate(results), scores(np.concatenate(IMAGES)), rtol=1e-5)


def test_callbacks(model: str) -> None:
    """A pool of 4 datasets, filled with images 0 to 3 in turn; after two executions they are used again."""
    results = main_of("callback")(model, IMAGES, times=6, pool=4, interval=2)
    expected = [scores(IMAGES[i]).flatten() for i in (0, 1, 2, 3, 0, 1)]
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_two_streams(model: str) -> None:
    results = main_of("streams")(model, IMAGES)
    np.testing.assert_allclose(results, [scores(image).flatten() for image in IMAGES], rtol=1e-5)


def test_dynamic_batch(model: str, tmp_path: Path) -> None:
    gears = acl.convert_model(
        Path(model).with_suffix(".onnx"),
        tmp_path / "net.om",
        input_shape="x:-1,8",
        dynamic_batch_size="1,2,4",
    )
    batches = [np.concatenate(IMAGES[:count]) for count in (1, 4, 2, 3)]
    *results, refused = main_of("dynamic_batch")(str(gears), batches)
    assert refused is None
    for result, images in zip(results, batches[:3], strict=True):
        np.testing.assert_allclose(result, scores(images), rtol=1e-5)


def test_memory_of_the_program(model: str) -> None:
    results = main_of("own_memory")(model, IMAGES)
    for (found, best), image in zip(results, IMAGES, strict=True):
        np.testing.assert_allclose(found, scores(image), rtol=1e-5)
        assert best.tolist() == [scores(image).argmax()]


def test_single_operators(model: str) -> None:
    assert main_of("single_op")(model, IMAGES) == [int(scores(image).argmax()) for image in IMAGES]


def test_benchmark(model: str) -> None:
    """Times are those of the engine, so that every loop takes as long."""
    times = main_of("benchmark")(model)
    assert len(times) == 10
    assert max(times) == pytest.approx(min(times), rel=0.2)
    assert min(times) > 0.002  # four kernels, of which none takes less than half a microsecond
