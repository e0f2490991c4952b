"""One decision: check it, carry it out, go on to the next instant at which there is a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.bound import objective, optimistic_makespan
from cann_env.engine.choices import (
    close_choices,
    is_legal,
    lowest_idle,
    may_be_named,
    refresh_choices,
    wait_action,
)
from cann_env.engine.clock import advance_until_wake
from cann_env.engine.host import issue, move, wait
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.layout import (
    BEGIN,
    DONE,
    FINISHED,
    OUT_OF_MEMORY,
    OUT_OF_STEPS,
    P_AMPLE,
    P_AT_COMMAND,
    P_CHOICES,
    P_COMMANDS,
    P_FAULT_RATE,
    P_IMPLIED,
    P_LATENCY,
    P_LIFTS,
    P_MAX_EVENTS,
    P_PREFETCHES,
    P_QUEUE_DEPTH,
    P_REQUESTS,
    P_RUN_AHEAD,
    P_STATE_COMMAND,
    P_STATE_PREFETCH,
    P_STATE_READY,
    P_STATE_WINDOW,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    P_WORST_NS,
    PC_HOST_NS,
    PC_MANAGED_BYTES,
    PC_MIN_NS,
    PC_WIDTH,
    Q20,
    RUNNING,
    S_AT_ACTION,
    S_BOUND_NS,
    S_DONE,
    S_EVENTS,
    S_FILLED,
    S_FIRST_BOUND_NS,
    S_FLIGHT,
    S_INVALID,
    S_ISSUED,
    S_NOW_NS,
    S_OBJECTIVE_NS,
    S_READY,
    S_STATUS,
    S_STEPS,
    SC_PHASE,
    SC_WIDTH,
)
from cann_env.engine.trace import (
    T_HOST_LIFT,
    T_HOST_OFFLOAD,
    T_HOST_PREFETCH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def repaired(p: Image, s: Image, action: int) -> int:
    """The action itself if it is legal; else waiting, or the first legal action if there is no waiting."""
    last = wait_action(p)
    if 0 <= action <= last and is_legal(p, s, action):
        return action
    s[S_INVALID] += 1
    if is_legal(p, s, last):
        return last
    for other in range(last):
        if is_legal(p, s, other):
            return other
    return -1


@kernel
def _carry_out(p: Image, s: Image, action: int) -> None:
    choices = p[P_CHOICES]
    issues = p[P_WINDOW] * choices
    if action < issues:
        c = s[p[P_STATE_WINDOW] + action // choices]
        stream = action % choices
        if p[P_IMPLIED] == 1:
            stream = lowest_idle(p, s, c)
        issue(p, s, c, stream)
    elif action < wait_action(p):
        slot = action - issues
        call = T_HOST_PREFETCH
        if slot >= p[P_PREFETCHES] + p[P_LIFTS]:
            call = T_HOST_OFFLOAD
        elif slot >= p[P_PREFETCHES]:
            call = T_HOST_LIFT
        move(p, s, s[p[P_STATE_PREFETCH] + slot], call)
    else:
        wait(p, s)


@kernel
def _surely_a_choice(p: Image, s: Image) -> bool:
    """Whether some command may be issued to some stream, for all that can be told at one glance."""
    return (
        s[S_READY] > 0
        and s[S_FLIGHT] < min(p[P_RUN_AHEAD], p[P_QUEUE_DEPTH])
        and p[P_AMPLE] == 1
        and p[P_IMPLIED] == 0
        and s[S_EVENTS] + p[P_STREAMS] - 1 <= p[P_MAX_EVENTS]
    )


@kernel
def _surely_legal(p: Image, s: Image, action: int) -> bool:
    """Whether that choice includes an action; then it stands in its window slot, whatever else does."""
    choices = p[P_CHOICES]
    if not 0 <= action < min(p[P_WINDOW], s[S_READY]) * choices:
        return action == wait_action(p) and s[S_FLIGHT] > 0
    s[p[P_STATE_WINDOW] + action // choices] = s[p[P_STATE_READY] + action // choices]
    s[S_FILLED] = max(s[S_FILLED], action // choices + 1)
    return may_be_named(p, s, action % choices)


@kernel
def next_decision(p: Image, s: Image, looks: bool) -> bool:
    """Go on until there is a choice again, or the episode is over.

    Waits that are the only legal action are taken here. Once everything is issued the device drains.

    Args:
        p: Program.
        s: State.
        looks: Whether windows and mask are wanted; else they are written only if there may be no choice.

    Returns:
        Whether windows and mask are up to date.
    """
    while s[S_ISSUED] < p[P_COMMANDS]:
        if not looks and _surely_a_choice(p, s):
            return False
        if refresh_choices(p, s) > 0:
            return True
        if not is_legal(p, s, wait_action(p)) or not wait(p, s):
            s[S_STATUS] = OUT_OF_MEMORY
            close_choices(p, s)
            return True
    s[S_STATUS] = FINISHED
    while s[S_DONE] < p[P_COMMANDS]:
        if not advance_until_wake(p, s):
            s[S_STATUS] = OUT_OF_MEMORY
            break
    close_choices(p, s)
    return True


@kernel
def take(p: Image, s: Image, chosen: int, looks: bool) -> bool:
    """Take a decision that is legal and go on to the next one; returns what :func:`next_decision` returns."""
    s[s[S_AT_ACTION] + s[S_STEPS]] = chosen
    s[S_STEPS] += 1
    _carry_out(p, s, chosen)
    looked = next_decision(p, s, looks)
    if s[S_STATUS] == RUNNING and s[S_STEPS] >= p[P_STEP_BUDGET]:
        s[S_STATUS] = OUT_OF_STEPS
    return looked


@kernel
def _rest_one_by_one(p: Image, s: Image) -> int:
    """Twice the time that what is not done would take alone, its operands fetched on demand."""
    rest = 0
    for c in range(p[P_COMMANDS]):
        if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_PHASE] != DONE:
            fixed = p[P_AT_COMMAND] + c * PC_WIDTH
            fetched = p[fixed + PC_MANAGED_BYTES] * Q20 // p[P_FAULT_RATE]
            rest += p[fixed + PC_MIN_NS] + p[fixed + PC_HOST_NS] + fetched
    return 2 * rest


@kernel
def _objective_now(p: Image, s: Image) -> int:
    """The objective of an assessed state.

    Running out of memory is dearer than any finished episode. Running out of steps is charged as if all the
    rest ran one by one, so that it does not pay to move buffers about instead of finishing.
    """
    value = objective(p, s, s[S_BOUND_NS])
    if s[S_STATUS] == OUT_OF_MEMORY:
        return max(value, p[P_WORST_NS])
    if s[S_STATUS] == OUT_OF_STEPS:
        rest = _rest_one_by_one(p, s)
        return value + rest * p[P_REQUESTS] if p[P_LATENCY] == 1 else max(value, s[S_NOW_NS] + rest)
    return value


@kernel
def _begin(p: Image, s: Image) -> None:
    s[S_BOUND_NS] = optimistic_makespan(p, s)  # of the instance, before the host has done anything
    s[S_FIRST_BOUND_NS] = s[S_BOUND_NS]
    s[S_OBJECTIVE_NS] = objective(p, s, s[S_BOUND_NS])
    next_decision(p, s, True)
    s[S_BOUND_NS] = optimistic_makespan(p, s)  # what happened until now counts to the first reward


@kernel
def assess(p: Image, s: Image) -> int:
    """Bound and objective of the present state; returns by how much the objective rose."""
    before = s[S_OBJECTIVE_NS]
    s[S_BOUND_NS] = optimistic_makespan(p, s)
    s[S_OBJECTIVE_NS] = _objective_now(p, s)
    return s[S_OBJECTIVE_NS] - before


@kernel
def _step(p: Image, s: Image, action: int) -> int:
    if action == BEGIN:
        _begin(p, s)
        return 0
    take(p, s, repaired(p, s, action), True)
    return assess(p, s)


@kernel
def step(p: Image, s: Image, action: int) -> int:
    """Take one decision; returns by how much the objective rose (ns), the reward's negative before scaling.

    With ``BEGIN`` in place of an action a prepared state goes on to its first decision. (One entry for both,
    because whatever holds the whole engine takes seconds to compile.)

    Call it only while ``s[S_STATUS] == RUNNING``. The decision that was really taken is appended to the
    list of actions, so that the list replays to the same schedule.
    """
    return _step(constant_pointer(p), pointer(s), action)


@kernel
def _run(p: Image, s: Image, actions: Image, count: int) -> int:
    looked = True
    taken = 0
    while taken < count and s[S_STATUS] == RUNNING:
        action = max(actions[taken], -1)  # BEGIN is no decision
        if not looked and not _surely_legal(p, s, action):
            refresh_choices(p, s)
            looked = True
        looked = take(p, s, repaired(p, s, action) if looked else action, False)
        taken += 1
    if not looked:
        refresh_choices(p, s)
    if taken > 0:
        assess(p, s)
    return taken


@kernel
def run_actions(p: Image, s: Image, actions: Image) -> int:
    """Take decisions in order until they run out or the episode ends; returns how many were taken.

    The outcome is that of :func:`step` after :func:`step`, but nothing is shown and bounded in between.
    """
    return _run(constant_pointer(p), pointer(s), pointer(actions), actions.size)
