"""CANN's own allocations of streams: the baseline that a stream scheduler for Ascend is measured against.

Built from the public description of the graph engine's stream allocator: its default by engines, the modes
``cv``, ``LoadBalance``, ``MainStream`` and ``WeightedLoadBalance`` of its automatic multi-stream, and the
best of a sweep over them all, which is what its autotuning sample does. The weighted mode reads the durations
of this simulator's cost model in place of a profile. ``CORE_AWARE`` is ours: the weighted mode with a
simulation that counts cores.

An allocation is static: commands go to their streams in program order. As streams that the graph engine
splits for their length run one after the other, a split stream is played as one. Buffers that migrate are
prefetched one after another where the program has slots for it, which is kinder than the graph engine; the
sweep also tries every allocation without prefetching, and with all at once.

Automatic multi-stream is documented as not available on Ascend 310B. It runs here on any device, so that
devices can be compared; on 310B only the default is what a user would get.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, best_of, carry_out
from cann_env.schedulers.cann_engines import cube_vector_streams, default_streams, within
from cann_env.schedulers.cann_merge import load_balance, main_stream, weighted
from cann_env.schedulers.cann_replay import Replay
from cann_env.schedulers.cann_units import dag_of, units_of
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.program import Program
    from cann_env.schedulers.policy import Plan, Scheduler

MOST_STREAMS = 64
"""Most streams that a mode of automatic multi-stream may be asked for."""
STREAMS = 8
"""Streams it distributes over if it is not told."""
SWEEP = (2, 4, 8)
"""Numbers of streams that the sweep tries."""


class Mode(enum.StrEnum):
    """How streams are allocated; see the module's and :mod:`cann_env.schedulers.cann_merge`'s docstrings."""

    DEFAULT = "default"
    CV = "cv"
    LOAD_BALANCE = "load_balance"
    MAIN_STREAM = "main_stream"
    WEIGHTED = "weighted_load_balance"
    CORE_AWARE = "weighted_core_aware"


def allocate(program: Program, mode: Mode, streams: int = STREAMS) -> tuple[int, ...]:
    """Stream of each command, by its index; from 0, and fewer than the options' streams.

    Args:
        program: What is allocated.
        mode: How.
        streams: Most streams of the automatic modes, from 1 to 64; the streams that one engine takes in turn
            in the default mode. ``cv`` has no use for it.

    Raises:
        InputError: Another number of streams.
    """
    check_streams(streams)
    if mode is Mode.DEFAULT:
        found = default_streams(program, streams)
    elif mode is Mode.CV:
        found = cube_vector_streams(program)
    else:
        found = _merged(program, mode, streams)
    return within(program, found, program.options.streams)


def check_streams(streams: int) -> None:
    """Refuse a number of streams that the graph engine's option does not take.

    Raises:
        InputError: It is not from 1 to 64.
    """
    if not 1 <= streams <= MOST_STREAMS:
        raise InputError(
            f"an allocation over {streams} streams; write a whole number from 1 to {MOST_STREAMS}"
        )


def _merged(program: Program, mode: Mode, streams: int) -> tuple[int, ...]:
    """Stream of each command in a mode that merges chains; labels keep streams of their own behind them."""
    hints = [command.stream_hint for command in program.graph.commands]
    labels = sorted({hint for hint in hints if hint is not None})
    most = max(1, min(streams, program.options.streams - len(labels)))
    dag = dag_of(program)
    units = units_of(dag)
    if mode is Mode.LOAD_BALANCE:
        stream_of = load_balance(dag, units, most)
    elif mode is Mode.MAIN_STREAM:
        stream_of = main_stream(dag, units, most)
    else:
        stream_of = weighted(dag, units, most, Replay(program, units, honest=mode is Mode.CORE_AWARE))
    for v in program.graph.topological_order:
        hint = hints[v]
        if hint is not None:
            stream_of[v] = most + labels.index(hint)
        elif v not in stream_of:  # it takes no time: it stays with what it waits for
            stream_of[v] = max((stream_of[u] for u in program.graph.predecessors[v]), default=0)
    return tuple(stream_of[v] for v in range(len(hints)))


def fetches(program: Program) -> tuple[Fetch, ...]:
    """Ways of prefetching that a program has a use for, the one that is taken first."""
    if program.options.prefetches > 0 and program.moves_buffers:
        return (Fetch.WHILE_FREE, Fetch.ON_DEMAND, Fetch.ALL_AT_ONCE)
    return (Fetch.ON_DEMAND,)


def in_program_order(program: Program, labels: tuple[int, ...], fetch: Fetch) -> Assignment:
    """Commands are issued in program order, each to its stream."""
    rule = Rule(launch=Launch.LABELS, fifo=True, fetch=fetch)
    return Assignment(order=program.graph.topological_order, labels=labels, rule=rule)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One mode with one number of streams, see :func:`allocate`."""

    mode: Mode
    streams: int = STREAMS

    def assign(self, program: Program) -> Assignment:
        """Streams of all commands, issued in program order."""
        labels = allocate(program, self.mode, self.streams)
        return in_program_order(program, labels, fetches(program)[0])

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return carry_out(program, self.assign(program)).plan


