"""Schedulers by name, and the one way to run them.

Any order of issue can be joined with any prefetcher: ``eager+migration`` issues as ``eager`` does and moves
buffers by a migration plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.online import Chained, Eager, JustInTime, PerEngine, Random, RoundRobin, SingleStream
from cann_env.schedulers.policy import (
    Assigner,
    Chooser,
    Deciding,
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
from cann_env.schedulers.prefetchers import PREFETCHERS, Prefetcher, check_slots, make_prefetcher
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.reference import Reference
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedule import Schedule

__all__ = [
    "ORDERS",
    "PREFETCHERS",
    "SCHEDULERS",
    "Assigner",
    "Chooser",
    "Deciding",
    "EpisodeError",
    "Outcome",
    "Plan",
    "Planner",
    "Policy",
    "Prefetcher",
    "Scheduler",
    "check_scheduler",
    "decide",
    "is_scheduler",
    "make_prefetcher",
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

ORDERS: dict[str, Callable[[], Policy]] = {
    "single_stream": SingleStream,
    "round_robin": RoundRobin,
    "per_engine": PerEngine,
    "just_in_time": JustInTime,
    "chained": Chained,
    "eager": Eager,
}
"""Orders of issue, which never prefetch, for use with one of :data:`PREFETCHERS`."""


def is_scheduler(name: str) -> bool:
    """Whether :func:`make_scheduler` knows a name."""
    order, _, prefetcher = name.partition("+")
    return name in SCHEDULERS or (order in ORDERS and prefetcher in PREFETCHERS)


def check_scheduler(name: str) -> None:
    """Refuse a name that :func:`make_scheduler` does not know.

    Raises:
        InputError: No scheduler of that name; lists those there are.
    """
    if is_scheduler(name):
        return
    known = (
        f"there are {', '.join(SCHEDULERS)}; or join one of {', '.join(ORDERS)} by '+' with one of "
        f"{', '.join(PREFETCHERS)}"
    )
    if name in ORDERS:
        raise InputError(
            f"scheduler {name!r} is an order of issue, which exists only joined with a prefetcher, e.g. "
            f"'{name}+aggressive'; {known}"
        )
    if name in PREFETCHERS:
        raise InputError(
            f"scheduler {name!r} is a prefetcher, which exists only joined with an order of issue, e.g. "
            f"'eager+{name}'; {known}"
        )
    raise InputError(f"scheduler {name!r} is not known; {known}")


def make_scheduler(name: str, seed: int = 0) -> Deciding:
    """A scheduler by name: one of :data:`SCHEDULERS`, or an order and a prefetcher joined by ``+``.

    Raises:
        InputError: No scheduler of that name; lists those there are.
    """
    check_scheduler(name)
    if name in SCHEDULERS:
        return SCHEDULERS[name](seed)
    order, _, prefetcher = name.partition("+")
    return make_prefetcher(prefetcher, ORDERS[order]())


def run_scheduler(program: Program, name: str, *, seed: int = 0, noise: Image | None = None) -> Schedule:
    """Run a scheduler on a program and keep the whole schedule.

    Args:
        program: What to schedule.
        name: As :func:`make_scheduler` takes it.
        seed: For those that draw.
        noise: Realised durations, see :meth:`Program.new_state`; the scheduler does not see them beforehand.

    Raises:
        InputError: No scheduler of that name; or its prefetcher needs slots and the program has none.
        EpisodeError: It did not finish.
    """
    scheduler = make_scheduler(name, seed)
    if name not in SCHEDULERS:
        check_slots(name.partition("+")[2], program.options)
    outcome = decide(program, scheduler, noise=noise)
    return record_schedule(program, outcome.actions, noise=noise)
