"""Policies that score every action from the embeddings of what it names; they fit windows of any size.

:class:`ActionScores` turns the output of an extractor into one score an action. :class:`ScoringPolicy` and
:class:`GraphPolicy` make policies for ``MaskablePPO`` of the two, and :func:`fitted` gives one of them to
environments with other windows than those it was trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from torch import Tensor, nn

from agents.extractors import GraphExtractor, RowExtractor, Rows, two_layers

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.type_aliases import Schedule

_FIRST_LOGIT_GAIN: Final = 0.01  # all actions about equally likely before the first update


class ActionScores(nn.Module):
    """One score an action, from the features of an extractor.

    An issue is scored from its command, its stream (unless implied) and the context, a move from its
    buffer and the context, the wait from the context.

    Args:
        rows: Rows of each table.
        actions: Size of the action space.
        width: That of the extractor.
    """

    def __init__(self, rows: Rows, actions: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.named_streams = (actions - 1 - rows[2]) // rows[0]
        # The first layer of the issue's network, cut into its three inputs: each is computed once a row.
        self.from_context = nn.Linear(width, width)
        self.from_command = nn.Linear(width, width, bias=False)
        self.from_stream = nn.Linear(width, width, bias=False)
        self.issue = nn.Linear(width, 1)
        self.prefetch = two_layers(2 * width, width, 1)
        self.wait = two_layers(width, width, 1)
        for last in (self.issue, self.prefetch[-1], self.wait[-1]):
            nn.init.orthogonal_(last.weight, _FIRST_LOGIT_GAIN)
            nn.init.zeros_(last.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Scores, shape (batch, actions)."""
        counts = [1, *self.rows]
        context, commands, streams, moves = features.unflatten(1, (sum(counts), -1)).split(counts, 1)
        pairs = (self.from_command(commands) + self.from_context(context)).unsqueeze(2)
        if self.named_streams > 1:
            pairs = pairs + self.from_stream(streams).unsqueeze(1)
        moved = self.prefetch(torch.cat([moves, context.expand_as(moves)], 2))
        return torch.cat(
            [self.issue(pairs.relu()).flatten(1), moved.flatten(1), self.wait(context).flatten(1)], 1
        )


class ScoringPolicy(MaskableMultiInputActorCriticPolicy):
    """A policy of :class:`~agents.extractors.RowExtractor` and :class:`ActionScores`.

    The value is read from the context, whose network learns from the actions alone: errors of the value would
    otherwise upset the embeddings that actions are scored from.

    Args:
        observation_space, action_space, lr_schedule: As of every policy.
        width: See the extractor.
        use_sde: False, which plain PPO passes; there is nothing continuous to disturb.
        others: Further arguments of ``MaskableMultiInputActorCriticPolicy``; the shape of the network is
            not among them.
    """

    extractor: ClassVar[type[BaseFeaturesExtractor]] = RowExtractor

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        width: int = 64,
        use_sde: bool = False,
        **others: Any,
    ) -> None:
        self.width = width
        others |= {"features_extractor_class": self.extractor, "features_extractor_kwargs": {"width": width}}
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
        rows = Rows.of(self.observation_space)
        self.action_net = ActionScores(rows, int(self.action_space.n), self.width)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


class GraphPolicy(ScoringPolicy):
    """The same with :class:`~agents.extractors.GraphExtractor`, which looks at the whole graph."""

    extractor: ClassVar[type[BaseFeaturesExtractor]] = GraphExtractor


class _Split(nn.Module):
    """All features for the actions; the context, through two layers, for the value."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = features, width
        self.value = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return features

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.value(features[:, : self.latent_dim_vf].detach())


def fitted(
    policy: ScoringPolicy, observation_space: spaces.Dict, action_space: spaces.Discrete
) -> ScoringPolicy:
    """The same networks for windows, streams or graphs of another size; the weights are shared out as copies.

    Args:
        policy: Trained.
        observation_space: Of the environments to come.
        action_space: Of the environments to come.
    """
    if policy.observation_space == observation_space and policy.action_space == action_space:
        return policy
    arguments = policy._get_constructor_parameters()
    arguments |= {"observation_space": observation_space, "action_space": action_space}
    other = type(policy)(**arguments)
    other.load_state_dict(policy.state_dict())
    other.set_training_mode(False)
    return other
