"""Declarations of the options of the command line, shared by its verbs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cann_env.cli import completion
from cann_env.cli.inputs import Request, parse_dims, parse_weights
from cann_env.cli.option_words import parse_settings
from cann_env.cli.results import check_schedulers
from cann_env.cli.suites import ANYTIME, BASELINE
from cann_env.options import Submission, Window
from cann_env.schedulers import ORDERS, PREFETCHERS, SCHEDULERS
from cann_env.suite import suite_names
from cann_env.units import InputError, parse_size_bytes

_MODEL = "Models"
_RUN = "How it runs"
_FILES = "Files"
_SUITE = "Suites"

_INPUT = (
    "A scenario or its .toml file; a profile (a folder or file that a profiler wrote); an .onnx file or a "
    "light model of the onnx package, with --device."
)

_NAMES = (
    f"{', '.join(SCHEDULERS)}; or ORDER+PREFETCHER, e.g. eager+aggressive. Orders: {', '.join(ORDERS)}. "
    f"Prefetchers: {', '.join(PREFETCHERS)}."
)

Input = Annotated[
    str | None,
    typer.Argument(
        help=_INPUT,
        show_default=False,
        autocompletion=completion.scenarios,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        help=_INPUT,
        show_default=False,
        autocompletion=completion.scenarios,
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="NAME",
        help="A scenario, instead of INPUT.",
        autocompletion=completion.scenarios,
    ),
]
ScenarioNames = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        metavar="NAME",
        help="One more scenario; may be repeated.",
        autocompletion=completion.scenarios,
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"One of {_NAMES}",
        autocompletion=completion.schedulers,
    ),
]
Schedulers = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help=f"Schedulers, with commas between them, or 'all'; each one of {_NAMES}",
        autocompletion=completion.scheduler_lists,
    ),
]
Policies = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="A trained policy, which takes part by its file's name: NAME decides greedily, NAME:64 takes "
        "the best of 64 samples, NAME:search=2000 searches on from them. Needs a checkout.",
        show_default=False,
    ),
]
Instances = Annotated[
    int | None,
    typer.Option(min=1, help="Instances of each scenario.", show_default="1"),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Device to run on, or the path of a device file.",
        autocompletion=completion.devices,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the instance and of schedulers that draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

Batch = Annotated[
    int | None, typer.Option(min=1, help="Size of the batch dimension.", rich_help_panel=_MODEL)
]
Dtype = Annotated[
    str | None, typer.Option(metavar="TYPE", help="Type to compute in.", rich_help_panel=_MODEL)
]
Dims = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A dynamic dimension; may be repeated.", rich_help_panel=_MODEL),
]
Fallback = Annotated[
    bool,
    typer.Option("--fallback", help="Count unknown operators as moving their bytes.", rich_help_panel=_MODEL),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="host|hbm", help="Where the weights lie at the start.", rich_help_panel=_MODEL),
]

Streams = Annotated[int | None, typer.Option(min=1, help="Streams to use.", rich_help_panel=_RUN)]
HowSubmitted = Annotated[
    Submission | None,
    typer.Option("--submission", help="Command by command, or the whole graph.", rich_help_panel=_RUN),
]
HowChosen = Annotated[
    Window | None,
    typer.Option("--window", help="Commands that may be chosen from.", rich_help_panel=_RUN),
]
Prefetches = Annotated[
    int | None,
    typer.Option(min=0, help="Slots of the prefetch window; 0: no prefetching.", rich_help_panel=_RUN),
]
Hbm = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help='Device memory, e.g. "32 GiB".', rich_help_panel=_RUN),
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any option of a scenario file, e.g. run_ahead=32; may be repeated.",
        autocompletion=completion.settings,
        rich_help_panel=_RUN,
    ),
]

TracePath = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="Perfetto trace to write; NAME_ascend_pt: a profiler's folder for MindStudio Insight.",
        rich_help_panel=_FILES,
    ),
]
GanttPath = Annotated[
    Path | None,
    typer.Option("--gantt", help="Picture to write (.png, .svg or .pdf).", rich_help_panel=_FILES),
]
NoFiles = Annotated[
    bool,
    typer.Option("--no-files", help="Write only the files that are named.", rich_help_panel=_FILES),
]


def request(
    *,
    device: str | None,
    seed: int,
    dims: list[str] | None,
    weights: str | None,
    hbm: str | None,
    settings: list[str] | None,
    options: dict[str, Any],
    model: dict[str, Any],
) -> Request:
    """Collect what was given; what is None was not.

    Raises:
        InputError: A dimension, a level, a size or an option cannot be read, or an option was given twice.
    """
    sized = {**options, "hbm_bytes": None if hbm is None else parse_size_bytes(hbm)}
    for key, value in parse_settings(settings or []).items():
        if sized.get(key) is not None:
            raise InputError(f"--set {key} is given beside the option that sets the same; leave one out")
        sized[key] = value
    placed = None if weights is None else parse_weights(weights)
    shaped = {**model, "dims": parse_dims(dims) if dims else None, "weights": placed}
    return Request(device=device, seed=seed, options=_given(sized), model=_given(shaped))


def only(verb: str, input: str | None, scenario: str | None) -> str:
    """The one case that a verb takes, given as INPUT or as ``--scenario``.

    Raises:
        InputError: Neither or both were given.
    """
    names = [name for name in (input, scenario) if name is not None]
    if len(names) != 1:
        raise InputError(f"{verb} takes one INPUT or one --scenario; got {len(names)}")
    return names[0]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


SuiteName = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="NAME",
        help=f"A suite ({', '.join(suite_names())}) or its .toml file, instead of INPUT and --scenario.",
        autocompletion=completion.suites,
        rich_help_panel=_SUITE,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Scheduler that others are set against.",
        autocompletion=completion.schedulers,
        show_default=BASELINE,
        rich_help_panel=_SUITE,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help=f"Time on each case for those that improve for as long as they may ({', '.join(ANYTIME)}).",
        show_default=False,
        rich_help_panel=_SUITE,
    ),
]
Jobs = Annotated[
    int, typer.Option(min=1, help="Cases that run at once, each in a process.", rich_help_panel=_SUITE)
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Folder of problems that are not shipped, such as j30.tar.gz of PSPLIB, or one such archive.",
        show_default=False,
        rich_help_panel=_SUITE,
    ),
]
CsvPath = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        help="Rows to write, one for each case and scheduler; until all are there in FILE.partial.",
        show_default=False,
        rich_help_panel=_SUITE,
    ),
]
PicturePath = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        help="Picture to write (.png, .svg or .pdf).",
        show_default=False,
        rich_help_panel=_SUITE,
    ),
]


def scheduler_names(words: str) -> tuple[str, ...]:
    """Read ``a,b,c``, or ``all``; a name that comes twice counts once.

    Raises:
        InputError: A name is not known.
    """
    names = SCHEDULERS if words.strip() == "all" else [name.strip() for name in words.split(",")]
    check_schedulers(list(names))
    return tuple(dict.fromkeys(names))


def check_alone(option: str, names: list[str], instances: int | None, asked: Request) -> None:
    """Refuse what a suite says itself.

    Raises:
        InputError: Names what was given beside the suite.
    """
    given = [*names, *(f"--{key}" for key in (*asked.options, *asked.model))]
    given += ["--instances"] if instances is not None else []
    given += ["--device"] if asked.device is not None else []
    if given:
        raise InputError(f"{option} says itself what is run, and how; leave out {', '.join(given)}")


def check_none(**options: Any) -> None:
    """Refuse what only a suite can use.

    Raises:
        InputError: Names the options.
    """
    given = ", ".join(f"--{key}" for key, value in options.items() if value is not None)
    if given:
        raise InputError(f"{given} is for suites; write --suite NAME, or leave it out")
