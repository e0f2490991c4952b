"""Exact schedules and proofs by constraint programming; the only module that imports ``ortools``.

A program becomes intervals on resources (:mod:`cann_env.solvers.model`), CP-SAT searches and proves, and what
it finds is played through the engine, which has the last word. Its bounds hold for every schedule of the
engine with expected durations. Only where the engine reaches the bound is a schedule called optimal.
"""

from __future__ import annotations

import enum
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.engine.layout import P_WORST_NS
from cann_env.options import Objective
from cann_env.solvers.model import Model, build
from cann_env.solvers.pieces import needs_of, paths_of
from cann_env.solvers.replay import Played, Times, by_tail, play_actions, play_times
from cann_env.solvers.strong import strong_bounds
from cann_env.units import CannEnvError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.engine import Image
    from cann_env.program import Program

_SHARE_OF_TIDYING = 0.2


class Proof(enum.StrEnum):
    """How much is known of a makespan.

    ``optimal``: the engine reaches the bound. ``optimal of the relaxation``: the model is solved, but the
    engine takes longer; what lies between is open. ``feasible``: time ran out. ``unknown``: time ran out, and
    no schedule is known at all.
    """

    OPTIMAL = "optimal"
    RELAXED = "optimal of the relaxation"
    FEASIBLE = "feasible"
    UNKNOWN = "unknown"


