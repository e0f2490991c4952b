"""One step of decoding in a tensor-parallel transformer, and a policy that lifts its weights into L2.

Each device holds a slice of every weight matrix, and the partial sums of the output and the down projection
are added up over all devices. With one token a request every matrix product is as long as its weights take
from HBM; beside the collectives and in the phases of short vector kernels HBM has nothing to do. That is when
the weights of the next product can be lifted into L2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.engine.layout import DONE, STARTED
from cann_env.graph import CommandGraph, CommandKind, KernelClass, Level
from cann_env.workloads.kernels import FP16_BYTES, elementwise, matmul
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cann_env.schedulers import Policy
    from cann_env.schedulers.policy import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeShape:
    """Sizes of what one device computes.

    Attributes:
        layers: Number of equal layers.
        hidden: Width of a token.
        inner: Width of the MLP, over all devices.
        requests: Tokens of a step, one of each request.
        context: Tokens that each of them attends to.
        groups: Query heads that share one key and value.
        devices: Over how many the matrices are split.
        collective_ns: How long it takes to add up the partial sums; 0 for one device.
    """

    layers: int = 8
    hidden: int = 4096
    inner: int = 11008
    requests: int = 16
    context: int = 1024
    groups: int = 1
    devices: int = 8
    collective_ns: int = 20_000


def decoding(
    shape: DecodeShape, cores: Mapping[str, int], *, weights: Level = Level.HBM, name: str = "decoding"
) -> CommandGraph:
    """Make one step: nine commands a layer, of them two collectives if there is more than one device.

    Args:
        shape: Its sizes.
        cores: Blocks of each kernel class that run at once.
        weights: Where the weight matrices, managed buffers, lie at first.
        name: Of the graph.
    """
    sketch = Sketch(name)
    state = sketch.upload("tokens", FP16_BYTES * shape.requests * shape.hidden)
    for layer in range(shape.layers):
        state = _Layer(sketch, shape, cores, weights, f"l{layer}").add(state)
    sketch.download("result", state)
    return sketch.graph()


@dataclass(frozen=True, slots=True)
class _Layer:
    sketch: Sketch
    shape: DecodeShape
    cores: Mapping[str, int]
    weights: Level
    prefix: str

    def add(self, state: str) -> str:
        hidden, split = self.shape.hidden, self.shape.devices
        own, keys = hidden // split, hidden // split // self.shape.groups
        inner = self.shape.inner // split
        mixed = self._attend(self._project("qkv", self._norm("norm1", state), hidden, own + 2 * keys), keys)
        middle = self._sum("out_sum", self._project("out", mixed, own, hidden))
        wide = self._project("gate_up", self._norm("norm2", middle), hidden, 2 * inner)
        gated = self._pass("swiglu", wide, inner, inputs=2)
        return self._sum("down_sum", self._project("down", gated, inner, hidden))

    def _norm(self, part: str, source: str) -> str:
        return self._pass(part, source, self.shape.hidden, inputs=2)

    def _pass(self, part: str, source: str, width: int, *, inputs: int) -> str:
        name = f"{self.prefix}/{part}"
        elements = self.shape.requests * width
        kernel = elementwise(name, elements, self.cores, inputs=inputs, flops_per_element=8)
        return self.sketch.launch(name, [kernel], [source], kernel.bytes_written)

    def _project(self, part: str, source: str, inner: int, columns: int) -> str:
        name = f"{self.prefix}/{part}"
        weight = self.sketch.weights(f"{name}/weight", FP16_BYTES * inner * columns, self.weights)
        kernel = matmul(name, self.shape.requests, inner, columns, self.cores)
        # One row of tiles leaves the cores to the columns and, where those are few, to slices of the sum.
        kernel = replace(kernel, blocks=self.cores[KernelClass.CUBE])
        return self.sketch.launch(name, [kernel], [source, weight], kernel.bytes_written)

    def _attend(self, source: str, keys: int) -> str:
        name, shape = f"{self.prefix}/attention", self.shape
        cached = self.sketch.resident(f"{name}/cache", 2 * FP16_BYTES * shape.requests * shape.context * keys)
        made = FP16_BYTES * shape.requests * shape.hidden // shape.devices
        kernel = replace(
            elementwise(name, 1, self.cores),
            kernel_class=KernelClass.MIX,
            blocks=self.cores[KernelClass.MIX],
            flops=4 * shape.requests * shape.context * shape.hidden // shape.devices,
            bytes_read=self.sketch.size_bytes(cached) + self.sketch.size_bytes(source),
            bytes_written=made,
        )
        return self.sketch.launch(name, [kernel], [source, cached], made)

    def _sum(self, part: str, buffer: str) -> str:
        if self.shape.devices > 1:
            self.sketch.reduce(f"{self.prefix}/{part}", self.shape.collective_ns, buffer)
        return buffer


@dataclass(frozen=True, slots=True)
class _Lift:
    """Weights that a command reads, and the command behind which nothing heavy runs before that."""

    weight: int
    user: int
    behind: int


def quiet_lifts(graph: CommandGraph) -> tuple[_Lift, ...]:
    """For each matrix product of a chain behind vector kernels or collectives, the lift of its weights."""
    lifts = []
    heavy = 0
    for c, command in enumerate(graph.commands):
        if _is_light(graph, c):
            continue
        weights = [name for name in command.reads if name.endswith("/weight")]
        if weights and c > heavy + 1:
            lifts += [_Lift(graph.buffer_index[name], c, heavy) for name in weights]
        heavy = c
    return tuple(lifts)


def _is_light(graph: CommandGraph, c: int) -> bool:
    command = graph.commands[c]
    if command.kind is CommandKind.COLLECTIVE:
        return True
    return bool(command.kernels) and command.kernels[0].kernel_class is KernelClass.VECTOR


@dataclass(slots=True)
class LiftAhead:
    """Lift the weights of the next products into L2, around any order of issue. Meant for the free mask.

    Attributes:
        order: The policy that decides everything else.
        lifts: Made as soon as the command ``behind`` has finished, if the user has not started.
        times: How often each is made: 2 plants a duplicate.
        ahead: How many lifts further than the next one may be made before their time.
    """

    order: Policy
    lifts: tuple[_Lift, ...]
    times: int = 1
    ahead: int = 0
    _made: dict[int, int] = field(default_factory=dict)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first lift that is due and legal, else what the order says."""
        phases = info["phases"]
        first = int(info["window"] * info["choices"] + info["prefetches"])
        legal = np.flatnonzero(mask[first : first + info["l2_prefetches"]])
        slots = {int(info["movable"][info["prefetches"] + slot]): int(slot) for slot in legal}
        for i in self._due(phases):
            weight = self.lifts[i].weight
            if self._made.get(i, 0) < self.times and weight in slots:
                self._made[i] = self._made.get(i, 0) + 1
                return first + slots[weight]
        return self.order.act(observation, mask, info)

    def _due(self, phases: NDArray[np.int64]) -> list[int]:
        """Lifts that may be made now."""
        left = [i for i, lift in enumerate(self.lifts) if phases[lift.user] < STARTED]
        begun = [i for i in left if phases[self.lifts[i].behind] == DONE]
        return left[: max(begun[-1] - left[0] + 1, 0) + self.ahead] if begun else []
