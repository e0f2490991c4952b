"""The verbs that read profiles: what they print, what they write, how they refuse."""

from __future__ import annotations

import json
from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from recordings import recorded, task, write_tidy
from rich.console import Console
from typer.testing import CliRunner, Result

from cann_env.cli.app import app
from cann_env.cli.optimise_tables import promise
from cann_env.cli.printing import show_table
from cann_env.cli.profile_inputs import is_profile, parse_between, typical_step
from cann_env.cli.replay_spans import Colour, recorded_spans, simulated_spans, start_errors
from cann_env.cli.replay_tables import segment_table
from cann_env.cli.tables import plain_table
from cann_env.device import load_device
from cann_env.options import Submission
from cann_env.profiles.read import read_profile
from cann_env.profiles.recording import TaskKind
from cann_env.render.two_timelines import Span
from cann_env.replay import replay
from cann_env.replay.anchors import Segment
from cann_env.replay.optimise import Asked, optimise
from cann_env.replay.plan_file import read_plan
from cann_env.units import InputError
from cann_env.workloads.from_profiler import from_profiler

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "stream type name start_us dur_us block_dim op_type input_shapes input_types output_shapes "
    "output_types step"
)


def kernel(
    name: str, start: float, us: float, step: int = 1, shape: int = 8, stream: int = 2
) -> tuple[Any, ...]:
    """A vector kernel of one block that reads ``shape`` elements and writes one more."""
    shapes = (str(shape), "FLOAT16", str(shape + 1), "FLOAT16")
    return (stream, "AI_VECTOR_CORE", name, start, us, 1, "Add", *shapes, step)


ONE_STEP = [
    kernel("a", 0, 100),
    (3, "NOTIFY_WAIT", "peer", 0, 30, "", "", "", "", "", "", 1),
    kernel("b", 140, 60, shape=20),
    kernel("c", 200.02, 40, shape=40),
]
"""::

    2  |a 100 us| 40 us |b 60 us|c 40 us|
    3  |peer 30|
"""

