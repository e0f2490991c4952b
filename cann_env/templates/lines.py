"""Lines of TOML: values as they are written, comments folded to the width of a file."""

from __future__ import annotations

import enum
import json
import textwrap
from dataclasses import fields, is_dataclass
from typing import Any

_WIDTH = 108


def comment(text: str) -> list[str]:
    """A comment, on as many lines as it takes."""
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def value(given: object) -> str:
    """A value as TOML has it.

    Raises:
        TypeError: It has no form in TOML, such as None.
    """
    if isinstance(given, enum.Enum):
        return json.dumps(given.value)
    if isinstance(given, tuple | list):
        return f"[{', '.join(value(each) for each in given)}]"
    if isinstance(given, bool | int | float | str):
        return json.dumps(given)
    raise TypeError(f"{given!r} cannot be written in TOML")


def is_table(given: object) -> bool:
    """Whether a value of a field is a table of its own, or a list of such."""
    if isinstance(given, tuple):
        return bool(given) and is_table(given[0])
    return is_dataclass(given) and not isinstance(given, type)


def field_names(record: Any) -> list[str]:
    """Names of the fields of a dataclass, those that are tables last, as TOML needs them."""
    names = [each.name for each in fields(record) if each.init]
    return sorted(names, key=lambda name: is_table(getattr(record, name)))
