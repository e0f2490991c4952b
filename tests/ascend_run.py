"""A made-up run of an Ascend device, and what its profiler would write of it in either form.

Times in nanoseconds after ``ORIGIN``. Stream 2 computes, stream 4 communicates, the host is one thread::

    stream 2  |copy|    |Cast|r|   MatMul    |        w (waits for the record of stream 4)       |
              1000     5000  8010 9000    19000  21000                                      136000
    stream 4            |w  |    |sdma|.......wait for the peer........|hccs 1 MB|r|
                      3000  8030 20000 21000                       120000     130000
    stream 0  a switch of the profiler, before all
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = 1_736_000_000_000_000_123
"""Beyond 2**53, where a float is 256 ns coarse."""
NONE = 2**32 - 1
HOST, CANN, HARDWARE, HCCL, CLOCK, NOISE = 77, 501, 502, 503, 504, 505


@dataclass(frozen=True)
class Made:
    """One task of the made-up run."""

    name: str
    word: str
    stream: int
    start: int
    duration: int
    task_id: int
    call: int | None = None
    subtask: int | None = None
    size: int = 0
    direction: str = ""
    kernel: dict[str, object] = field(default_factory=dict)
    part: str = ""
    link: str = ""


CAST = {
    **{"op": "Cast", "core": "AI_VECTOR_CORE", "blocks": 8, "mix_blocks": 0, "core_us": "2.5"},
    **{"in_shapes": "32,64", "in_types": "FLOAT", "in_formats": "ND"},
    **{"out_shapes": "32,64", "out_types": "FLOAT16", "out_formats": "ND"},
}
MATMUL = {
    **{"op": "MatMulV2", "core": "MIX_AIC", "blocks": 20, "mix_blocks": 40, "core_us": "8.25"},
    **{"in_shapes": "32,64;64,16", "in_types": "FLOAT16;FLOAT16", "in_formats": "ND;FRACTAL_NZ"},
    **{"out_shapes": "32,16", "out_types": "FLOAT16", "out_formats": "ND"},
}
TASKS = (
    Made("PROFILING_ENABLE", "PLACE_HOLDER_SQE", 0, 0, 20, 1),
    Made("MEMCPY_ASYNC", "PCIE_DMA_SQE", 2, 1000, 2000, 100, 10, None, 4096, "host to device"),
    Made("EVENT_WAIT", "EVENT_WAIT_SQE", 4, 3000, 5030, 6, 14),
    Made("aclnnCast_Cast", "AI_CORE", 2, 5000, 3000, 101, 11, kernel=CAST),
    Made("EVENT_RECORD", "EVENT_RECORD_SQE", 2, 8010, 20, 102, 12),
    Made("aclnnMm_MatMul", "MIX_AIC", 2, 9000, 10000, 103, 13, 0, kernel=MATMUL),
    Made("SDMA", "SDMA", 4, 20000, 1000, 7, 15, 0, 512, part="Memcpy", link="ON_CHIP"),
    Made("Write Value", "Write Value", 4, 20500, 800, 7, 15, 1, part="Notify_Record", link="HCCS"),
    Made("Notify Wait", "Notify Wait", 4, 20900, 99100, 7, 15, 2, part="Notify_Wait", link="INVALID_TYPE"),
    Made("SDMA", "SDMA", 4, 120000, 9000, 7, 15, 3, 600_000, part="Reduce_Inline", link="HCCS"),
    Made("SDMA", "SDMA", 4, 120500, 9500, 7, 15, 4, 400_000, part="Memcpy", link="HCCS"),
    Made("EVENT_RECORD", "EVENT_RECORD_SQE", 4, 130010, 20, 8, 16),
    Made("EVENT_WAIT", "EVENT_WAIT_SQE", 2, 21000, 115000, 104, 17),
)
"""In order of launch."""

CALLS = {
    **{
        10: ("aclrtMemcpyAsync", -4000, 900),
        11: ("launch", -2000, 500),
        12: ("aclrtRecordEvent", -1400, 100),
    },
    **{
        13: ("launch", -1200, 500),
        14: ("aclrtStreamWaitEvent", -600, 100),
        15: ("hcom_allReduce_", -500, 100),
    },
    **{16: ("aclrtRecordEvent", -350, 50), 17: ("aclrtStreamWaitEvent", -250, 50)},
}
"""Name, start and length of each host call by its number."""

OPERATION = ("hcom_allReduce__586_0_1", "hcom_allReduce_", 20000, 110000, 15)
STEP = (3, -10_000, 200_000)


def microseconds(ns: int) -> str:
    """A time as the profiler writes it, after ``ORIGIN``."""
    return f"{(ORIGIN + ns) // 1000}.{(ORIGIN + ns) % 1000:03d}"


def span(ns: int) -> float:
    """A length of time in microseconds."""
    return ns / 1000


def events(tasks: tuple[Made, ...] = TASKS, ahead: int = 0, sized: bool = True) -> list[dict[str, object]]:
    """The timeline; the host's clock is ``ahead`` (ns), and copies have sizes if ``sized``."""
    found: list[dict[str, object]] = [
        *(
            _named(pid, name)
            for pid, name in ((HOST, "Python"), (CANN, "CANN"), (HARDWARE, "Ascend Hardware"))
        ),
        *(_named(pid, name) for pid, name in ((HCCL, "HCCL"), (CLOCK, "AI Core Freq"), (NOISE, "QoS"))),
        {
            "ph": "C",
            "name": "AI Core Freq",
            "pid": CLOCK,
            "tid": 0,
            "ts": microseconds(-9),
            "args": {"MHz": 1650},
        },
        {
            "ph": "C",
            "name": "QoS OTHERS",
            "pid": NOISE,
            "tid": 0,
            "ts": microseconds(-9),
            "args": {"value": 1},
        },
        {
            **{"ph": "X", "name": f"ProfilerStep#{STEP[0]}", "pid": HOST, "tid": 1, "cat": "cpu_op"},
            **{"ts": microseconds(STEP[1] + ahead), "dur": span(STEP[2]), "args": {}},
        },
        *(_thread(HARDWARE, stream, f"Stream {stream}") for stream in (0, 2, 4)),
        _thread(HCCL, 0, "Group 0 Communication"),
        _thread(HCCL, 1, "Plane 0"),
    ]
    for number, (name, start, length) in CALLS.items():
        found.append(
            {
                **{
                    "ph": "X",
                    "name": f"AscendCL@{name}",
                    "pid": CANN,
                    "tid": 1,
                    "ts": microseconds(start + ahead),
                },
                **{"dur": span(length), "args": {"connection_id": number, "level": "acl"}},
            }
        )
    for task in tasks:
        found += [_hardware(task, sized), *([_plane(task)] if task.part else [])]
        if task.call is not None and task.kernel:
            end = {"pid": HARDWARE, "tid": task.stream, "ts": microseconds(task.start)}
            found += _arrow(task.call, CALLS[task.call][1] + ahead, end)
    name, _, start, length, call = OPERATION
    found.append(
        {
            **{
                "ph": "X",
                "name": name,
                "pid": HCCL,
                "tid": 0,
                "ts": microseconds(start),
                "dur": span(length),
            },
            "args": {"connection_id": call, "data_type": "FP32", "count": 250_000},
        }
    )
    return found