def sweep(program: Program) -> list[Allocation]:
    """What the autotuning sample tries: every mode with 2, 4 and 8 streams, or as many as are allowed."""
    sizes = sorted({min(size, program.options.streams) for size in SWEEP})
    modes = (Mode.LOAD_BALANCE, Mode.MAIN_STREAM, Mode.WEIGHTED)
    defaults = [Allocation(Mode.DEFAULT, parallel) for parallel in sorted({1, *sizes})]
    return [*defaults, Allocation(Mode.CV), *(Allocation(mode, size) for mode in modes for size in sizes)]


@dataclass(frozen=True, slots=True)
class Autotune:
    """The best of :func:`sweep` by the engine's objective, however it prefetches, the first of equals.

    Attributes:
        core_aware: Try our variant of the weighted mode too.
    """

    core_aware: bool = False

    def assign(self, program: Program) -> Assignment:
        """The best allocation under expected durations.

        Raises:
            EpisodeError: No allocation finishes.
        """
        return best_of(program, self.assignments(program))[0]

    def assignments(self, program: Program) -> list[Assignment]:
        """All that is tried, no two alike."""
        tried = sweep(program)
        if self.core_aware:
            tried += [Allocation(Mode.CORE_AWARE, a.streams) for a in tried if a.mode is Mode.WEIGHTED]
        labels = dict.fromkeys(allocate(program, each.mode, each.streams) for each in tried)
        return [in_program_order(program, streams, fetch) for streams in labels for fetch in fetches(program)]

    def plan(self, program: Program) -> Plan:
        """All decisions of the best allocation; raises as :meth:`assign` does."""
        return carry_out(program, self.assign(program)).plan


def allocation(mode: Mode, streams: int = STREAMS) -> Scheduler:
    """A scheduler that allocates by a mode.

    Raises:
        InputError: A number of streams that is not from 1 to 64.
    """
    check_streams(streams)
    return lambda seed: Allocation(mode, streams)


BY_STREAMS: dict[str, Callable[[int], Scheduler]] = {
    mode.value: partial(allocation, mode)
    for mode in (Mode.LOAD_BALANCE, Mode.MAIN_STREAM, Mode.WEIGHTED, Mode.CORE_AWARE)
}
"""Schedulers that take a number of streams, as in ``load_balance:4``."""

CANN: dict[str, Scheduler] = {
    "cann_default": allocation(Mode.DEFAULT, 1),
    "cann_cv": allocation(Mode.CV),
    **{name: make(STREAMS) for name, make in BY_STREAMS.items()},
    "cann_autotune": lambda seed: Autotune(),
}
