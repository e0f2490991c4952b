"""A trained policy beside the schedulers: same instances, same realised durations, same engine.

A policy and plays go in, a :class:`Score` for the agent and for each scheduler comes out.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from agents.rollouts import play
from cann_env.envs.instances import InstanceKey, ProgramSource
from cann_env.options import Window
from cann_env.program import compile_graph
from cann_env.schedulers import SHORT_LIST, decide, make_scheduler
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stable_baselines3.common.policies import BasePolicy

    from agents.families import Play
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.scenario import Scenario
    from cann_env.schedulers.policy import Outcome

AGENT = "agent"

BASELINES = tuple(name for name in SHORT_LIST if name != "search")
"""Schedulers beside the agent; a search on every instance would take its time."""

_UNFINISHED = 3.0  # ratio that counts for an episode which was not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One scheduler over all instances; geometric means over those that it finished, None if there are none.

    Attributes:
        scheduler: Its name, or ``agent``.
        instances: How many were played.
        unfinished: How many of them it did not finish; an agent that does not see what is legal may wait on.
        makespan_ns: When the last command finished.
        to_single_stream: Objective over that of a single stream. The objective is the makespan, or the sum
            of the latencies of all requests where the scenario says so.
        over_bound: Objective over its lower bound, less 1.
    """

    scheduler: str
    instances: int
    unfinished: int
    makespan_ns: float | None
    to_single_stream: float | None
    over_bound: float | None


class Judged(NamedTuple):
    """Instances of a play that nobody learns from.

    Attributes:
        programs: With the agent's window.
        noises: Realised durations of each; None without noise.
        reference_ns: Objective of the reference scheduler on each.
    """

    programs: list[Program]
    noises: list[Image | None]
    reference_ns: list[int]


def judges(plays: Sequence[Play], window: Window, *, seed: int, instances: int) -> list[Judged]:
    """Instances for comparison, and what the reference makes of them in a window of its own."""
    found = []
    for each in plays:
        programs, noises = _drawn(each.scenario(window), seed, instances)
        reference = [
            decide(_issuable(program), make_scheduler("reference", 0), noise=noise).objective_ns
            for program, noise in zip(programs, noises, strict=True)
        ]
        found.append(Judged(programs, noises, reference))
    return found


def greedy_ratios(policy: BasePolicy, judged: Sequence[Judged], *, masked: bool = True) -> list[float]:
    """Objective of the greedy policy over the reference's: geometric mean over the instances of each play."""
    means = []
    for each in judged:
        outcomes = play(policy, each.programs, noises=each.noises, masked=masked)
        ratios = [
            outcome.objective_ns / reference if outcome is not None else _UNFINISHED
            for outcome, reference in zip(outcomes, each.reference_ns, strict=True)
        ]
        means.append(statistics.geometric_mean(ratios))
    return means


def evaluate(
    policy: BasePolicy,
    plays: Sequence[Play],
    window: Window,
    *,
    seed: int,
    instances: int,
    masked: bool = True,
) -> list[Score]:
    """Compare a policy with :data:`BASELINES`.

    Args:
        policy: Trained.
        plays: What is played. If nothing in a scenario varies, one instance of it is played.
        window: The agent's. The schedulers name their streams in any case, so a window that takes that
            choice from the agent does not hold them back.
        seed: Of the instances.
        instances: How many of each play, at least 1.
        masked: Whether the policy sees which actions are legal.

    Raises:
        EpisodeError: A scheduler did not finish an instance.
    """
    outcomes: dict[str, list[Outcome | None]] = {name: [] for name in (AGENT, *BASELINES)}
    bounds = []
    for each in plays:
        programs, noises = _drawn(each.scenario(window), seed, instances)
        outcomes[AGENT] += play(policy, programs, noises=noises, masked=masked)
        for number, (program, noise) in enumerate(zip(programs, noises, strict=True)):
            full = _issuable(program)
            for name in BASELINES:
                outcomes[name].append(decide(full, make_scheduler(name, number), noise=noise))
            bounds.append(full.norm_ns)
    singles = [outcome.objective_ns for outcome in outcomes["single_stream"] if outcome is not None]
    return [_score(name, results, singles, bounds) for name, results in outcomes.items()]


def never_varies(scenario: Scenario) -> bool:
    """Every episode is the same instance with the same durations."""
    return scenario.workload.fixed and scenario.options.noise == 0.0


def _drawn(scenario: Scenario, seed: int, instances: int) -> tuple[list[Program], list[Image | None]]:
    source = ProgramSource(scenario)
    keys = [InstanceKey(seed, 0, k) for k in range(1 if never_varies(scenario) else instances)]
    programs = [source.program(key) for key in keys]
    return programs, [source.noise(program, key) for program, key in zip(programs, keys, strict=True)]


def _issuable(program: Program) -> Program:
    options = replace(program.options, window=Window.ISSUABLE)
    return program if options == program.options else compile_graph(program.graph, program.device, options)


def _score(name: str, results: list[Outcome | None], singles: list[int], bounds: list[int]) -> Score:
    finished = [
        (outcome.end_ns, outcome.objective_ns / single, outcome.objective_ns / bound)
        for outcome, single, bound in zip(results, singles, bounds, strict=True)
        if outcome is not None
    ]
    ends, to_single, to_bound = map(_mean, zip(*finished, strict=True)) if finished else (None, None, None)
    return Score(
        scheduler=name,
        instances=len(results),
        unfinished=len(results) - len(finished),
        makespan_ns=ends,
        to_single_stream=to_single,
        over_bound=None if to_bound is None else to_bound - 1.0,
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


def table_of(scores: Sequence[Score]) -> str:
    """The scores as text, best first."""
    lines = [f"{'scheduler':15} {'makespan':>10} {'x single':>9} {'over bound':>11}"]
    for score in sorted(scores, key=lambda each: (each.unfinished, each.over_bound or 0.0)):
        line = f"{score.scheduler:15}"
        if score.makespan_ns is not None:
            line += f" {format_time(score.makespan_ns):>10}"
            line += f" {score.to_single_stream:9.3f} {score.over_bound:11.1%}"
        if score.unfinished:
            line += f"  {score.unfinished} of {score.instances} unfinished"
        lines.append(line)
    return "\n".join(lines)
