"""Law: a schedule that is written as a program and run again has the same timeline, to the nanosecond.

The other forms are read back: whatever the schedule orders is ordered there.
"""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from exported import execute, rerun, scheduled, times, times_of
from typer.testing import CliRunner

import cann_env.acl as acl
from cann_env.acl.plans.plan import plan_of
from cann_env.acl.program import run_program
from cann_env.cli.app import app
from cann_env.device import load_device
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
    Scheme,
)
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.schedule import Schedule

MB = 1 << 20


@cache
def everything(device: str = "ascend910b2", scheduler: str = "heft", **options: Any) -> Schedule:
    """A schedule of one command of each kind.

    ::

        in (pageable) -> fused(2) -> sum (collective) -> out
        w (host)  ---------^   |
                               +--> call (callback) -> late (released at 400 us) -> dup (d2d)
                               +--> own (states its demand; in batches)
    """
    cube = Kernel(name="cube", kernel_class=KernelClass.CUBE, blocks=8, flops=10**9, bytes_read=2 * MB)
    vector = Kernel(
        name="vector", kernel_class=KernelClass.VECTOR, blocks=4, flops=10**6, bytes_written=MB,
        fallback=KernelClass.CUBE,
    )  # fmt: skip
    own = Kernel(
        name="own", kernel_class=KernelClass.VECTOR, blocks=6, duration_ns=5000, scheme=Scheme.BATCH,
        demand=((load_device(device).pool_names[0], 2),),
    )  # fmt: skip
    commands = (
        Command(
            name="in", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=MB, writes=("a",),
            host_memory=HostMemory.PAGEABLE,
        ),
        Command(
            name="fused", kind=CommandKind.KERNEL, kernels=(cube, vector), reads=("a", "w"), writes=("b",)
        ),
        Command(name="sum", kind=CommandKind.COLLECTIVE, duration_ns=30_000, reads=("b",), writes=("b",)),
        Command(name="call", kind=CommandKind.CALLBACK, duration_ns=10_000, after=("fused",)),
        Command(name="own", kind=CommandKind.KERNEL, kernels=(own,), reads=("b",), writes=("c",)),
        Command(
            name="late", kind=CommandKind.KERNEL, kernels=(vector,), reads=("b",), writes=("d",),
            after=("call",), release_ns=400_000,
        ),
        Command(
            name="dup", kind=CommandKind.COPY, copy=CopyKind.D2D, size_bytes=MB, reads=("d",), writes=("e",)
        ),
        Command(name="part", kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=1000, reads=("e",)),
        Command(name="out", kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=MB, reads=("b",)),
        Command(name="slow", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=MB, duration_ns=77_777),
    )  # fmt: skip
    buffers = (
        *(Buffer(name=name, size_bytes=MB) for name in "abcde"),
        Buffer(name="w", size_bytes=4 * MB, kind=BufferKind.MANAGED, level=Level.HOST),
    )
    graph = CommandGraph("everything", commands, buffers)
    program = compile_graph(graph, load_device(device), RunOptions(**{"streams": 4, **options}))
    return run_scheduler(program, scheduler)


_EVERYTHING: list[dict[str, Any]] = [
    {},
    {"scheduler": "round_robin"},
    {"stream_priorities": (3, 0, 1, 2)},
    {"device": "ascend910_93", "scheduler": "random"},
    {"device": "ascend910b4", "scheduler": "reference", "submission": "eager"},
]


@pytest.fixture(params=_EVERYTHING, ids=str)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """Schedules of everything there is."""
    return everything(**request.param)


def test_every_kind_of_command_runs_again_at_its_time(schedule: Schedule) -> None:
    run = rerun(schedule)
    assert times_of(run) == times(schedule)
    assert max(finish for _, finish in times_of(run)) == schedule.makespan_ns


@pytest.mark.parametrize(
    ("scenario", "device", "scheduler"),
    [
        ("random", "", "reference"),
        ("random", "ascend910b4", "round_robin"),
        ("random", "ascend910_93", "heft"),
        ("random", "ascend310b1", "heft"),
        ("serving_arrivals", "", "single_stream"),
        ("oversubscribed", "", "heft"),
    ],
)
def test_a_schedule_runs_again_to_the_nanosecond(scenario: str, device: str, scheduler: str) -> None:
    schedule = scheduled(scenario, 0, scheduler, device)
    assert times_of(rerun(schedule)) == times(schedule)


