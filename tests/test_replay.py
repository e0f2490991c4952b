"""Replays: recorded streams and order played again, and what the comparison says of both sides."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cann_env.commands import Command, CommandKind, CopyKind, Kernel, KernelClass
from cann_env.device.load import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.replay import replay
from cann_env.replay.comparison import Overlap, Spread
from cann_env.schedulers.assignment import Assignment, carry_out
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError
from cann_env.validate import validate
from cann_env.workloads.from_profiler import Durations, from_profiler
from tests.recordings import COPY, OTHER, PEER, RECORD, WAIT, recorded, task, tensor, tidy

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles.recording import Recording
    from cann_env.replay import Replay
    from cann_env.schedule import Schedule

DEVICE = load_device("ascend910b2")
COSTS = DEVICE.dispatch
GAP, WAKE = COSTS.gap_ns, COSTS.wake_ns
COLUMNS = "stream task_id type name start_us dur_us block_dim event"


def played(*tasks: object, **more: object) -> Replay:
    """A replay of tasks on a 910B2, which the judge accepts."""
    made = replay(from_profiler(recorded(*tasks), device=DEVICE, **more), DEVICE)  # type: ignore[arg-type]
    assert not validate(made.schedule)
    return made


def starts(made: Replay) -> dict[str, int]:
    """When each command started, by name."""
    names = [command.name for command in made.schedule.graph.commands]
    return {names[run.command]: run.start_ns for run in made.schedule.commands}


def test_two_streams_by_hand() -> None:
    """c waits for a; its start is that of the engine, b's successor has only a gap before it.

    ::

        1  |a 100 us |record
        2  |b 30|    wait ... |c 50
                |d would be here without the wait
    """
    made = played(
        task("a", 1, 0, 100),
        task("b", 2, 0, 30),
        task("record", 1, 100.1, 0, RECORD),
        task("wait", 2, 102, 0, WAIT),
        task("c", 2, 103, 50),
        task("e", 2, 154, 10),
    )
    c = 100_000 + COSTS.record_ns + WAKE
    assert starts(made) == {"a": 0, "b": 0, "c": c, "e": c + 50_000 + GAP}
    comparison = made.comparison
    assert (comparison.recorded_ns, comparison.simulated_ns) == (164_000, c + 60_000 + GAP)
    assert comparison.error == pytest.approx((c + 60_000 + GAP) / 164_000 - 1)
    errors = [0, 0, 103_000 - c, 154_000 - (c + 50_000 + GAP)]
    assert comparison.starts == Spread(4, float(np.median(errors)), float(np.percentile(errors, 90)))
    assert (comparison.event_edges, comparison.rest_edges, comparison.delays) == (1, 0, 0)


def test_a_stream_of_the_graph_is_a_stream_of_the_engine() -> None:
    """What ran on one stream runs on one, in order, and on no other one's."""
    made = played(*[task(f"{s}.{i}", s, 10 * i, 9, task_id=i) for s in (3, 8, 40) for i in range(5)])
    streams: dict[str, set[int]] = {}
    for run in made.schedule.commands:
        streams.setdefault(made.schedule.graph.commands[run.command].name.split(".")[0], set()).add(
            run.stream
        )
    assert sorted(map(len, streams.values())) == [1, 1, 1]
    assert len(set.union(*streams.values())) == 3


def test_launches_hold_back_the_device() -> None:
    """The second kernel is launched long after the first; the device starts it a latency later."""
    made = played(
        task("a", 1, 0, 10, launch_us=-5),
        task("b", 1, 105, 10, launch_us=100),
        task("c", 1, 205, 10, launch_us=200),
    )
    assert starts(made) == {"a": 0, "b": 105_000, "c": 205_000}
    assert made.comparison.path.launch_ns == 185_000
    assert made.comparison.delays == 0


def test_delays_bring_later_tasks_to_their_time() -> None:
    """Idle time that nothing explains is played as it was, and owned up to."""
    made = played(task("a", 1, 0, 10), task("b", 1, 310, 10))
    assert starts(made)["b"] == 310_000
    assert (made.comparison.delays, made.comparison.delay_ns) == (1, 300_000 - 2 * GAP)
    assert made.comparison.path.delay_ns == 300_000 - 2 * GAP
    assert made.comparison.path.pinned == pytest.approx(0.9375, abs=0.001)


