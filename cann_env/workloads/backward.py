"""Training steps drawn from their forward pass: what is recorded going forward is undone going back.

A network calls the verbs of a :class:`Tape` layer by layer, and each both adds the forward command to a
:class:`~cann_env.workloads.sketch.Sketch` and notes how gradients pass through it; :meth:`Tape.loss` adds the
loss and then everything backward, last layer first. A tensor with several users gets the sum of what they
give back. Weights change as soon as their gradient is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cann_env.graph import BufferKind, Level
from cann_env.units import InputError
from cann_env.workloads.checks import check_not_negative, check_weights
from cann_env.workloads.kernels import FP16_BYTES, elementwise, matmul

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cann_env.graph import Kernel
    from cann_env.workloads.sketch import Sketch

FP32_BYTES = 4
LABEL_BYTES = 4
MOMENTS = 2

_LOSS_FLOPS = 5
_OPTIMISER_FLOPS = 12
_SPLIT = 1024
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the buffers of a training step lie.

    Attributes:
        weights: Level of the weights, managed buffers: ``hbm`` or ``host``.
        moments: Level of the optimiser's moments, managed buffers: ``hbm`` or ``host``.
        activations: Who moves what the forward pass keeps for the backward pass; managed activations are
            written first on the device, may be moved to the host, and are freed after their last use.
        gradients: Who moves the gradients of activations. Those of weights are managed always.
        collective_bytes_per_s: How fast weight gradients are summed over all devices; 0 if there is only one
            device and no such command.
    """

    weights: Level = Level.HBM
    moments: Level = Level.HBM
    activations: BufferKind = BufferKind.MANAGED
    gradients: BufferKind = BufferKind.DEVICE
    collective_bytes_per_s: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_weights(self.weights)
        check_weights(self.moments, "moments")
        for name in ("activations", "gradients"):
            if getattr(self, name) not in tuple(BufferKind):
                raise InputError(f"{name!r} is {getattr(self, name)!r}; write 'device' or 'managed'")
        check_not_negative(collective_bytes_per_s=self.collective_bytes_per_s)


