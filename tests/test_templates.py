"""Files to start from: no key is missing, all have a meaning, and they load and run as they stand."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cann_env.cli.app import app
from cann_env.device import device_names, load_device
from cann_env.device.keys import KEYS
from cann_env.docstrings import notes_of
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler
from cann_env.templates import device_template, scenario_template
from cann_env.templates.device import meaning
from cann_env.templates.scenario import meanings
from cann_env.validate import validate
from cann_env.workloads.kernels import Traits
from cann_env.workloads.kinds import KINDS
from cann_env.workloads.serving import ArrivalProcess

BIG = {"training_resnet", "training_transformer", "training", "transformer"}
"""Kinds whose defaults make large graphs."""


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80", "NO_COLOR": "1"})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_and_shown(text: str) -> set[str]:
    """Dotted names of all keys of a file, those in comments too."""
    found, table = set(), ""
    for line in text.splitlines():
        header = re.fullmatch(r"\[\[?([\w.]+)\]?\]", line)
        key = re.fullmatch(r"(?:# )?([\w.]+) = .+", line)
        if header:
            table = header[1]
        elif key:
            found.add(f"{table}.{key[1]}".lstrip("."))
    return found


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in BIG else []) for kind in KINDS]
)
def test_a_scenario_of_every_kind_runs_as_it_stands(kind: str) -> None:
    if kind.startswith("onnx"):
        pytest.importorskip("onnx")
    result = call("new", "scenario", "mine", "--kind", kind)
    assert result.exit_code == 0, result.output
    scenario = load_scenario("mine.toml")
    assert scenario.workload.kind == kind
    assert scenario.options == RunOptions()
    schedule = run_scheduler(
        compile_graph(scenario.graph(), scenario.device, scenario.options), "round_robin"
    )
    assert validate(schedule) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_of_a_scenario_is_missing_or_without_a_meaning(kind: str) -> None:
    text = scenario_template("mine", kind)
    keys = set_and_shown(text)
    assert {f"options.{each.name}" for each in fields(RunOptions)} <= keys
    tables = set(re.findall(r"^\[\[?([\w.]+)\]", text, flags=re.MULTILINE))
    for each in fields(KINDS[kind]):
        assert f"workload.{each.name}" in keys | tables, each.name
        assert meanings(KINDS[kind])[each.name]
    assert max(map(len, text.splitlines())) <= 110
    assert "None" not in text
    assert ":class:" not in text and "``" not in text


def test_nested_tables_are_written_out() -> None:
    keys = set_and_shown(scenario_template("mine", "layered"))
    assert {f"workload.traits.{each.name}" for each in fields(Traits)} <= keys
    keys = set_and_shown(scenario_template("mine", "serving"))
    assert {f"workload.arrivals.{each.name}" for each in fields(ArrivalProcess)} <= keys


def test_every_option_may_be_switched_on_as_it_is_shown() -> None:
    text = scenario_template("mine")
    for each in fields(RunOptions):
        changed, count = re.subn(rf"^# ({each.name} = )", r"\1", text, flags=re.MULTILINE)
        assert count == 1
        Path("mine.toml").write_text(changed, encoding="utf-8")
        given = tomllib.loads(changed)["options"][each.name]
        found = getattr(load_scenario("mine.toml").options, each.name)
        default = getattr(RunOptions(), each.name)
        assert found == default if default is not None else found is not None, (each.name, given)


@pytest.mark.parametrize("like", device_names())
def test_a_device_like_every_shipped_one_is_equal_to_it_but_for_who_vouches(like: str) -> None:
    result = call("new", "device", "chip", "--like", like)
    assert result.exit_code == 0, result.output
    shipped, mine = load_device(like), load_device("chip.toml")
    assert replace(mine, name="", title="", sources={}, calibrated=True) == replace(
        shipped, name="", title="", sources={}, calibrated=True
    )
    assert {source.kind for source in mine.sources.values()} == {"assumed"}
    assert not mine.calibrated
    run = call("run", "random", "--device", "chip.toml", "--no-files", "--scheduler", "round_robin")
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize("like", device_names())
def test_no_key_of_a_device_is_missing(like: str) -> None:
    text = device_template("chip", like)
    assert set(KEYS) <= set_and_shown(text)
    assert max(len(line) for line in text.splitlines() if line.startswith("# ")) <= 110 + 60
    assert "``" not in text


def test_every_key_of_a_device_has_a_meaning() -> None:
    for path in KEYS:
        assert meaning(path), path
    assert meaning("memory.fault") == "Latency of one page fault."
    assert meaning("host.sync") == "Returns from a wait for the device."


def test_keys_that_a_device_leaves_out_may_be_switched_on() -> None:
    text = device_template("chip", "ascend310b1")
    changed = re.sub(r"^# ([\w.]+ = \{)", r"\1", text, flags=re.MULTILINE)
    assert changed != text
    Path("chip.toml").write_text(changed, encoding="utf-8")
    device = load_device("chip.toml")
    assert device.classes["cube"].flops_per_cycle["bfloat16"] == 1
    assert set(device.sources) == set(KEYS)


def test_a_file_that_is_there_is_not_overwritten(folder: Path) -> None:
    for what in ("scenario", "device"):
        Path("mine.toml").write_text("precious", encoding="utf-8")
        for name in ("mine", "mine.toml"):
            result = call("new", what, name)
            assert result.exit_code == 2
            assert "'mine.toml' is there already" in result.stderr
        assert Path("mine.toml").read_text("utf-8") == "precious"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scenario", "no/mine"], "its folder does not exist"),
        (["scenario", ""], "is empty"),
        (["device", ".toml"], "is empty"),
        (["scenario", "mine", "--device", "ascend910"], "device 'ascend910' is not known; did you mean"),
        (["scenario", "mine", "--device", "chip.toml"], "chip.toml: cannot be read"),
        (["scenario", "mine", "--kind", "x"], "kind 'x' is not known; write one of chain"),
        (["device", "mine", "--like", "x"], "device 'x' is not known; write one of"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    words: list[str], said: str, folder: Path
) -> None:
    result = call("new", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(folder.iterdir()) == []


def test_a_device_of_ones_own_may_stand_in_a_scenario_beside_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    assert call("new", "device", "sub/chip").exit_code == 0
    assert call("new", "scenario", "sub/mine", "--device", "chip.toml").exit_code == 0
    assert load_scenario("sub/mine.toml").device.name == "chip"


def test_docstrings_are_read_entry_by_entry() -> None:
    def example() -> None:
        """A function.

        Args:
            one, two: Both of them,
                on two lines.
            three: See :func:`~a.b.c`, or ``d``.

        Returns:
            four: Not an argument.
        """

    assert notes_of(example) == {
        "one": "Both of them, on two lines.",
        "two": "Both of them, on two lines.",
        "three": "See c, or d.",
    }
