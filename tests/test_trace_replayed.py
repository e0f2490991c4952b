"""Traces of simulated runs, imported without what made them and played again: the same starts and finishes.

The law holds where times alone tell what happened. It does not where a head waited for cores, a channel or
a slot (idle time that nothing explains becomes a delay of its own, and short idle time is dropped), for
commands of several kernels, where migrations stall a kernel, and where a stream that ran empty is not the
lowest idle one: the engine then plays its next command on another, which needs other event waits.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_graphs import random_graph

from cann_env.device import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.render.trace import chrome_trace, mindstudio_trace
from cann_env.replay import replay
from cann_env.schedulers import run_scheduler
from cann_env.workloads.from_profiler import Role, from_profiler

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule

DEVICES = ("ascend310p3", "ascend910a", "ascend910b2", "ascend910b4")
FORMS = ("chrome", "mindstudio")


def roomy(name: str) -> DeviceSpec:
    """A shipped device on which nothing queues for cores, channels or slots."""
    device = load_device(name)
    classes = {key: replace(spec, max_active=64) for key, spec in device.classes.items()}
    limits = replace(device.limits, max_concurrent_streams=64)
    pools = {key: 64 * units for key, units in device.pools.items()}
    return replace(device, pools=pools, classes=classes, limits=limits)


def played(seed: int, device: DeviceSpec, submission: Submission) -> Schedule:
    graph = random_graph(np.random.default_rng(seed), most=12, memory=False, late=seed % 3 == 0)
    single = tuple(replace(command, kernels=command.kernels[:1]) for command in graph.commands)
    options = RunOptions(streams=4, submission=submission)
    program = compile_graph(CommandGraph(graph.name, single, graph.buffers), device, options)
    return run_scheduler(program, "random")


def bare(schedule: Schedule, form: str, path: Path) -> Path:
    """A trace without its archive."""
    if form == "chrome":
        data = chrome_trace(schedule)
        del data["otherData"]["archive"]
        path.write_text(json.dumps(data), encoding="utf-8")
    else:
        path.write_text(json.dumps(mindstudio_trace(schedule)[:-1]), encoding="utf-8")
    return path


def errors_of(schedule: Schedule, path: Path) -> list[tuple[int, int]] | None:
    """Errors of start and finish of every command, from the first start; None if streams were exchanged."""
    device = schedule.device
    imported = from_profiler(path, device=device, profiler_gap_ns=0)
    again = replay(imported, device).schedule
    runs = sorted(again.commands, key=lambda run: run.command)
    pairs = {(again.graph.commands[run.command].stream_hint, run.stream) for run in runs}
    if len({hint for hint, _ in pairs}) < len(pairs) or len({stream for _, stream in pairs}) < len(pairs):
        return None
    real = [i for i, role in enumerate(imported.roles) if role in (Role.WORK, Role.PEER)]
    assert len(real) == len(schedule.commands)
    shift = min(runs[i].start_ns for i in real) - min(imported.starts_ns[i] for i in real)
    return [
        (
            runs[i].start_ns - imported.starts_ns[i] - shift,
            runs[i].finish_ns - imported.finishes_ns[i] - shift,
        )
        for i in real
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("seed", "submission"),
    [
        *((seed, Submission.SINK) for seed in (1, 4, 5, 7, 9, 10, 13, 14)),
        *((seed, Submission.EAGER) for seed in (0, 4, 6, 16, 18, 19)),
    ],
)
def test_imported_and_played_again_nothing_moves(
    seed: int, submission: Submission, form: str, tmp_path: Path
) -> None:
    """Seeds of runs with event waits in which no stream was exchanged for another, on four devices."""
    schedule = played(seed, roomy(DEVICES[seed % len(DEVICES)]), submission)
    assert schedule.waits
    assert (schedule.stall.cores, schedule.stall.dma, schedule.stall.slot) == (0, 0, 0)
    errors = errors_of(schedule, bare(schedule, form, tmp_path / "trace_view.json"))
    assert errors == [(0, 0)] * len(schedule.commands)


@pytest.mark.thorough
@pytest.mark.parametrize("submission", list(Submission))
@pytest.mark.parametrize("form", FORMS)
def test_many_traces_played_again(form: str, submission: Submission, tmp_path: Path) -> None:
    compared = 0
    for seed in range(6, 66):
        schedule = played(seed, roomy(DEVICES[seed % len(DEVICES)]), submission)
        errors = errors_of(schedule, bare(schedule, form, tmp_path / "trace_view.json"))
        compared += errors is not None
        assert not any(start or finish for start, finish in errors or []), (seed, errors)
    assert compared >= 12


def test_an_edited_slice_moves_the_replay(tmp_path: Path) -> None:
    """A kernel that the trace shows 1 ns longer is played 1 ns longer: the law above compares something."""
    schedule = played(3, roomy("ascend910b2"), Submission.SINK)
    path = bare(schedule, "chrome", tmp_path / "t.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    last = max(schedule.commands, key=lambda run: run.finish_ns)
    slices = [e for e in data["traceEvents"] if e["ph"] == "X" and "position" in e["args"]]
    next(e for e in slices if e["args"]["command"] == last.command)["dur"] += 0.001
    path.write_text(json.dumps(data), encoding="utf-8")
    imported = from_profiler(path, device=schedule.device, profiler_gap_ns=0)
    first = min(run.start_ns for run in schedule.commands)
    again = replay(imported, schedule.device).schedule
    played_first = min(run.start_ns for run in again.commands)
    assert again.makespan_ns - played_first == schedule.makespan_ns - first + 1
