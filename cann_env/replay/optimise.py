"""From a recording to a better schedule, and how much of the gain the simulator can vouch for.

The recording is played as it was recorded, which tells how far the simulator is off. Schedulers then start
from the same commands. What they gain is counted against the *simulated* replay, never against the recorded
makespan, and is promised only if it is larger than the simulator's own error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import CommandGraph
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.replay.play import as_recorded, play_streams, replay, side_by_side, unloaded, with_prices
from cann_env.schedulers import run_scheduler
from cann_env.validate import validate
from cann_env.workloads.from_profiler import from_profiler
from cann_env.workloads.recorded_device import device_of
from cann_env.workloads.recorded_role import Dependencies, Durations, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.device.spec import DeviceSpec
    from cann_env.profiles.recording import Recording
    from cann_env.replay.play import Replay
    from cann_env.schedule import Schedule
    from cann_env.schedulers import Watch
    from cann_env.validate import Violation
    from cann_env.workloads.from_profiler import Imported

SCHEDULERS = ("cann_autotune", "reference", "search:2000")
"""Who tries, unless others are named; the first is what CANN itself would choose."""

RECORDED = "as recorded"
"""Stands among the schedulers for the streams and the order of the recording."""

_LEAST_STREAMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How to optimise.

    Attributes:
        schedulers: Names, see :mod:`cann_env.schedulers.registry`.
        streams: Streams they may use; None for as many as were recorded, and at least eight.
        durations, dependencies: See :mod:`cann_env.workloads.from_profiler`.
        submission: None to keep the recorded launch times, before which nothing is submitted; else they are
            dropped, and the host pays for each call (``eager``) or for none (``sink``).
        step: Which step of the recording; None for all of it.
        profiler_gap_ns: See :func:`~cann_env.workloads.from_profiler.from_profiler`.
        seed: Of schedulers that draw.
    """

    schedulers: tuple[str, ...] = SCHEDULERS
    streams: int | None = None
    durations: Durations = Durations.RECORDED
    dependencies: Dependencies = Dependencies.RECORDED
    submission: Submission | None = None
    step: int | None = None
    profiler_gap_ns: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One schedule: who made it, and what the judge found."""

    scheduler: str
    schedule: Schedule
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """What was tried on a recording, and what came of it.

    Attributes:
        replay: The recording played as it was recorded, which tells the simulator's own error.
        imported: What was scheduled, with the dependencies and launch times that were asked for.
        baseline: What gains are counted against, simulated too. It is the replay itself; where dependencies
            are inferred, the recorded streams and order without delays that nothing explains and without
            the profiler's gaps, since what is scheduled has none either.
        attempts: The recorded streams and order first, then by scheduler.
        lower_bound_ns: No schedule of what was scheduled is shorter, as far as the simulator goes.
    """

    replay: Replay
    imported: Imported
    baseline: Schedule
    attempts: tuple[Attempt, ...]
    lower_bound_ns: int

    @property
    def best(self) -> Attempt:
        """The shortest, the first of equals."""
        return min(self.attempts, key=lambda attempt: attempt.schedule.makespan_ns)

    @property
    def gain_ns(self) -> int:
        """How much shorter the best is than the baseline, both simulated; not below 0."""
        return max(0, self.baseline.makespan_ns - self.best.schedule.makespan_ns)

    @property
    def error_ns(self) -> int:
        """How far the simulator is off on this recording.

        The larger of two: the error of the makespan; and what nine of ten starts are within, each counted
        from the last wait for something outside, since such a wait hides errors before it.
        """
        comparison = self.replay.comparison
        off = abs(comparison.simulated_ns - comparison.recorded_ns)
        return max(off, round(comparison.starts_between_waits.p90_ns))

    @property
    def promised(self) -> bool:
        """Whether the gain is larger than the simulator's own error."""
        return self.gain_ns > self.error_ns