@dataclass(slots=True)
class Tape:
    """A training step while it is drawn.

    Attributes:
        sketch: Takes the commands and buffers.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        placement: Where the buffers lie.
    """

    sketch: Sketch
    cores: Mapping[str, int]
    placement: Placement
    _ways_back: dict[str, Callable[[str], None]] = field(default_factory=dict, init=False)
    _gradients: dict[str, list[str]] = field(default_factory=dict, init=False)
    _parameters: dict[str, int] = field(default_factory=dict, init=False)

    def forward(self, kernel: Kernel, reads: Sequence[str], *, kept: bool = True) -> str:
        """Add a forward command; returns the buffer of its output.

        Args:
            kernel: What it runs; gives command and buffer their name.
            reads: Buffers that it reads.
            kept: The backward pass reads the output again.
        """
        kind = self.placement.activations if kept else BufferKind.DEVICE
        return self._launch(kernel, reads, kind)

    def record(self, output: str, way_back: Callable[[str], None]) -> None:
        """Note what is to be done once the gradient of ``output`` is there: it is called with its buffer."""
        self._ways_back[output] = way_back

    def wants(self, tensor: str) -> bool:
        """Somebody needs the gradient of a tensor; nobody needs that of the batch itself."""
        return tensor in self._ways_back

    def backward(self, kernel: Kernel, reads: Sequence[str]) -> str:
        """Add a command that computes the gradient of an activation; returns its buffer."""
        return self._launch(kernel, reads, self.placement.gradients)

    def give(self, tensor: str, gradient: str) -> None:
        """Give a tensor a gradient, unless nobody wants it; those of all its users are summed."""
        if self.wants(tensor):
            self._gradients.setdefault(tensor, []).append(gradient)

    def add(self, name: str, first: str, second: str) -> str:
        """Add two tensors; returns the sum, which is kept. Its gradient is that of both."""
        elements = self.sketch.size_bytes(first) // FP16_BYTES
        total = self.forward(elementwise(name, elements, self.cores, inputs=2), [first, second])

        def way_back(gradient: str) -> None:
            self.give(first, gradient)
            self.give(second, gradient)

        self.record(total, way_back)
        return total

    def product(
        self,
        kernel: Kernel,
        source: str,
        parameters: int,
        *,
        input_grad: Kernel,
        weight_grad: Kernel,
        kept: bool = True,
    ) -> str:
        """Multiply a tensor by weights of the layer's own; returns the buffer of the output.

        Args:
            kernel: The forward product, which names the layer.
            source: What it multiplies.
            parameters: How many weights it has.
            input_grad: Computes the source's gradient from the output's gradient and the weights.
            weight_grad: Computes the weights' gradient from the output's gradient and the source.
            kept: The backward pass of what follows reads the output again.
        """
        weight = self._weight(kernel.name, parameters)
        output = self.forward(kernel, [source, weight], kept=kept)

        def way_back(gradient: str) -> None:
            if self.wants(source):
                self.give(source, self.backward(input_grad, [gradient, weight]))
            self._change(
                kernel.name, weight, self._launch(weight_grad, [gradient, source], BufferKind.MANAGED)
            )

        self.record(output, way_back)
        return output

    def linear(
        self, name: str, source: str, rows: int, inner: int, columns: int, *, kept: bool = True
    ) -> str:
        """Multiply (rows, inner) by weights (inner, columns); returns the buffer of the output."""
        return self.product(
            matmul(name, rows, inner, columns, self.cores),
            source,
            inner * columns,
            input_grad=matmul(f"{name}/input_grad", rows, columns, inner, self.cores),
            weight_grad=long_sum(
                matmul(f"{name}/weight_grad", inner, rows, columns, self.cores), rows, self.cores
            ),
            kept=kept,
        )

    def loss(self, output: str, target_bytes: int) -> None:
        """Compute the loss of the network's output, copy it to the host, and go all the way back.

        Args:
            output: The network's.
            target_bytes: Size of what it is compared with.
        """
        target = self.sketch.upload("target", target_bytes)
        elements = self.sketch.size_bytes(output) // FP16_BYTES
        kernel = elementwise("loss_grad", elements, self.cores, flops_per_element=_LOSS_FLOPS)
        kernel = replace(kernel, bytes_read=kernel.bytes_read + target_bytes)
        loss = replace(kernel, name="loss", bytes_written=FP32_BYTES)
        self.sketch.download("result", self._launch(loss, [output, target], BufferKind.DEVICE))
        self.give(output, self.backward(kernel, [output, target]))
        for tensor, way_back in reversed(self._ways_back.items()):
            way_back(self._sum(tensor))

    def _sum(self, tensor: str) -> str:
        """The gradient of a tensor; a sum is a new buffer, for what passed an addition belongs to several."""
        given = self._gradients[tensor]
        if len(given) == 1:
            return given[0]
        elements = self.sketch.size_bytes(given[0]) // FP16_BYTES
        flops = len(given) - 1
        kernel = elementwise(
            f"{tensor}_grad_sum", elements, self.cores, inputs=len(given), flops_per_element=flops
        )
        return self.backward(kernel, given)

    def _launch(self, kernel: Kernel, reads: Sequence[str], kind: BufferKind) -> str:
        if kind == BufferKind.MANAGED:
            self.sketch.activation(kernel.name, kernel.bytes_written)
        return self.sketch.launch(kernel.name, [kernel], reads, kernel.bytes_written)

    def _weight(self, layer: str, parameters: int) -> str:
        self._parameters[layer] = parameters
        self.sketch.weights(f"{layer}/moments", MOMENTS * FP32_BYTES * parameters, self.placement.moments)
        return self.sketch.weights(f"{layer}/weight", FP16_BYTES * parameters, self.placement.weights)

    def _change(self, layer: str, weight: str, gradient: str) -> None:
        """Sum a weight gradient over all devices if there are several, then let the optimiser use it."""
        rate = self.placement.collective_bytes_per_s
        if rate:
            duration_ns = max(1, self.sketch.size_bytes(gradient) * _NS_PER_S // rate)
            self.sketch.reduce(f"{layer}/all_reduce", duration_ns, gradient)
        kernel = optimiser(f"{layer}/optimiser", self._parameters[layer], self.cores)
        self.sketch.update(kernel.name, [kernel], [gradient], [weight, f"{layer}/moments"])


def optimiser(name: str, parameters: int, cores: Mapping[str, int]) -> Kernel:
    """Read gradient, weights and moments; write weights and moments."""
    kept = FP16_BYTES * parameters + MOMENTS * FP32_BYTES * parameters
    kernel = elementwise(name, parameters, cores, flops_per_element=_OPTIMISER_FLOPS)
    return replace(kernel, bytes_read=FP16_BYTES * parameters + kept, bytes_written=kept)


def long_sum(kernel: Kernel, inner: int, cores: Mapping[str, int]) -> Kernel:
    """A matrix product whose ``inner`` sum is split over cores that its tiles leave free.

    Gradients of weights need it: their tiles are few, and they sum over the whole batch.
    """
    parts = -(-inner // _SPLIT)
    return replace(kernel, blocks=max(kernel.blocks, min(kernel.blocks * parts, cores[kernel.kernel_class])))
