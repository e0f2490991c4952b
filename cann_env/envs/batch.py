"""Episodes of given programs side by side, each played once: how a trained policy plays and samples.

Programs go in, and step after step observations, masks and which of them are still running; at the end an
outcome of each. One compiled call steps all of them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.engine.episodes import LOOK, R_FINISHED, R_STEPS
from cann_env.engine.layout import Q20, S_BOUND_NS, S_OBJECTIVE_NS
from cann_env.envs.requests import action_numbers, wrong_action
from cann_env.envs.rows import Rows
from cann_env.envs.spaces import GraphCapacity, edges_of
from cann_env.schedulers.policy import Outcome
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.envs.instances import InstanceKey
    from cann_env.options import RunOptions
    from cann_env.program import Program


class _Given:
    """Environment i plays program i; what :class:`Rows` asks of a source."""

    instances = None

    def __init__(self, programs: Sequence[Program], noises: Sequence[Image | None]) -> None:
        noisy = any(noise is not None for noise in noises)
        options = SimpleNamespace(
            **{name: getattr(programs[0].options, name) for name in _SIZES}, noise=float(noisy)
        )
        self.scenario: Any = SimpleNamespace(options=options, workload=SimpleNamespace(fixed=False))
        self._programs, self._noises = programs, noises

    def number(self, key: InstanceKey) -> None:
        return None

    def program(self, key: InstanceKey) -> Program:
        return self._programs[key.env_index]

    def noise(self, program: Program, key: InstanceKey) -> Image:
        noise = self._noises[key.env_index]
        return np.full(len(program.graph.commands), Q20) if noise is None else noise


_SHAPES = ("streams", "commands", "prefetches", "l2_prefetches", "offloads", "window")
_SIZES = (*_SHAPES, "slots", "invalid_penalty")


class Batch:
    """One episode of each of some programs.

    Args:
        programs: At least one. Their options agree in the sizes of all windows, so that observations and
            actions have one shape; graphs, devices and all else may differ.
        noises: Realised durations of each, see :meth:`Program.new_state`; None for the expected ones.
        capacity: Nodes and edges of the padded graph that is observed as well; None to leave it out.

    Attributes:
        running: Programs whose episode is not over, in ascending order.

    Raises:
        InputError: There is no program, the sizes of two differ, or a graph does not fit the capacity.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        noises: Sequence[Image | None] | None = None,
        capacity: GraphCapacity | None = None,
    ) -> None:
        _check_shapes(programs)
        given = _Given(programs, noises if noises is not None else [None] * len(programs))
        self._programs = programs
        self._rows = Rows(given, len(programs), graph=capacity, same_step=False, fresh=False)
        self._rows.set_seeds(dict.fromkeys(range(len(programs)), 0))
        self._rows.begin(np.arange(len(programs)))
        self._actions = np.full(len(programs), LOOK)
        self._choices = programs[0].action_count
        self.running = np.arange(len(programs))

    def observations(self) -> dict[str, NDArray[np.float32]]:
        """The parts of what is seen of the running ones, (running, length) each."""
        return self._rows.parts(self._rows.seen, self.running)

    def masks(self) -> NDArray[np.bool_]:
        """Legal actions of the running ones, bool (running, A)."""
        return self._rows.seen.masks[self.running].astype(np.bool_)

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Take a decision in each of the running ones; returns its reward.

        Args:
            actions: int64 (running,), numbers of actions.

        Raises:
            InputError: Not one whole number of the action space for each of the running ones.
        """
        stepped = self.running
        numbers = action_numbers(actions, len(stepped), self._choices)
        wrong = np.flatnonzero((numbers < 0) | (numbers >= self._choices))
        if wrong.size:
            raise wrong_action(numbers, int(wrong[0]), len(stepped), self._choices)
        self._actions[stepped] = numbers
        ended = self._rows.step(self._actions)
        rewards = self._rows.given.rewards[stepped].copy()
        self._actions[stepped] = LOOK
        if ended:
            over = np.zeros(len(self._programs), np.bool_)
            over[self._rows.over()] = True
            self.running = stepped[~over[stepped]]
        return rewards

    def outcomes(self) -> list[Outcome | None]:
        """How each episode ended; None for one that is still running, or that never finished its graph."""
        return [self._outcome(i) for i in range(len(self._programs))]

    def _outcome(self, i: int) -> Outcome | None:
        results = self._rows.books.results[i]
        if results[R_STEPS] < 0 or not results[R_FINISHED]:
            return None
        state = self._rows.state(i)
        actions = tuple(self._rows.books.moves[i, : results[R_STEPS]].tolist())
        return Outcome(actions, int(state[S_OBJECTIVE_NS]), int(state[S_BOUND_NS]))


def _check_shapes(programs: Sequence[Program]) -> None:
    if not programs:
        raise InputError("programs is empty; give at least one to play")
    first = shape_of(programs[0].options)
    for program in programs:
        for name, mine, others in zip(_SHAPES, first, shape_of(program.options), strict=True):
            if mine != others:
                raise InputError(
                    f"graph {program.graph.name!r} has {name} = {others!r}, the first one {mine!r}; programs "
                    "that are played side by side need the same"
                )


def shape_of(options: RunOptions) -> tuple[object, ...]:
    """What two programs must have in common to be played side by side."""
    return tuple(getattr(options, name) for name in _SHAPES)


def capacity_for(programs: Sequence[Program]) -> GraphCapacity:
    """The smallest padded graph that holds each of some programs."""
    nodes = max(len(program.graph.commands) for program in programs)
    return GraphCapacity(nodes, max(1, *(edges_of(program) for program in programs)))
