"""Traces read back: slices nest, arrows bind, nanoseconds survive."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from episodes import actions_of
from pictures import Trace, drawn_schedule, read, spilling_schedule
from toys import toy_device, toy_diamond, toy_pipeline, toy_squeeze

from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render.moves import lanes_of
from cann_env.render.series import hbm_capacity, hbm_in_use
from cann_env.render.trace import Process, chrome_trace, write_trace
from cann_env.schedule import FAR, HostCall
from cann_env.schedulers import SHORT_LIST, run_scheduler
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError
from cann_env.validate.case import Case, overloads
from cann_env.validate.memory import hbm_loads

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.schedule import Schedule


@pytest.fixture(scope="module")
def drawn() -> Schedule:
    return drawn_schedule()


def test_trace_streams_hold_commands_and_fused_kernels_nest(drawn: Schedule) -> None:
    trace = read(drawn)
    assert trace.processes == {"Streams": 1, "Engines": 2, "Host": 3, "Transfers": 4}
    first = [(s.name, s.start, s.end) for s in trace.on(Process.STREAMS, "stream 0")]
    assert first == [
        ("load", 0, 1000),
        ("net/fused", 1001, 3001),
        ("cube", 1001, 2001),
        ("vector", 2001, 3001),
    ]
    second = [(s.name, s.start, s.end) for s in trace.on(Process.STREAMS, "stream 1")]
    assert second == [("net/mix", 1400, 2500), ("out", 3001, 4000)]
    assert trace.on(Process.STREAMS, "stream 1")[0].args["request"] == "r1"


def test_trace_lanes_never_overlap_and_mix_blocks_stand_in_both_pools(drawn: Schedule) -> None:
    trace = read(drawn)
    lanes = {name for (pid, _), name in trace.tracks.items() if pid == Process.ENGINES}
    assert lanes == {
        "AIC lane 0", "AIC lane 1", "AIV lane 0", "AIV lane 1", "DMA h2d lane 0", "DMA d2h lane 0"
    }  # fmt: skip
    assert [s.name for s in trace.on(Process.ENGINES, "AIC lane 0")] == ["cube"]
    assert [s.name for s in trace.on(Process.ENGINES, "AIC lane 1")] == ["mix"]
    # The late two blocks of b start when mix ends, so they take the lane it leaves.
    assert [s.name for s in trace.on(Process.ENGINES, "AIV lane 0")] == ["mix", "vector"]
    assert [s.name for s in trace.on(Process.ENGINES, "AIV lane 1")] == ["vector"]
    assert [s.args["blocks"] for s in trace.on(Process.ENGINES, "AIV lane 0")] == [1, 2]


def test_trace_arrows_bind_to_producer_and_consumer(drawn: Schedule) -> None:
    ends = [(a.tail.args["command"], a.head.args["command"]) for a in read(drawn).arrows_of("event")]
    assert ends == [(0, 2), (1, 3)]


def test_trace_counters(drawn: Schedule) -> None:
    counters = read(drawn).counters
    assert counters[Process.ENGINES, "busy AIC"] == [(0, 0), (1001, 1), (1500, 2), (2001, 1), (2500, 0)]
    assert counters[Process.ENGINES, "busy AIV"] == [(0, 0), (1500, 2), (2001, 4), (3001, 0)]
    # x 1024 from 0, w 2048 from 0, y 1024 from 10, z 512 from 20; x and z go at 2500 and 3001, w at 3500.
    assert counters[Process.TRANSFERS, "HBM in use"] == [
        (0, 3072), (10, 4096), (20, 4608), (2500, 4096), (3001, 3072), (3500, 1024), (4000, 0)
    ]  # fmt: skip


def test_trace_host_and_transfers(drawn: Schedule) -> None:
    trace = read(drawn)
    host = trace.on(Process.HOST, "host thread")
    assert [s.name for s in host[-3:]] == ["issue out", "prefetch w", "wait"]
    assert [(s.name, s.start, s.end) for s in trace.on(Process.TRANSFERS, "prefetch lane 0")] == [
        ("w", 0, 500)
    ]
    assert [(s.start, s.end) for s in trace.on(Process.TRANSFERS, "evict lane 0")] == [(3500, 3500)]


def test_trace_has_lanes_for_every_cause_and_cuts_what_does_not_end() -> None:
    """What has not begun by the end has no slice."""
    trace = read(spilling_schedule())
    tracks = [name for (pid, _), name in trace.tracks.items() if pid == Process.TRANSFERS]
    slices = {name: [(s.name, s.start, s.end) for s in trace.on(Process.TRANSFERS, name)] for name in tracks}
    assert slices == {
        "die 1 fault lane 0": [("b", 0, 100)],
        "die 1 fault lane 1": [("c", 0, 200)],
        "die 0 writeback lane 0": [("w", 200, 400), ("a", 400, 1000)],
        "die 1 lift lane 0": [("b", 100, 300)],
        "die 0 touch lane 0": [("a", 0, 0)],
        "die 1 touch lane 0": [("d", 0, 0)],
        "die 1 evict lane 0": [("c", 300, 300)],
        "die 1 free lane 0": [("d", 400, 400)],
    }
    assert trace.on(Process.TRANSFERS, "die 1 lift lane 0")[0].args["size_bytes"] == 512
    host = [s.name for s in trace.on(Process.HOST, "host thread")]
    assert host == ["issue k0", "issue k1", "lift b", "offload w", "lift l"]


def test_trace_counts_memory_of_each_die_until_a_write_back_has_left() -> None:
    """On die 0 w makes room for o at 400, and a never does; b, c, d and l share die 1."""
    counters = read(spilling_schedule()).counters
    assert counters[Process.TRANSFERS, "HBM in use on die 0"] == [(0, 2048), (1000, 1024)]
    assert counters[Process.TRANSFERS, "HBM in use on die 1"] == [(0, 5120), (300, 4096), (400, 3072)]
    assert counters[Process.TRANSFERS, "moving from host"] == [(0, 2), (100, 1), (200, 0)]
    assert counters[Process.TRANSFERS, "moving to host"] == [(0, 0), (200, 1), (1000, 0)]
    assert counters[Process.TRANSFERS, "moving into L2"] == [(0, 0), (100, 1), (300, 0)]


@pytest.mark.parametrize("seed", [3, 18, 91, 215, 919, 1014])
def test_memory_in_use_agrees_with_the_judge(seed: int) -> None:
    """Random runs with write-backs, late grants, lifts in line, one die or two: never more than there is.

    The judge counts from when bytes surely lie there, so it never counts more.
    """
    case = make_case(seed)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    judged = hbm_loads(Case(schedule), physical=True)
    for die, loads in judged.items():
        series = hbm_in_use(schedule, die)
        assert series.values.min() >= 0
        assert series.values.max() <= hbm_capacity(schedule)
        times = [*series.times_ns.tolist(), *(load.start_ns for load in loads)]
        for at_ns in sorted(time for time in times if time <= schedule.makespan_ns):
            place = int(series.times_ns.searchsorted(at_ns, side="right")) - 1
            least = sum(load.amount for load in loads if load.start_ns <= at_ns < load.end_ns)
            assert series.values[place] >= least
        assert not overloads(loads, int(series.values.max()))
    assert read(schedule).slices
    assert all(move.finish_ns <= schedule.makespan_ns for lane in lanes_of(schedule) for move in lane.moves)


def test_trace_keeps_single_nanoseconds_late_in_a_long_run(drawn: Schedule) -> None:
    """Ten hours in, neighbours that are one nanosecond apart stay apart."""
    late = 36_000_000_000_000
    runs = tuple(r._replace(start_ns=r.start_ns + late, finish_ns=r.finish_ns + late) for r in drawn.commands)
    blocks = tuple(
        b._replace(
            start_ns=b.start_ns + late, finish_ns=b.finish_ns + late, kernel_start_ns=b.start_ns + late
        )
        for b in drawn.blocks
    )
    trace = read(dataclasses.replace(drawn, commands=runs, blocks=blocks, transfers=(), host=()))
    first = [(s.start - late, s.end - late) for s in trace.on(Process.STREAMS, "stream 0")]
    assert first[:2] == [(0, 1000), (1001, 3001)]


def test_every_nanosecond_survives_a_viewer_that_cuts_off(drawn: Schedule) -> None:
    """1001 ns is 1.001 us, but 1.001 * 1000 is a little less than 1001 in floating point."""
    assert int(1.001 * 1000) == 1000
    for offset in (0, 10**6, 10**10, 36 * 10**12):
        calls = tuple(HostCall("wait", -1, offset + i, offset + i + 1) for i in range(2000))
        (track,) = [
            slices
            for (process, _), slices in read(dataclasses.replace(drawn, host=calls)).slices.items()
            if process == Process.HOST
        ]
        assert [(s.start, s.end) for s in track] == [(call.start_ns, call.end_ns) for call in calls]


def test_reader_refuses_broken_traces(drawn: Schedule) -> None:
    """The reader above is worth something only if it fails on faults planted in a good trace."""

    def planted(phase: str, **changes: Any) -> dict[str, Any]:
        data = chrome_trace(drawn)
        found = [e for e in data["traceEvents"] if e["ph"] == phase]
        event = [e for e in found if phase != "s" or e["cat"] == "event"][-1]
        event.update(changes)
        return data

    overlap = chrome_trace(drawn)
    slices = [e for e in overlap["traceEvents"] if e["ph"] == "X" and e["pid"] == Process.STREAMS]
    load = next(e for e in slices if e["name"] == "load")
    load["dur"] = 1.5
    faults = [
        ("sticks out", overlap),
        ("without a name", planted("X", tid=7)),
        ("touches no slice", planted("s", ts=3.001)),
        ("nanoseconds were lost", planted("X", ts=3.0015)),
        ("not ordered", planted("f", ts=0.0)),
    ]
    for message, data in faults:
        with pytest.raises(AssertionError, match=message):
            Trace(data)


@pytest.fixture(scope="module", params=["pipeline", "squeeze", "diamond"])
def real(request: pytest.FixtureRequest) -> list[Schedule]:
    """What schedulers make of a toy graph; the squeeze holds two of its five weights at a time."""
    graphs = {"pipeline": toy_pipeline(4), "squeeze": toy_squeeze(5), "diamond": toy_diamond()}
    options = RunOptions(streams=3, hbm_bytes=128 if request.param == "squeeze" else None)
    program = compile_graph(graphs[request.param], toy_device(), options)
    return [run_scheduler(program, name) for name in (*SHORT_LIST[:-1], "random", "search:20")]


def test_traces_of_real_schedules_read_back_whole(real: list[Schedule]) -> None:
    for schedule in real:
        trace = read(schedule)
        ran = {
            s.args["command"]: (s.start, s.end)
            for (process, _), slices in trace.slices.items()
            if process == Process.STREAMS
            for s in slices
            if "kernel" not in s.args
        }
        assert ran == {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
        arrows = sorted((a.tail.args["command"], a.head.args["command"]) for a in trace.arrows_of("event"))
        assert arrows == sorted((wait.producer, wait.consumer) for wait in schedule.waits)
        moved = sum(len(s) for (process, _), s in trace.slices.items() if process == Process.TRANSFERS)
        assert moved == sum(row.start_ns < FAR for row in schedule.transfers)


def test_hbm_in_use_peaks_where_the_engine_says(real: list[Schedule]) -> None:
    for schedule in real:
        assert hbm_in_use(schedule).values.max() == schedule.peak_hbm_bytes


def test_write_trace_is_the_trace_and_names_a_bad_path(drawn: Schedule, tmp_path: Path) -> None:
    path = write_trace(drawn, tmp_path / "t.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data == chrome_trace(drawn)
    assert data["displayTimeUnit"] == "ns"
    assert data["otherData"]["makespan_ns"] == 4000
    with pytest.raises(InputError, match="nowhere"):
        write_trace(drawn, tmp_path / "nowhere" / "t.json")
