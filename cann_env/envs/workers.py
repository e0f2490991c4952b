"""Persistent threads that share the rows of one call; what they call must let go of Python's lock.

Parts of the rows go in, and the sums of what a function returns for each come out. Whoever is done with a
part takes the next one, the calling thread among them: nobody waits for a thread that wakes late.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from operator import add
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Call = Callable[[NDArray[np.int64]], tuple[int, ...]]
    Parts = deque[NDArray[np.int64]]


class _Worker:
    """One thread, what it is to do, and what came of it; numbers tell what belongs together."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[int, Call, Parts] | None] = SimpleQueue()
        self.results: SimpleQueue[tuple[int, tuple[int, ...] | BaseException]] = SimpleQueue()
        arguments = (self.jobs, self.results)
        threading.Thread(target=_work, args=arguments, daemon=True, name="cann-env rows").start()

    def result(self, number: int) -> tuple[int, ...]:
        """What came of a job, now or when it is done."""
        got, result = self.results.get()
        while got != number:  # of a call that was interrupted
            got, result = self.results.get()
        if isinstance(result, BaseException):
            raise result
        return result


def _work(jobs: SimpleQueue[Any], results: SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        number, call, parts = job
        try:
            results.put((number, _take_parts(call, parts)))
        except BaseException as error:  # handed to the thread that asked
            results.put((number, error))
        del job, call, parts


def _take_parts(call: Call, parts: Parts) -> tuple[int, ...]:
    """Work on parts until none is left."""
    sums: tuple[int, ...] = ()
    while True:
        try:
            rows = parts.popleft()
        except IndexError:
            return sums
        result = call(rows)
        sums = tuple(map(add, sums, result)) if sums else result


class Workers:
    """A number of threads, started at the first use and again in a process that was forked.

    Args:
        count: How many work at once, at least 1.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._workers: list[_Worker] = []
        self._process = 0
        self._calls = 0

    def __reduce__(self) -> tuple[type[Workers], tuple[int]]:
        """A copy has threads of its own."""
        return Workers, (self.count,)

    def run(self, call: Call, parts: Sequence[NDArray[np.int64]]) -> tuple[int, ...]:
        """Call a function for every part, at least one, whoever takes it; returns the sums of its results."""
        if len(parts) == 1:
            return call(parts[0])
        left = deque(parts)
        busy = self._started()[: len(parts) - 1]
        self._calls += 1
        for worker in busy:
            worker.jobs.put((self._calls, call, left))
        try:
            results = [_take_parts(call, left)]
        finally:
            others = [worker.result(self._calls) for worker in busy]
        results += others
        return tuple(map(sum, zip(*filter(None, results), strict=True)))

    def close(self) -> None:
        """End the threads; another call starts new ones."""
        _end(self._workers)

    def _started(self) -> list[_Worker]:
        if not self._workers or self._process != os.getpid():
            self._process = os.getpid()
            self._workers = [_Worker() for _ in range(self.count - 1)]
            weakref.finalize(self, _end, self._workers)
        return self._workers


def _end(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.jobs.put(None)
    workers.clear()
