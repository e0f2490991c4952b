"""Episodes side by side: each is, bit for bit, the one that a single environment plays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from toys import toy_chain, toy_device, toy_diamond, toy_pipeline
from vectors import small

from cann_env import InputError
from cann_env.envs import CannEnv
from cann_env.envs.batch import Batch, capacity_for, shape_of
from cann_env.envs.instances import InstanceKey, ProgramSource
from cann_env.envs.spaces import GraphCapacity
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.scenario import Scenario
from cann_env.schedulers import replay

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program

KEYS = [InstanceKey(5, 0, episode) for episode in range(4)]
PLAYED: dict[str, tuple[str, dict[str, Any]]] = {
    "expected": ("random", {}),
    "noise": ("random", {"noise": 0.2}),
    "startable": ("random", {"window": "startable", "invalid_penalty": 0.25}),
    "short_memory": ("serving", {"memory_factor": 0.8, "offloads": 2}),
}


def drawn(tables: dict[str, Any]) -> tuple[list[Program], list[Image | None]]:
    """Four graphs of a scenario, and realised durations."""
    source = ProgramSource(Scenario.from_dict(tables, "test"))
    programs = [source.program(key) for key in KEYS]
    return programs, [source.noise(program, key) for program, key in zip(programs, KEYS, strict=True)]


@pytest.mark.parametrize("graph", [False, True], ids=["window", "graph"])
@pytest.mark.parametrize("name", PLAYED)
def test_a_batch_plays_what_single_environments_play(name: str, graph: bool) -> None:
    """Nine decisions of ten are legal, so that penalties and replaced actions are among them."""
    workload, options = PLAYED[name]
    tables = small(workload, **options)
    programs, noises = drawn(tables)
    assert workload == "serving" or len({len(program.graph.commands) for program in programs}) > 1
    capacity = capacity_for(programs) if graph else None
    shown = {"observation": "graph", "graph_capacity": tuple(capacity)} if capacity else {}
    singles = [CannEnv(tables, instances=None, **shown) for _ in KEYS]
    observed = [
        env.reset(seed=key.seed, options={"instance": key.episode})[0]
        for env, key in zip(singles, KEYS, strict=True)
    ]
    batch = Batch(programs, noises=noises, capacity=capacity)
    rng = np.random.default_rng(0)
    finished: dict[int, int] = {}
    while batch.running.size:
        running = batch.running.tolist()
        seen, masks = batch.observations(), batch.masks()
        for row, i in enumerate(running):
            np.testing.assert_array_equal(masks[row], singles[i].action_masks())
            assert seen.keys() == observed[i].keys()
            for part, values in observed[i].items():
                np.testing.assert_array_equal(seen[part][row], values)
        legal = (rng.random(masks.shape) * masks).argmax(1)
        wild = rng.integers(masks.shape[1], size=len(running))
        actions = np.where(rng.random(len(running)) < 0.9, legal, wild)
        rewards = batch.step(actions)
        for row, i in enumerate(running):
            observed[i], reward, terminated, truncated, info = singles[i].step(int(actions[row]))
            assert reward == rewards[row]
            assert (i not in batch.running) == (terminated or truncated)
            if info.get("schedule", {}).get("finished"):
                finished[i] = info["schedule"]["makespan_ns"]
    assert finished
    for i, outcome in enumerate(batch.outcomes()):
        assert (outcome is not None) == (i in finished)
        if outcome is not None:
            assert outcome.end_ns == finished[i]
            assert outcome == replay(programs[i], outcome.actions, noise=noises[i])


def first_legal(batch: Batch) -> None:
    """Play to the end."""
    while batch.running.size:
        batch.step(batch.masks().argmax(1))


def test_expected_and_realised_durations_lie_side_by_side() -> None:
    programs, noises = drawn(small("random", noise=0.2))
    alone = Batch(programs[:1])
    first_legal(alone)
    both = Batch(programs[:2], noises=[None, noises[1]])
    first_legal(both)
    noisy = Batch(programs[:2], noises=noises[:2])
    first_legal(noisy)
    assert both.outcomes()[0] == alone.outcomes()[0]
    assert both.outcomes()[1] == noisy.outcomes()[1]
    assert noisy.outcomes()[0] != alone.outcomes()[0]


def test_what_has_not_ended_has_no_outcome() -> None:
    programs, _ = drawn(small("random"))
    batch = Batch(programs)
    assert batch.outcomes() == [None] * 4
    first_legal(batch)
    assert None not in batch.outcomes()
    assert batch.running.size == 0
    assert batch.step(np.zeros(0, np.int64)).size == 0


def toys(*options: RunOptions) -> list[Program]:
    """A chain, a diamond and a pipeline."""
    graphs = (toy_chain(), toy_diamond(), toy_pipeline())
    each = options or (RunOptions(streams=2),) * 3
    return [compile_graph(graph, toy_device(), own) for graph, own in zip(graphs, each, strict=False)]


def test_only_programs_of_one_shape_lie_side_by_side() -> None:
    with pytest.raises(InputError, match="programs is empty"):
        Batch([])
    for name, value in (("streams", 3), ("commands", 5), ("window", "startable"), ("offloads", 1)):
        options = RunOptions(streams=2)
        changed = replace(options, **{name: type(getattr(options, name))(value)})
        assert shape_of(options) != shape_of(changed)
        with pytest.raises(InputError, match=rf"graph '\w+' has {name} = .*side by side need the same"):
            Batch(toys(options, changed))
    programs = toys(RunOptions(streams=2), replace(RunOptions(streams=2), run_ahead=1))
    first_legal(Batch(programs))


def test_a_graph_that_does_not_fit_is_refused() -> None:
    programs = toys()
    capacity = capacity_for(programs)
    assert capacity.nodes == max(len(program.graph.commands) for program in programs)
    Batch(programs, capacity=capacity)
    with pytest.raises(InputError, match="the graph observation holds"):
        Batch(programs, capacity=GraphCapacity(capacity.nodes - 1, capacity.edges))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0]), r"actions have shape \(1,\)"),
        (np.array([0.0, 0.0, 0.0]), "of type float64"),
        (np.array([0, -1, 0]), "action -1 of environment 1 is out of range"),
        (np.array([0, 0, 10_000]), "action 10000 of environment 2 is out of range"),
    ],
    ids=["one", "float", "negative", "large"],
)
def test_wrong_actions_change_nothing(actions: np.ndarray, message: str) -> None:
    batch = Batch(toys())
    before = {name: part.copy() for name, part in batch.observations().items()}
    with pytest.raises(InputError, match=message):
        batch.step(actions)
    for name, part in batch.observations().items():
        np.testing.assert_array_equal(part, before[name])
