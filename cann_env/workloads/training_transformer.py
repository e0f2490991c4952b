"""Training of a transformer, as the kernels an Ascend runs for it.

Sizes go in, a :class:`~cann_env.graph.CommandGraph` of one whole step comes out: forward, loss, backward and
the optimiser. Per layer: normalisation, one projection to query, key and value, attention (one kernel on cube
and vector cores, or three where the device has no such kernels), output projection, residual; normalisation,
one projection to gate and up, gating, down projection, residual. The backward pass reads again what a layer
has kept; the gradients of the residuals are sums of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import BufferKind, KernelClass
from cann_env.workloads.backward import LABEL_BYTES, Placement, Tape
from cann_env.workloads.checks import check_not_negative
from cann_env.workloads.kernels import FP16_BYTES, elementwise, flash_attention, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.graph import CommandGraph, Kernel
    from cann_env.workloads.transformer import TransformerShape

_NORM_FLOPS = 8
_NORM_GRAD_FLOPS = 14
_GATE_FLOPS = 6
_GATE_GRAD_FLOPS = 10
_SOFTMAX_FLOPS = 5
_SOFTMAX_GRAD_FLOPS = 4


def training_transformer(
    shape: TransformerShape,
    cores: Mapping[str, int],
    *,
    vocabulary: int = 0,
    placement: Placement | None = None,
    name: str = "training_transformer",
) -> CommandGraph:
    """Make one training step.

    Commands: 28 a layer (34 with split attention) and 5 more; a vocabulary adds 4. If gradients are summed
    over devices, one more for each weight matrix. The gradient of the embedded tokens is not computed.

    Args:
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        vocabulary: Columns of the projection whose output the loss is taken of; 0 to take it of the last
            layer's states.
        placement: Where its buffers lie; None for the usual.
        name: Of the graph.

    Raises:
        InputError: The vocabulary is negative.
    """
    check_not_negative(vocabulary=vocabulary)
    tape = Tape(Sketch(name), cores, placement or Placement())
    state = tape.sketch.upload("tokens", FP16_BYTES * shape.tokens * shape.hidden)
    for layer in range(shape.layers):
        state = _Layer(tape, shape, f"l{layer}/").add(state)
    state = _Layer(tape, shape, "").norm("final_norm", state)
    if vocabulary:
        state = tape.linear("head", state, shape.tokens, shape.hidden, vocabulary)
        tape.loss(state, LABEL_BYTES * shape.tokens)
    else:
        tape.loss(state, tape.sketch.size_bytes(state))
    return tape.sketch.graph()


@dataclass(frozen=True, slots=True)
class _Layer:
    tape: Tape
    shape: TransformerShape
    prefix: str

    def add(self, state: str) -> str:
        """Add the forward commands of one layer; returns the buffer of its output."""
        hidden, inner = self.shape.hidden, self.shape.hidden * self.shape.expansion
        mixed = self.attend(self.project("qkv", self.norm("norm1", state), hidden, 3 * hidden))
        projected = self.project("out", mixed, hidden, hidden, kept=False)
        middle = self.tape.add(f"{self.prefix}add1", state, projected)
        gated = self.gate(self.project("gate_up", self.norm("norm2", middle), hidden, 2 * inner))
        down = self.project("down", gated, inner, hidden, kept=False)
        return self.tape.add(f"{self.prefix}add2", middle, down)

    def project(self, part: str, source: str, inner: int, columns: int, *, kept: bool = True) -> str:
        return self.tape.linear(self.prefix + part, source, self.shape.tokens, inner, columns, kept=kept)

    def norm(self, part: str, source: str) -> str:
        tape, name, elements = self.tape, self.prefix + part, self.shape.tokens * self.shape.hidden
        output = tape.forward(
            elementwise(name, elements, tape.cores, flops_per_element=_NORM_FLOPS), [source]
        )

        def way_back(gradient: str) -> None:
            if tape.wants(source):
                kernel = elementwise(
                    f"{name}/grad", elements, tape.cores, inputs=2, flops_per_element=_NORM_GRAD_FLOPS
                )
                tape.give(source, tape.backward(kernel, [gradient, source]))

        tape.record(output, way_back)
        return output

    def gate(self, source: str) -> str:
        """Multiply one half of the source by the activated other half."""
        tape, name = self.tape, f"{self.prefix}swiglu"
        elements = self.shape.tokens * self.shape.hidden * self.shape.expansion
        kernel = elementwise(name, elements, tape.cores, inputs=2, flops_per_element=_GATE_FLOPS)
        output = tape.forward(kernel, [source])

        def way_back(gradient: str) -> None:
            kernel = elementwise(
                f"{name}/grad", 2 * elements, tape.cores, flops_per_element=_GATE_GRAD_FLOPS // 2
            )
            kernel = replace(kernel, bytes_read=3 * FP16_BYTES * elements)
            tape.give(source, tape.backward(kernel, [gradient, source]))

        tape.record(output, way_back)
        return output

    def attend(self, qkv: str) -> str:
        if self.tape.cores[KernelClass.MIX]:
            return self._attend_at_once(qkv)
        return self._attend_in_parts(qkv)

    def _attend_at_once(self, qkv: str) -> str:
        """One kernel each way; the one back computes the scores again, five products instead of two."""
        tape, name, shape = self.tape, f"{self.prefix}attention", self.shape
        heads, width = shape.batch * shape.heads, shape.hidden // shape.heads
        kernel = flash_attention(name, heads, shape.sequence, width, tape.cores)
        mixed = tape.forward(kernel, [qkv])
        back = replace(
            kernel,
            name=f"{name}/grad",
            flops=kernel.flops * 5 // 2,
            bytes_read=kernel.bytes_read + 2 * kernel.bytes_written,
            bytes_written=3 * kernel.bytes_written,
        )
        tape.record(mixed, lambda gradient: tape.give(qkv, tape.backward(back, [gradient, qkv, mixed])))
        return mixed

    def _attend_in_parts(self, qkv: str) -> str:
        """Scores, softmax and context one after another; the shares are kept."""
        tape, name, shape = self.tape, f"{self.prefix}attention", self.shape
        heads, length, width = shape.batch * shape.heads, shape.sequence, shape.hidden // shape.heads

        def product(part: str, rows: int, inner: int, columns: int) -> Kernel:
            return matmul(f"{name}/{part}", rows, inner, columns, tape.cores, batch=heads)

        def soft(part: str, inputs: int, flops: int) -> Kernel:
            elements = heads * length * length
            return elementwise(f"{name}/{part}", elements, tape.cores, inputs=inputs, flops_per_element=flops)

        scores = tape.forward(product("scores", length, width, length), [qkv], kept=False)
        shares = tape.forward(soft("softmax", 1, _SOFTMAX_FLOPS), [scores])
        mixed = tape.forward(product("context", length, length, width), [shares, qkv])

        def way_back(gradient: str) -> None:
            size = tape.sketch.size_bytes(qkv)
            if tape.placement.gradients == BufferKind.MANAGED:
                tape.sketch.activation(f"{name}/grad", size)

            def into(kernel: Kernel, reads: list[str]) -> str:
                return tape.sketch.launch(kernel.name, [kernel], reads, size, into=f"{name}/grad")

            into(product("value_grad", length, length, width), [shares, gradient])
            back = tape.backward(product("shares_grad", length, width, length), [gradient, qkv])
            back = tape.backward(soft("softmax_grad", 2, _SOFTMAX_GRAD_FLOPS), [shares, back])
            into(product("query_grad", length, length, width), [back, qkv])
            tape.give(qkv, into(product("key_grad", length, length, width), [back, qkv]))

        tape.record(mixed, way_back)
        return mixed
