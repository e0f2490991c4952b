"""What is noticed while a program runs and may be wrong with it; the hazards are made of it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.acl.memory import Allocation, Range
    from cann_env.acl.objects import Event, Notify, Record, Stream
    from cann_env.acl.order import Clock
    from cann_env.acl.work import Work


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A wait for an event that recorded nothing."""

    event: Event
    stream: int
    site: str


@dataclass(frozen=True, slots=True)
class Rerecorded:
    """An event that was recorded again, or reset, while a stream may still have waited for it."""

    event: Event
    record: Record
    wait_stream: int
    wait_site: str
    site: str


@dataclass(frozen=True, slots=True)
class FreedInUse:
    """Memory that was given back while work that touches it may still have run."""

    allocation: Allocation
    work: Work
    site: str


@dataclass(frozen=True, slots=True)
class Reused:
    """Host memory that changed before an asynchronous copy had read it."""

    work: Work
    memory: Range


@dataclass(frozen=True, slots=True)
class Taken:
    """A stream took an exclusive resource while it held others."""

    resource: Notify
    stream: int
    site: str
    held: tuple[tuple[Notify, str], ...]


@dataclass(slots=True)
class Evidence:
    """See the classes of its lists; ``stuck`` is work that a synchronisation found to wait for ever."""

    unrecorded: list[Unrecorded] = field(default_factory=list)
    rerecorded: list[Rerecorded] = field(default_factory=list)
    freed: list[FreedInUse] = field(default_factory=list)
    reused: list[Reused] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    stuck: list[Work] = field(default_factory=list)
    _held: dict[int, list[tuple[Notify, str]]] = field(default_factory=dict)
    _sums: dict[int, int] = field(default_factory=dict)

    def take(self, resource: Notify, stream: Stream, site: str) -> None:
        """A stream waits for a notify, that is, takes the resource it stands for."""
        held = self._held.setdefault(stream.handle, [])
        self.taken.append(Taken(resource, stream.handle, site, tuple(held)))
        held.append((resource, site))

    def release(self, resource: Notify, stream: Stream) -> None:
        """A stream records a notify, that is, gives the resource back."""
        held = self._held.get(stream.handle, [])
        self._held[stream.handle] = [(other, site) for other, site in held if other is not resource]

    def free(self, allocation: Allocation, users: Iterable[Work], known: Clock, site: str) -> None:
        """Memory is given back by someone who knows so much."""
        for work in users:
            if known.get(work.stream, -1) < work.position:
                self.freed.append(FreedInUse(allocation, work, site))

    def watch(self, work: Work, memory: Range) -> None:
        """An asynchronous copy will read host memory of the program."""
        self._sums[work.index] = zlib.crc32(memory.view().data)

    def check(self, work: Work, memory: Range) -> None:
        """The copy reads it now."""
        if self._sums.pop(work.index, None) not in (None, zlib.crc32(memory.view().data)):
            self.reused.append(Reused(work, memory))
