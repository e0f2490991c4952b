"""The benchmarks of speed: what they count and divide, by hand, and that each runs at a tiny setting."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cann_env.units import InputError

pytest.importorskip("rich")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of the benchmarks as if it was run from its folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def printed_by(module: Any, words: str, monkeypatch: Any, capsys: Any) -> dict[str, Any]:
    """What a benchmark prints as JSON."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split(), "--json"])
    module.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# --- the policy -----------------------------------------------------------------------------------------


def drawn(benchmark: Any, mask: list[int], count: int) -> list[int]:
    """So many actions that the policy draws, one environment each."""
    rates = benchmark("rates")
    draw = getattr(rates.draw_legal, "py_func", rates.draw_legal)
    actions = np.full(count, -1, np.int64)
    draw(np.tile(np.array(mask, np.int8), (count, 1)), rates.random_states(count), actions)
    return actions.tolist()


def test_only_legal_actions_are_drawn_all_alike(benchmark) -> None:
    counts = np.bincount(drawn(benchmark, [0, 1, 1, 0, 0, 1, 0], 450), minlength=7)
    assert counts[[0, 3, 4, 6]].tolist() == [0, 0, 0, 0]
    assert all(110 < count < 190 for count in counts[[1, 2, 5]])


@pytest.mark.parametrize("only", [0, 3, 6])
def test_the_only_legal_action_is_drawn(only: int, benchmark) -> None:
    mask = [int(action == only) for action in range(7)]
    assert set(drawn(benchmark, mask, 20)) == {only}


def test_generators_go_on(benchmark) -> None:
    rates = benchmark("rates")
    draw = getattr(rates.draw_legal, "py_func", rates.draw_legal)
    states, actions = rates.random_states(1), np.zeros(1, np.int64)
    seen = set()
    for _ in range(40):
        draw(np.ones((1, 4), np.int8), states, actions)
        seen.add(int(actions[0]))
    assert seen == {0, 1, 2, 3}


# --- the clock ------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands still unless it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)
        monkeypatch.setattr("time.process_time", lambda: self.now / 2)


class FakePlayer:
    """Eight environments; the policy takes a second, a step as long as one says; each third step ends one."""

    count = 8

    def __init__(
        self, clock: Clock, step_s: float = 3.0, log: list[str] | None = None, name: str = ""
    ) -> None:
        self.clock, self.step_s, self.log, self.name = clock, step_s, [] if log is None else log, name
        self.steps = 0
        self.over = np.zeros(8, np.bool_)

    def choose(self) -> int:
        self.clock.now += 1.0
        return 5

    def advance(self, actions: int) -> None:
        assert actions == 5
        self.clock.now += self.step_s
        self.steps += 1
        self.over[0] = self.steps % 3 == 0
        self.log.append(self.name)


def test_a_rate_by_hand(benchmark, monkeypatch) -> None:
    """Two steps of eight environments in 2 x (1 + 3) seconds, 2 of them the policy's; half a processor."""
    timing = benchmark("rates").play(FakePlayer(Clock(monkeypatch)), seconds=5.0, calls=1)
    assert timing == (16 / 8, 16 / 6, 0.5)


def test_a_run_has_its_calls_however_long_they_take(benchmark, monkeypatch) -> None:
    player = FakePlayer(Clock(monkeypatch))
    benchmark("rates").play(player, seconds=1.0, calls=7)
    assert player.steps == 7


def test_players_take_turns_and_medians_stay(benchmark, monkeypatch) -> None:
    """After a warm-up ``a`` and ``b`` alternate; the runs of ``a`` take 4, 2 and 9 seconds a step."""
    log: list[str] = []
    clock = Clock(monkeypatch)
    a, b = (FakePlayer(clock, log=log, name=name) for name in "ab")
    lengths = iter((3.0, 3.0, 1.0, 8.0))
    play = benchmark("rates").play

    def varied(player: Any, seconds: float, calls: int) -> Any:
        if player is a:
            a.step_s = next(lengths)
        return play(player, seconds, calls)

    monkeypatch.setattr(benchmark("rates"), "play", varied)
    begun: list[str] = []
    found = benchmark("rates").take_turns({"a": (a, 1), "b": (b, 1)}, 3, 0.0, begun.append)
    assert "".join(log) == "abababab"
    assert begun == ["run 1", "run 2", "run 3"]
    assert found["a"].rate == 8 / 4
    assert found["a"].alone == 8 / 3


