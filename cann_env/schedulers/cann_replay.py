"""The simulations by which the weighted modes choose among their best candidates.

As the graph engine does it, one head starts at a time and cores are not counted: the makespan is the sum of
all durations, whichever candidate is looked at, so that ties go to the score. The honest one starts all heads
that find their cores, knows what an event costs, and lets chains that are not placed yet run on queues of
their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine import in_order as io
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedulers.cann_merge import Streams
    from cann_env.schedulers.cann_units import Unit


class Queues:
    """Plays allocations of one program in queues, again and again.

    Args:
        program: The program.
        honest: Count cores and other resources, start whatever can start, charge events; else as the graph
            engine does it.
    """

    def __init__(self, program: Program, *, honest: bool) -> None:
        self._image = _image_of(program, honest)
        self._order = np.asarray(program.graph.topological_order, np.int64)
        self._scratch = np.zeros(self._order.size * io.QS_WIDTH, np.int64)

    def makespan_ns(self, queue_of: Sequence[int] | Image) -> int:
        """When the last command ends; -1 if the queues wait for each other.

        Args:
            queue_of: Queue of each command, in program order on each; -1 leaves a command out.
        """
        queues = np.asarray(queue_of, np.int64)
        self._image[io.Q_QUEUES] = int(queues.max()) + 1
        return int(io.play_in_order(self._image, self._order, queues, self._scratch))


class Replay:
    """Makespan of a partial allocation if a chain goes to a stream.

    Args:
        program: The program.
        units: All chains.
        honest: See :class:`Queues`; chains that are not placed take part only if it is so.
    """

    def __init__(self, program: Program, units: Sequence[Unit], *, honest: bool) -> None:
        self._queues = Queues(program, honest=honest)
        self._own = np.full(len(program.graph.commands), -1, np.int64)
        if honest:
            self._own = np.arange(self._own.size)
            for unit in units:
                self._own[list(unit.members)] = unit.members[0]

    def __call__(self, streams: Streams, unit: Unit, stream: int) -> int:
        """The makespan (ns), see :class:`Replay`."""
        most = streams.most
        queue_of = np.where(self._own < 0, -1, self._own + most)
        placed = streams.stream_of
        queue_of[list(placed)] = list(placed.values())
        queue_of[list(unit.members)] = stream
        return self._queues.makespan_ns(queue_of)


def _image_of(program: Program, honest: bool) -> Image:
    """A program as :mod:`cann_env.engine.in_order` reads it."""
    tasks = tasks_of(program)
    dispatch = program.device.dispatch
    count = len(program.graph.commands)
    rows = np.zeros((count, io.QT_WIDTH), np.int64)
    rows[:, io.QT_DURATION_NS] = tasks.duration_ns
    rows[:, io.QT_TAIL_NS] = tasks.tail_ns
    rows[:, io.QT_SUCC] = tasks.succ_at[:-1]
    rows[:, io.QT_SUCCS] = np.diff(tasks.succ_at)
    head = np.zeros(io.Q_HEADER, np.int64)
    head[io.Q_TASKS] = count
    if honest:
        rows[:, io.QT_RELEASE_NS] = tasks.release_ns
        head[io.Q_RESOURCES] = tasks.capacity.size
        head[io.Q_GAP_NS] = dispatch.gap_ns
        head[io.Q_WAKE_NS] = dispatch.record_ns + dispatch.wake_ns
    else:
        head[io.Q_SINGLY] = 1
    parts = [head, tasks.capacity, rows.ravel(), tasks.demand.ravel(), tasks.succ]
    starts = np.cumsum([part.size for part in parts])
    tables = (io.Q_AT_CAPACITY, io.Q_AT_TASK, io.Q_AT_DEMAND, io.Q_AT_SUCC)
    for table, at in zip(tables, starts[:-1], strict=True):
        head[table] = at
    return np.concatenate(parts)
