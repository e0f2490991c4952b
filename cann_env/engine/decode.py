"""Deciding by rule, compiled: a whole episode from priorities of the commands, in one call.

A rule says how commands come to streams; a table says which command goes first, on which stream, how early.
What is decided this way are actions like any others, kept in the state, so that the episode replays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.bound import optimistic_makespan
from cann_env.engine.choices import is_legal, wait_action
from cann_env.engine.fetching import move_wanted
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.launch import can_start_now, free_blocks, kernel_row, lacking
from cann_env.engine.layout import (
    FAR,
    NO_CAUSE,
    P_AT_COMMAND,
    P_AT_PRED,
    P_CHOICES,
    P_COMMANDS,
    P_DIES,
    P_STATE_COMMAND,
    P_STATE_STREAM,
    P_STATE_WINDOW,
    P_STREAMS,
    P_WINDOW,
    PC_PRED,
    PC_PREDS,
    PC_WIDTH,
    PK_BLOCKS,
    PK_CLASS,
    Q20,
    RUNNING,
    S_BOUND_NS,
    S_DONE,
    S_FILLED,
    S_NOW_NS,
    S_OBJECTIVE_NS,
    S_STATUS,
    SC_COMING_BYTES,
    SC_ESTIMATE_NS,
    SC_MOVING_BYTES,
    SC_PHASE,
    SC_STREAM,
    SC_UNDONE,
    SC_WIDTH,
    SS_ESTIMATE_NS,
    SS_LENGTH,
    SS_WIDTH,
    UNISSUED,
)
from cann_env.engine.step import assess, take
from cann_env.engine.wishes import (
    CHAINED,
    D_BARRIER,
    D_CHOOSY,
    D_LABEL,
    D_NEXT,
    D_PLACE,
    D_START_NS,
    D_WIDTH,
    EAGER,
    JUST_IN_TIME,
    LABELS,
    ROUND_ROBIN,
    RULE_DEPTH,
    RULE_FIFO,
    RULE_FIT,
    RULE_ORDER,
    RULE_PATIENT,
    RULE_STREAMS,
    RULE_STRICT,
    RULE_WIDTH,
    Z_HEADER,
    Z_LABELS,
    Z_STRAYED,
    Z_TURN,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def _length(p: Image, s: Image, stream: int) -> int:
    return s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_LENGTH]


@kernel
def _stream_open(p: Image, s: Image, rule: Image, k: int, stream: int) -> bool:
    return stream < rule[RULE_STREAMS] and is_legal(p, s, k * p[P_CHOICES] + stream)


@kernel
def _idle_stream(p: Image, s: Image, rule: Image, k: int) -> int:
    """The lowest idle stream that the command in a window slot may go to; -1 if there is none."""
    if p[P_CHOICES] == 1:
        return 0 if is_legal(p, s, k) else -1
    for stream in range(min(p[P_STREAMS], rule[RULE_STREAMS])):
        if _length(p, s, stream) == 0 and is_legal(p, s, k * p[P_CHOICES] + stream):
            return stream
    return -1


@kernel
def _labelled_stream(p: Image, s: Image, rule: Image, notes: Image, k: int, label: int) -> int:
    """The stream that carries a label, or else an idle one that may; -1 if neither takes the command."""
    labels = notes[Z_LABELS]
    stream = notes[Z_HEADER + label]
    lasts = p[P_CHOICES] > 1 and stream >= 0 and _length(p, s, stream) > 0
    if lasts and notes[Z_HEADER + 2 * labels + stream] == label:
        return stream if _stream_open(p, s, rule, k, stream) else -1
    return _idle_stream(p, s, rule, k)


@kernel
def _next_in_turn(p: Image, s: Image, rule: Image, notes: Image, k: int) -> int:
    """The stream whose turn it is or comes next among those that take the command; -1 if none does."""
    choices = min(p[P_CHOICES], rule[RULE_STREAMS])
    for i in range(choices):
        stream = (notes[Z_TURN] + i) % choices
        if is_legal(p, s, k * p[P_CHOICES] + stream):
            return stream
    return -1


@kernel
def _last_predecessor(p: Image, s: Image, c: int) -> int:
    """The predecessor that is expected to be done last; -1 if there is none."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    best = -1
    latest = -1
    for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
        row = p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH
        if s[row + SC_ESTIMATE_NS] > latest:
            latest = s[row + SC_ESTIMATE_NS]
            best = p[p[P_AT_PRED] + edge]
    return best


