"""Who uses a buffer: places for what is written first, the start and the end of a use, the last release.

A device buffer gets its address when its first writer is issued and gives it back when its last user, or the
last prefetch of it into L2, has finished. Places remember who used them last: where another stream did, its
next tenant has to be ordered behind that by an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import drop_from_cache, enter_cache, list_liftable
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    ABSENT,
    ALLOCATE,
    CORE_CLASSES,
    NOWHERE,
    P_AMPLE,
    P_AT_BUFFER,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_DIE,
    P_AT_KERNEL,
    P_AT_OPERAND,
    P_AT_SERIAL,
    P_AT_STREAM,
    P_AT_USER,
    P_CLOCKS,
    P_COMMANDS,
    P_LIFT_BYTES,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_USED,
    P_STREAMS,
    PB_BYTES,
    PB_CHARGE,
    PB_DIE,
    PB_LEVEL,
    PB_MANAGED,
    PB_TAKEN,
    PB_USER,
    PB_USERS,
    PB_WIDTH,
    PB_WRITER,
    PC_KERNEL,
    PC_OPERAND,
    PC_OPERANDS,
    PC_OUTPUT_BYTES,
    PC_SERIAL,
    PC_WIDTH,
    PD_BASE,
    PD_WIDTH,
    PK_CLASS,
    PK_WIDTH,
    PO_BUFFER,
    PO_MODE,
    PO_WIDTH,
    PS_DIE,
    PS_WIDTH,
    PV_COMMAND,
    PV_WIDTH,
    PW_NAMED,
    PW_WIDTH,
    S_NOW_NS,
    S_SERIAL,
    SB_ADDRESS,
    SB_CONTENT,
    SB_DIRTY,
    SB_PINS,
    SB_RESIDENCY,
    SB_UNSTARTED,
    SB_USED,
    SB_USERS,
    SB_WIDTH,
    SC_PHASE,
    SC_POSITION,
    SC_STREAM,
    SC_WIDTH,
    SD_AT_SPACE,
    SD_BYTES,
    SD_DEVICE_BYTES,
    SD_EARLY_BYTES,
    SD_HOLE_BYTES,
    SD_TAKEN_LEFT,
    UNISSUED,
    WRITE,
)
from cann_env.engine.memory import die_row, home_of, make_idle, roomy
from cann_env.engine.space import (
    SX_ADDRESS,
    SX_CLOCK,
    SX_HEADER,
    largest_hole,
    place,
    remove,
)
from cann_env.engine.trace import (
    T_FREE,
    T_RELEASE,
    record,
)
from cann_env.engine.upcoming import look_ahead

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _measure_holes(p: Image, s: Image, index: int) -> None:
    """Bring the largest hole of a die up to date."""
    die = die_row(p, s, index)
    s[die + SD_HOLE_BYTES] = largest_hole(s, s[die + SD_AT_SPACE], p[P_CLOCKS])


@kernel
def _place_output(p: Image, s: Image, buffer: int) -> None:
    """Choose an address for a device buffer, and note who used its bytes before."""
    home = p[P_AT_BUFFER] + buffer * PB_WIDTH
    die = home_of(p, s, buffer)
    at = s[die + SD_AT_SPACE]
    row = place(s, at, p[P_CLOCKS], p[home + PB_TAKEN], buffer)
    taken = at + SX_HEADER + row * (SX_CLOCK + p[P_CLOCKS])
    base = p[p[P_AT_DIE] + p[home + PB_DIE] * PD_WIDTH + PD_BASE]
    s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_ADDRESS] = base + s[taken + SX_ADDRESS]
    s[die + SD_TAKEN_LEFT] -= p[home + PB_TAKEN]
    for stream in range(p[P_CLOCKS]):
        used = p[P_STATE_USED] + stream
        s[used] = max(s[used], s[taken + SX_CLOCK + stream])
    _measure_holes(p, s, p[home + PB_DIE])


@kernel
def place_outputs(p: Image, s: Image, c: int) -> None:
    """Choose addresses for the device buffers that a command is the first to write, in operand order.

    On a die that is large enough for all of them each has had its address from the beginning.
    """
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    if p[fixed + PC_OUTPUT_BYTES] == 0 or p[P_AMPLE] == 1:
        return
    for i in range(p[P_CLOCKS]):
        s[p[P_STATE_USED] + i] = -1
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        if p[operand + PO_MODE] & ALLOCATE:
            buffer = p[operand + PO_BUFFER]
            count_early(p, s, buffer, 1)
            if not roomy(p, p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE]):
                _place_output(p, s, buffer)


@kernel
def count_early(p: Image, s: Image, buffer: int, sign: int) -> None:
    """Count a device buffer that exists before its turn in the serial order, or no longer."""
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    die = home_of(p, s, buffer)
    s[die + SD_EARLY_BYTES] += sign * p[fixed + PB_CHARGE]


@kernel
def advance_serial(p: Image, s: Image) -> None:
    """Move on in the serial order over what is issued: buffers of those commands are no longer early."""
    if p[P_AMPLE] == 1:
        return
    while s[S_SERIAL] < p[P_COMMANDS]:
        c = p[p[P_AT_SERIAL] + s[S_SERIAL]]
        if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_PHASE] == UNISSUED:
            return
        s[S_SERIAL] += 1
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        if p[fixed + PC_OUTPUT_BYTES] == 0:
            continue
        for i in range(p[fixed + PC_OPERANDS]):
            operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
            buffer = p[operand + PO_BUFFER]
            if p[operand + PO_MODE] & ALLOCATE and s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_USERS] > 0:
                count_early(p, s, buffer, -1)


@kernel
def _last_uses(p: Image, s: Image, buffer: int) -> None:
    """Write for each stream the last position that used a buffer to the scratch of the state."""
    for i in range(p[P_STREAMS]):
        s[p[P_STATE_USED] + i] = -1
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    first = p[P_AT_USER] + p[fixed + PB_USER] * PV_WIDTH
    for i in range(p[fixed + PB_USERS]):
        user = p[P_STATE_COMMAND] + p[first + i * PV_WIDTH + PV_COMMAND] * SC_WIDTH
        used = p[P_STATE_USED] + s[user + SC_STREAM]
        s[used] = max(s[used], s[user + SC_POSITION])


@kernel
def _give_back(p: Image, s: Image, buffer: int) -> None:
    """The place of a buffer is free again, for whoever is ordered behind those that used it last."""
    if p[P_CLOCKS] > 0:
        _last_uses(p, s, buffer)
    remove(s, s[home_of(p, s, buffer) + SD_AT_SPACE], p[P_CLOCKS], buffer, p[P_STATE_USED])
    _measure_holes(p, s, p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_DIE])


@kernel
def let_go(p: Image, s: Image, buffer: int) -> None:
    """One user fewer: what nobody needs any more is freed, what nobody holds could be evicted."""
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    die = home_of(p, s, buffer)
    s[row + SB_USERS] -= 1
    managed = p[fixed + PB_MANAGED] == 1
    if managed:
        s[row + SB_PINS] -= 1
        s[row + SB_USED] = s[S_NOW_NS]
    if s[row + SB_USERS] == 0 and p[fixed + PB_LEVEL] == NOWHERE:
        s[row + SB_CONTENT] = 0
        s[row + SB_RESIDENCY] = ABSENT
        drop_from_cache(p, s, buffer)
        if managed:
            s[die + SD_BYTES] -= p[fixed + PB_BYTES]
            record(s, T_FREE, buffer, s[S_NOW_NS], 0, 0, 0, 0)
            return
        s[die + SD_BYTES] -= p[fixed + PB_CHARGE]
        s[die + SD_DEVICE_BYTES] -= p[fixed + PB_CHARGE]
        serial = p[p[P_AT_COMMAND] + p[fixed + PB_WRITER] * PC_WIDTH + PC_SERIAL]
        if p[P_AMPLE] == 0 and serial >= s[S_SERIAL]:
            count_early(p, s, buffer, -1)
        if not roomy(p, p[fixed + PB_DIE]):
            _give_back(p, s, buffer)
        record(s, T_RELEASE, buffer, s[S_NOW_NS], 0, 0, 0, 0)
    elif managed and s[row + SB_PINS] == 0:
        make_idle(p, s, buffer)


@kernel
def start_using(p: Image, s: Image, c: int) -> None:
    """A command starts: one user fewer is still to start for each of its buffers."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for i in range(p[fixed + PC_OPERANDS]):
        buffer = p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER]
        s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_UNSTARTED] -= 1
        if p[P_LIFT_BYTES] > 0 or p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_MANAGED] == 1:
            look_ahead(p, s, buffer)


@kernel
def finish_using(p: Image, s: Image, c: int) -> None:
    """A command is done: what it wrote is there, in L2 too if a kernel did; then it lets go of all."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    work = p[p[P_AT_KERNEL] + p[fixed + PC_KERNEL] * PK_WIDTH + PK_CLASS]
    kernel_class = p[p[P_AT_CLASS] + work * PW_WIDTH + PW_NAMED]
    die = p[p[P_AT_STREAM] + s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_STREAM] * PS_WIDTH + PS_DIE]
    for i in range(p[fixed + PC_OPERANDS]):
        operand = p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH
        if p[operand + PO_MODE] & WRITE:
            buffer = p[operand + PO_BUFFER]
            row = p[P_AT_BUFFER] + buffer * PB_WIDTH
            s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_CONTENT] = 1
            s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_DIRTY] = 1
            if kernel_class < CORE_CLASSES and p[row + PB_DIE] == die:
                enter_cache(p, s, buffer, p[row + PB_BYTES])
            list_liftable(p, s, buffer)
    for i in range(p[fixed + PC_OPERANDS]):
        let_go(p, s, p[p[P_AT_OPERAND] + (p[fixed + PC_OPERAND] + i) * PO_WIDTH + PO_BUFFER])
