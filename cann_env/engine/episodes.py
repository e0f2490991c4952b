"""Episode after episode in many environments, in one call: row i of every array belongs to environment i.

Program images lie in an array of their own, which all environments share, and each environment has the number
of its row there. Actions go in, states and books change in place; what agents see, rewards and what ended
episodes came to go out into arrays that the caller made. An episode that ends is followed by the next one at
once, unless that needs what only the caller has: an image not yet made, or realised durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine.draw import instance_number
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    BEGIN,
    FINISHED,
    OUT_OF_STEPS,
    P_BOUND_NS,
    P_COMMANDS,
    P_NORM_NS,
    P_STATE_WORDS,
    RUNNING,
    S_AT_ACTION,
    S_HBM_PEAK,
    S_INVALID,
    S_NOW_NS,
    S_STATUS,
    S_STEPS,
)
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.observe_graph import OBS_NODE, observe_graph
from cann_env.engine.start import prepare
from cann_env.engine.step import step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image

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
    B_WIDTH,
) = range(8)
# Sums over the episode: one row an environment.
(SUM_PROGRESS, SUM_INVALID, SUM_FAILURE, SUM_REWARD, SUM_WIDTH) = range(5)
# Facts: one row a fact.
(FACT_NOW_NS, FACT_INVALID, FACT_EPISODE, FACTS) = range(4)
# Results of the episode that ended last: one row a figure.
(
    R_MAKESPAN_NS,
    R_BOUND_NS,
    R_STEPS,
    R_HBM_PEAK,
    R_FINISHED,
    R_INVALID,
    R_EPISODE,
    R_RUN,
    RESULTS,
) = range(9)
SAME_STEP = 1  # an episode that ends is followed by the next one in the same call


class Seen(NamedTuple):
    """What agents see, one row an environment; without the graph its five arrays have no rows.

    Attributes:
        flat: float32 (N, F), see :func:`cann_env.engine.observe.observe`.
        masks: int8 (N, A), 1 where an action is legal.
        nodes, node_mask, edge_index, edge_mask, window: float32 (N, ...), see
            :func:`cann_env.engine.observe_graph.observe_graph`.
    """

    flat: NDArray[np.float32]
    masks: NDArray[np.int8]
    nodes: NDArray[np.float32]
    node_mask: NDArray[np.float32]
    edge_index: NDArray[np.float32]
    edge_mask: NDArray[np.float32]
    window: NDArray[np.float32]


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
        sums: float64 (N, SUM_WIDTH), terms of the reward and the reward, summed over the episode.
        results: int64 (RESULTS, N), of the episode that ended last; R_STEPS is -1 before the first one.
        totals: float64 (SUM_WIDTH, N), the sums of that episode.
        moves: int32 (N, any), its decisions.
        absent: bool (N,), True where the next episode is for the caller to begin.
    """

    book: NDArray[np.int64]
    sums: NDArray[np.float64]
    results: NDArray[np.int64]
    totals: NDArray[np.float64]
    moves: NDArray[np.int32]
    absent: NDArray[np.bool_]


class Given(NamedTuple):
    """What a step gives beside the observations: float64 (N,), bool (2, N) and int64 (FACTS, N)."""

    rewards: NDArray[np.float64]
    ends: NDArray[np.bool_]
    facts: NDArray[np.int64]


def new_seen(
    rows: int,
    features: int,
    actions: int,
    window: int,
    graph: tuple[int, int] | None,
    masks: NDArray[np.int8] | None = None,
) -> Seen:
    """Arrays for :func:`play` to write to, which hold nothing yet.

    Args:
        rows: Environments (N).
        features: Length of a flat observation (F).
        actions: Length of a mask (A).
        window: Slots of the ready window (K).
        graph: Most commands and edges of the padded graph; None to leave it out.
        masks: To be used again; None for a new array.
    """
    nodes, edges = (0, 0) if graph is None else graph
    drawn = 0 if graph is None else rows
    return Seen(
        flat=np.empty((rows, features), np.float32),
        masks=np.empty((rows, actions), np.int8) if masks is None else masks,
        nodes=np.empty((drawn, nodes, OBS_NODE), np.float32),
        node_mask=np.empty((drawn, nodes), np.float32),
        edge_index=np.empty((drawn, 2, edges), np.float32),
        edge_mask=np.empty((drawn, edges), np.float32),
        window=np.empty((drawn, window), np.float32),
    )


@kernel
def first_wrong(actions: Image, choices: int) -> int:
    """The first place whose entry is no action from 0 to ``choices - 1``; -1 if there is none."""
    for i in range(actions.size):
        if actions[i] < 0 or actions[i] >= choices:
            return i
    return -1


@kernel
def _look(p: Image, s: Image, row: int, seen: Seen) -> None:
    flat, masks, nodes, node_mask, edge_index, edge_mask, window = seen
    observe(p, s, flat[row])
    copy_mask(s, masks[row])
    if nodes.shape[0] > 0:
        observe_graph(p, s, nodes[row], node_mask[row], edge_index[row], edge_mask[row], window[row])


