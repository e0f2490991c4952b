"""A comparison of schedulers as one picture: how far each is from the baseline, how often close to the best.

Ratios of time to the baseline's go in. One panel sums up all cases, one shows performance profiles (Dolan and
Moré, Mathematical Programming, 2002), and each family has a panel of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.render import palette
from cann_env.render.figures import figure_class, save
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_WIDTH_INCHES = 13.0
_ROW_INCHES = 0.2
_PANEL_INCHES = 0.85
_PROFILES = 8
_TIE = "#eef1f4"
_OTHERS = "#9aa0a6"


class Point(NamedTuple):
    """One scheduler on one case.

    Attributes:
        family, case, scheduler: Names.
        ratio: Time over that of the baseline; None if one of the two did not finish.
    """

    family: str
    case: str
    scheduler: str
    ratio: float | None


def comparison(
    points: Sequence[Point],
    path: str | Path | None = None,
    *,
    title: str,
    baseline: str,
    win: float,
    loss: float,
    dpi: int = 130,
) -> Figure:
    """Draw a comparison.

    A dot is a case, a bar the geometric mean of a scheduler, and the band around one holds ties with the
    baseline. Schedulers stand in the order of their mean over all cases, the best on top.

    Args:
        points: What to draw; at least one has a ratio.
        path: Where to save it; the ending names the format (``.png``, ``.svg``, ``.pdf``); None: nowhere.
        title: Above the picture.
        baseline: Whom the ratios are taken to.
        win: The band of ties begins at ``1 / win``.
        loss: It ends at ``1 / loss``.
        dpi: Pixels per inch.

    Returns:
        The figure; its first axes hold all cases, the second the profiles, the others a family each.

    Raises:
        InputError: No point has a ratio, Matplotlib is missing, or the file cannot be written.
    """
    ratios = _ratios(points)
    if not ratios:
        raise InputError(
            f"nothing to draw: neither {baseline!r} nor another scheduler finished a common case"
        )
    names = sorted(ratios, key=lambda name: _mean(ratios[name]))
    families = list(dict.fromkeys(point.family for point in points if point.ratio is not None))
    figure, panels = _panels(len(names), len(families), dpi)
    colours = _colours(names, baseline)
    band = (1 / win, 1 / loss)
    limits = _limits([ratio for of_one in ratios.values() for ratio in of_one], band)
    _draw_ratios(panels[0], ratios, names, colours, band, limits)
    _heading(panels[0], "all cases")
    _draw_profiles(panels[1], points, names, colours)
    for number, (axes, family) in enumerate(zip(panels[2:], families, strict=False)):
        of_family = _ratios([point for point in points if point.family == family])
        _draw_ratios(axes, of_family, names, colours, band, limits)
        cases = len({point.case for point in points if point.family == family})
        _heading(axes, f"{family} ({cases})")
        if number % _COLUMNS:
            axes.set_yticklabels([])
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.12 / height, title, va="top", fontsize=12, fontweight="bold", color=palette.INK)
    figure.text(
        0.012,
        1 - 0.36 / height,
        f"time over that of {baseline}; left is faster. Dots: cases. Bars: geometric means. Grey: ties.",
        va="top",
        fontsize=9.5,
        color=palette.FAINT,
    )
    if path is not None:
        save(figure, Path(path), "picture")
    return figure


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=9.5, color=palette.INK, pad=4)


def _ratios(points: Sequence[Point]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.ratio is not None:
            found[point.scheduler].append(point.ratio)
    return dict(found)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def _colours(names: Sequence[str], baseline: str) -> dict[str, str]:
    """Colours for the best few; the baseline is dark, the rest grey."""
    found = {name: _OTHERS for name in names} | {baseline: palette.INK}
    best = [name for name in names if name != baseline][:_PROFILES]
    return found | dict(zip(best, palette.REQUEST_COLOURS, strict=False))


def _limits(ratios: Sequence[float], band: tuple[float, float]) -> tuple[float, float]:
    """The axis: all ratios but what lies beyond a factor of eight, with a margin."""
    low = max(min(*ratios, band[0]), 1 / 8)
    high = min(max(*ratios, band[1]), 8.0)
    margin = (high / low) ** 0.04
    return low / margin, high * margin


def _panels(names: int, families: int, dpi: int) -> tuple[Figure, list[Axes]]:
    """A wide panel and the profiles on top, families below."""
    rows = -(-families // _COLUMNS) if families > 1 else 0
    panel = max(1.1, _ROW_INCHES * names)
    heights = [max(2.2, 1.25 * panel), *([panel] * rows)]
    height = sum(heights) + _PANEL_INCHES * 0.75 * len(heights) + 0.75
    figure = figure_class()(figsize=(_WIDTH_INCHES, height), dpi=dpi, facecolor="white")
    place = {
        "height_ratios": heights,
        "right": 0.985,
        "left": 0.1,
        "top": 1 - 0.85 / height,
        "bottom": 0.4 / height,
        "hspace": 0.75 * _PANEL_INCHES * len(heights) / sum(heights),
    }
    wide = figure.add_gridspec(len(heights), 2, width_ratios=(1.2, 1), wspace=0.14, **place)
    small = figure.add_gridspec(len(heights), _COLUMNS, wspace=0.06, **place)
    panels = [figure.add_subplot(wide[0, 0]), figure.add_subplot(wide[0, 1])]
    for number in range(families if rows else 0):
        panels.append(figure.add_subplot(small[1 + number // _COLUMNS, number % _COLUMNS]))
    return figure, panels


def _draw_ratios(
    axes: Axes,
    ratios: Mapping[str, Sequence[float]],
    names: Sequence[str],
    colours: Mapping[str, str],
    band: tuple[float, float],
    limits: tuple[float, float],
) -> None:
    axes.set_xscale("log")
    axes.axvspan(*band, color=_TIE, zorder=0, linewidth=0)
    axes.axvline(1.0, color=palette.FAINT, linewidth=0.8, zorder=0.5)
    for row, name in enumerate(names):
        axes.axhline(row, color=palette.RULE, linewidth=0.6, zorder=0.2)
        if name not in ratios:
            continue
        values = np.clip(ratios[name], *limits)
        # Equal ratios would hide each other: spread them by rank, the same way every time.
        spread = ((np.arange(values.size) * 0.618) % 1.0 - 0.5) * 0.5
        axes.scatter(values, row + spread, s=13, color=colours[name], alpha=0.45, linewidths=0, zorder=2)
        mean = float(np.clip(_mean(ratios[name]), *limits))
        axes.plot([mean, mean], [row - 0.38, row + 0.38], color=colours[name], linewidth=2.4, zorder=3)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(*limits)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    _plain(axes)
    _ticks(axes, limits)


def _ticks(axes: Axes, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    candidates = (0.125, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
    wide = limits[1] / limits[0] > 4
    chosen = [tick for tick in candidates if not wide or tick in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)]
    ticks = [tick for tick in chosen if limits[0] <= tick <= limits[1]]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:g}" for tick in ticks])


def _draw_profiles(
    axes: Axes, points: Sequence[Point], names: Sequence[str], colours: Mapping[str, str]
) -> None:
    """Share of the cases on which a scheduler takes at most so many times the best time."""
    best: dict[tuple[str, str], float] = {}
    for point in points:
        if point.ratio is not None:
            key = (point.family, point.case)
            best[key] = min(best.get(key, math.inf), point.ratio)
    over: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.ratio is not None:
            over[point.scheduler].append(point.ratio / best[point.family, point.case])
    right = min(2.0, max(1.05, max(max(values) for values in over.values())))
    drawn = [name for name in names if colours[name] != _OTHERS]
    for name in reversed(drawn):
        steps = np.sort(over[name])
        shares = np.arange(steps.size + 1) / len(best)
        axes.step(
            [0.99, *steps, right],
            [*shares, shares[-1]],
            where="post",
            color=colours[name],
            linewidth=1.6,
            label=name,
        )
    axes.set_xlim(1.0, right)
    axes.set_ylim(0, 1.02)
    _heading(axes, "share of cases within so many times the best")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    axes.grid(color=palette.RULE, linewidth=0.6)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="lower right", fontsize=8, frameon=False, labelcolor=palette.INK
    )
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette.RULE)
    axes.tick_params(length=0, labelsize=8, colors=palette.INK)
