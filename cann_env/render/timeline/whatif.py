"""What if: change a decision of a schedule, and see what the engine makes of it.

All other decisions stay as they are, in their order, and each is taken as soon as what it had waited for has
happened (:mod:`cann_env.render.timeline.decisions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine.layout import Q20
from cann_env.options import Window
from cann_env.program import compile_graph
from cann_env.render.timeline.decisions import Decision, Trigger, decisions_of, play
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.program import Program
    from cann_env.schedule import Schedule


class Edited(NamedTuple):
    """A schedule after some edits.

    Attributes:
        schedule: What the engine made of it; its actions replay to it.
        streams: The stream that each command was put on, by its index. The engine takes idle streams of one
            die and priority for interchangeable and uses the lowest, so the schedule's own number may differ.
        change: The edit that led here, in words; empty for the schedule as it was given.
        notes: What else the edit brought with it, such as prefetches that fell away.
    """

    schedule: Schedule
    streams: tuple[int, ...]
    change: str
    notes: tuple[str, ...]


class _Step(NamedTuple):
    edited: Edited
    decisions: tuple[Decision, ...]
    times_ns: tuple[int, ...]


class WhatIf:
    """Edits of one schedule, which can be undone and done again.

    Args:
        program: What was run; None to compile it from the schedule.
        schedule: A schedule that a scheduler made of it.

    Raises:
        InputError: The schedule holds no decisions, or is not one of this program.
    """

    def __init__(self, program: Program | None, schedule: Schedule) -> None:
        if program is None:
            program = compile_graph(schedule.graph, schedule.device, schedule.options)
        if program.graph != schedule.graph:
            raise InputError(
                f"the schedule is one of graph {schedule.graph.name!r}, not of {program.graph.name!r}; give "
                "the program that it was made with"
            )
        self._program = program
        drawn = any(factor != Q20 for factor in schedule.noise)
        self._noise = np.asarray(schedule.noise, np.int64) if drawn else None
        decisions = tuple(decisions_of(schedule))
        played = play(program, decisions, self._noise)
        if record_schedule(program, played.actions, noise=self._noise).commands != schedule.commands:
            raise InputError(
                f"the schedule of graph {schedule.graph.name!r} does not follow from its decisions on "
                f"{schedule.device.name} with these options; give the program that it was made with"
            )
        first = Edited(schedule, played.streams, "", ())
        self._steps = [_Step(first, decisions, played.times_ns)]
        self._at = 0

    # --- what there is --------------------------------------------------------------------------------

    @property
    def before(self) -> Edited:
        """The schedule as it was given."""
        return self._steps[0].edited

    @property
    def now(self) -> Edited:
        """The schedule after all edits that are in force."""
        return self._steps[self._at].edited

    @property
    def schedule(self) -> Schedule:
        """The schedule of :attr:`now`."""
        return self.now.schedule

    @property
    def change_ns(self) -> int:
        """By how much the edits made the makespan longer (ns); negative if shorter."""
        return self.now.schedule.makespan_ns - self.before.schedule.makespan_ns

    @property
    def can_undo(self) -> bool:
        """Whether some edit is in force."""
        return self._at > 0

    @property
    def can_redo(self) -> bool:
        """Whether some edit was undone and can be done again."""
        return self._at + 1 < len(self._steps)

    # --- edits ----------------------------------------------------------------------------------------

    def move(
        self,
        command: int | str,
        stream: int,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
    ) -> Edited:
        """Put a command on a stream.

        Args:
            command: Its index or name.
            stream: Where it goes.
            before: The command of that stream in front of which it is queued.
            after: The command of that stream behind which it is queued. With neither it stays where it stands
                in the order of submission.

        Raises:
            InputError: The edit is not possible; says why, and nothing has changed.
        """
        c = self._command(command)
        name = self._name(c)
        most = self._program.options.streams
        if self._program.options.window is Window.STARTABLE:
            raise InputError(
                f"command {name!r} cannot be put on a stream: with the option window = 'startable' the "
                "engine takes the lowest idle one; schedule it with window = 'issuable'"
            )
        if isinstance(stream, bool) or not isinstance(stream, int) or not 0 <= stream < most:
            raise InputError(
                f"command {name!r} cannot go to stream {stream!r}; there are streams 0 to {most - 1}"
            )
        step = self._steps[self._at]
        if before is not None and after is not None:
            raise InputError(f"command {name!r} can be queued before or after another one; name one of them")
        beside = before if after is None else after
        if beside is None and step.edited.streams[c] == stream:
            raise InputError(f"command {name!r} is on stream {stream} already; name another stream")
        decisions = list(step.decisions)
        place = next(i for i, d in enumerate(decisions) if d.call == "issue" and d.target == c)
        decisions[place] = decisions[place]._replace(stream=stream)
        change = f"{name} to stream {stream}"
        if beside is not None:
            other = self._command(beside)
            decisions = self._queued(decisions, place, other, behind=after is not None)
            change += f", {'before' if after is None else 'after'} {self._name(other)}"
        return self._do(decisions, change)

    def drop(self, command: int | str, stream: int, at_ns: int) -> Edited:
        """Put a command on a stream, between those that start before and after a time.

        Raises:
            InputError: See :meth:`move`.
        """
        c = self._command(command)
        step = self._steps[self._at]
        starts = {run.command: run.start_ns for run in step.edited.schedule.commands}
        order = [d.target for d in step.decisions if d.call == "issue"]
        queue = [i for i in order if i != c and step.edited.streams[i] == stream]
        place = sum(starts[i] < at_ns for i in queue)
        asked = sum(order.index(i) < order.index(c) for i in queue)
        if place == asked:
            return self.move(c, stream)
        if place < len(queue):
            return self.move(c, stream, before=queue[place])
        return self.move(c, stream, after=queue[-1])

    def shift_prefetch(self, buffer: int | str, by_ns: int, which: int = 0) -> Edited:
        """Ask for a buffer earlier or later.

        The host decides where something ends: the request moves to the nearest such instant that is at least
        as far away, or to time zero.

        Args:
            buffer: Its index or name.
            by_ns: How much later (ns); negative for earlier.
            which: Which of its prefetches, from 0.

        Raises:
            InputError: The edit is not possible; says why, and nothing has changed.
        """
        b = self._buffer(buffer)
        name = self._program.graph.buffers[b].name
        step = self._steps[self._at]
        places = [i for i, d in enumerate(step.decisions) if d.call == "prefetch" and d.target == b]
        if not 0 <= which < len(places):
            raise InputError(
                f"buffer {name!r} has no prefetch number {which}; the schedule asks for it "
                f"{len(places)} times"
            )
        if by_ns == 0:
            raise InputError(f"the prefetch of {name!r} would stay where it is; give a time other than 0")
        place = places[which]
        instant = self._instant(step, step.times_ns[place], by_ns, name)
        done = tuple(run.command for run in step.edited.schedule.commands if run.finish_ns == instant)
        moved = step.decisions[place]._replace(after=Trigger(commands=done))
        decisions = list(step.decisions)
        times = list(step.times_ns)
        del decisions[place], times[place]
        late = by_ns > 0
        at = next((i for i, t in enumerate(times) if t > instant or (t == instant and not late)), len(times))
        decisions.insert(at, moved)
        self._check_issued(decisions, at, done, name)
        return self._do(decisions, f"prefetch of {name} at {format_time(instant)}", strict=at)

    def undo(self) -> Edited:
        """Take the last edit back.

        Raises:
            InputError: There is none.
        """
        if not self.can_undo:
            raise InputError("there is no edit to undo")
        self._at -= 1
        return self.now

    def redo(self) -> Edited:
        """Do the edit again that was undone last.

        Raises:
            InputError: There is none.
        """
        if not self.can_redo:
            raise InputError("there is no edit to do again")
        self._at += 1
        return self.now

    def reset(self) -> Edited:
        """Back to the schedule as it was given; :meth:`redo` leads forward again."""
        self._at = 0
        return self.now

    # --- how ------------------------------------------------------------------------------------------

    def _do(self, decisions: Sequence[Decision], change: str, strict: int | None = None) -> Edited:
        played = play(self._program, decisions, self._noise, strict=strict)
        schedule = record_schedule(self._program, played.actions, noise=self._noise)
        buffers = self._program.graph.buffers
        notes = tuple(
            f"the {decisions[i].call} of {buffers[decisions[i].target].name!r} was not possible any more and "
            "is left out"
            for i in played.skipped
        )
        edited = Edited(schedule, played.streams, change, notes)
        del self._steps[self._at + 1 :]
        self._steps.append(_Step(edited, tuple(decisions), played.times_ns))
        self._at += 1
        return edited

    def _queued(self, decisions: list[Decision], place: int, other: int, *, behind: bool) -> list[Decision]:
        """A command taken out of the order of submission and put beside another one of its stream."""
        mine = decisions.pop(place)
        c, name = mine.target, self._name(mine.target)
        where = f"command {name!r} cannot be queued {'after' if behind else 'before'} {self._name(other)!r}"
        if other == c:
            raise InputError(f"{where}: that is itself; name another command")
        to = next(i for i, d in enumerate(decisions) if d.call == "issue" and d.target == other)
        if decisions[to].stream != mine.stream:
            raise InputError(f"{where} on stream {mine.stream}: that one is on stream {decisions[to].stream}")
        after = decisions[to].after
        to += behind
        graph = self._program.graph
        order = {d.target: i for i, d in enumerate(decisions) if d.call == "issue"}
        for p in graph.predecessors[c]:
            if order[p] >= to:
                raise InputError(f"{where}: it needs {self._name(p)!r}, which is submitted later")
        for s in graph.successors[c]:
            if order[s] < to:
                raise InputError(f"{where}: {self._name(s)!r}, which needs it, is submitted sooner")
        # It is submitted when its new neighbour is, and no longer when it used to be.
        decisions.insert(to, mine._replace(after=after))
        return decisions

    def _instant(self, step: _Step, from_ns: int, by_ns: int, name: str) -> int:
        """The instant at which a prefetch is asked for instead."""
        ends = {run.finish_ns for run in step.edited.schedule.commands} | set(step.times_ns) | {0}
        if by_ns < 0:
            sooner = [t for t in ends if t <= max(from_ns + by_ns, 0)]
            if from_ns == 0:
                raise InputError(f"the prefetch of {name!r} is asked for at time zero already")
            return max(sooner)
        later = [t for t in ends if t >= from_ns + by_ns]
        if not later:
            last = format_time(max(ends))
            raise InputError(f"the prefetch of {name!r} cannot be that late: the last command ends at {last}")
        return min(later)

    def _check_issued(self, decisions: list[Decision], at: int, done: tuple[int, ...], name: str) -> None:
        """What a prefetch is to follow has to be submitted before it."""
        sooner = {d.target for d in decisions[:at] if d.call == "issue"}
        for c in done:
            if c not in sooner:
                raise InputError(
                    f"the prefetch of {name!r} cannot follow {self._name(c)!r}, which is submitted later"
                )

    def _name(self, c: int) -> str:
        return self._program.graph.commands[c].name

    def _command(self, which: int | str) -> int:
        return _index("command", which, self._program.graph.command_index, self._program.graph.name)

    def _buffer(self, which: int | str) -> int:
        return _index("buffer", which, self._program.graph.buffer_index, self._program.graph.name)


def _index(kind: str, which: int | str, known: dict[str, int], graph: str) -> int:
    if isinstance(which, str) and which in known:
        return known[which]
    if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(known):
        return which
    raise InputError(
        f"graph {graph!r} has no {kind} {which!r}; write its name, or its index from 0 to {len(known) - 1}"
    )
