"""Help texts: every example in them runs; -h, --version, completion, and the page that is printed of them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import cann_env
from cann_env.acl.plans.export import FORMS
from cann_env.cli.app import app
from cann_env.cli.page import help_of, page, verbs
from cann_env.device import device_names
from cann_env.scenario import scenario_names
from cann_env.schedulers import PREFETCHERS, SCHEDULERS
from cann_env.suite import suite_names
from cann_env.workloads.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
VERBS = list(verbs())
LONG = {(), ("compare",), ("explain",), ("scenarios",)}
"""Verbs with an example that takes more than a moment."""


def call(*words: str, columns: int = 80) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def examples(words: tuple[str, ...]) -> list[list[str]]:
    """The commands in the help of a verb."""
    lines = [line.strip() for line in help_of(words, 300).splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("cann-env ")]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            words, marks=[pytest.mark.slow] if words in LONG else [], id=" ".join(words) or "cann-env"
        )
        for words in VERBS
    ],
)
def test_every_example_in_a_help_text_runs(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    found = examples(words)
    assert found
    for command in found:
        if "squeezenet" in command:
            pytest.importorskip("onnx")
        if "--gantt" in command:
            pytest.importorskip("matplotlib")
        result = call(*command)
        assert result.exit_code == 0, (command, result.output)
    if words and words != ("new",):
        assert any(tuple(command[: len(words)]) == words for command in found)


def test_an_example_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", "piepline").exit_code == 2


def test_every_verb_has_a_help_that_fits_and_says_what_options_are_for() -> None:
    for words in VERBS:
        text = help_of(words, 80)
        body = text.partition("Examples\n")[0]
        assert max(map(len, body.splitlines())) <= 80
        assert text == help_of(words, 80)
        short = call(*words, "-h").stdout
        assert short.split() == call(*words, "--help").stdout.split()


def test_verbs_stand_in_panels() -> None:
    text = help_of(())
    for title in ("Run and understand", "Profiles of real runs", "Programs for the device", "What there is"):
        assert title in text
    assert text.index("Run and understand") < text.index("explain ") < text.index("Profiles of real runs")


def test_without_a_verb_the_help_is_shown_and_nothing_is_wrong() -> None:
    result = call()
    assert result.exit_code == 0
    assert "cann-env scenarios" in result.stdout
    assert result.stdout.split() == call("--help").stdout.split()


def test_version() -> None:
    assert call("--version").stdout == f"cann-env {cann_env.__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["comapre"], "Did you mean 'compare'?"),
        (["new", "scenaro", "x"], "Did you mean 'scenario'?"),
        (["run", "--schedulr", "x"], "--scheduler"),
        (["run", "pipelin"], "did you mean 'pipeline'?"),
        (["run", "pipeline", "--device", "ascend910b9"], "did you mean 'ascend910b"),
        (["run", "pipeline", "--scheduler", "nimbel"], "did you mean 'nimble'?"),
        (["run", "pipeline", "--scheduler", "eager+agressive"], "did you mean 'eager+aggressive'?"),
        (["run", "pipeline", "--submission", "egaer"], "Did you mean 'eager'?"),
        (["compare", "--suite", "smok"], "did you mean 'smoke'?"),
        (["export", "pipeline", "--form", "acll"], "did you mean 'acl'?"),
        (["new", "scenario", "x", "--kind", "servin"], "did you mean 'serving'?"),
        (["new", "device", "x", "--like", "ascend310p"], "did you mean 'ascend310p"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(
    words: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*words, columns=200)
    assert result.exit_code == 2
    assert meant in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


# --- completion ---------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash is offered behind some words, of which the last is being typed."""
    line = " ".join(("cann-env", *words))
    env = {
        "_CANN_ENV_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
    }
    return CliRunner().invoke(app, [], prog_name="cann-env", env=env).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--scenario", "pipe"), ["pipeline"]),
        (("run", "serving_onnx_"), ["serving_onnx_cold"]),
        (("run", "--scenario", ""), list(scenario_names())),
        (("run", "--device", "ascend310p"), ["ascend310p1", "ascend310p3"]),
        (("compare", "--device", ""), list(device_names())),
        (("run", "--scheduler", "nim"), ["nimble", "nimble_fewest"]),
        (("run", "--scheduler", ""), list(SCHEDULERS)),
        (("explain", "pipeline", "--scheduler", "eager+"), [f"eager+{name}" for name in PREFETCHERS]),
        (("compare", "--schedulers", "reference,nim"), ["reference,nimble", "reference,nimble_fewest"]),
        (("compare", "--schedulers", "al"), ["all"]),
        (("compare", "--suite", ""), list(suite_names())),
        (("compare", "--baseline", "opara_"), ["opara_overlap"]),
        (("replay", "--device", "ascend910_"), ["ascend910_93"]),
        (("optimise", "x", "--schedulers", "sing"), ["single_stream"]),
        (("export", "--form", ""), list(FORMS)),
        (("new", "scenario", "x", "--kind", ""), list(KINDS)),
        (("new", "device", "x", "--like", "ascend910a"), ["ascend910a"]),
        (("run", "--set", "pool_b"), ["pool_bytes=", "pool_block_bytes="]),
        (("comp",), ["compare"]),
        (("check", "plan.py", "--device", "ascend910b4"), ["ascend910b4"]),
    ],
)
def test_values_are_completed_in_bash(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_options_are_completed() -> None:
    assert completed("run", "--sched") == ["--scheduler"]


def test_the_script_for_bash_asks_the_command(tmp_path: Path) -> None:
    """As a shell asks: a process of its own, with the variable in its environment."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_CANN_ENV_COMPLETE": "complete_bash"}
    env |= {"COMP_WORDS": "cann-env run --scenario pipe", "COMP_CWORD": "3"}
    code = "from cann_env.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["pipeline"], done.stderr
    script = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "_CANN_ENV_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "_CANN_ENV_COMPLETE" in script
    assert "cann-env" in script


# --- the page -----------------------------------------------------------------------------------------


def test_the_page_is_that_of_the_live_help() -> None:
    """If not: ``python -m cann_env.cli.page > docs/cli.md``."""
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == page()


def test_the_page_has_every_verb() -> None:
    text = page()
    for words in VERBS:
        assert f"\n## `{' '.join(('cann-env', *words))}`\n" in text
