"""Folders of the Ascend PyTorch profiler: what is read of them, how it is joined, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ascend_run import (
    CANN,
    HARDWARE,
    HCCL,
    HOST,
    OPERATION,
    ORIGIN,
    TASKS,
    Made,
    events,
    microseconds,
    write_folder,
    write_kernels,
    write_timeline,
)

from cann_env.commands import CopyKind, KernelClass, Operand
from cann_env.profiles.ascend_folder import read_folder
from cann_env.profiles.recording import Recording, Task, TaskKind, Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path


def kinds(recording: Recording, stream: int) -> list[tuple[str, int, int]]:
    """Kind, start and length of the tasks of a stream."""
    return [(t.kind.value, t.start_ns, t.duration_ns) for t in recording.tasks if t.stream == stream]


def named(recording: Recording, name: str) -> Task:
    """The only task of a name."""
    (found,) = [task for task in recording.tasks if task.name == name]
    return found


def noted(recording: Recording, verdict: Verdict, what: str) -> int:
    """How often something was noted that begins with ``what``."""
    return sum(
        n for (v, about), n in recording.report.counts.items() if v is verdict and about.startswith(what)
    )


def timeline(path: Path, found: object) -> Recording:
    """Reads a timeline made of some events."""
    return read_folder(write_timeline(path / "trace_view.json", found))


def test_a_folder_is_read_as_it_was_run(tmp_path: Path) -> None:
    """The picture in ``ascend_run``, to the nanosecond, from a clock that no float holds."""
    recording = read_folder(write_folder(tmp_path / "run_ascend_pt"))
    assert recording.origin_ns == ORIGIN
    assert recording.name == "run_ascend_pt"
    assert recording.clock_hz == 1_650_000_000
    assert kinds(recording, 2) == [
        ("copy", 1000, 2000),
        ("kernel", 5000, 3000),
        ("record", 8010, 20),
        ("kernel", 9000, 10000),
        ("wait", 21000, 115000),
    ]
    assert kinds(recording, 4) == [
        ("wait", 3000, 5030),
        ("collective", 20000, 1300),
        ("peer_wait", 21300, 98700),
        ("collective", 120000, 10000),
        ("record", 130010, 20),
    ]
    assert kinds(recording, 0) == [("other", 0, 20)]


def test_kernels_get_their_row_of_the_table(tmp_path: Path) -> None:
    """The timeline calls both kinds of core AI_CORE; the table knows a vector kernel and its blocks."""
    recording = read_folder(write_folder(tmp_path / "run"))
    cast = named(recording, "aclnnCast_Cast")
    assert (cast.op, cast.kernel_class, cast.blocks, cast.core_ns) == ("Cast", KernelClass.VECTOR, 8, 2500)
    assert cast.inputs == (Operand((32, 64), "float32"),)
    matmul = named(recording, "aclnnMm_MatMul")
    assert (matmul.kernel_class, matmul.blocks, matmul.mix_blocks) == (KernelClass.MIX, 20, 40)
    assert matmul.inputs[1] == Operand((64, 16), "float16", "FRACTAL_NZ")
    assert matmul.task_id == 103 and matmul.step == 3


def test_a_table_without_ids_joins_by_time(tmp_path: Path) -> None:
    output = write_folder(tmp_path / "run") / "ASCEND_PROFILER_OUTPUT"
    write_kernels(output / "kernel_details.csv", ids=False)
    recording = read_folder(output)
    assert named(recording, "aclnnCast_Cast").blocks == 8
    assert named(recording, "aclnnCast_Cast").stream == 2
    assert len(recording.tasks) == 11


def test_a_table_without_ids_joins_by_time_alone(tmp_path: Path) -> None:
    """Timeline and table call a kernel by different names; the event that starts with it is none."""
    output = write_folder(tmp_path / "run") / "ASCEND_PROFILER_OUTPUT"
    renamed = replace(TASKS[3], name="trans_Cast_7", start=TASKS[3].start + 1)
    beside = replace(TASKS[4], start=TASKS[3].start)
    write_kernels(output / "kernel_details.csv", (renamed, TASKS[5]), ids=False)
    write_timeline(output / "trace_view.json", events((*TASKS[:3], beside, *TASKS[3:])))
    recording = read_folder(output)
    assert [task.blocks for task in recording.tasks if task.op == "Cast"] == [8]
    assert [task.kind.value for task in recording.tasks if task.start_ns == 5000] == ["record", "kernel"]


def test_a_row_that_the_timeline_lacks_is_kept_and_noted(tmp_path: Path) -> None:
    """A table with one kernel more than the timeline."""
    output = write_folder(tmp_path / "run") / "ASCEND_PROFILER_OUTPUT"
    extra = replace(TASKS[3], start=150_000, task_id=105, name="late")
    write_kernels(output / "kernel_details.csv", (*TASKS, extra))
    recording = read_folder(output)
    assert named(recording, "late").start_ns == 150_000
    assert noted(recording, Verdict.GUESSED, "rows of operator tables") == 1


def test_a_timeline_alone_says_what_it_does_not_know(tmp_path: Path) -> None:
    """No table: no shapes, and no telling which kind of core; compressed, as an object, beside tasks at 0."""
    path = write_timeline(tmp_path / "trace_view.json.gz", {"traceEvents": events()})
    recording = read_folder(path)
    cast = named(recording, "aclnnCast_Cast")
    assert cast.kernel_class is None and cast.blocks is None
    assert named(recording, "aclnnMm_MatMul").kernel_class is KernelClass.MIX
    assert noted(recording, Verdict.GUESSED, "kernels whose kind of core") == 1
    assert noted(recording, Verdict.DROPPED, "shapes and blocks") == 2
    assert noted(recording, Verdict.DROPPED, "events of other processes") == 1


def test_a_table_alone_is_read(tmp_path: Path) -> None:
    write_kernels(tmp_path / "kernel_details.csv")
    recording = read_folder(tmp_path)
    assert [task.kind.value for task in recording.tasks] == ["kernel", "kernel", "collective"]
    assert recording.origin_ns == ORIGIN + 5000


def test_processes_are_told_by_name(tmp_path: Path) -> None:
    """Other numbers and other spellings: the same tasks."""
    renamed = events()
    spelt = {"Ascend Hardware": "Ascend Hardware (NPU 3)", "HCCL": "Communication", "CANN": "CANN:1"}
    for event in renamed:
        event["pid"] = f"p{event['pid']}"
        if event["name"] == "process_name":
            args: Any = event["args"]
            args["name"] = spelt.get(args["name"], args["name"])
    assert [replace(t, place="") for t in timeline(tmp_path, renamed).tasks] == [
        replace(t, place="") for t in read_folder(write_timeline(tmp_path / "b.json", events())).tasks
    ]


def test_times_may_be_numbers_or_text_with_tabs(tmp_path: Path) -> None:
    """JSON numbers of 19 digits must not pass through a float."""
    text = json.dumps(events())
    plain = tmp_path / "trace_view.json"
    bare = text
    for task in TASKS:
        bare = bare.replace(f'"ts": "{microseconds(task.start)}"', f'"ts": {microseconds(task.start)}')
    assert bare != text
    plain.write_text(bare)
    tabbed = tmp_path / "tabbed.json"
    tabbed.write_text(text.replace('"ts": "', '"ts": "\\t '))
    for path in (plain, tabbed):
        recording = read_folder(path)
        assert recording.origin_ns == ORIGIN
        assert kinds(recording, 2)[1:3] == [("kernel", 5000, 3000), ("record", 8010, 20)]


def test_launches_come_from_arrows_and_from_calls(tmp_path: Path) -> None:
    """Kernels have arrows, the copy and the events only the number of their call, the switch neither."""
    recording = timeline(tmp_path, events())
    assert {task.name: task.launch_ns for task in recording.tasks if task.stream != 4} == {
        "PROFILING_ENABLE": None,
        "MEMCPY_ASYNC": -4000,
        "aclnnCast_Cast": -2000,
        "EVENT_RECORD": -1400,
        "aclnnMm_MatMul": -1200,
        "EVENT_WAIT": -250,
    }
    assert {t.launch_ns for t in recording.tasks if t.name == OPERATION[0]} == {-500}
    assert noted(recording, Verdict.DROPPED, "launch times, not recorded") == 1


def test_an_arrow_without_a_start_is_counted(tmp_path: Path) -> None:
    found = [event for event in events() if not (event["ph"] == "s" and event["id"] == str(13 << 32))]
    recording = timeline(tmp_path, found)
    assert named(recording, "aclnnMm_MatMul").launch_ns == -1200  # from its call
    assert noted(recording, Verdict.DROPPED, "arrows that start nowhere") == 1


def test_no_launch_comes_after_its_start(tmp_path: Path) -> None:
    """The host's clock 8 us ahead: stream 4 would begin to wait 4.4 us before the host said so."""
    recording = timeline(tmp_path, events(ahead=8000))
    assert all(t.launch_ns is None or t.launch_ns <= t.start_ns for t in recording.tasks)
    assert {t.launch_ns for t in recording.tasks if t.kind is TaskKind.WAIT} == {3000, -250 + 3600}
    assert named(recording, "MEMCPY_ASYNC").launch_ns == -400
    assert noted(recording, Verdict.GUESSED, "clock of the host, ahead of the device's by 4400 ns") == 3


