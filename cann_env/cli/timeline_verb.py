"""``cann-env timeline``: an interactive timeline of a schedule, as an HTML file or from a small server."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cann_env.cli import options as given
from cann_env.cli.files import check_folder
from cann_env.cli.inputs import Request, open_case
from cann_env.cli.printing import print_json, progress, reading
from cann_env.cli.results import check_schedulers, run_case
from cann_env.render.timeline import TimelineServer, document, write_html
from cann_env.replay.own_trace import carries_archive, read_trace
from cann_env.schedule import Schedule
from cann_env.schedulers import is_scheduler
from cann_env.units import InputError, format_time

_USUAL = "reference"

Source = Annotated[
    str | None,
    typer.Argument(
        help="A scenario or its .toml file; a profile; an .onnx file or a light model, with --device; or a "
        "schedule that `cann-env run --trace` wrote.",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="OTHER",
        help="Show another schedule below it: by another scheduler, or of another source.",
        show_default=False,
    ),
]
How = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who schedules, see `cann-env run --help`.", show_default=_USUAL),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        help="HTML file to write.",
        show_default="<source>-<scheduler>.html",
        rich_help_panel="Output",
    ),
]
Serve = Annotated[
    bool,
    typer.Option(
        "--serve",
        help="Serve the page to this machine, so that 'what if' can be asked; no file unless it is named.",
        rich_help_panel="Output",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, help="With --serve: where to listen.", show_default="any", rich_help_panel="Output"
    ),
]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A schedule, what it is one of, and who made it (empty where a file does not say)."""

    schedule: Schedule
    source: str
    scheduler: str

    @property
    def label(self) -> str:
        """What the page calls it."""
        return self.scheduler or self.source


def timeline(
    source: Source = None,
    scenario: given.ScenarioName = None,
    scheduler: How = None,
    against: Against = None,
    out: Out = None,
    serve: Serve = False,
    port: Port = None,
    device: given.Device = None,
    seed: given.Seed = 0,
    as_json: given.Json = False,
    batch: given.Batch = None,
    dtype: given.Dtype = None,
    dims: given.Dims = None,
    fallback: given.Fallback = False,
    weights: given.Weights = None,
    streams: given.Streams = None,
    submission: given.HowSubmitted = None,
    window: given.HowChosen = None,
    prefetches: given.Prefetches = None,
    hbm: given.Hbm = None,
    settings: given.Settings = None,
) -> None:
    """Write an interactive timeline: zoom, facts of each command, the critical path, two schedules compared.

    With --serve, commands and prefetches can be dragged, and the engine plays the schedule again.
    The exit code is 0, or 2 if the input cannot be used.
    """
    name = given.only("timeline", source, scenario)
    check_folder(out)
    if port is not None and not serve:
        raise InputError(f"--port {port} is for --serve; add that, or leave it out")
    if serve and as_json:
        raise InputError("--serve and --json exclude each other; leave one of them out")
    request = given.request(
        device=device, seed=seed, dims=dims, weights=weights, hbm=hbm, settings=settings,
        options={"streams": streams, "submission": submission, "window": window, "prefetches": prefetches},
        model={"batch": batch, "dtype": dtype, "fallback": fallback or None},
    )  # fmt: skip
    first, second = _both(name, scheduler, against, request, quiet=as_json)
    other = second.schedule if second else None
    labels = (first.label, second.label if second else "")
    if as_json:
        print_json(document(first.schedule, other, labels=labels))
        return
    if out is not None or not serve:
        path = write_html(out or _usual_path(first), first.schedule, other, labels=labels)
        _tell(path, first, second)
    if serve:
        _serve(TimelineServer(first.schedule, other, labels=labels, port=port or 0))


def _both(
    name: str, scheduler: str | None, against: str | None, request: Request, *, quiet: bool
) -> tuple[_Shown, _Shown | None]:
    """The schedule, and the one to show below it if there is to be one."""
    same_case = against is not None and is_scheduler(against)
    with progress("Scheduling", 1 + (against is not None), quiet=quiet) as bar:
        first = _shown(name, scheduler, request)
        bar.step()
        if against is None:
            return first, None
        if same_case and _is_saved(name):
            raise InputError(
                f"--against {against!r} is a scheduler, but {name!r} is a schedule that is there already; "
                "name another schedule or source"
            )
        second = _shown(name, against, request) if same_case else _shown(against, scheduler, request)
        bar.step()
    return first, second


def _shown(name: str, scheduler: str | None, request: Request) -> _Shown:
    if _is_saved(name):
        return _saved(name, scheduler, request)
    who = _USUAL if scheduler is None else scheduler
    check_schedulers([who])
    (result,) = run_case(open_case(name, request), [who], seed=request.seed, baseline=False)
    return _Shown(result.schedule, result.case, who)


def _is_saved(name: str) -> bool:
    """Whether a name is the path of a trace that this package wrote, with the schedule in it."""
    path = Path(name)
    if not path.is_dir() and not (path.is_file() and name.endswith((".json", ".json.gz"))):
        return False
    try:
        return carries_archive(path)
    except InputError:
        return False  # a profile, or whatever the readers of inputs make of it


def _saved(name: str, scheduler: str | None, request: Request) -> _Shown:
    asked = [f"--{key}" for key in (*request.options, *request.model)]
    asked += ["--device"] if request.device is not None else []
    asked += ["--scheduler"] if scheduler is not None else []
    if asked:
        raise InputError(
            f"{', '.join(asked)} does not apply to {name!r}: it is a schedule that is there already"
        )
    with reading(name):
        return _Shown(read_trace(name), Path(name).name.removesuffix(".gz").removesuffix(".json"), "")


def _usual_path(shown: _Shown) -> Path:
    words = "-".join(word for word in (shown.source, shown.scheduler) if word)
    return Path(re.sub(r"[^\w.-]+", "_", words) + ".html")


def _tell(path: Path, first: _Shown, second: _Shown | None) -> None:
    words = f"{first.label} {format_time(first.schedule.makespan_ns)}"
    if second is not None:
        words += f", against {second.label} {format_time(second.schedule.makespan_ns)}"
    Console(highlight=False).print(escape(f"Timeline  {path}  ({words})"), soft_wrap=True)


def _serve(server: TimelineServer) -> None:
    Console(highlight=False).print(f"Timeline  {server.url}  (ctrl + c ends it)", soft_wrap=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
