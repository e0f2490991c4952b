"""The site: built strictly, loads nothing from elsewhere, shows what pages link to in the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).resolve().parent.parent
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//[^\"'\s>]+", re.IGNORECASE
)
PLAIN = """
site_name: x
docs_dir: docs
theme: {name: material, font: false}
hooks: [docs/tools/source_pages.py]
exclude_docs: tools/
validation: {links: {not_found: warn, anchors: warn}}
"""


@pytest.fixture(scope="module")
def hook() -> Any:
    """The hook as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "tools"))
        import source_pages

        yield source_pages


def build(folder: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_loaded_from_elsewhere_is_found() -> None:
    assert LOADED.search('<script src="https://cdn.example/x.js">')
    assert LOADED.search("<link rel=stylesheet href=//fonts.example/x.css>")
    assert not LOADED.search('<a href="https://example.org">x</a><img src="pictures/x.png">')


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 50
    found = {page.name: LOADED.findall(page.read_text("utf-8")) for page in pages}
    assert {name: links for name, links in found.items() if links} == {}
    assert "class CannEnv" not in (tmp_path / "index.html").read_text("utf-8")
    assert "run_scheduler" in (tmp_path / "api" / "schedulers.html").read_text("utf-8")
    assert ":meth:" not in (tmp_path / "api" / "schedulers.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[there](other.md#a-heading) and [a file](../data.toml)", 0),
        ("[nowhere](../nothing.toml)", 1),
        ("[no page](missing.md)", 1),
        ("[no heading](other.md#no-such-heading)", 1),
    ],
)
def test_a_link_that_leads_nowhere_fails(tmp_path: Path, line: str, code: int) -> None:
    (tmp_path / "docs" / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "tools" / "source_pages.py", tmp_path / "docs" / "tools")
    (tmp_path / "mkdocs.yml").write_text(PLAIN, "utf-8")
    (tmp_path / "data.toml").write_text("x = 1\n", "utf-8")
    (tmp_path / "docs" / "index.md").write_text(f"# x\n\n{line}\n", "utf-8")
    (tmp_path / "docs" / "other.md").write_text("# y\n\n## A heading\n", "utf-8")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == code, built.stdout + built.stderr


def test_links_are_led_to_pages_of_the_site(hook: Any) -> None:
    known = {"memory.md", "howto/engineer.md"}
    rest = "[c](https://x.org/a) [d](#e) ![p](../x.png) [n](../none.md)"
    text = f"[a](../memory.md#l2) [b](../../README.md) {rest}"
    led, wanted = hook.rewrite(text, "docs/howto", "howto/engineer.md", known)
    assert led == f"[a](../memory.md#l2) [b](../source/README.md) {rest}"
    assert wanted == {"README.md"}
    assert hook.rewrite("```\n[b](../README.md)\n```\n", "docs", "x.md", known)[1] == set()


def test_folders_and_files_become_pages(hook: Any) -> None:
    text, wanted = hook.source_page("configs/devices", set())
    assert "[`ascend910b2.toml`](ascend910b2.toml.md)" in text
    assert "configs/devices/ascend910b2.toml" in wanted
    text, wanted = hook.source_page("configs/devices/ascend910b2.toml", set())
    assert "````toml\n" in text
    assert wanted == set()


def test_docstrings_become_markdown(hook: Any) -> None:
    pytest.importorskip("griffe")
    import roles

    text = "See :class:`~cann_env.graph.Buffer`, for example::\n\n== ==\na  b\n== ==\n"
    assert roles.as_markdown(text) == "See `graph.Buffer`, for example:\n\n```text\n== ==\na  b\n== ==\n```\n"
    assert roles.as_markdown("all 2**20, in 2**-20 of **it**") == r"all 2\*\*20, in 2\*\*-20 of **it**"
