"""The timeline as a user of Python meets it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from cann_env.render.timeline.answers import Answers
from cann_env.render.timeline.document import document
from cann_env.render.timeline.html import write_html
from cann_env.render.timeline.widget import widget
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.render.timeline.whatif import WhatIf
    from cann_env.render.timeline.widget import AnyWidget
    from cann_env.schedule import Schedule


class Timeline:
    """An interactive timeline of a schedule; a notebook shows it when it is the last value of a cell.

    In a notebook a command can be dragged to another stream, and a prefetch to another time: the engine plays
    the schedule again and the new one is shown above the old one.

    Args:
        schedule: A finished schedule.
        against: Another one to show below it on the same axis, or None.
        labels: What to call each of them, such as the names of their schedulers.
        height: Of the widget (pixels).
    """

    def __init__(
        self,
        schedule: Schedule,
        against: Schedule | None = None,
        *,
        labels: tuple[str, str] = ("", ""),
        height: int = 640,
    ) -> None:
        self._given, self._against, self._labels, self._height = schedule, against, labels, height

    @property
    def schedule(self) -> Schedule:
        """The schedule with all edits that are in force."""
        return self._answers.what_if.schedule if self._answers is not None else self._given

    @property
    def what_if(self) -> WhatIf:
        """The edits, for code that makes some itself.

        Raises:
            InputError: The schedule cannot be edited; says why.
        """
        if self._answers is None:
            Answers(self._given)  # says why
            raise InputError("the schedule cannot be edited")  # pragma: no cover
        return self._answers.what_if

    def show(self) -> AnyWidget:
        """The widget.

        Raises:
            InputError: anywidget is missing; names the extra that brings it.
        """
        return self._widget

    def save(self, path: str | Path) -> Path:
        """Write it as an HTML file that needs nothing else, with all edits that are in force.

        Raises:
            InputError: It cannot be written.
        """
        if self._answers is None or not self._answers.what_if.can_undo:
            return write_html(path, self._given, self._against, labels=self._labels)
        now = self._answers.what_if.now
        labels = ("what if", "as it was")
        return write_html(path, now.schedule, self._given, labels=labels, streams=now.streams)

    def _repr_mimebundle_(self, **given: Any) -> Any:
        return self._widget._repr_mimebundle_(**given)

    @cached_property
    def _answers(self) -> Answers | None:
        """None where nobody decided the schedule: it is shown all the same."""
        try:
            return Answers(self._given, self._against, self._labels)
        except InputError:
            return None

    @cached_property
    def _widget(self) -> AnyWidget:
        if self._answers is None:
            return widget(document(self._given, self._against, labels=self._labels), None, self._height)
        return widget(self._answers.document, self._answers.answer, self._height)
