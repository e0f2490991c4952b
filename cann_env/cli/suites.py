"""Runs schedulers on the cases of a suite: each is timed while it decides, then recorded and judged."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from cann_env.cli.policies import use_policies
from cann_env.cli.scores import Score
from cann_env.envs.instances import InstanceKey, realised
from cann_env.options import Objective
from cann_env.program import compile_graph
from cann_env.schedulers import decide, make_scheduler, record_schedule
from cann_env.schedulers.prefetchers import check_slots
from cann_env.solvers.strong import strong_bounds
from cann_env.suite import Asked, load_suite
from cann_env.suite.case import Setting
from cann_env.suite.members import WorkloadMember
from cann_env.units import CannEnvError, InputError
from cann_env.validate import validate
from cann_env.workloads.generated import LayeredWorkload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedulers import Watch
    from cann_env.suite import Instance, SuiteCase

BASELINE = "cann_autotune"
"""Whom ratios are taken to unless another is named: what CANN itself would choose."""

_LOADING_SECONDS = 0.5

ANYTIME = ("search", "exact")
"""Schedulers that take ``:seconds=S`` behind their name and use that time."""


def with_seconds(name: str, seconds: float | None) -> str:
    """Give an anytime scheduler its time; others, and those that were given something, stay as they are."""
    if seconds is None or name not in ANYTIME:
        return name
    digits = f"{seconds:f}".rstrip("0").rstrip(".")  # an exponent would bring a "+", which joins names
    return f"{name}:seconds={digits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Who is run, and how.

    Attributes:
        schedulers: Names, in the order of the rows of a case; the baseline is one of them.
        baseline: Whom ratios are taken to.
        policies: Files of trained policies, to be made known in every process.
        seed: Of schedulers that draw.
    """

    schedulers: tuple[str, ...]
    baseline: str
    policies: tuple[Path, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the baseline is run and that every name makes a scheduler."""
        if self.baseline not in self.schedulers:
            raise InputError(
                f"baseline {self.baseline!r} is not among the schedulers {', '.join(self.schedulers)}; add it"
            )
        use_policies(self.policies)
        for name in self.schedulers:
            make_scheduler(name, self.seed)


class _Run(NamedTuple):
    """What a scheduler did; with a reason for failing all else is None or 0.

    ``proven_ns`` is the bound that a solver proved on the way. It stands in the attribute ``proven_bound_ns``
    of a scheduler that has decided, and holds for every schedule with expected durations.
    """

    value_ns: int | None = None
    makespan_ns: int | None = None
    proven_ns: int | None = None
    seconds: float | None = None
    violations: int = 0
    failure: str = ""


def run_suite(
    cases: Sequence[SuiteCase],
    contest: Contest,
    begin: Callable[[str], None] = lambda _: None,
    step: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
) -> Iterator[list[Score]]:
    """Run every scheduler on every case.

    Args:
        cases: What to run on.
        contest: Who is run.
        begin: Called with the names of case and scheduler before each run.
        step: Called after each run.
        watch: Told how far a scheduler is that improves for as long as it may.

    Yields:
        The scores of one case after the other, by scheduler in the order of the contest.

    Raises:
        InputError: The graph of a case cannot be made.
    """
    _load(contest)
    for case in cases:
        yield score_case(case, contest, begin, step, watch)


def run_suite_apart(
    suite: str, asked: Asked, cases: int, contest: Contest, jobs: int, step: Callable[[], None] = lambda: None
) -> Iterator[list[Score]]:
    """The same with several cases at once, each in a process of its own.

    Seconds spent deciding are longer where processes are more than cores, and what an anytime scheduler
    reaches in its time is less.

    Args:
        suite: Name or path, opened again in each process.
        asked: What the suite is opened with.
        cases: How many it has.
        contest: Who is run.
        jobs: How many processes.
        step: Called for each scheduler when a case is done.

    Yields:
        As :func:`run_suite`.
    """
    # An interrupt reaches all processes of a terminal: one of them says so, the others just end.
    quiet = (signal.SIGINT, signal.SIG_DFL)
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=signal.signal, initargs=quiet
    )
    try:
        waiting = [pool.submit(_score_apart, suite, asked, number, contest) for number in range(cases)]
        for future in waiting:
            scores = future.result()
            for _ in scores:
                step()
            yield scores
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _score_apart(suite: str, asked: Asked, number: int, contest: Contest) -> list[Score]:
    use_policies(contest.policies)
    _load(contest)
    return score_case(_opened(suite, asked)[number], contest)


@lru_cache(maxsize=1)
def _opened(suite: str, asked: Asked) -> tuple[SuiteCase, ...]:
    return load_suite(suite).cases(asked)


@lru_cache(maxsize=1)
def _load(contest: Contest) -> None:
    """Let every scheduler decide something small, so that no case is charged for loading compiled code."""
    toy = WorkloadMember(
        family="toy", workload=LayeredWorkload(commands=4, width=2), devices=("ascend310b1",)
    )
    (case,) = toy.cases(Asked(), Setting({}, "toy"))
    instance = case.make()
    program = compile_graph(instance.graph, instance.device, instance.options)
    for name in dict.fromkeys(map(_briefly, contest.schedulers)):
        with suppress(CannEnvError):
            decide(program, make_scheduler(name, contest.seed))


def _briefly(name: str) -> str:
    """A scheduler that loads the same code and does not use all the time it was given."""
    base = name.partition(":")[0]
    return with_seconds(base, _LOADING_SECONDS) if base in ANYTIME else name


def score_case(
    case: SuiteCase,
    contest: Contest,
    begin: Callable[[str], None] = lambda _: None,
    step: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
) -> list[Score]:
    """Run every scheduler on one case, see :func:`run_suite`."""
    instance = _made(case)
    runs: dict[str, _Run] = {}
    program, noise, refusal = _compiled(case, instance)
    for name in contest.schedulers:
        begin(f"{case.name} · {name}")
        runs[name] = (
            _Run(failure=refusal) if program is None else _run(program, name, contest.seed, noise, watch)
        )
        step()
    bound = None if program is None else _bound(program)
    optimum, source = _optimum(instance, bound if noise is None else None, tuple(runs.values()))
    return [
        Score(
            family=case.family,
            case=case.name,
            device=instance.device.name,
            calibrated=instance.device.calibrated,
            commands=len(instance.graph.commands),
            objective=instance.options.objective.value,
            scheduler=name,
            value_ns=run.value_ns,
            makespan_ns=run.makespan_ns,
            bound_ns=bound,
            optimum_ns=optimum,
            optimum_from=source,
            baseline_ns=runs[contest.baseline].value_ns,
            seconds=run.seconds,
            violations=run.violations + _below(run, optimum),
            failure=run.failure,
        )
        for name, run in runs.items()
    ]


def _made(case: SuiteCase) -> Instance:
    try:
        return case.make()
    except InputError as error:
        raise InputError(f"case {case.name!r}: {error}") from error


def _bound(program: Program) -> int:
    """The strongest bound of the objective that is cheap to work out."""
    if program.options.objective is not Objective.MAKESPAN:
        return program.norm_ns
    return max(program.norm_ns, strong_bounds(program).lower_bound_ns)


def _compiled(case: SuiteCase, instance: Instance) -> tuple[Program | None, Image | None, str]:
    """The program and its realised durations, or why the device refuses it."""
    try:
        program = compile_graph(instance.graph, instance.device, instance.options)
    except CannEnvError as error:
        return None, None, str(error)
    return program, realised(program, InstanceKey(case.seed, 0, case.episode)), ""


def _run(program: Program, name: str, seed: int, noise: Image | None, watch: Watch | None) -> _Run:
    try:
        if "+" in name:
            check_slots(name.partition("+")[2], program.options)
        began = perf_counter()
        scheduler = make_scheduler(name, seed)
        if watch is not None and hasattr(scheduler, "watched"):
            scheduler = scheduler.watched(watch)
        outcome = decide(program, scheduler, noise=noise)
        seconds = perf_counter() - began
        schedule = record_schedule(outcome.program or program, outcome.actions, noise=noise)
    except CannEnvError as error:
        return _Run(failure=str(error))
    makespan_only = program.options.objective is Objective.MAKESPAN and noise is None
    return _Run(
        value_ns=outcome.objective_ns,
        makespan_ns=schedule.makespan_ns,
        proven_ns=getattr(scheduler, "proven_bound_ns", None) if makespan_only else None,
        seconds=seconds,
        violations=len(validate(schedule)),
    )


def _optimum(instance: Instance, bound: int | None, runs: Sequence[_Run]) -> tuple[int | None, str]:
    """The certified optimum and who certifies it: the case, or a bound that some schedule meets."""
    if instance.optimum_ns is not None:
        return instance.optimum_ns, "case"
    proven = max((run.proven_ns for run in runs if run.proven_ns is not None), default=None)
    reached = min((run.value_ns for run in runs if run.value_ns is not None), default=None)
    if bound is not None and bound == reached:
        return bound, "bound"
    if proven is not None and proven == reached:
        return proven, "solver"
    return None, ""


def _below(run: _Run, optimum: int | None) -> int:
    """Nothing is better than an optimum: where something is, one of the two is wrong."""
    return int(run.value_ns is not None and optimum is not None and run.value_ns < optimum)
