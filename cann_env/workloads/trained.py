"""Descriptions of training steps whose memory matters: residual networks and transformers.

Each checks its fields when it is made, and hands them to the generator of its kind when it is built. Both say
where the buffers lie by the same keys, see :class:`~cann_env.workloads.backward.Placement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cann_env.graph import BufferKind, CommandGraph, Level
from cann_env.workloads.backward import Placement
from cann_env.workloads.checks import check_not_empty, check_not_negative, check_sizes
from cann_env.workloads.draws import pick
from cann_env.workloads.training_resnet import ResnetShape, training_resnet
from cann_env.workloads.training_transformer import training_transformer
from cann_env.workloads.transformer import TransformerShape

if TYPE_CHECKING:
    from numpy.random import Generator

    from cann_env.workloads.description import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """The keys of a placement, see :class:`~cann_env.workloads.backward.Placement`."""

    weights: Level = Level.HBM
    moments: Level = Level.HBM
    activations: BufferKind = BufferKind.MANAGED
    gradients: BufferKind = BufferKind.DEVICE
    collective_bytes_per_s: int = 0

    @property
    def placement(self) -> Placement:
        """Where the buffers lie."""
        return Placement(
            weights=self.weights,
            moments=self.moments,
            activations=self.activations,
            gradients=self.gradients,
            collective_bytes_per_s=self.collective_bytes_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResnetWorkload(_Placed):
    """See :func:`~cann_env.workloads.training_resnet.training_resnet`.

    Attributes:
        batches: Numbers of images, one of which is drawn for each graph.
    """

    kind: ClassVar[str] = "training_resnet"

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image: int = 224
    batches: tuple[int, ...] = (32,)
    classes: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("batches", self.batches)
        for batch in self.batches:
            check_sizes(batches=batch)
            self._shape(batch)
        _ = self.placement

    @property
    def fixed(self) -> bool:
        """There is only one batch to draw."""
        return len(set(self.batches)) == 1

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; its batch is drawn."""
        shape = self._shape(pick(rng, self.batches))
        return training_resnet(shape, target.cores, placement=self.placement, name=name)

    def _shape(self, batch: int) -> ResnetShape:
        return ResnetShape(
            blocks=self.blocks, width=self.width, image=self.image, batch=batch, classes=self.classes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTransformerWorkload(_Placed):
    """See :func:`~cann_env.workloads.training_transformer.training_transformer`.

    Attributes:
        sequences: Lengths of a sample, one of which is drawn for each graph.
    """

    kind: ClassVar[str] = "training_transformer"

    layers: int = 4
    hidden: int = 1024
    heads: int = 16
    sequences: tuple[int, ...] = (1024,)
    batch: int = 4
    expansion: int = 4
    vocabulary: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("sequences", self.sequences)
        check_not_negative(vocabulary=self.vocabulary)
        for sequence in self.sequences:
            check_sizes(sequences=sequence)
            self._shape(sequence)
        _ = self.placement

    @property
    def fixed(self) -> bool:
        """There is only one length to draw."""
        return len(set(self.sequences)) == 1

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph; its length is drawn."""
        shape = self._shape(pick(rng, self.sequences))
        return training_transformer(
            shape, target.cores, vocabulary=self.vocabulary, placement=self.placement, name=name
        )

    def _shape(self, sequence: int) -> TransformerShape:
        return TransformerShape(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            sequence=sequence,
            batch=self.batch,
            expansion=self.expansion,
        )
