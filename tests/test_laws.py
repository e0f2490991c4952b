"""Laws that hold for every graph, device, option and policy, tried on random ones.

Hypothesis draws a seed, everything else follows from it. A few dozen seeds are tried in the fast set, many
more under ``-m slow``.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np
import pytest
from cases import Case, digest, make_case, random_device, running
from episodes import actions_of, legal_actions, times
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from toys import toy_device

import cann_env
from cann_env.engine import layout as at
from cann_env.engine import observe as observation
from cann_env.engine.step import run_actions
from cann_env.metrics import metrics
from cann_env.options import Objective, RunOptions, Submission, Window
from cann_env.program import compile_graph
from cann_env.schedulers.recording import record_schedule
from cann_env.solvers.bounds import lower_bounds
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)


# --- schedules ----------------------------------------------------------------------------------------


def the_judge_finds_nothing(seed: int) -> None:
    case = make_case(seed)
    state = case.play()
    assert validate(record_schedule(case.program, actions_of(state), noise=case.noise)) == ()


def actions_replay_exactly(seed: int) -> None:
    """One call with the list of actions makes the same state, bit for bit, and twice the same schedule."""
    case = make_case(seed)
    state = case.play()
    actions = actions_of(state)
    again = case.new_state()
    assert run_actions(case.program.image, again, np.asarray(actions, np.int64)) == len(actions)
    assert (again == state).all()
    first, second = (record_schedule(case.program, actions, noise=case.noise) for _ in range(2))
    assert first == second
    assert first.makespan_ns == int(state[at.S_NOW_NS])


def recording_changes_nothing(seed: int) -> None:
    """With room for a trace, or with too little of it, the rest of the state is the same."""
    case = make_case(seed)
    state = case.play()
    actions = np.asarray(actions_of(state), np.int64)
    words = case.program.state_words()
    for rows in (3, 400):
        traced = case.program.new_state(case.noise, trace_rows=rows)
        run_actions(case.program.image, traced, actions)
        assert int(traced[at.S_TRACE_ROWS]) >= len(case.program.graph.commands)
        traced[[at.S_TRACE_ROWS, at.S_TRACE_CAPACITY]] = 0
        assert (traced[:words] == state).all()


def a_used_state_can_be_reset(seed: int) -> None:
    case = make_case(seed)
    used = case.play()
    case.program.reset_state(used, case.noise)
    assert (used == case.new_state()).all()


def a_copy_is_a_snapshot(seed: int) -> None:
    """In mid-episode: what is done with the copy leaves the original alone, and both can go the same way."""
    case = make_case(seed)
    state = case.new_state()
    for _ in range(int(case.rng.integers(0, 6))):
        if running(state):
            case.step(state, case.random_action(state))
    kept = state.copy()
    branch = state.copy()
    while running(branch):
        case.step(branch, case.random_action(branch))
    assert (state == kept).all()
    while running(state):
        action = case.random_action(state)
        assert case.step(state, action) == case.step(kept, action)
        assert (state == kept).all()


def the_program_is_never_written(seed: int) -> None:
    case = make_case(seed)
    before = case.program.image.copy()
    case.observe(case.play())
    assert (case.program.image == before).all()


# --- reward and bounds --------------------------------------------------------------------------------


def the_return_is_the_gap(seed: int) -> None:
    """Rewards sum to -(makespan - LB) / LB, or with latencies in their place."""
    case = make_case(seed)
    state = case.new_state()
    total = 0.0
    while running(state):
        total -= case.step(state, case.random_action(state)) / case.program.norm_ns
    schedule = record_schedule(case.program, actions_of(state), noise=case.noise)
    if case.program.options.objective is Objective.LATENCY:
        value = sum(metrics(schedule).latency_ns.values())
    else:
        value = schedule.makespan_ns
        assert case.program.norm_ns == case.program.lower_bound_ns
    bound = case.program.norm_ns
    assert abs(total + (value - bound) / bound) < 1e-9


def the_bound_stays_below_the_makespan(seed: int) -> None:
    """At every decision, with expected durations; at the end it is the makespan."""
    case = make_case(seed, plain=True)
    state = case.new_state()
    bounds = [case.program.lower_bound_ns, int(state[at.S_BOUND_NS])]
    while running(state):
        case.step(state, case.random_action(state))
        bounds.append(int(state[at.S_BOUND_NS]))
    assert max(bounds) <= int(state[at.S_NOW_NS]) == bounds[-1]


def the_objective_stays_below_its_end(seed: int) -> None:
    """The same for the sum of latencies."""
    case = make_case(seed, plain=True)
    latency = replace(case.program.options, objective=Objective.LATENCY)
    graph = replace(
        case.program.graph,
        commands=tuple(
            replace(command, request=f"r{i % 3}") for i, command in enumerate(case.program.graph.commands)
        ),
    )
    case = replace(case, program=compile_graph(graph, case.program.device, latency))
    state = case.new_state()
    values = [int(state[at.S_OBJECTIVE_NS])]
    while running(state):
        case.step(state, case.random_action(state))
        values.append(int(state[at.S_OBJECTIVE_NS]))
    assert max(values) == values[-1]


def no_finished_episode_costs_more_than_failure(seed: int) -> None:
    """What running out of memory is charged lies beyond every makespan, or sum of latencies."""
    case = make_case(seed)
    assert int(case.play()[at.S_OBJECTIVE_NS]) < int(case.program.image[at.P_WORST_NS])


def two_accounts_of_the_bound_agree(seed: int) -> None:
    """The engine's, from its arrays, and the solvers', from the graph."""
    program = make_case(seed, plain=True).program
    found = lower_bounds(program.graph, program.device, program.options)
    assert found.lower_bound_ns == program.lower_bound_ns


# --- observations -------------------------------------------------------------------------------------


def observations_stay_in_their_bounds(seed: int) -> None:
    """Every feature is written, finite, and from 0 to 10; looking changes nothing that matters."""
    case = make_case(seed)
    state = case.new_state()
    while running(state):
        seen = case.observe(state)
        assert ((seen >= 0.0) & (seen <= observation.OBS_HIGH)).all()
        assert (case.observe(state) == seen).all()
        assert legal_actions(case.program, state)
        case.step(state, case.random_action(state))


def what_has_not_started_hides_its_noise(seed: int) -> None:
    """Before anything starts, nothing that an agent sees depends on how long it will really take."""
    case = make_case(seed)
    surprise = case.rng.integers(1, 4 * 2**20, len(case.program.graph.commands))
    expected, noisy = case.program.new_state(), case.program.new_state(surprise)
    if not noisy[at.S_NOW_NS] and not noisy[at.S_ISSUED]:
        assert (case.observe(expected) == case.observe(noisy)).all()
        assert legal_actions(case.program, expected) == legal_actions(case.program, noisy)


# --- scaling ------------------------------------------------------------------------------------------


def slower_device(device: DeviceSpec, factor: int) -> DeviceSpec:
    """All times of a device multiplied."""
    return replace(
        device,
        classes={
            name: replace(spec, launch_base_ns=spec.launch_base_ns * factor)
            for name, spec in device.classes.items()
        },
        links={
            name: replace(spec, latency_ns=spec.latency_ns * factor) for name, spec in device.links.items()
        },
        host=type(device.host)(**{key: getattr(device.host, key) * factor for key in device.host.__slots__}),
        dispatch=type(device.dispatch)(
            **{key: getattr(device.dispatch, key) * factor for key in device.dispatch.__slots__}
        ),
    )


def longer_graph(graph: CommandGraph, factor: int) -> CommandGraph:
    """All work of a graph multiplied; kernels move no bytes, so that nobody shares a bandwidth."""
    commands = []
    for command in graph.commands:
        kernels = tuple(
            replace(kernel, flops=kernel.flops * factor, bytes_read=0, bytes_written=0)
            for kernel in command.kernels
        )
        times = {
            "size_bytes": command.size_bytes * factor,
            "duration_ns": command.duration_ns * factor,
            "release_ns": command.release_ns * factor,
        }
        commands.append(replace(command, kernels=kernels, **times))
    return replace(graph, commands=tuple(commands))


def scaling_all_times_scales_the_makespan(seed: int) -> None:
    """Exactly, where no bandwidth is shared; the same actions lead through the same states."""
    rng = np.random.default_rng(seed)
    graph = longer_graph(random_graph(rng, late=bool(rng.integers(0, 2)), memory=False), 4)
    device = replace(random_device(rng), pools=toy_device().pools, links=toy_device().links)
    options = RunOptions(
        streams=int(rng.integers(1, 6)),
        submission=Submission(str(rng.choice(["eager", "sink"]))),
        window=Window(str(rng.choice(["issuable", "startable"]))),
    )
    case = Case(compile_graph(graph, device, options), None, rng)
    schedule = record_schedule(case.program, actions_of(case.play()))
    factor = int(rng.choice([2, 3, 1000]))
    slower = compile_graph(longer_graph(graph, factor), slower_device(device, factor), options)
    scaled = record_schedule(slower, schedule.actions)
    assert scaled.makespan_ns == factor * schedule.makespan_ns
    assert times(scaled) == {
        name: (factor * start, factor * finish) for name, (start, finish) in times(schedule).items()
    }


LAWS = (
    the_judge_finds_nothing,
    actions_replay_exactly,
    recording_changes_nothing,
    a_used_state_can_be_reset,
    a_copy_is_a_snapshot,
    the_program_is_never_written,
    the_return_is_the_gap,
    the_bound_stays_below_the_makespan,
    the_objective_stays_below_its_end,
    no_finished_episode_costs_more_than_failure,
    two_accounts_of_the_bound_agree,
    observations_stay_in_their_bounds,
    what_has_not_started_hides_its_noise,
    scaling_all_times_scales_the_makespan,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@FAST
@given(seed=SEEDS)
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@LONG
@given(seed=SEEDS)
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


# --- compiled and interpreted -------------------------------------------------------------------------


@contextmanager
def interpreted_engine() -> Iterator[dict[str, ModuleType]]:
    """The engine's modules imported once more as plain Python."""
    compiled = {name: module for name, module in sys.modules.items() if name.startswith("cann_env.engine")}
    for name in compiled:
        del sys.modules[name]
    switch, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, 1
    try:
        yield {
            name: importlib.import_module(f"cann_env.engine.{name}") for name in ("start", "step", "observe")
        }
    finally:
        numba.config.DISABLE_JIT = switch
        for name in [name for name in sys.modules if name.startswith("cann_env.engine")]:
            del sys.modules[name]
        sys.modules.update(compiled)
        cann_env.engine = compiled["cann_env.engine"]