def test_the_length_of_an_episode_by_hand(benchmark, monkeypatch) -> None:
    rates = benchmark("rates")
    assert rates.steps_an_episode(FakePlayer(Clock(monkeypatch)), 6) == 6 * 8 / 2
    assert rates.steps_an_episode(FakePlayer(Clock(monkeypatch)), 2) is None


# --- what is played -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("commands", "draws"), [(100, 64), (1000, 8)])
def test_serving_has_about_the_commands_it_is_asked_for(commands: int, draws: int, benchmark) -> None:
    rates = benchmark("rates")
    assert rates.mean_commands(rates.serving(commands), draws) == pytest.approx(commands, rel=0.1)


def test_serving_takes_options(benchmark) -> None:
    scenario = benchmark("rates").serving(41, window="startable")
    assert scenario["options"]["window"] == "startable"
    assert scenario["workload"]["requests"] == 2


def test_cases_name_themselves_apart(benchmark, monkeypatch) -> None:
    cases = benchmark("step_cases")
    monkeypatch.setattr(cases, "mean_commands", lambda scenario, draws: 100.0)
    found = cases.cases([2, 4], [1, 2], cases.QUICK)
    assert len({case.key for case in found}) == len(found)
    assert {case.kind for case in found} >= {"vector", "single"}
    assert [case.environments for case in found if case.plain] == [2, 4]


# --- ratios ---------------------------------------------------------------------------------------------


def rows_by_hand(benchmark: Any) -> tuple[Any, list[Any]]:
    """Serving at 64 and 256 environments, on two threads, single and long, beside peers of known rates."""
    step_rate, cases, rates = (benchmark(name) for name in ("step_rate", "step_cases", "rates"))
    jumanji = {
        "rows": [
            {"reset": "wrapper", "rate": 50.0},
            {"reset": "wrapper", "rate": 100.0},
            {"reset": "pool", "rate": 200.0},
        ]
    }
    peers = step_rate.Peers({64: 500.0, 256: 600.0}, {0: 30.0, 64: 1000.0, 256: 2000.0}, jumanji)
    played = [
        ("Serving", "vector", 64, 1, 500.0),
        ("Serving", "vector", 256, 1, 600.0),
        ("Serving", "vector", 64, 2, 900.0),
        ("Serving", "single", 1, 1, 12.0),
        ("Serving, long", "vector", 64, 1, 350.0),
    ]
    rows = [
        step_rate.row_of(
            cases.Case(name, kind, "id", {}, environments, threads, 1, 100.0),
            rates.Timing(rate, 2 * rate, 1.0),
            peers,
        )
        for name, kind, environments, threads, rate in played
    ]
    return step_rate, rows


def test_ratios_by_hand(benchmark) -> None:
    _, rows = rows_by_hand(benchmark)
    few, many, two, single, long = (row[-4:] for row in rows)
    assert few == (1.0, 0.5, 5.0, 2.5)
    assert many == (1.0, 0.3, 6.0, 3.0)
    assert two == (1.8, 0.9, None, None)  # Jumanji runs on one thread
    assert single == (None, 0.4, None, None)
    assert long == (0.7, 0.35, 3.5, 1.75)


def test_aims_by_hand(benchmark) -> None:
    step_rate, rows = rows_by_hand(benchmark)
    found = {aim.name: aim.found for aim in step_rate.targets(rows)}
    assert found["steps a second, one thread"] == 600.0
    assert found["over Jumanji's JobShop"] == 6.0
    assert found["two threads over one"] == 1.8
    assert found["long graphs over usual ones"] == 0.7
    assert found["single over single CartPole"] == 0.4
    assert found["steps a second, SB3 adapter"] is None


def test_a_list_schedule_by_hand(benchmark) -> None:
    """Two processors; every edge delays by 1 between them.

    ::

             b (3)               p0: a a c c c c . d
        a (2)     d (1)          p1: . . . b b b
             c (4)
    """
    module = benchmark("simulate_rate")
    edges = [(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1)]
    plan = module.Plan(None, None, 0, [2, 3, 4, 1], edges)
    placed = module.list_schedule(module.as_networkx(plan), 2)
    assert placed == {0: (0, 0, 2), 1: (1, 3, 6), 2: (0, 2, 6), 3: (0, 7, 8)}


# --- peers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "peers"), [("peer_jumanji", {"jax", "jumanji"}), ("peer_saga", {"saga"})])
def test_scripts_of_peers_run_where_nothing_else_is_installed(name: str, peers: set[str]) -> None:
    tree = ast.parse((BENCHMARKS / f"{name}.py").read_text("utf-8"))
    wanted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            wanted.add((node.module or "").split(".")[0])
    assert wanted - sys.stdlib_module_names == peers


