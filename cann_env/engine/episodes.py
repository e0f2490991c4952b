"""Episode after episode in many environments, in one call: row i of every array belongs to environment i.

Program images lie in an array of their own, which all environments share, and each environment has the number
of its row there. Actions go in, states and books change in place; what agents see, rewards and what ended
episodes came to go out into arrays that the caller made. An episode that ends is followed by the next one at
once, unless that needs what only the caller has: an image not yet made, or realised durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cann_env.engine.draw import instance_number
from cann_env.engine.foresee import fetch_headers, fetch_rows
from cann_env.engine.jit import kernel, pointer
from cann_env.engine.layout import (
    BEGIN,
    FINISHED,
    OUT_OF_MEMORY,
    OUT_OF_STEPS,
    P_BOUND_NS,
    P_COMMANDS,
    P_NORM_NS,
    P_STATE_WORDS,
    P_WINDOW,
    RUNNING,
    S_AT_ACTION,
    S_HBM_PEAK,
    S_INVALID,
    S_NOW_NS,
    S_STATUS,
    S_STEPS,
)
from cann_env.engine.observe import (
    copy_mask,
    observe,
)
from cann_env.engine.observe_graph import OBS_NODE, observe_graph
from cann_env.engine.start import prepare
from cann_env.engine.step import step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cann_env.engine import Features, Image

LOOK = -3  # in place of an action: only look; BEGIN: begin the episode that is next in the book

# Book: one row an environment.
(
    B_SLOT,  # row of its program among the images, -1 before the first episode
    B_RUN,  # row of its run in the table of images
    B_FIRST,  # two words that stand for its run and itself
    B_SECOND,
    B_EPISODE,  # the one it plays
    B_NEXT,  # the one it plays next
    B_OVER,  # 1 while its episode is over and the next one has not begun
    B_ENDED,  # status with which the last call ended its episode, RUNNING if it did not
    B_LEFT,  # 1 if the last call left its next episode for the caller to begin
    B_WIDTH,
) = range(10)
# Sums over the episode, then the same of the episode that ended last: one row an environment.
(SUM_PROGRESS, SUM_INVALID, SUM_FAILURE, SUM_REWARD, TERMS) = range(5)
# Facts: one row a fact.
(FACT_NOW_NS, FACT_INVALID, FACT_EPISODE, FACTS) = range(4)
# Results of the episode that ended last: one row an environment.
(
    R_MAKESPAN_NS,
    R_BOUND_NS,
    R_STEPS,
    R_HBM_PEAK,
    R_FINISHED,
    R_INVALID,
    R_EPISODE,
    R_RUN,
    R_WIDTH,
) = range(9)
SAME_STEP = 1  # an episode that ends is followed by the next one in the same call


class Seen(NamedTuple):
    """What agents see, one row an environment.

    Attributes:
        flat: float32 (N, F), see :func:`cann_env.engine.observe.observe`; behind it, if the graph is drawn,
            what :func:`cann_env.engine.observe_graph.observe_graph` writes, one array after the other.
        masks: int8 (N, A), 1 where an action is legal.
    """

    flat: NDArray[np.float32]
    masks: NDArray[np.int8]


class World(NamedTuple):
    """What is played.

    Attributes:
        images: int64 (any, any), one program image a row.
        table: int64 (runs, instances), for each graph of a run the row of its image plus one, 0 if it has
            none. Without columns it is for the caller to begin episodes.
        states: int64 (N, any), one state image a row.
        noise: int64 (N, any), factors on durations in 2**-20; no columns without noise. With noise it is for
            the caller to begin episodes.
    """

    images: NDArray[np.int64]
    table: NDArray[np.int64]
    states: NDArray[np.int64]
    noise: NDArray[np.int64]


class Books(NamedTuple):
    """What goes on from one call to the next.

    Attributes:
        book: int64 (N, B_WIDTH).
        sums: float64 (N, 2*TERMS), terms of the reward and the reward itself, summed over the episode; behind
            them the sums of the episode that ended last.
        results: int64 (N, R_WIDTH), of that episode; R_STEPS is -1 before the first one.
        moves: int32 (N, any), its decisions.
    """

    book: NDArray[np.int64]
    sums: NDArray[np.float64]
    results: NDArray[np.int64]
    moves: NDArray[np.int32]


class Given(NamedTuple):
    """What a step gives beside the observations: float64 (N,), bool (2, N) and int64 (FACTS, N)."""

    rewards: NDArray[np.float64]
    ends: NDArray[np.bool_]
    facts: NDArray[np.int64]


@kernel
def first_wrong(actions: Image, choices: int) -> int:
    """The first place whose entry is no action from 0 to ``choices - 1``; -1 if there is none."""
    for i in range(actions.size):
        if actions[i] < 0 or actions[i] >= choices:
            return i
    return -1


@kernel
def _look_at_graph(p: Image, s: Image, entry: Image, drawn: Features, nodes: int, edges: int) -> None:
    at_mask = nodes * OBS_NODE
    at_edge = at_mask + nodes
    at_edge_mask = at_edge + 2 * edges
    at_window = at_edge_mask + edges
    observe_graph(
        p,
        s,
        drawn[:at_mask].reshape((nodes, OBS_NODE)),
        drawn[at_mask:at_edge],
        drawn[at_edge:at_edge_mask].reshape((2, edges)),
        drawn[at_edge_mask:at_window],
        drawn[at_window:],
    )


@kernel
def _look(
    p: Image, s: Image, row: int, entry: Image, seen: Seen, facts: Image, graph: tuple[int, int]
) -> None:
    facts[FACT_NOW_NS, row] = s[S_NOW_NS]
    facts[FACT_INVALID, row] = s[S_INVALID]
    facts[FACT_EPISODE, row] = entry[B_EPISODE]
    flat, masks = seen
    observe(p, s, flat[row])
    copy_mask(p, s, masks[row])
    nodes, edges = graph
    if nodes > 0:
        size = nodes * (OBS_NODE + 1) + 3 * edges + p[P_WINDOW]
        _look_at_graph(p, s, entry, flat[row, flat.shape[1] - size :], nodes, edges)


@kernel
def _turn(entry: Image, table: Image, noisy: bool) -> bool:
    """Turn an environment to the image of its next episode; False if that is for the caller to find."""
    instances = table.shape[1]
    if noisy or instances == 0:
        return False
    number = instance_number(entry[B_FIRST], entry[B_SECOND], entry[B_NEXT], instances)
    slot = table[entry[B_RUN], number] - 1
    if slot < 0:
        return False
    entry[B_SLOT] = slot
    return True


@kernel
def _open(p: Image, s: Image, entry: Image, sums: Image, noise: Image) -> None:
    """Make the state of an episode's time zero."""
    entry[B_EPISODE] = entry[B_NEXT]
    entry[B_NEXT] += 1
    for field in range(TERMS):
        sums[field] = 0.0
    prepare(p, s, noise)


