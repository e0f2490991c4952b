"""What managed memory costs the simulator: steps a second with managed buffers and with device buffers.

``python benchmarks/managed_rate.py [--graphs NAME ...] [--runs 21] [--steps 50] [--json]`` steps environments
side by side in one compiled call, with a random legal action each. Every graph runs four times, with the same
options: all its buffers in device memory and as it is, with managed ones; each with memory enough and with
memory short. Short is what device buffers take when commands run one by one, a quarter of that for holes
between them, and room for three tenths of the managed ones; where all are in device memory, what all of them
take one by one, and as much for holes as before. What draws the actions is not counted, beginning the next
episode is. The four take turns, and each figure is the median of its runs, each ratio that of the ratios of
runs that followed each other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from prefetch_streams import SPACE, room
from tables import arguments, number, print_json, print_table, progress

from cann_env.envs.instances import ProgramSource
from cann_env.envs.rows import Rows
from cann_env.graph import BufferKind, CommandGraph, Level
from cann_env.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator

    from cann_env.scenario import Scenario
    from cann_env.workloads.description import Target

GRAPHS = ("serving", "transformer", "oversubscribed", "training", "layered")
TARGET = 1.5
_ENVIRONMENTS = 64
_WARM_UP = 20
_TIGHT = 0.3


class Row(NamedTuple):
    """Steps a second of one graph; in the ratios the rate with device buffers stands above."""

    graph: str
    commands: int
    managed_buffers: int
    device_ample: float
    device_tight: float
    managed_ample: float
    managed_tight: float
    ample_ratio: float
    tight_ratio: float
    ample_over_tight: float


def on_device(graph: CommandGraph) -> CommandGraph:
    """The same graph, nothing of which ever moves: weights lie in device memory all the time."""
    buffers = tuple(
        replace(
            buffer,
            kind=BufferKind.DEVICE,
            level=Level.ABSENT if buffer.level is Level.ABSENT else Level.HBM,
        )
        for buffer in graph.buffers
    )
    return replace(graph, buffers=buffers)


@dataclass(frozen=True)
class Given:
    """A workload that is one graph, whatever the device."""

    graph: CommandGraph
    kind: ClassVar[str] = "given"
    fixed: ClassVar[bool] = True

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """That graph."""
        return self.graph


class Runner:
    """Environments side by side that all play one graph, over and over: the rows of a vector environment.

    No registered environment takes a graph that no scenario file describes.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.rows = Rows(ProgramSource(scenario), _ENVIRONMENTS, fresh=False)
        self.rng = np.random.default_rng(0)
        self.rows.set_seeds(dict.fromkeys(range(_ENVIRONMENTS), 0))
        self.rows.begin(np.arange(_ENVIRONMENTS))

    def rate(self, steps: int) -> float:
        """Steps a second of all environments together."""
        spent = 0.0
        for _ in range(steps):
            masks = self.rows.seen.masks
            actions = (self.rng.random(masks.shape) * masks).argmax(axis=1).astype(np.int64)
            began = time.perf_counter()
            self.rows.step(actions)
            spent += time.perf_counter() - began
        return steps * _ENVIRONMENTS / spent


def variants(scenario: Scenario) -> tuple[Scenario, ...]:
    """Device buffers with ample and with tight memory, then managed ones with ample and with tight memory."""
    graph, device = scenario.graph(), scenario.device
    fixed = on_device(graph)
    holes = room(graph, device, 0.0) - int(room(graph, device, 0.0) / SPACE)
    all_of_it = int(room(fixed, device, 0.0) / SPACE) + holes
    ample = replace(scenario.options, hbm_bytes=None, memory_factor=None)
    return tuple(
        replace(scenario, workload=Given(played), options=replace(ample, hbm_bytes=hbm_bytes))
        for played, hbm_bytes in (
            (fixed, None),
            (fixed, all_of_it),
            (graph, None),
            (graph, room(graph, device, _TIGHT)),
        )
    )


def measure(
    graphs: Sequence[str], runs: int, steps: int, device: str | None, begin: Callable[[str], None]
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        scenario = load_scenario(name)
        if device:
            scenario = scenario.with_device(device)
        graph = scenario.graph()
        runners = [Runner(variant) for variant in variants(scenario)]
        rates: list[list[float]] = [[] for _ in runners]
        for runner in runners:
            runner.rate(min(_WARM_UP, steps))
        for run in range(runs):
            begin(f"{name}, run {run + 1}")
            for runner, found in zip(runners, rates, strict=True):
                found.append(runner.rate(steps))
        rates_of = [median(found) for found in rates]
        pairs = ((0, 2), (1, 3), (0, 3))
        managed = sum(buffer.kind is BufferKind.MANAGED for buffer in graph.buffers)
        ratios = [
            median(one / other for one, other in zip(rates[a], rates[b], strict=True)) for a, b in pairs
        ]
        rows.append(Row(name, len(graph.commands), managed, *rates_of, *ratios))
    return rows


def show(rows: Sequence[Row]) -> None:
    """One line a graph."""
    lines = [
        [
            row.graph,
            str(row.commands),
            str(row.managed_buffers),
            *(f"{rate:,.0f}" for rate in row[3:7]),
            *(number(value, 2) for value in row[7:]),
        ]
        for row in rows
    ]
    columns = [
        "graph",
        "commands",
        "managed",
        "device, ample",
        "tight",
        "managed, ample",
        "tight",
        "device / managed, ample",
        "tight",
        "ample / tight",
    ]
    worst = max(max(row.ample_ratio, row.tight_ratio) for row in rows)
    verdict = "within" if worst <= TARGET else "beyond"
    short = max(row.ample_over_tight for row in rows)
    alone = max(row.device_ample / row.device_tight for row in rows)
    notes = [
        f"Like beside like, managed buffers cost up to {worst:.2f}, {verdict} {TARGET}.",
        f"Memory that is short costs up to {short:.2f} with managed buffers, up to {alone:.2f} without:",
        "much has to be looked at before a command may take some.",
    ]
    print_table(f"Steps a second, {_ENVIRONMENTS} environments", columns, lines, notes)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--device", help="for all graphs, instead of those of their scenarios")
    parser.add_argument("--graphs", choices=GRAPHS, nargs="+", default=list(GRAPHS))
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--steps", type=int, default=50, help="of each environment and run")
    given = parser.parse_args()
    with progress(len(given.graphs) * given.runs) as begin:
        rows = measure(given.graphs, given.runs, given.steps, given.device, begin)
    if given.json:
        print_json(rows=rows)
        return
    show(rows)


if __name__ == "__main__":
    main()
