"""A fresh state: every table laid out behind the header and filled for time zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.launch import pool_row
from cann_env.engine.layout import (
    ABSENT,
    FAR,
    IN_HBM,
    NOWHERE,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_DIE,
    P_AT_LINK,
    P_AT_POOL,
    P_AT_REQUEST,
    P_BOUND_NS,
    P_BUFFERS,
    P_CLOCKS,
    P_COMMANDS,
    P_DIES,
    P_HOST_NS,
    P_LATE,
    P_LINKS,
    P_POOLS,
    P_REQUESTS,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_LINK,
    P_STATE_POOL,
    P_STATE_REQUEST,
    P_STATE_STREAM,
    P_STATE_STREAM_CLOCK,
    P_STATE_WINDOW,
    P_STATE_WORDS,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_DIE,
    PB_LEVEL,
    PB_MANAGED,
    PB_TAKEN,
    PB_USERS,
    PB_WIDTH,
    PB_WRITER,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_TAIL_NS,
    PC_WIDTH,
    PD_BASE,
    PD_FIXED_BYTES,
    PD_OUTPUT_BYTES,
    PD_SPACE_BYTES,
    PD_TAKEN_BYTES,
    PD_WIDTH,
    PL_BYTES,
    PL_WIDTH,
    PP_AREA_NS,
    PP_CAPACITY,
    PP_WIDTH,
    PR_COMMANDS,
    PR_WIDTH,
    Q20,
    S_AT_ACTION,
    S_AT_TRACE,
    S_HBM_PEAK,
    S_HOST_LEFT_NS,
    S_NEXT_NS,
    S_SCALE_NS,
    S_TIMER_NS,
    S_TRACE_CAPACITY,
    SB_ADDRESS,
    SB_CONTENT,
    SB_L2_NEWER,
    SB_L2_OLDER,
    SB_LISTED,
    SB_ON_HOST,
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
    SD_AT_SPACE,
    SD_BYTES,
    SD_DEVICE_BYTES,
    SD_HOLE_BYTES,
    SD_L2_NEWEST,
    SD_L2_OLDEST,
    SD_OUTPUT_LEFT,
    SD_TAKEN_LEFT,
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
    VALID,
)
from cann_env.engine.memory import die_row, home_of, make_idle, roomy
from cann_env.engine.ready import enter_ready
from cann_env.engine.space import (
    open_space,
)
from cann_env.engine.tables import lay_out_dies
from cann_env.engine.trace import (
    T_WIDTH,
)
from cann_env.engine.upcoming import expect_arrival, look_ahead, want

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _fill_dies(p: Image, s: Image) -> None:
    for index in range(p[P_DIES]):
        fixed = p[P_AT_DIE] + index * PD_WIDTH
        die = die_row(p, s, index)
        s[die + SD_BYTES] = p[fixed + PD_FIXED_BYTES]
        s[die + SD_DEVICE_BYTES] = p[fixed + PD_FIXED_BYTES]
        s[die + SD_OUTPUT_LEFT] = p[fixed + PD_OUTPUT_BYTES]
        s[die + SD_TAKEN_LEFT] = 0 if roomy(p, index) else p[fixed + PD_TAKEN_BYTES]
        s[die + SD_HOLE_BYTES] = p[fixed + PD_SPACE_BYTES]
        s[die + SD_L2_OLDEST] = -1
        s[die + SD_L2_NEWEST] = -1
        open_space(s, s[die + SD_AT_SPACE], p[P_CLOCKS], p[fixed + PD_SPACE_BYTES])


@kernel
def _fill_buffers(p: Image, s: Image) -> None:
    """Where everything lies at first; the clock stands at zero."""
    for buffer in range(p[P_BUFFERS]):
        fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
        row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
        resident = p[fixed + PB_LEVEL] == IN_HBM
        s[row + SB_RESIDENCY] = VALID if resident else ABSENT
        s[row + SB_CONTENT] = 1 if resident else 0
        s[row + SB_ON_HOST] = 0 if p[fixed + PB_LEVEL] == NOWHERE else 1
        s[row + SB_USERS] = p[fixed + PB_USERS]
        s[row + SB_UNSTARTED] = p[fixed + PB_USERS]
        s[row + SB_L2_OLDER] = -1
        s[row + SB_L2_NEWER] = -1
        s[row + SB_LISTED] = -1
        look_ahead(p, s, buffer)
        if p[fixed + PB_MANAGED] == 0:
            continue
        if resident:
            s[home_of(p, s, buffer) + SD_BYTES] += p[fixed + PB_BYTES]
            make_idle(p, s, buffer)
        elif s[row + SB_ON_HOST] == 1:
            expect_arrival(p, s, buffer)
            want(p, s, buffer)
    for index in range(p[P_DIES]):
        s[S_HBM_PEAK] = max(s[S_HBM_PEAK], s[die_row(p, s, index) + SD_BYTES])


@kernel
def _place_all(p: Image, s: Image) -> None:
    """Where the address space of a die takes all its buffers at once, give each its own part of it."""
    for index in range(p[P_DIES]):
        address = p[p[P_AT_DIE] + index * PD_WIDTH + PD_BASE]
        for buffer in range(p[P_BUFFERS]):
            fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
            if p[fixed + PB_DIE] == index and p[fixed + PB_WRITER] >= 0 and roomy(p, index):
                s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_ADDRESS] = address
                address += p[fixed + PB_TAKEN]


@kernel
def _fill_device(p: Image, s: Image) -> None:
    for pool in range(p[P_POOLS]):
        for die in range(p[P_DIES]):
            s[pool_row(p, s, die, pool) + SP_FREE] = p[p[P_AT_POOL] + pool * PP_WIDTH + PP_CAPACITY]
        s[p[P_STATE_POOL] + pool * SP_WIDTH + SP_AREA_NS] = p[p[P_AT_POOL] + pool * PP_WIDTH + PP_AREA_NS]
    for link in range(p[P_LINKS]):
        s[p[P_STATE_LINK] + link * SL_WIDTH + SL_BYTES] = p[p[P_AT_LINK] + link * PL_WIDTH + PL_BYTES]
    for stream in range(p[P_STREAMS]):
        row = p[P_STATE_STREAM] + stream * SS_WIDTH
        s[row + SS_HEAD] = -1
        s[row + SS_TAIL] = -1
        s[row + SS_TIMER_NS] = FAR
    for i in range(p[P_STREAMS] * p[P_STREAMS]):
        s[p[P_STATE_STREAM_CLOCK] + i] = -1
    for request in range(p[P_REQUESTS]):
        s[p[P_STATE_REQUEST] + request * SR_WIDTH + SR_LEFT] = p[
            p[P_AT_REQUEST] + request * PR_WIDTH + PR_COMMANDS
        ]


@kernel
def _fill_commands(p: Image, s: Image, noise: Image) -> None:
    longest = 1
    for c in range(p[P_COMMANDS]):
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        row = p[P_STATE_COMMAND] + c * SC_WIDTH
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
    s[S_AT_ACTION] = p[P_STATE_WORDS] - p[P_STEP_BUDGET] - 1
    s[S_AT_TRACE] = p[P_STATE_WORDS]
    s[S_TRACE_CAPACITY] = (s.size - p[P_STATE_WORDS]) // T_WIDTH
    lay_out_dies(p, s)
    s[S_HOST_LEFT_NS] = p[P_HOST_NS]
    for k in range(p[P_WINDOW]):
        s[p[P_STATE_WINDOW] + k] = -1
    s[S_NEXT_NS] = FAR
    s[S_TIMER_NS] = FAR
    _fill_device(constant_pointer(p), pointer(s))
    _fill_dies(constant_pointer(p), pointer(s))
    _fill_buffers(constant_pointer(p), pointer(s))
    _place_all(constant_pointer(p), pointer(s))
    _fill_commands(constant_pointer(p), pointer(s), noise)
