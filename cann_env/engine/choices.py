"""What may be decided now: the ready window, the prefetch window, and the mask over the actions.

Action ``k * choices + s`` issues window command ``k`` to stream ``s``; then come the prefetches; the last
action is to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.banker import look_at_holes, safe_to_issue
from cann_env.engine.cache import lift_does_no_harm
from cann_env.engine.host import count_waits
from cann_env.engine.jit import as_bytes, kernel
from cann_env.engine.launch import can_start_now, kernel_lacks, kernel_row
from cann_env.engine.layout import (
    LOOK_AHEAD,
    NO_CAUSE,
    P_ALIKE,
    P_AMPLE,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_SERIAL,
    P_AT_STREAM,
    P_BUFFERS,
    P_CAN_PREFETCH,
    P_CHOICES,
    P_CLOCKS,
    P_COMMANDS,
    P_DIES,
    P_FREE_MASK,
    P_IMPLIED,
    P_LATE,
    P_LIFTS,
    P_MAX_EVENTS,
    P_OFFLOADS,
    P_PREFETCHES,
    P_QUEUE_DEPTH,
    P_RUN_AHEAD,
    P_SLOTS,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_LIFTABLE,
    P_STATE_MASK,
    P_STATE_OPEN,
    P_STATE_PREFETCH,
    P_STATE_READY,
    P_STATE_SHOWN,
    P_STATE_STREAM,
    P_STATE_WANTED,
    P_STATE_WINDOW,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_WIDTH,
    PC_OUTPUT_BYTES,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_WIDTH,
    PS_DIE,
    PS_PRIORITY,
    PS_WIDTH,
    S_CURSOR,
    S_EVENTS,
    S_FILLED,
    S_FLIGHT,
    S_GROUPS,
    S_LIFTABLE,
    S_NOW_NS,
    S_OPEN,
    S_READY,
    S_RELEASED,
    S_WAITING,
    S_WANTED,
    SB_RANK,
    SB_WIDTH,
    SC_PHASE,
    SC_UNDONE,
    SC_UNISSUED,
    SC_WIDTH,
    SD_AT_IDLE,
    SD_IDLE,
    SD_LIFT_QUEUE,
    SS_LENGTH,
    SS_WIDTH,
    UNISSUED,
)
from cann_env.engine.memory import can_make_room, die_row, home_of

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def wait_action(p: Image) -> int:
    """Number of the action that waits; it is the last one."""
    return p[P_WINDOW] * p[P_CHOICES] + p[P_SLOTS]


@kernel
def is_legal(p: Image, s: Image, action: int) -> bool:
    """Whether the mask allows an action."""
    return as_bytes(s)[8 * p[P_STATE_MASK] + action] == 1


@kernel
def _mark(p: Image, s: Image, action: int, legal: int) -> None:
    as_bytes(s)[8 * p[P_STATE_MASK] + action] = legal


@kernel
def _lowest_of_kind(p: Image, s: Image, stream: int) -> bool:
    """Whether an idle stream is the lowest idle one of its die and priority."""
    kind = p[P_AT_STREAM] + stream * PS_WIDTH
    for lower in range(stream):
        other = p[P_AT_STREAM] + lower * PS_WIDTH
        if (
            s[p[P_STATE_STREAM] + lower * SS_WIDTH + SS_LENGTH] == 0
            and p[other + PS_PRIORITY] == p[kind + PS_PRIORITY]
            and p[other + PS_DIE] == p[kind + PS_DIE]
        ):
            return False
    return True


@kernel
def may_be_named(p: Image, s: Image, stream: int) -> bool:
    """Whether an action may name a stream: it has room, and if idle it is the lowest idle one of its kind."""
    length = s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_LENGTH]
    return length < p[P_QUEUE_DEPTH] and (length > 0 or _lowest_of_kind(p, s, stream))


@kernel
def _mark_open(p: Image, s: Image) -> None:
    """Write which streams may be named: those with room, and of idle ones the lowest of each kind.

    Idle streams of one die and priority are treated as interchangeable: only one of them is offered.
    """
    idle = 0
    count = 0
    changed = 0
    for stream in range(p[P_STREAMS]):
        length = s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_LENGTH]
        named = 1 if length < p[P_QUEUE_DEPTH] else 0
        if length == 0:
            named = 1 if idle == 0 or (p[P_ALIKE] == 0 and _lowest_of_kind(p, s, stream)) else 0
            idle = 1
        changed |= s[p[P_STATE_OPEN] + stream] ^ named
        s[p[P_STATE_OPEN] + stream] = named
        count += named
    s[S_OPEN] = count
    if changed == 1:
        for k in range(p[P_WINDOW]):
            if s[p[P_STATE_SHOWN] + k] == 1:
                s[p[P_STATE_SHOWN] + k] = -1


@kernel
def lowest_idle(p: Image, s: Image, c: int) -> int:
    """The idle stream with the lowest number; -1 if all are busy.

    Args:
        p: Program.
        s: State.
        c: A command: streams of dies on which it could start now go first. -1 to ask for any.
    """
    first = -1
    for stream in range(p[P_STREAMS]):
        if s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_LENGTH] == 0:
            die = p[p[P_AT_STREAM] + stream * PS_WIDTH + PS_DIE]
            if c < 0 or p[P_DIES] == 1 or kernel_lacks(p, s, kernel_row(p, s, c), die) == NO_CAUSE:
                return stream
            if first < 0:
                first = stream
    return first


@kernel
def _startable(p: Image, s: Image, c: int) -> bool:
    return s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0 and can_start_now(p, s, c)


@kernel
def _fill_window(p: Image, s: Image) -> int:
    """The first K commands of the ready list, or of those in it that could start this instant.

    Returns:
        How many slots have to be marked: those that are filled now or were before.
    """
    at = p[P_STATE_WINDOW]
    before = s[S_FILLED]
    filled = 0
    if p[P_IMPLIED] == 0:
        filled = min(s[S_READY], p[P_WINDOW])
        for k in range(filled):
            s[at + k] = s[p[P_STATE_READY] + k]
    elif lowest_idle(p, s, -1) >= 0:
        for i in range(s[S_READY]):
            c = s[p[P_STATE_READY] + i]
            if filled < p[P_WINDOW] and _startable(p, s, c):
                s[at + filled] = c
                filled += 1
    for k in range(filled, before):
        s[at + k] = -1
    s[S_FILLED] = filled
    return max(filled, before)


@kernel
def _write_slot(p: Image, s: Image, slot: int, buffer: int, legal: bool) -> int:
    """Fill one slot of the prefetch window; returns 1 if its action is legal."""
    allowed = 1 if legal else 0
    s[p[P_STATE_PREFETCH] + slot] = buffer
    _mark(p, s, p[P_WINDOW] * p[P_CHOICES] + slot, allowed)
    return allowed


@kernel
def _fill_prefetches(p: Image, s: Image) -> int:
    """The absent buffers whose next user is most urgent; returns how many prefetches into HBM are legal.

    A prefetch is legal if it evicts nothing that is needed sooner (do no harm), or where the mask is free, if
    it can have room at all.
    """
    legal = 0
    for slot in range(p[P_PREFETCHES]):
        if slot >= s[S_WANTED] or p[P_CAN_PREFETCH] == 0:
            _write_slot(p, s, slot, -1, False)
            continue
        buffer = s[p[P_STATE_WANTED] + slot]
        size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
        rank = -1 if p[P_FREE_MASK] == 1 else s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK]
        legal += _write_slot(p, s, slot, buffer, can_make_room(p, s, home_of(p, s, buffer), size, rank))
    return legal


@kernel
def _fill_lifts(p: Image, s: Image) -> int:
    """Buffers in HBM that will be read soonest and are not in L2; returns how many prefetches are legal.

    Only the next commands by rank are looked at, LOOK_AHEAD for each slot.
    """
    first = p[P_PREFETCHES]
    legal = 0
    end = s[S_CURSOR] + LOOK_AHEAD * p[P_LIFTS]
    for slot in range(p[P_LIFTS]):
        buffer = -1
        if slot < s[S_LIFTABLE]:
            buffer = s[p[P_STATE_LIFTABLE] + s[S_LIFTABLE] - 1 - slot]
        if buffer < 0 or s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK] >= end:
            _write_slot(p, s, first + slot, -1, False)
            continue
        room = s[home_of(p, s, buffer) + SD_LIFT_QUEUE] < p[P_BUFFERS]
        fits = room and (p[P_FREE_MASK] == 1 or lift_does_no_harm(p, s, buffer))
        legal += _write_slot(p, s, first + slot, buffer, fits)
    return legal


@kernel
def _fill_offloads(p: Image, s: Image) -> int:
    """Managed buffers that nobody holds, those that would be evicted first; returns how many there are."""
    first = p[P_PREFETCHES] + p[P_LIFTS]
    legal = 0
    filled = 0
    for index in range(p[P_DIES]):
        die = die_row(p, s, index)
        i = s[die + SD_IDLE] - 1
        while i >= 0 and filled < p[P_OFFLOADS]:
            legal += _write_slot(p, s, first + filled, s[s[die + SD_AT_IDLE] + i], True)
            filled += 1
            i -= 1
    for slot in range(filled, p[P_OFFLOADS]):
        _write_slot(p, s, first + slot, -1, False)
    return legal


@kernel
def _may_issue(p: Image, s: Image, c: int) -> bool:
    return c >= 0 and s[S_FLIGHT] < p[P_RUN_AHEAD] and (p[P_AMPLE] == 1 or safe_to_issue(p, s, c))


@kernel
def _events_left(p: Image, s: Image, c: int, stream: int) -> bool:
    """Whether there are event ids for the waits that a command needs on a stream."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    reuse = p[P_CLOCKS] > 0 and p[P_AMPLE] == 0 and p[fixed + PC_OUTPUT_BYTES] > 0
    most = p[P_STREAMS] - 1 if reuse else min(p[fixed + PC_PREDS], p[P_STREAMS] - 1)
    if s[S_EVENTS] + most <= p[P_MAX_EVENTS]:
        return True
    if reuse:
        return False
    chosen = lowest_idle(p, s, c) if p[P_IMPLIED] == 1 else stream
    return s[S_EVENTS] + count_waits(p, s, c, chosen) <= p[P_MAX_EVENTS]


