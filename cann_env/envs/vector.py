"""Many environments side by side, stepped in one compiled call; environment i plays what ``CannEnv`` plays.

Actions go to the engine, which changes all states, begins the episodes that it can, and writes what agents
see of them; rows of its arrays come out as Gymnasium wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from cann_env.engine.episodes import SUM_REWARD
from cann_env.envs.env import CannEnv, EpisodeOverError, Snapshot
from cann_env.envs.infos import facts_of, last_facts, last_observations, masked, results_of
from cann_env.envs.instances import INSTANCES, ProgramSource
from cann_env.envs.requests import (
    action_numbers,
    autoreset_mode_of,
    count_of,
    reset_request,
    seeds_of,
    thread_count_of,
    wrong_action,
)
from cann_env.envs.reward import RewardTerms
from cann_env.envs.rows import Rows
from cann_env.envs.spaces import action_space, observation_space
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cann_env.schedule import Schedule

_PROGRAMS_KEPT = 16  # for looking back: what is played is in the pool

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
    last observation (objects (N,): a dictionary, or None).

    ## Cost
    All that a step or a reset returns is fresh. With `copy=False` the arrays of observations, rewards,
    terminations, truncations, `action_mask`, `time_ns`, `invalid_actions` and `episode_index` are made once,
    and the next step or reset writes to them; everything else, `final_obs`, `final_info` and
    `action_masks()` among it, is fresh all the same.

    A graph is compiled when it is played first, in Python, which takes as long as thousands of steps; from
    then on its episodes begin within the compiled call. The images of at most `instances` graphs and N more
    are kept, about 600 bytes a command each (of several run seeds together; what nobody plays makes way), and
    one state an environment, about 1 kB a command. With noise, and with `instances=None`, every episode
    begins in Python. `threads` share the environments; what comes out does not depend on how many there are.

    ## Arguments
    Those of :class:`CannEnv`, `env_index` being that of the first environment, and:

    | Argument | Default | Meaning |
    |---|---|---|
    | `num_envs` | 1 | how many environments (N) |
    | `autoreset_mode` | `"SameStep"` | see above; or a `gymnasium.vector.AutoresetMode` |
    | `copy` | True | fresh arrays; False hands out those that the next step writes to |
    | `threads` | 1 | threads that step them; more than there are processors do not pay |

    Attributes:
        scenario: What is played.
        autoreset_mode: The mode, as an ``AutoresetMode``.
        instances: Different graphs that a run plays at most; None if every episode has its own.
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
        instances: int | None = INSTANCES,
        env_index: int = 0,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        threads: int = 1,
    ) -> None:
        self._one = CannEnv(
            scenario,
            device=device,
            options=options,
            memory_factor=memory_factor,
            prefetch_mask=prefetch_mask,
            observation=observation,
            graph_capacity=graph_capacity,
            instances=instances,
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
        kept = _PROGRAMS_KEPT if self.scenario.options.noise == 0.0 else None  # drawing asks for all of them
        self._one.source = ProgramSource(self.scenario, instances, kept)
        self.instances = self._one.source.instances
        self._rows = Rows(
            self._one.source,
            self.num_envs,
            env_index=env_index,
            graph=self._one.graph_capacity,
            same_step=self.autoreset_mode is AutoresetMode.SAME_STEP,
            fresh=copy,
            threads=thread_count_of(threads),
        )
        self._actions = np.zeros(self.num_envs, np.int64)
        self._seeded = np.zeros(self.num_envs, np.bool_)
        self._everyone = np.ones(self.num_envs, np.bool_)

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
        self._rows.renew()
        self._rows.begin(request.rows, request.instance)
        if request.rows.size < self.num_envs:
            self._rows.look(np.setdiff1d(np.arange(self.num_envs), request.rows))
        if self.render_mode == "human":
            self.render()
        return self._rows.parts(self._rows.seen), masked(self._facts(), self._marks(self._everyone))

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one decision in every environment.

        Raises:
            InputError: Not one whole number of the action space for each environment.
            EpisodeOverError: An environment has no episode, or one that is over and not begun by itself.
        """
        rows = self._rows
        self._need_episodes()
        if rows.stopped and self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise self._over()
        self._take(actions)
        rows.renew()
        ended = rows.step(self._actions)
        rewards, (terminated, truncated), _ = rows.given
        infos = masked(self._facts(), self._marks(self._everyone))
        if ended:
            infos |= self._endings(terminated | truncated)
        if self.render_mode == "human":
            self.render()
        return rows.parts(rows.seen), rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """True where an action is legal, bool (N, A); the name that sb3-contrib looks for."""
        self._need_episodes()
        return self._rows.seen.masks.astype(np.bool_)

    # --- looking back and branching -----------------------------------------------------------------

    def environment(self, i: int) -> CannEnv:
        """An independent single environment that stands where environment i stands."""
        self._need_episodes()
        key = self._rows.key(i)
        program = self._one.source.program(key)
        noise = self._one.source.noise(program, key)
        terms = RewardTerms(*self._rows.books.sums[i, :SUM_REWARD].tolist())
        self._one.set_state(Snapshot(program, self._rows.state(i), noise, key, terms))
        return self._one.clone()

    def instance_number(self, i: int) -> int | None:
        """Which of its run's graphs environment i plays; None if every episode has one of its own."""
        self._need_episodes()
        return self._one.source.number(self._rows.key(i))

    def schedule(self, i: int) -> Schedule:
        """The schedule of the episode of environment i that ended last.

        Raises:
            EpisodeOverError: None has ended yet, or it ended before all commands were done.
        """
        ended = self._rows.ended(i)
        if ended is None:
            raise EpisodeOverError(f"no episode of environment {i} has ended yet")
        if not ended.finished:
            raise EpisodeOverError(
                f"the last episode of environment {i} has not finished; it ran out of memory or steps"
            )
        program = self._one.source.program(ended.key)
        return record_schedule(program, ended.actions, noise=self._one.source.noise(program, ended.key))

    def render(self) -> tuple[Any, ...] | None:
        """What each environment draws; see :meth:`CannEnv.render`."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode; pass render_mode='ansi' to make_vec()")
            return None
        return tuple(self.environment(i).render() for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads; the next step starts new ones."""
        if hasattr(self, "_rows"):  # Gymnasium 1.2 also closes what was refused while it was made
            self._rows.close()

    # --- inside -------------------------------------------------------------------------------------

    def _need_episodes(self, but: Sequence[int] | NDArray[np.int64] = ()) -> None:
        if not self._rows.complete:
            missing = sorted(set(self._rows.empty().tolist()) - set(but))
            if missing:
                raise EpisodeOverError(f"environment {missing[0]} has no episode yet; call reset() first")

    def _over(self) -> EpisodeOverError:
        return EpisodeOverError(
            f"the episode of environment {self._rows.over()[0]} is over; call "
            "reset(options={'reset_mask': terminations | truncations}) before step()"
        )

    def _take(self, actions: Any) -> None:
        """Copy the actions to where the engine reads them.

        Raises:
            InputError: Not one whole number of the action space for each environment.
        """
        count, choices = self.num_envs, self._one.action_count
        self._actions[:] = action_numbers(actions, count, choices)
        wrong = self._rows.wrong(self._actions)
        if wrong >= 0:
            raise wrong_action(actions, wrong, count, choices)

    def _seed(self, rows: NDArray[np.int64], seeds: list[int | None]) -> None:
        """Set the runs of some environments; those that never had a seed share one that is drawn."""
        unseeded = [i for i in rows.tolist() if seeds[i] is None and not self._seeded[i]]
        drawn = int(self.np_random.integers(2**31)) if unseeded else None
        given = {i: seed for i in rows.tolist() if (seed := seeds[i]) is not None}
        given |= {i: drawn for i in unseeded if drawn is not None}
        if given:
            self._rows.set_seeds(given)
        self._seeded[rows] = True

    def _facts(self) -> dict[str, Any]:
        masks = self._rows.seen.masks
        return facts_of(masks.copy() if self.copy else masks, self._rows.given.facts)

    def _marks(self, marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return marks.copy() if self.copy else marks

    def _endings(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """What a step tells in which episodes ended."""
        rows = np.flatnonzero(ended)
        books, last = self._rows.books, self._rows.last
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return masked(results_of(books, rows), ended)
        told = last_facts(books, rows, last.masks) | results_of(books, rows)
        return {
            "final_obs": last_observations(self._rows.parts(last, rows), rows, self.num_envs),
            "_final_obs": ended,
            "final_info": masked(told, ended.copy()),
            "_final_info": ended.copy(),
        }
