"""Who gets space: reservations of HBM, and the wait until the bytes are really free.

Space is granted first come, first served on each die; only while something is written back does anyone wait
for it. With the space a buffer starts to move, joins the queue of prefetches, or is there at once because it
will be written whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import list_liftable
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    ALLOCATE,
    IN_QUEUE,
    OWED,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_OPERAND,
    P_DIES,
    P_FREE_MASK,
    P_HBM_BYTES,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    PB_BYTES,
    PB_MANAGED,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_OUTPUT_BYTES,
    PC_WIDTH,
    PM_CHARGE,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    READ,
    S_CLAIMS,
    S_HBM_PEAK,
    S_NOW_NS,
    S_STIRRED,
    S_TRACE_CAPACITY,
    S_WAITING,
    SB_ADDRESS,
    SB_CAUSE,
    SB_LEAVING,
    SB_ON_HOST,
    SB_PINS,
    SB_RANK,
    SB_RESERVE_NS,
    SB_RESIDENCY,
    SB_WIDTH,
    SC_CLAIMED,
    SC_ISSUE_NS,
    SC_OWED,
    SC_WIDTH,
    SD_AT_CLAIMS,
    SD_AT_QUEUE,
    SD_BYTES,
    SD_CLAIMS,
    SD_DEVICE_BYTES,
    SD_LEAVING_BYTES,
    SD_OUTPUT_LEFT,
    SD_OWED_BYTES,
    SD_QUEUE,
    VALID,
)
from cann_env.engine.memory import demand_row, die_row, home_of, is_idle, leave_idle, make_room
from cann_env.engine.trace import (
    T_ALLOCATE,
    T_FAULT,
    T_PREFETCH,
    T_TOUCH,
    record,
)
from cann_env.engine.transfers import begin_arrival, leave_queue
from cann_env.engine.upcoming import unwant

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _arrive_at_once(p: Image, s: Image, buffer: int) -> None:
    """A buffer that will be written whole has its space; there is nothing to bring."""
    s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] = VALID
    list_liftable(p, s, buffer)
    record(s, T_TOUCH, buffer, s[S_NOW_NS], 0, 0, 0, 0)


@kernel
def _use_space(p: Image, s: Image, key: int) -> None:
    """Whoever asked for space has it now."""
    if key < 0:
        _grant_outputs(p, s, -1 - key)
        return
    row = p[P_STATE_BUFFER] + key * SB_WIDTH
    s[row + SB_RESERVE_NS] = s[S_NOW_NS]
    if s[row + SB_CAUSE] == T_TOUCH:
        _arrive_at_once(p, s, key)
    elif s[row + SB_CAUSE] == T_FAULT:
        begin_arrival(p, s, key, T_FAULT)
    else:
        die = home_of(p, s, key)
        s[row + SB_RESIDENCY] = IN_QUEUE
        s[s[die + SD_AT_QUEUE] + s[die + SD_QUEUE]] = key
        s[die + SD_QUEUE] += 1
        s[S_WAITING] += 1
        s[S_STIRRED] = 1


@kernel
def _grant_outputs(p: Image, s: Image, c: int) -> None:
    """The outputs of a command have their space on one more die; the last one completes them."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    s[state + SC_OWED] -= 1
    if s[state + SC_OWED] > 0 or s[S_TRACE_CAPACITY] == 0:
        return
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        if p[operand + PO_MODE] & ALLOCATE:
            buffer = p[operand + PO_BUFFER]
            address = s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_ADDRESS]
            record(s, T_ALLOCATE, buffer, c, address, s[state + SC_ISSUE_NS], s[S_NOW_NS], 0)


@kernel
def _has_space(p: Image, s: Image, die: int, key: int, size: int) -> bool:
    """Whether bytes that are reserved are really free this instant."""
    taken = s[die + SD_BYTES] - s[die + SD_OWED_BYTES] + s[die + SD_LEAVING_BYTES]
    if taken + size > p[P_HBM_BYTES]:
        return False
    return key < 0 or s[p[P_STATE_BUFFER] + key * SB_WIDTH + SB_LEAVING] == 0


@kernel
def _size_of(p: Image, index: int, key: int) -> int:
    """Bytes of HBM that a buffer, or the outputs of a command on a die, ask for."""
    if key >= 0:
        return p[p[P_AT_BUFFER] + key * PB_WIDTH + PB_BYTES]
    return p[demand_row(p, -1 - key, index) + PM_CHARGE]


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
    s[S_CLAIMS] += 1
    s[S_WAITING] += 1
    s[S_STIRRED] = 1
    if key >= 0:
        s[p[P_STATE_BUFFER] + key * SB_WIDTH + SB_RESIDENCY] = OWED


@kernel
def grant_space(p: Image, s: Image) -> int:
    """Give space that has become free to those who wait for it; returns how many got theirs."""
    granted = 0
    for index in range(p[P_DIES]):
        die = die_row(p, s, index)
        at = s[die + SD_AT_CLAIMS]
        while s[die + SD_CLAIMS] > 0:
            key = s[at]
            size = _size_of(p, index, key)
            if not _has_space(p, s, die, key, size):
                break
            s[die + SD_CLAIMS] -= 1
            s[S_CLAIMS] -= 1
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
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    if p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES] == 0:
        return
    s[state + SC_OWED] = p[P_DIES]
    for index in range(p[P_DIES]):
        die = die_row(p, s, index)
        size = _size_of(p, index, -1 - c)
        make_room(p, s, die, size, -1)
        s[die + SD_DEVICE_BYTES] += size
        s[die + SD_OUTPUT_LEFT] -= size
        ask_for_space(p, s, die, -1 - c, size)


@kernel
def _needs_copy(p: Image, s: Image, buffer: int, mode: int) -> bool:
    return mode & READ != 0 and s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_ON_HOST] == 1


@kernel
def claim_operands(p: Image, s: Image, c: int) -> None:
    """Hold the managed operands of a head and start to bring in those that are missing."""
    s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_CLAIMED] = 1
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
            if is_idle(p, s, buffer):
                leave_idle(p, s, buffer)
            s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_PINS] += 1
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 0:
            continue
        row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
        if s[row + SB_RESIDENCY] == ABSENT:
            size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
            die = home_of(p, s, buffer)
            unwant(p, s, buffer)
            s[row + SB_CAUSE] = T_FAULT if _needs_copy(p, s, buffer, p[operand + PO_MODE]) else T_TOUCH
            make_room(p, s, die, size, -1)
            ask_for_space(p, s, die, buffer, size)
        elif s[row + SB_RESIDENCY] == OWED:  # it waits for space: now a head needs it
            if s[row + SB_CAUSE] == T_PREFETCH:
                s[row + SB_CAUSE] = T_FAULT
        elif s[row + SB_RESIDENCY] == IN_QUEUE:  # it overtakes the queue
            die = home_of(p, s, buffer)
            leave_queue(s, s[die + SD_AT_QUEUE], s[die + SD_QUEUE], buffer)
            s[die + SD_QUEUE] -= 1
            s[S_WAITING] -= 1
            begin_arrival(p, s, buffer, T_FAULT)


@kernel
def enqueue_prefetch(p: Image, s: Image, buffer: int) -> None:
    """Reserve space for a buffer on the host; it will move when it is its turn."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    die = home_of(p, s, buffer)
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    unwant(p, s, buffer)
    s[row + SB_CAUSE] = T_PREFETCH
    make_room(p, s, die, size, -1 if p[P_FREE_MASK] == 1 else s[row + SB_RANK])
    ask_for_space(p, s, die, buffer, size)