def test_an_interpreter_that_is_not_there_is_named(benchmark) -> None:
    with pytest.raises(InputError, match=r"'no-such-python' cannot be started: No such file.*name a Python"):
        benchmark("rates").run_peer("peer_saga.py", "no-such-python", [])


@pytest.mark.slow
def test_a_script_that_fails_shows_why(benchmark) -> None:
    with pytest.raises(InputError, match=r"(?s)peer_saga.py failed under .*unrecognized arguments: --wrong"):
        benchmark("rates").run_peer("peer_saga.py", sys.executable, ["--wrong"])


@pytest.mark.slow
def test_what_a_script_prints_is_read(benchmark, monkeypatch, tmp_path) -> None:
    """The script of a peer that is not installed says so."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = tmp_path / "peer.py"
    script.write_text(
        "import json, sys; print(json.dumps({'words': sys.argv[1:], 'given': sys.stdin.read()}))"
    )
    monkeypatch.setattr(benchmark("rates"), "__file__", str(tmp_path / "rates.py"))
    found = benchmark("rates").run_peer("peer.py", sys.executable, ["--runs", "2"], "graphs")
    assert found == {"words": ["--runs", "2"], "given": "graphs"}


# --- each as it is run ----------------------------------------------------------------------------------

MACHINE = {"processor", "cores", "date", "python", "cann-env", "gymnasium", "numba", "numpy"}


@pytest.mark.slow
def test_step_rate_runs(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("step_rate")
    found = printed_by(module, "--quick", monkeypatch, capsys)
    rows = found["rows"]
    assert set(found["machine"]) == MACHINE
    assert all(set(row) == set(module.Row._fields) for row in rows)
    by_case = {(row["case"], row["kind"], row["environments"], row["threads"]): row for row in rows}
    assert len(by_case) == len(rows)
    pole = by_case["CartPole-v1", "vector", 2, 1]["rate"]
    assert by_case["Serving", "vector", 2, 1]["over_cartpole"] * pole == pytest.approx(
        by_case["Serving", "vector", 2, 1]["rate"]
    )
    single = by_case["Serving", "single", 1, 1]
    assert single["over_cartpole"] * by_case["CartPole-v1", "single", 1, 1]["rate"] == pytest.approx(
        single["rate"]
    )
    assert all(row["alone"] > row["rate"] > 0 for row in rows)
    assert found["facts"]["steps_an_episode"] > 0 < found["facts"]["compile_ms"]
    assert {row["case"] for row in rows} >= {"Training", "Oversubscribed", "Serving, startable", module.LONG}
    assert set(found["jumanji"]) <= {"missing", "rows", "versions"}


@pytest.mark.slow
def test_simulate_rate_runs(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("simulate_rate")
    found = printed_by(module, "--quick", monkeypatch, capsys)
    rows = found["rows"]
    assert set(found["machine"]) == MACHINE
    assert all(set(row) == set(module.Row._fields) for row in rows)
    for none, some, each in (rows[:3], rows[3:]):
        assert none["transfers_a_command"] < some["transfers_a_command"] < each["transfers_a_command"]
        assert none["commands"] == some["commands"] == each["commands"]
    assert all(row["over_listing"] == pytest.approx(row["rate"] / row["listing"]) for row in rows)
    assert all(row["decisions_a_command"] >= 1.0 for row in rows)


@pytest.mark.slow
def test_growth_runs_and_draws(benchmark, monkeypatch, capsys, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    module = benchmark("growth")
    path = tmp_path / "growth.png"
    rows = printed_by(module, f"--quick --picture {path}", monkeypatch, capsys)["rows"]
    assert path.read_bytes().startswith(b"\x89PNG")
    assert all(set(row) == set(module.Row._fields) for row in rows)
    assert {(row["axis"], row["value"]) for row in rows} == {
        (axis, value) for axis, values in module.QUICK.items() for value in values
    }
    for row in rows:
        assert row["over_base"] == 1.0 or row["value"] != module.BASE[row["axis"]]
        assert row["environments"] == (row["value"] if row["axis"] == "environments" else 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step_rate", "simulate_rate", "growth"])
def test_tables_are_printed(name: str, benchmark, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--quick"])
    benchmark(name).main()
    printed = capsys.readouterr().out
    assert "┃" in printed
    assert "numba" in printed
