"""What Google docstrings say of attributes and arguments, for files and texts that repeat it."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROLE = re.compile(r":\w+:`~?([^`]*)`")
_ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*): (?P<text>.*)$")
_SECTION = re.compile(r"^(?:Attributes|Args):$")


def notes_of(thing: object) -> Mapping[str, str]:
    """What the docstring of a class or function says of each of its attributes or arguments, without markup.

    Args:
        thing: A class, whose bases count too, or a function.
    """
    found: dict[str, str] = {}
    for each in reversed(thing.__mro__ if isinstance(thing, type) else (thing,)):
        if each is not object:
            found |= _notes(inspect.cleandoc(each.__doc__ or ""))
    return found


def summary_of(thing: object) -> str:
    """The first paragraph of a docstring, as one line without markup."""
    return plain(inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0])


def plain(text: str) -> str:
    """Text without the markup of docstrings, as one line; of references the last name stays."""
    bare = _ROLE.sub(lambda match: match[1].rpartition(".")[2], " ".join(text.split()))
    return bare.replace("``", "")


def _notes(doc: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    inside, current = False, list[str]()
    for line in doc.splitlines():
        if not line.startswith(" ") and line:
            inside, current = _SECTION.match(line) is not None, []
            continue
        entry = _ENTRY.match(line.strip()) if inside and re.match(r" {4}\S", line) else None
        if entry is not None:
            current = [entry["text"]]
            found |= dict.fromkeys(entry["names"].split(", "), current)
        elif inside and line.strip():
            current.append(line.strip())
    return {name: plain(" ".join(lines)) for name, lines in found.items()}
