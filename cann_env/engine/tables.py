"""Where the tables of a state stand, and what else follows from those of its program once and for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.groups import SG_WIDTH
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    P_ALIKE,
    P_AMPLE,
    P_AT_BUFFER,
    P_AT_DIE,
    P_AT_STREAM,
    P_BUFFERS,
    P_CHOICES,
    P_CLASSES,
    P_CLOCKS,
    P_COMMANDS,
    P_DIES,
    P_EDGES,
    P_GROUP_CAPACITY,
    P_HBM_BYTES,
    P_LINKS,
    P_POOLS,
    P_REQUESTS,
    P_RUN_AHEAD,
    P_SLOTS,
    P_STATE_BUFFER,
    P_STATE_CLASS,
    P_STATE_CLOCK,
    P_STATE_COMMAND,
    P_STATE_DIE,
    P_STATE_EDGE,
    P_STATE_ELIGIBLE,
    P_STATE_FLIGHT,
    P_STATE_GROUP,
    P_STATE_LIFTABLE,
    P_STATE_LINK,
    P_STATE_LISTS,
    P_STATE_MASK,
    P_STATE_OPEN,
    P_STATE_PENDING,
    P_STATE_POOL,
    P_STATE_PREFETCH,
    P_STATE_READY,
    P_STATE_REQUEST,
    P_STATE_SHOWN,
    P_STATE_STREAM,
    P_STATE_STREAM_CLOCK,
    P_STATE_USED,
    P_STATE_WANTED,
    P_STATE_WINDOW,
    P_STATE_WORDS,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_DIE,
    PB_MANAGED,
    PB_WIDTH,
    PD_FIXED_BYTES,
    PD_OUTPUT_BYTES,
    PD_PLACED,
    PD_WIDTH,
    PS_DIE,
    PS_PRIORITY,
    PS_WIDTH,
    S_HEADER,
    SB_WIDTH,
    SC_WIDTH,
    SD_AT_CLAIMS,
    SD_AT_SPACE,
    SD_WIDTH,
    SL_WIDTH,
    SP_WIDTH,
    SR_WIDTH,
    SS_WIDTH,
    SW_WIDTH,
)
from cann_env.engine.memory import roomy
from cann_env.engine.space import space_words

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _is_ample(p: Image) -> bool:
    """Whether every die holds all its device and managed buffers at once, by bytes and by addresses."""
    for die in range(p[P_DIES]):
        row = p[P_AT_DIE] + die * PD_WIDTH
        whole = p[row + PD_FIXED_BYTES] + p[row + PD_OUTPUT_BYTES]
        for buffer in range(p[P_BUFFERS]):
            fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
            if p[fixed + PB_MANAGED] == 1 and p[fixed + PB_DIE] == die:
                whole += p[fixed + PB_BYTES]
        if whole > p[P_HBM_BYTES] or not roomy(p, die):
            return False
    return True


@kernel
def _are_alike(p: Image) -> bool:
    first = p[P_AT_STREAM]
    for row in range(first, first + p[P_STREAMS] * PS_WIDTH, PS_WIDTH):
        if p[row + PS_DIE] != p[first + PS_DIE] or p[row + PS_PRIORITY] != p[first + PS_PRIORITY]:
            return False
    return True


@kernel
def _list_words(p: Image) -> int:
    """Words of a list that may hold every buffer and every command in flight."""
    return p[P_BUFFERS] + min(p[P_COMMANDS], p[P_RUN_AHEAD]) + 1


@kernel
def _space_words(p: Image, die: int) -> int:
    placed = 0 if roomy(p, die) else p[p[P_AT_DIE] + die * PD_WIDTH + PD_PLACED]
    return space_words(placed, p[P_CLOCKS])


@kernel
def lay_out(p: Image) -> int:
    """Write what follows from the tables into a program's header, above all where a state's tables stand.

    Returns:
        The words of a state without a trace.
    """
    p[P_AMPLE] = 1 if _is_ample(p) else 0
    p[P_ALIKE] = 1 if _are_alike(p) else 0
    n = p[P_COMMANDS]
    streams = p[P_STREAMS]
    flight = min(n, p[P_RUN_AHEAD])
    at = S_HEADER  # what is looked at in every step comes first
    p[P_STATE_DIE] = at
    at += p[P_DIES] * SD_WIDTH
    p[P_STATE_STREAM] = at
    at += streams * SS_WIDTH
    p[P_STATE_OPEN] = at
    at += streams
    p[P_STATE_FLIGHT] = at
    at += flight + 1
    p[P_STATE_WINDOW] = at
    at += p[P_WINDOW]
    p[P_STATE_SHOWN] = at
    at += p[P_WINDOW]
    p[P_STATE_MASK] = at
    at += (p[P_WINDOW] * p[P_CHOICES] + p[P_SLOTS] + 1 + 7) // 8
    p[P_STATE_PREFETCH] = at
    at += p[P_SLOTS]
    p[P_STATE_ELIGIBLE] = at
    at += streams + 1
    p[P_STATE_PENDING] = at
    at += flight + 1
    p[P_STATE_POOL] = at
    at += p[P_POOLS] * p[P_DIES] * SP_WIDTH
    p[P_STATE_CLASS] = at
    at += p[P_CLASSES] * p[P_DIES] * SW_WIDTH
    p[P_STATE_LINK] = at
    at += p[P_LINKS] * SL_WIDTH
    p[P_STATE_REQUEST] = at
    at += p[P_REQUESTS] * SR_WIDTH
    p[P_STATE_STREAM_CLOCK] = at
    at += streams * streams
    p[P_STATE_USED] = at
    at += streams
    p[P_STATE_READY] = at
    at += n + 1
    p[P_STATE_COMMAND] = at
    at += n * SC_WIDTH
    p[P_STATE_BUFFER] = at
    at += p[P_BUFFERS] * SB_WIDTH
    p[P_STATE_CLOCK] = at
    at += n * streams
    p[P_STATE_EDGE] = at
    at += p[P_EDGES]
    p[P_STATE_WANTED] = at
    at += p[P_BUFFERS] + 1
    p[P_STATE_LIFTABLE] = at
    at += p[P_BUFFERS] + 1
    p[P_STATE_LISTS] = at
    for die in range(p[P_DIES]):
        at += (SD_AT_SPACE - SD_AT_CLAIMS) * _list_words(p)
        at += (SD_WIDTH - SD_AT_SPACE) * _space_words(p, die)
    p[P_STATE_GROUP] = at
    at += p[P_GROUP_CAPACITY] * SG_WIDTH
    at += p[P_STEP_BUDGET] + 1
    p[P_STATE_WORDS] = at
    return at


@kernel
def lay_out_dies(p: Image, s: Image) -> None:
    """Write the offsets of the lists of each die into its row."""
    at = p[P_STATE_LISTS]
    for die in range(p[P_DIES]):
        row = p[P_STATE_DIE] + die * SD_WIDTH
        for field in range(SD_AT_CLAIMS, SD_WIDTH):
            s[row + field] = at
            at += _space_words(p, die) if field >= SD_AT_SPACE else _list_words(p)
