"""L2 by bytes, one a die: how much of each buffer lies there, in the order of last use.

Outputs of kernels enter whole, prefetched buffers up to the cap of a prefetch. Whoever enters pushes out what
was used longest ago, the last victim only by as much as is needed. Reading a buffer makes it the most recent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    FAR,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_OPERAND,
    P_AT_RANKED,
    P_DIES,
    P_FREE_MASK,
    P_L2_BYTES,
    P_LIFT_BYTES,
    P_LIFTS,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_DIE,
    P_STATE_LIFTABLE,
    PB_BYTES,
    PB_DIE,
    PB_MANAGED,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_TRAFFIC_BYTES,
    PC_WIDTH,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    Q20,
    READ,
    S_LIFTABLE,
    S_NOW_NS,
    SB_CONTENT,
    SB_L2_BYTES,
    SB_L2_NEWER,
    SB_L2_OLDER,
    SB_LIFTING,
    SB_LISTED,
    SB_RANK,
    SB_READS,
    SB_RESIDENCY,
    SB_WIDTH,
    SC_HIT,
    SC_REMOTE,
    SC_WIDTH,
    SD_L2_BYTES,
    SD_L2_NEWEST,
    SD_L2_OLDEST,
    SD_WIDTH,
    VALID,
    WRITE,
)
from cann_env.engine.trace import (
    T_HIT,
    record,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _unlink(p: Image, s: Image, buffer: int) -> None:
    """Take a buffer out of the order of use."""
    die = p[P_STATE_DIE] + p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE] * SD_WIDTH
    rows = p[P_STATE_BUFFER]
    row = rows + buffer * SB_WIDTH
    older = s[row + SB_L2_OLDER]
    newer = s[row + SB_L2_NEWER]
    if older >= 0:
        s[rows + older * SB_WIDTH + SB_L2_NEWER] = newer
    else:
        s[die + SD_L2_OLDEST] = newer
    if newer >= 0:
        s[rows + newer * SB_WIDTH + SB_L2_OLDER] = older
    else:
        s[die + SD_L2_NEWEST] = older


@kernel
def _drop(p: Image, s: Image, buffer: int) -> None:
    """A buffer leaves L2."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if s[row + SB_L2_BYTES] > 0:
        _unlink(p, s, buffer)
        die = p[P_STATE_DIE] + p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE] * SD_WIDTH
        s[die + SD_L2_BYTES] -= s[row + SB_L2_BYTES]
        s[row + SB_L2_BYTES] = 0


@kernel
def drop_from_cache(p: Image, s: Image, buffer: int) -> None:
    """A buffer that is in L2 leaves it."""
    _drop(p, s, buffer)
    list_liftable(p, s, buffer)


@kernel
def lift_bytes(p: Image, buffer: int) -> int:
    """Bytes that one prefetch of a buffer moves into L2."""
    return min(p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES], p[P_LIFT_BYTES])


@kernel
def _could_be_lifted(p: Image, s: Image, buffer: int) -> bool:
    """Whether a buffer lies in HBM for a known command to read and could move up to L2."""
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if s[row + SB_CONTENT] == 0 or s[row + SB_READS] == 0 or s[row + SB_RANK] == FAR:
        return False
    if s[row + SB_RESIDENCY] != VALID and p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
        return False
    user = p[p[P_AT_RANKED] + s[row + SB_RANK]]
    if p[p[P_AT_COMMAND] + user * PC_WIDTH + PC_TRAFFIC_BYTES] == 0:
        return False
    if p[P_FREE_MASK] == 1:
        return True
    return s[row + SB_LIFTING] == 0 and s[row + SB_L2_BYTES] < lift_bytes(p, buffer)


@kernel
def _less_urgent(p: Image, s: Image, one: int, other: int) -> bool:
    """Order of the list: by rank of the next user, then by number."""
    rows = p[P_STATE_BUFFER]
    first = s[rows + one * SB_WIDTH + SB_LISTED]
    second = s[rows + other * SB_WIDTH + SB_LISTED]
    return first > second or (first == second and one > other)


@kernel
def list_liftable(p: Image, s: Image, buffer: int) -> None:
    """Something has changed about a buffer: bring the list of what could be lifted into L2 up to date."""
    if p[P_LIFTS] == 0 or p[P_LIFT_BYTES] == 0:
        return
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    rank = s[row + SB_RANK] if _could_be_lifted(p, s, buffer) else -1
    if rank == s[row + SB_LISTED]:
        return
    at = p[P_STATE_LIFTABLE]
    if s[row + SB_LISTED] >= 0:
        place = s[S_LIFTABLE] - 1
        while s[at + place] != buffer:
            place -= 1
        for i in range(place, s[S_LIFTABLE] - 1):
            s[at + i] = s[at + i + 1]
        s[S_LIFTABLE] -= 1
    s[row + SB_LISTED] = rank
    if rank < 0:
        return
    place = s[S_LIFTABLE]
    while place > 0 and _less_urgent(p, s, buffer, s[at + place - 1]):
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = buffer
    s[S_LIFTABLE] += 1