def test_a_launch_far_behind_its_start_is_no_clock(tmp_path: Path) -> None:
    """One call 2 ms late among seven that fit: it cannot be the task's own, and moves no clock."""
    found = events()
    for event in found:
        args: Any = event.get("args", {})
        if event["name"] == "AscendCL@aclrtMemcpyAsync" and args["connection_id"] == 10:
            event["ts"] = microseconds(2_000_000)
    recording = timeline(tmp_path, found)
    assert named(recording, "MEMCPY_ASYNC").launch_ns is None
    assert named(recording, "aclnnCast_Cast").launch_ns == -2000
    assert noted(recording, Verdict.DROPPED, "launch times long after the start") == 1


def test_bytes_of_a_collective_are_those_over_links(tmp_path: Path) -> None:
    """512 bytes stay on the chip; 600 and 400 kB cross to the peer, after the wait."""
    recording = timeline(tmp_path, events())
    pieces = [task for task in recording.tasks if task.name == OPERATION[0]]
    assert [(task.kind, task.size_bytes) for task in pieces] == [
        (TaskKind.COLLECTIVE, 0),
        (TaskKind.PEER_WAIT, 0),
        (TaskKind.COLLECTIVE, 1_000_000),
    ]
    assert {task.op for task in pieces} == {"hcom_allReduce_"}
    assert noted(recording, Verdict.RECOGNISED, "subtasks of collectives") == 5


