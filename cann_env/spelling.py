"""Words that were mistyped: which of the known ones was probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that is most like another one, whatever their case; None if none is."""
    by_small = {each.lower(): str(each) for each in known}
    near = difflib.get_close_matches(str(word).lower(), by_small, n=1)
    return by_small[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``did you mean 'pipeline'? ``, to stand within an error; empty if nothing is near."""
    near = nearest(word, known)
    return "" if near is None else f"did you mean {near!r}? "
