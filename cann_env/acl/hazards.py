"""What is wrong with a program although it may have run well: races, misused events, leaks, deadlocks.

Nothing here depends on how fast anything was: two accesses are a race if nothing in the program orders them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cann_env.acl.memory import Space
from cann_env.acl.order import HOST, clashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.acl.evidence import FreedInUse, Rerecorded, Taken, Unrecorded
    from cann_env.acl.order import Access, Clash
    from cann_env.acl.simulator import Simulator


class HazardKind(enum.StrEnum):
    """What is wrong."""

    READ_AFTER_WRITE = "read-after-write"
    WRITE_AFTER_READ = "write-after-read"
    WRITE_AFTER_WRITE = "write-after-write"
    WAIT_WITHOUT_RECORD = "wait-without-record"
    EVENT_RERECORDED = "event-recorded-again"
    HOST_BUFFER_REUSED = "host-buffer-reused"
    FREE_IN_USE = "free-in-use"
    LEAK = "leak"
    DEADLOCK = "deadlock"


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something wrong with a program.

    Attributes:
        kind: See :class:`HazardKind`.
        what: In a sentence.
        first, second: Lines of the program, in its order; ``second`` is empty where there is only one.
        buffer: The memory it is about; empty if it is about none.
        streams: The streams, by handle; -1 is the host.
        fix: The smallest change that mends it.
    """

    kind: HazardKind
    what: str
    first: str
    second: str = ""
    buffer: str = ""
    streams: tuple[int, ...] = ()
    fix: str = ""


def hazards(run: Simulator) -> list[Hazard]:
    """All hazards of a run so far; leaks only once it is over (``acl.finalize``)."""
    run.settle()
    found = [_race(clash) for clash in clashes(run.log, run.log, run.host_accesses)]
    evidence = run.evidence
    for reused in evidence.reused:
        where = f"{reused.memory.allocation.name} ({reused.memory.size} bytes)"
        found.append(
            Hazard(
                HazardKind.HOST_BUFFER_REUSED,
                f"the host changed {where} after the copy of {reused.work.site} was submitted and before "
                "it had read it",
                reused.work.site,
                buffer=reused.memory.allocation.name,
                streams=(reused.work.stream, HOST),
                fix=f"synchronise stream {reused.work.stream} (or an event recorded behind the copy) "
                "before the host "
                "writes that memory again, or use a second buffer in turn",
            )
        )
    found += [_freed(freed) for freed in evidence.freed]
    found += [_unrecorded(wait) for wait in evidence.unrecorded]
    found += [_rerecorded(again) for again in evidence.rerecorded]
    found += [*_stuck(run), *_crossed(evidence.taken)]
    if not run.initialised:
        found += _leaks(run)
    return found


_KINDS: Final = {
    (True, False): HazardKind.READ_AFTER_WRITE,
    (False, True): HazardKind.WRITE_AFTER_READ,
    (True, True): HazardKind.WRITE_AFTER_WRITE,
}


def _race(clash: Clash) -> Hazard:
    first, second = clash.first, clash.second
    kind = _KINDS[first.writes, second.writes]
    verbs = ["writes" if access.writes else "reads" for access in (first, second)]
    low, high = max(first.first, second.first), min(first.last, second.last)
    what = (
        f"{second.what} on {_where(second)} {verbs[1]} bytes {low} to {high - 1} of "
        f"{clash.allocation.name}, which "
        f"{first.what} on {_where(first)} {verbs[0]}, and nothing orders the two"
    )
    return Hazard(
        kind, what, first.site, second.site, clash.allocation.name, (first.stream, second.stream),
        _order_fix(first, second),
    )  # fmt: skip


def _where(access: Access) -> str:
    return "the host" if access.stream == HOST else f"stream {access.stream}"


def _order_fix(first: Access, second: Access) -> str:
    if second.stream == HOST:
        return f"call synchronize_stream({first.stream}) between {first.site} and {second.site}"
    if first.stream == HOST:
        return f"let the host do {first.site} before {second.site} is submitted"
    return (
        f"record an event on stream {first.stream} right after {first.site}, and let stream "
        f"{second.stream} wait for "
        f"it right before {second.site}"
    )


def _freed(freed: FreedInUse) -> Hazard:
    work = freed.work
    return Hazard(
        HazardKind.FREE_IN_USE,
        f"{freed.allocation.name} is given back while {work.label} on stream {work.stream} may still use it",
        work.site,
        freed.site,
        freed.allocation.name,
        (work.stream, HOST),
        f"call synchronize_stream({work.stream}) before {freed.site}",
    )


