"""The document of a timeline: what each command waited for, the path that made the makespan, curves, rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
from episodes import Host
from toys import cube, toy_chain, toy_device, toy_diamond, toy_squeeze, vector

from cann_env.graph import CommandGraph
from cann_env.program import compile_graph
from cann_env.render.timeline import document
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import run_scheduler
from cann_env.validate import validate
from cann_env.waiting import delays

if TYPE_CHECKING:
    from cann_env.schedule import Schedule


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
        ["executing", 0, [], 0, 110],
        ["executing", 2, [], 110, 320],
        ["executing", 3, [], 320, 430],
    ]
    assert side["path"]["links"] == [[0, 2, "executing", 110], [2, 3, "executing", 320]]
    assert side["path"]["length_ns"] == {"executing": 430}
    assert side["events"] == [[0, 2], [2, 3]]
    (busy,) = [curve for curve in side["curves"] if curve["key"] == "busy/aiv"]
    assert (busy["times"], busy["values"]) == ([0, 111, 221, 430], [1, 2, 1, 0])
    assert (busy["most"], busy["unit"]) == (4, "of")
    assert side["blocks"]["lanes"] == ["AIV", ""]


def side(schedule: Schedule) -> dict[str, Any]:
    """The document of one schedule."""
    (found,) = document(schedule)["schedules"]
    return found


def test_a_command_that_waits_for_cores_names_who_held_them() -> None:
    """``a`` holds both cores until 110; then ``b`` has them until 220."""
    shown = side(two_kernels())
    assert shown["commands"]["waits"] == [[], [["cores", 0, 110, 0]]]
    assert shown["path"] == {
        "segments": [["cores", 1, [], 0, 110], ["executing", 1, [], 110, 220]],
        "links": [[0, 1, "cores", 110]],
        "length_ns": {"executing": 110, "cores": 110},
    }


def test_a_stream_gap_is_no_dependency() -> None:
    """``b`` follows ``a`` only because both are on one stream; on the path stands the gap of 1 ns."""
    graph = CommandGraph("two", (vector("a"), vector("b")))
    path = side(Host(graph).issue("a").issue("b").schedule())["path"]
    assert [segment[0] for segment in path["segments"]] == ["queue", "dispatch", "executing"]
    assert path["links"] == [[0, 1, "queue", 110]]
    chain = side(Host(toy_chain(2)).issue("a").issue("b").schedule())["path"]
    assert chain["links"] == [[0, 1, "executing", 110]]


def test_operands_on_their_way_are_memory() -> None:
    """Both kernels of the squeeze fetch their weights on demand; nothing else holds them up."""
    schedule = Host(toy_squeeze(2)).issue("k0").issue("k1").schedule()
    shown = side(schedule)
    moves = [move for move in schedule.transfers if move.cause == "fault"]
    assert len(moves) == 2
    first, second = shown["commands"]["waits"]
    assert first == [["memory", 0, moves[0].finish_ns, None]]
    assert second[-1] == ["memory", shown["commands"]["eligible"][1], moves[1].finish_ns, None]
    path = shown["path"]
    memory = [segment[1:] for segment in path["segments"] if segment[0] == "memory"]
    assert memory == [[i, [move.buffer], move.start_ns, move.finish_ns] for i, move in enumerate(moves)]
    assert sum(path["length_ns"].values()) == schedule.makespan_ns


def test_what_the_host_did_not_submit_in_time_is_the_hosts() -> None:
    """``b`` is submitted when ``a`` is done, at 110, though nothing stood in its way; then a gap of 1 ns."""
    graph = CommandGraph("two", (vector("a"), vector("b")))
    schedule = Host(graph).issue("a").until(110).issue("b", 0).schedule()
    assert side(schedule)["commands"]["waits"][1] == [["host", 0, 110, None], ["stream", 110, 111, 0]]


def test_a_call_of_the_host_stands_on_the_path() -> None:
    """Launching a kernel takes the host 5 ns; then it runs for 110."""
    schedule = Host(toy_chain(1), submission="eager").issue("a").schedule()
    assert side(schedule)["path"]["segments"] == [["host", 0, [], 0, 5], ["executing", 0, [], 5, 115]]


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
    shown = side(schedule)
    spent: Counter[str] = Counter()
    for start, waits in zip(shown["commands"]["start"], shown["commands"]["waits"], strict=True):
        assert all(one[2] == next_[1] for one, next_ in pairwise(waits))
        assert not waits or waits[-1][2] == start
        for cause, begin, end, _ in waits:
            spent[cause] += end - begin
    stall = schedule.stall
    engine = {"host": stall.host, "memory": stall.fault, "slot": stall.slot}
    engine |= {"cores": stall.cores, "link": stall.dma}
    assert {cause: spent[cause] for cause in engine} == engine
    assert sum(each.eligible_ns - each.reached_ns for each in delays(schedule)) == stall.event

    path = shown["path"]
    before = schedule.graph.predecessors
    needs = nx.DiGraph((i, j) for j, some in enumerate(before) for i in some)
    needs.add_nodes_from(range(len(before)))
    ends = [0, *(finish for *_, finish in path["segments"])]
    assert [start for *_, start, _ in path["segments"]] == ends[:-1]
    assert ends[-1] == schedule.makespan_ns == sum(path["length_ns"].values())
    for producer, consumer, how, at in path["links"]:
        assert at == shown["commands"]["finish"][producer] or how in ("cores", "link", "slot")
        assert at <= shown["commands"]["start"][consumer]
        if how in ("queue", "executing"):
            assert nx.has_path(needs, producer, consumer) is (how == "executing")

    json.dumps(shown, allow_nan=False)
    commands = shown["commands"]
    assert {len(column) for column in commands.values()} == {len(schedule.commands)}
    for part in ("blocks", "moves"):
        rows = {key: column for key, column in shown[part].items() if key != "lanes"}
        assert len({len(column) for column in rows.values()}) == 1
        assert all(0 <= lane < len(shown[part]["lanes"]) for lane in shown[part]["lane"])
        assert all(a < b <= schedule.makespan_ns for a, b in zip(rows["start"], rows["finish"], strict=True))
    for curve in shown["curves"]:
        assert curve["times"] == sorted(set(curve["times"]))
        assert len(curve["times"]) == len(curve["values"])
        assert all(math.isfinite(value) and value >= 0 for value in curve["values"])
    assert not validate(schedule)
