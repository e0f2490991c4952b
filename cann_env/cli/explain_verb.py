"""``cann-env explain``: what bounds a schedule, where its time goes, what would make it shorter."""

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from cann_env.cli import completion
from cann_env.cli import options as given
from cann_env.cli.inputs import Request, open_case
from cann_env.cli.option_words import request_words
from cann_env.cli.printing import print_json, progress, show_table
from cann_env.cli.results import check_schedulers
from cann_env.cli.tables import plain_table
from cann_env.envs.instances import InstanceKey, realised
from cann_env.explain import Explanation, Suggestion, advise, explain
from cann_env.explain.advice import TRIALS
from cann_env.explain.words import (
    PART_WORDS,
    bound_sentence,
    held_sentence,
    suggestion_sentence,
    wait_sentence,
)
from cann_env.program import compile_graph
from cann_env.replay.own_trace import read_run
from cann_env.schedule import Schedule
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError, format_time

_DEFAULT = "reference"

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A scenario, a model, a profile, as 'cann-env run' takes them; or the trace of a run that "
        "'cann-env run' wrote.",
        show_default=False,
        autocompletion=completion.scenarios,
    ),
]
ExplainScheduler = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Who schedules it.", show_default=_DEFAULT, autocompletion=completion.schedulers
    ),
]
Trials = Annotated[
    int, typer.Option(min=0, help="Changes to simulate in search of something to suggest; 0: none.")
]


class _Explained(NamedTuple):
    """A schedule, and how it came about: from which input as it was asked for; None for a saved run."""

    schedule: Schedule
    scheduler: str | None
    origin: tuple[str, Request] | None


def explain_source(
    source: Source,
    scheduler: ExplainScheduler = None,
    trials: Trials = TRIALS,
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
    """Say in plain words what bounds a schedule, where its time goes, and what to try.

    Every suggestion was simulated, and what gains nothing is not suggested. The exit code is 0, or 2 if the
    input cannot be used.
    """
    request = given.request(
        device=device, seed=seed, dims=dims, weights=weights, hbm=hbm, settings=settings,
        options={"streams": streams, "submission": submission, "window": window, "prefetches": prefetches},
        model={"batch": batch, "dtype": dtype, "fallback": fallback or None},
    )  # fmt: skip
    check_schedulers([scheduler or _DEFAULT])
    found = _saved(source, scheduler, request) or _run(source, scheduler or _DEFAULT, request, quiet=as_json)
    with progress("Explaining", trials, quiet=as_json) as bar:
        about = explain(found.schedule)
        tried = advise(
            found.schedule, about, found.scheduler, seed=seed, most=trials, begin=bar.begin, step=bar.step
        )
    if as_json:
        print_json(_plain(about, found, tried))
    else:
        _show(about, found, tried, trials)


def _saved(source: str, scheduler: str | None, request: Request) -> _Explained | None:
    """The schedule of a saved run; None if the source is none."""
    path = Path(source)
    if not path.is_dir() and not (path.is_file() and path.name.endswith((".json", ".json.gz"))):
        return None
    schedule = read_run(path)
    if schedule is None:
        return None
    asked = ["--device"] if request.device is not None else []
    asked += ["--scheduler"] if scheduler is not None else []
    asked += [f"--{name}" for name in (*request.options, *request.model)]
    if asked:
        raise InputError(
            f"{source!r} is a saved run, which says itself what ran, and how; leave out {', '.join(asked)}"
        )
    return _Explained(schedule, None, None)


def _run(source: str, scheduler: str, request: Request, *, quiet: bool) -> _Explained:
    case = open_case(source, request)
    program = compile_graph(case.graph(0), case.device, case.options)
    noise = realised(program, InstanceKey(request.seed, 0, 0))
    with progress("Scheduling", 1, quiet=quiet) as bar:
        schedule = run_scheduler(program, scheduler, seed=request.seed, noise=noise, watch=bar.watch)
    return _Explained(schedule, scheduler, (source, request))


def _plain(about: Explanation, found: _Explained, tried: tuple[Suggestion, ...]) -> dict[str, Any]:
    return {
        **about.as_dict(),
        "scheduler": found.scheduler,
        "calibrated": found.schedule.device.calibrated,
        "suggestions": [{**asdict(each), "command": _command(found, each)} for each in tried],
    }


def _command(found: _Explained, suggestion: Suggestion) -> str | None:
    """The command that runs a suggestion; None for a saved run, which no command runs with changes."""
    if found.origin is None:
        return None
    source, request = found.origin
    changed = replace(request, options={**request.options, **suggestion.options})
    words = ["cann-env", "run", source, *request_words(changed), "--scheduler", suggestion.scheduler]
    return shlex.join(words)


def _parts_table(about: Explanation) -> Table:
    title = "The critical chain, which makes the makespan"
    table = plain_table(title, "what it is spent on", "time", "share")
    for part, words in PART_WORDS.items():
        spent = about.parts_ns[part]
        if spent:
            table.add_row(words, format_time(spent), f"{spent / about.makespan_ns:.1%}")
    return table


def _show(about: Explanation, found: _Explained, tried: tuple[Suggestion, ...], trials: int) -> None:
    console = Console(highlight=False)
    who = "a saved run" if found.scheduler is None else f"scheduler {found.scheduler}"
    _say(
        console,
        f"[bold]{escape(about.graph)}[/bold] on {found.schedule.device.label}, {escape(who)}: "
        f"{about.commands} commands, makespan {format_time(about.makespan_ns)}",
    )
    _say(console, escape(bound_sentence(about)))
    _say(console, escape(held_sentence(about)))
    console.print()
    show_table(console, _parts_table(about))
    console.print()
    console.print("[bold]Longest stalls[/bold]" if about.waits else "No command waited for anything.")
    for wait in about.waits:
        _say(console, escape(wait_sentence(wait)), indent=2)
    if trials:
        console.print()
        _show_suggestions(console, found, tried, trials)


def _show_suggestions(
    console: Console, found: _Explained, tried: tuple[Suggestion, ...], trials: int
) -> None:
    if not tried:
        _say(console, f"Nothing to suggest: no change that there is reason for gains ({trials} at most).")
        return
    console.print("[bold]What to try[/bold], each of it simulated")
    for suggestion in tried:
        _say(console, escape(suggestion_sentence(suggestion)), indent=2)
        command = _command(found, suggestion)
        if command is not None:
            console.print(f"    [cyan]{escape(command)}[/cyan]", soft_wrap=True)


def _say(console: Console, sentence: str, *, indent: int = 0) -> None:
    """Print a sentence: folded to a terminal, on one line to anything else."""
    if console.is_terminal:
        console.print(Padding(sentence, (0, 0, 0, indent)))
    else:
        console.print(" " * indent + sentence, soft_wrap=True)
