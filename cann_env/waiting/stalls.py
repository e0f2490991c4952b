"""What commands waited for, one by one: how long, why, and who had it meanwhile.

The times sum by cause to :attr:`~cann_env.schedule.Schedule.stall`, to the nanosecond.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.spans import Span, covered_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.schedule import Schedule

_ENGINE_OF_MOVE = {"fault": "h2d", "prefetch": "h2d", "writeback": "d2h", "lift": "sdma"}
_HOLDERS = 3


@dataclass(frozen=True, slots=True)
class Holder:
    """Who had what a command waited for.

    Attributes:
        what: ``command``, ``buffer`` (that moved) or ``host``.
        name: Of the command or the buffer; of the host what it did.
        held_ns: For how much of the wait.
    """

    what: str
    name: str
    held_ns: int


@dataclass(frozen=True, slots=True)
class StallOf:
    """How long one command waited for one thing.

    Attributes:
        command: Its index.
        cause: A field of :class:`~cann_env.schedule.Stall`.
        start_ns, finish_ns: From when until when, with what else it waited for in between.
        waited_ns: For this alone.
    """

    command: int
    cause: str
    start_ns: int
    finish_ns: int
    waited_ns: int


def stalls(schedule: Schedule) -> tuple[StallOf, ...]:
    """Every command with everything it waited for, the longest first, then the earliest."""
    spans: dict[tuple[int, str], list[Span]] = {}
    for row in (*schedule.waiting, *_for_host(schedule)):
        spans.setdefault((row[0], row[1]), []).append((row[2], row[3]))
    found = [
        StallOf(
            command=command,
            cause=cause,
            start_ns=min(start for start, _ in own),
            finish_ns=max(finish for _, finish in own),
            waited_ns=sum(finish - start for start, finish in own),
        )
        for (command, cause), own in spans.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.waited_ns, each.start_ns, each.command)))


def _for_host(schedule: Schedule) -> Iterator[tuple[int, str, int, int]]:
    """From when a command's predecessors were done, and it was released, until it was submitted."""
    finish = {run.command: run.finish_ns for run in schedule.commands}
    for run in schedule.commands:
        before = [finish[i] for i in schedule.graph.predecessors[run.command]]
        since = max(schedule.graph.commands[run.command].release_ns, *before, 0)
        if run.issue_ns > since:
            yield run.command, "host", since, run.issue_ns


def holders(schedule: Schedule, stall: StallOf) -> tuple[Holder, ...]:
    """Who had what a command waited for, whoever had it longest first; at most three.

    For an event that is the command waited for; for cores and copy engines who occupied them; for a place
    among the active streams the commands that ran; for memory the buffers that moved; for the host its calls.
    """
    if stall.cause == "event":
        return _producers(schedule, stall)
    if stall.cause == "host":
        return _most(_calls(schedule, stall))
    if stall.cause == "fault":
        return _most(_moved(schedule, stall, frozenset(_ENGINE_OF_MOVE)))
    if stall.cause == "slot":
        ran = ((run.command, (run.start_ns, run.finish_ns)) for run in schedule.commands)
        return _most(_commands(schedule, stall, ran))
    pools = _pools(schedule, stall.command)
    blocks = (
        (row.command, (row.start_ns, row.finish_ns))
        for row in schedule.blocks
        if row.die == _die(schedule, stall.command) and not pools.isdisjoint(schedule.demand_of(row))
    )
    causes = frozenset(cause for cause, engine in _ENGINE_OF_MOVE.items() if engine in pools)
    return _most([*_commands(schedule, stall, blocks), *_moved(schedule, stall, causes)])


def _most(held: Iterable[Holder]) -> tuple[Holder, ...]:
    some = sorted((each for each in held if each.held_ns), key=lambda each: (-each.held_ns, each.name))
    return tuple(some[:_HOLDERS])


def _overlap(stall: StallOf, span: Span) -> int:
    return max(0, min(stall.finish_ns, span[1]) - max(stall.start_ns, span[0]))


def _producers(schedule: Schedule, stall: StallOf) -> tuple[Holder, ...]:
    """The command waited for that ended last, and for how much of the wait it was not done."""
    finish = {run.command: run.finish_ns for run in schedule.commands}
    producers = [wait.producer for wait in schedule.waits if wait.consumer == stall.command]
    last = max(producers, key=lambda i: (finish[i], -i), default=None)
    if last is None:
        return ()
    held = max(0, min(finish[last], stall.finish_ns) - stall.start_ns)
    return (Holder("command", schedule.graph.commands[last].name, held),)


def _calls(schedule: Schedule, stall: StallOf) -> list[Holder]:
    """What the host did; its waits are one, as are its calls of one kind."""
    held: Counter[str] = Counter()
    for call in schedule.host:
        held[call.call] += _overlap(stall, (call.start_ns, call.end_ns))
    return [Holder("host", call, ns) for call, ns in held.items()]


def _commands(schedule: Schedule, stall: StallOf, spans: Iterable[tuple[int, Span]]) -> list[Holder]:
    """Commands other than the one that waited; blocks of one that ran side by side count once."""
    held: dict[int, list[Span]] = {}
    for command, span in spans:
        if command != stall.command and _overlap(stall, span):
            held.setdefault(command, []).append((max(span[0], stall.start_ns), min(span[1], stall.finish_ns)))
    names = schedule.graph.commands
    return [Holder("command", names[i].name, covered_ns(own)) for i, own in held.items()]


def _moved(schedule: Schedule, stall: StallOf, causes: frozenset[str]) -> list[Holder]:
    held: Counter[int] = Counter()
    for row in schedule.transfers:
        if row.cause in causes:
            held[row.buffer] += _overlap(stall, (row.start_ns, row.finish_ns))
    return [Holder("buffer", schedule.graph.buffers[i].name, ns) for i, ns in held.items()]


def _pools(schedule: Schedule, command: int) -> frozenset[str]:
    """Pools of which the first kernel of a command took something."""
    first = next(row for row in schedule.blocks if row.command == command)
    return frozenset(schedule.demand_of(first))


def _die(schedule: Schedule, command: int) -> int:
    return next(row.die for row in schedule.blocks if row.command == command)
