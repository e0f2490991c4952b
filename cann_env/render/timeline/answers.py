"""What a page asks of the engine, and the answers: edits as plain data in, documents out."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from cann_env.render.timeline.document import document, joined, side_of
from cann_env.render.timeline.whatif import WhatIf
from cann_env.units import AclError, CannEnvError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.render.timeline.whatif import Edited
    from cann_env.schedule import Schedule


class Answers:
    """Answers the edits of one page.

    Args:
        schedule: What the page shows first.
        against: What it shows below, until something is edited: then that is the schedule as it was.
        labels: What to call them.

    Raises:
        InputError: The schedule cannot be edited, see :class:`WhatIf`.
    """

    def __init__(
        self, schedule: Schedule, against: Schedule | None = None, labels: tuple[str, str] = ("", "")
    ) -> None:
        self.what_if: Final = WhatIf(None, schedule)
        self._against, self._labels = against, labels

    @property
    def document(self) -> dict[str, Any]:
        """What the page is to show now."""
        now, before = self.what_if.now, self.what_if.before
        if not self.what_if.can_undo:
            return document(before.schedule, self._against, labels=self._labels)
        label = f"{self._labels[0]} what if".strip()
        return joined([side_of(now.schedule, label, now.streams), self._as_it_was])

    @cached_property
    def _as_it_was(self) -> dict[str, Any]:
        return side_of(self.what_if.before.schedule, f"{self._labels[0]} as it was".strip())

    def answer(self, request: object) -> dict[str, Any]:
        """Carry out an edit.

        Args:
            request: ``{"op": "move", "command", "stream", "at_ns"}``, ``{"op": "shift", "buffer", "by_ns",
                "which"}``, or one with ``op`` alone: ``undo``, ``redo``, ``reset``. ``at_ns`` may be None.

        Returns:
            ``document``, ``change`` (in words), ``change_ns``, ``notes``, ``can_undo``, ``can_redo``; or
            ``error`` alone, and nothing has changed.
        """
        try:
            edited = self._carry_out(request)
        except (CannEnvError, AclError) as error:
            return {"error": " ".join(str(error).split())}
        return {
            "document": self.document,
            "change": edited.change,
            "change_ns": self.what_if.change_ns,
            "notes": list(edited.notes),
            "can_undo": self.what_if.can_undo,
            "can_redo": self.what_if.can_redo,
        }

    def _carry_out(self, request: object) -> Edited:
        if not isinstance(request, dict):
            raise InputError(f"an edit is {request!r}; it must be an object with the key 'op'")
        op = request.get("op")
        if op == "move":
            command, stream = _whole(request, "command"), _whole(request, "stream")
            if request.get("at_ns") is None:
                return self.what_if.move(command, stream)
            return self.what_if.drop(command, stream, _whole(request, "at_ns"))
        if op == "shift":
            return self.what_if.shift_prefetch(
                _whole(request, "buffer"), _whole(request, "by_ns"), _whole(request, "which")
            )
        plain = {"undo": self.what_if.undo, "redo": self.what_if.redo, "reset": self.what_if.reset}
        if op not in plain:
            raise InputError(f"an edit's 'op' is {op!r}; write move, shift, {', '.join(plain)}")
        return plain[op]()


def _whole(request: Mapping[str, Any], key: str) -> int:
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"an edit's {key!r} is {value!r}; write a whole number")
    return value
