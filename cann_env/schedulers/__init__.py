"""Schedulers by name, and the one way to run them: see :mod:`~cann_env.schedulers.registry` for names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, best_of, carry_out
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
    Watch,
    decide,
    replay,
    rollout,
)
from cann_env.schedulers.prefetchers import PREFETCHERS, Prefetcher, check_slots, make_prefetcher
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.registry import (
    ORDERS,
    SCHEDULERS,
    SHORT_LIST,
    check_scheduler,
    is_scheduler,
    make_scheduler,
    register,
)

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedule import Schedule

__all__ = [
    "ORDERS",
    "PREFETCHERS",
    "SCHEDULERS",
    "SHORT_LIST",
    "Assigner",
    "Assignment",
    "Chooser",
    "Deciding",
    "EpisodeError",
    "Fetch",
    "Launch",
    "Outcome",
    "Plan",
    "Planner",
    "Policy",
    "Prefetcher",
    "Rule",
    "Scheduler",
    "Watch",
    "best_of",
    "carry_out",
    "check_scheduler",
    "check_slots",
    "decide",
    "is_scheduler",
    "make_prefetcher",
    "make_scheduler",
    "record_schedule",
    "register",
    "replay",
    "rollout",
    "run_scheduler",
]


def run_scheduler(
    program: Program,
    name: str,
    *,
    seed: int = 0,
    noise: Image | None = None,
    watch: Watch | None = None,
) -> Schedule:
    """Run a scheduler on a program and keep the whole schedule.

    Args:
        program: What to schedule.
        name: As :func:`make_scheduler` takes it.
        seed: For those that draw.
        noise: Realised durations, see :meth:`Program.new_state`; the scheduler does not see them beforehand.
        watch: Told how far a scheduler is that improves for as long as it may.

    Raises:
        InputError: No scheduler of that name; or its prefetcher needs slots and the program has none.
        EpisodeError: It did not finish.
    """
    scheduler = make_scheduler(name, seed)
    if watch is not None and hasattr(scheduler, "watched"):
        scheduler = scheduler.watched(watch)
    prefetcher = name.partition("+")[2]
    if prefetcher:
        check_slots(prefetcher, program.options)
    outcome = decide(program, scheduler, noise=noise)
    return record_schedule(outcome.program or program, outcome.actions, noise=noise)
