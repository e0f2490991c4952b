"""``cann-env run --trace``: a file for Perfetto, a folder for MindStudio Insight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cann_env.cli.app import app
from cann_env.replay import read_trace

if TYPE_CHECKING:
    from pathlib import Path

PIPES = """
[scenario]
name = "two pipes"
description = "Two batches through one core."
device = "ascend310b1"
[workload]
kind = "pipeline"
batches = 2
input_bytes = "1 MiB"
output_bytes = "1 MiB"
flops = 1000000
[options]
streams = 2
"""


def run(path: Path, trace: str) -> tuple[int, str]:
    scenario = path / "pipes.toml"
    scenario.write_text(PIPES, encoding="utf-8")
    options = ["--scheduler", "single_stream", "--no-files", "--trace", str(path / trace)]
    result = CliRunner().invoke(app, ["run", "--scenario", str(scenario), *options])
    return result.exit_code, " ".join(result.output.split())


def test_the_ending_of_the_name_decides_the_form(tmp_path: Path) -> None:
    for name in ("t.json", "t_ascend_pt", "t_ascend_pt"):
        code, text = run(tmp_path, name)
        assert (code, "MindStudio Insight" in text) == (0, True)
    assert read_trace(tmp_path / "t.json") == read_trace(tmp_path / "t_ascend_pt")
    inner = tmp_path / "t_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    assert sorted(path.name for path in inner.iterdir()) == ["kernel_details.csv", "trace_view.json"]
    assert isinstance(json.loads((inner / "trace_view.json").read_text(encoding="utf-8")), list)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("no/t_ascend_pt", "its folder does not exist"),
        ("file_ascend_pt", "would be a folder, but there is a file of that name"),
    ],
)
def test_folders_that_cannot_be_made_are_refused_before_the_work(
    tmp_path: Path, trace: str, words: str
) -> None:
    (tmp_path / "file_ascend_pt").write_text("", encoding="utf-8")
    code, text = run(tmp_path, trace)
    assert code == 2
    assert words in text
