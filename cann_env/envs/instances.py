"""Which instance an episode plays: a function of seed, environment index and episode, compiled on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.envs.spaces import GraphCapacity, edges_of
from cann_env.program import compile_graph

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.scenario import Scenario

_LOOKED_AT = 8
_NOISE = 1  # tells the stream of realised durations from all others


class InstanceKey(NamedTuple):
    """What an instance depends on, and nothing else."""

    seed: int
    env_index: int
    episode: int


def realised(program: Program, key: InstanceKey) -> Image | None:
    """Realised durations of an instance, from a generator of their own; None without noise."""
    return program.draw_noise(np.random.default_rng(np.random.SeedSequence([_NOISE, *key])))


class ProgramSource:
    """Compiled instances of a scenario; an instance that does not vary is compiled once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._last: Program | None = None

    def program(self, key: InstanceKey) -> Program:
        """The compiled instance of an episode."""
        graph = self.scenario.graph(*key)
        if self._last is None or self._last.graph is not graph:
            self._last = compile_graph(graph, self.scenario.device, self.scenario.options)
        return self._last

    def noise(self, program: Program, key: InstanceKey) -> Image | None:
        """Realised durations of an episode; None without noise."""
        return realised(program, key)

    def usual_capacity(self) -> GraphCapacity:
        """Room for the first instances of seed 0 and half as much again."""
        programs = [self.program(InstanceKey(0, 0, episode)) for episode in range(_LOOKED_AT)]
        nodes = max(len(program.graph.commands) for program in programs)
        edges = max(edges_of(program) for program in programs)
        fixed = all(program is programs[0] for program in programs)
        if fixed:
            return GraphCapacity(nodes, max(edges, 1))
        return GraphCapacity(nodes * 3 // 2 + 1, edges * 3 // 2 + 1)
