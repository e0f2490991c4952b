"""Shared bandwidth: every link divided max-min fairly over the blocks that move bytes.

All blocks rise together; a block stops rising at its own cap or when a link it crosses is full, and all
blocks that stop at one level stop together, so the result depends on no order. Rates are whole q20/ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.arithmetic import ceil_div
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    FAR,
    LINK_HBM,
    LINK_KINDS,
    MOVING,
    P_AT_LINK,
    P_LINKS,
    P_STATE_GROUP,
    P_STATE_LINK,
    PL_RATE,
    PL_WIDTH,
    S_DIRTY,
    S_GROUPS,
    S_NOW_NS,
    SG_BLOCKS,
    SG_BYTES,
    SG_CAP,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_NEXT_NS,
    SG_RATE,
    SG_REF_NS,
    SG_SHARE,
    SG_STAGE,
    SG_WIDTH,
    SL_LOAD,
    SL_SPARE,
    SL_WIDTH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def load_of(s: Image, group: int, link: int) -> int:
    """How many units of a link's bandwidth one unit of a group's rate takes (0 if it does not cross)."""
    if (s[group + SG_FLOW] >> link) & 1 == 0:
        return 0
    if link % LINK_KINDS == LINK_HBM:
        return s[group + SG_BLOCKS] * s[group + SG_HBM_WEIGHT]
    return s[group + SG_BLOCKS]


@kernel
def _caps_fit(p: Image, s: Image) -> bool:
    """Whether every group can move at its own cap; leaves the loads and the spare bandwidth of each link."""
    groups = p[P_STATE_GROUP]
    end = groups + s[S_GROUPS] * SG_WIDTH
    fits = True
    for link in range(p[P_LINKS]):
        load = 0
        wanted = 0
        for group in range(groups, end, SG_WIDTH):
            if s[group + SG_STAGE] == MOVING:
                units = load_of(s, group, link)
                load += units
                wanted += units * s[group + SG_CAP]
        row = p[P_STATE_LINK] + link * SL_WIDTH
        s[row + SL_LOAD] = load
        s[row + SL_SPARE] = p[p[P_AT_LINK] + link * PL_WIDTH + PL_RATE]
        if wanted > s[row + SL_SPARE]:
            fits = False
    return fits


@kernel
def _level(p: Image, s: Image) -> int:
    """The lowest rate at which some rising group must stop."""
    level = FAR
    for link in range(p[P_LINKS]):
        row = p[P_STATE_LINK] + link * SL_WIDTH
        if s[row + SL_LOAD] > 0:
            level = min(level, s[row + SL_SPARE] // s[row + SL_LOAD])
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        if s[group + SG_STAGE] == MOVING and s[group + SG_SHARE] == 0:
            level = min(level, s[group + SG_CAP])
    return max(level, 1)


@kernel
def _fill(p: Image, s: Image) -> None:
    """Progressive filling: raise all groups together, freeze those that stop, repeat."""
    groups = p[P_STATE_GROUP]
    end = groups + s[S_GROUPS] * SG_WIDTH
    rising = 0
    for group in range(groups, end, SG_WIDTH):
        if s[group + SG_STAGE] == MOVING:
            s[group + SG_SHARE] = 0
            rising += 1
    while rising > 0:
        level = _level(p, s)
        full = 0
        for link in range(p[P_LINKS]):
            row = p[P_STATE_LINK] + link * SL_WIDTH
            if s[row + SL_LOAD] > 0 and s[row + SL_SPARE] // s[row + SL_LOAD] <= level:
                full |= 1 << link
        for group in range(groups, end, SG_WIDTH):
            if s[group + SG_STAGE] != MOVING or s[group + SG_SHARE] != 0:
                continue
            if s[group + SG_CAP] <= level or (s[group + SG_FLOW] & full) != 0:
                s[group + SG_SHARE] = level
                rising -= 1
                for link in range(p[P_LINKS]):
                    units = load_of(s, group, link)
                    row = p[P_STATE_LINK] + link * SL_WIDTH
                    s[row + SL_LOAD] -= units
                    s[row + SL_SPARE] = max(s[row + SL_SPARE] - units * level, 0)


@kernel
def share_bandwidth(p: Image, s: Image) -> None:
    """Give every moving group its rate from now on and move its next change of stage accordingly."""
    s[S_DIRTY] = 0
    now = s[S_NOW_NS]
    fits = _caps_fit(p, s)
    if not fits:
        _fill(p, s)
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        if s[group + SG_STAGE] != MOVING:
            continue
        rate = s[group + SG_CAP] if fits else s[group + SG_SHARE]
        if rate != s[group + SG_RATE]:
            moved = s[group + SG_RATE] * (now - s[group + SG_REF_NS])
            s[group + SG_BYTES] = max(s[group + SG_BYTES] - moved, 0)
            s[group + SG_REF_NS] = now
            s[group + SG_RATE] = rate
            s[group + SG_NEXT_NS] = now + ceil_div(s[group + SG_BYTES], rate)