def write_timeline(path: Path, found: object) -> Path:
    """Writes a timeline, compressed if its name says so."""
    text = json.dumps(found)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def write_kernels(path: Path, tasks: tuple[Made, ...] = TASKS, ids: bool = True) -> Path:
    """Writes ``kernel_details.csv`` of kernels and the collective, without stream and task if not ``ids``."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        [
            *("Step Id", "Task ID", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)"),
            *(
                "Duration(us)",
                "Wait Time(us)",
                "Block Dim",
                "Mix Block Dim",
                "Input Shapes",
                "Input Data Types",
            ),
            *("Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "aicore_time(us)"),
        ]
    )
    for task in tasks:
        if task.kernel:
            what = task.kernel
            where = (task.task_id, task.stream) if ids else ("N/A", "N/A")
            times = (microseconds(task.start) + "\t", span(task.duration), 0)
            keys = ("blocks", "mix_blocks", "in_shapes", "in_types", "in_formats")
            more = ("out_shapes", "out_types", "out_formats", "core_us")
            cells = [what[key] for key in (*keys, *more)]
            writer.writerow([STEP[0], *where, task.name, what["op"], what["core"], *times, *cells])
    name, op, start, length, _ = OPERATION
    row = [STEP[0], "N/A", "N/A", name, op, "HCCL", microseconds(start), span(length), 0, *["N/A"] * 9]
    writer.writerow(row)
    path.write_text(text.getvalue())
    return path


def write_folder(folder: Path, **options: object) -> Path:
    """Writes a folder of results, as ``<folder>_ascend_pt/ASCEND_PROFILER_OUTPUT``; returns the outer one."""
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    write_timeline(output / "trace_view.json", events(**options))  # type: ignore[arg-type]
    write_kernels(output / "kernel_details.csv")
    return folder


def write_database(path: Path, as_text: bool = False, ahead: int = 0, without: tuple[str, ...] = ()) -> Path:
    """Writes the database form; times as TEXT if ``as_text``, lacking the tables ``without``."""
    book = _Book()
    kind = "TEXT" if as_text else "INTEGER"
    with sqlite3.connect(path) as connection:
        for name, columns, rows in _tables(book, kind, ahead):
            if name not in without:
                connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
                marks = ", ".join("?" * len(columns))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        if "STRING_IDS" not in without:
            connection.execute("CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
            connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", book.rows())
    connection.close()
    return path


class _Book:
    """Numbers for strings."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: object) -> int:
        return self._numbers.setdefault(str(text), 100 + len(self._numbers))

    def rows(self) -> list[tuple[int, str]]:
        return [(number, text) for text, number in self._numbers.items()]


