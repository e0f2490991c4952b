"""A small simulator of queues that run in order, for allocators that weigh thousands of allocations.

It knows tasks as :mod:`cann_env.tasks` does: durations, demands and dependencies. Blocks, bandwidth, memory
and the host are left to the engine proper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine.jit import constant_pointer, kernel, pointer

if TYPE_CHECKING:
    from cann_env.engine import Image

NEVER = np.iinfo(np.int64).max

# Words in front of the tables.
(
    Q_TASKS,  # tasks
    Q_QUEUES,  # queues
    Q_RESOURCES,  # resources that are counted, the last one held by every task; 0 to count none
    Q_SINGLY,  # 1 if at most one task starts at an instant
    Q_GAP_NS,  # between two tasks of one queue
    Q_WAKE_NS,  # from the end of a task to that of its event on another queue
    Q_AT_CAPACITY,  # units of each resource
    Q_AT_TASK,  # rows of tasks
    Q_AT_DEMAND,  # units of each resource for each task
    Q_AT_SUCC,  # successors of all tasks
    Q_HEADER,
) = range(11)
# One row a task.
(
    QT_DURATION_NS,
    QT_TAIL_NS,  # the head with the longest tail starts first
    QT_RELEASE_NS,
    QT_SUCC,  # its first successor
    QT_SUCCS,  # how many
    QT_WIDTH,
) = range(6)
# One row a task, written while it plays.
(
    QS_QUEUE,  # its queue, -1 if it does not take part
    QS_NEXT,  # the task behind it in its queue, -1 for none
    QS_UNDONE,  # predecessors that take part and have not ended
    QS_READY_NS,  # when the last of their events has come
    QS_FINISH_NS,
    QS_FIRST,  # 1 once it is the first of its queue
    QS_WIDTH,
) = range(7)


@kernel
def _fits(p: Image, free: Image, task: int) -> bool:
    resources = p[Q_RESOURCES]
    fits = True
    for r in range(resources):
        fits = fits and p[p[Q_AT_DEMAND] + task * resources + r] <= free[r]
    return fits


@kernel
def _best_head(p: Image, s: Image, free: Image, heads: Image, count: int, now: int) -> int:
    """The place among the heads of the one that starts next; -1 if none can."""
    best = -1
    longest = -1
    if p[Q_RESOURCES] > 0 and free[p[Q_RESOURCES] - 1] == 0:
        return best
    for i in range(count):
        task = heads[i]
        if s[task * QS_WIDTH + QS_READY_NS] > now:
            continue
        tail = p[p[Q_AT_TASK] + task * QT_WIDTH + QT_TAIL_NS]
        if (tail > longest or (tail == longest and task < heads[best])) and _fits(p, free, task):
            longest = tail
            best = i
    return best


@kernel
def _next_event(s: Image, heads: Image, count: int, running: Image, active: int, now: int) -> int:
    """The next instant at which a task ends or a head becomes ready."""
    soonest = NEVER
    for i in range(active):
        soonest = min(soonest, s[running[i] * QS_WIDTH + QS_FINISH_NS])
    for i in range(count):
        ready = s[heads[i] * QS_WIDTH + QS_READY_NS]
        if ready > now:
            soonest = min(soonest, ready)
    return soonest


@kernel
def _tell_successors(p: Image, s: Image, heads: Image, count: int, task: int, now: int) -> int:
    """Let go what waits for a task that has ended; returns how many heads wait for nothing else."""
    row = p[Q_AT_TASK] + task * QT_WIDTH
    queue = s[task * QS_WIDTH + QS_QUEUE]
    for edge in range(p[row + QT_SUCC], p[row + QT_SUCC] + p[row + QT_SUCCS]):
        successor = p[p[Q_AT_SUCC] + edge]
        state = successor * QS_WIDTH
        delay = p[Q_GAP_NS] if s[state + QS_QUEUE] == queue else p[Q_WAKE_NS]
        s[state + QS_UNDONE] -= 1
        s[state + QS_READY_NS] = max(s[state + QS_READY_NS], now + delay)
        if s[state + QS_UNDONE] == 0 and s[state + QS_FIRST] == 1:
            heads[count] = successor
            count += 1
    return count


@kernel
def _take(p: Image, free: Image, task: int, sign: int) -> None:
    resources = p[Q_RESOURCES]
    for r in range(resources):
        free[r] -= sign * p[p[Q_AT_DEMAND] + task * resources + r]


@kernel
def _first_heads(p: Image, s: Image, heads: Image) -> int:
    count = 0
    for task in range(p[Q_TASKS]):
        if s[task * QS_WIDTH + QS_FIRST] == 1 and s[task * QS_WIDTH + QS_UNDONE] == 0:
            heads[count] = task
            count += 1
    return count


@kernel
def _play(p: Image, s: Image, free: Image, heads: Image, running: Image, left: int) -> int:
    now = 0
    active = 0
    count = _first_heads(p, s, heads)
    while left > 0:
        at = _best_head(p, s, free, heads, count, now)
        while at >= 0:
            task = heads[at]
            count -= 1
            heads[at] = heads[count]
            s[task * QS_WIDTH + QS_FINISH_NS] = now + p[p[Q_AT_TASK] + task * QT_WIDTH + QT_DURATION_NS]
            _take(p, free, task, 1)
            running[active] = task
            active += 1
            at = -1 if p[Q_SINGLY] == 1 else _best_head(p, s, free, heads, count, now)
        now = _next_event(s, heads, count, running, active, now)
        if now == NEVER:
            return -1
        i = 0
        while i < active:
            task = running[i]
            if s[task * QS_WIDTH + QS_FINISH_NS] > now:
                i += 1
                continue
            active -= 1
            running[i] = running[active]
            _take(p, free, task, -1)
            count = _tell_successors(p, s, heads, count, task, now)
            left -= 1
            follower = s[task * QS_WIDTH + QS_NEXT]
            if follower >= 0:
                state = follower * QS_WIDTH
                s[state + QS_FIRST] = 1
                s[state + QS_READY_NS] = max(s[state + QS_READY_NS], now + p[Q_GAP_NS])
                if s[state + QS_UNDONE] == 0:
                    heads[count] = follower
                    count += 1
    return now


@kernel
def play_in_order(p: Image, order: Image, queue_of: Image, s: Image) -> int:
    """Play tasks in queues; returns when the last one ends (ns), or -1 if queues wait for each other.

    Args:
        p: Tasks and resources, see ``Q_`` and ``QT_``.
        order: All tasks, the first of each queue first.
        queue_of: Queue of each task, -1 for one that does not take part and is not waited for.
        s: Scratch of QS_WIDTH words a task.
    """
    tasks, queues = p[Q_TASKS], p[Q_QUEUES]
    s[:] = 0
    last = np.full(queues, -1, np.int64)
    heads = np.zeros(tasks, np.int64)
    running = np.zeros(tasks, np.int64)
    left = 0
    for i in range(tasks):
        task = order[i]
        state, queue = task * QS_WIDTH, queue_of[task]
        s[state + QS_QUEUE] = queue
        s[state + QS_NEXT] = -1
        s[state + QS_READY_NS] = p[p[Q_AT_TASK] + task * QT_WIDTH + QT_RELEASE_NS]
        if queue < 0:
            continue
        left += 1
        if last[queue] >= 0:
            s[last[queue] * QS_WIDTH + QS_NEXT] = task
        else:
            s[state + QS_FIRST] = 1
        last[queue] = task
    for task in range(tasks):
        row = p[Q_AT_TASK] + task * QT_WIDTH
        if queue_of[task] >= 0:
            for edge in range(p[row + QT_SUCC], p[row + QT_SUCC] + p[row + QT_SUCCS]):
                s[p[p[Q_AT_SUCC] + edge] * QS_WIDTH + QS_UNDONE] += 1
    free = np.zeros(max(p[Q_RESOURCES], 1), np.int64)
    for r in range(p[Q_RESOURCES]):
        free[r] = p[p[Q_AT_CAPACITY] + r]
    return _play(constant_pointer(p), pointer(s), pointer(free), pointer(heads), pointer(running), left)
