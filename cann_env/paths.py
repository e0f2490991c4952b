"""Where the shipped configuration lies: inside the installed package, or beside it in a checkout.

A wheel carries ``configs`` within the package; a checkout and an editable install keep it at the
top. Everything that reads shipped files asks here and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def config_folder(kind: str) -> Path:
    """Find a folder of shipped files.

    Args:
        kind: ``devices``, ``problems``, ``scenarios``, ``suites`` or ``training``.

    Raises:
        FileNotFoundError: Neither place has the folder: the installation is incomplete, or ``kind`` is wrong.
    """
    places = [parent / "configs" / kind for parent in (_PACKAGE, _PACKAGE.parent)]
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"no folder of shipped {kind!r} files: looked for {looked}; reinstall cann-env")
