"""Fine print of Kineto traces: what waits mean in corners, lanes of overlapping work, names and numbers."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.profiles.kineto import FORMAT, read_kineto
from cann_env.profiles.kineto_words import operator_of
from cann_env.profiles.read import read_profile
from cann_env.profiles.recording import Recording, TaskKind, Verdict
from tests.kineto_files import call, kernel, launched, span, stream_wait, write

if TYPE_CHECKING:
    from pathlib import Path


EARLY = "work that began before the one ahead had ended, begun later"


def read(folder: Path, events: list[dict[str, Any]], device: int | None = None) -> Recording:
    return read_kineto(write(folder, events), device)


def marks(recording: Recording) -> list[tuple[str, int, int]]:
    kinds = (TaskKind.RECORD, TaskKind.WAIT)
    return [(task.kind.value, task.stream, task.start_ns) for task in recording.tasks if task.kind in kinds]


def words(recording: Recording, verdict: Verdict) -> str:
    return "; ".join(what for told, what in recording.report.counts if told is verdict)


def test_a_queue_decides_what_was_submitted_before_a_record(tmp_path: Path) -> None:
    """b was launched at 3 but runs behind a, launched at 5: by a record at 4 neither was in the queue."""
    events = [
        *launched("a", 5, 10, 2, 1),
        *launched("b", 3, 13, 7, 2),
        call("cudaEventRecord", 4, 3),
        stream_wait(6, 4, stream=9, on=7, record=3),
        *launched("c", 8, 30, 1, 5, stream=9),
    ]
    recording = read(tmp_path, events)
    assert marks(recording) == []
    assert "nothing to wait for" in words(recording, Verdict.RECOGNISED)


def test_a_record_on_an_idle_stream_is_reached_when_the_host_calls(tmp_path: Path) -> None:
    """a is over at 15, the record is called for at 20, the wait at 21: nobody waits. Launches take 3 us."""
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 20, 2),
        stream_wait(21, 3, stream=9, on=7, record=2),
        *launched("c", 22, 25, 1, 4, stream=9),
    ]
    assert marks(read(tmp_path, events)) == [("record", 7, 13_000), ("wait", 9, 14_000)]


def test_a_wait_after_all_that_ran_is_left_out(tmp_path: Path) -> None:
    """It would make the recording longer than what the device did."""
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 50, 2),
        stream_wait(51, 3, stream=9, on=7, record=2),
    ]
    recording = read(tmp_path, events)
    assert recording.makespan_ns == 5_000
    assert "before or after" in words(recording, Verdict.DROPPED)


def test_a_stream_does_not_wait_for_itself(tmp_path: Path) -> None:
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        stream_wait(2, 3, stream=7, on=7, record=2),
        *launched("b", 3, 16, 1, 4),
    ]
    assert marks(read(tmp_path, events)) == []


def test_an_unknown_stream_is_known_in_any_width(tmp_path: Path) -> None:
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        stream_wait(2, 3, stream=4294967295, on=7, record=2),
    ]
    assert "record is not in the trace" in words(read(tmp_path, events), Verdict.DROPPED)


def test_waits_of_another_device_are_not_those_of_this_one(tmp_path: Path) -> None:
    wait = stream_wait(2, 3, stream=9, on=7, record=2)
    wait["args"]["device"] = 1
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        wait,
        *launched("c", 4, 16, 1, 4, stream=9),
    ]
    assert marks(read(tmp_path, events)) == []


def test_what_the_profiler_does_not_describe_is_not_guessed_where_it_describes(tmp_path: Path) -> None:
    """The second wait could be guessed, as c begins when b is over; but the profiler tells all that count."""
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        call("cudaStreamWaitEvent", 2, 3),
        stream_wait(2, 3, stream=9, on=7, record=2),
        *launched("b", 3, 16, 5, 4, stream=9),
        call("cudaStreamWaitEvent", 4, 5),
        *launched("c", 5, 21, 1, 6),
    ]
    recording = read(tmp_path, events)
    assert [mark[:2] for mark in marks(recording)] == [("record", 7), ("wait", 9)]
    assert "streams are not recorded" in words(recording, Verdict.DROPPED)


def test_a_guess_takes_the_stream_that_its_thread_used_last(tmp_path: Path) -> None:
    """The thread launches on 8, on 7, on 8 again, calls for a wait, and launches on 9."""
    events = [
        *launched("x", 0, 10, 1, 1, stream=8),
        *launched("a", 1, 12, 1, 2),
        *launched("y", 2, 14, 1, 3, stream=8),
        call("cudaStreamWaitEvent", 3, 4),
        *launched("c", 4, 16, 1, 5, stream=9),
    ]
    assert marks(read(tmp_path, events)) == [("record", 8, 5_000), ("wait", 9, 5_000)]


def test_number_zero_is_nobodys(tmp_path: Path) -> None:
    events = [call("cudaLaunchKernel", 0, 0), span("kernel", "k", 5, 1, correlation=0)]
    assert read(tmp_path, events).tasks[0].launch_ns is None


def test_a_copy_between_devices_belongs_to_the_one_that_makes_it(tmp_path: Path) -> None:
    copy = span("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 5, 1, 0, 7, fromDevice=0, inDevice=1)
    assert [task.op for task in read(tmp_path, [copy, kernel("k", 1, 1)], device=1).tasks] == ["Memcpy"]


def test_lanes_of_all_streams_have_numbers_of_their_own(tmp_path: Path) -> None:
    events = [kernel(f"{stream}{i}", 3 * i, 9, stream) for stream in (7, 9) for i in range(2)]
    recording = read(tmp_path, events)
    assert {task.name: task.stream for task in recording.tasks} == {"70": 7, "71": 10, "90": 9, "91": 11}


def test_a_kernel_that_is_there_early_begins_in_its_turn(tmp_path: Path) -> None:
    """b is there 4 us before a ends, c 3 us before b ends: both end when they did.

    ::

        a[0..20]  b[16..40] -> [20..40]  c[37..50] -> [40..50]
    """
    recording = read(tmp_path, [kernel("a", 0, 20), kernel("b", 16, 24), kernel("c", 37, 13)])
    assert [(task.name, task.stream, task.start_ns, task.finish_ns) for task in recording.tasks] == [
        ("a", 7, 0, 20_000),
        ("b", 7, 20_000, 40_000),
        ("c", 7, 40_000, 50_000),
    ]
    assert recording.report.counts[Verdict.GUESSED, EARLY] == 2


@pytest.mark.parametrize(("start", "length"), [(9, 12), (35, 8), (25, 40)])
def test_what_is_much_earlier_runs_beside(tmp_path: Path, start: int, length: int) -> None:
    """a lasts from 0 to 40. The second overlaps it wholly, by more than half of itself, or by 15 us."""
    recording = read(tmp_path, [kernel("a", 0, 40), kernel("b", start, length)])
    assert {task.name: task.stream for task in recording.tasks if task.kind is TaskKind.KERNEL} == {
        "a": 7,
        "b": 8,
    }


def test_a_lane_waits_once_for_what_it_follows(tmp_path: Path) -> None:
    """a[0..4] b[5..30] stay, c[6..8] and d[10..12] go beside b: c waits for a, and with it d."""
    events = [kernel("a", 0, 4), kernel("b", 5, 25), kernel("c", 6, 2), kernel("d", 10, 2)]
    assert marks(read(tmp_path, events)) == [("record", 7, 4_000), ("wait", 8, 6_000)]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("void foo<int, bar<2> >(int*, float)", "foo"),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 2>(P)",
            "internal::gemvx::kernel",
        ),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("_ZN2at6native12_GLOBAL__N_1E", "_ZN2at6native12_GLOBAL__N_1E"),
        ("x->y(int)", "x-y"),
        ("(anonymous namespace)::k(int)", "anonymous::k"),
        ("<unknown>", "<unknown>"),
    ],
)
def test_operators_are_functions_without_templates(name: str, op: str) -> None:
    assert operator_of(name) == op


def test_control_characters_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    text = json.dumps([kernel("a@b", 0, 1)]).replace("@", "\t")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_kineto(path).tasks[0].name == "a\tb"


@pytest.mark.parametrize("name", ["any.json", "any.json.gz"])
@pytest.mark.parametrize(
    "event",
    [
        kernel("k", 0, 1),
        span("Kernel", "k", 0, 1),
        span("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 0, 1, kind="HostToDevice"),
        span("Memcpy", "CopyHostToDevice", 0, 1),
    ],
)
def test_a_trace_is_known_by_its_words(tmp_path: Path, name: str, event: dict[str, Any]) -> None:
    """A direction of a copy is not yet a flow of Ascend's profiler."""
    path = tmp_path / name
    text = json.dumps([event]).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert read_profile(path).format == FORMAT


def test_the_device_of_a_trace_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, [kernel("a", 0, 1), kernel("b", 0, 1, device=1)])
    assert [task.name for task in read_profile(path, 1).tasks] == ["b"]
