"""Buffers on the move: who gets space, and the queues of prefetches, lifts into L2 and write-backs.

Space is granted first come, first served on each die; only while something is written back does anyone wait
for it. A buffer that a head needs moves as soon as it has space; the rest moves in the order in which it was
asked for, each transfer on a channel of its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import enter_cache, lift_bytes
from cann_env.engine.jit import kernel
from cann_env.engine.launch import begin_to_move, open_group, pool_row
from cann_env.engine.layout import (
    ABSENT,
    ALLOCATE,
    ARRIVING,
    IN_QUEUE,
    LINK_D2H,
    LINK_H2D,
    LINK_HBM,
    LINK_KINDS,
    OWED,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_LINK,
    P_AT_OPERAND,
    P_DIES,
    P_FAULT_RATE,
    P_FREE_MASK,
    P_HBM_BYTES,
    P_LANES,
    P_LIFT_LATENCY_NS,
    P_LIFT_RATE,
    P_LINK_LATENCY_NS,
    P_OFFLOAD_LATENCY_NS,
    PB_BYTES,
    PB_CHARGE,
    PB_DIE,
    PB_MANAGED,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_OUTPUT_BYTES,
    PC_WIDTH,
    PL_FLOW,
    PL_RATE,
    PL_WIDTH,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    POOL_D2H,
    POOL_H2D,
    POOL_SDMA,
    Q20,
    READ,
    S_AT_BUFFER,
    S_AT_COMMAND,
    S_HBM_PEAK,
    S_NOW_NS,
    S_TRACE_CAPACITY,
    S_WAITING,
    S_WAKES,
    SB_ADDRESS,
    SB_CAUSE,
    SB_CONTENT,
    SB_DIRTY,
    SB_LEAVE_NS,
    SB_LEAVING,
    SB_LIFTING,
    SB_ON_HOST,
    SB_PINS,
    SB_RANK,
    SB_RESERVE_NS,
    SB_RESIDENCY,
    SB_USED,
    SB_USERS,
    SB_WIDTH,
    SC_CLAIMED,
    SC_ISSUE_NS,
    SC_OWED,
    SC_WIDTH,
    SD_AT_CLAIMS,
    SD_AT_LEAVES,
    SD_AT_LIFTS,
    SD_AT_QUEUE,
    SD_BYTES,
    SD_CLAIMS,
    SD_DEVICE_BYTES,
    SD_LEAVE_QUEUE,
    SD_LEAVES_MOVING,
    SD_LEAVING_BYTES,
    SD_LIFT_QUEUE,
    SD_LIFTS_MOVING,
    SD_MOVING,
    SD_OUTPUT_LEFT,
    SD_OWED_BYTES,
    SD_QUEUE,
    SG_BUFFER,
    SG_BYTES,
    SG_CAP,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_ORIGIN,
    SG_START_NS,
    SP_FREE,
    T_ALLOCATE,
    T_FAULT,
    T_LIFT,
    T_PREFETCH,
    T_TOUCH,
    T_WRITEBACK,
    VALID,
)
from cann_env.engine.memory import (
    arrival_begins,
    die_row,
    home_of,
    is_idle,
    leave_idle,
    make_idle,
    make_room,
    unwant,
    want,
)
from cann_env.engine.trace import record
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
def _arrive_at_once(p: Image, s: Image, buffer: int) -> None:
    """A buffer that will be written whole has its space; there is nothing to bring."""
    s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] = VALID
    record(s, T_TOUCH, buffer, s[S_NOW_NS], 0, 0, 0, 0)


@kernel
def _begin_arrival(p: Image, s: Image, buffer: int, cause: int) -> None:
    s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] = ARRIVING
    arrival_begins(p, s, buffer)
    _open_transfer(p, s, buffer, cause)


@kernel
def _use_space(p: Image, s: Image, key: int) -> None:
    """Whoever asked for space has it now."""
    if key < 0:
        _grant_outputs(p, s, -1 - key)
        return
    row = s[S_AT_BUFFER] + key * SB_WIDTH
    s[row + SB_RESERVE_NS] = s[S_NOW_NS]
    if s[row + SB_CAUSE] == T_TOUCH:
        _arrive_at_once(p, s, key)
    elif s[row + SB_CAUSE] == T_FAULT:
        _begin_arrival(p, s, key, T_FAULT)
    else:
        die = home_of(p, s, key)
        s[row + SB_RESIDENCY] = IN_QUEUE
        s[s[die + SD_AT_QUEUE] + s[die + SD_QUEUE]] = key
        s[die + SD_QUEUE] += 1
        s[S_WAITING] += 1


@kernel
def _grant_outputs(p: Image, s: Image, c: int) -> None:
    """The outputs of a command have their space on one more die; the last one completes them."""
    state = s[S_AT_COMMAND] + c * SC_WIDTH
    s[state + SC_OWED] -= 1
    if s[state + SC_OWED] > 0 or s[S_TRACE_CAPACITY] == 0:
        return
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        if p[operand + PO_MODE] & ALLOCATE:
            buffer = p[operand + PO_BUFFER]
            address = s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_ADDRESS]
            record(s, T_ALLOCATE, buffer, c, address, s[state + SC_ISSUE_NS], s[S_NOW_NS], 0)


@kernel
def _has_space(p: Image, s: Image, die: int, key: int, size: int) -> bool:
    """Whether bytes that are reserved are really free this instant."""
    taken = s[die + SD_BYTES] - s[die + SD_OWED_BYTES] + s[die + SD_LEAVING_BYTES]
    if taken + size > p[P_HBM_BYTES]:
        return False
    return key < 0 or s[s[S_AT_BUFFER] + key * SB_WIDTH + SB_LEAVING] == 0


@kernel
def _size_of(p: Image, s: Image, die: int, key: int) -> int:
    """Bytes of HBM that a buffer, or the outputs of a command on a die, ask for."""
    if key >= 0:
        return p[p[P_AT_BUFFER] + key * PB_WIDTH + PB_BYTES]
    size = 0
    fixed = p[P_AT_COMMAND] + (-1 - key) * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        if p[operand + PO_MODE] & ALLOCATE and home_of(p, s, buffer) == die:
            size += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_CHARGE]
    return size


@kernel
def ask_for_space(p: Image, s: Image, die: int, key: int, size: int) -> None:
    """Reserve bytes, for which there is room, and use them as soon as they are free.

    Args:
        p: Program.
        s: State.
        die: Row of the die.
        key: A buffer, or -1 - c for the outputs of command c.
        size: Bytes.
    """
    free = s[die + SD_CLAIMS] == 0 and _has_space(p, s, die, key, size)
    s[die + SD_BYTES] += size
    s[S_HBM_PEAK] = max(s[S_HBM_PEAK], s[die + SD_BYTES])
    if free:
        _use_space(p, s, key)
        return
    s[die + SD_OWED_BYTES] += size
    s[s[die + SD_AT_CLAIMS] + s[die + SD_CLAIMS]] = key
    s[die + SD_CLAIMS] += 1
    s[S_WAITING] += 1
    if key >= 0:
        s[s[S_AT_BUFFER] + key * SB_WIDTH + SB_RESIDENCY] = OWED


@kernel
def grant_space(p: Image, s: Image) -> int:
    """Give space that has become free to those who wait for it; returns how many got theirs."""
    granted = 0
    for index in range(p[P_DIES]):
        die = die_row(s, index)
        at = s[die + SD_AT_CLAIMS]
        while s[die + SD_CLAIMS] > 0:
            key = s[at]
            size = _size_of(p, s, die, key)
            if not _has_space(p, s, die, key, size):
                break
            s[die + SD_CLAIMS] -= 1
            for i in range(s[die + SD_CLAIMS]):
                s[at + i] = s[at + i + 1]
            s[die + SD_OWED_BYTES] -= size
            s[S_WAITING] -= 1
            _use_space(p, s, key)
            granted += 1
    return granted


@kernel
def allocate_outputs(p: Image, s: Image, c: int) -> None:
    """Reserve the device buffers that a command is the first to write; they have their addresses already."""
    state = s[S_AT_COMMAND] + c * SC_WIDTH
    if p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES] == 0:
        return
    s[state + SC_OWED] = p[P_DIES]
    for index in range(p[P_DIES]):
        die = die_row(s, index)
        size = _size_of(p, s, die, -1 - c)
        make_room(p, s, die, size, -1)
        s[die + SD_DEVICE_BYTES] += size
        s[die + SD_OUTPUT_LEFT] -= size
        ask_for_space(p, s, die, -1 - c, size)


@kernel
def _needs_copy(p: Image, s: Image, buffer: int, mode: int) -> bool:
    return mode & READ != 0 and s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_ON_HOST] == 1


@kernel
def claim_operands(p: Image, s: Image, c: int) -> None:
    """Hold the managed operands of a head and start to bring in those that are missing."""
    s[s[S_AT_COMMAND] + c * SC_WIDTH + SC_CLAIMED] = 1
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
            if is_idle(p, s, buffer):
                leave_idle(p, s, buffer)
            s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_PINS] += 1
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 0:
            continue
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        if s[row + SB_RESIDENCY] == ABSENT:
            size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
            die = home_of(p, s, buffer)
            unwant(s, buffer)
            s[row + SB_CAUSE] = T_FAULT if _needs_copy(p, s, buffer, p[operand + PO_MODE]) else T_TOUCH
            make_room(p, s, die, size, -1)
            ask_for_space(p, s, die, buffer, size)
        elif s[row + SB_RESIDENCY] == OWED:  # it waits for space: now a head needs it
            if s[row + SB_CAUSE] == T_PREFETCH:
                s[row + SB_CAUSE] = T_FAULT
        elif s[row + SB_RESIDENCY] == IN_QUEUE:  # it overtakes the queue
            die = home_of(p, s, buffer)
            _leave_queue(s, s[die + SD_AT_QUEUE], s[die + SD_QUEUE], buffer)
            s[die + SD_QUEUE] -= 1
            s[S_WAITING] -= 1
            _begin_arrival(p, s, buffer, T_FAULT)


@kernel
def _leave_queue(s: Image, at: int, count: int, buffer: int) -> None:
    """Take the first entry of a buffer out of a queue, keeping the order of the others."""
    place = 0
    while s[at + place] != buffer:
        place += 1
    for i in range(place, count - 1):
        s[at + i] = s[at + i + 1]


@kernel
def enqueue_prefetch(p: Image, s: Image, buffer: int) -> None:
    """Reserve space for a buffer on the host; it will move when it is its turn."""
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    die = home_of(p, s, buffer)
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    unwant(s, buffer)
    s[row + SB_CAUSE] = T_PREFETCH
    make_room(p, s, die, size, -1 if p[P_FREE_MASK] == 1 else s[row + SB_RANK])
    ask_for_space(p, s, die, buffer, size)


@kernel
def enqueue_lift(p: Image, s: Image, buffer: int) -> None:
    """Ask for a buffer in HBM to be copied into L2; until that is done it is in use."""
    die = home_of(p, s, buffer)
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    if is_idle(p, s, buffer):
        leave_idle(p, s, buffer)
    s[row + SB_PINS] += 1
    s[row + SB_USERS] += 1
    s[row + SB_LIFTING] += 1
    s[s[die + SD_AT_LIFTS] + s[die + SD_LIFT_QUEUE]] = buffer
    s[die + SD_LIFT_QUEUE] += 1
    s[S_WAITING] += 1


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
            _begin_arrival(p, s, buffer, T_PREFETCH)
        else:
            _open_transfer(p, s, buffer, cause)


@kernel
def dispatch_transfers(p: Image, s: Image) -> None:
    """Start what can move now."""
    for index in range(p[P_DIES]):
        die = die_row(s, index)
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
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    index = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE]
    die = die_row(s, index)
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
        let_go(p, s, buffer)
    elif cause == T_WRITEBACK:
        s[die + SD_LEAVES_MOVING] -= 1
        s[pool_row(p, s, index, POOL_D2H) + SP_FREE] += 1
        s[die + SD_LEAVING_BYTES] -= p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
        s[row + SB_LEAVING] = 0
        s[row + SB_DIRTY] = 0
        record(s, T_WRITEBACK, buffer, s[row + SB_LEAVE_NS], start, now, 0, 0)
        if s[row + SB_RESIDENCY] == ABSENT:
            want(s, buffer)
    else:
        if cause == T_PREFETCH:
            s[die + SD_MOVING] -= 1
            s[pool_row(p, s, index, POOL_H2D) + SP_FREE] += 1
        s[row + SB_RESIDENCY] = VALID
        s[row + SB_CONTENT] = 1
        s[row + SB_USED] = now
        record(s, cause, buffer, s[row + SB_RESERVE_NS], start, now, 0, 0)
        if s[row + SB_PINS] == 0:
            make_idle(p, s, buffer)
