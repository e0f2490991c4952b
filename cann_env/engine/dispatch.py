"""What the device does at one instant: heads become eligible, claim their operands, start, finish.

Order among those who want the same thing: blocks of kernels that have already started, then heads by
priority, by how long they have been eligible, and by order of submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.grants import claim_operands, grant_space
from cann_env.engine.jit import kernel
from cann_env.engine.launch import die_of, kernel_lacks, kernel_row, launch_blocks
from cann_env.engine.layout import (
    ELIGIBLE,
    FAR,
    LACKS_FAULT,
    LACKS_SLOT,
    MAYBE_MIX,
    NO_CAUSE,
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_PRED,
    P_AT_RANKED,
    P_AT_STREAM,
    P_COMMANDS,
    P_GAP_NS,
    P_MAX_ACTIVE,
    P_MIX_SWITCH_NS,
    P_RECORD_NS,
    P_STATE_COMMAND,
    P_STATE_EDGE,
    P_STATE_ELIGIBLE,
    P_STATE_PENDING,
    P_STATE_STREAM,
    P_WAIT_NS,
    P_WAKE_NS,
    PC_FIRST_MIX,
    PC_KERNEL,
    PC_MANAGED_BYTES,
    PC_PRED,
    PC_PREDS,
    PC_WIDTH,
    PK_BLOCKS,
    PK_WIDTH,
    PS_PRIORITY,
    PS_WIDTH,
    S_ACTIVE,
    S_CLAIMS,
    S_CURSOR,
    S_ELIGIBLE,
    S_EVENTS,
    S_NOW_NS,
    S_PENDING,
    S_STALL_EVENT_NS,
    S_STIRRED,
    S_TIMER_NS,
    S_WAITING,
    SC_CAUSE,
    SC_CAUSE_NS,
    SC_CLAIMED,
    SC_ELIGIBLE_NS,
    SC_FINISH_NS,
    SC_ISSUE_NS,
    SC_KERNEL,
    SC_OWED,
    SC_PENDING,
    SC_PHASE,
    SC_POSITION,
    SC_REUSE_NS,
    SC_SEQ,
    SC_START_NS,
    SC_STREAM,
    SC_UNDONE,
    SC_WAITS,
    SC_WIDTH,
    SS_FREE_NS,
    SS_HEAD,
    SS_MIX,
    SS_TIMER_NS,
    SS_WIDTH,
    STARTED,
)
from cann_env.engine.memory import can_claim, operands_there
from cann_env.engine.trace import T_STALL, record
from cann_env.engine.transfers import dispatch_transfers
from cann_env.engine.users import start_using

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _goes_before(p: Image, s: Image, c: int, other: int) -> bool:
    """Arbitration between two eligible heads."""
    a = p[P_STATE_COMMAND] + c * SC_WIDTH
    b = p[P_STATE_COMMAND] + other * SC_WIDTH
    first = p[p[P_AT_STREAM] + s[a + SC_STREAM] * PS_WIDTH + PS_PRIORITY]
    second = p[p[P_AT_STREAM] + s[b + SC_STREAM] * PS_WIDTH + PS_PRIORITY]
    if first != second:
        return first < second
    if s[a + SC_ELIGIBLE_NS] != s[b + SC_ELIGIBLE_NS]:
        return s[a + SC_ELIGIBLE_NS] < s[b + SC_ELIGIBLE_NS]
    return s[a + SC_SEQ] < s[b + SC_SEQ]


@kernel
def make_eligible(p: Image, s: Image, c: int) -> None:
    """A head now lacks nothing but resources: its waits are over and it enters the arbitration."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    s[state + SC_PHASE] = ELIGIBLE
    s[S_EVENTS] -= s[state + SC_WAITS]  # its waits are over
    s[state + SC_CAUSE] = NO_CAUSE
    s[state + SC_CAUSE_NS] = s[state + SC_ELIGIBLE_NS]
    s[p[P_STATE_STREAM] + s[state + SC_STREAM] * SS_WIDTH + SS_TIMER_NS] = FAR
    at = p[P_STATE_ELIGIBLE]
    place = s[S_ELIGIBLE]
    while place > 0 and _goes_before(p, s, c, s[at + place - 1]):
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = c
    s[S_ELIGIBLE] += 1
    s[S_STIRRED] = 1


@kernel
def arm_head(p: Image, s: Image, c: int) -> None:
    """The head of a stream has no unfinished predecessor: from when may it start?

    The stream reaches it a gap after the command before (later where a mix kernel ends or begins). Each
    event wait that is already satisfied takes a little time; one that is not wakes the stream late.
    """
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    stream = p[P_STATE_STREAM] + s[state + SC_STREAM] * SS_WIDTH
    reached = s[state + SC_ISSUE_NS]
    if s[state + SC_POSITION] > 0:
        gap = p[P_GAP_NS] if p[fixed + PC_FIRST_MIX] == s[stream + SS_MIX] else p[P_MIX_SWITCH_NS]
        if p[fixed + PC_FIRST_MIX] == MAYBE_MIX:
            gap = max(p[P_GAP_NS], p[P_MIX_SWITCH_NS])
        reached = max(reached, s[stream + SS_FREE_NS] + gap)
    ready = reached + s[state + SC_WAITS] * p[P_WAIT_NS]
    if s[state + SC_WAITS] > 0:
        first = p[fixed + PC_PRED]
        for edge in range(first, first + p[fixed + PC_PREDS]):
            if s[p[P_STATE_EDGE] + edge] == 1:
                producer = p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH
                recorded = s[producer + SC_FINISH_NS] + p[P_RECORD_NS]
                if recorded > reached:
                    ready = max(ready, recorded + p[P_WAKE_NS])
    if s[state + SC_REUSE_NS] > reached:
        ready = max(ready, s[state + SC_REUSE_NS] + p[P_WAKE_NS])
    s[S_STALL_EVENT_NS] += ready - reached
    if ready > reached:
        record(s, T_STALL, c, 0, reached, ready, 0, 0)
    s[state + SC_ELIGIBLE_NS] = ready
    if ready <= s[S_NOW_NS]:
        make_eligible(p, s, c)
    else:
        s[stream + SS_TIMER_NS] = ready
        s[S_TIMER_NS] = min(s[S_TIMER_NS], ready)


