"""What networks read of an observation: its own features, and times that do not depend on how long all takes.

Times in observations are shares of the whole episode, so in a graph of a thousand commands all of them are
tiny. Beside their square roots stand the same times against the mean duration of what may be issued now:
these look alike in small graphs and in large ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from cann_env.engine.observe import OBS_BUFFER, OBS_COMMAND, OBS_DEVICE, OBS_STREAM
from cann_env.engine.observe_graph import OBS_NODE

_LEAST: Final = 1e-6  # of an episode: nothing is divided by less

# Columns of the observation that hold times; see the docstring of CannEnv.
_COMMAND_TAIL, _COMMAND_TIMES = 1, [2, 14, 15, 19]
_STREAM_TIMES = [2]
_MOVE_TAIL, _MOVE_TIMES = 3, [2]
_DEVICE_TIMES = [1, 16, 17, 18, 22, 23]
_NODE_TAIL, _NODE_TIMES = 4, [5, 14]
_NODE_DURATION = 5

COMMAND_FEATURES: Final = OBS_COMMAND + 1 + len(_COMMAND_TIMES)
STREAM_FEATURES: Final = OBS_STREAM + len(_STREAM_TIMES)
MOVE_FEATURES: Final = OBS_BUFFER + 1 + len(_MOVE_TIMES)
DEVICE_FEATURES: Final = OBS_DEVICE + len(_DEVICE_TIMES)
NODE_FEATURES: Final = OBS_NODE + 1 + len(_NODE_TIMES)


class Tables(NamedTuple):
    """Features of a batch of observations.

    Attributes:
        commands: (batch, K, COMMAND_FEATURES).
        streams: (batch, S, STREAM_FEATURES).
        moves: (batch, P, MOVE_FEATURES); P may be 0.
        device: (batch, DEVICE_FEATURES).
        unit: (batch, 1) what times were set against, as a share of the episode.
        urgent: (batch, 1) the longest tail in the window.
    """

    commands: Tensor
    streams: Tensor
    moves: Tensor
    device: Tensor
    unit: Tensor
    urgent: Tensor


def tables_of(observations: dict[str, Tensor]) -> Tables:
    """Features of the windows, the streams and the device."""
    commands = observations["commands"].unflatten(1, (-1, OBS_COMMAND))
    streams = observations["streams"].unflatten(1, (-1, OBS_STREAM))
    device = observations["device"]
    filled = commands[..., 0]
    total = (commands[..., _COMMAND_TIMES[0]] * filled).sum(1, keepdim=True)
    unit = (total / filled.sum(1, keepdim=True).clamp(min=1.0)).clamp(min=_LEAST)
    urgent = commands[..., _COMMAND_TAIL].amax(1, keepdim=True)
    if "moves" in observations:
        moves = observations["moves"].unflatten(1, (-1, OBS_BUFFER))
    else:
        moves = commands.new_zeros(len(commands), 0, OBS_BUFFER)
    return Tables(
        commands=_with_gap(commands, _COMMAND_TAIL, _COMMAND_TIMES, unit, urgent) * filled.unsqueeze(2),
        streams=torch.cat([streams.sqrt(), _against(streams[..., _STREAM_TIMES], unit)], 2),
        moves=_with_gap(moves, _MOVE_TAIL, _MOVE_TIMES, unit, urgent) * moves[..., :1],
        device=torch.cat(
            [device.sqrt(), _against(device[:, _DEVICE_TIMES].unsqueeze(1), unit).squeeze(1)], 1
        ),
        unit=unit,
        urgent=urgent,
    )


def node_features(nodes: Tensor, tables: Tables) -> Tensor:
    """Features of all commands of the graph: (batch, N, OBS_NODE) become (batch, N, NODE_FEATURES)."""
    return _with_gap(nodes, _NODE_TAIL, _NODE_TIMES, tables.unit, tables.urgent)


def _with_gap(rows: Tensor, tail: int, times: list[int], unit: Tensor, urgent: Tensor) -> Tensor:
    """Roots of all features; by how much the tail lags behind the most urgent; the times."""
    lag = (urgent.unsqueeze(2) - rows[..., tail : tail + 1]).clamp(min=0.0)
    return torch.cat([rows.sqrt(), _against(lag, unit), _against(rows[..., times], unit)], 2)


def _against(times: Tensor, unit: Tensor) -> Tensor:
    """Times as numbers from 0 to 1: a half for one that is as long as the unit."""
    return times / (times + unit.unsqueeze(2))