THREE_STEPS = [
    kernel("a", 0, 100, step=1),
    kernel("a", 1000, 50, step=2),
    kernel("b", 1050.02, 10, step=2, shape=20),
    kernel("a", 2000, 30, step=3),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test, with profiles in it; the names tell the chip."""
    write_tidy(tmp_path / "one_910b2.csv", COLUMNS, ONE_STEP)
    write_tidy(tmp_path / "three_910b2.csv", COLUMNS, THREE_STEPS)
    write_tidy(tmp_path / "nameless.csv", COLUMNS, ONE_STEP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the compiled engine once, so that no single test pays for it."""
    file = write_tidy(tmp_path_factory.mktemp("warm") / "warm_910b2.csv", COLUMNS, ONE_STEP)
    CliRunner().invoke(app, ["optimise", str(file), "--json"])


def call(*words: str, columns: int = 100) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def data(*words: str) -> dict[str, Any]:
    """What ``--json`` prints; fails if anything else was printed."""
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def one_line(result: Result) -> str:
    """An error: one line on standard error, nothing on standard output, exit code 2."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


# --- replay -------------------------------------------------------------------------------------------


def test_replay_sets_recorded_and_simulated_side_by_side(folder: Path) -> None:
    before = sorted(folder.iterdir())
    result = call("replay", "one_910b2.csv", "--no-files")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    text = " ".join(result.stdout.split())
    for words in (
        "one_910b2, tidy CSV: 4 tasks on 2 streams, 1 step", "ascend910b2: its numbers are calibrated",
        "durations recorded", "240.02 us", "+0.00%", "30.00 us", "39.96 us", "ok", "Pinned",
        "Start error per task", "Segments between waits for other devices", "Durations by operator",
        "Overlap of work", "Gaps between neighbours", "What was read", "idle times that nothing explains",
    ):  # fmt: skip
        assert words in text
    assert sorted(folder.iterdir()) == before


def test_replay_in_json_says_the_same_as_numbers() -> None:
    found = data("replay", "one_910b2.csv")
    (row,) = found["rows"]
    assert (found["device"], found["calibrated"], found["durations"]) == ("ascend910b2", True, "recorded")
    assert row["recorded_ns"] == 240_020
    assert row["simulated_ns"] == pytest.approx(240_020, abs=50)
    assert row["peer_ns"] == 30_000
    assert row["delay_ns"] == pytest.approx(40_000, abs=50)
    assert row["starts"]["count"] == 4
    assert [(each["op"], each["count"], each["recorded_ns"]) for each in row["operators"]] == [
        ("Add", 3, 200_000)
    ]
    assert row["overlap_recorded"] == {"busy_ns": 200_000, "union_ns": 200_000, "factor": 1.0}
    assert row["violations"] == 0
    assert found["total"]["recorded_ns"] == row["recorded_ns"]


def test_each_step_has_a_row_and_all_are_summed() -> None:
    found = data("replay", "three_910b2.csv")
    assert [row["step"] for row in found["rows"]] == [1, 2, 3]
    assert [row["recorded_ns"] for row in found["rows"]] == [100_000, 60_020, 30_000]
    assert found["total"]["recorded_ns"] == 190_020
    assert found["total"]["commands"] == 4
    lines = call("replay", "three_910b2.csv", "--no-files").stdout.splitlines()
    rows = [line for line in lines if line.startswith(("step 1 ", "step 2 ", "step 3 ", "all "))]
    assert [line.split()[0] for line in rows[:4]] == ["step", "step", "step", "all"]
    assert "190.02 us" in rows[3]


def test_tasks_of_no_step_are_counted(folder: Path) -> None:
    rows = [*THREE_STEPS, (2, "AI_VECTOR_CORE", "stray", 3000, 5, 1, "Add", "", "", "", "", "")]
    write_tidy(folder / "stray_910b2.csv", COLUMNS, rows)
    assert data("replay", "stray_910b2.csv")["outside_steps"] == 1
    assert "3 steps; left out: 1 of no step" in call("replay", "stray_910b2.csv", "--no-files").stdout
    assert data("replay", "three_910b2.csv")["outside_steps"] == 0


def test_one_step_may_be_chosen() -> None:
    found = data("replay", "three_910b2.csv", "--step", "2")
    assert [(row["step"], row["recorded_ns"]) for row in found["rows"]] == [(2, 60_020)]
    assert "--step is 9; the steps" in one_line(call("replay", "three_910b2.csv", "--step", "9"))


def test_modelled_durations_are_not_the_recorded_ones() -> None:
    found = data("replay", "one_910b2.csv", "--durations", "modelled")
    (row,) = found["rows"]
    assert found["durations"] == "modelled"
    assert row["operators"][0]["simulated_ns"] < 0.5 * row["operators"][0]["recorded_ns"]
    assert row["recorded_ns"] == 240_020


def test_a_recording_that_names_no_device_needs_one() -> None:
    assert "does not tell on which device it was recorded" in one_line(call("replay", "nameless.csv"))
    assert data("replay", "nameless.csv", "--device", "ascend910b4")["device"] == "ascend910b4"
    text = " ".join(call("replay", "nameless.csv", "--device", "ascend910b4", "--no-files").stdout.split())
    assert "recorded on a device that is not named" in text
    assert "recorded on" not in call("replay", "one_910b2.csv", "--no-files").stdout.splitlines()[2]


def test_numbers_of_a_device_without_recordings_are_called_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is printed, and in the title of the picture."""
    titles: list[str] = []
    monkeypatch.setattr("cann_env.cli.replay_verb.draw_replay", lambda *_, title, **__: titles.append(title))
    words = ("nameless.csv", "--device", "ascend310b1")
    result = call("replay", *words, "--picture", "p.svg", "--no-files")
    assert "ascend310b1 (assumed): no recording of this chip exists" in result.stdout
    assert titles == ["nameless on ascend310b1 (assumed)"]


@pytest.mark.parametrize("verb", ["replay", "optimise", "run", "compare"])
def test_json_says_whether_a_device_is_calibrated(verb: str) -> None:
    schedulers = {"run": ["--scheduler"], "replay": []}.get(verb, ["--schedulers"])
    words = [*schedulers, "reference"][: 2 * len(schedulers)]
    for device, calibrated in (("ascend310b1", False), ("ascend910b4", True)):
        found = data(verb, "nameless.csv", "--device", device, *words)
        assert (found["rows"][0] if verb in ("run", "compare") else found)["calibrated"] is calibrated


@pytest.mark.slow
def test_replay_writes_a_trace_and_a_picture_unless_told_not_to(folder: Path) -> None:
    result = call("replay", "three_910b2.csv")
    assert "three_910b2-replay.json  (step 1; --step N for another)" in result.stdout
    assert (folder / "three_910b2-replay.png").stat().st_size > 1000
    assert json.loads((folder / "three_910b2-replay.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_replay_without_matplotlib_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise InputError('a picture of two timelines needs Matplotlib: pip install "cann-env[plot]"')

    monkeypatch.setattr("cann_env.cli.replay_verb.draw_replay", missing)
    result = call("replay", "one_910b2.csv")
    assert result.exit_code == 0
    assert "Picture   left out: a picture of two timelines needs Matplotlib" in result.stdout
    assert "needs Matplotlib" in one_line(call("replay", "one_910b2.csv", "--picture", "p.png"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("5ms", "--between is '5ms'"), ("5ms..1ms", "the first time has to come before")],
)
def test_a_part_that_is_none_is_refused(text: str, message: str) -> None:
    assert message in one_line(call("replay", "one_910b2.csv", "--between", text))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.csv"], "profile 'nothing.csv' does not exist"),
        (["one_910b2.csv", "--profiler-gap", "-3us"], "--profiler-gap is -3.00 us"),
        (["one_910b2.csv", "--picture", "p.txt"], "--picture is 'p.txt'"),
        (["one_910b2.csv", "--trace", "no/p.json"], "its folder does not exist"),
        (["one_910b2.csv", "--device", "ascend"], "'ascend'"),
    ],
)
@pytest.mark.parametrize("verb", ["replay", "optimise"])
def test_what_cannot_be_used_is_refused_in_one_line(verb: str, words: list[str], message: str) -> None:
    assert message in one_line(call(verb, *words))


def test_garbage_is_refused_with_its_place(folder: Path) -> None:
    (folder / "bad_910b2.csv").write_text("stream,type,name,start_us,dur_us\n2,AI_CORE,a,zero,1\n")
    assert "bad_910b2.csv" in one_line(call("replay", "bad_910b2.csv"))


# --- the picture --------------------------------------------------------------------------------------


def test_spans_of_both_sides_and_the_errors_of_starts() -> None:
    """::

    2  |a 100 us|//////|b 60 us|c 40 us|
    3  |//////|
    """
    imported = from_profiler(read_profile("one_910b2.csv"))
    played = replay(imported, load_device("ascend910b2"))
    upper = sorted(recorded_spans(imported, Colour.CLASS))
    assert [span for span in upper if not span.external] == [
        Span(2, 0, 100_000, "vector"),
        Span(2, 140_000, 200_000, "vector"),
        Span(2, 200_020, 240_020, "vector"),
    ]
    waits = [span for span in upper if span.external]
    assert [(span.stream, span.finish_ns) for span in waits] == [(2, 140_000), (3, 30_000)]
    lower = sorted(simulated_spans(played, Colour.CLASS))
    assert [(span.stream, span.group, span.external) for span in lower] == [
        (span.stream, span.group, span.external) for span in upper
    ]
    assert all(abs(a.start_ns - b.start_ns) < 50 for a, b in zip(lower, upper, strict=True))
    assert sorted(point.at_ns for point in start_errors(played, Colour.CLASS)) == [0, 0, 140_000, 200_020]
    assert {span.group for span in recorded_spans(imported, Colour.OPERATOR) if not span.external} == {"Add"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(None, None), ("1ms..2ms", (1_000_000, 2_000_000)), ("5 us, 7 us", (5_000, 7_000))],
)
def test_a_part_is_two_times(text: str | None, wanted: tuple[int, int] | None) -> None:
    assert parse_between(text) == wanted