def same_interpreted(seeds: Iterator[int], most: int) -> None:
    """Same states, masks among them, and same observations after every decision, bit for bit."""
    with interpreted_engine() as engine:
        assert not hasattr(engine["step"].step, "py_func")  # plain Python indeed
        for seed in seeds:
            case = make_case(seed, most=most)
            image = case.program.image
            state = case.new_state()
            plain = np.zeros_like(state)
            noise = np.zeros(0, np.int64) if case.noise is None else case.noise
            engine["start"].prepare(image, plain, noise)
            engine["step"].step(image, plain, at.BEGIN)
            seen = np.zeros(case.program.observation_size, np.float32)
            while running(state):
                assert (plain == state).all(), seed
                engine["observe"].observe(image, plain, seen)
                assert (seen == case.observe(state)).all(), seed
                action = case.random_action(state)
                assert int(engine["step"].step(image, plain, action)) == case.step(state, action)
            assert (plain == state).all(), seed


@pytest.mark.parametrize("seed", range(4))
def test_compiled_is_interpreted(seed: int) -> None:
    same_interpreted(iter([seed]), most=10)


@pytest.mark.slow
def test_compiled_is_interpreted_at_length() -> None:
    same_interpreted(iter(range(100, 200)), most=25)


# --- processes ----------------------------------------------------------------------------------------


def digest_elsewhere(seeds: range, most: int, **environment: str) -> str:
    """:func:`cases.digest` in a process of its own."""
    code = f"import cases; print(cases.digest({seeds!r}, {most}))"
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "1", "7"])
def test_episodes_are_the_same_in_every_process(hash_seed: str) -> None:
    assert digest_elsewhere(range(20), 16, PYTHONHASHSEED=hash_seed) == digest(range(20), 16)


@pytest.mark.slow
def test_episodes_are_the_same_without_numba() -> None:
    assert digest_elsewhere(range(20, 40), 25, NUMBA_DISABLE_JIT="1") == digest(range(20, 40), 25)


def test_the_digest_tells_episodes_apart() -> None:
    assert digest([1]) == digest([1])
    assert len({digest([seed]) for seed in range(5)}) == 5
