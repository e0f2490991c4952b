"""HBM by bytes, one account a die: what is reserved, what could be evicted, what makes room.

A buffer that is written back is no longer reserved but still takes space; whoever got its place waits for it
(see :mod:`cann_env.engine.transfers`). So what is reserved always fits, and what lies in HBM always fits.
Lists are kept up to date where something changes, so that asking for room looks only at what makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import drop_from_cache
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_DEMAND,
    P_AT_DIE,
    P_AT_OPERAND,
    P_DIES,
    P_HBM_BYTES,
    P_LRU,
    P_STATE_BUFFER,
    P_STATE_DIE,
    PB_BYTES,
    PB_DIE,
    PB_MANAGED,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_WIDTH,
    PD_SPACE_BYTES,
    PD_TAKEN_BYTES,
    PD_WIDTH,
    PM_WIDTH,
    PO_BUFFER,
    PO_WIDTH,
    S_NOW_NS,
    S_STIRRED,
    S_WAITING,
    SB_CONTENT,
    SB_DIRTY,
    SB_LEAVE_NS,
    SB_LEAVING,
    SB_ON_HOST,
    SB_PINS,
    SB_RANK,
    SB_RESIDENCY,
    SB_USED,
    SB_WIDTH,
    SD_AT_IDLE,
    SD_AT_LEAVES,
    SD_BYTES,
    SD_IDLE,
    SD_IDLE_BYTES,
    SD_LEAVE_QUEUE,
    SD_LEAVING_BYTES,
    SD_SCRATCH,
    SD_WIDTH,
    VALID,
)
from cann_env.engine.trace import (
    T_EVICT,
    record,
)
from cann_env.engine.upcoming import expect_arrival, forget, look_ahead, unwant, want

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def die_row(p: Image, s: Image, die: int) -> int:
    """Row of a die in the state."""
    return p[P_STATE_DIE] + die * SD_WIDTH


@kernel
def home_of(p: Image, s: Image, buffer: int) -> int:
    """Row of the home die of a buffer."""
    return p[P_STATE_DIE] + p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE] * SD_WIDTH


@kernel
def demand_row(p: Image, c: int, index: int) -> int:
    """Row of what a command asks of the memory of a die."""
    return p[P_AT_DEMAND] + (c * p[P_DIES] + index) * PM_WIDTH


@kernel
def roomy(p: Image, index: int) -> bool:
    """Whether the address space of a die takes all its buffers at once: then each has a place of its own."""
    fixed = p[P_AT_DIE] + index * PD_WIDTH
    return p[fixed + PD_TAKEN_BYTES] <= p[fixed + PD_SPACE_BYTES]


@kernel
def _stays_longer(p: Image, s: Image, one: int, other: int) -> bool:
    """Whether the first is evicted later than the second."""
    if p[P_LRU] == 1:
        rows = p[P_STATE_BUFFER]
        return s[rows + one * SB_WIDTH + SB_USED] > s[rows + other * SB_WIDTH + SB_USED]
    first = s[p[P_STATE_BUFFER] + one * SB_WIDTH + SB_RANK]
    second = s[p[P_STATE_BUFFER] + other * SB_WIDTH + SB_RANK]
    return first < second or (first == second and one > other)


@kernel
def make_idle(p: Image, s: Image, buffer: int) -> None:
    """Enter a buffer that nobody holds in the list of those that could be evicted."""
    die = home_of(p, s, buffer)
    at = s[die + SD_AT_IDLE]
    place = s[die + SD_IDLE]
    while place > 0 and _stays_longer(p, s, buffer, s[at + place - 1]):
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = buffer
    s[die + SD_IDLE] += 1
    s[die + SD_IDLE_BYTES] += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]


@kernel
def leave_idle(p: Image, s: Image, buffer: int) -> None:
    """Take a buffer out of the list of those that could be evicted."""
    die = home_of(p, s, buffer)
    s[die + SD_IDLE] = forget(s, s[die + SD_AT_IDLE], s[die + SD_IDLE], buffer)
    s[die + SD_IDLE_BYTES] -= p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]


@kernel
def is_idle(p: Image, s: Image, buffer: int) -> bool:
    """Whether a buffer could be evicted: managed, there, and held by nobody."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    managed = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1
    return managed and s[row + SB_RESIDENCY] == VALID and s[row + SB_PINS] == 0


