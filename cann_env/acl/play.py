"""Submitted work, run on the engine: when each piece starts and ends.

The work of a device since it was last idle becomes a graph, and the engine plays it as it was submitted: each
piece on its own stream, not before the call that submitted it had ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.acl.memory import Allocation, Space
from cann_env.engine.layout import DONE, RUNNING, S_AT_ACTION, S_NOW_NS, S_STATUS, S_STEPS
from cann_env.engine.step import step
from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, Level
from cann_env.options import Eviction, PrefetchMask, RunOptions, Submission
from cann_env.program import Program, compile_graph
from cann_env.schedulers.policy import EpisodeError, episode_info
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.acl.work import Work
    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule


class Move(NamedTuple):
    """A prefetch, to be decided when commands ``after`` are done: ``buffer`` to the device or back."""

    buffer: int
    to_device: bool
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the engine is to play.

    Attributes:
        graph: Commands in the order in which they were submitted.
        streams: Label of the stream of each command.
        priorities: Priority of each label.
        moves: Prefetches, by the command that stands for the call in its stream.
        hbm_bytes: Memory of the device, as far as the buffers of the graph are concerned.
        works: What each command was.
    """

    graph: CommandGraph
    streams: tuple[int, ...]
    priorities: tuple[int, ...]
    moves: tuple[Move, ...] = ()
    hbm_bytes: int | None = None
    works: tuple[Work, ...] = ()


def play(score: Score, device: DeviceSpec) -> Schedule:
    """Play work as it was submitted.

    Raises:
        EpisodeError: Streams wait for each other, or something never came.
        InputError, AclError: The device cannot run it.
    """
    program = compile_graph(score.graph, device, _options(score, device))
    return record_schedule(program, _Player(program, score).actions())


def _options(score: Score, device: DeviceSpec) -> RunOptions:
    moves = len({move.buffer for move in score.moves})
    commands = len(score.graph.commands)
    return RunOptions(
        streams=len(score.priorities),
        stream_priorities=tuple(min(p, device.limits.stream_priorities - 1) for p in score.priorities),
        submission=Submission.SINK,
        run_ahead=1 << 40,
        commands=min(4096, commands),
        prefetches=min(4096, moves),
        l2_prefetches=0,
        offloads=min(4096, moves),
        prefetch_streams=max(1, min(4096, moves)),
        prefetch_mask=PrefetchMask.FREE,
        eviction=Eviction.LRU,
        hbm_bytes=score.hbm_bytes,
    )


class _Player:
    """The host thread: hands over each command as soon as its time has come and the engine takes it."""

    def __init__(self, program: Program, score: Score) -> None:
        self._program = program
        self._score = score
        self._state = program.new_state()
        info = episode_info(program, self._state)
        self._ready, self._movable, self._phases = info["ready"], info["movable"], info["phases"]
        self._choices, self._window = info["choices"], info["window"]
        self._prefetches = info["prefetches"]
        self._queues: list[list[int]] = [[] for _ in score.priorities]
        for command, label in enumerate(score.streams):
            self._queues[label].append(command)
        self._next = [0] * len(self._queues)
        self._place: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._moves = list(score.moves)

    def actions(self) -> tuple[int, ...]:
        """Play to the end.

        Raises:
            EpisodeError: It has no end.
        """
        image, state = self._program.image, self._state
        wait = self._program.action_count - 1
        while state[S_STATUS] == RUNNING:
            before = int(state[S_STEPS]), int(state[S_NOW_NS])
            action = self._choose()
            step(image, state, wait if action is None else action)
            if (int(state[S_STEPS]), int(state[S_NOW_NS])) == before:
                break
        if int(np.count_nonzero(self._phases != DONE)):
            stuck = [self._score.graph.commands[c].name for c in np.flatnonzero(self._phases != DONE)]
            raise EpisodeError(
                f"{len(stuck)} pieces of work never end, the first of them "
                f"{', '.join(map(repr, stuck[:4]))}: "
                "they wait for each other, or for something that was never submitted"
            )
        at, steps = int(state[S_AT_ACTION]), int(state[S_STEPS])
        return tuple(state[at : at + steps].tolist())

    def _choose(self) -> int | None:
        move = self._move()
        if move is not None:
            return move
        slots = {int(command): slot for slot, command in enumerate(self._ready) if command >= 0}
        heads = [
            (queue[self._next[label]], label)
            for label, queue in enumerate(self._queues)
            if self._next[label] < len(queue)
        ]
        for command, label in sorted(heads):
            if command in slots:
                stream = self._stream_of(label)
                if stream is None:
                    continue
                self._next[label] += 1
                self._place[label], self._last[label] = stream, command
                return int(slots[command] * self._choices + stream)
        return None

    def _stream_of(self, label: int) -> int | None:
        """The engine's stream for a label: where its work still is, or the lowest idle one alike."""
        last = self._last.get(label)
        if last is not None and self._phases[last] != DONE:
            return self._place[label]
        busy = {
            self._place[other]
            for other, command in self._last.items()
            if other != label and self._phases[command] != DONE
        }
        priorities = self._program.options.stream_priorities
        wanted = priorities[label]
        alike = [s for s, priority in enumerate(priorities) if priority == wanted and s not in busy]
        return alike[0] if alike else None

    def _move(self) -> int | None:
        for place, move in enumerate(self._moves):
            if any(self._phases[command] != DONE for command in move.after):
                continue
            first = 0 if move.to_device else self._prefetches
            slots = np.flatnonzero(self._movable[first:] == move.buffer)
            del self._moves[place]
            if slots.size and (not move.to_device or slots[0] < self._prefetches):
                return int(self._window * self._choices) + first + int(slots[0])
            return self._move()  # it is there already, or nobody needs it any more
        return None


