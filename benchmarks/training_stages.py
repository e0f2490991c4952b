"""What each stage of training brings: the same first weights and the same family, other stages.

Every row trains a policy, then lets it play test instances greedily and as the best of 64 samples; ratios are
to the reference scheduler. Needs the extra ``rl``: ``python benchmarks/training_stages.py --rounds 30``.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import torch
from stable_baselines3.common.utils import set_random_seed
from tables import arguments, number, print_json, print_table, progress

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agents.config import Algorithm, Network, Stage, TrainConfig, load_config
from agents.families import Play, instance
from agents.rollouts import best_of, play
from agents.train import train
from cann_env.schedulers import decide, make_scheduler

if TYPE_CHECKING:
    from cann_env.program import Program

_CLONE, _REINFORCE, _LABEL = Stage.CLONE, Stage.REINFORCE, Stage.LABEL
_ROWS: tuple[tuple[str, dict[str, object]], ...] = (
    ("clone", {"stages": (_CLONE,)}),
    ("reinforce", {"stages": (_REINFORCE,)}),
    ("reinforce, advantages as they are", {"stages": (_REINFORCE,), "per_instance": False}),
    ("label", {"stages": (_LABEL,)}),
    ("clone, reinforce", {"stages": (_CLONE, _REINFORCE)}),
    ("clone, label", {"stages": (_CLONE, _LABEL)}),
    ("clone, label, teacher's episodes known", {"stages": (_CLONE, _LABEL), "label_known": True}),
    ("clone, reinforce, label", {"stages": (_CLONE, _REINFORCE, _LABEL)}),
    ("PPO without masks", {"stages": (_REINFORCE,), "algorithm": Algorithm.PPO}),
    (
        "DQN without masks",
        {"stages": (_REINFORCE,), "algorithm": Algorithm.DQN, "network": Network.FLAT, "batch_size": 256},
    ),
)
_TEST_SEED = 777
_SAMPLES = 64
_UNFINISHED = 3.0


class Row(NamedTuple):
    """One way to train.

    Attributes:
        stages: For people.
        greedy, best: Ratio of the objective to the reference's: geometric mean, unfinished episodes as 3.
        unfinished: Greedy episodes that did not finish.
        seconds: Of training, processor time.
    """

    stages: str
    greedy: float
    best: float
    unfinished: int
    seconds: float


def measure(config: TrainConfig, name: str, tests: list[Program], reference: list[int]) -> Row:
    """Train, and play the test instances."""
    set_random_seed(0)
    began = perf_counter()
    policy = train(config).policy
    seconds = perf_counter() - began
    masked = config.algorithm is Algorithm.MASKABLE_PPO
    greedy = play(policy, tests, masked=masked)
    ratios = [
        outcome.objective_ns / other if outcome is not None else _UNFINISHED
        for outcome, other in zip(greedy, reference, strict=True)
    ]
    best = (
        statistics.geometric_mean(
            best_of(policy, program, _SAMPLES).objective_ns / other
            for program, other in zip(tests, reference, strict=True)
        )
        if masked
        else float("nan")
    )
    unfinished = sum(outcome is None for outcome in greedy)
    return Row(name, statistics.geometric_mean(ratios), best, unfinished, seconds)


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--family", default="requests")
    parser.add_argument("--steps", type=int, default=300_000, help="decisions to reinforce")
    parser.add_argument("--rounds", type=int, default=40, help="of labelling")
    parser.add_argument("--tests", type=int, default=32, help="instances to play")
    given = parser.parse_args()
    torch.set_num_threads(1)
    one = Play(family=given.family, device=given.device, instances=300, envs=64)
    scenario = one.scenario()
    tests = [instance(scenario, _TEST_SEED, number) for number in range(given.tests)]
    reference = [decide(program, make_scheduler("reference", 0)).objective_ns for program in tests]
    rows = []
    with tempfile.TemporaryDirectory() as folder, progress(len(_ROWS)) as begin:
        base = replace(
            load_config("serving"),
            folder=folder,
            plays=(one,),
            total_steps=given.steps,
            label_rounds=given.rounds,
            label_instances=16,
            label_eval_rounds=0,
            eval_steps=0,
            checkpoint_steps=0,
        )
        for name, changes in _ROWS:
            begin(name)
            rows.append(measure(replace(base, name="run", **changes), name, tests, reference))
    if given.json:
        print_json(rows=rows)
    else:
        title = f"{given.family} on {given.device}, {given.tests} test instances, ratio to the reference"
        columns = ("stages", "greedy", f"best of {_SAMPLES}", "unfinished", "seconds")
        cells = [
            (r.stages, number(r.greedy), number(r.best), str(r.unfinished), f"{r.seconds:.0f}") for r in rows
        ]
        print_table(title, columns, cells)


if __name__ == "__main__":
    main()
