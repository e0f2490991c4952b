"""Train an agent and compare it with the schedulers: ``python -m agents.train``.

A TOML file and the command line say what is played and in which stages an agent learns: it clones a teacher,
is reinforced, labels its own samples. What it learned plays instances it has not seen, greedily, beside some
schedulers. Policy, model, configuration, logs and scores stay in ``runs/<name>``.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import shlex
import statistics
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule, set_random_seed

from agents.advantage import PerInstanceAdvantage
from agents.checkpoints import Checkpoints, check_resumable, continue_log, load_checkpoint, logged_rows
from agents.cloning import clone, examples
from agents.config import Algorithm, Network, Stage, TrainConfig, read_arguments
from agents.families import instance
from agents.labelling import Labels, label
from agents.mixture import graph_capacity, make_mixture
from agents.policies import GraphPolicy, ScoringPolicy
from agents.scores import Score, evaluate, greedy_ratios, judges, table_of
from agents.shipping import Trained, save_policy
from agents.teacher import demonstrations
from cann_env import CannEnvError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.logger import Logger

    from agents.checkpoints import Remembering, Resumed
    from agents.mixture import MixedVecEnv
    from agents.scores import Judged
    from agents.teacher import Demonstration
    from cann_env.program import Program

_SUMMARY = "Train an agent, stage by stage, and compare it with the schedulers."
_POLICIES = {Network.ROWS: ScoringPolicy, Network.GRAPH: GraphPolicy, Network.FLAT: "MultiInputPolicy"}


# --- the learner --------------------------------------------------------------------------------------


def make_envs(config: TrainConfig) -> MixedVecEnv:
    """The environments that are played side by side."""
    graph = config.network is Network.GRAPH
    return make_mixture(
        config.plays, config.window, split_seed=config.split_seed, seed=config.seed, graph=graph
    )


def new_model(config: TrainConfig, envs: MixedVecEnv) -> BaseAlgorithm:
    """A model that has learned nothing yet."""
    flat = config.network is Network.FLAT
    arguments: dict[str, Any] = {
        "policy": _POLICIES[config.network],
        "env": envs,
        "batch_size": config.batch_size,
        "learning_rate": LinearSchedule(config.learning_rate, 0.0, 1.0),
        "gamma": config.discount,
        "policy_kwargs": {"net_arch": [config.width] * 2} if flat else {"width": config.width},
        "device": config.torch_device,
    }
    if config.algorithm is Algorithm.DQN:
        return DQN(
            **arguments, train_freq=config.rollout_steps, gradient_steps=config.epochs, buffer_size=100_000
        )
    arguments |= {
        "n_steps": config.rollout_steps,
        "n_epochs": config.epochs,
        "gae_lambda": config.gae_lambda,
        "ent_coef": config.entropy,
    }
    return MaskablePPO(**arguments) if config.algorithm is Algorithm.MASKABLE_PPO else PPO(**arguments)


# --- stages -------------------------------------------------------------------------------------------


def taught(config: TrainConfig, bar: Progress) -> list[Demonstration]:
    """What the teacher decides on all training instances."""
    task = bar.add_task(f"{config.teacher} decides")
    return demonstrations(
        config.plays,
        config.window,
        split_seed=config.split_seed,
        teacher=config.teacher,
        folder=config.run_folder.parent / "demonstrations",
        workers=config.teacher_workers,
        watch=lambda done, total: bar.update(task, completed=done, total=total),
    )


def clone_teacher(config: TrainConfig, model: BaseAlgorithm, bar: Progress) -> None:
    """Learn to decide as the teacher does."""
    shown = taught(config, bar)
    task = bar.add_task("Cloning")
    clone(
        model.policy,
        examples(_programs(config), [each.actions for each in shown], _capacity(config)),
        epochs=config.clone_epochs,
        batch_size=config.clone_batch_size,
        learning_rate=config.clone_learning_rate,
        seed=config.seed,
        watch=lambda done, total, loss: bar.update(
            task, completed=done, total=total, description=f"Cloning, loss {loss:.3f}"
        ),
    )


def reinforce(
    config: TrainConfig, model: BaseAlgorithm, bar: Progress, resumed: Resumed | None = None
) -> None:
    """Let the algorithm learn from what its decisions come to; go on from a checkpoint if one is given."""
    remembering: dict[str, Remembering] = {}
    if config.per_instance:
        remembering["advantage"] = PerInstanceAdvantage()
    if config.eval_steps:
        remembering["looks"] = GreedyReport(config)
    watchers: list[Any] = [ProgressReport(bar, config.total_steps), *remembering.values()]
    if config.checkpoint_steps:
        watchers.append(Checkpoints(_checkpoint(config), config.checkpoint_steps, remembering))
    earlier = []
    if resumed is not None:
        earlier = logged_rows(config.run_folder / "progress.csv", model.num_timesteps)
        for name in remembering.keys() & resumed.memories.keys():
            remembering[name].remember(resumed.memories[name])
    model.set_logger(configure(str(config.run_folder), _log_formats()))
    if resumed is not None:
        continue_log(model.logger, earlier, resumed.pending)
    left = config.total_steps - model.num_timesteps
    model.learn(left, callback=CallbackList(watchers), reset_num_timesteps=resumed is None)
    model.logger.close()


def label_samples(config: TrainConfig, model: BaseAlgorithm, bar: Progress) -> None:
    """Sample, and imitate the best; where a teacher was cloned, its episodes are the best to begin with."""
    programs = _programs(config)
    known = Labels([()] * len(programs), [0] * len(programs))
    if config.label_known and Stage.CLONE in config.stages:
        shown = taught(config, bar)
        known = Labels([each.actions for each in shown], [each.objective_ns for each in shown])
    weights = np.concatenate([np.full(play.instances, play.envs / play.instances) for play in config.plays])
    task = bar.add_task("Labelling", total=config.label_rounds)
    log = configure(str(config.run_folder / "label"), _log_formats())

    def watch(done: int, total: int, ratio: float) -> None:
        bar.update(task, completed=done, total=total, description=f"Labelling, {ratio:.3f} of the best known")
        log.record("label/ratio", ratio)
        if judged and (done % config.label_eval_rounds == 0 or done == total):
            record_ratios(config, log, greedy_ratios(model.policy, judged))
        log.dump(done)

    judged = _judged(config) if config.label_eval_rounds else []
    label(
        model.policy,
        programs,
        known,
        rounds=config.label_rounds,
        instances=config.label_instances,
        samples=config.label_samples,
        epochs=config.label_epochs,
        batch_size=config.clone_batch_size,
        learning_rate=config.label_learning_rate,
        seed=config.seed,
        weights=weights,
        capacity=_capacity(config),
        watch=watch,
    )
    log.close()


def _programs(config: TrainConfig) -> list[Program]:
    """All training instances, play after play."""
    return [
        instance(play.scenario(config.window), config.split_seed, number)
        for play in config.plays
        for number in range(play.instances)
    ]


def _judged(config: TrainConfig) -> list[Judged]:
    return judges(config.plays, config.window, seed=config.eval_seed, instances=config.eval_instances)


def _log_formats() -> list[str]:
    return ["csv", "tensorboard"] if importlib.util.find_spec("tensorboard") else ["csv"]


def _capacity(config: TrainConfig) -> Any:
    if config.network is not Network.GRAPH:
        return None
    return graph_capacity(config.plays, config.window, config.split_seed)


def train(config: TrainConfig, *, resume: bool = False) -> BaseAlgorithm:
    """Go through the stages, and save the policy with its configuration and logs.

    Args:
        config: Of the run.
        resume: Go on from the last checkpoint of ``reinforce``; what comes after it is what would have come.

    Raises:
        InputError: There is no checkpoint to go on from, or it belongs to another configuration.
    """
    began = time.monotonic()
    torch.set_num_threads(config.threads)
    stages = list(config.stages)
    resumed = None
    if resume:
        check_resumable(config)
        resumed = load_checkpoint(_checkpoint(config), config.torch_device)
        model = resumed.model
        stages = stages[stages.index(Stage.REINFORCE) :]
    config.run_folder.mkdir(parents=True, exist_ok=True)
    (config.run_folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    if resumed is None:
        _checkpoint(config).unlink(missing_ok=True)
        set_random_seed(config.seed)
        model = new_model(config, make_envs(config))
    with progress_bar() as bar:
        for stage in stages:
            if stage is Stage.CLONE:
                clone_teacher(config, model, bar)
            elif stage is Stage.REINFORCE:
                reinforce(config, model, bar, resumed)
            else:
                label_samples(config, model, bar)
    model.save(config.run_folder / "model.zip", exclude=["learning_rate", "lr_schedule", "clip_range"])
    if isinstance(model.policy, ScoringPolicy):
        facts = _facts(config, time.monotonic() - began)
        commands = config.plays[0].scenario().options.commands
        trained = Trained(policy=model.policy, window=config.window, commands=commands, facts=facts)
        save_policy(trained, config.run_folder / "policy.zip")
    model.env.close()
    return model


def _checkpoint(config: TrainConfig) -> Path:
    return config.run_folder / "checkpoint"


def _facts(config: TrainConfig, seconds: float) -> dict[str, Any]:
    return {
        "command": shlex.join(["python", "-m", "agents.train", *sys.argv[1:]]),
        "seed": config.seed,
        "seconds": round(seconds),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s) of torch {torch.__version__}",
        "config": config.to_toml(),
    }


# --- what is seen meanwhile -------------------------------------------------------------------------------


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


class GreedyReport(BaseCallback):
    """Logs now and then how the greedy policy does on instances it does not learn from: ``eval/ratio``.

    The ratio is that of its objective to the reference scheduler's, geometric mean over all plays.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self._config = config
        self._steps = self._next = config.eval_steps
        self._judges = judges(
            config.plays, config.window, seed=config.eval_seed, instances=config.eval_instances
        )

    def memory(self) -> int:
        """When it looks next, in decisions."""
        return self._next

    def remember(self, memory: int) -> None:
        """Look next at this number of decisions."""
        self._next = memory

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._next = self.num_timesteps + self._steps
            masked = isinstance(self.model, MaskablePPO)
            ratios = greedy_ratios(self.model.policy, self._judges, masked=masked)
            record_ratios(self._config, self.logger, ratios)