def score_of(
    works: Sequence[Work],
    *,
    device: DeviceSpec,
    base_ns: int,
    priorities: Mapping[int, int],
    live_bytes: int,
) -> Score:
    """Write down what the engine is to play.

    Args:
        works: In the order of submission.
        device: Where.
        base_ns: Time zero of the graph.
        priorities: Of each stream, by handle.
        live_bytes: Most device memory held at once by the program meanwhile.
    """
    labels = {stream: i for i, stream in enumerate(dict.fromkeys(work.stream for work in works))}
    places = {work.index: i for i, work in enumerate(works)}
    names = [f"{i}:{work.label or work.call}" for i, work in enumerate(works)]
    used: dict[int, Allocation] = {}
    commands: list[Command] = []
    moves: list[Move] = []
    for i, work in enumerate(works):
        reads, writes = _operands(work, used)
        commands.append(
            replace(
                work.command,
                name=names[i],
                reads=reads,
                writes=writes,
                after=tuple(
                    names[places[j]] for j in dict.fromkeys(work.waits) if j in places and j != work.index
                ),
                release_ns=max(0, work.submitted_ns - base_ns),
                stream_hint=labels[work.stream],
            )
        )
    buffers = [_buffer(allocation, works) for allocation in used.values()]
    order = {number: i for i, number in enumerate(used)}
    for i, work in enumerate(works):
        if work.prefetch is not None and work.prefetch[0].allocation.number in order:
            moves.append(Move(order[work.prefetch[0].allocation.number], work.prefetch[1], (i,)))
    resident = sum(
        b.size_bytes + 512 for b in buffers if b.kind is BufferKind.DEVICE and b.level is Level.HBM
    )
    return Score(
        graph=CommandGraph("program", tuple(commands), tuple(buffers)),
        streams=tuple(labels[work.stream] for work in works),
        priorities=tuple(priorities.get(stream, 0) for stream in labels),
        moves=tuple(moves),
        hbm_bytes=max(1, device.memory.hbm_bytes - live_bytes) + resident,
        works=tuple(works),
    )


def _operands(work: Work, used: dict[int, Allocation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Buffers that a command reads and writes; host memory is none, nor is memory that a race is about."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    if work.prefetch is not None:
        return (), ()
    for touch in work.touches:
        allocation = touch.range.allocation
        if allocation.space in (Space.DEVICE, Space.MANAGED) and not allocation.racy and allocation.size > 0:
            used[allocation.number] = allocation
            (writes if touch.writes else reads)[allocation.name] = None
    return tuple(reads), tuple(writes)


def _buffer(allocation: Allocation, works: Sequence[Work]) -> Buffer:
    managed = allocation.space is Space.MANAGED
    level = Level.HBM
    if managed:
        level = Level.HBM if allocation.on_device else Level.HOST
    elif allocation.stream and allocation.freed and _written_first(allocation, works):
        level = Level.ABSENT
    return Buffer(
        name=allocation.name,
        size_bytes=allocation.size,
        kind=BufferKind.MANAGED if managed else BufferKind.DEVICE,
        level=level,
    )


def _written_first(allocation: Allocation, works: Sequence[Work]) -> bool:
    """Whether the first who touches it writes it, and only writes it."""
    for work in works:
        modes = {touch.writes for touch in work.touches if touch.range.allocation is allocation}
        if modes:
            return modes == {True}
    return False
