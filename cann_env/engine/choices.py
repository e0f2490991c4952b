"""What may be decided now: the ready window, the prefetch window, and the mask over the actions.

Action ``k * choices + s`` issues window command ``k`` to stream ``s``; then come the prefetches; the last
action is to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.host import count_waits
from cann_env.engine.jit import kernel
from cann_env.engine.launch import can_start_now
from cann_env.engine.layout import (
    ABSENT,
    FAR,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_SERIAL,
    P_AT_STREAM,
    P_BUFFERS,
    P_CAN_PREFETCH,
    P_CHOICES,
    P_COMMANDS,
    P_IMPLIED,
    P_LATE,
    P_MAX_EVENTS,
    P_PREFETCHES,
    P_QUEUE_DEPTH,
    P_RUN_AHEAD,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_MANAGED,
    PB_WIDTH,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_WIDTH,
    PS_DIE,
    PS_PRIORITY,
    PS_WIDTH,
    S_AT_BUFFER,
    S_AT_COMMAND,
    S_AT_MASK,
    S_AT_PREFETCH,
    S_AT_READY,
    S_AT_STREAM,
    S_AT_WINDOW,
    S_EVENTS,
    S_FLIGHT,
    S_GROUPS,
    S_NOW_NS,
    S_QUEUE,
    S_READY,
    S_RELEASED,
    SB_RESIDENCY,
    SB_WIDTH,
    SC_PHASE,
    SC_UNDONE,
    SC_UNISSUED,
    SC_WIDTH,
    SS_LENGTH,
    SS_OPEN,
    SS_WIDTH,
    UNISSUED,
)
from cann_env.engine.memory import can_make_room, next_rank, safe_to_issue

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def wait_action(p: Image) -> int:
    """Number of the action that waits; it is the last one."""
    return p[P_WINDOW] * p[P_CHOICES] + p[P_PREFETCHES]


@kernel
def stream_open(p: Image, s: Image, stream: int) -> bool:
    """Whether a stream may be named: it has room, and if idle it is the lowest idle one of its kind.

    Idle streams of one die and priority are treated as interchangeable: only one of them is offered.
    """
    length = s[s[S_AT_STREAM] + stream * SS_WIDTH + SS_LENGTH]
    if length > 0:
        return length < p[P_QUEUE_DEPTH]
    kind = p[P_AT_STREAM] + stream * PS_WIDTH
    for lower in range(stream):
        other = p[P_AT_STREAM] + lower * PS_WIDTH
        if (
            s[s[S_AT_STREAM] + lower * SS_WIDTH + SS_LENGTH] == 0
            and p[other + PS_PRIORITY] == p[kind + PS_PRIORITY]
            and p[other + PS_DIE] == p[kind + PS_DIE]
        ):
            return False
    return True


@kernel
def lowest_idle(p: Image, s: Image) -> int:
    """The idle stream with the lowest number; -1 if all are busy."""
    for stream in range(p[P_STREAMS]):
        if s[s[S_AT_STREAM] + stream * SS_WIDTH + SS_LENGTH] == 0:
            return stream
    return -1


@kernel
def _startable(p: Image, s: Image, c: int) -> bool:
    return s[s[S_AT_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0 and can_start_now(p, s, c)


@kernel
def _fill_window(p: Image, s: Image) -> None:
    """The first K commands of the ready list, or of those in it that could start this instant."""
    at = s[S_AT_WINDOW]
    filled = 0
    implied = p[P_IMPLIED] == 1
    if not implied or lowest_idle(p, s) >= 0:
        for i in range(s[S_READY]):
            if filled == p[P_WINDOW]:
                break
            c = s[s[S_AT_READY] + i]
            if not implied or _startable(p, s, c):
                s[at + filled] = c
                filled += 1
    for k in range(filled, p[P_WINDOW]):
        s[at + k] = -1


@kernel
def _offer(s: Image, at: int, ranks: int, filled: int, slots: int, buffer: int, rank: int) -> int:
    """Enter a buffer among the most urgent ones by rank; returns how many slots are filled then."""
    place = filled
    while place > 0 and s[ranks + place - 1] > rank:
        place -= 1
    if place == slots:
        return filled
    for i in range(min(filled, slots - 1), place, -1):
        s[at + i] = s[at + i - 1]
        s[ranks + i] = s[ranks + i - 1]
    s[at + place] = buffer
    s[ranks + place] = rank
    return min(filled + 1, slots)


@kernel
def _fill_prefetches(p: Image, s: Image) -> int:
    """The P absent buffers whose next user is most urgent; returns how many prefetches are legal.

    A prefetch is legal if it evicts nothing that is needed sooner (do no harm).
    """
    at = s[S_AT_PREFETCH]
    slots = p[P_PREFETCHES]
    mask = s[S_AT_MASK] + p[P_WINDOW] * p[P_CHOICES]
    filled = 0
    for slot in range(slots):
        s[at + slot] = -1
        s[mask + slot] = FAR  # holds the rank until the mask is written
    if p[P_CAN_PREFETCH] == 1:
        for buffer in range(p[P_BUFFERS]):
            if (
                p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 0
                or s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] != ABSENT
            ):
                continue
            rank = next_rank(p, s, buffer)
            if rank < FAR:
                filled = _offer(s, at, mask, filled, slots, buffer, rank)
    legal = 0
    for slot in range(slots):
        buffer = s[at + slot]
        allowed = 0
        if buffer >= 0:
            size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
            allowed = 1 if can_make_room(p, s, size, s[mask + slot]) else 0
        s[mask + slot] = allowed
        legal += allowed
    return legal


@kernel
def _may_issue(p: Image, s: Image, c: int) -> bool:
    return s[S_FLIGHT] < p[P_RUN_AHEAD] and safe_to_issue(p, s, c)


@kernel
def _events_left(p: Image, s: Image, c: int, stream: int) -> bool:
    """Whether there are event ids for the waits that a command needs on a stream."""
    most = min(p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_PREDS], p[P_STREAMS] - 1)
    if s[S_EVENTS] + most <= p[P_MAX_EVENTS]:
        return True
    chosen = lowest_idle(p, s) if p[P_IMPLIED] == 1 else stream
    return s[S_EVENTS] + count_waits(p, s, c, chosen) <= p[P_MAX_EVENTS]


@kernel
def _mark_issues(p: Image, s: Image, k: int) -> int:
    """Write the mask of one window slot; returns how many streams are legal."""
    choices = p[P_CHOICES]
    at = s[S_AT_MASK] + k * choices
    c = s[s[S_AT_WINDOW] + k]
    allowed = c >= 0 and _may_issue(p, s, c)
    legal = 0
    for stream in range(choices):
        named = s[s[S_AT_STREAM] + stream * SS_WIDTH + SS_OPEN] == 1 or p[P_IMPLIED] == 1
        ok = 1 if allowed and named and _events_left(p, s, c, stream) else 0
        s[at + stream] = ok
        legal += ok
    return legal


@kernel
def _serial_next(p: Image, s: Image) -> int:
    """The first command of the serial order that is ready; with nothing in flight it is always safe."""
    for i in range(p[P_COMMANDS]):
        c = p[p[P_AT_SERIAL] + i]
        state = s[S_AT_COMMAND] + c * SC_WIDTH
        if s[state + SC_PHASE] == UNISSUED:
            released = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_RELEASE_NS] <= s[S_NOW_NS]
            if released and s[state + SC_UNISSUED] == 0:
                return c
    return -1


@kernel
def refresh_choices(p: Image, s: Image) -> int:
    """Bring windows and mask up to date; returns how many actions other than waiting are legal."""
    _fill_window(p, s)
    for stream in range(p[P_STREAMS]):
        s[s[S_AT_STREAM] + stream * SS_WIDTH + SS_OPEN] = 1 if stream_open(p, s, stream) else 0
    issues = 0
    for k in range(p[P_WINDOW]):
        issues += _mark_issues(p, s, k)
    prefetches = _fill_prefetches(p, s)
    active = s[S_FLIGHT] > 0 or s[S_GROUPS] > 0 or s[S_QUEUE] > 0
    can_wait = active or s[S_RELEASED] < p[P_LATE]
    s[s[S_AT_MASK] + wait_action(p)] = 1 if can_wait else 0
    if issues == 0 and not can_wait:  # the one safe command may lie beyond the window
        last = p[P_WINDOW] - 1
        s[s[S_AT_WINDOW] + last] = _serial_next(p, s)
        issues = _mark_issues(p, s, last)
    return issues + prefetches


@kernel
def close_choices(p: Image, s: Image) -> None:
    """Leave empty windows and an empty mask behind: the episode is over."""
    for k in range(p[P_WINDOW]):
        s[s[S_AT_WINDOW] + k] = -1
    for slot in range(p[P_PREFETCHES]):
        s[s[S_AT_PREFETCH] + slot] = -1
    for action in range(wait_action(p) + 1):
        s[s[S_AT_MASK] + action] = 0
