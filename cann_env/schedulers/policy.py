"""The protocol of schedulers, and how one is run.

A *policy* decides online from what an agent sees; a *chooser* looks at the whole program and picks a policy;
an *assigner* does so too and picks rules that run in compiled code; a *planner* writes down all decisions
beforehand. All drive the same engine, and whatever they did replays
exactly from the list of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from cann_env.engine.layout import (
    FINISHED,
    OUT_OF_MEMORY,
    P_CHOICES,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_PREFETCH,
    P_STATE_WINDOW,
    RUNNING,
    S_AT_ACTION,
    S_BOUND_NS,
    S_NOW_NS,
    S_OBJECTIVE_NS,
    S_STATUS,
    S_STEPS,
    SB_RESIDENCY,
    SB_WIDTH,
    SC_PHASE,
    SC_WIDTH,
)
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.step import run_actions, step
from cann_env.units import CannEnvError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program

Observation: TypeAlias = Mapping[str, "NDArray[np.float32]"]
"""Parts of what an agent sees: ``commands``, ``streams``, ``moves``, ``device``."""


class Policy(Protocol):
    """Decides one step at a time."""

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Choose a legal action.

        Args:
            observation: What the agent sees; see the environment's docstring.
            mask: int8, 1 where an action is legal.
            info: How actions are numbered, see :func:`action_info`. A policy that a chooser made for a
                program may also read who is meant, see :func:`episode_info`.
        """
        ...


class Plan(NamedTuple):
    """All decisions of an episode, waits included, in order."""

    actions: tuple[int, ...]


class Chooser(Protocol):
    """Looks at the whole program and chooses the policy that will decide step by step."""

    def choose(self, program: Program) -> Policy:
        """Choose a policy for a program with its expected durations."""
        ...


class Rules(Protocol):
    """What an :class:`~cann_env.schedulers.assignment.Assignment` is to those who run one."""

    def play(self, program: Program, *, noise: Image | None = None) -> Outcome:
        """Run one episode of a program."""
        ...


class Assigner(Protocol):
    """Writes down beforehand by which rule, in which order and where commands are to be issued.

    What happens then decides when, so that it makes sense under noise too.
    """

    def assign(self, program: Program) -> Rules:
        """The rules for a program with its expected durations."""
        ...


class Planner(Protocol):
    """Decides everything beforehand."""

    def plan(self, program: Program) -> Plan:
        """Write down the decisions for a program with its expected durations."""
        ...


Watch: TypeAlias = Callable[[float, int], None]
"""Called now and then by a scheduler that improves for as long as it may: with the part of its limit that is
used up, from 0 to 1, and its best objective so far (ns)."""

Deciding: TypeAlias = "Policy | Chooser | Assigner | Planner"
"""Anything that can schedule."""

Scheduler: TypeAlias = Callable[[int], Deciding]
"""Makes one from a seed."""


class EpisodeError(CannEnvError):
    """An episode that did not finish: out of steps, or out of memory with nothing in flight."""


class Outcome(NamedTuple):
    """How an episode ended: its decisions, its objective (ns) and the clock at the end (ns).

    One with a window of its own names the program that its decisions belong to; None for the given one.
    """

    actions: tuple[int, ...]
    objective_ns: int
    end_ns: int
    program: Program | None = None


def action_info(program: Program) -> dict[str, int]:
    """What a policy needs to know to name an action.

    Returns:
        ``window`` and ``choices``: slots of the ready window and streams that an action names; action
        ``k * choices + s`` issues. Behind them come ``prefetches``, ``l2_prefetches`` and ``offloads`` slots,
        and waiting is the last action. ``in_flight_limit``: most commands issued and not finished;
        ``prefetch_streams``: most prefetches of one kind that move at once.
    """
    options = program.options
    return {
        "choices": int(program.image[P_CHOICES]),
        "window": options.commands,
        "prefetches": options.prefetches,
        "l2_prefetches": options.l2_prefetches,
        "offloads": options.offloads,
        "in_flight_limit": options.in_flight_limit,
        "prefetch_streams": options.prefetch_streams,
    }


