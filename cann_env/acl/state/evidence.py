"""What is noticed while a program runs and may be wrong with it; the hazards are made of it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.acl.state.memory import Space

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cann_env.acl.state.deadlocks import Deadlock
    from cann_env.acl.state.memory import Allocation, Range
    from cann_env.acl.state.objects import Event, Notify, Record, Signal, Stream
    from cann_env.acl.state.order import Clock, HostAccess
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A wait for an event that had recorded nothing.

    Attributes:
        event: The event.
        stream: Who waits.
        site: Where.
        position: Of the first work on the stream behind the wait.
        refused: The call failed.
        signal: What becomes of the wait, for events whose waits may come first.
    """

    event: Event
    stream: int
    site: str
    position: int
    refused: bool
    signal: Signal


@dataclass(frozen=True, slots=True)
class Rerecorded:
    """An event that was recorded again, or reset, while a stream may still have waited for it."""

    event: Event
    record: Record
    wait_stream: int
    wait_site: str
    site: str
    reset: bool


@dataclass(frozen=True, slots=True)
class FreedInUse:
    """Memory that was given back, in the order of a stream or by the host, while work may still use it."""

    allocation: Allocation
    work: Work
    site: str
    stream: Stream | None


@dataclass(frozen=True, slots=True)
class Reused:
    """Host memory that changed before an asynchronous copy had read it; nobody saw who did it."""

    work: Work
    memory: Range


