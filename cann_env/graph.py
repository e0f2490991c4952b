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
    Scheme,
)
from cann_env.graph_checks import check_acyclic, check_graph
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        check_acyclic(self.name, tuple(self.command_index), self.predecessors, self.topological_order)

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
        index = self.command_index
        edges = _data_predecessors(self.commands)
        for before, command in zip(edges, self.commands, strict=True):
            before.update(index[name] for name in command.after)
        return tuple(tuple(sorted(before)) for before in edges)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each command the sorted indices of the commands that directly depend on it."""
        out: list[list[int]] = [[] for _ in self.commands]
        for i, before in enumerate(self.predecessors):
            for j in before:
                out[j].append(i)
        return tuple(tuple(after) for after in out)

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Indices of all commands, predecessors first; among those that could come next, the smallest."""
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
    buffers: dict[str, Buffer] = {}
    for request, graph, release_ns in requests:
        renamed = _renamed_buffers(request, graph, share_managed)
        for buffer in graph.buffers:
            merged = replace(buffer, name=renamed[buffer.name])
            if buffers.setdefault(merged.name, merged) != merged:
                raise InputError(
                    f"graph {name!r}, request {request!r}: the buffer {merged.name!r} is {merged}, but "
                    f"{buffers[merged.name]} before; give different models different graph names"
                )
        commands += [_of_request(request, command, renamed, release_ns) for command in graph.commands]
    return CommandGraph(name, tuple(commands), tuple(buffers.values()))


def _data_predecessors(commands: Sequence[Command]) -> list[set[int]]:
    """For each command the indices of those it depends on by the buffers both touch."""
    last_writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    edges: list[set[int]] = []
    for i, command in enumerate(commands):
        before = {last_writer[name] for name in (*command.reads, *command.writes) if name in last_writer}
        for name in command.writes:
            before.update(readers.get(name, ()))
        for name in command.reads:
            readers.setdefault(name, []).append(i)
        for name in command.writes:
            last_writer[name] = i
            readers[name] = []
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


def _renamed_buffers(request: str, graph: CommandGraph, share_managed: bool) -> dict[str, str]:
    written = {name for command in graph.commands for name in command.writes}
    shared = {
        buffer.name
        for buffer in graph.buffers
        if share_managed and buffer.kind == BufferKind.MANAGED and buffer.name not in written
    }
    return {
        buffer.name: f"{graph.name if buffer.name in shared else request}/{buffer.name}"
        for buffer in graph.buffers
    }


def _of_request(request: str, command: Command, renamed: dict[str, str], release_ns: int) -> Command:
    return replace(
        command,
        name=f"{request}/{command.name}",
        reads=tuple(renamed[name] for name in command.reads),
        writes=tuple(renamed[name] for name in command.writes),
        after=tuple(f"{request}/{name}" for name in command.after),
        release_ns=command.release_ns + release_ns,
        request=request,
    )
