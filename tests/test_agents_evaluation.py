"""Agents beside the schedulers: scores after training, test sets, contests, and what the tables say."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from tiny_plays import WIDTH, new_policy, run_file, tiny_family  # noqa: E402

import agents.evaluate  # noqa: E402
import agents.suites  # noqa: E402
from agents.config import load_config  # noqa: E402
from agents.contests import Row, contest  # noqa: E402
from agents.evaluate import main, recipes, training_digests  # noqa: E402
from agents.families import Play, digest, instance  # noqa: E402
from agents.policies import ScoringPolicy  # noqa: E402
from agents.scores import AGENT, Score, evaluate, greedy_ratios, judges, table_of  # noqa: E402
from agents.shipping import Trained, save_policy  # noqa: E402
from agents.standings import UNFINISHED, best_windows, standings  # noqa: E402
from agents.suites import TestSet, load_tests, suite_names  # noqa: E402
from cann_env import InputError  # noqa: E402
from cann_env.envs import CannEnv  # noqa: E402
from cann_env.envs.spaces import action_space, observation_space  # noqa: E402
from cann_env.options import RunOptions, Window  # noqa: E402
from cann_env.program import compile_graph  # noqa: E402
from cann_env.schedulers import decide, make_scheduler, run_scheduler  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- scores after training ----------------------------------------------------------------------------


def policy_of(env: CannEnv) -> ScoringPolicy:
    """An untrained policy."""
    torch.manual_seed(0)
    return ScoringPolicy(env.observation_space, env.action_space, lambda _: 0.0, width=WIDTH)


def played(policy: ScoringPolicy, env: CannEnv, seed: int, number: int) -> int:
    """Makespan (ns) of a policy that plays an instance in the environment itself."""
    observation, info = env.reset(seed=seed, options={"instance": number})
    ended = False
    while not ended:
        action, _ = policy.predict(observation, action_masks=info["action_mask"], deterministic=True)
        observation, _, ended, _, info = env.step(int(action))
    return env.schedule().makespan_ns


def test_the_agent_is_judged_on_what_it_plays_and_the_schedulers_keep_their_streams() -> None:
    """In the window 'startable' a rule cannot name streams; the comparison gives it the other window."""
    env = CannEnv("pipeline", options={"window": "startable"})
    policy = policy_of(env)
    makespan = played(policy, env, 5, 0)
    plays = (Play(family="pipeline"),)
    found = evaluate(policy, plays, Window.STARTABLE, seed=5, instances=3)
    scores = {each.scheduler: each for each in found}
    assert {each.instances for each in found} == {1}, "the pipeline never varies"
    assert {each.unfinished for each in found} == {0}
    assert round(scores[AGENT].makespan_ns or 0) == makespan

    pipeline = CannEnv("pipeline", options={"window": "issuable"})
    pipeline.reset()
    full = run_scheduler(pipeline.program, "per_engine").makespan_ns
    assert round(scores["per_engine"].makespan_ns or 0) == full
    assert run_scheduler(env.program, "per_engine").makespan_ns > full
    assert scores["single_stream"].to_single_stream == 1.0
    assert scores["per_engine"].over_bound == pytest.approx(full / pipeline.program.lower_bound_ns - 1.0)
    reference = run_scheduler(pipeline.program, "reference").makespan_ns
    judged = judges(plays, Window.STARTABLE, seed=5, instances=3)
    assert judged[0].reference_ns == [reference]
    assert greedy_ratios(policy, judged) == [pytest.approx(makespan / reference)]


def test_instances_and_noise_of_the_comparison_follow_its_seed(tmp_path: Path) -> None:
    family = tiny_family(tmp_path, noise=0.1)
    env = CannEnv(family, instances=None)
    policy = policy_of(env)
    plays = (Play(family=family),)
    first, again, other = (
        evaluate(policy, plays, Window.STARTABLE, seed=seed, instances=2) for seed in (5, 5, 6)
    )
    assert first == again
    assert all(one.makespan_ns != two.makespan_ns for one, two in zip(first, other, strict=True))
    assert {each.instances for each in first} == {2}

    agent, single = [], []
    for number in range(2):
        agent.append(played(policy, env, 5, number))
        own, noise = env.program, env.get_state().noise
        full = compile_graph(own.graph, own.device, replace(own.options, window=Window.ISSUABLE))
        single.append(decide(full, make_scheduler("single_stream"), noise=noise).end_ns)
        assert single[-1] != decide(full, make_scheduler("single_stream")).end_ns
    scores = {each.scheduler: each.makespan_ns for each in first}
    assert scores[AGENT] == pytest.approx(geometric_mean(agent), rel=1e-12)
    assert scores["single_stream"] == pytest.approx(geometric_mean(single), rel=1e-12)


def test_an_agent_that_does_not_finish_has_no_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of two, then one of two, whose numbers stand alone then."""
    env = CannEnv(tiny_family(tmp_path), instances=None)
    policy = policy_of(env)
    plays = (Play(family=tiny_family(tmp_path)),)
    alone = evaluate(policy, plays, Window.STARTABLE, seed=5, instances=1)[0]
    real = agents.scores.play
    monkeypatch.setattr("agents.scores.play", lambda policy, programs, **how: [None] * len(programs))
    found = evaluate(policy, plays, Window.STARTABLE, seed=5, instances=2)
    assert found[0] == Score(
        scheduler=AGENT, instances=2, unfinished=2, makespan_ns=None, to_single_stream=None, over_bound=None
    )
    judged = judges(plays, Window.STARTABLE, seed=5, instances=2)
    assert greedy_ratios(policy, judged) == [pytest.approx(3.0)]
    assert table_of(found).splitlines()[-1].split() == ["agent", "2", "of", "2", "unfinished"]
    monkeypatch.setattr(
        "agents.scores.play", lambda policy, programs, **how: [real(policy, programs[:1])[0], None]
    )
    half = evaluate(policy, plays, Window.STARTABLE, seed=5, instances=2)[0]
    assert half == replace(alone, instances=2, unfinished=1)


