"""The critical chain of a schedule: from its end back to time zero, each instant with what it was spent on.

The last command ran until the end. It started when it did because of what it waited for last: cores, a copy
engine, a command of another stream, the one in front of it, or the host; the chain goes on there. Only rows
of the schedule are read, nothing is run again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cann_env.options import Submission
from cann_env.waiting.givers import Givers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.schedule import CommandRun, HostCall, Schedule, Waiting


class Part(enum.StrEnum):
    """What a stretch of the chain was spent on.

    ============= ======================================================================================
    part          meaning
    ============= ======================================================================================
    ``executing`` a command ran on whose result, directly or not, the next one of the chain depends,
                  or for whose event it waited
    ``queue``     a command ran that stood in front of the next one in its stream, without being needed by it
    ``held``      a command ran whose end the host waited for before it submitted the next one
    ``cores``     a command that lacked nothing else waited for cores
    ``link``      the same for a copy engine (or a host thread, or the collective engine)
    ``slot``      the same for a place among the streams that may be active at once
    ``memory``    the same for operands that were not there, or the host waited for a buffer to arrive
    ``event``     from the end of a command to the start of one on another stream that waits for its event
    ``dispatch``  between two commands of one stream
    ``host``      calls of the host
    ``arrival``   nothing of what follows in the chain had been released
    ============= ======================================================================================
    """

    EXECUTING = "executing"
    QUEUE = "queue"
    HELD = "held"
    CORES = "cores"
    LINK = "link"
    SLOT = "slot"
    MEMORY = "memory"
    EVENT = "event"
    DISPATCH = "dispatch"
    HOST = "host"
    ARRIVAL = "arrival"


PARTS = tuple(Part)

_PART_OF_CAUSE = {"fault": Part.MEMORY, "slot": Part.SLOT, "cores": Part.CORES, "dma": Part.LINK}


@dataclass(frozen=True, slots=True)
class Link:
    """A stretch of the chain.

    Attributes:
        part: What it was spent on.
        start_ns, finish_ns: From when until when.
        command: Index of the command that ran or waited; None where the host did not work for one.
        behind: The command that gave back the cores, the engine or the place that this one waited for; None
            where no single one did, and for all other parts.
        buffers: Indices of the buffers that were waited for.
    """

    part: Part
    start_ns: int
    finish_ns: int
    command: int | None
    behind: int | None = None
    buffers: tuple[int, ...] = ()


class Hop(NamedTuple):
    """One command made another one of the chain start when it did.

    ``part`` says how: ``executing`` (it is needed), ``queue`` (it stood in front), ``held`` (the host waited
    for it), or ``cores``, ``link`` or ``slot`` (it had them until ``at_ns``, and need not be on the chain).
    """

    before: int
    after: int
    part: Part
    at_ns: int


RUNS = frozenset({Part.EXECUTING, Part.QUEUE, Part.HELD})
"""Parts in which a command of the chain runs."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The critical chain: its links follow each other without a gap from time zero to the makespan."""

    links: tuple[Link, ...]

    @property
    def parts_ns(self) -> dict[Part, int]:
        """Time by part, all parts in order; they sum to the makespan."""
        total = dict.fromkeys(PARTS, 0)
        for link in self.links:
            total[link.part] += link.finish_ns - link.start_ns
        return total

    @property
    def commands(self) -> tuple[int, ...]:
        """The commands that ran on it, in order."""
        return tuple(link.command for link in self.links if link.part in RUNS and link.command is not None)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """From which command to which the chain goes, and who gave its commands what they waited for."""
        last: Link | None = None
        found = []
        for link in self.links:
            if link.behind is not None and link.command is not None:
                found.append(Hop(link.behind, link.command, link.part, link.finish_ns))
            if link.part in RUNS and link.command is not None:
                if last is not None and last.command is not None:
                    found.append(Hop(last.command, link.command, last.part, last.finish_ns))
                last = link
        return tuple(sorted(found, key=lambda hop: (hop.at_ns, hop.after)))


