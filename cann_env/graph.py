"""What is to be done: buffers, kernels, commands, and the graph they form.

A :class:`CommandGraph` names things and knows no device: work is counted in operations and bytes,
never in time (unless a duration was measured). It never changes; compiling it for a device makes
the arrays the engine runs. Commands stand in *program order*: a command that reads a buffer depends
on the last command before it that writes it, a writer also on the readers since then.

The nouns are defined in :mod:`cann_env.commands`, their checks in :mod:`cann_env.graph_checks`; both are
reached through this module.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cann_env.commands import (
    Buffer,
    BufferKind,
    Command,
    CommandKind,
    CopyKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
    Operand,
    Scheme,
)
from cann_env.graph_checks import LONGEST_NS, check_acyclic, check_graph
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import networkx as nx

__all__ = [
    "Buffer",
    "BufferKind",
    "Command",
    "CommandGraph",
    "CommandKind",
    "CopyKind",
    "HostMemory",
    "Kernel",
    "KernelClass",
    "Level",
    "Operand",
    "Scheme",
    "from_networkx",
    "merge_requests",
]


@dataclass(frozen=True)
class CommandGraph:
    """A directed acyclic graph of commands over buffers.

    Args:
        name: For people and for file names.
        commands: In program order.
        buffers: In any order.

    Raises:
        InputError: Names the command or buffer, the value, and what would be right.
    """

    name: str
    commands: tuple[Command, ...]
    buffers: tuple[Buffer, ...] = ()

    def __post_init__(self) -> None:
        """Check that the graph is sound."""
        object.__setattr__(self, "commands", tuple(self.commands))
        object.__setattr__(self, "buffers", tuple(self.buffers))
        check_graph(self.name, self.commands, self.buffers)
        if len(self.topological_order) < len(self.commands):
            names = [command.name for command in self.commands]
            check_acyclic(self.name, names, self.predecessors, self.topological_order)

    @cached_property
    def command_index(self) -> dict[str, int]:
        """Position of each command in ``commands``."""
        return {command.name: i for i, command in enumerate(self.commands)}

    @cached_property
    def buffer_index(self) -> dict[str, int]:
        """Position of each buffer in ``buffers``."""
        return {buffer.name: i for i, buffer in enumerate(self.buffers)}

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each command the sorted indices of the commands it directly depends on."""
        edges = _data_predecessors(self.commands)
        for before, command in zip(edges, self.commands, strict=True):
            if command.after:
                before.update([self.command_index[name] for name in command.after])
        return tuple([tuple(sorted(before)) for before in edges])

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each command the sorted indices of the commands that directly depend on it."""
        out: list[list[int]] = [[] for _ in self.commands]
        for i, before in enumerate(self.predecessors):
            for j in before:
                out[j].append(i)
        return tuple(map(tuple, out))

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Indices of all commands, predecessors first; among those that could come next, the smallest."""
        if all(not before or before[-1] < i for i, before in enumerate(self.predecessors)):
            return tuple(range(len(self.commands)))  # the smallest that is left could always come next
        waiting = [len(before) for before in self.predecessors]
        free = [i for i, count in enumerate(waiting) if count == 0]
        order: list[int] = []
        while free:
            i = heapq.heappop(free)
            order.append(i)
            for j in self.successors[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    heapq.heappush(free, j)
        return tuple(order)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Show the graph to networkx; :func:`from_networkx` reads it back unchanged.

        Returns:
            A node for each command, by name and in program order, whose attributes are the command's other
            fields; an edge for each direct dependency, by data or by ``after``; the graph attributes ``name``
            (text) and ``buffers`` (tuple of :class:`Buffer`).
        """
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph(name=self.name, buffers=self.buffers)
        for command in self.commands:
            graph.add_node(command.name, **_attributes(command))
        for command, before in zip(self.commands, self.predecessors, strict=True):
            graph.add_edges_from((self.commands[i].name, command.name) for i in before)
        return graph


def from_networkx(graph: nx.DiGraph[str]) -> CommandGraph:
    """Read a graph as :meth:`CommandGraph.to_networkx` writes it, or one made by hand.

    Nodes are taken in their order as program order. An edge that neither the buffers nor ``after`` ask for is
    added to ``after`` of its head. A dependency by data stays even where its edge was removed.

    Args:
        graph: Nodes are command names with the fields of :class:`Command` as attributes (``kind`` at least);
            graph attributes ``name`` and ``buffers`` may be left out.

    Raises:
        InputError: A node has an attribute that is no field of a command, or no ``kind``; or the graph is
            unsound.
    """
    name = str(graph.graph.get("name", "graph"))
    commands = [_command_of(name, node, attributes) for node, attributes in graph.nodes(data=True)]
    implied = _data_predecessors(commands)
    complete = []
    for command, before in zip(commands, implied, strict=True):
        known = {commands[i].name for i in before}.union(command.after)
        extra = tuple(tail for tail in graph.predecessors(command.name) if tail not in known)
        complete.append(replace(command, after=command.after + extra) if extra else command)
    return CommandGraph(name, tuple(complete), tuple(graph.graph.get("buffers", ())))


def merge_requests(
    name: str, requests: Sequence[tuple[str, CommandGraph, int]], *, share_managed: bool = True
) -> CommandGraph:
    """Put the graphs of several requests side by side, as one device serves them.

    Commands and buffers become ``<request>/<name>``, commands carry the request's name and are released
    ``release_ns`` later than in their own graph. Weights, that is managed buffers that no command of their
    graph writes, are kept once for all requests with the same ``graph.name``, as ``<graph.name>/<buffer>``.

    Args:
        name: Of the merged graph.
        requests: For each request its name, what it runs, and when it arrives (ns).
        share_managed: False keeps a copy of the weights for each request.

    Raises:
        InputError: No request, two of one name, or two different weights that would be shared.
    """
    names = [request for request, _, _ in requests]
    if len(set(names)) < len(names):
        twice = next(request for request in names if names.count(request) > 1)
        raise InputError(
            f"graph {name!r}: two requests are named {twice!r}; give each request a name of its own"
        )
    commands: list[Command] = []
    merged: dict[str, Buffer] = {}
    origin: dict[str, Buffer] = {}
    shared: dict[int, dict[str, str]] = {}
    for request, graph, release_ns in requests:
        if id(graph) not in shared:
            shared[id(graph)] = _shared_buffers(graph) if share_managed else {}
        renamed = {buffer.name: f"{request}/{buffer.name}" for buffer in graph.buffers} | shared[id(graph)]
        for buffer in graph.buffers:
            new_name = renamed[buffer.name]
            if origin.setdefault(new_name, buffer) is buffer and new_name in merged:
                continue  # weights that an earlier request for the same model brought
            new = _renamed(buffer, new_name)
            known = merged.setdefault(new_name, new)
            if known is not new and known != new:
                raise InputError(
                    f"graph {name!r}, request {request!r}: the buffer {new_name!r} is {new}, but "
                    f"{known} before; give different models different graph names"
                )
        commands += [_of_request(request, command, renamed, release_ns) for command in graph.commands]
    if _stays_sound(requests, shared, commands, merged):
        return _side_by_side(name, commands, merged, [graph for _, graph, _ in requests])
    return CommandGraph(name, tuple(commands), tuple(merged.values()))


def _stays_sound(
    requests: Sequence[tuple[str, CommandGraph, int]],
    shared: Mapping[int, Mapping[str, str]],
    commands: Sequence[Command],
    buffers: Mapping[str, Buffer],
) -> bool:
    """Whether merged graphs, each of them sound, are plainly sound together: they share nothing but weights.

    Args:
        requests: See :func:`merge_requests`.
        shared: New names of the weights of each graph (by its id), by their old ones.
        commands: All commands, renamed.
        buffers: All buffers, by their new names.
    """
    weights = {name for names in shared.values() for name in names.values()}
    own = sum([len(graph.buffers) - len(shared[id(graph)]) for _, graph, _ in requests])
    return (
        bool(commands)
        and len({command.name for command in commands}) == len(commands)
        and len(buffers) == own + len(weights)
        and all(type(release_ns) is int and release_ns >= 0 for _, _, release_ns in requests)
        and max([command.release_ns for command in commands]) <= LONGEST_NS
    )


def _side_by_side(
    name: str, commands: Sequence[Command], buffers: Mapping[str, Buffer], parts: Sequence[CommandGraph]
) -> CommandGraph:
    """The graph of parts that were checked before and share nothing that is written."""
    predecessors: list[tuple[int, ...]] = []
    for part in parts:
        first = len(predecessors)
        predecessors += [tuple([first + i for i in before]) for before in part.predecessors]
    graph = object.__new__(CommandGraph)
    graph.__dict__.update(
        name=name,
        commands=tuple(commands),
        buffers=tuple(buffers.values()),
        predecessors=tuple(predecessors),
    )
    return graph


def _data_predecessors(commands: Sequence[Command]) -> list[set[int]]:
    """For each command the indices of those it depends on by the buffers both touch."""
    last_writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    edges: list[set[int]] = []
    for i, command in enumerate(commands):
        before: set[int] = set()
        for name in command.reads:
            if name in last_writer:
                before.add(last_writer[name])
            if name in readers:
                readers[name].append(i)
            else:
                readers[name] = [i]
        for name in command.writes:
            if name in last_writer:
                before.add(last_writer[name])
            before.update(readers.pop(name, ()))
            last_writer[name] = i
        before.discard(i)
        edges.append(before)
    return edges


def _attributes(command: Command) -> dict[str, Any]:
    return {field.name: getattr(command, field.name) for field in fields(command) if field.name != "name"}


def _command_of(graph: str, node: str, attributes: dict[str, Any]) -> Command:
    known = {field.name for field in fields(Command)} - {"name"}
    unknown = sorted(set(attributes) - known)
    if unknown:
        raise InputError(
            f"graph {graph!r}, node {node!r} has the attribute {unknown[0]!r}; "
            f"a command has {', '.join(sorted(known))}"
        )
    if "kind" not in attributes:
        raise InputError(f"graph {graph!r}, node {node!r} has no attribute 'kind'; give it a CommandKind")
    return Command(name=node, **attributes)


def _shared_buffers(graph: CommandGraph) -> dict[str, str]:
    """New names of the weights of a graph, by their old ones."""
    written = {name for command in graph.commands for name in command.writes}
    return {
        buffer.name: f"{graph.name}/{buffer.name}"
        for buffer in graph.buffers
        if buffer.kind is BufferKind.MANAGED and buffer.name not in written
    }


def _renamed(buffer: Buffer, name: str) -> Buffer:
    return Buffer(
        name=name,
        size_bytes=buffer.size_bytes,
        kind=buffer.kind,
        level=buffer.level,
        die=buffer.die,
        host_memory=buffer.host_memory,
    )


def _of_request(request: str, command: Command, renamed: dict[str, str], release_ns: int) -> Command:
    return Command(
        name=f"{request}/{command.name}",
        kind=command.kind,
        kernels=command.kernels,
        copy=command.copy,
        size_bytes=command.size_bytes,
        host_memory=command.host_memory,
        duration_ns=command.duration_ns,
        reads=tuple(map(renamed.__getitem__, command.reads)),
        writes=tuple(map(renamed.__getitem__, command.writes)),
        after=tuple([f"{request}/{name}" for name in command.after]) if command.after else (),
        release_ns=command.release_ns + release_ns,
        request=request,
        stream_hint=command.stream_hint,
    )