@kernel
def score(p: Image, s: Image, rise: int, illegal: int, penalty: float, sums: Image) -> float:
    """Add the terms of a step to the sums of its episode; returns the reward.

    That is what ``cann_env.envs.reward.reward_terms`` computes, to the last bit.

    Args:
        p: Program image.
        s: State image after the step.
        rise: By how much the objective rose (ns).
        illegal: 1 if the action was illegal.
        penalty: Cost of an illegal action.
        sums: float64, at least TERMS of them.
    """
    progress = -rise / p[P_NORM_NS]
    invalid = -penalty * illegal
    failure = 0.0
    if s[S_STATUS] != RUNNING and s[S_STATUS] != FINISHED:
        failure = progress
        progress = 0.0
    reward = progress + invalid + failure
    sums[SUM_PROGRESS] += progress
    sums[SUM_INVALID] += invalid
    sums[SUM_FAILURE] += failure
    sums[SUM_REWARD] += reward
    return reward


@kernel
def _take(p: Image, s: Image, action: int, entry: Image, sums: Image, penalty: float) -> float:
    """Take a decision, go on to the first one, or do neither; returns the reward."""
    if action == LOOK:
        return 0.0
    illegal = s[S_INVALID]
    rise = step(p, s, action)
    entry[B_OVER] = 0 if s[S_STATUS] == RUNNING else 1
    if action == BEGIN:
        return 0.0
    return score(p, s, rise, s[S_INVALID] - illegal, penalty, sums)


@kernel
def _record(p: Image, s: Image, entry: Image, sums: Image, results: Image, moves: Image) -> None:
    """Keep what an episode that has ended came to, and its decisions, so that it can be played again."""
    entry[B_ENDED] = s[S_STATUS]
    results[R_MAKESPAN_NS] = s[S_NOW_NS]
    results[R_BOUND_NS] = p[P_BOUND_NS]
    results[R_STEPS] = s[S_STEPS]
    results[R_HBM_PEAK] = s[S_HBM_PEAK]
    results[R_FINISHED] = 1 if s[S_STATUS] == FINISHED else 0
    results[R_INVALID] = s[S_INVALID]
    results[R_EPISODE] = entry[B_EPISODE]
    results[R_RUN] = entry[B_RUN]
    for field in range(TERMS):
        sums[TERMS + field] = sums[field]
    at = s[S_AT_ACTION]
    for i in range(s[S_STEPS]):
        moves[i] = s[at + i]


