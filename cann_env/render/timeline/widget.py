"""The timeline as a widget of JupyterLab, notebooks and VS Code; the only room that imports anywidget."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from cann_env.render.timeline.assets import script
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anywidget import AnyWidget as AnyWidget


def widget(
    shown: dict[str, Any], answer: Callable[[object], dict[str, Any]] | None, height: int
) -> AnyWidget:
    """A widget that shows a document.

    Args:
        shown: See :func:`~cann_env.render.timeline.document.document`.
        answer: Carries out an edit; None for a timeline that cannot be edited.
        height: Of the widget (pixels).

    Raises:
        InputError: anywidget is missing; names the extra that brings it.
    """
    made: AnyWidget = _widget_class()(document=_text(shown), editable=answer is not None, height=height)
    if answer is not None:

        def hear(_: object, message: dict[str, Any], __: object) -> None:
            made.send({"number": message.get("number"), "reply": answer(message.get("request"))})

        made.on_msg(hear)
    return made


def _text(shown: dict[str, Any]) -> str:
    return json.dumps(shown, separators=(",", ":"), allow_nan=False)


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise InputError(
            'a timeline in a notebook needs anywidget: pip install "cann-env[notebook]"; '
            "Timeline(...).save(path) writes an HTML file without it"
        ) from error

    class TimelineWidget(anywidget.AnyWidget):
        _esm = script()
        document = traitlets.Unicode().tag(sync=True)
        editable = traitlets.Bool().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return TimelineWidget
