"""What managed memory costs the simulator: steps a second with managed buffers and with device buffers.

``python benchmarks/managed_rate.py [--graphs NAME ...] [--runs 21] [--steps 50] [--json]`` steps environments
side by side in one compiled call, with a random legal action each. Every graph runs four times, with the same
options: all its buffers in device memory and as it is, with managed ones; each with memory enough and with
memory short. Short is what device buffers take when commands run one by one, a quarter of that for holes
between them, and room for three tenths of the managed ones; where all are in device memory, what all of them
take one by one, and as much for holes as before. What draws the actions and begins episodes anew is not
counted. The four take turns, and each figure is the median of its runs, each ratio that of the ratios of runs
that followed each other.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from prefetch_streams import SPACE, room
from tables import arguments, number, print_json, print_table, progress

from cann_env.device.load import load_device
from cann_env.engine import layout as at
from cann_env.engine.batch import new_views, observe_batch, step_batch
from cann_env.graph import BufferKind, CommandGraph, Level
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.options import RunOptions
    from cann_env.program import Program

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


class Runner:
    """Environments side by side that all run one program, over and over."""

    def __init__(self, program: Program) -> None:
        self.base = program.new_state()
        self.programs = np.tile(program.image, (_ENVIRONMENTS, 1))
        self.states = np.tile(self.base, (_ENVIRONMENTS, 1))
        self.rises = np.zeros(_ENVIRONMENTS, np.int64)
        self.rng = np.random.default_rng(0)
        self.views = new_views(
            _ENVIRONMENTS, program.observation_size, program.action_count, program.options.commands, None
        )
        observe_batch(self.programs, self.states, np.arange(_ENVIRONMENTS), self.views)

    def rate(self, steps: int) -> float:
        """Steps a second of all environments together."""
        spent = 0.0
        for _ in range(steps):
            over = np.flatnonzero(self.states[:, at.S_STATUS] != at.RUNNING)
            if over.size:
                self.states[over] = self.base
                observe_batch(self.programs, self.states, over, self.views)
            masks = self.views.masks
            actions = (self.rng.random(masks.shape) * masks).argmax(axis=1).astype(np.int64)
            began = time.perf_counter()
            step_batch(self.programs, self.states, actions, self.rises, self.views)
            spent += time.perf_counter() - began
        return steps * _ENVIRONMENTS / spent


def programs_of(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> tuple[Program, ...]:
    """Device buffers with ample and with tight memory, then managed ones with ample and with tight memory."""
    ample = replace(options, hbm_bytes=None, memory_factor=None)
    fixed = on_device(graph)
    holes = room(graph, device, 0.0) - int(room(graph, device, 0.0) / SPACE)
    all_of_it = int(room(fixed, device, 0.0) / SPACE) + holes
    return (
        compile_graph(fixed, device, ample),
        compile_graph(fixed, device, replace(ample, hbm_bytes=all_of_it)),
        compile_graph(graph, device, ample),
        compile_graph(graph, device, replace(ample, hbm_bytes=room(graph, device, _TIGHT))),
    )


def measure(
    graphs: Sequence[str], runs: int, steps: int, device: str | None, begin: Callable[[str], None]
) -> list[Row]:
    """Run everything."""
    rows = []
    for name in graphs:
        scenario = load_scenario(name)
        target = load_device(device) if device else scenario.device
        graph = replace(scenario, device=target).graph()
        runners = [Runner(program) for program in programs_of(graph, target, scenario.options)]
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
