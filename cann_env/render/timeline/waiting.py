"""What each command waited for, from the moment it was submitted until it started, read off the rows.

The engine only sums waiting by cause. Here the same instants are computed once more from a finished schedule:
when a command had been submitted, when its predecessors were done, when its stream had come to it, when its
event waits were over, and what it then lacked.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.commands import CommandKind
from cann_env.validate.case import Case, work_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import BlockRun, CommandRun, Schedule, TransferRun


class Cause(enum.StrEnum):
    """Why a command had not started.

    ``host``: nothing stood in its way, but it had not been submitted. ``dependency``: a predecessor was
    not done, or its event had not arrived. ``stream``: those before it on its stream were not done, or
    the gap behind them had not passed. ``memory``: operands or space had not arrived. ``slot``: as many
    streams as the device allows, in all or of its class, were active. ``cores``: too few cores.
    ``channel``: its copy engine, its callback thread or its collective engine was taken.
    """

    HOST = "host"
    DEPENDENCY = "dependency"
    STREAM = "stream"
    MEMORY = "memory"
    SLOT = "slot"
    CORES = "cores"
    CHANNEL = "channel"


class Wait(NamedTuple):
    """A stretch of waiting; ``behind`` is the command that ended it, None where no single one did."""

    cause: Cause
    start_ns: int
    finish_ns: int
    behind: int | None


class Timing(NamedTuple):
    """The instants of one command before it starts (ns).

    Attributes:
        ready_ns: It was released and its predecessors were done.
        submitted_ns: It had entered its stream.
        reached_ns: Its stream had come to it.
        eligible_ns: Its event waits were over; from here on it lacked nothing but resources.
        start_ns: It started.
        producer: The predecessor that was done last; None if it has none, or was released later.
        previous: The command before it on its stream; None for the first.
        waits: Stretches without gaps between them, from when it was submitted, or when it might have been,
            until it started.
    """

    ready_ns: int
    submitted_ns: int
    reached_ns: int
    eligible_ns: int
    start_ns: int
    producer: int | None
    previous: int | None
    waits: tuple[Wait, ...]


def timings(schedule: Schedule) -> tuple[Timing, ...]:
    """The timing of each command, by its index."""
    return _Reader(schedule).all()


class _Reader:
    """Indexes over the rows of one schedule, and the instants computed from them."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._case = Case(schedule)
        self._before = {
            second: first for queue in self._case.queues.values() for first, second in pairwise(queue)
        }
        self._waits: dict[int, list[int]] = defaultdict(list)
        self._records: Counter[int] = Counter()
        called = self._case.called_ns
        for producer, consumer in schedule.waits:
            self._waits[consumer].append(producer)
            # A producer that was done when it was asked for had no record behind it to hold up its stream.
            if self._case.runs[producer].finish_ns > called.get(consumer, 0):
                self._records[producer] += 1
        self._arrivals: dict[int, list[TransferRun]] = defaultdict(list)
        for move in schedule.transfers:
            if move.cause in ("fault", "prefetch", "touch"):
                self._arrivals[move.buffer].append(move)
        self._grants: dict[int, int] = defaultdict(int)
        for place in schedule.allocations:
            self._grants[place.command] = max(self._grants[place.command], place.grant_ns)
        self._ending: dict[int, list[BlockRun]] = defaultdict(list)
        for block in schedule.blocks:
            self._ending[block.finish_ns].append(block)
        self._active = _Active(self._case)

    def all(self) -> tuple[Timing, ...]:
        return tuple(self._timing(run) for run in self._case.runs)

    def _timing(self, run: CommandRun) -> Timing:
        c = run.command
        graph = self._schedule.graph
        producer, ready = None, graph.commands[c].release_ns
        for p in graph.predecessors[c]:
            if self._case.runs[p].finish_ns >= max(ready, 1):
                producer, ready = p, self._case.runs[p].finish_ns
        reached = self._reached_ns(run)
        eligible = min(max(reached, ready, self._over_ns(c, reached)), run.start_ns)
        reached = min(reached, eligible)
        previous = self._before.get(c)
        waits = self._queue_waits(run, ready, reached, eligible, producer)
        waits += self._resource_waits(run, eligible)
        return Timing(ready, run.issue_ns, reached, eligible, run.start_ns, producer, previous, tuple(waits))

    def _reached_ns(self, run: CommandRun) -> int:
        """When the stream had come to a command: a gap after the one before it."""
        first = self._before.get(run.command)
        if first is None:
            return run.issue_ns
        dispatch = self._schedule.device.dispatch
        classes = work_classes(self._case.command(run.command), 0)
        last = max(len(self._case.command(first).kernels) - 1, 0)
        from_mix = self._case.kernels[first, last][0].work_class == "mix"
        gap = dispatch.mix_switch_ns if from_mix != ("mix" in classes) else dispatch.gap_ns
        if "mix" in classes and len(classes) > 1:
            gap = max(dispatch.gap_ns, dispatch.mix_switch_ns)
        free = self._case.runs[first].finish_ns + self._records[first] * dispatch.record_ns
        return max(run.issue_ns, free + gap)

    def _over_ns(self, c: int, reached: int) -> int:
        """When the event waits of a command were over."""
        dispatch = self._schedule.device.dispatch
        over = reached + len(self._waits[c]) * dispatch.wait_ns
        for producer in self._waits[c]:
            recorded = self._case.runs[producer].finish_ns + dispatch.record_ns
            if recorded > reached:
                over = max(over, recorded + dispatch.wake_ns)
        return over

    def _queue_waits(
        self, run: CommandRun, ready: int, reached: int, eligible: int, producer: int | None
    ) -> list[Wait]:
        """Until its predecessors, the host, its stream and its events were done with it, in this order."""
        submitted = min(run.issue_ns, run.start_ns)
        done = min(max(ready, 0), run.start_ns)
        previous = self._before.get(run.command)
        stretches = (
            Wait(Cause.DEPENDENCY, submitted, done, producer),
            Wait(Cause.HOST, done, submitted, None),
            Wait(Cause.STREAM, max(submitted, done), reached, previous),
            Wait(Cause.DEPENDENCY, max(submitted, done, reached), eligible, self._last_awaited(run.command)),
        )
        return [each for each in stretches if each.finish_ns > each.start_ns]

    def _last_awaited(self, c: int) -> int | None:
        return max(self._waits[c], key=lambda p: self._case.runs[p].finish_ns, default=None)

    def _resource_waits(self, run: CommandRun, eligible: int) -> list[Wait]:
        """For memory until the last operand or place had come, then for what the command runs on."""
        there = min(max(self._arrived_ns(run, eligible), eligible), run.start_ns)
        found = [Wait(Cause.MEMORY, eligible, there, None)] if there > eligible else []
        if run.start_ns > there:
            device = self._schedule.device
            kernel = self._case.command(run.command).kind is CommandKind.KERNEL
            full = self._active.before(_COMMANDS, run.start_ns) >= device.limits.max_concurrent_streams
            work_class = work_classes(self._case.command(run.command), 0)[-1]
            own = (work_class, self._case.die_of(run.command))
            taken = self._active.before(own, run.start_ns) >= device.classes[work_class].max_active
            cause = Cause.SLOT if full or taken else Cause.CORES if kernel else Cause.CHANNEL
            found.append(Wait(cause, there, run.start_ns, self._giver(run, any_pool=full)))
        return found

    def _arrived_ns(self, run: CommandRun, eligible: int) -> int:
        last = self._grants[run.command] if self._grants[run.command] <= run.start_ns else 0
        for move in self._moves_for(run.command):
            if eligible < move.finish_ns <= run.start_ns:
                last = max(last, move.finish_ns)
        return last

    def _moves_for(self, c: int) -> Iterator[TransferRun]:
        command = self._case.command(c)
        for name in dict.fromkeys((*command.reads, *command.writes)):
            yield from self._arrivals.get(self._schedule.graph.buffer_index[name], ())

    def _giver(self, run: CommandRun, *, any_pool: bool) -> int | None:
        """The command whose blocks gave back what this one needs, at the instant at which it starts."""
        first = self._case.kernels[run.command, 0][0]
        wanted = set(self._schedule.demand_of(first))
        for block in self._ending.get(run.start_ns, ()):
            same_die = block.die == first.die and wanted.intersection(self._schedule.demand_of(block))
            if block.command != run.command and (any_pool or same_die):
                return block.command
        return None


_COMMANDS: Final = ("", 0)
"""Key of all commands together, beside those of a class and a die."""


class _Active:
    """How many commands, and kernels of a class on a die, are active just before an instant."""

    def __init__(self, case: Case) -> None:
        self._starts: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._ends: dict[tuple[str, int], list[int]] = defaultdict(list)
        for run in case.runs:
            self._add(_COMMANDS, run.start_ns, run.finish_ns)
        for blocks in case.kernels.values():
            key = (blocks[0].work_class, blocks[0].die)
            self._add(key, blocks[0].start_ns, max(block.finish_ns for block in blocks))
        for times in (*self._starts.values(), *self._ends.values()):
            times.sort()

    def _add(self, key: tuple[str, int], start_ns: int, finish_ns: int) -> None:
        self._starts[key].append(start_ns)
        self._ends[key].append(finish_ns)

    def before(self, key: tuple[str, int], at_ns: int) -> int:
        """Those that have started before an instant and not ended before it."""
        starts, ends = self._starts.get(key, []), self._ends.get(key, [])
        return bisect_left(starts, at_ns) - bisect_left(ends, at_ns)
