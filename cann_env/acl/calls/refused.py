"""Calls of the interface that are not simulated: they can be called, and are refused with a reason.

A program that only touches them on the way - or asks whether they are there - goes on; one that needs what
they give gets the code for a feature that is not supported, and is told once.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl.api import call, simulator
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cann_env.acl.state.simulator import Simulator


class RefusedCode(int):
    """The code of a call that is not simulated; unpacked as value and code, the value is None."""

    def __iter__(self) -> Iterator[Any]:
        """Value and code."""
        return iter((None, int(self)))


_KNOWN: Final[dict[str, Callable[..., Any]]] = {}


def refused(module: str, name: str, reason: str) -> Callable[..., Any]:
    """A call that refuses, for the ``__getattr__`` of a module.

    Args:
        module: Of the interface, such as ``acl.mdl``.
        name: Of the call.
        reason: What to do instead.

    Raises:
        AttributeError: The name is no name of a call.
    """
    if name.startswith("_") or not name.islower():
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    full = f"{module}.{name}"
    if full not in _KNOWN:
        _KNOWN[full] = _made(full, reason)
    return _KNOWN[full]


def _made(full: str, reason: str) -> Callable[..., Any]:
    message = f"{full} is not simulated: {reason}"

    @call(initialised=False)
    def refuse(run: Simulator) -> None:
        del run
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, message)

    def made(*args: Any, **named: Any) -> RefusedCode:
        del args, named
        run = simulator()
        if full not in run.refused:
            run.refused.add(full)
            warnings.warn(message, stacklevel=2)
        return RefusedCode(refuse())

    made.__name__ = full.rpartition(".")[2]
    made.__doc__ = message
    return made
