"""What growth costs: steps a second against commands, streams, environments and threads.

``python benchmarks/growth.py [--axes commands streams environments] [--threads 1 2] [--runs 3]
[--seconds 1.0] [--picture PATH] [--json] [--quick]``

Each axis grows by itself, the others stay at 100 commands, 8 streams and 64 environments: requests of the
scenario ``serving`` under a random legal policy, played as in ``step_rate.py``, whole episodes at least.
More commands are more requests at once. Long graphs take long to compile, so that fewer of them are played.
Points of an axis take turns; figures are medians of all runs. ``--picture`` needs the extra 'plot'.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rates import CALLS_A_COMMAND, machine, machine_line, mean_commands, serving, take_turns
from step_cases import SERVING, Case, make_player
from tables import arguments, number, print_json, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BASE = {"commands": 100, "streams": 8, "environments": 64}
AXES: dict[str, tuple[int, ...]] = {
    "commands": (30, 100, 300, 1000, 3000, 10_000),
    "streams": (1, 2, 4, 8, 16, 32, 64),
    "environments": (1, 4, 16, 64, 256, 1024, 4096),
}
QUICK: dict[str, tuple[int, ...]] = {"commands": (20, 100), "streams": (1, 8), "environments": (1, 64)}
_COMPILED = 6400
"""Commands of all graphs of a point together, about."""


class Row(NamedTuple):
    """One point; ``over_base`` is its rate over that of 100 commands, 8 streams and 64 environments."""

    axis: str
    value: int
    commands: float
    streams: int
    environments: int
    threads: int
    rate: float
    alone: float
    cores: float
    over_base: float


def case_of(axis: str, value: int, threads: int, *, quick: bool) -> Case:
    """What is played at a point."""
    sizes = BASE | {axis: value}
    scenario = serving(sizes["commands"], streams=sizes["streams"])
    instances = 2 if quick else max(2, min(64, _COMPILED // sizes["commands"]))
    mean = mean_commands(scenario, instances)
    settings = {"scenario": scenario}
    return Case(
        f"{axis} {value}", "vector", SERVING, settings, sizes["environments"], threads, instances, mean
    )


def measure(given: Any, axes: Mapping[str, Sequence[int]], begin: Callable[[str], None]) -> list[Row]:
    """Play every point of every axis."""
    rows = []
    for axis, values in axes.items():
        cases: dict[str, Case] = {}
        players = {}
        for value in values:
            begin(f"compiling: {value} {axis}")
            for threads in given.threads:
                case = case_of(axis, value, threads, quick=given.quick)
                cases[case.key] = case
                players[case.key] = (
                    make_player(case),
                    1 if given.quick else round(CALLS_A_COMMAND * case.commands),
                )
        timings = take_turns(players, given.runs, given.seconds, begin)
        bases = {
            case.threads: timings[key].rate
            for key, case in cases.items()
            if case.name == f"{axis} {BASE[axis]}"
        }
        for key, case in cases.items():
            value = int(case.name.split()[1])
            streams = value if axis == "streams" else BASE["streams"]
            timing = timings[key]
            over = timing.rate / bases[case.threads]
            rows.append(
                Row(axis, value, case.commands, streams, case.environments, case.threads, *timing, over)
            )
    return rows


def show(rows: Sequence[Row], found: dict[str, str]) -> None:
    """A table for each axis."""
    columns = ["", "commands", "streams", "envs", "threads", "steps/s", "alone", "cores", "x base"]
    for axis in dict.fromkeys(row.axis for row in rows):
        lines = [
            [
                f"{axis}: {row.value:,}",
                f"{row.commands:,.0f}",
                str(row.streams),
                str(row.environments),
                str(row.threads),
                f"{row.rate:,.0f}",
                f"{row.alone:,.0f}",
                number(row.cores, 2),
                number(row.over_base, 2),
            ]
            for row in rows
            if row.axis == axis
        ]
        print_table(f"Steps a second by {axis}", columns, lines, [machine_line(found)])


def draw(path: Path, rows: Sequence[Row], title: str) -> None:
    """One panel an axis, one line for each number of threads."""
    try:
        import matplotlib as mpl
    except ImportError:
        sys.exit("--picture needs matplotlib: pip install 'cann-env[plot]'")
    mpl.use("agg")
    from matplotlib import pyplot as plt

    axes = list(dict.fromkeys(row.axis for row in rows))
    figure, panels = plt.subplots(
        1, len(axes), figsize=(4 * len(axes), 3.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, panel in zip(axes, panels[0], strict=True):
        for threads in sorted({row.threads for row in rows}):
            points = [
                (row.value, row.rate / 1000) for row in rows if (row.axis, row.threads) == (axis, threads)
            ]
            xs, ys = zip(*points, strict=True)
            panel.plot(xs, ys, marker=".", label=f"{threads} thread{'s' if threads > 1 else ''}")
        ticks = sorted({row.value for row in rows if row.axis == axis})
        panel.set_xscale("log")
        panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=7)
        panel.minorticks_off()
        panel.set(xlabel=axis)
        panel.grid(alpha=0.3)
    panels[0][0].set(ylabel="thousand steps a second", ylim=(0, 1.05 * max(row.rate for row in rows) / 1000))
    panels[0][0].legend()
    figure.suptitle(title, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--axes", choices=tuple(AXES), nargs="+", default=list(AXES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each point and run")
    parser.add_argument("--picture", type=Path, help="also draw into this file")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, and no more")
    given = parser.parse_args()
    axes = {axis: AXES[axis] for axis in given.axes}
    if given.quick:
        axes = {axis: QUICK[axis] for axis in given.axes}
        given.runs, given.seconds = 1, 0.0
    with progress(sum(map(len, axes.values())) + given.runs * len(axes)) as begin:
        rows = measure(given, axes, begin)
    found = machine()
    if given.picture:
        draw(given.picture, rows, f"{found['processor']}, {found['date']}")
    if given.json:
        print_json(rows=rows, machine=found)
        return
    show(rows, found)


if __name__ == "__main__":
    main()
