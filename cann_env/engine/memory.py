"""HBM by bytes: device buffers reserved and freed, managed buffers pinned, moved in and evicted.

Device buffers are reserved when their first writer is issued and freed when their last user finishes.
A command *claims* its managed operands all at once or not at all, so that no two heads can each hold
half of what both need. Whoever evicts takes the clean buffer needed furthest in the future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    ARRIVING,
    FAR,
    IN_QUEUE,
    LINK_H2D,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_OPERAND,
    P_AT_SERIAL,
    P_AT_USER,
    P_BUFFERS,
    P_COMMANDS,
    P_HBM_BYTES,
    P_MANAGED_PEAK,
    P_MANAGED_WRITTEN,
    PB_BYTES,
    PB_MANAGED,
    PB_USER,
    PB_USERS,
    PB_WIDTH,
    PC_MANAGED_BYTES,
    PC_OPERAND,
    PC_OPERANDS,
    PC_OUTPUT_BYTES,
    PC_RANK,
    PC_RELEASE_NS,
    PC_WIDTH,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    Q20,
    S_AT_BUFFER,
    S_AT_COMMAND,
    S_AT_FLIGHT,
    S_AT_LINK,
    S_AT_QUEUE,
    S_DEVICE_BYTES,
    S_FLIGHT,
    S_HBM_BYTES,
    S_HBM_PEAK,
    S_NOW_NS,
    S_OUTPUT_LEFT,
    S_QUEUE,
    SB_DIRTY,
    SB_NEXT,
    SB_PINS,
    SB_RESERVE_NS,
    SB_RESIDENCY,
    SB_TRIAL,
    SB_UNSTARTED,
    SB_USERS,
    SB_WIDTH,
    SC_PHASE,
    SC_WIDTH,
    SL_BYTES,
    SL_WIDTH,
    STARTED,
    T_EVICT,
    UNISSUED,
    VALID,
    WRITE,
)
from cann_env.engine.trace import record

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def reserve(s: Image, size: int) -> None:
    """Take bytes of HBM that are known to be free."""
    s[S_HBM_BYTES] += size
    s[S_HBM_PEAK] = max(s[S_HBM_PEAK], s[S_HBM_BYTES])


@kernel
def next_rank(p: Image, s: Image, buffer: int) -> int:
    """Rank of the most urgent user that has not started and is known by now; FAR if there is none."""
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    if s[row + SB_UNSTARTED] == 0:
        return FAR
    first = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_USER]
    count = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_USERS]
    commands = s[S_AT_COMMAND]
    at = s[row + SB_NEXT]
    while at < count and s[commands + p[p[P_AT_USER] + first + at] * SC_WIDTH + SC_PHASE] >= STARTED:
        at += 1
    s[row + SB_NEXT] = at
    while at < count:
        c = p[p[P_AT_USER] + first + at]
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        if s[commands + c * SC_WIDTH + SC_PHASE] < STARTED and p[fixed + PC_RELEASE_NS] <= s[S_NOW_NS]:
            return p[fixed + PC_RANK]
        at += 1
    return FAR


@kernel
def _evictable(p: Image, s: Image, buffer: int) -> bool:
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    return (
        p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1
        and s[row + SB_RESIDENCY] == VALID
        and s[row + SB_PINS] == 0
        and s[row + SB_DIRTY] == 0
    )


@kernel
def can_make_room(p: Image, s: Image, size: int, rank: int) -> bool:
    """Whether ``size`` bytes are free or can be freed by evicting only what is needed after ``rank``."""
    free = p[P_HBM_BYTES] - s[S_HBM_BYTES]
    if free >= size:
        return True
    for buffer in range(p[P_BUFFERS]):
        if _evictable(p, s, buffer) and next_rank(p, s, buffer) > rank:
            free += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
            if free >= size:
                return True
    return False


@kernel
def _evict(p: Image, s: Image, buffer: int) -> None:
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    s[row + SB_RESIDENCY] = ABSENT
    s[S_HBM_BYTES] -= size
    if s[row + SB_UNSTARTED] > 0:  # it will have to come back
        s[s[S_AT_LINK] + LINK_H2D * SL_WIDTH + SL_BYTES] += size * Q20
    record(s, T_EVICT, buffer, s[S_NOW_NS], 0, 0, 0, 0)


@kernel
def make_room(p: Image, s: Image, size: int) -> None:
    """Evict, furthest next use first, until ``size`` bytes are free; the caller knows that it succeeds."""
    while p[P_HBM_BYTES] - s[S_HBM_BYTES] < size:
        victim = -1
        furthest = -1
        for buffer in range(p[P_BUFFERS]):
            if _evictable(p, s, buffer):
                rank = next_rank(p, s, buffer)
                if rank > furthest:
                    furthest = rank
                    victim = buffer
        if victim < 0:
            return
        _evict(p, s, victim)


@kernel
def allocate_outputs(p: Image, s: Image, c: int) -> None:
    """Reserve the device buffers that a command is the first to write."""
    size = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES]
    if size > 0:
        make_room(p, s, size)
        reserve(s, size)
        s[S_DEVICE_BYTES] += size
        s[S_OUTPUT_LEFT] -= size


@kernel
def bytes_short_of(p: Image, s: Image, c: int, residency: int) -> int:
    """Bytes of managed operands that have not come as far as a residency.

    Short of IN_QUEUE: no space is reserved for them. Short of ARRIVING: they wait for the link. Short of
    VALID: they cannot be used yet.
    """
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    if p[fixed + PC_MANAGED_BYTES] == 0:
        return 0
    short = 0
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = p[P_AT_BUFFER] + buffer * PB_WIDTH
        if p[row + PB_MANAGED] == 1 and s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY] < residency:
            short += p[row + PB_BYTES]
    return short


@kernel
def pin_operands(p: Image, s: Image, c: int, step: int) -> None:
    """Add ``step`` to the pin count of every managed operand."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
            s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_PINS] += step