def critical_chain(schedule: Schedule) -> Chain:
    """Find the chain that made the makespan.

    Where several things ended at the same instant it goes on with an event before the command in front, and
    with the lower number.

    Args:
        schedule: As :func:`~cann_env.schedulers.run_scheduler` makes it. Without rows of waiting (written by
            hand) what a head waited for beside events counts as dispatch.
    """
    walk = _Walk(schedule)
    last = min(schedule.commands, key=lambda run: (-run.finish_ns, run.command))
    step: _Step | None = _Step(last.command, Part.EXECUTING)
    while step is not None:
        step = walk.before(step)
    return Chain(tuple(reversed(walk.links)))


@dataclass(frozen=True, slots=True)
class _Step:
    """The chain comes to a command, which ran for this reason."""

    command: int
    part: Part


class _Walk:
    """The rows of a schedule by command, and the links found so far, last one first."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.links: list[Link] = []
        self.seen: set[int] = set()
        self.givers = Givers(schedule)
        self.runs = {run.command: run for run in schedule.commands}
        self.at_place = {(run.stream, run.position): run for run in schedule.commands}
        self.waits: dict[int, list[int]] = {}
        for wait in schedule.waits:
            self.waits.setdefault(wait.consumer, []).append(wait.producer)
        self.heads: dict[int, list[Waiting]] = {}
        for row in schedule.waiting:
            self.heads.setdefault(row.command, []).append(row)
        self.calls = sorted(schedule.host, key=lambda call: (call.start_ns, call.end_ns))
        self.issues = {call.target: i for i, call in enumerate(self.calls) if call.call == "issue"}

    @cached_property
    def finished(self) -> Mapping[int, list[int]]:
        """The commands that finished at an instant, by number."""
        by_time: dict[int, list[int]] = {}
        for run in sorted(self.schedule.commands, key=lambda run: run.command):
            by_time.setdefault(run.finish_ns, []).append(run.command)
        return by_time

    @cached_property
    def released(self) -> frozenset[int]:
        """When commands became known."""
        return frozenset(command.release_ns for command in self.schedule.graph.commands)

    @cached_property
    def rank(self) -> Mapping[int, int]:
        """Place of each command in a topological order."""
        return {command: place for place, command in enumerate(self.schedule.graph.topological_order)}

    def needs(self, command: int, other: int) -> bool:
        """Whether a command depends on another, directly or not."""
        before, least = self.schedule.graph.predecessors, self.rank[other]
        seen, open_ = set(), [command]
        while open_:
            for each in before[open_.pop()]:
                if each == other:
                    return True
                if each not in seen and self.rank[each] > least:
                    seen.add(each)
                    open_.append(each)
        return False

    def add(
        self,
        part: Part,
        start_ns: int,
        finish_ns: int,
        command: int | None,
        behind: int | None = None,
        buffers: tuple[int, ...] = (),
    ) -> None:
        """Put a link before those found so far."""
        if finish_ns > start_ns:
            self.links.append(Link(part, start_ns, finish_ns, command, behind, buffers))

    def before(self, step: _Step) -> _Step | None:
        """Add a command and what it waited for; returns what the chain goes on with, None at time zero."""
        run = self.runs[step.command]
        self.seen.add(run.command)
        self.add(step.part, run.start_ns, run.finish_ns, run.command)
        ready, reached = run.start_ns, None
        for row in reversed(self.heads.get(run.command, [])):
            if row.cause == "event":
                reached = row.start_ns
            else:
                self._lacked(row)
                ready = row.start_ns
        return self._became_ready(run, ready, ready if reached is None else reached)

    def _lacked(self, row: Waiting) -> None:
        """A head lacked memory, or something that a command gave back."""
        part, start, finish = _PART_OF_CAUSE[row.cause], row.start_ns, row.finish_ns
        buffers = self.givers.buffers(row.command, start, finish) if part is Part.MEMORY else ()
        self.add(part, start, finish, row.command, self.givers.command(row), buffers)

    def _became_ready(self, run: CommandRun, ready: int, reached: int) -> _Step | None:
        """What let a head become ready: an event, its stream that came to it, or the host."""
        dispatch = self.schedule.device.dispatch
        producer = self._last_producer(run.command)
        if producer is not None:
            recorded = producer.finish_ns + dispatch.record_ns
            if recorded > reached and recorded + dispatch.wake_ns >= ready:
                self.add(Part.EVENT, producer.finish_ns, ready, run.command)
                return _Step(producer.command, Part.EXECUTING)
        self.add(Part.EVENT, reached, ready, run.command)
        front = self.at_place.get((run.stream, run.position - 1))
        if front is not None and reached > run.issue_ns:
            self.add(Part.DISPATCH, front.finish_ns, reached, run.command)
            return self._behind(run, front)
        self.add(Part.DISPATCH, run.issue_ns, reached, run.command)
        return self._submitted(run)

    def _behind(self, run: CommandRun, other: CommandRun, otherwise: Part = Part.QUEUE) -> _Step:
        """The chain goes on with another command; the part says whether this one needs it."""
        return _Step(other.command, Part.EXECUTING if self.needs(run.command, other.command) else otherwise)

    def _last_producer(self, command: int) -> CommandRun | None:
        runs = [self.runs[producer] for producer in self.waits.get(command, [])]
        return min(runs, key=lambda run: (-run.finish_ns, run.command), default=None)

    def _submitted(self, run: CommandRun) -> _Step | None:
        """What the host did until it submitted a command, back to the last command that it waited for."""
        at, until = self.issues.get(run.command, -1), run.issue_ns
        for call in reversed(self.calls[: at + 1]):
            woke = None if call.target == run.command and call.call == "issue" else self._woke_ns(call)
            if woke is None or woke > until:
                self.add(Part.HOST, call.start_ns, until, _target(call))
                until = call.start_ns
                continue
            self.add(Part.HOST, woke, until, _target(call))
            ended = [self.runs[i] for i in self.finished.get(woke, ()) if i not in self.seen]
            if ended:
                return min((self._behind(run, other, Part.HELD) for other in ended), key=_needed_first)
            if woke == self.schedule.graph.commands[run.command].release_ns:
                self.add(Part.ARRIVAL, 0, woke, run.command)
                return None
            part = self._waited_for(woke)
            buffers = self.givers.arrived(woke) if part is Part.MEMORY else ()
            self.add(part, call.start_ns, woke, _target(call), None, buffers)
            until = call.start_ns
        self.add(Part.HOST, 0, until, None)
        return None

    def _woke_ns(self, call: HostCall) -> int | None:
        """When what the host waited for in a call happened; None if it did not wait."""
        if call.call == "wait":
            eager = self.schedule.options.submission is Submission.EAGER
            return max(call.start_ns, call.end_ns - (self.schedule.device.host.sync_ns if eager else 0))
        if call.call == "issue":
            run = self.runs[call.target]
            return run.finish_ns if run.issue_ns < run.finish_ns <= call.end_ns else None
        paid = call.end_ns - call.start_ns
        return call.end_ns if paid > self.schedule.device.host.prefetch_ns else None

    def _waited_for(self, woke_ns: int) -> Part:
        """What the host waited for in a call that no command's end let go on."""
        if self.givers.arrived(woke_ns):
            return Part.MEMORY
        return Part.ARRIVAL if woke_ns in self.released else Part.HOST


def _target(call: HostCall) -> int | None:
    return call.target if call.call == "issue" else None


def _needed_first(step: _Step) -> tuple[bool, int]:
    return step.part is not Part.EXECUTING, step.command
