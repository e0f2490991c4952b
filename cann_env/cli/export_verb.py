"""``cann-env export``: schedules an input, and writes the schedule for use on a device."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cann_env.acl.plans.export import FORMS, export
from cann_env.cli import completion
from cann_env.cli import options as given
from cann_env.cli.files import check_paths
from cann_env.cli.inputs import open_case
from cann_env.cli.printing import progress
from cann_env.cli.results import check_schedulers
from cann_env.program import compile_graph
from cann_env.schedulers import run_scheduler
from cann_env.spelling import did_you_mean
from cann_env.units import InputError, format_time

Form = Annotated[
    str,
    typer.Option(
        metavar="FORM",
        autocompletion=completion.forms,
        help=f"How to write it: {', '.join(FORMS)}",
        rich_help_panel="Output",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", help="File to write; else it is printed.", rich_help_panel="Output"),
]


def export_plan(
    input: given.Input = None,
    scenario: given.ScenarioName = None,
    scheduler: given.Scheduler = "reference",
    form: Form = "acl",
    out: Out = None,
    device: given.Device = None,
    seed: given.Seed = 0,
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
    """Schedule an input and write the plan: as a program, as stream code of PyTorch, as stream labels.

    The exit code is 0, or 2 if the input cannot be used.
    """
    name = given.only("export", input, scenario)
    if form not in FORMS:
        raise InputError(f"--form is {form!r}; {did_you_mean(form, FORMS)}write one of {', '.join(FORMS)}")
    check_paths(out, None)
    request = given.request(
        device=device, seed=seed, dims=dims, weights=weights, hbm=hbm, settings=settings,
        options={"streams": streams, "submission": submission, "window": window, "prefetches": prefetches},
        model={"batch": batch, "dtype": dtype, "fallback": fallback or None},
    )  # fmt: skip
    check_schedulers([scheduler])
    case = open_case(name, request)
    program = compile_graph(case.graph(0), case.device, case.options)
    with progress("Scheduling", 1, quiet=False) as bar:
        schedule = run_scheduler(program, scheduler, seed=seed, watch=bar.watch)
    text = export(schedule, form, out)
    if out is None:
        print(text, end="")
        return
    Console(highlight=False).print(
        f"{escape(str(out))}: {escape(case.name)} on {schedule.device.label}, {scheduler}, "
        f"{len(schedule.commands)} commands, makespan {format_time(schedule.makespan_ns)}",
        soft_wrap=True,
    )
