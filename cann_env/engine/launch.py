"""Starting work: slots, cores and channels for the blocks of a kernel, and migrations of buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.arithmetic import ceil_div, scaled
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    COMPUTING,
    FAR,
    LACKS_CORES,
    LACKS_DMA,
    LACKS_SLOT,
    LAUNCHING,
    LINK_H2D,
    LINK_HBM,
    MOVING,
    NO_CAUSE,
    P_AT_BUFFER,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_LINK,
    P_FAULT_RATE,
    P_LINK_LATENCY_NS,
    P_LINKS,
    P_MAX_ACTIVE,
    PB_BYTES,
    PB_WIDTH,
    PC_KERNEL,
    PC_WIDTH,
    PK_AREA_NS,
    PK_BATCH,
    PK_BLOCKS,
    PK_BYTES,
    PK_BYTES_2,
    PK_CLASS,
    PK_COMPUTE_NS,
    PK_FALLBACK,
    PK_FLOW,
    PK_HBM_WEIGHT,
    PK_LAUNCH_NS,
    PK_RATE,
    PK_VARIANT,
    PK_WIDTH,
    PL_FLOW,
    PL_RATE,
    PL_WIDTH,
    POOL_H2D,
    PW_DEMAND,
    PW_DEMAND_2,
    PW_MAX_ACTIVE,
    PW_POOL,
    PW_POOL_2,
    PW_WIDTH,
    Q20,
    S_ACTIVE,
    S_AT_CLASS,
    S_AT_COMMAND,
    S_AT_GROUP,
    S_AT_LINK,
    S_AT_POOL,
    S_DIRTY,
    S_GROUPS,
    S_NOW_NS,
    SC_BEGIN_NS,
    SC_KERNEL,
    SC_KERNEL_NS,
    SC_NOISE,
    SC_PENDING,
    SC_RUNNING,
    SC_SLOT,
    SC_VARIANT,
    SC_WIDTH,
    SG_BLOCKS,
    SG_BUFFER,
    SG_BYTES,
    SG_CAP,
    SG_COMMAND,
    SG_COMPUTE_NS,
    SG_EXPECTED_NS,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_NEXT_NS,
    SG_ORIGIN,
    SG_RATE,
    SG_REF_NS,
    SG_STAGE,
    SG_START_NS,
    SG_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    SP_AREA_NS,
    SP_FREE,
    SP_WIDTH,
    SW_ACTIVE,
    SW_WIDTH,
    T_FAULT,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def kernel_row(p: Image, s: Image, c: int) -> int:
    """Row of the kernel that a command runs or runs next."""
    first = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_KERNEL]
    return p[P_AT_KERNEL] + (first + s[s[S_AT_COMMAND] + c * SC_WIDTH + SC_KERNEL]) * PK_WIDTH


@kernel
def free_blocks(p: Image, s: Image, work: int) -> int:
    """How many blocks of a class could start now for all that cores and channels matter."""
    row = p[P_AT_CLASS] + work * PW_WIDTH
    if p[row + PW_DEMAND] == 0:
        return 0
    pools = s[S_AT_POOL]
    blocks = s[pools + p[row + PW_POOL] * SP_WIDTH + SP_FREE] // p[row + PW_DEMAND]
    if p[row + PW_DEMAND_2] > 0:
        second = s[pools + p[row + PW_POOL_2] * SP_WIDTH + SP_FREE] // p[row + PW_DEMAND_2]
        blocks = min(blocks, second)
    return blocks


@kernel
def take_cores(p: Image, s: Image, work: int, blocks: int) -> None:
    """Occupy the cores of some blocks; a negative number gives them back."""
    row = p[P_AT_CLASS] + work * PW_WIDTH
    pools = s[S_AT_POOL]
    s[pools + p[row + PW_POOL] * SP_WIDTH + SP_FREE] -= blocks * p[row + PW_DEMAND]
    if p[row + PW_DEMAND_2] > 0:
        s[pools + p[row + PW_POOL_2] * SP_WIDTH + SP_FREE] -= blocks * p[row + PW_DEMAND_2]


@kernel
def lacking(p: Image, s: Image, work: int, wanted: int) -> int:
    """What keeps a kernel of a class from starting: a slot, cores, a channel, or nothing."""
    limit = p[p[P_AT_CLASS] + work * PW_WIDTH + PW_MAX_ACTIVE]
    if s[s[S_AT_CLASS] + work * SW_WIDTH + SW_ACTIVE] >= limit:
        return LACKS_SLOT
    if free_blocks(p, s, work) < wanted:
        return LACKS_DMA if p[p[P_AT_CLASS] + work * PW_WIDTH + PW_POOL] >= POOL_H2D else LACKS_CORES
    return NO_CAUSE


@kernel
def kernel_lacks(p: Image, s: Image, row: int) -> int:
    """What keeps a kernel from starting in its preferred class and in its fallback."""
    wanted = p[row + PK_BLOCKS] if p[row + PK_BATCH] == 1 else 1
    cause = lacking(p, s, p[row + PK_CLASS], wanted)
    if cause != NO_CAUSE and p[row + PK_FALLBACK] >= 0:
        return lacking(p, s, p[row + PK_FALLBACK], wanted)
    return cause


@kernel
def open_group(s: Image, c: int, buffer: int, blocks: int, begin: int, compute: int, size: int) -> int:
    """Add a group whose launch part ends at ``begin``; returns its row. The caller sets its flow."""
    row = s[S_AT_GROUP] + s[S_GROUPS] * SG_WIDTH
    s[S_GROUPS] += 1
    now = s[S_NOW_NS]
    s[row + SG_COMMAND] = c
    s[row + SG_BUFFER] = buffer
    s[row + SG_BLOCKS] = blocks
    s[row + SG_START_NS] = now
    s[row + SG_COMPUTE_NS] = begin + compute
    s[row + SG_BYTES] = size
    s[row + SG_REF_NS] = begin
    s[row + SG_RATE] = 0
    if size == 0:
        s[row + SG_STAGE] = COMPUTING
        s[row + SG_NEXT_NS] = begin + compute
    elif begin > now:
        s[row + SG_STAGE] = LAUNCHING
        s[row + SG_NEXT_NS] = begin
    else:
        s[row + SG_STAGE] = MOVING
        s[row + SG_NEXT_NS] = FAR  # known once the bandwidth is divided, this same instant
        s[S_DIRTY] = 1
    return row


@kernel
def _open_kernel(p: Image, s: Image, c: int, variant: int) -> None:
    """The first blocks of a kernel are about to start: fix its class and its launch part."""
    row = kernel_row(p, s, c)
    state = s[S_AT_COMMAND] + c * SC_WIDTH
    now = s[S_NOW_NS]
    work = p[row + PK_CLASS + variant]
    launch = scaled(p[row + PK_LAUNCH_NS + variant * PK_VARIANT], s[state + SC_NOISE])
    s[state + SC_VARIANT] = variant
    s[state + SC_SLOT] = work
    s[state + SC_BEGIN_NS] = now + launch
    s[state + SC_KERNEL_NS] = now
    s[s[S_AT_CLASS] + work * SW_WIDTH + SW_ACTIVE] += 1
    area = p[row + PK_AREA_NS] * p[row + PK_BLOCKS]
    if area > 0:
        owner = p[P_AT_CLASS] + work * PW_WIDTH
        pools = s[S_AT_POOL]
        s[pools + p[owner + PW_POOL] * SP_WIDTH + SP_AREA_NS] -= area * p[owner + PW_DEMAND]
        if p[owner + PW_DEMAND_2] > 0:
            s[pools + p[owner + PW_POOL_2] * SP_WIDTH + SP_AREA_NS] -= area * p[owner + PW_DEMAND_2]
    moved = min(p[row + PK_BYTES], p[row + PK_BYTES_2]) * p[row + PK_BLOCKS]
    for link in range(p[P_LINKS]):
        if (p[row + PK_FLOW] >> link) & 1:
            weight = p[row + PK_HBM_WEIGHT] if link == LINK_HBM else 1
            s[s[S_AT_LINK] + link * SL_WIDTH + SL_BYTES] -= moved * weight


@kernel
def launch_blocks(p: Image, s: Image, c: int) -> int:
    """Start as many blocks of a command's current kernel as there is room for.

    Returns:
        NO_CAUSE if at least one block started, else what was lacking.
    """
    row = kernel_row(p, s, c)
    state = s[S_AT_COMMAND] + c * SC_WIDTH
    work = s[state + SC_SLOT]
    if work < 0:
        wanted = p[row + PK_BLOCKS] if p[row + PK_BATCH] == 1 else 1
        variant = 0
        cause = lacking(p, s, p[row + PK_CLASS], wanted)
        if cause != NO_CAUSE and p[row + PK_FALLBACK] >= 0:
            variant = 1
            cause = lacking(p, s, p[row + PK_FALLBACK], wanted)
        if cause != NO_CAUSE:
            return cause
        _open_kernel(p, s, c, variant)
        work = s[state + SC_SLOT]
    blocks = min(s[state + SC_PENDING], free_blocks(p, s, work))
    if blocks == 0:
        return LACKS_CORES
    figures = row + s[state + SC_VARIANT] * PK_VARIANT
    noise = s[state + SC_NOISE]
    take_cores(p, s, work, blocks)
    s[state + SC_PENDING] -= blocks
    s[state + SC_RUNNING] += blocks
    group = open_group(
        s,
        c,
        -1,
        blocks,
        max(s[S_NOW_NS], s[state + SC_BEGIN_NS]),
        scaled(p[figures + PK_COMPUTE_NS], noise),
        scaled(p[figures + PK_BYTES], noise),
    )
    s[group + SG_CAP] = p[figures + PK_RATE]
    s[group + SG_FLOW] = p[row + PK_FLOW]
    s[group + SG_HBM_WEIGHT] = p[row + PK_HBM_WEIGHT]
    s[group + SG_ORIGIN] = s[state + SC_KERNEL_NS]
    expected = max(s[S_NOW_NS], s[state + SC_KERNEL_NS] + p[figures + PK_LAUNCH_NS])
    alone = ceil_div(p[figures + PK_BYTES], p[figures + PK_RATE])
    s[group + SG_EXPECTED_NS] = expected + max(p[figures + PK_COMPUTE_NS], alone)
    return NO_CAUSE


@kernel
def can_start_now(p: Image, s: Image, c: int) -> bool:
    """Whether a slot and cores for the first kernel of a command are free this instant."""
    return s[S_ACTIVE] < p[P_MAX_ACTIVE] and kernel_lacks(p, s, kernel_row(p, s, c)) == NO_CAUSE


@kernel
def open_migration(p: Image, s: Image, buffer: int, cause: int) -> None:
    """Start to move a buffer from the host into HBM, page by page if on demand."""
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    group = open_group(s, -1, buffer, 1, s[S_NOW_NS] + p[P_LINK_LATENCY_NS], 0, size * Q20)
    rate = p[p[P_AT_LINK] + LINK_H2D * PL_WIDTH + PL_RATE]
    s[group + SG_CAP] = min(rate, p[P_FAULT_RATE]) if cause == T_FAULT else rate
    s[group + SG_FLOW] = p[p[P_AT_LINK] + LINK_H2D * PL_WIDTH + PL_FLOW]
    s[group + SG_HBM_WEIGHT] = 1
    s[group + SG_ORIGIN] = cause
