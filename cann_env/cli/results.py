"""Runs a scheduler on a case and boils the schedule down to one row of figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cann_env.envs.instances import InstanceKey, realised
from cann_env.metrics import Metrics, metrics
from cann_env.program import compile_graph
from cann_env.schedulers import check_scheduler, run_scheduler
from cann_env.units import InputError
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.cli.inputs import Case
    from cann_env.schedule import Schedule
    from cann_env.schedulers import Watch
    from cann_env.validate import Violation

BASELINE = "single_stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One scheduler on one instance.

    Attributes:
        case: Name of the case.
        scheduler: Name of the scheduler.
        instance: Which instance, from 0.
        baseline_ns: Makespan of a single stream on the same instance; None if it was not run.
        schedule: What came out.
        metrics: Its figures.
        violations: What the judge found.
    """

    case: str
    scheduler: str
    instance: int
    baseline_ns: int | None
    schedule: Schedule
    metrics: Metrics
    violations: tuple[Violation, ...]


def check_schedulers(names: Sequence[str]) -> None:
    """Refuse names of schedulers that are not known.

    Raises:
        InputError: Names the unknown one and lists the known ones.
    """
    for name in names:
        check_scheduler(name)


def run_case(
    case: Case,
    schedulers: Sequence[str],
    *,
    instances: int = 1,
    seed: int = 0,
    baseline: bool = True,
    step: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
) -> list[Result]:
    """Run schedulers on instances of a case, on the same engine and against the same bound.

    Args:
        case: What to run.
        schedulers: Names, in the order of the results within an instance.
        instances: How many, at least 1.
        seed: Seed of schedulers that draw.
        baseline: Also run a single stream, to compare with.
        step: Called after each scheduler's run.
        watch: Told how far a scheduler is that improves for as long as it may.

    Raises:
        InputError: A name is not known, its prefetcher has no slots, or there are not as many instances.
        AclError: The device refuses the program.
    """
    check_schedulers(schedulers)
    if case.instances is not None and instances > case.instances:
        raise InputError(
            f"--instances is {instances}; {case.name!r} has {case.instances}, all others would be equal to it"
        )
    results = []
    for instance in range(instances):
        program = compile_graph(case.graph(instance), case.device, case.options)
        noise = realised(program, InstanceKey(seed, 0, instance))
        names = dict.fromkeys([*([BASELINE] if baseline else []), *schedulers])
        schedules = {}
        for name in names:
            schedules[name] = run_scheduler(program, name, seed=seed, noise=noise, watch=watch)
            step()
        single = schedules[BASELINE].makespan_ns if BASELINE in schedules else None
        results += [_result(case, name, instance, single, schedules[name]) for name in schedulers]
    return results


def _result(case: Case, scheduler: str, instance: int, single: int | None, schedule: Schedule) -> Result:
    return Result(
        case=case.name,
        scheduler=scheduler,
        instance=instance,
        baseline_ns=single,
        schedule=schedule,
        metrics=metrics(schedule),
        violations=validate(schedule),
    )


def row_of(result: Result) -> dict[str, Any]:
    """One row of ``--json``: names, nanoseconds, bytes and fractions, nothing that JSON cannot hold."""
    schedule, figures = result.schedule, result.metrics
    return {
        "input": result.case,
        "device": schedule.device.name,
        "calibrated": schedule.device.calibrated,
        "scheduler": result.scheduler,
        "instance": result.instance,
        "commands": len(schedule.commands),
        "makespan_ns": figures.makespan_ns,
        "lower_bound_ns": figures.lower_bound_ns,
        "gap": figures.gap,
        "ratio_to_single_stream": None
        if result.baseline_ns is None
        else schedule.makespan_ns / result.baseline_ns,
        "utilisation": figures.utilisation,
        "link_utilisation": figures.link_utilisation,
        "ai_core_busy": figures.ai_core_busy,
        "peak_hbm_bytes": figures.peak_hbm_bytes,
        "stall_ns": figures.stall_ns,
        "requests": len(figures.latency_ns),
        "latency_mean_ns": figures.latency_mean_ns,
        "latency_p90_ns": figures.latency_p90_ns,
        "valid": not result.violations,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One scheduler over all instances of a case.

    Attributes:
        scheduler: Its name.
        makespan_ns: Geometric mean.
        ratio: Geometric mean of makespan over that of a single stream.
        gap: Geometric mean of makespan over bound, minus 1.
        ai_core_busy: Mean fraction of the time in which some AI core works.
        utilisation: Mean by pool.
        link_utilisation: Mean by link.
        peak_hbm_bytes: Highest.
        stall_ns: Mean by cause.
        requests: Requests of an instance.
        latency_mean_ns: Geometric mean over instances of the mean over requests.
        latency_p90_ns: The same for the time in which nine of ten are done.
        violations: All that the judge found.
    """

    scheduler: str
    makespan_ns: float
    ratio: float
    gap: float
    ai_core_busy: float
    utilisation: dict[str, float]
    link_utilisation: dict[str, float]
    peak_hbm_bytes: int
    stall_ns: dict[str, float]
    requests: int
    latency_mean_ns: float
    latency_p90_ns: float
    violations: tuple[Violation, ...]


def summarise(results: Sequence[Result]) -> list[Summary]:
    """Summaries by scheduler, in order of first appearance; all results are of one case, with baseline."""
    names = dict.fromkeys(result.scheduler for result in results)
    return [_summary([result for result in results if result.scheduler == name]) for name in names]


def _summary(results: list[Result]) -> Summary:
    rows = [row_of(result) for result in results]
    return Summary(
        scheduler=results[0].scheduler,
        makespan_ns=geometric_mean([row["makespan_ns"] for row in rows]),
        ratio=geometric_mean([row["ratio_to_single_stream"] for row in rows]),
        gap=geometric_mean([row["makespan_ns"] / row["lower_bound_ns"] for row in rows]) - 1,
        ai_core_busy=_mean([row["ai_core_busy"] for row in rows]),
        utilisation=_mean_by_key([row["utilisation"] for row in rows]),
        link_utilisation=_mean_by_key([row["link_utilisation"] for row in rows]),
        peak_hbm_bytes=max(row["peak_hbm_bytes"] for row in rows),
        stall_ns=_mean_by_key([row["stall_ns"] for row in rows]),
        requests=max(row["requests"] for row in rows),
        latency_mean_ns=geometric_mean([row["latency_mean_ns"] for row in rows]),
        latency_p90_ns=geometric_mean([row["latency_p90_ns"] for row in rows]),
        violations=tuple(violation for result in results for violation in result.violations),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers; 0 if one of them is 0."""
    if min(values) <= 0:
        return 0.0
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_by_key(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: _mean([row[key] for row in rows]) for key in rows[0]}
