"""The episodes of many environments in a few arrays, one row each: what the engine's batch kernels work on.

Programs and noise come in through :meth:`Rows.load`, actions through :meth:`Rows.step`; observations, masks
and header fields go out. The arrays grow when an instance comes that is wider than all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from gymnasium import spaces

from cann_env.engine.batch import new_views, observe_batch, step_batch
from cann_env.envs.spaces import action_space, check_capacity, observation_space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.envs.instances import InstanceKey
    from cann_env.envs.spaces import GraphCapacity
    from cann_env.options import RunOptions
    from cann_env.program import Program

_FLAT = ("commands", "streams", "buffers", "device")  # in the order in which the engine writes them
_GRAPH = ("nodes", "node_mask", "edge_index", "edge_mask", "window")


class Episode(NamedTuple):
    """What an environment plays."""

    key: InstanceKey
    program: Program
    noise: Image | None


class Rows:
    """Programs, states and views of N environments.

    Args:
        count: Environments (N).
        options: Of the scenario.
        graph: Capacity of the graph observation, None without one.

    Attributes:
        episodes: What each environment plays; environments that have not begun are missing.
        empty: Environments that have not begun.
        views: What agents see, see :class:`cann_env.engine.batch.Views`.
    """

    def __init__(self, count: int, options: RunOptions, graph: GraphCapacity | None) -> None:
        space = observation_space(options)
        self._lengths = {name: spaces.flatdim(space[name]) for name in _FLAT if name in space.spaces}
        actions = int(action_space(options).n)
        self.episodes: dict[int, Episode] = {}
        self.empty = set(range(count))
        self.views = new_views(count, sum(self._lengths.values()), actions, options.commands, graph)
        self._graph = graph
        self._programs = np.zeros((count, 0), np.int64)
        self._states = np.zeros((count, 0), np.int64)
        self._rises = np.zeros(count, np.int64)

    def load(self, i: int, episode: Episode) -> None:
        """Bring an environment to the first decision of an episode; :meth:`look` at it afterwards.

        Raises:
            InputError: The graph does not fit the graph observation.
        """
        program = episode.program
        if self._graph is not None:
            check_capacity(program, self._graph)
        before = self.episodes.get(i)
        if before is None or before.program is not program:
            self._programs = _widened(self._programs, program.image.size)
            self._states = _widened(self._states, program.state_words())
            self._programs[i, : program.image.size] = program.image
        self.episodes[i] = episode
        self.empty.discard(i)
        program.reset_state(self._state(i, program), episode.noise)

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Take a decision in every environment that runs; returns how much each objective rose (ns, (N,))."""
        step_batch(self._programs, self._states, actions, self._rises, self.views)
        return self._rises

    def look(self, rows: NDArray[np.int64]) -> None:
        """Bring the views of some environments up to date."""
        observe_batch(self._programs, self._states, rows, self.views)

    def state(self, i: int) -> Image:
        """A copy of the state image of an environment that has begun."""
        return self._state(i, self.episodes[i].program).copy()

    def episode_numbers(self) -> NDArray[np.int64]:
        """Which episode each environment plays, int64 (N,); all have begun."""
        return np.array([self.episodes[i].key.episode for i in range(len(self._states))], np.int64)

    def of_states(self, field: int) -> NDArray[np.int64]:
        """A header field of all states, int64 (N,), in a fresh array."""
        return self._states[:, field].copy()

    def of_programs(self, field: int) -> NDArray[np.int64]:
        """A header field of all programs, int64 (N,), in a fresh array."""
        return self._programs[:, field].copy()

    def observations(self) -> dict[str, NDArray[np.float32]]:
        """The parts of the observation, (N, length) each, as views that the next step writes to."""
        parts: dict[str, NDArray[np.float32]] = {}
        at = 0
        for name, length in self._lengths.items():
            parts[name] = self.views.flat[:, at : at + length]
            at += length
        if self._graph is not None:
            for name in _GRAPH:
                whole: NDArray[np.float32] = getattr(self.views, name)
                parts[name] = whole.reshape(len(whole), -1)
        return parts

    def _state(self, i: int, program: Program) -> Image:
        return self._states[i, : program.state_words()]


def _widened(rows: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The same rows, at least so wide; a quarter more than needed, since wider ones often follow."""
    count, old = rows.shape
    if width <= old:
        return rows
    wider = np.zeros((count, width if old == 0 else width + width // 4), np.int64)
    wider[:, :old] = rows
    return wider
