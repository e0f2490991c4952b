"""A migration plan made beforehand: what to send to the host after which use, and when to bring it back.

The order of issue is run once with memory without limit. Between two uses a managed buffer is *inactive*;
where more is live than the memory holds, inactive periods are given up in order of benefit: time under
pressure that a period relieves, times the bytes, for each nanosecond of transfer that it costs. A buffer
leaves right after its last use. Its prefetch is first put at the latest point that is safe, then pulled
earlier where memory is free (G10, MICRO 2023).

Where a link is too slow for that, commands wait, and the time they wait is time for the links. So the plan is
run and made again with the times of its own run, some rounds long; then the same beginning with a run that
plans nothing. Besides there are *patient* plans, which let commands wait for the links as long as they must:
a buffer is away from its last use to the end of the pressure. The best plan of all is followed.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cann_env.graph import Level
from cann_env.program import compile_graph
from cann_env.schedulers.policy import EpisodeError, Plan, rollout
from cann_env.schedulers.prefetch import Aggressive, Follow, Move
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.usage import Milestones, Usage, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedule import Schedule
    from cann_env.schedulers.policy import Policy

_Moves: TypeAlias = "tuple[tuple[Move, ...], tuple[Move, ...]]"


def unlimited(program: Program) -> Program:
    """The same graph on the same device with room for everything at once, twice over, beside its pool."""
    room = 2 * sum(Usage.of(program).sizes) + program.device.memory.hbm_bytes
    room += program.options.pool_bytes or 0
    room += program.options.pool_bytes or 0
    options = replace(program.options, memory_factor=None, hbm_bytes=room)
    return compile_graph(program.graph, program.device, options)


class _Period(NamedTuple):
    """Positions between which a buffer is not used.

    ``after`` is -1 before the first use, ``before`` the number of all positions after the last.
    ``out_ns`` and ``in_ns`` are what it costs to send it away and to bring it back.
    """

    buffer: int
    after: int
    before: int
    out_ns: int
    in_ns: int


def _periods(usage: Usage, die: int) -> list[_Period]:
    """Inactive periods of the managed buffers of a die, those before the first use included."""
    end = len(usage.sequence)
    found = []
    for b, uses in enumerate(usage.positions):
        buffer = usage.program.graph.buffers[b]
        if not uses or buffer.die != die:
            continue
        in_ns, out_ns = usage.transfer_ns(b, "h2d"), usage.transfer_ns(b, "d2h")
        if buffer.level is not Level.ABSENT:
            found.append(_Period(b, -1, uses[0], 0, in_ns))
        dirty = False
        for after, before in zip(uses, (*uses[1:], end), strict=True):
            dirty = dirty or b in usage.written_by[usage.sequence[after]]
            if before == end and buffer.level is Level.ABSENT:
                continue  # freed by itself
            if before - after > 1:
                found.append(_Period(b, after, before, out_ns if dirty else 0, in_ns if before < end else 0))
    return found


def _forward(left: NDArray[np.int64], first: int, end: int, need: int) -> tuple[int, NDArray[np.int64]]:
    """The position from which ``need`` ns of a link have passed since ``first``, and what is taken where."""
    return _take(left, range(first, end), need, end)


def _backward(left: NDArray[np.int64], first: int, last: int, need: int) -> tuple[int, NDArray[np.int64]]:
    """The last position at which to begin so that ``need`` ns of a link pass up to the end of ``last``."""
    place, taken = _take(left, range(last, first - 1, -1), need, first - 1)
    return place + 1, taken


def _take(left: NDArray[np.int64], places: range, need: int, beyond: int) -> tuple[int, NDArray[np.int64]]:
    """The first of some positions that need not be touched to get ``need`` ns, ``beyond`` if all are."""
    taken = np.zeros_like(left)
    for place in places:
        if need <= 0:
            return place, taken
        taken[place] = min(need, int(left[place]))
        need -= int(taken[place])
    return beyond, taken


@dataclass(slots=True)
class _Board:
    """What is decided so far on one die.

    Attributes:
        usage: Who uses what; its order is the timeline.
        capacity: Bytes that the plan may fill.
        spans: Time from the start of each position to the next, ns.
        live: Bytes in memory at each position.
        into, out: Time left on the link from and to the host at each position, ns.
        chosen: Periods given up, with the positions from which and up to which the buffer is away.
        patient: Commands wait for the links, so that a buffer is away until nothing is over the capacity.
    """

    usage: Usage
    capacity: int
    spans: NDArray[np.int64]
    live: NDArray[np.int64]
    into: NDArray[np.int64]
    out: NDArray[np.int64]
    chosen: list[tuple[_Period, int, int]]
    patient: bool

    def give_up(self, period: _Period) -> bool:
        """Send the buffer away if that relieves any pressure; returns whether it does."""
        leave, sent = _forward(self.out, period.after + 1, period.before, period.out_ns)
        back, brought = period.before, np.zeros_like(self.into)
        if period.in_ns:
            back, brought = _backward(self.into, leave, period.before - 1, period.in_ns)
        if self.patient:
            leave = period.after + 1
            back = max(back, self._pressed_until(leave, period.before))
        if not (self.live[leave:back] > self.capacity).any():
            return False
        self.out -= sent
        self.into -= brought
        self.live[leave:back] -= self.usage.sizes[period.buffer]
        self.chosen.append((period, leave, back))
        return True

    def _pressed_until(self, first: int, end: int) -> int:
        """The position behind the last one of some that is over the capacity; ``first`` if none is."""
        over = np.flatnonzero(self.live[first:end] > self.capacity)
        return first + int(over[-1]) + 1 if over.size else first

    def bring_in(self, period: _Period) -> None:
        """Put the first fetch of a buffer that begins on the host at the latest safe point."""
        place, brought = _backward(self.into, 0, period.before - 1, period.in_ns)
        self.into -= brought
        self.live[place : period.before] += self.usage.sizes[period.buffer]
        self.chosen.append((period, 0, place))

    def relieve(self, periods: list[_Period]) -> None:
        """Give up periods, the most useful first, until nothing is over the capacity or nothing helps."""
        after = np.array([period.after + 1 for period in periods], np.int64)
        before = np.array([period.before for period in periods], np.int64)
        cost = np.array([period.out_ns + period.in_ns + 1 for period in periods], np.int64)
        bytes_of = np.array([self.usage.sizes[period.buffer] for period in periods], np.int64)
        open_ = np.ones(len(periods), bool)
        while open_.any():
            over = self.live > self.capacity
            pressed = np.concatenate([[0], np.cumsum(self.spans * over)])
            benefit = (pressed[before] - pressed[after]) * bytes_of / cost * open_
            best = int(np.argmax(benefit))
            if benefit[best] <= 0:
                return
            open_[best] = False
            self.give_up(periods[best])

    def pull(self) -> None:
        """Move each prefetch earlier as long as memory is free there, in order of use."""
        self.chosen.sort(key=lambda choice: (choice[0].before, choice[0].buffer))
        for i, (period, leave, back) in enumerate(self.chosen):
            size = self.usage.sizes[period.buffer]
            place = back
            while period.in_ns and place > leave and self.live[place - 1] + size <= self.capacity:
                place -= 1
                self.live[place] += size
            self.chosen[i] = (period, leave, place)


def _live(usage: Usage, die: int) -> NDArray[np.int64]:
    """Bytes at each position if every buffer stays from its first use to its last, or to the end."""
    live = usage.device_bytes(die)
    for b, uses in enumerate(usage.positions):
        buffer = usage.program.graph.buffers[b]
        if uses and buffer.die == die:
            first = 0 if buffer.level is Level.HBM else uses[0]
            last = uses[-1] + 1 if buffer.level is Level.ABSENT else len(live)
            live[first:last] += usage.sizes[b]
    return live


def _spans(schedule: Schedule) -> NDArray[np.int64]:
    starts = np.array([*(run.start_ns for run in schedule.commands), schedule.makespan_ns], np.int64)
    return starts[1:] - starts[:-1]


def _both(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))


def _begins_on_host(usage: Usage, period: _Period) -> bool:
    return period.after < 0 and usage.program.graph.buffers[period.buffer].level is Level.HOST


def migration_moves(
    usage: Usage, schedule: Schedule, capacity: int, *, patient: bool = False
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Fetches and offloads of the plan, in order of use.

    What is not to be sent away has a fetch too, one transfer ahead of its use, in case the engine evicts it.

    Args:
        usage: Order of the commands in the schedule.
        schedule: A run in which memory is no limit.
        capacity: Bytes of a die's memory that the plan may fill.
        patient: Take commands to wait for the links, instead of giving up what the links have no time for.
    """
    fetches: list[tuple[int, Move]] = []
    offloads: list[tuple[int, Move]] = []
    sequence, spans, milestones = usage.sequence, _spans(schedule), Milestones.of(schedule)
    for die in usage.dies:
        board = _Board(usage, capacity, spans, _live(usage, die), spans.copy(), spans.copy(), [], patient)
        periods = sorted(_periods(usage, die), key=lambda period: (period.before, period.buffer))
        absent = [period for period in periods if _begins_on_host(usage, period)]
        for period in absent:
            board.bring_in(period)
        board.relieve([period for period in periods if period not in absent])
        board.pull()
        away = {period: back for period, _, back in board.chosen}
        for period in periods:
            done = () if period.after < 0 else (sequence[period.after],)
            user = -1 if period.before == len(sequence) else sequence[period.before]
            if period in away and period not in absent:
                offloads.append((period.before, Move(period.buffer, user, done=done)))
            if user >= 0:
                back = away.get(period)
                if back is None:
                    back, _ = _backward(spans, period.after + 1, period.before - 1, period.in_ns)
                trigger = milestones.before(schedule.commands[back].start_ns)
                fetches.append((period.before, Move(period.buffer, user, _both(done, trigger))))
    return tuple(m for _, m in sorted(fetches)), tuple(m for _, m in sorted(offloads))


