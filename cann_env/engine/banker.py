"""The banker's check: may a command be issued so that afterwards everything can still be finished?

Only device buffers bind: they can neither be evicted nor moved. So the check asks, for each die, whether what
is in flight can run to its end and the rest one command at a time after it, by bytes and by addresses. Both
questions are answered at once while memory is ample, and by playing the rest through while it is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ALLOCATE,
    NOWHERE,
    P_AT_BUFFER,
    P_AT_COMMAND,
    P_AT_DIE,
    P_AT_OPERAND,
    P_AT_REST,
    P_AT_SERIAL,
    P_BUFFERS,
    P_CLOCKS,
    P_COMMANDS,
    P_DIES,
    P_HBM_BYTES,
    P_STREAMS,
    PB_BYTES,
    PB_CHARGE,
    PB_DIE,
    PB_LEVEL,
    PB_MANAGED,
    PB_TAKEN,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_OUTPUT_BYTES,
    PC_WIDTH,
    PD_MANAGED_PEAK,
    PD_SPACE_BYTES,
    PD_WIDTH,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    PQ_BYTES,
    PQ_COUNT,
    PQ_LARGEST,
    PQ_TAKEN,
    PQ_WIDTH,
    S_AT_BUFFER,
    S_AT_COMMAND,
    S_AT_FLIGHT,
    S_AT_USED,
    S_FLIGHT,
    S_SERIAL,
    SB_LIFTING,
    SB_TRIAL,
    SB_USERS,
    SB_WIDTH,
    SC_PHASE,
    SC_WIDTH,
    SD_AT_SPACE,
    SD_AT_TRIAL,
    SD_DEVICE_BYTES,
    SD_EARLY_BYTES,
    SD_EARLY_COUNT,
    SD_EARLY_TAKEN,
    SD_HOLE_BYTES,
    SD_OUTPUT_LEFT,
    SD_TAKEN_LEFT,
    UNISSUED,
)
from cann_env.engine.memory import can_make_room, die_row
from cann_env.engine.space import copy_space, place, remove

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _operand_bytes(p: Image, c: int, index: int, what: int) -> int:
    """Bytes on a die of managed buffers a command touches (0), or of what it allocates: charged (1), taken (2)."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    size = 0
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        row = p[P_AT_BUFFER] + p[operand + PO_BUFFER] * PB_WIDTH
        if p[row + PB_DIE] != index:
            continue
        if what > 0 and p[operand + PO_MODE] & ALLOCATE:
            size += p[row + PB_CHARGE] if what == 1 else p[row + PB_TAKEN]
        elif what == 0 and p[row + PB_MANAGED] == 1:
            size += p[row + PB_BYTES]
    return size


@kernel
def _place_on_trial(p: Image, s: Image, c: int, index: int) -> bool:
    """Take places for what a command allocates on a die, on trial; False if one does not fit."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        row = p[P_AT_BUFFER] + p[operand + PO_BUFFER] * PB_WIDTH
        if p[operand + PO_MODE] & ALLOCATE and p[row + PB_DIE] == index:
            at = s[die_row(s, index) + SD_AT_TRIAL]
            if place(s, at, p[P_CLOCKS], p[row + PB_TAKEN], p[operand + PO_BUFFER]) < 0:
                return False
    return True


@kernel
def _finish_on_trial(p: Image, s: Image, c: int, index: int, addresses: int) -> int:
    """A command finishes on trial; returns the bytes that it frees on a die, and gives their places back."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    freed = 0
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = p[P_AT_BUFFER] + buffer * PB_WIDTH
        state = s[S_AT_BUFFER] + buffer * SB_WIDTH
        if p[row + PB_MANAGED] == 1 or p[row + PB_LEVEL] != NOWHERE or p[row + PB_DIE] != index:
            continue
        s[state + SB_TRIAL] -= 1
        if s[state + SB_TRIAL] == 0:
            freed += p[row + PB_CHARGE]
            if addresses == 1:
                remove(s, s[die_row(s, index) + SD_AT_TRIAL], p[P_CLOCKS], buffer, s[S_AT_USED])
    return freed


@kernel
def _begin_trial(p: Image, s: Image, index: int, addresses: int) -> None:
    for buffer in range(p[P_BUFFERS]):
        row = s[S_AT_BUFFER] + buffer * SB_WIDTH
        s[row + SB_TRIAL] = s[row + SB_USERS] - s[row + SB_LIFTING]
    for i in range(p[P_STREAMS]):
        s[s[S_AT_USED] + i] = -1
    if addresses == 1:
        die = die_row(s, index)
        copy_space(s, s[die + SD_AT_SPACE], s[die + SD_AT_TRIAL], p[P_CLOCKS])


