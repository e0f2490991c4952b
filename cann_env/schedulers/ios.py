"""Stages with a barrier between them, in the manner of IOS (Ding et al., MLSys 2021).

A stage costs its makespan in the engine, simulated alone on an empty device with all operands in place;
stages that look the same are simulated once. As in the source a long graph is cut into blocks first, which
are solved one by one; :mod:`cann_env.schedulers.stages` finds the cheapest row of stages of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cann_env.graph import CommandGraph
from cann_env.options import Objective, PrefetchMask, Window
from cann_env.program import Program, compile_graph
from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, carry_out, fetch_of
from cann_env.schedulers.chains import members
from cann_env.schedulers.stages import Block, Limits, Row, Stage, cheapest_row
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Command
    from cann_env.schedulers.policy import Plan
    from cann_env.tasks import Tasks


def cut(tasks: Tasks, most: int) -> list[list[int]]:
    """Cut a graph into blocks of at most ``most`` commands, predecessors in the same block or a former one.

    Commands come in the order in which they could start at the earliest. No block holds commands that become
    known at different times, as the first ones would wait for the others. What is longer than ``most`` is cut
    where the fewest commands have successors behind the cut, so that each part is at least half as long as it
    may be; of equals, at the latest.
    """
    known, heads = _earliest(tasks)
    order = sorted(range(len(tasks.rank)), key=lambda task: (known[task], heads[task], tasks.rank[task]))
    blocks: list[list[int]] = []
    for _, together in groupby(order, key=known.__getitem__):
        blocks += _narrow_cuts(tasks, list(together), most)
    return blocks


def _narrow_cuts(tasks: Tasks, order: list[int], most: int) -> list[list[int]]:
    place = {task: at for at, task in enumerate(order)}
    last = [
        max((place.get(after, len(order)) for after in tasks.successors(task)), default=-1) for task in order
    ]
    blocks = []
    first = 0
    while len(order) - first > most:
        ends = range(first + most, first + (most + 1) // 2 - 1, -1)
        end = min(ends, key=lambda end: sum(after >= end for after in last[:end]))
        blocks.append(order[first:end])
        first = end
    return [*blocks, order[first:]]


def _earliest(tasks: Tasks) -> tuple[list[int], list[int]]:
    """For each command when it is known that it can ever run, and when it could start at the earliest."""
    known, heads = tasks.release_ns.tolist(), tasks.release_ns.tolist()
    for task in np.argsort(tasks.rank).tolist():
        for after in tasks.successors(task):
            known[after] = max(known[after], known[task])
            heads[after] = max(heads[after], heads[task] + int(tasks.duration_ns[task]))
    return known, heads


def block_of(tasks: Tasks, chosen: Sequence[int]) -> Block:
    """The block of some commands; ``chosen`` is in the order of its vertices."""
    vertex = {task: at for at, task in enumerate(chosen)}

    def within(neighbours: list[int]) -> int:
        return sum(1 << vertex[task] for task in neighbours if task in vertex)

    return Block(
        tuple(within(tasks.predecessors(task)) for task in chosen),
        tuple(within(tasks.successors(task)) for task in chosen),
        tuple(int(tasks.duration_ns[task]) for task in chosen),
    )


_Shape: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""A group without names: for each command its number in :class:`Costs`, and its predecessors in the group."""


class Costs:
    """Makespans of stages of one program, simulated once for each that looks different."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._commands: list[Command] = []  # one of each kind
        kinds: dict[Command, int] = {}
        self._kinds: list[int] = []
        for command in program.graph.commands:
            bare = _bare(command)
            if bare not in kinds:
                kinds[bare] = len(kinds)
                self._commands.append(bare)
            self._kinds.append(kinds[bare])
        self._known: dict[tuple[_Shape, ...], int] = {}
        self._options = replace(
            program.options,
            prefetches=0,
            l2_prefetches=0,
            offloads=0,
            prefetch_mask=PrefetchMask.STRICT,
            noise=0.0,
            objective=Objective.MAKESPAN,
            window=Window.ISSUABLE,
            hbm_bytes=None,
            memory_factor=None,
            pool_bytes=None,
        )

    def of(self, groups: Sequence[Sequence[int]], tasks: Tasks) -> int:
        """Makespan (ns) of a stage whose groups hold these commands, in the order in which they run."""
        shapes = tuple(sorted(self._shape(group, tasks) for group in groups))
        if shapes not in self._known:
            self._known[shapes] = self._simulate(shapes)
        return self._known[shapes]

    def _shape(self, group: Sequence[int], tasks: Tasks) -> _Shape:
        at = {task: i for i, task in enumerate(group)}
        return tuple(
            (self._kinds[task], tuple(at[before] for before in tasks.predecessors(task) if before in at))
            for task in group
        )

    def _simulate(self, shapes: tuple[_Shape, ...]) -> int:
        commands: list[Command] = []
        labels: list[int] = []
        for label, shape in enumerate(shapes):
            first = len(commands)
            for kind, before in shape:
                name = f"{len(commands)}"
                after = tuple(f"{first + i}" for i in before)
                commands.append(replace(self._commands[kind], name=name, after=after))
                labels.append(label)
        graph = CommandGraph("stage", tuple(commands))
        program = compile_graph(graph, self._program.device, self._options)
        assignment = Assignment(
            order=graph.topological_order, labels=tuple(labels), rule=Rule(fetch=Fetch.ON_DEMAND)
        )
        return carry_out(program, assignment).objective_ns


def _bare(command: Command) -> Command:
    """A command without names, buffers and dependencies."""
    kernels = tuple(replace(kernel, name="kernel") for kernel in command.kernels)
    return replace(
        command,
        name="",
        kernels=kernels,
        reads=(),
        writes=(),
        after=(),
        release_ns=0,
        request="",
        stream_hint=None,
    )


@dataclass(frozen=True, slots=True)
class Stages:
    """A planner that plays the cheapest rows of stages of all blocks, one after another.

    Attributes:
        limits: How far to search; a stage has never more groups than there are streams.
        block: Most commands a block.
    """

    limits: Limits = field(default_factory=Limits)
    block: int = 40

    def assign(self, program: Program) -> Assignment:
        """Stages, with a label for each group."""
        tasks, costs = tasks_of(program), Costs(program)
        limits = replace(self.limits, groups=min(self.limits.groups, program.options.streams))
        order: list[int] = []
        labels, stages = [0] * len(tasks.rank), [0] * len(tasks.rank)
        count = 0
        for members_of_block in cut(tasks, self.block):
            chosen = sorted(members_of_block, key=tasks.rank.__getitem__)
            for stage in self._row(tasks, costs, chosen, limits).stages:
                for label, group in enumerate(stage):
                    for vertex in members(group):
                        labels[chosen[vertex]], stages[chosen[vertex]] = label, count
                order += [chosen[vertex] for vertex in members(sum(stage))]
                count += 1
        rule = Rule(launch=Launch.LABELS, fifo=True, fetch=fetch_of(program))
        return Assignment(order=tuple(order), labels=tuple(labels), stages=tuple(stages), rule=rule)

    def _row(self, tasks: Tasks, costs: Costs, chosen: Sequence[int], limits: Limits) -> Row:
        def cost(stage: Stage) -> int:
            return costs.of([[chosen[vertex] for vertex in members(group)] for group in stage], tasks)

        return cheapest_row(block_of(tasks, chosen), cost, limits)

    def plan(self, program: Program) -> Plan:
        """All decisions.

        Raises:
            EpisodeError: The stages do not finish the graph.
        """
        return carry_out(program, self.assign(program)).plan