_MANY = [
    *[("random", k, ("reference", "heft", "round_robin", "cpop")[k % 4], device)
      for k in range(5) for device in ("ascend910b2", "ascend910b4", "ascend910_93", "ascend310b1")],
    *[("layered", k, ("reference", "cpop", "random")[k % 3], device)
      for k in range(3) for device in ("ascend910b2", "ascend910a")],
    *[("pipeline", 0, scheduler, device)
      for scheduler in ("reference", "heft", "random") for device in ("ascend310b1", "ascend310p3")],
    *[("serving", k, "reference", "ascend910b2") for k in range(3)],
    *[("serving_arrivals", k, ("heft", "random")[k % 2], "ascend910b2") for k in range(4)],
    *[("transformer", k, ("reference", "heft")[k % 2], device)
      for k in range(3) for device in ("ascend910b2", "ascend910b4")],
    *[("oversubscribed", k, ("reference", "heft", "round_robin")[k % 3], device)
      for k in range(4) for device in ("ascend910b2", "ascend910_93")],
    *[("training", k, ("reference", "heft", "cpop")[k], "ascend910b2") for k in range(3)],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "episode", "scheduler", "device"), _MANY)
def test_more_than_fifty_schedules_run_again(
    scenario: str, episode: int, scheduler: str, device: str
) -> None:
    schedule = scheduled(scenario, episode, scheduler, device)
    assert times_of(rerun(schedule)) == times(schedule)


def _made_up(seed: int) -> Schedule:
    """Devices, graphs and options that are drawn: dies, links, pools, windows, evictions, demands."""
    program = make_case(seed, plain=True, own=bool(seed % 2)).program
    return run_scheduler(program, ("reference", "heft", "random", "round_robin")[seed % 4], seed=seed)


@pytest.mark.parametrize("first", range(0, 60, 6))
def test_made_up_machines_run_again_too(first: int) -> None:
    for seed in range(first, first + 6):
        schedule = _made_up(seed)
        assert times_of(rerun(schedule)) == times(schedule), seed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_more_of_them_do(first: int) -> None:
    for seed in range(first, first + 50):
        schedule = _made_up(seed)
        assert times_of(rerun(schedule)) == times(schedule), seed


def test_without_the_times_the_events_make_the_same_timeline() -> None:
    schedule = scheduled("random", 3, "round_robin")
    text = acl.export(schedule)
    assert "BY_TIME = True" in text
    again = rerun(schedule, text.replace("BY_TIME = True", "BY_TIME = False"))
    assert times_of(again) == times(schedule)
    assert acl.hazards() == []


def test_a_wait_that_is_left_out_is_seen() -> None:
    """Planted fault: the timeline of a program that waits for less is another one."""
    schedule = scheduled("random", 3, "round_robin")
    lines = acl.export(schedule).splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if line.startswith("    wait("))
    again = rerun(schedule, "".join(lines[:place] + lines[place + 1 :]))
    assert times_of(again) != times(schedule) or acl.hazards()


def test_a_program_defines_and_imports_what_it_uses_and_nothing_else(schedule: Schedule) -> None:
    tree = ast.parse(acl.export(schedule))
    made = {alias.asname or alias.name for node in ast.walk(tree) for alias in getattr(node, "names", [])}
    made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    made |= {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    used = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    streams = {name for name in made - used if name[0] == "s" and name[1:].isdecimal()}
    assert made - used - streams == set()


def test_it_is_made_for_people() -> None:
    text = acl.export(everything())
    for title in ("# Streams.", "# Events.", "# Kernels.", "# Memory.", "# Work.", "# End."):
        assert f"    {title}\n" in text
    for command in everything().graph.commands:
        assert f"    # {command.name}\n" in text


# What cannot be written.


def test_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form is 'onnx'; write one of acl, torch_npu, ge, ge_pass"):
        acl.export(everything(), "onnx", tmp_path / "plan")
    assert not list(tmp_path.iterdir())


def test_durations_that_were_drawn_are_refused_by_the_name_of_the_command() -> None:
    schedule = everything()
    noisy = replace(schedule, noise=(1 << 20, (1 << 20) + 9, *schedule.noise[2:]))
    with pytest.raises(InputError, match="command 'fused': its duration was drawn at random"):
        acl.export(noisy)


def test_managed_memory_on_a_device_without_it_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"buffer 'w' \(used by command 'fused'\).* no managed memory"):
        acl.export(everything("ascend910a"))


