"""Runs notebooks in fresh kernels: for the test, and to write the outputs that are shipped.

``python tests/notebook_runs.py`` makes each ``.ipynb`` anew from its text page; with names behind it, those
whose file name begins with one of them.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"

VARIES = "varies"
"""Tag of a cell whose text is not the same on every machine."""


def page_of(path: Path) -> Any:
    """The text page of a notebook as a notebook without outputs; the same page gives the same notebook."""
    import jupytext

    notebook = jupytext.read(path.with_suffix(".py"))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
    return notebook


def run(notebook: Any) -> Any:
    """Run all cells in the notebooks' folder; the same notebook, which now holds what they showed."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=600, startup_timeout=600, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    ).execute()  # fmt: skip
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    notebook.metadata.pop("language_info", None)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Text that was printed in one go and arrived in pieces, as one output again."""
    found: list[Any] = []
    for output in outputs:
        printed = output.output_type == "stream"
        if printed and found and found[-1].output_type == "stream" and found[-1].name == output.name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def texts(cell: Any) -> list[str]:
    """What a code cell shows as text or as a table; a picture counts as a word, for it hangs on fonts."""
    found: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
            continue
        data = output.get("data", {})
        if "image/png" in data:
            found.append("picture")
        else:
            found.append(data.get("text/markdown") or data.get("text/html") or data.get("text/plain", ""))
    return found


def _kernel_seconds() -> float:
    """Time of processors that kernels which have ended used."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def main(names: list[str]) -> None:
    import nbformat

    for path in sorted(FOLDER.glob("[0-9]*.py")):
        if names and not any(path.stem.startswith(name) for name in names):
            continue
        began, used = perf_counter(), _kernel_seconds()
        notebook = run(page_of(path))
        target = path.with_suffix(".ipynb")
        nbformat.write(notebook, target)
        seconds, busy, kilobytes = (
            perf_counter() - began,
            _kernel_seconds() - used,
            target.stat().st_size // 1024,
        )
        print(f"{target.name}: {seconds:.0f} s, {busy:.0f} s of them computing, {kilobytes} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
