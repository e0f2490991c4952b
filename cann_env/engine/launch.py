"""Starting work: slots, cores and channels for the blocks of a kernel, and the groups in which bytes move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.arithmetic import ceil_div, scaled
from cann_env.engine.cache import shares_of_kernel
from cann_env.engine.groups import (
    SG_BYTES,
    SG_CAP,
    SG_DIE,
    SG_EXPECTED_NS,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_L2_BYTES,
    SG_L2_CAP,
    SG_ORIGIN,
    SG_REMOTE_BYTES,
    begin_to_move,
    open_group,
)
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    LACKS_CORES,
    LACKS_DMA,
    LACKS_SLOT,
    LINK_HBM,
    LINK_KINDS,
    NO_CAUSE,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_STREAM,
    P_CLASSES,
    P_DIES,
    P_MAX_ACTIVE,
    P_POOLS,
    P_STATE_CLASS,
    P_STATE_COMMAND,
    P_STATE_LINK,
    P_STATE_POOL,
    PC_KERNEL,
    PC_WIDTH,
    PK_AREA_NS,
    PK_BATCH,
    PK_BLOCKS,
    PK_BYTES,
    PK_CLASS,
    PK_COMPUTE_NS,
    PK_FALLBACK,
    PK_FLOW,
    PK_HBM_WEIGHT,
    PK_L2_RATE,
    PK_LAUNCH_NS,
    PK_LEAST_BYTES,
    PK_RATE,
    PK_VARIANT,
    PK_WIDTH,
    POOL_H2D,
    PS_DIE,
    PS_WIDTH,
    PW_DEMAND,
    PW_DEMAND_2,
    PW_DEMAND_3,
    PW_DEMAND_4,
    PW_MAX_ACTIVE,
    PW_NAMED,
    PW_POOL,
    PW_POOL_2,
    PW_POOL_3,
    PW_POOL_4,
    PW_WIDTH,
    S_ACTIVE,
    S_NOW_NS,
    SC_BEGIN_NS,
    SC_HIT,
    SC_KERNEL,
    SC_KERNEL_NS,
    SC_NOISE,
    SC_PENDING,
    SC_REMOTE,
    SC_RUNNING,
    SC_SLOT,
    SC_STREAM,
    SC_VARIANT,
    SC_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    SP_AREA_NS,
    SP_FREE,
    SP_WIDTH,
    SW_ACTIVE,
    SW_WIDTH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def kernel_row(p: Image, s: Image, c: int) -> int:
    """Row of the kernel that a command runs or runs next."""
    first = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_KERNEL]
    return p[P_AT_KERNEL] + (first + s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_KERNEL]) * PK_WIDTH


@kernel
def die_of(p: Image, s: Image, c: int) -> int:
    """Die that a command runs on: that of its stream."""
    return p[p[P_AT_STREAM] + s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_STREAM] * PS_WIDTH + PS_DIE]


@kernel
def pool_row(p: Image, s: Image, die: int, pool: int) -> int:
    """Row of a pool of a die in the state."""
    return p[P_STATE_POOL] + (die * p[P_POOLS] + pool) * SP_WIDTH


@kernel
def slot_row(p: Image, s: Image, die: int, work: int) -> int:
    """Row in the state of the class of the device, on a die, that a class of work belongs to."""
    named = p[p[P_AT_CLASS] + work * PW_WIDTH + PW_NAMED]
    return p[P_STATE_CLASS] + (die * p[P_CLASSES] + named) * SW_WIDTH


@kernel
def free_blocks(p: Image, s: Image, die: int, work: int) -> int:
    """How many blocks of a class could start on a die now for all that cores and channels matter."""
    row = p[P_AT_CLASS] + work * PW_WIDTH
    if p[row + PW_DEMAND] == 0:
        return 0
    pools = pool_row(p, s, die, 0)
    blocks = s[pools + p[row + PW_POOL] * SP_WIDTH + SP_FREE]
    if p[row + PW_DEMAND] > 1:  # the division takes longer than all the rest
        blocks //= p[row + PW_DEMAND]
    if p[row + PW_DEMAND_2] > 0:
        second = s[pools + p[row + PW_POOL_2] * SP_WIDTH + SP_FREE] // p[row + PW_DEMAND_2]
        blocks = min(blocks, second)
        if p[row + PW_DEMAND_3] > 0:
            third = s[pools + p[row + PW_POOL_3] * SP_WIDTH + SP_FREE] // p[row + PW_DEMAND_3]
            blocks = min(blocks, third)
            if p[row + PW_DEMAND_4] > 0:
                fourth = s[pools + p[row + PW_POOL_4] * SP_WIDTH + SP_FREE] // p[row + PW_DEMAND_4]
                blocks = min(blocks, fourth)
    return blocks


@kernel
def add_to_pools(p: Image, s: Image, pools: int, work: int, amount: int) -> None:
    """Add to a field of each pool that blocks of a class hold ``amount`` for each unit that one holds."""
    row = p[P_AT_CLASS] + work * PW_WIDTH
    s[pools + p[row + PW_POOL] * SP_WIDTH] += amount * p[row + PW_DEMAND]
    if p[row + PW_DEMAND_2] > 0:
        s[pools + p[row + PW_POOL_2] * SP_WIDTH] += amount * p[row + PW_DEMAND_2]
        if p[row + PW_DEMAND_3] > 0:
            s[pools + p[row + PW_POOL_3] * SP_WIDTH] += amount * p[row + PW_DEMAND_3]
            s[pools + p[row + PW_POOL_4] * SP_WIDTH] += amount * p[row + PW_DEMAND_4]


@kernel
def take_cores(p: Image, s: Image, die: int, work: int, blocks: int) -> None:
    """Occupy the cores of some blocks; a negative number gives them back."""
    add_to_pools(p, s, pool_row(p, s, die, 0) + SP_FREE, work, -blocks)


@kernel
def lacking(p: Image, s: Image, die: int, work: int, wanted: int) -> int:
    """What keeps a kernel of a class from starting: a slot, cores, a channel, or nothing."""
    limit = p[p[P_AT_CLASS] + work * PW_WIDTH + PW_MAX_ACTIVE]
    if s[slot_row(p, s, die, work) + SW_ACTIVE] >= limit:
        return LACKS_SLOT
    if free_blocks(p, s, die, work) < wanted:
        return LACKS_DMA if p[p[P_AT_CLASS] + work * PW_WIDTH + PW_POOL] >= POOL_H2D else LACKS_CORES
    return NO_CAUSE


@kernel
def kernel_lacks(p: Image, s: Image, row: int, die: int) -> int:
    """What keeps a kernel from starting on a die in its preferred class and in its fallback."""
    wanted = p[row + PK_BLOCKS] if p[row + PK_BATCH] == 1 else 1
    cause = lacking(p, s, die, p[row + PK_CLASS], wanted)
    if cause != NO_CAUSE and p[row + PK_FALLBACK] >= 0:
        return lacking(p, s, die, p[row + PK_FALLBACK], wanted)
    return cause


@kernel
def _open_kernel(p: Image, s: Image, c: int, die: int, variant: int) -> None:
    """The first blocks of a kernel are about to start: fix its class and launch part, find its bytes."""
    row = kernel_row(p, s, c)
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    now = s[S_NOW_NS]
    work = p[row + PK_CLASS + variant]
    launch = scaled(p[row + PK_LAUNCH_NS + variant * PK_VARIANT], s[state + SC_NOISE])
    s[state + SC_VARIANT] = variant
    s[state + SC_SLOT] = work
    s[state + SC_BEGIN_NS] = now + launch
    s[state + SC_KERNEL_NS] = now
    s[slot_row(p, s, die, work) + SW_ACTIVE] += 1
    shares_of_kernel(p, s, c, s[state + SC_KERNEL], die)
    area = p[row + PK_AREA_NS] * p[row + PK_BLOCKS]
    if area > 0:
        add_to_pools(p, s, p[P_STATE_POOL] + SP_AREA_NS, work, -area)
    moved = p[row + PK_LEAST_BYTES] * p[row + PK_BLOCKS]
    for kind in range(LINK_KINDS):
        if (p[row + PK_FLOW] >> kind) & 1:
            weight = p[row + PK_HBM_WEIGHT] if kind == LINK_HBM else 1
            s[p[P_STATE_LINK] + kind * SL_WIDTH + SL_BYTES] -= moved * weight


@kernel
def launch_blocks(p: Image, s: Image, c: int) -> int:
    """Start as many blocks of a command's current kernel as there is room for.

    Returns:
        NO_CAUSE if at least one block started, else what was lacking.
    """
    row = kernel_row(p, s, c)
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    work = s[state + SC_SLOT]
    die = die_of(p, s, c)
    if work < 0:
        wanted = p[row + PK_BLOCKS] if p[row + PK_BATCH] == 1 else 1
        variant = 0
        cause = lacking(p, s, die, p[row + PK_CLASS], wanted)
        if cause != NO_CAUSE and p[row + PK_FALLBACK] >= 0:
            variant = 1
            cause = lacking(p, s, die, p[row + PK_FALLBACK], wanted)
        if cause != NO_CAUSE:
            return cause
        _open_kernel(p, s, c, die, variant)
        work = s[state + SC_SLOT]
    blocks = min(s[state + SC_PENDING], free_blocks(p, s, die, work))
    if blocks == 0:
        return LACKS_CORES
    figures = row + s[state + SC_VARIANT] * PK_VARIANT
    noise = s[state + SC_NOISE]
    take_cores(p, s, die, work, blocks)
    s[state + SC_PENDING] -= blocks
    s[state + SC_RUNNING] += blocks
    begin = max(s[S_NOW_NS], s[state + SC_BEGIN_NS])
    group = open_group(p, s, c, -1, blocks, begin, scaled(p[figures + PK_COMPUTE_NS], noise))
    size = scaled(p[figures + PK_BYTES], noise)
    hit = scaled(size, s[state + SC_HIT])
    remote = min(scaled(size, s[state + SC_REMOTE]), size - hit)
    s[group + SG_DIE] = die
    s[group + SG_BYTES] = size - hit - remote
    s[group + SG_REMOTE_BYTES] = remote
    s[group + SG_L2_BYTES] = hit
    s[group + SG_CAP] = p[figures + PK_RATE]
    s[group + SG_L2_CAP] = p[figures + PK_L2_RATE]
    s[group + SG_FLOW] = p[row + PK_FLOW] << (die * LINK_KINDS)
    s[group + SG_HBM_WEIGHT] = p[row + PK_HBM_WEIGHT]
    s[group + SG_ORIGIN] = s[state + SC_KERNEL_NS]
    begin_to_move(p, s, group, begin)
    expected = max(s[S_NOW_NS], s[state + SC_KERNEL_NS] + p[figures + PK_LAUNCH_NS])
    alone = ceil_div(p[figures + PK_BYTES], p[figures + PK_RATE])
    s[group + SG_EXPECTED_NS] = expected + max(p[figures + PK_COMPUTE_NS], alone)
    return NO_CAUSE


@kernel
def can_start_now(p: Image, s: Image, c: int) -> bool:
    """Whether a slot and cores for the first kernel of a command are free this instant, on some die."""
    if s[S_ACTIVE] >= p[P_MAX_ACTIVE]:
        return False
    row = kernel_row(p, s, c)
    startable = False
    for die in range(p[P_DIES]):
        startable = startable or kernel_lacks(p, s, row, die) == NO_CAUSE
    return startable
