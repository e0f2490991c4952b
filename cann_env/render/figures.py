"""Matplotlib figures without pyplot: they need no screen and leave no global state behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.render import palette
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIME_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_LEGEND_LETTERS = 20


def figure_class(what: str = "a picture") -> type[Figure]:
    """The class of figures that draw into memory.

    Args:
        what: Needs it; begins the message of an error.

    Raises:
        InputError: Matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f'{what} needs Matplotlib: pip install "cann-env[plot]"') from error

    class AggFigure(Figure):
        def __init__(self, **kwargs: object) -> None:
            super().__init__(**kwargs)  # type: ignore[arg-type]
            FigureCanvasAgg(self)

    return AggFigure


def save(figure: Figure, path: Path, what: str) -> None:
    """Write a figure in the format that the file's ending names.

    Raises:
        InputError: It cannot be written; names what and where.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{what} {str(path)!r} cannot be written: {error}") from error


def time_unit(longest_ns: float) -> tuple[int, str]:
    """The unit of a time axis that reaches ``longest_ns``: nanoseconds it holds, and its name."""
    return next((scale, unit) for scale, unit in _TIME_UNITS if longest_ns >= scale or scale == 1)


def side_legend(axes: Axes, entries: Sequence[tuple[str, str]], *, hatched: str | None = None) -> None:
    """Write a legend on the right of some axes.

    Args:
        axes: Beside which it stands.
        entries: ``(label, colour)``, from the top.
        hatched: The label of the entry that is hatched; None if there is none.
    """
    from matplotlib.patches import Patch

    axes.legend(
        handles=[
            Patch(
                facecolor=colour,
                label=shorten(label, _LEGEND_LETTERS),
                hatch="////" if label == hatched else None,
                edgecolor=palette.FAINT if label == hatched else None,
                linewidth=0.4 if label == hatched else None,
            )
            for label, colour in entries
        ],
        loc="upper left",
        bbox_to_anchor=(1.008, 1.02),
        frameon=False,
        fontsize=8.5,
        labelcolor=palette.INK,
        handlelength=1.1,
        handleheight=0.9,
        borderaxespad=0.0,
    )


def shorten(text: str, letters: int) -> str:
    """The text, if it has no more letters; else its beginning and an ellipsis."""
    return text if len(text) <= letters else text[: letters - 1] + "…"
