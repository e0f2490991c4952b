"""Words that were mistyped: which of the known ones was probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKE = 0.65
"""From which share of letters in common, in order, a word counts as near."""


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that is most like another one; None if none is, or if it is no word."""
    if not isinstance(word, str):
        return None
    by_small = {each.lower(): str(each) for each in known}
    near = difflib.get_close_matches(word.lower(), by_small, n=1, cutoff=_LIKE)
    return by_small[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``did you mean 'pipeline'? ``, to stand within an error; empty if nothing is near."""
    near = nearest(word, known)
    return "" if near is None else f"did you mean {near!r}? "
