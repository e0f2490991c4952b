"""The critical chain and the stalls: laws on shipped scenarios, and tiny schedules computed by hand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from toys import copy_in, cube, hand_schedule, toy_chain, toy_device, toy_squeeze, vector

from cann_env.graph import CommandGraph
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import run_scheduler
from cann_env.waiting import Chain, Holder, Part, StallOf, critical_chain, holders, stalls

if TYPE_CHECKING:
    from cann_env.device import DeviceSpec
    from cann_env.schedule import Schedule

SMALL = ("pipeline", "random", "serving", "serving_arrivals")
RUNS = [
    pytest.param(name, scheduler, submission, marks=[] if name in SMALL else [pytest.mark.slow])
    for name in scenario_names()
    for scheduler in ("single_stream", "round_robin", "per_engine", "reference")
    for submission in ("sink", "eager")
]


def played(graph: CommandGraph, scheduler: str, device: DeviceSpec | None = None, **options: Any) -> Schedule:
    """A graph on the toy device, as a scheduler issues it."""
    program = compile_graph(graph, device or toy_device(), RunOptions(**{"streams": 2, **options}))
    return run_scheduler(program, scheduler)


def check_chain(schedule: Schedule, chain: Chain) -> None:
    """The links follow each other from zero to the makespan, and those that run commands are their runs."""
    runs = {run.command: run for run in schedule.commands}
    at = 0
    for link in chain.links:
        assert link.start_ns == at < link.finish_ns
        at = link.finish_ns
        if link.part in (Part.EXECUTING, Part.QUEUE, Part.HELD):
            assert (link.start_ns, link.finish_ns) == runs[link.command][4:]
    assert at == schedule.makespan_ns == sum(chain.parts_ns.values())
    assert chain.commands[-1] in {run.command for run in schedule.commands if run.finish_ns == at}


@pytest.mark.parametrize(("name", "scheduler", "submission"), RUNS)
def test_parts_sum_to_the_makespan_and_stalls_to_those_of_metrics(
    name: str, scheduler: str, submission: str
) -> None:
    scenario = load_scenario(name).with_options(submission=submission)
    schedule = run_scheduler(compile_graph(scenario.graph(), scenario.device, scenario.options), scheduler)
    check_chain(schedule, critical_chain(schedule))
    waited: Counter[str] = Counter()
    found = stalls(schedule)
    for each in found:
        waited[each.cause] += each.waited_ns
        assert each.waited_ns <= each.finish_ns - each.start_ns
    assert {**dict.fromkeys(schedule.stall._fields, 0), **waited} == metrics(schedule).stall_ns
    assert [each.waited_ns for each in found] == sorted((each.waited_ns for each in found), reverse=True)


def parts(schedule: Schedule) -> dict[str, int]:
    """The parts that are not zero."""
    chain = critical_chain(schedule)
    check_chain(schedule, chain)
    return {part.value: ns for part, ns in chain.parts_ns.items() if ns}


def longest(schedule: Schedule) -> tuple[StallOf, tuple[Holder, ...]]:
    stall = stalls(schedule)[0]
    return stall, holders(schedule, stall)


def test_a_chain_runs_and_is_dispatched() -> None:
    """``a 0-110, b 111-221, c 222-332`` on one stream: nothing waits for anything else."""
    schedule = played(toy_chain(), "single_stream")
    assert parts(schedule) == {"executing": 330, "dispatch": 2}
    assert critical_chain(schedule).commands == (0, 1, 2)
    assert stalls(schedule) == ()


def test_commands_in_front_that_are_not_needed_are_told_apart() -> None:
    """Two commands that do not need each other, on one stream: ``a 0-110, b 111-221``."""
    schedule = played(CommandGraph("two", (vector("a"), vector("b"))), "single_stream")
    assert parts(schedule) == {"executing": 110, "queue": 110, "dispatch": 1}


def test_a_wait_for_cores_names_who_had_them() -> None:
    """One cube core for two commands on two streams: ``a 0-110``, and ``b`` waits till 110."""
    schedule = played(
        CommandGraph("two", (cube("a"), cube("b"))), "round_robin", toy_device(pools={"aic": 1})
    )
    assert parts(schedule) == {"executing": 110, "cores": 110}
    assert longest(schedule) == (StallOf(1, "cores", 0, 110, 110), (Holder("command", "a", 110),))


def test_a_wait_for_a_copy_engine_is_a_wait_for_a_link() -> None:
    """Two copies and one engine: ``a 0-69``, and ``b`` waits till 69."""
    schedule = played(CommandGraph("two", (copy_in("a"), copy_in("b"))), "round_robin")
    assert parts(schedule) == {"executing": 69, "link": 69}
    assert longest(schedule) == (StallOf(1, "dma", 0, 69, 69), (Holder("command", "a", 69),))


def test_a_wait_for_a_place_among_active_streams() -> None:
    schedule = played(
        CommandGraph("two", (cube("a"), vector("b"))),
        "round_robin",
        toy_device(limits={"max_concurrent_streams": 1}),
    )
    assert parts(schedule) == {"executing": 110, "slot": 110}
    assert longest(schedule) == (StallOf(1, "slot", 0, 110, 110), (Holder("command", "a", 110),))


def test_migration_on_demand_is_a_wait_for_memory() -> None:
    """Each of three kernels waits 69 ns for its 64 bytes, then runs 110; two gaps of 1 between them."""
    schedule = played(
        toy_squeeze(), "single_stream", toy_device(memory={"fault_ns": 0}), prefetches=0, l2_prefetches=0
    )
    assert parts(schedule) == {"executing": 330, "memory": 207, "dispatch": 2}
    assert longest(schedule) == (StallOf(0, "fault", 0, 69, 69), (Holder("buffer", "w0", 69),))


def test_an_event_costs_its_record_and_its_wake() -> None:
    """``a 0-110`` on one stream; its event is there at 113, and wakes ``b`` on the other at 120."""
    device = toy_device(dispatch={"record_ns": 3, "wake_ns": 7})
    graph = CommandGraph("two", (vector("a"), vector("b", after=("a",))))
    schedule = played(graph, "round_robin", device)
    assert parts(schedule) == {"executing": 220, "event": 10}
    assert longest(schedule) == (StallOf(1, "event", 0, 120, 120), (Holder("command", "a", 110),))


def test_a_slow_host_is_the_host() -> None:
    """Three calls of 200 ns; the last command runs 600-710, and could have run from the start."""
    graph = CommandGraph("three", tuple(vector(name) for name in "abc"))
    schedule = played(graph, "round_robin", toy_device(host={"launch_kernel_ns": 200}), submission="eager")
    assert parts(schedule) == {"executing": 110, "host": 600}
    assert longest(schedule) == (StallOf(2, "host", 0, 600, 600), (Holder("host", "issue", 600),))


def test_the_host_may_be_held_by_commands_in_flight() -> None:
    """One command in flight at most: ``b``, which needs nothing, is submitted when ``a`` has ended."""
    graph = CommandGraph("two", (vector("a"), cube("b")))
    schedule = played(graph, "round_robin", toy_device(dispatch={"gap_ns": 0}), run_ahead=1)
    assert parts(schedule) == {"executing": 110, "held": 110}
    assert longest(schedule) == (StallOf(1, "host", 0, 110, 110), (Holder("host", "wait", 110),))


def test_what_arrives_late_begins_the_chain() -> None:
    schedule = played(CommandGraph("two", (vector("a"), vector("b", release_ns=500))), "round_robin")
    assert parts(schedule) == {"executing": 110, "arrival": 500}


def test_a_schedule_written_by_hand_has_a_chain_too() -> None:
    """``a 0-110``, then ``b`` on the same stream only at 150: nothing says why."""
    schedule = hand_schedule(toy_chain(2), [("a", 0, 0, 0, 110), ("b", 0, 0, 150, 260)])
    assert parts(schedule) == {"executing": 220, "dispatch": 40}
