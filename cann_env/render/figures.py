"""Matplotlib figures without pyplot: they need no screen and leave no global state behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure


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
