"""What the table of calls says about each: its name in C and in the article, and how it differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

GIVES_ALONE: Final = -1
"""In place of a number of results: the call gives its value alone, without a code."""

_CAPITALS: Final = {"hw": "HW", "ri": "RI"}

_Function = TypeVar("_Function", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the table of calls says about one.

    Attributes:
        c_name: Its name in C, if that does not follow from its name in Python; empty if CANN has none such.
        article: Its name in the article on the runtime, if that has it.
        differs: What is not as on a device, in a sentence or two.
        results: Values beside the code, or :data:`GIVES_ALONE`.
    """

    c_name: str | None = None
    article: str = ""
    differs: str = ""
    results: int = 0


def put_facts(function: _Function, facts: Facts) -> _Function:
    """Let the table of calls have a function; it stays as it is."""
    function.__facts__ = facts  # type: ignore[attr-defined]
    return function


def facts_of(function: object) -> Facts | None:
    """What is known about a call or a helper; None for anything else."""
    found = getattr(function, "__facts__", None)
    return found if isinstance(found, Facts) else None


def helper(c_name: str = "", *, differs: str = "") -> Callable[[_Function], _Function]:
    """Put a function that is made without :func:`~cann_env.acl.api.call` into the table of calls."""

    def wrap(function: _Function) -> _Function:
        return put_facts(function, Facts(c_name, "", differs, GIVES_ALONE))

    return wrap


def room_of(function: Callable[..., Any]) -> str:
    """Where programs find a call: ``rt``, ``mdl``, ``util``, or ``acl`` itself."""
    module = function.__module__.rpartition(".")[2].partition("_")[0]
    return "acl" if module in ("article", "stand") else module


def name_in_c(room: str, name: str) -> str:
    """Name of a call in C: ``rt.create_stream`` is ``aclrtCreateStream``."""
    words = name.split("_")
    # Those for images begin with the name of their engine: acl.media.dvpp_malloc is acldvppMalloc.
    prefix = {"acl": "acl", "media": f"acl{words[0]}"}.get(room, f"acl{room}")
    if room == "media":
        words = words[1:]
    return prefix + "".join(_CAPITALS.get(word, word[:1].upper() + word[1:]) for word in words)
