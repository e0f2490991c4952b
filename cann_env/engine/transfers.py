"""Buffers on the move: prefetches, lifts into L2, write-backs, and what a head needs at once.

What a head needs moves as soon as it has space; the rest moves in the order in which it was asked for, each
transfer on a channel of its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import enter_cache, lift_bytes, list_liftable
from cann_env.engine.groups import (
    SG_BUFFER,
    SG_BYTES,
    SG_CAP,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_ORIGIN,
    SG_START_NS,
    begin_to_move,
    open_group,
)
from cann_env.engine.jit import kernel
from cann_env.engine.launch import pool_row
from cann_env.engine.layout import (
    ABSENT,
    ARRIVING,
    LINK_D2H,
    LINK_H2D,
    LINK_HBM,
    LINK_KINDS,
    P_AT_BUFFER,
    P_AT_LINK,
    P_DIES,
    P_FAULT_RATE,
    P_LANES,
    P_LIFT_LATENCY_NS,
    P_LIFT_RATE,
    P_LINK_LATENCY_NS,
    P_OFFLOAD_LATENCY_NS,
    P_STATE_BUFFER,
    PB_BYTES,
    PB_DIE,
    PB_MANAGED,
    PB_WIDTH,
    PL_FLOW,
    PL_RATE,
    PL_WIDTH,
    POOL_D2H,
    POOL_H2D,
    POOL_SDMA,
    Q20,
    S_NOW_NS,
    S_STIRRED,
    S_WAITING,
    S_WAKES,
    SB_CONTENT,
    SB_DIRTY,
    SB_LEAVE_NS,
    SB_LEAVING,
    SB_LIFTING,
    SB_PINS,
    SB_RESERVE_NS,
    SB_RESIDENCY,
    SB_USED,
    SB_USERS,
    SB_WIDTH,
    SC_MOVING_BYTES,
    SD_AT_LEAVES,
    SD_AT_LIFTS,
    SD_AT_QUEUE,
    SD_LEAVE_QUEUE,
    SD_LEAVES_MOVING,
    SD_LEAVING_BYTES,
    SD_LIFT_QUEUE,
    SD_LIFTS_MOVING,
    SD_MOVING,
    SD_QUEUE,
    SP_FREE,
    VALID,
)
from cann_env.engine.memory import die_row, home_of, is_idle, leave_idle, make_idle
from cann_env.engine.trace import (
    T_FAULT,
    T_LIFT,
    T_PREFETCH,
    T_WRITEBACK,
    record,
)
from cann_env.engine.upcoming import arrival_begins, tell_readers, want
from cann_env.engine.users import let_go

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _open_transfer(p: Image, s: Image, buffer: int, cause: int) -> None:
    """Start to move a buffer between two levels; on demand it comes page by page."""
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    die = p[fixed + PB_DIE]
    size = p[fixed + PB_BYTES]
    link = die * LINK_KINDS + LINK_H2D
    latency = p[P_LINK_LATENCY_NS]
    if cause == T_WRITEBACK:
        link = die * LINK_KINDS + LINK_D2H
        latency = p[P_OFFLOAD_LATENCY_NS]
    elif cause == T_LIFT:
        link = die * LINK_KINDS + LINK_HBM
        latency = p[P_LIFT_LATENCY_NS]
        size = lift_bytes(p, buffer)
    rate = p[p[P_AT_LINK] + link * PL_WIDTH + PL_RATE]
    if cause == T_FAULT:
        rate = min(rate, p[P_FAULT_RATE])
    elif cause == T_LIFT:
        rate = min(rate, p[P_LIFT_RATE])
    begin = s[S_NOW_NS] + latency
    group = open_group(p, s, -1, buffer, 1, begin, 0)
    s[group + SG_BYTES] = size * Q20
    s[group + SG_CAP] = rate
    s[group + SG_FLOW] = p[p[P_AT_LINK] + link * PL_WIDTH + PL_FLOW]
    s[group + SG_HBM_WEIGHT] = 1
    s[group + SG_ORIGIN] = cause
    begin_to_move(p, s, group, begin)


@kernel
def begin_arrival(p: Image, s: Image, buffer: int, cause: int) -> None:
    """A buffer that has its space starts to move in."""
    s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] = ARRIVING
    arrival_begins(p, s, buffer)
    tell_readers(p, s, buffer, SC_MOVING_BYTES, p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES])
    _open_transfer(p, s, buffer, cause)


@kernel
def leave_queue(s: Image, at: int, count: int, buffer: int) -> None:
    """Take the first entry of a buffer out of a queue, keeping the order of the others."""
    place = 0
    while s[at + place] != buffer:
        place += 1
    for i in range(place, count - 1):
        s[at + i] = s[at + i + 1]


@kernel
def enqueue_lift(p: Image, s: Image, buffer: int) -> None:
    """Ask for a buffer in HBM to be copied into L2; until that is done it is in use."""
    die = home_of(p, s, buffer)
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
        if is_idle(p, s, buffer):
            leave_idle(p, s, buffer)
        s[row + SB_PINS] += 1
    s[row + SB_USERS] += 1
    s[row + SB_LIFTING] += 1
    list_liftable(p, s, buffer)
    s[s[die + SD_AT_LIFTS] + s[die + SD_LIFT_QUEUE]] = buffer
    s[die + SD_LIFT_QUEUE] += 1
    s[S_WAITING] += 1
    s[S_STIRRED] = 1


@kernel
def _dispatch_queue(
    p: Image, s: Image, die: int, field: int, at: int, lanes: int, pool: int, cause: int
) -> None:
    """Start transfers from the front of a queue while there are lanes and channels.

    Args:
        p: Program.
        s: State.
        die: Row of the die.
        field: Its column with the length of the queue; the next one counts what moves.
        at: Where the queue stands.
        lanes: Most that may move at once.
        pool: Row of the pool of channels.
        cause: T_PREFETCH, T_LIFT or T_WRITEBACK.
    """
    while s[die + field] > 0 and s[die + field + 1] < lanes and s[pool + SP_FREE] > 0:
        buffer = s[at]
        s[die + field] -= 1
        for i in range(s[die + field]):
            s[at + i] = s[at + i + 1]
        s[die + field + 1] += 1
        s[pool + SP_FREE] -= 1
        s[S_WAITING] -= 1
        if cause == T_PREFETCH:
            begin_arrival(p, s, buffer, T_PREFETCH)
        else:
            _open_transfer(p, s, buffer, cause)


@kernel
def dispatch_transfers(p: Image, s: Image) -> None:
    """Start what can move now."""
    for index in range(p[P_DIES]):
        die = die_row(p, s, index)
        lanes = p[P_LANES]
        at = s[die + SD_AT_LEAVES]
        _dispatch_queue(p, s, die, SD_LEAVE_QUEUE, at, 1, pool_row(p, s, index, POOL_D2H), T_WRITEBACK)
        at = s[die + SD_AT_QUEUE]
        _dispatch_queue(p, s, die, SD_QUEUE, at, lanes, pool_row(p, s, index, POOL_H2D), T_PREFETCH)
        at = s[die + SD_AT_LIFTS]
        _dispatch_queue(p, s, die, SD_LIFT_QUEUE, at, lanes, pool_row(p, s, index, POOL_SDMA), T_LIFT)


@kernel
def finish_transfer(p: Image, s: Image, group: int) -> None:
    """A buffer has arrived at its level."""
    buffer = s[group + SG_BUFFER]
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    index = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE]
    die = die_row(p, s, index)
    cause = s[group + SG_ORIGIN]
    start = s[group + SG_START_NS]
    now = s[S_NOW_NS]
    s[S_WAKES] += 1
    if cause == T_LIFT:
        s[die + SD_LIFTS_MOVING] -= 1
        s[pool_row(p, s, index, POOL_SDMA) + SP_FREE] += 1
        s[row + SB_LIFTING] -= 1
        record(s, T_LIFT, buffer, start, start, now, lift_bytes(p, buffer), 0)
        enter_cache(p, s, buffer, lift_bytes(p, buffer))
        list_liftable(p, s, buffer)
        let_go(p, s, buffer)
    elif cause == T_WRITEBACK:
        s[die + SD_LEAVES_MOVING] -= 1
        s[pool_row(p, s, index, POOL_D2H) + SP_FREE] += 1
        s[die + SD_LEAVING_BYTES] -= p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
        s[row + SB_LEAVING] = 0
        s[row + SB_DIRTY] = 0
        record(s, T_WRITEBACK, buffer, s[row + SB_LEAVE_NS], start, now, 0, 0)
        if s[row + SB_RESIDENCY] == ABSENT:
            want(p, s, buffer)
    else:
        if cause == T_PREFETCH:
            s[die + SD_MOVING] -= 1
            s[pool_row(p, s, index, POOL_H2D) + SP_FREE] += 1
        tell_readers(p, s, buffer, SC_MOVING_BYTES, -p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES])
        s[row + SB_RESIDENCY] = VALID
        s[row + SB_CONTENT] = 1
        s[row + SB_USED] = now
        list_liftable(p, s, buffer)
        record(s, cause, buffer, s[row + SB_RESERVE_NS], start, now, 0, 0)
        if s[row + SB_PINS] == 0:
            make_idle(p, s, buffer)
