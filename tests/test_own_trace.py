"""Round trips: a trace is read back into the schedule that was written, and an altered one is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from episodes import actions_of
from pictures import Trace
from toys import toy_device, toy_pipeline

from cann_env.archive import EVENT_NAME, archive_of, to_json
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.render.trace import chrome_trace, mindstudio_trace, write_trace
from cann_env.replay.own_trace import carries_archive, read_trace
from cann_env.schedulers import run_scheduler
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cann_env.schedule import Schedule


@pytest.fixture(scope="module")
def played() -> Schedule:
    program = compile_graph(toy_pipeline(2), toy_device(), RunOptions(streams=3, submission=Submission.EAGER))
    return run_scheduler(program, "random")


@pytest.mark.parametrize("seed", range(16))
def test_both_forms_come_back_as_the_schedule_they_show(seed: int, tmp_path: Path) -> None:
    """Random graphs, devices, options and noise: every row, to the nanosecond; and viewers can show it."""
    case = make_case(seed, own=seed % 2 == 1)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    file = write_trace(schedule, tmp_path / "t.json")
    folder = write_trace(schedule, tmp_path / "t_ascend_pt")
    assert read_trace(file) == schedule
    assert read_trace(folder) == schedule
    assert Trace(json.loads(file.read_text(encoding="utf-8"))).slices
    assert Trace(mindstudio_trace(schedule)).slices


@pytest.mark.thorough
@pytest.mark.parametrize("hundred", range(5))
def test_many_schedules_come_back(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        test_both_forms_come_back_as_the_schedule_they_show(seed, tmp_path)


def test_equal_schedules_give_equal_bytes(played: Schedule, tmp_path: Path) -> None:
    """Written, read and written again, in either form."""
    for name in ("a.json", "a_ascend_pt"):
        first = write_trace(played, tmp_path / name)
        again = write_trace(read_trace(first), tmp_path / f"again-{name}")
        files = [path for path in (first, *first.rglob("*")) if path.is_file()]
        assert len(files) == (1 if name == "a.json" else 2)
        for file in files:
            other = again / file.relative_to(first) if first.is_dir() else again
            assert file.read_bytes() == other.read_bytes()


def test_compressed_files_and_the_inner_folder_are_read(played: Schedule, tmp_path: Path) -> None:
    plain = write_trace(played, tmp_path / "t.json")
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed) == played
    folder = write_trace(played, tmp_path / "t_ascend_pt")
    assert read_trace(folder / "ASCEND_PROFILER_OUTPUT") == played


# --- planted edits --------------------------------------------------------------------------------------


def edited(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def slices(events: list[Any], process: str) -> list[dict[str, Any]]:
    (pid,) = [
        event["pid"]
        for event in events
        if event["ph"] == "M" and event["name"] == "process_name" and event["args"]["name"] == process
    ]
    return [event for event in events if event["ph"] == "X" and event["pid"] == pid]


def later(event: dict[str, Any]) -> None:
    """One nanosecond later."""
    if isinstance(event["ts"], str):
        whole, fraction = event["ts"].split(".")
        event["ts"] = f"{whole}.{int(fraction) + 1:03d}"
    else:
        event["ts"] += 0.001


def longer(event: dict[str, Any]) -> None:
    event["dur"] += 0.001


@pytest.mark.parametrize("change", [later, longer])
@pytest.mark.parametrize("process", ["Streams", "Engines", "Host"])
def test_one_nanosecond_more_is_noticed_in_every_slice(
    played: Schedule, tmp_path: Path, process: str, change: Callable[[dict[str, Any]], None]
) -> None:
    for number in range(len(slices(chrome_trace(played)["traceEvents"], process))):
        data = chrome_trace(played)
        change(slices(data["traceEvents"], process)[number])
        with pytest.raises(
            InputError, match=rf"t\.json', {process}: it shows .*; the run that it carries has it"
        ):
            read_trace(edited(tmp_path / "t.json", data))


@pytest.mark.parametrize("change", [later, longer])
@pytest.mark.parametrize("process", ["Ascend Hardware", "Python"])
def test_one_nanosecond_more_is_noticed_in_a_profile(
    played: Schedule, tmp_path: Path, process: str, change: Callable[[dict[str, Any]], None]
) -> None:
    events = mindstudio_trace(played)
    for number, event in enumerate(slices(events, process)):
        if "event_id" in event.get("args", {}):
            continue
        data = mindstudio_trace(played)
        change(slices(data, process)[number])
        with pytest.raises(InputError, match=rf"t\.json', {process}: it shows"):
            read_trace(edited(tmp_path / "t.json", data))


def test_moves_of_buffers_are_checked_too(tmp_path: Path) -> None:
    case = make_case(3)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    data = chrome_trace(schedule)
    found = slices(data["traceEvents"], "Transfers")
    assert found
    longer(found[-1])
    with pytest.raises(InputError, match="Transfers: it shows"):
        read_trace(edited(tmp_path / "t.json", data))


def test_missing_added_and_renamed_slices_are_named(played: Schedule, tmp_path: Path) -> None:
    """Each difference is told in words that name the command and both times."""
    path = tmp_path / "t.json"
    data = chrome_trace(played)
    first = slices(data["traceEvents"], "Streams")[0]
    data["traceEvents"].remove(first)
    with pytest.raises(InputError, match=r"Streams: it lacks command 3 'in1' on track 0 from 6 to 75 ns"):
        read_trace(edited(path, data))
    data = chrome_trace(played)
    data["traceEvents"].append(dict(slices(data["traceEvents"], "Host")[-1]))
    with pytest.raises(InputError, match="which the run that it carries has not"):
        read_trace(edited(path, data))
    data = chrome_trace(played)
    slices(data["traceEvents"], "Streams")[0]["name"] = "other"
    with pytest.raises(InputError, match=r"it (shows|lacks) command [03] '(other|in[01])' on track 0 from"):
        read_trace(edited(path, data))


def test_records_and_waits_keep_to_their_commands(played: Schedule, tmp_path: Path) -> None:
    assert played.waits
    path = tmp_path / "t.json"
    for name, field, value, words in (
        ("EVENT_RECORD", "ts", "1000000.000", "too early"),
        ("EVENT_WAIT", "dur", 1e6, "too late"),
        ("EVENT_WAIT", "name", "EVENT_REST", "lacks its record or its wait"),
    ):
        data = mindstudio_trace(played)
        found = [event for event in slices(data, "Ascend Hardware") if event["name"] == name]
        found[-1][field] = value
        with pytest.raises(InputError, match=words):
            read_trace(edited(path, data))


def test_decisions_of_another_run_are_refused(played: Schedule, tmp_path: Path) -> None:
    """The archive is sound, but it is not of the schedule that the trace shows."""
    program = compile_graph(played.graph, played.device, played.options)
    other = run_scheduler(program, "single_stream")
    data = chrome_trace(played)
    data["otherData"]["archive"] = to_json(archive_of(other))
    with pytest.raises(InputError, match=r"it (shows|lacks) .*command"):
        read_trace(edited(tmp_path / "t.json", data))


def test_an_unsound_device_is_refused(played: Schedule, tmp_path: Path) -> None:
    device = replace(played.device, clock_hz=0)
    data = chrome_trace(played)
    data["otherData"]["archive"] = to_json(replace(archive_of(played), device=device))
    with pytest.raises(InputError, match="its device 'toy' is unsound"):
        read_trace(edited(tmp_path / "t.json", data))


def test_files_without_an_archive_and_garbage_are_refused(played: Schedule, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    data = chrome_trace(played)
    del data["otherData"]["archive"]
    for content in (data, [], {}, 7, None, [{"ph": "M", "name": EVENT_NAME}], {"otherData": []}):
        edited(path, content)
        assert not carries_archive(path)
        with pytest.raises(InputError, match=r"carries no archive of a run"):
            read_trace(path)
    for text in ("", "{", "\x00"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="is no JSON"):
            read_trace(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="holds no trace"):
        read_trace(tmp_path)


@pytest.mark.parametrize("value", ["soon", None, True, "NaN", "Infinity", "1e999999", 0.0004, [1]])
def test_times_that_are_none_are_refused(played: Schedule, tmp_path: Path, value: object) -> None:
    data = chrome_trace(played)
    slices(data["traceEvents"], "Streams")[0]["ts"] = value
    with pytest.raises(InputError, match=r"event [0-9]+: .*(is no time|no whole number)"):
        read_trace(edited(tmp_path / "t.json", data))
