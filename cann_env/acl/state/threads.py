"""Threads of a program that handle callbacks: one runs at a time, and only when it is handed something.

A program starts a thread that asks again and again for callbacks to run. Here it is a real thread, but it
runs only while the one that reached the callback in simulated time waits for it, so that a program does the
same every time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


_MOMENT: Final = 0.01
"""Seconds that a question for callbacks takes when there are none."""

_PATIENCE: Final = 5.0
"""Seconds that a callback waits for its thread to ask for it."""


class _Stopped(SystemExit):
    """Ends a thread that goes on asking after it was stopped."""


class Worker:
    """A thread of the program.

    Args:
        function: What it runs.
        argument: With this; with nothing if None.

    Attributes:
        busy: It runs a callback.
        waiting: Callbacks that came meanwhile: each takes when the one before ended, and gives when it ends.
    """

    def __init__(self, function: Callable[..., Any], argument: object) -> None:
        self.busy = False
        self.waiting: list[Callable[[int], int]] = []
        self._turn = threading.Condition()
        self._task: Callable[[], None] | None = None
        self._idle = False
        self._stopping = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, argument), daemon=True)
        self._begin = threading.Event()
        self._thread.start()
        self.ident = self._thread.ident or 0

    def begin(self) -> None:
        """Let it run for the first time."""
        self._begin.set()

    def settle(self) -> None:
        """Wait until it asks for a callback, or is over; what it raised is raised here."""
        with self._turn:
            self._turn.wait_for(lambda: self._idle or not self._thread.is_alive())
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def hand_over(self, task: Callable[[], None]) -> None:
        """Let it run a callback, and wait until it asks for the next one."""
        self.settle()
        if not self._thread.is_alive():
            return
        with self._turn:
            self._task, self._idle = task, False
            self._turn.notify_all()
        self.settle()

    def ask(self) -> bool:
        """Called by the thread itself: wait for a callback and run it; False if it is to stop."""
        with self._turn:
            self._idle = True
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._task is not None or self._stopping > 0)
            task, self._task, self._idle = self._task, None, False
        if task is None:
            self._stopping += 1
            if self._stopping > 100:
                raise _Stopped
            return False
        task()
        return True

    def stop(self) -> None:
        """Let it end: every further request is a timeout; one that goes on asking is ended."""
        with self._turn:
            self._stopping = max(self._stopping, 1)
            self._turn.notify_all()
        self._thread.join()

    def _run(self, function: Callable[..., Any], argument: object) -> None:
        self._begin.wait()
        try:
            function() if argument is None else function(argument)
        except _Stopped:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            with self._turn:
                self._idle = True
                self._turn.notify_all()


class Adopted(Worker):
    """A thread that the program made by itself, with Python's own means, to handle callbacks.

    It is handed callbacks as the others are. When there are none, its questions end after a moment of real
    time and pass no simulated time, so that the program does the same however often it asks.

    Args:
        thread: The thread.
    """

    def __init__(self, thread: threading.Thread) -> None:
        self.busy = False
        self.waiting = []
        self._turn = threading.Condition()
        self._task = None
        self._idle = False
        self._failure = None
        self._thread = thread
        self.ident = thread.ident or 0

    def hand_over(self, task: Callable[[], None]) -> None:
        """Let it run a callback, and wait until it asks for the next one; not for one that never asks."""
        with self._turn:
            self._turn.wait_for(self._at_rest, _PATIENCE)
            if not self._idle:
                return
            self._task, self._idle = task, False
            self._turn.notify_all()
            while not self._turn.wait_for(self._at_rest, _MOMENT) and self._thread.is_alive():
                pass

    def _at_rest(self) -> bool:
        return self._idle or not self._thread.is_alive()

    def ask(self) -> bool:
        """Called by the thread itself: run a callback if there is one before a moment is over."""
        with self._turn:
            self._idle = True
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._task is not None, _MOMENT)
            task, self._task, self._idle = self._task, None, False
        if task is None:
            return False
        task()
        return True

    def serves(self, thread: threading.Thread) -> bool:
        """Whether it is this thread; the system gives numbers of threads that are over to new ones."""
        return self._thread is thread
