"""What wrappers ask of the environment below them, and the graph as it stands before anything is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cann_env.engine.layout import FAR, S_NOW_NS, S_SCALE_NS
from cann_env.engine.observe import OBS_HIGH
from cann_env.envs.arguments import graph_capacity_of
from cann_env.envs.env import CannEnv, EpisodeOverError
from cann_env.envs.spaces import GRAPH_PARTS, ObservationMode, encode_graph, observation_space
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium
    from numpy.typing import NDArray

    from cann_env.envs.env import Snapshot
    from cann_env.envs.spaces import GraphCapacity
    from cann_env.options import RunOptions
    from cann_env.program import Program

_STATIC_PARTS = tuple(name for name in GRAPH_PARTS if name != "window")


def inner_env(env: gymnasium.Env[Any, Any], wrapper: str) -> CannEnv:
    """The environment inside all wrappers.

    Raises:
        InputError: It is none of this package.
    """
    inner = getattr(env, "unwrapped", env)
    if not isinstance(inner, CannEnv):
        raise InputError(
            f"{wrapper} wraps single environments of cann_env, not {type(inner).__name__}; write "
            f"{wrapper}(gymnasium.make('cann_env:cann/Pipeline-v0'))"
        )
    return inner


def begun(start: Snapshot | None) -> Snapshot:
    """The beginning of an episode that there has to be.

    Raises:
        EpisodeOverError: There is none yet.
    """
    if start is None:
        raise EpisodeOverError("there is no episode yet; call reset() first")
    return start


def capacity_of(inner: CannEnv, capacity: Sequence[int] | None) -> GraphCapacity:
    """Capacity of a padded graph: what is given, or the environment's own, or what its scenario needs.

    Raises:
        InputError: What is given is not two whole numbers of at least 1.
    """
    if capacity is None and inner.graph_capacity is not None:
        return inner.graph_capacity
    found = graph_capacity_of(inner.source, ObservationMode.GRAPH, capacity)
    assert found is not None  # the mode is that of the graph
    return found


def static_space(options: RunOptions, capacity: GraphCapacity) -> dict[str, spaces.Space[Any]]:
    """Spaces of what :func:`static_graph` gives."""
    whole = observation_space(options, capacity)
    parts: dict[str, spaces.Space[Any]] = {name: whole[name] for name in _STATIC_PARTS}
    parts["releases"] = spaces.Box(0.0, OBS_HIGH, (capacity.nodes,), np.float32)
    return parts


def static_graph(program: Program, capacity: GraphCapacity) -> dict[str, NDArray[np.float32]]:
    """The padded graph before anything is decided, with commands that are released later, in fresh arrays.

    Raises:
        InputError: The graph does not fit the capacity.
    """
    state = program.new_state()
    state[S_NOW_NS] = FAR  # by then everything is released
    state[S_SCALE_NS] = program.lower_bound_ns
    whole = encode_graph(program, state, capacity)
    parts = {name: whole[name] for name in _STATIC_PARTS}
    releases = np.zeros(capacity.nodes, np.float32)
    known = [command.release_ns for command in program.graph.commands]
    releases[: len(known)] = np.minimum(np.asarray(known) / program.lower_bound_ns, OBS_HIGH)
    parts["releases"] = releases
    return parts