@kernel
def _mark_slot(p: Image, s: Image, k: int, legal: int) -> int:
    """Let a window slot go to all streams that may be named, or to none; returns how many these are."""
    choices = p[P_CHOICES]
    if s[p[P_STATE_SHOWN] + k] != legal:
        s[p[P_STATE_SHOWN] + k] = legal
        marks = as_bytes(s)
        at = 8 * p[P_STATE_MASK] + k * choices
        for stream in range(choices):
            marks[at + stream] = legal * (s[p[P_STATE_OPEN] + stream] | p[P_IMPLIED])
    return legal * (1 if p[P_IMPLIED] == 1 else s[S_OPEN])


@kernel
def _mark_issues(p: Image, s: Image, k: int, events: bool) -> int:
    """Write the mask of one window slot; returns how many streams are legal.

    Args:
        p: Program.
        s: State.
        k: The slot.
        events: Whether it is known that there are event ids for whatever is issued next.
    """
    c = s[p[P_STATE_WINDOW] + k]
    if not _may_issue(p, s, c):
        return _mark_slot(p, s, k, 0)
    if events:
        return _mark_slot(p, s, k, 1)
    s[p[P_STATE_SHOWN] + k] = -1
    legal = 0
    for stream in range(p[P_CHOICES]):
        named = s[p[P_STATE_OPEN] + stream] == 1 or p[P_IMPLIED] == 1
        ok = 1 if named and _events_left(p, s, c, stream) else 0
        _mark(p, s, k * p[P_CHOICES] + stream, ok)
        legal += ok
    return legal


