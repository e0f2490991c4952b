"""The deterministic reference: tail-ranked list scheduling with do-no-harm prefetch.

List scheduling has several forms, none of which is always best: start only what can start now, demand that
all its blocks fit, wait for operands that are on their way, queue behind predecessors, keep one stream an
engine. The reference simulates each with the expected durations, together with a plain single stream, and
keeps the best plan. It is therefore never
worse than a single stream, and the same input always gives the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.options import Objective
from cann_env.schedulers.policy import EpisodeError, Outcome, Plan, rollout
from cann_env.schedulers.rules import (
    Chained,
    DoNoHarm,
    Eager,
    JustInTime,
    PerEngine,
    SingleStream,
    by_age,
    by_shortest,
    by_tail,
)

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedulers.policy import Policy
    from cann_env.schedulers.rules import Key


def forms(program: Program) -> list[Policy]:
    """The forms of list scheduling that the reference tries, in the order in which ties are decided."""
    keys: list[Key] = [by_tail]
    if program.options.objective is Objective.LATENCY:
        keys += [by_age, by_shortest]
    orders: list[Policy] = [PerEngine()]
    for key in keys:
        orders += [
            JustInTime(key),
            JustInTime(key, fit=1.0),
            JustInTime(key, fit=0.5, patient=True),
            Chained(key),
            Chained(key, depth=4),
            Eager(key),
        ]
    return [*(DoNoHarm(order) for order in orders), SingleStream()]


@dataclass(frozen=True, slots=True)
class Reference:
    """Best of :func:`forms`."""

    def plan(self, program: Program) -> Plan:
        """Simulate every form and keep the plan with the smallest objective, the first of equals."""
        best: Outcome | None = None
        for form in forms(program):
            try:
                outcome = rollout(program, form)
            except EpisodeError:
                continue
            if best is None or outcome.objective_ns < best.objective_ns:
                best = outcome
        if best is None:
            raise EpisodeError(
                f"no form of list scheduling finishes graph {program.graph.name!r} on {program.device.name}"
            )
        return Plan(best.actions)
