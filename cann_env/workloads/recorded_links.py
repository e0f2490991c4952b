"""Why each task of a recording began when it did: whom it waited for, and idle time that nobody explains.

A stream is reached a gap after the task before, a task not before its launch, a wait not before the record it
is for. Where events carry no ids, a blocked wait is taken to be for the record that ended last before it was
released. Where a recording shows no events at all, a task that begins after idle time is taken to have
waited for whichever stream came to rest last before it began. What is idle beyond that is a delay.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cann_env.profiles.recording import TaskKind
from cann_env.workloads.recorded_tasks import by_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.device.spec import DispatchSpec
    from cann_env.workloads.recorded_tasks import Entry

UNEXPLAINED_NS = 5_000
"""Shorter idle time is left to be an error of the replay."""

REACH_NS = 1_000_000
"""No task that ended longer ago is taken for the cause of a start."""


class Evidence(enum.StrEnum):
    """How an edge between streams is known: by the event's id, by a record that fits, by who ended last."""

    RECORDED = "recorded"
    EVENT = "event"
    REST = "rest"


class Edge(NamedTuple):
    """A task waits for the end of another (positions of entries)."""

    cause: int
    task: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Links:
    """All that orders the tasks of a recording beyond their streams.

    Attributes:
        edges: Between streams.
        delays: Idle time before a task that nothing explains (ns), by its position.
        profiler: Idle time of the profiler before a task (ns), by its position.
        latency_ns: From launch to start of a task that nothing else holds back.
    """

    edges: tuple[Edge, ...]
    delays: Mapping[int, int]
    profiler: Mapping[int, int]
    latency_ns: int


class Finder:
    """Looks for the causes of the tasks of one recording, in their order.

    Args:
        entries: The tasks.
        dispatch: What the device takes for gaps and events.
        profiler: See :class:`Links`.
        latency_ns: See :class:`Links`.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        dispatch: DispatchSpec,
        profiler: Mapping[int, int],
        latency_ns: int,
    ) -> None:
        self._entries = entries
        self._dispatch = dispatch
        self._profiler = profiler
        self._latency_ns = latency_ns
        self._shows_events = any(entry.task.kind is TaskKind.WAIT for entry in entries)
        self._before = _predecessors(entries)
        self._resting = _resting(entries)
        self._rest_ends = [entries[i].task.finish_ns for i in self._resting]
        self._records = sorted(
            (i for i, entry in enumerate(entries) if entry.task.kind is TaskKind.RECORD),
            key=lambda i: (entries[i].task.finish_ns, i),
        )
        self._record_ends = [entries[i].task.finish_ns for i in self._records]
        self._awaited: set[int] = set()
        self._open = 0
        self._by_event: dict[str | None, list[int]] = {}
        for i in self._records:
            self._by_event.setdefault(entries[i].task.event, []).append(i)

    def links(self) -> Links:
        """Everything that was found."""
        edges: list[Edge] = []
        delays: dict[int, int] = {}
        for i in range(len(self._entries)):
            cause = self._cause(i)
            if cause is not None:
                edges.append(cause)
            idle = self._entries[i].moment_ns - self._expected(i, cause)
            if idle > UNEXPLAINED_NS:
                delays[i] = idle
        return Links(tuple(edges), delays, self._profiler, self._latency_ns)

    def _cause(self, i: int) -> Edge | None:
        entry = self._entries[i]
        if entry.task.kind is TaskKind.WAIT:
            return self._record_for(i)
        if entry.moment_ns - self._expected(i, None) <= UNEXPLAINED_NS:
            return None
        if self._shows_events and self._before[i] is not None:
            return None
        return self._came_to_rest(i)

    def _expected(self, i: int, cause: Edge | None) -> int:
        """When a task should take its turn by its stream, its launch and its cause."""
        entry, before, costs = self._entries[i], self._before[i], self._dispatch
        expected = 0
        if before is not None:
            gap = max(costs.gap_ns, self._profiler.get(i, 0))
            expected = self._entries[before].task.finish_ns + gap
        if entry.task.launch_ns is not None:
            expected = max(expected, entry.task.launch_ns + self._latency_ns)
        if cause is not None:
            recorded = self._entries[cause.cause].task.finish_ns
            # A record is a task of its own here; behind any other task the engine adds one.
            if self._entries[cause.cause].task.kind is not TaskKind.RECORD:
                recorded += costs.record_ns
            if recorded > expected:
                expected = recorded + costs.wake_ns
        return expected

    def _record_for(self, i: int) -> Edge | None:
        """The record that a wait is for: of its event, or the last one if it was blocked, or the first."""
        task = self._entries[i].task
        if task.event is not None:
            same = self._by_event.get(task.event, [])
            ended = bisect_right(same, task.finish_ns, key=self._finish_ns)
            return Edge(same[ended - 1], i, Evidence.RECORDED) if ended else None
        blocked = self._entries[i].moment_ns - self._expected(i, None) > self._dispatch.wake_ns // 2 + 1
        last = bisect_right(self._record_ends, task.finish_ns)
        first = bisect_left(self._record_ends, task.finish_ns - REACH_NS) if blocked else self._open
        places = reversed(range(first, last)) if blocked else range(first, last)
        for found in (self._records[place] for place in places):
            if found not in self._awaited and self._entries[found].task.stream != task.stream:
                self._awaited.add(found)
                while self._open < len(self._records) and self._records[self._open] in self._awaited:
                    self._open += 1
                return Edge(found, i, Evidence.EVENT)
        return None

    def _finish_ns(self, i: int) -> int:
        return self._entries[i].task.finish_ns

    def _came_to_rest(self, i: int) -> Edge | None:
        """The task of another stream that ended last before idle time, unless its own stream's did."""
        entry, before = self._entries[i], self._before[i]
        own = None if before is None else self._entries[before].task.finish_ns
        at = bisect_right(self._rest_ends, entry.moment_ns) - 1
        while at >= 0 and entry.moment_ns - self._rest_ends[at] <= REACH_NS:
            j = self._resting[at]
            if own is not None and self._rest_ends[at] <= own:
                return None
            if self._entries[j].task.stream != entry.task.stream and j < i:
                return Edge(j, i, Evidence.REST)
            at -= 1
        return None


def _predecessors(entries: Sequence[Entry]) -> list[int | None]:
    before: list[int | None] = [None] * len(entries)
    for members in by_stream(entries).values():
        for i, j in pairwise(members):
            before[j] = i
    return before


def _resting(entries: Sequence[Entry]) -> list[int]:
    """Tasks after which their stream has nothing to do for a while, by their end."""
    found = []
    for members in by_stream(entries).values():
        for i, j in zip(members, [*members[1:], None], strict=True):
            if j is None or entries[j].moment_ns - entries[i].task.finish_ns > UNEXPLAINED_NS:
                found.append(i)
    return sorted(found, key=lambda i: (entries[i].task.finish_ns, i))


def find_links(
    entries: Sequence[Entry], dispatch: DispatchSpec, profiler: Mapping[int, int], latency_ns: int
) -> Links:
    """Causes and delays of all tasks; see :class:`Finder`."""
    return Finder(entries, dispatch, profiler, latency_ns).links()