_SEEN = (P_STATE_WINDOW, P_STATE_PREFETCH, P_STATE_COMMAND, P_STATE_BUFFER)


def episode_info(program: Program, state: Image) -> dict[str, Any]:
    """:func:`action_info`, and read-only views of an episode that change with it.

    Returns:
        ``ready``: the command in each slot of the ready window; ``movable``: the buffer in each slot behind
        it; -1 where a slot is empty. ``phases``: of each command, from UNISSUED to DONE; ``residency``: of
        each buffer, ABSENT or further (constants of :mod:`cann_env.engine.layout`).
    """
    info: dict[str, Any] = dict(action_info(program))
    slots = program.action_count - 1 - info["window"] * info["choices"]
    graph = program.graph
    window, moves, commands, buffers = (int(program.image[table]) for table in _SEEN)
    info["ready"] = _view(state, window, info["window"])
    info["movable"] = _view(state, moves, slots)
    info["phases"] = _view(state, commands, len(graph.commands), SC_WIDTH, SC_PHASE)
    info["residency"] = _view(state, buffers, len(graph.buffers), SB_WIDTH, SB_RESIDENCY)
    return info


def _view(state: Image, at: int, rows: int, width: int = 1, column: int = 0) -> NDArray[np.int64]:
    view = state[at : at + rows * width].reshape(rows, width)[:, column]
    view.flags.writeable = False
    return view


def rollout(program: Program, policy: Policy, *, noise: Image | None = None) -> Outcome:
    """Run one episode with a policy.

    Raises:
        EpisodeError: The episode ended before all commands were done.
    """
    state = program.new_state(noise)
    flat = np.zeros(program.observation_size, np.float32)
    observation = program.split_observation(flat)
    mask = np.zeros(program.action_count, np.int8)
    info = episode_info(program, state)
    while state[S_STATUS] == RUNNING:
        observe(program.image, state, flat)
        copy_mask(program.image, state, mask)
        step(program.image, state, policy.act(observation, mask, info))
    return _outcome(program, state)


def replay(program: Program, actions: tuple[int, ...], *, noise: Image | None = None) -> Outcome:
    """Run one episode from its list of actions.

    Raises:
        EpisodeError: The list ended before all commands were done.
    """
    state = program.new_state(noise)
    run_actions(program.image, state, np.asarray(actions, np.int64))
    return _outcome(program, state)


def _outcome(program: Program, state: Image) -> Outcome:
    if state[S_STATUS] != FINISHED:
        reason = {RUNNING: "its decisions ended", OUT_OF_MEMORY: "it ran out of memory"}.get(
            int(state[S_STATUS]), "it ran out of steps"
        )
        raise EpisodeError(
            f"graph {program.graph.name!r} on {program.device.name} was not finished: {reason} after "
            f"{int(state[S_STEPS])} decisions at {int(state[S_NOW_NS])} ns"
        )
    at = int(state[S_AT_ACTION])
    actions = tuple(state[at : at + int(state[S_STEPS])].tolist())
    return Outcome(actions, int(state[S_OBJECTIVE_NS]), int(state[S_BOUND_NS]))


def decide(program: Program, scheduler: Deciding, *, noise: Image | None = None) -> Outcome:
    """Run one episode with a policy, a chooser, an assigner or a planner.

    Raises:
        InputError: The object is none of these.
        EpisodeError: The episode did not finish.
    """
    if hasattr(scheduler, "choose"):
        return rollout(program, scheduler.choose(program), noise=noise)
    if hasattr(scheduler, "assign"):
        return scheduler.assign(program).play(program, noise=noise)
    if hasattr(scheduler, "plan"):
        return replay(program, scheduler.plan(program).actions, noise=noise)
    if hasattr(scheduler, "act"):
        return rollout(program, scheduler, noise=noise)
    raise InputError(f"{scheduler!r} is no scheduler; it needs a method 'act', 'choose', 'assign' or 'plan'")
