"""Which reader a path is given to, and paths that are given to none."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from profile_tables import (
    FIRST,
    LEVEL_0,
    LEVEL_2,
    MATMUL,
    SUMMARY,
    SUMMARY_FIRST,
    TASK,
    TASKS,
    TASKS_OLD,
    at,
    table,
    write,
)

from cann_env.profiles import read
from cann_env.profiles.read import (
    ASCEND_FOLDER,
    DATABASE,
    KERNEL_DETAILS,
    KINETO,
    MSPROF_FOLDER,
    OP_SUMMARY,
    OWN_TRACE,
    TASK_TIME,
    TIDY,
    Format,
    read_profile,
)
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

ASCEND_TRACE = '[{"ph": "M", "name": "process_name", "args": {"name": "Ascend Hardware"}}]'
KINETO_TRACE = '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}'


def given_to(monkeypatch: pytest.MonkeyPatch, path: Path) -> tuple[str, Path]:
    """The reader that a path is given to, and the path that it gets."""
    taken: list[tuple[str, Path]] = []

    class Room:
        """A module whose readers note what they are given."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, reader: str) -> object:
            return lambda place: taken.append((f"{self._name}.{reader}", place))

    monkeypatch.setattr(read, "import_module", Room)
    read_profile(path)
    ((reader, place),) = taken
    return reader, place


def reader_of(form: Format) -> str:
    """The full name of the reader of a format."""
    return f"cann_env.profiles.{form.module}.{form.reader}"


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("kernel_details.csv", table(LEVEL_2, MATMUL), KERNEL_DETAILS),
        ("renamed.txt", table(LEVEL_0, MATMUL), KERNEL_DETAILS),
        ("first.csv", table(FIRST, MATMUL), KERNEL_DETAILS),
        ("op_summary_1.csv", table(SUMMARY, MATMUL), OP_SUMMARY),
        ("first.csv", "\ndevice 0\n" + table(SUMMARY_FIRST, MATMUL), OP_SUMMARY),
        ("task_time_1.csv", table(TASKS, TASK), TASK_TIME),
        ("old.csv", table(TASKS_OLD, TASK), TASK_TIME),
        ("tasks.csv", "stream,task_id,type,name,start_us,dur_us\n", TIDY),
        ("trace_view.json", ASCEND_TRACE, ASCEND_FOLDER),
        ("trace.json", KINETO_TRACE, KINETO),
        ("own.json", ASCEND_TRACE[:-1] + ', {"args": {"archive": {"format": "x"}}}]', ASCEND_FOLDER),
        ("own.json", '{"traceEvents": [], "otherData": {"writer": "cann_env"}}', OWN_TRACE),
        ("bare.json", '{"traceEvents": [{"ph": "X", "cat": "Kernel", "ts": 1, "dur": 2}]}', KINETO),
    ],
)
def test_files_are_told_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, form: Format
) -> None:
    path = write(tmp_path / name, content)
    assert given_to(monkeypatch, path) == (reader_of(form), path)


def test_compressed_traces_and_databases_are_told_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(KINETO_TRACE.encode()))
    assert given_to(monkeypatch, trace) == (reader_of(KINETO), trace)
    database = tmp_path / "profile.bin"
    database.write_bytes(b"SQLite format 3\0" + bytes(84))
    assert given_to(monkeypatch, database) == (reader_of(DATABASE), database)


@pytest.mark.parametrize(
    ("files", "form", "place"),
    [
        (["kernel_details.csv"], ASCEND_FOLDER, ""),
        (
            ["ASCEND_PROFILER_OUTPUT/trace_view.json", "PROF_1/device_0/summary/op_summary_0_1_1.csv"],
            ASCEND_FOLDER,
            "",
        ),
        (["host_1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"], ASCEND_FOLDER, ""),
        (
            ["ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"],
            DATABASE,
            "ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db",
        ),
        (["op_summary_1.csv", "task_time_1.csv"], MSPROF_FOLDER, ""),
        (["mindstudio_profiler_output/task_time_1.csv", "msprof_1.db"], MSPROF_FOLDER, ""),
        (["PROF_1/mindstudio_profiler_output/op_summary_1.csv", "PROF_2/other.txt"], MSPROF_FOLDER, "PROF_1"),
        (["PROF_1/msprof_1.db"], DATABASE, "PROF_1/msprof_1.db"),
        (["some.json", "notes.txt"], KINETO, "some.json"),
    ],
)
def test_folders_are_told_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], form: Format, place: str
) -> None:
    for file in files:
        write(tmp_path / file, KINETO_TRACE)
    assert given_to(monkeypatch, tmp_path) == (reader_of(form), tmp_path / place)


def test_a_profile_is_read(tmp_path: Path) -> None:
    """The first of the readers that are chosen above, and not only chosen."""
    path = write(tmp_path / "kernel_details.csv", table(LEVEL_2, MATMUL, at("200", Device_id="1")))
    assert len(read_profile(path, device=1).tasks) == 1
    assert len(read_profile(str(path), device=0).tasks) == 1
    with pytest.raises(InputError, match="choose one, such as device=0"):
        read_profile(path)


# --- what is no profile -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", "", "empty.csv' is empty"),
        ("blank.json", " \n", "blank.json' is empty"),
        (
            "notes.txt",
            "# Notes\n",
            "its first lines are no header of a table of tasks, and begin with '# Notes'",
        ),
        (
            "op_statistic.csv",
            "OP Type,Core Type,Count\nAdd,AIV,3\n",
            "begin with 'OP Type', 'Core Type', 'Count'",
        ),
        (
            "communication.json",
            '{"step1": {"p2p": {}}}',
            "names no work of a device; traces that are read: a Chrome trace of a simulated run; ",
        ),
        ("open.csv", 'a,"b\n', "open.csv, line 1: the line is no comma separated values"),
    ],
)
def test_files_that_are_no_profile_are_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_profile(write(tmp_path / name, content))
    assert words in str(caught.value)
    assert name in str(caught.value)


def test_paths_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"profile '.*nowhere' cannot be read"):
        read_profile(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match=r"holds no profile; looked for trace_view\.json, .*task_time_\*\.csv"
    ):
        read_profile(tmp_path)
    broken = tmp_path / "trace.json.gz"
    broken.write_bytes(gzip.compress(KINETO_TRACE.encode())[:20])
    with pytest.raises(InputError, match=r"trace\.json\.gz' cannot be read"):
        read_profile(broken)


def test_folders_with_several_profiles_are_refused(tmp_path: Path) -> None:
    for name in ("PROF_1", "PROF_2"):
        write(tmp_path / name / "mindstudio_profiler_output" / "op_summary_1.csv", table(SUMMARY, MATMUL))
    with pytest.raises(InputError, match="holds several profiles: PROF_1, PROF_2; give the path of one"):
        read_profile(tmp_path)


def test_a_device_is_chosen_only_where_there_may_be_several(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.csv", "stream,task_id,type,name,start_us,dur_us\n")
    with pytest.raises(InputError, match=r"device is 1, but .* is a tidy table of tasks .* leave device out"):
        read_profile(path, device=1)
