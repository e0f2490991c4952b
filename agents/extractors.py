"""Networks that treat the rows of a table alike, whatever their place and however many there are.

A flat network has to learn for each slot of a window anew what a short kernel looks like. Here one small
network reads every row, so what was learned in one slot holds in all, and the number of parameters depends
neither on K, S or P nor on the size of the graph. :class:`RowExtractor` reads the windows,
:class:`GraphExtractor` the whole padded graph as well, by passing messages along its edges. Both give a
context and an embedding a row; :mod:`agents.policies` scores actions from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.features import (
    COMMAND_FEATURES,
    DEVICE_FEATURES,
    MOVE_FEATURES,
    NODE_FEATURES,
    STREAM_FEATURES,
    Tables,
    node_features,
    tables_of,
)
from cann_env import InputError
from cann_env.engine.observe import OBS_BUFFER, OBS_COMMAND, OBS_STREAM
from cann_env.engine.observe_graph import OBS_NODE

if TYPE_CHECKING:
    from gymnasium import spaces

_STREAM_OF_NODE = 15  # column of ``nodes``: (stream + 1) / S
_PHASES = slice(0, 4)


class Rows(tuple[int, int, int]):
    """How many rows each table has: commands K, streams S, moves P."""

    __slots__ = ()

    @classmethod
    def of(cls, observation_space: spaces.Dict) -> Rows:
        """Those of an environment."""
        columns = {"commands": OBS_COMMAND, "streams": OBS_STREAM, "moves": OBS_BUFFER}
        parts = observation_space.spaces
        return cls(parts[n].shape[0] // width if n in parts else 0 for n, width in columns.items())


class RowExtractor(BaseFeaturesExtractor):
    """Embeds every row of every table, and the observation as a whole.

    The rows of a table share one network. Means and maxima over the filled rows of each table and the device
    vector make the context. So swapping two commands swaps their embeddings, and nothing else changes.

    Args:
        observation_space: The environment's; a padded graph in it is not looked at.
        width: Length W of the context and of each embedding, at least 1.

    The output has shape (batch, (1 + K + S + P) * W): context, commands, streams, moves.

    Raises:
        InputError: ``width`` is too small.
    """

    def __init__(self, observation_space: spaces.Dict, width: int = 64) -> None:
        rows = Rows.of(observation_space)
        super().__init__(observation_space, _checked(width) * (1 + sum(rows)))
        self.row_networks = nn.ModuleList(
            two_layers(columns, width, width)
            for columns in (COMMAND_FEATURES, STREAM_FEATURES, MOVE_FEATURES)
        )
        self.context_network = two_layers(DEVICE_FEATURES + 6 * width, width, width)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features of a batch of observations."""
        tables = tables_of(observations)
        embeddings = [network(table) for network, table in zip(self.row_networks, tables[:3], strict=True)]
        return _features(self.context_network, tables, embeddings)


