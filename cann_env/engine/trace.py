"""Recording: rows appended to the trace region of a state, if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import fragment
from cann_env.engine.layout import S_AT_TRACE, S_TRACE_CAPACITY, S_TRACE_ROWS, T_KIND, T_WIDTH

if TYPE_CHECKING:
    from cann_env.engine import Image


@fragment
def record(s: Image, kind: int, a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    """Append one row; a row beyond the capacity is only counted."""
    capacity = s[S_TRACE_CAPACITY]
    if capacity == 0:
        return
    row = s[S_TRACE_ROWS]
    s[S_TRACE_ROWS] = row + 1
    if row < capacity:
        at = s[S_AT_TRACE] + row * T_WIDTH + T_KIND
        s[at] = kind
        s[at + 1] = a
        s[at + 2] = b
        s[at + 3] = c
        s[at + 4] = d
        s[at + 5] = e
        s[at + 6] = f
