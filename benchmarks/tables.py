"""What the benchmarks share: their arguments, progress on stderr, tables, JSON and plots."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cann_env.units import CannEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def arguments(description: str | None, *, plot: bool = False, device: bool = True) -> argparse.ArgumentParser:
    """A parser with what all benchmarks have: ``--device``, ``--json`` and, for a sweep, ``--plot``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if device:
        parser.add_argument("--device", default="ascend910b2")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of tables")
    if plot:
        parser.add_argument("--plot", type=Path, help="also draw into this file; needs the extra 'plot'")
    return parser


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr; what it gives is called with the name of each part before that begins.

    An error that is the caller's to mend ends the program with its message.
    """
    columns = (TextColumn("{task.description:44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total)
            begun = 0

            def begin(what: str) -> None:
                nonlocal begun
                bar.update(task, completed=begun, description=what)
                begun += 1

            yield begin
            bar.update(task, completed=total, description="done")
    except CannEnvError as error:
        sys.exit(str(error))


def print_json(**parts: Any) -> None:
    """Print one object; rows that are named tuples become objects too."""
    plain = {
        key: [row._asdict() if hasattr(row, "_asdict") else row for row in value]
        if isinstance(value, list)
        else value
        for key, value in parts.items()
    }
    print(json.dumps(plain))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> None:
    """Print a table whose first column stands left and all others right, with notes below it."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    for note in notes:
        console.print(note)
    console.print()


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(one: float | None, other: float | None) -> float | None:
    """One over the other; None where either is missing."""
    return one / other if one is not None and other else None


def mean(ratios: Sequence[float | None]) -> float | None:
    """Geometric mean; None if one is missing."""
    known = [value for value in ratios if value]
    if not known or len(known) < len(ratios):
        return None
    return math.exp(sum(math.log(value) for value in known) / len(known))


def draw(
    path: Path, title: str, labels: tuple[str, str], lines: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    """Draw lines through points, the lowest point of each marked.

    Args:
        path: File to write; its ending decides the format.
        title: Above the picture.
        labels: Of the horizontal and the vertical axis.
        lines: Points (x, y) by name.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install 'cann-env[plot]'")
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, points in lines.items():
        xs, ys = zip(*points, strict=True)
        (line,) = axes.plot(xs, ys, marker=".", label=name)
        lowest = min(points, key=lambda point: point[1])
        axes.plot(*lowest, marker="o", markersize=9, fillstyle="none", color=line.get_color())
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
