"""Docstrings as Markdown: an extension of griffe for what the docstrings here take from reStructuredText.

Roles such as ``:class:`~cann_env.graph.Buffer``` become names in code, tables of equals signs become blocks
of text.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?([^`]+)`")
TABLE = re.compile(r"^( *)=+(?: +=+)+$.*^\1=+(?: +=+)+$", re.MULTILINE | re.DOTALL)
POWER = re.compile(r"(?<=\d)\*\*(?=-?\d)")
LITERAL = re.compile(r"::$", re.MULTILINE)


def as_markdown(text: str) -> str:
    """A docstring with roles, tables and literal blocks as Markdown has them."""
    text = ROLE.sub(lambda m: f"`{m[1].removeprefix('cann_env.')}`", text)
    text = TABLE.sub(lambda m: f"{m[1]}```text\n{m[0]}\n{m[1]}```", text)
    text = POWER.sub(r"\\*\\*", text)
    return LITERAL.sub(":", text)


class Roles(griffe.Extension):
    """Rewrites every docstring once, when its object is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
