"""The judge: sound schedules pass, and each planted fault is caught by exactly the rule it breaks."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hand_made import SOUND as SOUND_ORDER
from hand_made import chain, diamond, fork, moved, pipeline
from hand_made_cache import SOUND as SOUND_CACHE
from hand_made_late import SOUND as SOUND_LATE
from hand_made_memory import SOUND as SOUND_MEMORY
from hypothesis import given
from hypothesis import strategies as st
from planted import PLANTED as PLANTED_ORDER
from planted_memory import PLANTED_MEMORY
from toys import cube, hand_schedule, toy_device, vector

import cann_env.validate
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.schedule import BlockRun, Schedule
from cann_env.validate import validate
from cann_env.validate.case import Load, overloads

if TYPE_CHECKING:
    from collections.abc import Callable

SOUND = SOUND_ORDER + SOUND_MEMORY + SOUND_LATE + SOUND_CACHE
PLANTED = PLANTED_ORDER + PLANTED_MEMORY
TIGHT = {"chain": chain, "diamond": diamond, "pipeline": pipeline, "fork": fork}
"""Schedules in which nothing could start any earlier."""


@pytest.mark.parametrize("make", SOUND)
def test_sound_schedules_pass(make: Callable[[], Schedule]) -> None:
    assert validate(make()) == ()


@pytest.mark.parametrize(("rule", "fault", "make"), PLANTED, ids=[f"{r}: {f}" for r, f, _ in PLANTED])
def test_a_planted_fault_is_caught_by_its_rule_alone(
    rule: str, fault: str, make: Callable[[], Schedule]
) -> None:
    found = validate(make())
    assert {violation.rule for violation in found} == {rule}, (fault, found)


def test_every_rule_in_the_table_has_a_planted_fault() -> None:
    table = re.findall(r"^([a-z0-9-]+) {2,}\S", cann_env.validate.__doc__ or "", flags=re.MULTILINE)
    assert set(table) - {"rule"} == {rule for rule, _, _ in PLANTED}


def test_messages_name_commands_streams_and_times() -> None:
    (violation,) = validate(moved(diamond(), "c", 109, 319))
    assert violation.message == (
        "command 'c' on stream 1 starts at 109 ns; command 'a' on stream 0, which it needs, ends at 110 ns"
    )
    assert violation.commands == (0, 2)
    assert violation.at_ns == 109


def test_violations_come_by_time() -> None:
    found = validate(moved(moved(chain(), "c", 221, 331), "a", 0, 109))
    assert [(violation.at_ns, violation.rule) for violation in found] == [
        (109, "block-time"),
        (221, "stream-order"),
    ]


# --- laws ---------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(TIGHT)), st.data(), st.integers(1, 400), st.booleans())
def test_nothing_can_be_moved_earlier(name: str, data: st.DataObject, by_ns: int, whole: bool) -> None:
    schedule = TIGHT[name]()
    run = data.draw(st.sampled_from(schedule.commands))
    command = schedule.graph.commands[run.command].name
    earlier = moved(schedule, command, run.start_ns - by_ns, run.finish_ns - (by_ns if whole else 0))
    assert validate(earlier) != ()


@given(st.sampled_from(sorted(TIGHT)), st.data(), st.integers(1, 400))
def test_nothing_can_be_shorter(name: str, data: st.DataObject, by_ns: int) -> None:
    schedule = TIGHT[name]()
    run = data.draw(st.sampled_from(schedule.commands))
    command = schedule.graph.commands[run.command].name
    assert validate(moved(schedule, command, run.start_ns, run.finish_ns - by_ns)) != ()


@given(st.sampled_from(sorted(TIGHT)), st.data())
def test_no_event_wait_can_be_dropped(name: str, data: st.DataObject) -> None:
    schedule = TIGHT[name]()
    kept = tuple(wait for wait in schedule.waits if data.draw(st.booleans()))
    found = {violation.rule for violation in validate(replace(schedule, waits=kept))}
    assert found == ({"missing-wait"} if kept != schedule.waits else set())


@pytest.mark.parametrize("make", [chain, diamond])
def test_no_two_commands_can_change_places(make: Callable[[], Schedule]) -> None:
    schedule = make()
    for first, second in combinations(schedule.commands, 2):
        others = [row for row in schedule.commands if row not in (first, second)]
        swapped = [
            first._replace(stream=second.stream, position=second.position),
            second._replace(stream=first.stream, position=first.position),
        ]
        assert validate(replace(schedule, commands=(*others, *swapped))) != (), (first, second)


def test_streams_that_wait_in_a_circle_are_named() -> None:
    """a b on one stream, c d on another; a waits for d and c waits for b."""
    graph = CommandGraph("circle", tuple(vector(name) for name in "abcd"))
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 111, 221), ("c", 1, 0, 0, 110), ("d", 1, 0, 111, 221)]
    found = validate(hand_schedule(graph, runs, waits=[("b", "c"), ("d", "a")]))
    assert {violation.rule for violation in found} == {"missing-wait", "dependency"}
    assert any("'a', 'b', 'c', 'd' wait for each other in a circle" in v.message for v in found)


loads = st.lists(
    st.builds(
        lambda start, length, amount: Load(start, start + length, amount, -1),
        st.integers(0, 20),
        st.integers(0, 8),
        st.integers(1, 4),
    ),
    max_size=12,
)


@given(loads, st.integers(0, 8))
def test_overloads_are_where_the_sum_climbs_over_the_capacity(held: list[Load], capacity: int) -> None:
    """Against the sum at every instant; a load counts from its start until just before its end."""
    sums = [sum(load.amount for load in held if load.start_ns <= t < load.end_ns) for t in range(-1, 40)]
    climbs = [(t - 1, sums[t]) for t in range(1, 41) if sums[t] > capacity >= sums[t - 1]]
    assert [(over.at_ns, over.total) for over in overloads(held, capacity)] == climbs


@pytest.mark.slow
def test_three_thousand_commands_are_judged_in_seconds() -> None:
    """A chain of 3,000 kernels of seven blocks on two cores, in four waves each."""
    count, waves = 3000, 4
    names = [f"k{i}" for i in range(count)]
    graph = CommandGraph(
        "long",
        tuple(cube(name, blocks=7, after=tuple(names[max(i - 1, 0) : i])) for i, name in enumerate(names)),
    )
    runs, blocks = [], []
    for i, name in enumerate(names):
        start = 411 * i
        runs.append((name, 0, 0, start, start + 410))
        ends = [start, *(start + 110 + 100 * wave for wave in range(waves))]
        blocks += [
            BlockRun(i, 0, "cube", min(2, 7 - 2 * wave), 0, ends[wave], ends[wave + 1], start)
            for wave in range(waves)
        ]
    device = toy_device(limits={"queue_depth": count})
    options = RunOptions(streams=1, run_ahead=count)
    schedule = hand_schedule(graph, runs, blocks=blocks, device=device, options=options)
    began = time.perf_counter()
    assert validate(schedule) == ()
    assert time.perf_counter() - began < 5.0
