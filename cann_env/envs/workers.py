"""Persistent threads that share the rows of one call; what they call must let go of Python's lock.

Parts of the rows go in, one for each thread, and the sums of what a function returns for each come out. The
calling thread takes the first part itself, so a single part needs no thread at all.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Call = Callable[[NDArray[np.int64]], tuple[int, ...]]


class _Worker:
    """One thread, and the two locks by which it is told to begin and tells that it has ended."""

    def __init__(self) -> None:
        self.begin, self.end = threading.Lock(), threading.Lock()
        self.begin.acquire()
        self.end.acquire()
        self.job: tuple[Call, NDArray[np.int64]] | None = None
        self.result: tuple[int, ...] | BaseException = ()
        threading.Thread(target=self._run, daemon=True, name="cann-env rows").start()

    def _run(self) -> None:
        while True:
            self.begin.acquire()
            if self.job is None:
                return
            call, rows = self.job
            try:
                self.result = call(rows)
            except BaseException as error:  # handed to the thread that asked
                self.result = error
            del call
            self.job = None
            self.end.release()


class Workers:
    """A number of threads, started at the first use and again in a process that was forked.

    Args:
        count: Parts that are worked on at once, at least 1.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._workers: list[_Worker] = []
        self._process = 0

    def __reduce__(self) -> tuple[type[Workers], tuple[int]]:
        """A copy has threads of its own."""
        return Workers, (self.count,)

    def run(self, call: Call, parts: Sequence[NDArray[np.int64]]) -> tuple[int, ...]:
        """Call a function for every part at once, ``count`` at the most; returns the sums of its results."""
        if len(parts) == 1:
            return call(parts[0])
        busy = self._started()[: len(parts) - 1]
        for worker, part in zip(busy, parts[1:], strict=True):
            worker.job = (call, part)
            worker.begin.release()
        try:
            results = [call(parts[0])]
        finally:
            for worker in busy:
                worker.end.acquire()
        for worker in busy:
            if isinstance(worker.result, BaseException):
                raise worker.result
            results.append(worker.result)
        return tuple(map(sum, zip(*results, strict=True)))

    def close(self) -> None:
        """End the threads; another call starts new ones."""
        _end(self._workers)

    def _started(self) -> list[_Worker]:
        if not self._workers or self._process != os.getpid():
            self._process = os.getpid()
            self._workers = [_Worker() for _ in range(self.count - 1)]
            weakref.finalize(self, _end, self._workers)
        return self._workers


def _end(workers: list[Any]) -> None:
    for worker in workers:
        worker.begin.release()
    workers.clear()
