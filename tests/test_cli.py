"""The command line: what it prints, what it writes, how it refuses. Nothing here reads a terminal."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cann_env.cli import main, results, tables
from cann_env.cli.app import app
from cann_env.cli.results import geometric_mean
from cann_env.device import device_names, load_device
from cann_env.scenario import scenario_names
from cann_env.schedulers import ORDERS, PREFETCHERS, SCHEDULERS
from cann_env.validate import Violation

PIPES = """
[scenario]
name = "three pipes"
description = "Three batches through one core."
device = "ascend310b1"
[workload]
kind = "pipeline"
batches = 3
input_bytes = "1 MiB"
output_bytes = "1 MiB"
flops = 1000000
[options]
streams = 3
"""

DRAWN = """
[scenario]
name = "drawn"
description = "A few random layers."
device = "ascend910b2"
[workload]
kind = "layered"
commands = 8
width = 3
[options]
streams = 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test, with two small scenarios in it."""
    (tmp_path / "pipes.toml").write_text(PIPES, encoding="utf-8")
    (tmp_path / "drawn.toml").write_text(DRAWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the compiled engine once, so that no single test pays for it."""
    file = tmp_path_factory.mktemp("warm") / "pipes.toml"
    file.write_text(PIPES, encoding="utf-8")
    CliRunner().invoke(app, ["compare", str(file), "--json"])


