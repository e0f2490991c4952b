"""The notebooks: committed without outputs, equal to their text pages, and they run from top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
PAGES = sorted(FOLDER.glob("*.ipynb"))


def cells_of(path: Path) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def leftovers(notebook: Any) -> list[str]:
    """What a run has left in the code cells of a notebook."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.source for cell in code if cell.outputs or cell.execution_count is not None]


def test_every_text_page_has_its_notebook() -> None:
    assert PAGES
    assert [path.stem for path in PAGES] == [path.stem for path in sorted(FOLDER.glob("*.py"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_equals_its_text_page_and_carries_no_outputs(path: Path) -> None:
    """``jupytext --sync notebooks/*.ipynb`` makes the two equal, the newer one wins."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert cells_of(path) == cells_of(path.with_suffix(".py"))
    assert leftovers(notebook) == []


def test_planted_outputs_are_found() -> None:
    output = nbformat.v4.new_output("stream", text="1")
    cell = nbformat.v4.new_code_cell("print(1)", outputs=[output])
    counted = nbformat.v4.new_code_cell("2", execution_count=1)
    clean = nbformat.v4.new_code_cell("3")
    assert leftovers(nbformat.v4.new_notebook(cells=[cell, counted, clean])) == ["print(1)", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_fresh_kernel(path: Path) -> None:
    """Every code cell runs, without a warning, and each picture and table is really shown."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    complaints = [out.text for cell in code for out in cell.outputs if out.get("name") == "stderr"]
    assert complaints == []
    for call, kind in (("gantt(", "image/png"), ("table(", "text/markdown")):
        for cell in code:
            if cell.source.splitlines()[-1].startswith(call):
                assert any(kind in output.get("data", ()) for output in cell.outputs), cell.source