def _tables(book: _Book, kind: str, ahead: int) -> list[tuple[str, list[str], list[tuple[object, ...]]]]:
    times = [f"startNs {kind}", f"endNs {kind}"]
    links = {"ON_CHIP": 0, "HCCS": 1, "INVALID_TYPE": 65535}
    kernels = [(index, task) for index, task in enumerate(TASKS) if task.kernel]
    keys = ("op", "core", "in_shapes", "in_types", "in_formats", "out_shapes", "out_types", "out_formats")
    name, op, start, length, call = OPERATION
    return [
        (
            "TASK",
            [
                *times,
                "deviceId",
                "connectionId",
                "globalTaskId",
                "taskType",
                "contextId",
                "streamId",
                "taskId",
            ],
            [
                (
                    *_stored(task.start, task.duration, kind),
                    *(0, NONE if task.call is None else task.call, index, book(_database_word(task))),
                    *(NONE if task.subtask is None else task.subtask, task.stream, task.task_id),
                )
                for index, task in enumerate(TASKS)
            ],
        ),
        (
            "COMPUTE_TASK_INFO",
            [
                *(
                    "name INTEGER",
                    "globalTaskId INTEGER",
                    "blockDim INTEGER",
                    "mixBlockDim INTEGER",
                    "opType",
                ),
                *("taskType", "inputShapes", "inputDataTypes", "inputFormats"),
                *("outputShapes", "outputDataTypes", "outputFormats"),
            ],
            [
                (
                    *(book(task.name), index, task.kernel["blocks"], task.kernel["mix_blocks"]),
                    *(book(task.kernel[key]) for key in keys),
                )
                for index, task in kernels
            ],
        ),
        (
            "TASK_PMU_INFO",
            ["globalTaskId INTEGER", "name INTEGER", "value NUMERIC"],
            [(index, book("aic_total_time"), float(str(task.kernel["core_us"]))) for index, task in kernels],
        ),
        (
            "MEMCPY_INFO",
            ["globalTaskId NUMERIC", "size NUMERIC", "memcpyOperation NUMERIC"],
            [(index, task.size, 1) for index, task in enumerate(TASKS) if task.direction],
        ),
        (
            "COMMUNICATION_OP",
            ["opName INTEGER", *times, "connectionId INTEGER", "opId INTEGER", "opType INTEGER"],
            [(book(name), *_stored(start, length, kind), call, 9, book(op))],
        ),
        (
            "COMMUNICATION_TASK_INFO",
            [*("name", "globalTaskId", "taskType", "size", "linkType", "opId")],
            [
                (book(name), index, book(task.part), task.size, links[task.link], 9)
                for index, task in enumerate(TASKS)
                if task.part
            ],
        ),
        (
            "CANN_API",
            [*times, "type INTEGER", "globalTid INTEGER", "connectionId INTEGER", "name INTEGER"],
            [
                (*_stored(begin + ahead, took, kind), 20000, 1, number, book(called))
                for number, (called, begin, took) in CALLS.items()
            ],
        ),
        (
            "STEP_TIME",
            ["id INTEGER", *times],
            [(STEP[0], *_stored(STEP[1] + ahead, STEP[2], kind))],
        ),
        ("AICORE_FREQ", ["deviceId", "timestampNs", "freq"], [(0, 5, 1650)]),
        ("NPU_INFO", ["id INTEGER", "name TEXT"], [(0, "Ascend910B")]),
        ("RANK_DEVICE_MAP", ["rankId INTEGER", "deviceId INTEGER"], [(5, 0)]),
        ("META_DATA", ["name TEXT", "value TEXT"], [("SCHEMA_VERSION", "1.1.0")]),
    ]


