"""The lower part of a Gantt chart: how busy each kind of engine and the memory are over time.

Step functions from :mod:`cann_env.render.series` become one small filled plot each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.render import palette
from cann_env.render.moves import CARRIERS, seen
from cann_env.render.series import Series, busy, capacity, from_changes, hbm_capacity, hbm_in_use
from cann_env.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from cann_env.schedule import Schedule

_BINS = 900
_CORES = ("aic", "aiv", "aicpu")
_DMA = ("h2d", "d2h", "sdma", "hcom")


class Curve(NamedTuple):
    """One filled step function of a panel; ``full`` is the value that counts as 100 %."""

    label: str
    colour: str
    series: Series
    full: int


class Panel(NamedTuple):
    """One small plot.

    Attributes:
        title: Written on its left.
        note: Written on its right.
        curves: Drawn one below the other.
        peaks: Show the highest value of each bin (memory) rather than its average (engines).
    """

    title: str
    note: str
    curves: tuple[Curve, ...]
    peaks: bool = False


def panels_of(schedule: Schedule) -> tuple[Panel, ...]:
    """The panels this schedule needs: each pool of cores in use, DMA if any, and HBM."""
    panels = [panel for pool in _CORES if (panel := _cores(schedule, pool)) is not None]
    dma = tuple(curve for pool in _DMA if (curve := _dma(schedule, pool)) is not None)
    if dma:
        panels.append(Panel("DMA", "", dma))
    memory = _hbm(schedule)
    return tuple(panels if memory is None else [*panels, memory])


def _hbm(schedule: Schedule) -> Panel | None:
    """What lies in the HBM of each die; the height is that of the fullest one."""
    dies = {die: hbm_in_use(schedule, die) for die in range(schedule.device.dies)}
    tops = {die: int(memory.values.max()) for die, memory in dies.items() if memory.values.max() > 0}
    if not tops:
        return None
    several = len(tops) > 1
    curves = tuple(
        Curve(
            f"die {die}, peak {format_size(top)}" if several else "HBM",
            palette.HBM[die % len(palette.HBM)],
            dies[die],
            max(tops.values()),
        )
        for die, top in tops.items()
    )
    note = f"peak {format_size(max(tops.values()))}\nof {format_size(hbm_capacity(schedule))}"
    return Panel("HBM", "" if several else note, curves, peaks=True)


def _cores(schedule: Schedule, pool: str) -> Panel | None:
    series = busy(schedule, pool)
    full = capacity(schedule, pool)
    if series.values.max() == 0 or full == 0:
        return None
    note = (
        f"{full} core{'s' if full > 1 else ''}\n{100 * _mean(series, schedule.makespan_ns) / full:.0f} % busy"
    )
    return Panel(palette.POOL_TITLES[pool], note, (Curve(pool, palette.POOL_COLOURS[pool], series, full),))


def _mean(series: Series, end_ns: int) -> float:
    return float(series.mean_over(np.array([0.0, max(1, end_ns)]))[0])


def _dma(schedule: Schedule, pool: str) -> Curve | None:
    series = _with_moves(schedule, busy(schedule, pool), pool)
    most = int(series.values.max())
    if most == 0:
        return None
    label = f"{pool}, {most} at once" if most > 1 else pool
    return Curve(label, palette.POOL_COLOURS[pool], series, most)


def _with_moves(schedule: Schedule, series: Series, pool: str) -> Series:
    deltas = np.diff(series.values, prepend=0)
    changes = list(zip(series.times_ns.tolist(), deltas.tolist(), strict=True))
    for move in seen(schedule.transfers, schedule.makespan_ns):
        if CARRIERS.get(move.cause) == pool:
            changes += [(move.start_ns, 1), (move.finish_ns, -1)]
    return from_changes(changes)


def draw_panels(axes: Sequence[Axes], panels: Sequence[Panel], makespan_ns: int) -> None:
    """Draw each panel on its axes, time from 0 to ``makespan_ns``."""
    edges = np.linspace(0.0, max(1, makespan_ns), _BINS + 1)
    for each, panel in zip(axes, panels, strict=True):
        band = 1 / len(panel.curves)
        for i, curve in enumerate(panel.curves):
            over = curve.series.max_over if panel.peaks else curve.series.mean_over
            low = 1 - band * (i + 1)
            heights = low + 0.92 * band * np.minimum(over(edges) / curve.full, 1.0)
            each.stairs(heights, edges, baseline=low, fill=True, color=curve.colour, alpha=0.75)
        each.set_ylim(0, 1.0)
        each.set_yticks([])
        each.set_ylabel(
            panel.title, rotation=0, ha="right", va="center", fontsize=9, color=palette.INK, labelpad=6
        )
        each.tick_params(length=0)
        _note(each, panel)


def _note(axes: Axes, panel: Panel) -> None:
    if panel.note:
        axes.text(
            1.01,
            0.5,
            panel.note,
            transform=axes.transAxes,
            va="center",
            fontsize=8,
            color=palette.FAINT,
            linespacing=1.35,
        )
        return
    step = 1 / len(panel.curves)
    for i, curve in enumerate(panel.curves):
        axes.text(
            1.01,
            1 - step * (i + 0.5),
            curve.label,
            transform=axes.transAxes,
            va="center",
            fontsize=8,
            color=curve.colour,
            fontweight="bold",
        )