@kernel
def _chained_stream(p: Image, s: Image, rule: Image, k: int, c: int) -> int:
    """An idle stream for what can start; else that of the last predecessor if it ends the queue there."""
    if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0 and can_start_now(p, s, c):
        return _idle_stream(p, s, rule, k)
    last = _last_predecessor(p, s, c)
    if last < 0 or p[P_CHOICES] == 1:
        return -1
    row = p[P_STATE_COMMAND] + last * SC_WIDTH
    stream = s[row + SC_STREAM]
    length = _length(p, s, stream)
    if length == 0 or length > rule[RULE_DEPTH] or not _stream_open(p, s, rule, k, stream):
        return -1
    ends = s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_ESTIMATE_NS]
    return stream if ends == max(s[row + SC_ESTIMATE_NS], s[S_NOW_NS]) else -1


@kernel
def _eager_stream(p: Image, s: Image, rule: Image, k: int, c: int) -> int:
    """The stream of the last predecessor if its queue is short; else the one that is free first."""
    if p[P_CHOICES] == 1:
        return 0 if is_legal(p, s, k) else -1
    last = _last_predecessor(p, s, c)
    if last >= 0:
        stream = s[p[P_STATE_COMMAND] + last * SC_WIDTH + SC_STREAM]
        if _length(p, s, stream) <= rule[RULE_DEPTH] and _stream_open(p, s, rule, k, stream):
            return stream
    best = -1
    soonest = FAR
    for stream in range(min(p[P_STREAMS], rule[RULE_STREAMS])):
        if is_legal(p, s, k * p[P_CHOICES] + stream):
            ends = s[S_NOW_NS]
            if _length(p, s, stream) > 0:
                ends = max(ends, s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_ESTIMATE_NS])
            if ends < soonest:
                soonest = ends
                best = stream
    return best


