"""Shared bandwidth: every link divided max-min fairly over the blocks that move bytes.

All blocks rise together; a block stops rising at its own cap or when a link it crosses is full, and all
blocks that stop at one level stop together, so the result depends on no order. Rates are whole q20/ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.arithmetic import ceil_div
from cann_env.engine.groups import (
    MOVING,
    SG_BYTES,
    SG_CAP,
    SG_FLOW,
    SG_NEXT_NS,
    SG_RATE,
    SG_REF_NS,
    SG_SHARE,
    SG_STAGE,
    SG_WIDTH,
    units_of,
)
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    FAR,
    P_AT_LINK,
    P_LINKS,
    P_STATE_GROUP,
    P_STATE_LINK,
    PL_RATE,
    PL_WIDTH,
    S_DIRTY,
    S_GROUPS,
    S_NOW_NS,
    SL_LEVEL,
    SL_LOAD,
    SL_SPARE,
    SL_UNITS,
    SL_WANTED,
    SL_WIDTH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _short_links(p: Image, s: Image) -> int:
    """Bit set of the links that cannot give every group its own cap; no other link ever limits a group."""
    short = 0
    for link in range(p[P_LINKS]):
        row = p[P_STATE_LINK] + link * SL_WIDTH
        rate = p[p[P_AT_LINK] + link * PL_WIDTH + PL_RATE]
        if s[row + SL_WANTED] > rate:
            short |= 1 << link
            s[row + SL_LOAD] = s[row + SL_UNITS]
            s[row + SL_SPARE] = rate
    return short


@kernel
def _level(p: Image, s: Image, short: int) -> int:
    """The lowest rate at which a link is full; notes for each link of the set when it would be."""
    level = FAR
    for link in range(p[P_LINKS]):
        row = p[P_STATE_LINK] + link * SL_WIDTH
        s[row + SL_LEVEL] = FAR
        if (short >> link) & 1 and s[row + SL_LOAD] > 0:
            s[row + SL_LEVEL] = s[row + SL_SPARE] // s[row + SL_LOAD]
            level = min(level, s[row + SL_LEVEL])
    return max(level, 1)


@kernel
def _freeze(p: Image, s: Image, group: int, rate: int, short: int) -> None:
    """A group stops rising: the links it crosses have its rate no longer to give away."""
    s[group + SG_SHARE] = rate
    crossed = s[group + SG_FLOW] & short
    for link in range(p[P_LINKS]):
        if (crossed >> link) & 1:
            units = units_of(s, group, link)
            row = p[P_STATE_LINK] + link * SL_WIDTH
            s[row + SL_LOAD] -= units
            s[row + SL_SPARE] = max(s[row + SL_SPARE] - units * rate, 0)


@kernel
def _freeze_capped(p: Image, s: Image, level: int, short: int) -> int:
    """Freeze the groups whose own cap is no higher than a level; returns how many."""
    frozen = 0
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        if s[group + SG_STAGE] == MOVING and s[group + SG_SHARE] == 0 and s[group + SG_CAP] <= level:
            _freeze(p, s, group, s[group + SG_CAP], short)
            frozen += 1
    return frozen


@kernel
def _fill(p: Image, s: Image, short: int) -> None:
    """Progressive filling: raise all groups together, freeze those that stop, repeat."""
    groups = p[P_STATE_GROUP]
    end = groups + s[S_GROUPS] * SG_WIDTH
    rising = 0
    for group in range(groups, end, SG_WIDTH):
        if s[group + SG_STAGE] == MOVING:
            crosses = s[group + SG_FLOW] & short
            s[group + SG_SHARE] = 0 if crosses else s[group + SG_CAP]
            rising += 1 if crosses else 0
    while rising > 0:
        level = _level(p, s, short)
        frozen = _freeze_capped(p, s, level, short)
        rising -= frozen
        if frozen > 0:
            continue
        full = 0
        for link in range(p[P_LINKS]):
            if s[p[P_STATE_LINK] + link * SL_WIDTH + SL_LEVEL] <= level:
                full |= 1 << link
        for group in range(groups, end, SG_WIDTH):
            if s[group + SG_STAGE] == MOVING and s[group + SG_SHARE] == 0 and s[group + SG_FLOW] & full:
                _freeze(p, s, group, level, short)
                rising -= 1


@kernel
def share_bandwidth(p: Image, s: Image) -> None:
    """Give every moving group its rate from now on and move its next change of stage accordingly."""
    s[S_DIRTY] = 0
    now = s[S_NOW_NS]
    short = _short_links(p, s)
    if short > 0:
        _fill(p, s, short)
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        if s[group + SG_STAGE] != MOVING:
            continue
        rate = s[group + SG_CAP] if short == 0 else s[group + SG_SHARE]
        if rate != s[group + SG_RATE]:
            moved = s[group + SG_RATE] * (now - s[group + SG_REF_NS])
            s[group + SG_BYTES] = max(s[group + SG_BYTES] - moved, 0)
            s[group + SG_REF_NS] = now
            s[group + SG_RATE] = rate
            s[group + SG_NEXT_NS] = now + ceil_div(s[group + SG_BYTES], rate)
