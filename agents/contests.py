"""One test set, all contestants: rows of what each reached on each instance.

Whatever is not learned plays in three windows, and its best one in a set counts: windows belong to the
decision process, not to the device, so no baseline is held back by one. A policy has the one it was trained
with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from agents.rollouts import play
from agents.schedulers import Learned, played_again
from cann_env.options import Window
from cann_env.program import compile_graph
from cann_env.schedulers import EpisodeError, decide, make_scheduler
from cann_env.schedulers.search import Search
from cann_env.units import CannEnvError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agents.shipping import Trained
    from agents.suites import Case, TestSet
    from cann_env.program import Program
    from cann_env.schedulers.policy import Deciding

SCHEDULERS = (
    "random",
    "round_robin",
    "cann_default",
    "cann_autotune",
    "nimble",
    "opara",
    "heft",
    "mem_cp",
    "reference",
)
"""Schedulers beside the policies; ``round_robin`` is first in, first out."""

RANDOM_BEST, SEARCH = "best of {} random", "search, same seconds"
GREEDY, BEST = "learned, greedy", "learned, best of {}"

_WINDOWS: Mapping[str, dict[str, Any]] = {
    "wide": {"window": Window.ISSUABLE, "commands": 64, "run_ahead": 256},
    "issuable": {"window": Window.ISSUABLE},
    "startable": {"window": Window.STARTABLE},
}
_RANDOM_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a contestant reached on an instance.

    Attributes:
        axis, test: The set.
        number: Of the instance.
        contestant: A scheduler, or a way to use the policies of the set's recipe.
        seed: Training seed of a policy, 0 for others.
        window: In which it decided.
        commands: Of the graph.
        objective_ns: None if the graph was not finished.
        bound_ns: Lower bound of the objective.
        optimum_ns: Certified optimum; None where none is known.
        seconds: Spent deciding.
    """

    axis: str
    test: str
    number: int
    contestant: str
    seed: int
    window: str
    commands: int
    objective_ns: int | None
    bound_ns: int
    optimum_ns: int | None
    seconds: float


def contest(
    test: TestSet,
    cases: Sequence[Case],
    policies: Mapping[int, Trained],
    *,
    samples: int,
    schedulers: Collection[str] = SCHEDULERS,
) -> list[Row]:
    """Let everybody play some instances of a set.

    Args:
        test: The set.
        cases: Instances of it.
        policies: Of one recipe, by training seed.
        samples: Of the best-of-samples contestants.
        schedulers: Those beside the policies.
    """
    torch.set_num_threads(1)
    rows = []
    for case in cases:
        windows = _in_windows(case.program)
        for name in schedulers:
            for window, program in windows.items():
                result = _timed(program, case, make_scheduler(name, case.number))
                rows.append(_row(test, case, name, 0, window, *result))
        rows.append(_best_random(test, case, windows["startable"], samples))
        spent = []
        for seed, trained in policies.items():
            best = Learned(trained=trained, samples=samples, seed=case.number)
            own = best.program_for(case.program)
            objective, seconds = _timed(own, case, best)
            spent.append(seconds)
            rows.append(_row(test, case, BEST.format(samples), seed, "own", objective, seconds))
        if spent:
            search = Search(schedules=None, seconds=max(spent), seed=case.number)
            for window, program in windows.items():
                rows.append(_row(test, case, SEARCH, 0, window, *_timed(program, case, search)))
    return rows + _greedy(test, cases, policies)


def _in_windows(program: Program) -> dict[str, Program]:
    found = {}
    for name, changes in _WINDOWS.items():
        options = replace(program.options, **changes)
        same = options == program.options
        found[name] = program if same else compile_graph(program.graph, program.device, options)
    return found


def _timed(program: Program, case: Case, scheduler: Deciding) -> tuple[int | None, float]:
    began = perf_counter()
    try:
        objective: int | None = decide(program, scheduler, noise=case.noise).objective_ns
    except (EpisodeError, CannEnvError):
        objective = None
    return objective, perf_counter() - began


def _best_random(test: TestSet, case: Case, program: Program, samples: int) -> Row:
    """The best of as many random episodes under expected durations, played again."""
    began = perf_counter()
    found = []
    for draw in range(samples):
        try:
            found.append(decide(program, make_scheduler("random", _RANDOM_AT_ONCE * case.number + draw)))
        except EpisodeError:
            continue
    objective = None
    if found:
        best = min(found, key=lambda outcome: outcome.objective_ns)
        objective = played_again(program, best, case.noise).objective_ns
    name = RANDOM_BEST.format(samples)
    return _row(test, case, name, 0, "startable", objective, perf_counter() - began)


def _greedy(test: TestSet, cases: Sequence[Case], policies: Mapping[int, Trained]) -> list[Row]:
    """The greedy policies, all instances side by side; each is charged an equal part of the time."""
    rows = []
    for seed, trained in policies.items():
        programs = [Learned(trained=trained).program_for(case.program) for case in cases]
        began = perf_counter()
        outcomes = play(trained.policy, programs, noises=[case.noise for case in cases])
        seconds = (perf_counter() - began) / len(cases)
        for case, outcome in zip(cases, outcomes, strict=True):
            objective = None if outcome is None else outcome.objective_ns
            rows.append(_row(test, case, GREEDY, seed, "own", objective, seconds))
    return rows


def _row(
    test: TestSet,
    case: Case,
    contestant: str,
    seed: int,
    window: str,
    objective_ns: int | None,
    seconds: float,
) -> Row:
    return Row(
        axis=test.axis,
        test=test.name,
        number=case.number,
        contestant=contestant,
        seed=seed,
        window=window,
        commands=len(case.program.graph.commands),
        objective_ns=objective_ns,
        bound_ns=case.program.norm_ns,
        optimum_ns=case.optimum_ns,
        seconds=seconds,
    )