@kernel
def enter_cache(p: Image, s: Image, buffer: int, size: int) -> None:
    """At least ``size`` bytes of a buffer lie in L2 now, most recently used; 0 only renews its place.

    What is larger than the L2 runs through: it empties the L2 and does not stay.
    """
    die = p[P_STATE_DIE] + p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE] * SD_WIDTH
    rows = p[P_STATE_BUFFER]
    row = rows + buffer * SB_WIDTH
    held = s[row + SB_L2_BYTES]
    wanted = max(held, size)
    if wanted == 0 or p[P_L2_BYTES] == 0:
        return
    _drop(p, s, buffer)
    while s[die + SD_L2_BYTES] + wanted > p[P_L2_BYTES] and s[die + SD_L2_BYTES] > 0:
        victim = s[die + SD_L2_OLDEST]
        theirs = s[rows + victim * SB_WIDTH + SB_L2_BYTES]
        excess = s[die + SD_L2_BYTES] + wanted - p[P_L2_BYTES]
        if theirs <= excess:
            drop_from_cache(p, s, victim)
        else:
            s[rows + victim * SB_WIDTH + SB_L2_BYTES] -= excess
            s[die + SD_L2_BYTES] -= excess
            list_liftable(p, s, victim)
    if wanted > p[P_L2_BYTES]:
        list_liftable(p, s, buffer)
        return
    newest = s[die + SD_L2_NEWEST]
    s[row + SB_L2_OLDER] = newest
    s[row + SB_L2_NEWER] = -1
    if newest >= 0:
        s[rows + newest * SB_WIDTH + SB_L2_NEWER] = buffer
    else:
        s[die + SD_L2_OLDEST] = buffer
    s[die + SD_L2_NEWEST] = buffer
    s[row + SB_L2_BYTES] = wanted
    s[die + SD_L2_BYTES] += wanted
    list_liftable(p, s, buffer)


@kernel
def lift_does_no_harm(p: Image, s: Image, buffer: int) -> bool:
    """Whether a prefetch into L2 pushes out only what is needed later than the buffer itself."""
    die = p[P_STATE_DIE] + p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE] * SD_WIDTH
    rows = p[P_STATE_BUFFER]
    rank = s[rows + buffer * SB_WIDTH + SB_RANK]
    wanted = lift_bytes(p, buffer) - s[rows + buffer * SB_WIDTH + SB_L2_BYTES]
    free = p[P_L2_BYTES] - s[die + SD_L2_BYTES]
    victim = s[die + SD_L2_OLDEST]
    while free < wanted and victim >= 0:
        if victim != buffer:
            if s[rows + victim * SB_WIDTH + SB_RANK] <= rank:
                return False
            free += s[rows + victim * SB_WIDTH + SB_L2_BYTES]
        victim = s[rows + victim * SB_WIDTH + SB_L2_NEWER]
    return free >= wanted


@kernel
def shares_of_kernel(p: Image, s: Image, c: int, k: int, die: int) -> None:
    """Find out which part of its operands a kernel that starts finds in L2, and which on another die.

    Args:
        p: Program.
        s: State; receives SC_HIT and SC_REMOTE of the command in 2**-20.
        c: Command.
        k: Kernel, counted within the command.
        die: Die it runs on.
    """
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    traffic = p[fixed + PC_TRAFFIC_BYTES]
    if traffic == 0 or (p[P_L2_BYTES] == 0 and p[P_DIES] == 1):
        return
    hit = 0
    remote = 0
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        mode = p[operand + PO_MODE]
        row = p[P_AT_BUFFER] + buffer * PB_WIDTH
        if p[row + PB_DIE] != die:
            remote += p[row + PB_BYTES] * ((mode & READ) + ((mode & WRITE) >> 1))
        elif mode & READ and s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_L2_BYTES] > 0:
            hit += s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_L2_BYTES]
            enter_cache(p, s, buffer, 0)
    s[state + SC_HIT] = hit * Q20 // traffic
    s[state + SC_REMOTE] = remote * Q20 // traffic
    if hit > 0:
        record(s, T_HIT, c, k, s[S_NOW_NS], hit, 0, 0)
