"""How much a scenario can teach: a single stream and the reference scheduler against the lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.cli.inputs import Request, open_case
from cann_env.cli.results import BASELINE, run_case
from cann_env.scenario import load_scenario

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
        commands: Commands of the instance.
        streams: Streams it may use.
        lower_bound_ns: Bound of the instance.
        single_over_bound: Makespan of a single stream over the bound.
        reference_over_bound: Makespan of the reference scheduler over the bound.
    """

    scenario: str
    description: str
    device: str
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
    single, reference = run_case(case, [BASELINE, REFERENCE], seed=seed, step=step)
    bound = single.schedule.lower_bound_ns
    return Headroom(
        scenario=name,
        description=load_scenario(name).description,
        device=case.device.name,
        commands=len(single.schedule.commands),
        streams=case.options.streams,
        lower_bound_ns=bound,
        single_over_bound=single.schedule.makespan_ns / bound,
        reference_over_bound=reference.schedule.makespan_ns / bound,
    )
