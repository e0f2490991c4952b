"""Exported programs, run again: helpers of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cann_env.acl as acl
from cann_env.acl.plans.plan import plan_of
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator
    from cann_env.schedule import Schedule


def scheduled(scenario: str, episode: int, scheduler: str, device: str = "", **options: Any) -> Schedule:
    """A schedule of an instance of a scenario."""
    found = load_scenario(scenario)
    found = found.with_device(device) if device else found
    found = found.with_options(**options) if options else found
    return run_scheduler(
        compile_graph(found.graph(0, 0, episode), found.device, found.options), scheduler, seed=episode
    )


def execute(text: str, name: str = "plan.py", **given: Any) -> Any:
    """Run a program of ours, as a file that is run would; returns what its ``main`` does."""
    names: dict[str, Any] = {"__name__": "plan"}
    exec(compile(text, name, "exec"), names)
    return names["main"](**given)


def rerun(schedule: Schedule, text: str | None = None) -> Simulator:
    """Run the program of a schedule, or one that was made of it."""
    run = acl.run_as(schedule)
    execute(acl.export(schedule) if text is None else text)
    return run


def times(schedule: Schedule) -> list[tuple[int, int]]:
    """Start and finish of each command, in the order of submission."""
    runs = {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
    return [runs[taken.target] for taken in plan_of(schedule).steps if taken.call == "issue"]


def times_of(run: Simulator) -> list[tuple[int, int]]:
    """The same of what a program submitted."""
    return [(work.start_ns, work.finish_ns) for work in run.log if work.prefetch is None]
