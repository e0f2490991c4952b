"""What is ordered by stream and event alone, whatever the times: missing waits and hazards.

A command comes after the one before it in its stream, and after every producer its stream waits for.
Each command carries one high-water mark a stream, the last position there that has surely finished
when it starts; a producer is ordered before a consumer when its position is not above the mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cann_env.units import InputError
from cann_env.validate.case import Case, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from cann_env.graph import CommandGraph


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two commands that touch one buffer while nothing orders them: a race.

    Attributes:
        producer: Index of the command that comes first in program order.
        consumer: Index of the command that must come after it.
        buffer: Name of the buffer.
        kind: ``read after write``, ``write after read`` or ``write after write``.
    """

    producer: int
    consumer: int
    buffer: str
    kind: str


@dataclass(frozen=True, slots=True)
class Order:
    """The partial order of commands that streams and waits make.

    Attributes:
        lane: Row of ``marks`` columns that belongs to each command's stream.
        position: Place of each command in its stream.
        marks: High-water marks, shape (commands, streams): -1 where nothing is known to have finished.
        stuck: Commands that can never start, since they wait for each other in a circle.
    """

    lane: tuple[int, ...]
    position: tuple[int, ...]
    marks: npt.NDArray[np.int32]
    stuck: tuple[int, ...]

    def holds(self, producer: int, consumer: int) -> bool:
        """Whether the producer has surely finished when the consumer starts."""
        return bool(self.marks[consumer, self.lane[producer]] >= self.position[producer])


def order_of(queues: Sequence[Sequence[int]], waits: Iterable[tuple[int, int]], count: int) -> Order:
    """Work out what queues and waits order.

    Args:
        queues: Commands of each stream, in order; together each of ``range(count)`` once.
        waits: Pairs (producer, consumer): the consumer's stream waits for an event right behind the producer.
        count: Number of commands.
    """
    lane, position = [0] * count, [0] * count
    before: list[list[int]] = [[] for _ in range(count)]
    for number, queue in enumerate(queues):
        for place, command in enumerate(queue):
            lane[command], position[command] = number, place
            if place:
                before[command].append(queue[place - 1])
    for producer, consumer in waits:
        before[consumer].append(producer)
    marks = np.full((count, len(queues)), -1, dtype=np.int32)
    order, stuck = _topological(before)
    for command in order:
        for producer in before[command]:
            np.maximum(marks[command], marks[producer], out=marks[command])
            known = marks[command, lane[producer]]
            marks[command, lane[producer]] = max(known, position[producer])
    return Order(tuple(lane), tuple(position), marks, stuck)


def _topological(before: Sequence[Sequence[int]]) -> tuple[list[int], tuple[int, ...]]:
    """Commands in an order that respects ``before``, and those that wait for each other in a circle."""
    after: list[list[int]] = [[] for _ in before]
    for command, producers in enumerate(before):
        for producer in producers:
            after[producer].append(command)
    missing = [len(producers) for producers in before]
    order = [command for command, count in enumerate(missing) if not count]
    for command in order:  # grows while it is walked
        for consumer in after[command]:
            missing[consumer] -= 1
            if not missing[consumer]:
                order.append(consumer)
    return order, tuple(command for command, count in enumerate(missing) if count)


def missing_waits(case: Case) -> Iterator[Violation]:
    """Every dependency across streams has an event wait or follows from earlier ones.

    The times do not matter here: a dependency that only holds by luck is a race.
    """
    graph = case.schedule.graph
    order = order_of(list(case.queues.values()), case.schedule.waits, len(graph.commands))
    if order.stuck:
        message = f"{case.names(order.stuck)} wait for each other in a circle of streams and events"
        yield Violation("missing-wait", message, order.stuck, 0)
        return
    for consumer, producers in enumerate(graph.predecessors):
        for producer in producers:
            if not order.holds(producer, consumer):
                message = (
                    f"{case.placed(consumer)} needs {case.placed(producer)}; "
                    "neither their streams nor any event wait orders them"
                )
                yield Violation("missing-wait", message, (producer, consumer), case.runs[consumer].start_ns)


def hazards(
    graph: CommandGraph,
    stream_of: Sequence[int],
    order: Sequence[int],
    waits: Iterable[tuple[int, int]],
) -> tuple[Hazard, ...]:
    """Data dependencies of a program that no path of streams and events orders.

    A wait for an event that is recorded only later in ``order`` returns at once, as on the device, and
    orders nothing.

    Args:
        graph: Commands in program order, which says what each read is meant to see.
        stream_of: Stream of each command.
        order: All commands in the order the host submits them.
        waits: Pairs (producer, consumer): the consumer's stream waits for an event right behind the producer.

    Raises:
        InputError: ``order`` does not name each command once, ``stream_of`` has another length, or a wait
            names a command that does not exist.
    """
    count = len(graph.commands)
    if sorted(order) != list(range(count)):
        raise InputError(f"'order' must name each of the {count} commands of {graph.name!r} once")
    if len(stream_of) != count:
        raise InputError(f"'stream_of' has {len(stream_of)} entries; graph {graph.name!r} needs {count}")
    pairs = [(producer, consumer) for producer, consumer in waits]
    for producer, consumer in pairs:
        if not (0 <= producer < count and 0 <= consumer < count):
            raise InputError(f"wait ({producer}, {consumer}) must name commands from 0 to {count - 1}")
    place = {command: at for at, command in enumerate(order)}
    queues: dict[int, list[int]] = {}
    for command in order:
        queues.setdefault(stream_of[command], []).append(command)
    recorded = [(p, c) for p, c in pairs if place[p] < place[c]]
    known = order_of(list(queues.values()), recorded, count)
    return tuple(h for h in _data_dependencies(graph) if not known.holds(h.producer, h.consumer))


def _data_dependencies(graph: CommandGraph) -> Iterator[Hazard]:
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for i, command in enumerate(graph.commands):
        for name in command.reads:
            if name in writer:
                yield Hazard(writer[name], i, name, "read after write")
        for name in command.writes:
            for reader in readers.get(name, ()):
                yield Hazard(reader, i, name, "write after read")
            if name in writer and name not in command.reads:
                yield Hazard(writer[name], i, name, "write after write")
        for name in command.reads:
            readers.setdefault(name, []).append(i)
        for name in command.writes:
            writer[name], readers[name] = i, []