class Progress(NamedTuple):
    """How far a search is: seconds gone, makespan in the model (None before the first), bound; ns."""

    seconds: float
    makespan_ns: int | None
    bound_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known at the end of a search.

    Attributes:
        status: See :class:`Proof`.
        bound_ns: No schedule of the engine with expected durations ends earlier.
        objective_ns: Makespan of the best schedule in the engine; None if none is known.
        relaxed_ns: Makespan of the best schedule in the model; None if none was found.
        actions: Decisions that make the best schedule, waits included; they replay exactly.
        starts_ns: When each command starts in it; empty if there is none.
        seconds: Time spent.
        branches: Decisions of the search.
    """

    status: Proof
    bound_ns: int
    objective_ns: int | None
    relaxed_ns: int | None
    actions: tuple[int, ...]
    starts_ns: tuple[int, ...]
    seconds: float
    branches: int

    @property
    def gap(self) -> float:
        """Objective over bound, less 1; infinite if no schedule is known."""
        return math.inf if self.objective_ns is None else self.objective_ns / self.bound_ns - 1.0


class _Settings(NamedTuple):
    """How to search, see :func:`solve`."""

    seconds: float
    workers: int
    deterministic: bool
    seed: int
    progress: Callable[[Progress], None] | None
    log: Callable[[str], None] | None


def solve(
    program: Program,
    *,
    seconds: float = 60.0,
    workers: int = 2,
    deterministic: bool = False,
    seed: int = 0,
    hint: Sequence[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> Result:
    """Find a schedule of least makespan, and prove how good it is.

    Args:
        program: What to schedule. Durations are the expected ones.
        seconds: Time limit, to which a fifth is added where buffers move; with ``deterministic`` in units of
            work of the solver, about a second each.
        workers: Threads of the solver.
        deterministic: Same result on every machine and every time: one worker, and no clock.
        seed: Of the search.
        hint: Decisions of a schedule to start from, for example those of a scheduler; None for a list by
            tail. The result is never worse in the engine.
        progress: Called at each better schedule or bound.
        log: Receives the solver's own log, line by line.

    Raises:
        InputError: ``ortools`` is not installed; a number is out of range; the objective is not the makespan.
    """
    cp_sat = _ortools()
    _check(program, seconds, workers)
    settings = _Settings(seconds, 1 if deterministic else workers, deterministic, seed, progress, log)
    search = _Search(cp_sat, program, settings)
    known = _known(program, hint)
    if known and known[0].makespan_ns == search.bounds.lower_bound_ns:
        return search.result(known[0].makespan_ns, known[0], None, 0)
    return search.run(known)


class _Search:
    """One call of :func:`solve`."""

    def __init__(self, cp_sat: Any, program: Program, settings: _Settings) -> None:
        self._cp_sat = cp_sat
        self._program = program
        self._settings = settings
        self._began = time.perf_counter()
        self.bounds = strong_bounds(program)

    def run(self, known: list[Played]) -> Result:
        """Search, prove, and play what was found.

        Args:
            known: Schedules of the engine, the best first.
        """
        horizon = known[0].makespan_ns if known else int(self._program.image[P_WORST_NS])
        model = build(self._cp_sat.CpModel(), self._program, self.bounds, horizon)
        if known:
            for variable, start in zip(model.start, known[0].start_ns.tolist(), strict=True):
                model.cp.add_hint(variable, start // model.unit)
        solver = self._solver(1.0)
        status = solver.solve(model.cp, self._watcher(solver, model))
        relaxed = None
        if status in (self._cp_sat.OPTIMAL, self._cp_sat.FEASIBLE):
            relaxed = int(solver.value(model.makespan))
            known = known + self._played(model, solver, relaxed)
        elif status != self._cp_sat.UNKNOWN:
            raise CannEnvError(
                f"the exact model of graph {self._program.graph.name!r} on {self._program.device.name} "
                f"has no schedule of {horizon} ns, though the engine has one; please report this"
            )
        best = min(known, key=lambda played: played.makespan_ns, default=None)
        bound = self._bound(solver.best_objective_bound, model.unit)
        return self.result(
            bound, best, None if relaxed is None else relaxed * model.unit, solver.num_branches
        )

    def _bound(self, of_model: float, unit: int) -> int:
        """The better of the bounds known before and that of the search (in units), in ns."""
        return max(self.bounds.lower_bound_ns, _whole(of_model) * unit)

    def result(self, bound: int, best: Played | None, relaxed: int | None, branches: int) -> Result:
        """What is known in the end."""
        return Result(
            status=_status(bound, best, relaxed),
            bound_ns=bound,
            objective_ns=None if best is None else best.makespan_ns,
            relaxed_ns=relaxed,
            actions=() if best is None else best.actions,
            starts_ns=() if best is None else tuple(best.start_ns.tolist()),
            seconds=time.perf_counter() - self._began,
            branches=branches,
        )

    def _solver(self, share: float) -> Any:
        """A solver with a share of the time."""
        seconds, workers, deterministic, seed, _, log = self._settings
        solver = self._cp_sat.CpSolver()
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = seed
        if deterministic:
            solver.parameters.max_deterministic_time = seconds * share
        else:
            solver.parameters.max_time_in_seconds = seconds * share
        if log is not None:
            solver.parameters.log_search_progress = True
            solver.parameters.log_to_stdout = False
            solver.log_callback = log
        return solver

    def _watcher(self, solver: Any, model: Model) -> Any:
        """A callback that reports better schedules and bounds; None if nobody listens."""
        tell = self._settings.progress
        if tell is None:
            return None
        unit, began = model.unit, self._began
        best: list[int | None] = [None]

        def report(bound: float) -> None:
            tell(Progress(time.perf_counter() - began, best[0], self._bound(bound, unit)))

        class Watcher(self._cp_sat.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            """Reports each better schedule."""

            def on_solution_callback(self) -> None:
                """Called by the solver."""
                best[0] = round(self.objective_value) * unit
                report(self.best_objective_bound)

        solver.best_bound_callback = report
        return Watcher()

    def _played(self, model: Model, solver: Any, relaxed: int) -> list[Played]:
        """What the engine makes of the schedule found: at its times, and in its order."""
        if model.arrivals:
            solver = self._tidied(model, solver, relaxed)
        start = np.array([solver.value(variable) for variable in model.start], np.int64)
        end = np.array([solver.value(variable) for variable in model.end], np.int64)
        order = np.lexsort((end, start))
        fetches = sorted(
            (solver.value(arrival.start), arrival.buffer)
            for arrival in model.arrivals
            if solver.value(arrival.happens)
        )
        if not model.arrivals:
            start = _shifted(self._program, model.unit, start, end, order)
        wishes = [(buffer, due * model.unit) for due, buffer in fetches]
        at_once = tuple((buffer, 0) for buffer, _ in wishes)
        plans = [
            Times(start * model.unit, order, tuple(wishes)),
            Times(start * model.unit, order, at_once),
            Times(np.zeros_like(start), order, at_once),
            Times(np.zeros_like(start), order, at_once, early=True),
        ]
        return [played for plan in plans if (played := play_times(self._program, plan)) is not None]

    def _tidied(self, model: Model, solver: Any, relaxed: int) -> Any:
        """The same makespan with everything as early as it can be, as far as a part of the time suffices.

        Where buffers come and go the times of a solution are no use as they are: what does not matter for the
        makespan may stand anywhere, and then begins at no instant at which the host could act.
        """
        cp = model.cp
        cp.clear_hints()
        for variable in (*model.start, *(arrival.start for arrival in model.arrivals)):
            cp.add_hint(variable, solver.value(variable))
        cp.add(model.makespan <= relaxed)
        sound = cp.new_bool_var("nothing moves before it has space")
        for arrival in model.arrivals:
            cp.add(arrival.start >= arrival.space).only_enforce_if(sound, arrival.happens)
        times = [*model.start, *model.end, *(arrival.start for arrival in model.arrivals)]
        cp.minimize(sum(times) - relaxed * (len(times) + 1) * sound)
        again = self._solver(_SHARE_OF_TIDYING)
        status = again.solve(cp)
        return again if status in (self._cp_sat.OPTIMAL, self._cp_sat.FEASIBLE) else solver


def _shifted(program: Program, unit: int, start: Image, end: Image, order: Image) -> Image:
    """The same order with every command as early as it can be, so that each starts when another ends.

    What ended before a command began, and needs something that it needs too, still does.

    Args:
        program: The program.
        unit: ns in a unit of the times.
        start: Of each command.
        end: Of each command.
        order: Commands by start.
    """
    needs = needs_of(program)
    early, done = paths_of(program, ()).head // unit, np.zeros_like(end)
    for i in order.tolist():
        before = (end <= start[i]) & (needs & needs[i]).any(axis=1)
        before[list(program.graph.predecessors[i])] = True
        early[i] = max(early[i], int(done[before].max(initial=0)))
        done[i] = early[i] + end[i] - start[i]
    return early


def _known(program: Program, hint: Sequence[int] | None) -> list[Played]:
    """Schedules to start from, the best first."""
    played = [play_times(program, plan) for plan in by_tail(program)]
    if hint is not None:
        played.append(play_actions(program, hint))
        if played[-1] is None:
            raise InputError(
                f"the hint for graph {program.graph.name!r} has {len(hint)} decisions that do not finish it; "
                "give all decisions of an episode, or None"
            )
    return sorted((one for one in played if one is not None), key=lambda one: one.makespan_ns)


def _status(bound: int, best: Played | None, relaxed: int | None) -> Proof:
    if best is None:
        return Proof.UNKNOWN
    if best.makespan_ns <= bound:
        return Proof.OPTIMAL
    return Proof.RELAXED if relaxed is not None and relaxed <= bound else Proof.FEASIBLE


def _whole(bound: float) -> int:
    """A bound of a whole number, rounded up but for what floating point adds."""
    return math.ceil(bound - 1e-6) if math.isfinite(bound) else 0


def _check(program: Program, seconds: float, workers: int) -> None:
    if program.options.objective is not Objective.MAKESPAN:
        raise InputError(
            f"the objective is {program.options.objective.value!r}; the exact solver knows 'makespan' only"
        )
    if not 0.0 < seconds <= 1e6:
        raise InputError(f"seconds is {seconds!r}; write a number above 0 to 1e+06")
    if not 1 <= workers <= 1024:
        raise InputError(f"workers is {workers!r}; write a whole number from 1 to 1024")


def _ortools() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError(
            'exact schedules need the package ortools, which is not installed; pip install "cann-env[exact]"'
        ) from error
    return cp_model
