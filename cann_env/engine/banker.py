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
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_FLIGHT,
    P_STATE_USED,
    P_STREAMS,
    PB_CHARGE,
    PB_DIE,
    PB_LEVEL,
    PB_MANAGED,
    PB_TAKEN,
    PB_WIDTH,
    PC_OPERAND,
    PC_OPERANDS,
    PC_WIDTH,
    PD_MANAGED_PEAK,
    PD_WIDTH,
    PM_CHARGE,
    PM_MANAGED,
    PM_TAKEN,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    PQ_BYTES,
    PQ_LARGEST,
    PQ_ROOM,
    PQ_WIDTH,
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
    SD_HOLE_BYTES,
    SD_OUTPUT_LEFT,
    SD_SPARE_BYTES,
    SD_TAKEN_LEFT,
    UNISSUED,
)
from cann_env.engine.memory import can_make_room, demand_row, die_row, roomy
from cann_env.engine.space import (
    copy_space,
    place,
    remove,
    spare_bytes,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _place_on_trial(p: Image, s: Image, c: int, index: int) -> bool:
    """Take places for what a command allocates on a die, on trial; False if one does not fit."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        row = p[P_AT_BUFFER] + p[operand + PO_BUFFER] * PB_WIDTH
        if p[operand + PO_MODE] & ALLOCATE and p[row + PB_DIE] == index:
            at = s[die_row(p, s, index) + SD_AT_TRIAL]
            if place(s, at, p[P_CLOCKS], p[row + PB_TAKEN], p[operand + PO_BUFFER]) < 0:
                return False
    return True


@kernel
def _finish_on_trial(p: Image, s: Image, c: int, index: int, places: int) -> int:
    """A command finishes on trial; returns the bytes that it frees on a die, and gives their places back."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    freed = 0
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        row = p[P_AT_BUFFER] + buffer * PB_WIDTH
        state = p[P_STATE_BUFFER] + buffer * SB_WIDTH
        if p[row + PB_MANAGED] == 1 or p[row + PB_LEVEL] != NOWHERE or p[row + PB_DIE] != index:
            continue
        s[state + SB_TRIAL] -= 1
        if s[state + SB_TRIAL] == 0:
            freed += p[row + PB_CHARGE]
            if places == 1:
                remove(s, s[die_row(p, s, index) + SD_AT_TRIAL], p[P_CLOCKS], buffer, p[P_STATE_USED])
    return freed


@kernel
def _begin_trial(p: Image, s: Image, index: int, places: int) -> None:
    for buffer in range(p[P_BUFFERS]):
        row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
        s[row + SB_TRIAL] = s[row + SB_USERS] - s[row + SB_LIFTING]
    for i in range(p[P_STREAMS]):
        s[p[P_STATE_USED] + i] = -1
    if places == 1:
        die = die_row(p, s, index)
        copy_space(s, s[die + SD_AT_SPACE], s[die + SD_AT_TRIAL], p[P_CLOCKS])


@kernel
def _rest_row(p: Image, index: int, place: int) -> int:
    """Row of what the rest of the serial order needs of a die from a place on."""
    return p[P_AT_REST] + (index * (p[P_COMMANDS] + 1) + place) * PQ_WIDTH


@kernel
def _spare(p: Image, s: Image, space: int, index: int, place: int) -> int:
    """What the holes of an address space have beyond the largest size that the serial order still places."""
    return spare_bytes(s, space, p[P_CLOCKS], p[_rest_row(p, index, place) + PQ_LARGEST])


@kernel
def look_at_holes(p: Image, s: Image) -> None:
    """Before the commands of a window are checked: find what they are all measured by."""
    for index in range(p[P_DIES]):
        die = die_row(p, s, index)
        if not roomy(p, index) and s[die + SD_TAKEN_LEFT] > s[die + SD_HOLE_BYTES]:
            s[die + SD_SPARE_BYTES] = _spare(p, s, s[die + SD_AT_SPACE], index, s[S_SERIAL])


@kernel
def _serial_rest_fits(
    p: Image, s: Image, c: int, index: int, live: int, bytes_fit: bool, places: int
) -> bool:
    """Whether what is neither in flight nor ``c`` fits on a die when run one by one after them.

    Args:
        p: Program.
        s: State, with the trial as far as that.
        c: The command that is issued on trial.
        index: The die.
        live: Bytes that cannot be evicted.
        bytes_fit: Whether it is known that bytes suffice, so that only places are asked for.
        places: 1 if places have to be looked for.
    """
    trial = s[die_row(p, s, index) + SD_AT_TRIAL]
    for i in range(s[S_SERIAL], p[P_COMMANDS]):
        other = p[p[P_AT_SERIAL] + i]
        if other == c or s[p[P_STATE_COMMAND] + other * SC_WIDTH + SC_PHASE] != UNISSUED:
            continue
        if bytes_fit and (places == 0 or _spare(p, s, trial, index, i) > p[_rest_row(p, index, i) + PQ_ROOM]):
            return True
        live += p[demand_row(p, other, index) + PM_CHARGE]
        if live + p[demand_row(p, other, index) + PM_MANAGED] > p[P_HBM_BYTES]:
            return False
        if places == 1 and not _place_on_trial(p, s, other, index):
            return False
        live -= _finish_on_trial(p, s, other, index, places)
    return True


@kernel
def _rest_fits(p: Image, s: Image, c: int, index: int, bytes_fit: bool, places: int) -> bool:
    """Whether, on one die, what is in flight and ``c`` can finish and then the rest one by one.

    In a queue a command may stand before the one that would make room for it, so the largest working set must
    fit beside all there is.
    """
    flight = p[P_STATE_FLIGHT]
    _begin_trial(p, s, index, places)
    if places == 1 and not _place_on_trial(p, s, c, index):
        return False
    live = s[die_row(p, s, index) + SD_DEVICE_BYTES] + p[demand_row(p, c, index) + PM_CHARGE]
    working = p[demand_row(p, c, index) + PM_MANAGED]
    for i in range(s[S_FLIGHT]):
        working = max(working, p[demand_row(p, s[flight + i], index) + PM_MANAGED])
    if live + working > p[P_HBM_BYTES]:
        return False
    live -= _finish_on_trial(p, s, c, index, places)
    for i in range(s[S_FLIGHT]):
        live -= _finish_on_trial(p, s, s[flight + i], index, places)
    return _serial_rest_fits(p, s, c, index, live, bytes_fit, places)


@kernel
def _fits_on(p: Image, s: Image, c: int, index: int) -> bool:
    """Whether the outputs of a command fit on a die now and afterwards all can still be finished there.

    Whatever exists then exists in the serial order too, or exists early: so much for bytes.
    """
    die = die_row(p, s, index)
    rest = _rest_row(p, index, s[S_SERIAL])
    outputs = p[demand_row(p, c, index) + PM_CHARGE]
    if outputs > 0 and not can_make_room(p, s, die, outputs, -1):
        return False
    peak = p[p[P_AT_DIE] + index * PD_WIDTH + PD_MANAGED_PEAK]
    device = s[die + SD_DEVICE_BYTES]
    bytes_fit = device + s[die + SD_OUTPUT_LEFT] + peak <= p[P_HBM_BYTES] or (
        device + outputs + peak <= p[P_HBM_BYTES]
        and p[rest + PQ_BYTES] + s[die + SD_EARLY_BYTES] + outputs <= p[P_HBM_BYTES]
    )
    hole = s[die + SD_HOLE_BYTES]
    places = 0
    if not roomy(p, index) and s[die + SD_TAKEN_LEFT] > hole:
        taken = p[demand_row(p, c, index) + PM_TAKEN]
        places = 0 if s[die + SD_SPARE_BYTES] - taken > p[rest + PQ_ROOM] else 1
    return (bytes_fit and places == 0) or _rest_fits(p, s, c, index, bytes_fit, places)


@kernel
def safe_to_issue(p: Image, s: Image, c: int) -> bool:
    """Whether the outputs of a command fit now, and afterwards everything can still be finished.

    Costs O(operands) as long as memory is not very short, else up to O(commands + operands).
    """
    safe = True
    for index in range(p[P_DIES]):
        safe = safe and _fits_on(p, s, c, index)
    return safe
