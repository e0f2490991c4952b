"""Transformer layers as the kernels an Ascend runs for them.

Sizes go in, a :class:`~cann_env.graph.CommandGraph` comes out. Per layer: normalisation, three projections
side by side, attention (one kernel on cube and vector cores, or three where the device has no such kernels),
output projection, residual and normalisation, gate and up projections side by side, gating, down projection,
residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.graph import KernelClass, Level
from cann_env.units import InputError
from cann_env.workloads.checks import check_sizes
from cann_env.workloads.kernels import FP16_BYTES, elementwise, flash_attention, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.graph import CommandGraph

_NORM_FLOPS = 8
_GATE_FLOPS = 6
_SOFTMAX_FLOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """Sizes of a transformer.

    Attributes:
        layers: Number of equal layers.
        hidden: Width of a token.
        heads: Attention heads; they divide ``hidden``.
        sequence: Tokens of a sample.
        batch: Samples.
        expansion: Inner width of the MLP over ``hidden``.
    """

    layers: int = 2
    hidden: int = 1024
    heads: int = 16
    sequence: int = 256
    batch: int = 1
    expansion: int = 4

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(**{name: getattr(self, name) for name in self.__slots__})
        if self.hidden % self.heads:
            raise InputError(f"'heads' is {self.heads}, which does not divide 'hidden' {self.hidden}")

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return self.batch * self.sequence


def transformer(
    shape: TransformerShape,
    cores: Mapping[str, int],
    *,
    weights: Level = Level.HOST,
    name: str = "transformer",
) -> CommandGraph:
    """Make the forward pass of a transformer: 13 commands a layer (15 with split attention) and three more.

    Args:
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once, see ``blocks_at_once``.
        weights: Where the weight matrices, managed buffers, lie at first.
        name: Of the graph.
    """
    sketch = Sketch(name)
    state = sketch.upload("tokens", FP16_BYTES * shape.tokens * shape.hidden)
    for layer in range(shape.layers):
        state = _Layer(sketch, shape, cores, weights, f"l{layer}").add(state)
    last = elementwise("final_norm", shape.batch * shape.hidden, cores, flops_per_element=_NORM_FLOPS)
    final = sketch.launch("final_norm", [last], [state], last.bytes_written)
    sketch.download("result", final)
    return sketch.graph()


@dataclass(frozen=True, slots=True)
class _Layer:
    sketch: Sketch
    shape: TransformerShape
    cores: Mapping[str, int]
    weights: Level
    prefix: str

    def add(self, state: str) -> str:
        """Add the commands of one layer; returns the buffer of its output."""
        hidden, inner = self.shape.hidden, self.shape.hidden * self.shape.expansion
        normed = self._pass("norm1", [state], hidden, _NORM_FLOPS)
        query, key, value = (self._project(part, normed, hidden, hidden) for part in ("q", "k", "v"))
        mixed = self._attend(query, key, value)
        projected = self._project("out", mixed, hidden, hidden)
        middle = self._pass("add1", [state, projected], hidden, 1)
        normed = self._pass("norm2", [middle], hidden, _NORM_FLOPS)
        gate = self._project("gate", normed, hidden, inner)
        up = self._project("up", normed, hidden, inner)
        gated = self._pass("swiglu", [gate, up], inner, _GATE_FLOPS)
        down = self._project("down", gated, inner, hidden)
        return self._pass("add2", [middle, down], hidden, 1)

    def _project(self, part: str, source: str, inner: int, columns: int) -> str:
        name = f"{self.prefix}/{part}"
        weight = self.sketch.weights(f"{name}/weight", FP16_BYTES * inner * columns, self.weights)
        kernel = matmul(name, self.shape.tokens, inner, columns, self.cores)
        return self.sketch.launch(name, [kernel], [source, weight], kernel.bytes_written)

    def _pass(self, part: str, sources: list[str], width: int, flops: int) -> str:
        name = f"{self.prefix}/{part}"
        elements = self.shape.tokens * width
        kernel = elementwise(name, elements, self.cores, inputs=len(sources), flops_per_element=flops)
        return self.sketch.launch(name, [kernel], sources, kernel.bytes_written)

    def _attend(self, query: str, key: str, value: str) -> str:
        """One kernel on cube and vector cores, or three where the device cannot run it."""
        name = f"{self.prefix}/attention"
        heads, length = self.shape.batch * self.shape.heads, self.shape.sequence
        width = self.shape.hidden // self.shape.heads
        if self.cores[KernelClass.MIX]:
            kernel = flash_attention(name, heads, length, width, self.cores)
            return self.sketch.launch(name, [kernel], [query, key, value], kernel.bytes_written)
        score = matmul(f"{name}/scores", length, width, length, self.cores, batch=heads)
        scores = self.sketch.launch(score.name, [score], [query, key], score.bytes_written)
        soft = elementwise(
            f"{name}/softmax", heads * length * length, self.cores, flops_per_element=_SOFTMAX_FLOPS
        )
        share = self.sketch.launch(soft.name, [soft], [scores], soft.bytes_written)
        context = matmul(f"{name}/context", length, length, width, self.cores, batch=heads)
        return self.sketch.launch(context.name, [context], [share, value], context.bytes_written)