@kernel
def _turn(row: int, table: Image, books: Books, noisy: bool) -> bool:
    """Turn an environment to the image of its next episode; False if the caller has to."""
    book, absent = books[0], books[5]
    absent[row] = True
    if noisy or table.shape[1] == 0:
        return False
    number = instance_number(book[row, B_FIRST], book[row, B_SECOND], book[row, B_NEXT], table.shape[1])
    slot = table[book[row, B_RUN], number] - 1
    if slot < 0:
        return False
    book[row, B_SLOT] = slot
    absent[row] = False
    return True


@kernel
def _open(p: Image, s: Image, row: int, books: Books, noise: Image) -> None:
    """Make the state of an episode's time zero."""
    book, sums = books[0], books[1]
    book[row, B_EPISODE] = book[row, B_NEXT]
    book[row, B_NEXT] += 1
    for field in range(SUM_WIDTH):
        sums[row, field] = 0.0
    prepare(p, s, noise[row, : min(p[P_COMMANDS], noise.shape[1])])


@kernel
def score(p: Image, s: Image, rise: int, illegal: int, penalty: float, sums: Image) -> float:
    """Add the terms of a step to the sums of a row; returns the reward. Those of ``reward_terms``."""
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
def _record(p: Image, s: Image, row: int, books: Books) -> None:
    """Keep what an episode that has ended came to, and its decisions, so that it can be played again."""
    book, sums, results, totals, moves, _ = books
    results[R_MAKESPAN_NS, row] = s[S_NOW_NS]
    results[R_BOUND_NS, row] = p[P_BOUND_NS]
    results[R_STEPS, row] = s[S_STEPS]
    results[R_HBM_PEAK, row] = s[S_HBM_PEAK]
    results[R_FINISHED, row] = 1 if s[S_STATUS] == FINISHED else 0
    results[R_INVALID, row] = s[S_INVALID]
    results[R_EPISODE, row] = book[row, B_EPISODE]
    results[R_RUN, row] = book[row, B_RUN]
    for field in range(SUM_WIDTH):
        totals[field, row] = sums[row, field]
    at = s[S_AT_ACTION]
    for i in range(s[S_STEPS]):
        moves[row, i] = s[at + i]


@kernel
def _decide(p: Image, s: Image, row: int, action: int, books: Books, given: Given, penalty: float) -> bool:
    """Take a decision, or begin; returns whether the episode ended by it."""
    book, sums = books[0], books[1]
    rewards, ends = given[0], given[1]
    illegal = s[S_INVALID]
    rise = step(p, s, action)
    over = s[S_STATUS] != RUNNING
    book[row, B_OVER] = 1 if over else 0
    if action == BEGIN:
        return False
    rewards[row] = score(p, s, rise, s[S_INVALID] - illegal, penalty, sums[row])
    if over:
        ends[1, row] = s[S_STATUS] == OUT_OF_STEPS
        ends[0, row] = not ends[1, row]
        _record(p, s, row, books)
    return over


@kernel
def _play_row(
    row: int,
    action: int,
    world: World,
    books: Books,
    seen: Seen,
    last: Seen,
    given: Given,
    autoreset: int,
    penalty: float,
) -> tuple[int, int]:
    """One row of :func:`play`."""
    images, table, states, noise = world
    book, facts = books[0], given[2]
    noisy = noise.shape[1] > 0
    ended = 0
    if action >= 0 and book[row, B_OVER] == 1:  # the action is not looked at
        action = BEGIN
        if not _turn(row, table, books, noisy):
            return 0, 1
    while True:
        p = images[book[row, B_SLOT]]
        s = states[row, : p[P_STATE_WORDS]]
        if action == BEGIN:
            _open(p, s, row, books, noise)
        over = action != LOOK and _decide(p, s, row, action, books, given, penalty)
        if over:
            ended = 1
        followed = over and autoreset == SAME_STEP
        _look(p, s, row, last if followed else seen)
        if not followed:
            break
        if not _turn(row, table, books, noisy):
            return 1, 1
        action = BEGIN
    facts[FACT_NOW_NS, row] = s[S_NOW_NS]
    facts[FACT_INVALID, row] = s[S_INVALID]
    facts[FACT_EPISODE, row] = book[row, B_EPISODE]
    return ended, 0


@kernel
def play(
    rows: Image,
    actions: Image,
    world: World,
    books: Books,
    seen: Seen,
    last: Seen,
    given: Given,
    autoreset: int,
    penalty: float,
) -> tuple[int, int]:
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
        autoreset: ``SAME_STEP`` begins the next episode when one ends, anything else does not.
        penalty: Cost of an illegal action.

    Returns:
        How many episodes ended, and how many are left for the caller to begin: ``absent`` tells which, and
        ``seen`` and the facts have not been written for them.
    """
    rewards, ends = given[0], given[1]
    ended = 0
    left = 0
    for row in rows:
        if actions[row] >= 0:
            rewards[row] = 0.0
            ends[0, row] = False
            ends[1, row] = False
        done, undone = _play_row(row, actions[row], world, books, seen, last, given, autoreset, penalty)
        ended += done
        left += undone
    return ended, left
