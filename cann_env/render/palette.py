"""Colours, letters and shades of the classes of work: one look for every picture."""

from __future__ import annotations

from typing import Final

CLASS_COLOURS: Final[dict[str, str]] = {
    "cube": "#3d6fb4",
    "vector": "#e5953e",
    "mix": "#7f5fa8",
    "aicpu": "#8a8f4a",
    "h2d": "#2f9e78",
    "d2h": "#7cc7a5",
    "sdma": "#3fb1c5",
    "callback": "#9aa0a6",
    "hcom": "#c9525c",
}
"""Colour of each class of work (:data:`cann_env.device.spec.CLASSES`)."""

CLASS_GLYPHS: Final[dict[str, str]] = {
    "cube": "█",
    "vector": "▓",
    "mix": "▒",
    "aicpu": "░",
    "h2d": "▶",
    "d2h": "◀",
    "sdma": "◆",
    "callback": "○",
    "hcom": "■",
}
"""Character of each class of work in a text timeline."""

POOL_COLOURS: Final[dict[str, str]] = {
    "aic": CLASS_COLOURS["cube"],
    "aiv": CLASS_COLOURS["vector"],
    "aicpu": CLASS_COLOURS["aicpu"],
    "h2d": CLASS_COLOURS["h2d"],
    "d2h": CLASS_COLOURS["d2h"],
    "sdma": CLASS_COLOURS["sdma"],
    "callback": CLASS_COLOURS["callback"],
    "hcom": CLASS_COLOURS["hcom"],
}
"""Colour of each pool (:data:`cann_env.device.spec.POOLS`)."""

POOL_TITLES: Final[dict[str, str]] = {
    "aic": "AIC",
    "aiv": "AIV",
    "aicpu": "AI CPU",
    "h2d": "DMA h2d",
    "d2h": "DMA d2h",
    "sdma": "SDMA",
    "callback": "Callback",
    "hcom": "HCOM",
}
"""What people call each pool."""

CAUSE_COLOURS: Final[dict[str, str]] = {
    "fault": "#c2268f",
    "prefetch": CLASS_COLOURS["h2d"],
    "writeback": CLASS_COLOURS["d2h"],
    "lift": CLASS_COLOURS["sdma"],
}
"""Colour of each cause of a transfer that takes time."""

CAUSE_GLYPHS: Final[dict[str, str]] = {"fault": "!", "prefetch": "▶", "writeback": "◀", "lift": "◆"}
"""Character of each of them in a text timeline."""

CALL_COLOURS: Final[dict[str, str]] = {
    "issue": "#54708c",
    "prefetch": CAUSE_COLOURS["prefetch"],
    "lift": CAUSE_COLOURS["lift"],
    "offload": CAUSE_COLOURS["writeback"],
    "call": "#93a7b8",
    "wait": "#c8ccd1",
}
"""Colour of each call of the host thread; ``call`` is one that neither submits anything nor waits."""

HELD: Final = "#d9dde2"
"""A command that has started while none of its blocks run (it waits for pages or for cores)."""

OTHER: Final = "#b9bfc7"
"""Work of a kind without a colour of its own."""

HBM: Final[tuple[str, ...]] = ("#6b7a8f", "#8a6f94")
"""Colours of the memory of dies, which take them in turn."""

INK: Final = "#22262b"
FAINT: Final = "#8b929a"
RULE: Final = "#e4e7eb"

REQUEST_COLOURS: Final[tuple[str, ...]] = (
    "#3d6fb4",
    "#e5953e",
    "#2f9e78",
    "#c9525c",
    "#7f5fa8",
    "#3fb1c5",
    "#8a8f4a",
    "#b8698f",
    "#8d6b4f",
    "#5f7f63",
)
"""Colours that requests take in turn, in order of first appearance."""


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of ``"#rrggbb"``, each 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ink_on(colour: str) -> str:
    """The ink, dark or white, that reads better on ``colour``."""
    red, green, blue = rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "#ffffff"
