"""Train an agent and compare it with the schedulers: ``python -m agents.train``.

A TOML file and the command line become a :class:`TrainConfig`; ``MaskablePPO`` learns on environments side
by side; what it learned plays instances it has not seen, greedily, beside some schedulers. The model, its
configuration, the log and the scores stay in ``runs/<name>``.
"""

from __future__ import annotations

import argparse
import enum
import importlib.util
import json
import re
import statistics
import sys
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule

from agents.evaluate import Score, evaluate, table_of
from agents.extractors import ScoringPolicy
from agents.vec_env import CannVecEnv, make_vec_env
from cann_env import CannEnvError, InputError
from cann_env.options import Window  # noqa: TC001 - read_table looks the type up
from cann_env.paths import config_folder
from cann_env.workloads.tables import read_table, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stable_baselines3.common.vec_env import VecEnv


_SUMMARY = "Train an agent with MaskablePPO and compare it with the schedulers."


# --- configuration ------------------------------------------------------------------------------------


class Network(enum.StrEnum):
    """``scoring``: one network for all rows, see :mod:`agents.extractors`; ``flat``: two plain layers."""

    SCORING = "scoring"
    FLAT = "flat"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """All that a training run depends on; the defaults stand in ``configs/training/*.toml``.

    Attributes:
        name: Of the run and its folder; an earlier run of the same name is replaced.
        folder: Where runs are kept.
        env_id: Registered environment.
        scenario: Name or path of a scenario in place of the environment's own.
        device: Name or path of an Ascend device in place of the scenario's.
        window: Which commands the agent chooses from: 'issuable' or 'startable'.
        network: What learns: 'scoring' or 'flat'.
        width: Width of its layers.
        torch_device: Where it learns: 'cpu', 'cuda', 'npu', 'auto'.
        threads: Threads of torch.
        seed: Of the instances played and of all draws.
        total_steps: Decisions to learn from, rounded up to whole rollouts.
        envs: Environments side by side.
        rollout_steps: Decisions of each environment between two updates.
        batch_size: Decisions in a batch of an update.
        epochs: Passes of an update over its decisions.
        learning_rate: At the beginning; falls linearly to zero.
        discount: Weight of the next decision's reward against this one's.
        gae_lambda: Weight of longer looks ahead in advantages.
        entropy: Weight of the entropy bonus.
        eval_seed: Seed of the instances for comparison; not the one of training.
        eval_instances: How many; a scenario that never varies has one.
    """

    name: str
    folder: str
    env_id: str
    scenario: str | None = None
    device: str | None = None
    window: Window
    network: Network
    width: int
    torch_device: str
    threads: int
    seed: int
    total_steps: int
    envs: int
    rollout_steps: int
    batch_size: int
    epochs: int
    learning_rate: float
    discount: float
    gae_lambda: float
    entropy: float
    eval_seed: int
    eval_instances: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        counts = "width threads total_steps envs rollout_steps batch_size epochs eval_instances"
        for name in counts.split():
            if getattr(self, name) < 1:
                raise InputError(f"key {name!r} is {getattr(self, name)}; write a whole number of at least 1")
        for name in ("discount", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"key {name!r} is {getattr(self, name)}; write a number from 0 to 1")
        if min(self.seed, self.eval_seed) < 0 or self.seed <= self.eval_seed < self.seed + self.envs:
            raise InputError(
                f"keys 'seed' and 'eval_seed' are {self.seed} and {self.eval_seed}; write whole numbers "
                f">= 0, and leave out the {self.envs} from 'seed' on, which training uses"
            )

    @property
    def run_folder(self) -> Path:
        """Where everything about the run is written."""
        return Path(self.folder) / self.name


def load_config(name_or_path: str | Path = "pipeline_ppo", **changes: Any) -> TrainConfig:
    """Read a training run.

    Args:
        name_or_path: Name of a shipped file, or the path of one that ends in ``.toml``.
        changes: Fields to set in place of the file's.

    Raises:
        InputError: The file cannot be read, or a key is unknown, missing or out of range.
    """
    shipped = {path.stem: path for path in sorted(config_folder("training").glob("*.toml"))}
    file = shipped.get(str(name_or_path), Path(name_or_path))
    if file.suffix != ".toml":
        raise InputError(
            f"training run {str(name_or_path)!r} is not known; write one of {', '.join(shipped)}, "
            "or the path of a .toml file"
        )
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as a training run: {error}") from error
    return read_table(TrainConfig, table | changes, str(file))


