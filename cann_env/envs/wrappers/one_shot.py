"""A whole schedule as one action: priorities of all commands, which compiled list scheduling carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cann_env.engine.layout import FINISHED, P_NORM_NS, S_HEADER, S_OBJECTIVE_NS, S_STATUS
from cann_env.envs.env import EpisodeOverError, Snapshot
from cann_env.envs.infos import info_of
from cann_env.envs.requests import thread_count_of
from cann_env.envs.reward import reward_terms
from cann_env.envs.workers import Workers
from cann_env.envs.wrappers.priorities import Priorities, knobs_of, launch_of
from cann_env.envs.wrappers.wrapped import begun, capacity_of, inner_env, static_graph, static_space
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from cann_env.schedule import Schedule
    from cann_env.schedulers import Assignment

_AT_ONCE = 64  # candidates of one compiled call: their tables fit the cache

Observation = dict[str, "NDArray[np.float32]"]


class OneShotPriorities(
    gymnasium.Wrapper[Observation, "NDArray[np.float32]", Any, Any], RecordConstructorArgs
):
    """One decision an episode: how urgent each command is. List scheduling, compiled, does the rest.

    For evolution strategies, bandits, black-box optimisers and one-shot reinforcement learning.

    ## Action Space
    `Box(-1, 1, (N + J,), float32)`, with N rows of the padded graph and J knobs of the launch rule.

    | Num | Meaning |
    |---|---|
    | `i` < N | priority of command i, which is row i of `nodes`; the largest goes first |
    | `N + j` | knob j, in the order of `knobs` |

    Of equal priorities the command with the longer tail goes first, so that zeros everywhere are list
    scheduling by descending tail. Entries of rows without a command are ignored. Commands come to streams
    as the rule `launch` says (:class:`~cann_env.schedulers.Launch`), at every instant the first in the
    order that may go; a predecessor goes first whatever its priority. Knobs are cut to [-1, 1], and u is
    `(knob + 1) / 2`:

    | Knob | Meaning | Heeded by |
    |---|---|---|
    | `fit` | least part u of its blocks that must find a free core | `just_in_time` |
    | `depth` | queue behind at most u of the in-flight limit | `chained`, `eager` |
    | `streams` | 1 and u of the others are used | all |
    | `ahead` | prefetch for the next `(n + 1)**u - 1` of n commands by tail; all if u is 1 | all |
    | `lift` | prefetch into L2 while nothing else is copied there if u > 0.5 | all |

    ## Observation Space
    The padded graph before anything is decided, as a `Dict` of float32 vectors: `nodes`, `node_mask`,
    `edge_index` and `edge_mask` as :class:`CannEnv` has them with `observation="graph"`, and `releases`.
    Times are divided by the lower bound. Commands that are released later are there too: priorities of a
    whole schedule are about all of them.

    | Key | Shape | Low | High | Meaning |
    |---|---|---|---|---|
    | `nodes` | (N*16,) | 0 | 10 | every command, undecided |
    | `node_mask` | (N,) | 0 | 1 | 1 for a command |
    | `edge_index` | (2*E,) | 0 | N | E producers, then E consumers |
    | `edge_mask` | (E,) | 0 | 1 | 1 for an edge |
    | `releases` | (N,) | 0 | 10 | when a command is released |

    The observation after the step is the same once more.

    ## Rewards
    What :class:`CannEnv` would give in sum for the same schedule: `-(objective - lower bound) / lower
    bound`, with the price of running out of memory or steps if it comes to that. Realised durations count,
    where there is noise.

    ## Episode End
    Termination after the one step.

    ## Information
    As of :class:`CannEnv`, without `action_mask`; after the step that of its last step.

    ## What is kept
    Seeds, `reset(options=...)`, instances, rendering, `schedule()` and the state: `env.unwrapped` stands at
    the end of the episode that the priorities came to. Its own actions are taken by nobody, nor are
    wrappers in between stepped. :meth:`evaluate` tries many actions on the present instance in one compiled
    call.

    ## Arguments
    | Argument | Default | Meaning |
    |---|---|---|
    | `env` | | an environment of this package, as `gymnasium.make` makes it |
    | `launch` | `"just_in_time"` | or `"chained"`, `"eager"`, `"round_robin"` |
    | `knobs` | None | names; None for `fit` or `depth`, and `ahead` where there are prefetches |
    | `capacity` | None | (N, E) of the padded graph; None for the environment's, or what its scenario needs |

    No id is registered for it: `OneShotPriorities(gymnasium.make(id))` does for every scenario, device and
    option, and `env.spec` remembers the wrapper with its arguments.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        launch: str = "just_in_time",
        knobs: Sequence[str] | None = None,
        capacity: Sequence[int] | None = None,
    ) -> None:
        inner = inner_env(env, "OneShotPriorities")
        rule = launch_of(launch)
        names = knobs_of(rule, knobs, inner.scenario.options)
        self.capacity = capacity_of(inner, capacity)
        RecordConstructorArgs.__init__(
            self, launch=launch, knobs=knobs and list(knobs), capacity=capacity and list(capacity)
        )
        gymnasium.Wrapper.__init__(self, env)
        self.knobs = names
        self._inner = inner
        self._launch = rule
        self._start: Snapshot | None = None
        self._priorities: Priorities | None = None
        self._seen: Observation = {}
        self._over = True
        self.action_space = spaces.Box(-1.0, 1.0, (self.capacity.nodes + len(names),), np.float32)
        self.observation_space = cast(
            "spaces.Space[Observation]", spaces.Dict(static_space(inner.scenario.options, self.capacity))
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode, as :meth:`CannEnv.reset` does.

        Raises:
            InputError: As there; or the graph does not fit the capacity.
        """
        _, info = self.env.reset(seed=seed, options=options)
        self._start = start = self._inner.get_state()
        self._seen = static_graph(start.program, self.capacity)
        self._priorities = Priorities(
            start.program, self._launch, self.knobs, rows=self.capacity.nodes, noise=start.noise
        )
        self._over = False
        return self._observation(), _without_mask(info)

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out priorities and end the episode.

        Raises:
            InputError: The action has another shape, or holds something that is no number.
            EpisodeOverError: There is no episode, or it is over; call reset.
        """
        start, priorities = begun(self._start), self._decoded()
        if self._over:
            raise EpisodeOverError("the episode is over; call reset() before step()")
        state = priorities.play(self._actions(action, one=True)[0])
        self._over = True
        rise = int(state[S_OBJECTIVE_NS] - start.state[S_OBJECTIVE_NS])
        terms = reward_terms(
            rise,
            int(start.program.image[P_NORM_NS]),
            illegal=0,
            penalty=0.0,
            failed=state[S_STATUS] != FINISHED,
        )
        self._inner.set_state(start._replace(state=state, terms=terms))
        if self.render_mode == "human":
            self._inner.render()
        info = info_of(
            start.program, state, state[:S_HEADER].tolist(), episode=start.key.episode, terms=terms
        )
        return self._observation(), terms.total, True, False, _without_mask(info)

    def evaluate(self, actions: ArrayLike, *, threads: int = 1) -> NDArray[np.float64]:
        """Rewards that actions would get on the present instance, which stays as it is.

        Args:
            actions: (M, N + J), a row for each candidate.
            threads: Threads that share the candidates; what comes out does not depend on how many there are.

        Returns:
            (M,) exactly what :meth:`step` would return for each.

        Raises:
            InputError: Another shape, or something that is no number.
            EpisodeOverError: There is no episode yet; call reset.
        """
        start, priorities = begun(self._start), self._decoded()
        given = self._actions(actions, one=False)
        objectives = np.empty(len(given), np.int64)

        def play(rows: NDArray[np.int64]) -> tuple[int, ...]:
            objectives[rows] = priorities.play_many(given[rows])
            return ()

        parts = [np.arange(i, min(i + _AT_ONCE, len(given))) for i in range(0, len(given), _AT_ONCE)]
        if parts:
            workers = Workers(thread_count_of(threads))
            try:
                workers.run(play, parts)
            finally:
                workers.close()
        rises: NDArray[np.int64] = objectives - start.state[S_OBJECTIVE_NS]
        return -rises / int(start.program.image[P_NORM_NS])

    def assignment(self, action: ArrayLike) -> Assignment:
        """What an action means for the present instance: an order of commands, and how they are launched.

        Raises:
            InputError, EpisodeOverError: As :meth:`evaluate`.
        """
        return self._decoded().assignment(self._actions(action, one=True)[0])

    def schedule(self) -> Schedule:
        """The schedule that the priorities came to; see :meth:`CannEnv.schedule`."""
        return self._inner.schedule()

    def _decoded(self) -> Priorities:
        begun(self._start)
        assert self._priorities is not None  # it comes with the episode
        return self._priorities

    def _observation(self) -> Observation:
        return {name: part.copy() for name, part in self._seen.items()}

    def _actions(self, actions: ArrayLike, *, one: bool) -> NDArray[np.float64]:
        """Actions as a table (M, N + J) of finite numbers."""
        (width,) = self.action_space.shape or (0,)
        wanted = f"write {width} numbers, {self.capacity.nodes} priorities and {len(self.knobs)} knobs"
        try:
            table = np.asarray(actions, np.float64)
        except (TypeError, ValueError):
            raise InputError(f"actions of OneShotPriorities are no plain numbers; {wanted}") from None
        table = table[np.newaxis] if one else table
        if table.ndim != 2 or table.shape[1] != width:
            shape = table.shape[1:] if one else table.shape
            raise InputError(
                f"{'an action' if one else 'actions'} of OneShotPriorities has shape {shape}; {wanted}"
                + ("" if one else " a row")
            )
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0].tolist()
            raise InputError(
                f"entry {column} of action {row} of OneShotPriorities is {table[row, column]}; {wanted}"
            )
        return table


def _without_mask(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name != "action_mask"}