def call(*words: str, columns: int = 80) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def first_words(text: str) -> list[str]:
    """The first word of each line."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def rows(*words: str) -> list[dict[str, Any]]:
    """The rows of ``--json``; fails if anything else was printed."""
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    data = json.loads(result.stdout)
    assert list(data) == ["rows"]
    return data["rows"]


def test_run_prints_figures_and_verdict_within_eighty_columns(folder: Path) -> None:
    result = call("run", "pipes.toml", "--no-files")
    assert result.exit_code == 0
    assert result.stderr == ""
    for words in (
        "three pipes on ascend310b1 (assumed), scheduler reference: 9 commands",
        "judge ok", "makespan", "lower bound", "single stream", "peak HBM", "Commands", "Utilisation",
        "Stall",
    ):  # fmt: skip
        assert words in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert sorted(path.name for path in folder.iterdir()) == ["drawn.toml", "pipes.toml"]


@pytest.mark.slow
def test_run_writes_the_files_it_names(folder: Path) -> None:
    result = call("run", "pipes.toml", "--scheduler", "single_stream", "--gantt", "g.svg")
    assert "three_pipes-single_stream.json" in result.stdout
    assert "g.svg" in result.stdout
    assert (folder / "g.svg").read_text(encoding="utf-8").startswith("<?xml")
    trace = json.loads((folder / "three_pipes-single_stream.json").read_text(encoding="utf-8"))
    assert trace["otherData"]["graph"] == "three pipes"
    assert not list(folder.glob("*.png"))


def test_run_in_json_writes_only_the_files_that_are_named(folder: Path) -> None:
    (row,) = rows("run", "--scenario", "pipes.toml", "--trace", "t.json")
    assert row["scheduler"] == "reference"
    assert sorted(path.name for path in folder.iterdir()) == ["drawn.toml", "pipes.toml", "t.json"]


@pytest.mark.slow
def test_run_without_matplotlib_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert 'left out: a Gantt chart needs Matplotlib: pip install "cann-env[plot]"' in " ".join(
        call("run", "pipes.toml").stdout.split()
    )
    asked_for = call("run", "pipes.toml", "--gantt", "g.png")
    assert asked_for.exit_code == 2
    assert "cann-env[plot]" in asked_for.stderr


def test_compare_json_has_one_row_for_each_scheduler_and_instance() -> None:
    found = rows("compare", "drawn.toml", "--schedulers", "reference,random", "--instances", "3")
    assert [(row["instance"], row["scheduler"]) for row in found] == [
        (i, name) for i in range(3) for name in ("reference", "random")
    ]
    assert len({row["lower_bound_ns"] for row in found}) == 3
    for row in found:
        assert row["input"] == "drawn"
        assert row["device"] == "ascend910b2"
        assert row["valid"] is True
        assert 1 <= row["lower_bound_ns"] <= row["makespan_ns"]
        assert row["gap"] == pytest.approx(row["makespan_ns"] / row["lower_bound_ns"] - 1)
        assert set(row["utilisation"]) >= {"aic", "aiv", "h2d", "d2h"}
        assert all(0 <= share <= 1 for share in (*row["utilisation"].values(), row["ai_core_busy"]))
        assert set(row["stall_ns"]) == {"event", "fault", "slot", "cores", "dma", "host"}
        assert row["peak_hbm_bytes"] > 0


def test_compare_sets_everything_against_a_single_stream() -> None:
    by_name = {row["scheduler"]: row for row in rows("compare", "pipes.toml", "--schedulers", "all")}
    assert list(by_name) == list(SCHEDULERS)
    single = by_name["single_stream"]["makespan_ns"]
    for row in by_name.values():
        assert row["ratio_to_single_stream"] == row["makespan_ns"] / single
    # Three streams overlap what one stream does one by one.
    assert by_name["reference"]["ratio_to_single_stream"] < 0.95


def test_compare_prints_geometric_means() -> None:
    names = ("compare", "drawn.toml", "--instances", "2", "--schedulers", "reference")
    ratios = [row["ratio_to_single_stream"] for row in rows(*names)]
    assert ratios[0] != ratios[1]
    text = call(*names).stdout
    assert "means over 2 instances" in text
    assert f"{math.sqrt(ratios[0] * ratios[1]):.3f}" in text


def test_geometric_mean() -> None:
    assert geometric_mean([2, 8]) == pytest.approx(4)
    assert geometric_mean([3.0, 0.0]) == 0


def test_compare_takes_several_inputs_and_fits_eighty_columns() -> None:
    result = call("compare", "pipes.toml", "--scenario", "drawn.toml", "--schedulers", "random,per_engine")
    assert result.exit_code == 0
    assert "three pipes on ascend310b1 (assumed), 9 commands" in result.stdout
    assert "drawn on ascend910b2" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_options_reach_the_run() -> None:
    words = ("run", "pipes.toml", "--scheduler", "single_stream", "--submission")
    (sink,), (eager,) = rows(*words, "sink"), rows(*words, "eager")
    (narrow,) = rows("run", "pipes.toml", "--streams", "1", "--scheduler", "round_robin")
    (other,) = rows("run", "pipes.toml", "--device", "ascend910b2")
    assert eager["makespan_ns"] > sink["makespan_ns"]
    assert narrow["ratio_to_single_stream"] == 1
    assert other["device"] == "ascend910b2"
    assert rows("run", "drawn.toml", "--seed", "1") != rows("run", "drawn.toml")
    assert rows("run", "drawn.toml", "--seed", "1") == rows("run", "drawn.toml", "--seed", "1")


@pytest.mark.slow
def test_a_model_runs_by_its_short_name() -> None:
    pytest.importorskip("onnx")
    words = ("run", "squeezenet", "--device", "ascend310p3", "--batch", "2", "--weights", "hbm")
    (half,) = rows(*words)
    (full,) = rows(*words, "--dtype", "float32")
    assert half["input"] == "squeezenet"
    assert half["makespan_ns"] < full["makespan_ns"]


WRONG = {
    "no input": (["run"], "one INPUT"),
    "two inputs": (["run", "pipes.toml", "--scenario", "drawn.toml"], "got 2"),
    "nothing to compare": (["compare"], "at least one"),
    "unknown input": (["run", "pipelin"], "'pipelin'"),
    "missing scenario file": (["run", "missing.toml"], "missing.toml"),
    "missing model": (["run", "missing.onnx", "--device", "ascend910b2"], "missing.onnx"),
    "model without device": (["run", "squeezenet"], "needs --device"),
    "unknown scheduler": (["run", "pipes.toml", "--scheduler", "best"], "'best'"),
    "unknown scheduler in a list": (["compare", "pipes.toml", "--schedulers", "random,"], "''"),
    "an order alone": (
        ["compare", "pipes.toml", "--schedulers", "eager"],
        "'eager' is an order of issue, which exists only joined with a prefetcher, e.g. 'eager+aggressive'",
    ),
    "a prefetcher alone": (["run", "pipes.toml", "--scheduler", "migration"], "e.g. 'eager+migration'"),
    "a prefetcher without slots": (
        ["run", "pipes.toml", "--scheduler", "eager+migration", "--prefetches", "0"],
        "option 'prefetches' is 0",
    ),
    "unknown device": (["run", "pipes.toml", "--device", "a100"], "'a100'"),
    "model option for a scenario": (["run", "pipes.toml", "--batch", "2"], "--batch"),
    "dimension without value": (["run", "m.onnx", "--dims", "height"], "'height'"),
    "dimension of no size": (["run", "m.onnx", "--dims", "height=0"], "'height=0'"),
    "weights nowhere": (["run", "m.onnx", "--weights", "disk"], "'disk'"),
    "dimension given twice": (["run", "m.onnx", "--dims", "n=4", "--dims", "n=5"], "'n' twice, 4 and 5"),
    "size without unit": (["run", "pipes.toml", "--hbm", "4"], "'4'"),
    "memory beyond all bounds": (
        ["run", "pipes.toml", "--hbm", "99999999999999999999TB", "--no-files"],
        "'hbm_bytes' is 99999999999999999999000000000000; write a whole number of at most 2**60",
    ),
    "streams beyond all bounds": (["run", "pipes.toml", "--streams", "4097"], "at most 4096"),
    "prefetches beyond all bounds": (["run", "pipes.toml", "--prefetches", "4097"], "at most 4096"),
    "no folder for the trace": (["run", "pipes.toml", "--trace", "no/t.json"], "no/t.json"),
    "picture of no kind": (["run", "pipes.toml", "--gantt", "g.xyz"], "g.xyz"),
    "instances of one graph": (["compare", "pipes.toml", "--instances", "2"], "--instances"),
    "too little memory": (["run", "pipes.toml", "--hbm", "1 KiB"], "[207001]"),
    "too many streams": (["run", "pipes.toml", "--streams", "4000"], "[207005]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_and_exit_code_two(case: str) -> None:
    words, expected = WRONG[case]
    result = call(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [["fly"], ["run", "--wings"], ["run", "pipes.toml", "--streams", "0"]])
def test_wrong_usage_is_exit_code_two(words: list[str]) -> None:
    assert call(*words).exit_code == 2


def test_a_violation_is_shown_and_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Violation("capacity", "two blocks on [one] core", (0,), 5)
    monkeypatch.setattr(results, "validate", lambda schedule: (planted,))
    run = call("run", "pipes.toml", "--no-files")
    assert run.exit_code == 1
    assert "judge 1 wrong" in run.stdout
    assert "capacity (reference, instance 0): two blocks on [one] core" in run.stdout
    compare = call("compare", "pipes.toml", "--json")
    assert compare.exit_code == 1
    assert not any(row["valid"] for row in json.loads(compare.stdout)["rows"])


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_help_lists_every_name_of_a_scheduler(verb: str) -> None:
    """However its lines are broken."""
    text = "".join(call(verb, "--help", columns=200).stdout.replace("│", " ").split())
    assert "ORDER+PREFETCHER" in text
    for names in (SCHEDULERS, ORDERS, PREFETCHERS):
        assert ",".join(names) in text


@pytest.mark.parametrize("verb", ["run", "compare"])
@pytest.mark.parametrize(("kept", "said"), [(True, ""), (False, "Compiling the engine, once; ")])
def test_the_first_use_says_that_it_compiles(
    kept: bool, said: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, apart from the results."""
    monkeypatch.setattr("cann_env.cli.printing.is_cached", lambda compiled: kept)
    result = call(verb, "pipes.toml", "--json")
    assert json.loads(result.stdout)
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == (not kept)


