"""The deterministic reference: tail-ranked list scheduling with do-no-harm prefetch.

List scheduling has several forms, none of which is always best: start only what can start now, demand that
all its blocks fit, wait for operands that are on their way, queue behind predecessors, keep one stream an
engine, take streams in turn. The reference simulates each with the expected durations, with prefetching that
does no harm and some also without, together with a plain single stream, and follows the best. Without noise
it is therefore never worse than a single stream, and the same input always gives the same plan. Under noise
the chosen form goes on deciding from what really happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.options import Objective
from cann_env.schedulers.policy import EpisodeError, Plan, rollout
from cann_env.schedulers.prefetch import Aggressive
from cann_env.schedulers.rules import (
    Chained,
    Eager,
    JustInTime,
    PerEngine,
    RoundRobin,
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
    orders: list[Policy] = [PerEngine(), RoundRobin()]
    for key in keys:
        orders += [
            JustInTime(key),
            JustInTime(key, fit=1.0),
            JustInTime(key, fit=0.5, patient=True),
            Chained(key),
            Chained(key, depth=4),
            Eager(key),
        ]
    # Where memory is short, even a prefetch that does no harm may cost more than it brings.
    on_demand: list[Policy] = [SingleStream(), RoundRobin(), JustInTime(), Eager()]
    return [*(Aggressive(order) for order in orders), *on_demand]


@dataclass(frozen=True, slots=True)
class Reference:
    """Best of :func:`forms`."""

    def choose(self, program: Program) -> Policy:
        """The form with the smallest objective under expected durations, the first of equals.

        Raises:
            EpisodeError: No form finishes.
        """
        best = -1
        smallest = 0
        for i, form in enumerate(forms(program)):
            try:
                outcome = rollout(program, form)
            except EpisodeError:
                continue
            if best < 0 or outcome.objective_ns < smallest:
                best, smallest = i, outcome.objective_ns
        if best < 0:
            raise EpisodeError(
                f"no form of list scheduling finishes graph {program.graph.name!r} on {program.device.name}"
            )
        return forms(program)[best]

    def plan(self, program: Program) -> Plan:
        """All decisions of the chosen form under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
