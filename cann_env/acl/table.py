"""The table of every call: its name in Python, in C and in the article, what it does, and how it differs.

``python -m cann_env.acl.table`` prints the page ``docs/acl_calls.md``.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cann_env.acl as acl
from cann_env.acl.facts import GIVES_ALONE, Facts, facts_of, name_in_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_ROOMS: Final[tuple[tuple[str, str], ...]] = (
    ("acl", "Begin and end, buffers and tensors"),
    ("rt", "`acl.rt`: devices, streams, events, memory, kernels"),
    ("mdl", "`acl.mdl`: models and captured graphs"),
    ("op", "`acl.op`: single operators"),
    ("media", "`acl.media`: descriptions of images and videos"),
    ("prof", "`acl.prof`: profiles and marks"),
    ("util", "`acl.util`: addresses, arrays, threads"),
)
_NOTES: Final[dict[str, str]] = {
    "mdl": "Models are ONNX files; the device's own format cannot be read. Their kernels are simulated "
    "one by one, and values are those of ONNX's reference evaluator. The binding has no names "
    "for captured graphs: here they are `ri_...`, and an execution costs the host one launch.",
    "op": "Elementwise operators, casts, products of matrices and the largest along an axis are computed; "
    "others run if the program defines a kernel of their name. Nothing is compiled.",
    "media": "Memory and descriptions are kept; what decodes, encodes, crops and resizes is refused "
    "(207000), as are all calls of `acl.blas`, `acl.fv` and `acl.himpi`.",
    "prof": "All of it is accepted and nothing is written: `acl.save_trace` and "
    "`acl.simulator().schedules()` have the times of everything.",
}
"""What holds for all calls of a room."""

_ARTICLE: Final = "The article's names, and stand-ins"

_HEAD: Final = """\
# Every call of `cann_env.acl`

This page is printed by `python -m cann_env.acl.table`; do not edit it. [acl.md](acl.md) tells how programs
are written.

**In C** is the real name; a dash means that CANN has no such call. **In the article** is the name that the
article on the runtime uses, where it names the call. Times of all calls are simulated; where the device file
knows no cost, a call takes none. What holds for all is not repeated in the rows.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One call.

    Attributes:
        python: As a program calls it.
        arguments: Names of its arguments, those with defaults in brackets.
        gives: What comes back.
        c_name: Its name in C; empty if there is none.
        article: Its name in the article; empty if it has none.
        does: The first sentence of its docstring.
        differs: How it differs from a device; empty if in nothing that is known.
    """

    python: str
    arguments: str
    gives: str
    c_name: str
    article: str
    does: str
    differs: str


def rows(room: str) -> list[Row]:
    """All calls of a room, ``acl``, ``rt``, ``mdl``, ``op``, ``media``, ``prof`` or ``util``, by name."""
    module: ModuleType = acl if room == "acl" else getattr(acl, room)
    found = []
    for name, function in sorted(vars(module).items()):
        facts = facts_of(function)
        elsewhere = room != "rt" and function is getattr(acl.rt, name, None)
        if facts is not None and not name.startswith("_") and not elsewhere:
            found.append(_row(room, name, function, facts))
    return found


def page() -> str:
    """The page of all calls, as Markdown."""
    lines = [_HEAD]
    own: list[Row] = []
    article: list[Row] = []
    for row in rows("acl"):
        (own if row.c_name else article).append(row)
    for room, title in _ROOMS:
        lines += _section(title, own if room == "acl" else rows(room), _NOTES.get(room, ""))
        if room == "acl":
            lines += _section(_ARTICLE, article)
    return "\n".join(lines)


def _section(title: str, listed: list[Row], note: str = "") -> Iterator[str]:
    yield f"## {title}\n"
    if note:
        yield f"{note}\n"
    yield "| call | gives | in C | in the article | what it does | what differs |"
    yield "|---|---|---|---|---|---|"
    for row in listed:
        cells = (
            f"`{row.python}({row.arguments})`",
            row.gives,
            f"`{row.c_name}`" if row.c_name else "-",
            f"`{row.article}`" if row.article else "",
            row.does,
            row.differs,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _row(room: str, name: str, function: Callable[..., Any], facts: Facts) -> Row:
    written = inspect.unwrap(function)
    differs = facts.differs
    if written.__name__ != name:
        differs = f"The same as `{written.__name__}`. {differs}".strip()
    c_name = facts.c_name
    if c_name is None or written.__name__ != name:
        c_name = name_in_c(room, name)
    return Row(
        python=f"acl.{name}" if room == "acl" else f"acl.{room}.{name}",
        arguments=_arguments(written),
        gives=_gives(facts.results),
        c_name=c_name,
        article=facts.article if written.__name__ == name else "",
        does=_plain((written.__doc__ or "").strip().splitlines()[0]),
        differs=_plain(differs),
    )


def _arguments(function: Callable[..., Any]) -> str:
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "run":
        parameters = parameters[1:]
    return ", ".join(p.name if p.default is p.empty else f"[{p.name}]" for p in parameters)


def _gives(results: int) -> str:
    if results == GIVES_ALONE:
        return "value"
    return {0: "ret", 1: "value, ret"}.get(results, f"{results} values, ret")


def _plain(text: str) -> str:
    """A sentence of a docstring as Markdown."""
    for role in (":func:", ":class:", ":mod:", ":data:"):
        text = text.replace(role, "")
    return text.replace("``", "`").replace("`~cann_env.acl.", "`")


if __name__ == "__main__":
    print(page(), end="")
