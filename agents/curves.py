"""Learning curves of runs: ``python -m agents.curves agents/pretrained/logs/*.csv -o curves.png``."""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env import CannEnvError, InputError
from cann_env.render.figures import figure_class, save

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_RATIO = "eval/ratio"


def read_curve(file: Path) -> tuple[list[int], list[float]]:
    """Rounds of labelling, and the greedy policy's ratio to the reference after each that was looked at.

    Raises:
        InputError: The file is no log of labelling.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    if not rows or _RATIO not in rows[0]:
        raise InputError(
            f"{file}: has no column {_RATIO!r}; name label/progress.csv of a run that was watched"
        )
    places = [i + 1 for i, row in enumerate(rows) if row[_RATIO]]
    return places, [float(row[_RATIO]) for row in rows if row[_RATIO]]


def draw_curves(files: Sequence[Path], path: Path) -> None:
    """Draw the curves of some logs; those of one recipe, named ``recipe_seed.csv``, share a colour.

    Raises:
        InputError: Matplotlib is missing, or a file cannot be read or written.
    """
    figure = figure_class()(figsize=(7.0, 3.6), layout="constrained")
    plot = figure.add_subplot()
    recipes = list(dict.fromkeys(file.stem.rpartition("_")[0] or file.stem for file in files))
    shown = set()
    for file in files:
        recipe = file.stem.rpartition("_")[0] or file.stem
        label = None if recipe in shown else recipe
        shown.add(recipe)
        colour = _COLOURS[recipes.index(recipe) % len(_COLOURS)]
        plot.plot(*read_curve(file), "o-", color=colour, ms=3, lw=1.2, label=label)
    plot.axhline(1.0, color="0.4", lw=1, zorder=0)
    plot.set_xlabel("rounds of labelling")
    plot.set_ylabel("greedy, over the reference")
    plot.grid(color="0.92")
    plot.legend(frameon=False)
    save(figure, path, "picture")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw; the command line is ``arguments``, or that of the process."""
    parser = argparse.ArgumentParser("python -m agents.curves", description=draw_curves.__doc__)
    parser.add_argument("logs", nargs="+", type=Path, help="label/progress.csv of runs")
    parser.add_argument("-o", "--out", type=Path, required=True, help="picture to write")
    given = parser.parse_args(arguments)
    draw_curves(given.logs, given.out)


if __name__ == "__main__":
    try:
        main()
    except CannEnvError as error:
        sys.exit(f"agents.curves: {error}")
