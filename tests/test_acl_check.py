"""Running programs from their files: limits, errors with lines, and what ``cann-env check`` says."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import cann_env.acl as acl
from cann_env.acl.checks.hazards import hazards
from cann_env.acl.program import ProgramError, run_program
from cann_env.cli.app import app
from cann_env.units import InputError

HEAD = """\
import sys, time
import acl
import acl.rt as rt
from acl import util
acl.init(); rt.set_device(0)
acl.define_kernel("slow", writes=(0,), duration_ns=3_000_000)
slow = rt.binary_get_function(rt.binary_load_from_file("k.o")[0], "slow")[0]
stream = rt.create_stream()[0]
event = rt.create_event_ex_with_flag(0)[0]
memory = rt.malloc(64, 0)[0]
host = rt.malloc_host(64)[0]
"""
TAIL = """\
rt.free(memory); rt.free_host(host); rt.destroy_event(event); rt.destroy_stream(stream)
rt.reset_device(0); acl.finalize()
"""


def write(folder, body: str) -> str:
    path = folder / "program.py"
    path.write_text(HEAD + body + TAIL)
    return str(path)


def test_a_program_runs_as_main_with_its_arguments(tmp_path, capsys) -> None:
    path = write(tmp_path, 'print(__name__, sys.argv[1:], rt is sys.modules["acl.rt"])\n')
    before = list(sys.argv), list(sys.path), sys.modules.get("acl")
    run = run_program(path, "ascend310b1", args=["--batch", "4"])
    assert capsys.readouterr().out == "__main__ ['--batch', '4'] True\n"
    assert run.spec.name == "ascend310b1"
    assert (list(sys.argv), list(sys.path), sys.modules.get("acl")) == before
    assert not hazards(run, ended=True)


POLLS = {
    "stream_query": "while rt.stream_query(stream)[0] != 0: pass",
    "query_event": "while rt.query_event(event)[0] != 0: pass",
    "query_event_status": "while rt.query_event_status(event)[0] != 1: pass",
    "sleep": "while rt.stream_query(stream)[0] != 0: time.sleep(0.0005)",
    "timeout": "while rt.synchronize_stream_with_timeout(stream, 1) != 0: pass",
    "event timeout": "while rt.synchronize_event_with_timeout(event, 1) != 0: pass",
}


@pytest.mark.parametrize("submission", ["eager", "sink"])
@pytest.mark.parametrize("poll", POLLS)
def test_a_loop_that_asks_ends(poll: str, submission: str, tmp_path) -> None:
    body = (
        f"rt.launch_kernel(slow, 1, [memory], None, stream)\nrt.record_event(event, stream)\n{POLLS[poll]}\n"
    )
    run = run_program(write(tmp_path, body), submission=submission, seconds=20)
    (work,) = run.log
    assert work.ended
    assert 3_000_000 <= run.clock_ns < 6_000_000
    assert not hazards(run, ended=True)


SIGNALS = {
    "list": ("[]", "done.append", "while not done: time.sleep(0.001)"),
    "query": ("[]", "done.append", "while not done: rt.stream_query(stream)"),
    "event": ("threading.Event()", "lambda _: done.set()", "done.wait()"),
    "event with timeout": ("threading.Event()", "lambda _: done.set()", "while not done.wait(0.0001): pass"),
}


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_program_that_waits_for_a_flag_of_its_callback_ends(signal: str, tmp_path) -> None:
    flag, callback, waiting = SIGNALS[signal]
    body = f"""
import threading
done = {flag}
running = [1]
view = util.ptr_to_numpy(host, (64,), "uint8")
def handle(_):
    while running:
        rt.process_report(100)
