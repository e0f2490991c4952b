"""Events between the streams of a static allocation, how CANN's graph engine prunes them, and long streams.

Every dependency between two streams first costs a record behind the producer and a wait before the consumer.
Of several waits of one stream for the same producer the first is enough; of several records of one stream for
the same consumer the last is. The graph engine's further rules, on streams that other streams switch on, have
nothing to work on here, as commands know no control flow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cann_env.schedulers.cann_units import places
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.program import Program

RESERVED_TASKS = 27
"""Entries of a queue that the graph engine keeps free: 20 in reserve and 7 to debug."""


class Event(NamedTuple):
    """Recorded behind one command and awaited before another; both by index."""

    sender: int
    receiver: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events of an allocation at each stage, by receiver and then sender in program order.

    Attributes:
        inserted: One for each dependency between two streams.
        received_once: Of those, the first that each stream awaits from the same sender.
        kept: Of those, the last that each stream records for the same receiver.
    """

    inserted: tuple[Event, ...]
    received_once: tuple[Event, ...]
    kept: tuple[Event, ...]


def events_of(program: Program, streams: Sequence[int]) -> Events:
    """Insert and prune the events of an allocation whose streams run in program order.

    Args:
        program: What is allocated.
        streams: Stream of each command.
    """
    graph = program.graph
    order = graph.topological_order
    inserted = inserted_events(graph.predecessors, order, streams)
    once = first_received(inserted, order, streams)
    return Events(inserted=inserted, received_once=once, kept=last_sent(once, order, streams))


def inserted_events(
    predecessors: Sequence[Sequence[int]], order: Sequence[int], streams: Sequence[int]
) -> tuple[Event, ...]:
    """An event for every dependency between two streams."""
    place = places(order)
    return tuple(
        Event(u, v)
        for v in order
        for u in sorted(predecessors[v], key=place.__getitem__)
        if streams[u] != streams[v]
    )


def first_received(
    events: Sequence[Event], order: Sequence[int], streams: Sequence[int]
) -> tuple[Event, ...]:
    """Of several events from one sender to one stream, keep the one that is received first."""
    place = places(order)
    first: dict[tuple[int, int], Event] = {}
    for event in events:
        key = (event.sender, streams[event.receiver])
        known = first.setdefault(key, event)
        if place[event.receiver] < place[known.receiver]:
            first[key] = event
    kept = set(first.values())
    return tuple(event for event in events if event in kept)


def last_sent(events: Sequence[Event], order: Sequence[int], streams: Sequence[int]) -> tuple[Event, ...]:
    """Of several events from one stream to one receiver, keep the one that is sent last."""
    place = places(order)
    last: dict[tuple[int, int], Event] = {}
    for event in events:
        key = (streams[event.sender], event.receiver)
        known = last.setdefault(key, event)
        if place[event.sender] > place[known.sender]:
            last[key] = event
    kept = set(last.values())
    return tuple(event for event in events if event in kept)


class Split(NamedTuple):
    """Physical stream of each command, and the events that link the parts of one logical stream."""

    streams: tuple[int, ...]
    links: tuple[Event, ...]


def split_streams(
    program: Program, streams: Sequence[int], events: Sequence[Event] = (), *, most: int | None = None
) -> Split:
    """Cut streams that would not fit into a queue, as a graph that is loaded in one piece must.

    A command is one task, and so is each event that it awaits or that is recorded behind it. Where the tasks
    of a stream, those of the next command included, and the reserve exceed the queue, the command opens a new
    stream and waits for the one before it. The first parts of all streams keep their numbers.

    Args:
        program: What is allocated.
        streams: Logical stream of each command.
        events: Events that take places in queues.
        most: Tasks that a queue can hold; None for the device's queue depth.

    Raises:
        InputError: The queue holds nothing beside the reserve.
    """
    cap = program.device.limits.queue_depth if most is None else most
    if cap <= RESERVED_TASKS:
        raise InputError(
            f"a queue of {cap} tasks on {program.device.name}: {RESERVED_TASKS} are reserved; it needs more"
        )
    ends = Counter(end for event in events for end in event)
    physical = list(streams)
    opened = max(streams) + 1
    current: dict[int, int] = {}
    count: Counter[int] = Counter()
    last: dict[int, int] = {}
    links = []
    for v in program.graph.topological_order:
        logical = streams[v]
        tasks = 1 + ends[v]
        if logical in last and count[logical] + tasks + RESERVED_TASKS > cap:
            current[logical] = opened
            opened += 1
            count[logical] = 0
            links.append(Event(last[logical], v))
        count[logical] += tasks
        last[logical] = v
        physical[v] = current.get(logical, logical)
    return Split(tuple(physical), tuple(links))
