"""Descriptions of generated workloads: pipelines, random graphs, networks, and a draw among them all.

Each checks its fields when it is made, and hands them to the generator of its kind when it is built.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from cann_env.graph import BufferKind, CommandGraph, Level
from cann_env.units import InputError
from cann_env.workloads.checks import (
    check_not_empty,
    check_not_negative,
    check_shares,
    check_sizes,
    check_weights,
)
from cann_env.workloads.cnn import CnnShape, cnn
from cann_env.workloads.draws import between, pick
from cann_env.workloads.generators import chain, fork_join, layered
from cann_env.workloads.kernels import Traits
from cann_env.workloads.pipeline import pipeline
from cann_env.workloads.planted import CLASS_OF_POOL, planted
from cann_env.workloads.training import TrainingShape, training
from cann_env.workloads.transformer import TransformerShape, transformer

if TYPE_CHECKING:
    from numpy.random import Generator

    from cann_env.workloads.description import Target, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWorkload:
    """See :func:`~cann_env.workloads.pipeline.pipeline`."""

    kind: ClassVar[str] = "pipeline"

    batches: int = 32
    input_bytes: int
    output_bytes: int
    flops: int
    blocks: int = 1
    slots: int = 0
    callback_ns: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(batches=self.batches, blocks=self.blocks)
        check_sizes(input_bytes=self.input_bytes, output_bytes=self.output_bytes)
        check_not_negative(flops=self.flops, slots=self.slots, callback_ns=self.callback_ns)

    @property
    def fixed(self) -> bool:
        """Always."""
        return True

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; nothing is drawn."""
        return pipeline(
            batches=self.batches,
            input_bytes=self.input_bytes,
            output_bytes=self.output_bytes,
            flops=self.flops,
            blocks=self.blocks,
            slots=self.slots,
            callback_ns=self.callback_ns,
            name=name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A workload that differs from one random generator to the next."""

    @property
    def fixed(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredWorkload(_Drawn):
    """See :func:`~cann_env.workloads.generators.layered`."""

    kind: ClassVar[str] = "layered"

    commands: int = 80
    width: int = 8
    density: float = 0.2
    traits: Traits = field(default_factory=Traits)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(commands=self.commands, width=self.width)
        check_shares(density=self.density)

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Draw the graph."""
        return layered(
            rng, self.commands, self.width, self.density, target.cores, traits=self.traits, name=name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkJoinWorkload(_Drawn):
    """See :func:`~cann_env.workloads.generators.fork_join`."""

    kind: ClassVar[str] = "fork_join"

    stages: int = 8
    branches: int = 6
    length: int = 4
    traits: Traits = field(default_factory=Traits)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(stages=self.stages, branches=self.branches, length=self.length)

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Draw the graph."""
        return fork_join(
            rng, self.stages, self.branches, self.length, target.cores, traits=self.traits, name=name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainWorkload(_Drawn):
    """See :func:`~cann_env.workloads.generators.chain`."""

    kind: ClassVar[str] = "chain"

    commands: int = 40
    traits: Traits = field(default_factory=Traits)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(commands=self.commands)

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Draw the graph."""
        return chain(rng, self.commands, target.cores, traits=self.traits, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedWorkload(_Drawn):
    """See :func:`~cann_env.workloads.planted.planted`, of which it takes the graph.

    On a device where launches, events and the gaps between commands take time, or where the classes share
    their cores, no schedule reaches ``length``; it is a lower bound all the same.

    Attributes:
        pools: Pools that are cut, all cores of each that the device has.
    """

    kind: ClassVar[str] = "planted"

    kernels: int = 60
    pools: tuple[str, ...] = ("aic",)
    length: int = 1000
    predecessors: int = 3
    loads: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(kernels=self.kernels, length=self.length)
        check_not_negative(predecessors=self.predecessors)
        check_shares(loads=self.loads)
        check_not_empty("pools", self.pools)
        for pool in self.pools:
            if pool not in CLASS_OF_POOL:
                raise InputError(f"'pools' names {pool!r}; write some of {', '.join(CLASS_OF_POOL)}")

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Draw the graph."""
        return planted(
            rng,
            kernels=self.kernels,
            cores={pool: target.cores[CLASS_OF_POOL[pool]] for pool in self.pools},
            length=self.length,
            predecessors=self.predecessors,
            loads=self.loads,
            tight=False,
            name=name,
        ).problem.graph


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerWorkload:
    """See :func:`~cann_env.workloads.transformer.transformer`.

    Attributes:
        sequences: Lengths of a sample, one of which is drawn for each graph.
    """

    kind: ClassVar[str] = "transformer"

    layers: int = 2
    hidden: int = 1024
    heads: int = 16
    sequences: tuple[int, ...] = (256,)
    batch: int = 1
    expansion: int = 4
    weights: Level = Level.HOST

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("sequences", self.sequences)
        check_weights(self.weights)
        for sequence in self.sequences:
            check_sizes(sequences=sequence)
            self._shape(sequence)

    @property
    def fixed(self) -> bool:
        """There is only one length to draw."""
        return len(set(self.sequences)) == 1

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; its length is drawn."""
        shape = self._shape(pick(rng, self.sequences))
        return transformer(shape, target.cores, weights=self.weights, name=name)

    def _shape(self, sequence: int) -> TransformerShape:
        return TransformerShape(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            sequence=sequence,
            batch=self.batch,
            expansion=self.expansion,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CnnWorkload(_Drawn):
    """See :func:`~cann_env.workloads.cnn.cnn`.

    Attributes:
        batches: Numbers of images, one of which is drawn for each graph.
    """

    kind: ClassVar[str] = "cnn"

    modules: int = 3
    image: int = 224
    batches: tuple[int, ...] = (1,)
    weights: Level = Level.HOST

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("batches", self.batches)
        check_weights(self.weights)
        for batch in self.batches:
            check_sizes(batches=batch)
            CnnShape(modules=self.modules, image=self.image, batch=batch)

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; its batch and the widths of its branches are drawn."""
        shape = CnnShape(modules=self.modules, image=self.image, batch=pick(rng, self.batches))
        return cnn(rng, shape, target.cores, weights=self.weights, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWorkload:
    """See :func:`~cann_env.workloads.training.training`.

    Attributes:
        least_tokens, most_tokens: Range from which the rows of the batch are drawn for each graph.
        collective_ns: How long it takes to sum a layer's weight gradient over all devices; 0 for one device.
        activations: Who moves what the forward pass keeps for the backward pass.
    """

    kind: ClassVar[str] = "training"

    layers: int = 14
    width: int = 512
    least_tokens: int = 256
    most_tokens: int = 1024
    collective_ns: int = 0
    activations: BufferKind = BufferKind.DEVICE

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(least_tokens=self.least_tokens)
        if self.most_tokens < self.least_tokens:
            raise InputError(
                f"'most_tokens' is {self.most_tokens}; "
                f"write at least the {self.least_tokens} of 'least_tokens'"
            )
        self._shape(self.most_tokens)

    @property
    def fixed(self) -> bool:
        """There is only one number of tokens to draw."""
        return self.least_tokens == self.most_tokens

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; its tokens are drawn."""
        tokens = between(rng, self.least_tokens, self.most_tokens)
        return training(self._shape(tokens), target.cores, activations=self.activations, name=name)

    def _shape(self, tokens: int) -> TrainingShape:
        return TrainingShape(
            layers=self.layers, width=self.width, tokens=tokens, collective_ns=self.collective_ns
        )


class Family(enum.StrEnum):
    """What a random graph can be."""

    LAYERED = "layered"
    FORK_JOIN = "fork_join"
    CHAIN = "chain"
    TRANSFORMER = "transformer"
    CNN = "cnn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWorkload(_Drawn):
    """A family, its size and its graph, all drawn.

    Attributes:
        families: What is drawn from; a family that stands twice is drawn twice as often.
        weights: Where weights lie at first, one of which is drawn for each graph.
        least_commands, most_commands: About how many commands a graph has.
        width: Most commands of a layer, most branches of a fork.
        density: Probability of an edge between layers that is not needed.
        traits: What the commands of the random families are like, but for where their weights lie.
    """

    kind: ClassVar[str] = "random"

    families: tuple[Family, ...] = tuple(Family)
    weights: tuple[Level, ...] = (Level.HOST, Level.HBM)
    least_commands: int = 40
    most_commands: int = 120
    width: int = 8
    density: float = 0.2
    traits: Traits = field(default_factory=Traits)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("families", self.families)
        check_not_empty("weights", self.weights)
        for level in self.weights:
            check_weights(level)
        check_sizes(least_commands=self.least_commands, width=self.width)
        check_shares(density=self.density)
        if self.most_commands < self.least_commands:
            raise InputError(
                f"'most_commands' is {self.most_commands}; "
                f"write at least the {self.least_commands} of 'least_commands'"
            )

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Draw the graph."""
        family = pick(rng, self.families)
        commands = between(rng, self.least_commands, self.most_commands)
        return self._member(rng, family, commands).build(rng, target, name)

    def _member(self, rng: Generator, family: Family, commands: int) -> Workload:
        traits = replace(self.traits, weights=pick(rng, self.weights))
        if family == Family.LAYERED:
            return LayeredWorkload(commands=commands, width=self.width, density=self.density, traits=traits)
        if family == Family.FORK_JOIN:
            length = between(rng, 1, 4)
            stages = max(1, 4 * commands // (4 + (self.width + 1) * (length + 1)))
            return ForkJoinWorkload(stages=stages, branches=self.width, length=length, traits=traits)
        if family == Family.CHAIN:
            return ChainWorkload(commands=commands, traits=traits)
        if family == Family.TRANSFORMER:
            hidden = pick(rng, (256, 512, 1024))
            return TransformerWorkload(
                layers=max(1, (commands - 3) // 13),
                hidden=hidden,
                heads=hidden // 64,
                sequences=(pick(rng, (128, 256, 512, 1024)),),
                weights=traits.weights,
            )
        batch = pick(rng, (1, 2, 4, 8))
        return CnnWorkload(modules=max(1, (commands - 9) // 8), batches=(batch,), weights=traits.weights)
