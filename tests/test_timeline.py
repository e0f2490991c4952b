"""The document of a timeline: what each command waited for, the path that made the makespan, curves, rows."""

from __future__ import annotations

import json
import math

import pytest
from episodes import Host
from toys import cube, toy_chain, toy_device, toy_diamond, toy_squeeze, vector

from cann_env.graph import CommandGraph
from cann_env.program import compile_graph
from cann_env.render.timeline import document
from cann_env.render.timeline.critical import Bond, critical_path
from cann_env.render.timeline.waiting import Cause, timings
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import run_scheduler
from cann_env.validate import validate


def diamond():
    """All four commands of the diamond, submitted at 0.

    ::

        ns        0    110 111   221      320    430
        stream 0  | a  |   | b  |         | d  |
        stream 1        | c               |
    """
    host = Host(toy_diamond())
    for name, stream in (("a", 0), ("b", 0), ("c", 1), ("d", 0)):
        host.issue(name, stream)
    return host.schedule()


def two_kernels(**pools: int):
    """Two cube kernels of two blocks each, on two streams, with two cores: the second waits for the first."""
    graph = CommandGraph("two", (cube("a", blocks=2), cube("b", blocks=2)))
    host = Host(graph, toy_device(pools=pools) if pools else None)
    return host.issue("a", 0).issue("b", 1).schedule()


def test_the_document_of_the_diamond() -> None:
    shown = document(diamond(), labels=("by hand", ""))
    (side,) = shown["schedules"]
    assert (side["label"], side["graph"], side["makespan_ns"]) == ("by hand", "diamond", 430)
    commands = side["commands"]
    assert commands["name"] == ["a", "b", "c", "d"]
    assert commands["stream"] == commands["engine_stream"] == [0, 0, 1, 0]
    assert commands["position"] == [0, 1, 0, 2]
    assert commands["start"] == [0, 111, 110, 320]
    assert commands["finish"] == [110, 221, 320, 430]
    assert commands["submitted"] == [0, 0, 0, 0]
    assert commands["ready"] == [0, 110, 110, 320]
    assert commands["eligible"] == [0, 111, 110, 320]
    assert commands["waits"] == [
        [],
        [["dependency", 0, 110, 0], ["stream", 110, 111, 0]],
        [["dependency", 0, 110, 0]],
        [["dependency", 0, 320, 2]],
    ]
    assert commands["before"] == [[], [0], [0], [1, 2]]
    assert commands["operands"][3] == [[1, "command", 1, None], [2, "command", 2, None]]
    assert commands["critical"] == [1, 0, 1, 1]
    assert side["path"]["segments"] == [
        ["work", 0, None, 0, 110],
        ["work", 2, None, 110, 320],
        ["work", 3, None, 320, 430],
    ]
    assert side["path"]["links"] == [[0, 2, "dependency", 110], [2, 3, "dependency", 320]]
    assert side["events"] == [[0, 2], [2, 3]]
    (busy,) = [curve for curve in side["curves"] if curve["key"] == "busy/aiv"]
    assert (busy["times"], busy["values"]) == ([0, 111, 221, 430], [1, 2, 1, 0])
    assert (busy["most"], busy["unit"]) == (4, "of")
    assert side["blocks"]["lanes"] == ["AIV", ""]


def test_a_command_that_waits_for_cores_names_who_held_them() -> None:
    """``a`` holds both cores until 110; then ``b`` has them until 220."""
    schedule = two_kernels()
    _, waiting = timings(schedule)
    assert waiting.waits == ((Cause.CORES, 0, 110, 0),)
    path = critical_path(schedule)
    assert [link[:3] for link in path.links] == [(0, 1, Bond.RESOURCE)]
    assert path.length_ns(Bond.WORK) == schedule.makespan_ns == 220


def test_a_stream_gap_is_no_dependency() -> None:
    """``b`` follows ``a`` only because both are on one stream; on the path stands the gap of 1 ns."""
    graph = CommandGraph("two", (vector("a"), vector("b")))
    path = critical_path(Host(graph).issue("a").issue("b").schedule())
    assert [s.bond for s in path.segments] == [Bond.WORK, Bond.STREAM, Bond.WORK]
    assert path.links[0].bond is Bond.STREAM
    chain = critical_path(Host(toy_chain(2)).issue("a").issue("b").schedule())
    assert chain.links[0].bond is Bond.DEPENDENCY