@dataclass(slots=True, eq=False)
class Hold:
    """A stream took an exclusive resource, and perhaps gave it back.

    Attributes:
        resource: The notify that stands for it.
        stream: Who.
        site: Where it was taken.
        first: Position of the first work behind that.
        held: What the stream held then.
        last: Position of the last work before it was given back; None if it never was.
    """

    resource: Notify
    stream: int
    site: str
    first: int
    held: tuple[Hold, ...]
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """The host waited for what never ends: for work, or for a record that nobody made.

    Attributes:
        what: For people.
        site: Where.
        work, signal: What it waited for.
        circles: Streams that waited for each other then.
    """

    what: str
    site: str
    work: Work | None
    signal: Signal | None
    circles: tuple[Deadlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Misused:
    """A handle or an address that was used after it was given back."""

    what: str
    gone: str
    site: str


@dataclass(frozen=True, slots=True)
class Leak:
    """What was made and never given back; memory by its name, as addresses differ between processes."""

    what: str
    handle: int
    site: str
    call: str
    end: str
    name: str = ""


@dataclass(slots=True)
class Evidence:
    """See the classes of its lists."""

    unrecorded: list[Unrecorded] = field(default_factory=list)
    rerecorded: list[Rerecorded] = field(default_factory=list)
    freed: list[FreedInUse] = field(default_factory=list)
    reused: list[Reused] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    misused: list[Misused] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    _held: dict[int, list[Hold]] = field(default_factory=dict)
    _sums: dict[int, tuple[Work, Range, int]] = field(default_factory=dict)

    def take(self, resource: Notify, stream: Stream, site: str) -> None:
        """A stream waits for a notify, that is, takes the resource it stands for."""
        held = self._held.setdefault(stream.handle, [])
        hold = Hold(resource, stream.handle, site, len(stream.work), tuple(held))
        self.holds.append(hold)
        held.append(hold)

    def release(self, resource: Notify, stream: Stream) -> None:
        """A stream records a notify, that is, gives the resource back."""
        held = self._held.get(stream.handle, [])
        for hold in [hold for hold in held if hold.resource is resource]:
            hold.last = len(stream.work) - 1
            held.remove(hold)

    def free(
        self, allocation: Allocation, users: Iterable[Work], known: Clock, site: str,
        stream: Stream | None = None,
    ) -> None:  # fmt: skip
        """Memory is given back by someone who knows so much."""
        last = {
            work.stream: work for work in users if work.touches and known.get(work.stream, -1) < work.position
        }
        self.freed += [FreedInUse(allocation, work, site, stream) for work in last.values()]

    def watch(self, work: Work, memory: Range, users: Iterable[Work]) -> None:
        """An asynchronous copy will read host memory of the program; what it may hold then is known now."""
        if not any(_writes(other, memory) and not other.ended for other in users):
            self._sums[work.index] = work, memory, _sum(memory)

    def check(self, work: Work, run: Simulator) -> None:
        """The copy reads it now."""
        if work.index in self._sums:
            self._compare(work.index, run)

    def known(self, clock: Mapping[int, int], run: Simulator) -> None:
        """The host has seen so much; from there on it may change what was read."""
        for index, (work, _, _) in list(self._sums.items()):
            if clock.get(work.stream, -1) >= work.position:
                self._compare(index, run)
                del self._sums[index]

    def misuse(self, what: str, gone: str, site: str) -> None:
        """Something is used after it was given back."""
        found = Misused(what, gone, site)
        if found not in self.misused:
            self.misused.append(found)

    def forget(self, allocation: Allocation) -> None:
        """Memory is gone."""
        for index in [i for i, (_, memory, _) in self._sums.items() if memory.allocation is allocation]:
            del self._sums[index]

    def _compare(self, index: int, run: Simulator) -> None:
        work, memory, before = self._sums[index]
        if _sum(memory) == before or any(reused.work is work for reused in self.reused):
            return
        users = run.users.get(memory.allocation.number, ())
        if any(other.index > index and _writes(other, memory) for other in users):
            return
        if not any(_changed(access, memory, index) for access in run.minds.accesses):
            self.reused.append(Reused(work, memory))


def note_leaks(run: Simulator, end: str, device: int | None = None) -> None:
    """Write down what the program has not given back at its end, or at the end of a device."""
    found: list[Leak] = []

    def mine(number: int) -> bool:
        return device is None or number == device

    found += [
        Leak("stream", stream.handle, stream.site, "acl.rt.destroy_stream", end)
        for stream in run.streams.values()
        if not stream.default and mine(stream.device)
    ]
    found += [
        Leak("pool", pool.handle, pool.site, "acl.rt.mem_pool_destroy", end)
        for pool in run.pools.values()
        if mine(pool.device)
    ]
    models: dict[int, str] = {}
    for allocation in run.memory.allocations:
        call = _call_to_free(allocation)
        if allocation.model and not allocation.freed and mine(allocation.device):
            models[allocation.model] = allocation.site
        elif not allocation.freed and call and mine(allocation.device):
            what = f"{allocation.space.value} memory"
            found.append(Leak(what, allocation.address, allocation.site, call, end, allocation.name))
    found += [Leak("model", handle, line, "acl.mdl.unload", end) for handle, line in models.items()]
    if device is None:
        found += _handles(run, end)
    told = {(leak.what, leak.handle) for leak in run.evidence.leaks}
    for leak in found:
        if (leak.what, leak.handle) not in told:
            told.add((leak.what, leak.handle))
            run.evidence.leaks.append(leak)


def _handles(run: Simulator, end: str) -> list[Leak]:
    """What belongs to no device alone."""
    events = [
        Leak("event", event.handle, event.site, "acl.rt.destroy_event", end) for event in run.events.values()
    ]
    notifies = [
        Leak("notify", notify.handle, notify.site, "acl.rt.destroy_notify", end)
        for notify in run.notifies.values()
    ]
    return [*events, *notifies]


def _call_to_free(allocation: Allocation) -> str:
    """Empty if it is not for the program to give it back."""
    if allocation.pool:
        return "acl.rt.mem_pool_free_async"
    if allocation.space in (Space.DEVICE, Space.MANAGED):
        return "acl.rt.free"
    return "acl.rt.free_host" if allocation.space is Space.PINNED and not allocation.registered else ""


def _sum(memory: Range) -> int:
    return zlib.crc32(memory.view().data)


def _writes(work: Work, memory: Range) -> bool:
    return any(touch.writes and _overlap(touch.range, memory) for touch in work.touches)


def _changed(access: HostAccess, memory: Range, since: int) -> bool:
    return access.writes and access.moment > since and _overlap(access.memory, memory)


def _overlap(one: Range, other: Range) -> bool:
    return one.allocation is other.allocation and one.first < other.last and other.first < one.last
