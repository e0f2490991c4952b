"""Submitted work, run on the engine: when each piece starts and ends.

The work of a device since it was last idle becomes a graph, and the engine plays it as it was submitted: each
piece on its own stream, not before the call that submitted it had ended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cann_env.acl.state.score import LATER_NS
from cann_env.acl.state.work import Way
from cann_env.engine.layout import DONE, RUNNING, S_AT_ACTION, S_NOW_NS, S_STATUS, S_STEPS
from cann_env.engine.observe import copy_mask
from cann_env.engine.step import step
from cann_env.options import Eviction, PrefetchMask, RunOptions, Submission, Window
from cann_env.program import Program, compile_graph
from cann_env.schedulers.policy import EpisodeError, episode_info
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from cann_env.acl.state.score import Score
    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule


def play(score: Score, device: DeviceSpec) -> Schedule:
    """Play work as it was submitted.

    Raises:
        EpisodeError: Streams wait for each other, or something never came.
        InputError, AclError: The device cannot run it.
    """
    program = compile_graph(score.graph, device, _options(score, device))
    schedule = record_schedule(program, _Player(program, score).actions())
    return _until(schedule, LATER_NS, len(score.graph.commands) - score.ticks)


def _until(schedule: Schedule, end_ns: int, commands: int) -> Schedule:
    """The rows of a schedule that begin before an instant, of its first commands."""
    rows = (row for row in schedule.commands if row.start_ns < end_ns and row.command < commands)
    return replace(
        schedule,
        commands=tuple(rows),
        blocks=tuple(row for row in schedule.blocks if row.start_ns < end_ns),
        transfers=tuple(row for row in schedule.transfers if row.start_ns < end_ns),
    )


def _options(score: Score, device: DeviceSpec) -> RunOptions:
    # A slot for whatever the engine may rank before what is asked for.
    ways = {move.way for move in score.moves}
    slots = {way: min(4096, len(score.graph.buffers)) if way in ways else 0 for way in Way}
    commands = len(score.graph.commands)
    base = (
        RunOptions(eviction=Eviction.LRU, submission=Submission.SINK)
        if score.options is None
        else score.options
    )
    return replace(
        base,
        streams=len(score.priorities),
        stream_priorities=tuple(min(p, device.limits.stream_priorities - 1) for p in score.priorities),
        run_ahead=1 << 40,
        commands=min(4096, commands),
        prefetches=slots[Way.PREFETCH],
        l2_prefetches=slots[Way.LIFT],
        offloads=slots[Way.OFFLOAD],
        prefetch_mask=PrefetchMask.FREE,
        window=Window.ISSUABLE,
        hbm_bytes=score.hbm_bytes,
        memory_factor=None,
        stream_dies=score.dies if device.dies > 1 else (),
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
        lifts, offloads = info["prefetches"], info["prefetches"] + info["l2_prefetches"]
        self._slots = {
            Way.PREFETCH: range(lifts),
            Way.LIFT: range(lifts, offloads),
            Way.OFFLOAD: range(offloads, offloads + info["offloads"]),
        }
        self._queues: list[list[int]] = [[] for _ in score.priorities]
        self._dies = score.dies or (0,) * len(self._queues)
        self._turns = score.turns or tuple(range(len(score.streams)))
        for command in sorted(range(len(score.streams)), key=self._turns.__getitem__):
            self._queues[score.streams[command]].append(command)
        self._next = [0] * len(self._queues)
        self._place: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._moves = list(score.moves)
        self._mask = np.zeros(program.action_count, np.int8)
        self._real = len(self._phases) - score.ticks

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
        copy_mask(self._program.image, self._state, self._mask)
        heads = [
            (self._turns[queue[self._next[label]]], queue[self._next[label]], label)
            for label, queue in enumerate(self._queues)
            if self._next[label] < len(queue)
        ]
        for turn, command, label in sorted(heads):
            slots = np.flatnonzero(self._ready == command)
            if slots.size and self._is_time(command):
                move = self._move(turn)
                if move is not None:
                    return move
                stream = self._stream_of(label)
                if stream is None:
                    continue
                action = int(slots[0] * self._choices + stream)
                if not self._mask[action]:
                    continue  # no room for it yet
                self._next[label] += 1
                self._place[label], self._last[label] = stream, command
                return action
        return self._move(len(self._phases))

    def _is_time(self, command: int) -> bool:
        gates = self._score.gates_ns
        if command >= self._real:
            return bool((self._phases[: self._real] == DONE).all())
        return not gates or gates[command] <= self._state[S_NOW_NS]

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
        kinds = list(zip(self._program.options.stream_priorities, self._dies, strict=True))
        alike = [s for s, kind in enumerate(kinds) if kind == kinds[label] and s not in busy]
        return alike[0] if alike else None

    def _move(self, before: int) -> int | None:
        """A prefetch whose time has come, of those asked for before a command."""
        now = int(self._state[S_NOW_NS])
        for move in list(self._moves):
            if move.at_ns > now or move.place > before:
                continue
            if any(self._phases[command] != DONE for command in move.after):
                continue
            self._moves.remove(move)
            for slot in self._slots[move.way]:
                if self._movable[slot] == move.buffer:
                    return int(self._window * self._choices) + slot
            # Else it is there already, or nobody needs it any more.
        return None
