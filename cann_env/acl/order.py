"""Which of two pieces of work surely comes first: vector clocks over streams and the host.

A *clock* says, for each stream, up to which position its work is known to be done. Work on a stream knows
what came before it on that stream, what the events it waited for knew, and what the host had seen done when it
submitted the work. Two accesses that nobody ordered are a race, whatever their times in this run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Clock = dict[int, int]
"""Position reached by stream."""


def join(into: Clock, other: Clock) -> None:
    """Know what the other knows too."""
    for stream, position in other.items():
        if into.get(stream, -1) < position:
            into[stream] = position


@dataclass(slots=True)
class Order:
    """Who knows what.

    Attributes:
        host: What the host has seen done.
        streams: For each stream what its next piece of work will know.
        positions: Pieces of work submitted to each stream.
    """

    host: Clock = field(default_factory=dict)
    streams: dict[int, Clock] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)

    def submit(self, stream: int) -> tuple[int, Clock]:
        """A piece of work goes to a stream: its position there, and what is done when it starts."""
        known = self.streams.setdefault(stream, {})
        join(known, self.host)
        position = self.positions.get(stream, 0)
        self.positions[stream] = position + 1
        before = dict(known)
        known[stream] = position
        return position, before

    def mark(self, stream: int) -> Clock:
        """What is done when everything submitted to a stream so far is: what an event recorded now tells."""
        known = self.streams.setdefault(stream, {})
        join(known, self.host)
        return dict(known)

    def wait(self, stream: int, told: Clock) -> None:
        """Further work on a stream knows what an event tells."""
        join(self.streams.setdefault(stream, {}), told)

    def seen(self, told: Clock) -> None:
        """The host has seen that something is done."""
        join(self.host, told)


HOST = -1
"""In place of a stream: the host itself."""


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a piece of memory.

    Attributes:
        stream: Where, or :data:`HOST`.
        position: Of the work on that stream; for the host the number of its access.
        task: Index of the work in the log.
        first, last: Bytes ``first`` to ``last - 1``, from the start of the allocation.
        writes: Whether it changes them.
        site: Line of the program.
    """

    stream: int
    position: int
    task: int
    first: int
    last: int
    writes: bool
    site: str = ""

    def before(self, known: Clock) -> bool:
        """Whether it is done for someone who knows so much. What the host did is done: it does one thing at a
        time, and what it submits comes later."""
        return self.stream == HOST or known.get(self.stream, -1) >= self.position

    def meets(self, other: Access) -> bool:
        """Whether two accesses touch a byte in common and one of them changes it."""
        return (self.writes or other.writes) and self.first < other.last and other.first < self.last


@dataclass(slots=True)
class History:
    """Accesses to one allocation that may still conflict with later ones."""

    accesses: list[Access] = field(default_factory=list)

    def add(self, access: Access, known: Clock) -> list[Access]:
        """Note an access; what it conflicts with and is not ordered after.

        Accesses that it covers and that are ordered before it are forgotten where it writes: who is ordered
        after this one is ordered after them.
        """
        clashes = [old for old in self.accesses if old.meets(access) and not old.before(known)]
        kept = [old for old in self.accesses if not self._replaced(old, access, known)]
        kept.append(access)
        self.accesses = kept
        return clashes

    @staticmethod
    def _replaced(old: Access, new: Access, known: Clock) -> bool:
        covered = new.first <= old.first and old.last <= new.last
        if not covered or not old.before(known):
            return False
        return new.writes or (not old.writes and old.stream == new.stream)
