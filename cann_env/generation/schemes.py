"""The two schedule generation schemes (Kelley 1963; Kolisch, European Journal of Operational Research 1996).

Both take tasks by ascending key. The serial one gives each task the earliest start at which its resources
suffice all along, before or after those already placed: its schedules are active, and some optimum is among
them. The parallel one goes through time and never waits where something could start: non-delay.

What is free is kept as steps: from each of the sorted instants on so much of each resource, to the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.generation.project import (
    Q_AT_AFTER,
    Q_AT_BEFORE,
    Q_AT_CAPACITY,
    Q_AT_DURATION,
    Q_AT_PAIR,
    Q_AT_RELEASE,
    Q_AT_SUCC,
    Q_AT_USE,
    Q_RESOURCES,
    Q_TASKS,
)

if TYPE_CHECKING:
    from cann_env.engine import Image

FAR = 1 << 62

# Scratch w: header, then tables for n tasks, r resources and 2n + 2 steps.
(
    W_STEPS,  # steps of what is free
    W_ELIGIBLE,  # entries of the list of eligible tasks
    W_AT_STEP,  # 2n + 2 instants
    W_AT_FREE,  # for each of them r units
    W_AT_MISSING,  # n: predecessors that are not placed
    W_AT_ELIGIBLE,  # n
    W_AT_READY,  # n: when the last predecessor ends
    W_HEADER,
) = range(8)


def scratch_words(tasks: int, resources: int) -> int:
    """Length of the scratch (int64 words)."""
    return W_HEADER + (2 * tasks + 2) * (1 + resources) + 3 * tasks


@kernel
def lay_scratch(q: Image, w: Image) -> None:
    """Write where the tables of the scratch begin."""
    n, r = q[Q_TASKS], q[Q_RESOURCES]
    steps = 2 * n + 2
    w[W_AT_STEP] = W_HEADER
    w[W_AT_FREE] = W_HEADER + steps
    w[W_AT_MISSING] = W_HEADER + steps * (1 + r)
    w[W_AT_ELIGIBLE] = w[W_AT_MISSING] + n
    w[W_AT_READY] = w[W_AT_ELIGIBLE] + n


@kernel
def _begin(q: Image, w: Image) -> None:
    """Nothing is placed: everything is free from the beginning on."""
    r = q[Q_RESOURCES]
    w[W_STEPS] = 1
    w[w[W_AT_STEP]] = 0
    for j in range(r):
        w[w[W_AT_FREE] + j] = q[q[Q_AT_CAPACITY] + j]
    eligible = 0
    for i in range(q[Q_TASKS]):
        missing = q[q[Q_AT_BEFORE] + i + 1] - q[q[Q_AT_BEFORE] + i]
        w[w[W_AT_MISSING] + i] = missing
        w[w[W_AT_READY] + i] = q[q[Q_AT_RELEASE] + i]
        if missing == 0:
            w[w[W_AT_ELIGIBLE] + eligible] = i
            eligible += 1
    w[W_ELIGIBLE] = eligible


@kernel
def _fits(q: Image, w: Image, task: int, step: int) -> bool:
    """Whether a step has room for a task."""
    free = w[W_AT_FREE] + step * q[Q_RESOURCES]
    for use in range(q[q[Q_AT_USE] + task], q[q[Q_AT_USE] + task + 1]):
        pair = q[Q_AT_PAIR] + 2 * use
        if w[free + q[pair]] < q[pair + 1]:
            return False
    return True


@kernel
def _step_of(w: Image, instant: int) -> int:
    """The last step that begins no later than an instant."""
    low = 0
    high = w[W_STEPS] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if w[w[W_AT_STEP] + middle] <= instant:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _split(q: Image, w: Image, instant: int, near: int) -> int:
    """The step that begins at an instant, made if there is none; ``near`` begins no later."""
    r, at = q[Q_RESOURCES], w[W_AT_STEP]
    step = near
    while step + 1 < w[W_STEPS] and w[at + step + 1] <= instant:
        step += 1
    if w[at + step] == instant:
        return step
    for other in range(w[W_STEPS] - 1, step, -1):
        w[at + other + 1] = w[at + other]
    first = w[W_AT_FREE] + (step + 1) * r
    for word in range(w[W_AT_FREE] + w[W_STEPS] * r - 1, first - 1, -1):
        w[word + r] = w[word]
    w[at + step + 1] = instant
    for j in range(r):
        w[first + j] = w[first - r + j]
    w[W_STEPS] += 1
    return step + 1


@kernel
def _earliest(q: Image, w: Image, task: int) -> int:
    """The earliest start of a task, given those that are placed."""
    at, steps = w[W_AT_STEP], w[W_STEPS]
    duration = q[q[Q_AT_DURATION] + task]
    start: int = w[w[W_AT_READY] + task]
    step = _step_of(w, start)
    while step < steps and w[at + step] < start + duration:
        if not _fits(q, w, task, step):
            start = w[at + step + 1]  # the last step is free: nothing ends later than it begins
        step += 1
    return start


@kernel
def _occupy(q: Image, w: Image, task: int, start: int) -> None:
    """Take the resources of a task from its start to its end."""
    end = start + q[q[Q_AT_DURATION] + task]
    if end == start or q[q[Q_AT_USE] + task] == q[q[Q_AT_USE] + task + 1]:
        return
    first = _split(q, w, start, _step_of(w, start))
    last = _split(q, w, end, first)
    r = q[Q_RESOURCES]
    for use in range(q[q[Q_AT_USE] + task], q[q[Q_AT_USE] + task + 1]):
        pair = q[Q_AT_PAIR] + 2 * use
        word = w[W_AT_FREE] + first * r + q[pair]
        for _ in range(first, last):
            w[word] -= q[pair + 1]
            word += r


@kernel
def _release(q: Image, w: Image, place: int, end: int) -> None:
    """An eligible task has been placed: its successors may become eligible."""
    eligible = w[W_AT_ELIGIBLE]
    task = w[eligible + place]
    w[W_ELIGIBLE] -= 1
    w[eligible + place] = w[eligible + w[W_ELIGIBLE]]
    for edge in range(q[q[Q_AT_AFTER] + task], q[q[Q_AT_AFTER] + task + 1]):
        after = q[q[Q_AT_SUCC] + edge]
        w[w[W_AT_MISSING] + after] -= 1
        w[w[W_AT_READY] + after] = max(w[w[W_AT_READY] + after], end)
        if w[w[W_AT_MISSING] + after] == 0:
            w[eligible + w[W_ELIGIBLE]] = after
            w[W_ELIGIBLE] += 1


@kernel
def serial(q: Image, e: Image, keys: int, starts: int, w: Image) -> int:
    """Serial schedule generation; writes the starts and returns the makespan.

    Args:
        q: Project image.
        e: Where keys and starts are.
        keys: Where the n keys begin: of the eligible tasks that with the smallest goes next, of equals the
            lowest.
        starts: Where the n starts begin, which are written.
        w: Scratch, laid out.
    """
    _begin(q, w)
    makespan = 0
    for _ in range(q[Q_TASKS]):
        best = 0
        for place in range(1, w[W_ELIGIBLE]):
            one, other = w[w[W_AT_ELIGIBLE] + place], w[w[W_AT_ELIGIBLE] + best]
            if e[keys + one] < e[keys + other] or (e[keys + one] == e[keys + other] and one < other):
                best = place
        task = w[w[W_AT_ELIGIBLE] + best]
        start = _earliest(q, w, task)
        _occupy(q, w, task, start)
        e[starts + task] = start
        end = start + q[q[Q_AT_DURATION] + task]
        makespan = max(makespan, end)
        _release(q, w, best, end)
    return makespan


@kernel
def _startable(q: Image, e: Image, keys: int, w: Image, now: int, step: int) -> int:
    """Place of the eligible task with the smallest key that can start now; -1 if there is none."""
    best = -1
    for place in range(w[W_ELIGIBLE]):
        task = w[w[W_AT_ELIGIBLE] + place]
        if w[w[W_AT_READY] + task] > now:
            continue
        if best >= 0:
            other = w[w[W_AT_ELIGIBLE] + best]
            if e[keys + task] > e[keys + other] or (e[keys + task] == e[keys + other] and task > other):
                continue
        if _fits(q, w, task, step):
            best = place
    return best


@kernel
def _next_instant(q: Image, w: Image, now: int) -> int:
    """The next instant at which something ends or becomes ready."""
    after = FAR
    at = w[W_AT_STEP]
    step = _step_of(w, now) + 1
    if step < w[W_STEPS]:
        after = w[at + step]
    for place in range(w[W_ELIGIBLE]):
        ready = w[w[W_AT_READY] + w[w[W_AT_ELIGIBLE] + place]]
        if ready > now:
            after = min(after, ready)
    return after


@kernel
def parallel(q: Image, e: Image, keys: int, starts: int, w: Image) -> int:
    """Parallel schedule generation; takes and returns what :func:`serial` does."""
    _begin(q, w)
    makespan = 0
    now = 0
    left = q[Q_TASKS]
    while left > 0:
        place = _startable(q, e, keys, w, now, _step_of(w, now))
        if place < 0:
            now = _next_instant(q, w, now)
            continue
        task = w[w[W_AT_ELIGIBLE] + place]
        _occupy(q, w, task, now)
        e[starts + task] = now
        end = now + q[q[Q_AT_DURATION] + task]
        makespan = max(makespan, end)
        _release(q, w, place, end)
        left -= 1
    return makespan
