"""Options of a run as words of a command line, and back: ``--streams 4``, ``--set run_ahead=32``."""

from __future__ import annotations

import enum
import json
import tomllib
from typing import TYPE_CHECKING, Any

from cann_env.options import RunOptions
from cann_env.units import InputError
from cann_env.workloads.tables import read_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.cli.inputs import Request

_NAMED = ("streams", "submission", "window", "prefetches")
"""Options of a run that have an option of their own."""


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``["run_ahead=32", "eviction=lru"]``; values as in a scenario file, texts also without quotes.

    Raises:
        InputError: One is not ``key=value``, comes twice, or is no option or no value of one.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        key = key.strip()
        if not (key and sign and value.strip()):
            raise InputError(f"--set {pair!r} is not an option; write key=value, for example run_ahead=32")
        if key in found:
            raise InputError(f"--set gives {key!r} twice; give each option once")
        found[key] = read_field(RunOptions, key, _value(value.strip()), "--set")
    return found


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options of a run as the command line takes them."""
    words: list[str] = []
    for key, value in options.items():
        text = value.value if isinstance(value, enum.Enum) else json.dumps(value)
        words += [f"--{key}", text] if key in _NAMED else ["--set", f"{key}={text}"]
    return words


def request_words(request: Request) -> list[str]:
    """All that was asked for beside the name of the input."""
    words = [] if request.device is None else ["--device", request.device]
    words += ["--seed", str(request.seed)] if request.seed else []
    for key, value in request.model.items():
        if key == "dims":
            words += [word for name, size in value.items() for word in ("--dims", f"{name}={size}")]
        else:
            words += [f"--{key}"] if value is True else [f"--{key}", str(value)]
    return words + option_words(request.options)
