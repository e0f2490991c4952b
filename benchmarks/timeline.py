"""How smoothly the timeline is drawn: frame times in headless Chromium, by commands and by what is in view.

``python benchmarks/timeline.py [--commands 50 1000 10000] [--frames 60] [--json]``

Requests of the scenario ``serving`` on 8 streams, scheduled by ``per_engine``, in both views. The view
moves a little from frame to frame; a frame is drawn whole and read back, so that nothing is left for later.
Chromium draws without a graphics card here. ``ratio`` sets the median against that of the smallest schedule
in the same view: what a frame costs that has hardly anything on it. A display of 60 Hz leaves 16.7 ms.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chromium import chromium, missing
from rates import serving
from tables import arguments, number, print_json, print_table, progress

from cann_env.program import compile_graph
from cann_env.render.timeline import write_html
from cann_env.scenario import Scenario
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from selenium.webdriver import Chrome

VIEWS = ("streams", "engines")
PARTS = {"everything": 1.0, "a tenth": 0.1, "a hundredth": 0.01}

_FRAMES = """
const page = document.getElementById("cann-env-timeline").timeline;
const [mode, part, frames] = arguments;
if (page.mode !== mode) page.setMode(mode);
const wide = page.end * part, took = [];
for (let i = 0; i < frames; i++) {
  const from = (page.end - wide) * (i / frames);
  page.show(from, from + wide * (1 + 0.001 * (i % 7)));
  const began = performance.now();
  page.draw();
  page.back.getImageData(0, 0, 1, 1);
  page.front.getImageData(0, 0, 1, 1);
  took.push(performance.now() - began);
}
return [took.sort((a, b) => a - b), page.drawn];
"""


class Row(NamedTuple):
    """One view of a schedule; ``bars`` are those of the last frame, ``open_s`` until the page is there."""

    commands: int
    view: str
    shown: str
    bars: int
    median_ms: float
    p95_ms: float
    ratio: float
    page_bytes: int
    open_s: float


def measure(commands: Sequence[int], frames: int, begin: Callable[[str], None]) -> list[Row]:
    """Draw every schedule in every view."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        for count in sorted(commands):
            begin(f"scheduling {count} commands")
            path = Path(folder) / "timeline.html"
            held = _write(path, count)
            begin(f"drawing {held} commands")
            began = time.perf_counter()
            driver.get(path.as_uri())
            opened = time.perf_counter() - began
            for view in VIEWS:
                for shown, part in PARTS.items():
                    rows.append(_row(driver, (held, view, shown, part), frames, rows, path, opened))
    return rows


def _write(path: Path, commands: int) -> int:
    """Write the page of a schedule; returns how many commands it has."""
    scenario = Scenario.from_dict(serving(commands, streams=8))
    program = compile_graph(scenario.graph(), scenario.device, scenario.options)
    schedule = run_scheduler(program, "per_engine")
    write_html(path, schedule)
    return len(schedule.commands)


def _row(
    driver: Chrome,
    what: tuple[int, str, str, float],
    frames: int,
    so_far: list[Row],
    path: Path,
    opened: float,
) -> Row:
    held, view, shown, part = what
    took, bars = driver.execute_script(_FRAMES, view, part, frames)
    median = took[len(took) // 2]
    first = next((r.median_ms for r in so_far if (r.view, r.shown) == (view, shown)), median)
    size = path.stat().st_size
    return Row(held, view, shown, bars, median, took[int(len(took) * 0.95)], median / first, size, opened)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--commands", type=int, nargs="+", default=[50, 1000, 10_000])
    parser.add_argument("--frames", type=int, default=60)
    given = parser.parse_args()
    with progress(2 * len(given.commands)) as begin:
        if missing():
            raise InputError(f"frame times need a browser: {missing()}")
        rows = measure(given.commands, given.frames, begin)
    if given.json:
        print_json(rows=rows)
        return
    print_table(
        "Frame times of the timeline",
        ["commands", "view", "in view", "bars", "median ms", "95 % ms", "ratio", "page MB", "open s"],
        [_words(row) for row in rows],
    )


def _words(row: Row) -> list[Any]:
    return [
        f"{row.commands:,}", row.view, row.shown, f"{row.bars:,}", number(row.median_ms), number(row.p95_ms),
        number(row.ratio), number(row.page_bytes / 1e6), number(row.open_s),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
