"""Several families on several devices as one ``VecEnv``: an agent that learns from all of them at once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from agents.vec_env import CannVecEnv
from cann_env.envs import CannVectorEnv
from cann_env.envs.spaces import GraphCapacity
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

    from agents.families import Play
    from cann_env.options import Window

Observations = dict[str, "NDArray[np.float32]"]

_INDICES = 4096  # environments that a seed has for itself


def make_mixture(
    plays: Sequence[Play], window: Window, *, split_seed: int, seed: int, graph: bool = False
) -> MixedVecEnv:
    """Environments for all plays.

    Args:
        plays: What is played, and by how many environments; at least one.
        window: The agent's.
        split_seed: Of the training split: graph number j of a play is the same for every ``seed``.
        seed: Decides in which order each environment plays them.
        graph: Whether the padded graph is observed, large enough for every play.
    """
    capacity = graph_capacity(plays, window, split_seed) if graph else None
    parts = []
    for play in plays:
        scenario = play.scenario(window)
        envs = CannVectorEnv(
            scenario.to_dict(),
            num_envs=play.envs,
            observation="graph" if graph else "window",
            graph_capacity=tuple(capacity) if capacity else None,
            instances=play.instances,
            env_index=seed * _INDICES,
            copy=False,
        )
        parts.append(CannVecEnv(envs, run_seed=split_seed))
    return MixedVecEnv(parts)


def graph_capacity(plays: Sequence[Play], window: Window, split_seed: int) -> GraphCapacity:
    """Room for the largest training instance of all plays."""
    nodes, edges = 1, 1
    for play in plays:
        scenario = play.scenario(window)
        for number in range(play.instances):
            graph = scenario.graph(split_seed, 0, number)
            nodes = max(nodes, len(graph.commands))
            edges = max(edges, sum(len(before) for before in graph.predecessors))
    return GraphCapacity(nodes, edges)


class MixedVecEnv(VecEnv):
    """Environments of different plays behind one interface; all have the same spaces.

    Args:
        parts: Environments of one play each, stepped one after another.

    Attributes:
        parts: The same.
        instances: int64 (N,), a number for the graph that each environment plays; two environments have
            the same number if and only if they play the same number of the same play's graphs.

    Raises:
        InputError: There are none, or the spaces of two differ.
    """

    def __init__(self, parts: Sequence[CannVecEnv]) -> None:
        if not parts:
            raise InputError("parts is empty; give the environments of at least one play")
        for part in parts:
            same = (part.observation_space, part.action_space) == (
                parts[0].observation_space,
                parts[0].action_space,
            )
            if not same:
                raise InputError(
                    f"scenario {part.envs.scenario.name!r} has other spaces than "
                    f"{parts[0].envs.scenario.name!r}; give all the same streams and slots of windows"
                )
        self.parts = list(parts)
        self._cuts = np.cumsum([0, *(part.num_envs for part in parts)]).tolist()
        self._firsts = np.cumsum([0, *(part.envs.instances or 0 for part in parts)]).tolist()
        super().__init__(self._cuts[-1], parts[0].observation_space, parts[0].action_space)
        self.instances = np.zeros(self.num_envs, np.int64)

    def reset(self) -> Observations:
        """Begin the next episode of each environment."""
        seen = [part.reset() for part in self.parts]
        self.reset_infos = [info for part in self.parts for info in part.reset_infos]
        for row in range(self.num_envs):
            self._number(row)
        return _joined(seen)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Say what to do next in each environment; ``step_wait`` does it."""
        for part, (first, stop) in zip(self.parts, pairwise(self._cuts), strict=True):
            part.step_async(actions[first:stop])

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step; see :meth:`CannVecEnv.step_wait`."""
        results = [part.step_wait() for part in self.parts]
        rewards, ends = (np.concatenate([result[i] for result in results]) for i in (1, 2))
        infos = [info for result in results for info in result[3]]
        for row in np.flatnonzero(ends).tolist():
            self._number(row)
        return _joined([result[0] for result in results]), rewards, ends, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """True where an action is legal, bool (N, A)."""
        return np.concatenate([part.action_masks() for part in self.parts])

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Do nothing: plays and seeds were settled when the environments were made."""
        return [None] * self.num_envs

    def close(self) -> None:
        """Close the environments."""
        for part in self.parts:
            part.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See :meth:`CannVecEnv.get_attr`."""
        return [
            self._part(row).get_attr(attr_name, [self._place(row)])[0] for row in self._get_indices(indices)
        ]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refuse, see :meth:`CannVecEnv.set_attr`.

        Raises:
            InputError: Always.
        """
        self.parts[0].set_attr(attr_name, value, indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """See :meth:`CannVecEnv.env_method`."""
        if method_name == "action_masks" and indices is None:
            return list(self.action_masks())
        return [method(*method_args, **method_kwargs) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """See :meth:`CannVecEnv.env_is_wrapped`."""
        return self.parts[0].env_is_wrapped(wrapper_class, [0]) * len(list(self._get_indices(indices)))

    def _number(self, row: int) -> None:
        part = int(np.searchsorted(self._cuts, row, side="right")) - 1
        number = self.parts[part].envs.instance_number(row - self._cuts[part])
        self.instances[row] = self._firsts[part] + (number or 0)

    def _part(self, row: int) -> CannVecEnv:
        return self.parts[int(np.searchsorted(self._cuts, row, side="right")) - 1]

    def _place(self, row: int) -> int:
        return row - self._cuts[int(np.searchsorted(self._cuts, row, side="right")) - 1]


def _joined(parts: Sequence[Observations]) -> Observations:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
