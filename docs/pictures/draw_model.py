"""Draw the pictures of docs/model and print the hand computations beside them.

``python docs/pictures/draw_model.py [FOLDER] [--numbers]`` plays each tiny graph on the device of round
numbers, compares what the engine did with what was computed by hand, and writes the schedule as a picture
to a folder, by default ``model`` beside this file; with ``--numbers`` it draws nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import model_host
import model_kernels
import model_memory
import model_streams
from model_rules import Example, lines

from cann_env.render.gantt import gantt

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES: dict[str, tuple[Example, ...]] = {
    "streams": model_streams.EXAMPLES,
    "kernels": model_kernels.EXAMPLES,
    "host": model_host.EXAMPLES,
    "memory": model_memory.EXAMPLES,
}
"""Examples by the page of docs/model that tells them, in its order."""

FOLDER = Path(__file__).resolve().parent / "model"


def figures() -> Iterator[str]:
    """Every line that the command prints: the page, the picture, and a number with its computation."""
    for page, examples in PAGES.items():
        for example in examples:
            for line in lines(example):
                yield f"{page}, {example.name}: {line}"


def draw(example: Example, folder: Path) -> Path:
    """Draw one example."""
    path = folder / f"{example.name}.png"
    gantt(example.play(), path, width_inches=8.0, dpi=100)
    return path


def main() -> None:
    """Print, and draw unless told not to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--numbers", action="store_true", help="draw nothing")
    given = parser.parse_args()
    for line in figures():
        print(line)
    if not given.numbers:
        given.folder.mkdir(parents=True, exist_ok=True)
        for examples in PAGES.values():
            for example in examples:
                draw(example, given.folder)


if __name__ == "__main__":
    main()