def test_operands_on_their_way_are_memory() -> None:
    """Both kernels of the squeeze fetch their weights on demand; nothing else holds them up."""
    schedule = Host(toy_squeeze(2)).issue("k0").issue("k1").schedule()
    first, second = timings(schedule)
    moves = [move for move in schedule.transfers if move.cause == "fault"]
    assert first.waits == ((Cause.MEMORY, 0, moves[0].finish_ns, None),)
    assert second.waits[-1][:3] == (Cause.MEMORY, second.eligible_ns, moves[1].finish_ns)
    path = critical_path(schedule)
    assert path.length_ns(Bond.WORK) == 220
    assert path.length_ns(Bond.MEMORY) == sum(move.finish_ns - move.start_ns for move in moves)


def test_what_the_host_did_not_submit_in_time_is_the_hosts() -> None:
    """``b`` is submitted when ``a`` is done, at 110, though nothing stood in its way; then a gap of 1 ns."""
    graph = CommandGraph("two", (vector("a"), vector("b")))
    schedule = Host(graph).issue("a").until(110).issue("b", 0).schedule()
    assert timings(schedule)[1].waits == ((Cause.HOST, 0, 110, None), (Cause.STREAM, 110, 111, 0))


def test_a_call_of_the_host_stands_on_the_path() -> None:
    """Launching a kernel takes the host 5 ns; then it runs for 110."""
    schedule = Host(toy_chain(1), submission="eager").issue("a").schedule()
    assert [(s.bond, s.start_ns, s.finish_ns) for s in critical_path(schedule).segments] == [
        (Bond.HOST, 0, 5),
        (Bond.WORK, 5, 115),
    ]


RUNS = [
    (name, scheduler)
    for name in scenario_names()
    for scheduler in ("single_stream", "round_robin", "per_engine", "eager+aggressive")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scheduler"), RUNS)
def test_documents_of_the_scenarios_keep_the_laws(name: str, scheduler: str) -> None:
    """Waits sum to the engine's own stalls, the path covers the makespan, and all numbers are finite."""
    scenario = load_scenario(name)
    if "+" in scheduler and scenario.options.prefetches == 0:
        pytest.skip("the scenario has no slots for prefetches")
    schedule = run_scheduler(compile_graph(scenario.graph(), scenario.device, scenario.options), scheduler)
    timing = timings(schedule)
    spent = dict.fromkeys(Cause, 0)
    for each in timing:
        for wait in each.waits:
            spent[wait.cause] += wait.finish_ns - wait.start_ns
    assert sum(each.eligible_ns - each.reached_ns for each in timing) == schedule.stall.event
    resources = {
        Cause.HOST: schedule.stall.host,
        Cause.MEMORY: schedule.stall.fault,
        Cause.SLOT: schedule.stall.slot,
        Cause.CORES: schedule.stall.cores,
        Cause.CHANNEL: schedule.stall.dma,
    }
    assert {cause: spent[cause] for cause in resources} == resources

    path = critical_path(schedule, timing)
    ends = [0, *(segment.finish_ns for segment in path.segments)]
    assert [segment.start_ns for segment in path.segments] == ends[:-1]
    assert ends[-1] == schedule.makespan_ns
    assert path.length_ns(Bond.UNEXPLAINED) == 0

    (side,) = document(schedule)["schedules"]
    json.dumps(side, allow_nan=False)
    commands = side["commands"]
    assert {len(column) for column in commands.values()} == {len(schedule.commands)}
    for part in ("blocks", "moves"):
        rows = {key: column for key, column in side[part].items() if key != "lanes"}
        assert len({len(column) for column in rows.values()}) == 1
        assert all(0 <= lane < len(side[part]["lanes"]) for lane in side[part]["lane"])
        assert all(a < b <= schedule.makespan_ns for a, b in zip(rows["start"], rows["finish"], strict=True))
    for curve in side["curves"]:
        assert curve["times"] == sorted(set(curve["times"]))
        assert len(curve["times"]) == len(curve["values"])
        assert all(math.isfinite(value) and value >= 0 for value in curve["values"])
    assert not validate(schedule)
