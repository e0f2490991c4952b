"""Which of two accesses to memory surely comes first: what each knows to be done when it happens.

A *clock* says, for each stream, up to which position its work is known to be done, and for each thread of the
host, up to which step. A piece of work knows what came before it on its stream, what the events it waits for
stand behind, and what the host had seen done when it submitted the work. Two accesses that nobody ordered are
a race, whatever their times in this run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cann_env.acl.state.memory import Allocation, Range
    from cann_env.acl.state.work import Touch, Work

Clock = dict[int, int]
"""Position reached by stream."""

HOST: Final = -1
"""In place of a stream: the program itself. Threads that run its callbacks are -2, -3, and so on."""

_WAITS: Final = 1 << 40


def waits_of(stream: int) -> int:
    """In place of a stream: how many of its waits it has passed."""
    return -_WAITS - stream


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
    open_ones, seen = list(indices), set[int]()
    while open_ones:
        work = log[open_ones.pop()]
        if work.index in seen or known.get(work.stream, -1) >= work.position:
            continue
        seen.add(work.index)
        join(clock, {work.stream: work.position})
        _join_own(clock, work)
        join(clock, work.told)
        open_ones += work.all_waits
        if work.previous >= 0:
            open_ones.append(work.previous)
    return clock


def _join_own(clock: Clock, work: Work) -> None:
    """What a piece of work knows by itself: of the host, and of the hosts that made its records."""
    join(clock, work.host)
    for signal in work.signals:
        join(clock, signal.known)


@dataclass(slots=True, eq=False)
class HostAccess:
    """The host read or wrote memory.

    Attributes:
        moment: How much work had been submitted by then.
        memory: What it touched.
        writes: Whether it changed it.
        host: What it had seen done.
        site: Line of the program.
        what: The call.
        actor: Which thread of the host, see :data:`HOST`.
        step: Of that thread.
        callback: The piece of work that called the function which did it; None outside of callbacks.
        dropped: It turned out that it did not happen.
    """

    moment: int
    memory: Range
    writes: bool
    host: Clock
    site: str
    what: str
    actor: int = HOST
    step: int = 0
    callback: Work | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One access to a piece of memory.

    Attributes:
        stream: Where, or a thread of the host.
        position: Of the work on that stream, or step of the host.
        work: The work; None for the host.
        first, last: Bytes ``first`` to ``last - 1``, from the start of the allocation.
        writes: Whether it changes them.
        known: What is done when it happens.
        site: Line of the program.
        what: For people.
        rows: Distance and length of the pieces of it that are touched; None if all of it is.
        callback: See :class:`HostAccess`.
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
    rows: tuple[int, int] | None = None
    callback: Work | None = None

    def before(self, later: Access) -> bool:
        """Whether it is surely over when the other happens; the other comes later in the program."""
        if self.stream < 0 and self.stream == later.stream:
            return True
        return later.known.get(self.stream, -1) >= self.position

    def meets(self, other: Access) -> bool:
        """Whether two accesses touch a byte in common and one of them changes it."""
        if not (self.writes or other.writes) or not (self.first < other.last and other.first < self.last):
            return False
        if self.work is not None and self.work is other.work:
            return False  # what works in place is in no race with itself
        if self.rows is None and other.rows is None:
            return True
        rows, whole = (self, other) if self.rows is not None else (other, self)
        return any(whole.has(first, last) for first, last in rows.pieces())

    def pieces(self) -> Iterable[tuple[int, int]]:
        """The pieces that are touched, as first byte and one past the last."""
        if self.rows is None:
            return [(self.first, self.last)]
        pitch, width = self.rows
        return [(first, first + width) for first in range(self.first, self.last, pitch)]

    def has(self, first: int, last: int) -> bool:
        """Whether it touches one of some bytes."""
        if first >= self.last or self.first >= last:
            return False
        if self.rows is None:
            return True
        pitch, width = self.rows
        row = max(0, (first - self.first) // pitch)
        start = self.first + row * pitch
        return (start < last and first < start + width) or start + pitch < min(last, self.last)


@dataclass(frozen=True, slots=True, eq=False)
class Clash:
    """Two accesses to one allocation that nobody ordered, in the order of the program.

    Attributes:
        allocation: The memory.
        first, second: The accesses.
        reused: The first used it before the pool gave it away again.
    """

    allocation: Allocation
    first: Access
    second: Access
    reused: bool = False


def clocks(log: Sequence[Work], works: Sequence[Work], *, locks: bool = True) -> dict[int, Clock]:
    """For work, by index, what is done when it starts; all it waits for comes before it or is over.

    Args:
        log: All work.
        works: Those that are asked for.
        locks: Whether notifies order anything.
    """
    found: dict[int, Clock] = {}

    def waits(work: Work) -> list[int]:
        sources = (work.previous, *(work.all_waits if locks else work.firm_waits))
        return [j for j in sources if j >= 0]

    def before(index: int) -> None:
        stack, entered = [index], {index}
        while stack:
            work = log[stack[-1]]
            needed = [j for j in waits(work) if j not in found and j in inside and j not in entered]
            if needed:
                stack += needed
                entered.update(needed)
                continue
            stack.pop()
            if work.index in found:
                continue
            clock: Clock = {}
            _join_own(clock, work)
            for j in waits(work):
                join(clock, found.get(j, {}))
                join(clock, {log[j].stream: log[j].position})
                join(clock, log[j].told)
            found[work.index] = clock

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
    seen: set[tuple[int, str, str, bool, bool]] = set()
    for allocation, access in _accesses(works, host, known):
        history = histories.setdefault(allocation.number, [])
        for old in history:
            if old.meets(access) and not old.before(access) and not access.before(old):
                key = allocation.number, old.site, access.site, old.writes, access.writes
                if key not in seen:
                    seen.add(key)
                    found.append(Clash(allocation, old, access))
        for user in allocation.prior:
            key = allocation.number, user.site, access.site, True, True
            if access.known.get(user.stream, -1) < user.position and key not in seen:
                seen.add(key)
                found.append(Clash(allocation, _of_prior(user), access, reused=True))
        history[:] = [old for old in history if not _covered(old, access)]
        history.append(access)
    return _needed(found)


def _needed(found: Sequence[Clash]) -> list[Clash]:
    """Without those that are mended by what mends another of the same memory and kind."""

    def implied(clash: Clash, other: Clash) -> bool:
        one, two = clash.first, clash.second
        if other is clash or other.allocation is not clash.allocation or other.reused != clash.reused:
            return False
        if (other.first.writes, other.second.writes) != (one.writes, two.writes):
            return False
        later = other.first.stream == one.stream and other.first.position >= one.position
        earlier = other.second.stream == two.stream and other.second.position <= two.position
        same = other.first.position == one.position and other.second.position == two.position
        return later and earlier and not same

    return [clash for clash in found if not any(implied(clash, other) for other in found)]


def _covered(old: Access, new: Access) -> bool:
    """Whether who is ordered after the new access is ordered after the old one, and loses nothing by it."""
    inside = new.rows is None and new.first <= old.first and old.last <= new.last
    if not inside or not old.before(new):
        return False
    return new.writes or (not old.writes and old.stream == new.stream)


def _accesses(
    works: Sequence[Work], host: Sequence[HostAccess], known: Mapping[int, Clock]
) -> Iterable[tuple[Allocation, Access]]:
    """All accesses in the order of the program; what a callback does stands where it was launched."""
    places: list[tuple[int, int]] = []
    found: list[tuple[Allocation, Access]] = []
    for access in host:
        if not access.dropped:
            called = access.callback if access.actor != HOST else None
            places.append((access.moment, 0) if called is None else (called.index, 2))
            found.append(_of_host(access))
    for work in works:
        for touch in work.touches:
            if touch.range.size:
                places.append((work.index, 1))
                found.append((touch.range.allocation, _of_work(work, touch, known[work.index])))
    return [found[i] for i in sorted(range(len(found)), key=places.__getitem__)]


def _of_work(work: Work, touch: Touch, known: Clock) -> Access:
    memory = touch.range
    return Access(
        work.stream, work.position, work, memory.first, memory.last, touch.writes, known, work.site,
        work.label, touch.rows,
    )  # fmt: skip


def _of_prior(work: Work) -> Access:
    return Access(work.stream, work.position, work, 0, 1, True, {}, work.site, work.label)


def _of_host(access: HostAccess) -> tuple[Allocation, Access]:
    memory = access.memory
    return memory.allocation, Access(
        access.actor, access.step, None, memory.first, memory.last, access.writes, access.host, access.site,
        access.what, None, access.callback,
    )  # fmt: skip
