"""Problems made around a schedule: the engine plays it to the nanosecond, and no bound is beyond it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from episodes import Host
from hypothesis import given, settings
from hypothesis import strategies as st

from cann_env.engine import layout as at
from cann_env.scenario import Scenario
from cann_env.solvers.bounds import lower_bounds
from cann_env.units import InputError
from cann_env.workloads.planted import PlantedProblem, planted

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)

CORES = {"aic": 6, "aiv": 10, "aicpu": 3}


def draw(seed: int) -> PlantedProblem:
    """A problem of some size, of one pool or of several, with loads or without."""
    rng = np.random.default_rng(seed)
    pools = list(CORES)[: int(rng.integers(1, 4))]
    return planted(
        rng,
        kernels=int(rng.integers(len(pools), 60)),
        cores={pool: CORES[pool] for pool in pools},
        length=int(rng.choice([20, 100, 1000])),
        predecessors=int(rng.integers(0, 5)),
        loads=float(rng.choice([0.0, 0.4, 1.0])),
    )


def idle(host: Host, stream: int) -> bool:
    """Whether nothing is queued on a stream."""
    row = int(host.program.image[at.P_STATE_STREAM]) + stream * at.SS_WIDTH
    return bool(host.state[row + at.SS_LENGTH] == 0)


def replay(found: PlantedProblem) -> Host:
    """Issue every command, and ask for every load, at its instant."""
    problem = found.problem
    fields = {
        name: getattr(problem.options, name) for name in ("streams", "commands", "run_ahead", "prefetches")
    }
    host = Host(
        problem.graph,
        problem.device,
        submission="sink",
        l2_prefetches=0,
        l2_bytes=0,
        hbm_bytes=problem.options.hbm_bytes,
        **fields,
    )
    loads = sorted((start, i) for i, start in enumerate(found.load_starts_ns))
    due = sorted((start, i) for i, start in enumerate(found.starts_ns))
    while due:
        if loads and loads[0][0] <= host.now_ns:
            host.prefetch(problem.graph.buffers[loads.pop(0)[1]].name)
        elif due[0][0] <= host.now_ns:
            name = problem.graph.commands[due.pop(0)[1]].name
            host.issue(name, next(stream for stream in host.streams(name) if idle(host, stream)))
        else:
            host.wait()
    return host


@FAST
@given(seed=SEEDS)
def test_the_planted_schedule_plays_exactly(seed: int) -> None:
    """Every command starts at its instant, memory is never more than there is, and the link never rests."""
    found = draw(seed)
    schedule = replay(found).schedule()
    starts = {run.command: run.start_ns for run in schedule.commands}
    assert tuple(starts[i] for i in range(len(starts))) == found.starts_ns
    assert schedule.makespan_ns == found.problem.optimum_ns
    moves = sorted((row.start_ns, row.finish_ns) for row in schedule.transfers if row.cause == "prefetch")
    assert len(moves) == len(found.problem.graph.buffers)
    assert all(before[1] == after[0] for before, after in pairwise(moves))
    assert not moves or moves[0][0] == 0


@FAST
@given(seed=SEEDS)
def test_the_bound_is_the_optimum(seed: int) -> None:
    """Each pool is full from end to end, and nothing else is beyond it."""
    problem = draw(seed).problem
    bounds = lower_bounds(problem.graph, problem.device, problem.options)
    used = {kernel.kernel_class.value for command in problem.graph.commands for kernel in command.kernels}
    pools = {{"cube": "aic", "vector": "aiv", "aicpu": "aicpu"}[name] for name in used}
    assert {bounds.area_ns[pool] for pool in pools} == {problem.optimum_ns}
    assert bounds.lower_bound_ns == problem.optimum_ns


@FAST
@given(seed=SEEDS)
def test_one_seed_makes_one_problem(seed: int) -> None:
    assert draw(seed) == draw(seed)


def test_there_are_as_many_kernels_as_asked_for() -> None:
    for kernels in (2, 30, 400):
        found = planted(np.random.default_rng(1), kernels=kernels, cores={"aic": 24, "aiv": 48}, loads=0.3)
        assert len(found.problem.graph.commands) == kernels
        assert found.problem.optimum_ns == 1_000_000


def test_the_memory_is_just_enough() -> None:
    """One byte less and the planted loads can no longer all be asked for in time."""
    found = next(
        found
        for seed in range(20)
        if len(
            (
                found := planted(np.random.default_rng(seed), kernels=20, cores={"aiv": 8}, loads=1.0)
            ).load_starts_ns
        )
        > 5
    )
    replay(found)
    options = found.problem.options
    assert options.hbm_bytes is not None
    less = replace(found.problem, options=replace(options, hbm_bytes=options.hbm_bytes - 1))
    with pytest.raises(AssertionError):
        schedule = replay(replace(found, problem=less)).schedule()
        assert schedule.makespan_ns == found.problem.optimum_ns


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cores": {"hbm": 4}}, "gives pool 'hbm' 4; name some of aic, aiv, aicpu"),
        ({"cores": {"aic": 0}}, "gives pool 'aic' 0"),
        ({"kernels": 1, "cores": {"aic": 1, "aiv": 1}}, "'kernels' is 1; write at least one for each"),
        ({"length": 2, "kernels": 9}, "9 kernels cannot be cut from 4 aic and a 'length' of 2; .*at least 3"),
        ({"loads": 1.5}, "'loads'"),
        ({"predecessors": -1}, "'predecessors'"),
    ],
)
def test_what_cannot_be_planted_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planted(np.random.default_rng(0), **{"kernels": 4, "cores": {"aic": 4}, **fields})  # type: ignore[arg-type]


def test_a_scenario_can_ask_for_planted_graphs() -> None:
    """The graph of the generator, cut for the cores of the device; pools without cores are refused."""
    head = {"name": "a", "description": "b", "device": "ascend910b2"}
    table = {"kind": "planted", "kernels": 30, "pools": ["aic", "aiv"], "loads": 0.2}
    scenario = Scenario.from_dict({"scenario": head, "workload": table})
    graph = scenario.graph(0, 0, 0)
    bounds = lower_bounds(graph, scenario.device, scenario.options)
    assert len(graph.commands) == 30
    assert bounds.area_ns["aic"] == bounds.area_ns["aiv"] == 1_000_000
    for pools, message in ((["hbm"], "'pools' names 'hbm'; write some of aic"), ([], "pools")):
        with pytest.raises(InputError, match=message):
            Scenario.from_dict({"scenario": head, "workload": {**table, "pools": pools}})