def test_errors_of_segments_are_those_of_long_ones() -> None:
    """Half of a microsecond is nobody's concern, neither in the median nor as the worst."""
    lengths = [(500, 1_000), (700, 100), (200_000, 202_000), (100_000, 100_000), (300_000, 299_700)]
    segments = tuple(Segment(1, 1, *pair) for pair in lengths)
    comparison = SimpleNamespace(segments=segments)
    played = SimpleNamespace(name="all", replay=SimpleNamespace(comparison=comparison))
    table = segment_table([played])  # type: ignore[list-item]
    cells = {str(column.header): next(iter(column.cells)) for column in table.columns}
    assert (cells["segments"], cells["median"], cells["worst"]) == ("5", "0.10%", "1.00%")


def test_a_caption_is_as_wide_as_the_terminal() -> None:
    """Twelve words of five letters and blanks: 71 columns, under a table of two."""
    table = plain_table("t", "a")
    table.add_row("1")
    table.caption = " ".join(["words"] * 12)
    console = Console(width=80, file=StringIO())
    show_table(console, table)
    assert console.file.getvalue().splitlines()[-1].rstrip() == table.caption  # type: ignore[attr-defined]


# --- optimise -----------------------------------------------------------------------------------------


def test_optimise_says_the_gain_beside_the_error() -> None:
    result = call("optimise", "one_910b2.csv", "--schedulers", "reference")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for words in (
        "its replay in the simulator", "dependencies are recorded", "as recorded", "reference",
        "over the simulated replay of the recording, not over the recording itself",
        "the simulator's own error here is", "What bounds", "lower bound",
    ):  # fmt: skip
        assert words in text
    assert "Gain" not in text


