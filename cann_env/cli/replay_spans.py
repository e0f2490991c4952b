"""Joins recordings and replays to the picture of two timelines: tasks and commands become spans."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from cann_env.graph import CommandKind, CopyKind
from cann_env.profiles.recording import TaskKind
from cann_env.render.two_timelines import OTHERS, Side, Span, StartError, two_timelines
from cann_env.units import format_time
from cann_env.workloads.from_profiler import Role

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.replay import Replay
    from cann_env.replay.optimise import Optimised
    from cann_env.schedule import Schedule
    from cann_env.workloads.from_profiler import Imported

PROFILER: Final = "profiler"

_COPIES = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_RECORDED = (Role.WORK, Role.PEER)


class Colour(enum.StrEnum):
    """What the colour of a bar tells: its class of work, or the type of its operator."""

    CLASS = "class"
    OPERATOR = "operator"


def draw_replay(
    played: Replay,
    path: Path,
    *,
    title: str,
    colour: Colour = Colour.CLASS,
    between_ns: tuple[int, int] | None = None,
) -> None:
    """Draw the recording above its replay.

    Raises:
        InputError: Matplotlib is missing, or the file cannot be written.
    """
    comparison = played.comparison
    starts = comparison.starts_between_waits
    two_timelines(
        Side(f"recorded, {format_time(comparison.recorded_ns)}", recorded_spans(played.imported, colour)),
        Side(f"simulated, {format_time(comparison.simulated_ns)}", simulated_spans(played, colour)),
        start_errors(played, colour),
        path,
        title=title,
        subtitle=f"makespan {comparison.error:+.2%}, start error between external waits: median "
        f"{format_time(starts.median_ns)}, nine of ten within {format_time(starts.p90_ns)}",
        between_ns=between_ns,
    )


def draw_attempt(found: Optimised, path: Path, *, title: str, colour: Colour = Colour.CLASS) -> None:
    """Draw the simulated baseline above the best schedule, each with its own streams.

    Raises:
        InputError: Matplotlib is missing, or the file cannot be written.
    """
    best, imported = found.best, found.imported
    before, after = _by_name(found.baseline), _by_name(best.schedule)
    shifts = [
        StartError(before[name][0], after[name][0] - before[name][0], _group(imported, i, colour))
        for i, name in enumerate(command.name for command in imported.graph.commands)
        if imported.roles[i] in _RECORDED
    ]
    two_timelines(
        Side(
            f"replay, {format_time(found.baseline.makespan_ns)}", _of_schedule(found.baseline, found, colour)
        ),
        Side(
            f"{best.scheduler}, {format_time(best.schedule.makespan_ns)}",
            _of_schedule(best.schedule, found, colour),
        ),
        shifts,
        path,
        title=title,
        subtitle=f"both simulated; {format_time(found.gain_ns)} shorter, the simulator's own error is "
        f"{format_time(found.error_ns)}",
        strip="start, below less above",
        shared_rows=False,
    )


def _by_name(schedule: Schedule) -> dict[str, tuple[int, int]]:
    commands = schedule.graph.commands
    return {commands[run.command].name: (run.start_ns, run.finish_ns) for run in schedule.commands}


def _of_schedule(schedule: Schedule, found: Optimised, colour: Colour) -> list[Span]:
    """Spans on the schedule's own streams; those of the recording have their recorded numbers."""
    imported = found.imported
    recorded = schedule is found.baseline
    spans = []
    for run in schedule.commands:
        span = _span(imported, run.command, run.start_ns, run.finish_ns, colour)
        spans.append(span if recorded else span._replace(stream=run.stream))
    return [span for span in spans if span.group != PROFILER]


def recorded_spans(imported: Imported, colour: Colour) -> list[Span]:
    """Tasks as they were recorded, and the delays that no task stands for, from the first start."""
    times = zip(imported.starts_ns, imported.finishes_ns, strict=True)
    spans = [_span(imported, i, start, finish, colour) for i, (start, finish) in enumerate(times)]
    return [span for span in spans if span.group != PROFILER]


def simulated_spans(played: Replay, colour: Colour) -> list[Span]:
    """Commands as they ran in the replay, on the streams that they were recorded on."""
    origin = _first_start_ns(played)
    spans = [
        _span(played.imported, run.command, run.start_ns - origin, run.finish_ns - origin, colour)
        for run in played.schedule.commands
    ]
    return [span for span in spans if span.group != PROFILER]


def start_errors(played: Replay, colour: Colour) -> list[StartError]:
    """How much later each task starts in the replay than in the recording, both from their first start."""
    imported, origin = played.imported, _first_start_ns(played)
    errors = []
    for run in played.schedule.commands:
        if imported.roles[run.command] in _RECORDED:
            at = imported.starts_ns[run.command]
            late = run.start_ns - origin - at
            errors.append(StartError(at, late, _group(imported, run.command, colour)))
    return errors


def _first_start_ns(played: Replay) -> int:
    roles = played.imported.roles
    return min(run.start_ns for run in played.schedule.commands if roles[run.command] in _RECORDED)


def _span(imported: Imported, i: int, start_ns: int, finish_ns: int, colour: Colour) -> Span:
    task = imported.recording.tasks[imported.tasks[i]]
    external = imported.roles[i] is Role.DELAY or task.kind is TaskKind.PEER_WAIT
    return Span(task.stream, start_ns, finish_ns, _group(imported, i, colour), external=external)


def _group(imported: Imported, i: int, colour: Colour) -> str:
    command, task = imported.graph.commands[i], imported.recording.tasks[imported.tasks[i]]
    if imported.roles[i] is Role.PROFILER:
        return PROFILER
    if command.kind is CommandKind.COPY:
        return _COPIES[command.copy] if command.copy is not None else OTHERS
    if command.kind is CommandKind.KERNEL:
        if colour is Colour.OPERATOR:
            return task.op or OTHERS
        return command.kernels[0].kernel_class.value
    if imported.roles[i] is Role.PEER:
        return "hcom"
    return "callback" if command.kind is CommandKind.CALLBACK else OTHERS
