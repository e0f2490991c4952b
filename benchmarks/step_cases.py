"""What ``step_rate.py`` measures: scenarios by number of environments, by threads, and as seen by whom."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
from rates import AdapterPlayer, Player, SinglePlayer, VectorPlayer, mean_commands, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVING = "cann_env:cann/Serving-v0"
LONG = "Serving, long"


class Sizes(NamedTuple):
    """How much is measured: graphs to play, draws for a mean, commands of the usual and of long graphs."""

    instances: int
    draws: int
    commands: int
    long_commands: int


QUICK = Sizes(instances=2, draws=2, commands=100, long_commands=200)


class Case(NamedTuple):
    """One line of the table.

    Attributes:
        name: For people.
        kind: ``vector``, ``adapter`` or ``single``.
        env_id: Registered id.
        settings: Arguments of the environment.
        environments: Side by side.
        threads: That step them.
        instances: Different graphs.
        commands: Of a graph, on average.
    """

    name: str
    kind: str
    env_id: str
    settings: dict[str, Any]
    environments: int
    threads: int
    instances: int
    commands: float

    @property
    def plain(self) -> bool:
        """Serving on one thread, with nothing between: what others are compared with."""
        return (self.name, self.kind, self.threads) == ("Serving", "vector", 1)

    @property
    def key(self) -> str:
        """Tells it from all others."""
        return f"{self.name}, {self.kind}, {self.environments}, {self.threads}"


def cases(environments: Sequence[int], threads: Sequence[int], sizes: Sizes) -> list[Case]:
    """All lines of the table, the usual graphs first; what is not the headline runs with the first number."""
    few = environments[0]
    plain = serving(sizes.commands)
    mean = mean_commands(plain, sizes.draws)

    def one(name: str, kind: str, settings: dict[str, Any], count: int = few, used: int = 1) -> Case:
        return Case(name, kind, SERVING, settings, count, used, sizes.instances, mean)

    found = [
        one("Serving", "vector", {"scenario": plain}, count, used)
        for used in threads
        for count in environments
    ]
    if importlib.util.find_spec("sb3_contrib"):
        found += [one("Serving", "adapter", {"scenario": plain}, count) for count in environments]
    found.append(one("Serving", "single", {"scenario": plain}, 1))
    tight = {"scenario": tight_serving(sizes.commands)}
    startable = {"scenario": serving(sizes.commands, window="startable")}
    mean_tight = mean_commands(tight["scenario"], sizes.draws)
    found.append(one("Serving, memory x 0.7", "vector", tight)._replace(commands=mean_tight))
    found.append(one("Serving, startable", "vector", startable))
    for name, scenario in (("Training", "training"), ("Oversubscribed", "oversubscribed")):
        size = mean_commands(scenario, sizes.draws)
        found.append(Case(name, "vector", f"cann_env:cann/{name}-v0", {}, few, 1, sizes.instances, size))
    long = serving(sizes.long_commands)
    instances = max(2, sizes.instances // 8)
    size = mean_commands(long, max(2, sizes.draws // 8))
    found.append(Case(LONG, "vector", SERVING, {"scenario": long}, few, 1, instances, size))
    return found


def tight_serving(commands: int) -> dict[str, Any]:
    """Serving with seven tenths of the memory; models in turn and batches alike, for not every draw fits."""
    scenario = serving(commands, memory_factor=0.7)
    scenario["workload"]["mix"] = "cycle"
    scenario["workload"]["models"][0]["batches"] = [2, 4]
    return scenario


def make_player(case: Case) -> Player:
    """Make the environment of a case and compile what it plays."""
    settings = case.settings | {"instances": case.instances}
    if case.kind == "single":
        return SinglePlayer(gymnasium.make(case.env_id, **settings), case.instances)
    settings["threads"] = case.threads
    if case.kind == "adapter":
        sys.path.append(str(Path(__file__).parents[1]))
        from agents.vec_env import make_vec_env

        return AdapterPlayer(make_vec_env(case.env_id, case.environments, **settings), case.instances)
    envs = gymnasium.make_vec(case.env_id, num_envs=case.environments, copy=False, **settings)
    return VectorPlayer(envs, case.instances)