@dataclass(frozen=True, slots=True)
class Migration:
    """Follow a migration plan made beforehand; see the top of this file.

    Meant for options with slots for offloads; without them buffers leave only when their place is needed.

    Attributes:
        order: The policy that decides everything else.
        slack: Part of the memory that the plan leaves free, for what does not come as planned.
        rounds: Plans made from each beginning and of each kind, at least 1.
    """

    order: Policy
    slack: float = 0.05
    rounds: int = 4

    def choose(self, program: Program) -> Policy:
        """The policy that follows the best plan, by what has started and finished; else the order itself.

        Raises:
            EpisodeError: The order of issue does not finish.
        """
        aggressive = Aggressive(self.order)
        ideal = simulate(unlimited(program), aggressive)
        best: tuple[int, _Moves] = (rollout(program, deepcopy(self.order)).objective_ns, ((), ()))
        for within, patient in ((None, False), (program, False), (None, True)):
            with suppress(EpisodeError):
                schedule = simulate(within, aggressive) if within else ideal
                for plan in self._replan(program, schedule, patient):
                    best = min(best, plan, key=lambda found: found[0])
            if best[0] <= ideal.makespan_ns:
                break
        return Follow(deepcopy(self.order), *best[1])

    def _replan(self, program: Program, schedule: Schedule, patient: bool) -> Iterator[tuple[int, _Moves]]:
        """Plans for the times of a schedule, then of the run of the plan before, with what each takes.

        Raises:
            EpisodeError: The run of a plan does not finish.
        """
        for _ in range(self.rounds):
            usage = Usage.in_schedule(program, schedule)
            capacity = int(usage.capacity_bytes * (1 - self.slack))
            moves = migration_moves(usage, schedule, capacity, patient=patient)
            outcome = rollout(program, Follow(deepcopy(self.order), *moves))
            yield outcome.objective_ns, moves
            schedule = record_schedule(program, outcome.actions)

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
