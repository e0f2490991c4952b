"""What the host thread does: issue a command, prefetch a buffer, wait.

Each call takes host time while the device goes on. A command reaches its stream when the call ends; a
prefetch or an offload joins its queue when the call begins, together with the space it reserves. Where the
host side of a buffer is pageable, the call ends when the buffer has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.clock import advance_to, advance_until_wake, settle
from cann_env.engine.dispatch import head_changed
from cann_env.engine.grants import allocate_outputs, enqueue_prefetch
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    DONE,
    P_AMPLE,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_PRED,
    P_AT_SUCC,
    P_CLOCKS,
    P_HOST_EVENT_NS,
    P_HOST_PREFETCH_NS,
    P_HOST_SYNC_NS,
    P_RECORD_NS,
    P_STATE_BUFFER,
    P_STATE_CLOCK,
    P_STATE_COMMAND,
    P_STATE_EDGE,
    P_STATE_FLIGHT,
    P_STATE_STREAM,
    P_STATE_STREAM_CLOCK,
    P_STATE_USED,
    P_STREAMS,
    PB_PAGEABLE,
    PB_WIDTH,
    PC_BLOCKING,
    PC_HOST_NS,
    PC_OUTPUT_BYTES,
    PC_PRED,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_SUCC,
    PC_SUCCS,
    PC_WIDTH,
    QUEUED,
    S_EVENTS,
    S_FLIGHT,
    S_HOST_LEFT_NS,
    S_HOST_NS,
    S_ISSUED,
    S_NOW_NS,
    S_STALL_HOST_NS,
    S_STIRRED,
    SB_LEAVING,
    SB_RESIDENCY,
    SB_WIDTH,
    SC_FINISH_NS,
    SC_ISSUE_NS,
    SC_NEXT,
    SC_PHASE,
    SC_POSITION,
    SC_RECORDS,
    SC_REUSE_NS,
    SC_SEQ,
    SC_STREAM,
    SC_UNDONE,
    SC_UNISSUED,
    SC_WAITS,
    SC_WIDTH,
    SS_HEAD,
    SS_ISSUED,
    SS_LENGTH,
    SS_TAIL,
    SS_WIDTH,
    VALID,
)
from cann_env.engine.memory import evict
from cann_env.engine.ready import enter_ready, leave_ready
from cann_env.engine.trace import (
    T_HOST_ISSUE,
    T_HOST_LIFT,
    T_HOST_PREFETCH,
    T_HOST_WAIT,
    T_WAIT,
    record,
)
from cann_env.engine.transfers import enqueue_lift
from cann_env.engine.users import advance_serial, place_outputs

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _latest_unseen(p: Image, s: Image, c: int, below: int) -> int:
    """The edge to the predecessor submitted last among those submitted before ``below``; -1 if none."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    best = -1
    latest = -1
    for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
        seq = s[p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH + SC_SEQ]
        if latest < seq < below:
            latest = seq
            best = edge
    return best


@kernel
def submit_waits(p: Image, s: Image, c: int, stream: int) -> int:
    """Put the event waits that a command needs on its stream; returns how many.

    A dependency needs none if it lies on the same stream, or if an earlier wait already orders the
    stream after the producer. Each stream knows up to which position it is ordered after every other
    stream; a wait also brings what the producer knew. Producers are visited latest first.
    """
    streams = p[P_STREAMS]
    mine = p[P_STATE_STREAM_CLOCK] + stream * streams
    waits = 0
    below = s[S_ISSUED]
    while True:
        edge = _latest_unseen(p, s, c, below)
        if edge < 0:
            return waits
        u = p[p[P_AT_PRED] + edge]
        producer = p[P_STATE_COMMAND] + u * SC_WIDTH
        below = s[producer + SC_SEQ]
        theirs = s[producer + SC_STREAM]
        if theirs == stream or s[mine + theirs] >= s[producer + SC_POSITION]:
            continue
        waits += 1
        s[p[P_STATE_EDGE] + edge] = 1
        known = p[P_STATE_CLOCK] + u * streams
        for i in range(streams):
            s[mine + i] = max(s[mine + i], s[known + i])
        if s[producer + SC_PHASE] != DONE:
            s[producer + SC_RECORDS] += 1
        record(s, T_WAIT, u, c, 0, 0, 0, 0)


