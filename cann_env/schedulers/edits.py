"""A plan that can be changed a little at a time: what is issued and moved, in which order, where, how early.

The plan is a table of places (:mod:`cann_env.engine.planned`). Any scheduler's decisions become one, and as
long as nothing is changed it plays them again, to the nanosecond. Every edit has an inverse that brings the
table back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.engine import planned as by
from cann_env.engine.step import step
from cann_env.schedulers.policy import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Shift(enum.IntEnum):
    """How a command is moved within a plan, beside the stream it is on.

    ``EARLIER`` and ``LATER``: it changes places with the command that is issued before it, or after it.
    ``SOONER`` and ``HOLD``: its place waits for one completion, arrival or release fewer, or more.
    ``EARLIER`` and ``LATER`` are for moves of buffers too, which change places with whatever comes before
    or after them.
    """

    EARLIER = 0
    LATER = 1
    SOONER = 2
    HOLD = 3


@dataclass(frozen=True, eq=False, slots=True)
class Draft:
    """A plan as a table.

    Attributes:
        rows: int64 (m, L_WIDTH), a row a place; the last column belongs to the place and never falls.
        ids: int64 (m,), who stands there: command c as c, the j-th move of the first plan as -1 - j.
    """

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]

    def place(self, who: int) -> int:
        """Where a command or a move stands."""
        return int(np.flatnonzero(self.ids == who)[0])

    def on_stream(self, command: int, label: int) -> Draft:
        """The command goes to another stream."""
        rows = self.rows.copy()
        rows[self.place(command), by.L_LABEL] = label
        return replace(self, rows=rows)

    def shifted(self, who: int, shift: Shift) -> Draft:
        """A command or a move is shifted; :class:`Edits` says whether it can be."""
        place = self.place(who)
        if shift >= Shift.SOONER:
            rows = self.rows.copy()
            rows[place, by.L_WAKES] += 1 if shift is Shift.HOLD else -1
            return replace(self, rows=rows)
        places = np.flatnonzero(self.ids >= 0) if who >= 0 else np.arange(len(self.ids))
        step = 1 if shift is Shift.LATER else -1
        other = int(places[np.searchsorted(places, place) + step])
        rows, ids = self.rows.copy(), self.ids.copy()
        rows[[place, other], : by.L_WAKES] = rows[[other, place], : by.L_WAKES]
        ids[[place, other]] = ids[[other, place]]
        return Draft(rows, ids)


class Played(NamedTuple):
    """What a plan came to.

    Attributes:
        state: At the end of the episode.
        strayed: Issues that were taken out of turn, because nothing else was possible.
        skipped: Moves that could not be made.
    """

    state: Image
    strayed: int
    skipped: int

    @property
    def objective_ns(self) -> int:
        """Makespan or sum of latencies, or what an episode costs that does not finish."""
        return int(self.state[at.S_OBJECTIVE_NS])

    @property
    def plan(self) -> Plan:
        """All decisions."""
        first, steps = int(self.state[at.S_AT_ACTION]), int(self.state[at.S_STEPS])
        return Plan(tuple(self.state[first : first + steps].tolist()))


@dataclass(frozen=True, eq=False)
class Edits:
    """A program, and what can be changed about plans of it.

    Attributes:
        program: The program, with its expected durations.
    """

    program: Program

    @cached_property
    def _first(self) -> Image:
        return self.program.new_state()

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """(e, 2) dependencies, producer and consumer."""
        before = self.program.graph.predecessors
        pairs = [(p, c) for c, found in enumerate(before) for p in found]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @cached_property
    def releases(self) -> NDArray[np.int64]:
        """(n,) when each command is released (ns)."""
        return np.array([command.release_ns for command in self.program.graph.commands], np.int64)

    @property
    def choices(self) -> int:
        """Streams that an issue may name; 1 where the stream is implied."""
        return int(self.program.image[at.P_CHOICES])

    def draft(self, actions: tuple[int, ...]) -> Draft:
        """Decisions of an episode as a plan that plays them again."""
        image, state = self.program.image, self._first.copy()
        made = 0
        window, slots = int(image[at.P_STATE_WINDOW]), int(image[at.P_STATE_PREFETCH])
        wait, issues = self.program.action_count - 1, self.program.options.commands * self.choices
        bounds = np.cumsum([image[at.P_PREFETCHES], image[at.P_LIFTS], image[at.P_OFFLOADS]])
        rows: list[tuple[int, int, int, int]] = []
        ids: list[int] = []
        for action in actions:
            wakes = int(state[at.S_WAKES])
            if action < issues:
                command = int(state[window + action // self.choices])
                rows.append((by.ISSUE, command, action % self.choices, wakes))
                ids.append(command)
            elif action < wait:
                slot = action - issues
                kind = by.FETCH + int(np.searchsorted(bounds, slot, side="right"))
                rows.append((kind, int(state[slots + slot]), 0, wakes))
                made += 1
                ids.append(-made)
            step(image, state, action)
        return Draft(np.array(rows, np.int64).reshape(-1, by.L_WIDTH), np.array(ids, np.int64))

    def play(self, draft: Draft) -> Played:
        """Simulate a plan under expected durations."""
        state = self._first.copy()
        notes = np.full(by.N_HEADER + 2 * self.program.options.streams, -1, np.int64)
        notes[: by.N_HEADER] = 0
        by.follow(self.program.image, state, draft.rows.ravel(), notes)
        return Played(state, int(notes[by.N_STRAYED]), int(notes[by.N_SKIPPED]))

    def streams(self, draft: Draft) -> NDArray[np.bool_]:
        """(n, S) to which streams each command can be moved; none where the stream is implied."""
        possible = np.full((len(self._commands(draft)), self.program.options.streams), self.choices > 1)
        issues = draft.rows[draft.ids >= 0]
        possible[issues[:, by.L_TARGET], issues[:, by.L_LABEL]] = False
        return possible

    def shifts(self, draft: Draft, wakes: int) -> NDArray[np.bool_]:
        """(n, 4) which :class:`Shift` each command can take.

        A command cannot pass one that it depends on, and places wait in order.

        Args:
            draft: The plan.
            wakes: Completions, arrivals and releases of its last play: more cannot be awaited.
        """
        order = self._commands(draft)
        possible = np.zeros((len(order), len(Shift)), np.bool_)
        pairs, numbers = np.column_stack([order[:-1], order[1:]]), (len(order), 1)
        free = ~np.isin(pairs @ numbers, self.edges @ numbers)
        possible[order[1:], Shift.EARLIER] = free
        possible[order[:-1], Shift.LATER] = free
        awaited = draft.rows[:, by.L_WAKES]
        mine = draft.ids >= 0
        possible[order, Shift.SOONER] = (np.diff(awaited, prepend=0) > 0)[mine]
        possible[order, Shift.HOLD] = (np.diff(awaited, append=wakes) > 0)[mine]
        return possible

    @staticmethod
    def move_shifts(draft: Draft) -> NDArray[np.bool_]:
        """(moves, 2) whether each move of a buffer can go earlier or later, by its number."""
        places = np.flatnonzero(draft.ids < 0)
        possible = np.zeros((len(places), 2), np.bool_)
        numbers = -1 - draft.ids[places]
        possible[numbers, Shift.EARLIER] = places > 0
        possible[numbers, Shift.LATER] = places < len(draft.ids) - 1
        return possible

    @staticmethod
    def _commands(draft: Draft) -> NDArray[np.int64]:
        """All commands in the order in which they are issued."""
        return draft.ids[draft.ids >= 0]
