"""The CANN Runtime of an Ascend NPU, simulated, as a Gymnasium environment for schedulers.

Importing the package registers its environments::

    import gymnasium
    env = gymnasium.make("cann_env:cann/Pipeline-v0")
"""

from __future__ import annotations

from typing import Final

import gymnasium

from cann_env.units import AclError, CannEnvError, InputError

__version__ = "0.1.0"

__all__ = ["ENVIRONMENTS", "AclError", "CannEnvError", "InputError", "__version__"]

ENVIRONMENTS: Final[dict[str, str]] = {
    "cann/Pipeline-v0": "pipeline",
    "cann/Serving-v0": "serving",
    "cann/Random-v0": "random",
    "cann/Training-v0": "training",
    "cann/Oversubscribed-v0": "oversubscribed",
}
"""Registered ids and the scenario of each."""


def _register() -> None:
    for env_id, scenario in ENVIRONMENTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="cann_env.envs:CannEnv",
                vector_entry_point="cann_env.envs:CannVectorEnv",
                kwargs={"scenario": scenario},
            )


_register()
