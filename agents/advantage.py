"""Advantages on the scale of each instance: in hard ones rewards are large whatever the agent does.

One instance may be three times as far above its bound as another, and its advantages are larger by as much;
so a few instances would decide in which direction an update goes. Here the advantages of each instance are
set against how large they usually are on that instance, and the mean error of the critic on it is taken out,
which changes no gradient on average, since both depend on the instance alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MEMORY = 0.9  # part of the past that each look back keeps
_LEAST = 1e-4


class PerInstanceAdvantage(BaseCallback):
    """Rescales the advantages of each rollout; for a model on a :class:`~agents.mixture.MixedVecEnv`."""

    def __init__(self) -> None:
        super().__init__()
        self.means: NDArray[np.float64] = np.zeros(0)
        self.sizes: NDArray[np.float64] = np.zeros(0)
        self.seen: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._played: list[NDArray[np.int64]] = []
        self._playing: NDArray[np.int64] = np.zeros(0, np.int64)

    def memory(self) -> tuple[NDArray[Any], ...]:
        """What is known of each instance; :meth:`remember` takes it back."""
        return self.means, self.sizes, self.seen

    def remember(self, memory: tuple[NDArray[Any], ...]) -> None:
        """Take up what was known."""
        self.means, self.sizes, self.seen = memory

    def _on_rollout_start(self) -> None:
        self._played = []
        self._playing = self.training_env.instances.copy()

    def _on_step(self) -> bool:
        self._played.append(self._playing)
        self._playing = self.training_env.instances.copy()
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        buffer.advantages = self.rescaled(buffer.advantages, np.stack(self._played))

    def rescaled(self, advantages: NDArray[np.float32], played: NDArray[np.int64]) -> NDArray[np.float32]:
        """Advantages less the mean and over the size that they have on their instance.

        Args:
            advantages: float32 (steps, environments).
            played: int64, the same shape: the instance that each belongs to.
        """
        most = int(played.max()) + 1
        if most > self.seen.size:
            more = most - self.seen.size
            self.means, self.sizes = (
                np.concatenate([old, np.zeros(more)]) for old in (self.means, self.sizes)
            )
            self.seen = np.concatenate([self.seen, np.zeros(more, np.bool_)])
        numbers, places, counts = np.unique(played, return_inverse=True, return_counts=True)
        fresh = ~self.seen[numbers]
        for known, values in ((self.means, advantages), (self.sizes, np.abs(advantages))):
            latest = np.bincount(places.ravel(), values.ravel()) / counts
            known[numbers] = np.where(fresh, latest, _MEMORY * known[numbers] + (1.0 - _MEMORY) * latest)
        self.seen[numbers] = True
        centred = advantages - self.means[played]
        return (centred / np.maximum(self.sizes[played], _LEAST)).astype(np.float32)
