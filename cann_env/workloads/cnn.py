"""Convolutional networks of Inception modules, as the kernels an Ascend runs for them.

Sizes and a random generator go in, a :class:`~cann_env.graph.CommandGraph` comes out: a stem of two
convolutions and two poolings, modules of four branches that a concatenation joins, and a classifier. A
convolution runs on the cube cores as a matrix product over its unfolded input, activation included; pooling,
concatenation and softmax run on the vector cores. The widths of the branches are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import Level
from cann_env.units import InputError
from cann_env.workloads.checks import check_sizes
from cann_env.workloads.draws import between
from cann_env.workloads.kernels import FP16_BYTES, elementwise, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.random import Generator

    from cann_env.graph import CommandGraph

_CHANNEL_STEP = 16
_CLASSES = 1_000
_IMAGE_CHANNELS = 3
_MODULES_PER_SIZE = 3
_POOL_WINDOW = 9
_SMALLEST_IMAGE = 32
_SOFTMAX_FLOPS = 5
_STEM_CHANNELS = (64, 192)


@dataclass(frozen=True, slots=True, kw_only=True)
class CnnShape:
    """Sizes of a convolutional network.

    Attributes:
        modules: Number of modules; height and width are halved after every third.
        image: Height and width of the input image, at least 32.
        batch: Images.
    """

    modules: int = 2
    image: int = 224
    batch: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(modules=self.modules, image=self.image, batch=self.batch)
        if self.image < _SMALLEST_IMAGE:
            raise InputError(f"'image' is {self.image}; write at least {_SMALLEST_IMAGE} pixels")


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map: the buffer that holds it, its side in pixels, its channels."""

    buffer: str
    side: int
    channels: int


def cnn(
    rng: Generator,
    shape: CnnShape,
    cores: Mapping[str, int],
    *,
    weights: Level = Level.HOST,
    name: str = "cnn",
) -> CommandGraph:
    """Make the forward pass of an Inception network: 8 commands a module, poolings, and 9 around them.

    Args:
        rng: Draws the widths of the branches.
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        weights: Where the weights lie at first; one managed buffer for the stem, each module, the classifier.
        name: Of the graph.
    """
    drawing = _Network(Sketch(name), shape.batch, cores)
    features = drawing.stem(shape.image, weights)
    for module in range(shape.modules):
        if module and module % _MODULES_PER_SIZE == 0:
            features = drawing.pool(f"m{module}/pool", features, stride=2)
        features = drawing.module(f"m{module}", features, _draw_widths(rng, module), weights)
    drawing.classifier(features, weights)
    return drawing.sketch.graph()


@dataclass(frozen=True, slots=True)
class _Widths:
    """Channels of a module's convolutions: 1x1; 1x1 then 3x3; 1x1 then 5x5; 1x1 after the pooling."""

    plain: int
    reduce3: int
    wide3: int
    reduce5: int
    wide5: int
    pooled: int


def _draw_widths(rng: Generator, module: int) -> _Widths:
    growth = 1 + module // _MODULES_PER_SIZE

    def draw(low: int, high: int) -> int:
        return _CHANNEL_STEP * between(rng, low * growth, high * growth)

    return _Widths(
        plain=draw(4, 12),
        reduce3=draw(4, 8),
        wide3=draw(8, 16),
        reduce5=draw(1, 3),
        wide5=draw(2, 6),
        pooled=draw(2, 6),
    )


