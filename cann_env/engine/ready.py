"""The ready list: released commands whose predecessors have all been issued, by descending tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    P_AT_COMMAND,
    P_STATE_READY,
    PC_RANK,
    PC_WIDTH,
    S_READY,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def enter_ready(p: Image, s: Image, c: int) -> None:
    """Insert a command at its rank."""
    at = p[P_STATE_READY]
    commands = p[P_AT_COMMAND]
    rank = p[commands + c * PC_WIDTH + PC_RANK]
    place = s[S_READY]
    while place > 0 and p[commands + s[at + place - 1] * PC_WIDTH + PC_RANK] > rank:
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = c
    s[S_READY] += 1


@kernel
def leave_ready(p: Image, s: Image, c: int) -> None:
    """Take a command out, keeping the order of the others."""
    at = p[P_STATE_READY]
    place = 0
    while s[at + place] != c:
        place += 1
    for i in range(place, s[S_READY] - 1):
        s[at + i] = s[at + i + 1]
    s[S_READY] -= 1