@kernel
def head_changed(p: Image, s: Image, stream: int) -> None:
    """A stream has a new head, or its head lost its last unfinished predecessor."""
    c = s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_HEAD]
    if c >= 0 and s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0:
        arm_head(p, s, c)


@kernel
def _blame(p: Image, s: Image, c: int, cause: int) -> None:
    """Book the time since the last attempt under what was lacking then, and remember what is lacking now."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    now = s[S_NOW_NS]
    if s[state + SC_CAUSE] != NO_CAUSE:
        s[S_STALL_EVENT_NS + s[state + SC_CAUSE]] += now - s[state + SC_CAUSE_NS]
        if now > s[state + SC_CAUSE_NS]:
            record(s, T_STALL, c, s[state + SC_CAUSE], s[state + SC_CAUSE_NS], now, 0, 0)
    s[state + SC_CAUSE] = cause
    s[state + SC_CAUSE_NS] = now


@kernel
def _keep_pending(p: Image, s: Image, c: int) -> None:
    """Enter a command in the list of those with blocks left, by start and then by submission."""
    at = p[P_STATE_PENDING]
    place = s[S_PENDING]
    commands = p[P_STATE_COMMAND]
    mine = commands + c * SC_WIDTH
    while place > 0:
        other = commands + s[at + place - 1] * SC_WIDTH
        if s[other + SC_START_NS] < s[mine + SC_START_NS]:
            break
        if s[other + SC_START_NS] == s[mine + SC_START_NS] and s[other + SC_SEQ] < s[mine + SC_SEQ]:
            break
        s[at + place] = s[at + place - 1]
        place -= 1
    s[at + place] = c
    s[S_PENDING] += 1
    s[S_STIRRED] = 1


@kernel
def next_kernel(p: Image, s: Image, c: int) -> None:
    """A started command comes to its next kernel: it competes ahead of the heads."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    first = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_KERNEL]
    row = p[P_AT_KERNEL] + (first + s[state + SC_KERNEL]) * PK_WIDTH
    s[state + SC_PENDING] = p[row + PK_BLOCKS]
    _keep_pending(p, s, c)


@kernel
def _has_started(p: Image, s: Image, c: int) -> bool:
    return s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_PHASE] >= STARTED


@kernel
def _start(p: Image, s: Image, c: int) -> None:
    """A head starts: its first blocks launch."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    first = p[P_AT_KERNEL] + p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_KERNEL] * PK_WIDTH
    _blame(p, s, c, NO_CAUSE)
    s[state + SC_PHASE] = STARTED
    s[state + SC_START_NS] = s[S_NOW_NS]
    s[state + SC_PENDING] = p[first + PK_BLOCKS]
    s[S_ACTIVE] += 1
    while s[S_CURSOR] < p[P_COMMANDS] and _has_started(p, s, p[p[P_AT_RANKED] + s[S_CURSOR]]):
        s[S_CURSOR] += 1
    start_using(p, s, c)
    launch_blocks(p, s, c)
    if s[state + SC_PENDING] > 0:
        _keep_pending(p, s, c)


@kernel
def _head_lacks(p: Image, s: Image, c: int) -> int:
    """Claim what a head needs in memory if possible; returns what it still lacks."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    if p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_MANAGED_BYTES] > 0:
        if s[state + SC_CLAIMED] == 0:
            if not can_claim(p, s, c):
                return LACKS_FAULT
            claim_operands(p, s, c)
        if not operands_there(p, s, c):
            return LACKS_FAULT
    if s[state + SC_OWED] > 0:
        return LACKS_FAULT
    if s[S_ACTIVE] >= p[P_MAX_ACTIVE]:
        return LACKS_SLOT
    return kernel_lacks(p, s, kernel_row(p, s, c), die_of(p, s, c))


@kernel
def _dispatch_heads(p: Image, s: Image) -> None:
    at = p[P_STATE_ELIGIBLE]
    kept = 0
    for i in range(s[S_ELIGIBLE]):
        c = s[at + i]
        cause = _head_lacks(p, s, c)
        if cause == NO_CAUSE:
            _start(p, s, c)
        else:
            _blame(p, s, c, cause)
            s[at + kept] = c
            kept += 1
    s[S_ELIGIBLE] = kept


@kernel
def _dispatch_pending(p: Image, s: Image) -> None:
    at = p[P_STATE_PENDING]
    kept = 0
    for i in range(s[S_PENDING]):
        c = s[at + i]
        launch_blocks(p, s, c)
        if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_PENDING] > 0:
            s[at + kept] = c
            kept += 1
    s[S_PENDING] = kept


@kernel
def dispatch(p: Image, s: Image) -> None:
    """Start everything that can start this instant."""
    if s[S_PENDING] > 0:
        _dispatch_pending(p, s)
    granted = 1
    while granted > 0:  # space that heads make others give up may serve those who wait
        granted = grant_space(p, s) if s[S_CLAIMS] > 0 else 0
        if s[S_ELIGIBLE] > 0:
            _dispatch_heads(p, s)
        if s[S_CLAIMS] > 0:
            granted = grant_space(p, s)
    if s[S_WAITING] > 0:
        dispatch_transfers(p, s)
