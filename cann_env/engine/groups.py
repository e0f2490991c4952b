"""Groups: blocks of a kernel that started together, or a buffer that moves between two levels.

A group launches, then moves its bytes, part by part where they come from several places, then computes on if
its arithmetic takes longer. While it moves it counts on every link that it crosses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    FAR,
    LINK_DIE,
    LINK_HBM,
    LINK_KINDS,
    LINK_L2,
    P_DIES,
    P_STATE_GROUP,
    P_STATE_LINK,
    S_DIRTY,
    S_GROUPS,
    S_NOW_NS,
    SL_UNITS,
    SL_WANTED,
    SL_WIDTH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image

# Columns of the table of groups: blocks that started together, or a managed buffer that moves.
(
    SG_COMMAND,  # -1 for a migration
    SG_BUFFER,  # -1 for blocks
    SG_BLOCKS,
    SG_DIE,  # of blocks: where they run
    SG_STAGE,
    SG_START_NS,
    SG_COMPUTE_NS,  # when its arithmetic ends
    SG_BYTES,  # q20 a block still has to move, at SG_REF_NS
    SG_REF_NS,
    SG_RATE,  # q20/ns of a block
    SG_CAP,  # q20/ns, most a block can take
    SG_REMOTE_BYTES,  # q20 of a block that come from another die after that
    SG_L2_BYTES,  # q20 of a block that come from L2 after that
    SG_L2_CAP,
    SG_FLOW,  # bit set of the rows of the link table that its bytes cross
    SG_HBM_WEIGHT,
    SG_NEXT_NS,  # its next change of stage
    SG_ORIGIN,  # of blocks: start of their kernel; of a buffer: T_FAULT, T_PREFETCH, T_WRITEBACK or T_LIFT
    SG_SHARE,  # scratch: its new rate
    SG_EXPECTED_NS,  # when it would end with the expected durations and no one beside it
    SG_WIDTH,
) = range(21)
LAUNCHING, MOVING, COMPUTING = range(3)  # SG_STAGE


@kernel
def _count_mover(p: Image, s: Image, group: int, sign: int) -> None:
    """Add what a group asks of the links it crosses to their sums, or take it away."""
    s[S_DIRTY] = 1
    flow = s[group + SG_FLOW]
    link = 0
    while flow > 0:
        if flow & 1:
            row = p[P_STATE_LINK] + link * SL_WIDTH
            units = sign * units_of(s, group, link)
            s[row + SL_UNITS] += units
            s[row + SL_WANTED] += units * s[group + SG_CAP]
        flow >>= 1
        link += 1


@kernel
def start_moving(p: Image, s: Image, group: int) -> None:
    """A group begins to move what SG_BYTES says; its rate is known once the bandwidth is divided."""
    s[group + SG_STAGE] = MOVING
    s[group + SG_RATE] = 0
    s[group + SG_REF_NS] = s[S_NOW_NS]
    s[group + SG_NEXT_NS] = FAR
    _count_mover(p, s, group, 1)


@kernel
def stop_moving(p: Image, s: Image, group: int) -> None:
    """A group has moved its bytes."""
    s[group + SG_BYTES] = 0
    _count_mover(p, s, group, -1)


@kernel
def units_of(s: Image, group: int, link: int) -> int:
    """How many units of a link's bandwidth one unit of a group's rate takes."""
    blocks = s[group + SG_BLOCKS]
    return blocks * s[group + SG_HBM_WEIGHT] if link % LINK_KINDS == LINK_HBM else blocks


@kernel
def next_part(p: Image, s: Image, group: int) -> bool:
    """Let the blocks of a group move their next bytes: from another die, then from L2; False without any."""
    die = s[group + SG_DIE]
    if s[group + SG_REMOTE_BYTES] > 0:
        other = (die + 1) % p[P_DIES]
        s[group + SG_BYTES] = s[group + SG_REMOTE_BYTES]
        s[group + SG_REMOTE_BYTES] = 0
        s[group + SG_FLOW] = 1 << (die * LINK_KINDS + LINK_DIE) | 1 << (other * LINK_KINDS + LINK_HBM)
        return True
    if s[group + SG_L2_BYTES] > 0:
        s[group + SG_BYTES] = s[group + SG_L2_BYTES]
        s[group + SG_L2_BYTES] = 0
        s[group + SG_FLOW] = 1 << (die * LINK_KINDS + LINK_L2)
        s[group + SG_CAP] = s[group + SG_L2_CAP]
        return True
    return False


@kernel
def open_group(p: Image, s: Image, c: int, buffer: int, blocks: int, begin: int, compute: int) -> int:
    """Add a group whose launch part ends at ``begin`` and that moves nothing yet; returns its row."""
    row = p[P_STATE_GROUP] + s[S_GROUPS] * SG_WIDTH
    s[S_GROUPS] += 1
    s[row + SG_COMMAND] = c
    s[row + SG_BUFFER] = buffer
    s[row + SG_BLOCKS] = blocks
    s[row + SG_START_NS] = s[S_NOW_NS]
    s[row + SG_COMPUTE_NS] = begin + compute
    s[row + SG_BYTES] = 0
    s[row + SG_REMOTE_BYTES] = 0
    s[row + SG_L2_BYTES] = 0
    s[row + SG_REF_NS] = begin
    s[row + SG_RATE] = 0
    s[row + SG_STAGE] = COMPUTING
    s[row + SG_NEXT_NS] = begin + compute
    return row


@kernel
def begin_to_move(p: Image, s: Image, group: int, begin: int) -> None:
    """A new group whose bytes are known: it launches, or moves at once, or has nothing to move."""
    if s[group + SG_BYTES] == 0 and not next_part(p, s, group):
        return
    if begin > s[S_NOW_NS]:
        s[group + SG_STAGE] = LAUNCHING
        s[group + SG_NEXT_NS] = begin
    else:
        start_moving(p, s, group)