def test_the_table_is_sorted_by_what_counts() -> None:
    scores = [
        Score(
            scheduler=name,
            instances=1,
            unfinished=0,
            makespan_ns=1.5e6,
            to_single_stream=0.5,
            over_bound=gap,
        )
        for name, gap in (("slow", 0.75), ("agent", 0.25))
    ]
    heading, first, second = table_of(scores).splitlines()
    assert heading.split() == ["scheduler", "makespan", "x", "single", "over", "bound"]
    assert first.split() == ["agent", "1.50", "ms", "0.500", "25.0%"]
    assert second.split()[0] == "slow"


# --- test sets ----------------------------------------------------------------------------------------


def test_set(family: str, **changes: Any) -> TestSet:
    """Three instances of a family as it is."""
    known = {"axis": "size", "value": "", "recipe": "own", "family": family, "device": None, "instances": 3}
    return TestSet(**(known | changes))


test_set.__test__ = False  # type: ignore[attr-defined]


def test_what_somebody_was_trained_on_is_left_out(tmp_path: Path) -> None:
    each = test_set(tiny_family(tmp_path))
    cases = each.cases(9)
    marks = [digest(case.program) for case in cases]
    assert len(set(marks)) == len(cases) == 3
    assert [case.number for case in cases] == [0, 1, 2]
    others = each.cases(9, {marks[1]})
    assert [case.number for case in others] == [0, 2, 3]
    assert marks[1] not in [digest(case.program) for case in others]
    assert [case.optimum_ns for case in cases] == [None] * 3


def trained_on(family: str, folder: Path, window: str = "startable") -> Trained:
    """A policy that says it was trained on four graphs of a family."""
    config = load_config(run_file(folder, family, window=window))
    scenario = Play(family=family).scenario()
    policy = new_policy([instance(scenario, 1, 0)])
    return Trained(
        policy=policy, window=Window(window), commands=5, facts={"config": config.to_toml(), "seed": 0}
    )


@pytest.mark.parametrize("window", ["startable", "issuable"])
def test_the_digests_of_training_are_those_of_test_sets(tmp_path: Path, window: str) -> None:
    """Whatever the window of the agent: the same split gives the same instances, another one others."""
    family = tiny_family(tmp_path)
    known = training_digests([trained_on(family, tmp_path, window)] * 2)
    scenario = Play(family=family).scenario()
    assert known == {digest(instance(scenario, 1, number)) for number in range(4)}
    each = test_set(family)
    assert {digest(case.program) for case in each.cases(1)} <= known
    assert [case.number for case in each.cases(1, known)] == [4, 5, 6]


