"""Databases of the Ascend profilers: the same run as in the folder, and what is refused."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ascend_run import OPERATION, ORIGIN, write_database, write_folder

from cann_env.commands import CopyKind, KernelClass
from cann_env.profiles.ascend_folder import read_folder
from cann_env.profiles.recording import Recording, Task, TaskKind, Verdict
from cann_env.profiles.sqlite import read_database
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path


def made(path: Path, *statements: str, **options: object) -> Path:
    """A database of the made-up run, changed by some statements."""
    file = write_database(path / "ascend_pytorch_profiler_5.db", **options)  # type: ignore[arg-type]
    with sqlite3.connect(file) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return file


def placeless(recording: Recording) -> list[Task]:
    """Tasks without where they were read."""
    return [replace(task, place="") for task in recording.tasks]


def named(recording: Recording, name: str) -> Task:
    """The only task of a name."""
    (found,) = [task for task in recording.tasks if task.name == name]
    return found


def noted(recording: Recording, verdict: Verdict, what: str) -> int:
    """How often something was noted that begins with ``what``."""
    return sum(
        n for (v, about), n in recording.report.counts.items() if v is verdict and about.startswith(what)
    )


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("ahead", [0, 8000])
def test_both_forms_of_a_run_are_one_recording(tmp_path: Path, as_text: bool, ahead: int) -> None:
    """Task by task, all fields but the place, with the host's clock right or ahead, times INTEGER or TEXT."""
    database = read_database(write_database(tmp_path / "a.db", as_text=as_text, ahead=ahead))
    folder = read_folder(write_folder(tmp_path / "run", ahead=ahead))
    assert placeless(database) == placeless(folder)
    assert database.origin_ns == folder.origin_ns == ORIGIN
    assert database.clock_hz == folder.clock_hz == 1_650_000_000


def test_the_run_is_described(tmp_path: Path) -> None:
    recording = read_database(made(tmp_path))
    assert recording.chip == "Ascend910B"
    assert recording.traits["rank"] == "5"
    assert recording.traits["device"] == "0"
    assert recording.traits["schema"] == "1.1.0"
    assert named(recording, "aclnnCast_Cast").place == "ascend_pytorch_profiler_5.db, table TASK, row 4"


