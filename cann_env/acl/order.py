"""Which of two pieces of work surely comes first: what each knows to be done when it starts.

A *clock* says, for each stream, up to which position its work is known to be done. A piece of work knows what
came before it on its stream, what the events it waits for stand behind, and what the host had seen done when
it submitted the work. Two accesses that nobody ordered are a race, whatever their times in this run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cann_env.acl.memory import Allocation, Range
    from cann_env.acl.work import Work

Clock = dict[int, int]
"""Position reached by stream."""

HOST: Final = -1
"""In place of a stream: the host itself."""


def join(into: Clock, other: Mapping[int, int]) -> None:
    """Know what the other knows too."""
    for stream, position in other.items():
        if into.get(stream, -1) < position:
            into[stream] = position


def told(log: Sequence[Work], indices: Iterable[int], known: Mapping[int, int]) -> Clock:
    """What is done once some work is.

    Args:
        log: All work.
        indices: The work.
        known: What is known already; nothing behind it is looked at.
    """
    clock = dict(known)
    open_ones = list(indices)
    while open_ones:
        work = log[open_ones.pop()]
        if clock.get(work.stream, -1) >= work.position:
            continue
        clock[work.stream] = work.position
        join(clock, work.host)
        open_ones += work.all_waits
        if work.previous >= 0:
            open_ones.append(work.previous)
    return clock


@dataclass(frozen=True, slots=True, eq=False)
class HostAccess:
    """The host read or wrote memory.

    Attributes:
        moment: How much work had been submitted by then.
        memory: What it touched.
        writes: Whether it changed it.
        host: What it had seen done.
        site: Line of the program.
        what: The call.
    """

    moment: int
    memory: Range
    writes: bool
    host: Clock
    site: str
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One access to a piece of memory.

    Attributes:
        stream: Where, or :data:`HOST`.
        position: Of the work on that stream; for the host how much work had been submitted.
        work: The work; None for the host.
        first, last: Bytes ``first`` to ``last - 1``, from the start of the allocation.
        writes: Whether it changes them.
        known: What is done when it happens.
        site: Line of the program.
        what: For people.
    """

    stream: int
    position: int
    work: Work | None
    first: int
    last: int
    writes: bool
    known: Clock
    site: str
    what: str

    def before(self, later: Access) -> bool:
        """Whether it is surely over when the other happens."""
        if self.stream == HOST:
            # What the host did is over when it submits the next piece of work, and all that hangs on that.
            return later.stream == HOST or (later.work is not None and later.work.index >= self.position)
        return later.known.get(self.stream, -1) >= self.position

    def meets(self, other: Access) -> bool:
        """Whether two accesses, not of one piece of work, touch a byte in common and one of them changes it."""
        if self.work is not None and self.work is other.work:
            return False
        return (self.writes or other.writes) and self.first < other.last and other.first < self.last


@dataclass(frozen=True, slots=True, eq=False)
class Clash:
    """Two accesses to one allocation that nobody ordered, in the order of the program."""

    allocation: Allocation
    first: Access
    second: Access


def clocks(log: Sequence[Work], works: Sequence[Work]) -> dict[int, Clock]:
    """For work, by index, what is done when it starts; all it waits for comes before it or is over."""
    found: dict[int, Clock] = {}

    def before(index: int) -> Clock:
        stack = [index]
        while stack:
            work = log[stack[-1]]
            needed = [
                j for j in (work.previous, *work.all_waits) if j >= 0 and j not in found and j in inside
            ]
            if needed and len(stack) <= len(log):
                stack += needed
                continue
            stack.pop()
            if work.index in found:
                continue
            clock = dict(work.host)
            for j in (work.previous, *work.all_waits):
                if j >= 0:
                    join(clock, found.get(j, {}))
                    join(clock, {log[j].stream: log[j].position})
            found[work.index] = clock
        return found[index]

    inside = {work.index for work in works}
    for work in works:
        if work.index not in found:
            before(work.index)
    return found


def clashes(log: Sequence[Work], works: Sequence[Work], host: Sequence[HostAccess]) -> list[Clash]:
    """Accesses that nobody ordered, in the order of the program; one for each pair of places in it."""
    known = clocks(log, works)
    histories: dict[int, list[Access]] = {}
    found: list[Clash] = []
    seen: set[tuple[int, str, str]] = set()
    for allocation, access in _accesses(works, host, known):
        history = histories.setdefault(allocation.number, [])
        for old in history:
            if old.meets(access) and not old.before(access) and not access.before(old):
                key = allocation.number, old.site, access.site
                if key not in seen:
                    seen.add(key)
                    found.append(Clash(allocation, old, access))
        history[:] = [old for old in history if not _covered(old, access)]
        history.append(access)
    return found


def _covered(old: Access, new: Access) -> bool:
    """Whether who is ordered after the new access is ordered after the old one, and loses nothing by it."""
    inside = new.first <= old.first and old.last <= new.last
    if not inside or not old.before(new):
        return False
    return new.writes or (not old.writes and old.stream == new.stream)


def _accesses(
    works: Sequence[Work], host: Sequence[HostAccess], known: Mapping[int, Clock]
) -> Iterable[tuple[Allocation, Access]]:
    """All accesses in the order of the program."""
    waiting = list(host)[::-1]
    for work in works:
        while waiting and waiting[-1].moment <= work.index:
            yield _of_host(waiting.pop())
        for touch in work.touches:
            memory = touch.range
            if memory.size:
                yield (
                    memory.allocation,
                    Access(
                        work.stream, work.position, work, memory.first, memory.last, touch.writes,
                        known[work.index], work.site, work.label,
                    ),
                )  # fmt: skip
    while waiting:
        yield _of_host(waiting.pop())


def _of_host(access: HostAccess) -> tuple[Allocation, Access]:
    memory = access.memory
    return memory.allocation, Access(
        HOST,
        access.moment,
        None,
        memory.first,
        memory.last,
        access.writes,
        access.host,
        access.site,
        access.what,
    )
