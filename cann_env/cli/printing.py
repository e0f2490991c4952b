"""What the verbs share: progress on standard error, tables that fit the terminal, JSON, exit codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cann_env.cli import tables
from cann_env.engine.jit import is_cached
from cann_env.engine.step import step as engine_step
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

    from cann_env.cli.results import Result
    from cann_env.validate import Violation

WRONG_INPUT, JUDGED_WRONG = 2, 1
"""Exit codes: the input cannot be used; the judge found a violation."""

_VIOLATIONS_SHOWN = 5


class Bar(NamedTuple):
    """What moves a progress bar.

    ``begin`` says what runs now, ``watch`` how far it is and its best so far (ns), ``step`` that it is done.
    """

    begin: Callable[[str], None]
    step: Callable[[], None]
    watch: Callable[[float, int], None]


@contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Bar]:
    """A bar on standard error, behind a word if compiling comes first."""
    console = Console(stderr=True)
    if not is_cached(engine_step):
        typer.echo("Compiling the engine, once; this takes about half a minute", err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    disable = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task(title, total=total)
        done, now = 0, escape(title)

        def begin(what: str) -> None:
            nonlocal now
            now = escape(what)
            bar.update(task, description=now)

        def step() -> None:
            nonlocal done
            done += 1
            bar.update(task, completed=done, description=now)

        def watch(part: float, best_ns: int) -> None:
            bar.update(task, completed=done + part, description=f"{now} · {format_time(best_ns)} so far")

        yield Bar(begin, step, watch)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Say on standard error that something is being read, while it is; only to a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"Reading {escape(what)}"):
        yield


def print_json(data: dict[str, Any]) -> None:
    """Print one object on standard output."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False))


def show_table(console: Console, table: Table) -> None:
    """Print a table in pieces that fit the terminal; its first column is never cut for the others.

    Its caption stands below, as wide as the terminal: a narrow table would fold it.
    """
    for number, piece in enumerate(tables.pieces(table, console.width)):
        if number:
            console.print()
        console.print(piece)
    if table.caption:
        console.print(table.caption, style="dim italic")


def show_violations(console: Console, results: list[Result]) -> None:
    """Print the first few violations of each result."""
    for result in results:
        show_found(console, f"{result.scheduler}, instance {result.instance}", result.violations)


def show_found(console: Console, whose: str, violations: Sequence[Violation]) -> None:
    """Print the first few violations of one schedule."""
    for violation in violations[:_VIOLATIONS_SHOWN]:
        console.print(f"[red]{violation.rule}[/red] ({escape(whose)}): {escape(violation.message)}")
