"""The form that profiler tools read: layers, words and keys of recorded files, and what stands where."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from episodes import Host, actions_of
from pictures import Trace, drawn_schedule
from toys import collective, copy_in, cube, mix, toy_device, vector

from cann_env.graph import Buffer, CommandGraph, Kernel, KernelClass, Operand
from cann_env.render.trace import TraceForm, chrome_trace, mindstudio_trace, write_trace
from cann_env.render.trace.kernel_details import COLUMNS, kernel_details
from cann_env.render.trace.overlap import overlap
from cann_env.render.trace.tasks import TaskType, device_tasks
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.schedule import Schedule


@pytest.fixture(scope="module")
def drawn() -> Schedule:
    return drawn_schedule()


def two_streams(**host: int) -> Schedule:
    """A cube kernel, a vector kernel behind an event, a collective beside them; calls as the device says.

    ::

        stream 0   |cube a 0 --- 110 |record|
        stream 1   |wait ----------------------|vector b
        stream 2   |hcom c
    """
    operands = (Operand((4, 8), "float16"), Operand((8, 2), "bfloat16", "FRACTAL_NZ"))
    a = cube("a", 100, writes=("x",))
    kernel = replace(a.kernels[0], op="MatMulV2", inputs=operands, outputs=(Operand((4, 2), "float32"),))
    graph = CommandGraph(
        "two",
        (replace(a, kernels=(kernel,)), vector("b", 20, blocks=4, reads=("x",)), collective("c__1_0", 50)),
        (Buffer(name="x", size_bytes=64),),
    )
    device = toy_device(dispatch={"record_ns": 2, "wait_ns": 3, "wake_ns": 7}, host=host)
    player = Host(graph, device, submission="eager" if host else "sink")
    return player.issue("a", 0).issue("b", 1).issue("c__1_0", 2).schedule()


def named(data: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """Metadata of each process, by its name."""
    titles = {e["pid"]: e["args"]["name"] for e in data if e["ph"] == "M" and e["name"] == "process_name"}
    return {titles[e["pid"]]: e["args"] for e in data if e["ph"] == "M" and e["name"] == what}


def test_layers_have_the_names_labels_and_places_of_recorded_files(drawn: Schedule) -> None:
    data = mindstudio_trace(drawn)
    assert {name: args["labels"] for name, args in named(data, "process_labels").items()} == {
        "Python": "CPU",
        "CANN": "CPU",
        "Ascend Hardware": "NPU",
        "AI Core Freq": "NPU",
        "NPU MEM": "NPU",
        "Overlap Analysis": "NPU",
    }
    places = {name: args["sort_index"] for name, args in named(data, "process_sort_index").items()}
    assert sorted(places, key=places.__getitem__)[:3] == ["Python", "CANN", "Ascend Hardware"]
    assert "Communication" in named(mindstudio_trace(two_streams()), "process_labels")
    trace = Trace(data)
    hardware = trace.processes["Ascend Hardware"]
    assert {name for (pid, _), name in trace.tracks.items() if pid == hardware} == {"Stream 0", "Stream 1"}


def test_times_are_text_with_three_decimals_and_flows_start_before_they_end(drawn: Schedule) -> None:
    for schedule in (drawn, two_streams(), two_streams(launch_kernel_ns=9)):
        data = mindstudio_trace(schedule)
        timed = [event for event in data if event["ph"] != "M"]
        assert all(re.fullmatch(r"[0-9]+\.[0-9]{3}", event["ts"]) for event in timed)
        assert {event["ph"] for event in timed} == {"X", "C", "s", "f"}
        trace = Trace(json.loads(json.dumps(data)))
        assert all(arrow.leave <= arrow.arrive for arrow in trace.arrows)
        assert len(trace.arrows_of("async_npu")) == len(schedule.commands)


def test_tasks_of_the_hardware_say_what_recorded_ones_say(drawn: Schedule) -> None:
    data = mindstudio_trace(drawn)
    tasks = [event for event in data if "Task Type" in event.get("args", {})]
    keys = {"Model Id", "Task Type", "Physic Stream Id", "Task Id", "Batch Id", "Subtask Id", "connection_id"}
    assert all(keys <= set(event["args"]) for event in tasks)
    copies = [event["args"] for event in tasks if event["name"] == "MEMCPY_ASYNC"]
    assert [(copy["data size(Byte)"], copy["memcpy direction"]) for copy in copies] == [
        (995, "host to device"),
        (600, "device to host"),
    ]
    words = [(event["name"], event["args"]["Task Type"]) for event in tasks if event["tid"] == 0]
    assert words == [
        ("MEMCPY_ASYNC", "PCIE_DMA_SQE"),
        ("EVENT_RECORD", "EVENT_RECORD_SQE"),
        ("cube", "AI_CORE"),
        ("vector", "AI_VECTOR_CORE"),
        ("EVENT_RECORD", "EVENT_RECORD_SQE"),
    ]
    ids = [event["args"]["Task Id"] for event in tasks if event["tid"] == 0]
    assert ids == [0, 1, 2, 3, 4]


def test_records_and_waits_stand_where_the_engine_has_them() -> None:
    """The record takes 2 ns behind ``a``; the wait lasts from the start of its stream until it goes on."""
    found = {(task.kind, task.stream): task for task in device_tasks(two_streams())}
    record, wait = found[TaskType.RECORD, 0], found[TaskType.WAIT, 1]
    assert (record.start_ns, record.finish_ns) == (110, 112)
    assert (wait.start_ns, wait.finish_ns) == (0, 119)
    assert found[TaskType.VECTOR, 1].start_ns == 119
    assert record.event == wait.event == 1


def test_calls_of_the_host_follow_one_another() -> None:
    """``a`` takes a launch and 2 ns for its memory; ``b`` a record, a wait and a launch: 5, 6 and 10 ns.

    The streams have all three when the last is over.
    """
    schedule = two_streams(launch_kernel_ns=10, record_event_ns=5, wait_event_ns=6)
    of_b = [task for task in device_tasks(schedule) if task.caller == 1]
    spans = {task.kind: (task.call_start_ns, task.call_end_ns, task.launch_ns) for task in of_b}
    assert spans == {
        TaskType.RECORD: (12, 17, 33),
        TaskType.WAIT: (17, 23, 33),
        TaskType.VECTOR: (23, 33, 33),
    }
    trace = Trace(mindstudio_trace(schedule))
    cann = [(s.name, s.start, s.end) for s in trace.slices[trace.processes["CANN"], 1]]
    origin = min(start for _, start, _ in cann)
    assert [(name, start - origin, end - origin) for name, start, end in cann if start < origin + 33][2:] == [
        ("AscendCL@aclrtRecordEvent", 12, 17),
        ("AscendCL@aclrtStreamWaitEvent", 17, 23),
        ("AscendCL@aclrtLaunchKernel", 23, 33),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_tasks_of_a_stream_never_overlap_and_cover_every_command(seed: int) -> None:
    case = make_case(seed + 40)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    tasks = device_tasks(schedule)
    for stream in {task.stream for task in tasks}:
        line = [task for task in tasks if task.stream == stream]
        assert [task.task_id for task in line] == list(range(len(line)))
        assert all(a.finish_ns <= b.start_ns for a, b in pairwise(line))
    for run in schedule.commands:
        own = [task for task in tasks if task.command == run.command and task.event is None]
        assert min(task.start_ns for task in own) == run.start_ns
        assert max(task.finish_ns for task in own) == run.finish_ns
    events = [task.event for task in tasks if task.kind is TaskType.WAIT]
    assert sorted(filter(None, events)) == list(range(1, len(schedule.waits) + 1))


def test_overlap_analysis_splits_the_run() -> None:
    """``c`` runs beside ``a`` from 0 to 50, ``b`` from 119 to 149; nothing is left but the gap between."""
    computing, communicating, alone, free = overlap(two_streams())
    assert computing == [(0, 110), (119, 149)]
    assert communicating == [(0, 50)]
    assert alone == []
    assert free == [(110, 119)]


def test_communication_alone_and_time_without_work() -> None:
    graph = CommandGraph("c", (collective("c", 50), vector("v", 20, after=("c",)), collective("d", 90)))
    schedule = Host(graph).issue("c", 0).issue("d", 1).issue("v", 0).schedule()
    spans = {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
    assert (spans[0], spans[2]) == ((0, 50), (50, 140))
    computing, communicating, alone, free = overlap(schedule)
    assert computing == [spans[1]] == [(51, 81)]
    assert communicating == [(0, 140)]
    assert alone == [(0, 51), (81, 140)]
    assert free == []


def test_collectives_side_by_side_stand_in_groups_of_their_own() -> None:
    """``c`` and ``d`` run at once, ``e`` behind ``c``: two groups will do."""
    graph = CommandGraph("g", tuple(collective(name, 50) for name in "cde"))
    player = Host(graph, toy_device(pools={"hcom": 2})).issue("c", 0).issue("d", 1).issue("e", 0)
    trace = Trace(mindstudio_trace(player.schedule()))
    layer = trace.processes["Communication"]
    shown = {trace.tracks[track]: [s.name for s in found] for track, found in trace.slices.items()
             if track[0] == layer}  # fmt: skip
    assert shown == {"Group 0 Communication": ["c", "e"], "Group 1 Communication": ["d"]}


# --- kernel_details.csv ---------------------------------------------------------------------------------


def rows_of(schedule: Schedule) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(kernel_details(schedule))))


def test_table_of_kernels_has_the_profiler_s_columns_and_words() -> None:
    rows = rows_of(two_streams())
    assert tuple(rows[0]) == COLUMNS
    by_name = {row["Name"]: row for row in rows}
    a, b, c = by_name["cube"], by_name["vector"], by_name["c__1_0"]
    assert (a["Type"], a["Accelerator Core"], a["Block Dim"]) == ("MatMulV2", "AI_CORE", "1")
    assert (a["Input Shapes"], a["Input Data Types"], a["Input Formats"]) == (
        '"4,8;8,2"', "FLOAT16;DT_BF16", "ND;FRACTAL_NZ",
    )  # fmt: skip
    assert (a["Start Time(us)"], a["Duration(us)"]) == ("1000000.000\t", "0.11")
    assert (b["Accelerator Core"], b["Block Dim"], b["Input Shapes"]) == ("AI_VECTOR_CORE", "4", "N/A")
    # The gap to the end of the kernel before, not time in a queue.
    assert (b["Start Time(us)"], b["Wait Time(us)"]) == ("1000000.119\t", "0.009")
    assert (c["Accelerator Core"], c["Type"], c["Stream ID"]) == ("COMMUNICATION", "c_", "N/A")


def test_mix_kernels_say_how_many_blocks_the_other_cores_run() -> None:
    graph = CommandGraph("m", (mix("m", 20, blocks=2), copy_in("i", 64)))
    (row,) = rows_of(Host(graph).issue("m", 0).issue("i", 1).schedule())
    assert (row["Accelerator Core"], row["Block Dim"], row["Mix Block Dim"]) == ("MIX_AIC", "2", "4")


def test_kernels_without_a_name_of_their_own_are_told_by_their_class() -> None:
    graph = CommandGraph(
        "k", (replace(vector("v"), kernels=(Kernel(name="", kernel_class=KernelClass.AICPU, flops=5),)),)
    )
    (row,) = rows_of(Host(graph).issue("v").schedule())
    assert row["Accelerator Core"] == "AI_CPU"


# --- files ----------------------------------------------------------------------------------------------


def test_a_folder_holds_the_profile_and_a_file_either_form(drawn: Schedule, tmp_path: Path) -> None:
    folder = write_trace(drawn, tmp_path / "run_ascend_pt")
    inner = folder / "ASCEND_PROFILER_OUTPUT"
    assert json.loads((inner / "trace_view.json").read_text(encoding="utf-8")) == mindstudio_trace(drawn)
    assert (inner / "kernel_details.csv").read_bytes().decode() == kernel_details(drawn)
    write_trace(drawn, folder, TraceForm.MINDSTUDIO)
    one = write_trace(drawn, tmp_path / "one.json", "mindstudio")
    assert one.read_bytes() == (inner / "trace_view.json").read_bytes()
    two = write_trace(drawn, tmp_path / "two.json", "chrome")
    assert json.loads(two.read_text(encoding="utf-8")) == chrome_trace(drawn)
    assert [*tmp_path.iterdir()] and write_trace(drawn, tmp_path) == tmp_path
    assert (tmp_path / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").is_file()


def test_forms_that_do_not_fit_are_refused(drawn: Schedule, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form is 'perfetto'; write one of 'chrome', 'mindstudio'"):
        write_trace(drawn, tmp_path / "t.json", "perfetto")
    with pytest.raises(InputError, match="is a folder, which holds the form 'mindstudio'"):
        write_trace(drawn, tmp_path / "t_ascend_pt", TraceForm.CHROME)
    with pytest.raises(InputError, match=r"nowhere.*cannot be written"):
        write_trace(drawn, tmp_path / "nowhere" / "t_ascend_pt")
