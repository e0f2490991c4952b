"""Who needs a buffer next, and which buffers have yet to come from the host for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import list_liftable
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    FAR,
    LINK_H2D,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_USER,
    P_COMMANDS,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_LINK,
    P_STATE_WANTED,
    PB_BYTES,
    PB_USER,
    PB_USERS,
    PB_WIDTH,
    PC_RANK,
    PC_RELEASE_NS,
    PC_WIDTH,
    PV_COMMAND,
    PV_MODE,
    PV_WIDTH,
    Q20,
    READ,
    S_NOW_NS,
    S_WANTED,
    SB_COMING,
    SB_NEXT,
    SB_RANK,
    SB_READS,
    SB_UNSTARTED,
    SB_WIDTH,
    SC_COMING_BYTES,
    SC_PHASE,
    SC_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    STARTED,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


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
def forget(s: Image, at: int, count: int, buffer: int) -> int:
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
    s[S_WANTED] = forget(s, p[P_STATE_WANTED], s[S_WANTED], buffer)