# PyTorch.


class _Recorder:
    """Stands for torch: it writes down what is called, on which stream."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any, Any]] = []
        self.streams: list[_Stream] = []
        self.current: list[_Stream] = []
        self.npu = SimpleNamespace(
            Stream=self.stream_made, Event=lambda: _Event(self), stream=lambda s: _Within(self, s),
            synchronize=lambda: None,
        )  # fmt: skip

    def stream_made(self, priority: int = 0) -> _Stream:
        self.streams.append(_Stream(self, len(self.streams), priority))
        return self.streams[-1]

    def function(self, name: str) -> Any:
        return lambda *tensors: self.log.append(("call", name, self.current[-1].number))


class _Stream:
    def __init__(self, owner: _Recorder, number: int, priority: int) -> None:
        self.owner, self.number, self.priority = owner, number, priority

    def wait_event(self, event: _Event) -> None:
        self.owner.log.append(("wait", event, self.number))


class _Event:
    def __init__(self, owner: _Recorder) -> None:
        self.owner = owner

    def record(self, stream: _Stream) -> None:
        self.owner.log.append(("record", self, stream.number))

    def synchronize(self) -> None:
        self.owner.log.append(("host", self, -1))


class _Within:
    def __init__(self, owner: _Recorder, stream: _Stream) -> None:
        self.owner, self.stream = owner, stream

    def __enter__(self) -> None:
        self.owner.current.append(self.stream)

    def __exit__(self, *_: object) -> None:
        self.owner.current.pop()


class _Tensor:
    def __init__(self, owner: _Recorder, name: str) -> None:
        self.owner, self.name = owner, name

    def copy_(self, other: _Tensor, non_blocking: bool = False) -> None:
        assert non_blocking and other.name == self.name
        self.owner.log.append(("copy", self.name, self.owner.current[-1].number))


class _Tensors(dict):
    def __init__(self, owner: _Recorder) -> None:
        self.owner = owner

    def __missing__(self, name: str) -> _Tensor:
        return _Tensor(self.owner, name)


class _Functions:
    def __init__(self, owner: _Recorder) -> None:
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        return self.owner.function(name)


def _torch_log(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> _Recorder:
    text = acl.export(schedule, "torch_npu")
    ast.parse(text)
    owner = _Recorder()
    moves = SimpleNamespace(npu_prefetch=lambda tensor, after, size: None)
    monkeypatch.setitem(sys.modules, "torch", owner)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch_npu", moves)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec(compile(text, "torch_plan.py", "exec"), names)
    names["run"](_Functions(owner), _Tensors(owner), _Tensors(owner))
    return owner


def test_stream_code_orders_whatever_the_schedule_does(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back with a stand-in for torch: streams, places in them, and an event for each wait."""
    _check_stream_code(schedule, monkeypatch)


