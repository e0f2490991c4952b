"""Event waits, guessed waits and lanes of Kineto traces stand where the device came to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cann_env.profiles.kineto import read_kineto
from cann_env.profiles.recording import Recording, TaskKind, Verdict
from tests.kineto_files import call, kernel, launched, span, stream_wait, write

if TYPE_CHECKING:
    from pathlib import Path

MARKS = (TaskKind.RECORD, TaskKind.WAIT)


def read(folder: Path, events: list[dict[str, Any]]) -> Recording:
    return read_kineto(write(folder, events))


def found(recording: Recording, verdict: Verdict, word: str) -> int:
    return sum(
        count for (told, what), count in recording.report.counts.items() if told is verdict and word in what
    )


def marks(recording: Recording) -> list[tuple[str, int, int, int]]:
    return [(t.kind.value, t.stream, t.start_ns, t.finish_ns) for t in recording.tasks if t.kind in MARKS]


def test_an_event_wait_stands_where_the_device_came_to_it(tmp_path: Path) -> None:
    """The host calls for all at 2-6 us; the device reaches the record at 30, when kernel a is over.

    ::

        stream 7   a[10..30] record@30
        stream 9   b[8..12]  wait[12..30]  c[31..33]
    """
    events = [
        *launched("a", 0, 10, 20, 1),
        *launched("b", 1, 8, 4, 2, stream=9),
        call("cudaEventRecord", 2, 3),
        call("cudaStreamWaitEvent", 3, 4),
        stream_wait(3, 4, stream=9, on=7, record=3),
        *launched("c", 4, 31, 2, 5, stream=9),
        *launched("d", 5, 30, 9, 6),
    ]
    recording = read(tmp_path, events)
    assert marks(recording) == [("wait", 9, 4_000, 22_000), ("record", 7, 22_000, 22_000)]
    record, wait = (next(t for t in recording.tasks if t.kind is kind) for kind in MARKS)
    assert record.event == wait.event is not None
    order = [task.name for task in recording.tasks if task.stream == 7]
    assert order == ["a", "event record", "d"]


def test_a_record_says_its_stream_by_a_record_of_its_own(tmp_path: Path) -> None:
    """``cuda_event`` tells the stream, the wait only the number of the event, recorded twice."""
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        span("cuda_event", "cudaEvent", 1, 0, 0, 7, stream=7, event_id=3, correlation=2),
        stream_wait(2, 4, stream=9, on=-1, record=-1),
        call("cudaEventRecord", 3, 9),
        span("cuda_event", "cudaEvent", 3, 0, 0, 8, stream=8, event_id=3, correlation=9),
        *launched("c", 4, 15, 2, 5, stream=9),
    ]
    assert [mark[:2] for mark in marks(read(tmp_path, events))] == [("record", 7), ("wait", 9)]


def test_one_record_may_hold_two_streams(tmp_path: Path) -> None:
    events = [
        *launched("a", 0, 10, 5, 1),
        call("cudaEventRecord", 1, 2),
        stream_wait(2, 3, stream=8, on=7, record=2),
        stream_wait(2, 4, stream=9, on=7, record=2),
        *launched("b", 4, 16, 2, 5, stream=8),
        *launched("c", 4, 16, 2, 6, stream=9),
    ]
    assert [mark[0] for mark in marks(read(tmp_path, events))] == ["record", "wait", "wait"]


def test_order_passes_through_a_stream_without_work(tmp_path: Path) -> None:
    """7 -> 8 -> 9, where stream 8 holds nothing but a wait and a record: c still comes after a."""
    events = [
        *launched("a", 0, 10, 20, 1),
        call("cudaEventRecord", 1, 2),
        stream_wait(2, 3, stream=8, on=7, record=2),
        call("cudaEventRecord", 3, 4),
        stream_wait(4, 5, stream=9, on=8, record=4),
        *launched("c", 5, 31, 2, 6, stream=9),
    ]
    assert [mark[1] for mark in marks(read(tmp_path, events)) if mark[0] == "wait"] == [8, 9]


@pytest.mark.parametrize(
    ("on", "c_start", "verdict", "word"),
    [(7, 20, Verdict.DROPPED, "did not keep"), (8, 31, Verdict.RECOGNISED, "nothing to wait for")],
)
def test_waits_that_order_nothing_are_left_out(
    tmp_path: Path, on: int, c_start: int, verdict: Verdict, word: str
) -> None:
    """c starts at 20, before a is over; or stream 8 never had anything."""
    events = [
        *launched("a", 0, 10, 20, 1),
        call("cudaEventRecord", 1, 2),
        stream_wait(2, 3, stream=9, on=on, record=2),
        *launched("c", 5, c_start, 2, 6, stream=9),
    ]
    recording = read(tmp_path, events)
    assert marks(recording) == []
    assert found(recording, verdict, word) == 1


def test_a_wait_without_its_record_is_dropped_and_told(tmp_path: Path) -> None:
    events = [*launched("a", 0, 10, 20, 1), stream_wait(2, 3, stream=9, on=-1, record=-1)]
    assert found(read(tmp_path, events), Verdict.DROPPED, "record is not in the trace") == 1


def test_the_host_waiting_for_an_event_marks_no_stream(tmp_path: Path) -> None:
    sync = stream_wait(2, 3, stream=-1, on=7, record=1)
    sync["name"] = sync["args"]["cuda_sync_kind"] = "Event Sync"
    context = span("cuda_sync", "Context Sync", 3, 1, 0, -1, stream=4294967295, device=0)
    events = [*launched("a", 0, 10, 20, 1), sync, context, call("cudaDeviceSynchronize", 4, 9, 26)]
    recording = read(tmp_path, events)
    assert marks(recording) == []
    assert found(recording, Verdict.RECOGNISED, "wait for the device") == 1


def test_undescribed_waits_are_guessed_from_what_their_thread_submitted(tmp_path: Path) -> None:
    """No cuda_sync: thread 50 launches a on 7, calls for a wait, launches c on 9, which starts as a ends.

    The second wait is followed by d on 7, which ran while c did: whatever it was, it was not c that d
    waited for.
    """
    events = [
        *launched("a", 0, 10, 20, 1),
        call("cudaStreamWaitEvent", 1, 2),
        *launched("c", 2, 31, 9, 3, stream=9),
        call("cudaStreamWaitEvent", 3, 4),
        *launched("d", 4, 32, 4, 5),
    ]
    recording = read(tmp_path, events)
    assert [mark[:2] for mark in marks(recording)] == [("record", 7), ("wait", 9)]
    assert found(recording, Verdict.GUESSED, "streams of waits") == 1
    assert found(recording, Verdict.DROPPED, "streams are not recorded") == 1


def test_work_that_overlaps_on_its_stream_is_laid_beside_it(tmp_path: Path) -> None:
    """b begins while a runs: it goes to a new stream 8; c comes after both, as on a queue.

    ::

        stream 7   a[0..10]             c[12..15]
        stream 8        b[5..11]
    """
    recording = read(tmp_path, [kernel("a", 0, 10), kernel("b", 5, 6), kernel("c", 12, 3)])
    lanes = {task.name: task.stream for task in recording.tasks if task.kind is TaskKind.KERNEL}
    assert lanes == {"a": 7, "b": 8, "c": 7}
    assert [mark[:2] for mark in marks(recording)] == [("record", 8), ("wait", 7)]
    assert found(recording, Verdict.GUESSED, "overlapped") == 1


def test_what_began_after_an_overlap_waits_for_what_was_over(tmp_path: Path) -> None:
    """c on the second lane began when a was over but b still ran; it waits for a, not for b."""
    recording = read(tmp_path, [kernel("a", 0, 4), kernel("b", 5, 10), kernel("c", 6, 3)])
    events = [(t.kind.value, t.stream, t.start_ns) for t in recording.tasks if t.kind in MARKS]
    assert events == [("record", 7, 4_000), ("wait", 8, 6_000)]


def test_a_microsecond_of_overlap_is_rounding(tmp_path: Path) -> None:
    recording = read(tmp_path, [kernel("a", 0, 11), kernel("b", 10, 5)])
    assert recording.streams == (7,)
