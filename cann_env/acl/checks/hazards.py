"""What is wrong with a program although it may have run well: races, misused events, leaks, deadlocks.

Nothing here depends on how fast anything was: two accesses are a race if nothing in the program orders them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cann_env.acl.checks.fixes import Step, in_order_of, synchronised, told
from cann_env.acl.state.deadlocks import crossed, lost, stuck
from cann_env.acl.state.evidence import note_leaks
from cann_env.acl.state.memory import Space
from cann_env.acl.state.order import HOST, clashes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.acl.state.deadlocks import Deadlock
    from cann_env.acl.state.evidence import FreedInUse, Leak, Misused, Rerecorded, Reused, Unrecorded
    from cann_env.acl.state.order import Access, Clash
    from cann_env.acl.state.simulator import Simulator


class HazardKind(enum.StrEnum):
    """What is wrong."""

    READ_AFTER_WRITE = "read-after-write"
    WRITE_AFTER_READ = "write-after-read"
    WRITE_AFTER_WRITE = "write-after-write"
    WAIT_WITHOUT_RECORD = "wait-without-record"
    EVENT_RERECORDED = "event-recorded-again"
    HOST_BUFFER_REUSED = "host-buffer-reused"
    FREE_IN_USE = "free-in-use"
    USE_AFTER_DESTROY = "use-after-destroy"
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
        steps: The same, call by call, where it is calls to be added.
    """

    kind: HazardKind
    what: str
    first: str
    second: str = ""
    buffer: str = ""
    streams: tuple[int, ...] = ()
    fix: str = ""
    steps: tuple[Step, ...] = ()


def hazards(run: Simulator, *, ended: bool = False) -> list[Hazard]:
    """All hazards of a run so far.

    Args:
        run: The run.
        ended: The program is over, even if it did not call ``acl.finalize``; else leaks wait for that call.
    """
    run.settle()
    evidence = run.evidence
    if ended and run.initialised:
        note_leaks(run, "the end of the program")
    races = clashes(run.log, run.log, run.minds.accesses)
    found = [_race(run, clash) for clash in races]
    found += [_reused(run, reused) for reused in evidence.reused]
    found += [_freed(run, freed) for freed in evidence.freed]
    found += _unrecorded(evidence.unrecorded, races)
    found += [_rerecorded(again) for again in evidence.rerecorded]
    found += [_misused(misused) for misused in evidence.misused]
    found += [_deadlock(deadlock) for deadlock in (*stuck(run), *lost(run), *crossed(run))]
    found += [_leak(leak) for leak in evidence.leaks]
    return list(dict.fromkeys(found))


_KINDS: Final = {
    (True, False): HazardKind.READ_AFTER_WRITE,
    (False, True): HazardKind.WRITE_AFTER_READ,
    (True, True): HazardKind.WRITE_AFTER_WRITE,
}


def _race(run: Simulator, clash: Clash) -> Hazard:
    first, second = clash.first, clash.second
    steps = in_order_of(run, clash)
    streams = tuple(_shown(run, access) for access in (first, second))
    if clash.reused:
        what = (
            f"{second.what} on {_where(run, second)} uses {clash.allocation.name}, which the pool gave to "
            f"stream {clash.allocation.stream} at {clash.allocation.site}, and nothing orders it behind the "
            f"last use of that place by {first.what} on {_where(run, first)}"
        )
        kind = HazardKind.FREE_IN_USE
    else:
        kind = _kind(clash)
        verbs = ["writes" if access.writes else "reads" for access in (first, second)]
        low, high = max(first.first, second.first), min(first.last, second.last)
        what = (
            f"{second.what} on {_where(run, second)} {verbs[1]} bytes {low} to {high - 1} of "
            f"{clash.allocation.name}, which {first.what} on {_where(run, first)} {verbs[0]}, and nothing "
            "orders the two"
        )
    return Hazard(kind, what, first.site, second.site, clash.allocation.name, streams, told(steps), steps)


def _kind(clash: Clash) -> HazardKind:
    first, second = clash.first, clash.second
    on_host = clash.allocation.space in (Space.PINNED, Space.PAGEABLE)
    if on_host and second.stream < 0 and second.writes and not first.writes:
        return HazardKind.HOST_BUFFER_REUSED
    return _KINDS[first.writes, second.writes]


def _shown(run: Simulator, access: Access) -> int:
    if access.work is not None and access.work.launched is not None:
        return access.work.launched[1]
    return HOST if access.stream < 0 or access.stream in run.minds.hidden else access.stream


