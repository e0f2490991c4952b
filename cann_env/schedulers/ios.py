"""Stages with a barrier between them, in the manner of IOS (Ding et al., MLSys 2021).

A *stage* is a set of *groups*, connected parts of the graph that no edge joins. Each group runs on a stream of
its own, its commands one after another; the next stage begins when all groups are done. Dynamic programming
over what is done finds the cheapest row of stages. A stage costs its makespan in the engine, simulated alone
on an empty device with all operands in place. As in the source a stage has at most so many groups and a group
so many commands, and a long graph is cut into blocks first, which are solved one by one.

Where a block is wide, even that is too much. Then only the stages of the most urgent groups are looked at, and
of the sets of commands that may be done after so many of them, only the most promising are kept: the result
is no longer the best there is, but never worse than one command a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cann_env.graph import CommandGraph
from cann_env.options import Objective, PrefetchMask, Window
from cann_env.program import Program, compile_graph
from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, carry_out
from cann_env.schedulers.chains import members
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.commands import Command
    from cann_env.schedulers.policy import Plan
    from cann_env.tasks import Tasks

Stage: TypeAlias = tuple[int, ...]
"""Groups, each a set of vertices as bits of an integer (see :mod:`cann_env.schedulers.chains`)."""


class Row(NamedTuple):
    """Stages one after another, and what they cost together (ns)."""

    stages: tuple[Stage, ...]
    cost_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far the search goes.

    Attributes:
        groups: Most groups a stage, if there are as many streams.
        commands: Most commands a group.
        block: Most commands a block.
        stages: Most stages looked at from one set of commands that are done.
        states: Most sets kept of those with the same number of commands done.
    """

    groups: int = 8
    commands: int = 3
    block: int = 40
    stages: int = 48
    states: int = 16


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a graph, its n vertices numbered in a topological order, the most urgent first.

    Attributes:
        predecessors, successors: For each vertex those within the block.
        duration_ns: Least time of each vertex.
    """

    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    duration_ns: tuple[int, ...]

    @property
    def everything(self) -> int:
        """The set of all vertices."""
        return (1 << len(self.duration_ns)) - 1

    def work_ns(self, chosen: int) -> int:
        """Sum of the least times of a set."""
        return sum(self.duration_ns[vertex] for vertex in members(chosen))

    def longest_ns(self, chosen: int) -> int:
        """Longest path within a set, by least times."""
        ends: dict[int, int] = {}
        for vertex in members(chosen):
            ready = max((ends[before] for before in members(self.predecessors[vertex] & chosen)), default=0)
            ends[vertex] = ready + self.duration_ns[vertex]
        return max(ends.values(), default=0)

    def startable(self, done: int) -> int:
        """Vertices that are not done and whose predecessors are."""
        left = self.everything & ~done
        return sum(1 << vertex for vertex in members(left) if self.predecessors[vertex] & ~done == 0)

    def connected(self, group: int) -> bool:
        """Whether a set hangs together."""
        reached = fresh = group & -group
        while fresh:
            around = 0
            for vertex in members(fresh):
                around |= self.predecessors[vertex] | self.successors[vertex]
            fresh = around & group & ~reached
            reached |= fresh
        return reached == group


def groups_after(block: Block, done: int, most: int) -> list[int]:
    """Connected sets of at most ``most`` vertices that hold all their predecessors but those that are done.

    The most urgent come first, and of those with the same first vertex the largest.
    """
    found: set[int] = set()
    fresh = {1 << vertex for vertex in members(block.startable(done))}
    while fresh:
        found |= fresh
        grown = set()
        for group in fresh:
            if group.bit_count() < most:
                grown |= {group | 1 << vertex for vertex in _growth(block, done, group)}
        fresh = grown - found
    connected = [group for group in found if block.connected(group)]
    return sorted(connected, key=lambda group: (group & -group, -group.bit_count(), group))


def _growth(block: Block, done: int, group: int) -> Iterator[int]:
    """Vertices a set can grow by: successors, and what those still wait for."""
    around = 0
    for vertex in members(group):
        around |= block.successors[vertex]
    fresh = around
    while fresh:
        before = 0
        for vertex in members(fresh):
            before |= block.predecessors[vertex]
        fresh = before & ~around & ~done & ~group
        around |= fresh
    held = done | group
    for vertex in members(around & ~held):
        if block.predecessors[vertex] & ~held == 0:
            yield vertex


def stages_after(block: Block, done: int, groups: int, commands: int) -> Iterator[Stage]:
    """All stages that can come next, each once; first those of the most urgent groups.

    Groups that share no vertex are joined by no edge, as each holds all its predecessors.
    """
    candidates = groups_after(block, done, commands)
    seen: set[Stage] = set()
    for size in range(commands, 0, -1):
        urgent: list[int] = []
        for group in candidates:
            if group.bit_count() <= size and not any(group & other for other in urgent):
                urgent.append(group)
        for width in range(min(groups, len(urgent)), 0, -1):
            stage = tuple(urgent[:width])
            if stage not in seen:
                seen.add(stage)
                yield stage
    for stage in _combinations(candidates, groups):
        if stage not in seen:
            yield stage


def _combinations(candidates: list[int], most: int) -> Iterator[Stage]:
    """Sets of one to ``most`` disjoint groups."""
    stack: list[tuple[int, int, Stage]] = [(0, 0, ())]
    while stack:
        at, taken, stage = stack.pop()
        if stage:
            yield stage
        if len(stage) == most:
            continue
        for following in range(len(candidates) - 1, at - 1, -1):
            if not candidates[following] & taken:
                stack.append((following + 1, taken | candidates[following], (*stage, candidates[following])))


class _Reached(NamedTuple):
    """How a set of vertices came to be done: cost up to then, what was done before, and the stage."""

    cost_ns: int
    before: int
    stage: Stage


def cheapest_row(block: Block, cost: Callable[[Stage], int], limits: Limits) -> Row:
    """The cheapest row of stages; see :mod:`cann_env.schedulers.ios` for when it really is.

    Args:
        block: What to run.
        cost: Makespan of a stage alone (ns), at least the longest of its groups.
        limits: How far to go.
    """
    singles = tuple((1 << vertex,) for vertex in range(len(block.duration_ns)))
    best = Row(singles, sum(cost(stage) for stage in singles))
    layers: list[dict[int, _Reached]] = [{} for _ in range(len(singles) + 1)]
    layers[0][0] = _Reached(0, 0, ())
    for layer in layers[:-1]:
        for done in _promising(block, layer, limits.states):
            _extend(block, cost, limits, layers, done, best.cost_ns)
    last = layers[-1].get(block.everything)
    return best if last is None else Row(_stages_of(layers, block.everything), last.cost_ns)


def _promising(block: Block, layer: dict[int, _Reached], most: int) -> list[int]:
    """Sets worth going on from: all if there are few, else those that have come forward fastest."""
    if len(layer) <= most:
        return list(layer)
    total = block.work_ns(block.everything)

    def promise(done: int) -> tuple[int, int]:
        spent = layer[done].cost_ns
        path = spent + block.longest_ns(block.everything & ~done)
        return max(path, spent * total // max(block.work_ns(done), 1)), done

    return sorted(layer, key=promise)[:most]


def _extend(
    block: Block,
    cost: Callable[[Stage], int],
    limits: Limits,
    layers: list[dict[int, _Reached]],
    done: int,
    bound: int,
) -> None:
    """Note what each stage after a set leads to, unless it surely costs ``bound`` or more, or was known."""
    spent = layers[done.bit_count()][done].cost_ns
    for stage in islice(stages_after(block, done, limits.groups, limits.commands), limits.stages):
        after = done | sum(stage)
        layer = layers[after.bit_count()]
        known = layer[after].cost_ns if after in layer else bound
        rest = block.longest_ns(block.everything & ~after)
        least = spent + max(map(block.work_ns, stage))
        if least >= known or least + rest >= bound:
            continue
        reached = spent + cost(stage)
        if reached < known and reached + rest < bound:
            layer[after] = _Reached(reached, done, stage)


def _stages_of(layers: list[dict[int, _Reached]], done: int) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    while done:
        reached = layers[done.bit_count()][done]
        stages.append(reached.stage)
        done = reached.before
    return tuple(reversed(stages))


def cut(tasks: Tasks, most: int) -> list[list[int]]:
    """Cut a graph into blocks of at most ``most`` commands, predecessors in the same block or a former one.

    Commands come in the order in which they could start at the earliest. A block is at least half as long as
    it may be, and ends where the fewest commands have successors behind the cut; of equals, the latest.
    """
    order = sorted(range(len(tasks.rank)), key=_earliest(tasks).__getitem__)
    place = {task: at for at, task in enumerate(order)}
    last = [max(map(place.__getitem__, tasks.successors(task)), default=-1) for task in order]
    blocks = []
    first = 0
    while len(order) - first > most:
        ends = range(first + most, first + (most + 1) // 2 - 1, -1)
        end = min(ends, key=lambda end: sum(after >= end for after in last[:end]))
        blocks.append(order[first:end])
        first = end
    return [*blocks, order[first:]]


def _earliest(tasks: Tasks) -> list[tuple[int, int]]:
    """For each command when it could start, and its rank."""
    heads = tasks.release_ns.tolist()
    for task in np.argsort(tasks.rank).tolist():
        for after in tasks.successors(task):
            heads[after] = max(heads[after], heads[task] + int(tasks.duration_ns[task]))
    return list(zip(heads, tasks.rank.tolist(), strict=True))


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
        limits: How far to search.
    """

    limits: Limits = Limits()

    def assign(self, program: Program) -> Assignment:
        """Stages, with a label for each group."""
        tasks, costs = tasks_of(program), Costs(program)
        limits = replace(self.limits, groups=min(self.limits.groups, program.options.streams))
        order: list[int] = []
        labels, stages = [0] * len(tasks.rank), [0] * len(tasks.rank)
        count = 0
        for members_of_block in cut(tasks, limits.block):
            chosen = sorted(members_of_block, key=tasks.rank.__getitem__)
            for stage in self._row(tasks, costs, chosen, limits).stages:
                for label, group in enumerate(stage):
                    for vertex in members(group):
                        labels[chosen[vertex]], stages[chosen[vertex]] = label, count
                order += [chosen[vertex] for vertex in members(sum(stage))]
                count += 1
        fetch = Fetch.WHILE_FREE if program.options.prefetch_mask is PrefetchMask.STRICT else Fetch.ON_DEMAND
        rule = Rule(launch=Launch.LABELS, fifo=True, fetch=fetch)
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
