"""HBM by bytes, one account a die: what is reserved, what could be evicted, what makes room.

A buffer that is written back is no longer reserved but still takes space; whoever got its place waits for it
(see :mod:`cann_env.engine.transfers`). So what is reserved always fits, and what lies in HBM always fits.
Lists are kept up to date where something changes, so that asking for room looks only at what makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import drop_from_cache, list_liftable
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    FAR,
    LINK_H2D,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_DEMAND,
    P_AT_DIE,
    P_AT_OPERAND,
    P_AT_USER,
    P_COMMANDS,
    P_DIES,
    P_HBM_BYTES,
    P_LRU,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_DIE,
    P_STATE_LINK,
    P_STATE_WANTED,
    PB_BYTES,
    PB_DIE,
    PB_MANAGED,
    PB_USER,
    PB_USERS,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_RANK,
    PC_RELEASE_NS,
    PC_WIDTH,
    PD_SPACE_BYTES,
    PD_TAKEN_BYTES,
    PD_WIDTH,
    PM_WIDTH,
    PO_BUFFER,
    PO_WIDTH,
    PV_COMMAND,
    PV_MODE,
    PV_WIDTH,
    Q20,
    READ,
    S_NOW_NS,
    S_STIRRED,
    S_WAITING,
    S_WANTED,
    SB_COMING,
    SB_CONTENT,
    SB_DIRTY,
    SB_LEAVE_NS,
    SB_LEAVING,
    SB_NEXT,
    SB_ON_HOST,
    SB_PINS,
    SB_RANK,
    SB_READS,
    SB_RESIDENCY,
    SB_UNSTARTED,
    SB_USED,
    SB_WIDTH,
    SC_COMING_BYTES,
    SC_PHASE,
    SC_WIDTH,
    SD_AT_IDLE,
    SD_AT_LEAVES,
    SD_BYTES,
    SD_IDLE,
    SD_IDLE_BYTES,
    SD_LEAVE_QUEUE,
    SD_LEAVING_BYTES,
    SD_SCRATCH,
    SD_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    STARTED,
    VALID,
)
from cann_env.engine.trace import (
    T_EVICT,
    record,
)

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
def look_ahead(p: Image, s: Image, buffer: int) -> None:
    """Find the most urgent user of a buffer that has not started and is known by now."""
    _find_next_user(p, s, buffer)
    list_liftable(p, s, buffer)


@kernel
def _find_next_user(p: Image, s: Image, buffer: int) -> None:
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    s[row + SB_RANK] = FAR
    s[row + SB_READS] = 0
    if s[row + SB_UNSTARTED] == 0:
        return
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    first = p[P_AT_USER] + p[fixed + PB_USER] * PV_WIDTH
    count = p[fixed + PB_USERS]
    commands = p[P_STATE_COMMAND]
    at = s[row + SB_NEXT]
    while at < count and s[commands + p[first + at * PV_WIDTH] * SC_WIDTH + SC_PHASE] >= STARTED:
        at += 1
    s[row + SB_NEXT] = at
    while at < count:
        c = p[first + at * PV_WIDTH + PV_COMMAND]
        user = p[P_AT_COMMAND] + c * PC_WIDTH
        if s[commands + c * SC_WIDTH + SC_PHASE] < STARTED and p[user + PC_RELEASE_NS] <= s[S_NOW_NS]:
            s[row + SB_RANK] = p[user + PC_RANK]
            s[row + SB_READS] = p[first + at * PV_WIDTH + PV_MODE] & READ
            return
        at += 1


@kernel
def tell_readers(p: Image, s: Image, buffer: int, column: int, size: int) -> None:
    """Add bytes of a buffer to a column of all commands that read it."""
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    users = p[P_AT_USER] + p[fixed + PB_USER] * PV_WIDTH
    for user in range(users, users + p[fixed + PB_USERS] * PV_WIDTH, PV_WIDTH):
        if p[user + PV_MODE] & READ:
            s[p[P_STATE_COMMAND] + p[user + PV_COMMAND] * SC_WIDTH + column] += size


@kernel
def expect_arrival(p: Image, s: Image, buffer: int) -> None:
    """Count an absent buffer in the work left of the link from the host, if it will have to come.

    That is so if the first in program order of those that have yet to start reads it: all others depend on
    whoever writes it whole.
    """
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    first = p[P_COMMANDS]
    reads = False
    users = p[P_AT_USER] + p[fixed + PB_USER] * PV_WIDTH
    for user in range(users, users + p[fixed + PB_USERS] * PV_WIDTH, PV_WIDTH):
        c = p[user + PV_COMMAND]
        if c < first and s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_PHASE] < STARTED:
            first = c
            reads = p[user + PV_MODE] & READ != 0
    if reads:
        s[row + SB_COMING] = 1
        s[p[P_STATE_LINK] + LINK_H2D * SL_WIDTH + SL_BYTES] += p[fixed + PB_BYTES] * Q20
        tell_readers(p, s, buffer, SC_COMING_BYTES, p[fixed + PB_BYTES])


@kernel
def arrival_begins(p: Image, s: Image, buffer: int) -> None:
    """Its bytes no longer wait for the link."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if s[row + SB_COMING] == 1:
        s[row + SB_COMING] = 0
        size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
        s[p[P_STATE_LINK] + LINK_H2D * SL_WIDTH + SL_BYTES] -= size * Q20
        tell_readers(p, s, buffer, SC_COMING_BYTES, -size)


@kernel
def _forget(s: Image, at: int, count: int, buffer: int) -> int:
    """Take a buffer out of a list, keeping the order of the others; returns how many are left."""
    place = count - 1
    while place >= 0 and s[at + place] != buffer:
        place -= 1
    if place < 0:
        return count
    for i in range(place, count - 1):
        s[at + i] = s[at + i + 1]
    return count - 1


@kernel
def want(p: Image, s: Image, buffer: int) -> None:
    """Enter an absent buffer in the list of those that are needed, by the rank of its next user."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if s[row + SB_RANK] == FAR or s[row + SB_READS] == 0:
        return
    at = p[P_STATE_WANTED]
    place = s[S_WANTED]
    while place > 0 and _goes_later(p, s, s[at + place - 1], buffer):
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = buffer
    s[S_WANTED] += 1


@kernel
def _goes_later(p: Image, s: Image, one: int, other: int) -> bool:
    """Order of need: by rank of the next user, then by number."""
    first = s[p[P_STATE_BUFFER] + one * SB_WIDTH + SB_RANK]
    second = s[p[P_STATE_BUFFER] + other * SB_WIDTH + SB_RANK]
    return first > second or (first == second and one > other)


@kernel
def unwant(p: Image, s: Image, buffer: int) -> None:
    """Take a buffer out of the list of absent ones that are needed."""
    s[S_WANTED] = _forget(s, p[P_STATE_WANTED], s[S_WANTED], buffer)


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
    s[die + SD_IDLE] = _forget(s, s[die + SD_AT_IDLE], s[die + SD_IDLE], buffer)
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