@kernel
def _submit_reuse_waits(p: Image, s: Image, c: int, stream: int) -> int:
    """Order a command behind those that used the memory of its outputs last; returns how many waits it takes.

    They are done, so the waits are met at once; they make the plan right whatever the times are.
    """
    outputs = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES]
    if p[P_CLOCKS] == 0 or p[P_AMPLE] == 1 or outputs == 0:
        return 0
    streams = p[P_STREAMS]
    mine = p[P_STATE_STREAM_CLOCK] + stream * streams
    waits = 0
    for other in range(streams):
        position = s[p[P_STATE_USED] + other]
        if other == stream or position <= s[mine + other]:
            continue
        u = 0
        while s[p[P_STATE_COMMAND] + u * SC_WIDTH + SC_STREAM] != other or (
            s[p[P_STATE_COMMAND] + u * SC_WIDTH + SC_POSITION] != position
        ):
            u += 1
        waits += 1
        known = p[P_STATE_CLOCK] + u * streams
        for i in range(streams):
            s[mine + i] = max(s[mine + i], s[known + i])
        recorded = s[p[P_STATE_COMMAND] + u * SC_WIDTH + SC_FINISH_NS] + p[P_RECORD_NS]
        state = p[P_STATE_COMMAND] + c * SC_WIDTH
        s[state + SC_REUSE_NS] = max(s[state + SC_REUSE_NS], recorded)
        record(s, T_WAIT, u, c, 0, 0, 0, 0)
    return waits


@kernel
def count_waits(p: Image, s: Image, c: int, stream: int) -> int:
    """At most how many event waits a command would need on a stream.

    One for each other stream that runs a predecessor which the stream is not ordered after yet.
    """
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    mine = p[P_STATE_STREAM_CLOCK] + stream * p[P_STREAMS]
    waits = 0
    for other in range(p[P_STREAMS]):
        if other == stream:
            continue
        for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
            producer = p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH
            if s[producer + SC_STREAM] == other and s[producer + SC_POSITION] > s[mine + other]:
                waits += 1
                break
    return waits


@kernel
def _startable_since(p: Image, s: Image, c: int) -> int:
    """When a command whose predecessors are done could have started: its release or their last finish."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    since = p[fixed + PC_RELEASE_NS]
    for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
        since = max(since, s[p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH + SC_FINISH_NS])
    return since


@kernel
def _enter_stream(p: Image, s: Image, c: int, stream: int) -> None:
    """A submitted command joins the tail of its stream; alone there, it is the head."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    row = p[P_STATE_STREAM] + stream * SS_WIDTH
    streams = p[P_STREAMS]
    s[state + SC_PHASE] = QUEUED
    if s[state + SC_UNDONE] == 0:
        s[S_STALL_HOST_NS] += s[S_NOW_NS] - _startable_since(p, s, c)
    s[state + SC_STREAM] = stream
    s[state + SC_POSITION] = s[row + SS_ISSUED]
    s[state + SC_ISSUE_NS] = s[S_NOW_NS]
    s[row + SS_ISSUED] += 1
    s[row + SS_LENGTH] += 1
    mine = p[P_STATE_STREAM_CLOCK] + stream * streams
    s[mine + stream] = s[state + SC_POSITION]
    for i in range(streams):
        s[p[P_STATE_CLOCK] + c * streams + i] = s[mine + i]
    if s[row + SS_TAIL] >= 0:
        s[p[P_STATE_COMMAND] + s[row + SS_TAIL] * SC_WIDTH + SC_NEXT] = c
        s[row + SS_TAIL] = c
    else:
        s[row + SS_HEAD] = c
        s[row + SS_TAIL] = c
        head_changed(p, s, stream)