@pytest.mark.parametrize(("episode", "scheduler"), [(1, "reference"), (2, "round_robin")])
def test_stream_code_of_networks_does_too(
    episode: int, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_stream_code(scheduled("random", episode, scheduler), monkeypatch)


def _check_stream_code(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = _torch_log(schedule, monkeypatch)
    plan = plan_of(schedule)
    graph = schedule.graph
    lines: list[list[Any]] = [[] for _ in owner.streams]
    for what, who, stream in owner.log:
        if stream >= 0:
            lines[stream].append((what, who))
    recorded: dict[Any, tuple[int, int]] = {}
    for stream, line in enumerate(lines):
        for place, (what, who) in enumerate(line):
            if what == "record":
                recorded[who] = stream, place
    where: dict[int, tuple[int, int]] = {}
    for stream in range(plan.streams):
        mine = [run for run in schedule.commands if run.stream == stream]
        commands = [run.command for run in sorted(mine, key=lambda run: run.position)]
        fetched = [buffer.name for buffer in graph.buffers if buffer.kind is BufferKind.MANAGED]
        done = [p for p, (what, who) in enumerate(lines[stream])
                if what == "call" or (what == "copy" and who not in fetched)]  # fmt: skip
        assert len(done) == len(commands)
        where |= {c: (stream, place) for c, place in zip(commands, done, strict=True)}
    for wait in schedule.waits:
        stream, place = where[wait.consumer]
        before = [recorded[who] for what, who in lines[stream][:place] if what == "wait" and who in recorded]
        producer, end = where[wait.producer]
        assert any(s == producer and p > end for s, p in before), graph.commands[wait.consumer].name


# The graph engine.


def test_labels_and_control_edges_hold_the_schedule(schedule: Schedule) -> None:
    table = json.loads(acl.export(schedule, "ge"))
    nodes = {node["name"]: node for node in table["nodes"]}
    streams = {stream["label"]: stream["priority"] for stream in table["streams"]}
    names = [command.name for command in schedule.graph.commands]
    last: dict[int, str] = {}
    for run in sorted(schedule.commands, key=lambda run: (run.stream, run.position)):
        node = nodes[names[run.command]]
        assert node["attributes"]["_user_stream_label"] == f"s{run.stream}"
        assert int(node["attributes"]["_user_stream_priority"]) == streams[f"s{run.stream}"]
        assert run.stream not in last or last[run.stream] in node["control"]
        last[run.stream] = node["name"]
    for wait in schedule.waits:
        assert names[wait.producer] in nodes[names[wait.consumer]]["control"]
    order = list(nodes)
    assert all(order.index(u) < order.index(name) for name in order for u in nodes[name]["control"])


def test_the_pass_names_each_node_and_its_stream() -> None:
    schedule = everything()
    text = acl.export(schedule, "ge_pass")
    for run in schedule.commands:
        assert f'{{"{schedule.graph.commands[run.command].name}", {run.stream}}},' in text
    assert "CustomAllocateStreamPassFn" in text and text.count("{") == text.count("}")


# The command line.


@pytest.mark.parametrize("form", ["acl", "torch_npu", "ge", "ge_pass"])
def test_the_command_line_writes_what_the_library_does(form: str, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    arguments = ["export", "random", "--scheduler", "heft", "--form", form, "-o", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8") == acl.export(scheduled("random", 0, "heft"), form)
    assert "makespan" in result.output


@pytest.mark.parametrize("name", ["random", "pipeline", "oversubscribed", "training"])
def test_a_program_is_checked_as_what_it_was_made_for(name: str, tmp_path: Path) -> None:
    """Device and runtime come from its first lines; it gives back all that it took."""
    schedule = scheduled(name, 0, "heft")
    out = tmp_path / "plan.py"
    made = CliRunner().invoke(app, ["export", name, "--scheduler", "heft", "-o", str(out)])
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(app, ["check", str(out), "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert said["hazards"] == [] and said["device"] == schedule.device.name
    assert times_of(run_program(out)) == times(schedule)
    own = tmp_path / "own.toml"
    own.write_text(f'extends = "{schedule.device.name}"\n', encoding="utf-8")
    text = out.read_text(encoding="utf-8").replace(f"device={schedule.device.name}", "device=own", 1)
    out.write_text(text, encoding="utf-8")
    assert times_of(run_program(out, str(own))) == times(schedule)
    out.write_text(text.replace("works(acl.rt.destroy_event(event))", "pass"), encoding="utf-8")
    assert CliRunner().invoke(app, ["check", str(out), "--device", str(own)]).exit_code == 1


def test_the_command_line_prints_a_program_that_runs() -> None:
    result = CliRunner().invoke(app, ["export", "random", "--scheduler", "heft"])
    schedule = scheduled("random", 0, "heft")
    run = acl.run_as(schedule)
    execute(result.output)
    assert times_of(run) == times(schedule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "export takes one INPUT or one --scenario; got 0"),
        (["random", "--form", "c"], "--form is 'c'; write one of acl, torch_npu, ge, ge_pass"),
        (["random", "--scheduler", "best"], "best"),
        (["random", "-o", "/nowhere/at/all"], "its folder does not exist"),
    ],
)
def test_the_command_line_says_what_is_wrong(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["export", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split()) or message in " ".join(result.stderr.split())
