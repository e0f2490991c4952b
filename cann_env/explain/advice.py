"""What to try: changes that the explanation gives reason for, each simulated, and kept only if it gains.

A change is another scheduler, other options of the run, or both. It is held against the schedule that was
explained and, where only options change, against the same scheduler without the change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.options import Submission
from cann_env.program import compile_graph
from cann_env.schedulers import run_scheduler
from cann_env.units import CannEnvError
from cann_env.waiting import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cann_env.explain.explanation import Explanation
    from cann_env.options import RunOptions
    from cann_env.schedule import Schedule

TRIALS = 12
"""Simulations unless said otherwise."""

LEAST_GAIN = 0.001
"""A change that gains less of the makespan is not suggested."""

_RELEVANT = 0.02
"""Share of the chain from which a part is a reason to change something."""

_FALLBACK = "reference"
"""Who decides where it is not known who did."""

_SCHEDULERS = ("reference", "per_engine", "cann_autotune", "search:2000")
_PREFETCHING = ("eager+aggressive", "eager+look_ahead_4")


class Trial(NamedTuple):
    """A change to try.

    Attributes:
        why: The share of the chain that gives reason for it.
        what: The change in words.
        scheduler: Who decides.
        changes: Options to replace.
    """

    why: float
    what: str
    scheduler: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change that was simulated and gains.

    Attributes:
        what: The change in words.
        scheduler: Who decides.
        options: Options that are replaced; empty where only the scheduler changes.
        makespan_ns: With it.
        gain: Part of the makespan that it saves.
    """

    what: str
    scheduler: str
    options: Mapping[str, Any]
    makespan_ns: int
    gain: float


def trials(schedule: Schedule, about: Explanation, scheduler: str | None) -> list[Trial]:
    """Changes that an explanation gives reason for: schedulers first, then by the share that is the reason.

    Args:
        schedule: What was explained.
        about: Its explanation.
        scheduler: Who made it; None if that is not known.
    """
    who = scheduler or _FALLBACK
    others = [
        Trial(1.0, f"let {name} schedule it", name, {})
        for name in _SCHEDULERS
        if scheduler is None or name.partition(":")[0] != scheduler.partition(":")[0]
    ]
    found = [trial for trial in _changes(schedule, about, who) if trial.why >= _RELEVANT]
    found.sort(key=lambda trial: -trial.why)
    return [*others[:2], *found, *others[2:]]


def _changes(schedule: Schedule, about: Explanation, who: str) -> Iterator[Trial]:
    options = schedule.options
    queued = about.share(Part.QUEUE, Part.HELD, Part.LINK)
    streams = min(2 * options.streams, schedule.device.limits.max_streams)
    if streams > options.streams and not (options.stream_priorities or options.stream_dies):
        words = f"use {streams} streams instead of {options.streams}"
        yield Trial(queued, words, who, {"streams": streams})
    limit = options.in_flight_limit
    words = f"let {2 * limit} commands be in flight instead of {limit}"
    yield Trial(about.share(Part.HELD, Part.QUEUE), words, who, {"run_ahead": 2 * limit})
    if options.submission is Submission.EAGER:
        words = "hand the whole graph over beforehand (graph mode) instead of command by command"
        yield Trial(about.share(Part.HOST), words, who, {"submission": Submission.SINK})
    if options.streams > 1 and not (options.stream_priorities or options.stream_dies):
        half = options.streams // 2
        words = f"use {half} streams instead of {options.streams}"
        yield Trial(about.share(Part.EVENT, Part.SLOT), words, who, {"streams": half})
    yield from _memory_changes(options, about.share(Part.MEMORY), who)


def _memory_changes(options: RunOptions, why: float, who: str) -> Iterator[Trial]:
    slots = {} if options.prefetches else {"prefetches": 4}
    for name in _PREFETCHING:
        if name != who:
            yield Trial(why, f"prefetch earlier: let {name} decide", name, slots)
    streams = 2 * options.prefetch_streams
    words = f"let {streams} prefetches move at once instead of {options.prefetch_streams}"
    yield Trial(why, words, who, {"prefetch_streams": streams})
    if options.memory_factor is not None:
        more = 2 * options.memory_factor
        words = f"give it more memory: memory_factor {more:g} instead of {options.memory_factor:g}"
        yield Trial(why, words, who, {"memory_factor": more})
    if options.hbm_bytes is not None:
        yield Trial(why, "give it twice the memory", who, {"hbm_bytes": 2 * options.hbm_bytes})


def advise(
    schedule: Schedule,
    about: Explanation,
    scheduler: str | None,
    *,
    seed: int = 0,
    most: int = TRIALS,
    begin: Callable[[str], None] = lambda _: None,
    step: Callable[[], None] = lambda: None,
) -> tuple[Suggestion, ...]:
    """Simulate what there is reason to try, and keep what gains.

    Args:
        schedule: What was explained.
        about: Its explanation.
        scheduler: Who made it; None if that is not known, which costs one simulation more.
        seed: Of schedulers that draw.
        most: Simulations, at most.
        begin: Told what is simulated next.
        step: Called after each simulation.

    Returns:
        The changes that save at least :data:`LEAST_GAIN` of the makespan, the largest gain first.
    """
    unchanged: dict[str, int] = {} if scheduler is None else {scheduler: schedule.makespan_ns}
    found = []
    for trial in trials(schedule, about, scheduler)[:most]:
        begin(trial.what)
        makespan = _simulated(schedule, trial, seed)
        step()
        if makespan is None:
            continue
        best = schedule.makespan_ns
        if trial.changes:
            best = min(best, unchanged.get(trial.scheduler, best))
        else:
            unchanged[trial.scheduler] = makespan
        if makespan <= best * (1 - LEAST_GAIN):
            gain = 1 - makespan / schedule.makespan_ns
            found.append(
                Suggestion(
                    what=trial.what,
                    scheduler=trial.scheduler,
                    options=dict(trial.changes),
                    makespan_ns=makespan,
                    gain=gain,
                )
            )
    return tuple(sorted(found, key=lambda each: -each.gain))


def _simulated(schedule: Schedule, trial: Trial, seed: int) -> int | None:
    """The makespan with a change and the same noise; None where the device or the scheduler refuses it."""
    try:
        options = replace(schedule.options, **trial.changes)
        program = compile_graph(schedule.graph, schedule.device, options)
        noise = np.asarray(schedule.noise, np.int64)
        return run_scheduler(program, trial.scheduler, seed=seed, noise=noise).makespan_ns
    except CannEnvError:
        return None
