"""Time: find the next instant at which anything changes, and let it happen.

At one instant first everything that ends ends, then releases and timers come due, then one dispatch
starts what can start, then the shared bandwidth is divided anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.bandwidth import share_bandwidth
from cann_env.engine.dispatch import dispatch, head_changed, make_eligible, next_kernel
from cann_env.engine.groups import (
    COMPUTING,
    LAUNCHING,
    MOVING,
    SG_BLOCKS,
    SG_COMMAND,
    SG_COMPUTE_NS,
    SG_DIE,
    SG_NEXT_NS,
    SG_ORIGIN,
    SG_STAGE,
    SG_START_NS,
    SG_WIDTH,
    next_part,
    start_moving,
    stop_moving,
)
from cann_env.engine.jit import kernel
from cann_env.engine.launch import slot_row, take_cores
from cann_env.engine.layout import (
    DONE,
    FAR,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_LATE,
    P_AT_SUCC,
    P_LATE,
    P_RECORD_NS,
    P_STATE_COMMAND,
    P_STATE_FLIGHT,
    P_STATE_GROUP,
    P_STATE_REQUEST,
    P_STATE_STREAM,
    P_STREAMS,
    PC_KERNELS,
    PC_REQUEST,
    PC_SUCC,
    PC_SUCCS,
    PC_TAIL_NS,
    PC_WIDTH,
    PU_COMMAND,
    PU_RELEASE_NS,
    PU_WIDTH,
    PW_MIX,
    PW_WIDTH,
    S_ACTIVE,
    S_DIRTY,
    S_DONE,
    S_FLIGHT,
    S_GROUPS,
    S_HOST_NS,
    S_NEXT_NS,
    S_NOW_NS,
    S_RELEASED,
    S_SCALE_NS,
    S_STIRRED,
    S_TIMER_NS,
    S_WAKES,
    SC_ESTIMATE_NS,
    SC_FINISH_NS,
    SC_ISSUE_NS,
    SC_KERNEL,
    SC_NEXT,
    SC_PENDING,
    SC_PHASE,
    SC_POSITION,
    SC_RECORDS,
    SC_RUNNING,
    SC_SLOT,
    SC_START_NS,
    SC_STREAM,
    SC_UNDONE,
    SC_UNISSUED,
    SC_VARIANT,
    SC_WIDTH,
    SR_BOUND_NS,
    SR_LEFT,
    SR_WIDTH,
    SS_FREE_NS,
    SS_HEAD,
    SS_LENGTH,
    SS_MIX,
    SS_TAIL,
    SS_TIMER_NS,
    SS_WIDTH,
    SW_ACTIVE,
)
from cann_env.engine.memory import becomes_known
from cann_env.engine.ready import enter_ready
from cann_env.engine.trace import (
    T_BLOCKS,
    T_COMMAND,
    record,
)
from cann_env.engine.transfers import finish_transfer
from cann_env.engine.users import finish_using

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def next_instant(p: Image, s: Image) -> int:
    """When something changes next; FAR if nothing will."""
    soonest = min(s[S_NEXT_NS], s[S_TIMER_NS])
    if s[S_RELEASED] < p[P_LATE]:
        soonest = min(soonest, p[p[P_AT_LATE] + s[S_RELEASED] * PU_WIDTH + PU_RELEASE_NS])
    return soonest


@kernel
def _leave_flight(p: Image, s: Image, c: int) -> None:
    at = p[P_STATE_FLIGHT]
    place = 0
    while s[at + place] != c:
        place += 1
    for i in range(place, s[S_FLIGHT] - 1):
        s[at + i] = s[at + i + 1]
    s[S_FLIGHT] -= 1


@kernel
def _finish_command(p: Image, s: Image, c: int, mix: int) -> None:
    """A command is done: its stream moves on, its successors and buffers learn of it."""
    now = s[S_NOW_NS]
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    s[state + SC_PHASE] = DONE
    s[state + SC_FINISH_NS] = now
    s[state + SC_ESTIMATE_NS] = now
    s[S_DONE] += 1
    s[S_WAKES] += 1
    s[S_ACTIVE] -= 1
    _leave_flight(p, s, c)
    finish_using(p, s, c)
    request = p[P_STATE_REQUEST] + p[fixed + PC_REQUEST] * SR_WIDTH
    s[request + SR_LEFT] -= 1
    s[request + SR_BOUND_NS] = now
    stream = p[P_STATE_STREAM] + s[state + SC_STREAM] * SS_WIDTH
    s[stream + SS_HEAD] = s[state + SC_NEXT]
    s[stream + SS_LENGTH] -= 1
    s[stream + SS_FREE_NS] = now + s[state + SC_RECORDS] * p[P_RECORD_NS]
    s[stream + SS_MIX] = mix
    if s[state + SC_NEXT] < 0:
        s[stream + SS_TAIL] = -1
    record(
        s,
        T_COMMAND,
        c,
        s[state + SC_STREAM],
        s[state + SC_POSITION],
        s[state + SC_ISSUE_NS],
        s[state + SC_START_NS],
        now,
    )
    first = p[P_AT_SUCC] + p[fixed + PC_SUCC]
    for i in range(first, first + p[fixed + PC_SUCCS]):
        after = p[P_STATE_COMMAND] + p[i] * SC_WIDTH
        s[after + SC_UNDONE] -= 1
        if s[after + SC_UNDONE] == 0 and s[after + SC_STREAM] >= 0:
            theirs = s[after + SC_STREAM]
            if theirs != s[state + SC_STREAM] and s[p[P_STATE_STREAM] + theirs * SS_WIDTH + SS_HEAD] == p[i]:
                head_changed(p, s, theirs)
    head_changed(p, s, s[state + SC_STREAM])


@kernel
def _finish_blocks(p: Image, s: Image, group: int) -> None:
    """Some blocks are done: give back their cores; the last ones end their kernel or their command."""
    c = s[group + SG_COMMAND]
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    work = s[state + SC_SLOT]
    blocks = s[group + SG_BLOCKS]
    take_cores(p, s, s[group + SG_DIE], work, -blocks)
    s[state + SC_RUNNING] -= blocks
    record(
        s,
        T_BLOCKS,
        c,
        s[state + SC_KERNEL] * 2 + s[state + SC_VARIANT],
        blocks,
        s[group + SG_START_NS],
        s[S_NOW_NS],
        s[group + SG_ORIGIN],
    )
    if s[state + SC_RUNNING] > 0 or s[state + SC_PENDING] > 0:
        return
    s[slot_row(p, s, s[group + SG_DIE], work) + SW_ACTIVE] -= 1
    s[state + SC_SLOT] = -1
    s[state + SC_KERNEL] += 1
    if s[state + SC_KERNEL] < p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_KERNELS]:
        next_kernel(p, s, c)
    else:
        _finish_command(p, s, c, p[p[P_AT_CLASS] + work * PW_WIDTH + PW_MIX])


@kernel
def _close_group(p: Image, s: Image, group: int) -> None:
    """Remove a group; the last one takes its row."""
    s[S_GROUPS] -= 1
    last = p[P_STATE_GROUP] + s[S_GROUPS] * SG_WIDTH
    for field in range(SG_WIDTH):
        s[group + field] = s[last + field]


@kernel
def _change_stage(p: Image, s: Image, group: int) -> bool:
    """Move a group that is due to its next stage; True if it is finished."""
    if s[group + SG_STAGE] == LAUNCHING:
        start_moving(p, s, group)
        return False
    if s[group + SG_STAGE] == MOVING:
        stop_moving(p, s, group)
        if next_part(p, s, group):
            start_moving(p, s, group)
            return False
        if s[group + SG_COMPUTE_NS] > s[S_NOW_NS]:
            s[group + SG_STAGE] = COMPUTING
            s[group + SG_NEXT_NS] = s[group + SG_COMPUTE_NS]
            return False
    return True


@kernel
def _end_what_ends(p: Image, s: Image) -> None:
    now = s[S_NOW_NS]
    group = p[P_STATE_GROUP]
    while group < p[P_STATE_GROUP] + s[S_GROUPS] * SG_WIDTH:
        if s[group + SG_NEXT_NS] <= now and _change_stage(p, s, group):
            if s[group + SG_COMMAND] >= 0:
                _finish_blocks(p, s, group)
            else:
                finish_transfer(p, s, group)
            _close_group(p, s, group)
            s[S_STIRRED] = 1
        else:
            group += SG_WIDTH


@kernel
def _release(p: Image, s: Image) -> None:
    """Commands whose release time has come enter the ready list if their predecessors are issued."""
    while s[S_RELEASED] < p[P_LATE]:
        row = p[P_AT_LATE] + s[S_RELEASED] * PU_WIDTH
        if p[row + PU_RELEASE_NS] > s[S_NOW_NS]:
            return
        s[S_RELEASED] += 1
        s[S_WAKES] += 1
        c = p[row + PU_COMMAND]
        becomes_known(p, s, c)
        s[S_SCALE_NS] = max(s[S_SCALE_NS], p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_TAIL_NS])
        if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNISSUED] == 0:
            enter_ready(p, s, c)


@kernel
def _ring_timers(p: Image, s: Image) -> None:
    """Heads whose time has come become eligible."""
    soonest = FAR
    for stream in range(p[P_STREAMS]):
        row = p[P_STATE_STREAM] + stream * SS_WIDTH
        if s[row + SS_TIMER_NS] <= s[S_NOW_NS]:
            make_eligible(p, s, s[row + SS_HEAD])
        soonest = min(soonest, s[row + SS_TIMER_NS])
    s[S_TIMER_NS] = soonest


@kernel
def settle(p: Image, s: Image) -> None:
    """Start what can start now, divide the bandwidth, and find out when something ends next."""
    if s[S_STIRRED] == 1:
        s[S_STIRRED] = 0
        dispatch(p, s)
    if s[S_DIRTY] == 1:
        share_bandwidth(p, s)
    soonest = FAR
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        soonest = min(soonest, s[group + SG_NEXT_NS])
    s[S_NEXT_NS] = soonest


@kernel
def advance_to(p: Image, s: Image, until: int) -> None:
    """Let everything happen up to and including an instant, and leave the clock there."""
    instant = next_instant(p, s)
    while instant <= until:
        s[S_NOW_NS] = instant
        if s[S_NEXT_NS] <= instant:
            _end_what_ends(p, s)
        if s[S_RELEASED] < p[P_LATE]:
            _release(p, s)
        if s[S_TIMER_NS] <= instant:
            _ring_timers(p, s)
        settle(p, s)
        instant = next_instant(p, s)
    s[S_NOW_NS] = until


@kernel
def advance_until_wake(p: Image, s: Image) -> bool:
    """Let time pass until something is completed, arrives or is released; False if nothing ever will."""
    wakes = s[S_WAKES]
    while s[S_WAKES] == wakes:
        instant = next_instant(p, s)
        if instant == FAR:
            return False
        advance_to(p, s, instant)
    s[S_HOST_NS] = max(s[S_HOST_NS], s[S_NOW_NS])
    return True
