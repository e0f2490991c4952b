"""Declarations of the options of the verbs that read profiles."""

from pathlib import Path
from typing import Annotated

import typer

from cann_env.cli import completion
from cann_env.cli.options import Json, Seed
from cann_env.cli.replay_spans import Colour
from cann_env.options import Submission
from cann_env.replay.optimise import SCHEDULERS
from cann_env.workloads.from_profiler import Dependencies, Durations

__all__ = [
    "Between",
    "ColourOf",
    "HowLaunched",
    "HowLong",
    "Json",
    "NoReplayFiles",
    "PlanPath",
    "ProfileDevice",
    "ProfilePath",
    "ProfileSchedulers",
    "ProfileStreams",
    "ProfilerGap",
    "RecordedDevice",
    "ReplayTrace",
    "SearchFor",
    "Seed",
    "Step",
    "TwoTimelines",
    "WaitFor",
]

_READING = "What is read"
_FILES = "Files"

ProfilePath = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A profile: the folder that a profiler wrote, or one of its .csv, .json, .json.gz, .db files.",
        show_default=False,
    ),
]
ProfileDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device to play it on, or the path of a device file; else the one it was recorded on.",
        autocompletion=completion.devices,
        show_default=False,
    ),
]
HowLong = Annotated[
    Durations,
    typer.Option("--durations", help="Lengths of kernels: as recorded, or by the cost model."),
]
Step = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="One step of the recording.", show_default=False, rich_help_panel=_READING
    ),
]
RecordedDevice = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Which device of the recording, where there are several.",
        show_default=False,
        rich_help_panel=_READING,
    ),
]
WaitFor = Annotated[
    Dependencies,
    typer.Option(
        "--dependencies",
        help="What commands wait for: order of streams and events, as recorded; or whoever wrote a tensor "
        "like theirs, which is a guess.",
        rich_help_panel=_READING,
    ),
]
ProfilerGap = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help='Idle time that the profiler puts behind kernels, e.g. "88us"; else it is found out.',
        show_default=False,
        rich_help_panel=_READING,
    ),
]
TwoTimelines = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        help="Picture of both timelines to write (.png, .svg or .pdf).",
        show_default=False,
        rich_help_panel=_FILES,
    ),
]
ColourOf = Annotated[
    Colour,
    typer.Option("--colour", help="What colours tell in the picture.", rich_help_panel=_FILES),
]
Between = Annotated[
    str | None,
    typer.Option(
        metavar="FROM..TO",
        help="The part that the picture shows, e.g. 10ms..20ms.",
        show_default=False,
        rich_help_panel=_FILES,
    ),
]
ReplayTrace = Annotated[
    Path | None,
    typer.Option("--trace", help="Perfetto trace to write.", show_default=False, rich_help_panel=_FILES),
]
NoReplayFiles = Annotated[
    bool,
    typer.Option("--no-files", help="Write only the files that are named.", rich_help_panel=_FILES),
]
ProfileSchedulers = Annotated[
    str,
    typer.Option(
        "--schedulers",
        metavar="NAMES",
        help="Schedulers, with commas between them.",
        autocompletion=completion.scheduler_lists,
    ),
]
SearchFor = Annotated[
    int | None,
    typer.Option("--search", min=0, metavar="N", help="Let the search try N schedules.", show_default=False),
]
ProfileStreams = Annotated[
    int | None,
    typer.Option("--streams", min=1, help="Streams to use.", show_default="as recorded, at least 8"),
]
HowLaunched = Annotated[
    Submission | None,
    typer.Option(
        "--submission",
        help="Drop the recorded launch times: the host pays for each call (eager), or for none (sink).",
        show_default=False,
    ),
]
PlanPath = Annotated[
    Path | None,
    typer.Option("--plan", help="Plan to write (.json).", show_default=False, rich_help_panel=_FILES),
]
DEFAULT_SCHEDULERS = ",".join(SCHEDULERS)
