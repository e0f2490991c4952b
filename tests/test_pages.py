"""The documentation: every block of every page runs; pages that are written by commands are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pages import ROOT, Block, blocks, commands, run_page

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    if any(block.language in ("python", "console") for block in blocks(path.read_text("utf-8")))
)
NEEDS = dict.fromkeys(("docs/agents.md", "docs/learning.md", "docs/howto/researcher.md"), "sb3_contrib")
"""Pages that need an extra."""


@pytest.fixture(scope="module")
def tools() -> Iterator[Any]:
    """The folders of the commands behind the pages, on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "pictures"))
        patch.syspath_prepend(str(DOCS / "tools"))
        yield patch


# --- blocks -------------------------------------------------------------------------------------------


def test_blocks_are_found_with_titles_and_output() -> None:
    text = "a\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n"
    text += '```toml title="x.toml"\ny = 2\n```\n\n```\nnone\n```\n'
    assert blocks(text) == [
        Block("python", "", "print(1)\n", "1\n"),
        Block("toml", "x.toml", "y = 2\n", "none\n"),
    ]
    assert commands("$ a b\nout\n$ c \\\n  d\n") == [("a b", "out"), ("c    d", "")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nprint(1)\n```\n\n```\n2\n```\n", "prints"),
        ("```python\nprint(1)\n```\n", "prints"),
        ("```console\n$ cann-env nothing\n```\n", "ends with 2"),
        ("```console\n$ rm everything\n```\n", "a page may call"),
    ],
)
def test_a_page_that_is_wrong_is_found(text: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        run_page(text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    done = subprocess.run(
        [sys.executable, "-W", "error:::cann_env", str(ROOT / "tests" / "pages.py"), str(ROOT / page)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


# --- the model ----------------------------------------------------------------------------------------


def test_every_number_of_the_model_is_on_its_page(tools: Any) -> None:
    """The command compares each with the engine, and stops where they differ."""
    import draw_model

    lines = [line.partition(": ") for line in draw_model.figures()]
    assert len(lines) > 70
    for where, _, line in lines:
        page, name = where.split(", ")
        text = (DOCS / "model" / f"{page}.md").read_text("utf-8")
        (part,) = [p for p in text.split("![") if f"(../pictures/model/{name}.png)" in p]
        assert f"\n* {line}\n" in part + "\n", f"{page}.md, {name}: {line}"


def test_pages_of_the_model_say_nothing_that_the_command_does_not_print(tools: Any) -> None:
    import draw_model

    printed = {line.partition(": ")[2] for line in draw_model.figures()}
    for page in draw_model.PAGES:
        said = re.findall(r"^\* (.*\d ns)$", (DOCS / "model" / f"{page}.md").read_text("utf-8"), re.MULTILINE)
        assert said
        assert set(said) <= printed


def test_a_wrong_number_of_the_model_is_found(tools: Any) -> None:
    import model_rules
    import model_streams

    good = model_streams.EXAMPLES[0]
    wrong = model_rules.Hand("`a` ends", "10 + 101", model_rules.ends("a"))
    planted = model_rules.Example(good.name, good.play, (wrong,))
    with pytest.raises(ValueError, match="10 \\+ 101 = 111, the engine says 110"):
        list(model_rules.lines(planted))


def test_schedules_of_the_model_pass_the_judge(tools: Any) -> None:
    import draw_model

    from cann_env.validate import validate

    for examples in draw_model.PAGES.values():
        for example in examples:
            assert validate(example.play()) == (), example.name


def test_pictures_of_the_model_are_those_of_its_command(tools: Any) -> None:
    import draw_model

    names = {example.name for examples in draw_model.PAGES.values() for example in examples}
    assert {path.stem for path in draw_model.FOLDER.glob("*.png")} == names


@pytest.mark.slow
def test_every_picture_of_the_model_is_drawn(tools: Any, tmp_path: Path) -> None:
    import draw_model

    for examples in draw_model.PAGES.values():
        for example in examples:
            assert draw_model.draw(example, tmp_path).read_bytes().startswith(b"\x89PNG")


# --- the environments ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_pages_of_the_environments_are_current(tools: Any) -> None:
    """``python docs/tools/environment_pages.py`` makes them so."""
    import environment_pages

    written = environment_pages.pages()
    for name, text in written.items():
        assert (DOCS / "environments" / name).read_text("utf-8") == text, name
    assert {path.name for path in (DOCS / "environments").glob("*.md")} == set(written)


def test_every_section_of_the_contract_is_on_the_overview(tools: Any) -> None:
    import environment_pages

    contract = environment_pages.sections()
    assert {"Action Space", "Observation Space", "Rewards", "Version History"} <= set(contract)
    text = environment_pages.overview()
    assert [name for name, part in contract.items() if part not in text] == []


@pytest.mark.slow
def test_pictures_of_the_environments_are_drawn(tools: Any, tmp_path: Path) -> None:
    import environment_pages

    for env_id in environment_pages.ENVIRONMENTS:
        path = environment_pages.draw(env_id, tmp_path)
        assert path.read_bytes().startswith(b"\x89PNG")
        assert (DOCS / "pictures" / "environments" / path.name).exists()
