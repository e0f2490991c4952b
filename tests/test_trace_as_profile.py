"""Traces of simulated runs read as if a profiler had recorded them: streams, times, launches, events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from episodes import actions_of
from pictures import drawn_schedule

from cann_env.commands import CopyKind, KernelClass
from cann_env.profiles import TaskKind
from cann_env.profiles.read import read_profile
from cann_env.render.trace import chrome_trace, mindstudio_trace, write_trace
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles import Recording, Task
    from cann_env.schedule import Schedule

EVENTS = (TaskKind.RECORD, TaskKind.WAIT, TaskKind.RESET)


def bare_chrome(schedule: Schedule, path: Path) -> Recording:
    """Read from the form ``chrome`` without the archive."""
    data = chrome_trace(schedule)
    del data["otherData"]["archive"]
    return read_profile(written(path / "t.json", data))


def bare_profile(schedule: Schedule, path: Path) -> Recording:
    """Read from the folder without the archive."""
    folder = write_trace(schedule, path / "t_ascend_pt")
    data = mindstudio_trace(schedule)
    assert data.pop()["name"] == "cann_env_run"
    written(folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", data)
    return read_profile(folder)


def written(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def works(recording: Recording) -> list[Task]:
    return [task for task in recording.tasks if task.kind not in EVENTS]


@pytest.mark.parametrize("seed", range(100, 112))
def test_every_command_is_a_task_of_its_stream_at_its_time(seed: int, tmp_path: Path) -> None:
    """The form ``chrome``: to the nanosecond, with the instant at which the stream had it."""
    case = make_case(seed)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    recording = bare_chrome(schedule, tmp_path)
    origin = recording.origin_ns
    found = [
        (
            t.stream,
            t.start_ns + origin,
            t.finish_ns + origin,
            t.kind.value,
            -1 if t.launch_ns is None else t.launch_ns + origin,
        )
        for t in works(recording)
    ]
    kinds = [command.kind.value for command in schedule.graph.commands]
    assert sorted(found) == sorted(
        (run.stream, run.start_ns, run.finish_ns, kinds[run.command], run.issue_ns)
        for run in schedule.commands
    )
    events = [task.event for task in recording.tasks if task.kind is TaskKind.WAIT]
    assert sorted(filter(None, events)) == sorted(f"{w.producer} to {w.consumer}" for w in schedule.waits)
    assert sorted(filter(None, events)) == sorted(
        str(task.event) for task in recording.tasks if task.kind is TaskKind.RECORD
    )


@pytest.mark.parametrize("seed", range(100, 112))
def test_a_profile_tells_the_same_of_every_command(seed: int, tmp_path: Path) -> None:
    """The folder: as many tasks as there are kernels, from each command's start to its finish."""
    case = make_case(seed)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    recording = bare_profile(schedule, tmp_path)
    first = 10**9 - recording.origin_ns
    runs = sorted(schedule.commands, key=lambda run: (run.stream, run.position))
    expected = [
        (run.stream, edge + first)
        for run in runs
        for edge in (run.start_ns, run.finish_ns)
        for command in [schedule.graph.commands[run.command]]
        if len(command.kernels) < 2
    ]
    found = {(task.stream, edge) for task in works(recording) for edge in (task.start_ns, task.finish_ns)}
    assert set(expected) <= found
    assert len(works(recording)) == sum(max(1, len(c.kernels)) for c in schedule.graph.commands)
    waits = [task for task in recording.tasks if task.kind is TaskKind.WAIT]
    assert len({task.event for task in waits}) == len(waits) == len(schedule.waits)


def test_what_tasks_say_of_themselves_is_read(tmp_path: Path) -> None:
    """Names, classes, blocks, copies with their bytes: of a fused command only in the profile."""
    for recording, kernels in (
        (bare_chrome(drawn_schedule(), tmp_path), {"net/fused", "net/mix"}),
        (bare_profile(drawn_schedule(), tmp_path), {"cube", "vector", "mix"}),
    ):
        found = {task.name: task for task in works(recording) if task.kind is TaskKind.KERNEL}
        assert set(found) == kernels
        copies = [(t.copy, t.size_bytes) for t in recording.tasks if t.kind is TaskKind.COPY]
        assert copies == [(CopyKind.H2D, 995), (CopyKind.D2H, 600)]
        mix = found.get("net/mix") or found["mix"]
        assert (mix.kernel_class, mix.blocks) == (KernelClass.MIX, 1)
    assert found["vector"].blocks == 4
    assert recording.clock_hz == 10**9


def test_traces_that_lack_something_are_refused(tmp_path: Path) -> None:
    def planted(name: str, value: object) -> Path:
        data = chrome_trace(drawn_schedule())
        event = next(e for e in data["traceEvents"] if e["ph"] == "X" and "position" in e["args"])
        event["args"][name] = value
        return written(tmp_path / "t.json", data)

    for name, value, words in (
        ("command", None, "event [0-9]+, command: "),
        ("issue_ns", "soon", "event [0-9]+, issue_ns: 'soon'"),
        ("waits_for", 3, "waits_for: 3 is not a list of commands"),
        ("waits_for", [99], "it waits for command 99, which is not shown"),
        ("blocks", 0, "event [0-9]+, blocks: "),
    ):
        with pytest.raises(InputError, match=words):
            read_profile(planted(name, value))
    data = chrome_trace(drawn_schedule())
    data["traceEvents"] = [event for event in data["traceEvents"] if event["ph"] != "X"]
    with pytest.raises(InputError, match="shows no command on a stream"):
        read_profile(written(tmp_path / "t.json", data))