def test_tasks_of_unknown_kind_are_pinned() -> None:
    """Nobody knows whether b worked or waited: 30 of 40 us are as they were, whatever the simulator says."""
    made = played(task("a", 1, 0, 10), task("b", 1, 10, 30, OTHER))
    assert made.comparison.path.other_ns == 30_000
    assert made.comparison.path.pinned == pytest.approx(0.75, abs=0.01)


def test_errors_do_not_hide_behind_a_wait_for_others() -> None:
    """b starts 4 us early, which is an error behind the wait as much as without it.

    The wait itself starts 3 us late in the recording; what comes behind it is not blamed for that.

    ::

        1  |a 10|   |peer 500|    |b 10
                 3 us         4 us
    """
    made = played(task("a", 1, 0, 10), task("peer", 1, 13, 500, PEER), task("b", 1, 517, 10))
    late = 3000 - GAP
    assert starts(made)["peer"] == 10_000 + GAP
    assert made.comparison.starts == Spread(
        3, float(late), float(np.percentile([0, late, 7000 - 2 * GAP], 90))
    )
    anchored = [0, 4000 - GAP]
    assert made.comparison.starts_between_waits == Spread(
        2, float(np.median(anchored)), float(np.percentile(anchored, 90))
    )
    first, second = made.comparison.segments
    assert (first.stream, first.tasks, first.recorded_ns, first.simulated_ns) == (1, 1, 10_000, 10_000)
    assert (second.tasks, second.recorded_ns, second.simulated_ns) == (1, 14_000, 10_000 + GAP)
    assert second.error == pytest.approx((10_000 + GAP) / 14_000 - 1)


def test_a_segment_goes_from_wait_to_wait_with_its_idle_time() -> None:
    """Idle time that nothing explains is part of a segment, a wait for another device ends it.

    ::

        1  |a 10|    100 us    |b 10|peer 50|c 10|
    """
    tasks = [
        task("a", 1, 0, 10),
        task("b", 1, 110, 10),
        task("peer", 1, 120, 50, PEER),
        task("c", 1, 170, 10),
    ]
    comparison = played(*tasks).comparison
    assert [(part.tasks, part.recorded_ns) for part in comparison.segments] == [(2, 120_000), (1, 10_000)]
    assert comparison.segments[0].error == 0.0
    assert comparison.starts_between_waits.count == 3


def test_overlap_and_gaps_of_both_sides() -> None:
    """Two kernels side by side for 50 us, then one; the copy behind it comes 2 us later, or a gap.

    ::

        1  |a 100        |  |copy 10
        2      |b 50|
           0   20   70  100 102
    """
    tasks = [
        task("a", 1, 0, 100, blocks=32),
        task("b", 2, 20, 50, blocks=32),
        task("copy", 1, 102, 10, COPY, copy=CopyKind.D2D, size_bytes=10**6),
    ]
    made = played(*tasks)
    comparison = made.comparison
    assert comparison.overlap_recorded == Overlap(160_000, 110_000, 160 / 110)
    assert comparison.overlap_simulated == Overlap(160_000, 110_000, 160 / 110)
    (gap,) = comparison.gaps
    assert (gap.pair, gap.recorded.median_ns, gap.simulated.median_ns) == ("kernel > copy", 2000, GAP)


def test_recorded_times_are_kept_whatever_runs_beside_them() -> None:
    """A recorded length holds what was shared already: neither cores nor bandwidth stretch it once more."""
    big = tensor(2**14, 2**14)
    made = played(
        task("a", 1, 0, 100, blocks=32, op="Add", inputs=(big, big), outputs=(big,)),
        task("b", 2, 0, 100, blocks=32, op="Add", inputs=(big, big), outputs=(big,)),
        task("in", 3, 0, 50, COPY, copy=CopyKind.H2D, size_bytes=2**28),
    )
    assert {run.finish_ns - run.start_ns for run in made.schedule.commands} == {100_000, 50_000}
    assert set(starts(made).values()) == {0}
    assert made.imported.graph.commands[0].kernels[0].blocks == 32


def test_kernels_that_never_ran_side_by_side_still_need_their_cores() -> None:
    """A replay in which one comes earlier than recorded does not put two on the same cores."""
    made = played(task("a", 1, 0, 100, blocks=32), task("b", 2, 100.5, 100, blocks=32))
    assert starts(made)["b"] >= 100_000


