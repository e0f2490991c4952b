"""What a description of a workload is: frozen plain data that becomes a graph for a device.

A scenario file says which kind of description and its fields; ``build`` takes a random generator and the
device that kernels are cut for, and gives a :class:`~cann_env.graph.CommandGraph`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from cann_env.workloads.kernels import blocks_at_once

if TYPE_CHECKING:
    from numpy.random import Generator

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are cut for. Two targets are equal if they run as many blocks of each class at once.

    Attributes:
        slots: For each kernel class the blocks that run at once.
        device: Whose they are.
    """

    slots: tuple[tuple[str, int], ...]
    device: DeviceSpec = field(compare=False)

    @property
    def cores(self) -> dict[str, int]:
        """The slots by class."""
        return dict(self.slots)


def target_of(device: DeviceSpec) -> Target:
    """The target that a device is."""
    return Target(tuple(blocks_at_once(device).items()), device)


class Workload(Hashable, Protocol):
    """What every description can do."""

    kind: ClassVar[str]
    """What a scenario file calls it."""

    @property
    def fixed(self) -> bool:
        """Every random generator gives the same graph."""

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Make the graph.

        Args:
            rng: Source of every draw.
            target: What the kernels are cut for.
            name: Of the graph.
        """
