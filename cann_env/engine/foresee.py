"""Looking ahead in memory: while one environment is stepped, what the next one needs comes into the cache.

Many environments do not fit into a cache together, and a step looks at a few dozen places of its images.
Waiting for them one after another would take longer than the work itself. So the places are asked for early:
first the headers, two environments ahead, then what the lists in there point to, one ahead. Nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.groups import SG_WIDTH
from cann_env.engine.jit import as_words, constant_pointer, fetch_line, kernel, pointer
from cann_env.engine.layout import (
    FEATURE_WORDS,
    P_AT_COMMAND,
    P_AT_FEATURE,
    P_HEADER,
    P_STATE_COMMAND,
    P_STATE_FLIGHT,
    P_STATE_GROUP,
    P_STATE_READY,
    P_STATE_STREAM,
    P_STREAMS,
    P_WINDOW,
    PC_WIDTH,
    S_FLIGHT,
    S_GROUPS,
    S_HEADER,
    S_READY,
    SC_WIDTH,
    SD_WIDTH,
    SS_WIDTH,
)

if TYPE_CHECKING:
    from cann_env.engine import Features, Image

_LINE = 8  # words


@kernel
def _fetch(words: Image, first: int, count: int) -> None:
    for word in range(first, first + count, _LINE):
        fetch_line(words, word)


@kernel
def _fetch_command(p: Image, s: Image, c: int) -> None:
    fetch_line(s, p[P_STATE_COMMAND] + c * SC_WIDTH)
    fetch_line(p, p[P_AT_COMMAND] + c * PC_WIDTH)


@kernel
def _fetch_headers(p: Image, s: Image) -> None:
    _fetch(p, 0, P_HEADER)
    _fetch(s, 0, S_HEADER + SD_WIDTH)


@kernel
def _fetch_rows(p: Image, s: Image) -> None:
    _fetch(s, p[P_STATE_STREAM], p[P_STREAMS] * SS_WIDTH)
    _fetch(s, p[P_STATE_GROUP], s[S_GROUPS] * SG_WIDTH)
    for i in range(s[S_FLIGHT]):
        _fetch_command(p, s, s[p[P_STATE_FLIGHT] + i])
    for i in range(min(s[S_READY], p[P_WINDOW])):
        c = s[p[P_STATE_READY] + i]
        _fetch_command(p, s, c)
        feature = p[P_AT_FEATURE] + c * FEATURE_WORDS
        fetch_line(p, feature)
        fetch_line(p, feature + FEATURE_WORDS - 1)


@kernel
def fetch_headers(p: Image, s: Image) -> None:
    """Ask for the headers of an environment that is not far ahead."""
    _fetch_headers(constant_pointer(p), pointer(s))


@kernel
def fetch_rows(p: Image, s: Image, seen: Features) -> None:
    """Ask for what the headers of the next environment point to, and for where its observation goes."""
    _fetch_rows(constant_pointer(p), pointer(s))
    _fetch(as_words(pointer(seen)), 0, seen.size // 2)
