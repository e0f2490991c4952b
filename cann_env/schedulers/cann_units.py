"""What CANN's graph engine distributes over streams: chains of commands from a minimum path cover.

Labelled commands keep streams of their own, commands that take no time are bridged, and what remains is cut
into as few chains along direct dependencies as possible. That is a maximum matching of commands with one of
their direct successors (Fulkerson, Proceedings of the AMS 1956), found layer by layer (Hopcroft and Karp,
SIAM Journal on Computing 1973).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """The commands that are distributed, by their indices, and what lies between them.

    Attributes:
        order: Those commands, predecessors first.
        predecessors, successors: For every command of the program those of ``order`` that it is next to,
            ascending; empty for a command that was left out.
        level: For every command the number of commands on the longest path before it, those with labels
            counted and those without duration not.
        duration_ns: Of every command, alone on the device.
        place: Of every command in program order.
    """

    order: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    duration_ns: tuple[int, ...]
    place: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A chain of commands that stays together on one stream.

    Attributes:
        index: Among all units.
        members: Commands, the first to run first.
        levels: How many of them lie on each level.
        times_ns: Their durations on each level.
        cross: Dependencies between them and commands of other units.
    """

    index: int
    members: tuple[int, ...]
    levels: Counter[int]
    times_ns: Counter[int]
    cross: int

    @property
    def first_level(self) -> int:
        """The earliest level it has a command on."""
        return min(self.levels)

    @property
    def peak(self) -> int:
        """Most of its commands on one level."""
        return max(self.levels.values())

    @property
    def total_ns(self) -> int:
        """Its durations together."""
        return sum(self.times_ns.values())


def dag_of(program: Program) -> Dag:
    """The part of a program that is distributed: without labelled commands, free ones bridged."""
    commands = program.graph.commands
    order = program.graph.topological_order
    duration = tuple(tasks_of(program).duration_ns.tolist())
    edges = bridged(program.graph.predecessors, order, [ns == 0 for ns in duration])
    level = levels(edges, order)
    taken = [ns > 0 and command.stream_hint is None for ns, command in zip(duration, commands, strict=True)]
    before = tuple(tuple(u for u in edges[v] if taken[u]) if taken[v] else () for v in range(len(commands)))
    return Dag(
        order=tuple(v for v in order if taken[v]),
        predecessors=before,
        successors=_turned(before),
        level=level,
        duration_ns=duration,
        place=places(order),
    )


def places(order: Sequence[int]) -> tuple[int, ...]:
    """Where each command stands in an order."""
    place = [0] * len(order)
    for at, command in enumerate(order):
        place[command] = at
    return tuple(place)


def bridged(
    predecessors: Sequence[Sequence[int]], order: Sequence[int], free: Sequence[bool]
) -> tuple[tuple[int, ...], ...]:
    """Predecessors with every free command replaced by what stands before it.

    Args:
        predecessors: Of each command.
        order: All commands, predecessors first.
        free: Whether each command is left out.
    """
    before: list[tuple[int, ...]] = [()] * len(order)
    for v in order:
        kept: set[int] = set()
        for u in predecessors[v]:
            kept.update(before[u] if free[u] else (u,))
        before[v] = tuple(sorted(kept))
    return tuple(before)


def levels(predecessors: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[int, ...]:
    """Number of commands on the longest path before each one."""
    level = [0] * len(order)
    for v in order:
        level[v] = max((level[u] + 1 for u in predecessors[v]), default=0)
    return tuple(level)


def units_of(dag: Dag) -> tuple[Unit, ...]:
    """The chains of a minimum path cover, by the place of their first command."""
    following = maximum_matching(dag.successors)
    preceded = {v for v in following if v >= 0}
    units: list[Unit] = []
    for head in dag.order:
        if head in preceded:
            continue
        members = [head]
        while following[members[-1]] >= 0:
            members.append(following[members[-1]])
        units.append(_unit(dag, len(units), members))
    return tuple(units)


def _unit(dag: Dag, index: int, members: Sequence[int]) -> Unit:
    inside = set(members)
    times: Counter[int] = Counter()
    for v in members:
        times[dag.level[v]] += dag.duration_ns[v]
    return Unit(
        index=index,
        members=tuple(members),
        levels=Counter(dag.level[v] for v in members),
        times_ns=times,
        cross=sum(u not in inside for v in members for u in (*dag.predecessors[v], *dag.successors[v])),
    )


def maximum_matching(successors: Sequence[Sequence[int]]) -> list[int]:
    """Give as many commands as possible a direct successor of their own.

    Returns:
        For each command that successor, -1 for none. The same input always gives the same matching.
    """
    following = [-1] * len(successors)
    preceding = [-1] * len(successors)
    while True:
        layer = _layers(successors, following, preceding)
        if not layer:
            return following
        untried = [0] * len(successors)
        for root in range(len(successors)):
            if following[root] < 0:
                _augment(root, successors, layer, untried, following, preceding)


def _layers(
    successors: Sequence[Sequence[int]], following: Sequence[int], preceding: Sequence[int]
) -> list[int]:
    """Distance of each command from one without a successor of its own; empty if no path gains anything."""
    layer = [0 if v < 0 else -1 for v in following]
    front = [u for u, distance in enumerate(layer) if distance == 0]
    gains = False
    while front and not gains:
        reached = []
        for u in front:
            for v in successors[u]:
                w = preceding[v]
                if w < 0:
                    gains = True
                elif layer[w] < 0:
                    layer[w] = layer[u] + 1
                    reached.append(w)
        front = reached
    return layer if gains else []


def _augment(
    root: int,
    successors: Sequence[Sequence[int]],
    layer: list[int],
    untried: list[int],
    following: list[int],
    preceding: list[int],
) -> None:
    """Walk through the layers from a command to a successor that is free, and give all on the way theirs."""
    path = [root]
    while path:
        u = path[-1]
        if untried[u] == len(successors[u]):
            layer[u] = -1
            path.pop()
            continue
        v = successors[u][untried[u]]
        untried[u] += 1
        w = preceding[v]
        if w < 0:
            for tail in reversed(path):
                following[tail], preceding[v], v = v, tail, following[tail]
            return
        if layer[w] == layer[u] + 1:
            path.append(w)


def _turned(predecessors: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    out: list[list[int]] = [[] for _ in predecessors]
    for v, before in enumerate(predecessors):
        for u in before:
            out[u].append(v)
    return tuple(map(tuple, out))
