"""What one step costs, part by part, on graphs of the scenario ``serving``.

``python benchmarks/step_cost.py [--environments 64 256 1024] [--runs 5] [--repeats 500] [--seconds 1.0]
[--episodes 16] [--instances 256] [--json] [--quick]``

Graphs have about a hundred commands. Random legal episodes of several graphs are played beforehand. Choices,
bound, observation and mask are then repeated by themselves, in compiled loops, on states along these
episodes, and the episodes are played again as a whole, one environment at a time. What a whole step takes
beyond its parts counts as simulation: the action is carried out, and time passes. Played a second time
without observation and mask, they tell what looking takes where it is not repeated.

The other rows are of many environments side by side, played by a random policy whose time is not counted:
the compiled call that steps them all, with the beginnings of episodes in it, and what Python does around
that call. All take turns, and figures are medians of the runs.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from rates import CALLS_A_COMMAND, VectorPlayer, machine, machine_line, play, serving
from step_cases import SERVING, Case, make_player
from step_parts import (
    PARTS,
    Episode,
    random_episode,
    seconds_of_all,
    seconds_of_beginning,
    seconds_of_parts,
)
from tables import arguments, number, print_json, print_table, progress

from cann_env.engine.layout import P_COMMANDS
from cann_env.envs import rows as rows_of_envs
from cann_env.program import compile_graph
from cann_env.scenario import Scenario

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

_COMMANDS = 100
_EVERY = 8
_PER_STEP, _PER_CALL, _PER_EPISODE = "step", "vector step", "episode"


class Row(NamedTuple):
    """What was found.

    Attributes:
        part: What is measured.
        environments: Stepped side by side; 1 for what is repeated by itself.
        per: What it is the time of: a step of one environment, a step of all, or an episode.
        us: Microseconds.
        of_whole: Over a whole step; None where it is not the time of a step.
    """

    part: str
    environments: int
    per: str
    us: float
    of_whole: float | None


# --- one environment ------------------------------------------------------------------------------------


def episodes_of(count: int, commands: int, begin: Callable[[str], None]) -> list[Episode]:
    """Random episodes of so many graphs."""
    begin("episodes")
    opened = Scenario.from_dict(serving(commands))
    graphs = (opened.graph(0, 0, number) for number in range(count))
    return [random_episode(compile_graph(graph, opened.device, opened.options), _EVERY) for graph in graphs]


def alone(episodes: Sequence[Episode], repeats: int) -> dict[str, float]:
    """Seconds by part, each the mean over the episodes.

    ``simulation`` is what the parts leave of the whole; ``looking`` what observation and mask take within it.
    """
    parts = map(mean, zip(*(seconds_of_parts(one, repeats) for one in episodes), strict=True))
    steps = sum(one.actions.size for one in episodes)
    found = dict(zip(PARTS, parts, strict=True))
    whole, unseen = (
        sum(seconds_of_all(one, looks) * one.actions.size for one in episodes) / steps
        for looks in (True, False)
    )
    return found | {
        "simulation": whole - sum(found.values()),
        "whole": whole,
        "looking": whole - unseen,
        "beginning": mean(seconds_of_beginning(one, max(1, repeats // 10)) for one in episodes),
    }


# --- many environments ----------------------------------------------------------------------------------


class Watch:
    """Stands for the engine's call that steps environments; adds up how long it takes, and for how many."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.spent = 0.0
        self.steps = 0

    def __call__(self, rows: Any, *rest: Any) -> Any:
        """Let the engine step some environments."""
        began = time.perf_counter()
        found = self._call(rows, *rest)
        self.spent += time.perf_counter() - began
        self.steps += rows.size
        return found


@contextmanager
def watched() -> Iterator[Watch]:
    """Time the engine's calls of whatever is stepped inside."""
    call = rows_of_envs.play
    watch = Watch(call)
    rows_of_envs.play = watch
    try:
        yield watch
    finally:
        rows_of_envs.play = call


def side_by_side(player: VectorPlayer, seconds: float, calls: int) -> tuple[float, float]:
    """Seconds of the engine's call, an environment, and of what is around it, a step of all."""
    with watched() as watch:
        timing = play(player, seconds, calls)
    each = watch.spent / watch.steps
    return each, player.count * (1 / timing.alone - each)


