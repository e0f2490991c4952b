"""The reward: by how much the optimistic objective rose, and what illegal actions and failure cost."""

from __future__ import annotations

from typing import NamedTuple


class RewardTerms(NamedTuple):
    """Named terms; their sum is the reward.

    Attributes:
        progress: ``-(increase of the objective) / (its lower bound)``. Over a finished episode it sums to
            ``-(objective - lower bound) / lower bound``.
        invalid: Minus the scenario's penalty for each illegal action.
        failure: Running out of memory: as if the episode had ended at a time that none exceeds. Running out
            of steps: as if the rest had been run one by one.
    """

    progress: float = 0.0
    invalid: float = 0.0
    failure: float = 0.0

    @property
    def total(self) -> float:
        """The reward."""
        return self.progress + self.invalid + self.failure

    def plus(self, other: RewardTerms) -> RewardTerms:
        """Term by term sum."""
        return RewardTerms(
            self.progress + other.progress, self.invalid + other.invalid, self.failure + other.failure
        )


def reward_terms(rise_ns: int, norm_ns: int, *, illegal: int, penalty: float, failed: bool) -> RewardTerms:
    """Reward of one step; what :mod:`cann_env.engine.episodes` does in many environments at once.

    Args:
        rise_ns: By how much the objective rose.
        norm_ns: Lower bound of the objective.
        illegal: 1 if the action was illegal.
        penalty: Cost of an illegal action.
        failed: The episode ended out of memory or out of steps.
    """
    progress = -rise_ns / norm_ns
    return RewardTerms(
        progress=0.0 if failed else progress,
        invalid=-penalty * illegal,
        failure=progress if failed else 0.0,
    )