def test_short_waits_stay_within_their_collective(tmp_path: Path) -> None:
    """The peer comes 40 us later instead of 99: less than what counts as waiting for others."""
    short = tuple(
        replace(task, start=task.start - 59_000)
        if task.subtask in (3, 4)
        else (replace(task, duration=40_100) if task.word == "Notify Wait" else task)
        for task in TASKS
    )
    recording = timeline(tmp_path, events(short))
    assert [t.kind.value for t in recording.tasks if t.name == OPERATION[0]] == ["collective"]


def test_parts_that_the_hardware_does_not_show_are_read_from_their_planes(tmp_path: Path) -> None:
    """Level 0 of some releases: subtasks in the planes of the collective only."""
    found = [
        event
        for event in events()
        if not (event["pid"] == HARDWARE and event["name"] in ("SDMA", "Write Value", "Notify Wait"))
    ]
    recording = timeline(tmp_path, found)
    assert kinds(recording, 4) == kinds(read_folder(write_timeline(tmp_path / "b.json", events())), 4)


def test_a_collective_that_is_only_a_span_gets_a_stream(tmp_path: Path) -> None:
    """No subtasks anywhere: one task of the whole span, beside the recorded streams."""
    lone = tuple(task for task in TASKS if not task.part)
    recording = timeline(tmp_path, events(lone))
    task = named(recording, OPERATION[0])
    assert (task.start_ns, task.duration_ns, task.stream, task.launch_ns) == (20000, 110000, 5, -500)
    assert noted(recording, Verdict.GUESSED, "collectives of no stated stream") == 1


