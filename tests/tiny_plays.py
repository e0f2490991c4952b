"""Small plays to learn from in seconds, policies without training, and a toy whose best order is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from agents.families import Play, instance
from agents.policies import GraphPolicy, ScoringPolicy
from cann_env.envs.batch import capacity_for
from cann_env.envs.spaces import action_space, observation_space
from cann_env.graph import Command, CommandGraph, CommandKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.random import Generator

    from cann_env.program import Program
    from cann_env.workloads.description import Target

WIDTH = 8

_TINY = """
[scenario]
name = "{name}"
description = "A few commands that fork and join."
device = "ascend910b2"

[workload]
kind = "random"
families = ["layered", "fork_join"]
weights = ["hbm"]
least_commands = {least}
most_commands = {most}

[options]
streams = 3
commands = {commands}
submission = "sink"
window = "startable"
noise = {noise}
"""


def tiny_family(
    folder: Path,
    *,
    name: str = "tiny",
    least: int = 4,
    most: int = 9,
    commands: int = 5,
    noise: float = 0.0,
) -> str:
    """The file of a family of graphs of a few commands."""
    file = folder / f"{name}.toml"
    text = _TINY.format(name=name, least=least, most=most, commands=commands, noise=noise)
    file.write_text(text, encoding="utf-8")
    return str(file)


def programs_of(family: str, count: int, split_seed: int = 1) -> list[Program]:
    """The first graphs of a split."""
    scenario = Play(family=family).scenario()
    return [instance(scenario, split_seed, number) for number in range(count)]


def new_policy(programs: Sequence[Program], *, graph: bool = False, seed: int = 0) -> ScoringPolicy:
    """A policy with drawn weights, the last ones among them, so that its scores differ."""
    torch.manual_seed(seed)
    options = programs[0].options
    capacity = capacity_for(programs) if graph else None
    kind = GraphPolicy if graph else ScoringPolicy
    space = observation_space(options, capacity)
    policy = kind(space, action_space(options), lambda _: 0.0, width=WIDTH)
    for parameter in policy.action_net.parameters():
        torch.nn.init.normal_(parameter)
    policy.set_training_mode(False)
    return policy


def scores_of(policy: ScoringPolicy, observations: dict[str, torch.Tensor]) -> torch.Tensor:
    """What a policy makes of each action, before masks."""
    with torch.no_grad():
        return policy.action_net(policy.extract_features(observations, policy.pi_features_extractor))


SHORT_NS, LONG_NS = 100_000, 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoJobs:
    """Two collectives, each followed by a callback; there is one engine for each kind.

    Job a: collective 1, callback 6. Job b: collective 12, callback 1. Time unit 100 us. By tail b is first::

        hcom bbbbbbbbbbbba           and with a first      hcom abbbbbbbbbbbb
        host             baaaaaa                           host  aaaaaa      b
             0          12     20                               0           13 14
    """

    kind: ClassVar[str] = "two_jobs"
    fixed: ClassVar[bool] = True

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        jobs = {"a": (SHORT_NS, LONG_NS), "b": (2 * LONG_NS, SHORT_NS)}
        commands = []
        for job, (reduce_ns, post_ns) in jobs.items():
            commands += [
                Command(name=f"reduce_{job}", kind=CommandKind.COLLECTIVE, duration_ns=reduce_ns),
                Command(
                    name=f"post_{job}",
                    kind=CommandKind.CALLBACK,
                    duration_ns=post_ns,
                    after=(f"reduce_{job}",),
                ),
            ]
        return CommandGraph(name, tuple(commands))


BEST_NS = 1_400_000
NEARLY_NS = 20_000
"""The optimum of two jobs, and what events between streams may cost on top."""


def two_jobs_family(folder: Path, kinds: Any) -> str:
    """The file of two jobs on two streams.

    Args:
        folder: Where it is written.
        kinds: ``cann_env.workloads.kinds.KINDS``, to which the workload is added; undo that afterwards.
    """
    kinds[TwoJobs.kind] = TwoJobs
    file = folder / "two_jobs.toml"
    file.write_text(
        '[scenario]\nname = "two_jobs"\ndescription = "The short collective has to go first."\n'
        'device = "ascend310b1"\n[workload]\nkind = "two_jobs"\n'
        "[options]\nstreams = 2\ncommands = 2\nprefetches = 0\nl2_prefetches = 0\n",
        encoding="utf-8",
    )
    return str(file)


RUN = """
name = "run"
folder = "{folder}"
network = "rows"
width = 8
torch_device = "cpu"
threads = 1
seed = 0
stages = ["reinforce"]
clone_batch_size = 64
total_steps = 128
rollout_steps = 16
batch_size = 32
epochs = 1
learning_rate = 0.002
discount = 0.97
gae_lambda = 0.95
entropy = 0.0
window = "{window}"
split_seed = 1
eval_seed = 2
eval_instances = 2

[[plays]]
family = "{family}"
instances = {instances}
envs = 4
"""


def run_file(folder: Path, family: str, *, window: str = "startable", instances: int = 4) -> str:
    """The file of a short training run, whose results go to ``folder``."""
    file = folder / "run.toml"
    text = RUN.format(folder=folder, family=family, window=window, instances=instances)
    file.write_text(text, encoding="utf-8")
    return str(file)
