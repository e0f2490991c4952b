"""The page about programs: its programs, the calls it names, and its picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import blocks

import cann_env.acl as acl
from cann_env.acl.program import run_program

ROOT = Path(__file__).resolve().parent.parent / "docs"
PAGE = ROOT / "acl.md"


def test_the_page_has_its_blocks() -> None:
    """They run, and print what stands below them, in ``test_pages.py``."""
    found = [block for block in blocks(PAGE.read_text("utf-8")) if block.language == "python"]
    assert len(found) >= 6
    assert sum(bool(block.output) for block in found) >= 5


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