@kernel
def _serial_rest_fits(p: Image, s: Image, c: int, index: int, live: int, addresses: int) -> bool:
    """Whether what is neither in flight nor ``c`` fits on a die when run one by one after them."""
    for i in range(s[S_SERIAL], p[P_COMMANDS]):
        other = p[p[P_AT_SERIAL] + i]
        if other == c or s[s[S_AT_COMMAND] + other * SC_WIDTH + SC_PHASE] != UNISSUED:
            continue
        live += _operand_bytes(p, other, index, 1)
        if live + _operand_bytes(p, other, index, 0) > p[P_HBM_BYTES]:
            return False
        if addresses == 1 and not _place_on_trial(p, s, other, index):
            return False
        live -= _finish_on_trial(p, s, other, index, addresses)
    return True


@kernel
def _rest_fits(p: Image, s: Image, c: int, index: int, addresses: int) -> bool:
    """Whether, on one die, what is in flight and ``c`` can finish and then the rest one by one.

    In a queue a command may stand before the one that would make room for it, so the largest working set must
    fit beside all there is.
    """
    flight = s[S_AT_FLIGHT]
    _begin_trial(p, s, index, addresses)
    if addresses == 1 and not _place_on_trial(p, s, c, index):
        return False
    live = s[die_row(s, index) + SD_DEVICE_BYTES] + _operand_bytes(p, c, index, 1)
    working = _operand_bytes(p, c, index, 0)
    for i in range(s[S_FLIGHT]):
        working = max(working, _operand_bytes(p, s[flight + i], index, 0))
    if live + working > p[P_HBM_BYTES]:
        return False
    live -= _finish_on_trial(p, s, c, index, addresses)
    for i in range(s[S_FLIGHT]):
        live -= _finish_on_trial(p, s, s[flight + i], index, addresses)
    return _serial_rest_fits(p, s, c, index, live, addresses)


@kernel
def _surely_fits(p: Image, s: Image, c: int, index: int) -> bool:
    """Whether, on one die, what is known of the rest of the serial order says at once that all will fit.

    Whatever exists then exists in the serial order too, or exists early. And a place can only be lacking where
    all holes are too small, and there is at most one hole more than there are buffers.
    """
    die = die_row(s, index)
    fixed = p[P_AT_DIE] + index * PD_WIDTH
    rest = p[P_AT_REST] + (index * (p[P_COMMANDS] + 1) + s[S_SERIAL]) * PQ_WIDTH
    outputs = _operand_bytes(p, c, index, 1)
    if s[die + SD_DEVICE_BYTES] + outputs + p[fixed + PD_MANAGED_PEAK] > p[P_HBM_BYTES]:
        return False
    if p[rest + PQ_BYTES] + s[die + SD_EARLY_BYTES] + outputs > p[P_HBM_BYTES]:
        return False
    if s[die + SD_TAKEN_LEFT] <= s[die + SD_HOLE_BYTES]:
        return True
    taken = p[rest + PQ_TAKEN] + s[die + SD_EARLY_TAKEN] + _operand_bytes(p, c, index, 2)
    count = p[rest + PQ_COUNT] + s[die + SD_EARLY_COUNT] + p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OPERANDS]
    return taken + (count + 1) * p[rest + PQ_LARGEST] <= p[fixed + PD_SPACE_BYTES]


@kernel
def safe_to_issue(p: Image, s: Image, c: int) -> bool:
    """Whether the outputs of a command fit now, and afterwards everything can still be finished.

    Costs O(operands) as long as memory is not very short, else O(commands + operands).
    """
    outputs = p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_OUTPUT_BYTES]
    for index in range(p[P_DIES]):
        die = die_row(s, index)
        fixed = p[P_AT_DIE] + index * PD_WIDTH
        if outputs > 0 and not can_make_room(p, s, die, _operand_bytes(p, c, index, 1), -1):
            return False
        ample = s[die + SD_DEVICE_BYTES] + s[die + SD_OUTPUT_LEFT] + p[fixed + PD_MANAGED_PEAK]
        addresses = 1 if s[die + SD_TAKEN_LEFT] > s[die + SD_HOLE_BYTES] else 0
        short = ample > p[P_HBM_BYTES] or addresses == 1
        if short and not _surely_fits(p, s, c, index) and not _rest_fits(p, s, c, index, addresses):
            return False
    return True
