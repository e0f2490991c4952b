"""The notebooks: equal to their text pages, shipped with what they show, and showing that again when run."""

from __future__ import annotations

import base64
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")

from notebook_runs import FOLDER, VARIES, page_of, run, texts  # noqa: E402

PAGES = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 1 << 20
NEEDS = {"onnx": "onnx", "agents": "sb3_contrib"}
"""What a page imports that not every installation has: the name in its imports, and the package behind it."""


def cells_of(path: Path) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def faults(notebook: Any) -> list[str]:
    """What a shipped notebook must not have: cells out of order, errors, complaints, empty pictures."""
    code = code_of(notebook)
    found = []
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("not run from top to bottom")
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                found.append(f"{output.output_type}: {cell.source}")
            picture = output.get("data", {}).get("image/png")
            if picture is not None and len(base64.b64decode(picture)) < 1000:
                found.append(f"empty picture: {cell.source}")
        last = cell.source.splitlines()[-1] if cell.source else ""
        for call, kind in (("gantt(", "image/png"), ("table(", "text/markdown")):
            if last.startswith(call) and not any(kind in output.get("data", ()) for output in cell.outputs):
                found.append(f"nothing shown: {last}")
    return found


def differences(shipped: Any, fresh: Any) -> list[str]:
    """Cells whose text is another one than that which was shipped; those that may vary are passed over."""
    return [
        f"{old.source}\n--- shipped\n{texts(old)}\n--- now\n{texts(new)}"
        for old, new in zip(code_of(shipped), code_of(fresh), strict=True)
        if VARIES not in old.metadata.get("tags", ()) and texts(old) != texts(new)
    ]


def test_every_text_page_has_its_notebook() -> None:
    assert PAGES
    assert [path.stem for path in PAGES] == [path.stem for path in sorted(FOLDER.glob("*.py"))]


def test_pages_are_numbered_and_listed() -> None:
    """The list names each page once, in order, and each title carries its number."""
    listed = re.findall(r"\]\((\d\d_\w+)\.ipynb\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.stem for path in PAGES]
    for number, path in enumerate(PAGES, start=1):
        assert path.stem.startswith(f"{number:02}_")
        assert cells_of(path)[0][1].startswith(f"# {number}. ")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_equals_its_text_page(path: Path) -> None:
    """``python tests/notebook_runs.py`` makes a notebook of its page anew."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert cells_of(path) == cells_of(path.with_suffix(".py"))
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_is_shipped_with_what_it_shows(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert faults(notebook) == []
    pictures = [
        out for cell in code_of(notebook) for out in cell.outputs if "image/png" in out.get("data", ())
    ]
    assert pictures


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_asks_and_lets_try(path: Path) -> None:
    """Each page begins with its question and ends with exercises whose answers can be folded."""
    prose = [source for kind, source in cells_of(path) if kind == "markdown"]
    assert re.search(r"\*\*[^*]+\?\*\*", prose[0])
    assert "## Exercises" in prose[-1]
    assert "<details><summary>Answers</summary>" in prose[-1]
    assert prose[-1].count("```") % 2 == 0


def test_planted_faults_are_found() -> None:
    new = nbformat.v4.new_code_cell
    said = nbformat.v4.new_output("stream", text="1\n")
    complaint = nbformat.v4.new_output("stream", name="stderr", text="careful")
    picture = nbformat.v4.new_output("display_data", data={"image/png": base64.b64encode(b"small").decode()})
    cells = [
        new("print(1)", outputs=[said], execution_count=1),
        new("warn()", outputs=[complaint], execution_count=2),
        new("gantt(a)", execution_count=3),
        new("draw()", outputs=[picture], execution_count=5),
    ]
    assert faults(nbformat.v4.new_notebook(cells=cells)) == [
        "not run from top to bottom",
        "stream: warn()",
        "nothing shown: gantt(a)",
        "empty picture: draw()",
    ]
    assert faults(nbformat.v4.new_notebook(cells=cells[:1])) == []


def test_planted_differences_are_found() -> None:
    """Another text is found, another picture is not, and neither is what may vary."""

    def notebook(text: str, picture: str) -> Any:
        outputs = [
            nbformat.v4.new_output("stream", text=text),
            nbformat.v4.new_output("display_data", data={"image/png": picture, "text/plain": picture}),
        ]
        cells = [nbformat.v4.new_code_cell(name, outputs=outputs) for name in ("fixed", "varying")]
        cells[1].metadata["tags"] = [VARIES]
        return nbformat.v4.new_notebook(cells=cells)

    assert differences(notebook("1", "a"), notebook("1", "b")) == []
    (found,) = differences(notebook("1", "a"), notebook("2", "a"))
    assert found.startswith("fixed\n--- shipped\n['1', 'picture']\n--- now\n['2', 'picture']")


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_fresh_kernel(path: Path) -> None:
    """Every code cell runs without a warning, and says what the shipped notebook says."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    source = path.with_suffix(".py").read_text(encoding="utf-8")
    for name, package in NEEDS.items():
        if re.search(rf"^(import|from) {name}\b", source, re.MULTILINE) and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    fresh = run(page_of(path))
    assert faults(fresh) == []
    assert differences(nbformat.read(path, as_version=4), fresh) == []