def communication(start: int, wait_ms: float) -> dict[str, object]:
    """``communication.json`` of one operation of 0.11 ms."""
    times = {
        "Start Timestamp(us)": float(microseconds(start)),
        "Elapse Time(ms)": 0.11,
        "Transit Time(ms)": 0.02,
        "Wait Time(ms)": wait_ms,
    }
    links = {name: {"Transit Size(MB)": size} for name, size in (("HCCS", 1.5), ("SDMA", 1.5), ("RDMA", 0))}
    figures = {"Communication Time Info": times, "Communication Bandwidth Info": links}
    return {"step3": {"p2p": {}, "collective": {f"{OPERATION[0]}@11022": figures, "Total Op Info": figures}}}


def test_communication_figures_split_a_span_into_wait_and_work(tmp_path: Path) -> None:
    output = write_folder(tmp_path / "run", tasks=tuple(t for t in TASKS if not t.part))
    output /= "ASCEND_PROFILER_OUTPUT"
    (output / "communication.json").write_text(json.dumps(communication(20000, 0.09)))
    recording = read_folder(output)
    pieces = [task for task in recording.tasks if task.name == OPERATION[0]]
    assert [(t.kind.value, t.start_ns, t.duration_ns, t.size_bytes) for t in pieces] == [
        ("peer_wait", 20000, 90000, 0),
        ("collective", 110000, 20000, 1_500_000),
    ]
    assert noted(recording, Verdict.GUESSED, "waits for peers, put in front") == 1


def test_communication_figures_leave_recorded_waits_alone(tmp_path: Path) -> None:
    """The subtasks say when the device waited; the file says how long in all, which is not better."""
    folder = write_folder(tmp_path / "run")
    before = read_folder(folder).tasks
    path = folder / "ASCEND_PROFILER_OUTPUT" / "communication.json"
    path.write_text(json.dumps(communication(20000, 0.05)))
    assert read_folder(folder).tasks == before


def test_communication_figures_of_another_step_are_not_taken(tmp_path: Path) -> None:
    output = write_folder(tmp_path / "run", tasks=tuple(t for t in TASKS if not t.part))
    output /= "ASCEND_PROFILER_OUTPUT"
    (output / "communication.json").write_text(json.dumps(communication(70_000_000, 0.09)))
    assert named(read_folder(output), OPERATION[0]).size_bytes == 0


@pytest.mark.parametrize(
    ("direction", "copy"),
    [
        ("host to device ex", CopyKind.H2D),
        ("device to host", CopyKind.D2H),
        ("device to device", CopyKind.D2D),
        ("addr device to device", CopyKind.D2D),
    ],
)
def test_recorded_directions(tmp_path: Path, direction: str, copy: CopyKind) -> None:
    tasks = (TASKS[0], replace(TASKS[1], direction=direction))
    task = named(timeline(tmp_path, events(tasks)), "MEMCPY_ASYNC")
    assert task.copy is copy and task.size_bytes == 4096


