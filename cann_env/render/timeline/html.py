"""A timeline as one HTML file that needs nothing else: no network, no folder beside it."""

from __future__ import annotations

import html
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.render.timeline.assets import script
from cann_env.render.timeline.document import document
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.schedule import Schedule

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';\
 style-src 'unsafe-inline'; img-src data:; connect-src {connect}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>html, body {{ height: 100%; margin: 0; }}</style>
</head>
<body>
<div id="cann-env-timeline"{word}></div>
<script type="application/json" id="cann-env-document">{document}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def write_html(
    path: str | Path,
    schedule: Schedule,
    against: Schedule | None = None,
    *,
    labels: tuple[str, str] = ("", ""),
    streams: Sequence[int] = (),
) -> Path:
    """Write the timeline of a schedule as an HTML file; equal schedules give equal bytes.

    The file appears under its name only when it is complete.

    Args:
        path: The file.
        schedule: A finished schedule.
        against: Another one to show below it on the same axis, or None.
        labels: What to call each of them, such as the names of their schedulers.
        streams: See :func:`~cann_env.render.timeline.document.document`.

    Returns:
        The path.

    Raises:
        InputError: It cannot be written.
    """
    target = Path(path)
    text = page(document(schedule, against, labels=labels, streams=streams))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InputError(f"timeline {str(target)!r} cannot be written: {error.strerror}") from error
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        part.chmod(0o644)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"timeline {str(target)!r} cannot be written: {error.strerror}") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return target


def page(shown: Mapping[str, Any], *, word: str | None = None) -> str:
    """The HTML of a document.

    Args:
        shown: See :func:`~cann_env.render.timeline.document.document`.
        word: What the page has to say to the server that answers its edits; None for a page without one.
    """
    first = shown["schedules"][0]
    return _PAGE.format(
        title=html.escape(f"{first['graph']} on {first['device']}"),
        connect="'none'" if word is None else "'self'",
        word="" if word is None else f' data-word="{html.escape(word)}"',
        document=as_script(shown),
        script=script(),
    )


def as_script(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