def _where(run: Simulator, access: Access) -> str:
    if access.callback is not None:
        return f"the host, called by stream {access.callback.stream},"
    shown = _shown(run, access)
    launched = access.work.launched if access.work is not None else None
    graph = f", in the graph launched at {launched[0]}," if launched is not None else ""
    return "the host" if shown == HOST else f"stream {shown}{graph}"


def _reused(run: Simulator, reused: Reused) -> Hazard:
    memory, work = reused.memory, reused.work
    steps = synchronised(run, work.stream, work.site)
    return Hazard(
        HazardKind.HOST_BUFFER_REUSED,
        f"the host changed {memory.allocation.name} ({memory.size} bytes) after the copy of {work.site} was "
        "submitted and before it was known to have been read",
        work.site,
        buffer=memory.allocation.name,
        streams=(work.stream, HOST),
        fix=f"{told(steps)}; or use a second buffer in turn",
        steps=steps,
    )


def _freed(run: Simulator, freed: FreedInUse) -> Hazard:
    work = freed.work
    if freed.stream is None:
        steps: tuple[Step, ...] = (Step.synchronise(run, work.stream, "before", freed.site),)
    else:
        steps = Step.pair(run, work.stream, work.site, freed.stream.handle, freed.site)
    return Hazard(
        HazardKind.FREE_IN_USE,
        f"{freed.allocation.name} is given back while {work.label} on stream {work.stream} may still use it",
        work.site,
        freed.site,
        freed.allocation.name,
        (work.stream, HOST if freed.stream is None else freed.stream.handle),
        told(steps),
        steps,
    )


def _unrecorded(waits: Sequence[Unrecorded], races: Sequence[Clash]) -> Iterator[Hazard]:
    """Waits before the first record: those that were refused, never met a record, or let a race through."""
    for wait in waits:
        event = wait.event
        if wait.refused:
            why = "the call is refused"
        elif event.legacy:
            if wait.signal.after is not None:
                continue
            why = "the stream waits for a record that never comes"
        elif event.first is None or any(_let_through(wait, clash) for clash in races):
            why = "the wait does nothing"
        else:
            continue  # What is waited for did not exist yet, and nothing needed it: first pass of a loop.
        yield Hazard(
            HazardKind.WAIT_WITHOUT_RECORD,
            f"stream {wait.stream} waits for event {event.handle} (made at {event.site}), which had recorded "
            f"nothing yet: {why}",
            event.site,
            wait.site,
            streams=(wait.stream,),
            fix=f"record the event, behind the work that is to be waited for, before {wait.site}",
        )


def _let_through(wait: Unrecorded, clash: Clash) -> bool:
    recorded = wait.event.first
    behind = clash.second.stream == wait.stream and clash.second.position >= wait.position
    return recorded is not None and behind and clash.first.stream == recorded.stream


def _rerecorded(again: Rerecorded) -> Hazard:
    verb = "reset" if again.reset else "recorded again"
    return Hazard(
        HazardKind.EVENT_RERECORDED,
        f"event {again.event.handle} (made at {again.event.site}) is {verb} while stream {again.wait_stream} "
        f"may still wait for what it recorded at {again.record.site}",
        again.wait_site,
        again.site,
        streams=(again.record.stream, again.wait_stream),
        fix=f"make the event of {again.event.site} with create_event_ex_with_flag, whose waits keep their "
        "record, or use a second event in turn",
    )


def _misused(misused: Misused) -> Hazard:
    return Hazard(
        HazardKind.USE_AFTER_DESTROY,
        f"{misused.what} is used after it was given back",
        misused.gone,
        misused.site,
        buffer="" if " " in misused.what else misused.what,
        fix=f"move {misused.gone} behind {misused.site}",
    )


def _deadlock(deadlock: Deadlock) -> Hazard:
    return Hazard(
        HazardKind.DEADLOCK, deadlock.what, deadlock.first, deadlock.second, streams=deadlock.streams,
        fix=deadlock.fix,
    )  # fmt: skip


def _leak(leak: Leak) -> Hazard:
    name = leak.name or f"{leak.handle:#x}"
    return Hazard(
        HazardKind.LEAK,
        f"{leak.what} {name} was not given back by {leak.end}",
        leak.site,
        leak.end,
        fix=f"call {leak.call}({name}) before {leak.end}",
    )
