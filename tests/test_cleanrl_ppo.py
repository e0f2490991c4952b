"""The one-page learner: its advantages by hand, its mask, a short run by itself as a script."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PATH = Path(__file__).resolve().parent.parent / "agents" / "cleanrl_ppo.py"


@pytest.fixture(scope="module")
def ppo() -> Any:
    """The script as a module, without its package, which asks for more."""
    spec = importlib.util.spec_from_file_location("cleanrl_ppo", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_advantages_by_hand(ppo: Any) -> None:
    """Three steps, the second of which ends an episode; discount 1/2, lambda 1/2.

    Step 2: 3 + 8/2 - 1 = 6. Step 1: 2 - 1 = 1, nothing follows. Step 0: 1 + 1/2 - 1 + 1/4 of 1 = 0.75.
    """
    args = ppo.Args(gamma=0.5, gae_lambda=0.5)
    column = [
        [torch.tensor([each]) for each in row] for row in ((1.0, 2.0, 3.0), (1.0, 1.0, 1.0), (0.0, 1.0, 0.0))
    ]
    rewards, values, ended = (torch.stack(each) for each in column)
    found = ppo.advantages_of(rewards, values, ended, torch.tensor([8.0]), args)
    assert found.flatten().tolist() == [0.75, 1.0, 6.0]


def test_advantages_are_on_the_scale_of_their_environment(ppo: Any) -> None:
    """Environment 1 is a hundred times as hard as environment 0, and counts no more."""
    found = ppo.scaled(torch.tensor([[1.0, 100.0], [3.0, 300.0]]))
    assert found.flatten().tolist() == pytest.approx([-1.0, -1.0, 1.0, 1.0], abs=1e-5)


@pytest.mark.parametrize("choices", [1, 3])
def test_illegal_actions_are_never_drawn(ppo: Any, choices: int) -> None:
    agent = ppo.Agent({"commands": (2, 4), "streams": (3, 2), "moves": (2, 3), "device": (1, 5)}, choices, 8)
    actions = 2 * choices + 2 + 1
    mask = torch.zeros(64, actions, dtype=torch.bool)
    mask[:, [1, actions - 1]] = True
    policy, value = agent.policy(torch.rand(64, 8 + 6 + 6 + 5), mask)
    assert value.shape == (64,)
    assert set(policy.sample((50,)).flatten().tolist()) == {1, actions - 1}
    assert policy.probs.sum(-1).tolist() == pytest.approx([1.0] * 64)
    assert torch.isfinite(policy.entropy()).all()


@pytest.mark.parametrize("fields", [{"num_envs": 0}, {"total_steps": 10}, {"seed": 1000}, {"batch_size": 0}])
def test_what_cannot_be_run_is_refused(ppo: Any, fields: dict[str, int]) -> None:
    with pytest.raises(ppo.InputError, match="write"):
        ppo.Args(**fields)


@pytest.mark.slow
def test_one_seed_learns_the_same_twice(ppo: Any) -> None:
    args = ppo.Args(total_steps=1024, num_envs=4, batch_size=64)
    said: list[list[str]] = [[], []]
    weights = []
    for lines in said:
        agent = ppo.train(args, lines.append)
        weights.append(torch.cat([part.flatten() for part in agent.parameters()]))
    assert torch.equal(*weights)
    assert len(said[0]) == 8


@pytest.mark.slow
def test_the_script_runs_by_itself(tmp_path: Path) -> None:
    """Without Stable-Baselines3, from another folder; it prints what it came to beside the others."""
    code = f"""
import runpy, sys
sys.modules["stable_baselines3"] = sys.modules["sb3_contrib"] = None
sys.argv = ["cleanrl_ppo.py", "--total-steps", "2048", "--eval-instances", "1"]
runpy.run_path({str(PATH)!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines[-3:]} == {"agent", "random", "reference"}
