"""Deciding by plan, compiled: a whole episode from a list of issues and moves, each not before its time.

A place of the list says what is done there, and how often something must have happened before (a
completion, an arrival, a release). What cannot be done when its turn comes is waited for, or put off where
there is nothing to wait for; a move that cannot be made any more is left out. Streams are labels: a label
goes on on the stream it last went to while that holds commands, else on the lowest idle one of its kind,
since others are not legal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.choices import is_legal, wait_action
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.layout import (
    P_AT_STREAM,
    P_CHOICES,
    P_LIFTS,
    P_OFFLOADS,
    P_PREFETCHES,
    P_STATE_COMMAND,
    P_STATE_PREFETCH,
    P_STATE_STREAM,
    P_STATE_WINDOW,
    P_STREAMS,
    P_WINDOW,
    PS_DIE,
    PS_PRIORITY,
    PS_WIDTH,
    RUNNING,
    S_FILLED,
    S_OBJECTIVE_NS,
    S_STATUS,
    S_WAKES,
    SC_PHASE,
    SC_WIDTH,
    SS_LENGTH,
    SS_WIDTH,
    UNISSUED,
)
from cann_env.engine.step import assess, take

if TYPE_CHECKING:
    from cann_env.engine import Image

# One row a place of the list.
(
    L_KIND,  # one of the next enumeration
    L_TARGET,  # command or buffer
    L_LABEL,  # ISSUE: stream, from 0
    L_WAKES,  # what must have happened before: completions, arrivals and releases, counted together
    L_WIDTH,
) = range(5)
(ISSUE, FETCH, LIFT, OFFLOAD) = range(4)

# Scratch: what is remembered, then the stream of each label, then the label of each stream; -1 for none.
(
    N_STRAYED,  # decisions out of turn, taken because waiting was not possible
    N_SKIPPED,  # moves that could not be made
    N_HEADER,
) = range(3)


@kernel
def _alike(p: Image, a: int, b: int) -> bool:
    first = p[P_AT_STREAM] + a * PS_WIDTH
    second = p[P_AT_STREAM] + b * PS_WIDTH
    return p[first + PS_DIE] == p[second + PS_DIE] and p[first + PS_PRIORITY] == p[second + PS_PRIORITY]


@kernel
def _stream_of(p: Image, s: Image, notes: Image, k: int, label: int) -> int:
    """The stream that a label means for the command in a window slot now; -1 if it has to wait."""
    if p[P_CHOICES] == 1:
        return 0 if is_legal(p, s, k) else -1
    first = k * p[P_CHOICES]
    kept = notes[N_HEADER + label]
    mine = kept >= 0 and notes[N_HEADER + p[P_STREAMS] + kept] == label
    if mine and s[p[P_STATE_STREAM] + kept * SS_WIDTH + SS_LENGTH] > 0:
        return kept if is_legal(p, s, first + kept) else -1
    for stream in range(p[P_STREAMS]):
        idle = s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_LENGTH] == 0
        if idle and _alike(p, stream, label) and is_legal(p, s, first + stream):
            return stream
    return -1


@kernel
def _issue(p: Image, s: Image, notes: Image, c: int, label: int) -> int:
    """The action that issues a command; -1 if there is none now."""
    for k in range(s[S_FILLED]):
        if s[p[P_STATE_WINDOW] + k] == c:
            stream = _stream_of(p, s, notes, k, label)
            return k * p[P_CHOICES] + stream if stream >= 0 else -1
    return -1


@kernel
def _move(p: Image, s: Image, kind: int, buffer: int) -> int:
    """The action that moves a buffer; -1 if there is none now."""
    first = 0
    last = p[P_PREFETCHES]
    if kind >= LIFT:
        first = last
        last += p[P_LIFTS]
    if kind == OFFLOAD:
        first = last
        last += p[P_OFFLOADS]
    for slot in range(first, last):
        action = p[P_WINDOW] * p[P_CHOICES] + slot
        if s[p[P_STATE_PREFETCH] + slot] == buffer and is_legal(p, s, action):
            return action
    return -1


@kernel
def _is_behind(p: Image, s: Image, plan: Image, at: int) -> bool:
    """Whether a place of the list is an issue that was taken out of turn."""
    if plan[at * L_WIDTH + L_KIND] != ISSUE:
        return False
    return s[p[P_STATE_COMMAND] + plan[at * L_WIDTH + L_TARGET] * SC_WIDTH + SC_PHASE] > UNISSUED


@kernel
def _note(p: Image, notes: Image, action: int, label: int) -> None:
    """Remember to which stream a label goes; label -1 if the stream is nobody's."""
    if p[P_CHOICES] == 1:
        return
    stream = action % p[P_CHOICES]
    if label >= 0:
        notes[N_HEADER + label] = stream
    notes[N_HEADER + p[P_STREAMS] + stream] = label


@kernel
def _stray(p: Image, s: Image, plan: Image, rows: int, at: int, notes: Image) -> int:
    """What to do where neither the plan nor waiting goes on: the first issue further on that is legal."""
    notes[N_STRAYED] += 1
    for i in range(at, rows):
        row = i * L_WIDTH
        if plan[row + L_KIND] == ISSUE and not _is_behind(p, s, plan, i):
            action = _issue(p, s, notes, plan[row + L_TARGET], plan[row + L_LABEL])
            if action >= 0:
                _note(p, notes, action, plan[row + L_LABEL])
                return action
    for action in range(wait_action(p)):
        if is_legal(p, s, action):
            if action < p[P_WINDOW] * p[P_CHOICES]:
                _note(p, notes, action, -1)
            return action
    return wait_action(p)


@kernel
def _action(p: Image, s: Image, plan: Image, at: int, notes: Image) -> int:
    """The action of a place of the list; -1 if it is not possible now."""
    row = at * L_WIDTH
    if plan[row + L_KIND] != ISSUE:
        return _move(p, s, plan[row + L_KIND], plan[row + L_TARGET])
    action = _issue(p, s, notes, plan[row + L_TARGET], plan[row + L_LABEL])
    if action >= 0:
        _note(p, notes, action, plan[row + L_LABEL])
    return action


@kernel
def _follow(p: Image, s: Image, plan: Image, rows: int, notes: Image) -> int:
    at = 0
    while s[S_STATUS] == RUNNING:
        while at < rows and _is_behind(p, s, plan, at):
            at += 1
        can_wait = is_legal(p, s, wait_action(p))
        action = -1
        early = at < rows and s[S_WAKES] < plan[at * L_WIDTH + L_WAKES]
        if at < rows and not (early and can_wait):
            action = _action(p, s, plan, at, notes)
            if action < 0 and plan[at * L_WIDTH + L_KIND] != ISSUE:
                notes[N_SKIPPED] += 1
                at += 1
                continue
        if action >= 0:
            at += 1
        elif can_wait:
            action = wait_action(p)
        else:
            action = _stray(p, s, plan, rows, at, notes)
        take(p, s, action, True)
    assess(p, s)
    return s[S_OBJECTIVE_NS]


@kernel
def follow(p: Image, s: Image, plan: Image, notes: Image) -> int:
    """Decide a whole episode by plan; returns the objective (ns) at its end.

    Args:
        p: Program image.
        s: State image at its first decision.
        plan: A row of L_WIDTH words for each place, flat; every command once.
        notes: Scratch, N_HEADER words of 0, then twice as many of -1 as there are streams.
    """
    rows = plan.size // L_WIDTH
    return _follow(constant_pointer(p), pointer(s), constant_pointer(plan), rows, pointer(notes))
