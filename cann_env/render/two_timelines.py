"""A recording and its replay, one above the other on one time axis, and how far their starts lie apart.

Spans of both sides go in as plain tuples, a Matplotlib figure comes out, drawn without pyplot. What knows
recordings and replays stands elsewhere and fills in the spans.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.render import palette
from cann_env.render.figures import figure_class, save, side_legend, time_unit
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_PANEL_INCHES = (1.5, 5.0)
_ROW_INCHES = 0.32
_LEGEND_INCHES = 0.2
_STRIP_INCHES = 1.15
_BETWEEN_INCHES = 0.4
_LEFT_INCHES, _RIGHT_INCHES, _TOP_INCHES, _BOTTOM_INCHES = 1.0, 1.95, 1.0, 0.5
_BAR_HEIGHT = 0.84
_LEAST_PIXELS = 0.7
_HATCHED_PIXELS, _EDGED_PIXELS = 4.0, 5.0
_VISIBLE_PART = 2e-4
_POINTS_BETWEEN_LABELS = 9.0
_STRIP_PART = 99.0
_EXTERNAL = "external wait"
OTHERS = "others"
"""A group without a colour of its own."""

_EXTERNAL_FACE, _EXTERNAL_LINES = "#f3f4f6", "#a7adb5"


class Span(NamedTuple):
    """One bar: a task of the recording, or a command of the replay.

    Attributes:
        stream: The row it stands in; both sides have the same rows.
        start_ns, finish_ns: From the left edge of the picture.
        group: Names its colour: a class of work, or anything else, such as a type of operator.
        external: It waits for something that is neither this device nor its host; drawn hatched.
    """

    stream: int
    start_ns: int
    finish_ns: int
    group: str
    external: bool = False


class StartError(NamedTuple):
    """How much later something starts in the replay than in the recording, at its recorded start."""

    at_ns: int
    error_ns: int
    group: str


class Side(NamedTuple):
    """One of the two timelines: what it is called, and its spans in any order."""

    title: str
    spans: Sequence[Span]


def two_timelines(
    upper: Side,
    lower: Side,
    errors: Sequence[StartError],
    path: str | Path | None = None,
    *,
    title: str,
    subtitle: str = "",
    strip: str = "start, simulated less recorded",
    shared_rows: bool = True,
    between_ns: tuple[int, int] | None = None,
    width_inches: float = 14.0,
    dpi: int = 130,
) -> Figure:
    """Draw two timelines of the same streams, and the errors of the starts below them.

    Streams on which nothing takes more than a few thousandths of a pixel on either side are left out, and
    counted. Bars thinner than a pixel are drawn almost a pixel wide.

    Args:
        upper: The recording.
        lower: The replay.
        errors: A point each; those beyond the 99th percentile lie on the edge of the strip.
        path: Where to save it; the ending names the format (``.png``, ``.svg``, ``.pdf``); None: nowhere.
        title: First line.
        subtitle: Second line.
        strip: What the errors are.
        shared_rows: Whether a number means the same stream on both sides.
        between_ns: The part to show, from and to; None for all.
        width_inches: Width of the figure; the height follows from the number of streams.
        dpi: Pixels per inch.

    Returns:
        The figure; its axes are the upper timeline, the lower one, and the strip of errors.

    Raises:
        InputError: Matplotlib is missing, the file cannot be written, or the part to show is empty.
    """
    make_figure = figure_class("a picture of two timelines")
    extent = _extent(upper, lower, between_ns)
    upper, lower = _within(upper, extent), _within(lower, extent)
    errors = [point for point in errors if extent[0] <= point.at_ns <= extent[1]]
    both = (upper, lower)
    rows = [_rows(both, extent)] * 2 if shared_rows else [_rows((side,), extent) for side in both]
    colours = group_colours([*upper.spans, *lower.spans])
    entries = _entries(colours, any(span.external for side in (upper, lower) for span in side.spans))
    panel = float(np.clip(_ROW_INCHES * max(map(len, rows)), *_PANEL_INCHES))
    height = _TOP_INCHES + 2 * panel + _STRIP_INCHES + 2 * _BETWEEN_INCHES + _BOTTOM_INCHES
    figure = make_figure(figsize=(width_inches, height), dpi=dpi, facecolor="white")
    axes = _axes(figure, panel)
    for each, side, own in zip(axes, both, rows, strict=False):
        each.set_xlim(extent[0], extent[1] + (extent[1] - extent[0]) * 0.005)
        _draw_rows(each, own, panel)
        _draw_spans(each, side.spans, own, colours)
        _heading(each, side)
    _draw_errors(axes[2], errors, colours, strip)
    _time_axis(axes, extent)
    side_legend(axes[0], entries, hatched=_EXTERNAL)
    _titles(figure, title, _with_count(subtitle, both, rows))
    if path is not None:
        save(figure, Path(path), "picture of two timelines")
    return figure


def group_colours(spans: Sequence[Span]) -> dict[str, str]:
    """The colour of each group: that of its class of work, or else one of its own while there are some.

    Those that take most time altogether come first; what finds no colour left shares a grey.
    """
    total: Counter[str] = Counter()
    for span in spans:
        if not span.external:
            total[span.group] += max(span.finish_ns - span.start_ns, 0)
    ranked = sorted(total, key=lambda group: (-total[group], group))
    taken = {palette.CLASS_COLOURS.get(group) for group in ranked}
    free = iter([colour for colour in palette.REQUEST_COLOURS if colour not in taken])
    return {
        group: palette.CLASS_COLOURS[group]
        if group in palette.CLASS_COLOURS
        else palette.OTHER
        if group == OTHERS
        else next(free, palette.OTHER)
        for group in ranked
    }


def _extent(upper: Side, lower: Side, between_ns: tuple[int, int] | None) -> tuple[int, int]:
    if between_ns is not None and not 0 <= between_ns[0] < between_ns[1]:
        raise InputError(
            f"the part of two timelines to show is {between_ns[0]} to {between_ns[1]} ns; write a start of "
            "at least 0 and a later end"
        )
    return between_ns or (0, max([1, *(span.finish_ns for side in (upper, lower) for span in side.spans)]))


def _within(side: Side, extent: tuple[int, int]) -> Side:
    """What of a side lies in the part to show, cut to it."""
    first, last = extent
    spans = [
        span._replace(start_ns=max(span.start_ns, first), finish_ns=min(span.finish_ns, last))
        for span in side.spans
        if span.start_ns <= last and span.finish_ns >= first
    ]
    return side._replace(spans=spans)


def _rows(sides: Sequence[Side], extent: tuple[int, int]) -> dict[int, int]:
    """Row of each stream that shows anything, by its number; of all of them if none does."""
    longest: Counter[int] = Counter()
    for side in sides:
        for span in side.spans:
            longest[span.stream] = max(longest[span.stream], span.finish_ns - span.start_ns)
    least = _VISIBLE_PART * (extent[1] - extent[0])
    shown = [stream for stream, ns in longest.items() if ns >= least] or list(longest)
    return {stream: row for row, stream in enumerate(sorted(shown))}


def _entries(colours: Mapping[str, str], external: bool) -> list[tuple[str, str]]:
    entries = [(group, colour) for group, colour in colours.items() if colour != palette.OTHER]
    if len(entries) < len(colours):
        entries.append((OTHERS, palette.OTHER))
    return [*entries, (_EXTERNAL, _EXTERNAL_FACE)] if external else entries


def _axes(figure: Figure, panel: float) -> list[Axes]:
    width, height = figure.get_size_inches()
    grid = figure.subplots(
        3,
        1,
        sharex=True,
        gridspec_kw={
            "height_ratios": [panel, panel, _STRIP_INCHES],
            "left": _LEFT_INCHES / width,
            "right": 1 - _RIGHT_INCHES / width,
            "top": 1 - _TOP_INCHES / height,
            "bottom": _BOTTOM_INCHES / height,
            "hspace": 3 * _BETWEEN_INCHES / (2 * panel + _STRIP_INCHES),
        },
    )
    return list(grid)


def _draw_rows(axes: Axes, rows: Mapping[int, int], panel: float) -> None:
    every = max(1, int(np.ceil(_POINTS_BETWEEN_LABELS * len(rows) / (72 * panel))))
    ticks = [(row, f"stream {stream}") for stream, row in rows.items() if row % every == 0]
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_yticks([row for row, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0, labelsize=8.5 if every == 1 else 7.5, labelcolor=palette.INK)
    axes.hlines(list(rows.values()), *axes.get_xlim(), color=palette.RULE, linewidth=0.5, zorder=0)


def _draw_spans(
    axes: Axes, spans: Sequence[Span], rows: Mapping[int, int], colours: Mapping[str, str]
) -> None:
    """One collection of plain bars, and one of hatched ones, which take longer to draw."""
    from matplotlib.collections import PolyCollection

    shown = [span for span in spans if span.stream in rows and span.finish_ns > span.start_ns]
    first, last = axes.get_xlim()
    pixels_per_ns = axes.bbox.width / (last - first)
    external = [span for span in shown if span.external]
    plain = [span for span in shown if not span.external]
    waits = PolyCollection(
        list(_corners(external, rows, pixels_per_ns)),
        facecolors=_EXTERNAL_FACE,
        edgecolors=_EXTERNAL_LINES,
        linewidths=0.4,
        hatch="////" if _widest(external) * pixels_per_ns >= _HATCHED_PIXELS else None,
        zorder=1,
    )
    # A white edge parts neighbours, but it would swallow a bar only a few pixels wide.
    wide = [(span.finish_ns - span.start_ns) * pixels_per_ns > _EDGED_PIXELS for span in plain]
    bars = PolyCollection(
        list(_corners(plain, rows, pixels_per_ns)),
        facecolors=[colours[span.group] for span in plain],
        edgecolors=["white" if each else "none" for each in wide],
        linewidths=0.5,
        zorder=2,
    )
    for collection in (waits, bars):
        axes.add_collection(collection, autolim=False)


def _widest(spans: Sequence[Span]) -> int:
    return max((span.finish_ns - span.start_ns for span in spans), default=0)


def _corners(spans: Sequence[Span], rows: Mapping[int, int], pixels_per_ns: float) -> NDArray[np.float64]:
    """Corners of bars, shape (n, 4, 2)."""
    start = np.array([span.start_ns for span in spans], np.float64)
    finish = np.array([span.finish_ns for span in spans], np.float64)
    finish = np.maximum(finish, start + _LEAST_PIXELS / pixels_per_ns)
    low = np.array([rows[span.stream] for span in spans], np.float64) - _BAR_HEIGHT / 2
    left_right = np.stack([start, finish, finish, start], axis=1)
    low_high = np.stack([low, low, low + _BAR_HEIGHT, low + _BAR_HEIGHT], axis=1)
    return np.stack([left_right, low_high], axis=2)


def _heading(axes: Axes, side: Side) -> None:
    axes.text(
        0.0, 1.0, side.title, transform=axes.transAxes, va="bottom", fontsize=9.5, color=palette.INK,
        fontweight="bold",
    )  # fmt: skip
    end = max((span.finish_ns for span in side.spans), default=0)
    axes.axvline(end, color=palette.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.5)


def _draw_errors(axes: Axes, errors: Sequence[StartError], colours: Mapping[str, str], what: str) -> None:
    values = np.array([point.error_ns for point in errors], np.float64)
    reach = float(np.percentile(np.abs(values), _STRIP_PART)) if errors else 0.0
    reach = max(reach, 1.0)
    scale, unit = time_unit(round(reach))
    axes.set_ylim(-1.15 * reach, 1.15 * reach)
    axes.axhline(0, color=palette.INK, linewidth=0.7, zorder=0.5)
    axes.scatter(
        [point.at_ns for point in errors],
        np.clip(values, -reach, reach),
        s=5,
        c=[colours.get(point.group, palette.OTHER) for point in errors],
        linewidths=0,
        alpha=0.75,
        zorder=2,
    )
    axes.yaxis.set_major_formatter(lambda y, _: f"{y / scale:+g}" if y else "0")
    axes.locator_params(axis="y", nbins=5)
    axes.tick_params(axis="y", length=0, labelsize=8, labelcolor=palette.INK)
    axes.grid(axis="y", color=palette.RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.text(
        0.0, 1.02, f"{what} ({unit}); above the line: later",
        transform=axes.transAxes, va="bottom", fontsize=9, color=palette.INK,
    )  # fmt: skip


def _time_axis(axes: Sequence[Axes], extent: tuple[int, int]) -> None:
    scale, unit = time_unit(extent[1] - extent[0])
    for each in axes:
        for side in ("top", "right", "left"):
            each.spines[side].set_visible(False)
        each.spines["bottom"].set_color(palette.RULE)
        each.tick_params(axis="x", length=0 if each is not axes[-1] else 2)
        each.grid(axis="x", color=palette.RULE, linewidth=0.5)
        each.set_axisbelow(True)
    last = axes[-1]
    last.locator_params(axis="x", nbins=12)
    last.xaxis.set_major_formatter(lambda x, _: f"{x / scale:g}")
    last.set_xlabel(f"time ({unit})", fontsize=9, color=palette.INK)
    last.tick_params(axis="x", labelsize=8.5, colors=palette.INK)


def _with_count(subtitle: str, sides: Sequence[Side], rows: Sequence[Mapping[int, int]]) -> str:
    shared = rows[0] is rows[1]
    left_out = {
        (0 if shared else number, span.stream)
        for number, side in enumerate(sides)
        for span in side.spans
        if span.stream not in rows[number]
    }
    missing = len(left_out)
    what = "1 stream" if missing == 1 else f"{missing} streams"
    note = f"{what} without anything long left out" if missing else ""
    return "   ".join(part for part in (subtitle, note) if part)


def _titles(figure: Figure, title: str, subtitle: str) -> None:
    width, height = figure.get_size_inches()
    left = _LEFT_INCHES / width
    figure.text(left, 1 - 0.16 / height, title, va="top", fontsize=12, fontweight="bold", color=palette.INK)
    figure.text(left, 1 - 0.42 / height, subtitle, va="top", fontsize=9.5, color=palette.FAINT)
