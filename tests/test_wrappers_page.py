"""The page about wrappers: its blocks run in order and print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_acl_page import blocks, printed

PAGE = Path(__file__).resolve().parent.parent / "docs" / "wrappers.md"


@pytest.mark.slow
def test_every_block_of_the_page_prints_what_it_says() -> None:
    found = blocks(PAGE.read_text("utf-8"))
    assert len(found) >= 5
    assert printed([source for source, _ in found]) == [output.rstrip("\n") for _, output in found]
