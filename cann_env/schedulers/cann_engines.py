"""CANN's default allocation of streams: one for each engine, with some engines attached to a predecessor's.

First come the commands that carry a stream label (``stream_hint``): each label has a stream of its own. Then
connected commands of one engine form groups, and groups are given streams in program order: collectives one
of their own, AI CPU work and host callbacks that of a predecessor where the rules allow it, every other
engine its own. At last a command whose neighbours all lie on one other stream, with nothing between them
there, moves to it. Copies, which the runtime's own engine would attach, go by their DMA engines here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from cann_env.graph import CommandKind, CopyKind, KernelClass
from cann_env.schedulers.cann_units import places
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.graph import Command
    from cann_env.program import Program

ENGINES = ("aicore", "vector", "aicpu", "h2d", "d2h", "sdma", "hcom", "callback")
"""Engines by their cost: where a group may attach to several predecessors, the cheapest one's is taken."""
ATTACHING = frozenset({"aicpu", "callback"})
INDEPENDENT = frozenset({"hcom"})

_OF_CLASS = {
    KernelClass.CUBE: "aicore",
    KernelClass.MIX: "aicore",
    KernelClass.VECTOR: "vector",
    KernelClass.AICPU: "aicpu",
}
_OF_COPY = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_OF_KIND = {CommandKind.COLLECTIVE: "hcom", CommandKind.CALLBACK: "callback"}


def engine_of(command: Command) -> str:
    """The engine that owns a command; for fused kernels the one of them that comes first in ENGINES."""
    if command.kernels:
        owners = [_OF_CLASS[kernel.kernel_class] for kernel in command.kernels]
        return min(owners, key=ENGINES.index)
    return _OF_COPY[command.copy] if command.copy else _OF_KIND[command.kind]


def default_streams(program: Program, parallel: int = 1) -> tuple[int, ...]:
    """Stream of each command by engine.

    Args:
        program: What is allocated.
        parallel: Streams that one engine takes in turn.
    """
    engines = [engine_of(command) for command in program.graph.commands]
    return _streams(program, engines, parallel)


def cube_vector_streams(program: Program) -> tuple[int, ...]:
    """Stream of each command in the mode ``cv``: vector work leaves the AI core's stream.

    Except where it depends on the nearest AI core command before it in program order, or the nearest one
    after it depends on it: then it stays.
    """
    graph = program.graph
    engines = [engine_of(command) for command in graph.commands]
    order = graph.topological_order
    cubes = [at for at, v in enumerate(order) if engines[v] == "aicore"]
    for at, v in enumerate(order):
        if engines[v] != "vector":
            continue
        after = bisect_left(cubes, at)
        linked = after > 0 and order[cubes[after - 1]] in graph.predecessors[v]
        linked |= after < len(cubes) and v in graph.predecessors[order[cubes[after]]]
        if linked:
            engines[v] = "aicore"
    return _streams(program, engines, 1)


class _Group(NamedTuple):
    """Connected commands of one engine, the first in program order first; the groups around them."""

    engine: str
    members: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def _streams(program: Program, engines: Sequence[str], parallel: int) -> tuple[int, ...]:
    graph = program.graph
    hints = [command.stream_hint for command in graph.commands]
    labels = sorted({hint for hint in hints if hint is not None})
    groups = _groups(graph.predecessors, graph.topological_order, engines, hints)
    owner = _by_dependency(groups, hints, parallel)
    names = sorted(set(owner), key=lambda name: (ENGINES.index(name[0]), name[1]))
    number = {name: len(labels) + i for i, name in enumerate(names)}
    streams = [0] * len(hints)
    for group, name in zip(groups, owner, strict=True):
        for v in group.members:
            hint = hints[v]
            streams[v] = number[name] if hint is None else labels.index(hint)
    fixed = [hint is not None or engine in INDEPENDENT for hint, engine in zip(hints, engines, strict=True)]
    return without_detours(streams, graph.predecessors, graph.successors, graph.topological_order, fixed)


def _groups(
    predecessors: Sequence[Sequence[int]],
    order: Sequence[int],
    engines: Sequence[str],
    hints: Sequence[int | None],
) -> list[_Group]:
    """Cut a graph into connected groups of one engine (labelled commands alone) that do not form a circle."""
    group_of: dict[int, int] = {}
    members: list[list[int]] = []
    reach: list[int] = []  # for each group a set of bits: the groups before it, itself included
    for v in order:
        around = sorted({group_of[u] for u in predecessors[v]})
        before = 0
        for g in around:
            before |= reach[g]
        joined = -1
        for g in around:
            others = [reach[h] for h in around if h != g]
            same = engines[members[g][0]] == engines[v] and hints[members[g][0]] is None and hints[v] is None
            if same and not any(bits >> g & 1 for bits in others):
                joined = g
                break
        if joined < 0:
            joined = len(members)
            members.append([])
            reach.append(before | 1 << joined)
        members[joined].append(v)
        group_of[v] = joined
        if before & ~reach[joined]:
            _widen(reach, joined, before)
    return _linked(predecessors, members, group_of, engines)


