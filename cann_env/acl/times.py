"""Python's own clocks and waits as a program sees them: they follow simulated time.

A program that sleeps, measures how long something took, or waits for a flag that a callback sets, or for the
thread of its callbacks, means the time of the device and not that of whoever simulates it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import api
from cann_env.acl.state import threads
from cann_env.acl.state.threads import Adopted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOT_OF_PROGRAMS: Final = {threading.__file__, threads.__file__}
"""Files whose waits are between real threads."""

_CLOCKS: Final = ("time", "perf_counter")


@contextlib.contextmanager
def times_of_programs() -> Iterator[None]:
    """Within it, ``time`` and ``threading`` know simulated time; ``time.monotonic`` stays real."""
    with contextlib.ExitStack() as stack:
        for name in _CLOCKS:
            begin = getattr(time, f"{name}_ns")()
            stack.enter_context(_instead(time, f"{name}_ns", _clock_ns(begin)))
            stack.enter_context(_instead(time, name, _clock(begin)))
        stack.enter_context(_instead(time, "sleep", _sleep(time.sleep)))
        stack.enter_context(_instead(threading.Event, "wait", _wait(threading.Event.wait)))
        stack.enter_context(_instead(threading.Thread, "join", _join(threading.Thread.join)))
        yield


@contextlib.contextmanager
def _instead(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    real = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, real)


def _clock_ns(begin: int) -> Callable[[], int]:
    return lambda: begin + api.simulator().clock_ns


def _clock(begin: int) -> Callable[[], float]:
    return lambda: (begin + api.simulator().clock_ns) / 1e9


def _sleep(real: Any) -> Callable[[Any], None]:
    def sleep(seconds: Any) -> None:
        run = api.simulator()
        own = threading.get_ident()
        if isinstance(run.workers.get(own), Adopted) and own != run.visitor:
            real(0.001)  # Between two questions for callbacks: it passes no time of the program.
            return
        with run.turn():
            run.limit()
            run.clock_ns += max(1, round(seconds * 1e9))
            run.settle()
            run.minds.asked()
        real(0)

    return sleep


def _wait(real: Any) -> Callable[..., bool]:
    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        if sys._getframe(1).f_code.co_filename in _NOT_OF_PROGRAMS:
            return bool(real(self, timeout))
        run = api.simulator()
        with run.turn():
            limit = None if timeout is None else run.clock_ns + max(1, round(timeout * 1e9))
            while not self.is_set() and run.to_next(limit):
                run.limit()
            run.minds.asked()
        return bool(real(self, timeout and 0))

    return wait


def _join(real: Any) -> Callable[..., None]:
    def join(self: threading.Thread, timeout: float | None = None) -> None:
        if sys._getframe(1).f_code.co_filename in _NOT_OF_PROGRAMS:
            real(self, timeout)
            return
        run, ident = api.simulator(), self.ident or 0
        while timeout is None and self.is_alive() and isinstance(run.workers.get(ident), Adopted):
            # What it waits for may be a callback, which comes when time passes.
            with run.turn():
                moved = run.to_next(None)
            if not moved:
                real(self, 0.005)
        real(self, timeout)
        if not self.is_alive():
            with run.turn():
                run.minds.joined(ident)

    return join
