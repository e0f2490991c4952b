"""Editing a plan: an episode begins with a scheduler's plan, and an action changes one thing about it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cann_env.engine.layout import P_NORM_NS, S_HEADER, S_WAKES
from cann_env.engine.observe import OBS_HIGH
from cann_env.envs.arguments import action_number
from cann_env.envs.env import EpisodeOverError, Snapshot
from cann_env.envs.infos import ending_of
from cann_env.envs.reward import RewardTerms
from cann_env.envs.wrappers.plan_features import encode_plan, plan_space
from cann_env.envs.wrappers.wrapped import begun, capacity_of, inner_env, static_graph
from cann_env.schedulers import check_scheduler, decide, make_scheduler
from cann_env.schedulers.edits import Draft, Edits, Played, Shift
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedule import Schedule
    from cann_env.schedulers import Plan

Observation = dict[str, "NDArray[np.float32]"]

_PLANS_KEPT = 64


class PlanEditing(gymnasium.Wrapper[Observation, np.int64, Any, Any], RecordConstructorArgs):
    """Improves a scheduler's plan: each step changes one thing about it and simulates it anew.

    A plan is a list of places. At each a command is issued to a stream, or a buffer is moved, not before a
    number of completions, arrivals and releases have happened. Unchanged it plays what the scheduler
    decided, to the nanosecond. What cannot be done when its turn comes is waited for; a move of a buffer
    that cannot be made any more is left out.

    ## Action Space
    `Discrete(N*(S + 4) + 2*M + 1)`, with N rows for commands, S streams and M rows for moves of buffers.

    | Num | Meaning |
    |---|---|
    | `c*(S + 4) + s`, s < S | command c goes to stream s |
    | `c*(S + 4) + S` | it changes places with the command issued before it |
    | `c*(S + 4) + S + 1` | it changes places with the command issued after it |
    | `c*(S + 4) + S + 2` | its place waits for one completion, arrival or release fewer |
    | `c*(S + 4) + S + 3` | its place waits for one more |
    | `N*(S + 4) + 2*m` | move m (prefetch, lift, offload) changes places with what comes before it |
    | `N*(S + 4) + 2*m + 1` | it changes places with what comes after it |
    | `N*(S + 4) + 2*M` | the plan stays as it is |

    What places wait for does not change with who stands there. A stream is a name: commands of one stream
    follow one another, and a stream that has run empty goes on on the lowest idle one of its die and
    priority, as others are not legal in :class:`CannEnv`. With `window="startable"` streams are implied and
    no command can change its own.

    Legal edits are in `info["action_mask"]` (int8) and from `action_masks()` (bool). No command may pass
    one that it depends on, nor go where it is already. An edit that is not legal changes nothing, is
    counted, costs `invalid_penalty` and is one of the budget.

    ## Observation Space
    A `Dict` of float32 vectors; tables are written row after row. Times are divided by the lower bound, and
    all features are cut to [0, 10].

    | Key | Shape | Low | High | Meaning |
    |---|---|---|---|---|
    | `commands` | (N*18,) | 0 | 10 | every command and what the plan makes of it |
    | `moves` | (M*6,) | 0 | 10 | moves of buffers, by their place in the first plan |
    | `plan` | (6,) | 0 | 10 | the plan as a whole |
    | `edge_index` | (2*E,) | 0 | N | E producers, then E consumers |
    | `edge_mask` | (E,) | 0 | 1 | 1 for an edge |

    Columns of `commands`: 0 filled; 1 start; 2 finish; 3 (stream it is given + 1) / S; 4 stall: time from
    when its predecessors and the command before it on the device's stream were done, and it was released,
    to its start; 5 slack: time from its finish to the first start of a successor or of the command behind
    it on the stream, or to the end; 6 (place + 1) / places; 7 what its place waits for / all completions,
    arrivals and releases; 8 tail; 9 duration; 10-16 class; 17 cores its blocks take / pool.
    Columns of `moves`: 0 filled; 1-3 prefetch, lift, offload; 4 (place + 1) / places; 5 size / HBM.
    Columns of `plan`: objective over its lower bound, less 1, of 0 this plan, 1 the first one, 2 the best
    so far; 3 edits used / budget; 4 issues out of turn / commands; 5 moves left out / (moves + 1).

    ## Rewards
    `(objective before - objective after) / lower bound`, less `invalid_penalty` for an illegal edit. Their
    sum is `(first objective - last objective) / lower bound`, penalties aside. A plan that runs out of
    memory or steps has the objective with which :class:`CannEnv` prices that.

    ## Starting State
    The plan of `scheduler` for the instance that :class:`CannEnv` would play. Plans are made and simulated
    with expected durations, also where the scenario has noise.

    ## Episode End
    Termination after `edits` edits.

    ## Information
    `action_mask`; `objective_ns`; `first_objective_ns`; `best_objective_ns`; `edits`; `invalid_actions`;
    `episode_index`. In the last step also `schedule` as of :class:`CannEnv`, and `terms`: `progress` and
    `invalid`.

    ## What is kept
    Seeds, `reset(options=...)`, instances and rendering. `env.unwrapped` stands at the end of the present
    plan at any time, so `schedule()` is there after every edit, and :meth:`plan` has the decisions, which
    :func:`cann_env.schedulers.replay` plays. Actions of :class:`CannEnv` are taken by nobody.

    ## Arguments
    | Argument | Default | Meaning |
    |---|---|---|
    | `env` | | an environment of this package, as `gymnasium.make` makes it |
    | `scheduler` | `"reference"` | whose plan an episode begins with, by name |
    | `edits` | 64 | budget of edits |
    | `moves` | 16 | rows for moves of buffers (M); what the plan has beyond them stays where it is |
    | `capacity` | None | (N, E) of the padded graph; None for the environment's, or what its scenario needs |

    No id is registered for it: `PlanEditing(gymnasium.make(id))` does for every scenario, device and option,
    and `env.spec` remembers the wrapper with its arguments.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        scheduler: str = "reference",
        edits: int = 64,
        moves: int = 16,
        capacity: Sequence[int] | None = None,
    ) -> None:
        inner = inner_env(env, "PlanEditing")
        check_scheduler(scheduler)
        self.budget = _count("edits", edits, 1)
        self.moves = _count("moves", moves, 0)
        self.capacity = capacity_of(inner, capacity)
        RecordConstructorArgs.__init__(
            self, scheduler=scheduler, edits=edits, moves=moves, capacity=capacity and list(capacity)
        )
        gymnasium.Wrapper.__init__(self, env)
        self._inner = inner
        self._scheduler = scheduler
        self._streams = inner.scenario.options.streams
        self._penalty = inner.scenario.options.invalid_penalty
        self._plans: OrderedDict[Program, tuple[Edits, Draft, Played]] = OrderedDict()
        self._start: Snapshot | None = None
        self._graph: Observation = {}
        self._used = self._invalid = 0
        rows = self.capacity.nodes * (self._streams + len(Shift))
        self.action_count = rows + 2 * self.moves + 1
        self.action_space = spaces.Discrete(self.action_count)
        self.observation_space = cast(
            "spaces.Space[Observation]", plan_space(inner.scenario.options, self.capacity, self.moves)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without plans that can be made again."""
        return self.__dict__ | {"_plans": OrderedDict()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode, as :meth:`CannEnv.reset` does, with the scheduler's plan for its instance.

        Raises:
            InputError: As there; or the graph does not fit the capacity.
            EpisodeError: The scheduler did not finish.
        """
        self.env.reset(seed=seed, options=options)
        start = self._inner.get_state()
        self._start = start._replace(noise=None)
        self._graph = static_graph(start.program, self.capacity)
        self._edits, self._draft, self._played = self._planned(start.program)
        self._first_ns = self._best_ns = self._played.objective_ns
        self._used = self._invalid = 0
        self._terms = RewardTerms()
        self._show()
        return self._observe(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Make one edit.

        Raises:
            InputError: The action is no whole number of the action space.
            EpisodeOverError: There is no episode, or its budget is used up; call reset.
        """
        start = begun(self._start)
        if self._used >= self.budget:
            raise EpisodeOverError("the budget of edits is used up; call reset() before step()")
        chosen = action_number(action, self.action_count)
        legal = bool(self.action_masks()[chosen])
        before = self._played.objective_ns
        if legal and chosen < self.action_count - 1:
            self._draft = self._edited(chosen)
            self._played = self._edits.play(self._draft)
        self._used += 1
        self._invalid += not legal
        self._best_ns = min(self._best_ns, self._played.objective_ns)
        gain = (before - self._played.objective_ns) / int(start.program.image[P_NORM_NS])
        terms = RewardTerms(progress=gain, invalid=0.0 if legal else -self._penalty)
        self._terms = self._terms.plus(terms)
        self._show()
        return self._observe(), terms.total, self._used >= self.budget, False, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where an edit is legal; the name that sb3-contrib looks for."""
        begun(self._start)
        nodes, count = self.capacity.nodes, len(self._edits.program.graph.commands)
        table = np.zeros((nodes, self._streams + len(Shift)), np.bool_)
        table[:count, : self._streams] = self._edits.streams(self._draft)
        table[:count, self._streams :] = self._edits.shifts(self._draft, int(self._played.state[S_WAKES]))
        moves = np.zeros((self.moves, 2), np.bool_)
        found = self._edits.move_shifts(self._draft)[: self.moves]
        moves[: len(found)] = found
        return np.concatenate([table.ravel(), moves.ravel(), [True]])

    def plan(self) -> Plan:
        """All decisions of the present plan, as :func:`cann_env.schedulers.replay` takes them."""
        begun(self._start)
        return self._played.plan

    def schedule(self) -> Schedule:
        """The schedule of the present plan; see :meth:`CannEnv.schedule`."""
        return self._inner.schedule()

    # --- inside -------------------------------------------------------------------------------------

    def _planned(self, program: Program) -> tuple[Edits, Draft, Played]:
        """The scheduler's plan, made once for each program."""
        if program not in self._plans:
            edits = Edits(program)
            draft = edits.draft(decide(program, make_scheduler(self._scheduler)).actions)
            self._plans[program] = edits, draft, edits.play(draft)
            if len(self._plans) > _PLANS_KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(program)
        return self._plans[program]

    def _edited(self, action: int) -> Draft:
        """The plan after a legal edit."""
        width = self._streams + len(Shift)
        command, kind = divmod(action, width)
        if command >= self.capacity.nodes:
            number, shift = divmod(action - self.capacity.nodes * width, 2)
            return self._draft.shifted(-1 - number, Shift(shift))
        if kind < self._streams:
            return self._draft.on_stream(command, kind)
        return self._draft.shifted(command, Shift(kind - self._streams))

    def _show(self) -> None:
        """Bring the environment inside to the end of the present plan."""
        self._inner.set_state(begun(self._start)._replace(state=self._played.state, terms=self._terms))
        if self.render_mode == "human":
            self._inner.render()

    def _observe(self) -> Observation:
        norm = int(begun(self._start).program.image[P_NORM_NS])
        totals = (self._played.objective_ns, self._first_ns, self._best_ns)
        seen = encode_plan(self._edits, self._draft, self._played, self._graph, self.moves)
        seen["plan"][:3] = np.clip([total / norm - 1.0 for total in totals], 0.0, OBS_HIGH)
        seen["plan"][3] = self._used / self.budget
        return seen

    def _info(self) -> dict[str, Any]:
        start = begun(self._start)
        info: dict[str, Any] = {
            "action_mask": self.action_masks().astype(np.int8),
            "objective_ns": self._played.objective_ns,
            "first_objective_ns": self._first_ns,
            "best_objective_ns": self._best_ns,
            "edits": self._used,
            "invalid_actions": self._invalid,
            "episode_index": start.key.episode,
        }
        if self._used >= self.budget:
            info["schedule"] = ending_of(start.program, self._played.state[:S_HEADER].tolist())
            info["terms"] = {"progress": self._terms.progress, "invalid": self._terms.invalid}
        return info


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} is {value!r}; write a whole number of at least {least}")
    return int(value)
