"""Program images of the graphs that many environments play: each stands once, whoever plays it.

A key goes in, the row of its image comes out; a graph that nobody has played yet is compiled on the way. The
table says which graphs have a row, so that compiled code can begin an episode by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from cann_env.engine.layout import P_COMMANDS, P_STEP_BUDGET
from cann_env.envs.spaces import check_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cann_env.envs.instances import InstanceKey, Source
    from cann_env.envs.spaces import GraphCapacity
    from cann_env.program import Program

Word = TypeVar("Word", np.int64, np.int32)

_ROWS_AT_FIRST = 8
_LINE = 8  # words of a cache line


class Pool:
    """Images for N environments: at most as many as a run has graphs, and N more.

    Several runs share that room, and an image that nobody plays makes way for another. Without a pool of
    graphs each environment has one row, for the episode that it plays.

    Args:
        source: What makes programs.
        count: Environments (N).
        graph: Capacity of the graph observation, None without one.

    Attributes:
        images: int64 (any, any), one program image a row.
        table: int64 (runs, instances), the row of each graph's image plus one, 0 if it has none. No columns
            if every episode has a graph of its own.
        state_words: Length of a state of the largest program so far.
        step_budget: The largest so far.
        commands: Of the largest graph so far.
    """

    def __init__(self, source: Source, count: int, graph: GraphCapacity | None) -> None:
        self.source = source
        self._graph = graph
        self._fixed = source.scenario.workload.fixed
        self._most = count + (source.instances or 0)
        self._owners: list[tuple[int, int] | None] = [None] * (count if source.instances is None else 0)
        self._runs: dict[int, int] = {}
        self._seeds: dict[int, int] = {}
        self._free: list[int] = []
        self._hand = 0
        self.images = np.zeros((len(self._owners), 0), np.int64)
        self.table = np.zeros((0, source.instances or 0), np.int64)
        self.state_words = self.step_budget = self.commands = 0

    # --- runs ---------------------------------------------------------------------------------------

    def run(self, seed: int) -> int:
        """The row of the run with a seed in the table; a new one gets a free row."""
        if seed not in self._runs:
            if not self._free:
                rows = len(self.table)
                more = np.zeros((max(1, rows), self.table.shape[1]), np.int64)
                self.table = np.concatenate([self.table, more])
                self._free = list(range(rows, len(self.table)))[::-1]
            run = self._free.pop()
            self._runs[seed], self._seeds[run] = run, seed
            if self._fixed and self._owners:
                self.table[run] = 1
        return self._runs[seed]

    def seed(self, run: int) -> int:
        """The seed of a run."""
        return self._seeds[run]

    def keep_runs(self, runs: Iterable[int]) -> None:
        """Forget all runs but these, and give up their rows."""
        gone = set(self._seeds) - set(runs)
        for run in gone:
            del self._runs[self._seeds.pop(run)]
            self._free.append(run)
            self.table[run] = 0
        if not self._fixed:
            self._owners = [None if owner and owner[0] in gone else owner for owner in self._owners]

    # --- images -------------------------------------------------------------------------------------

    def row(self, i: int, key: InstanceKey, played: NDArray[np.int64]) -> int:
        """The row of the image that environment i plays next, compiled if it has none.

        Args:
            i: The environment.
            key: Of the episode; its run has a row in the table.
            played: Rows that environments play now, which nothing else may take.

        Raises:
            InputError: The graph does not fit the graph observation.
        """
        number = self.source.number(key)
        if number is None:
            self._store(i, self.source.program(key))
            return i
        run = self._runs[key.seed]
        if self.table[run, number] == 0:
            program = self.source.program(key)
            row = self._room(played)
            self._store(row, program)
            self._owners[row] = (run, number)
            self.table[slice(None) if self._fixed else run, number] = row + 1
        return int(self.table[run, number]) - 1

    def _room(self, played: NDArray[np.int64]) -> int:
        """A row that nobody plays: a new one, one without owner, or the next one of somebody."""
        if len(self._owners) < self._most:
            self._owners.append(None)
            return len(self._owners) - 1
        busy = set(played.tolist())
        free = (row for row, owner in enumerate(self._owners) if owner is None and row not in busy)
        row = next(free, -1)
        if row < 0:
            row = self._hand
            while row in busy:
                row = (row + 1) % self._most
            self._hand = (row + 1) % self._most
        owner = self._owners[row]
        if owner is not None:
            self.table[owner] = 0
        return row

    def _store(self, row: int, program: Program) -> None:
        if self._graph is not None:
            check_capacity(program, self._graph)
        image = program.image
        rows, width = self.images.shape
        if row >= rows or image.size > width:
            rows = max(rows, min(self._most, max(_ROWS_AT_FIRST, 2 * row)), row + 1)
            self.images = enlarged(self.images, rows, image.size)
        self.images[row, : image.size] = image
        self.state_words = max(self.state_words, program.state_words())
        self.step_budget = max(self.step_budget, int(image[P_STEP_BUDGET]))
        self.commands = max(self.commands, int(image[P_COMMANDS]))


def enlarged(array: NDArray[Word], rows: int, width: int) -> NDArray[Word]:
    """The same rows in an array of at least this many rows and columns.

    Rows are an odd number of cache lines apart, so that equal places of different rows do not meet in one
    set of a cache.
    """
    lines = -(-max(width, array.shape[1]) // _LINE)
    larger = np.zeros((max(rows, array.shape[0]), (lines | 1) * _LINE), array.dtype)
    larger[: array.shape[0], : array.shape[1]] = array
    return larger
