"""Training: one optimiser step of a plain network, as the kernels an Ascend runs for it.

Sizes go in, a :class:`~cann_env.graph.CommandGraph` comes out. Forward, each layer is a matrix product and an
activation. Backward, each is the gradient of the activation, then two matrix products that need not wait for
each other: the gradient of the weights, which is reduced over all devices and handed to the optimiser, and
the gradient of the layer's input, for which the layer before it waits. Weights and optimiser state lie in
device memory all the time; what a layer computed stays there until its backward has read it, or is managed
and may go to the host meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import BufferKind
from cann_env.workloads.backward import FP32_BYTES, MOMENTS, optimiser
from cann_env.workloads.checks import check_not_negative, check_sizes
from cann_env.workloads.kernels import FP16_BYTES, elementwise, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.graph import CommandGraph, Kernel

_ACTIVATION_FLOPS = 6
_LOSS_FLOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """Sizes of a training step.

    Attributes:
        layers: Number of equal layers.
        width: Inputs and outputs of a layer.
        tokens: Rows of the batch.
        collective_ns: How long it takes to sum a layer's weight gradient over all devices; 0 if there is only
            one device and no such command.
    """

    layers: int = 14
    width: int = 512
    tokens: int = 512
    collective_ns: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(layers=self.layers, width=self.width, tokens=self.tokens)
        check_not_negative(collective_ns=self.collective_ns)


def training(
    shape: TrainingShape,
    cores: Mapping[str, int],
    *,
    activations: BufferKind = BufferKind.DEVICE,
    name: str = "training",
) -> CommandGraph:
    """Make one step: 6 commands a layer, 7 with collectives, and four more.

    The first layer has one command less, for nobody needs the gradient of the batch; input, target, loss, its
    gradient and the copy of the loss to the host make five.

    Args:
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        activations: Who moves what the forward pass keeps for the backward pass.
        name: Of the graph.
    """
    step = _Step(Sketch(name), shape, cores, activations)
    inputs = [step.sketch.upload("input", step.rows_bytes)]
    target = step.sketch.upload("target", step.rows_bytes)
    for layer in range(shape.layers):
        inputs.append(step.forward(layer, inputs[-1]))
    gradient = step.loss(inputs[-1], target)
    for layer in reversed(range(shape.layers)):
        gradient = step.backward(layer, inputs[layer], gradient)
    return step.sketch.graph()


@dataclass(frozen=True, slots=True)
class _Step:
    sketch: Sketch
    shape: TrainingShape
    cores: Mapping[str, int]
    activations: BufferKind

    @property
    def rows_bytes(self) -> int:
        """Bytes of one activation of the whole batch."""
        return FP16_BYTES * self.shape.tokens * self.shape.width

    def forward(self, layer: int, source: str) -> str:
        """Multiply and activate; returns the buffer of the layer's output."""
        width = self.shape.width
        if self.activations == BufferKind.MANAGED:
            for part in ("product", "activation"):
                self.sketch.activation(f"l{layer}/{part}", self.rows_bytes)
        weight = self.sketch.resident(f"l{layer}/weight", FP16_BYTES * width * width)
        self.sketch.resident(f"l{layer}/moments", MOMENTS * FP32_BYTES * width * width)
        product = matmul(f"l{layer}/product", self.shape.tokens, width, width, self.cores)
        return self._pass(f"l{layer}/activation", [self._run(product, [source, weight])], _ACTIVATION_FLOPS)

    def loss(self, output: str, target: str) -> str:
        """Compute the loss, copy it to the host; returns the buffer of the output's gradient."""
        kernel = replace(self._kernel("loss", 2, _LOSS_FLOPS), bytes_written=FP32_BYTES)
        self.sketch.download("result", self._run(kernel, [output, target]))
        return self._pass("loss_grad", [output, target], _LOSS_FLOPS)

    def backward(self, layer: int, source: str, gradient: str) -> str:
        """Compute both gradients and update the weights; returns the buffer of the input's gradient.

        The gradient of the batch itself, which nobody needs, is not computed: for layer 0 the given buffer
        comes back.
        """
        tokens, width = self.shape.tokens, self.shape.width
        inner = self._pass(f"l{layer}/activation_grad", [f"l{layer}/product", gradient], _ACTIVATION_FLOPS)
        product = matmul(f"l{layer}/weight_grad", width, tokens, width, self.cores)
        change = self._run(product, [source, inner])
        if layer:
            product = matmul(f"l{layer}/input_grad", tokens, width, width, self.cores)
            gradient = self._run(product, [inner, f"l{layer}/weight"])
        if self.shape.collective_ns:
            self.sketch.reduce(f"l{layer}/all_reduce", self.shape.collective_ns, change)
        self._update(layer, change)
        return gradient

    def _update(self, layer: int, change: str) -> None:
        """Read gradient, weights and moments; write weights and moments."""
        kernel = optimiser(f"l{layer}/optimiser", self.shape.width * self.shape.width, self.cores)
        self.sketch.update(kernel.name, [kernel], [change], [f"l{layer}/weight", f"l{layer}/moments"])

    def _kernel(self, name: str, inputs: int, flops: int) -> Kernel:
        elements = self.shape.tokens * self.shape.width
        return elementwise(name, elements, self.cores, inputs=inputs, flops_per_element=flops)

    def _pass(self, name: str, sources: list[str], flops: int) -> str:
        return self._run(self._kernel(name, len(sources), flops), sources)

    def _run(self, kernel: Kernel, sources: list[str]) -> str:
        return self.sketch.launch(kernel.name, [kernel], sources, kernel.bytes_written)
