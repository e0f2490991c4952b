"""The environments: Gymnasium's interface around programs and states."""

from __future__ import annotations

from cann_env.envs.env import CannEnv, EpisodeOverError, Snapshot
from cann_env.envs.vector import CannVectorEnv

__all__ = ["CannEnv", "CannVectorEnv", "EpisodeOverError", "Snapshot"]