@kernel
def _serial_next(p: Image, s: Image) -> int:
    """The first command of the serial order that is ready; with nothing in flight it is always safe."""
    for i in range(p[P_COMMANDS]):
        c = p[p[P_AT_SERIAL] + i]
        state = p[P_STATE_COMMAND] + c * SC_WIDTH
        if s[state + SC_PHASE] == UNISSUED:
            released = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_RELEASE_NS] <= s[S_NOW_NS]
            if released and s[state + SC_UNISSUED] == 0:
                return c
    return -1


@kernel
def refresh_choices(p: Image, s: Image) -> int:
    """Bring windows and mask up to date; returns how many actions other than waiting are legal.

    Where there are none but one can wait, the ready window and its part of the mask stay as they were: nobody
    will look at them before the wait is over.
    """
    moves = _fill_prefetches(p, s) + _fill_lifts(p, s) + _fill_offloads(p, s)
    active = s[S_FLIGHT] > 0 or s[S_GROUPS] > 0 or s[S_WAITING] > 0
    can_wait = active or s[S_RELEASED] < p[P_LATE]
    _mark(p, s, wait_action(p), 1 if can_wait else 0)
    if moves == 0 and can_wait and (s[S_READY] == 0 or s[S_FLIGHT] >= p[P_RUN_AHEAD]):
        return 0
    slots = _fill_window(p, s)
    _mark_open(p, s)
    if p[P_AMPLE] == 0:
        look_at_holes(p, s)
    events = s[S_EVENTS] + p[P_STREAMS] - 1 <= p[P_MAX_EVENTS]
    issues = 0
    for k in range(slots):
        issues += _mark_issues(p, s, k, events)
    if issues == 0 and not can_wait:  # the one safe command may lie beyond the window
        last = p[P_WINDOW] - 1
        s[p[P_STATE_WINDOW] + last] = _serial_next(p, s)
        s[S_FILLED] = p[P_WINDOW]
        issues = _mark_issues(p, s, last, events)
    return issues + moves


@kernel
def close_choices(p: Image, s: Image) -> None:
    """Leave empty windows and an empty mask behind: the episode is over."""
    _mark_open(p, s)
    for k in range(p[P_WINDOW]):
        s[p[P_STATE_WINDOW] + k] = -1
        s[p[P_STATE_SHOWN] + k] = 0
    s[S_FILLED] = 0
    for slot in range(p[P_SLOTS]):
        s[p[P_STATE_PREFETCH] + slot] = -1
    for action in range(wait_action(p) + 1):
        _mark(p, s, action, 0)
