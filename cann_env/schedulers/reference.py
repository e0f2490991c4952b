"""The deterministic reference: tail-ranked list scheduling with prefetching.

List scheduling has several forms, none of which is always best: start only what can start now, demand that
all its blocks fit, wait for operands that are on their way, queue behind predecessors, keep one stream an
engine, take streams in turn. The reference simulates each with the expected durations, with prefetching that
does no harm in two ways and some also without, together with a plain single stream; then the best few once
more with prefetches into L2; and follows the best. Without noise it is therefore never worse than a single
stream, and the same input always gives the same plan. Under noise the chosen form goes on deciding from what
really happens.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.options import Objective
from cann_env.schedulers.online import (
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
from cann_env.schedulers.policy import EpisodeError, Plan, rollout
from cann_env.schedulers.prefetch import Aggressive, DoNoHarm, IntoL2

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedulers.online import Key
    from cann_env.schedulers.policy import Policy


_SECOND_TRIES = 4


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
    if program.options.prefetches == 0 or not program.moves_buffers:
        return [*orders, SingleStream()]
    # Where memory is short, even a prefetch that does no harm may cost more than it brings.
    on_demand: list[Policy] = [SingleStream(), RoundRobin(), JustInTime(), Eager()]
    return [*(Aggressive(o) for o in orders), *(DoNoHarm(deepcopy(o)) for o in orders), *on_demand]


def lifted(program: Program, best: list[Policy]) -> list[Policy]:
    """Forms that are worth a second try with prefetches into L2."""
    if program.options.l2_prefetches == 0 or not program.has_l2:
        return []
    return [IntoL2(form) for form in best[:_SECOND_TRIES]]


def _value(tried: tuple[int, Policy]) -> int:
    return tried[0]


def _ranked(program: Program, policies: list[Policy]) -> list[tuple[int, Policy]]:
    """Objective (ns) of each policy that finishes, the best first, each as fresh as it came."""
    found = []
    for policy in policies:
        fresh = deepcopy(policy)
        try:
            found.append((rollout(program, policy).objective_ns, fresh))
        except EpisodeError:
            continue
    return sorted(found, key=_value)


@dataclass(frozen=True, slots=True)
class Reference:
    """Best of :func:`forms`."""

    def choose(self, program: Program) -> Policy:
        """The form with the smallest objective under expected durations, the first of equals.

        Raises:
            EpisodeError: No form finishes.
        """
        tried = _ranked(program, forms(program))
        tried = sorted([*tried, *_ranked(program, lifted(program, [form for _, form in tried]))], key=_value)
        if not tried:
            raise EpisodeError(
                f"no form of list scheduling finishes graph {program.graph.name!r} on {program.device.name}"
            )
        return tried[0][1]

    def plan(self, program: Program) -> Plan:
        """All decisions of the chosen form under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
