"""What each thread of the host has seen done, and what it did to memory.

The program is one of them; a thread that runs callbacks knows what its stream tells it, not what the program
does at that moment.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.acl.state.order import HOST, HostAccess, join

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.order import Clock
    from cann_env.acl.state.work import Work


class Minds:
    """The threads of the host.

    Attributes:
        actor: The one that runs, see :data:`~cann_env.acl.state.order.HOST`.
        clock: What it has seen done.
        accesses: What all of them did to memory.
        hidden: Streams that no program knows and that the host waits for at once, by handle.
    """

    def __init__(self) -> None:
        self.actor = HOST
        self.clock: Clock = {}
        self.accesses: list[HostAccess] = []
        self.hidden: set[int] = set()
        self._callback: Work | None = None
        self._step = 0
        self._still = False
        self._frozen: Clock = {}
        self._others: dict[int, Clock] = {}
        self._numbers: dict[int, int] = {}
        self._recent: dict[tuple[int, str, bool], HostAccess] = {}
        self._signals: Clock = {}

    def step(self) -> Clock:
        """The thread hands something over: what it did before that comes before it. Its clock, to keep."""
        self.clock[self.actor] = self._step
        self._move()
        return dict(self.clock)

    def learn(self, clock: Mapping[int, int]) -> None:
        """The thread has seen more."""
        join(self.clock, clock)
        self._move()

    def touch(
        self, moment: int, memory: Range, *, writes: bool, site: str, what: str, alone: bool = False
    ) -> HostAccess:
        """The thread reads or writes memory; neighbours that the same line touches are one access."""
        if not self._still:
            self._frozen, self._still = dict(self.clock), True
        key = memory.allocation.number, site, writes
        last = self._recent.get(key)
        if last is not None and not alone:
            old = last.memory
            if memory.first <= old.last and old.first <= memory.last:
                first, end = min(old.first, memory.first), max(old.last, memory.last)
                last.memory = replace(old, first=first, size=end - first)
                return last
        access = HostAccess(
            moment, memory, writes, self._frozen, site, what, self.actor, self._step, self._callback
        )
        if not alone:
            self._recent[key] = access
        self.accesses.append(access)
        return access

    @contextmanager
    def callback(self, thread: int | None, work: Work, clock: Clock, *, blocks: bool) -> Iterator[None]:
        """Within it, a thread runs a function that a stream called.

        Args:
            thread: Which; None for the one that runs already.
            work: The call in the stream.
            clock: What is done when the stream calls.
            blocks: The stream waits until the function is over.
        """
        before = self.actor, self.clock, self._callback
        if thread is not None:
            self.actor = self._numbers.setdefault(thread, HOST - 1 - len(self._numbers))
            self.clock = self._others.setdefault(self.actor, {})
        self._callback = work
        self.learn(clock)
        try:
            yield
        finally:
            done = self.step()
            if blocks:
                work.told = done
            if thread is not None:
                join(self._signals, done)
            self.actor, self.clock, self._callback = before
            self._move()

    def asked(self) -> None:
        """The program asked how far something is: what callbacks may have told it meanwhile, it knows."""
        if self.actor == HOST:
            self.learn(self._signals)

    def joined(self, thread: int) -> None:
        """A thread is over, and the program knows."""
        self.learn(self._others.get(self._numbers.get(thread, 0), {}))

    def _move(self) -> None:
        self._step += 1
        self._still = False
        self._recent.clear()