def test_devices_lists_every_device() -> None:
    text = call("devices").stdout
    assert all(name in text for name in device_names())
    assert max(map(len, text.splitlines())) <= 80


def test_devices_in_json() -> None:
    data = json.loads(call("devices", "--json").stdout)
    assert [device["name"] for device in data["devices"]] == list(device_names())
    assert all(device["hbm_bytes"] > 0 for device in data["devices"])


@pytest.mark.slow
def test_scenarios_states_the_headroom_of_each() -> None:
    data = json.loads(call("scenarios", "--json").stdout)["scenarios"]
    assert [row["scenario"] for row in data] == list(scenario_names())
    for row in data:
        assert row["single_over_bound"] >= 1
        assert row["reference_over_bound"] >= 1
        assert row["commands"] > 0
        assert row["description"]


def test_scenarios_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cann_env.cli.app.scenario_names", lambda: ("pipes.toml", "drawn.toml"))
    text = call("scenarios").stdout
    assert "pipes.toml" in text
    assert "single/bound" in text
    assert "A few random layers." in text
    assert max(map(len, text.splitlines())) <= 80


def test_devices_without_recordings_are_called_assumed_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all devices in their table, and of the device of a scenario in every table that names it."""
    lines = [line for line in call("devices").stdout.splitlines() if line.startswith("ascend")]
    assumed = {line.split()[0] for line in lines if "(assumed)" in line}
    assert assumed == {name for name in device_names() if not load_device(name).calibrated}
    monkeypatch.setattr("cann_env.cli.app.scenario_names", lambda: ("pipes.toml", "drawn.toml"))
    table = call("scenarios", columns=120).stdout
    assert "ascend310b1 (assumed)" in table
    assert "ascend910b2 (assumed)" not in table
    assert "on ascend310b1 (assumed)" in call("run", "pipes.toml", "--no-files").stdout
    assert "on ascend910b2," in call("run", "drawn.toml", "--no-files").stdout
    for name, calibrated in (("pipes.toml", False), ("drawn.toml", True)):
        assert rows("run", name)[0]["calibrated"] is calibrated


@pytest.mark.parametrize("columns", [60, 80])
def test_every_row_begins_with_its_whole_name_at_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a narrow terminal a table is cut into pieces, each with the column that says what a row is."""
    monkeypatch.setattr("cann_env.cli.app.scenario_names", lambda: ("pipes.toml", "drawn.toml"))
    for words, names, headers in (
        (["devices"], device_names(), ["aic/aiv/cpu", "bandwidth", "streams"]),
        (["scenarios"], ("pipes.toml", "drawn.toml"), ["device", "single/bound", "reference/bound"]),
        (
            ["compare", "pipes.toml", "--schedulers", "single_stream,random"],
            ("single_stream", "random"),
            ["AI core busy", "peak HBM", "judge", "host to device", "fault"],
        ),
    ):
        text = call(*words, columns=columns).stdout
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= columns
        assert set(names) <= set(first_words(text))
        assert [header for header in headers if header not in text] == []


def test_a_narrow_table_is_cut_into_pieces_that_keep_title_and_cells() -> None:
    """Widths 4, 6, 6: 4 + 2 + 6 fit into 12 columns, the third needs a piece of its own."""
    table = tables.plain_table("T", "name", "second", "thirds")
    table.add_row("a", "1", "[red]2[/red]")
    assert len(list(tables.pieces(table, 20))) == 1
    first, last = tables.pieces(table, 19)
    assert [[column.header, *column.cells] for column in first.columns] == [["name", "a"], ["second", "1"]]
    assert [[column.header, *column.cells] for column in last.columns] == [
        ["name", "a"],
        ["thirds", "[red]2[/red]"],
    ]
    assert (first.title, last.title) == ("T", "")
    assert len(list(tables.pieces(table, 3))) == 2


def test_without_its_libraries_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for missing in ("typer", "rich"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(SystemExit) as end:
                main()
        assert end.value.code == 2
        assert capsys.readouterr().err == (
            'The command line needs Typer and Rich: pip install "cann-env[cli]"\n'
        )


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "cann_env", "devices"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "ascend910b2" in done.stdout
    assert done.stderr == ""
