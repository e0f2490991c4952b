"""The benchmark of fidelity on made-up recordings: exact where they are, and honest where they are not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import write_tidy

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
COLUMNS = "stream task_id type name start_us dur_us block_dim"


@pytest.fixture
def fidelity(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fidelity")


def write(folder: Path, name: str, idle_us: float) -> None:
    """Kernels of one stream of a 910A, each 0.11 us behind the one before it, the last ``idle_us`` later."""
    start, rows = 0.0, []
    for i in range(8):
        start += idle_us if i == 7 else 0.0
        rows.append([2, i, "AI_CORE", f"k{i}", round(start, 3), 10, 32])
        start += 10.11
    write_tidy(folder / f"{name}.csv", COLUMNS, rows)


def test_idle_time_is_error_while_it_is_short_and_pinned_once_it_is_long(
    fidelity: Any, tmp_path: Path
) -> None:
    for name, idle_us in (("none_910A", 0.0), ("short_910A", 4.0), ("long_910A", 400.0)):
        write(tmp_path, name, idle_us)
    tables = fidelity.measure(tmp_path, ("replay", "artefacts"), lambda _: None)
    rows = {row.recording: row for row in tables["replay"]}
    assert rows["none_910A"].error == 0.0
    assert rows["none_910A"].pinned == 0.0
    assert rows["short_910A"].error == pytest.approx(-100 * 4 / 84.77, abs=0.01)
    assert rows["short_910A"].pinned == 0.0
    assert rows["long_910A"].error == pytest.approx(0.0, abs=0.03)
    assert rows["long_910A"].pinned == pytest.approx(100 * 400 / 480.77, abs=0.1)
    assert [row.profiler for row in tables["artefacts"]] == [0.0, 0.0, 0.0]


def test_runs_of_one_program_lend_each_other_their_edges(fidelity: Any, tmp_path: Path) -> None:
    write(tmp_path, "one_910A", 400.0)
    write(tmp_path, "two_910A", 300.0)
    rows = fidelity.measure(tmp_path, ("replay",), lambda _: None)["replay"]
    assert {row.recording: round(row.borrowed) for row in rows} == {"one_910A": -21, "two_910A": 26}
