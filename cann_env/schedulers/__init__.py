"""Schedulers by name, and the one way to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.policy import (
    Chooser,
    EpisodeError,
    Outcome,
    Plan,
    Planner,
    Policy,
    Scheduler,
    decide,
    replay,
    rollout,
)
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.reference import Reference
from cann_env.schedulers.rules import PerEngine, Random, RoundRobin, SingleStream
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedule import Schedule

__all__ = [
    "SCHEDULERS",
    "Chooser",
    "EpisodeError",
    "Outcome",
    "Plan",
    "Planner",
    "Policy",
    "Scheduler",
    "decide",
    "make_scheduler",
    "record_schedule",
    "replay",
    "rollout",
    "run_scheduler",
]

SCHEDULERS: dict[str, Scheduler] = {
    "single_stream": lambda seed: SingleStream(),
    "round_robin": lambda seed: RoundRobin(),
    "per_engine": lambda seed: PerEngine(),
    "random": lambda seed: Random(np.random.default_rng(seed)),
    "reference": lambda seed: Reference(),
}


def make_scheduler(name: str, seed: int = 0) -> Policy | Chooser | Planner:
    """A scheduler by name.

    Raises:
        InputError: No scheduler of that name; lists those there are.
    """
    if name not in SCHEDULERS:
        raise InputError(f"scheduler {name!r} is not known; there are {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name](seed)


def run_scheduler(program: Program, name: str, *, seed: int = 0, noise: Image | None = None) -> Schedule:
    """Run a scheduler on a program and keep the whole schedule.

    Args:
        program: What to schedule.
        name: One of :data:`SCHEDULERS`.
        seed: For those that draw.
        noise: Realised durations, see :meth:`Program.new_state`; the scheduler does not see them beforehand.

    Raises:
        InputError: No scheduler of that name.
        EpisodeError: It did not finish.
    """
    outcome = decide(program, make_scheduler(name, seed), noise=noise)
    return record_schedule(program, outcome.actions, noise=noise)