@kernel
def becomes_known(p: Image, s: Image, c: int) -> None:
    """A command is released: its buffers may be needed sooner than was known."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 0:
            look_ahead(p, s, buffer)
        elif is_idle(p, s, buffer):
            leave_idle(p, s, buffer)
            look_ahead(p, s, buffer)
            make_idle(p, s, buffer)
        elif s[row + SB_RESIDENCY] == ABSENT and s[row + SB_ON_HOST] == 1 and s[row + SB_LEAVING] == 0:
            unwant(p, s, buffer)
            look_ahead(p, s, buffer)
            want(p, s, buffer)
        else:
            look_ahead(p, s, buffer)


@kernel
def can_make_room(p: Image, s: Image, die: int, size: int, rank: int) -> bool:
    """Whether ``size`` bytes are free or can be freed by evicting only what is needed after ``rank``.

    Args:
        p: Program.
        s: State.
        die: Row of the die.
        size: Bytes.
        rank: -1 to let everything go that nobody holds.
    """
    free = p[P_HBM_BYTES] - s[die + SD_BYTES]
    if free >= size:
        return True
    if free + s[die + SD_IDLE_BYTES] < size:
        return False
    if rank < 0:
        return True
    at = s[die + SD_AT_IDLE]
    for i in range(s[die + SD_IDLE] - 1, -1, -1):
        buffer = s[at + i]
        if s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK] > rank:
            free += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
            if free >= size:
                return True
        elif p[P_LRU] == 0:
            return False
    return False


@kernel
def evict(p: Image, s: Image, buffer: int) -> None:
    """Make a buffer that nobody holds give up its place; what the host lacks is written back first."""
    leave_idle(p, s, buffer)
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    die = home_of(p, s, buffer)
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    s[row + SB_RESIDENCY] = ABSENT
    s[row + SB_CONTENT] = 0
    s[row + SB_ON_HOST] = 1
    drop_from_cache(p, s, buffer)
    s[die + SD_BYTES] -= size
    s[S_STIRRED] = 1
    expect_arrival(p, s, buffer)
    if s[row + SB_DIRTY] == 1:
        s[row + SB_LEAVING] = 1
        s[row + SB_LEAVE_NS] = s[S_NOW_NS]
        s[die + SD_LEAVING_BYTES] += size
        s[s[die + SD_AT_LEAVES] + s[die + SD_LEAVE_QUEUE]] = buffer
        s[die + SD_LEAVE_QUEUE] += 1
        s[S_WAITING] += 1
        s[S_STIRRED] = 1
    else:
        want(p, s, buffer)
        record(s, T_EVICT, buffer, s[S_NOW_NS], 0, 0, 0, 0)


@kernel
def make_room(p: Image, s: Image, die: int, size: int, rank: int) -> None:
    """Evict until ``size`` bytes can be reserved, only what is needed after ``rank``; it must be possible."""
    at = s[die + SD_AT_IDLE]
    i = s[die + SD_IDLE] - 1
    while p[P_HBM_BYTES] - s[die + SD_BYTES] < size and i >= 0:
        buffer = s[at + i]
        if s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK] > rank:
            evict(p, s, buffer)
        i -= 1


@kernel
def operands_there(p: Image, s: Image, c: int) -> bool:
    """Whether all managed operands of a command have their space and their content."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        managed = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1
        if managed and s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] != VALID:
            return False
    return True


@kernel
def can_claim(p: Image, s: Image, c: int) -> bool:
    """Whether all missing managed operands fit at once, its present ones staying where they are."""
    for die in range(p[P_DIES]):
        s[die_row(p, s, die) + SD_SCRATCH] = 0
    missing = 0
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = p[P_AT_BUFFER] + buffer * PB_WIDTH
        if p[row + PB_MANAGED] == 0:
            continue
        absent = s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] == ABSENT
        if absent or is_idle(p, s, buffer):  # either takes bytes that are free or could be
            s[home_of(p, s, buffer) + SD_SCRATCH] += p[row + PB_BYTES]
        if absent:
            missing += 1
    if missing == 0:
        return True
    for die in range(p[P_DIES]):
        row = die_row(p, s, die)
        if p[P_HBM_BYTES] - s[row + SD_BYTES] + s[row + SD_IDLE_BYTES] < s[row + SD_SCRATCH]:
            return False
    return True