@kernel
def _play_row(
    row: int,
    action: int,
    world: World,
    entry: Image,
    sums: Image,
    results: Image,
    moves: Image,
    seen: Seen,
    last: Seen,
    facts: Image,
    graph: tuple[int, int],
    autoreset: int,
    penalty: float,
) -> float:
    """One row of :func:`play`; returns the reward, the book tells the rest."""
    images, table, states, noise = world
    reward = 0.0
    entry[B_ENDED] = RUNNING
    entry[B_LEFT] = 0
    turns = action >= 0 and entry[B_OVER] == 1
    while True:
        if turns:
            if not _turn(entry, table, noise.shape[1] > 0):
                entry[B_LEFT] = 1
                return reward
            action = BEGIN
        p = images[entry[B_SLOT]]
        s = states[row, : p[P_STATE_WORDS]]
        if action == BEGIN:
            _open(p, s, entry, sums, noise[row, : min(p[P_COMMANDS], noise.shape[1])])
        gained = _take(p, s, action, entry, sums, penalty)
        over = action >= 0 and s[S_STATUS] != RUNNING
        if action >= 0:
            reward = gained
        if over:
            _record(p, s, entry, sums, results, moves)
        turns = over and autoreset == SAME_STEP
        _look(p, s, row, entry, last if turns else seen, facts, graph)
        if not turns:
            return reward


@kernel
def play(
    rows: Image,
    actions: Image,
    world: World,
    books: Books,
    seen: Seen,
    last: Seen,
    given: Given,
    graph: tuple[int, int],
    autoreset: int,
    penalty: float,
) -> tuple[int, int, int]:
    """Take one decision in some environments, begin what is to begin, and look at what has become of them.

    Rows of environments that are not named stay as they are, in every array. No two calls at the same time
    may name the same one. Bundles are handed over as plain tuples, since others take longer.

    Args:
        rows: int64, which environments.
        actions: int64 (N,), numbers of actions; or ``BEGIN`` or ``LOOK``. Where the episode is over the next
            one begins whatever the action is.
        world: See :class:`World`.
        books: See :class:`Books`.
        seen: See :class:`Seen`; the present state of each environment.
        last: The same; the last state of each episode that ended and was followed by another.
        given: See :class:`Given`. Where an episode is begun by ``BEGIN``, the first two stay as they are.
        graph: Most commands and edges of the graph that is drawn; (0, 0) to draw none.
        autoreset: ``SAME_STEP`` begins the next episode when one ends, anything else does not.
        penalty: Cost of an illegal action.

    Returns:
        How many episodes ended; how many of these environments now have an episode that is over; and how
        many of those are left for the caller to begin the next one: the book tells which, and neither
        ``seen`` nor the facts have been written for them.
    """
    book, sums, results, moves = books
    rewards, ends, facts = given
    images, _, states, _ = world
    ended = 0
    over = 0
    left = 0
    for place in range(rows.size):
        row = rows[place]
        if place + 2 < rows.size and book[rows[place + 2], B_SLOT] >= 0:
            fetch_headers(images[book[rows[place + 2], B_SLOT]], states[rows[place + 2]])
        if place + 1 < rows.size and book[rows[place + 1], B_SLOT] >= 0:
            fetch_rows(
                images[book[rows[place + 1], B_SLOT]], states[rows[place + 1]], seen[0][rows[place + 1]]
            )
        # Functions that take a bare pointer are compiled as parts of this one, and not each by itself.
        entry = pointer(book[row])
        sum_row = pointer(sums[row])
        result_row = pointer(results[row])
        move_row = pointer(moves[row])
        reward = _play_row(
            row,
            actions[row],
            world,
            entry,
            sum_row,
            result_row,
            move_row,
            seen,
            last,
            facts,
            graph,
            autoreset,
            penalty,
        )
        over += entry[B_OVER]
        left += entry[B_LEFT]
        if actions[row] >= 0:
            status = entry[B_ENDED]
            rewards[row] = reward
            ends[0, row] = status in (FINISHED, OUT_OF_MEMORY)
            ends[1, row] = status == OUT_OF_STEPS
            ended += 1 if status != RUNNING else 0
    return ended, over, left
