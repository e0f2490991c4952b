"""Checkpoints of a run, from which it goes on exactly as it would have gone on.

A checkpoint is written between an update and the next rollout. It holds the model with its optimiser, the
environments in mid-episode, the state of all random numbers, what callbacks remember, and what the next row
of the log holds already.
"""

from __future__ import annotations

import csv
import io
import pickle
import random
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import CSVOutputFormat

from agents.config import Stage, TrainConfig, load_config
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecEnv


_STEPS = "time/total_timesteps"
_PENDING = ("name_to_value", "name_to_count", "name_to_excluded")  # of a logger

_SETTLED = (
    "plays",
    "window",
    "split_seed",
    "algorithm",
    "network",
    "width",
    "seed",
    "rollout_steps",
    "batch_size",
    "epochs",
    "learning_rate",
    "discount",
    "gae_lambda",
    "entropy",
    "per_instance",
)


class Remembering(Protocol):
    """A callback that remembers something from one rollout to the next."""

    def memory(self) -> Any:
        """What it remembers."""
        ...

    def remember(self, memory: Any) -> None:
        """Take up what was remembered."""
        ...


class Resumed(NamedTuple):
    """What a checkpoint brings back.

    Attributes:
        model: On its environments.
        memories: Of callbacks, by the names they were saved under.
        pending: What was recorded for the next row of the log, and how.
    """

    model: BaseAlgorithm
    memories: Mapping[str, Any]
    pending: tuple[Mapping[str, Any], ...]


class Checkpoints(BaseCallback):
    """Writes a checkpoint every so many decisions; the last one is kept.

    Args:
        path: Of the file.
        steps: Decisions between two.
        remembering: Callbacks whose memories are kept, by name.
    """

    def __init__(self, path: Path, steps: int, remembering: Mapping[str, Remembering]) -> None:
        super().__init__()
        self.path, self.steps, self.remembering = path, steps, remembering
        self._next = steps

    def _on_training_start(self) -> None:
        self._next = self.num_timesteps + self.steps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._next = self.num_timesteps + self.steps
            save_checkpoint(self.path, self.model, self.remembering)


def save_checkpoint(path: Path, model: BaseAlgorithm, remembering: Mapping[str, Remembering]) -> None:
    """Write a checkpoint."""
    packed = io.BytesIO()
    model.save(packed)
    content = {
        "model": packed.getvalue(),
        "kind": type(model),
        "envs": model.env,
        "memories": {name: each.memory() for name, each in remembering.items()},
        "pending": tuple(dict(getattr(model.logger, name)) for name in _PENDING),
        "random": (torch.get_rng_state(), np.random.get_state(), random.getstate()),  # noqa: NPY002 - SB3's own
    }
    draft = path.with_suffix(".part")
    draft.write_bytes(zlib.compress(pickle.dumps(content), 1))
    draft.replace(path)


def check_resumable(config: TrainConfig) -> None:
    """Refuse to go on with what a checkpoint has settled otherwise.

    Raises:
        InputError: No stage goes on from checkpoints, or a key differs from that of the earlier run.
    """
    if Stage.REINFORCE not in config.stages:
        raise InputError(
            f"key 'stages' is {[str(stage) for stage in config.stages]}; a run goes on in 'reinforce', which "
            "is not among them; run without --resume"
        )
    file = config.run_folder / "config.toml"
    if not file.exists():
        return  # nor is there a checkpoint
    before = load_config(file)
    for name in _SETTLED:
        if getattr(before, name) != getattr(config, name):
            raise InputError(
                f"key {name!r} is {getattr(config, name)!r}, but {getattr(before, name)!r} in the run that "
                "is to go on; write the same, or run without --resume"
            )


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
    return Resumed(model, content["memories"], content["pending"])


def logged_rows(path: Path, steps: int) -> list[dict[str, Any]]:
    """Rows of an earlier log in CSV, up to a number of decisions; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [{key: _number(text) for key, text in row.items() if text} for row in csv.DictReader(file)]
    return [row for row in rows if row[_STEPS] <= steps]


def continue_log(logger: Logger, rows: list[dict[str, Any]], pending: tuple[Mapping[str, Any], ...]) -> None:
    """Let a new log begin with the rows of the old one, and its next row with what was recorded for it."""
    for output in logger.output_formats:
        if isinstance(output, CSVOutputFormat):
            for row in rows:
                output.write(row, {})
    for name, values in zip(_PENDING, pending, strict=True):
        getattr(logger, name).update(values)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
