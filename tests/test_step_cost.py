"""What a step costs, part by part: how the benchmark divides, by hand, and that what it repeats is a step."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import make_case

from cann_env.engine import layout as at

pytest.importorskip("rich")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of the benchmarks as if it was run from its folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


# --- by hand --------------------------------------------------------------------------------------------


def test_what_parts_leave_of_the_whole_is_simulation(benchmark, monkeypatch) -> None:
    """Episodes of 1 and 3 steps that take 20 and 40 s each: (1 x 20 + 3 x 40) / 4 = 35, of parts 2 to 5.

    Unless one looks they take half as long.
    """
    module = benchmark("step_cost")
    episodes = [SimpleNamespace(actions=np.zeros(steps)) for steps in (1, 3)]
    monkeypatch.setattr(module, "seconds_of_parts", lambda one, _: [one.actions.size + n for n in range(4)])
    monkeypatch.setattr(
        module, "seconds_of_all", lambda one, looks: (5.0 + 5.0 * one.actions.size) * (1 + looks)
    )
    monkeypatch.setattr(module, "seconds_of_beginning", lambda one, repeats: repeats * one.actions.size)
    assert module.alone(episodes, 50) == {
        "choices": 2,
        "bound": 3,
        "observation": 4,
        "mask": 5,
        "simulation": 35.0 - 14.0,
        "whole": 35.0,
        "looking": 17.5,
        "beginning": 10,
    }


def test_rows_by_hand(benchmark) -> None:
    """Times in microseconds; what is not the time of a step stands beside nothing."""
    module = benchmark("step_cost")
    names = ("choices", "bound", "observation", "mask", "simulation", "whole", "looking", "beginning")
    seconds = dict(zip(names, (1e-6, 2e-6, 3e-6, 1e-6, 1e-6, 8e-6, 6e-6, 4e-6), strict=True))
    rows = module.rows_of(seconds, {64: (16e-6, 50e-6)})
    assert [row.part for row in rows] == [*names[:-1], "engine", "Python around it", "beginning"]
    assert [row.us for row in rows] == pytest.approx([1, 2, 3, 1, 1, 8, 6, 16, 50, 4])
    assert [8 * row.of_whole for row in rows[:8]] == pytest.approx([1, 2, 3, 1, 1, 8, 6, 16])
    assert [row.of_whole for row in rows[8:]] == [None, None]
    assert {(row.environments, row.per) for row in rows[7:]} == {
        (64, "step"),
        (64, "vector step"),
        (1, "episode"),
    }


def test_what_is_around_the_engine_by_hand(benchmark, monkeypatch) -> None:
    """Four environments; the policy takes 1 s, a step 10 s, 6 of them in the engine: 1.5 s each, 4 around."""
    module = benchmark("step_cost")
    now = [0.0]

    def later(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(module.rows_of_envs, "play", lambda rows, actions: later(6.0))

    class Player:
        count = 4

        def choose(self) -> None:
            later(1.0)

        def advance(self, actions: None) -> None:
            later(4.0)
            module.rows_of_envs.play(np.arange(4), actions)

    before = module.rows_of_envs.play
    assert module.side_by_side(Player(), 0.0, 3) == pytest.approx((1.5, 4.0))
    assert module.rows_of_envs.play is before


# --- what is repeated -----------------------------------------------------------------------------------


def episode_of(benchmark: Any, seed: int) -> tuple[Any, Any]:
    """The functions of the benchmark, and an episode of a random case without noise."""
    module = benchmark("step_parts")
    return module, module.random_episode(make_case(seed, plain=True).program, 2)


@pytest.mark.parametrize("seed", [18, 34])
def test_an_episode_is_played_again(seed: int, benchmark) -> None:
    """The states on the way are those that the decisions lead to; then it is finished."""
    module, one = episode_of(benchmark, seed)
    state = one.start.copy()
    for kept, first in zip(one.states, range(0, one.actions.size, 2), strict=True):
        assert (state == kept).all()
        module.play_again(one.program, state, one.actions[first : first + 2], True, one.flat, one.mask)
    assert state[at.S_STATUS] == at.FINISHED
    assert not one.mask.any()


def test_beginning_leads_to_the_first_decision(benchmark) -> None:
    module, one = episode_of(benchmark, 34)
    state = np.full_like(one.start, 7)
    module.play_again(one.program, state, np.array([at.BEGIN, at.BEGIN]), False, one.flat, one.mask)
    assert (state == one.start).all()


@pytest.mark.parametrize("seed", [18, 34])
def test_parts_are_repeated_on_states_that_stay(seed: int, benchmark) -> None:
    """Only what the engine takes for scratch may change; what is observed last is the last state."""
    module, one = episode_of(benchmark, seed)
    before = one.states.copy()
    assert all(seconds > 0 for seconds in module.seconds_of_parts(one, 2))
    state = before[-1].copy()
    seen, mask = one.flat.copy(), one.mask.copy()
    module.observe(one.program, state, one.flat)
    module.copy_mask(one.program, state, one.mask)
    assert (seen == one.flat).all()
    assert (mask == one.mask).all()
    assert mask.any()
    assert (one.states[:, : at.S_HEADER] == before[:, : at.S_HEADER]).all()


# --- as it is run ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_step_cost_runs(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("step_cost")
    monkeypatch.setattr(sys, "argv", ["benchmark", "--quick", "--json"])
    module.main()
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"rows", "facts", "machine"}
    assert set(found["machine"]) >= {"processor", "cores", "date", "cann-env"}
    assert all(set(row) == set(module.Row._fields) for row in found["rows"])
    us = {row["part"]: row["us"] for row in found["rows"]}
    parts = ("choices", "bound", "observation", "mask", "simulation")
    assert sum(us[part] for part in parts) == pytest.approx(us["whole"])
    assert set(us) == {*parts, "whole", "looking", "engine", "Python around it", "beginning"}
    assert found["facts"]["steps"] > 0 < found["facts"]["commands"]


@pytest.mark.slow
def test_the_table_is_printed(benchmark, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--quick"])
    benchmark("step_cost").main()
    printed = capsys.readouterr().out
    assert "simulation" in printed
    assert "floors" in printed
    assert "numba" in printed
