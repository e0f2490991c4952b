"""What ``step_cost.py`` repeats: the parts of a step, in compiled loops on states of random episodes.

A program goes in; out comes an :class:`Episode`, a random legal one with some of its states, of which each
part is repeated on each, and which is played again as a whole. The compiler cannot see that it is always the
same program, so whatever a step reads of it is read anew each time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rates import draw_legal, random_states

from cann_env.engine.bound import optimistic_makespan
from cann_env.engine.choices import refresh_choices
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.layout import BEGIN, RUNNING, S_STATUS
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.start import prepare
from cann_env.engine.step import step

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Episode(NamedTuple):
    """A random legal episode.

    Attributes:
        program: int64, its program image.
        start: int64, its state at the first decision.
        actions: int64, its decisions.
        states: int64 (M, words), states at every so many decisions, while it runs.
        flat, mask: float32 and int8, to write observations and masks to.
    """

    program: Image
    start: Image
    actions: NDArray[np.int64]
    states: NDArray[np.int64]
    flat: NDArray[np.float32]
    mask: NDArray[np.int8]


def random_episode(program: Program, every: int, generator: NDArray[np.uint64] | None = None) -> Episode:
    """Play one, and keep every so many-th of its states."""
    generator = random_states(1) if generator is None else generator
    image, state = program.image, program.new_state()
    start, flat = state.copy(), np.zeros(program.observation_size, np.float32)
    mask, drawn = np.zeros((1, program.action_count), np.int8), np.zeros(1, np.int64)
    actions, states = [], []
    while state[S_STATUS] == RUNNING:
        if len(actions) % every == 0:
            states.append(state.copy())
        copy_mask(image, state, mask[0])
        draw_legal(mask, generator, drawn)
        actions.append(int(drawn[0]))
        step(image, state, actions[-1])
    return Episode(image, start, np.array(actions, np.int64), np.array(states), flat, mask[0])


# --- compiled loops -------------------------------------------------------------------------------------


@kernel
def _repeat_choices(p: Image, states: Any, same: Image) -> int:
    found = 0
    for row in range(states.shape[0]):
        s = states[row]
        for turn in range(same.size):
            found += refresh_choices(constant_pointer(p[same[turn] :]), pointer(s))
    return found


@kernel
def _repeat_bound(p: Image, states: Any, same: Image) -> int:
    found = 0
    for row in range(states.shape[0]):
        s = states[row]
        for turn in range(same.size):
            found += optimistic_makespan(constant_pointer(p[same[turn] :]), pointer(s))
    return found


@kernel
def _repeat_observation(p: Image, states: Any, same: Image, flat: Any) -> None:
    for row in range(states.shape[0]):
        s = states[row]
        for turn in range(same.size):
            observe(p[same[turn] :], s, flat)


@kernel
def _repeat_mask(p: Image, states: Any, same: Image, mask: Any) -> None:
    for row in range(states.shape[0]):
        s = states[row]
        for turn in range(same.size):
            copy_mask(p[same[turn] :], s, mask)


@kernel
def play_again(p: Image, s: Image, actions: Image, looks: bool, flat: Any, mask: Any) -> None:
    """Take decisions one after another, and after each look at what has become of it if that is wanted.

    With ``BEGIN`` in place of an action the state is made anew and goes on to the first decision.
    """
    for turn in range(actions.size):
        if actions[turn] == BEGIN:
            prepare(p, s, actions[:0])
        step(p, s, actions[turn])
        if looks:
            observe(p, s, flat)
            copy_mask(p, s, mask)


# --- the clock ------------------------------------------------------------------------------------------

PARTS = ("choices", "bound", "observation", "mask")


def seconds_of_parts(episode: Episode, repeats: int) -> tuple[float, ...]:
    """Seconds that each of :data:`PARTS` takes in a state, on average over the states of an episode."""
    p, states, same = episode.program, episode.states, np.zeros(repeats, np.int64)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: _repeat_choices(p, states, same),
        lambda: _repeat_bound(p, states, same),
        lambda: _repeat_observation(p, states, same, episode.flat),
        lambda: _repeat_mask(p, states, same, episode.mask),
    )
    return tuple(_seconds(call) / (repeats * len(states)) for call in calls)


def seconds_of_all(episode: Episode, looks: bool) -> float:
    """Seconds of a whole step, or of one at which nobody looks, on average over all steps of an episode."""
    p, state, actions = episode.program, episode.start.copy(), episode.actions
    return _seconds(lambda: play_again(p, state, actions, looks, episode.flat, episode.mask)) / actions.size


def seconds_of_beginning(episode: Episode, repeats: int) -> float:
    """Seconds that it takes to make the state of an episode and go on to the first decision."""
    p, begins, state = episode.program, np.full(repeats, BEGIN), episode.start.copy()
    return _seconds(lambda: play_again(p, state, begins, False, episode.flat, episode.mask)) / repeats


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
