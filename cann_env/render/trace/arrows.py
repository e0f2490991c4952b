"""What leads to what: arrows between the slices of a trace, read off the rows of a schedule.

An arrow leaves a slice at its last nanosecond, or where it begins if it stands for a submission, and arrives
where the work that it leads to begins.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.graph import CommandKind, CopyKind
from cann_env.schedule import FAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cann_env.schedule import Schedule

EVENT: Final = "event"
"""A stream waits for an event recorded behind the tail."""
DATA: Final = "data"
"""Bytes that a copy brought to a reader, or that a producer hands to a copy."""
MOVE: Final = "move"
"""A buffer that was moved into HBM to a command that reads it there."""
SUBMIT: Final = "HostToDevice"
"""A call of the host thread to what it put to work."""


class Place(NamedTuple):
    """A slice: ``kind`` is ``command``, ``call`` or ``move``, ``row`` its index in the graph or schedule."""

    kind: str
    row: int


class End(NamedTuple):
    """One end of an arrow."""

    number: int
    category: str
    at_ns: int
    head: bool


class _Arrow(NamedTuple):
    category: str
    tail: Place
    leave_ns: int
    head: Place
    arrive_ns: int


Arrows = dict[Place, list[End]]
"""The ends at each slice, by number of the arrow."""


def arrows_of(schedule: Schedule) -> Arrows:
    """All arrows of a schedule: event waits, copied bytes, moved buffers, submissions.

    One that would lead back in time is left out.
    """
    found: Arrows = defaultdict(list)
    every = (*_waits(schedule), *_copies(schedule), *_moves(schedule), *_submissions(schedule))
    forward = [arrow for arrow in every if arrow.leave_ns <= arrow.arrive_ns]
    for number, arrow in enumerate(forward, start=1):
        found[arrow.tail].append(End(number, arrow.category, arrow.leave_ns, head=False))
        found[arrow.head].append(End(number, arrow.category, arrow.arrive_ns, head=True))
    for ends in found.values():
        # Within an instant what arrives comes first: a slice without length passes it on.
        ends.sort(key=lambda end: (end.at_ns, not end.head, end.number))
    return found


def last_ns(start_ns: int, finish_ns: int) -> int:
    """The last instant at which a slice is open: its end lies outside it."""
    return max(start_ns, finish_ns - 1)


def copied(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Pairs of commands (from, to) of which one is a copy and the other reads or made its bytes."""
    commands = schedule.graph.commands
    writer: dict[str, int] = {}
    for i, command in enumerate(commands):
        sources = {writer[name] for name in command.reads if name in writer}
        sink = command.kind is CommandKind.COPY and command.copy is not CopyKind.H2D
        yield from ((j, i) for j in sorted(sources) if sink or commands[j].kind is CommandKind.COPY)
        writer.update(dict.fromkeys(command.writes, i))


def _waits(schedule: Schedule) -> Iterator[_Arrow]:
    spans = {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
    pairs = ((wait.producer, wait.consumer) for wait in schedule.waits)
    return _between(EVENT, pairs, spans)


def _copies(schedule: Schedule) -> Iterator[_Arrow]:
    spans = {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
    return _between(DATA, copied(schedule), spans)


def _between(
    category: str, pairs: Iterable[tuple[int, int]], spans: Mapping[int, tuple[int, int]]
) -> Iterator[_Arrow]:
    for producer, consumer in pairs:
        yield _Arrow(
            category,
            Place("command", producer),
            last_ns(*spans[producer]),
            Place("command", consumer),
            spans[consumer][0],
        )


def _moves(schedule: Schedule) -> Iterator[_Arrow]:
    """From each move into HBM to the readers that start working while it lies there."""
    begin = _first_blocks(schedule)
    readers: dict[int, list[int]] = defaultdict(list)
    for i, command in enumerate(schedule.graph.commands):
        for name in dict.fromkeys(command.reads):
            readers[schedule.graph.buffer_index[name]].append(i)
    leaving = _leaving(schedule)
    for row, move in enumerate(schedule.transfers):
        if move.cause not in ("fault", "prefetch") or move.finish_ns > schedule.makespan_ns:
            continue
        until = min((time for time in leaving[move.buffer] if time >= move.finish_ns), default=FAR)
        for i in readers[move.buffer]:
            if move.finish_ns <= begin[i] < until:
                leave = last_ns(move.start_ns, move.finish_ns)
                yield _Arrow(MOVE, Place("move", row), leave, Place("command", i), begin[i])


def _leaving(schedule: Schedule) -> Mapping[int, Sequence[int]]:
    """When each buffer leaves HBM."""
    found: dict[int, list[int]] = defaultdict(list)
    for move in schedule.transfers:
        if move.cause in ("evict", "writeback", "free"):
            found[move.buffer].append(move.reserve_ns)
    return found


def _first_blocks(schedule: Schedule) -> dict[int, int]:
    """When each command starts to work: a head may hold its place before that while operands arrive."""
    begin = {run.command: run.finish_ns for run in schedule.commands}
    for block in schedule.blocks:
        begin[block.command] = min(begin[block.command], block.start_ns)
    return begin


_CARRIED: Final = {"prefetch": ("prefetch", "fault"), "lift": ("lift",), "offload": ("writeback", "evict")}


def _submissions(schedule: Schedule) -> Iterator[_Arrow]:
    starts = {run.command: run.start_ns for run in schedule.commands}
    by_buffer: dict[int, list[int]] = defaultdict(list)
    for row, move in enumerate(schedule.transfers):
        by_buffer[move.buffer].append(row)
    for number, call in enumerate(schedule.host):
        tail = Place("call", number)
        if call.call == "issue":
            yield _Arrow(SUBMIT, tail, call.start_ns, Place("command", call.target), starts[call.target])
        elif call.call in _CARRIED:
            for row in by_buffer[call.target]:
                move = schedule.transfers[row]
                if move.cause in _CARRIED[call.call] and call.start_ns <= move.reserve_ns:
                    if move.start_ns <= schedule.makespan_ns:
                        yield _Arrow(SUBMIT, tail, call.start_ns, Place("move", row), move.start_ns)
                    break
