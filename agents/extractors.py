"""Networks that treat the rows of a table alike, whatever their place and however many there are.

A flat network has to learn for each slot of a window anew what a short kernel looks like. Here one small
network reads every row, so what was learned in one slot holds in all, and the number of parameters does not
depend on K, S or P. An observation becomes a context and one embedding a row (:class:`RowExtractor`); from
the embeddings of what an action names comes its score (:class:`ActionScores`); :class:`ScoringPolicy` makes
a policy for ``MaskablePPO`` of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from cann_env import InputError
from cann_env.engine.observe import OBS_BUFFER, OBS_COMMAND, OBS_STREAM

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.type_aliases import Schedule

_COLUMNS: Final = {"commands": OBS_COMMAND, "streams": OBS_STREAM, "moves": OBS_BUFFER}
_WITH_EMPTY_SLOTS: Final = ("commands", "moves")  # column 0 says that a slot is filled
_FIRST_LOGIT_GAIN: Final = 0.01  # all actions about equally likely before the first update


class RowExtractor(BaseFeaturesExtractor):
    """Embeds every row of every table, and the observation as a whole.

    The rows of a table share one network. The means over the filled rows of each table and the device vector
    make the context. So swapping two commands swaps their embeddings, and nothing else changes.

    Features enter as their square roots: times are shares of a whole episode, and the roots of those of
    single commands can be told apart from zero.

    Args:
        observation_space: The environment's; a padded graph in it is not looked at.
        width: Length W of the context and of each embedding, at least 1.

    The output has shape (batch, (1 + K + S + P) * W): context, commands, streams, moves.

    Raises:
        InputError: ``width`` is too small.
    """

    def __init__(self, observation_space: spaces.Dict, width: int = 32) -> None:
        if width < 1:
            raise InputError(f"width of the extractor is {width}; write a whole number of at least 1")
        rows = rows_of(observation_space)
        super().__init__(observation_space, width * (1 + sum(rows.values())))
        self.rows = rows
        self.row_networks = nn.ModuleList(_two_layers(_COLUMNS[name], width, width) for name in rows)
        device = observation_space["device"].shape[0]
        self.context_network = _two_layers(device + width * len(rows), width, width)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features of a batch of observations."""
        embeddings, summary = [], [observations["device"].sqrt()]
        for name, network in zip(self.rows, self.row_networks, strict=True):
            table = observations[name].unflatten(1, (self.rows[name], _COLUMNS[name]))
            embedding = network(table.sqrt())
            filled = table[..., :1] if name in _WITH_EMPTY_SLOTS else torch.ones_like(table[..., :1])
            summary.append((embedding * filled).sum(1) / filled.sum(1).clamp(min=1.0))
            embeddings.append(embedding.flatten(1))
        context = self.context_network(torch.cat(summary, 1))
        return torch.cat([context, *embeddings], 1)


class ActionScores(nn.Module):
    """One score an action, from the features of :class:`RowExtractor`.

    An issue is scored from its command, its stream (unless implied) and the context, a move from its
    buffer and the context, the wait from the context.

    Args:
        rows: Rows of each table, see :func:`rows_of`.
        actions: Size of the action space.
        width: That of the extractor.
    """

    def __init__(self, rows: dict[str, int], actions: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.named_streams = (actions - 1 - rows.get("moves", 0)) // rows["commands"]
        # The first layer of the issue's network, cut into its three inputs: each is computed once a row.
        self.from_context = nn.Linear(width, width)
        self.from_command = nn.Linear(width, width, bias=False)
        self.from_stream = nn.Linear(width, width, bias=False)
        self.issue = nn.Linear(width, 1)
        self.prefetch = _two_layers(2 * width, width, 1)
        self.wait = _two_layers(width, width, 1)
        for last in (self.issue, self.prefetch[-1], self.wait[-1]):
            nn.init.orthogonal_(last.weight, _FIRST_LOGIT_GAIN)
            nn.init.zeros_(last.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Scores, shape (batch, actions)."""
        counts = [1, *self.rows.values()]
        context, *tables = features.unflatten(1, (sum(counts), -1)).split(counts, 1)
        rows = dict(zip(self.rows, tables, strict=True))
        pairs = (self.from_command(rows["commands"]) + self.from_context(context)).unsqueeze(2)
        if self.named_streams > 1:
            pairs = pairs + self.from_stream(rows["streams"]).unsqueeze(1)
        scores = [self.issue(pairs.relu()).flatten(1)]
        if "moves" in rows:
            moves = rows["moves"]
            scores.append(self.prefetch(torch.cat([moves, context.expand_as(moves)], 2)).flatten(1))
        return torch.cat([*scores, self.wait(context).flatten(1)], 1)


class ScoringPolicy(MaskableMultiInputActorCriticPolicy):
    """A policy of :class:`RowExtractor` and :class:`ActionScores`; the value is read from a context.

    The value has an extractor of its own: errors of its estimate would otherwise upset the embeddings that
    actions are scored from.

    Args:
        observation_space, action_space, lr_schedule: As of every policy.
        width: See :class:`RowExtractor`.
        others: Further arguments of ``MaskableMultiInputActorCriticPolicy``; the shape of the network is
            not among them.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        width: int = 32,
        **others: Any,
    ) -> None:
        self.width = width
        others.setdefault("share_features_extractor", False)
        others |= {"features_extractor_class": RowExtractor, "features_extractor_kwargs": {"width": width}}
        super().__init__(observation_space, action_space, lr_schedule, **others)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"width": self.width}
        fixed = ("features_extractor_class", "features_extractor_kwargs")
        inherited = super()._get_constructor_parameters()
        return {key: value for key, value in inherited.items() if key not in fixed} | own

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = _Split(self.features_dim, self.width)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.action_net = ActionScores(rows_of(self.observation_space), int(self.action_space.n), self.width)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


class _Split(nn.Module):
    """All features for the actions; the context, through one layer, for the value."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = features, width
        self.value = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return features

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.value(features[:, : self.latent_dim_vf])


def rows_of(observation_space: spaces.Dict) -> dict[str, int]:
    """How many rows each table of an observation has, in the order of their embeddings."""
    tables = {name: columns for name, columns in _COLUMNS.items() if name in observation_space.spaces}
    return {name: observation_space[name].shape[0] // columns for name, columns in tables.items()}


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