@pytest.mark.parametrize(
    ("host", "word", "copy", "source"),
    [
        ("Dequeue@acl_memcpy_host_to_device", "PCIE_DMA_SQE", CopyKind.H2D, "from the host's call"),
        ("aten::_local_scalar_dense", "PCIE_DMA_SQE", CopyKind.D2H, "from the host's call"),
        ("aten::relu", "PCIE_DMA_SQE", CopyKind.H2D, "from the order"),
        ("aten::item", "SDMA_SQE", CopyKind.D2D, None),
    ],
)
def test_guessed_directions(tmp_path: Path, host: str, word: str, copy: CopyKind, source: str | None) -> None:
    """Level 1 records no direction: the framework's range around the call tells it, else the order does."""
    found = events((TASKS[0], replace(TASKS[1], word=word)), sized=False)
    found.append(
        {
            **{"ph": "X", "name": host, "pid": 77, "tid": 1, "cat": "cpu_op", "args": {}},
            **{"ts": microseconds(-4500), "dur": 2.0},
        }
    )
    recording = timeline(tmp_path, found)
    task = named(recording, "MEMCPY_ASYNC")
    assert task.copy is copy and task.size_bytes == 0
    guesses = noted(recording, Verdict.GUESSED, "directions of copies")
    assert guesses == (0 if source is None else 1)
    if source:
        assert noted(recording, Verdict.GUESSED, f"directions of copies, {source}") == 1


def test_a_placeholder_is_what_the_host_called(tmp_path: Path) -> None:
    """A record that nobody waits for is a placeholder in the queue; one of no known call is other."""
    tasks = tuple(
        replace(task, name="?", word="PLACE_HOLDER_SQE") if task.call in (12, None) else task
        for task in TASKS
    )
    recording = timeline(tmp_path, events(tasks))
    assert [task.kind.value for task in recording.tasks if task.name == "?"] == ["other", "record"]


def test_an_unknown_type_occupies_its_stream_and_is_noted(tmp_path: Path) -> None:
    odd = Made("thing", "NEW_SQE", 2, 200_000, 7, 110)
    recording = timeline(tmp_path, events((*TASKS, odd)))
    assert named(recording, "thing").kind is TaskKind.OTHER
    assert noted(recording, Verdict.GUESSED, "tasks of the unknown type 'NEW_SQE'") == 1


def test_the_older_layout(tmp_path: Path) -> None:
    """Words of the first runtimes, streams by an argument, no subtasks, times as numbers, no calls."""
    rows = (
        ("a", "KERNEL_AICORE", 5, 10, 4),
        ("b", "KERNEL_AICPU", 5, 20, 6),
        ("MEMCPY_ASYNC", "MEMCPY_ASYNC", 5, 30, 2),
        ("EVENT_RECORD", "EVENT_RECORD", 5, 40, 0),
        ("Notify_Wait", "NOTIFY_WAIT", 6, 12, 50),
    )
    found: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "Task Scheduler"}}
    ]
    for index, (name, word, stream, start, length) in enumerate(rows):
        args = {"Task Type": word, "Stream Id": stream, "Task Id": index, "Aicore Time(ms)": 0.0}
        event = {
            "ph": "X",
            "name": name,
            "pid": 0,
            "tid": 1000 + stream,
            "ts": start,
            "dur": length,
            "args": args,
        }
        found.append(event)
    recording = timeline(tmp_path, found)
    assert [(t.name, t.kind.value, t.stream, t.start_ns, t.task_id) for t in recording.tasks] == [
        ("a", "kernel", 5, 0, 0),
        ("Notify_Wait", "peer_wait", 6, 2000, 4),
        ("b", "kernel", 5, 10000, 1),
        ("MEMCPY_ASYNC", "copy", 5, 20000, 2),
        ("EVENT_RECORD", "record", 5, 30000, 3),
    ]
    assert recording.tasks[2].kernel_class is KernelClass.AICPU


def test_steps_of_the_table_reach_copies_and_events(tmp_path: Path) -> None:
    """Without the framework's ranges only kernels have steps; others have those of their neighbours."""
    output = write_folder(tmp_path / "run") / "ASCEND_PROFILER_OUTPUT"
    write_timeline(
        output / "trace_view.json", [e for e in events() if not str(e["name"]).startswith("Profiler")]
    )
    recording = read_folder(output)
    assert {task.step for task in recording.tasks if task.stream in (2, 4)} == {3}
    assert noted(recording, Verdict.GUESSED, "steps of tasks, from their neighbours") > 0


