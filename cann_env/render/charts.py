"""Charts of figures rather than of one schedule: curves over an option, and bars of what a whole is made of.

Numbers by name go in, a figure in the look of the other pictures comes out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.render import palette
from cann_env.render.figures import figure_class, save
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEGEND_INCHES = 1.9
_LEFT_INCHES, _RIGHT_INCHES, _BOTTOM_INCHES, _TOP_INCHES = 0.75, 0.15, 0.55, 0.45
_BAR_INCHES = 0.42
_LETTER_INCHES = 0.08
_LEAST_SHARE = 0.05
_DASHES = ((0, (5, 3)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), "-", (0, (10, 3)))
_HOUSE_COLOURS = palette.REQUEST_COLOURS


def curves(
    x: Sequence[Any],
    series: Mapping[str, Sequence[float | None]],
    path: str | Path | None = None,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    levels: Mapping[str, float] | None = None,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    from_zero: bool = False,
    logarithmic: bool = False,
    markers: bool = True,
    size_inches: tuple[float, float] = (9.0, 3.6),
    dpi: int = 80,
) -> Figure:
    """Draw curves over a common axis.

    Args:
        x: Numbers, drawn to scale; or words, drawn at equal distances.
        series: By name, one value for each of ``x``; None leaves a gap.
        path: Where to save it; the ending names the format (``.png``, ``.svg``, ``.pdf``); None: nowhere.
        xlabel: Below the horizontal axis.
        ylabel: Beside the vertical one.
        title: Above.
        levels: Values that hold for all ``x``, by name, as dashed lines.
        bands: Lower and upper ends around a series, by its name.
        from_zero: Begin the vertical axis at 0.
        logarithmic: Equal factors are equal distances on the vertical axis.
        markers: Mark each value.
        size_inches: Width and height.
        dpi: Pixels per inch.

    Raises:
        InputError: A series or a band has another length than ``x``, Matplotlib is missing, or the file
            cannot be written.
    """
    bands, levels = bands or {}, levels or {}
    _check_lengths(x, series, bands)
    figure, axes = _panel(size_inches, dpi, title, left=_LEFT_INCHES)
    places = list(x) if all(isinstance(each, int | float) for each in x) else list(range(len(x)))
    for number, (name, values) in enumerate(series.items()):
        colour = _HOUSE_COLOURS[number % len(_HOUSE_COLOURS)]
        numbers = [float("nan") if value is None else value for value in values]
        axes.plot(
            places, numbers, color=colour, linewidth=1.8, marker="o" if markers else "", markersize=4.5,
            label=name, zorder=3,
        )  # fmt: skip
        if name in bands:
            axes.fill_between(places, *bands[name], color=colour, alpha=0.16, linewidth=0, zorder=2)
    for number, (name, value) in enumerate(levels.items()):
        axes.axhline(
            value, color=palette.INK, linewidth=1.0, label=name, zorder=1,
            linestyle=_DASHES[number % len(_DASHES)],
        )  # fmt: skip
    if places != list(x):
        axes.set_xticks(places, [str(each) for each in x])
    elif len(places) <= 12:
        axes.set_xticks(places, [f"{each:g}" for each in places])
    if logarithmic:
        _factors(axes)
    elif from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(xlabel, fontsize=9, color=palette.INK)
    axes.set_ylabel(ylabel, fontsize=9, color=palette.INK)
    axes.grid(axis="y", color=palette.RULE, linewidth=0.6)
    _legend(axes)
    return _finished(figure, path)


def shares(
    rows: Mapping[str, Mapping[str, float]],
    path: str | Path | None = None,
    *,
    xlabel: str,
    title: str = "",
    marks: Mapping[str, float] | None = None,
    mark_title: str = "lower bound",
    colours: Mapping[str, str] | None = None,
    width_inches: float = 9.0,
    dpi: int = 80,
) -> Figure:
    """Draw a bar for each row, made of its parts one behind the other.

    Args:
        rows: Values of parts by name, none below 0, by the name of the row, from the top.
        path: Where to save it, as in :func:`curves`.
        xlabel: Below the horizontal axis.
        title: Above.
        marks: Where a mark stands across the bar of a row, by the row's name.
        mark_title: What the legend calls the marks.
        colours: Of parts by name; the others take colours in turn.
        width_inches: Width of the figure; the height follows from the number of rows.
        dpi: Pixels per inch.

    Raises:
        InputError: There are no rows, a value is below 0, a mark is of no row, Matplotlib is missing, or the
            file cannot be written.
    """
    marks, colours = marks or {}, colours or {}
    _check_rows(rows, marks)
    parts = list(dict.fromkeys(name for row in rows.values() for name in row))
    unnamed = [name for name in parts if name not in colours]
    chosen = {name: _HOUSE_COLOURS[i % len(_HOUSE_COLOURS)] for i, name in enumerate(unnamed)} | dict(colours)
    height = max(_BAR_INCHES * len(rows), 0.2 * (len(parts) + bool(marks))) + _BOTTOM_INCHES + _TOP_INCHES
    left = max(_LEFT_INCHES, 0.2 + _LETTER_INCHES * max(map(len, rows)))
    figure, axes = _panel((width_inches, height), dpi, title, left=left)
    longest = max([*(sum(row.values()) for row in rows.values()), *marks.values()])
    behind = [0.0] * len(rows)
    for name in parts:
        widths = [row.get(name, 0.0) for row in rows.values()]
        axes.barh(range(len(rows)), widths, 0.66, left=behind, color=chosen[name], label=name)
        for place, (start, width) in enumerate(zip(behind, widths, strict=True)):
            if width > _LEAST_SHARE * longest:
                axes.text(
                    start + width / 2, place, f"{width:.3g}", ha="center", va="center_baseline", fontsize=7.5,
                    color=palette.ink_on(chosen[name]),
                )  # fmt: skip
        behind = [start + width for start, width in zip(behind, widths, strict=True)]
    for place, name in enumerate(rows):
        if name in marks:
            axes.plot(
                [marks[name]] * 2, [place - 0.45, place + 0.45], color=palette.INK, linewidth=2.2,
                label=mark_title if name == next(iter(marks)) else "",
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.02)
    axes.set_xlabel(xlabel, fontsize=9, color=palette.INK)
    _legend(axes)
    return _finished(figure, path)


def _check_lengths(
    x: Sequence[Any],
    series: Mapping[str, Sequence[float | None]],
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]],
) -> None:
    if not series:
        raise InputError("there are no curves to draw; give at least one series")
    for name, values in series.items():
        if len(values) != len(x):
            raise InputError(f"series {name!r} has {len(values)} values; x has {len(x)}")
    for name, ends in bands.items():
        if name not in series:
            raise InputError(f"band {name!r} is around no series; there are {', '.join(series)}")
        if any(len(end) != len(x) for end in ends):
            raise InputError(
                f"band {name!r} has {len(ends[0])} lower and {len(ends[1])} upper ends; x has {len(x)}"
            )


def _check_rows(rows: Mapping[str, Mapping[str, float]], marks: Mapping[str, float]) -> None:
    if not rows:
        raise InputError("there are no bars to draw; give at least one row")
    for name, row in rows.items():
        for part, value in row.items():
            if value < 0:
                raise InputError(f"part {part!r} of {name!r} is {value!r}; parts are at least 0")
    for name in marks:
        if name not in rows:
            raise InputError(f"mark {name!r} is of no row; there are {', '.join(rows)}")


def _panel(size_inches: tuple[float, float], dpi: int, title: str, *, left: float) -> tuple[Figure, Axes]:
    """A figure with one panel, room for a legend on its right, in the look of the house."""
    width, height = size_inches
    figure = figure_class("a chart")(figsize=size_inches, dpi=dpi, facecolor="white")
    axes = figure.add_axes(
        (
            left / width,
            _BOTTOM_INCHES / height,
            (width - left - _LEGEND_INCHES - _RIGHT_INCHES) / width,
            (height - _BOTTOM_INCHES - _TOP_INCHES) / height,
        )
    )
    if title:
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=palette.INK, pad=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette.RULE)
    axes.tick_params(which="both", length=0, labelsize=8.5, colors=palette.INK)
    return figure, axes


def _factors(axes: Axes) -> None:
    """A logarithmic axis whose ticks are plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.012, 1.02), frameon=False, fontsize=8.5, labelcolor=palette.INK,
        handlelength=1.4, borderaxespad=0.0,
    )  # fmt: skip


def _finished(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        save(figure, Path(path), "chart")
    return figure
