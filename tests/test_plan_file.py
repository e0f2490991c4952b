"""Plans: what the file says, that it replays to the nanosecond, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from toys import copy_in, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.replay.plan_file import PlanFile, fingerprint, plan_of, play_plan, read_plan, write_plan
from cann_env.schedulers import Assignment, Rule, carry_out, record_schedule, run_scheduler
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.schedule import Schedule

DEVICE = toy_device()


def graph(name: str = "g", length: int = 100) -> CommandGraph:
    """``load`` feeds ``a``; ``b`` reads the managed buffer ``w``; ``d`` needs both branches."""
    commands = (
        replace(copy_in("load", 64, writes=("x",)), stream_hint=1),
        replace(vector("a", length, reads=("x",)), stream_hint=0),
        kernel_command("b", toy_kernel("cube", 50), reads=("w",)),
        vector("d", 100, after=("a", "b")),
    )
    return CommandGraph(name, commands, (Buffer(name="x", size_bytes=64), managed("w", 256, Level.HOST)))


def schedule(**options: Any) -> Schedule:
    program = compile_graph(graph(), DEVICE, RunOptions(streams=2, **options))
    return run_scheduler(program, "reference")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Load the compiled engine once, so that no single test pays for it."""
    schedule()


def test_a_plan_says_streams_events_and_moves() -> None:
    program = compile_graph(graph(), DEVICE, RunOptions(streams=2))
    wanted = Assignment(order=(0, 1, 2, 3), labels=(0, 0, 1, 0), rule=Rule())
    made = record_schedule(program, carry_out(program, wanted).plan.actions)
    plan = plan_of(made, (17, 23), ["work", "work", "delay", "work"], {"profile": "p"})
    queues = {entry["stream"]: [c["command"] for c in entry["commands"]] for entry in plan["streams"]}
    assert queues == {0: ["load", "a", "d"], 1: ["b"]}
    assert plan["streams"][0]["commands"] == [
        {"command": "load", "recorded_stream": 23},
        {"command": "a", "recorded_stream": 17},
        {"command": "d"},
    ]
    assert plan["streams"][1]["commands"] == [{"command": "b", "role": "delay"}]
    assert plan["source"] == {"profile": "p"}
    assert plan["events"] == [{"record": "b", "record_stream": 1, "wait": "d", "wait_stream": 0}]
    assert plan["moves"] == [{"move": "prefetch", "buffer": "w", "after": 0}]
    assert plan["makespan_ns"] == made.makespan_ns
    assert (plan["format"], plan["version"], plan["device"]) == ("cann-env plan", 1, "toy")
    assert plan["graph"] == {"name": "g", "commands": 4, "fingerprint": fingerprint(graph())}


@pytest.mark.parametrize("submission", list(Submission))
def test_a_plan_that_is_read_back_makes_the_same_schedule(tmp_path: Path, submission: Submission) -> None:
    made = schedule(submission=submission)
    path = write_plan(made, tmp_path / "p.json")
    plan = read_plan(path)
    again = play_plan(plan, graph(), DEVICE)
    assert again == made
    assert again.makespan_ns == plan.makespan_ns


def test_a_plan_may_be_tried_on_other_durations_of_the_same_graph(tmp_path: Path) -> None:
    plan = read_plan(write_plan(schedule(), tmp_path / "p.json"))
    longer = play_plan(plan, graph("another recording", length=150), DEVICE)
    assert longer.makespan_ns > plan.makespan_ns


def other_graphs() -> dict[str, CommandGraph]:
    whole = graph()
    renamed = replace(whole.commands[2], name="c")
    rewired = replace(whole.commands[3], after=("b",))
    return {
        "a command more": CommandGraph("g", (*whole.commands, vector("e", 1)), whole.buffers),
        "a command of another name": CommandGraph(
            "g", (*whole.commands[:2], renamed, replace(whole.commands[3], after=("a", "c"))), whole.buffers
        ),
        "a dependency less": CommandGraph("g", (*whole.commands[:3], rewired), whole.buffers),
    }


@pytest.mark.parametrize("what", list(other_graphs()))
def test_a_plan_is_refused_for_another_graph(tmp_path: Path, what: str) -> None:
    plan = read_plan(write_plan(schedule(), tmp_path / "p.json"))
    with pytest.raises(InputError, match="the plan is for graph 'g' with fingerprint"):
        play_plan(plan, other_graphs()[what], DEVICE)


def test_a_plan_is_refused_for_another_device(tmp_path: Path) -> None:
    plan = read_plan(write_plan(schedule(), tmp_path / "p.json"))
    with pytest.raises(InputError, match="the plan is for device 'toy', not 'other'"):
        play_plan(plan, graph(), toy_device(name="other"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "is none"),
        ({"version": 2}, "has version 2; this package reads version 1"),
        ({"graph": []}, r"'graph' = \[\]; it needs a value of type dict"),
        ({"graph": {"name": "g"}}, "'fingerprint' = None"),
        ({"makespan_ns": True}, "'makespan_ns' = True"),
        ({"actions": [0, -1]}, "whole numbers from 0"),
        ({"actions": [0, True]}, "whole numbers from 0"),
        ({"options": {"streams": 0}}, "options that cannot be used"),
        ({"options": {"speed": 1}}, "options that cannot be used"),
    ],
)
def test_garbage_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**plan_of(schedule()), **change}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_plan(path)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff"])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"p\.json"):
        read_plan(path)


def test_a_plan_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_plan(schedule(), tmp_path / "missing" / "p.json")


def test_plans_are_plain_data(tmp_path: Path) -> None:
    plan = read_plan(write_plan(schedule(), tmp_path / "p.json"))
    assert isinstance(plan, PlanFile)
    assert plan.options == RunOptions(streams=2)
