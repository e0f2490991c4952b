"""The project image: tasks, resources and precedence as one flat int64 array.

A header with counts and the offset of each table, then the tables. Lists of different length are kept one
after another, with a table of where each begins; times are in any unit, demands in units of their resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.engine import Image
    from cann_env.tasks import Tasks

(
    Q_TASKS,  # n
    Q_RESOURCES,  # r
    Q_RELEASES,  # 1 if some task becomes known later than at time zero
    Q_AT_DURATION,
    Q_AT_RELEASE,
    Q_AT_TAIL,  # least time from the start of a task to the end of the project
    Q_AT_LOAD,  # for each task the part of all resources that it holds, in LOAD_SCALE, resources together
    Q_AT_CAPACITY,
    Q_AT_USE,  # n + 1 offsets into the pairs
    Q_AT_PAIR,  # resource, units
    Q_AT_BEFORE,  # n + 1 offsets into the predecessors
    Q_AT_PRED,
    Q_AT_AFTER,  # n + 1 offsets into the successors
    Q_AT_SUCC,
    Q_HEADER,
) = range(15)
LOAD_SCALE = 1000


def project_of(tasks: Tasks, *, backwards: bool = False) -> Image:
    """The image of a project, or of the one that runs backwards: from the end to the beginning.

    Backwards nothing is released late: what is found there is an order, not a schedule of the project, unless
    all tasks are known from the start.
    """
    count, resources = tasks.demand.shape
    needed = (tasks.demand > 0) & (tasks.capacity > 0)
    needed &= tasks.demand.sum(axis=0) > tasks.capacity  # all of them at once would hold more than there is
    owner, resource = np.nonzero(needed)
    pairs = np.stack([resource, tasks.demand[owner, resource]], axis=1).ravel()
    share = np.where(needed, tasks.demand / np.maximum(tasks.capacity, 1), 0.0)
    before, pred = tasks.pred_at, tasks.pred
    after, succ = tasks.succ_at, tasks.succ
    release = tasks.release_ns
    tail = tasks.tail_ns
    if backwards:
        before, pred, after, succ = after, succ, before, pred
        release = np.zeros(count, np.int64)
        tail = _heads(tasks) + tasks.duration_ns
    return _join(
        (count, resources, int(release.any())),
        (
            tasks.duration_ns,
            release,
            tail,
            np.rint(share.sum(axis=1) * LOAD_SCALE).astype(np.int64),
            tasks.capacity,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(needed.sum(axis=1))]),
            pairs,
            before,
            pred,
            after,
            succ,
        ),
    )


def _heads(tasks: Tasks) -> Image:
    """Earliest start of each task if resources never bind."""
    heads = np.zeros(len(tasks.duration_ns), np.int64)
    for task in np.argsort(tasks.rank).tolist():
        ends = [int(heads[i] + tasks.duration_ns[i]) for i in tasks.predecessors(task)]
        heads[task] = max(ends, default=0)
    return heads


def _join(counts: Sequence[int], tables: Sequence[Image]) -> Image:
    header = np.zeros(Q_HEADER, np.int64)
    header[: len(counts)] = counts
    at = Q_HEADER
    for i, table in enumerate(tables):
        header[Q_AT_DURATION + i] = at
        at += table.size
    return np.concatenate([header, *tables]).astype(np.int64)
