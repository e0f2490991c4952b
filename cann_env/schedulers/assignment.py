"""Assignments: which command goes first, on which stream, how early; and how they become decisions.

Allocators, list schedulers and solvers write an :class:`Assignment`; :func:`carry_out` plays it through the
engine, which may have its own view of what is possible, and returns the decisions that were really taken.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import wishes as by
from cann_env.engine.decode import decode, decode_many
from cann_env.engine.layout import (
    FINISHED,
    P_STATE_COMMAND,
    Q20,
    S_AT_ACTION,
    S_BOUND_NS,
    S_STATUS,
    S_STEPS,
    SC_START_NS,
    SC_WIDTH,
)
from cann_env.options import PrefetchMask
from cann_env.schedulers.policy import EpisodeError, Outcome, Plan
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Launch(enum.IntEnum):
    """How commands come to streams.

    ``LABELS``: to the stream that carries the command's label, as soon as it may be issued; a label whose
    stream has run empty goes on on the lowest idle one. ``ROUND_ROBIN``: to streams in turn.
    ``JUST_IN_TIME``: to the lowest idle stream, not before it can start. ``CHAINED``: the same, or behind the
    predecessor that ends last, if nothing else is awaited. ``EAGER``: at once, behind that predecessor or on
    the stream that is free first.
    """

    LABELS = by.LABELS
    ROUND_ROBIN = by.ROUND_ROBIN
    JUST_IN_TIME = by.JUST_IN_TIME
    CHAINED = by.CHAINED
    EAGER = by.EAGER


class Fetch(enum.IntEnum):
    """When buffers are prefetched from the host: never, one after another, or all that the mask allows."""

    ON_DEMAND = by.ON_DEMAND
    WHILE_FREE = by.WHILE_FREE
    ALL_AT_ONCE = by.ALL_AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Everything about an assignment that is not about single commands.

    Attributes:
        launch: See :class:`Launch`.
        fifo: With ``LABELS``: commands of one label are issued strictly in their order.
        fit: With ``JUST_IN_TIME``: least part of its blocks that must find a free core, from 0 to 1.
        patient: With ``JUST_IN_TIME``: wait for operands that are on their way.
        strict: Nothing overtakes the first command whose predecessors are done.
        depth: With ``CHAINED`` and ``EAGER``: most commands on a stream that another queues behind.
        streams: Use only so many streams; None for all.
        fetch: See :class:`Fetch`. It is meant for the strict prefetch mask.
        ahead: Prefetch only for users among so many next ones by tail; None for all.
        lift: Prefetch into L2 while nothing else is copied there, once for each use.

    No buffer is prefetched, into L2 or from the host, once the commands need all steps that are left.
    """

    launch: Launch = Launch.LABELS
    fifo: bool = True
    fit: float = 0.0
    patient: bool = False
    strict: bool = False
    depth: int = 1
    streams: int | None = None
    fetch: Fetch = Fetch.WHILE_FREE
    ahead: int | None = None
    lift: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0.0 <= self.fit <= 1.0:
            raise InputError(f"a rule's fit is {self.fit}; write a number from 0 to 1")
        for name, least in (("depth", 0), ("streams", 1), ("ahead", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"a rule's {name} is {value}; write a number of at least {least}")

    def words(self, program: Program) -> Image:
        """The rule as the engine reads it."""
        most = program.options.streams
        streams = most if self.streams is None else min(self.streams, most)
        words = np.zeros(by.RULE_WIDTH, np.int64)
        words[by.RULE_ORDER] = self.launch
        words[by.RULE_FIFO] = self.fifo
        words[by.RULE_FIT] = round(self.fit * Q20)
        words[by.RULE_PATIENT] = self.patient
        words[by.RULE_STRICT] = self.strict
        words[by.RULE_DEPTH] = self.depth
        words[by.RULE_STREAMS] = streams
        words[by.RULE_FETCH] = self.fetch
        words[by.RULE_AHEAD] = np.iinfo(np.int64).max if self.ahead is None else self.ahead
        words[by.RULE_LIFT] = self.lift
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Order, streams and earliest starts of all commands of a program.

    Attributes:
        order: Indices of all commands, the first to go first; a predecessor need not come before.
        labels: With ``LABELS`` the label of each command, by its index, from 0 to one less than the streams;
            empty for none.
        starts_ns: Earliest instant at which each command is issued, by its index; empty for whenever. It is
            passed over only where otherwise nothing would ever happen.
        choosy: For each command whether it waits for its preferred class; empty for none.
        stages: The stage of each command, by its index, from 0: it is issued when all commands of smaller
            stages are done; they are counted, so what ran early counts too. Empty for no barriers. Passed
            over as ``starts_ns`` is.
        rule: How they are carried out.
    """

    order: tuple[int, ...]
    labels: tuple[int, ...] = ()
    starts_ns: tuple[int, ...] = ()
    choosy: tuple[bool, ...] = ()
    stages: tuple[int, ...] = ()
    rule: Rule = Rule()

    def play(self, program: Program, *, noise: Image | None = None) -> Outcome:
        """Run one episode of a program by it.

        Raises:
            InputError, EpisodeError: See :func:`carry_out`.
        """
        result = carry_out(program, self, noise=noise)
        return Outcome(result.plan.actions, result.objective_ns, result.end_ns)


class Result(NamedTuple):
    """What carrying out came to.

    Attributes:
        plan: All decisions.
        objective_ns: Makespan, or sum of latencies where that is the objective.
        end_ns: The clock at the end.
        strayed: Decisions that the assignment did not ask for, taken because nothing else was possible.
    """

    plan: Plan
    objective_ns: int
    end_ns: int
    strayed: int


class Decoder:
    """Plays assignments of one program, again and again, in memory that is taken once.

    Args:
        program: The program.
        noise: Realised durations, see :meth:`Program.new_state`.
    """

    def __init__(self, program: Program, noise: Image | None = None) -> None:
        self._program = program
        self._first = program.new_state(noise)
        self._state = self._first.copy()
        self._commands = len(program.graph.commands)

    def play(self, rule: Image, wishes: Image, notes: Image) -> int:
        """Play one assignment in the engine's own form; the objective (ns), or -1 if it does not finish.

        Args:
            rule: :meth:`Rule.words`.
            wishes: int64, a row of D_WIDTH words for each command, flat.
            notes: Scratch, see :func:`notes_of`.
        """
        np.copyto(self._state, self._first)
        objective = decode(self._program.image, self._state, rule, notes, wishes)
        return int(objective) if self._state[S_STATUS] == FINISHED else -1

    def play_many(self, rules: Image, wishes: Image) -> NDArray[np.int64]:
        """Play many assignments without labels in one call; threads may do so side by side.

        Args:
            rules: (N, RULE_WIDTH), a row of :meth:`Rule.words` for each, none with ``LABELS``.
            wishes: (N, n, D_WIDTH), see :meth:`play`; all labels 0.

        Returns:
            (N, 2): the objective (ns) and the status at the end of each, FINISHED or what stopped it.
        """
        fresh = notes_of(self._program, np.zeros((self._commands, by.D_WIDTH), np.int64))
        outcomes = np.empty((len(rules), 2), np.int64)
        scratch = np.empty_like(self._first), np.empty_like(fresh)
        decode_many(
            self._program.image, self._first, rules.ravel(), fresh, wishes.ravel(), *scratch, outcomes.ravel()
        )
        return outcomes

    def carry_out(self, assignment: Assignment) -> Result | None:
        """Play one assignment; None if it does not finish. Raises as :func:`carry_out` does."""
        wishes = wishes_of(self._program, assignment)
        notes = notes_of(self._program, wishes)
        objective = self.play(assignment.rule.words(self._program), wishes.ravel(), notes)
        if objective < 0:
            return None
        return Result(self.plan, objective, self.end_ns, int(notes[by.Z_STRAYED]))

    @property
    def state(self) -> Image:
        """A copy of the state at the end of the last play."""
        return self._state.copy()

    @property
    def starts(self) -> Image:
        """(n,) when each command started in the last play (ns)."""
        first = int(self._program.image[P_STATE_COMMAND])
        rows = self._state[first : first + self._commands * SC_WIDTH].reshape(-1, SC_WIDTH)
        return rows[:, SC_START_NS].copy()

    @property
    def end_ns(self) -> int:
        """The clock at the end of the last play."""
        return int(self._state[S_BOUND_NS])

    @property
    def plan(self) -> Plan:
        """Decisions of the last play."""
        at, steps = int(self._state[S_AT_ACTION]), int(self._state[S_STEPS])
        return Plan(tuple(self._state[at : at + steps].tolist()))


def carry_out(program: Program, assignment: Assignment, *, noise: Image | None = None) -> Result:
    """Play an assignment through the engine.

    Raises:
        InputError: The order is no permutation, or a table has not one entry a command, or one out of range.
        EpisodeError: The episode ended before all commands were done.
    """
    decoder = Decoder(program, noise)
    result = decoder.carry_out(assignment)
    if result is None:
        raise EpisodeError(
            f"graph {program.graph.name!r} on {program.device.name} was not finished by the assignment after "
            f"{len(decoder.plan.actions)} decisions"
        )
    return result


def best_of(program: Program, assignments: Iterable[Assignment]) -> tuple[Assignment, Result]:
    """The assignment with the smallest objective under expected durations, the first of equals.

    Raises:
        InputError: See :func:`carry_out`.
        EpisodeError: None of them finishes the graph.
    """
    best: tuple[Assignment, Result] | None = None
    decoder = Decoder(program)
    for assignment in assignments:
        result = decoder.carry_out(assignment)
        if result is not None and (best is None or result.objective_ns < best[1].objective_ns):
            best = assignment, result
    if best is None:
        raise EpisodeError(
            f"graph {program.graph.name!r} on {program.device.name} was not finished by any of the "
            "assignments that were tried"
        )
    return best


def fetch_of(program: Program) -> Fetch:
    """One buffer after another where the mask keeps prefetches from doing harm, else on demand."""
    return Fetch.WHILE_FREE if program.options.prefetch_mask is PrefetchMask.STRICT else Fetch.ON_DEMAND


def wishes_of(program: Program, assignment: Assignment) -> NDArray[np.int64]:
    """The single commands of an assignment as the engine reads them, shape (n, D_WIDTH).

    Raises:
        InputError: See :func:`carry_out`.
    """
    commands = len(program.graph.commands)
    order = np.asarray(assignment.order, np.int64)
    if not np.array_equal(np.sort(order), np.arange(commands)):
        raise InputError(
            f"the order of an assignment of graph {program.graph.name!r} has {order.size} entries; it needs "
            f"each of the indices 0 to {commands - 1} once"
        )
    wishes = np.zeros((commands, by.D_WIDTH), np.int64)
    wishes[order, by.D_PLACE] = np.arange(commands)
    wishes[:, by.D_LABEL] = _table(program, "labels", assignment.labels, program.options.streams - 1)
    wishes[:, by.D_START_NS] = _table(program, "starts_ns", assignment.starts_ns, 2**62)
    wishes[:, by.D_CHOOSY] = _table(program, "choosy", assignment.choosy, 1)
    stages = _table(program, "stages", assignment.stages, commands)
    wishes[:, by.D_BARRIER] = np.searchsorted(np.sort(stages), stages)
    link_labels(wishes)
    return wishes


def link_labels(wishes: NDArray[np.int64]) -> None:
    """Write which command comes next of each label."""
    order = np.lexsort((wishes[:, by.D_PLACE], wishes[:, by.D_LABEL]))
    labels = wishes[order, by.D_LABEL]
    following = np.append(np.where(labels[1:] == labels[:-1], order[1:], -1), -1)
    wishes[order, by.D_NEXT] = following


def notes_of(program: Program, wishes: NDArray[np.int64]) -> Image:
    """Fresh scratch for one play."""
    streams = program.options.streams
    labels = int(wishes[:, by.D_LABEL].max()) + 1
    notes = np.full(by.Z_HEADER + 2 * labels + streams + len(program.graph.buffers), -1, np.int64)
    notes[[by.Z_TURN, by.Z_STRAYED, by.Z_LABELS]] = 0, 0, labels
    order = np.lexsort((wishes[:, by.D_PLACE], wishes[:, by.D_LABEL]))
    present, first = np.unique(wishes[order, by.D_LABEL], return_index=True)
    notes[by.Z_HEADER + labels + present] = order[first]
    return notes


def _table(program: Program, name: str, values: Sequence[int], most: int) -> NDArray[np.int64]:
    commands = len(program.graph.commands)
    if not values:
        return np.zeros(commands, np.int64)
    table = np.asarray(values, np.int64)
    if table.size != commands:
        raise InputError(
            f"{name} of an assignment of graph {program.graph.name!r} has {table.size} entries; it needs one "
            f"for each of its {commands} commands"
        )
    if int(table.min()) < 0 or int(table.max()) > most:
        wrong = int(np.flatnonzero((table < 0) | (table > most))[0])
        raise InputError(
            f"{name} of an assignment of graph {program.graph.name!r} is {int(table[wrong])} for command "
            f"{program.graph.commands[wrong].name!r}; write a number from 0 to {most}"
        )
    return table