def test_modelled_durations_show_their_error_by_operator() -> None:
    """An Add recorded a hundred times too long is named with its error; the recorded one is not in error."""
    x = tensor(1024, 1024)
    tasks = [
        task("a", 1, 0, 5000, op="Add", blocks=32, inputs=(x, x), outputs=(x,)),
        task("b", 1, 5001, 40, op="Mystery", blocks=32),
    ]
    made = played(*tasks, durations=Durations.MODELLED)
    rows = {row.op: row for row in made.comparison.operators}
    assert rows["Mystery"].median_error == 0.0
    assert (rows["Add"].count, rows["Add"].recorded_ns) == (1, 5_000_000)
    assert rows["Add"].median_error == pytest.approx(1 - rows["Add"].simulated_ns / 5_000_000)
    assert rows["Add"].median_error > 0.9
    assert {row.median_error for row in played(*tasks).comparison.operators} == {0.0}


def test_the_path_is_the_makespan() -> None:
    """Work, waits, delays, launches and dispatch along the last chain add up."""
    made = played(
        task("a", 1, 0, 100, launch_us=-9),
        task("b", 2, 400, 30, launch_us=391),
        task("peer", 2, 431, 50, PEER),
        task("c", 2, 600, 20),
        task("record", 2, 620, 0, RECORD),
        task("wait", 1, 640, 0, WAIT),
        task("d", 1, 640.1, 25),
    )
    path = made.comparison.path
    parts = (path.work_ns, path.other_ns, path.peer_ns, path.delay_ns, path.profiler_ns)
    assert sum(parts) + path.launch_ns + path.dispatch_ns == made.comparison.simulated_ns
    assert (path.work_ns, path.peer_ns) == (75_000, 50_000)
    assert path.launch_ns == 400_000
    assert path.delay_ns == pytest.approx(119_000 + 20_000, abs=1000)


def random_schedule(seed: int) -> Schedule:
    """Kernels and copies of a random graph on up to six streams, none short of cores."""
    rng = random.Random(seed)
    commands: list[Command] = []
    for i in range(30):
        after = tuple(f"k{j}" for j in range(max(0, i - 9), i) if rng.random() < 0.2)
        length = rng.randrange(200, 90_000)
        kernel = Kernel(name=f"k{i}", kernel_class=KernelClass.CUBE, duration_ns=length)
        commands.append(Command(name=f"k{i}", kind=CommandKind.KERNEL, kernels=(kernel,), after=after))
    graph = CommandGraph("random", tuple(commands))
    options = RunOptions(streams=6, run_ahead=30, commands=30)
    program = compile_graph(graph, DEVICE, options)
    labels = tuple(rng.randrange(6) for _ in commands)
    plan = carry_out(program, Assignment(order=tuple(range(30)), labels=labels)).plan
    return record_schedule(program, plan.actions)


def table_of(schedule: Schedule) -> list[tuple[object, ...]]:
    """A tidy table of a schedule: kernels, and a record and a wait for each event.

    Each wait has the id of its own record, and stands where it was over: at once, or when the record woke it.
    """
    runs = {run.command: run for run in schedule.commands}
    rows: list[tuple[object, ...]] = []
    for stream in sorted({run.stream for run in runs.values()}):
        reached = 0
        lines: list[tuple[int, str, str, int, str]] = []
        for run in sorted((r for r in runs.values() if r.stream == stream), key=lambda r: r.position):
            own = [wait.producer for wait in schedule.waits if wait.consumer == run.command]
            for producer in sorted(own, key=lambda c: runs[c].finish_ns):
                woken = runs[producer].finish_ns + COSTS.record_ns + WAKE
                reached = max(reached, min(run.start_ns, woken))
                lines.append((reached, "EVENT_WAIT", "wait", 0, f"{producer}>{run.command}"))
            length = run.finish_ns - run.start_ns
            lines.append((run.start_ns, "AI_CORE", f"k{run.command}", length, ""))
            for consumer in [wait.consumer for wait in schedule.waits if wait.producer == run.command]:
                lines.append((run.finish_ns, "EVENT_RECORD", "record", 0, f"{run.command}>{consumer}"))
            reached = run.finish_ns + GAP
        for i, (start, kind, name, length, event) in enumerate(lines):
            rows.append((stream, i, kind, name, start / 1000, length / 1000, 1, event))
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_of_the_engine_comes_back_the_same(tmp_path: Path, seed: int) -> None:
    """Written as a recording, read and played again, every command starts when it started, to the ns."""
    schedule = random_schedule(seed)
    assert len(schedule.waits) > 5
    recording = tidy(tmp_path / "a.csv", COLUMNS, table_of(schedule))
    made = replay(from_profiler(recording, device=DEVICE), DEVICE)
    graph = schedule.graph
    expected = {graph.commands[run.command].name: run.start_ns for run in schedule.commands}
    assert made.comparison.delays == 0
    assert starts(made) == expected
    assert made.comparison.error == 0.0
    assert not validate(made.schedule)


