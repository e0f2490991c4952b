"""Pages of the documentation as programs: their blocks run in order, and print what stands below them.

Three kinds of blocks are read. Python runs, all of a page as one program; a block without a language right
below it is what it prints. A block with a title is a file, written before what follows runs. In a block
``console``, each line that begins with ``$`` is a command; what stands below it, if anything, is what it
prints.

``python tests/pages.py PAGE`` runs a page in the current folder and says where it first differs.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```\n"
    r"(?:\n^```\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = ("pip", "make", "git", "source")
"""Commands that prepare an environment, which is there already."""


class Block(NamedTuple):
    """One block: its language, its title if it is a file, its text, and what stands below it."""

    language: str
    title: str
    text: str
    output: str


def blocks(text: str) -> list[Block]:
    """All blocks of a page that name a language."""
    return [Block(*(part or "" for part in match.groups())) for match in BLOCK.finditer(text)]


def tidy(text: str) -> str:
    """Text without blanks at the ends of lines and around it."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what stands below it."""
    found = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    joined = (part.replace("\\\n", " ").partition("\n") for part in found)
    return [(command.strip(), tidy(output)) for command, _, output in joined]


def run_command(command: str) -> str:
    """What a command prints.

    Raises:
        AssertionError: It is none that a page may have, or it fails.
    """
    name, *arguments = shlex.split(command, comments=True)
    if name in NOT_RUN or arguments[:2] == ["-m", "venv"]:
        return ""
    known = {"cann-env": [sys.executable, "-m", "cann_env"], "python": [sys.executable]}
    assert name in known, f"{command!r}: a page may call {', '.join((*known, *NOT_RUN))}"
    done = subprocess.run([*known[name], *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command!r} ends with {done.returncode}:\n{done.stdout}{done.stderr}"
    return tidy(done.stdout)


def run_python(source: str, names: dict[str, object]) -> str:
    """What a block of Python prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "page.py", "exec"), names)
    return tidy(output.getvalue())


def run_page(text: str) -> int:
    """Run a page in the current folder.

    Returns:
        How many blocks it has.

    Raises:
        AssertionError: A command fails, or something else is printed than the page says.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    found = blocks(text)
    for block in found:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            expect(block.text, run_python(block.text, names), tidy(block.output))
        elif block.language == "console":
            for command, output in commands(block.text):
                printed = run_command(command)
                if output:
                    expect(command, printed, output)
    return len(found)


def expect(source: str, printed: str, output: str) -> None:
    """Compare what was printed with what stands on the page."""
    assert printed == output, f"\n{source}\nprints\n{printed}\nnot\n{output}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    run_page(Path(sys.argv[1]).read_text("utf-8"))