thread = util.start_thread(handle, 0)[0]
rt.subscribe_report(thread, stream)
rt.launch_kernel(slow, 1, [memory], None, stream)
rt.memcpy_async(host, 64, memory, 64, 2, stream)
rt.launch_callback({callback}, 1, 1, stream)
{waiting}
total = view.sum()
rt.synchronize_stream(stream)
rt.unsubscribe_report(thread, stream); running.clear(); util.stop_thread(thread)
"""
    run = run_program(write(tmp_path, body), seconds=20)
    assert not hazards(run, ended=True)


ENDLESS = {
    "real time": ("while True: pass\n", {"seconds": 0.2}, "still running after 0.2 s"),
    "simulated time": (
        "while True: time.sleep(100)\n", {"simulated_seconds": 1000.0}, "of simulated time",
    ),
    "caught": (
        "while True:\n    try:\n        time.sleep(100)\n    except Exception:\n        pass\n",
        {"simulated_seconds": 1000.0},
        "of simulated time",
    ),
    "waiting": ("import threading\nthreading.Event().wait()\n", {"seconds": 0.2}, "still running after"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDLESS)
def test_a_program_that_never_ends_is_stopped(case: str, tmp_path) -> None:
    body, limits, said = ENDLESS[case]
    with pytest.raises(ProgramError, match=said):
        run_program(write(tmp_path, body), **limits)


def test_a_program_that_never_ends_is_stopped_in_another_thread(tmp_path) -> None:
    import threading

    seen = []

    def work() -> None:
        try:
            run_program(write(tmp_path, "while True: pass\n"), seconds=0.2)
        except ProgramError as error:
            seen.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert "still running" in seen[0]


FAILURES = {
    "raises": ("def f():\n    return 1 / 0\nf()\n", r"ZeroDivisionError: .*program.py:13"),
    "exits": ("sys.exit('no model')\n", r"ended with 'no model' .*program.py:12"),
    "syntax": ("def :\n", r"SyntaxError.*line 12"),
    "kernel": (
        "def f(out):\n    raise KeyError('mine')\n"
        "acl.define_kernel('bad', writes=(0,), duration_ns=10, function=f)\n"
        "bad = rt.binary_get_function(rt.binary_load_from_file('k.o')[0], 'bad')[0]\n"
        "rt.launch_kernel(bad, 1, [memory], None, stream)\n"
        "rt.synchronize_stream(stream)\n",
        r"KeyError: 'mine' \(at program.py:13\)",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_a_program_raises_is_told_with_its_line(case: str, tmp_path) -> None:
    body, said = FAILURES[case]
    with pytest.raises(ProgramError, match=said) as caught:
        run_program(write(tmp_path, body))
    assert caught.value.run is acl.simulator()


def test_no_program_and_no_device() -> None:
    with pytest.raises(InputError, match=r"'nowhere.py' does not exist"):
        run_program("nowhere.py")
    with pytest.raises(InputError, match="ascend999"):
        run_program(__file__, "ascend999")


RACE = """\
rt.memcpy_async(host, 64, memory, 64, 2, stream)
print(util.ptr_to_bytes(host, 64)[0])
rt.synchronize_stream(stream)
"""


def test_check_prints_hazards_and_returns_one(tmp_path) -> None:
    result = CliRunner().invoke(app, ["check", write(tmp_path, RACE)], env={"COLUMNS": "160"})
    assert result.exit_code == 1
    for word in (
        "read-after-write",
        "program.py:12",
        "program.py:13",
        "pinned",
        "synchronize_stream",
        "host",
    ):
        assert word in result.output
    assert "overlapped" in result.output


def test_check_as_json(tmp_path) -> None:
    result = CliRunner().invoke(app, ["check", write(tmp_path, RACE), "--json", "--device", "ascend910b4"])
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["device"] == "ascend910b4"
    (hazard,) = data["hazards"]
    assert hazard["kind"] == "read-after-write"
    assert (hazard["first"], hazard["second"]) == ("program.py:12", "program.py:13")
    assert hazard["streams"][1] == -1
    assert hazard["steps"][0]["call"] == "synchronise"
    assert data["totals"]["total_ns"] >= data["totals"]["device_ns"] > 0


def test_check_of_a_clean_program_returns_nothing(tmp_path) -> None:
    body = RACE.replace("print", "rt.synchronize_stream(stream)\nprint")
    result = CliRunner().invoke(app, ["check", write(tmp_path, body), "--submission", "sink"])
    assert result.exit_code == 0, result.output
    assert "No hazards" in result.output


def test_check_of_a_program_that_fails_returns_two_and_what_was_found(tmp_path) -> None:
    result = CliRunner().invoke(app, ["check", write(tmp_path, RACE + "1 / 0\n")], env={"COLUMNS": "160"})
    assert result.exit_code == 2
    assert "read-after-write" in result.output
    assert "ZeroDivisionError" in result.output
    assert CliRunner().invoke(app, ["check", "nowhere.py"]).exit_code == 2


def test_leaks_are_told_even_without_finalize(tmp_path) -> None:
    path = tmp_path / "program.py"
    path.write_text(HEAD)
    found = hazards(run_program(path), ended=True)
    assert {hazard.kind for hazard in found} == {acl.HazardKind.LEAK}
    assert len(found) == 4
    assert not hazards(acl.simulator()) or acl.simulator().evidence.leaks


def test_an_option_that_does_not_exist_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        '"""A plan.\n\ncann-env: device=ascend910b2 submission=sink hbm=3\n"""\n', encoding="utf-8"
    )
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 2 and "'hbm'" in result.output