@pytest.mark.parametrize("event", [None, "7"])
def test_a_gain_over_guessed_edges_says_so(event: str | None) -> None:
    """Without the event between the two streams of a 910A its 18.7 us to wake are gained.

    ```
    1  |a 100| record
    2               wait |b 50
    ```
    """
    costs = load_device("ascend910a").dispatch
    record_us = (100_000 + costs.gap_ns) / 1000
    wait_us = record_us + (costs.record_ns + costs.wake_ns) / 1000
    start_us = wait_us + (costs.wait_ns + costs.gap_ns) / 1000
    made = recorded(
        task("a", 1, 0, 100),
        task("r", 1, record_us, costs.record_ns / 1000, TaskKind.RECORD, event=event),
        task("w", 2, wait_us, 0, TaskKind.WAIT, event=event),
        task("b", 2, start_us, 50),
    )
    found = optimise(made, load_device("ascend910a"), Asked(schedulers=("reference",)))
    words = "Gain:" if event else "Gain, if the guessed edges between streams (1) are all there are:"
    assert f"{words}[/green] reference is 18.60 us" in promise(found, guessed=False)


def test_a_gain_by_another_submission_needs_a_host_that_fast() -> None:
    """The host launched b 300 us after a had ended; handed over beforehand, nothing waits for it."""
    made = recorded(task("a", 2, 0, 100, launch_us=-10), task("b", 2, 400, 100, launch_us=390))
    sink = Asked(schedulers=("reference",), submission=Submission.SINK)
    words = promise(optimise(made, load_device("ascend910a"), sink), guessed=False)
    assert words.startswith("[green]Gain, if the host submits as fast as assumed:[/green]")


def test_guessed_dependencies_are_called_guesses() -> None:
    """Nothing that one of the three kernels writes is read by another: all may run at once."""
    words = ("one_910b2.csv", "--schedulers", "reference", "--dependencies", "inferred")
    text = " ".join(call("optimise", *words).stdout.split())
    assert "dependencies are inferred: GUESSED" in text
    assert "Gain, if the guessed dependencies hold and no delays come back: reference is 100.04 us" in text


def test_a_gain_in_json_is_against_the_simulated_baseline() -> None:
    words = ("one_910b2.csv", "--schedulers", "reference", "--dependencies", "inferred")
    found = data("optimise", *words)
    assert (found["guessed"], found["promised"], found["best"]) == (True, True, "reference")
    assert found["baseline_ns"] == 200_040
    assert found["gain_ns"] == found["baseline_ns"] - found["rows"][1]["makespan_ns"]


