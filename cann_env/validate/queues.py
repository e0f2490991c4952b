"""Streams as queues: their order, their limits, and what must have happened before a command starts."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cann_env.validate.case import Case, Load, Violation, overloads, work_classes

if TYPE_CHECKING:
    from collections.abc import Iterator


def streams(case: Case) -> Iterator[Violation]:
    """Only streams the run may use, and no more of them than can be created."""
    used = sorted(case.queues)
    allowed = min(case.schedule.options.streams, case.schedule.device.limits.max_streams)
    if len(used) > allowed:
        yield Violation("streams", f"{len(used)} streams are used; at most {allowed} may be", (), 0)
        return
    for stream in used:
        if not 0 <= stream < case.schedule.options.streams:
            message = (
                f"{case.names(case.queues[stream])} ran on stream {stream}; "
                f"streams go from 0 to {case.schedule.options.streams - 1}"
            )
            yield Violation("streams", message, case.queues[stream], 0)


def stream_order(case: Case) -> Iterator[Violation]:
    """A stream is a FIFO: its commands start one after another, at least a dispatch gap apart."""
    for stream, queue in case.queues.items():
        positions = [case.runs[i].position for i in queue]
        if positions != list(range(len(queue))):
            message = f"the positions in stream {stream} are {positions}; they must count from 0"
            yield Violation("stream-order", message, queue, case.runs[queue[0]].start_ns)
            continue
        for first, second in pairwise(queue):
            finish, start = case.runs[first].finish_ns, case.runs[second].start_ns
            gap = _gap_ns(case, first, second)
            if start < finish + gap:
                message = (
                    f"{case.placed(second)} starts at {start} ns; {case.name(first)} before it ends at "
                    f"{finish} ns and the gap between them is {gap} ns"
                )
                yield Violation("stream-order", message, (first, second), start)


def _gap_ns(case: Case, first: int, second: int) -> int:
    dispatch = case.schedule.device.dispatch
    last_kernel = max(len(case.command(first).kernels) - 1, 0)
    from_mix = case.kernels[first, last_kernel][0].work_class == "mix"
    to_mix = case.kernels[second, 0][0].work_class == "mix"
    return dispatch.mix_switch_ns if from_mix != to_mix else dispatch.gap_ns


def dependency(case: Case) -> Iterator[Violation]:
    """Nothing starts before what it depends on, or waits for by event, has finished."""
    needs = {(p, c) for c, producers in enumerate(case.schedule.graph.predecessors) for p in producers}
    needs.update((p, c) for p, c in case.schedule.waits)
    for producer, consumer in sorted(needs):
        finish, start = case.runs[producer].finish_ns, case.runs[consumer].start_ns
        if start < finish:
            message = (
                f"{case.placed(consumer)} starts at {start} ns; "
                f"{case.placed(producer)}, which it needs, ends at {finish} ns"
            )
            yield Violation("dependency", message, (producer, consumer), start)


class Awaited(NamedTuple):
    """What a command waits for by event.

    ``reached_ns`` is the soonest its stream can have come to it, ``over_ns`` the soonest its waits can be
    over.
    """

    producers: list[int]
    reached_ns: int
    over_ns: int


def _awaited(case: Case) -> dict[int, Awaited]:
    """The waits of each command that has any.

    The event is recorded right behind its producer. A stream is surely blocked if the record comes after
    the latest instant at which the stream can have reached the consumer.
    """
    dispatch = case.schedule.device.dispatch
    records = Counter(producer for producer, _ in case.schedule.waits)
    before = {second: first for queue in case.queues.values() for first, second in pairwise(queue)}
    producers: dict[int, list[int]] = defaultdict(list)
    for producer, consumer in case.schedule.waits:
        producers[consumer].append(producer)
    found = {}
    for consumer, waited in producers.items():
        soonest = latest = case.runs[consumer].issue_ns
        if consumer in before:
            first = before[consumer]
            free = case.runs[first].finish_ns
            soonest = max(soonest, free + _gap_ns(case, first, consumer))
            free += records[first] * dispatch.record_ns
            latest = max(latest, free + _longest_gap_ns(case, first, consumer))
        recorded = [case.runs[i].finish_ns + dispatch.record_ns for i in waited]
        satisfied = sum(at_ns <= soonest for at_ns in recorded)
        blocked = [at_ns + dispatch.wake_ns for at_ns in recorded if at_ns > latest]
        over = max(soonest + satisfied * dispatch.wait_ns, *recorded, *blocked)
        found[consumer] = Awaited(waited, soonest, over)
    return found


def _longest_gap_ns(case: Case, first: int, second: int) -> int:
    """The gap if it must be chosen before it is known whether the second command runs as mix."""
    dispatch, classes = case.schedule.device.dispatch, work_classes(case.command(second), 0)
    if "mix" in classes and len(classes) > 1:
        return max(dispatch.gap_ns, dispatch.mix_switch_ns)
    return _gap_ns(case, first, second)


def event_time(case: Case) -> Iterator[Violation]:
    """Events take their time: a record, a wait that is already satisfied, the wake of a blocked stream."""
    for consumer, (waited, reached, over) in _awaited(case).items():
        start = case.runs[consumer].start_ns
        if max(reached, *(case.runs[i].finish_ns for i in waited)) <= start < over:
            message = (
                f"{case.placed(consumer)} starts at {start} ns; the events of {case.names(waited)} "
                f"let it start at {over} ns"
            )
            yield Violation("event-time", message, (*waited, consumer), start)


def release(case: Case) -> Iterator[Violation]:
    """Nothing is issued before it is known."""
    for i, run in enumerate(case.runs):
        known = case.command(i).release_ns
        if run.issue_ns < known:
            message = f"{case.placed(i)} is issued at {run.issue_ns} ns; it is released at {known} ns"
            yield Violation("release", message, (i,), run.issue_ns)


def issue_order(case: Case) -> Iterator[Violation]:
    """Commands are issued before they start, in the order of their stream, and after what they need."""
    for i, run in enumerate(case.runs):
        if run.start_ns < run.issue_ns:
            message = f"{case.placed(i)} starts at {run.start_ns} ns; it is issued at {run.issue_ns} ns"
            yield Violation("issue-order", message, (i,), run.start_ns)
    needs = {(p, c) for c, producers in enumerate(case.schedule.graph.predecessors) for p in producers}
    for queue in case.queues.values():
        needs.update(pairwise(queue))
    for first, second in sorted(needs):
        earlier, later = case.runs[first].issue_ns, case.runs[second].issue_ns
        if later < earlier:
            message = (
                f"{case.placed(second)} is issued at {later} ns; "
                f"{case.placed(first)}, which comes before it, only at {earlier} ns"
            )
            yield Violation("issue-order", message, (first, second), later)


def run_ahead(case: Case) -> Iterator[Violation]:
    """No more commands are issued and not finished than the host may run ahead."""
    limit = case.schedule.options.in_flight_limit
    flying = [Load(run.issue_ns, run.finish_ns, 1, run.command) for run in case.runs]
    for over in overloads(flying, limit):
        message = (
            f"at {over.at_ns} ns {over.total} commands are issued and not finished, "
            f"{case.names(over.commands)}; at most {limit} may be"
        )
        yield Violation("run-ahead", message, over.commands, over.at_ns)


def queue_depth(case: Case) -> Iterator[Violation]:
    """No stream's queue holds more commands, issued and not finished, than it has entries."""
    limit = case.schedule.device.limits.queue_depth
    for stream, queue in case.queues.items():
        held = [Load(case.runs[i].issue_ns, case.runs[i].finish_ns, 1, i) for i in queue]
        for over in overloads(held, limit):
            message = (
                f"at {over.at_ns} ns the queue of stream {stream} holds {over.total} commands, "
                f"{case.names(over.commands)}; it has {limit} entries"
            )
            yield Violation("queue-depth", message, over.commands, over.at_ns)


def events(case: Case) -> Iterator[Violation]:
    """No more event ids are held than exist, each from its consumer's issue until its waits can be over.

    They are over when the consumer is at the head of its stream and the gap, the waits and the wake have
    passed; it may start later, for want of a slot or of cores.
    """
    limit = case.schedule.device.limits.max_events
    held = [
        Load(case.runs[i].issue_ns, min(over, case.runs[i].start_ns), len(producers), i)
        for i, (producers, _, over) in _awaited(case).items()
    ]
    for over in overloads(held, limit):
        message = (
            f"at {over.at_ns} ns {case.names(over.commands)} hold {over.total} event ids; there are {limit}"
        )
        yield Violation("events", message, over.commands, over.at_ns)