@kernel
def can_claim(p: Image, s: Image, c: int) -> bool:
    """Whether all missing managed operands fit at once, its present ones staying where they are."""
    missing = bytes_short_of(p, s, c, IN_QUEUE)
    if missing == 0:
        return True
    pin_operands(p, s, c, 1)
    fits = can_make_room(p, s, missing, -1)
    pin_operands(p, s, c, -1)
    return fits


@kernel
def start_using(p: Image, s: Image, c: int) -> None:
    """A command starts: one user fewer is still to start for each of its buffers."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        s[s[S_AT_BUFFER] + buffer * SB_WIDTH + SB_UNSTARTED] -= 1


@kernel
def finish_using(p: Image, s: Image, c: int) -> None:
    """A command is done: unpin, mark what it wrote, free what nobody needs any more."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
        s[row + SB_USERS] -= 1
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
            s[row + SB_PINS] -= 1
            if p[operand + PO_MODE] & WRITE and s[row + SB_DIRTY] == 0:
                s[row + SB_DIRTY] = 1
                s[S_DEVICE_BYTES] += size
        elif s[row + SB_USERS] == 0 and s[row + SB_RESIDENCY] == ABSENT:  # resident ones stay
            s[S_HBM_BYTES] -= size
            s[S_DEVICE_BYTES] -= size


@kernel
def enqueue_prefetch(p: Image, s: Image, buffer: int) -> None:
    """Reserve space for a buffer and put it at the end of the prefetch queue."""
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    make_room(p, s, size)
    reserve(s, size)
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    s[row + SB_RESIDENCY] = IN_QUEUE
    s[row + SB_RESERVE_NS] = s[S_NOW_NS]
    s[s[S_AT_QUEUE] + s[S_QUEUE]] = buffer
    s[S_QUEUE] += 1


@kernel
def leave_queue(s: Image, place: int) -> None:
    """Take an entry out of the prefetch queue, keeping the order of the others."""
    at = s[S_AT_QUEUE]
    for i in range(place, s[S_QUEUE] - 1):
        s[at + i] = s[at + i + 1]
    s[S_QUEUE] -= 1


