"""What made the makespan: from the last command back to time zero, each instant with what bound it then.

The walk goes backwards over the rows. A command that runs is bound by its own work; what it was waiting for
just before it started leads to another command, to a move of a buffer or to a call of the host thread. Where
two things ended at one instant a dependency is named before the order of a stream, and that before the host.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cann_env.options import Submission
from cann_env.render.moves import CARRIERS
from cann_env.render.timeline.waiting import Cause, timings

if TYPE_CHECKING:
    from cann_env.render.timeline.waiting import Timing, Wait
    from cann_env.schedule import BlockRun, CommandRun, Schedule, TransferRun


class Bond(enum.StrEnum):
    """What holds an instant of the path.

    ``work``: blocks of a command run. ``dependency``: an event is recorded and wakes a stream. ``stream``:
    the gap between two commands of one stream. ``resource``: cores, a channel or a slot were held by others.
    ``host``: the host thread was busy, or decided only then. ``memory``: a buffer moves, or waits to.
    ``release``: the work was not known before. ``unexplained``: the rows do not say.
    """

    WORK = "work"
    DEPENDENCY = "dependency"
    STREAM = "stream"
    RESOURCE = "resource"
    HOST = "host"
    MEMORY = "memory"
    RELEASE = "release"
    UNEXPLAINED = "unexplained"


class Segment(NamedTuple):
    """A stretch of the path; ``command`` or ``buffer`` is what it is about, None where it is about none."""

    bond: Bond
    command: int | None
    buffer: int | None
    start_ns: int
    finish_ns: int


class Link(NamedTuple):
    """The path goes from one command to another at an instant, because of ``bond``."""

    producer: int
    consumer: int
    bond: Bond
    at_ns: int


class CriticalPath(NamedTuple):
    """Segments from 0 to the makespan, without gaps and in order of time, and the links between commands."""

    segments: tuple[Segment, ...]
    links: tuple[Link, ...]

    def length_ns(self, bond: Bond) -> int:
        """Time of the path that a bond holds."""
        return sum(s.finish_ns - s.start_ns for s in self.segments if s.bond is bond)


_RESOURCES = (Cause.SLOT, Cause.CORES, Cause.CHANNEL)


def critical_path(schedule: Schedule, known: tuple[Timing, ...] | None = None) -> CriticalPath:
    """The path that ends with the last command.

    Args:
        schedule: A finished one.
        known: Its :func:`~cann_env.render.timeline.waiting.timings`, if they are there already.
    """
    walk = _Walk(schedule, timings(schedule) if known is None else known)
    last = max(schedule.commands, key=lambda run: (run.finish_ns, run.command))
    step: _Step | None = lambda: walk.work(last.command, last.finish_ns)  # noqa: E731
    while step is not None:
        step = step()
    return CriticalPath(tuple(reversed(walk.segments)), tuple(reversed(walk.links)))


_Step = Callable[[], "_Step | None"]


class _Walk:
    """The walk so far, and indexes over the rows. Each method says where to go on; None at time zero."""

    def __init__(self, schedule: Schedule, timing: tuple[Timing, ...]) -> None:
        self.segments: list[Segment] = []
        self.links: list[Link] = []
        self._schedule, self._timing = schedule, timing
        self._runs: list[CommandRun] = sorted(schedule.commands)
        self._blocks: dict[int, list[BlockRun]] = defaultdict(list)
        self._ending: dict[int, list[BlockRun]] = defaultdict(list)
        for block in schedule.blocks:
            self._blocks[block.command].append(block)
            self._ending[block.finish_ns].append(block)
        self._arriving: dict[int, list[TransferRun]] = defaultdict(list)
        for move in schedule.transfers:
            self._arriving[move.finish_ns].append(move)
        self._done: dict[int, list[int]] = defaultdict(list)
        for run in schedule.commands:
            self._done[run.finish_ns].append(run.command)
        self._host = schedule.host
        self._calls = {call.target: row for row, call in enumerate(self._host) if call.call == "issue"}
        self._moving: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row, call in enumerate(self._host):
            if call.call not in ("issue", "wait"):
                self._moving[call.call, call.target].append(row)
        self._prefetching = [row for row, call in enumerate(self._host) if call.call == "prefetch"]
        self._released = {command.release_ns for command in schedule.graph.commands}
        self._sync_ns = _sync_ns(schedule)
        self._seen: set[tuple[str, int, int]] = set()

    def _emit(
        self, bond: Bond, start: int, finish: int, command: int | None, buffer: int | None = None
    ) -> None:
        if finish > start:
            self.segments.append(Segment(bond, command, buffer, start, finish))

    def _to(self, producer: int, consumer: int | None, bond: Bond, at_ns: int) -> _Step:
        if consumer is not None and consumer != producer:
            self.links.append(Link(producer, consumer, bond, at_ns))
        return lambda: self.work(producer, at_ns)

    def _lost(self, at_ns: int, command: int | None) -> _Step | None:
        self._emit(Bond.UNEXPLAINED, 0, at_ns, command)
        return None

    def _again(self, what: str, which: int, at_ns: int) -> bool:
        """Whether the walk was here before: rows of zero length could lead it in a circle."""
        key = what, which, at_ns
        known = key in self._seen
        self._seen.add(key)
        return known

    # --- a command that runs --------------------------------------------------------------------------

    def work(self, c: int, at_ns: int) -> _Step | None:
        """Blocks of a command that end at an instant, back to when they started."""
        if self._again("work", c, at_ns):
            return self._lost(at_ns, c)
        start = self._runs[c].start_ns
        if at_ns <= start:
            return lambda: self.start(c)
        ending = [b for b in self._blocks[c] if b.finish_ns == at_ns and b.start_ns < at_ns]
        if not ending:
            return self._held(c, at_ns)
        block = max(ending, key=lambda b: b.start_ns)
        self._emit(Bond.WORK, block.start_ns, at_ns, c)
        return self._block_start(c, block)

    def _block_start(self, c: int, block: BlockRun) -> _Step | None:
        """Why blocks did not start sooner: the command did not, or their cores were taken."""
        at = block.start_ns
        if at <= self._runs[c].start_ns:
            return lambda: self.start(c)
        if any(b.command == c for b in self._ending.get(at, ())):
            return lambda: self.work(c, at)
        giver = self._giver(block, at)
        if giver is not None:
            return self._to(giver, c, Bond.RESOURCE, at)
        return self._held(c, at)

    def _giver(self, block: BlockRun, at_ns: int) -> int | None:
        wanted = set(self._schedule.demand_of(block))
        for other in self._ending.get(at_ns, ()):
            if other.die == block.die and wanted.intersection(self._schedule.demand_of(other)):
                return other.command
        return None

    def _held(self, c: int, at_ns: int) -> _Step | None:
        """None of its blocks ran: it had started and held its place until there were cores."""
        start = self._runs[c].start_ns
        before = max((b.finish_ns for b in self._blocks[c] if b.finish_ns < at_ns), default=start)
        self._emit(Bond.RESOURCE, before, at_ns, c)
        return lambda: self.work(c, before)

    # --- a command that has not started ---------------------------------------------------------------

    def start(self, c: int) -> _Step | None:
        """What a command lacked last."""
        timing = self._timing[c]
        last: Wait | None = timing.waits[-1] if timing.waits else None
        at = timing.start_ns
        if last is not None and last.cause in _RESOURCES:
            if last.behind is not None:
                return self._to(last.behind, c, Bond.RESOURCE, at)
            self._emit(Bond.RESOURCE, last.start_ns, at, c)
            at = last.start_ns
            last = timing.waits[-2] if len(timing.waits) > 1 else None
        if last is not None and last.cause is Cause.MEMORY:
            return self._memory(c, at)
        return lambda: self._eligible(c)

    def _eligible(self, c: int) -> _Step | None:
        """What made a head eligible when it was: an event, the order of its stream, or the host."""
        timing = self._timing[c]
        at = timing.eligible_ns
        last = timing.waits and [w for w in timing.waits if w.cause is Cause.DEPENDENCY and w.finish_ns == at]
        if last and last[-1].behind is not None and self._wakes(last[-1].behind, at):
            producer = last[-1].behind
            finish = self._runs[producer].finish_ns
            self._emit(Bond.DEPENDENCY, finish, at, c)
            return self._to(producer, c, Bond.DEPENDENCY, finish)
        self._emit(Bond.DEPENDENCY, timing.reached_ns, at, c)
        at = timing.reached_ns
        if timing.producer is not None and self._runs[timing.producer].finish_ns == at:
            return self._to(timing.producer, c, Bond.DEPENDENCY, at)
        if timing.previous is not None and at > timing.submitted_ns:
            finish = self._runs[timing.previous].finish_ns
            needed = timing.previous in self._schedule.graph.predecessors[c]
            bond = Bond.DEPENDENCY if needed else Bond.STREAM
            self._emit(bond, finish, at, c)
            return self._to(timing.previous, c, bond, finish)
        return self._host_call(c, at)

    def _wakes(self, producer: int, at_ns: int) -> bool:
        dispatch = self._schedule.device.dispatch
        return self._runs[producer].finish_ns + dispatch.record_ns + dispatch.wake_ns >= at_ns

    # --- the host thread ------------------------------------------------------------------------------

    def _host_call(self, c: int, at_ns: int) -> _Step | None:
        row = self._calls.get(c)
        if row is None:
            return self._lost(at_ns, c)
        start = min(self._host[row].start_ns, at_ns)
        self._emit(Bond.HOST, start, at_ns, c)
        return lambda: self._before_call(row, start, c)

    def _before_call(self, row: int, at_ns: int, c: int | None) -> _Step | None:
        """What the host did just before a call that concerns a command."""
        if at_ns <= 0:
            return None
        if row == 0:
            self._emit(Bond.HOST, 0, at_ns, c)
            return None
        call = self._host[row - 1]
        if call.call == "wait":
            return self._woken(row - 1, at_ns, c)
        blocked = call.call == "issue" and self._runs[call.target].finish_ns == call.end_ns
        if blocked and call.end_ns == at_ns and call.end_ns > call.start_ns:
            return self._to(call.target, c, Bond.HOST, at_ns)
        self._emit(Bond.HOST, min(call.start_ns, at_ns), at_ns, c)
        return lambda: self._before_call(row - 1, min(call.start_ns, at_ns), c)

    def _woken(self, row: int, at_ns: int, c: int | None) -> _Step | None:
        """What ended a wait of the host."""
        call = self._host[row]
        wake = max(call.end_ns - self._sync_ns, 0)
        self._emit(Bond.HOST, wake, at_ns, c)
        done = [d for d in self._done.get(wake, ()) if d != c]
        if done:
            needed = set(self._schedule.graph.predecessors[c]) if c is not None else set()
            return self._to(next((d for d in done if d in needed), done[-1]), c, Bond.HOST, wake)
        if wake in self._released:
            self._emit(Bond.RELEASE, 0, wake, c)
            return None
        moves = [move for move in self._arriving.get(wake, ()) if move.start_ns < wake]
        if moves:
            return lambda: self._move(moves[-1], c)
        self._emit(Bond.HOST, call.start_ns, wake, c)
        return lambda: self._before_call(row, call.start_ns, c)

    # --- memory ---------------------------------------------------------------------------------------

    def _memory(self, c: int, at_ns: int) -> _Step | None:
        """The move that ended at an instant and brought an operand, or made the room for one."""
        command = self._schedule.graph.commands[c]
        own = {self._schedule.graph.buffer_index[name] for name in (*command.reads, *command.writes)}
        moves = [m for m in self._arriving.get(at_ns, ()) if m.start_ns < at_ns and m.cause in CARRIERS]
        moves.sort(key=lambda m: (m.buffer in own, m.cause != "lift", m.start_ns))
        if moves and not self._again("memory", c, at_ns):
            return lambda: self._move(moves[-1], c)
        self._emit(Bond.MEMORY, self._timing[c].eligible_ns, at_ns, c)
        return lambda: self._eligible(c)

    def _move(self, move: TransferRun, c: int | None) -> _Step | None:
        self._emit(Bond.MEMORY, move.start_ns, move.finish_ns, c, move.buffer)
        at = move.start_ns
        if at > move.reserve_ns:
            found = self._before_move(move, c)
            if found is not None:
                return found
            self._emit(Bond.MEMORY, move.reserve_ns, at, c, move.buffer)
            at = move.reserve_ns
        row = self._asked(move)
        if row is not None:
            start = min(self._host[row].start_ns, at)
            self._emit(Bond.HOST, start, at, c)
            return lambda: self._before_call(row, start, c)
        return self._claimed(move, c, at)

    def _before_move(self, move: TransferRun, c: int | None) -> _Step | None:
        """What used the copy engine until a move began."""
        at, pool = move.start_ns, CARRIERS[move.cause]
        die = self._schedule.graph.buffers[move.buffer].die
        for other in self._arriving.get(at, ()):
            same = CARRIERS.get(other.cause) == pool and self._schedule.graph.buffers[other.buffer].die == die
            if same and other.start_ns < at:
                return lambda: self._move(other, c)
        for block in self._ending.get(at, ()):
            if pool in self._schedule.demand_of(block) and block.die == die:
                return self._to(block.command, c, Bond.RESOURCE, at)
        # Room for it may have been made by what left just then.
        for other in self._arriving.get(at, ()):
            if other.cause == "writeback" and other.start_ns < at:
                return lambda: self._move(other, c)
        return None

    def _asked(self, move: TransferRun) -> int | None:
        """The call of the host that asked for a move; None if a command claimed it."""
        wanted = {"prefetch": "prefetch", "lift": "lift", "writeback": "offload"}.get(move.cause, "")
        at = move.reserve_ns
        rows = [row for row in self._moving.get((wanted, move.buffer), ()) if self._host[row].start_ns <= at]
        if move.cause != "writeback":
            return rows[-1] if rows else None
        if rows and self._host[rows[-1]].end_ns >= at:
            return rows[-1]
        # Room is also made for what is prefetched, at once.
        calls = [row for row in self._prefetching if self._host[row].start_ns <= at <= self._host[row].end_ns]
        return calls[-1] if calls else None

    def _claimed(self, move: TransferRun, c: int | None, at_ns: int) -> _Step | None:
        """The head that needed a move, or the room that one made, and had become eligible by then."""
        name = self._schedule.graph.buffers[move.buffer].name
        heads = [c] if c is not None and self._timing[c].eligible_ns <= at_ns else []
        for i, command in enumerate(self._schedule.graph.commands if not heads else ()):
            timing = self._timing[i]
            uses = name in command.reads or name in command.writes or move.cause == "writeback"
            short = any(wait.cause is Cause.MEMORY for wait in timing.waits)
            if uses and short and timing.eligible_ns <= at_ns < timing.start_ns:
                heads.append(i)
        if not heads:
            # What leaves may have had to stay until its last user was done.
            users = [d for d in self._done.get(at_ns, ()) if move.cause == "writeback"]
            return self._to(users[-1], c, Bond.MEMORY, at_ns) if users else self._lost(at_ns, c)
        head = min(heads, key=lambda i: self._timing[i].eligible_ns)
        self._emit(Bond.MEMORY, self._timing[head].eligible_ns, at_ns, head, move.buffer)
        return lambda: self._eligible(head)


def _sync_ns(schedule: Schedule) -> int:
    """What a wait costs the host beyond the waiting."""
    eager = schedule.options.submission is Submission.EAGER
    return schedule.device.host.sync_ns if eager else 0
