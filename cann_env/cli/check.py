"""``cann-env check``: run a program against the simulated runtime, and say what is wrong with it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from cann_env.acl.checks.hazards import Hazard, hazards
from cann_env.acl.program import SECONDS, ProgramError, run_program
from cann_env.acl.state.simulator import Simulator
from cann_env.cli import options as given
from cann_env.cli.printing import JUDGED_WRONG, WRONG_INPUT, print_json
from cann_env.options import Submission
from cann_env.units import format_time


class Totals(NamedTuple):
    """A program's timeline in a few numbers; times in nanoseconds.

    Attributes:
        total_ns: From the first call to the end of the last.
        host_ns: In calls of the interface, waiting included.
        waiting_ns: Of that, in synchronisations.
        device_ns: Some device did something.
        overlap_ns: At least two pieces of work ran at once.
        stall_ns: Between the first and the last work of a device, nothing ran on it.
        work: Pieces of work.
        calls: Calls of the interface.
        failed: Of those, refused.
    """

    total_ns: int
    host_ns: int
    waiting_ns: int
    device_ns: int
    overlap_ns: int
    stall_ns: int
    work: int
    calls: int
    failed: int


def totals(run: Simulator) -> Totals:
    """Sum a run up."""
    run.settle()
    busy = overlap = stall = 0
    for number in run.devices:
        spans = [
            (work.start_ns, work.finish_ns)
            for work in run.log
            if work.device == number and work.finish_ns > work.start_ns >= 0
        ]
        one, two, span = _covered(spans)
        busy, overlap, stall = busy + one, overlap + two, stall + span - one
    ends = [run.clock_ns, *(work.finish_ns for work in run.log)]
    waiting = sum(c.end_ns - c.start_ns for c in run.calls if "synchronize" in c.call or "query" in c.call)
    return Totals(
        max(ends), sum(c.end_ns - c.start_ns for c in run.calls), waiting, busy, overlap, stall,
        len(run.log), len(run.calls), sum(c.code != 0 for c in run.calls),
    )  # fmt: skip


def _covered(spans: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Time with at least one span, with at least two, and from the first to the last."""
    moments = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    depth, last, covered = 0, 0, [0, 0]
    for at, step in moments:
        for least in (1, 2):
            if depth >= least:
                covered[least - 1] += at - last
        depth, last = depth + step, at
    return covered[0], covered[1], (moments[-1][0] - moments[0][0] if moments else 0)


def check_program(
    program: Annotated[str, typer.Argument(help="The program, a Python file.", show_default=False)],
    args: Annotated[
        list[str] | None, typer.Argument(help="What it gets as its own arguments.", show_default=False)
    ] = None,
    device: given.Device = None,
    submission: Annotated[
        Submission | None,
        typer.Option(help="Whether calls take time of the host, or none; eager if the program says nothing."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Real time it may take.")] = SECONDS,
    as_json: given.Json = False,
) -> None:
    """Run a program on the simulated runtime, and list its races, misused events, leaks and deadlocks.

    The exit code is 0 if there are none, 1 if there are some, 2 if the program did not run to its end. What
    it prints goes to standard error. Its own options stand behind "--".
    """
    failure = ""
    try:
        run = run_program(
            program, device, args=args or [], submission=submission, seconds=seconds, output=sys.stderr
        )
    except ProgramError as error:
        run, failure = error.run, str(error)
    found = hazards(run, ended=True)
    if as_json:
        print_json(_plain(run, found, failure))
    else:
        _show(run, found, failure)
    if failure or found:
        raise typer.Exit(WRONG_INPUT if failure else JUDGED_WRONG)


def _plain(run: Simulator, found: Sequence[Hazard], failure: str) -> dict[str, Any]:
    return {
        "device": run.spec.name,
        "failure": failure,
        "hazards": [asdict(hazard) for hazard in found],
        "totals": totals(run)._asdict(),
    }


def _show(run: Simulator, found: Sequence[Hazard], failure: str) -> None:
    console = Console()
    if found:
        table = Table(title=f"{len(found)} hazard{'s' if len(found) > 1 else ''}")
        for column in ("no.", "hazard", "lines", "buffer", "streams"):
            table.add_column(column, overflow="fold")
        for number, hazard in enumerate(found, 1):
            lines = " → ".join(filter(None, (hazard.first, hazard.second)))
            streams = ", ".join("host" if s < 0 else str(s) for s in hazard.streams)
            table.add_row(str(number), hazard.kind.value, lines, hazard.buffer, streams)
        console.print(table)
        for number, hazard in enumerate(found, 1):
            console.print(f"[bold]{number}.[/bold] {escape(hazard.what)}", highlight=False)
            console.print(Padding(f"[green]{escape(hazard.fix)}[/green]", (0, 0, 0, 3)), highlight=False)
    else:
        console.print("No hazards until then." if failure else "No hazards.", highlight=False)
    sums = totals(run)
    console.print(
        f"{run.spec.name}: {format_time(sums.total_ns)} in all, host {format_time(sums.host_ns)} in calls "
        f"(of which waiting {format_time(sums.waiting_ns)}), device busy {format_time(sums.device_ns)}, "
        f"overlapped {format_time(sums.overlap_ns)}, stalled {format_time(sums.stall_ns)}; "
        f"{sums.work} pieces of work, {sums.calls} calls, {sums.failed} refused",
        highlight=False,
    )
    if failure:
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"[bold red]error:[/bold red] {escape(failure)}"
        )
