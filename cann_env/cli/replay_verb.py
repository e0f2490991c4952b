"""``cann-env replay``: plays a profile again as it was recorded, and says how far off it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from cann_env.cli import profile_options as given
from cann_env.cli.files import check_folder, check_picture
from cann_env.cli.printing import JUDGED_WRONG, print_json, progress, show_found, show_table
from cann_env.cli.profile_inputs import (
    device_for,
    file_stem,
    import_step,
    open_profile,
    parse_between,
    parse_gap,
    steps_of,
    tasks_outside,
)
from cann_env.cli.replay_json import json_of
from cann_env.cli.replay_spans import Colour, draw_replay
from cann_env.cli.replay_tables import Played, replay_tables, report_table
from cann_env.device import DeviceSpec
from cann_env.profiles.recording import Recording
from cann_env.render.trace import write_trace
from cann_env.replay import device_of, replay
from cann_env.units import InputError
from cann_env.validate import validate
from cann_env.workloads.foreign_device import stands_in
from cann_env.workloads.from_profiler import Dependencies, Durations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Which files to write: named ones, and others unless only named ones are wanted."""

    trace: Path | None
    picture: Path | None
    named_only: bool
    colour: Colour
    between_ns: tuple[int, int] | None


def replay_profile(
    profile: given.ProfilePath,
    device: given.ProfileDevice = None,
    durations: given.HowLong = Durations.RECORDED,
    step: given.Step = None,
    recorded_device: given.RecordedDevice = None,
    dependencies: given.WaitFor = Dependencies.RECORDED,
    profiler_gap: given.ProfilerGap = None,
    picture: given.TwoTimelines = None,
    colour: given.ColourOf = Colour.CLASS,
    between: given.Between = None,
    trace: given.ReplayTrace = None,
    no_files: given.NoReplayFiles = False,
    as_json: given.Json = False,
) -> None:
    """Play a profile again as it was recorded, and print recorded, simulated and error side by side.

    The exit code is 0, 1 if the judge found a violation, 2 if the input cannot be used.
    """
    for path in (trace, picture):
        check_folder(path)
    check_picture("--picture", picture)
    files = _Files(
        trace=trace,
        picture=picture,
        named_only=no_files or as_json,
        colour=colour,
        between_ns=parse_between(between),
    )
    gap_ns = parse_gap(profiler_gap)
    recording = open_profile(profile, recorded_device)
    where = device_for(recording, device)
    steps = steps_of(recording, step)
    played = []
    with progress("Replaying", len(steps), quiet=as_json) as bar:
        for number in steps:
            bar.begin(f"Replaying {recording.name}" if number is None else f"Replaying step {number}")
            imported = import_step(
                recording, number, where, durations=durations, dependencies=dependencies,
                profiler_gap_ns=gap_ns,
            )  # fmt: skip
            again = replay(imported, where)
            played.append(Played(step=number, replay=again, violations=validate(again.schedule)))
            bar.step()
        bar.begin("Drawing")
        lines = _write(recording, where, played, files)
    if as_json:
        head: dict[str, Any] = {"profile": recording.name, "format": recording.format, "device": where.name}
        head |= {"calibrated": where.calibrated, "durations": durations.value}
        print_json({**head, "outside_steps": tasks_outside(recording, steps[0]), **json_of(played)})
    else:
        _show(recording, where, played, durations, lines)
    if any(each.violations for each in played):
        raise typer.Exit(JUDGED_WRONG)


def about_device(device: DeviceSpec, recording: Recording) -> str:
    """What the numbers of a device stand on, and whether it is another one than the recorded one."""
    if stands_in(device):
        what = "no device file describes it; its cores never bind, gaps and links are as recorded"
        return f"{escape(device.title)}: {what}"
    text = f"{device.label}: its numbers are calibrated on recordings of this chip"
    if not device.calibrated:
        text = f"{device.label}: no recording of this chip exists, its numbers are scaled from others"
    if device_of(recording) == device.name:
        return text
    return f"{text}; recorded on {escape(recording.chip or 'a device that is not named')}"


def about_recording(recording: Recording, played: Played) -> str:
    """How much was recorded, and of what kind."""
    compared = played.replay.comparison
    text = (
        f"[bold]{escape(recording.name)}[/bold], {escape(recording.format)}: {len(recording.tasks)} tasks on "
        f"{len(recording.streams)} streams"
    )
    if recording.steps:
        text += f", {len(recording.steps)} {'step' if len(recording.steps) == 1 else 'steps'}"
    outside = tasks_outside(recording, played.step)
    if outside:
        text += f"; left out: {outside} of no step"
    name = "" if played.step is None else f" of {played.name}"
    return (
        f"{text}\nedges between streams{name}: {compared.recorded_edges} by the id of an event; guessed: "
        f"{compared.event_edges} by the time of a record, {compared.rest_edges} by which stream came to rest"
    )


def _show(
    recording: Recording, device: DeviceSpec, played: list[Played], durations: Durations, lines: list[str]
) -> None:
    console = Console(highlight=False)
    console.print(about_recording(recording, played[0]))
    console.print(f"{about_device(device, recording)}; durations {durations.value}")
    for table in replay_tables(played):
        console.print()
        show_table(console, table)
    report = report_table(played[0].replay.imported)
    if report is not None:
        console.print()
        show_table(console, report)
    for each in played:
        show_found(console, each.name, each.violations)
    console.print()
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _write(recording: Recording, device: DeviceSpec, played: list[Played], files: _Files) -> list[str]:
    """Write the trace and the picture of the first step; a line about each."""
    first = played[0]
    stem = file_stem(recording.name, "replay")
    note = "" if len(played) == 1 else f"  ({first.name}; --step N for another)"
    lines = []
    if files.trace is not None or not files.named_only:
        path = write_trace(first.replay.schedule, files.trace or Path(f"{stem}.json"))
        lines.append(f"Timeline  {path}{note}")
    if files.picture is not None or not files.named_only:
        lines.append(_picture(recording, device, first, files, Path(f"{stem}.png")) + note)
    return lines


def _picture(recording: Recording, device: DeviceSpec, first: Played, files: _Files, default: Path) -> str:
    """Draw; where nobody named the file, a missing library is worth a line, not an end."""
    title = f"{recording.name} on {device.label}"
    if first.step is not None:
        title += f", {first.name}"
    path = files.picture or default
    try:
        draw_replay(first.replay, path, title=title, colour=files.colour, between_ns=files.between_ns)
    except InputError as error:
        if files.picture is not None:
            raise
        return f"Picture   left out: {error}"
    return f"Picture   {path}"
