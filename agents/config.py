"""All that a training run depends on, from a TOML file and the command line."""

from __future__ import annotations

import argparse
import enum
import json
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.families import Play  # noqa: TC001 - read_table looks the type up
from cann_env import InputError
from cann_env.options import Window  # noqa: TC001 - read_table looks the type up
from cann_env.paths import config_folder
from cann_env.workloads.tables import read_table, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence


class Network(enum.StrEnum):
    """``rows``: one network for all rows of a window; ``graph``: messages along edges; ``flat``: plain."""

    ROWS = "rows"
    GRAPH = "graph"
    FLAT = "flat"


class Algorithm(enum.StrEnum):
    """``maskable_ppo`` chooses among legal actions; ``ppo`` and ``dqn`` have to find out which those are."""

    MASKABLE_PPO = "maskable_ppo"
    PPO = "ppo"
    DQN = "dqn"


class Stage(enum.StrEnum):
    """``clone`` a teacher; ``reinforce`` by the algorithm; ``label``: sample, and imitate the best."""

    CLONE = "clone"
    REINFORCE = "reinforce"
    LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """All that a training run depends on; the defaults stand in ``configs/training/*.toml``.

    Attributes:
        name: Of the run and its folder; an earlier run of the same name is replaced unless it is resumed.
        folder: Where runs are kept.
        plays: What is played, see :class:`~agents.families.Play`.
        window: Which commands the agent chooses from: 'issuable' or 'startable'.
        split_seed: Of the training split: graph number j of a play is the same for every seed.
        algorithm: Who learns: 'maskable_ppo', 'ppo' or 'dqn'.
        network: What learns: 'rows', 'graph' or 'flat'.
        width: Width of its layers.
        torch_device: Where it learns: 'cpu', 'cuda', 'npu', 'auto'.
        threads: Threads of torch.
        seed: Of all draws: first weights, samples, and the order of instances.
        stages: What is done, in order: 'clone', 'reinforce', 'label'.
        teacher: Scheduler whose decisions are cloned.
        teacher_workers: Processes that let it decide.
        clone_epochs: Passes over its decisions.
        clone_batch_size: Decisions of an update.
        clone_learning_rate: At the beginning; falls to a tenth.
        total_steps: Decisions to reinforce, rounded up to whole rollouts.
        rollout_steps: Decisions of each environment between two updates.
        batch_size: Decisions in a batch of an update.
        epochs: Passes of an update over its decisions.
        learning_rate: At the beginning; falls linearly to zero.
        discount: Weight of the next decision's reward against this one's.
        gae_lambda: Weight of longer looks ahead in advantages.
        entropy: Weight of the entropy bonus.
        per_instance: Whether advantages are put on the scale of each instance.
        label_known: Whether the teacher's episodes are the best to begin with, where it was cloned.
        label_rounds: Rounds of sampling and imitating.
        label_instances: Instances of a round.
        label_samples: Episodes sampled of each.
        label_epochs: Passes over the best episodes of a round.
        label_learning_rate: Of the first round; falls linearly to a tenth.
        label_eval_rounds: Rounds between two looks at how good the greedy policy is; 0 for none.
        checkpoint_steps: Decisions between two checkpoints; 0 for none.
        eval_steps: Decisions between two looks at how good the greedy policy is; 0 for none.
        eval_seed: Split of the instances for comparison; not the one of training.
        eval_instances: How many of each play; a scenario that never varies has one.
    """

    name: str
    folder: str
    plays: tuple[Play, ...]
    window: Window
    split_seed: int
    algorithm: Algorithm = Algorithm.MASKABLE_PPO
    network: Network
    width: int
    torch_device: str
    threads: int
    seed: int
    stages: tuple[Stage, ...]
    teacher: str = "reference"
    teacher_workers: int = 1
    clone_epochs: int = 4
    clone_batch_size: int = 512
    clone_learning_rate: float = 0.002
    total_steps: int
    rollout_steps: int
    batch_size: int
    epochs: int
    learning_rate: float
    discount: float
    gae_lambda: float
    entropy: float
    per_instance: bool = False
    label_known: bool = True
    label_rounds: int = 10
    label_instances: int = 32
    label_samples: int = 64
    label_epochs: int = 2
    label_learning_rate: float = 0.0005
    label_eval_rounds: int = 0
    checkpoint_steps: int = 0
    eval_steps: int = 0
    eval_seed: int
    eval_instances: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        least = {name: 1 for name in _COUNTS} | {
            "checkpoint_steps": 0,
            "eval_steps": 0,
            "label_eval_rounds": 0,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(
                    f"key {name!r} is {getattr(self, name)}; write a whole number of at least {bound}"
                )
        for name in ("discount", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"key {name!r} is {getattr(self, name)}; write a number from 0 to 1")
        for name in ("plays", "stages"):
            if not getattr(self, name):
                raise InputError(f"key {name!r} is empty; write at least one")
        if min(self.seed, self.split_seed, self.eval_seed) < 0 or self.eval_seed == self.split_seed:
            raise InputError(
                f"keys 'seed', 'split_seed' and 'eval_seed' are {self.seed}, {self.split_seed} and "
                f"{self.eval_seed}; write whole numbers >= 0, the last two of which differ"
            )
        self._check_learner()

    def _check_learner(self) -> None:
        if len(set(self.stages)) < len(self.stages):
            raise InputError(
                f"key 'stages' is {[str(stage) for stage in self.stages]}; write each stage once at most"
            )
        plain = self.algorithm is not Algorithm.MASKABLE_PPO
        if plain and self.stages != (Stage.REINFORCE,):
            raise InputError(
                f"key 'stages' is {[str(stage) for stage in self.stages]} with algorithm "
                f"'{self.algorithm}'; write ['reinforce'], the others need 'maskable_ppo'"
            )
        if self.algorithm is Algorithm.DQN and self.network is not Network.FLAT:
            raise InputError(f"key 'network' is '{self.network}' with algorithm 'dqn'; write 'flat'")
        if self.algorithm is Algorithm.DQN and self.per_instance:
            raise InputError(
                "key 'per_instance' is true with algorithm 'dqn', which has no advantages; write false"
            )
        if self.algorithm is Algorithm.DQN and self.checkpoint_steps:
            raise InputError(
                f"key 'checkpoint_steps' is {self.checkpoint_steps} with algorithm 'dqn', whose replay "
                "buffer is not kept; write 0"
            )
        if self.network is Network.FLAT and self.stages != (Stage.REINFORCE,):
            raise InputError(
                "key 'network' is 'flat', which only 'reinforce' trains; write 'rows' or 'graph'"
            )

    @property
    def run_folder(self) -> Path:
        """Where everything about the run is written."""
        return Path(self.folder) / self.name

    def to_toml(self) -> str:
        """The file that it could have been read from."""
        table = write_table(self)
        plays = table.pop("plays")
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        for play in plays:
            lines += ["", "[[plays]]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in play.items() if value is not None]
        return "\n".join(lines) + "\n"


_COUNTS = [
    "width",
    "threads",
    "teacher_workers",
    "clone_epochs",
    "clone_batch_size",
    "total_steps",
    "rollout_steps",
    "batch_size",
    "epochs",
    "label_rounds",
    "label_instances",
    "label_samples",
    "label_epochs",
    "eval_instances",
]


def run_names() -> tuple[str, ...]:
    """Names of the shipped training runs, in alphabetical order."""
    return tuple(sorted(path.stem for path in config_folder("training").glob("*.toml")))


def load_config(name_or_path: str | Path = "pipeline_ppo", **changes: Any) -> TrainConfig:
    """Read a training run.

    Args:
        name_or_path: Name of a shipped file, or the path of one that ends in ``.toml``.
        changes: Fields to set in place of the file's.

    Raises:
        InputError: The file cannot be read, or a key is unknown, missing or out of range.
    """
    shipped = {name: config_folder("training") / f"{name}.toml" for name in run_names()}
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


def read_arguments(
    program: str, summary: str, arguments: Sequence[str] | None = None
) -> tuple[TrainConfig, argparse.Namespace]:
    """The configuration that a command line means, and what it says beside it: ``json`` and ``resume``.

    Raises:
        InputError: See :func:`load_config`.
    """
    parser = argparse.ArgumentParser(program, description=summary, allow_abbrev=False)
    parser.add_argument("--config", default="pipeline_ppo", help="name of a shipped file, or path of another")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.add_argument("--resume", action="store_true", help="go on from the run's last checkpoint")
    meanings = dict(re.findall(r"^ +(\w+): (.+)$", TrainConfig.__doc__ or "", re.MULTILINE))
    for field in fields(TrainConfig):
        if field.name == "plays":
            continue  # a table for each; in the file
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, metavar="VALUE", default=argparse.SUPPRESS, help=meanings.get(field.name))
    given = vars(parser.parse_args(arguments))
    beside = argparse.Namespace(json=given.pop("json"), resume=given.pop("resume"))
    source = given.pop("config")
    return load_config(source, **{name: _typed(name, text) for name, text in given.items()}), beside


def _typed(name: str, text: str) -> Any:
    """The value that an option's text means for a field."""
    annotation = TrainConfig.__annotations__[name]
    option = f"--{name.replace('_', '-')}"
    if annotation == "bool":
        if text not in ("true", "false"):
            raise InputError(f"{option} is {text!r}; write true or false")
        return text == "true"
    if annotation.startswith("tuple"):
        return [part for part in text.split(",") if part]
    if annotation not in ("int", "float"):
        return text
    try:
        return int(text) if annotation == "int" else float(text)
    except ValueError as error:
        raise InputError(f"{option} is {text!r}; write a number") from error
