"""Prefetching by rule: which buffer goes first to HBM or L2, and when none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.choices import is_legal
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.launch import pool_row
from cann_env.engine.layout import (
    IN_QUEUE,
    P_AT_POOL,
    P_BUFFERS,
    P_CHOICES,
    P_COMMANDS,
    P_DIES,
    P_LANES,
    P_LIFTS,
    P_PREFETCHES,
    P_STATE_BUFFER,
    P_STATE_PREFETCH,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    POOL_SDMA,
    PP_CAPACITY,
    PP_WIDTH,
    S_CURSOR,
    S_DONE,
    S_STEPS,
    SB_RANK,
    SB_RESIDENCY,
    SB_WIDTH,
    SP_FREE,
    VALID,
)
from cann_env.engine.wishes import (
    ON_DEMAND,
    RULE_AHEAD,
    RULE_FETCH,
    RULE_LIFT,
    WHILE_FREE,
    Z_HEADER,
    Z_LABELS,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _lanes_taken(p: Image, s: Image) -> bool:
    """Whether as many buffers as may move at once are on their way from the host, or wait for that."""
    coming = 0
    for buffer in range(p[P_BUFFERS]):
        residency = s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RESIDENCY]
        if IN_QUEUE <= residency < VALID:
            coming += 1
    return coming >= p[P_LANES]


@kernel
def _copies_free(p: Image, s: Image) -> bool:
    """Whether nothing is copied within the device."""
    free = True
    capacity = p[p[P_AT_POOL] + POOL_SDMA * PP_WIDTH + PP_CAPACITY]
    for die in range(p[P_DIES]):
        free = free and s[pool_row(p, s, die, POOL_SDMA) + SP_FREE] == capacity
    return free


@kernel
def _steps_to_spare(p: Image, s: Image) -> bool:
    """Whether there are more steps than the commands that are not done and what they read on demand take.

    Where a prefetch may evict what was just fetched, buffers would be fetched in circles to the last step.
    """
    needed = 2 * (p[P_COMMANDS] - s[S_DONE] + p[P_BUFFERS])
    return s[S_STEPS] + needed < p[P_STEP_BUDGET]


@kernel
def _lifts(p: Image, s: Image, notes: Image, buffer: int) -> bool:
    """Whether a buffer has not been lifted for its next user yet, which is noted.

    What others read may drive it out again: without that, it would be lifted again and again.
    """
    at = Z_HEADER + 2 * notes[Z_LABELS] + p[P_STREAMS] + buffer
    rank = s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK]
    if notes[at] == rank:
        return False
    notes[at] = rank
    return True


@kernel
def move_wanted(p: Image, s: Image, rule: Image, notes: Image) -> int:
    """The prefetch that comes before everything else; -1 for none."""
    if not _steps_to_spare(p, s):
        return -1
    first = p[P_WINDOW] * p[P_CHOICES]
    if rule[RULE_LIFT] == 1 and _copies_free(p, s):
        for slot in range(p[P_PREFETCHES], p[P_PREFETCHES] + p[P_LIFTS]):
            if is_legal(p, s, first + slot) and _lifts(p, s, notes, s[p[P_STATE_PREFETCH] + slot]):
                return first + slot
    if rule[RULE_FETCH] == ON_DEMAND:
        return -1
    for slot in range(p[P_PREFETCHES]):
        if is_legal(p, s, first + slot):
            buffer = s[p[P_STATE_PREFETCH] + slot]
            ahead = s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_RANK] - s[S_CURSOR]
            if ahead >= rule[RULE_AHEAD]:
                continue
            if rule[RULE_FETCH] == WHILE_FREE and _lanes_taken(p, s):
                return -1
            return first + slot
    return -1


@kernel
def asked_move(p: Image, s: Image, rule: Image, notes: Image) -> int:
    """The prefetch that a rule wants in a state that shows its choices; -1 for none.

    Args:
        p: Program image.
        s: State image.
        rule: RULE_WIDTH words.
        notes: Scratch of the rule, see ``Z_``.
    """
    return move_wanted(constant_pointer(p), pointer(s), constant_pointer(rule), pointer(notes))
