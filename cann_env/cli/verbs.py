"""What all verbs have in common: how errors look, and how examples stand in help texts."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from cann_env.cli.printing import WRONG_INPUT
from cann_env.spelling import did_you_mean
from cann_env.units import CannEnvError

if TYPE_CHECKING:
    from collections.abc import Callable

_CHOICE = re.compile(r"'(?P<word>[^']*)' is not one of (?P<known>.*)")


def _with_examples(command: Any, show: Callable[[], None]) -> None:
    """Show a help text, and then its end as it is written: a line a line, so that commands can be copied."""
    end, command.epilog = command.epilog, None
    try:
        show()
    finally:
        command.epilog = end
    if end:
        Console(highlight=False).print(end, soft_wrap=True)


class Verb(TyperCommand):
    """One verb; its help ends with examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _with_examples(self, lambda: super(Verb, self).format_help(ctx, formatter))


class Verbs(TyperGroup):
    """Prints the package's own errors as one line, without a traceback, and names the word that was meant."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _with_examples(self, lambda: super(Verbs, self).format_help(ctx, formatter))

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; an error of the package ends it with exit code 2."""
        try:
            return super().invoke(ctx)
        except CannEnvError as error:
            line = " ".join(str(error).split())
            Console(stderr=True, soft_wrap=True, highlight=False).print(
                f"[bold red]error:[/bold red] [red]{escape(line)}[/red]"
            )
            raise typer.Exit(WRONG_INPUT) from None
        except typer.BadParameter as error:
            found = _CHOICE.search(error.message)
            if found is not None:
                near = did_you_mean(found["word"], re.findall(r"'([^']*)'", found["known"]))
                error.message = f"{error.message} {near[:1].upper()}{near[1:]}".rstrip()
            raise


def examples(*lines: str) -> str:
    """Examples as the end of a help text.

    Args:
        *lines: Those that begin with ``cann-env`` are commands, others say what the next command does.
    """
    shown = ["[bold]Examples[/bold]"]
    for line in lines:
        command = line.startswith("cann-env ")
        shown.append(f"  [cyan]{escape(line)}[/cyan]" if command else f"  [dim]# {escape(line)}[/dim]")
    return "\n".join(shown)


def add_verb(
    app: typer.Typer, name: str, function: Callable[..., None], *, panel: str | None, epilog: str
) -> None:
    """Give an application a verb, with the docstring of its function as help, a paragraph a line."""
    text = inspect.cleandoc(function.__doc__ or "")
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    decorate = app.command(name, cls=Verb, help="\n\n".join(paragraphs), epilog=epilog, rich_help_panel=panel)
    decorate(function)
