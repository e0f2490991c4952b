"""Explanations: what bounds a schedule, what holds it up, and suggestions that were simulated."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_waiting import RUNS, played
from toys import copy_in, cube, toy_chain, toy_device, toy_pipeline, toy_squeeze, vector
from typer.testing import CliRunner, Result

from cann_env.archive import archive_of, to_json
from cann_env.cli.app import app
from cann_env.explain import Group, advise, explain
from cann_env.explain.advice import LEAST_GAIN, trials
from cann_env.explain.words import bound_sentence, held_sentence, wait_sentence
from cann_env.graph import CommandGraph
from cann_env.metrics import metrics
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler
from cann_env.solvers.bounds import lower_bounds
from cann_env.waiting import Part

if TYPE_CHECKING:
    from cann_env.schedule import Schedule


def call(*words: str, columns: int = 80) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns), "NO_COLOR": "1"})


@pytest.mark.parametrize(("name", "scheduler", "submission"), RUNS)
def test_an_explanation_agrees_with_bounds_and_metrics(name: str, scheduler: str, submission: str) -> None:
    scenario = load_scenario(name).with_options(submission=submission)
    schedule = run_scheduler(compile_graph(scenario.graph(), scenario.device, scenario.options), scheduler)
    about, figures = explain(schedule), metrics(schedule)
    bounds = lower_bounds(schedule.graph, schedule.device, schedule.options)
    assert about.bounds_ns[about.bound] == max(about.bounds_ns.values()) == bounds.lower_bound_ns
    assert about.bounds_ns["critical path"] == bounds.critical_path_ns
    assert (about.makespan_ns, about.lower_bound_ns) == (figures.makespan_ns, figures.lower_bound_ns)
    assert about.gap == figures.gap
    assert sum(about.parts_ns.values()) == sum(about.groups_ns.values()) == figures.makespan_ns
    assert about.groups_ns[about.held_up_by] == max(about.groups_ns.values())
    assert about.stall_ns == figures.stall_ns
    assert all(wait.waited_ns <= figures.stall_ns[wait.cause] for wait in about.waits)


def bound_by_link() -> Schedule:
    """Twelve copies of 640 bytes for twelve short kernels."""
    return played(toy_pipeline(12, size_bytes=320, block_ns=10), "per_engine", streams=3)


def bound_by_host() -> Schedule:
    """Calls of 500 ns for kernels of 20 ns."""
    graph = CommandGraph("many", tuple(vector(f"k{i}", 10) for i in range(20)))
    return played(graph, "round_robin", toy_device(host={"launch_kernel_ns": 500}), submission="eager")


def bound_by_memory() -> Schedule:
    """Each kernel waits for the weights that it migrates page by page."""
    return played(toy_squeeze(6, 1024), "single_stream")


def bound_by_cores() -> Schedule:
    """One core, and streams for all: whoever is last has waited for all others."""
    graph = CommandGraph("crowd", tuple(cube(f"k{i}") for i in range(4)))
    return played(graph, "round_robin", toy_device(pools={"aic": 1}), streams=4)


PLANTED = {
    "link": (bound_by_link, Group.COPIES, "link h2d", "bound by a link"),
    "host": (bound_by_host, Group.HOST, "host", "the host, which submits too slowly"),
    "memory": (bound_by_memory, Group.MEMORY, "link h2d", "waiting for memory"),
    "cores": (bound_by_cores, Group.CORES, "aic", "waiting for cores"),
    "work": (lambda: played(toy_chain(5), "single_stream"), Group.KERNELS, "critical path", "one after"),
    "order": (
        lambda: played(CommandGraph("two", (vector("a"), cube("b"), vector("c"))), "single_stream"),
        Group.ORDER,
        "critical path",
        "stand in front",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_a_schedule_is_bound_by_is_said_to_be_so(planted: str) -> None:
    make, group, bound, words = PLANTED[planted]
    about = explain(make())
    assert about.held_up_by is group
    assert words in held_sentence(about)
    names = {bound, bound.removeprefix("link ")}  # an engine and its link are busy for the same time
    assert about.bound in names


def test_sentences_name_who_and_how_long() -> None:
    about = explain(bound_by_cores())
    assert wait_sentence(about.waits[0]) == (
        "k3 on stream 3 waited 330 ns for cores, from 0 ns on: k0 ran for 110 ns, k1 ran for 110 ns, "
        "k2 ran for 110 ns."
    )
    assert bound_sentence(about).endswith("this one is 10.0% above it.")
    near = explain(played(toy_chain(), "single_stream"))
    assert bound_sentence(near) == (
        "No schedule is shorter than 330 ns, because of the longest chain of commands that need each other; "
        "this one is 0.6% above it, so there is next to nothing to gain."
    )


def test_nothing_is_suggested_where_nothing_gains() -> None:
    """A chain takes what it takes, whoever schedules it."""
    schedule = played(toy_chain(), "single_stream", toy_device(dispatch={"gap_ns": 0}))
    assert advise(schedule, explain(schedule), "single_stream") == ()


def test_every_suggestion_gains_what_it_says() -> None:
    schedule = bound_by_host()
    about = explain(schedule)
    found = advise(schedule, about, "round_robin")
    assert any(each.options == {"submission": "sink"} for each in found)
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)
    for each in found:
        again = played(
            schedule.graph,
            each.scheduler,
            schedule.device,
            **{"submission": "eager", **each.options},
        )
        assert again.makespan_ns == each.makespan_ns <= schedule.makespan_ns * (1 - LEAST_GAIN)
        assert each.gain == pytest.approx(1 - again.makespan_ns / schedule.makespan_ns)


def test_no_more_is_simulated_than_was_allowed_and_all_of_it_is_announced() -> None:
    schedule = bound_by_host()
    about, begun, steps = explain(schedule), [], []
    advise(schedule, about, "round_robin", most=3, begin=begun.append, step=lambda: steps.append(1))
    assert len(begun) == len(steps) == 3
    assert advise(schedule, about, "round_robin", most=0) == ()


def test_changes_are_tried_for_a_reason() -> None:
    """Nothing about memory where nothing waits for it; the scheduler that made it is not tried again."""
    schedule = bound_by_host()
    tried = trials(schedule, explain(schedule), "reference")
    assert not any("prefetch" in trial.what for trial in tried)
    assert all(trial.changes for trial in tried if trial.scheduler == "reference")
    short = bound_by_memory()
    assert any("prefetch" in trial.what for trial in trials(short, explain(short), "single_stream"))


# --- the verb -----------------------------------------------------------------------------------------

SLOW_HOST = """
[scenario]
name = "small"
description = "A small random graph."
device = "ascend910b2"
[workload]
kind = "layered"
commands = 24
[options]
streams = 2
submission = "eager"
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small scenario in the current folder."""
    path = tmp_path / "small.toml"
    path.write_text(SLOW_HOST, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def plain(*words: str) -> dict[str, Any]:
    result = call("explain", *words, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_commands_that_are_suggested_run_and_give_what_they_promise(small: Path) -> None:
    data = plain("small.toml", "--scheduler", "single_stream", "--trials", "5", "--seed", "3")
    assert data["suggestions"]
    for each in data["suggestions"]:
        name, *words = shlex.split(each["command"])
        assert name == "cann-env"
        row = json.loads(call(*words, "--json").stdout)["rows"][0]
        assert row["makespan_ns"] == each["makespan_ns"] < data["makespan_ns"]


def test_a_saved_run_is_explained_as_the_run_itself(small: Path) -> None:
    call("run", "small.toml", "--scheduler", "round_robin", "--trace", "t.json", "--no-files")
    direct = plain("small.toml", "--scheduler", "round_robin", "--trials", "0")
    saved = plain("t.json", "--trials", "0")
    assert saved.pop("scheduler") is None
    assert direct.pop("scheduler") == "round_robin"
    assert saved == direct
    scenario = load_scenario(small)
    schedule = run_scheduler(
        compile_graph(scenario.graph(), scenario.device, scenario.options), "round_robin"
    )
    Path("run.json").write_text(json.dumps(to_json(archive_of(schedule))), encoding="utf-8")
    alone = plain("run.json", "--trials", "0")
    assert alone["parts_ns"] == direct["parts_ns"]
    (first, *_) = plain("t.json", "--trials", "1")["suggestions"] or [{"command": None}]
    assert first["command"] is None


def test_a_saved_run_takes_no_other_device_and_scheduler(small: Path) -> None:
    call("run", "small.toml", "--trace", "t.json", "--no-files")
    result = call(
        "explain", "t.json", "--device", "ascend910b1", "--scheduler", "reference", "--streams", "2"
    )
    assert result.exit_code == 2
    assert "leave out --device, --scheduler, --streams" in result.stderr


def test_the_text_has_the_bound_the_parts_the_stalls_and_what_to_try(small: Path) -> None:
    text = call("explain", "small.toml", "--scheduler", "single_stream", "--trials", "3").stdout
    for words in (
        "No schedule is shorter than",
        "Most of its time",
        "Longest stalls",
        "What to try",
        "less.",
    ):
        assert words in text
    data = plain("small.toml", "--scheduler", "single_stream", "--trials", "0")
    shares = [part for part, ns in data["parts_ns"].items() if ns]
    table = text.split("\n\n")[1].splitlines()[2:]
    assert len(table) == len(shares)
    assert Part.QUEUE in shares
    assert "What to try" not in call("explain", "small.toml", "--trials", "0").stdout


def test_settings_reach_the_run_and_are_checked(small: Path) -> None:
    words = ("small.toml", "--scheduler", "round_robin", "--trials", "0")
    assert plain(*words, "--set", "submission=sink", "--set", "run_ahead=1") != plain(*words)
    for setting, expected in {
        "strems=2": "did you mean 'streams'?",
        "streams": "write key=value",
        "streams=two": "a whole number",
        "submission=egaer": "did you mean 'eager'?",
    }.items():
        result = call("run", "small.toml", "--set", setting)
        assert result.exit_code == 2
        assert expected in result.stderr
    twice = call("run", "small.toml", "--set", "streams=2", "--streams", "3")
    assert twice.exit_code == 2
    assert "leave one out" in twice.stderr


def test_a_copy_that_waits_for_its_turn_is_told() -> None:
    about = explain(played(CommandGraph("two", (copy_in("a"), copy_in("b"))), "round_robin"))
    assert wait_sentence(about.waits[0]) == (
        "b on stream 1 waited 69 ns for a copy engine, from 0 ns on: a ran for 69 ns."
    )
