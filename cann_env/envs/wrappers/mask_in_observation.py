"""The mask beside the observation, by the names under which learning libraries look for it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cann_env.envs.wrappers.wrapped import inner_env
from cann_env.units import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Layout(enum.StrEnum):
    """Whose names: those of RLlib's masked modules, TorchRL's ``ActionMask``, Tianshou's policies."""

    RLLIB = "rllib"
    TORCHRL = "torchrl"
    TIANSHOU = "tianshou"


_NAMES = {
    Layout.RLLIB: ("observations", "action_mask"),
    Layout.TORCHRL: ("observation", "action_mask"),
    Layout.TIANSHOU: ("obs", "mask"),
}


class MaskInObservation(gymnasium.Wrapper[Any, np.int64, Any, Any], RecordConstructorArgs):
    """Puts the mask of legal actions into the observation.

    ## Action Space
    That of the wrapped environment, a `Discrete(A)`.

    ## Observation Space
    A `Dict` with the observation of the wrapped environment and its mask. 1 stands for a legal action;
    after the last step of an episode nothing is legal.

    | `layout` | Observation | Mask | Space of the mask |
    |---|---|---|---|
    | `"rllib"` | `observations` | `action_mask` | `Box(0, 1, (A,), float32)` |
    | `"torchrl"` | `observation`; its parts as `observation_...` | `action_mask` | `MultiBinary(A)` |
    | `"tianshou"` | `obs` | `mask` | `MultiBinary(A)` |

    With `flat` the observation is one float32 vector, its parts in the order of the space (by name), as
    :func:`gymnasium.spaces.flatten` has them. Without it, it is the `Dict` it was, one storey deeper, which
    Stable-Baselines3 and RLlib's standard networks refuse. With the layout of TorchRL the parts then stand
    beside the mask, with `observation_` before their names, as TorchRL has no room for an entry by the name
    of `device`.

    A mask must not be normalised: leave its key out where running means are taken (`norm_obs_keys` of
    `VecNormalize`, `in_keys` of TorchRL's `ObservationNorm`), and wrap this around what normalises
    observations one by one.

    ## Rewards
    Those of the wrapped environment.

    ## What is kept
    Everything else: `action_masks()`, `info`, episodes, rendering.

    ## Arguments
    | Argument | Default | Meaning |
    |---|---|---|
    | `env` | | an environment of this package, as `gymnasium.make` makes it, or with wrappers around it |
    | `layout` | | see above |
    | `flat` | True | one vector in place of a `Dict` |
    """

    def __init__(self, env: gymnasium.Env[Any, Any], layout: str, *, flat: bool = True) -> None:
        inner_env(env, "MaskInObservation")
        if layout not in tuple(Layout):
            known = ", ".join(repr(each.value) for each in Layout)
            raise InputError(f"layout is {layout!r}; write one of {known}")
        if not isinstance(env.action_space, spaces.Discrete):
            raise InputError(
                f"MaskInObservation is for numbered actions, some of them illegal, not for {env.action_space}"
            )
        RecordConstructorArgs.__init__(self, layout=str(layout), flat=bool(flat))
        gymnasium.Wrapper.__init__(self, env)
        self._layout = Layout(layout)
        self._seen, self._mask = _NAMES[self._layout]
        self._inside: spaces.Space[Any] = env.observation_space
        self.flat = bool(flat)
        count = int(env.action_space.n)
        mask = (
            spaces.Box(0.0, 1.0, (count,), np.float32)
            if self._layout is Layout.RLLIB
            else spaces.MultiBinary(count)
        )
        seen = spaces.flatten_space(self._inside) if flat else self._inside
        parts = {self._seen: seen} if flat else self._named(seen)
        self.observation_space = spaces.Dict({**parts, self._mask: mask})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin the next episode of the wrapped environment."""
        seen, info = self.env.reset(seed=seed, options=options)
        return self._observation(seen, info), info

    def step(self, action: np.int64) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Take a step of the wrapped environment."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        return self._observation(seen, info), reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where an action is legal, from the wrapped environment."""
        masks: NDArray[np.bool_] = self.env.get_wrapper_attr("action_masks")()
        return masks

    def _observation(self, seen: Any, info: dict[str, Any]) -> dict[str, Any]:
        # A copy: the mask stays in the information too, and neither may change with the other.
        kind = np.float32 if self._layout is Layout.RLLIB else np.int8
        mask = np.array(info["action_mask"], kind)
        if self.flat:
            return {self._seen: spaces.flatten(self._inside, seen), self._mask: mask}
        return {**self._named(seen), self._mask: mask}

    def _named(self, parts: Any) -> dict[str, Any]:
        """An observation that is a dictionary, or its space, as it stands beside the mask."""
        if self._layout is Layout.TORCHRL:
            return {f"{self._seen}_{name}": part for name, part in parts.items()}
        return {self._seen: parts}
