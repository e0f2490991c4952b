"""The episodes of many environments in a few arrays, one row each: what the engine plays in one call.

Seeds and actions go in; observations, masks, rewards and what ended episodes came to go out. The engine
begins episodes by itself where it can; the others are begun here, since their graphs have to be compiled or
their durations drawn. Arrays grow when a graph comes that is larger than all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.engine.episodes import (
    B_EPISODE,
    B_LEFT,
    B_NEXT,
    B_OVER,
    B_RUN,
    B_SLOT,
    B_WIDTH,
    FACTS,
    LOOK,
    R_EPISODE,
    R_FINISHED,
    R_RUN,
    R_STEPS,
    R_WIDTH,
    SAME_STEP,
    TERMS,
    Books,
    Given,
    Seen,
    first_wrong,
    play,
)
from cann_env.engine.layout import BEGIN, P_STATE_WORDS
from cann_env.envs.instances import InstanceKey, words_of
from cann_env.envs.pool import Pool, enlarged
from cann_env.envs.spaces import action_space, cuts_of
from cann_env.envs.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.envs.instances import Source
    from cann_env.envs.spaces import GraphCapacity


_PARTS = 4
_SMALLEST_PART = 32  # rows: about as long as it takes to hand over a part


class Ended(NamedTuple):
    """All that it takes to play an episode again: what it depends on, its decisions, whether it finished."""

    key: InstanceKey
    actions: tuple[int, ...]
    finished: bool


class Rows:
    """Books, states and views of N environments.

    Args:
        source: What they play.
        count: Environments (N).
        env_index: Index of the first one.
        graph: Capacity of the graph observation, None without one.
        same_step: Whether an episode that ends is followed by the next one in the same step.
        fresh: Whether every step writes into arrays of its own.
        threads: How many share the rows.

    Attributes:
        seen, last, given, books: See :mod:`cann_env.engine.episodes`. ``masks`` of ``seen`` is always the
            same array.
        complete: Whether every environment has an episode.
        stopped: How many have one that is over, and followed by none yet.
    """

    def __init__(
        self,
        source: Source,
        count: int,
        *,
        env_index: int = 0,
        graph: GraphCapacity | None = None,
        same_step: bool = True,
        fresh: bool = True,
        threads: int = 1,
    ) -> None:
        options = source.scenario.options
        self._cuts = cuts_of(options, graph)
        self._sizes = (max(stop for _, stop in self._cuts.values()), int(action_space(options).n))
        self._env_index = env_index
        self._fresh = fresh
        self._pool = Pool(source, count, graph)
        self._workers = Workers(threads)
        self._parts = self._split(np.arange(count))
        self._how = (tuple(graph or (0, 0)), SAME_STEP if same_step else 0, options.invalid_penalty)
        self._orders = np.full(count, LOOK)
        self._states = np.zeros((count, 0), np.int64)
        self._noise = np.zeros((count, 0), np.int64)
        self.books = Books(
            book=np.full((count, B_WIDTH), -1, np.int64),
            sums=np.zeros((count, 2 * TERMS)),
            results=np.full((count, R_WIDTH), -1, np.int64),
            moves=np.zeros((count, 0), np.int32),
        )
        self.complete = False
        self.stopped = 0
        self.seen = _new_seen(count, *self._sizes)
        self.last = _new_seen(count if same_step else 0, *self._sizes)
        self.given = _new_given(count)

    # --- what happens -------------------------------------------------------------------------------

    def set_seeds(self, seeds: Mapping[int, int]) -> None:
        """Give environments the seeds of their runs, whose first episodes come next."""
        book, results = self.books.book, self.books.results
        for i, seed in seeds.items():
            run = self._pool.run(seed)
            book[i, B_RUN : B_NEXT + 1] = [run, *words_of(seed, self._env_index + i), -1, 0]
        self._pool.keep_runs({*book[:, B_RUN].tolist(), *results[:, R_RUN].tolist()})

    def renew(self) -> None:
        """Take fresh arrays to write to, if that was asked for; every row of them is to be written."""
        if self._fresh:
            count = len(self._orders)
            self.seen = Seen(np.empty_like(self.seen.flat), self.seen.masks)
            self.given = _new_given(count)

    def begin(self, rows: NDArray[np.int64], episode: int | None = None) -> None:
        """Bring environments to the first decision of their next episode, or of the one that is named.

        Raises:
            InputError: A graph does not fit the graph observation.
        """
        book = self.books.book
        if episode is not None:
            book[rows, B_NEXT] = episode
        self.complete = False
        try:
            for i in rows.tolist():
                key = self._key(i, int(book[i, B_NEXT]))
                book[i, B_SLOT] = self._pool.row(i, key, book[:, B_SLOT])
                self._draw(i, key)
        except BaseException:
            book[rows, B_SLOT] = -1  # some have left their old episode, and none has begun the new one
            raise
        self.complete = bool((book[:, B_SLOT] >= 0).all())
        self._grow()
        self._orders[rows] = BEGIN
        self._play(self._split(rows), self._orders)
        self.stopped = int((book[:, B_OVER] == 1).sum())

    def look(self, rows: NDArray[np.int64]) -> None:
        """Write what agents see of some environments."""
        self._orders[rows] = LOOK
        self._play(self._split(rows), self._orders)

    def wrong(self, actions: NDArray[np.int64]) -> int:
        """The first environment whose action is out of range, -1 if there is none."""
        return int(first_wrong(actions, self._sizes[1]))

    def step(self, actions: NDArray[np.int64]) -> int:
        """Take a decision in every environment; returns how many episodes ended."""
        ended, self.stopped, left = self._play(self._parts, actions)
        if left:
            self.begin(np.flatnonzero(self.books.book[:, B_LEFT] == 1))
        return ended

    def close(self) -> None:
        """End the threads."""
        self._workers.close()

    # --- what there is ------------------------------------------------------------------------------

    def empty(self) -> NDArray[np.int64]:
        """Environments that have not begun."""
        return np.flatnonzero(self.books.book[:, B_SLOT] < 0)

    def over(self) -> NDArray[np.int64]:
        """Environments whose episode is over and followed by none yet."""
        return np.flatnonzero(self.books.book[:, B_OVER] == 1)

    def state(self, i: int) -> Image:
        """A copy of the state image of an environment that has begun."""
        image = self._pool.images[self.books.book[i, B_SLOT]]
        return self._states[i, : image[P_STATE_WORDS]].copy()

    def key(self, i: int) -> InstanceKey:
        """What the present episode of an environment depends on."""
        return self._key(i, int(self.books.book[i, B_EPISODE]))

    def ended(self, i: int) -> Ended | None:
        """The episode of an environment that ended last; None if none has ended yet."""
        results = self.books.results[i]
        if results[R_STEPS] < 0:
            return None
        seed = self._pool.seed(int(results[R_RUN]))
        key = InstanceKey(seed, self._env_index + i, int(results[R_EPISODE]))
        actions = tuple(self.books.moves[i, : results[R_STEPS]].tolist())
        return Ended(key, actions, bool(results[R_FINISHED]))

    def parts(self, seen: Seen, rows: NDArray[np.int64] | None = None) -> dict[str, NDArray[np.float32]]:
        """The parts of the observation, (N, length) each, as views; of some rows, in fresh arrays."""
        flat = seen.flat if rows is None else seen.flat[rows]
        return {name: flat[:, start:stop] for name, (start, stop) in self._cuts.items()}

    # --- inside -------------------------------------------------------------------------------------

    def _play(self, parts: list[NDArray[np.int64]], actions: NDArray[np.int64]) -> tuple[int, ...]:
        world = (self._pool.images, self._pool.table, self._states, self._noise)
        bundles = (tuple(self.books), tuple(self.seen), tuple(self.last), tuple(self.given))
        rest: tuple[Any, ...] = (actions, world, *bundles, *self._how)
        return self._workers.run(lambda rows: play(rows, *rest), parts)

    def _split(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Contiguous parts: one if there is one thread, else several for each, but none that is too small."""
        threads = self._workers.count
        if threads == 1:
            return [rows]
        several = min(_PARTS * threads, rows.size // _SMALLEST_PART)
        return np.array_split(rows, max(1, min(threads, rows.size), several))

    def _key(self, i: int, episode: int) -> InstanceKey:
        return InstanceKey(self._pool.seed(int(self.books.book[i, B_RUN])), self._env_index + i, episode)

    def _draw(self, i: int, key: InstanceKey) -> None:
        """Draw the realised durations of an episode, if they vary."""
        source = self._pool.source
        if source.scenario.options.noise == 0.0:
            return
        factors = source.noise(source.program(key), key)
        if factors is None:
            return
        if factors.size > self._noise.shape[1]:
            self._noise = enlarged(self._noise, 0, factors.size)
        self._noise[i, : factors.size] = factors

    def _grow(self) -> None:
        if self._pool.state_words > self._states.shape[1]:
            self._states = enlarged(self._states, 0, self._pool.state_words)
        if self._pool.step_budget > self.books.moves.shape[1]:
            self.books = self.books._replace(moves=enlarged(self.books.moves, 0, self._pool.step_budget))


def _new_seen(count: int, features: int, actions: int) -> Seen:
    return Seen(np.empty((count, features), np.float32), np.empty((count, actions), np.int8))


def _new_given(count: int) -> Given:
    return Given(np.empty(count), np.empty((2, count), np.bool_), np.empty((FACTS, count), np.int64))
