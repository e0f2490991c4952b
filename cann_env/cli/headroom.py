"""How much a scenario can teach: a single stream and the reference scheduler against the lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.cli.inputs import Request, open_case
from cann_env.cli.results import BASELINE
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import decide, make_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One scenario and its first instance.

    Attributes:
        scenario: Its name.
        description: What it is about.
        device: Name of its device.
        calibrated: Whether that device's numbers stand on recordings; else they are assumed.
        commands: Commands of the instance.
        streams: Streams it may use.
        lower_bound_ns: Bound of the objective: of the makespan, or of the sum of the requests' latencies.
        single_over_bound: What a single stream reaches, over the bound.
        reference_over_bound: What the reference scheduler reaches, over the bound.
    """

    scenario: str
    description: str
    device: str
    calibrated: bool
    commands: int
    streams: int
    lower_bound_ns: int
    single_over_bound: float
    reference_over_bound: float


def headroom(name: str, seed: int, step: Callable[[], None]) -> Headroom:
    """Measure one scenario; ``step`` is called after each of the two runs.

    Raises:
        InputError: The scenario is not known or not right.
    """
    case = open_case(name, Request(device=None, seed=seed, options={}, model={}))
    program = compile_graph(case.graph(0), case.device, case.options)
    ratios = []
    for scheduler in (BASELINE, REFERENCE):
        outcome = decide(program, make_scheduler(scheduler, seed))
        ratios.append(outcome.objective_ns / program.norm_ns)
        step()
    return Headroom(
        scenario=name,
        description=load_scenario(name).description,
        device=case.device.name,
        calibrated=case.device.calibrated,
        commands=len(program.graph.commands),
        streams=case.options.streams,
        lower_bound_ns=program.norm_ns,
        single_over_bound=ratios[0],
        reference_over_bound=ratios[1],
    )
