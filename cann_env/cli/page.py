"""The page of the command line: ``python -m cann_env.cli.page`` prints ``docs/cli.md`` from the live help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer
from typer.testing import CliRunner

from cann_env.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH = 100
_STYLE = re.compile(r"\x1b\[[0-9;]*m")

_HEAD = """\
# The command `cann-env`

This page is printed by `python -m cann_env.cli.page`; do not edit it. It is what `cann-env VERB -h` prints.
Every example on it runs.

Tables are folded to the terminal and plain where they are piped; `--json` gives the same as data. Progress
goes to standard error, and only to a terminal. The variables `NO_COLOR` and `COLUMNS` are heeded.
`cann-env --install-completion` teaches the shell to complete verbs, options, and the names of scenarios,
devices, schedulers and suites.
"""


def verbs() -> Iterator[tuple[str, ...]]:
    """The words of every verb, those of groups before the verbs within."""
    yield ()
    yield from _below(typer.main.get_command(app), ())


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, each in getattr(command, "commands", {}).items():
        yield (*words, name)
        yield from _below(each, (*words, name))


def help_of(words: tuple[str, ...], columns: int = _WIDTH) -> str:
    """What the help of a verb prints, without colour and trailing blanks."""
    env = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    text = CliRunner().invoke(app, [*words, "--help"], prog_name="cann-env", env=env).stdout
    return "\n".join(line.rstrip() for line in _STYLE.sub("", text).splitlines()).strip("\n")


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for words in verbs():
        parts.append(f"## `{' '.join(('cann-env', *words))}`\n\n```\n{help_of(words)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
