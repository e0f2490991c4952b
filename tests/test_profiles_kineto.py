"""Kineto traces are read in every form they were written in, and garbage is refused by its place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.commands import CopyKind
from cann_env.profiles.kineto import MOST_BLOCKS, read_kineto
from cann_env.profiles.recording import Recording, Task, TaskKind, Verdict
from cann_env.units import InputError
from tests.kineto_files import call, kernel, launched, span, write

if TYPE_CHECKING:
    from pathlib import Path

MARKS = (TaskKind.RECORD, TaskKind.WAIT)


def read(folder: Path, events: list[dict[str, Any]], device: int | None = None, **header: Any) -> Recording:
    return read_kineto(write(folder, events, **header), device)


def found(recording: Recording, verdict: Verdict, word: str) -> int:
    return sum(
        count for (told, what), count in recording.report.counts.items() if told is verdict and word in what
    )


def marks(recording: Recording) -> list[tuple[str, int, int, int]]:
    return [(t.kind.value, t.stream, t.start_ns, t.finish_ns) for t in recording.tasks if t.kind in MARKS]


def test_kernels_stand_on_their_stream_with_launch_blocks_and_operator(tmp_path: Path) -> None:
    """launch 100 us, start 110, 5 us long on stream 7; then launch 104, start 116."""
    name = "void at::native::(anonymous namespace)::add_kernel<float, std::array<char*, 2ul>>(int, float)"
    recording = read(tmp_path, [*launched(name, 100, 110, 5, 1), *launched("gemm_nn", 104, 116, 4, 2)])
    first, second = recording.tasks
    assert (first.name, first.kind, first.stream) == (name, TaskKind.KERNEL, 7)
    assert (first.start_ns, first.duration_ns, first.launch_ns) == (0, 5_000, -10_000)
    assert (first.op, first.blocks, first.task_id) == ("at::native::anonymous::add_kernel", 8, 1)
    assert (second.op, second.start_ns, second.launch_ns) == ("gemm_nn", 6_000, -6_000)
    assert recording.origin_ns == 110_000
    assert recording.makespan_ns == 10_000


@pytest.mark.parametrize("name", ["made.json", "made.pt.trace.json.gz", "plain_name.gz"])
def test_compressed_and_plain_files_are_the_same(tmp_path: Path, name: str) -> None:
    events = launched("k", 1, 2, 3, 1)
    packed = read_kineto(write(tmp_path, events, name))
    assert packed.tasks == _placed(read(tmp_path, events).tasks, name)


def _placed(tasks: tuple[Task, ...], name: str) -> tuple[Task, ...]:
    return tuple(replace(t, place=t.place.replace("made.pt.trace.json", name)) for t in tasks)


def test_a_bare_list_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(launched("k", 1, 2, 3, 1)))
    recording = read_kineto(path)
    assert [task.start_ns for task in recording.tasks] == [0]
    assert recording.chip == ""


@pytest.mark.parametrize(
    ("ts", "dur", "start", "duration"),
    [
        (1_695_835_542_514_261, 12, 1_695_835_542_514_261_000, 12_000),
        ("1695835542514261.123", "12.5", 1_695_835_542_514_261_123, 12_500),
        (5925.123, 0.001, 5_925_123, 1),
    ],
)
def test_times_are_exact_whole_fractional_huge_or_text(
    tmp_path: Path, ts: Any, dur: Any, start: int, duration: int
) -> None:
    recording = read(tmp_path, [kernel("k", ts, dur)])
    assert recording.origin_ns == start
    assert recording.tasks[0].duration_ns == duration


def test_digits_of_a_huge_fraction_survive(tmp_path: Path) -> None:
    """As a float 1695835542514261.123 would end in .25."""
    path = tmp_path / "huge.json"
    text = json.dumps([kernel("k", "@", 1)]).replace('"@"', "1695835542514261.123")
    path.write_text(text)
    assert read_kineto(path).origin_ns == 1_695_835_542_514_261_123


def test_base_time_is_added_and_the_display_unit_ignored(tmp_path: Path) -> None:
    recording = read(
        tmp_path, [kernel("k", 2.5, 1)], baseTimeNanoseconds=1_712_000_000_000_000_000, displayTimeUnit="ns"
    )
    assert recording.origin_ns == 1_712_000_000_000_002_500


def test_old_words_mean_the_same(tmp_path: Path) -> None:
    """Categories as they were written in 2021."""
    events = [
        span("Runtime", "cudaLaunchKernel", 0, 1, 900, 50, correlation=4),
        span("Kernel", "k", 10, 5, 0, "stream 7", device=0, correlation=4, **{"external id": 1}),
        span("Memcpy", "Memcpy HtoD (Pinned -> Device)", 16, 2, 0, "stream 7", bytes=64),
        span("Memset", "Memset (Device)", 19, 1, 0, "stream 7"),
        span("Operator", "aten::add", 0, 9, 900, 50),
    ]
    tasks = read(tmp_path, events).tasks
    assert [task.kind for task in tasks] == [TaskKind.KERNEL, TaskKind.COPY, TaskKind.KERNEL]
    assert {task.stream for task in tasks} == {7}
    assert tasks[0].launch_ns == -10_000


@pytest.mark.parametrize(
    ("name", "args", "way", "size"),
    [
        ("Memcpy HtoD (Pinned -> Device)", {"bytes": 5}, CopyKind.H2D, 5),
        ("Memcpy HtoD (Pageable -> Device)", {"bytes": 5}, CopyKind.H2D, 5),
        ("Memcpy DtoH (Device -> Pageable)", {"bytes": "7"}, CopyKind.D2H, 7),
        ("Memcpy DtoD (Device -> Device)", {"bytes": 9}, CopyKind.D2D, 9),
        ("Memcpy PtoP (Device -> Device)", {"bytes": 9, "fromDevice": 0, "inDevice": 0}, CopyKind.D2D, 9),
        ("CopyHostToDevice", {"size": "11"}, CopyKind.H2D, 11),
        ("CopyDeviceToHost", {}, CopyKind.D2H, 0),
        ("Memcpy ? (Device -> Host)", {"bytes": 1}, CopyKind.D2H, 1),
        ("Memcpy M2D", {"bytes": 1}, CopyKind.H2D, 1),
        ("Memcpy HtoH (Host -> Host)", {"bytes": 1}, None, 1),
        ("copyBuffer", {"bytes": 1}, None, 1),
    ],
)
def test_copies_have_direction_and_bytes(
    tmp_path: Path, name: str, args: dict[str, Any], way: CopyKind | None, size: int
) -> None:
    (task,) = read(tmp_path, [span("gpu_memcpy", name, 1, 2, **args)]).tasks
    assert (task.kind, task.copy, task.size_bytes) == (TaskKind.COPY, way, size)


def test_pageable_copies_are_told_apart(tmp_path: Path) -> None:
    names = [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy HtoD (Pinned -> Device)",
    ]
    recording = read(tmp_path, [span("gpu_memcpy", name, 3 * i, 2, bytes=8) for i, name in enumerate(names)])
    assert recording.report.counts[Verdict.RECOGNISED, "copies of pageable memory"] == 2
    assert recording.report.counts[Verdict.RECOGNISED, "copies"] == 1


def test_a_rocm_trace_says_grid_and_direction_at_the_call(tmp_path: Path) -> None:
    """Its kernels carry a queue and little else; addresses stand for the streams of calls."""
    grid = {"grid": [3, 5, 1], "stream": "0x7f10"}
    events = [
        call("hipLaunchKernel", 0, 8, **grid),
        span("kernel", "Cijk_Ailk [clone .kd]", 10, 5, 2, 1, correlation=8),
        call("hipMemcpyWithStream", 3, 9, size="640", kind="1"),
        span("gpu_memcpy", "Memcpy 1 (0x1 -> 0x2)", 20, 5, 2, 1, correlation=9),
    ]
    first, copy = read(tmp_path, events).tasks
    assert (first.op, first.blocks, first.launch_ns) == ("Cijk_Ailk", 15, -10_000)
    assert (copy.copy, copy.size_bytes, copy.launch_ns) == (CopyKind.H2D, 640, -7_000)


def test_a_stream_may_be_an_address_or_stand_in_tid(tmp_path: Path) -> None:
    events = [
        span("kernel", "a", 1, 1, 0, 3, hipStream="0x10"),
        span("kernel", "b", 1, 1, 0, "Stream 12"),
        span("kernel", "c", 1, 1, 0, 5),
    ]
    assert [task.stream for task in read(tmp_path, events).tasks] == [5, 12, 16]


@pytest.mark.parametrize(
    "name",
    ["cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel", "cudaMemsetAsync"],
)
def test_whichever_call_has_the_correlation_submitted_it(tmp_path: Path, name: str) -> None:
    category = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
    events = [kernel("k", 9, 1, correlation=3), span(category, name, 4, 1, 900, 50, correlation=3)]
    assert read(tmp_path, events).tasks[0].launch_ns == -5_000


def test_of_nested_calls_the_outer_one_counts(tmp_path: Path) -> None:
    events = [
        span("cuda_driver", "cuLaunchKernel", 5, 1, 900, 50, correlation=3),
        call("cudaLaunchKernel", 4, 3),
        kernel("k", 9, 1, correlation=3),
    ]
    assert read(tmp_path, events).tasks[0].launch_ns == -5_000


@pytest.mark.parametrize(
    ("length", "start", "launch"),
    [(3_000, 3_009, 2_998), (3_000, 1_500, 0), (900, 1_500, 0)],
)
def test_a_launch_that_was_held_up_submits_at_its_end(
    tmp_path: Path, length: int, start: int, launch: int
) -> None:
    """Calls last 2 us, one 3 ms: its kernel was launched 2 us before its end, unless it had begun by then."""
    events = [event for i in range(5) for event in launched("k", 9_000 + i, 9_001 + 9 * i, 1, i + 1)]
    for event in events:
        event["dur"] = 2
    events += [call("cudaLaunchKernel", 0, 9, length), kernel("held", start, 5, correlation=9)]
    recording = read(tmp_path, events)
    (held,) = [task for task in recording.tasks if task.name == "held"]
    assert held.launch_ns is not None
    assert recording.origin_ns + held.launch_ns == launch * 1000


def test_an_arrow_tells_the_launch_where_no_correlation_does(tmp_path: Path) -> None:
    events = [
        kernel("k", 9, 1),
        {"ph": "s", "id": 77, "pid": 900, "tid": 50, "ts": 6, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 77, "pid": 0, "tid": 7, "ts": 9, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    ]
    assert read(tmp_path, events).tasks[0].launch_ns == -3_000


def test_an_arrow_also_names_the_call_with_its_grid(tmp_path: Path) -> None:
    """As ROCm writes it: a kernel says nothing but its arrow, the call says the grid."""
    events = [
        call("hipExtModuleLaunchKernel", 4, 43, grid=[6, 2, 1]),
        {"ph": "s", "id": 43, "pid": 900, "tid": 50, "ts": 4, "cat": "ac2g", "name": "ac2g"},
        span("kernel", "Cijk", 9, 5, 2, 0, **{"External id": 43}),
        {"ph": "f", "id": 43, "pid": 2, "tid": 0, "ts": 9, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    ]
    (task,) = read(tmp_path, events).tasks
    assert (task.launch_ns, task.blocks, task.stream) == (-5_000, 12, 0)


def test_work_without_a_launch_is_kept_and_told(tmp_path: Path) -> None:
    recording = read(tmp_path, [kernel("k", 9, 1, correlation=3)])
    assert recording.tasks[0].launch_ns is None
    assert found(recording, Verdict.DROPPED, "submission") == 1


def test_kernels_of_a_graph_share_a_launch_and_no_number(tmp_path: Path) -> None:
    """One cudaGraphLaunch, two kernels: both have its time, neither its correlation as its own number."""
    events = [
        call("cudaGraphLaunch", 0, 6),
        kernel("a", 5, 1, correlation=6, **{"graph node id": 1}),
        kernel("b", 7, 1, correlation=6, **{"graph node id": 2}),
    ]
    recording = read(tmp_path, events)
    assert [task.launch_ns for task in recording.tasks] == [-5_000, -5_000]
    assert [task.task_id for task in recording.tasks] == [None, None]
    assert recording.traits["graph_launches"] == "1"
    assert found(recording, Verdict.RECOGNISED, "graph launch") == 2


@pytest.mark.parametrize(
    ("name", "args", "size"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", {}, 0),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", {}, 0),
        ("rcclGenericKernel", {"In msg nelems": 8, "Out msg nelems": 64, "dtype": "BFloat16"}, 128),
        ("any", {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float"}, 32),
    ],
)
def test_collectives_are_told_apart(tmp_path: Path, name: str, args: dict[str, Any], size: int) -> None:
    recording = read(tmp_path, [kernel(name, 1, 2, **args)])
    assert recording.tasks[0].kind is TaskKind.COLLECTIVE
    assert recording.tasks[0].size_bytes == size
    assert found(recording, Verdict.RECOGNISED, "peers") == 1


def test_the_chip_its_size_and_occupancy_are_traits(tmp_path: Path) -> None:
    """Occupancy is weighted by time: (3 us x 50 % + 1 us x 10 %) / 4 us = 40 %."""
    key = "est. achieved occupancy %"
    events = [kernel("a", 1, 3, **{key: 50}), kernel("b", 5, 1, **{key: 10})]
    recording = read(tmp_path, events, distributedInfo={"rank": 3, "world_size": 8})
    assert recording.chip == "Made-up GPU"
    traits = {"sm_count": "10", "threads_per_sm": "2048", "rank": "3", "occupancy_percent": "40.0"}
    assert traits.items() <= recording.traits.items()


def test_of_several_devices_one_must_be_chosen(tmp_path: Path) -> None:
    events = [kernel("a", 1, 3), kernel("b", 5, 1, device=1), kernel("c", 7, 1, device=1)]
    with pytest.raises(InputError, match=r"several devices.*0 \(1 tasks\), 1 \(2 tasks\)"):
        read(tmp_path, events)
    other = read(tmp_path, events, device=1)
    assert [task.name for task in other.tasks] == ["b", "c"]
    assert other.chip == "Other GPU"
    with pytest.raises(InputError, match=r"no work of device 5; it has 0"):
        read(tmp_path, events, device=5)


def test_steps_hold_what_was_launched_in_them(tmp_path: Path) -> None:
    """The second kernel starts in step 4, but was launched in step 3; the last comes after all steps."""
    events = [
        span("user_annotation", "ProfilerStep#3", 0, 10, 900, 50),
        span("user_annotation", "ProfilerStep#4", 10, 10, 900, 50),
        span("gpu_user_annotation", "ProfilerStep#9", 0, 40, 0, 7),
        *launched("a", 1, 2, 1, 1),
        *launched("b", 9, 12, 1, 2),
        *launched("c", 15, 16, 1, 3),
        *launched("d", 30, 31, 1, 4),
    ]
    recording = read(tmp_path, events)
    assert [task.step for task in recording.tasks] == [3, 3, 4, None]
    assert recording.steps == (3, 4)


def test_clocks_apart_are_put_right_by_the_least_shift(tmp_path: Path) -> None:
    """Launches 3 and 5 us after their starts: all move by 5 us."""
    recording = read(tmp_path, [*launched("a", 13, 10, 5, 1), *launched("b", 25, 20, 5, 2)])
    assert [task.launch_ns for task in recording.tasks] == [-2_000, 10_000]
    assert recording.traits["launch_shift_ns"] == "5000"
    assert found(recording, Verdict.GUESSED, "clocks") == 2


def test_a_rare_launch_after_its_start_is_left_out(tmp_path: Path) -> None:
    events = [event for i in range(100) for event in launched("a", 10 * i, 10 * i + 5, 2, i + 1)]
    events[0]["ts"] = 9
    recording = read(tmp_path, events)
    assert recording.tasks[0].launch_ns is None
    assert recording.tasks[1].launch_ns == 5_000
    assert found(recording, Verdict.DROPPED, "after the start") == 1


def test_clocks_apart_do_not_follow_a_stray_launch(tmp_path: Path) -> None:
    """Of 100 launches 99 lie 2 us after their start, one 900 us: the others decide, it is left out."""
    events = [event for i in range(100) for event in launched("a", 10 * i + 2, 10 * i, 2, i + 1)]
    events[0]["ts"] = 900
    recording = read(tmp_path, events)
    assert recording.traits["launch_shift_ns"] == "2000"
    assert [task.launch_ns for task in recording.tasks[:2]] == [None, 10_000]


def test_grids_beyond_what_a_kernel_may_have_are_cut_and_told(tmp_path: Path) -> None:
    recording = read(tmp_path, [kernel("a", 0, 1, grid=[2**31 - 1, 65_535, 2])])
    assert recording.tasks[0].blocks == MOST_BLOCKS
    assert found(recording, Verdict.GUESSED, "grids") == 1


def test_other_events_say_nothing(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "x", "ts": 1},
        span("Trace", "PyTorch Profiler (0)", 1, 100, "Spans", "PyTorch Profiler"),
        span("gpu_user_annotation", "forward", 1, 100),
        span("overhead", "Unrecognized", "soon", 100, -1, 0),
        {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 3, "args": {"x": 1}},
        kernel("k", 5, 1),
    ]
    assert [task.name for task in read(tmp_path, events).tasks] == ["k"]