def record_ratios(config: TrainConfig, log: Logger, ratios: Sequence[float]) -> None:
    """Log ratios to the reference: of each play, and their geometric mean."""
    log.record("eval/ratio", statistics.geometric_mean(ratios))
    for play, ratio in zip(config.plays, ratios, strict=True):
        log.record(f"eval/{play.name}", ratio)


def progress_text(returns: Sequence[float]) -> str:
    """By how much recent episodes exceeded their bound on average: minus their return."""
    return f"Training, {-statistics.mean(returns):.1%} over bound" if returns else "Training"


# --- the run ----------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> list[Score]:
    """Train, compare, print; the command line is ``arguments``, or that of the process."""
    config, beside = read_arguments("python -m agents.train", _SUMMARY, arguments)
    model = train(config, resume=beside.resume)
    masked = config.algorithm is Algorithm.MASKABLE_PPO
    scores = evaluate(
        model.policy,
        config.plays,
        config.window,
        seed=config.eval_seed,
        instances=config.eval_instances,
        masked=masked,
    )
    report = json.dumps([asdict(score) for score in scores], indent=2)
    (config.run_folder / "scores.json").write_text(report + "\n", encoding="utf-8")
    if beside.json:
        print(report)
    else:
        print(f"{table_of(scores)}\n\nPolicy, configuration, logs and scores: {config.run_folder}")
    return scores


if __name__ == "__main__":
    try:
        main()
    except (CannEnvError, gymnasium.error.Error) as error:
        sys.exit(f"agents.train: {error}")