def _unrecorded(wait: Unrecorded) -> Hazard:
    consequence = (
        "the call is refused"
        if wait.event.legacy and not wait.event.flags
        else "the stream waits for a record that must still come"
        if wait.event.legacy
        else "the wait does nothing"
    )
    return Hazard(
        HazardKind.WAIT_WITHOUT_RECORD,
        f"stream {wait.stream} waits for event {wait.event.handle} (made at {wait.event.site}), which "
        "recorded "
        f"nothing yet: {consequence}",
        wait.event.site,
        wait.site,
        streams=(wait.stream,),
        fix=f"record the event, behind the work that is to be waited for, before {wait.site}",
    )


def _rerecorded(again: Rerecorded) -> Hazard:
    return Hazard(
        HazardKind.EVENT_RERECORDED,
        f"event {again.event.handle} is recorded again while stream {again.wait_stream} may still wait for "
        "what it "
        f"recorded at {again.record.site}",
        again.wait_site,
        again.site,
        streams=(again.record.stream, again.wait_stream),
        fix="use a second event in turn, or make it with create_event_ex_with_flag, whose waits keep "
        "their record",
    )


def _stuck(run: Simulator) -> Iterator[Hazard]:
    """Streams that wait for each other, or for what never came."""
    works = [run.log[i] for device in run.devices.values() for i in sorted(device.stuck)]
    told: set[int] = set()
    stuck = {work.index for work in works}
    for work in works:
        if work.stream in told:
            continue
        told.add(work.stream)
        missing = [signal for signal in work.signals if signal.after is None]
        if missing:
            why = f"waits since {missing[0].site} for a record of {missing[0].owner} that never comes"
        else:
            others = sorted({run.log[j].stream for j in work.all_waits if j in stuck})
            why = f"waits for work on stream {', '.join(map(str, others))}, which waits for it in turn"
        yield Hazard(
            HazardKind.DEADLOCK,
            f"{work.label} on stream {work.stream} never starts: it {why}",
            missing[0].site if missing else work.site,
            work.site,
            streams=(work.stream,),
            fix="record what is waited for, on a stream that does not wait itself, or take exclusive "
            "resources in "
            "the same order on all streams",
        )


def _crossed(taken: list[Taken]) -> Iterator[Hazard]:
    """Exclusive resources that two streams take in two orders."""
    orders: dict[tuple[int, int], Taken] = {}
    told: set[frozenset[int]] = set()
    for take in taken:
        for held, held_site in take.held:
            pair = held.handle, take.resource.handle
            orders.setdefault(pair, take)
            other = orders.get(pair[::-1])
            if other is None or other.stream == take.stream or frozenset(pair) in told:
                continue
            told.add(frozenset(pair))
            yield Hazard(
                HazardKind.DEADLOCK,
                f"stream {other.stream} takes notify {pair[1]} and then {pair[0]}, stream {take.stream} "
                "takes "
                f"{pair[0]} (at {held_site}) and then {pair[1]}: each can hold what the other waits for",
                other.site,
                take.site,
                streams=(other.stream, take.stream),
                fix="take them in the same order on both streams",
            )


def _leaks(run: Simulator) -> Iterator[Hazard]:
    """What was made and never given back."""
    for stream in run.streams.values():
        if not stream.default:
            yield _leak("stream", stream.handle, stream.site, "destroy_stream")
    for event in run.events.values():
        yield _leak("event", event.handle, event.site, "destroy_event")
    for notify in run.notifies.values():
        yield _leak("notify", notify.handle, notify.site, "destroy_notify")
    for pool in run.pools.values():
        yield _leak("pool", pool.handle, pool.site, "mem_pool_destroy")
    for allocation in run.memory.allocations:
        if not allocation.freed and allocation.space in (Space.DEVICE, Space.MANAGED, Space.PINNED):
            call = "free_host" if allocation.space is Space.PINNED else "free"
            yield _leak(allocation.space.value + " memory", allocation.address, allocation.site, call)


def _leak(what: str, handle: int, site: str, call: str) -> Hazard:
    return Hazard(
        HazardKind.LEAK,
        f"{what} {handle:#x} was never given back",
        site,
        fix=f"call {call} once it is not needed",
    )
