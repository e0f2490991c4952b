"""The page's script: a few modules beside this file, joined into one that needs nothing else."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_PARTS: Final = (
    "words",
    "looks",
    "paper",
    "model",
    "curves",
    "arrows",
    "draw",
    "board",
    "facts",
    "hands",
    "timeline",
    "start",
)
"""Modules in an order in which each stands behind those that it imports."""

_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def script() -> str:
    """One module with all parts: its default export renders a widget, and a page with a document starts.

    No two parts define the same name at their top level.
    """
    folder = files("cann_env.render.timeline") / "page"
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS]
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts)