@kernel
def _fits(p: Image, s: Image, rule: Image, choosy: int, c: int) -> bool:
    """Whether a command can start now as well as the rule and the command itself demand."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    if s[state + SC_UNDONE] > 0 or not can_start_now(p, s, c):
        return False
    if rule[RULE_PATIENT] == 1 and s[state + SC_COMING_BYTES] + s[state + SC_MOVING_BYTES] > 0:
        return False
    if rule[RULE_FIT] == 0 and choosy == 0:
        return True
    row = kernel_row(p, s, c)
    free = 0
    for die in range(p[P_DIES]):
        free = max(free, free_blocks(p, s, die, p[row + PK_CLASS]))
    if choosy == 1 and lacking(p, s, 0, p[row + PK_CLASS], 1) != NO_CAUSE:
        return False
    return free >= p[row + PK_BLOCKS] or free * Q20 >= rule[RULE_FIT] * p[row + PK_BLOCKS]


@kernel
def _stream_for(p: Image, s: Image, rule: Image, notes: Image, wishes: Image, k: int, c: int) -> int:
    """The stream that a rule wants the command in a window slot to go to now; -1 to leave it for later."""
    order = rule[RULE_ORDER]
    if order == LABELS:
        return _labelled_stream(p, s, rule, notes, k, wishes[c * D_WIDTH + D_LABEL])
    if order == ROUND_ROBIN:
        return _next_in_turn(p, s, rule, notes, k)
    if order == JUST_IN_TIME:
        return _idle_stream(p, s, rule, k) if _fits(p, s, rule, wishes[c * D_WIDTH + D_CHOOSY], c) else -1
    if order == CHAINED:
        return _chained_stream(p, s, rule, k, c)
    return _eager_stream(p, s, rule, k, c)


@kernel
def _its_turn(rule: Image, notes: Image, wishes: Image, c: int) -> bool:
    """Whether all commands of its label that come before it have been issued."""
    if rule[RULE_ORDER] != LABELS or rule[RULE_FIFO] == 0:
        return True
    return notes[Z_HEADER + notes[Z_LABELS] + wishes[c * D_WIDTH + D_LABEL]] == c


@kernel
def _note(p: Image, s: Image, rule: Image, notes: Image, wishes: Image, c: int, stream: int) -> None:
    """Remember that a command goes to a stream."""
    notes[Z_TURN] = stream + 1
    if rule[RULE_ORDER] != LABELS:
        return
    labels, label = notes[Z_LABELS], wishes[c * D_WIDTH + D_LABEL]
    notes[Z_HEADER + label] = stream
    notes[Z_HEADER + 2 * labels + stream] = label
    at = Z_HEADER + labels + label
    while (
        rule[RULE_FIFO] == 1
        and notes[at] >= 0
        and (notes[at] == c or s[p[P_STATE_COMMAND] + notes[at] * SC_WIDTH + SC_PHASE] > UNISSUED)
    ):
        notes[at] = wishes[notes[at] * D_WIDTH + D_NEXT]


@kernel
def _stray(p: Image, s: Image, rule: Image, notes: Image, wishes: Image) -> int:
    """What to do when nothing is wanted and waiting is impossible: the first command that may go at all."""
    choices = p[P_CHOICES]
    best = -1
    first = FAR
    for k in range(s[S_FILLED]):
        c = s[p[P_STATE_WINDOW] + k]
        if c >= 0 and wishes[c * D_WIDTH + D_PLACE] < first:
            for stream in range(choices - 1, -1, -1):
                if is_legal(p, s, k * choices + stream):
                    best = k * choices + stream
                    first = wishes[c * D_WIDTH + D_PLACE]
    notes[Z_STRAYED] += 1
    if best >= 0:
        _note(p, s, rule, notes, wishes, s[p[P_STATE_WINDOW] + best // choices], best % choices)
        return best
    for action in range(p[P_WINDOW] * choices, wait_action(p)):
        if is_legal(p, s, action):
            return action
    return wait_action(p)


@kernel
def _choose(p: Image, s: Image, rule: Image, notes: Image, wishes: Image) -> int:
    """The next action."""
    move = move_wanted(p, s, rule, notes)
    if move >= 0:
        return move
    chosen = -1
    to = -1
    first = FAR
    for k in range(s[S_FILLED]):
        c = s[p[P_STATE_WINDOW] + k]
        if c < 0 or wishes[c * D_WIDTH + D_PLACE] >= first or wishes[c * D_WIDTH + D_START_NS] > s[S_NOW_NS]:
            continue
        if not _its_turn(rule, notes, wishes, c) or wishes[c * D_WIDTH + D_BARRIER] > s[S_DONE]:
            continue
        stream = _stream_for(p, s, rule, notes, wishes, k, c)
        done = s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0
        if stream >= 0 or (rule[RULE_STRICT] == 1 and done):
            first = wishes[c * D_WIDTH + D_PLACE]
            chosen = k
            to = stream
    if chosen >= 0 and to >= 0:
        _note(p, s, rule, notes, wishes, s[p[P_STATE_WINDOW] + chosen], to)
        return chosen * p[P_CHOICES] + to
    if is_legal(p, s, wait_action(p)):
        return wait_action(p)
    return _stray(p, s, rule, notes, wishes)


@kernel
def _decode(p: Image, s: Image, rule: Image, notes: Image, wishes: Image) -> int:
    estimates = rule[RULE_ORDER] == CHAINED or rule[RULE_ORDER] == EAGER
    while s[S_STATUS] == RUNNING:
        if estimates:
            s[S_BOUND_NS] = optimistic_makespan(p, s)
        take(p, s, _choose(p, s, rule, notes, wishes), True)
    assess(p, s)
    return s[S_OBJECTIVE_NS]


@kernel
def decode(p: Image, s: Image, rule: Image, notes: Image, wishes: Image) -> int:
    """Decide a whole episode by rule; returns the objective (ns) at its end.

    Args:
        p: Program image.
        s: State image at its first decision.
        rule: RULE_WIDTH words.
        notes: Scratch of the rule, see ``Z_``; streams of labels and labels of streams are -1 at first.
        wishes: A row of D_WIDTH words for each command.
    """
    return _decode(
        constant_pointer(p),
        pointer(s),
        constant_pointer(rule),
        pointer(notes),
        constant_pointer(wishes),
    )


@kernel
def decode_many(
    p: Image, first: Image, rules: Image, fresh: Image, wishes: Image, s: Image, notes: Image, outcomes: Image
) -> None:
    """Decide many episodes of one program by rule, one after another.

    Args:
        p: Program image.
        first: State image at the first decision, from which each episode goes on.
        rules: RULE_WIDTH words for each episode, flat.
        fresh: What the scratch of each rule holds at first.
        wishes: For each episode a row of D_WIDTH words for each command, flat.
        s: Scratch as long as ``first``; holds the end of the last episode.
        notes: Scratch as long as ``fresh``.
        outcomes: For each episode its objective (ns) and the status at its end, flat; written.
    """
    words = p[P_COMMANDS] * D_WIDTH
    for i in range(outcomes.size // 2):
        s[:] = first
        notes[:] = fresh
        outcomes[2 * i] = _decode(
            constant_pointer(p),
            pointer(s),
            constant_pointer(rules[i * RULE_WIDTH : (i + 1) * RULE_WIDTH]),
            pointer(notes),
            constant_pointer(wishes[i * words : (i + 1) * words]),
        )
        outcomes[2 * i + 1] = s[S_STATUS]