def test_files_beside_the_timeline_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run_ascend_pt")
    device = folder / "PROF_000001" / "device_0"
    device.mkdir(parents=True)
    info = {"DeviceInfo": [{"id": 0, "ai_core_num": 20, "aiv_num": 40, "aic_frequency": "1650"}]}
    (device / "info.json.0").write_text(json.dumps(info))
    (device / "info.json.0.done").write_text("no JSON")
    settings = {"rank_id": 6, "config": {"experimental_config": {"_profiler_level": "Level2"}}}
    (folder / "profiler_info_6.json").write_text(json.dumps(settings))
    costs = "Level,API Name,Time(us),Count,Avg(us)\nruntime,KernelLaunch,8.62,2,4.31\n"
    (folder / "ASCEND_PROFILER_OUTPUT" / "api_statistic.csv").write_text(costs)
    recording = read_folder(folder)
    assert (recording.cube_cores, recording.vector_cores) == (20, 40)
    assert (recording.traits["rank"], recording.traits["level"]) == ("6", "2")
    assert recording.traits["api.runtime.KernelLaunch"] == "4310"
    assert recording.traits["calls.runtime.KernelLaunch"] == "2"


def test_the_folder_is_found_from_above(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a_ascend_pt")
    tasks = read_folder(folder / "ASCEND_PROFILER_OUTPUT").tasks
    assert read_folder(folder).tasks == tasks == read_folder(tmp_path).tasks
    write_folder(tmp_path / "b_ascend_pt")
    with pytest.raises(InputError, match=r"2 devices \(a_ascend_pt, b_ascend_pt"):
        read_folder(tmp_path)


def spoilt(**changes: object) -> list[dict[str, object]]:
    """The timeline with its first kernel spoilt."""
    found = events()
    for event in found:
        if event["name"] == "aclnnCast_Cast":
            args: Any = event["args"]
            more: Any = changes.pop("args", {})
            if not isinstance(more, dict):
                event["args"] = more
            else:
                args.update(more)
            event.update(changes)
    return found


INDEX = next(i for i, event in enumerate(events()) if event["name"] == "aclnnCast_Cast")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (spoilt(ts="noon"), rf"event {INDEX}, ts: 'noon' is not a time"),
        (spoilt(ts=None), rf"event {INDEX}, ts: None is not a time"),
        (spoilt(dur="-3"), rf"event {INDEX}, dur: '-3' is a negative duration"),
        (spoilt(dur="1e400"), rf"event {INDEX}, dur: '1e400' is not a time"),
        (spoilt(args={"Task Id": "x"}), rf"event {INDEX}, argument 'Task Id': 'x' is not a whole number"),
        (spoilt(args={"data size(Byte)": -4}), rf"event {INDEX}, argument 'data size\(Byte\)': -4 is not"),
        (spoilt(args=[1]), rf"event {INDEX}, args: \[1\] is not an object"),
        (spoilt(pid=[1]), rf"event {INDEX}, pid: \[1\] is not the number or name of a process"),
        ([*events(), 7], rf"event {len(events())}: 7 is not an event"),
        ({"traceEvents": 3}, r"not a trace; it should be a list of events"),
        ({}, r"not a trace"),
        ("x", r"not a trace"),
        ([], r"shows no task of a device"),
    ],
)
def test_a_spoilt_timeline_is_refused_with_its_event(tmp_path: Path, found: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        timeline(tmp_path, found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"ph": "X",\n  "ts": }]', r"trace_view.json, line 2, column 9: not JSON"),
        (b"\xff\xfe[]", r"byte 0 is not UTF-8"),
        (b"\x1f\x8b\x08broken", r"cannot be read"),
        (b"[" * 100_000, r"nested too deeply|not JSON"),
        (b'[{"ts": ' + b"9" * 5000 + b"}]", r"not a profile"),
    ],
)
def test_what_is_no_json_is_refused_with_line_and_column(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "trace_view.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_folder(path)


def test_a_folder_without_a_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds neither trace_view.json nor kernel_details.csv"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match=r"there is no such file or folder"):
        read_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"communication.json: \[\] is not an object of operations"),
        ({"step3": {"collective": {"op": 3}}}, r"step3, collective, op: 3 is not an object"),
        (
            {"step3": {"collective": {"op": {"Communication Time Info": {"Wait Time(ms)": "long"}}}}},
            r"op, Wait Time\(ms\): 'long' is not a time",
        ),
        (
            {"s": {"p2p": {"op": {"Communication Bandwidth Info": {"HCCS": {"Transit Size(MB)": "x"}}}}}},
            r"HCCS, Transit Size\(MB\): 'x' is not a size",
        ),
    ],
)
def test_spoilt_communication_figures_are_refused(tmp_path: Path, content: object, message: str) -> None:
    folder = write_folder(tmp_path / "run")
    (folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_folder(folder)


def test_the_busiest_device_of_several_is_read(tmp_path: Path) -> None:
    """A second hardware process with one task."""
    found = events()
    found.append({"ph": "M", "name": "process_name", "pid": 900, "args": {"name": "Ascend Hardware"}})
    found.append({"ph": "X", "name": "x", "pid": 900, "tid": 2, "ts": microseconds(5), "dur": 1, "args": {}})
    recording = timeline(tmp_path, found)
    assert all(task.name != "x" for task in recording.tasks)
    assert noted(recording, Verdict.DROPPED, "devices beside the busiest") == 1


def test_collectives_are_joined_within_one_process(tmp_path: Path) -> None:
    """The collective's own arrow, on the thread of its group, launches its tasks."""
    found = events()
    both = {"cat": "HostToDevice", "name": "x", "id": "99"}
    found.append({**both, "ph": "s", "pid": 501, "tid": 1, "ts": microseconds(-700)})
    found.append({**both, "ph": "f", "pid": HCCL, "tid": 0, "ts": microseconds(OPERATION[2])})
    recording = timeline(tmp_path, found)
    assert {task.launch_ns for task in recording.tasks if task.name == OPERATION[0]} == {-700}


def test_a_call_of_a_collective_launches_its_tasks(tmp_path: Path) -> None:
    """No planes, no subtasks: whole tasks on a stream each, those that move bytes during the collective."""
    whole = (
        Made("SDMA_SQE", "SDMA_SQE", 6, 21_000, 5_000, 1, 15),
        Made("NOTIFY_WAIT", "NOTIFY_WAIT_SQE", 7, 30_000, 9_000, 1, 15),
        Made("EVENT_RECORD", "EVENT_RECORD_SQE", 7, 40_000, 20, 2, 15),
        Made("MEMCPY_ASYNC", "SDMA_SQE", 7, 500_000, 5_000, 3, 15),
    )
    recording = timeline(tmp_path, events((*(task for task in TASKS if not task.part), *whole)))
    assert [t.kind.value for t in recording.tasks if t.name == OPERATION[0]] == ["collective", "peer_wait"]
    assert kinds(recording, 7)[1:] == [("record", 40_000, 20), ("copy", 500_000, 5_000)]


def test_a_collective_that_a_kernel_runs_is_that_kernel(tmp_path: Path) -> None:
    kernel = Made("allReduceAiv", "AI_VECTOR_CORE", 2, 20_000, 110_000, 200, 15)
    recording = timeline(tmp_path, events((*(task for task in TASKS if not task.part), kernel)))
    assert named(recording, "allReduceAiv").kind is TaskKind.KERNEL
    assert all(task.name != OPERATION[0] for task in recording.tasks)
    assert noted(recording, Verdict.RECOGNISED, "collectives run by kernels") == 1


def test_launches_from_the_framework_where_the_host_has_no_arrows(tmp_path: Path) -> None:
    """Level 0 of some releases: the only arrows start at the framework's operators."""
    found = [event for event in events() if event["pid"] != CANN]
    both = {"cat": "async_npu", "name": "torch_to_npu", "id": 5}
    found.append({**both, "ph": "s", "pid": HOST, "tid": 1, "ts": microseconds(-9000)})
    end = {"pid": HARDWARE, "tid": 2, "ts": microseconds(TASKS[3].start)}
    found = [event for event in found if event.get("cat") != "HostToDevice"]
    recording = timeline(tmp_path, [*found, {**both, "ph": "f", **end}])
    assert named(recording, "aclnnCast_Cast").launch_ns == -9000
    assert named(recording, "MEMCPY_ASYNC").launch_ns is None
    assert noted(recording, Verdict.GUESSED, "launch times, from the framework's operators") == 1


def test_subtasks_without_any_number_find_their_operation_by_time(tmp_path: Path) -> None:
    """Neither call nor name: the operation around them."""
    found = events()
    for event in found:
        args: Any = event.get("args", {})
        args.pop("connection_id", None)
    recording = timeline(tmp_path, found)
    pieces = [task for task in recording.tasks if task.name == OPERATION[0]]
    assert [task.kind.value for task in pieces] == ["collective", "peer_wait", "collective"]


def test_two_collectives_under_one_task_id(tmp_path: Path) -> None:
    """Numbers of tasks come again: what lies 200 us later is another collective, not one long one."""
    later = tuple(replace(task, start=task.start + 200_000, call=None) for task in TASKS if task.part)
    found = events((*TASKS, *later))
    for event in found:
        args: Any = event.get("args", {})
        args.pop("connection_id", None)
    again = {"name": "second", "pid": HCCL, "tid": 0, "ts": microseconds(220_000), "dur": 110.0}
    recording = timeline(tmp_path, [*found, {"ph": "X", "args": {}, **again}])
    assert [t.start_ns for t in recording.tasks if t.name == "second"] == [220_000, 221_300, 320_000]
    assert [t.start_ns for t in recording.tasks if t.name == OPERATION[0]] == [20_000, 21_300, 120_000]


def test_planes_without_numbers_join_by_their_start(tmp_path: Path) -> None:
    """Level 0: the planes have names and times only, and are still the same subtasks."""
    found = events()
    for event in found:
        if event["pid"] == HCCL and event["ph"] == "X" and event["name"] != OPERATION[0]:
            event["args"] = {}
    recording = timeline(tmp_path, found)
    assert recording.streams == (0, 2, 4)
    assert kinds(recording, 4) == kinds(read_folder(write_timeline(tmp_path / "b.json", events())), 4)


def test_planes_without_numbers_and_hardware_share_a_stream(tmp_path: Path) -> None:
    """Neither numbers nor subtasks of the hardware: one stream of their own, in order, by operation."""
    found = [event for event in events() if event["name"] not in ("SDMA", "Write Value", "Notify Wait")]
    for event in found:
        if event["pid"] == HCCL and event["ph"] == "X" and event["name"] != OPERATION[0]:
            event["args"] = {}
    recording = timeline(tmp_path, found)
    assert kinds(recording, 5) == [
        ("collective", 20000, 1300),
        ("peer_wait", 21300, 98700),
        ("collective", 120000, 10000),
    ]


def test_subtasks_of_a_kernel_are_one(tmp_path: Path) -> None:
    """Cube and vector part overlap under one task id::

    0  AIC  50000 ........ 54000
    1  AIV      52000 ........... 57000      (a third, later, is a task of its own)
    """
    parts = (
        Made("fused", "AIC", 2, 50_000, 4_000, 300, 13, 0),
        Made("fused", "AIV", 2, 52_000, 5_000, 300, 13, 1),
        Made("after", "AIV", 2, 58_000, 1_000, 300, 13, 2),
    )
    recording = timeline(tmp_path, events((TASKS[0], *parts)))
    assert kinds(recording, 2) == [("kernel", 50_000, 7_000), ("kernel", 58_000, 1_000)]
    assert named(recording, "fused").kernel_class is KernelClass.MIX
    assert named(recording, "fused").launch_ns == -1200
