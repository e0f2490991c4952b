"""Draw the pictures of docs/memory.md and print its figures.

``python docs/pictures/draw_memory.py [FOLDER] [--numbers]`` writes PNG files to a folder, by default the one
it lies in; with ``--numbers`` it draws nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import memory_cache
import memory_examples
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from memory_host import MIB

from cann_env.metrics import metrics
from cann_env.render import palette
from cann_env.render.gantt import gantt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.axes import Axes

    from cann_env.schedule import Schedule

EXAMPLES: tuple[Callable[[], Iterable[str]], ...] = (
    memory_examples.show_device,
    memory_examples.show_places,
    memory_examples.show_sizes,
    memory_examples.show_reuse,
    memory_examples.show_banker,
    memory_examples.show_faults,
    memory_examples.show_writebacks,
    memory_examples.show_evictions,
    memory_cache.show_hits,
    memory_cache.show_lifts,
    memory_cache.show_dies,
)
DPI = 100
COLOURS = palette.REQUEST_COLOURS
SHADES = {"w": "#3d6fb4", "x": "#e5953e"}
LEAVES = ("writeback", "evict", "free")
READER = "#6b7a8f"
BUFFERS = ("#2f4b7c", "#5b7fb8", "#9dbbe3", "#6b7a8f", "#b4bfcc")
MOVES = {
    "fault": "#c9525c",
    "prefetch": palette.CLASS_COLOURS["h2d"],
    "writeback": palette.CLASS_COLOURS["d2h"],
}


def figures() -> Iterator[str]:
    """Every line that the command prints."""
    for show in EXAMPLES:
        yield from show()


# --- parts of pictures --------------------------------------------------------------------------------


def _figure(width: float, height: float, rows: int, **grid: object) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, **grid)[:, 0]  # type: ignore[arg-type]
    for each in axes:
        each.tick_params(labelsize=8.5, colors=palette.INK, length=2)
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
        for side in ("bottom", "left"):
            each.spines[side].set_color(palette.RULE)
    return figure, axes


def _time(axes: Axes, end_ns: int) -> None:
    axes.set_xlim(0, end_ns / 1e3)
    axes.set_xlabel("time (us)", fontsize=9, color=palette.INK)


def _write(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color=palette.ink_on(colour))


def _bars(axes: Axes, row: float, bars: Iterable[tuple[int, int, str, str]]) -> None:
    """Bars of one row: start, finish, name and colour."""
    for start, finish, name, colour in bars:
        axes.add_patch(
            Rectangle(
                (start / 1e3, row - 0.4), (finish - start) / 1e3, 0.8, facecolor=colour, edgecolor="white"
            )
        )
        _write(axes, (start + finish) / 2e3, row, name, colour)


def _block(axes: Axes, span: tuple[int, int], low: float, height: float, name: str, colour: str) -> None:
    """A buffer in memory: a rectangle of time and MiB, with its name if there is room."""
    left, width = span[0] / 1e3, (span[1] - span[0]) / 1e3
    axes.add_patch(Rectangle((left, low), width, height, facecolor=colour, edgecolor="white", linewidth=0.7))
    if width * 45 > axes.get_xlim()[1] and height >= 2:
        _write(axes, left + width / 2, low + height / 2, name, colour)


def _stack(axes: Axes, curve: Sequence[tuple[int, dict[str, int]]], end: int) -> None:
    """What lies in L2, what goes first at the bottom."""
    open_blocks: dict[tuple[str, float, float], int] = {}
    for time, held in {**dict(curve), end: {}}.items():  # the last of each instant
        low, blocks = 0.0, []
        for name, size in held.items():
            blocks.append((name, low, size / MIB))
            low += size / MIB
        for block in [block for block in open_blocks if block not in blocks]:
            _block(axes, (open_blocks.pop(block), time), block[1], block[2], block[0], SHADES[block[0][0]])
        for block in blocks:
            open_blocks.setdefault(block, time)


def _legend(axes: Axes, colours: dict[str, str]) -> None:
    axes.legend(
        handles=[Patch(facecolor=colour, label=name) for name, colour in colours.items()],
        loc="upper left",
        bbox_to_anchor=(1.005, 1.0),
        frameon=False,
        fontsize=8,
        handlelength=1.0,
        borderaxespad=0.0,
    )


def _kernels(schedule: Schedule, colour: str = "#c8ccd1") -> list[tuple[int, int, str, str]]:
    names = [command.name for command in schedule.graph.commands]
    return [(run.start_ns, run.finish_ns, names[run.command], colour) for run in schedule.commands]


# --- pictures -----------------------------------------------------------------------------------------


def draw_places(path: Path) -> None:
    """The address space over time: a rectangle is a place."""
    schedule = memory_examples.places()
    figure, (top, space) = _figure(8, 3.9, 2, sharex=True, height_ratios=[1, 6])
    _time(space, schedule.makespan_ns)
    _bars(top, 0, _kernels(schedule))
    top.set_ylim(-0.5, 0.5)
    top.set_yticks([])
    for i, row in enumerate(schedule.allocations):
        span, height = (row.issue_ns, row.free_ns), row.size_bytes / MIB
        name = f"{schedule.graph.buffers[row.buffer].name}: {height:.0f} MiB"
        _block(space, span, row.address / MIB, height, name, COLOURS[i % len(COLOURS)])
    space.set_ylim(0, 16)
    space.set_yticks(range(0, 17, 4))
    space.set_ylabel("address (MiB)", fontsize=9, color=palette.INK)
    figure.savefig(path)


def draw_demand(path: Path) -> None:
    """Three weights on demand."""
    gantt(memory_examples.on_demand(), path, width_inches=8.5, dpi=DPI)


def draw_prefetched(path: Path) -> None:
    """The same weights, asked for at the start."""
    gantt(memory_examples.prefetched(), path, width_inches=8.5, dpi=DPI)


def _stays(schedule: Schedule) -> Iterator[tuple[str, int, int]]:
    """When managed buffers lie in HBM: name, from, to."""
    since: dict[int, int] = {}
    rows = [
        (m.finish_ns if m.cause in LEAVES else m.reserve_ns, m.cause, m.buffer) for m in schedule.transfers
    ]
    for time, cause, buffer in sorted(rows):
        if cause in LEAVES:
            yield schedule.graph.buffers[buffer].name, since.pop(buffer), time
        else:
            since[buffer] = time


def _draw_stays(axes: Axes, schedule: Schedule) -> None:
    """Managed memory has no addresses: each buffer is drawn in the lowest row that is free."""
    free: list[int] = []
    size = memory_examples.WEIGHT / MIB
    for name, start, finish in sorted(_stays(schedule), key=lambda stay: stay[1]):
        row = next((i for i, until in enumerate(free) if until <= start), len(free))
        free[row : row + 1] = [finish]
        _block(axes, (start, finish), row * size, size, name, BUFFERS[int(name[1])])
    room = memory_examples.ROOM / MIB
    axes.axhline(room, color=palette.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_ylim(0, room + 6)
    axes.set_yticks([0, size, 2 * size, room])
    axes.set_ylabel("HBM (MiB)", fontsize=9, color=palette.INK)


def draw_writeback(path: Path) -> None:
    """Activations that do not all fit, moved on demand and beforehand."""
    forms = {"on demand": memory_examples.written_back(), "moved beforehand": memory_examples.moved_early()}
    figure, axes = _figure(9, 5.6, 4, sharex=True)
    _time(axes[-1], max(schedule.makespan_ns for schedule in forms.values()))
    for i, (title, schedule) in enumerate(forms.items()):
        top, names = axes[2 * i], schedule.graph.buffers
        _bars(top, 0, _kernels(schedule))
        for row, causes in ((1, ("fault", "prefetch")), (2, ("writeback",))):
            moves = [move for move in schedule.transfers if move.cause in causes]
            _bars(top, row, [(m.start_ns, m.finish_ns, names[m.buffer].name, MOVES[m.cause]) for m in moves])
        top.set_ylim(2.5, -0.5)
        top.set_yticks(range(3), ["kernels", "h2d", "d2h"])
        top.set_title(title, fontsize=9.5, loc="left", color=palette.INK)
        _draw_stays(axes[2 * i + 1], schedule)
    _legend(axes[0], MOVES)
    figure.savefig(path)


def draw_l2(path: Path) -> None:
    """What lies in L2 while weights are lifted one and four ahead."""
    figure, axes = _figure(9, 4.6, 2, sharex=True)
    schedules = {ahead: memory_cache.lifted(ahead) for ahead in (1, 4)}
    _time(axes[-1], max(schedule.makespan_ns for schedule in schedules.values()))
    capacity = memory_cache.SMALL_L2
    for each, (ahead, schedule) in zip(axes, schedules.items(), strict=True):
        _stack(each, memory_cache.occupancy(schedule, capacity), schedule.makespan_ns)
        names = [command.name for command in schedule.graph.commands]
        for run in schedule.commands:
            if names[run.command].startswith("m") and not names[run.command].startswith("make"):
                _block(each, (run.start_ns, run.finish_ns), 34, 4, names[run.command], READER)
        title = f"{ahead} weight{'s' if ahead > 1 else ''} ahead, {_found(schedule):.0f} % found"
        each.set_title(title, fontsize=9.5, loc="left", color=palette.INK)
        each.axhline(capacity / MIB, color=palette.INK, linewidth=0.8, linestyle=(0, (4, 3)))
        each.set_ylim(0, 39)
        each.set_yticks([0, 16, 32])
        each.set_ylabel("L2 (MiB)", fontsize=9, color=palette.INK)
    _legend(axes[0], {"weights": SHADES["w"], "activations": SHADES["x"], "readers": READER})
    figure.savefig(path)


def _found(schedule: Schedule) -> float:
    return 100 * metrics(schedule).l2_hit_rate


def draw_ahead(path: Path) -> None:
    """Makespan by how far ahead weights are lifted."""
    schedules = [memory_cache.lifted(ahead) for ahead in memory_cache.AHEAD]
    times = [schedule.makespan_ns / 1e3 for schedule in schedules]
    figure, (axes,) = _figure(6, 2.6, 1)
    axes.plot(memory_cache.AHEAD, times, color=COLOURS[0], marker="o", linewidth=1.6)
    for ahead, time, schedule in zip(memory_cache.AHEAD, times, schedules, strict=True):
        label = f"{_found(schedule):.0f} % found"
        above = (0, 7) if ahead != 1 else (0, -15)
        axes.annotate(label, (ahead, time), above, textcoords="offset points", ha="center", fontsize=8)
    axes.set_xlim(-0.4, memory_cache.AHEAD[-1] + 0.4)
    axes.set_xticks(memory_cache.AHEAD)
    axes.set_ylim(min(times) - 30, max(times) + 25)
    axes.set_xlabel("weights lifted ahead", fontsize=9, color=palette.INK)
    axes.set_ylabel("makespan (us)", fontsize=9, color=palette.INK)
    figure.savefig(path)


PICTURES: dict[str, Callable[[Path], None]] = {
    "places": draw_places,
    "on_demand": draw_demand,
    "prefetched": draw_prefetched,
    "write_back": draw_writeback,
    "l2": draw_l2,
    "l2_ahead": draw_ahead,
}


def main() -> None:
    """Print, and draw unless told not to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--numbers", action="store_true", help="draw nothing")
    given = parser.parse_args()
    for line in figures():
        print(line)
    if not given.numbers:
        given.folder.mkdir(parents=True, exist_ok=True)
        for name, draw in PICTURES.items():
            draw(given.folder / f"{name}.png")


if __name__ == "__main__":
    main()