def test_nothing_is_written_beside_the_file(tmp_path: Path) -> None:
    file = made(tmp_path)
    before = file.read_bytes()
    file.chmod(0o444)
    read_database(file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.read_bytes() == before


OPTIONAL = (
    *("COMPUTE_TASK_INFO", "TASK_PMU_INFO", "MEMCPY_INFO", "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO"),
    *("CANN_API", "STEP_TIME", "AICORE_FREQ", "NPU_INFO", "RANK_DEVICE_MAP", "META_DATA"),
)


@pytest.mark.parametrize("table", OPTIONAL)
def test_every_table_but_two_is_optional(tmp_path: Path, table: str) -> None:
    """Without a table the times are all the same; what only it says is missing."""
    full, part = (
        read_database(made(tmp_path)),
        read_database(write_database(tmp_path / "b.db", without=(table,))),
    )
    assert [(t.stream, t.start_ns) for t in part.tasks if t.stream != 4] == [
        (t.stream, t.start_ns) for t in full.tasks if t.stream != 4
    ]
    assert part.tasks != full.tasks or (part.chip, part.clock_hz, part.traits) != (
        full.chip,
        full.clock_hz,
        full.traits,
    )


def test_without_any_of_them_streams_and_times_remain(tmp_path: Path) -> None:
    recording = read_database(write_database(tmp_path / "a.db", without=OPTIONAL))
    assert [task.kind.value for task in recording.tasks if task.stream == 2] == [
        *("copy", "kernel", "record", "kernel", "wait"),
    ]
    assert recording.tasks[1].launch_ns is None
    pieces = [
        (task.kind.value, task.start_ns, task.duration_ns) for task in recording.tasks if task.task_id == 7
    ]
    assert pieces == [
        ("collective", 20000, 1300),
        ("peer_wait", 21300, 98700),
        ("collective", 120000, 10000),
    ]


@pytest.mark.parametrize("table", ["TASK", "STRING_IDS"])
def test_a_file_without_tasks_or_names_is_refused_with_its_tables(tmp_path: Path, table: str) -> None:
    file = write_database(tmp_path / "a.db", without=(table,))
    with pytest.raises(InputError, match=rf"a.db has no table {table}, .*its tables: AICORE_FREQ, CANN_API"):
        read_database(file)


def test_an_empty_table_of_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"table TASK is empty"):
        read_database(made(tmp_path, "DELETE FROM TASK"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE TASK SET startNs = 'noon' WHERE rowid = 3",
            r"TASK, row 3, column startNs: 'noon' is not a time",
        ),
        ("UPDATE TASK SET endNs = NULL WHERE rowid = 2", r"TASK, row 2, column endNs: None is not a time"),
        (
            "UPDATE TASK SET endNs = startNs - 1 WHERE rowid = 5",
            r"TASK, row 5: endNs \d+ comes before startNs",
        ),
        (
            "UPDATE TASK SET streamId = 'x' WHERE rowid = 1",
            r"TASK, row 1, column streamId: 'x' is not a whole",
        ),
        ("UPDATE TASK SET streamId = NULL WHERE rowid = 1", r"TASK, row 1, column streamId: None is not"),
        (
            "UPDATE TASK SET taskType = x'00ff' WHERE rowid = 1",
            r"TASK, row 1, column taskType: .* is not a whole",
        ),
        (
            "UPDATE STRING_IDS SET value = '3,x' WHERE value = '32,64'",
            r"COMPUTE_TASK_INFO, row 1, column inputSh",
        ),
        ("UPDATE COMPUTE_TASK_INFO SET blockDim = -4", r"COMPUTE_TASK_INFO, row 1: -4 blocks"),
        ("UPDATE MEMCPY_INFO SET size = 'big'", r"MEMCPY_INFO, row 1, column size: 'big' is not a whole"),
        ("UPDATE CANN_API SET startNs = 'x' WHERE rowid = 2", r"CANN_API, row 2, column startNs: 'x' is not"),
        ("UPDATE AICORE_FREQ SET freq = 'fast'", r"AICORE_FREQ, row 1, column freq: 'fast' is not a clock"),
        (
            "ALTER TABLE TASK RENAME COLUMN endNs TO stopNs",
            r"table TASK has no column endNs; it has .*stopns",
        ),
        ("UPDATE TASK_PMU_INFO SET value = 'x'", r"TASK_PMU_INFO, row 1, column value: 'x' is not a time"),
        ("UPDATE STEP_TIME SET endNs = 5", r"STEP_TIME, row 1: endNs 5 comes before"),
    ],
)
def test_planted_garbage_is_refused_with_table_and_row(tmp_path: Path, statement: str, message: str) -> None:
    file = made(tmp_path, statement)
    with pytest.raises(InputError, match=message):
        read_database(file)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_text("startNs,endNs\n" * 400)
    with pytest.raises(InputError, match=r"a.db: its schema cannot be read: file is not a database"):
        read_database(file)
    with pytest.raises(InputError, match=r"there is no such file"):
        read_database(tmp_path / "b.db")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    """The pages behind the schema are overwritten."""
    file = made(tmp_path)
    content = bytearray(file.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read: database disk image is malformed"):
        read_database(file)


def test_one_device_of_several_is_read(tmp_path: Path) -> None:
    """The tasks of stream 4 and the collective move to device 1."""
    file = made(
        tmp_path,
        "UPDATE TASK SET deviceId = 1 WHERE streamId = 4",
        "ALTER TABLE COMMUNICATION_OP ADD COLUMN deviceId INTEGER",
        "UPDATE COMMUNICATION_OP SET deviceId = 1",
    )
    with pytest.raises(InputError, match=r"holds tasks of devices 0, 1; choose one"):
        read_database(file)
    assert read_database(file, device=0).streams == (0, 2)
    assert read_database(file, device=1).streams == (4,)
    with pytest.raises(InputError, match=r"holds no task of device 7"):
        read_database(file, device=7)


def test_enumerations_of_the_file_come_before_the_documented_ones(tmp_path: Path) -> None:
    """A release that numbers the ways of copies and the links otherwise: 1 is to the host, 0 is a link."""
    file = made(
        tmp_path,
        "CREATE TABLE ENUM_MEMCPY_OPERATION (id INTEGER, name TEXT)",
        "INSERT INTO ENUM_MEMCPY_OPERATION VALUES (1, 'device to host')",
        "CREATE TABLE ENUM_HCCL_LINK_TYPE (id INTEGER, name TEXT)",
        "INSERT INTO ENUM_HCCL_LINK_TYPE VALUES (1, 'ON_CHIP'), (0, 'HCCS')",
    )
    recording = read_database(file)
    assert named(recording, "MEMCPY_ASYNC").copy is CopyKind.D2H
    pieces = [task.size_bytes for task in recording.tasks if task.name == OPERATION[0]]
    assert pieces == [512, 0, 0]


def test_links_by_name_of_the_oldest_files(tmp_path: Path) -> None:
    """Before there were enumerations the link was a number in STRING_IDS."""
    file = made(
        tmp_path,
        "INSERT INTO STRING_IDS VALUES (9001, 'ON_CHIP'), (9002, 'HCCS')",
        "UPDATE COMMUNICATION_TASK_INFO SET linkType = 9001 WHERE linkType = 0",
        "UPDATE COMMUNICATION_TASK_INFO SET linkType = 9002 WHERE linkType = 1",
    )
    assert (
        sum(task.size_bytes for task in read_database(file).tasks if task.name == OPERATION[0]) == 1_000_000
    )


def test_steps_and_ways_of_copies_from_the_framework(tmp_path: Path) -> None:
    """No STEP_TIME, no MEMCPY_INFO: ranges of PYTORCH_API say both."""
    file = made(
        tmp_path,
        "DROP TABLE STEP_TIME",
        "DROP TABLE MEMCPY_INFO",
        "CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, name INTEGER)",
        "INSERT INTO STRING_IDS VALUES (9001, 'ProfilerStep#41'), (9002, 'acl_memcpy_device_to_host')",
        f"INSERT INTO PYTORCH_API VALUES ('{ORIGIN - 9000}', '{ORIGIN + 9000}', 1, 9001)",
        f"INSERT INTO PYTORCH_API VALUES ('{ORIGIN - 4200}', '{ORIGIN - 3000}', 1, 9002)",
    )
    recording = read_database(file)
    assert recording.steps == (41,)
    copy = named(recording, "MEMCPY_ASYNC")
    assert copy.copy is CopyKind.D2H and copy.size_bytes == 0
    assert noted(recording, Verdict.GUESSED, "directions of copies, from the host's call") == 1


def test_times_of_cores_in_nanoseconds_are_told_by_their_size(tmp_path: Path) -> None:
    """2,500 us within a task of 3 us cannot be."""
    recording = read_database(made(tmp_path, "UPDATE TASK_PMU_INFO SET value = value * 1000"))
    assert named(recording, "aclnnCast_Cast").core_ns == 2500
    assert noted(recording, Verdict.GUESSED, "times of cores, read as ns") == 2


def test_names_may_stand_in_their_column(tmp_path: Path) -> None:
    file = made(tmp_path, "UPDATE COMPUTE_TASK_INFO SET opType = 'Cast2' WHERE rowid = 1")
    assert named(read_database(file), "aclnnCast_Cast").op == "Cast2"


def test_a_name_that_is_not_held_is_noted(tmp_path: Path) -> None:
    file = made(tmp_path, "UPDATE COMPUTE_TASK_INFO SET opType = 77777 WHERE rowid = 1")
    recording = read_database(file)
    assert named(recording, "aclnnCast_Cast").op == ""
    assert noted(recording, Verdict.DROPPED, "names that STRING_IDS does not hold") == 1


def test_placeholders_are_what_the_host_called(tmp_path: Path) -> None:
    file = made(
        tmp_path,
        "INSERT INTO STRING_IDS VALUES (9001, 'PLACE_HOLDER_SQE')",
        "UPDATE TASK SET taskType = 9001 WHERE connectionId IN (12, 17)",
    )
    found = {
        task.start_ns: task.kind for task in read_database(file).tasks if task.name == "PLACE_HOLDER_SQE"
    }
    assert found == {8010: TaskKind.RECORD, 21000: TaskKind.WAIT}


def test_unknown_columns_and_views_do_no_harm(tmp_path: Path) -> None:
    """A table with more columns, another as a view over one of another name."""
    file = made(
        tmp_path,
        "ALTER TABLE TASK ADD COLUMN depth INTEGER",
        "ALTER TABLE CANN_API RENAME TO CALLS_OF_CANN",
        "CREATE VIEW CANN_API AS SELECT * FROM CALLS_OF_CANN",
    )
    assert placeless(read_database(file)) == placeless(read_database(write_database(tmp_path / "b.db")))


def test_kernels_of_schedulers_and_of_ai_cpu(tmp_path: Path) -> None:
    """The kernel that schedules collectives stands in a table of its own."""
    file = made(
        tmp_path,
        "CREATE TABLE COMMUNICATION_SCHEDULE_TASK_INFO (name, globalTaskId INTEGER, taskType, opType)",
        "INSERT INTO COMMUNICATION_SCHEDULE_TASK_INFO VALUES ('sched', 99, 'AI_CPU', 'sched_')",
        f"INSERT INTO TASK VALUES ({ORIGIN + 7}, {ORIGIN + 9}, 0, -1, 99, 'AI_CPU', 4294967295, 8, 1)",
    )
    task = named(read_database(file), "sched")
    assert (task.kernel_class, task.stream, task.start_ns) == (KernelClass.AICPU, 8, 7)
