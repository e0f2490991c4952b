"""Prefetching by distance: a decision says what is issued, and how far ahead buffers are fetched after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cann_env.engine import wishes as by
from cann_env.engine.fetching import asked_move
from cann_env.envs.arguments import action_number
from cann_env.envs.wrappers.wrapped import inner_env
from cann_env.schedulers import Fetch, Rule
from cann_env.schedulers.assignment import notes_of
from cann_env.units import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISTANCES: Final[tuple[int | None, ...]] = (0, 1, 2, 4, 8, None)
"""How many of the next commands, by tail, buffers are fetched for; None for all."""


class PrefetchDistance(gymnasium.Wrapper[Any, np.int64, Any, Any], RecordConstructorArgs):
    """In place of single prefetches an agent chooses a distance, beside what it issues.

    ## Action Space
    `Discrete((K*S + 1)*6)`, with K slots of the ready window and S streams (1 with `window="startable"`).

    | Num | Meaning |
    |---|---|
    | `(k*S + s)*6 + d` | issue window command k to stream s, then prefetch at distance d |
    | `K*S*6 + d` | wait, then prefetch at distance d |

    Distances, by d: 0, 1, 2, 4, 8, all. After the issue or the wait, buffers are fetched from the host by
    the aggressive rule: while the link is free the most urgent one, if one of so many next commands by tail
    needs it. Nothing is prefetched any more once the commands need all steps that are left. An action is
    legal where its issue or its wait is: what is prefetched comes after it. Prefetches into L2 and offloads
    are left out.

    ## Observation Space
    That of the wrapped environment.

    ## Rewards
    The sum of the rewards of the issue, or the wait, and the prefetches after it. So the return is that of
    :class:`CannEnv`.

    ## Information
    That of the last of these steps, with `action_mask` for the actions above.

    ## What is kept
    Everything else: episodes, their ends, rendering, `schedule()`. `action_masks()` is that of these actions.

    ## Arguments
    | Argument | Default | Meaning |
    |---|---|---|
    | `env` | | an environment of this package with `prefetches` of at least 1 |
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        inner = inner_env(env, "PrefetchDistance")
        if inner.scenario.options.prefetches == 0:
            raise InputError(
                "PrefetchDistance needs slots; write options={'prefetches': 4}, or another number"
            )
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._inner = inner
        self._issues = inner.action_count - 1 - inner.scenario.options.slots
        self.action_count = (self._issues + 1) * len(DISTANCES)
        self.action_space = spaces.Discrete(self.action_count)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode of the wrapped environment."""
        seen, info = self.env.reset(seed=seed, options=options)
        return seen, self._told(info)

    def step(self, action: np.int64 | int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Issue or wait, and prefetch.

        Raises:
            InputError: The action is no whole number of the action space.
            EpisodeOverError: There is no episode, or it is over; call reset.
        """
        chosen, distance = divmod(action_number(action, self.action_count), len(DISTANCES))
        first = chosen if chosen < self._issues else self._inner.action_count - 1
        seen, reward, terminated, truncated, info = self.env.step(np.int64(first))
        total = float(reward)
        rule, notes = self._rule(DISTANCES[distance])
        while not (terminated or truncated):
            move = int(asked_move(self._inner.program.image, self._inner.get_state().state, rule, notes))
            if move < 0:
                break
            seen, reward, terminated, truncated, info = self.env.step(np.int64(move))
            total += float(reward)
        return seen, total, terminated, truncated, self._told(info)

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where an action is legal; the name that sb3-contrib looks for."""
        return self._widened(self._inner.action_masks())

    def _rule(self, ahead: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        program = self._inner.program
        words = Rule(fetch=Fetch.WHILE_FREE, ahead=ahead).words(program)
        nothing = np.zeros((len(program.graph.commands), by.D_WIDTH), np.int64)
        return words, notes_of(program, nothing)

    def _widened(self, mask: NDArray[Any]) -> NDArray[Any]:
        kept = np.append(mask[: self._issues], mask[-1])
        return np.repeat(kept, len(DISTANCES))

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "action_mask": self._widened(info["action_mask"])}