def test_within_the_error_nothing_is_promised_and_the_exit_code_is_zero(folder: Path) -> None:
    """Idle times of 4 us, too short to be delays, make the replay 8 us shorter than the recording."""
    short = [kernel("a", 0, 1), kernel("b", 5, 1, shape=20), kernel("c", 10, 1, shape=40)]
    write_tidy(folder / "short_910b2.csv", COLUMNS, short)
    words = ("short_910b2.csv", "--schedulers", "reference", "--dependencies", "inferred")
    result = call("optimise", *words)
    assert result.exit_code == 0
    assert "Nothing is promised" in result.stdout
    found = data("optimise", *words)
    assert found["promised"] is False
    assert 0 < found["gain_ns"] <= found["error_ns"]


def test_the_step_of_median_length_is_taken() -> None:
    assert typical_step(read_profile("three_910b2.csv")) == 2
    assert data("optimise", "three_910b2.csv", "--schedulers", "reference")["step"] == 2
    assert data("optimise", "three_910b2.csv", "--schedulers", "reference", "--step", "3")["step"] == 3


def test_optimise_writes_the_plan_of_the_best(folder: Path) -> None:
    words = ("one_910b2.csv", "--schedulers", "reference", "--dependencies", "inferred")
    found = data("optimise", *words, "--plan", "plan.json", "--trace", "t.json")
    plan = read_plan(folder / "plan.json")
    assert plan.makespan_ns == min(row["makespan_ns"] for row in found["rows"])
    source = json.loads((folder / "plan.json").read_text())["source"]
    assert (source["profile"], source["scheduler"], source["guessed"]) == ("one_910b2", "reference", True)
    assert (folder / "t.json").exists()


@pytest.mark.slow
def test_optimise_draws_the_replay_above_the_best(folder: Path) -> None:
    words = ("one_910b2.csv", "--schedulers", "reference", "--dependencies", "inferred")
    assert "Picture   p.svg" in call("optimise", *words, "--picture", "p.svg").stdout
    assert (folder / "p.svg").stat().st_size > 1000


def test_search_takes_a_number_of_schedules() -> None:
    found = data("optimise", "one_910b2.csv", "--schedulers", "search,reference", "--search", "20")
    assert [row["scheduler"] for row in found["rows"]] == ["as recorded", "reference", "search:20"]


# --- profiles as inputs of the other verbs ------------------------------------------------------------


def test_run_and_compare_take_a_profile() -> None:
    (row,) = data("run", "one_910b2.csv", "--scheduler", "reference")["rows"]
    assert (row["device"], row["valid"]) == ("ascend910b2", True)
    assert row["makespan_ns"] == pytest.approx(240_020, abs=100)
    rows = data("compare", "three_910b2.csv", "--schedulers", "reference,heft", "--instances", "3")["rows"]
    assert [(row["instance"], row["scheduler"]) for row in rows] == [
        (i, name) for i in range(3) for name in ("reference", "heft")
    ]
    assert [row["makespan_ns"] for row in rows[::2]] == pytest.approx([100_000, 60_020, 30_000], abs=50)


def test_a_profile_takes_a_device_but_nothing_of_models() -> None:
    (row,) = data("run", "nameless.csv", "--device", "ascend910b4")["rows"]
    assert row["device"] == "ascend910b4"
    assert "--batch applies to models" in one_line(call("run", "one_910b2.csv", "--batch", "3"))
    assert "--instances is 4" in one_line(call("compare", "three_910b2.csv", "--instances", "4"))


def test_a_trace_is_told_from_a_job_shop(folder: Path) -> None:
    (folder / "trace.json").write_text('{"traceEvents": []}')
    (folder / "shop.json").write_text('{"shop": {"jobs": 1}}')
    names = ("trace.json", "shop.json", "one_910b2.csv", "missing.csv", ".")
    assert [name for name in names if is_profile(name)] == ["trace.json", "one_910b2.csv"]
