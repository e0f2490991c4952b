"""Recording: rows appended to the trace region of a state, if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    S_AT_TRACE,
    S_TRACE_CAPACITY,
    S_TRACE_ROWS,
)

if TYPE_CHECKING:
    from cann_env.engine import Image

# Six words a row after its kind, meaning by kind.
(T_KIND, T_A, T_B, T_C, T_D, T_E, T_F, T_WIDTH) = range(8)
(
    T_COMMAND,  # command, stream, position, issue, start, finish
    T_BLOCKS,  # command, kernel * 2 + variant, blocks, start, finish, start of the kernel
    T_FAULT,  # buffer, reserve, start, finish
    T_PREFETCH,  # buffer, reserve, start, finish
    T_EVICT,  # buffer, time
    T_WAIT,  # producer, consumer
    T_HOST_ISSUE,  # command, start, end
    T_HOST_PREFETCH,  # buffer, start, end
    T_HOST_WAIT,  # -1, start, end
    T_TOUCH,  # buffer, time
    T_WRITEBACK,  # buffer, decided, start, finish
    T_FREE,  # buffer, time: a managed buffer that nobody needs any more
    T_LIFT,  # buffer, start, start, finish, bytes
    T_ALLOCATE,  # buffer, command, address, time of issue, time of grant
    T_RELEASE,  # device buffer, time
    T_HIT,  # command, kernel, time, bytes
    T_HOST_LIFT,  # buffer, start, end
    T_HOST_OFFLOAD,  # buffer, start, end
    T_STALL,  # command, cause as an offset behind S_STALL_EVENT_NS, start, end
) = range(19)


@kernel
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