def shuffled(recording: Recording, seed: int, later_ns: int) -> Recording:
    """The same tasks in another order of rows, on a clock that is ahead."""
    tasks = [
        replace(
            one,
            start_ns=one.start_ns + later_ns,
            launch_ns=None if one.launch_ns is None else one.launch_ns + later_ns,
        )
        for one in recording.tasks
    ]
    random.Random(seed).shuffle(tasks)
    return recorded(*tasks)


def test_order_of_rows_and_clock_change_nothing(tmp_path: Path) -> None:
    """A recording is a set of tasks with times relative to each other."""
    recording = tidy(tmp_path / "a.csv", COLUMNS, table_of(random_schedule(9)))
    made = replay(from_profiler(recording, device=DEVICE), DEVICE)
    for seed in range(2):
        other = from_profiler(shuffled(recording, seed, 10**15), device=DEVICE)
        assert replay(other, DEVICE).comparison == made.comparison


def test_a_lost_event_shows(tmp_path: Path) -> None:
    """Without its waits and records the same recording cannot be explained: delays appear."""
    rows = table_of(random_schedule(3))
    bare = [row for row in rows if row[2] == "AI_CORE"]
    made = replay(from_profiler(tidy(tmp_path / "a.csv", COLUMNS, bare), device=DEVICE), DEVICE)
    assert made.comparison.rest_edges + made.comparison.delays > 0
    wrong = [(*row[:-1], "") if row[2] == "EVENT_RECORD" else row for row in rows]
    lost = replay(from_profiler(tidy(tmp_path / "b.csv", COLUMNS, wrong), device=DEVICE), DEVICE)
    assert lost.comparison.delays > 0


def test_a_wrong_cost_of_events_shows() -> None:
    """A recording of a device that wakes streams 60 us later than the file says is not replayed well."""
    tasks = []
    for i in range(6):
        at = 200.0 * i
        tasks += [
            task(f"a{i}", 1, at, 100),
            task("record", 1, at + 100, 0, RECORD, event=f"r{i}"),
            task("wait", 2, at + 122, 0, WAIT, event=f"r{i}"),
            task(f"b{i}", 2, at + 122.1, 60),
            task("record", 2, at + 182.1, 0, RECORD, event=f"s{i}"),
            task("wait", 1, at + 199.9, 0, WAIT, event=f"s{i}"),
        ]
    good = played(*tasks)
    slow = replace(DEVICE, dispatch=replace(COSTS, wake_ns=WAKE + 60_000))
    bad = replay(from_profiler(recorded(*tasks), device=slow), slow)
    assert abs(good.comparison.error) < 0.01
    assert bad.comparison.error > 0.1


def test_more_streams_than_the_engine_has_are_refused() -> None:
    """The graph is named, and what the limit is."""
    imported = from_profiler(recorded(task("a", 1, 0, 1)))
    with pytest.raises(InputError, match="made_up uses 5000 streams; the engine has 4096"):
        replay(replace(imported, streams=tuple(range(5000))), DEVICE)


def test_a_measured_copy_takes_its_time() -> None:
    """The measured time replaces the bandwidth of the link, in the engine and before the judge."""
    copy = Command(name="in", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=10**6, duration_ns=77_000)
    program = compile_graph(CommandGraph("g", (copy,)), DEVICE, RunOptions())
    schedule = record_schedule(program, carry_out(program, Assignment(order=(0,))).plan.actions)
    assert schedule.makespan_ns == 77_000
    assert not validate(schedule)
    slower = replace(schedule, graph=CommandGraph("g", (replace(copy, duration_ns=78_000),)))
    assert validate(slower)
