"""Self-labelling: a policy samples many episodes of an instance and learns to decide as in the best of them.

What it imitates are decisions that it could have taken itself, so unlike those of a search they are easy to
learn. The best episode of each instance is remembered, whoever found it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agents.cloning import clone, examples
from agents.rollouts import play

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from agents.policies import ScoringPolicy
    from cann_env.envs.spaces import GraphCapacity
    from cann_env.program import Program


_FALL = 0.9  # of the learning rate, from the first round to the last


class Labels(NamedTuple):
    """The best episode known of each instance: its decisions and its objective (ns)."""

    actions: list[tuple[int, ...]]
    objective_ns: list[int]


def label(
    policy: ScoringPolicy,
    programs: Sequence[Program],
    known: Labels,
    *,
    rounds: int,
    instances: int,
    samples: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    weights: NDArray[np.float64] | None = None,
    capacity: GraphCapacity | None = None,
    watch: Callable[[int, int, float], None] | None = None,
) -> Labels:
    """Sample, keep the best, imitate it, round after round.

    Args:
        policy: Changed in place.
        programs: Training instances.
        known: The best episodes so far; an instance without one has no decisions and an objective of 0.
        rounds: How often.
        instances: Drawn for each round.
        samples: Episodes sampled of each.
        epochs: Passes over the best episodes of a round.
        batch_size: Decisions of an update.
        learning_rate: Of the first round; falls linearly to a tenth in the last.
        seed: Of all draws.
        weights: How often each instance is drawn, relative to others; None for equally often.
        capacity: Of the padded graph, None for a policy that does not look at it.
        watch: Told how many of how many rounds are done, and the mean of sampled over known objectives.

    Returns:
        The best episodes after all rounds.
    """
    rng = np.random.default_rng(seed)
    actions, objectives = list(known.actions), list(known.objective_ns)
    shares = None if weights is None else weights / weights.sum()
    for turn in range(rounds):
        chosen = rng.choice(len(programs), min(instances, len(programs)), replace=False, p=shares).tolist()
        ratios = []
        outcomes = iter(
            play(policy, [programs[i] for i in chosen for _ in range(samples)], seed=int(rng.integers(2**31)))
        )
        for i in chosen:
            found = [outcome for _ in range(samples) if (outcome := next(outcomes)) is not None]
            if not found:
                continue
            best = min(found, key=lambda outcome: outcome.objective_ns)
            if objectives[i]:
                ratios.append(best.objective_ns / objectives[i])
            if not objectives[i] or best.objective_ns < objectives[i]:
                actions[i], objectives[i] = best.actions, best.objective_ns
        learned = [i for i in chosen if objectives[i]]
        shuffle = int(rng.integers(2**31))
        if learned:
            clone(
                policy,
                examples([programs[i] for i in learned], [actions[i] for i in learned], capacity),
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate * (1.0 - _FALL * turn / rounds),
                seed=shuffle,
            )
        if watch is not None:
            watch(turn + 1, rounds, float(np.mean(ratios)) if ratios else float("nan"))
    return Labels(actions, objectives)
