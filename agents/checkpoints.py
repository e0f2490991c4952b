"""Checkpoints of a run, from which it goes on exactly as it would have gone on.

A checkpoint is written between an update and the next rollout. It holds the model with its optimiser, the
environments in mid-episode, the state of all random numbers, and what callbacks remember.
"""

from __future__ import annotations

import io
import pickle
import random
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

    from agents.advantage import PerInstanceAdvantage


class Resumed(NamedTuple):
    """What a checkpoint brings back: a model on its environments, and the memory of the advantages."""

    model: BaseAlgorithm
    advantage: tuple[Any, ...]


class Checkpoints(BaseCallback):
    """Writes a checkpoint every so many decisions; the last one is kept.

    Args:
        path: Of the file.
        steps: Decisions between two.
        advantage: Whose memory is kept.
    """

    def __init__(self, path: Path, steps: int, advantage: PerInstanceAdvantage) -> None:
        super().__init__()
        self.path, self.steps, self.advantage = path, steps, advantage
        self._next = steps

    def _on_training_start(self) -> None:
        self._next = self.num_timesteps + self.steps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._next = self.num_timesteps + self.steps
            save_checkpoint(self.path, self.model, self.advantage)


def save_checkpoint(path: Path, model: BaseAlgorithm, advantage: PerInstanceAdvantage) -> None:
    """Write a checkpoint."""
    packed = io.BytesIO()
    model.save(packed)
    content = {
        "model": packed.getvalue(),
        "kind": type(model),
        "envs": model.env,
        "advantage": advantage.memory(),
        "random": (torch.get_rng_state(), np.random.get_state(), random.getstate()),  # noqa: NPY002 - SB3's own
    }
    draft = path.with_suffix(".part")
    draft.write_bytes(zlib.compress(pickle.dumps(content), 1))
    draft.replace(path)


def load_checkpoint(path: Path, device: str) -> Resumed:
    """Bring back what was saved; only for files of your own, since a pickle can run code.

    Raises:
        InputError: There is no checkpoint.
    """
    if not path.exists():
        raise InputError(f"{path}: there is no checkpoint to go on from; run without --resume")
    content = pickle.loads(zlib.decompress(path.read_bytes()))
    envs: VecEnv = content["envs"]
    model = content["kind"].load(io.BytesIO(content["model"]), env=envs, device=device, force_reset=False)
    words, numbers, plain = content["random"]
    torch.set_rng_state(words)
    np.random.set_state(numbers)  # noqa: NPY002 - SB3's own
    random.setstate(plain)
    return Resumed(model, content["advantage"])