# --- everything -----------------------------------------------------------------------------------------


def measure(
    given: argparse.Namespace, episodes: Sequence[Episode], begin: Callable[[str], None]
) -> list[Row]:
    """Let everything take turns; a row for each part, with the medians."""
    size = mean(int(one.program[P_COMMANDS]) for one in episodes)
    calls = 1 if given.quick else round(CALLS_A_COMMAND * size)
    players: dict[int, VectorPlayer] = {}
    for count in given.environments:
        begin(f"compiling: {count} environments")
        settings = {"scenario": serving(_COMMANDS)}
        players[count] = make_player(
            Case("Serving", "vector", SERVING, settings, count, 1, given.instances, size)
        )
    alone(episodes, 1)
    for player in players.values():
        side_by_side(player, given.seconds / 4, max(1, calls // 4))
    parts: list[dict[str, float]] = []
    together: dict[int, list[tuple[float, float]]] = {count: [] for count in players}
    for run in range(given.runs):
        begin(f"run {run + 1}")
        parts.append(alone(episodes, given.repeats))
        for count, player in players.items():
            together[count].append(side_by_side(player, given.seconds, calls))
    return rows_of(
        {name: median(found[name] for found in parts) for name in parts[0]},
        {
            count: (median(each for each, _ in found), median(around for _, around in found))
            for count, found in together.items()
        },
    )


def rows_of(parts: Mapping[str, float], together: Mapping[int, tuple[float, float]]) -> list[Row]:
    """Rows in microseconds, each time of a step beside a whole one.

    Args:
        parts: Seconds by part, of one environment.
        together: By number of environments, seconds of the engine's call, an environment, and of what is
            around it, a step of all.
    """
    whole = parts["whole"]
    rows = [
        Row(name, 1, _PER_STEP, 1e6 * parts[name], parts[name] / whole)
        for name in (*PARTS, "simulation", "whole", "looking")
    ]
    for count, (each, around) in together.items():
        rows.append(Row("engine", count, _PER_STEP, 1e6 * each, each / whole))
        rows.append(Row("Python around it", count, _PER_CALL, 1e6 * around, None))
    return [*rows, Row("beginning", 1, _PER_EPISODE, 1e6 * parts["beginning"], None)]


def show(rows: Sequence[Row], facts: Mapping[str, float], found: Mapping[str, str]) -> None:
    """The table, with what has to be known to read it."""
    lines = [
        [row.part, str(row.environments), row.per, number(row.us), number(row.of_whole, 2)] for row in rows
    ]
    notes = [
        "choices to mask: repeated on one state, with caches and branch prediction warm, and so floors.",
        "simulation: what they leave of the whole, and with it what they take beyond their floors.",
        "whole: one environment, always in the cache. looking: observation and mask as they come in it.",
        "engine: the compiled call that steps all, an environment; beginnings of episodes are in it.",
        machine_line(found),
    ]
    title = f"What a step costs: {facts['commands']:.0f} commands, {facts['steps']:.0f} steps an episode"
    print_table(title, ["", "envs", "of a", "us", "x whole"], lines, notes)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--environments", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=500, help="of a part on each state")
    parser.add_argument("--seconds", type=float, default=1.0, help="of environments side by side, each run")
    parser.add_argument("--episodes", type=int, default=16, help="whose states are looked at")
    parser.add_argument("--instances", type=int, default=256, help="different graphs, side by side")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, and no more")
    given = parser.parse_args()
    if given.quick:
        given.environments, given.runs, given.repeats, given.seconds = [2], 1, 2, 0.0
        given.episodes = given.instances = 2
    with progress(1 + len(given.environments) + given.runs) as begin:
        episodes = episodes_of(given.episodes, _COMMANDS, begin)
        rows = measure(given, episodes, begin)
    facts = {
        "commands": mean(int(one.program[P_COMMANDS]) for one in episodes),
        "steps": mean(one.actions.size for one in episodes),
    }
    if given.json:
        print_json(rows=rows, facts=facts, machine=machine())
        return
    show(rows, facts, machine())


if __name__ == "__main__":
    main()
