"""A schedule as a plan: what the host does and when, and which events order the streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cann_env.capacity import capacity_bytes
from cann_env.engine.layout import Q20, RUNNING, S_NOW_NS, S_STATUS
from cann_env.engine.observe import copy_mask
from cann_env.engine.step import step
from cann_env.graph import BufferKind, CommandGraph, Level
from cann_env.options import Allocator, RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.schedulers.policy import episode_info
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.graph import Buffer
    from cann_env.schedule import Schedule

_BY_REQUEST: Final = ("fault", "prefetch", "evict", "writeback")
"""Moves between host and device."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the host does: ``issue`` a command on a stream, or ``prefetch``, ``lift``, ``offload`` a buffer.

    Attributes:
        at_ns: When the host begins it.
        call: One of the four words.
        target: Index of the command or buffer.
        stream: Of a command; -1 for a buffer.
    """

    at_ns: int
    call: str
    target: int
    stream: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A schedule, as whoever carries it out needs it.

    Attributes:
        schedule: Where it comes from.
        steps: In order.
        waits: For each command, those it depends on whose events its stream waits for beforehand.
        reuse: The same for the sake of memory that is used again.
        streams: How many there are, up to the last that is used.
        finish_ns: End of each command.
        moved: Indices of the buffers that move between host and device.
    """

    schedule: Schedule
    steps: tuple[Step, ...]
    waits: dict[int, tuple[int, ...]]
    reuse: dict[int, tuple[int, ...]]
    streams: int
    finish_ns: dict[int, int]
    moved: frozenset[int]

    @property
    def graph(self) -> CommandGraph:
        """What is run."""
        return self.schedule.graph

    @property
    def recorded(self) -> frozenset[int]:
        """Commands behind which some stream's wait needs an event."""
        waits = (*self.waits.values(), *self.reuse.values())
        return frozenset(producer for producers in waits for producer in producers)

    def touched(self, taken: Step) -> list[int]:
        """Indices of the buffers that a step names."""
        if taken.call != "issue":
            return [taken.target]
        command = self.graph.commands[taken.target]
        return [self.graph.buffer_index[name] for name in dict.fromkeys((*command.reads, *command.writes))]


def plan_of(schedule: Schedule) -> Plan:
    """Take a schedule apart.

    Raises:
        InputError: Its durations were drawn at random, so that no program could repeat them.
    """
    drawn = [c for c, factor in enumerate(schedule.noise) if factor != Q20]
    if drawn:
        name = schedule.graph.commands[drawn[0]].name
        raise InputError(
            f"graph {schedule.graph.name!r}, command {name!r}: its duration was drawn at random in this run "
            f"(factor {schedule.noise[drawn[0]] / Q20:.3f}); export a schedule without noise"
        )
    waits: dict[int, tuple[int, ...]] = {}
    reuse: dict[int, tuple[int, ...]] = {}
    for producer, consumer in schedule.waits:
        into = waits if producer in schedule.graph.predecessors[consumer] else reuse
        into[consumer] = (*into.get(consumer, ()), producer)
    return Plan(
        schedule=schedule,
        steps=tuple(_steps(schedule)),
        waits=waits,
        reuse=reuse,
        streams=1 + max(run.stream for run in schedule.commands),
        finish_ns={run.command: run.finish_ns for run in schedule.commands},
        moved=frozenset(row.buffer for row in schedule.transfers if row.cause in _BY_REQUEST),
    )


def runtime_options(schedule: Schedule) -> RunOptions:
    """How the runtime behaves in a schedule: what a program that carries it out is to be run with."""
    capacity = capacity_bytes(schedule.graph, schedule.device, schedule.options)
    return replace(schedule.options, hbm_bytes=capacity, memory_factor=None, noise=0.0)


def needs_graph(schedule: Schedule) -> bool:
    """Whether what happens depends on more of the graph than events and operands tell.

    That is so where memory is short, since what is needed last makes room; where the host pays for its calls,
    since then it also pays each time that it wakes; and where commands become known late.
    """
    tight = any(row.cause in ("evict", "writeback") for row in schedule.transfers)
    late = any(command.release_ns for command in schedule.graph.commands)
    return tight or late or schedule.options.submission is Submission.EAGER


def stream_die(schedule: Schedule, stream: int) -> int:
    """Home die of a stream."""
    dies = schedule.options.stream_dies
    return dies[stream] if dies else stream % schedule.device.dies


def is_pooled(buffer: Buffer) -> bool:
    """Whether some command allocates it, and it is given back after its last use."""
    return buffer.kind is BufferKind.DEVICE and buffer.level is Level.ABSENT


def settings(schedule: Schedule) -> str:
    """The options that matter to a program, as words; those that are as by default are left out."""
    options, plain = runtime_options(schedule), RunOptions()
    words = [f"submission={options.submission.value}"]
    if options.hbm_bytes != schedule.device.memory.hbm_bytes:
        words.append(f"hbm_bytes={options.hbm_bytes}")
    for name in ("eviction", "allocator", "pool_bytes", "pool_block_bytes", "prefetch_streams", "l2_bytes",
                 "l2_prefetch_bytes"):  # fmt: skip
        held = getattr(options, name)
        if held != getattr(plain, name):
            words.append(f"{name}={held.value if isinstance(held, Allocator) else held}")
    return " ".join(words)


def _steps(schedule: Schedule) -> list[Step]:
    """The decisions of a schedule, waits left out: each carries its time instead."""
    program = compile_graph(schedule.graph, schedule.device, schedule.options)
    state = program.new_state(np.asarray(schedule.noise, np.int64))
    info = episode_info(program, state)
    mask = np.zeros(program.action_count, np.int8)
    runs = {run.command: run for run in schedule.commands}
    window = info["window"] * info["choices"]
    kinds = [
        *["prefetch"] * info["prefetches"],
        *["lift"] * info["l2_prefetches"],
        *["offload"] * info["offloads"],
    ]
    found: list[Step] = []
    for action in schedule.actions:
        if state[S_STATUS] != RUNNING:
            break
        copy_mask(program.image, state, mask)
        if action < window:
            run = runs[int(info["ready"][action // info["choices"]])]
            found.append(Step(int(state[S_NOW_NS]), "issue", run.command, run.stream))
        elif action < program.action_count - 1:
            slot = action - window
            found.append(Step(int(state[S_NOW_NS]), kinds[slot], int(info["movable"][slot])))
        step(program.image, state, action)
    return found