class GraphExtractor(BaseFeaturesExtractor):
    """Embeds rows after messages have passed along the edges of the graph, forwards and backwards.

    Nodes are the commands of the padded graph, the streams and the buffers of the prefetch window. A command
    hears from its predecessors, its successors and its stream, a stream from the commands on it, and all hear
    from the context. A command of the window is embedded by its node and by its row of the window.

    Args:
        observation_space: With ``observation="graph"``.
        width: Length W of the context and of each embedding, at least 1.
        rounds: How often messages pass, at least 1.

    The output has shape (batch, (1 + K + S + P) * W): context, commands, streams, moves.

    Raises:
        InputError: ``width`` or ``rounds`` is too small, or there is no graph to look at.
    """

    def __init__(self, observation_space: spaces.Dict, width: int = 64, rounds: int = 3) -> None:
        if "nodes" not in observation_space.spaces:
            raise InputError("there is no graph to look at; make the environments with observation='graph'")
        if rounds < 1:
            raise InputError(f"rounds of the extractor is {rounds}; write a whole number of at least 1")
        rows = Rows.of(observation_space)
        super().__init__(observation_space, _checked(width) * (1 + sum(rows)))
        self.node_network = two_layers(NODE_FEATURES, width, width)
        self.row_networks = nn.ModuleList(
            two_layers(columns, width, width)
            for columns in (COMMAND_FEATURES, STREAM_FEATURES, MOVE_FEATURES)
        )
        self.device_network = nn.Linear(DEVICE_FEATURES, width)
        self.rounds = nn.ModuleList(_Round(width) for _ in range(rounds))
        self.window_network = two_layers(2 * width, width, width)
        self.context_network = two_layers(DEVICE_FEATURES + 6 * width, width, width)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features of a batch of observations."""
        tables = tables_of(observations)
        nodes = observations["nodes"].unflatten(1, (-1, OBS_NODE))
        present = observations["node_mask"].unsqueeze(2)
        links = _Links(observations, nodes, tables.streams.shape[1])
        h = self.node_network(node_features(nodes, tables)) * present
        commands, streams, moves = (
            network(table) for network, table in zip(self.row_networks, tables[:3], strict=True)
        )
        device = self.device_network(tables.device).unsqueeze(1)
        for each in self.rounds:
            h, streams = each(h, streams, device, links, present)
        padded = torch.cat([h.new_zeros(len(h), 1, h.shape[2]), h], 1)
        slot = observations["window"].long().unsqueeze(2).expand(-1, -1, h.shape[2])
        commands = self.window_network(torch.cat([commands, padded.gather(1, slot)], 2))
        return _features(self.context_network, tables, [commands, streams, moves])


class _Links:
    """Where messages go: rows of one long list of all nodes of the batch."""

    def __init__(self, observations: dict[str, Tensor], nodes: Tensor, streams: int) -> None:
        count = nodes.shape[1]
        ends = observations["edge_index"].long().unflatten(1, (2, -1))
        graph, edge = observations["edge_mask"].nonzero(as_tuple=True)
        self.producers = ends[graph, 0, edge] + graph * count
        self.consumers = ends[graph, 1, edge] + graph * count
        stream = (nodes[..., _STREAM_OF_NODE] * streams).round().long() - 1
        live = (stream >= 0) & (nodes[..., 3] == 0.0)  # queued or running
        graph, node = live.nonzero(as_tuple=True)
        self.carried = graph * count + node
        self.carriers = graph * streams + stream[graph, node]


class _Round(nn.Module):
    """One exchange of messages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, width, bias=False)
        self.from_stream = nn.Linear(width, width, bias=False)
        self.to_stream = nn.Linear(width, width, bias=False)
        self.own = nn.Linear(width, width)
        self.own_stream = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(
        self, h: Tensor, streams: Tensor, device: Tensor, links: _Links, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        flat, carriers = h.flatten(0, 1), streams.flatten(0, 1)
        heard = torch.zeros_like(flat)
        heard = heard.index_add(0, links.consumers, self.down(flat)[links.producers])
        heard = heard.index_add(0, links.producers, self.up(flat)[links.consumers])
        heard = heard.index_add(0, links.carried, self.from_stream(carriers)[links.carriers])
        loads = torch.zeros_like(carriers).index_add(0, links.carriers, self.to_stream(flat)[links.carried])
        news = torch.relu(self.own(h) + heard.view_as(h) + device)
        h = self.norm(h + self.mix(news)) * present
        streams = streams + torch.relu(self.own_stream(streams) + loads.view_as(streams))
        return h, streams


def two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A linear layer, a rectifier, a linear layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _features(context_network: nn.Module, tables: Tables, embeddings: list[Tensor]) -> Tensor:
    """Context and embeddings in one row; the context from the device and what rows have in common."""
    filled = [tables.commands[..., :1], torch.ones_like(tables.streams[..., :1]), tables.moves[..., :1]]
    summary = [tables.device]
    for rows, there in zip(embeddings, filled, strict=True):
        if rows.shape[1] == 0:
            summary += [rows.new_zeros(len(rows), rows.shape[2])] * 2
            continue
        kept = rows * there
        summary.append(kept.sum(1) / there.sum(1).clamp(min=1.0))
        most = rows.masked_fill(there == 0.0, -torch.inf).amax(1)
        summary.append(torch.where(most.isinf(), 0.0, most))
    context = context_network(torch.cat(summary, 1))
    return torch.cat([context, *(rows.flatten(1) for rows in embeddings)], 1)


def _checked(width: int) -> int:
    if width < 1:
        raise InputError(f"width of the extractor is {width}; write a whole number of at least 1")
    return width