def optimise(
    source: Recording,
    device: DeviceSpec,
    asked: Asked,
    *,
    begin: Callable[[str], None] = lambda _: None,
    step: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
) -> Optimised:
    """Play a recording as recorded, then let schedulers do better.

    Args:
        source: What was recorded.
        device: Where to play it.
        asked: How.
        begin: Told what comes next.
        step: Called after the replay and after each scheduler.
        watch: Told how far a scheduler is that improves for as long as it may.

    Raises:
        InputError: Something in the recording cannot be used, or a name is not known.
        EpisodeError: A scheduler did not finish.
    """
    begin(RECORDED)
    recorded = _imported(source, device, asked, Dependencies.RECORDED)
    played = replay(recorded, device)
    inferred = asked.dependencies is Dependencies.INFERRED
    kept = only_tasks(recorded) if inferred else recorded
    baseline = replay(kept, device).schedule if inferred else played.schedule
    first = baseline if asked.submission is None else _in_order(kept, device, asked.submission)
    step()
    imported = _imported(source, device, asked, asked.dependencies) if inferred else recorded
    graph = with_prices(graph_to_schedule(imported), imported, device)
    if asked.submission is not None:
        graph = _without_launches(graph)
    program = compile_graph(graph, device, options_for(played, asked))
    attempts = [_attempt(RECORDED, first)]
    for name in asked.schedulers:
        begin(name)
        attempts.append(_attempt(name, run_scheduler(program, name, seed=asked.seed, watch=watch)))
        step()
    return Optimised(
        replay=played,
        imported=imported,
        baseline=baseline,
        attempts=tuple(attempts),
        lower_bound_ns=program.lower_bound_ns,
    )


def options_for(played: Replay, asked: Asked) -> RunOptions:
    """How schedulers run what was recorded: with streams of their own choice, else as it was replayed."""
    most = played.schedule.device.limits.max_streams
    streams = asked.streams or min(most, max(_LEAST_STREAMS, len(played.imported.streams)))
    return RunOptions(
        streams=streams,
        submission=asked.submission or Submission.SINK,
        commands=max(16, streams),
        prefetches=0,
        l2_prefetches=0,
        l2_bytes=played.schedule.options.l2_bytes,
    )


def graph_to_schedule(imported: Imported) -> CommandGraph:
    """The graph of an import as schedulers get it.

    What was recorded side by side is taken as :func:`~cann_env.replay.play.replay` takes it. All else loads
    the memory, so that kernels which now run beside each other slow each other down.
    """
    shared = side_by_side(imported)
    commands = [
        unloaded(command, alone=False) if i in shared else command
        for i, command in enumerate(imported.graph.commands)
    ]
    return CommandGraph(imported.graph.name, tuple(commands), imported.graph.buffers)


def only_tasks(imported: Imported) -> Imported:
    """An import without delays and gaps of the profiler; what waited for one waits for what it waited for."""
    kept = [i for i, role in enumerate(imported.roles) if role in (Role.WORK, Role.PEER)]
    stands_for: dict[str, dict[str, None]] = {}
    commands = []
    for command, role in zip(imported.graph.commands, imported.roles, strict=True):
        after = {real: None for name in command.after for real in stands_for[name]}
        real = role in (Role.WORK, Role.PEER)
        stands_for[command.name] = {command.name: None} if real else after
        if real:
            commands.append(replace(command, after=tuple(after)))
    return replace(
        imported,
        graph=CommandGraph(imported.graph.name, tuple(commands), imported.graph.buffers),
        tasks=tuple(imported.tasks[i] for i in kept),
        roles=tuple(imported.roles[i] for i in kept),
        starts_ns=tuple(imported.starts_ns[i] for i in kept),
        finishes_ns=tuple(imported.finishes_ns[i] for i in kept),
    )


def _imported(source: Recording, device: DeviceSpec, asked: Asked, dependencies: Dependencies) -> Imported:
    return from_profiler(
        source,
        step=asked.step,
        durations=asked.durations,
        dependencies=dependencies,
        profiler_gap_ns=asked.profiler_gap_ns,
        device=device if device_of(source) is None else None,
    )


def _in_order(imported: Imported, device: DeviceSpec, submission: Submission) -> Schedule:
    """The recorded streams and order, submitted in another way than they were."""
    graph = _without_launches(with_prices(as_recorded(imported), imported, device))
    return play_streams(graph, device, submission=submission)


def _without_launches(graph: CommandGraph) -> CommandGraph:
    """The same commands, all known from the start."""
    commands = tuple(replace(command, release_ns=0) for command in graph.commands)
    return CommandGraph(graph.name, commands, graph.buffers)


def _attempt(name: str, schedule: Schedule) -> Attempt:
    return Attempt(scheduler=name, schedule=schedule, violations=validate(schedule))
