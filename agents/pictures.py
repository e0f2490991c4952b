"""A picture of standings: ratios to the reference with their intervals, an axis a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.render.figures import figure_class, save

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agents.standings import Standing

_FARTHEST = 1.6  # ratios beyond are drawn at the edge
_WIDTH, _ROW = 8.0, 0.42
_SHOWN = ("learned", "search", "cann_autotune", "nimble")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def draw(axes: Mapping[str, Sequence[Standing]], path: Path) -> None:
    """Draw the ratios of all contestants on all axes.

    Raises:
        InputError: Matplotlib is missing, or the file cannot be written.
    """
    figure = figure_class()(figsize=(_WIDTH, 1.6 + _ROW * len(axes) * 2), layout="constrained")
    plot = figure.add_subplot()
    names = list(dict.fromkeys(each.contestant for found in axes.values() for each in found))
    shown = [name for name in names if name.startswith(_SHOWN)]
    spread = 0.8 / max(len(shown), 1)
    for place, name in enumerate(shown):
        colour = _COLOURS[place % len(_COLOURS)]
        for row, found in enumerate(axes.values()):
            each = next((one for one in found if one.contestant == name), None)
            if each is None:
                continue
            y = row + (place - (len(shown) - 1) / 2) * spread
            middle = min(each.to_reference, _FARTHEST)
            plot.plot([min(each.low, _FARTHEST), min(each.high, _FARTHEST)], [y, y], color=colour, lw=1.5)
            plot.plot([middle], [y], "o", color=colour, ms=4, label=name if row == 0 else None)
    plot.axvline(1.0, color="0.4", lw=1, zorder=0)
    plot.set_yticks(range(len(axes)), list(axes))
    plot.invert_yaxis()
    plot.set_xlabel("objective over that of the reference scheduler (less is better)")
    plot.grid(axis="x", color="0.9")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    save(figure, path, "picture")
