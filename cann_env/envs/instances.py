"""Which instance an episode plays: a function of seed, environment index and episode, compiled on demand.

A run plays a pool of graphs: episode k of environment i plays number ``h(seed, i, k)`` of them, so that each
is compiled once. Without a pool every episode has a graph of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from cann_env.engine.draw import instance_number, mix
from cann_env.envs.spaces import GraphCapacity, edges_of
from cann_env.program import compile_graph

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.scenario import Scenario

INSTANCES = 256
"""Graphs of a run unless said otherwise."""

_LOOKED_AT = 8
_NOISE = 1  # tells the stream of realised durations from all others
_WORD = 0xFFFFFFFF
_BEGINNINGS = (0x243F6A88, 0x13198A2E)  # digits of pi


class InstanceKey(NamedTuple):
    """What an instance depends on, and nothing else."""

    seed: int
    env_index: int
    episode: int


def realised(program: Program, key: InstanceKey) -> Image | None:
    """Realised durations of an instance, from a generator of their own; None without noise."""
    return program.draw_noise(np.random.default_rng(np.random.SeedSequence([_NOISE, *key])))


@lru_cache(maxsize=8192)
def words_of(seed: int, env_index: int) -> tuple[int, int]:
    """Two words of 32 bits that stand for a run and an environment, whatever the size of both numbers."""
    parts = [part for number in (seed, env_index) for part in (_length(number), *_split(number))]
    words = []
    for word in _BEGINNINGS:
        for part in parts:
            word = int(mix((word + part) & _WORD))
        words.append(word)
    return words[0], words[1]


def _length(number: int) -> int:
    return max(1, -(-number.bit_length() // 32))


def _split(number: int) -> list[int]:
    return [(number >> 32 * i) & _WORD for i in range(_length(number))]


class Source(Protocol):
    """What environments side by side play: which program each of their episodes is."""

    @property
    def scenario(self) -> Scenario:
        """Options and workload of all that is played."""
        ...

    @property
    def instances(self) -> int | None:
        """Different graphs that a run plays at most; None for one in every episode."""
        ...

    def number(self, key: InstanceKey) -> int | None:
        """Which of its run's graphs an episode plays; None if it has one of its own."""
        ...

    def program(self, key: InstanceKey) -> Program:
        """The compiled instance of an episode."""
        ...

    def noise(self, program: Program, key: InstanceKey) -> Image | None:
        """Realised durations of an episode; None without noise."""
        ...


class ProgramSource:
    """Compiled instances of a scenario, the last ones kept.

    Args:
        scenario: What is played.
        instances: Different graphs that a run plays at most; None for one in every episode.
        kept: Compiled graphs to keep, all runs together; None for as many as a run has.

    Attributes:
        scenario: As given.
        instances: As given, but 1 if the workload does not vary.
    """

    def __init__(self, scenario: Scenario, instances: int | None = None, kept: int | None = None) -> None:
        self.scenario = scenario
        self.instances = 1 if scenario.workload.fixed else instances
        self._kept = kept or self.instances or 1
        self._programs: OrderedDict[tuple[int, int, int], Program] = OrderedDict()

    def __getstate__(self) -> dict[str, object]:
        """Without what can be compiled again, which would make a copy large."""
        return self.__dict__ | {"_programs": OrderedDict()}

    def number(self, key: InstanceKey) -> int | None:
        """Which of the graphs of its run an episode plays; None if it has one of its own."""
        if self.instances is None:
            return None
        return int(instance_number(*words_of(key.seed, key.env_index), key.episode, self.instances))

    def program(self, key: InstanceKey) -> Program:
        """The compiled instance of an episode."""
        number = self.number(key)
        draw = key if number is None else InstanceKey(key.seed, 0, number)
        if self.scenario.workload.fixed:
            draw = InstanceKey(0, 0, 0)
        if draw in self._programs:
            self._programs.move_to_end(draw)
            return self._programs[draw]
        graph = self.scenario.graph(*draw)
        program = compile_graph(graph, self.scenario.device, self.scenario.options)
        self._programs[draw] = program
        if len(self._programs) > self._kept:
            self._programs.popitem(last=False)
        return program

    def noise(self, program: Program, key: InstanceKey) -> Image | None:
        """Realised durations of an episode; None without noise."""
        return None if self.scenario.options.noise == 0.0 else realised(program, key)

    def usual_capacity(self) -> GraphCapacity:
        """Room for the first instances of seed 0 and half as much again."""
        programs = [self.program(InstanceKey(0, 0, episode)) for episode in range(_LOOKED_AT)]
        nodes = max(len(program.graph.commands) for program in programs)
        edges = max(edges_of(program) for program in programs)
        if self.scenario.workload.fixed:
            return GraphCapacity(nodes, max(edges, 1))
        return GraphCapacity(nodes * 3 // 2 + 1, edges * 3 // 2 + 1)
