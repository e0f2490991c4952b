"""The decisions of a schedule, each with what the host had waited for, and how a changed list is played.

A list of actions names slots of windows, which mean something else as soon as one decision changes. Here a
decision names its command or buffer, and in place of waits it says what had to happen first: the completions,
arrivals or releases that ended the host's last wait before it. Played again, unchanged decisions make the
same schedule; after a change each is still taken as soon as what it was waiting for has happened.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.engine.step import step
from cann_env.options import Submission
from cann_env.schedulers.policy import episode_info
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedule import Schedule

MOVES: Final = ("prefetch", "lift", "offload")
"""Calls that move a buffer, in the order of their slots."""


class Trigger(NamedTuple):
    """What has to happen before a decision: commands done, buffers arrived in HBM, a time reached (ns).

    The time stands for releases, and for the ends of write-backs and lifts, which no command waits for.
    """

    commands: tuple[int, ...] = ()
    buffers: tuple[int, ...] = ()
    time_ns: int = 0


class Decision(NamedTuple):
    """``call`` is ``issue`` or one of :data:`MOVES`; ``stream`` counts for ``issue`` alone, else it is 0."""

    call: str
    target: int
    stream: int
    after: Trigger


class Played(NamedTuple):
    """What playing decisions came to.

    Attributes:
        actions: In the engine's own form.
        streams: The stream that each command was meant for, by its index. The engine takes idle streams of a
            kind for interchangeable and uses the lowest, so its own number may differ.
        times_ns: When each decision was taken, in their order.
        skipped: Moves of buffers that were not possible any more: indices into the decisions.
    """

    actions: tuple[int, ...]
    streams: tuple[int, ...]
    times_ns: tuple[int, ...]
    skipped: tuple[int, ...]


def decisions_of(schedule: Schedule) -> list[Decision]:
    """All decisions of a schedule, waits turned into triggers.

    Raises:
        InputError: Nobody decided it: it shows a program, or a recording.
    """
    if not schedule.actions:
        raise InputError(
            f"the schedule of graph {schedule.graph.name!r} holds no decisions, it shows what a program did; "
            "ask 'what if' of a schedule that a scheduler made"
        )
    stream_of = {run.command: run.stream for run in schedule.commands}
    happened = _happenings(schedule)
    eager = schedule.options.submission is Submission.EAGER
    sync_ns = schedule.device.host.sync_ns if eager else 0
    found: list[Decision] = []
    after = Trigger()
    for call in schedule.host:
        if call.call == "wait":
            after = happened.get(call.end_ns - sync_ns, Trigger(time_ns=call.end_ns - sync_ns))
            continue
        stream = stream_of[call.target] if call.call == "issue" else 0
        found.append(Decision(call.call, call.target, stream, after))
        after = Trigger()
    return found


def _happenings(schedule: Schedule) -> dict[int, Trigger]:
    """What can end a wait, by its time."""
    done: dict[int, list[int]] = defaultdict(list)
    for run in schedule.commands:
        done[run.finish_ns].append(run.command)
    arrived: dict[int, list[int]] = defaultdict(list)
    other = {command.release_ns for command in schedule.graph.commands}
    for move in schedule.transfers:
        if move.cause in ("fault", "prefetch"):
            arrived[move.finish_ns].append(move.buffer)
        elif move.finish_ns > move.start_ns:
            other.add(move.finish_ns)
    return {
        time: Trigger(
            tuple(done.get(time, ())),
            tuple(arrived.get(time, ())),
            0 if time in done or time in arrived else time,
        )
        for time in {*done, *arrived, *other}
    }


def play(
    program: Program, decisions: Sequence[Decision], noise: Image | None, *, strict: int | None = None
) -> Played:
    """Take decisions in their order, each as soon as its trigger and the engine allow it.

    A move of a buffer that is not possible at its place is tried again before every later decision, and left
    out if it never becomes possible.

    Args:
        program: What is run.
        decisions: One issue for each command, and moves of buffers.
        noise: See :meth:`Program.new_state`.
        strict: The decision that must be possible at its place.

    Raises:
        InputError: A command cannot be submitted, or the strict decision cannot be taken; says why.
    """
    return _Player(program, noise).play(decisions, strict)


class _Player:
    """An episode, with views of what can be decided."""

    def __init__(self, program: Program, noise: Image | None) -> None:
        self._program = program
        self._state = program.new_state(noise)
        info = episode_info(program, self._state)
        self._ready, self._movable = info["ready"], info["movable"]
        self._phases, self._residency = info["phases"], info["residency"]
        self._choices, self._issues = info["choices"], info["window"] * info["choices"]
        self._slots = [info["prefetches"], info["l2_prefetches"], info["offloads"]]
        self._wait = program.action_count - 1
        first = 8 * int(program.image[at.P_STATE_MASK])
        self._mask = self._state.view(np.int8)[first : first + program.action_count]
        streams = program.options.streams
        first = int(program.image[at.P_STATE_STREAM])
        rows = self._state[first : first + streams * at.SS_WIDTH].reshape(streams, at.SS_WIDTH)
        self._length = rows[:, at.SS_LENGTH]
        self._users: dict[int, list[int]] = defaultdict(list)
        for c, command in enumerate(program.graph.commands):
            for name in dict.fromkeys((*command.reads, *command.writes)):
                self._users[program.graph.buffer_index[name]].append(c)
        self._place = list(range(streams))  # where the engine has each stream that a decision names

    def play(self, decisions: Sequence[Decision], strict: int | None) -> Played:
        streams = [0] * len(self._program.graph.commands)
        times = [0] * len(decisions)
        late: list[int] = []
        for i, decision in enumerate(decisions):
            self._await(decision.after)
            late = [j for j in late if not self._try_move(decisions[j])]
            if decision.call == "issue":
                times[i] = self._issue(decision)
                streams[decision.target] = decision.stream
                continue
            times[i] = self._now
            if not self._try_move(decision):
                if i == strict:
                    raise InputError(self._why_not(decision))
                late.append(i)
        first, steps = int(self._state[at.S_AT_ACTION]), int(self._state[at.S_STEPS])
        actions = tuple(self._state[first : first + steps].tolist())
        return Played(actions, tuple(streams), tuple(times), tuple(late))

    @property
    def _now(self) -> int:
        return int(self._state[at.S_NOW_NS])

    @property
    def _running(self) -> bool:
        return bool(self._state[at.S_STATUS] == at.RUNNING)

    def _step(self, action: int) -> None:
        step(self._program.image, self._state, action)

    def _await(self, trigger: Trigger) -> None:
        """Wait until a trigger has happened, or nothing is left that could be waited for."""
        while self._running and self._mask[self._wait] and not self._happened(trigger):
            self._step(self._wait)

    def _happened(self, trigger: Trigger) -> bool:
        if self._state[at.S_NOW_NS] < trigger.time_ns:
            return False
        # A command that is submitted later now, or a move that is not made, holds up nobody.
        if any(at.UNISSUED < self._phases[c] < at.DONE for c in trigger.commands):
            return False
        return not any(self._comes(b) for b in trigger.buffers)

    def _comes(self, buffer: int) -> bool:
        """Whether a buffer is on its way to HBM, or a command that waits to start will ask for it."""
        residency = self._residency[buffer]
        if residency != at.ABSENT:
            return bool(residency < at.VALID)
        return any(at.UNISSUED < self._phases[c] < at.STARTED for c in self._users[buffer])

    def _issue(self, decision: Decision) -> int:
        """Submit a command as soon as that is legal; returns when."""
        while self._running:
            slots = np.flatnonzero(self._ready == decision.target)
            if slots.size:
                first = int(slots[0]) * self._choices
                stream = self._stream_for(first, decision.stream)
                if stream is not None:
                    now = self._now
                    self._step(first + stream)
                    return now
            if not self._mask[self._wait]:
                break
            self._step(self._wait)
        raise InputError(self._why_not_issued(decision))

    def _stream_for(self, first: int, wanted: int) -> int | None:
        """The engine's number of a stream, if it takes the command: an idle one may have to be swapped."""
        if self._choices == 1:
            return 0 if self._mask[first] else None
        place = self._place[wanted]
        if self._mask[first + place]:
            return place
        if self._length[place] > 0:
            return None
        for other in range(self._choices):
            if self._mask[first + other] and self._length[other] == 0 and self._alike(place, other):
                self._place[self._place.index(other)] = place
                self._place[wanted] = other
                return other
        return None

    def _alike(self, one: int, other: int) -> bool:
        first = int(self._program.image[at.P_AT_STREAM])
        rows = [first + stream * at.PS_WIDTH for stream in (one, other)]
        return all(
            self._program.image[rows[0] + word] == self._program.image[rows[1] + word]
            for word in (at.PS_DIE, at.PS_PRIORITY)
        )

    def _try_move(self, decision: Decision) -> bool:
        """Ask for a buffer to be moved, if that is legal now."""
        if not self._running:
            return False
        kind = MOVES.index(decision.call)
        first = sum(self._slots[:kind])
        for slot in range(first, first + self._slots[kind]):
            if self._movable[slot] == decision.target and self._mask[self._issues + slot]:
                self._step(self._issues + slot)
                return True
        return False

    def _why_not(self, decision: Decision) -> str:
        """Why a buffer cannot be moved now."""
        name = self._program.graph.buffers[decision.target].name
        where = f"{decision.call} of {name!r} at {format_time(self._now)}"
        kind = MOVES.index(decision.call)
        first = sum(self._slots[:kind])
        seen = self._movable[first : first + self._slots[kind]]
        if decision.call == "prefetch" and self._residency[decision.target] == at.VALID:
            return f"{where}: the buffer lies in HBM already"
        if decision.call == "prefetch" and self._residency[decision.target] != at.ABSENT:
            return f"{where}: a command that needs the buffer has already asked for it"
        if decision.target in seen:
            strict = f"prefetch_mask is {self._program.options.prefetch_mask.value!r}"
            return f"{where}: there is no room for it without sending away what is needed sooner ({strict})"
        return (
            f"{where}: it is not among the {self._slots[kind]} buffers that are needed soonest and may be "
            f"asked for then; option '{_OPTION[decision.call]}' says how many there are"
        )

    def _why_not_issued(self, decision: Decision) -> str:
        name = self._program.graph.commands[decision.target].name
        where = (
            f"command {name!r} cannot be submitted to stream {decision.stream} at {format_time(self._now)}"
        )
        if not self._running:
            return f"{where}: the episode is over, out of steps or of memory"
        if decision.target not in self._ready:
            window = self._program.options.commands
            return f"{where}: it is not among the {window} ready commands that may be chosen then"
        return f"{where}: memory might not suffice to finish what is in flight, or its queue has no room"


_OPTION: Final = {"prefetch": "prefetches", "lift": "l2_prefetches", "offload": "offloads"}
