"""Playing planned times through the engine: what they are really worth, and the decisions that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.engine.observe import copy_mask
from cann_env.engine.step import run_actions, step
from cann_env.solvers.pieces import loads_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Times(NamedTuple):
    """When things should happen.

    Attributes:
        start_ns: (n,) of each command.
        order: All commands, the first to go first.
        fetches: Buffers with the instants from which they are brought in, in this order.
        early: Whether commands may be issued before their time, in their order.
    """

    start_ns: Image
    order: Image
    fetches: tuple[tuple[int, int], ...] = ()
    early: bool = False


class Played(NamedTuple):
    """An episode of the engine with expected durations.

    Attributes:
        makespan_ns: When the last command was done.
        actions: All decisions, waits included.
        start_ns, finish_ns: (n,) of each command.
    """

    makespan_ns: int
    actions: tuple[int, ...]
    start_ns: Image
    finish_ns: Image


def play_actions(program: Program, actions: Sequence[int]) -> Played | None:
    """Play decisions; None if they do not finish."""
    state = program.new_state()
    run_actions(program.image, state, np.asarray(actions, np.int64))
    return _played(program, state)


def play_times(program: Program, times: Times) -> Played | None:
    """Issue each command to the lowest idle stream at its time; None if that does not finish.

    Issued when it may start and not before, no command can take cores that one with an earlier time needs.
    Decisions fall on completions, arrivals and releases only; a time in between means the next of these.
    """
    state = program.new_state()
    mask = np.zeros(program.action_count, np.int8)
    place = np.empty(times.order.size, np.int64)
    place[times.order] = np.arange(times.order.size)
    fetched: set[int] = set()
    while state[at.S_STATUS] == at.RUNNING:
        copy_mask(program.image, state, mask)
        step(program.image, state, _choose(program, state, mask, times, place, fetched))
    return _played(program, state)


def by_tail(program: Program) -> list[Times]:
    """Lists to begin with, the longest tail first: just in time or early, weights fetched or on demand."""
    commands = len(program.graph.commands)
    ranked = int(program.image[at.P_AT_RANKED])
    order = program.image[ranked : ranked + commands].copy()
    place = np.empty(commands, np.int64)
    place[order] = np.arange(commands)
    loads = sorted(loads_of(program), key=lambda load: int(place[list(load.users)].min()))
    fetches = [(), tuple((load.buffer, 0) for load in loads)] if loads else [()]
    start = np.zeros(commands, np.int64)
    return [Times(start, order, fetched, early) for fetched in fetches for early in (False, True)]


def _choose(
    program: Program, state: Image, mask: NDArray[np.int8], times: Times, place: Image, fetched: set[int]
) -> int:
    move = _fetch(program, state, mask, times, fetched)
    if move >= 0:
        return move
    choices, window = int(program.image[at.P_CHOICES]), int(program.image[at.P_STATE_WINDOW])
    ready = state[window : window + program.options.commands]
    slots = sorted(np.flatnonzero(ready >= 0).tolist(), key=lambda k: int(place[ready[k]]))
    wait = program.action_count - 1
    for k in slots:
        due = times.early or times.start_ns[ready[k]] <= state[at.S_NOW_NS]
        if due:
            stream = _idle(program, state, mask[k * choices : (k + 1) * choices])
            if stream >= 0:
                return k * choices + stream
            if times.early:
                break
    if mask[wait]:
        return wait
    legal = [
        k * choices + int(s) for k in slots for s in np.flatnonzero(mask[k * choices : (k + 1) * choices])
    ]
    return legal[0] if legal else int(np.flatnonzero(mask)[0])


def _idle(program: Program, state: Image, legal: NDArray[np.int8]) -> int:
    """The lowest idle stream that may be named; -1 if there is none."""
    if legal.size == 1:
        return 0 if legal[0] else -1
    streams = int(program.image[at.P_STATE_STREAM])
    found: list[int] = np.flatnonzero(legal).tolist()
    for stream in found:
        if state[streams + stream * at.SS_WIDTH + at.SS_LENGTH] == 0:
            return stream
    return -1


def _fetch(program: Program, state: Image, mask: NDArray[np.int8], times: Times, fetched: set[int]) -> int:
    """The prefetch that is due; -1 for none."""
    first = int(program.image[at.P_WINDOW] * program.image[at.P_CHOICES])
    slots = int(program.image[at.P_STATE_PREFETCH])
    wanted = state[slots : slots + program.options.prefetches].tolist()
    for number, (buffer, due) in enumerate(times.fetches):
        if number in fetched or buffer not in wanted:
            continue
        if due > state[at.S_NOW_NS]:
            return -1
        action: int = first + wanted.index(buffer)
        if mask[action]:
            fetched.add(number)
            return action
        return -1
    return -1


def _played(program: Program, state: Image) -> Played | None:
    if state[at.S_STATUS] != at.FINISHED:
        return None
    first, steps = int(state[at.S_AT_ACTION]), int(state[at.S_STEPS])
    commands = int(program.image[at.P_STATE_COMMAND])
    count = len(program.graph.commands)
    rows = state[commands : commands + count * at.SC_WIDTH].reshape(count, at.SC_WIDTH)
    finish = rows[:, at.SC_FINISH_NS].copy()
    actions = tuple(state[first : first + steps].tolist())
    return Played(int(finish.max()), actions, rows[:, at.SC_START_NS].copy(), finish)
