"""The deterministic reference: tail-ranked list scheduling with prefetching, and the best of what CANN does.

It plays the forms of :mod:`~cann_env.schedulers.forms` with the expected durations: list scheduling by
descending tail with prefetching that does no harm in two ways and some also without, a plain single stream,
orders from a short population search on the program as a project, and the static allocations that CANN's
autotuning, Nimble and Opara would choose from. The best few are played once more with prefetches into L2. It
follows the best: without noise it is never worse than a single stream, nor than the allocations, and the same
input always gives the same plan. Under noise the chosen form goes on deciding from what really happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.assignment import carry_out
from cann_env.schedulers.cann import Autotune
from cann_env.schedulers.forms import (
    Bench,
    Form,
    Trial,
    abstract_orders,
    launches,
    lifted,
    plain_forms,
    tried,
)
from cann_env.schedulers.policy import EpisodeError
from cann_env.schedulers.streams import Static, nimble, nimble_fewest, opara

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedulers.assignment import Assignment
    from cann_env.schedulers.policy import Plan

_SECOND_TRIES = 4
_SCHEDULES = 400


def best_trials(bench: Bench, *, schedules: int = _SCHEDULES) -> list[Trial]:
    """All forms that the reference tries and that finish, the best first.

    Args:
        bench: The program.
        schedules: Of the population search; its orders are launched as the best form of each kind is.

    Raises:
        EpisodeError: No form finishes.
    """
    trials = tried(bench, plain_forms(bench))
    forms: list[Form] = []
    for keys in abstract_orders(bench, schedules):
        rules = list(dict.fromkeys(trial.form.rule for trial in trials[:_SECOND_TRIES]))
        fetch = trials[0].form.rule.fetch if trials else None
        forms += [bench.form(rule, keys) for rule in [*rules, *launches(bench.program, fetch)]]
    forms += static_forms(bench)
    trials = _merged(trials, tried(bench, forms))
    trials = _merged(trials, tried(bench, lifted(bench, trials, _SECOND_TRIES)))
    if not trials:
        program = bench.program
        raise EpisodeError(
            f"no form of list scheduling finishes graph {program.graph.name!r} on {program.device.name}"
        )
    return trials


def static_forms(bench: Bench) -> list[Form]:
    """Allocations of streams to the whole graph: those of CANN's autotuning, Nimble's two, and Opara's."""
    program = bench.program
    found = Autotune().assignments(program)
    for allocator in (nimble, nimble_fewest, opara):
        found += Static(allocator).assignments(program)
    return [bench.form(each.rule, np.argsort(each.order), np.array(each.labels)) for each in found]


def _merged(first: list[Trial], second: list[Trial]) -> list[Trial]:
    return sorted([*first, *second], key=lambda trial: trial.objective_ns)


@dataclass(frozen=True, slots=True)
class Reference:
    """Best of the forms of list scheduling."""

    def assign(self, program: Program) -> Assignment:
        """The form with the smallest objective under expected durations, the first of equals.

        Raises:
            EpisodeError: No form finishes.
        """
        return best_trials(Bench(program))[0].form.assignment(program)

    def plan(self, program: Program) -> Plan:
        """All decisions of the chosen form under expected durations."""
        return carry_out(program, self.assign(program)).plan
