"""A Kineto trace becomes a graph that the engine plays as recorded, and says what of that was pinned."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.profiles.kineto import read_kineto
from cann_env.replay import replay
from cann_env.replay.pacing import paced
from cann_env.units import InputError
from cann_env.validate import validate
from cann_env.workloads.foreign_device import foreign_device
from cann_env.workloads.from_profiler import Imported, from_profiler
from tests.kineto_files import call, launched, span, stream_wait, write

if TYPE_CHECKING:
    from cann_env.device import DeviceSpec
    from cann_env.replay import Replay


def imported(folder: Path, events: list[dict[str, Any]]) -> tuple[Imported, DeviceSpec]:
    recording = read_kineto(write(folder, events))
    device = foreign_device(recording)
    return from_profiler(recording, device=device), device


def starts_us(played: Replay) -> dict[str, float]:
    """When each command started, from the first on."""
    first = min(run.start_ns for run in played.schedule.commands)
    names = [command.name for command in played.imported.graph.commands]
    return {names[run.command]: (run.start_ns - first) / 1000 for run in played.schedule.commands}


def two_streams(*, waits: bool) -> list[dict[str, Any]]:
    """Launches take 10 us, the gap between queued kernels is 1 us; c waits for a by an event.

    ::

        stream 7   h2d[10..14]  a[15..35]  b[36..41]                  e[110..115]
        stream 9                           c[35..65]  d[66..70]
    """
    events = [
        call("cudaMemcpyAsync", 0, 1),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 10, 4, 0, 7, bytes=64, correlation=1),
        *launched("a", 1, 15, 20, 2),
        call("cudaEventRecord", 2, 3),
        *launched("b", 3, 36, 5, 4),
        *launched("c", 5, 35, 30, 6, stream=9),
        *launched("d", 6, 66, 4, 7, stream=9),
        *launched("e", 100, 110, 5, 8),
    ]
    return [*events, stream_wait(4, 5, stream=9, on=7, record=3)] if waits else events


def test_streams_events_launches_and_gaps_give_the_recording_back(tmp_path: Path) -> None:
    graph, device = imported(tmp_path, two_streams(waits=True))
    played = replay(graph, device)
    assert starts_us(played) == {
        "Memcpy HtoD (Pinned -> Device)": 0, "a": 5, "b": 26, "c": 25, "d": 56, "e": 100,
    }  # fmt: skip
    assert played.comparison.error == 0
    assert played.comparison.delays == 0
    assert played.comparison.recorded_edges == 1
    assert validate(played.schedule) == ()


def test_work_that_overlaps_on_one_stream_is_played_side_by_side(tmp_path: Path) -> None:
    """b runs within a, on the same stream; c comes after both.

    ::

        stream 7   a[10..40]              c[41..45]   d[70..74]
                        b[25..35]
    """
    events = [
        *launched("a", 0, 10, 30, 1),
        *launched("b", 15, 25, 10, 2),
        *launched("c", 16, 41, 4, 3),
        *launched("d", 60, 70, 4, 4),
    ]
    graph, device = imported(tmp_path, events)
    played = replay(graph, device)
    assert starts_us(played) == {"a": 0, "b": 15, "c": 31, "d": 60}
    assert played.comparison.delays == 0
    assert validate(played.schedule) == ()


def test_the_launch_that_ends_a_chain_is_told(tmp_path: Path) -> None:
    """e starts 69 us after b: its launch decides, but for its own 5 us and what ran before."""
    graph, device = imported(tmp_path, two_streams(waits=True))
    path = replay(graph, device).comparison.path
    assert path.work_ns == (4 + 20 + 5 + 5) * 1000
    assert path.launch_ns >= 69_000
    assert path.delay_ns == 0


def test_the_device_that_stands_in_is_found_by_itself(tmp_path: Path) -> None:
    graph, device = imported(tmp_path, two_streams(waits=True))
    assert from_profiler(graph.recording).graph == graph.graph
    assert replay(from_profiler(graph.recording), device).comparison.error == 0


def test_the_command_line_finds_it_too(tmp_path: Path) -> None:
    """Unless another device is asked for."""
    pytest.importorskip("typer")
    inputs = importlib.import_module("cann_env.cli.profile_inputs")
    verb = importlib.import_module("cann_env.cli.replay_verb")
    recording = read_kineto(write(tmp_path, two_streams(waits=True)))
    assert inputs.device_for(recording, None) == foreign_device(recording)
    assert inputs.device_for(recording, "ascend910b2").name == "ascend910b2"
    assert "no device file describes it" in verb.about_device(foreign_device(recording), recording)


def test_gaps_of_the_recording_are_not_counted_twice(tmp_path: Path) -> None:
    """Kernels of one launch take turns on two streams, 1 us apart. On each stream 8 us pass between them, but
    for the last: that is no gap of the device, and nothing of it is put between them."""
    events = [call("cudaGraphLaunch", 0, 1)]
    stands = (
        [(7, 10 + 14 * i) for i in range(6)]
        + [(9, 17 + 14 * i) for i in range(6)]
        + [(7, 95), (7, 102), (7, 109)]
    )
    for number, (stream, start) in enumerate(stands):
        event = launched(f"k{number}", 0, start, 6, 1, stream)[1]
        events.append(event)
    graph, device = imported(tmp_path, events)
    comparison = replay(graph, device).comparison
    assert comparison.profiler_ns == 0
    assert comparison.simulated_ns <= comparison.recorded_ns


def test_without_its_event_a_start_is_not_reproduced_for_free(tmp_path: Path) -> None:
    """What the event explained is a guess or a delay now, and is counted as such."""
    graph, device = imported(tmp_path, two_streams(waits=False))
    comparison = replay(graph, device).comparison
    assert comparison.recorded_edges == 0
    assert comparison.delays + comparison.rest_edges == 1


def test_paced_launches_show_what_the_host_decided(tmp_path: Path) -> None:
    """Ten kernels of 4 us, launched every 100 us: at that pace nothing changes, without a host all follow
    each other without a gap, since none was recorded in a queue."""
    events = [event for i in range(10) for event in launched(f"k{i}", 100 * i, 100 * i + 10, 4, i + 1)]
    graph, device = imported(tmp_path, events)
    assert device.host.launch_kernel_ns == 100_000
    recorded = replay(graph, device).comparison
    assert recorded.recorded_ns == recorded.simulated_ns == 904_000
    assert replay(paced(graph, 100_000), device).comparison.error == 0
    assert replay(paced(graph, 0), device).comparison.simulated_ns == 40_000
    assert recorded.path.launch_ns == 904_000 - 40_000 + graph.graph.commands[0].release_ns


def test_what_one_call_launched_stays_together(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, two_streams(waits=True))
    times = {command.release_ns for command in graph.graph.commands}
    slower = paced(graph, 7)
    assert {command.release_ns for command in slower.graph.commands} == {7 * i for i in range(len(times))}


def test_a_call_does_not_give_time_back(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, two_streams(waits=True))
    with pytest.raises(InputError, match="-1 ns"):
        paced(graph, -1)


def test_the_benchmark_tells_error_and_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten kernels of 4 us, launched every 100 us: all but 4 % of it is waiting for launches."""
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    module = importlib.import_module("pytorch_traces")
    events = [event for i in range(10) for event in launched(f"k{i}", 100 * i, 100 * i + 10, 4, i + 1)]
    monkeypatch.setattr(sys, "argv", ["benchmark", str(write(tmp_path, events).parent), "--json"])
    module.main()
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert set(row) == set(module.Row._fields)
    assert (row["tasks"], row["error"], row["error_undelayed"], row["error_paced"]) == (10, 0, 0, 0)
    assert row["error_hostless"] == 40 / 904 - 1
    assert row["delay_count"] == 0
    assert row["work"] + row["launches"] == pytest.approx(1, abs=0.02)