def read_arguments(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, bool]:
    """The configuration that a command line means, and whether it asks for JSON.

    Raises:
        InputError: See :func:`load_config`.
    """
    parser = argparse.ArgumentParser("python -m agents.train", description=_SUMMARY, allow_abbrev=False)
    parser.add_argument("--config", default="pipeline_ppo", help="name of a shipped file, or path of another")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    meanings = dict(re.findall(r"^ +(\w+): (.+)$", TrainConfig.__doc__ or "", re.MULTILINE))
    for field in fields(TrainConfig):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, metavar="VALUE", default=argparse.SUPPRESS, help=meanings.get(field.name))
    given = vars(parser.parse_args(arguments))
    source, as_json = given.pop("config"), given.pop("json")
    return load_config(source, **{name: _typed(name, text) for name, text in given.items()}), as_json


def _typed(name: str, text: str) -> int | float | str:
    """The number that a field of numbers is given as, else the text."""
    annotation = TrainConfig.__annotations__[name]
    if annotation not in ("int", "float"):
        return text
    try:
        return int(text) if annotation == "int" else float(text)
    except ValueError as error:
        raise InputError(f"--{name.replace('_', '-')} is {text!r}; write a number") from error


# --- training -----------------------------------------------------------------------------------------


def make_env(config: TrainConfig) -> gymnasium.Env[Any, Any]:
    """One environment by itself."""
    return gymnasium.make(config.env_id, **_arguments(config))


def make_envs(config: TrainConfig) -> CannVecEnv:
    """The environments that are played side by side."""
    return make_vec_env(config.env_id, config.envs, **_arguments(config))


def _arguments(config: TrainConfig) -> dict[str, Any]:
    scenario = {"scenario": config.scenario} if config.scenario else {}
    return {"device": config.device, "options": {"window": config.window.value}, **scenario}


def new_model(config: TrainConfig, envs: VecEnv) -> MaskablePPO:
    """A model that has learned nothing yet."""
    scoring = config.network is Network.SCORING
    return MaskablePPO(
        ScoringPolicy if scoring else "MultiInputPolicy",
        envs,
        n_steps=config.rollout_steps,
        batch_size=config.batch_size,
        n_epochs=config.epochs,
        learning_rate=LinearSchedule(config.learning_rate, 0.0, 1.0),
        gamma=config.discount,
        gae_lambda=config.gae_lambda,
        ent_coef=config.entropy,
        policy_kwargs={"width": config.width} if scoring else {"net_arch": [config.width] * 2},
        seed=config.seed,
        device=config.torch_device,
    )


def train(config: TrainConfig) -> MaskablePPO:
    """Learn, and save the model with its configuration and log."""
    torch.set_num_threads(config.threads)
    envs = make_envs(config)
    model = new_model(config, envs)
    log = ["csv", "tensorboard"] if importlib.util.find_spec("tensorboard") else ["csv"]
    model.set_logger(configure(str(config.run_folder), log))
    lines = [
        f"{key} = {json.dumps(value)}" for key, value in write_table(config).items() if value is not None
    ]
    (config.run_folder / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with progress_bar() as bar:
        model.learn(config.total_steps, callback=ProgressReport(bar, config.total_steps))
    model.save(config.run_folder / "model.zip")
    model.logger.close()
    envs.close()
    return model


def progress_bar() -> Progress:
    """A bar on standard error; silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


class ProgressReport(BaseCallback):
    """Moves a bar after each rollout, and says what the latest episodes cost on average."""

    def __init__(self, bar: Progress, total_steps: int) -> None:
        super().__init__()
        self.bar = bar
        self.task = bar.add_task("Training", total=total_steps)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        self.bar.update(self.task, completed=self.num_timesteps, description=progress_text(returns))


def progress_text(returns: Sequence[float]) -> str:
    """By how much recent episodes exceeded their bound on average: minus their return."""
    return f"Training, {-statistics.mean(returns):.1%} over bound" if returns else "Training"


# --- the run ----------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> list[Score]:
    """Train, compare, print; the command line is ``arguments``, or that of the process."""
    config, as_json = read_arguments(arguments)
    model = train(config)
    scenario = make_env(config).unwrapped.scenario
    scores = evaluate(model, scenario, seed=config.eval_seed, instances=config.eval_instances)
    report = json.dumps([asdict(score) for score in scores], indent=2)
    (config.run_folder / "scores.json").write_text(report + "\n", encoding="utf-8")
    if as_json:
        print(report)
    else:
        print(f"{table_of(scores)}\n\nModel, configuration, log and scores: {config.run_folder}")
    return scores


if __name__ == "__main__":
    try:
        main()
    except (CannEnvError, gymnasium.error.Error) as error:
        sys.exit(f"agents.train: {error}")
