"""The environments: Gymnasium's interface around programs and states, and wrappers for other shapes of it."""

from __future__ import annotations

from cann_env.envs.env import CannEnv, EpisodeOverError, Snapshot
from cann_env.envs.vector import CannVectorEnv
from cann_env.envs.wrappers import MaskInObservation, OneShotPriorities, PlanEditing, PrefetchDistance

__all__ = [
    "CannEnv",
    "CannVectorEnv",
    "EpisodeOverError",
    "MaskInObservation",
    "OneShotPriorities",
    "PlanEditing",
    "PrefetchDistance",
    "Snapshot",
]
