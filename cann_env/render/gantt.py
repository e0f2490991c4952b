"""A schedule as a Gantt chart: streams above, the use of cores, DMA engines and memory below.

Schedule rows become collections on a Matplotlib figure, drawn without pyplot, so it works on a
machine with no screen and leaves no global state behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cann_env.render import palette
from cann_env.render.bars import Bar, ColourBy, bars_of, legend_entries
from cann_env.render.figures import figure_class, save, shorten, side_legend, time_unit
from cann_env.render.panels import draw_panels, panels_of
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

    from cann_env.schedule import Schedule

_ROW_INCHES = 0.34
_PANEL_INCHES = 0.62
_ENTRY_INCHES = 0.2
_LETTER_INCHES = 0.08
_BAR_HEIGHT = 0.8


def gantt(
    schedule: Schedule,
    path: str | Path | None = None,
    *,
    colour_by: ColourBy = ColourBy.WORK_CLASS,
    width_inches: float = 13.0,
    dpi: int = 130,
) -> Figure:
    """Draw a schedule.

    One row a stream, with the host thread above them where issuing takes time and below them what moves from
    the host, to the host and into L2, until the last command finishes; then the share of busy cores of each
    pool in use, the DMA engines and the HBM of each die over time.

    Args:
        schedule: What to draw.
        path: Where to save it; the ending names the format (``.png``, ``.svg``, ``.pdf``); None: nowhere.
        colour_by: See :class:`ColourBy`.
        width_inches: Width of the figure; the height follows from the number of rows.
        dpi: Pixels per inch.

    Returns:
        The figure; its first axes hold the bars, one path for each.

    Raises:
        InputError: Matplotlib is missing, or the file cannot be written.
    """
    make_figure = figure_class("a Gantt chart")
    bars, labels = bars_of(schedule, colour_by)
    panels = panels_of(schedule)
    entries = legend_entries(schedule, bars, colour_by)
    rows_inches = max(_ROW_INCHES * len(labels), _ENTRY_INCHES * len(entries), 1.2)
    left_inches = max(0.95, _LETTER_INCHES * max(map(len, labels)))
    height = rows_inches + _PANEL_INCHES * len(panels) * 1.25 + 1.15
    figure = make_figure(figsize=(width_inches, height), dpi=dpi, facecolor="white")
    grid = figure.subplots(
        1 + len(panels),
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={
            "height_ratios": [rows_inches] + [_PANEL_INCHES] * len(panels),
            "left": left_inches / width_inches,
            "right": 1 - 1.75 / width_inches,
            "top": 1 - 0.72 / height,
            "bottom": 0.42 / height,
            "hspace": 0.25 * _PANEL_INCHES * (1 + len(panels)) / height,
        },
    )
    axes: list[Axes] = list(grid[:, 0])
    _title(figure, schedule, left_inches, height)
    _draw_bars(axes[0], bars, labels)
    side_legend(axes[0], entries)
    draw_panels(axes[1:], panels, schedule.makespan_ns)
    _time_axis(axes, schedule)
    _write_names(figure, axes[0], bars)
    if path is not None:
        save(figure, Path(path), "Gantt chart")
    return figure


def _title(figure: Figure, schedule: Schedule, left_inches: float, height: float) -> None:
    makespan, bound = schedule.makespan_ns, schedule.lower_bound_ns
    known = ""  # the timeline of a program has no bound
    if bound:
        known = f"lower bound {format_time(bound)}   gap {100 * (makespan / bound - 1):.1f} %   "
    figure.text(
        left_inches / figure.get_figwidth(),
        1 - 0.20 / height,
        f"{schedule.graph.name} on {schedule.device.label}",
        va="top",
        fontsize=12,
        fontweight="bold",
        color=palette.INK,
    )
    figure.text(
        left_inches / figure.get_figwidth(),
        1 - 0.44 / height,
        f"makespan {format_time(makespan)}   {known}{len(schedule.commands)} commands",
        va="top",
        fontsize=9.5,
        color=palette.FAINT,
    )


def _draw_bars(axes: Axes, bars: Sequence[Bar], labels: Sequence[str]) -> None:
    from matplotlib.collections import PolyCollection

    start = np.array([bar.start_ns for bar in bars], np.float64)
    finish = np.array([bar.finish_ns for bar in bars], np.float64)
    low = np.array([bar.row for bar in bars], np.float64) - _BAR_HEIGHT / 2
    left_right = np.stack([start, finish, finish, start], axis=1)
    low_high = np.stack([low, low, low + _BAR_HEIGHT, low + _BAR_HEIGHT], axis=1)
    # A white edge parts neighbours, but it would swallow a bar only a few pixels wide.
    pixels = (finish - start) / max(1.0, finish.max()) * axes.bbox.width
    collection = PolyCollection(
        list(np.stack([left_right, low_high], axis=2)),
        facecolors=[bar.colour for bar in bars],
        edgecolors=["white" if wide else bar.colour for wide, bar in zip(pixels > 5, bars, strict=True)],
        linewidths=np.where(pixels > 5, 0.7, 0.3),
    )
    axes.add_collection(collection)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_yticks(range(len(labels)), labels, fontsize=9, color=palette.INK)
    axes.tick_params(length=0)
    for row in range(len(labels)):
        axes.axhline(row, color=palette.RULE, linewidth=0.6, zorder=0)


def _time_axis(axes: Sequence[Axes], schedule: Schedule) -> None:
    makespan, bound = schedule.makespan_ns, schedule.lower_bound_ns
    scale, unit = time_unit(makespan)
    for each in axes:
        each.set_xlim(0, makespan * 1.01)
        if bound:
            each.axvline(bound, color=palette.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.5)
        for side in ("top", "right", "left"):
            each.spines[side].set_visible(False)
        each.spines["bottom"].set_color(palette.RULE)
    if bound:
        axes[0].text(bound, -0.6, "bound", fontsize=7.5, color=palette.INK, ha="center", va="bottom")
    last = axes[-1]
    last.xaxis.set_major_formatter(lambda x, _: f"{x / scale:g}")
    last.set_xlabel(f"time ({unit})", fontsize=9, color=palette.INK)
    last.tick_params(axis="x", labelsize=8.5, colors=palette.INK)


def _write_names(figure: Figure, axes: Axes, bars: Sequence[Bar]) -> None:
    """Write the name of each command that has the room for it."""
    renderer: RendererAgg = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    pixels_per_ns = axes.bbox.width / max(axes.get_xlim()[1], 1.0)
    room_by_points = figure.dpi / 72
    for bar in bars:
        room = (bar.finish_ns - bar.start_ns) * pixels_per_ns - 4 * room_by_points
        name = _fitting(bar.name, room / room_by_points) if bar.name else ""
        if not name:
            continue
        text = axes.text(
            (bar.start_ns + bar.finish_ns) / 2,
            bar.row,
            name,
            fontsize=7,
            color=palette.ink_on(bar.colour),
            ha="center",
            va="center_baseline",
            clip_on=True,
        )
        if text.get_window_extent(renderer).width > room:
            text.remove()


def _fitting(name: str, room_points: float) -> str:
    """The longest form of ``name`` that may fit: its last parts, as many as possible, or its beginning."""
    letters = int(room_points / 3.9)
    parts = name.split("/")
    for i in range(len(parts)):
        tail = "/".join(parts[i:])
        if len(tail) <= letters:
            return tail
    return shorten(parts[-1], letters) if letters >= 8 else ""
