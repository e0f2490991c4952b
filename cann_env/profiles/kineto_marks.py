"""Where event records and waits of a Kineto trace stand on the device's streams.

The profiler says when the *host* called for them, not when the device came to them. On the device a record is
reached when all that was submitted to its stream before it is done, but not sooner after its call than any
work began after its launch; a wait likewise, and it is over when the record is reached. Host order decides
what was before.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Report, Task, TaskKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cann_env.profiles.kineto_file import Call, Events, Sync

STREAM_WAIT = "Stream Wait Event"
_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A wait and the record it waits for, in the order of the host's calls.

    Attributes:
        recorded_ns, waited_ns: When the host called for them.
        record: Correlation of the record; None if it is not known.
        on_stream, stream: Of the record, of the wait.
        correlation: Of the wait.
        place: Where the wait stands.
    """

    recorded_ns: int
    waited_ns: int
    record: int | None
    on_stream: int
    stream: int
    correlation: int | None
    place: str

    @property
    def event(self) -> str:
        """Equal for all waits for one record."""
        return f"wait {self.correlation}" if self.record is None else f"record {self.record}"


class _Streams:
    """How far each stream is when all that was submitted before a time of the host is done."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._submitted: dict[int, list[int]] = defaultdict(list)
        self._done: dict[int, list[int]] = defaultdict(list)
        self._starts: dict[int, list[int]] = defaultdict(list)
        self._called: dict[int, list[int]] = defaultdict(list)
        self._marks: dict[int, list[int]] = defaultdict(list)
        for task in sorted(tasks, key=lambda task: (task.start_ns, task.finish_ns)):
            stream = task.stream
            submitted = task.start_ns if task.launch_ns is None else task.launch_ns
            # A stream is a queue: what starts later was not submitted earlier, whatever the clocks say.
            latest = self._submitted[stream][-1] if self._submitted[stream] else submitted
            self._submitted[stream].append(max(latest, submitted))
            self._done[stream].append(task.finish_ns)
            self._starts[stream].append(task.start_ns)

    def done_ns(self, stream: int, called_ns: int) -> int | None:
        """When all submitted before ``called_ns`` is done, marks included; None if there is nothing."""
        count = bisect.bisect_left(self._submitted[stream], called_ns)
        last = [self._done[stream][count - 1]] if count else []
        marked = bisect.bisect_left(self._called[stream], called_ns)
        if marked:
            last.append(self._marks[stream][marked - 1])
        return max(last, default=None)

    def next_ns(self, stream: int, called_ns: int) -> int | None:
        """When the next one submitted started; None if there is none."""
        at = bisect.bisect_left(self._submitted[stream], called_ns)
        return self._starts[stream][at] if at < len(self._starts[stream]) else None

    def mark(self, stream: int, called_ns: int, at_ns: int) -> None:
        """All that is submitted to a stream after ``called_ns`` comes after ``at_ns``; told in order."""
        latest = self._marks[stream][-1] if self._marks[stream] else at_ns
        self._called[stream].append(called_ns)
        self._marks[stream].append(max(latest, at_ns))


def place_marks(events: Events, syncs: Sequence[Sync], tasks: Sequence[Task], report: Report) -> list[Task]:
    """Tasks for the records that some stream waits for, and for these waits.

    Args:
        events: Of the file.
        syncs: Those of the device.
        tasks: What the device did, on the trace's clock.
        report: Takes what was recognised, guessed and dropped.
    """
    waits = [sync for sync in syncs if sync.kind == STREAM_WAIT]
    calls: dict[int | None, Call] = {
        call.correlation: call for call in events.calls if call.correlation is not None
    }
    streams = _Streams(tasks)
    first = min((task.start_ns for task in tasks), default=0)
    last = max((task.finish_ns for task in tasks), default=0)
    latency = min((task.start_ns - task.launch_ns for task in tasks if task.launch_ns is not None), default=0)
    marks: list[Task] = []
    recorded: set[str] = set()
    pairs = _pairs(events, waits, calls, report) + _guessed_pairs(events, waits, tasks, report)
    for pair in sorted(pairs, key=lambda pair: (pair.waited_ns, pair.stream)):
        reached = streams.done_ns(pair.on_stream, pair.recorded_ns)
        if reached is None or pair.on_stream == pair.stream:
            report.note(Verdict.RECOGNISED, "event waits that had nothing to wait for", pair.place)
            continue
        record_ns = max(reached, pair.recorded_ns + latency)
        before = streams.done_ns(pair.stream, pair.waited_ns)
        wait_ns = max(pair.waited_ns + latency, record_ns if before is None else before)
        over_ns = max(wait_ns, record_ns)
        if record_ns < first or over_ns > last:
            report.note(Verdict.DROPPED, "event waits before or after all that the device did", pair.place)
            continue
        following = streams.next_ns(pair.stream, pair.waited_ns)
        if following is not None and following < over_ns:
            report.note(Verdict.DROPPED, "event waits that what follows them did not keep", pair.place)
            continue
        report.note(Verdict.RECOGNISED, "event waits", pair.place)
        streams.mark(pair.stream, pair.waited_ns, over_ns)
        if pair.event not in recorded:
            recorded.add(pair.event)
            marks.append(_record_task(pair, record_ns))
        marks.append(_wait_task(pair, wait_ns, over_ns))
    return marks


def _pairs(
    events: Events, waits: Sequence[Sync], calls: dict[int | None, Call], report: Report
) -> list[_Pair]:
    by_event = _records_by_event(events, calls)
    pairs = []
    for wait in waits:
        call = calls.get(wait.correlation)
        waited = wait.start_ns if call is None else call.start_ns
        record, on_stream = _record_of(wait, events, by_event, waited)
        if wait.stream is None or on_stream is None:
            report.note(Verdict.DROPPED, "event waits whose record is not in the trace", str(wait.place))
            continue
        known = calls.get(record) if record is not None else None
        if known is None:
            report.note(Verdict.GUESSED, "records taken to come right before their wait", str(wait.place))
        pairs.append(
            _Pair(
                recorded_ns=waited if known is None else known.start_ns,
                waited_ns=waited,
                record=record,
                on_stream=on_stream,
                stream=wait.stream,
                correlation=wait.correlation,
                place=str(wait.place),
            )
        )
    return pairs


def _record_of(
    wait: Sync, events: Events, by_event: dict[int, list[tuple[int, int, int]]], waited_ns: int
) -> tuple[int | None, int | None]:
    """Correlation and stream of the record that a wait is for, as far as the trace knows them."""
    if wait.record is not None:
        stream = events.records[wait.record][0] if wait.record in events.records else wait.on_stream
        return wait.record, stream
    if wait.on_stream is not None or wait.event is None:
        return None, wait.on_stream
    records = by_event.get(wait.event, [])
    at = bisect.bisect_left(records, (waited_ns, 0, 0)) - 1
    return (records[at][2], records[at][1]) if at >= 0 else (None, None)


def _records_by_event(events: Events, calls: dict[int | None, Call]) -> dict[int, list[tuple[int, int, int]]]:
    """For each event its records: time, stream and correlation, by time."""
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for correlation, (stream, event) in events.records.items():
        if event is not None and correlation in calls:
            found[event].append((calls[correlation].start_ns, stream, correlation))
    for records in found.values():
        records.sort()
    return found


def _guessed_pairs(
    events: Events, waits: Sequence[Sync], tasks: Sequence[Task], report: Report
) -> list[_Pair]:
    """Waits that the host called for, of which the profiler does not say the streams.

    A thread makes a stream wait right before it submits the work that needs it, for what it submitted last to
    another stream. Where that work was not over when the other began, it was something else.
    """
    described = {wait.correlation for wait in waits}
    lost = "stream waits whose streams are not recorded"
    if events.syncs:  # the profiler described those that wait for something
        count = sum(call.name in _WAIT_CALLS and call.correlation not in described for call in events.calls)
        if count:
            report.note(Verdict.DROPPED, lost, count=count)
        return []
    by_call = {task.task_id: task for task in tasks if task.task_id is not None}
    threads: dict[str, list[Call]] = defaultdict(list)
    for call in events.calls:
        threads[call.thread].append(call)
    pairs = []
    for calls in threads.values():
        for wait, earlier, later in _around_waits(calls, by_call, described):
            if earlier is None or later is None or earlier.finish_ns > later.start_ns:
                report.note(
                    Verdict.DROPPED,
                    "stream waits whose streams are not recorded",
                    later.place if later else "",
                )
                continue
            report.note(
                Verdict.GUESSED, "streams of waits, by what their thread submitted around them", later.place
            )
            pairs.append(
                _Pair(
                    recorded_ns=wait.start_ns,
                    waited_ns=wait.start_ns,
                    record=None,
                    on_stream=earlier.stream,
                    stream=later.stream,
                    correlation=wait.correlation,
                    place=later.place,
                )
            )
    return pairs


def _around_waits(
    calls: list[Call], by_call: Mapping[int, Task], described: set[int | None]
) -> list[tuple[Call, Task | None, Task | None]]:
    """Each wait a thread called for, what it last submitted to another stream, what it submitted next."""
    calls.sort(key=lambda call: call.start_ns)
    around: list[tuple[Call, Task | None, Task | None]] = []
    open_waits: list[tuple[Call, dict[int, Task]]] = []
    latest: dict[int, Task] = {}
    for call in calls:
        if call.name in _WAIT_CALLS and call.correlation not in described:
            open_waits.append((call, dict(latest)))
        task = None if call.correlation is None else by_call.get(call.correlation)
        if task is None:
            continue
        for wait, before in open_waits:
            others = [other for stream, other in before.items() if stream != task.stream]
            around.append((wait, others[-1] if others else None, task))
        open_waits.clear()
        latest.pop(task.stream, None)  # so that the latest stands last
        latest[task.stream] = task
    return around + [(wait, None, None) for wait, _ in open_waits]


def _record_task(pair: _Pair, at_ns: int) -> Task:
    return Task(
        name="event record",
        kind=TaskKind.RECORD,
        stream=pair.on_stream,
        start_ns=at_ns,
        duration_ns=0,
        task_id=pair.record,
        launch_ns=pair.recorded_ns,
        event=pair.event,
        place=pair.place,
    )


def _wait_task(pair: _Pair, start_ns: int, over_ns: int) -> Task:
    return Task(
        name="event wait",
        kind=TaskKind.WAIT,
        stream=pair.stream,
        start_ns=start_ns,
        duration_ns=over_ns - start_ns,
        task_id=pair.correlation,
        launch_ns=pair.waited_ns,
        event=pair.event,
        place=pair.place,
    )