def test_a_set_changes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    family = tiny_family(tmp_path)
    plain = test_set(family).cases(9)
    (noisy, *_) = test_set(family, options=(("noise", 0.1),)).cases(9)
    assert noisy.noise is not None
    assert plain[0].noise is None
    assert noisy.program.graph == plain[0].program.graph
    large = test_set(family, workload=(("least_commands", 20), ("most_commands", 22))).cases(9)
    longest = max(len(case.program.graph.commands) for case in plain)
    assert max(len(case.program.graph.commands) for case in large) > longest
    (moved, *_) = test_set(family, device="ascend310b1").cases(9)
    assert moved.program.device.name == "ascend310b1"
    certified = test_set("planted", instances=2, workload=(("kernels", 6), ("loads", 0.0))).cases(9)
    assert len(certified) == 2
    for case in certified:
        assert case.optimum_ns is not None
        assert decide(case.program, make_scheduler("reference")).objective_ns >= case.optimum_ns


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_can_be_made(name: str) -> None:
    sets = load_tests(name)
    assert len({(each.axis, each.name) for each in sets}) == len(sets)
    for each in sets:
        (case, *_) = replace(each, instances=1).cases(777)
        assert case.program.norm_ns > 0


def test_wrong_suites_and_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="suite 'hard' is not known; write one of quick, smoke, standard"):
        load_tests("hard")
    monkeypatch.setattr(agents.suites, "_folder", lambda: tmp_path)
    known = 'axis = "size"\nrecipe = "own"\nfamily = "graphs"\ninstances = 2\n'
    for text, message in (
        (known + "seeds = 3\n", r"set 0: key 'seeds' is not known; the keys are axis, devices, family"),
        (known.replace("instances", "#"), "set 0: key 'instances' is missing"),
        (known.replace("axis", "#"), "set 0: key 'axis' is missing"),
    ):
        (tmp_path / "own.toml").write_text("[[sets]]\n" + text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            load_tests("own")
    text = "[[sets]]\n" + known + 'devices = ["ascend910b2", "ascend310b1"]\noptions = { noise = 0.1 }\n'
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    first, second = load_tests("own")
    assert (first.device, second.device) == ("ascend910b2", "ascend310b1")
    assert first.options == (("noise", 0.1),)


# --- contests -----------------------------------------------------------------------------------------


def test_everybody_plays_every_instance(tmp_path: Path) -> None:
    family = tiny_family(tmp_path, noise=0.1)
    each = test_set(family, instances=2)
    trained = trained_on(family, tmp_path)
    rows = contest(each, each.cases(9), {0: trained}, samples=3, schedulers=("reference", "heft"))
    found = {(row.contestant, row.window, row.number): row for row in rows}
    windows = ("wide", "issuable", "startable")
    names = [(name, window) for name in ("reference", "heft", "search, same seconds") for window in windows]
    names += [("best of 3 random", "startable"), ("learned, best of 3", "own"), ("learned, greedy", "own")]
    assert {key[:2] for key in found} == set(names)
    assert len(rows) == len(found) == 2 * len(names)
    for case in each.cases(9):
        program = compile_graph(
            case.program.graph, case.program.device, replace(case.program.options, window=Window.ISSUABLE)
        )
        wanted = decide(program, make_scheduler("heft"), noise=case.noise).objective_ns
        row = found["heft", "issuable", case.number]
        assert (row.objective_ns, row.bound_ns) == (wanted, case.program.norm_ns)
        assert row.commands == len(case.program.graph.commands)
        assert row.seconds > 0


# --- standings ----------------------------------------------------------------------------------------


def row(contestant: str, number: int, objective_ns: int | None, **changes: Any) -> Row:
    """A row of a set named ``one`` with a bound of 50 ns."""
    known: dict[str, Any] = {
        "axis": "size",
        "test": "one",
        "number": number,
        "contestant": contestant,
        "seed": 0,
        "window": "wide",
        "commands": 5,
        "objective_ns": objective_ns,
        "bound_ns": 50,
        "optimum_ns": None,
        "seconds": 0.5,
    }
    return Row(**(known | changes))


def test_the_best_window_is_that_of_the_least_geometric_mean() -> None:
    """100 and 100 beat 10 and 1001, whose arithmetic mean is worse and whose geometric mean is too; and lose
    to 10 and 999. One that was not finished loses to all."""
    wide = [row("a", number, 100) for number in range(2)]
    for last, kept in ((1001, "wide"), (999, "narrow"), (None, "wide")):
        narrow = [row("a", 0, 10, window="narrow"), row("a", 1, last, window="narrow")]
        assert {each.window for each in best_windows(wide + narrow)} == {kept}
    other = [replace(each, test="two", window="narrow") for each in wide]
    assert len(best_windows(wide + other)) == 4, "each set has a best window of its own"


def test_standings_by_hand() -> None:
    """Set one: x has 50 and 200 where the reference has 100. Set two: 300 and unfinished.

    Means 1 and sqrt(3 * 3) = 3, so sqrt(3) over sets; ratios 0.5, 2, 3, 3. Against 200 of the autotuning: 1/4
    and 1, mean 1/2; 3/2 and 3, mean sqrt(4.5).
    """
    rows = []
    for test, objectives in (("one", (50, 200)), ("two", (300, None))):
        for number, objective in enumerate(objectives):
            rows.append(row("x", number, objective, test=test, seconds=0.25, optimum_ns=25))
            rows.append(row("reference", number, 100, test=test))
            rows.append(row("cann_autotune", number, 200, test=test))
            rows.append(row("search, same seconds", number, 50, test=test))
    found = {each.contestant: each for each in standings(rows, "size")}
    x = found["x"]
    assert (x.sets, x.instances, x.seeds) == (2, 4, 1)
    assert x.to_reference == pytest.approx(3**0.5)
    assert x.by_seed == pytest.approx((3**0.5,))
    assert x.to_autotune == pytest.approx((0.5 * 4.5**0.5) ** 0.5)
    assert (x.wins, x.ties, x.losses, x.unfinished) == (1, 0, 2, 1)
    assert x.median == pytest.approx(2.5)
    assert x.p90 == pytest.approx(3.0)
    assert x.gap == pytest.approx((1 * 4 * 6) ** (1 / 3) - 1)
    assert x.optimum_gap == pytest.approx((2 * 8 * 12) ** (1 / 3) - 1)
    assert x.seconds == pytest.approx(0.25)
    assert x.low < x.to_reference < x.high
    reference = found["reference"]
    assert (reference.to_reference, reference.low, reference.high) == (1.0, 1.0, 1.0)
    assert (reference.wins, reference.ties, reference.losses) == (0, 4, 0)
    assert reference.to_search == pytest.approx(2.0)
    assert reference.optimum_gap is None
    assert next(iter(found)) == "search, same seconds"
    one = {each.contestant: each for each in standings(rows, "size", test="one")}
    assert one["x"].to_reference == pytest.approx(1.0)
    assert standings(rows, "noise") == []


def test_the_thresholds_of_a_win_and_a_loss() -> None:
    """Of 1050 ns: 1000 is 1.05 times as fast, 1071 is 0.98 times as fast."""
    for objective, verdicts in ((1000, (1, 0, 0)), (1001, (0, 1, 0)), (1071, (0, 1, 0)), (1072, (0, 0, 1))):
        rows = [row(name, 0, 1050) for name in ("reference", "cann_autotune")] + [row("x", 0, objective)]
        found = {each.contestant: each for each in standings(rows, "size")}["x"]
        assert (found.wins, found.ties, found.losses) == verdicts


def test_intervals_hold_seeds_and_instances() -> None:
    """Equal rows have no width; two seeds that differ have one that reaches from one to the other."""
    rows = [row(name, k, 100) for name in ("reference", "cann_autotune") for k in range(3)]
    equal = [row("x", k, 200, seed=seed) for k in range(3) for seed in range(2)]
    differ = [row("y", k, 100 * (seed + 1), seed=seed) for k in range(3) for seed in range(2)]
    found = {each.contestant: each for each in standings(rows + equal + differ, "size")}
    x, y = found["x"], found["y"]
    assert (x.to_reference, x.low, x.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (x.seeds, x.instances) == (2, 3)
    assert y.to_reference == pytest.approx(2**0.5)
    assert (y.low, y.high) == pytest.approx((1.0, 2.0))
    assert y.by_seed == pytest.approx((1.0, 2.0))
    assert UNFINISHED == 3.0


# --- the command --------------------------------------------------------------------------------------


def test_policies_are_named_by_recipe_and_seed(tmp_path: Path) -> None:
    names = ["window_0.zip", "window_12.zip", "graph_x.zip", "mine.zip"]
    found = recipes([tmp_path / name for name in names])
    assert {name: list(seeds) for name, seeds in found.items()} == {
        "window": [0, 12],
        "graph_x": [0],
        "mine": [0],
    }
    with pytest.raises(InputError, match="have the same name; rename one of them"):
        recipes([tmp_path / "mine.zip", tmp_path / "there" / "mine.zip"])
    with pytest.raises(InputError, match="there is no policy to test"):
        recipes([])
    with pytest.raises(InputError, match="--samples is 0"):
        main(["--samples", "0"])


class _Here:
    """Does at once what a pool of processes would do."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.map = map

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *error: object) -> None:
        return None


@pytest.fixture
def two_seeds(tmp_path: Path) -> list[str]:
    """Files of an untrained policy under two training seeds."""
    options = RunOptions(streams=8, window=Window.STARTABLE)
    facts = {"config": load_config(run_file(tmp_path, "graphs")).to_toml()}
    files = []
    for seed in range(2):
        torch.manual_seed(seed)
        policy = ScoringPolicy(observation_space(options), action_space(options), lambda _: 0.0, width=WIDTH)
        trained = Trained(policy=policy, window=Window.STARTABLE, commands=options.commands, facts=facts)
        files.append(str(tmp_path / f"raw_{seed}.zip"))
        save_policy(trained, files[-1])
    return files


def test_the_smoke_suite_from_files_to_tables(
    two_seeds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(agents.evaluate, "ProcessPoolExecutor", _Here)
    monkeypatch.setattr(
        agents.evaluate,
        "contest",
        lambda *given, **how: contest(*given, **how, schedulers=("random", "cann_autotune", "reference")),
    )
    table, picture = tmp_path / "rows.csv", tmp_path / "axes.png"
    line = [
        "--suite",
        "smoke",
        "--samples",
        "2",
        "--jobs",
        "1",
        "--csv",
        str(table),
        "--picture",
        str(picture),
    ]
    rows = main([*two_seeds, *line, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["axes"]) == ["in distribution", "noise", "certified"]
    facts = printed["facts"]
    assert (facts["training_instances"], facts["test_instances"], facts["in_both"]) == (4, 6, 0)
    assert facts["policies"] == {"raw": ["raw_0.zip", "raw_1.zip"]}
    for axis, found in printed["axes"].items():
        standing = {each["contestant"]: each for each in found}
        assert standing["reference"]["to_reference"] == 1.0
        assert standing["learned, greedy"]["seeds"] == 2
        assert standing["learned, greedy"]["instances"] == 2
        wanted = {each.contestant: each.to_reference for each in standings(rows, axis)}
        assert {name: each["to_reference"] for name, each in standing.items()} == wanted
    certified = {each["contestant"]: each["optimum_gap"] for each in printed["axes"]["certified"]}
    assert all(gap >= -1e-12 for gap in certified.values())
    with table.open(newline="", encoding="utf-8") as file:
        kept = list(csv.DictReader(file))
    assert list(kept[0]) == [field.name for field in fields(Row)]
    assert [(each["contestant"], each["objective_ns"]) for each in kept] == [
        (each.contestant, str(each.objective_ns or "")) for each in rows
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5000


def test_tables_are_printed_for_people(
    two_seeds: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("reference", "cann_autotune", "search, same seconds", "raw greedy")
    rows = [row(name, k, 100 + 10 * k + i) for k in range(2) for i, name in enumerate(names)]
    facts = dict.fromkeys(("test_instances", "training_instances", "in_both"), 0)
    facts |= dict.fromkeys(("test_split", "training_split"), "0")
    monkeypatch.setattr(agents.evaluate, "evaluate", lambda *given, **how: (rows, facts))
    assert main(two_seeds) == rows
    lines = capsys.readouterr().out.splitlines()
    first = [line.split("│")[1].strip() for line in lines if "│" in line]
    assert first[:4] == list(names[:4])
    assert any(line.startswith("size: x reference, set by set") for line in lines)
    assert lines[-1].endswith("0 in both.")