@kernel
def begin_arrival(s: Image, buffer: int, size: int) -> None:
    """A buffer starts to move in: its bytes are no longer waiting for the link."""
    row = s[S_AT_BUFFER] + buffer * SB_WIDTH
    s[row + SB_RESIDENCY] = ARRIVING
    if s[row + SB_UNSTARTED] > 0:
        s[s[S_AT_LINK] + LINK_H2D * SL_WIDTH + SL_BYTES] -= size * Q20


@kernel
def _mark_written(p: Image, s: Image, c: int) -> int:
    """In the trial of the banker, keep what a command writes for ever; returns the bytes this adds."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    added = 0
    if p[fixed + PC_MANAGED_BYTES] == 0:
        return added
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        buffer = p[operand + PO_BUFFER]
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        if (
            p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1
            and p[operand + PO_MODE] & WRITE
            and s[row + SB_DIRTY] == 0
            and s[row + SB_TRIAL] >= 0
        ):
            s[row + SB_TRIAL] -= FAR  # counted once; never reaches zero again
            added += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    return added


@kernel
def _finish_on_trial(p: Image, s: Image, c: int) -> int:
    """Bytes that are freed when a command finishes, in the trial of the banker."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    freed = 0
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 0:
            s[row + SB_TRIAL] -= 1
            if s[row + SB_TRIAL] == 0 and s[row + SB_RESIDENCY] == ABSENT:  # resident ones stay
                freed += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    return freed


@kernel
def _working_set(p: Image, s: Image, c: int) -> int:
    """Managed bytes that a command needs beside what is never evicted again (written buffers), on trial."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    size = 0
    if p[fixed + PC_MANAGED_BYTES] == 0:
        return size
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        written = s[row + SB_DIRTY] == 1 or s[row + SB_TRIAL] < 0
        if p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1 and not written:
            size += p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    return size


@kernel
def _after_flight(p: Image, s: Image, c: int, live: int) -> int:
    """Bytes still reserved once ``c`` and all in flight are done; -1 if they may block each other.

    In a queue a command may stand before the one that would make room for it, and whoever writes may do so
    before anything is freed. So the largest working set must fit beside all there is and all that is written.
    """
    flight = s[S_AT_FLIGHT]
    for buffer in range(p[P_BUFFERS]):
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        s[row + SB_TRIAL] = s[row + SB_USERS]
    live += _mark_written(p, s, c)
    for i in range(s[S_FLIGHT]):
        live += _mark_written(p, s, s[flight + i])
    working = _working_set(p, s, c)
    for i in range(s[S_FLIGHT]):
        working = max(working, _working_set(p, s, s[flight + i]))
    if live + working > p[P_HBM_BYTES]:
        return -1
    live -= _finish_on_trial(p, s, c)
    for i in range(s[S_FLIGHT]):
        live -= _finish_on_trial(p, s, s[flight + i])
    return live


@kernel
def _serial_rest_fits(p: Image, s: Image, c: int, live: int) -> bool:
    """Whether what is neither in flight nor ``c`` fits when run one by one after them."""
    for i in range(p[P_COMMANDS]):
        other = p[p[P_AT_SERIAL] + i]
        if other == c or s[s[S_AT_COMMAND] + other * SC_WIDTH + SC_PHASE] != UNISSUED:
            continue
        live += p[p[P_AT_COMMAND] + other * PC_WIDTH + PC_OUTPUT_BYTES]
        if live + _working_set(p, s, other) > p[P_HBM_BYTES]:
            return False
        live += _mark_written(p, s, other) - _finish_on_trial(p, s, other)
    return True


@kernel
def safe_to_issue(p: Image, s: Image, c: int) -> bool:
    """The banker's check: the outputs fit now, and afterwards everything can still be finished.

    Costs O(1) while the device memory is ample and O(commands + operands) under pressure.
    """
    outputs = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES]
    ample = s[S_DEVICE_BYTES] + s[S_OUTPUT_LEFT] + p[P_MANAGED_WRITTEN] + p[P_MANAGED_PEAK]
    if outputs > 0 and not can_make_room(p, s, outputs, -1):
        return False
    if ample <= p[P_HBM_BYTES]:
        return True
    live = _after_flight(p, s, c, s[S_DEVICE_BYTES] + outputs)
    return live >= 0 and _serial_rest_fits(p, s, c, live)
