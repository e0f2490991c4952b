"""Many environments side by side, stepped in one compiled call; environment i plays what ``CannEnv`` plays.

Actions go to the engine's batch kernel, which changes all states and writes what agents see of them. Only an
environment that begins another episode costs time of its own, for its instance is compiled in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from cann_env.engine.layout import (
    FINISHED,
    OUT_OF_MEMORY,
    OUT_OF_STEPS,
    P_BOUND_NS,
    P_NORM_NS,
    RUNNING,
    S_HBM_PEAK,
    S_INVALID,
    S_NOW_NS,
    S_STATUS,
    S_STEPS,
)
from cann_env.envs.env import CannEnv, EpisodeOverError, Snapshot
from cann_env.envs.instances import InstanceKey
from cann_env.envs.requests import action_numbers, autoreset_mode_of, count_of, reset_request, seeds_of
from cann_env.envs.reward import RewardTerms
from cann_env.envs.rows import Episode, Rows
from cann_env.envs.spaces import action_space, observation_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cann_env.schedule import Schedule

Observations = dict[str, NDArray[np.float32]]


class CannVectorEnv(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """N environments in one; :class:`CannEnv` says what they play.

    ## Spaces
    Those of :class:`CannEnv` with a first axis of N: actions are whole numbers (N,), observations float32
    (N, length), rewards float64 (N,), terminations and truncations bool (N,). `action_masks()` is bool
    (N, A).

    ## Starting State
    Environment i is `CannEnv(..., env_index=env_index + i)`, bit for bit. `reset(seed=7)` gives the run
    seed 7 to all, a list gives each its own (None in it: go on), `reset()` begins the next episode of each.
    `reset(options={"reset_mask": mask})` with bool (N,) resets only some, in every mode;
    `options={"instance": k}` picks episode k. The options are never changed.

    ## Autoreset
    | `autoreset_mode` | After the end of an episode |
    |---|---|
    | `"SameStep"` | the same step returns the first observation of the next episode |
    | `"NextStep"` | the next step ignores the action and returns it, with reward 0 |
    | `"Disabled"` | the environment must be reset, through `reset_mask`, before the next step |

    The mode is in `metadata["autoreset_mode"]` and in the attribute `autoreset_mode`.

    ## Information
    Beside every `key` stands `_key`, bool (N,): for which environments it holds.

    | Key | Value | When |
    |---|---|---|
    | `action_mask` | int8 (N, A) | always |
    | `time_ns`, `invalid_actions`, `episode_index` | int64 (N,) | always |
    | `schedule` | entries of :class:`CannEnv`, int64 (N,); `finished` bool (N,) | an episode ended |
    | `terms` | entries of :class:`CannEnv`, float64 (N,) | an episode ended |
    | `episode_return`, `episode_length` | float64 (N,), int64 (N,) | an episode ended |

    With `"SameStep"` all entries of the episode that ended are in `final_info`, and `final_obs` holds its
    last observation (objects (N,)).

    ## Arguments
    Those of :class:`CannEnv`, `env_index` being that of the first environment, and:

    | Argument | Default | Meaning |
    |---|---|---|
    | `num_envs` | 1 | how many environments (N) |
    | `autoreset_mode` | `"SameStep"` | see above; or a `gymnasium.vector.AutoresetMode` |
    | `copy` | True | fresh observations; False hands out the arrays that the next step writes to |

    Attributes:
        scenario: What is played.
        autoreset_mode: The mode, as an ``AutoresetMode``.
    """

    def __init__(
        self,
        scenario: str | Path | Mapping[str, Any] = "pipeline",
        *,
        num_envs: int = 1,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        memory_factor: float | None = None,
        prefetch_mask: str | None = None,
        observation: str = "window",
        graph_capacity: tuple[int, int] | None = None,
        env_index: int = 0,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
    ) -> None:
        self._one = CannEnv(
            scenario,
            device=device,
            options=options,
            memory_factor=memory_factor,
            prefetch_mask=prefetch_mask,
            observation=observation,
            graph_capacity=graph_capacity,
            env_index=env_index,
            render_mode=render_mode,
        )
        self.scenario = self._one.scenario
        self.num_envs = count_of(num_envs)
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        self.metadata = {**CannEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.copy = copy
        self.single_action_space = action_space(self.scenario.options)
        self.single_observation_space = observation_space(self.scenario.options, self._one.graph_capacity)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._choices = int(self.single_action_space.n)
        self._rows = Rows(self.num_envs, self.scenario.options, self._one.graph_capacity)
        self._next = [InstanceKey(0, env_index + i, 0) for i in range(self.num_envs)]
        self._seeded = np.zeros(self.num_envs, np.bool_)
        self._ended: list[Snapshot | None] = [None] * self.num_envs
        self._terms = np.zeros((len(RewardTerms._fields), self.num_envs))
        self._returns = np.zeros(self.num_envs)

    # --- episodes -----------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin the next episodes; see the class docstring for ``seed`` and ``options``.

        Raises:
            InputError: A seed or an option that is not right.
            EpisodeOverError: ``reset_mask`` leaves out an environment that has no episode yet.
        """
        request = reset_request(options, self.num_envs)
        seeds = seeds_of(seed, self.num_envs)
        super().reset(seed=int(seed) if isinstance(seed, int | np.integer) else None)
        self._need_episodes(but=request.rows)
        self._seed(request.rows, seeds)
        self._begin(request.rows, request.instance)
        if self.render_mode == "human":
            self.render()
        return self._observations(), _gathered(self._facts(), np.ones(self.num_envs, np.bool_))

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one decision in every environment.

        Raises:
            InputError: Not one whole number of the action space for each environment.
            EpisodeOverError: An environment has no episode, or one that is over and not begun by itself.
        """
        self._need_episodes()
        chosen = action_numbers(actions, self.num_envs, self._choices)
        was_over = self._rows.of_states(S_STATUS) != RUNNING
        if self.autoreset_mode is not AutoresetMode.NEXT_STEP and was_over.any():
            raise EpisodeOverError(
                f"the episode of environment {int(was_over.argmax())} is over; call "
                "reset(options={'reset_mask': terminations | truncations}) before step()"
            )
        illegal = self._rows.of_states(S_INVALID)
        rises = self._rows.step(chosen)
        rewards = self._reward(rises, self._rows.of_states(S_INVALID) - illegal)
        status = self._rows.of_states(S_STATUS)
        truncated = ~was_over & (status == OUT_OF_STEPS)
        terminated = ~was_over & ((status == FINISHED) | (status == OUT_OF_MEMORY))
        infos = self._turn_over(was_over, terminated | truncated)
        if self.render_mode == "human":
            self.render()
        return self._observations(), rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """True where an action is legal, bool (N, A); the name that sb3-contrib looks for."""
        self._need_episodes()
        return self._rows.views.masks.astype(np.bool_)

    # --- looking back and branching -----------------------------------------------------------------

    def environment(self, i: int) -> CannEnv:
        """An independent single environment that stands where environment i stands."""
        self._need_episodes()
        self._one.set_state(self._snapshot(i))
        return self._one.clone()

    def schedule(self, i: int) -> Schedule:
        """The schedule of the episode of environment i that ended last.

        Raises:
            EpisodeOverError: None has ended yet, or it ended before all commands were done.
        """
        ended = self._ended[i]
        if ended is None:
            raise EpisodeOverError(f"no episode of environment {i} has ended yet")
        self._one.set_state(ended)
        return self._one.schedule()

    def render(self) -> tuple[Any, ...] | None:
        """What each environment draws; see :meth:`CannEnv.render`."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode; pass render_mode='ansi' to make_vec()")
            return None
        return tuple(self.environment(i).render() for i in range(self.num_envs))

    # --- inside -------------------------------------------------------------------------------------

    def _need_episodes(self, but: Sequence[int] | NDArray[np.int64] = ()) -> None:
        missing = sorted(self._rows.empty - set(but))
        if missing:
            raise EpisodeOverError(f"environment {missing[0]} has no episode yet; call reset() first")

    def _seed(self, rows: NDArray[np.int64], seeds: list[int | None]) -> None:
        """Set the runs of some environments; those that never had a seed share one that is drawn."""
        unseeded = [i for i in rows.tolist() if seeds[i] is None and not self._seeded[i]]
        drawn = int(self.np_random.integers(2**31)) if unseeded else None
        for i in rows.tolist():
            run = drawn if i in unseeded else seeds[i]
            if run is not None:
                self._next[i] = InstanceKey(run, self._next[i].env_index, 0)
        self._seeded[rows] = True

    def _begin(self, rows: NDArray[np.int64], instance: int | None = None) -> None:
        """Bring some environments to the first decision of an episode."""
        source = self._one.source
        for i in rows.tolist():
            key = self._next[i] if instance is None else self._next[i]._replace(episode=instance)
            self._next[i] = key._replace(episode=key.episode + 1)
            program = source.program(key)
            self._rows.load(i, Episode(key, program, source.noise(program, key)))
        self._terms[:, rows] = 0.0
        self._returns[rows] = 0.0
        self._rows.look(rows)

    def _reward(self, rises: NDArray[np.int64], illegal: NDArray[np.int64]) -> NDArray[np.float64]:
        progress, invalid, failure = terms = batched_terms(
            rises,
            self._rows.of_programs(P_NORM_NS),
            illegal=illegal,
            penalty=self.scenario.options.invalid_penalty,
            failed=np.isin(self._rows.of_states(S_STATUS), (OUT_OF_MEMORY, OUT_OF_STEPS)),
        )
        rewards: NDArray[np.float64] = progress + invalid + failure  # in the order of RewardTerms.total
        self._terms += terms
        self._returns += rewards
        return rewards

    def _turn_over(self, was_over: NDArray[np.bool_], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Begin the episodes whose time has come; returns the information of the step."""
        everyone = np.ones(self.num_envs, np.bool_)
        for i in np.flatnonzero(ended).tolist():
            self._ended[i] = self._snapshot(i)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            last = {
                "final_obs": self._last_observations(ended),
                "_final_obs": ended.copy(),
                "final_info": _gathered(self._facts() | self._results(), ended),
                "_final_info": ended.copy(),
            }
            self._begin(np.flatnonzero(ended))
            return _gathered(self._facts(), everyone) | last
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and was_over.any():
            self._begin(np.flatnonzero(was_over))
        infos = _gathered(self._facts(), everyone)
        return infos | _gathered(self._results(), ended) if ended.any() else infos

    def _snapshot(self, i: int) -> Snapshot:
        key, program, noise = self._rows.episodes[i]
        return Snapshot(program, self._rows.state(i), noise, key, RewardTerms(*self._terms[:, i].tolist()))

    def _observations(self) -> Observations:
        parts = self._rows.observations()
        return {name: part.copy() for name, part in parts.items()} if self.copy else parts

    def _last_observations(self, ended: NDArray[np.bool_]) -> NDArray[np.object_]:
        last = np.full(self.num_envs, None, dtype=object)
        parts = self._rows.observations()
        for i in np.flatnonzero(ended).tolist():
            last[i] = {name: part[i].copy() for name, part in parts.items()}
        return last

    def _facts(self) -> dict[str, Any]:
        """Information that every step has."""
        return {
            "action_mask": self._rows.views.masks,
            "time_ns": self._rows.of_states(S_NOW_NS),
            "invalid_actions": self._rows.of_states(S_INVALID),
            "episode_index": self._rows.episode_numbers(),
        }

    def _results(self) -> dict[str, Any]:
        """Information about episodes that have ended."""
        steps = self._rows.of_states(S_STEPS)
        return {
            "schedule": {
                "makespan_ns": self._rows.of_states(S_NOW_NS),
                "lower_bound_ns": self._rows.of_programs(P_BOUND_NS),
                "steps": steps,
                "peak_hbm_bytes": self._rows.of_states(S_HBM_PEAK),
                "finished": self._rows.of_states(S_STATUS) == FINISHED,
            },
            "terms": dict(zip(RewardTerms._fields, self._terms, strict=True)),
            "episode_return": self._returns,
            "episode_length": steps,
        }


def batched_terms(
    rises_ns: NDArray[np.int64],
    norms_ns: NDArray[np.int64],
    *,
    illegal: NDArray[np.int64],
    penalty: float,
    failed: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """:func:`cann_env.envs.reward.reward_terms` of N environments, one row a term: float64 (3, N)."""
    progress = -rises_ns / norms_ns
    return np.stack([np.where(failed, 0.0, progress), -penalty * illegal, np.where(failed, progress, 0.0)])


def _gathered(values: Mapping[str, Any], present: NDArray[np.bool_]) -> dict[str, Any]:
    """Information as vector environments give it: fresh arrays, zero where it does not hold, and its mask."""
    infos: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            infos[key] = _gathered(value, present)
        else:
            infos[key] = value.copy()
            infos[key][~present] = 0
        infos[f"_{key}"] = present.copy()
    return infos