@dataclass(frozen=True, slots=True)
class _Network:
    sketch: Sketch
    batch: int
    cores: Mapping[str, int]

    def stem(self, image: int, weights: Level) -> _Map:
        first, second = _STEM_CHANNELS
        size = _conv_bytes(7, _IMAGE_CHANNELS, first) + _conv_bytes(3, first, second)
        weight = self.sketch.weights("stem/weight", size, weights)
        pixels = FP16_BYTES * self.batch * image * image * _IMAGE_CHANNELS
        features = _Map(self.sketch.upload("image", pixels), image, _IMAGE_CHANNELS)
        features = self.conv("stem/conv1", features, 7, first, weight, stride=2)
        features = self.pool("stem/pool1", features, stride=2)
        features = self.conv("stem/conv2", features, 3, second, weight)
        return self.pool("stem/pool2", features, stride=2)

    def module(self, prefix: str, source: _Map, widths: _Widths, weights: Level) -> _Map:
        size = (
            _conv_bytes(1, source.channels, widths.plain + widths.reduce3 + widths.reduce5 + widths.pooled)
            + _conv_bytes(3, widths.reduce3, widths.wide3)
            + _conv_bytes(5, widths.reduce5, widths.wide5)
        )
        weight = self.sketch.weights(f"{prefix}/weight", size, weights)
        plain = self.conv(f"{prefix}/plain", source, 1, widths.plain, weight)
        reduced3 = self.conv(f"{prefix}/reduce3", source, 1, widths.reduce3, weight)
        wide3 = self.conv(f"{prefix}/conv3", reduced3, 3, widths.wide3, weight)
        reduced5 = self.conv(f"{prefix}/reduce5", source, 1, widths.reduce5, weight)
        wide5 = self.conv(f"{prefix}/conv5", reduced5, 5, widths.wide5, weight)
        pooled = self.pool(f"{prefix}/maxpool", source, stride=1)
        projected = self.conv(f"{prefix}/project", pooled, 1, widths.pooled, weight)
        return self.concat(f"{prefix}/concat", [plain, wide3, wide5, projected])

    def classifier(self, source: _Map, weights: Level) -> None:
        size = FP16_BYTES * source.channels * _CLASSES
        weight = self.sketch.weights("classifier/weight", size, weights)
        mean = self.pool("classifier/mean", source, stride=source.side)
        dense = matmul("classifier/dense", self.batch, source.channels, _CLASSES, self.cores)
        scores = self.sketch.launch(dense.name, [dense], [mean.buffer, weight], dense.bytes_written)
        soft = elementwise(
            "classifier/softmax", self.batch * _CLASSES, self.cores, flops_per_element=_SOFTMAX_FLOPS
        )
        self.sketch.download("result", self.sketch.launch(soft.name, [soft], [scores], soft.bytes_written))

    def conv(self, name: str, source: _Map, window: int, channels: int, weight: str, stride: int = 1) -> _Map:
        side = max(1, source.side // stride)
        inner = window * window * source.channels
        product = matmul(name, self.batch * side * side, inner, channels, self.cores)
        read = FP16_BYTES * (self._elements(source) + inner * channels)
        kernel = replace(product, bytes_read=read)
        return _Map(
            self.sketch.launch(name, [kernel], [source.buffer, weight], kernel.bytes_written), side, channels
        )

    def pool(self, name: str, source: _Map, stride: int) -> _Map:
        side = max(1, source.side // stride)
        window = stride * stride if stride > 1 else _POOL_WINDOW
        result = _Map(name, side, source.channels)
        kernel = elementwise(name, self._elements(result), self.cores, flops_per_element=window)
        kernel = replace(kernel, bytes_read=FP16_BYTES * self._elements(source))
        self.sketch.launch(name, [kernel], [source.buffer], kernel.bytes_written)
        return result

    def concat(self, name: str, parts: list[_Map]) -> _Map:
        result = _Map(name, parts[0].side, sum(part.channels for part in parts))
        kernel = elementwise(name, self._elements(result), self.cores, flops_per_element=0)
        self.sketch.launch(name, [kernel], [part.buffer for part in parts], kernel.bytes_written)
        return result

    def _elements(self, features: _Map) -> int:
        return self.batch * features.side * features.side * features.channels


def _conv_bytes(window: int, inputs: int, outputs: int) -> int:
    return FP16_BYTES * window * window * inputs * outputs
