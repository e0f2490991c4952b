"""A trained model beside the schedulers: same instances, same realised durations, same engine.

A model and a scenario go in, a :class:`Score` for the agent and for each scheduler comes out.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cann_env.envs.instances import InstanceKey, ProgramSource
from cann_env.options import Window
from cann_env.program import compile_graph
from cann_env.schedulers import SHORT_LIST, decide, make_scheduler
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sb3_contrib import MaskablePPO

    from cann_env.scenario import Scenario
    from cann_env.schedulers.policy import Observation, Outcome

AGENT = "agent"

BASELINES = tuple(name for name in SHORT_LIST if name != "search")
"""Schedulers beside the agent; a search on every instance would take its time."""


class Greedy:
    """A trained model as a scheduler: takes the legal action it thinks most likely."""

    def __init__(self, model: MaskablePPO) -> None:
        self.model = model

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Choose a legal action."""
        seen = {name: observation[name].reshape(-1) for name in self.model.observation_space}
        return int(self.model.predict(seen, action_masks=mask, deterministic=True)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One scheduler over all instances; geometric means.

    Attributes:
        scheduler: Its name, or ``agent``.
        instances: How many were played.
        makespan_ns: When the last command finished.
        to_single_stream: Objective over that of a single stream. The objective is the makespan, or the sum
            of the latencies of all requests where the scenario says so.
        over_bound: Objective over its lower bound, less 1.
    """

    scheduler: str
    instances: int
    makespan_ns: float
    to_single_stream: float
    over_bound: float


def evaluate(model: MaskablePPO, scenario: Scenario, *, seed: int, instances: int) -> list[Score]:
    """Compare a model with :data:`BASELINES`.

    Args:
        model: Trained on ``scenario``, whose window it sees. The schedulers name their streams in any case,
            so a window that takes that choice from the agent does not hold them back.
        scenario: What is played. If nothing in it varies, one instance is played.
        seed: Of the instances.
        instances: How many, at least 1.

    Raises:
        EpisodeError: Somebody did not finish an instance.
    """
    source = ProgramSource(scenario)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in (AGENT, *BASELINES)}
    bounds = []
    for episode in range(1 if never_varies(scenario) else instances):
        key = InstanceKey(seed, 0, episode)
        own = source.program(key)
        full = compile_graph(own.graph, own.device, replace(own.options, window=Window.ISSUABLE))
        noise = source.noise(own, key)
        outcomes[AGENT].append(decide(own, Greedy(model), noise=noise))
        for name in BASELINES:
            outcomes[name].append(decide(full, make_scheduler(name, episode), noise=noise))
        bounds.append(full.norm_ns)
    singles = [outcome.objective_ns for outcome in outcomes["single_stream"]]
    return [_score(name, results, singles, bounds) for name, results in outcomes.items()]


def never_varies(scenario: Scenario) -> bool:
    """Every episode is the same instance with the same durations."""
    return scenario.workload.fixed and scenario.options.noise == 0.0


def _score(name: str, results: list[Outcome], singles: list[int], bounds: list[int]) -> Score:
    objectives = [outcome.objective_ns for outcome in results]
    return Score(
        scheduler=name,
        instances=len(results),
        makespan_ns=statistics.geometric_mean(outcome.end_ns for outcome in results),
        to_single_stream=_mean_ratio(objectives, singles),
        over_bound=_mean_ratio(objectives, bounds) - 1.0,
    )


def _mean_ratio(values: list[int], others: list[int]) -> float:
    return statistics.geometric_mean(a / b for a, b in zip(values, others, strict=True))


def table_of(scores: Sequence[Score]) -> str:
    """The scores as text, best first."""
    lines = [f"{'scheduler':15} {'makespan':>10} {'x single':>9} {'over bound':>11}"]
    for score in sorted(scores, key=lambda each: each.over_bound):
        makespan = format_time(score.makespan_ns)
        lines.append(
            f"{score.scheduler:15} {makespan:>10} {score.to_single_stream:9.3f} {score.over_bound:11.1%}"
        )
    return "\n".join(lines)
