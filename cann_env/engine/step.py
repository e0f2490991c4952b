"""One decision: check it, carry it out, go on to the next instant at which there is a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.bound import objective, optimistic_makespan
from cann_env.engine.choices import close_choices, is_legal, lowest_idle, refresh_choices, wait_action
from cann_env.engine.clock import advance_until_wake
from cann_env.engine.host import issue, move, wait
from cann_env.engine.jit import constant_pointer, kernel, pointer
from cann_env.engine.layout import (
    BEGIN,
    DONE,
    FINISHED,
    OUT_OF_MEMORY,
    OUT_OF_STEPS,
    P_AT_COMMAND,
    P_CHOICES,
    P_COMMANDS,
    P_FAULT_RATE,
    P_IMPLIED,
    P_LATENCY,
    P_LIFTS,
    P_PREFETCHES,
    P_REQUESTS,
    P_STATE_COMMAND,
    P_STATE_PREFETCH,
    P_STATE_WINDOW,
    P_STEP_BUDGET,
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
    S_FIRST_BOUND_NS,
    S_INVALID,
    S_ISSUED,
    S_NOW_NS,
    S_OBJECTIVE_NS,
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
def next_decision(p: Image, s: Image) -> None:
    """Go on until there is a choice again, or the episode is over.

    Waits that are the only legal action are taken here. Once everything is issued the device drains.
    """
    while s[S_ISSUED] < p[P_COMMANDS]:
        if refresh_choices(p, s) > 0:
            return
        if not is_legal(p, s, wait_action(p)) or not wait(p, s):
            s[S_STATUS] = OUT_OF_MEMORY
            close_choices(p, s)
            return
    s[S_STATUS] = FINISHED
    while s[S_DONE] < p[P_COMMANDS]:
        if not advance_until_wake(p, s):
            s[S_STATUS] = OUT_OF_MEMORY
            break
    close_choices(p, s)


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
def _step(p: Image, s: Image, action: int) -> int:
    if action == BEGIN:
        s[S_BOUND_NS] = optimistic_makespan(p, s)  # of the instance, before the host has done anything
        s[S_FIRST_BOUND_NS] = s[S_BOUND_NS]
        s[S_OBJECTIVE_NS] = objective(p, s, s[S_BOUND_NS])
    else:
        chosen = repaired(p, s, action)
        s[s[S_AT_ACTION] + s[S_STEPS]] = chosen
        s[S_STEPS] += 1
        _carry_out(p, s, chosen)
    next_decision(p, s)
    if s[S_STATUS] == RUNNING and s[S_STEPS] >= p[P_STEP_BUDGET]:
        s[S_STATUS] = OUT_OF_STEPS
    before = s[S_OBJECTIVE_NS]
    s[S_BOUND_NS] = optimistic_makespan(p, s)
    if action != BEGIN:  # what happens before the first decision counts to its reward
        s[S_OBJECTIVE_NS] = _objective_now(p, s)
    return s[S_OBJECTIVE_NS] - before


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
def run_actions(p: Image, s: Image, actions: Image) -> int:
    """Take decisions in order until they run out or the episode ends; returns how many were taken."""
    taken = 0
    while taken < actions.size and s[S_STATUS] == RUNNING:
        step(p, s, max(actions[taken], -1))  # BEGIN is no decision
        taken += 1
    return taken