@kernel
def _announce(p: Image, s: Image, c: int) -> None:
    """Successors of a command that has been issued may have become ready."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    first = p[P_AT_SUCC] + p[fixed + PC_SUCC]
    for i in range(first, first + p[fixed + PC_SUCCS]):
        after = p[i]
        state = p[P_STATE_COMMAND] + after * SC_WIDTH
        s[state + SC_UNISSUED] -= 1
        released = p[p[P_AT_COMMAND] + after * PC_WIDTH + PC_RELEASE_NS] <= s[S_NOW_NS]
        if s[state + SC_UNISSUED] == 0 and released:
            enter_ready(p, s, after)


@kernel
def issue(p: Image, s: Image, c: int, stream: int) -> None:
    """Submit a command to a stream. The caller has checked that this is legal."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    began = s[S_HOST_NS]
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    s[state + SC_ISSUE_NS] = s[S_NOW_NS]
    place_outputs(p, s, c)
    allocate_outputs(p, s, c)
    leave_ready(p, s, c)
    waits = submit_waits(p, s, c, stream) + _submit_reuse_waits(p, s, c, stream)
    s[state + SC_WAITS] = waits
    s[S_EVENTS] += waits
    s[S_HOST_LEFT_NS] -= p[fixed + PC_HOST_NS]
    s[S_HOST_NS] = began + p[fixed + PC_HOST_NS] + waits * p[P_HOST_EVENT_NS]
    advance_to(p, s, s[S_HOST_NS])
    s[state + SC_SEQ] = s[S_ISSUED]
    s[S_ISSUED] += 1
    s[p[P_STATE_FLIGHT] + s[S_FLIGHT]] = c
    s[S_FLIGHT] += 1
    _enter_stream(p, s, c, stream)
    advance_serial(p, s)
    _announce(p, s, c)
    if s[S_STIRRED] == 1:
        settle(p, s)
    if p[fixed + PC_BLOCKING] == 1:
        while s[state + SC_PHASE] != DONE and advance_until_wake(p, s):
            pass
    record(s, T_HOST_ISSUE, c, began, s[S_HOST_NS], 0, 0, 0)


@kernel
def _on_its_way(s: Image, row: int) -> bool:
    """Whether a buffer moves between host and HBM, or is about to."""
    residency = s[row + SB_RESIDENCY]
    return s[row + SB_LEAVING] == 1 or ABSENT < residency < VALID


@kernel
def move(p: Image, s: Image, buffer: int, call: int) -> None:
    """Ask for a buffer to be moved. The caller has checked that this is legal.

    Args:
        p: Program.
        s: State.
        buffer: The buffer.
        call: T_HOST_PREFETCH from the host into HBM, T_HOST_LIFT from HBM into L2, T_HOST_OFFLOAD from HBM to
            the host.
    """
    began = s[S_HOST_NS]
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    if call == T_HOST_PREFETCH:
        enqueue_prefetch(p, s, buffer)
    elif call == T_HOST_LIFT:
        enqueue_lift(p, s, buffer)
    else:
        evict(p, s, buffer)
    s[S_HOST_NS] = began + p[P_HOST_PREFETCH_NS]
    settle(p, s)
    advance_to(p, s, s[S_HOST_NS])
    if call != T_HOST_LIFT and p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_PAGEABLE] == 1:
        while _on_its_way(s, row) and advance_until_wake(p, s):
            pass
    record(s, call, buffer, began, s[S_HOST_NS], 0, 0, 0)


@kernel
def wait(p: Image, s: Image) -> bool:
    """Let time pass until something is completed, arrives or is released; False if nothing ever will."""
    began = s[S_HOST_NS]
    woke = advance_until_wake(p, s)
    s[S_HOST_NS] += p[P_HOST_SYNC_NS]
    advance_to(p, s, s[S_HOST_NS])
    record(s, T_HOST_WAIT, -1, began, s[S_HOST_NS], 0, 0, 0)
    return woke