def _widen(reach: list[int], joined: int, before: int) -> None:
    """A group has gained groups before it: so have all those behind it."""
    for g, bits in enumerate(reach):
        if bits >> joined & 1:
            reach[g] |= before


def _linked(
    predecessors: Sequence[Sequence[int]],
    members: Sequence[Sequence[int]],
    group_of: dict[int, int],
    engines: Sequence[str],
) -> list[_Group]:
    before = [
        sorted({group_of[u] for v in some for u in predecessors[v]} - {g}) for g, some in enumerate(members)
    ]
    after: list[list[int]] = [[] for _ in members]
    for g, some in enumerate(before):
        for h in some:
            after[h].append(g)
    groups = [
        _Group(engines[some[0]], tuple(some), tuple(before[g]), tuple(after[g]))
        for g, some in enumerate(members)
    ]
    return groups


def _by_dependency(
    groups: Sequence[_Group], hints: Sequence[int | None], parallel: int
) -> list[tuple[str, int]]:
    """The stream of each group, by the engine that opened it and its number there."""
    free: tuple[str, int] = ("", 0)
    owner = [free] * len(groups)
    opened: Counter[str] = Counter()
    for g in _first_to_last(groups):
        group = groups[g]
        if hints[group.members[0]] is not None:
            owner[g] = (group.engine, 0)
            continue
        hosts = [h for h in group.before if _may_attach(groups, hints, owner, h, g)]
        if hosts:
            owner[g] = owner[min(hosts, key=lambda h: (ENGINES.index(groups[h].engine), h))]
        else:
            owner[g] = (group.engine, opened[group.engine] % parallel)
            opened[group.engine] += 1
    return owner


def _first_to_last(groups: Sequence[_Group]) -> list[int]:
    """Groups in an order in which those before come first; of several the one that was opened first."""
    waiting = [len(group.before) for group in groups]
    ready = [g for g, count in enumerate(waiting) if count == 0]
    done = []
    while ready:
        g = ready.pop(0)
        done.append(g)
        for h in groups[g].after:
            waiting[h] -= 1
            if waiting[h] == 0:
                insort(ready, h)
    return done


def _may_attach(
    groups: Sequence[_Group], hints: Sequence[int | None], owner: Sequence[tuple[str, int]], host: int, g: int
) -> bool:
    """Whether a group may go on on the stream of one before it."""
    engine, other = groups[g].engine, groups[host].engine
    if other in INDEPENDENT or hints[groups[host].members[0]] is not None:
        return False
    if any(groups[h].engine == engine for h in groups[host].after if h != g):
        return False
    return other == engine or engine in ATTACHING or owner[host][0] == engine


def without_detours(
    streams: Sequence[int],
    predecessors: Sequence[Sequence[int]],
    successors: Sequence[Sequence[int]],
    order: Sequence[int],
    fixed: Sequence[bool],
) -> tuple[int, ...]:
    """Move a command to the stream where all its neighbours lie, if nothing lies between them there.

    Args:
        streams: Of each command.
        predecessors: Of each command.
        successors: Of each command.
        order: All commands in program order.
        fixed: Whether a command stays where it is.
    """
    stream_of = list(streams)
    place = places(order)
    lying: dict[int, list[int]] = defaultdict(list)
    for v in order:
        lying[stream_of[v]].append(place[v])
    for v in order:
        near = {stream_of[u] for u in (*predecessors[v], *successors[v])}
        if fixed[v] or len(near) != 1 or stream_of[v] in near or not predecessors[v] or not successors[v]:
            continue
        there = near.pop()
        last = max(place[u] for u in predecessors[v])
        first = min(place[u] for u in successors[v])
        if bisect_left(lying[there], first) - bisect_left(lying[there], last) == 1:
            lying[stream_of[v]].remove(place[v])
            stream_of[v] = there
            insort(lying[there], place[v])
    return tuple(stream_of)


def within(program: Program, streams: Sequence[int], most: int) -> tuple[int, ...]:
    """Number streams from 0 and, where there are more than allowed, let the least busy ones join others."""
    used = sorted(set(streams))
    duration = tasks_of(program).duration_ns.tolist()
    busy: Counter[int] = Counter()
    for v, stream in enumerate(streams):
        busy[stream] += duration[v]
    ranked = sorted(used, key=lambda stream: (-busy[stream], stream))
    kept = sorted(ranked[:most])
    joins = {stream: stream for stream in kept}
    for stream in ranked[most:]:
        joins[stream] = min(kept, key=lambda other: (busy[other], other))
        busy[joins[stream]] += busy[stream]
    return tuple(kept.index(joins[stream]) for stream in streams)