def _database_word(task: Made) -> str:
    """The database has one word for a task, which is its name where the runtime has one for it."""
    return task.word if task.kernel or task.part else task.name


def _stored(start: int, length: int, kind: str) -> tuple[object, object]:
    times = ORIGIN + start, ORIGIN + start + length
    return times if kind == "INTEGER" else tuple(map(str, times))  # type: ignore[return-value]


def _named(pid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def _thread(pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _arrow(call: int, at: int, end: dict[str, object]) -> list[dict[str, object]]:
    both = {"cat": "HostToDevice", "name": f"HostToDevice{call}", "id": str(call << 32)}
    return [
        {**both, "ph": "s", "pid": CANN, "tid": 1, "ts": microseconds(at)},
        {**both, "ph": "f", "bp": "e", **end},
    ]


def _hardware(task: Made, sized: bool) -> dict[str, object]:
    args: dict[str, object] = {
        **{
            "Model Id": NONE,
            "Task Type": task.word,
            "Physic Stream Id": task.stream,
            "Task Id": task.task_id,
        },
        "Subtask Id": NONE if task.subtask is None else task.subtask,
    }
    if task.call is not None:
        args["connection_id"] = task.call
    if task.direction and sized:
        args |= {"data size(Byte)": task.size, "memcpy direction": task.direction}
    return {
        **{"ph": "X", "name": task.name, "pid": HARDWARE, "tid": task.stream},
        **{"ts": microseconds(task.start), "dur": span(task.duration), "args": args},
    }


def _plane(task: Made) -> dict[str, object]:
    args = {
        **{"stream id": task.stream, "task id": task.task_id, "context id": task.subtask},
        **{"task type": task.part, "size(Byte)": task.size, "link type": task.link, "notify_id": "5"},
    }
    return {
        **{"ph": "X", "name": task.part, "pid": HCCL, "tid": 1},
        **{"ts": microseconds(task.start), "dur": span(task.duration), "args": args},
    }
