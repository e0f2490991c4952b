"""The exact solver as a scheduler to compare others with: ``exact``, and ``exact:seconds=30`` with a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from cann_env.options import Objective
from cann_env.schedulers import Assignment, Launch, Outcome, Plan, Rule, record_schedule, register, replay
from cann_env.schedulers.registry import read_seconds
from cann_env.schedulers.search import Search
from cann_env.solvers.cpsat import solve
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedulers import Deciding, Watch
    from cann_env.solvers.cpsat import Progress

_SECONDS = 10.0
_FIRST_SCHEDULES = 2000


@dataclass(frozen=True, slots=True)
class Proven:
    """A schedule that was found beforehand.

    Attributes:
        plan: Its decisions, carried out where durations are the expected ones.
        otherwise: Its order, in which commands start as soon as they can where durations are others.
    """

    plan: Plan
    otherwise: Assignment

    def play(self, program: Program, *, noise: Image | None = None) -> Outcome:
        """Run one episode of a program by it."""
        if noise is None:
            return replay(program, self.plan.actions)
        return self.otherwise.play(program, noise=noise)


@dataclass(slots=True)
class Exact:
    """The best schedule that CP-SAT finds and proves in a time, beginning from that of a short search.

    Attributes:
        seconds: Wall time. The search has half of it at most, the solver what is left, a tenth at least; only
            the schedules of the reference, and building the model, may take longer.
        seed: Of the search that it begins with, and of the solver.
        watch: Told how far it is; None for nobody.
        proven_bound_ns: After planning: no schedule with expected durations ends earlier; None where the
            objective is not the makespan, and the search's schedule is all there is.
    """

    seconds: float = _SECONDS
    seed: int = 0
    watch: Watch | None = None
    proven_bound_ns: int | None = field(default=None, init=False)

    def watched(self, watch: Watch) -> Exact:
        """The same, with somebody to tell how far it is."""
        return Exact(self.seconds, self.seed, watch)

    def assign(self, program: Program) -> Proven:
        """The best schedule under expected durations; raises as :meth:`plan` does."""
        plan = self.plan(program)
        schedule = record_schedule(program, plan.actions)
        order = tuple(run.command for run in schedule.commands)
        return Proven(plan, Assignment(order=order, rule=Rule(launch=Launch.JUST_IN_TIME)))

    def plan(self, program: Program) -> Plan:
        """All decisions of the best schedule under expected durations.

        Raises:
            InputError: The solver is not installed.
            EpisodeError: No form of list scheduling finishes.
        """
        began = monotonic()
        first = Search(schedules=_FIRST_SCHEDULES, seconds=self.seconds / 2, seed=self.seed).plan(program)
        self.proven_bound_ns = None
        if program.options.objective is not Objective.MAKESPAN:
            return first
        left = max(self.seconds - (monotonic() - began), self.seconds / 10)
        result = solve(program, seconds=left, seed=self.seed, hint=first.actions, progress=self._report)
        self.proven_bound_ns = result.bound_ns
        return Plan(tuple(result.actions))

    def _report(self, progress: Progress) -> None:
        if self.watch is not None and progress.makespan_ns is not None:
            self.watch(min(progress.seconds / self.seconds, 1.0), progress.makespan_ns)


def _with_time(argument: str, seed: int) -> Deciding:
    key, _, value = argument.partition("=")
    seconds = read_seconds(value) if key == "seconds" else None
    if not seconds:
        raise InputError(
            f"scheduler 'exact:{argument}' has the argument {argument!r}; write a time, e.g. "
            "'exact:seconds=30'"
        )
    return Exact(seconds, seed)


register("exact", lambda seed: Exact(seed=seed), argument=_with_time)
