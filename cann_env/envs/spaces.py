"""What an agent may see and do: each space beside the code that fills it, so that they cannot drift apart."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from cann_env.engine.observe import (
    OBS_BUFFER,
    OBS_COMMAND,
    OBS_DEVICE,
    OBS_HIGH,
    OBS_STREAM,
    copy_mask,
    observe,
)
from cann_env.engine.observe_graph import OBS_NODE, observe_graph
from cann_env.options import RunOptions, Window
from cann_env.units import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


FLAT_PARTS = ("commands", "streams", "moves", "device")
"""Parts of an observation in the order in which the engine writes them, one behind the other."""

GRAPH_PARTS = ("nodes", "node_mask", "edge_index", "edge_mask", "window")
"""Parts that the graph brings, in the order in which the engine takes their arrays."""


class ObservationMode(enum.StrEnum):
    """``window``: features of windows, streams and device; ``graph``: the whole padded graph as well."""

    WINDOW = "window"
    GRAPH = "graph"


class GraphCapacity(NamedTuple):
    """Most commands and dependency edges that the padded graph observation can hold."""

    nodes: int
    edges: int


def action_space(options: RunOptions) -> spaces.Discrete:
    """K*S issues (K where the stream is implied), P moves of buffers, one wait."""
    choices = 1 if options.window is Window.STARTABLE else options.streams
    return spaces.Discrete(options.commands * choices + options.slots + 1)


def observation_space(options: RunOptions, graph: GraphCapacity | None = None) -> spaces.Dict:
    """A flat dictionary of float32 vectors of fixed length and finite bounds.

    Tables are written row after row, since learning libraries take any other shape for an image.

    Args:
        options: Sizes of the windows and number of streams.
        graph: Capacity of the padded graph; None to leave the graph out.
    """
    parts: dict[str, spaces.Space[Any]] = {
        "commands": _box(options.commands * OBS_COMMAND),
        "streams": _box(options.streams * OBS_STREAM),
        "device": _box(OBS_DEVICE),
    }
    if options.slots:
        parts["moves"] = _box(options.slots * OBS_BUFFER)
    if graph is not None:
        most = float(graph.nodes)
        parts |= {
            "nodes": _box(graph.nodes * OBS_NODE),
            "node_mask": _box(graph.nodes, high=1.0),
            "edge_index": _box(2 * graph.edges, high=most),
            "edge_mask": _box(graph.edges, high=1.0),
            "window": _box(options.commands, high=most),
        }
    return spaces.Dict(parts)


def _box(length: int, high: float = OBS_HIGH) -> spaces.Box:
    return spaces.Box(0.0, high, (length,), np.float32)


def cuts_of(options: RunOptions, graph: GraphCapacity | None = None) -> dict[str, tuple[int, int]]:
    """Where each part begins and ends in a row that holds all of them, in the engine's order."""
    space = observation_space(options, graph)
    cuts = {}
    start = 0
    for name in (*FLAT_PARTS, *GRAPH_PARTS):
        if name in space.spaces:
            stop = start + spaces.flatdim(space[name])
            cuts[name] = (start, stop)
            start = stop
    return cuts


def encode(
    image: Image, state: Image, cuts: dict[str, tuple[int, int]], size: int
) -> dict[str, NDArray[np.float32]]:
    """The observation of a state without the graph, in fresh arrays that fit :func:`observation_space`.

    Args:
        image: Of the program.
        state: Of the episode.
        cuts: See :func:`cuts_of`.
        size: Length of all parts together.
    """
    flat = np.empty(size, np.float32)
    observe(image, state, flat)
    return {name: flat[start:stop] for name, (start, stop) in cuts.items()}


def encode_graph(program: Program, state: Image, graph: GraphCapacity) -> dict[str, NDArray[np.float32]]:
    """The parts that the graph adds to it, in fresh arrays.

    Raises:
        InputError: The graph does not fit the capacity.
    """
    check_capacity(program, graph)
    padded = {
        "nodes": np.empty((graph.nodes, OBS_NODE), np.float32),
        "node_mask": np.empty(graph.nodes, np.float32),
        "edge_index": np.empty((2, graph.edges), np.float32),
        "edge_mask": np.empty(graph.edges, np.float32),
        "window": np.empty(program.options.commands, np.float32),
    }
    observe_graph(program.image, state, *padded.values())
    return {name: part.reshape(-1) for name, part in padded.items()}


def encode_mask(program: Program, state: Image) -> NDArray[np.int8]:
    """int8, 1 where an action is legal, in a fresh array."""
    mask = np.empty(program.action_count, np.int8)
    copy_mask(program.image, state, mask)
    return mask


def edges_of(program: Program) -> int:
    """Dependency edges of a program."""
    return sum(len(before) for before in program.graph.predecessors)


def check_capacity(program: Program, graph: GraphCapacity) -> None:
    """Refuse a graph that the padded observation cannot hold.

    Raises:
        InputError: Says how large it would have to be.
    """
    nodes, edges = len(program.graph.commands), edges_of(program)
    if nodes > graph.nodes or edges > graph.edges:
        raise InputError(
            f"graph {program.graph.name!r} has {nodes} commands and {edges} edges; the graph observation "
            f"holds {graph.nodes} and {graph.edges}; pass graph_capacity=({nodes}, {edges}) or more"
        )
