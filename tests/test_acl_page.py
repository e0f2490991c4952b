"""The page about programs: its blocks run in order and print what it says; its programs and its picture."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import cann_env.acl as acl
from cann_env.acl.program import run_program

ROOT = Path(__file__).resolve().parent.parent / "docs"
PAGE = ROOT / "acl.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """Each block of Python, and the block of output right below it; empty if there is none."""
    return BLOCK.findall(text)


def printed(sources: list[str]) -> list[str]:
    """What each block prints, run one after another."""
    names: dict[str, object] = {}
    found = []
    for source in sources:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(source, "page.py", "exec"), names)
        found.append("\n".join(line.rstrip() for line in output.getvalue().splitlines()))
    return found


def test_blocks_are_found_with_their_output() -> None:
    text = "a\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n```python\nx = 2\n```\n\n```\nshell\n```\n"
    assert blocks(text) == [("print(1)\n", "1\n"), ("x = 2\n", "shell\n")]
    assert printed([source for source, _ in blocks(text)]) == ["1", ""]


def test_every_block_of_the_page_prints_what_it_says() -> None:
    found = blocks(PAGE.read_text("utf-8"))
    assert len(found) >= 6
    assert printed([source for source, _ in found]) == [output.rstrip("\n") for _, output in found]


@pytest.mark.parametrize("device", ["ascend910b2", "ascend310b1"])
def test_the_pipeline_as_printed_has_its_two_races_and_the_corrected_one_none(device: str) -> None:
    run_program(ROOT / "programs" / "listing_4.py", device)
    kinds = [hazard.kind.value for hazard in acl.hazards()]
    assert kinds.count("read-after-write") == 2
    assert "wait-without-record" in kinds
    assert "leak" not in kinds
    run_program(ROOT / "programs" / "listing_4_corrected.py", device)
    assert acl.hazards() == []


def test_calls_that_the_page_names_are_there() -> None:
    names = set(re.findall(r"`acl\.((?:rt|util|mdl)\.)?(\w+)", PAGE.read_text("utf-8")))
    assert len(names) > 10
    for room, name in names:
        assert hasattr(getattr(acl, room[:-1]) if room else acl, name), (room, name)


@pytest.mark.slow
def test_the_picture_of_the_page_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "pictures"))
        import draw_acl
    assert draw_acl.draw(tmp_path).read_bytes().startswith(b"\x89PNG")
    assert f"(pictures/{draw_acl.draw(tmp_path).name})" in PAGE.read_text("utf-8")
