"""Training of a residual network of bottlenecks, ResNet-50 by default, as the kernels an Ascend runs for it.

Sizes go in, a :class:`~cann_env.graph.CommandGraph` of one whole step comes out: forward, loss, backward and
the optimiser. A convolution runs on the cube cores as a matrix product over its unfolded input, as do its two
gradients. A batch normalisation, on the vector cores, reads its input twice; activation and the addition of
the shortcut are fused into it. The backward pass reads the output of every convolution and normalisation
again: what is written first is largest, and needed last. Scales and shifts of normalisations, a
five-hundredth of the weights, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.units import InputError
from cann_env.workloads.backward import LABEL_BYTES, Placement, Tape, long_sum
from cann_env.workloads.checks import check_not_empty, check_sizes
from cann_env.workloads.kernels import FP16_BYTES, elementwise, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.graph import CommandGraph

_IMAGE_CHANNELS = 3
_SMALLEST_IMAGE = 32
_EXPANSION = 4
_NORM_FLOPS = 10
_NORM_GRAD_FLOPS = 14
_POOL_WINDOW = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetShape:
    """Sizes of a residual network.

    Attributes:
        blocks: Bottlenecks of each stage; from one stage to the next the side is halved, the width doubled.
        width: Inner channels of the first stage, and those of the stem; a stage gives out four times as many.
        image: Height and width of the input image, at least 32.
        batch: Images.
        classes: Outputs of the classifier.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image: int = 224
    batch: int = 32
    classes: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("blocks", self.blocks)
        for count in self.blocks:
            check_sizes(blocks=count)
        check_sizes(width=self.width, image=self.image, batch=self.batch, classes=self.classes)
        if self.image < _SMALLEST_IMAGE:
            raise InputError(f"'image' is {self.image}; write at least {_SMALLEST_IMAGE} pixels")


def training_resnet(
    shape: ResnetShape,
    cores: Mapping[str, int],
    *,
    placement: Placement | None = None,
    name: str = "training_resnet",
) -> CommandGraph:
    """Make one training step.

    Commands: 20 a bottleneck, and 6 more for the first of each stage; 18 around them. If gradients are summed
    over devices, one more for each convolution and the classifier.

    Args:
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        placement: Where its buffers lie; None for the usual.
        name: Of the graph.
    """
    net = _Network(Tape(Sketch(name), cores, placement or Placement()), shape)
    features = net.stem()
    for stage, count in enumerate(shape.blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            features = net.bottleneck(
                f"s{stage}b{block}", features, shape.width << stage, stride, first=not block
            )
    net.classifier(features)
    return net.tape.sketch.graph()


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map: the buffer that holds it, its side in pixels, its channels."""

    buffer: str
    side: int
    channels: int


@dataclass(frozen=True, slots=True)
class _Network:
    tape: Tape
    shape: ResnetShape

    def stem(self) -> _Map:
        image = self.shape.image
        pixels = _Map("image", image, _IMAGE_CHANNELS)
        self.tape.sketch.upload("image", FP16_BYTES * self._elements(pixels))
        features = self.conv("stem/conv", pixels, 7, self.shape.width, stride=2)
        features = self.norm("stem/norm", features)
        return self.pool("stem/pool", features, (features.side + 1) // 2, _POOL_WINDOW)

    def bottleneck(self, prefix: str, source: _Map, width: int, stride: int, *, first: bool) -> _Map:
        """Three convolutions beside a shortcut, which has one of its own in the first block of a stage."""
        shortcut = source
        if first:
            shortcut = self.conv(f"{prefix}/shortcut", source, 1, _EXPANSION * width, stride=stride)
            shortcut = self.norm(f"{prefix}/shortcut_norm", shortcut, active=False)
        inner = self.norm(f"{prefix}/norm1", self.conv(f"{prefix}/conv1", source, 1, width))
        inner = self.norm(f"{prefix}/norm2", self.conv(f"{prefix}/conv2", inner, 3, width, stride=stride))
        inner = self.conv(f"{prefix}/conv3", inner, 1, _EXPANSION * width)
        return self.norm(f"{prefix}/norm3", inner, shortcut=shortcut)

    def classifier(self, source: _Map) -> None:
        mean = self.pool("classifier/mean", source, 1, source.side * source.side)
        batch, classes = self.shape.batch, self.shape.classes
        scores = self.tape.linear("classifier/dense", mean.buffer, batch, source.channels, classes)
        self.tape.loss(scores, LABEL_BYTES * batch)

    def conv(self, name: str, source: _Map, window: int, channels: int, *, stride: int = 1) -> _Map:
        result = _Map(name, -(-source.side // stride), channels)
        batch, area, cores = self.shape.batch, window * window, self.tape.cores
        rows, inner = batch * result.side**2, area * source.channels
        read, made, held = self._elements(source), self._elements(result), inner * channels
        forward = replace(matmul(name, rows, inner, channels, cores), bytes_read=FP16_BYTES * (read + held))
        input_grad = matmul(
            f"{name}/input_grad", batch * source.side**2, area * channels, source.channels, cores
        )
        weight_grad = long_sum(matmul(f"{name}/weight_grad", inner, rows, channels, cores), rows, cores)
        self.tape.product(
            forward,
            source.buffer,
            held,
            # Pixels that a stride skips are not multiplied: all three products do the same work.
            input_grad=replace(input_grad, flops=forward.flops, bytes_read=FP16_BYTES * (made + held)),
            weight_grad=replace(weight_grad, bytes_read=FP16_BYTES * (made + read)),
        )
        return result

    def norm(self, name: str, source: _Map, *, active: bool = True, shortcut: _Map | None = None) -> _Map:
        """Normalise over the batch, add the shortcut if there is one, activate if ``active``."""
        added = [shortcut.buffer] if shortcut else []
        tape, elements = self.tape, self._elements(source)
        kernel = elementwise(name, elements, tape.cores, inputs=2 + len(added), flops_per_element=_NORM_FLOPS)
        output = tape.forward(kernel, [source.buffer, *added], kept=active)

        def way_back(gradient: str) -> None:
            reads = [gradient, source.buffer]
            if shortcut:
                kernel = elementwise(f"{name}/active_grad", elements, tape.cores, inputs=2)
                reads[0] = tape.backward(kernel, [gradient, output])
                tape.give(shortcut.buffer, reads[0])
            elif active:
                reads.append(output)
            kernel = elementwise(
                f"{name}/grad",
                elements,
                tape.cores,
                inputs=2 * len(reads),
                flops_per_element=_NORM_GRAD_FLOPS,
            )
            tape.give(source.buffer, tape.backward(kernel, reads))

        tape.record(output, way_back)
        return _Map(output, source.side, source.channels)

    def pool(self, name: str, source: _Map, side: int, window: int) -> _Map:
        """Take the largest or the mean of windows; the gradient reads where each came from."""
        tape, result = self.tape, _Map(name, side, source.channels)
        wide, narrow = self._elements(source), self._elements(result)
        kernel = elementwise(name, narrow, tape.cores, flops_per_element=window)
        tape.forward(replace(kernel, bytes_read=FP16_BYTES * wide), [source.buffer])

        def way_back(gradient: str) -> None:
            kernel = elementwise(f"{name}/grad", wide, tape.cores)
            kernel = replace(kernel, bytes_read=FP16_BYTES * (wide + narrow))
            tape.give(source.buffer, tape.backward(kernel, [gradient, source.buffer]))

        tape.record(name, way_back)
        return result

    def _elements(self, features: _Map) -> int:
        return self.shape.batch * features.side**2 * features.channels
