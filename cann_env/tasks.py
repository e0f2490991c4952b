"""A program seen as a project: tasks with durations that hold units of resources, and nothing else.

That is what the literature on scheduling works with (resource-constrained project scheduling). It leaves out
queues, events, the host, how bandwidth is divided and what lies in L2; the engine has the last word on what a
schedule made from it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine import layout as at
from cann_env.lowering.classes import PAIRS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program

FULL_RATE = 1000
"""Capacity of the resource ``hbm``: a task holds the part of the bandwidth that it would use alone."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Tasks:
    """The commands of a program as tasks; n tasks, r resources, e edges. All arrays are int64.

    Attributes:
        duration_ns: (n,) time a command takes alone on the device, launches included, at the least.
        tail_ns: (n,) least time from its start to the end of the graph.
        release_ns: (n,) when it becomes known.
        resources: Names: the pools of a die, then ``hbm`` (see :data:`FULL_RATE`), then ``slots`` (streams
            whose head may be active at once). Dies count together.
        capacity: (r,) units there are.
        demand: (n, r) units that a task holds while it runs. A kernel with more blocks than cores holds all
            cores; of a command with several kernels the largest demands count.
        pred_at, pred: (n + 1,) and (e,): predecessors of task i are ``pred[pred_at[i] : pred_at[i + 1]]``.
        succ_at, succ: The same for successors.
        rank: (n,) place of each task by descending tail, ties by index: predecessors come before.
    """

    duration_ns: Image
    tail_ns: Image
    release_ns: Image
    resources: tuple[str, ...]
    capacity: Image
    demand: NDArray[np.int64]
    pred_at: Image
    pred: Image
    succ_at: Image
    succ: Image
    rank: Image

    def predecessors(self, task: int) -> list[int]:
        """Tasks that must end before a task starts."""
        found: list[int] = self.pred[self.pred_at[task] : self.pred_at[task + 1]].tolist()
        return found

    def successors(self, task: int) -> list[int]:
        """Tasks that start after a task has ended."""
        found: list[int] = self.succ[self.succ_at[task] : self.succ_at[task + 1]].tolist()
        return found


def tasks_of(program: Program) -> Tasks:
    """See a program as tasks."""
    image = program.image
    count = len(program.graph.commands)
    commands = _rows(image, at.P_AT_COMMAND, count, at.PC_WIDTH)
    edges = int(image[at.P_EDGES])
    return Tasks(
        duration_ns=commands[:, at.PC_MIN_NS].copy(),
        tail_ns=commands[:, at.PC_TAIL_NS].copy(),
        release_ns=commands[:, at.PC_RELEASE_NS].copy(),
        resources=(*program.device.pool_names, "hbm", "slots"),
        capacity=_capacity(program),
        demand=_demand(program, commands),
        pred_at=_starts(commands[:, at.PC_PREDS]),
        pred=_words(image, at.P_AT_PRED, edges),
        succ_at=_starts(commands[:, at.PC_SUCCS]),
        succ=_words(image, at.P_AT_SUCC, edges),
        rank=commands[:, at.PC_RANK].copy(),
    )


def _rows(image: Image, table: int, count: int, width: int) -> NDArray[np.int64]:
    first = int(image[table])
    return image[first : first + count * width].reshape(count, width)


def _words(image: Image, table: int, count: int) -> Image:
    first = int(image[table])
    return image[first : first + count].copy()


def _starts(counts: Image) -> Image:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _capacity(program: Program) -> Image:
    image = program.image
    pools = _rows(image, at.P_AT_POOL, int(image[at.P_POOLS]), at.PP_WIDTH)[:, at.PP_CAPACITY]
    slots = min(int(image[at.P_MAX_ACTIVE]), program.options.streams)
    return np.append(pools * int(image[at.P_DIES]), [FULL_RATE * int(image[at.P_DIES]), slots])


def _demand(program: Program, commands: NDArray[np.int64]) -> NDArray[np.int64]:
    """Units that each command holds, shape (n, pools + 2)."""
    image = program.image
    pools = int(image[at.P_POOLS])
    kernels = _rows(image, at.P_AT_KERNEL, int(commands[:, at.PC_KERNELS].sum()), at.PK_WIDTH)
    classes = _class_demand(image, pools)
    capacity = _rows(image, at.P_AT_POOL, pools, at.PP_WIDTH)[:, at.PP_CAPACITY]
    owner = classes[kernels[:, at.PK_CLASS]]
    at_once = np.where(owner > 0, capacity // np.maximum(owner, 1), np.iinfo(np.int64).max).min(axis=1)
    held = owner * np.minimum(kernels[:, at.PK_BLOCKS], at_once)[:, None]
    demand = np.ones((len(commands), pools + 2), np.int64)
    first = commands[:, at.PC_KERNEL]
    demand[:, :pools] = np.maximum.reduceat(held, first)
    demand[:, pools] = _share_of_hbm(image, commands, kernels)
    return demand


def _class_demand(image: Image, pools: int) -> NDArray[np.int64]:
    """Units of each pool that a block of each class holds."""
    rows = _rows(image, at.P_AT_CLASS, int(image[at.P_CLASSES]), at.PW_WIDTH)
    demand = np.zeros((len(rows), pools), np.int64)
    every = np.arange(len(rows))
    for pool in PAIRS:
        units = pool + 1
        used = rows[:, units] > 0
        demand[every[used], rows[used, pool]] += rows[used, units]
    return demand


def _share_of_hbm(image: Image, commands: NDArray[np.int64], kernels: NDArray[np.int64]) -> Image:
    """Part of the bandwidth of a die's HBM that each command would use alone, rounded down."""
    moves = kernels[:, at.PK_FLOW] & 1
    moved = kernels[:, at.PK_LEAST_BYTES] * kernels[:, at.PK_BLOCKS] * kernels[:, at.PK_HBM_WEIGHT] * moves
    of_command = np.add.reduceat(moved, commands[:, at.PC_KERNEL]).astype(float)
    rate = float(image[int(image[at.P_AT_LINK]) + at.PL_RATE])
    alone = of_command / rate / np.maximum(commands[:, at.PC_MIN_NS], 1)
    share: Image = np.minimum(alone * FULL_RATE, FULL_RATE).astype(np.int64)
    return share
