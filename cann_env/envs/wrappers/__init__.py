"""The same problem in other shapes: Gymnasium wrappers around :class:`~cann_env.envs.CannEnv`.

None has an id of its own: each goes around every environment with whatever arguments that was made with, and
``env.spec`` remembers the wrapper and its arguments, so that ``gymnasium.make(env.spec)`` makes both again.
"""

from __future__ import annotations

from cann_env.envs.wrappers.mask_in_observation import Layout, MaskInObservation
from cann_env.envs.wrappers.one_shot import OneShotPriorities
from cann_env.envs.wrappers.plan_editing import PlanEditing
from cann_env.envs.wrappers.prefetch_distance import DISTANCES, PrefetchDistance

__all__ = ["DISTANCES", "Layout", "MaskInObservation", "OneShotPriorities", "PlanEditing", "PrefetchDistance"]
