"""The networks that come with the onnx package: all import, with the published multiply-adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from onnx_files import DEVICE, onnx

from cann_env.graph import BufferKind, CopyKind
from cann_env.workloads.from_onnx import from_onnx, light_models, macs, resolve_model

if TYPE_CHECKING:
    from pathlib import Path

LITERATURE = [
    pytest.param("densenet121", 2.87e9, marks=pytest.mark.slow),
    pytest.param("inception_v2", 2.0e9, marks=pytest.mark.slow),
    ("inception_v1", 1.43e9),
    ("resnet50", 4.1e9),
    ("squeezenet", 0.35e9),
    ("vgg19", 19.6e9),
]
"""Multiply-adds of one image: the networks' papers and the survey of Sze et al. (2017)."""


def check_light_model(name: str) -> None:
    one, four = from_onnx(name, DEVICE), from_onnx(name, DEVICE, batch=4)
    assert one.name == name
    assert macs(four) == 4 * macs(one)
    assert len(four.commands) == len(one.commands)
    assert sum(c.copy == CopyKind.H2D for c in one.commands) == 1
    assert sum(c.copy == CopyKind.D2H for c in one.commands) == 1
    written = {buffer for c in one.commands for buffer in c.writes}
    assert all((b.kind == BufferKind.MANAGED) == (b.name not in written) for b in one.buffers)


@pytest.mark.parametrize("name", ["squeezenet", "vgg19", "zfnet512", "alexnet"])
def test_light_models(name: str) -> None:
    check_light_model(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet"])
def test_light_models_of_many_nodes(name: str) -> None:
    check_light_model(name)


@pytest.mark.parametrize(("name", "expected"), LITERATURE)
def test_multiply_adds_are_those_of_the_literature(name: str, expected: float) -> None:
    assert macs(from_onnx(name, DEVICE)) == pytest.approx(expected, rel=0.05)


def test_multiply_adds_of_alexnet(tmp_path: Path) -> None:
    """The published 724 million are for images of 227; at 224 the maps are 54, 26 and 12 wide.

    Two of its convolutions, and the last two, are in two groups: 54^2 * 96 * 363 + 26^2 * 256 * 1200
    + 12^2 * (384 * 2304 + 384 * 1728 + 256 * 1728) + 9216 * 4096 + 4096 * 4096 + 4096 * 1000.
    """
    maps = 54**2 * 96 * 363 + 26**2 * 256 * 1200 + 12**2 * (384 * 2304 + 384 * 1728 + 256 * 1728)
    assert macs(from_onnx("alexnet", DEVICE)) == maps + 9216 * 4096 + 4096 * 4096 + 4096 * 1000
    model = onnx.load(light_models()["alexnet"])
    image = next(value for value in model.graph.input if value.name == "data_0")
    image.type.tensor_type.shape.dim[2].dim_value = image.type.tensor_type.shape.dim[3].dim_value = 227
    onnx.save(model, tmp_path / "wide.onnx")
    assert macs(from_onnx(tmp_path / "wide.onnx", DEVICE)) == pytest.approx(724e6, rel=0.01)


def test_nine_light_models_are_found() -> None:
    assert sorted(light_models()) == [
        "alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    ]
    assert resolve_model("resnet50") == light_models()["resnet50"]
    assert resolve_model(light_models()["vgg19"]) == light_models()["vgg19"]
