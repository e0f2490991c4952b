"""The verbs of ``cann-env``: run, compare, devices, scenarios; those of other rooms join them here.

Each reads its options, asks :mod:`cann_env.cli.inputs` and :mod:`cann_env.cli.results` to do the work, and
prints. Results go to standard output, everything else (progress, errors) to standard error.
"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cann_env import __version__
from cann_env.cli import help_texts, tables
from cann_env.cli import options as given
from cann_env.cli.check import check_program
from cann_env.cli.compare_suite import SuiteRequest, compare_suite
from cann_env.cli.explain_verb import explain_source
from cann_env.cli.export_verb import export_plan
from cann_env.cli.files import check_paths, write_files
from cann_env.cli.headroom import headroom
from cann_env.cli.inputs import open_case
from cann_env.cli.new_verb import new
from cann_env.cli.optimise_verb import optimise_profile
from cann_env.cli.policies import use_policies, with_policies
from cann_env.cli.printing import (
    JUDGED_WRONG,
    print_json,
    progress,
    show_table,
    show_violations,
)
from cann_env.cli.replay_verb import replay_profile
from cann_env.cli.results import BASELINE, Result, check_schedulers, row_of, run_case, summarise
from cann_env.cli.suites import BASELINE as SUITE_BASELINE
from cann_env.cli.timeline_verb import timeline
from cann_env.cli.verbs import Verbs, add_verb
from cann_env.device import device_names, load_device
from cann_env.scenario import scenario_names
from cann_env.schedulers import SHORT_LIST
from cann_env.units import InputError, format_size, format_time

_COMPARED = ",".join(SHORT_LIST)


_WORK, _PROFILES = "Run and understand", "Profiles of real runs"
_PROGRAMS, _FILES = "Programs for the device", "What there is, and files of your own"

app = typer.Typer(
    cls=Verbs,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=help_texts.ABOUT,
    epilog=help_texts.START,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cann-env {__version__}")
        raise typer.Exit


@app.callback(help=help_texts.ABOUT)
def _start(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Print the help where no verb is given."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), nl=False)


def _finish(results: list[Result]) -> None:
    if any(result.violations for result in results):
        raise typer.Exit(JUDGED_WRONG)


def run(
    input: given.Input = None,
    scenario: given.ScenarioName = None,
    scheduler: given.Scheduler = "reference",
    device: given.Device = None,
    seed: given.Seed = 0,
    trace: given.TracePath = None,
    gantt: given.GanttPath = None,
    no_files: given.NoFiles = False,
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
    """Run one scheduler; print its figures and the judge's verdict; write a trace and a picture.

    The exit code is 0, 1 if the judge found a violation, 2 if the input cannot be used.
    """
    name = given.only("run", input, scenario)
    check_paths(trace, gantt)
    request = given.request(
        device=device, seed=seed, dims=dims, weights=weights, hbm=hbm, settings=settings,
        options={"streams": streams, "submission": submission, "window": window, "prefetches": prefetches},
        model={"batch": batch, "dtype": dtype, "fallback": fallback or None},
    )  # fmt: skip
    check_schedulers([scheduler])
    case = open_case(name, request)
    with progress("Scheduling", 2, quiet=as_json) as bar:
        (result,) = run_case(case, [scheduler], seed=seed, step=bar.step, watch=bar.watch)
    lines = write_files(result, trace, gantt, named_only=no_files or as_json)
    if as_json:
        print_json({"rows": [row_of(result)]})
    else:
        _show_run(result, lines)
    _finish([result])


def _show_run(result: Result, lines: list[str]) -> None:
    console = Console(highlight=False)
    schedule = result.schedule
    (summary,) = summarise([result])
    console.print(
        f"[bold]{escape(result.case)}[/bold] on {schedule.device.label}, scheduler {result.scheduler}: "
        f"{len(schedule.commands)} commands, {len(schedule.waits)} event waits\n"
        f"makespan {format_time(schedule.makespan_ns)}, lower bound {format_time(schedule.lower_bound_ns)} "
        f"(gap {summary.gap:.1%}), {summary.ratio:.3f} of a single stream\n"
        f"peak HBM {format_size(schedule.peak_hbm_bytes)}, AI core busy {summary.ai_core_busy:.1%}, "
        f"judge {tables.verdict(len(result.violations))}"
    )
    console.print()
    show_table(console, tables.command_table(schedule))
    for table in tables.figure_tables([summary]):
        console.print()
        show_table(console, table)
    show_violations(console, [result])
    console.print()
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def compare(
    inputs: given.Inputs = None,
    scenario: given.ScenarioNames = None,
    schedulers: given.Schedulers = _COMPARED,
    policy: given.Policies = None,
    instances: given.Instances = None,
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
    suite: given.SuiteName = None,
    baseline: given.Baseline = None,
    seconds: given.Seconds = None,
    jobs: given.Jobs = 1,
    data: given.Data = None,
    csv: given.CsvPath = None,
    picture: given.PicturePath = None,
) -> None:
    """Compare schedulers with a single stream and with the lower bound; over several instances, by means.

    With a suite, they are set against a baseline on all its cases, and summed up by family.
    The exit code is 0, 1 if the judge found a violation, 2 if the input cannot be used.
    """
    names = [*(inputs or []), *(scenario or [])]
    policies = use_policies(policy or [])
    chosen = tuple(with_policies(given.scheduler_names(schedulers), policies))
    request = given.request(
        device=device, seed=seed, dims=dims, weights=weights, hbm=hbm, settings=settings,
        options={"streams": streams, "submission": submission, "window": window, "prefetches": prefetches},
        model={"batch": batch, "dtype": dtype, "fallback": fallback or None},
    )  # fmt: skip
    if suite is not None:
        given.check_alone("--suite", names, instances, request)
        compare_suite(
            SuiteRequest(
                suite=suite, schedulers=chosen, policies=tuple(policy or ()),
                baseline=baseline or SUITE_BASELINE, seed=seed,
                seconds=seconds, jobs=jobs, data=data, csv=csv, picture=picture, as_json=as_json,
            )
        )  # fmt: skip
        return
    given.check_none(baseline=baseline, seconds=seconds, data=data, csv=csv, picture=picture)
    if not names:
        raise InputError("compare takes at least one INPUT or --scenario, or a --suite; got none")
    instances = instances or 1
    cases = [open_case(name, request) for name in names]
    runs = len({*chosen, BASELINE}) * instances * len(cases)
    with progress("Scheduling", runs, quiet=as_json) as bar:
        results = [
            run_case(case, chosen, instances=instances, seed=seed, step=bar.step, watch=bar.watch)
            for case in cases
        ]
    everything = [result for of_case in results for result in of_case]
    if as_json:
        print_json({"rows": [row_of(result) for result in everything]})
    else:
        for of_case in results:
            _show_comparison(of_case)
    _finish(everything)


def _show_comparison(results: list[Result]) -> None:
    console = Console(highlight=False)
    schedule = results[0].schedule
    instances = 1 + max(result.instance for result in results)
    title = f"{escape(results[0].case)} on {schedule.device.label}, {len(schedule.commands)} commands"
    if instances > 1:
        title += f", means over {instances} instances"
    for table in tables.comparison_tables(title, summarise(results)):
        show_table(console, table)
        console.print()
    show_violations(console, results)


def devices(as_json: given.Json = False) -> None:
    """List the devices that come with the package."""
    known = [load_device(name) for name in device_names()]
    if as_json:
        print_json({"devices": [tables.device_row(device) for device in known]})
    else:
        show_table(Console(highlight=False), tables.device_table(known))


def scenarios(seed: given.Seed = 0, as_json: given.Json = False) -> None:
    """List the scenarios that come with the package, and how much each leaves to gain.

    For each, a single stream and the reference scheduler are run on one instance and set against the lower
    bound: the further apart the two ratios, the more a scheduler can do.
    """
    names = scenario_names()
    with progress("Measuring", 2 * len(names), quiet=as_json) as bar:
        rows = [headroom(name, seed, bar.step) for name in names]
    if as_json:
        print_json({"scenarios": [asdict(row) for row in rows]})
        return
    console = Console(highlight=False)
    show_table(console, tables.headroom_table(rows))
    console.print()
    for row in rows:
        console.print(f"[bold]{row.scenario}[/bold]  {escape(row.description)}")


add_verb(app, "run", run, panel=_WORK, epilog=help_texts.RUN)
add_verb(app, "compare", compare, panel=_WORK, epilog=help_texts.COMPARE)
add_verb(app, "explain", explain_source, panel=_WORK, epilog=help_texts.EXPLAIN)
add_verb(app, "timeline", timeline, panel=_WORK, epilog=help_texts.TIMELINE)
add_verb(app, "replay", replay_profile, panel=_PROFILES, epilog=help_texts.REPLAY)
add_verb(app, "optimise", optimise_profile, panel=_PROFILES, epilog=help_texts.OPTIMISE)
add_verb(app, "export", export_plan, panel=_PROGRAMS, epilog=help_texts.EXPORT)
add_verb(app, "check", check_program, panel=_PROGRAMS, epilog=help_texts.CHECK)
add_verb(app, "scenarios", scenarios, panel=_FILES, epilog=help_texts.SCENARIOS)
add_verb(app, "devices", devices, panel=_FILES, epilog=help_texts.DEVICES)
app.add_typer(
    new,
    name="new",
    rich_help_panel=_FILES,
    epilog=help_texts.NEW,
    help="Write a scenario or a device file to start from.",
)
