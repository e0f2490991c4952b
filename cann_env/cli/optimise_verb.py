"""``cann-env optimise``: from a profile to a better schedule, and whether its gain can be promised."""

from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from cann_env.cli import profile_options as given
from cann_env.cli.files import check_folder, check_picture
from cann_env.cli.optimise_tables import (
    attempt_table,
    baseline_lines,
    json_of,
    limit_table,
    promise,
    source_of,
)
from cann_env.cli.options import scheduler_names
from cann_env.cli.printing import JUDGED_WRONG, print_json, progress, show_found, show_table
from cann_env.cli.profile_inputs import (
    device_for,
    open_profile,
    parse_gap,
    step_lengths,
    steps_of,
    typical_step,
)
from cann_env.cli.replay_spans import draw_attempt
from cann_env.cli.replay_tables import Played
from cann_env.cli.replay_verb import about_device, about_recording
from cann_env.device import DeviceSpec
from cann_env.profiles.recording import Recording
from cann_env.render.trace import write_trace
from cann_env.replay.optimise import Asked, Optimised, optimise
from cann_env.replay.plan_file import write_plan
from cann_env.units import format_time
from cann_env.workloads.from_profiler import Dependencies, Durations


class _Files(NamedTuple):
    """Where to write; None for nowhere."""

    plan: Path | None
    trace: Path | None
    picture: Path | None


def optimise_profile(
    profile: given.ProfilePath,
    device: given.ProfileDevice = None,
    schedulers: given.ProfileSchedulers = given.DEFAULT_SCHEDULERS,
    search: given.SearchFor = None,
    streams: given.ProfileStreams = None,
    durations: given.HowLong = Durations.RECORDED,
    submission: given.HowLaunched = None,
    seed: given.Seed = 0,
    step: given.Step = None,
    recorded_device: given.RecordedDevice = None,
    dependencies: given.WaitFor = Dependencies.RECORDED,
    profiler_gap: given.ProfilerGap = None,
    plan: given.PlanPath = None,
    trace: given.ReplayTrace = None,
    picture: given.TwoTimelines = None,
    as_json: given.Json = False,
) -> None:
    """Look for a better schedule of a profile; print its gain beside the simulator's own error.

    Of several steps the one of median length is taken. The gain is that over the simulated replay, and is
    promised only if it is larger than the error. The exit code is 0, 1 if the judge found a violation, 2 if
    the input cannot be used.
    """
    for path in (plan, trace, picture):
        check_folder(path)
    check_picture("--picture", picture)
    names = [*scheduler_names(schedulers)]
    if search is not None:
        names = [*(name for name in names if name.partition(":")[0] != "search"), f"search:{search}"]
    gap_ns = parse_gap(profiler_gap)
    recording = open_profile(profile, recorded_device)
    where = device_for(recording, device)
    asked = Asked(
        schedulers=tuple(names),
        streams=streams,
        durations=durations,
        dependencies=dependencies,
        submission=submission,
        step=typical_step(recording) if step is None else steps_of(recording, step)[0],
        profiler_gap_ns=gap_ns,
        seed=seed,
    )
    with progress("Scheduling", 1 + len(names), quiet=as_json) as bar:
        found = optimise(recording, where, asked, begin=bar.begin, step=bar.step, watch=bar.watch)
    title = f"{recording.name} on {where.label}" + ("" if asked.step is None else f", step {asked.step}")
    lines = _write(found, _Files(plan, trace, picture), title, source_of(recording.name, found, asked))
    if as_json:
        head = {"profile": recording.name, "device": where.name, "calibrated": where.calibrated}
        print_json({**head, **json_of(found, asked)})
    else:
        _show(recording, where, found, asked, lines)
    if any(attempt.violations for attempt in found.attempts):
        raise typer.Exit(JUDGED_WRONG)


def _show(recording: Recording, device: DeviceSpec, found: Optimised, asked: Asked, lines: list[str]) -> None:
    console = Console(highlight=False)
    console.print(about_recording(recording, Played(step=asked.step, replay=found.replay, violations=())))
    console.print(about_device(device, recording))
    if asked.step is not None and len(recording.steps) > 1:
        shortest, longest = step_lengths(recording)
        console.print(
            f"step {asked.step} of {len(recording.steps)}, which take {format_time(shortest)} to "
            f"{format_time(longest)}"
        )
    for line in baseline_lines(found, asked):
        console.print(line)
    console.print()
    show_table(console, attempt_table(found))
    console.print()
    console.print(promise(found, guessed=asked.dependencies is Dependencies.INFERRED))
    console.print()
    show_table(console, limit_table(found))
    for attempt in found.attempts:
        show_found(console, attempt.scheduler, attempt.violations)
    if lines:
        console.print()
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _write(found: Optimised, files: _Files, title: str, source: dict[str, Any]) -> list[str]:
    """Write what was asked for of the best schedule; a line about each file."""
    best, lines = found.best, []
    if files.plan is not None:
        path = write_plan(best.schedule, files.plan, found.imported.streams, found.imported.roles, source)
        lines.append(f"Plan      {path}")
    if files.trace is not None:
        path = write_trace(best.schedule, files.trace)
        lines.append(f"Timeline  {path}  (open in https://ui.perfetto.dev or MindStudio Insight)")
    if files.picture is not None:
        draw_attempt(found, files.picture, title=title)
        lines.append(f"Picture   {files.picture}")
    return lines
