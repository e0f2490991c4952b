"""How a trained policy plays: greedily, or many samples of which the best is kept.

All episodes are played side by side on the compiled engine; the networks see those that are still running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from stable_baselines3.dqn.policies import DQNPolicy

from agents.policies import GraphPolicy, ScoringPolicy, fitted
from cann_env.envs.batch import Batch, capacity_for, shape_of
from cann_env.envs.spaces import action_space, observation_space
from cann_env.schedulers.policy import EpisodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from stable_baselines3.common.policies import BasePolicy

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedulers.policy import Outcome

_SIDE_BY_SIDE = 256


def play(
    policy: BasePolicy,
    programs: Sequence[Program],
    *,
    noises: Sequence[Image | None] | None = None,
    seed: int | None = None,
    masked: bool = True,
) -> list[Outcome | None]:
    """Play an episode of each program.

    Args:
        policy: Trained; one of :mod:`agents.policies` plays windows of any size.
        programs: Of any sizes.
        noises: Realised durations of each; None for the expected ones.
        seed: Of the samples; None to take the most likely action always.
        masked: Whether only legal actions are considered; an illegal one becomes a wait.

    Returns:
        The outcome of each; None where the graph was not finished.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    found: list[Outcome | None] = [None] * len(programs)
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, program in enumerate(programs):
        alike.setdefault(shape_of(program.options), []).append(place)
    for places in alike.values():
        for first in range(0, len(places), _SIDE_BY_SIDE):
            some = places[first : first + _SIDE_BY_SIDE]
            theirs = None if noises is None else [noises[i] for i in some]
            outcomes = _play(policy, [programs[i] for i in some], theirs, generator, masked)
            for place, outcome in zip(some, outcomes, strict=True):
                found[place] = outcome
    return found


def _play(
    policy: BasePolicy,
    programs: Sequence[Program],
    noises: Sequence[Image | None] | None,
    generator: torch.Generator | None,
    masked: bool,
) -> list[Outcome | None]:
    options = programs[0].options
    capacity = capacity_for(programs) if isinstance(policy, GraphPolicy) else None
    if isinstance(policy, ScoringPolicy):
        policy = fitted(policy, observation_space(options, capacity), action_space(options))
    policy.set_training_mode(False)
    batch = Batch(programs, noises=noises, capacity=capacity)
    with torch.no_grad():
        while batch.running.size:
            batch.step(_actions(policy, batch, generator, masked))
    return batch.outcomes()


def _actions(
    policy: BasePolicy, batch: Batch, generator: torch.Generator | None, masked: bool
) -> NDArray[np.int64]:
    seen = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in batch.observations().items()}
    scores = _scores(policy, seen)
    if masked:
        scores = scores.masked_fill(~torch.from_numpy(batch.masks()), -torch.inf)
    if generator is None:
        return scores.argmax(1).numpy()
    noise = torch.empty_like(scores).exponential_(generator=generator)
    return (scores - noise.log()).argmax(1).numpy()  # the largest of Gumbel-disturbed scores is a sample


def _scores(policy: BasePolicy, seen: dict[str, torch.Tensor]) -> torch.Tensor:
    """What a policy makes of each action, (batch, actions): the larger the better."""
    if isinstance(policy, ScoringPolicy):
        return policy.action_net(policy.extract_features(seen, policy.pi_features_extractor))
    if isinstance(policy, DQNPolicy):
        return policy.q_net(seen)
    return policy.get_distribution(seen).distribution.logits


def best_of(policy: ScoringPolicy, program: Program, samples: int, *, seed: int = 0) -> Outcome:
    """The best of some samples and the greedy episode, under expected durations.

    Args:
        policy: Trained.
        program: What is played.
        samples: How many, from 1: the first is the greedy one.
        seed: Of the samples.

    Raises:
        EpisodeError: None of them finished.
    """
    found = play(policy, [program])
    if samples > 1:
        found += play(policy, [program] * (samples - 1), seed=seed)
    finished = [outcome for outcome in found if outcome is not None]
    if not finished:
        raise EpisodeError(f"none of {samples} episodes finished graph {program.graph.name!r}")
    return min(finished, key=lambda outcome: outcome.objective_ns)
