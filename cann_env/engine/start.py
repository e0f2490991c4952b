"""A fresh state: every table laid out behind the header and filled for time zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel, pointer
from cann_env.engine.layout import (
    ABSENT,
    FAR,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_LINK,
    P_AT_POOL,
    P_AT_REQUEST,
    P_BOUND_NS,
    P_BUFFERS,
    P_CHOICES,
    P_CLASSES,
    P_COMMANDS,
    P_EDGES,
    P_GROUP_CAPACITY,
    P_HOST_NS,
    P_LATE,
    P_LINKS,
    P_OUTPUT_BYTES,
    P_POOLS,
    P_PREFETCHES,
    P_REQUESTS,
    P_RESIDENT_BYTES,
    P_RUN_AHEAD,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_MANAGED,
    PB_RESIDENT,
    PB_USERS,
    PB_WIDTH,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_TAIL_NS,
    PC_WIDTH,
    PL_BYTES,
    PL_WIDTH,
    PP_AREA_NS,
    PP_CAPACITY,
    PP_WIDTH,
    PR_COMMANDS,
    PR_WIDTH,
    Q20,
    S_AT_ACTION,
    S_AT_BUFFER,
    S_AT_CLASS,
    S_AT_CLOCK,
    S_AT_COMMAND,
    S_AT_EDGE,
    S_AT_ELIGIBLE,
    S_AT_FLIGHT,
    S_AT_GROUP,
    S_AT_LINK,
    S_AT_MASK,
    S_AT_PENDING,
    S_AT_POOL,
    S_AT_PREFETCH,
    S_AT_QUEUE,
    S_AT_READY,
    S_AT_REQUEST,
    S_AT_STREAM,
    S_AT_STREAM_CLOCK,
    S_AT_TRACE,
    S_AT_WINDOW,
    S_DEVICE_BYTES,
    S_HBM_BYTES,
    S_HBM_PEAK,
    S_HEADER,
    S_HOST_LEFT_NS,
    S_OUTPUT_LEFT,
    S_PREFETCHING,
    S_SCALE_NS,
    S_TRACE_CAPACITY,
    SB_RESIDENCY,
    SB_UNSTARTED,
    SB_USERS,
    SB_WIDTH,
    SC_NEXT,
    SC_NOISE,
    SC_SEQ,
    SC_SLOT,
    SC_STREAM,
    SC_UNDONE,
    SC_UNISSUED,
    SC_WIDTH,
    SG_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    SP_AREA_NS,
    SP_FREE,
    SP_WIDTH,
    SR_LEFT,
    SR_WIDTH,
    SS_HEAD,
    SS_TAIL,
    SS_TIMER_NS,
    SS_WIDTH,
    SW_WIDTH,
    T_WIDTH,
    VALID,
)
from cann_env.engine.ready import enter_ready

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def lay_out(p: Image, s: Image) -> int:
    """Write the table offsets of a state into its header; returns the words needed without a trace."""
    n = p[P_COMMANDS]
    streams = p[P_STREAMS]
    flight = min(n, p[P_RUN_AHEAD])
    at = S_HEADER
    s[S_AT_COMMAND] = at
    at += n * SC_WIDTH
    s[S_AT_BUFFER] = at
    at += p[P_BUFFERS] * SB_WIDTH
    s[S_AT_CLASS] = at
    at += p[P_CLASSES] * SW_WIDTH
    s[S_AT_POOL] = at
    at += p[P_POOLS] * SP_WIDTH
    s[S_AT_LINK] = at
    at += p[P_LINKS] * SL_WIDTH
    s[S_AT_STREAM] = at
    at += streams * SS_WIDTH
    s[S_AT_REQUEST] = at
    at += p[P_REQUESTS] * SR_WIDTH
    s[S_AT_GROUP] = at
    at += p[P_GROUP_CAPACITY] * SG_WIDTH
    s[S_AT_FLIGHT] = at
    at += flight + 1
    s[S_AT_READY] = at
    at += n + 1
    s[S_AT_PENDING] = at
    at += flight + 1
    s[S_AT_ELIGIBLE] = at
    at += streams + 1
    s[S_AT_QUEUE] = at
    at += p[P_BUFFERS] + 1
    s[S_AT_WINDOW] = at
    at += p[P_WINDOW]
    s[S_AT_MASK] = at
    at += p[P_WINDOW] * p[P_CHOICES] + p[P_PREFETCHES] + 1
    s[S_AT_PREFETCH] = at
    at += p[P_PREFETCHES]
    s[S_AT_EDGE] = at
    at += p[P_EDGES]
    s[S_AT_CLOCK] = at
    at += n * streams
    s[S_AT_STREAM_CLOCK] = at
    at += streams * streams
    s[S_AT_ACTION] = at
    at += p[P_STEP_BUDGET] + 1
    s[S_AT_TRACE] = at
    return at


@kernel
def _fill_buffers(p: Image, s: Image) -> None:
    resident = p[P_RESIDENT_BYTES]
    for buffer in range(p[P_BUFFERS]):
        fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        s[row + SB_RESIDENCY] = VALID if p[fixed + PB_RESIDENT] == 1 else ABSENT
        s[row + SB_USERS] = p[fixed + PB_USERS]
        s[row + SB_UNSTARTED] = p[fixed + PB_USERS]
        if p[fixed + PB_MANAGED] == 1 and p[fixed + PB_RESIDENT] == 1:
            resident += p[fixed + PB_BYTES]
    s[S_HBM_BYTES] = resident
    s[S_HBM_PEAK] = resident
    s[S_DEVICE_BYTES] = p[P_RESIDENT_BYTES]
    s[S_OUTPUT_LEFT] = p[P_OUTPUT_BYTES]


@kernel
def _fill_device(p: Image, s: Image) -> None:
    for pool in range(p[P_POOLS]):
        row = s[S_AT_POOL] + pool * SP_WIDTH
        s[row + SP_FREE] = p[p[P_AT_POOL] + pool * PP_WIDTH + PP_CAPACITY]
        s[row + SP_AREA_NS] = p[p[P_AT_POOL] + pool * PP_WIDTH + PP_AREA_NS]
    for link in range(p[P_LINKS]):
        s[s[S_AT_LINK] + link * SL_WIDTH + SL_BYTES] = p[p[P_AT_LINK] + link * PL_WIDTH + PL_BYTES]
    for stream in range(p[P_STREAMS]):
        row = s[S_AT_STREAM] + stream * SS_WIDTH
        s[row + SS_HEAD] = -1
        s[row + SS_TAIL] = -1
        s[row + SS_TIMER_NS] = FAR
    for i in range(p[P_STREAMS] * p[P_STREAMS]):
        s[s[S_AT_STREAM_CLOCK] + i] = -1
    for request in range(p[P_REQUESTS]):
        s[s[S_AT_REQUEST] + request * SR_WIDTH + SR_LEFT] = p[
            p[P_AT_REQUEST] + request * PR_WIDTH + PR_COMMANDS
        ]


@kernel
def _fill_commands(p: Image, s: Image, noise: Image) -> None:
    longest = 1
    for c in range(p[P_COMMANDS]):
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        row = s[S_AT_COMMAND] + c * SC_WIDTH
        s[row + SC_STREAM] = -1
        s[row + SC_NEXT] = -1
        s[row + SC_SEQ] = -1
        s[row + SC_SLOT] = -1
        s[row + SC_UNISSUED] = p[fixed + PC_PREDS]
        s[row + SC_UNDONE] = p[fixed + PC_PREDS]
        s[row + SC_NOISE] = noise[c] if noise.size > 0 else Q20
        if p[fixed + PC_RELEASE_NS] <= 0:
            longest = max(longest, p[fixed + PC_TAIL_NS])
            if p[fixed + PC_PREDS] == 0:
                enter_ready(p, s, c)
    s[S_SCALE_NS] = longest if p[P_LATE] > 0 else max(p[P_BOUND_NS], 1)


@kernel
def prepare(p: Image, s: Image, noise: Image) -> None:
    """Make a state for time zero; ``step(p, s, BEGIN)`` then goes on to the first decision.

    Args:
        p: Program image.
        s: State image of at least ``p[P_STATE_WORDS]`` words; what lies behind is used as trace.
        noise: Factor of each command's durations in 2**-20, or empty for none.
    """
    s[:] = 0
    words = lay_out(p, s)
    s[S_TRACE_CAPACITY] = (s.size - words) // T_WIDTH
    s[S_PREFETCHING] = -1
    s[S_HOST_LEFT_NS] = p[P_HOST_NS]
    _fill_buffers(pointer(p), pointer(s))
    _fill_device(pointer(p), pointer(s))
    _fill_commands(pointer(p), pointer(s), noise)
