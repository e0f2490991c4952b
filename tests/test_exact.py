"""The exact solver: optima by hand and by brute force, honest statuses, replays to the nanosecond."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import make_case, tight
from test_reach import DEVICE, FREE_OF_LATENCY, best_by_hand, best_by_search, random_problem
from toys import copy_in, kernel_command, managed, mix, toy_device, toy_kernel, vector

from cann_env.engine import layout as at
from cann_env.engine.step import run_actions
from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, Level, Scheme
from cann_env.options import Objective, PrefetchMask, RunOptions, Submission
from cann_env.program import Program, compile_graph
from cann_env.schedulers import ORDERS, decide
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.search import Search
from cann_env.solvers import exact as scheduler
from cann_env.solvers import model, residence
from cann_env.solvers.cpsat import Progress, Proof, Result, solve
from cann_env.solvers.strong import strong_bounds
from cann_env.units import InputError
from cann_env.validate import validate
from cann_env.workloads.from_psplib import from_psplib, problem_names
from cann_env.workloads.planted import planted

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.solvers.pieces import Kernels

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="needs the extra 'exact'"
)
FREE = toy_device(**FREE_OF_LATENCY)


def program(
    *commands: Command, buffers: tuple[Buffer, ...] = (), device: Any = FREE, **options: Any
) -> Program:
    return compile_graph(CommandGraph("exact", commands, buffers), device, RunOptions(**options))


def exact(case: Program, **fields: Any) -> Result:
    return solve(case, seconds=2.0, deterministic=True, **fields)


def makespan(case: Program, actions: tuple[int, ...]) -> int:
    """What decisions come to; the judge finds nothing wrong with them."""
    state = case.new_state()
    run_actions(case.image, state, np.asarray(actions, np.int64))
    assert state[at.S_STATUS] == at.FINISHED
    assert validate(record_schedule(case, actions)) == ()
    return int(state[at.S_NOW_NS])


def wide(name: str, block_ns: int, blocks: int, **fields: Any) -> Command:
    return kernel_command(name, toy_kernel("vector", block_ns, blocks=blocks, scheme=Scheme.BATCH), **fields)


# --- by hand ------------------------------------------------------------------------------------------


@needs_ortools
def test_a_core_is_left_idle_where_that_pays() -> None:
    """Two cores. Who starts c at once makes b wait until 60, and d with it.

    ::

        a --> b --> d        a: 10 on one core, b: 100 on two, d: 100 on one
        c                    60 on one core

        core 0   a | b ........ | d ........
        core 1     | b ........ | c .....        210, where without waiting it takes 260
    """
    case = program(
        vector("a", 10),
        wide("b", 100, 2, after=("a",)),
        vector("c", 60),
        vector("d", after=("b",)),
        device=replace(FREE, pools={**FREE.pools, "aiv": 2}),
    )
    found = exact(case)
    assert (found.status, found.objective_ns, found.bound_ns) == (Proof.OPTIMAL, 210, 210)
    assert found.starts_ns[2] >= 110
    assert makespan(case, found.actions) == 210
    assert decide(case, ORDERS["just_in_time"]()).end_ns == 260


@needs_ortools
@pytest.mark.parametrize(("room", "optimum"), [(64, 492), (128, 364)])
def test_weights_come_again_where_there_is_no_room_to_keep_them(room: int, optimum: int) -> None:
    """Loads of 64, kernels of 100. With room for one, each waits for the kernel before: 3 * 164.

    ::

        k0 (w0) --> k1 (w1) --> k2 (w0)        room for two: w1 comes beside k0, w0 stays: 64 + 300
    """
    case = program(
        vector("k0", reads=("w0",)),
        vector("k1", reads=("w1",), after=("k0",)),
        vector("k2", reads=("w0",), after=("k1",)),
        buffers=(managed("w0"), managed("w1")),
        hbm_bytes=room,
    )
    found = exact(case)
    assert (found.status, found.objective_ns, found.bound_ns) == (Proof.OPTIMAL, optimum, optimum)
    assert makespan(case, found.actions) == optimum


@needs_ortools
def test_outputs_that_do_not_fit_together_wait_for_each_other() -> None:
    """Two chains whose first commands leave 64 bytes each, and room for one: one after the other, 400.

    ::

        a0 --x0--> b0        a1 --x1--> b1        100 each
    """
    commands = [
        command
        for i in range(2)
        for command in (vector(f"a{i}", writes=(f"x{i}",)), vector(f"b{i}", reads=(f"x{i}",)))
    ]
    buffers = tuple(Buffer(name=f"x{i}", size_bytes=64) for i in range(2))
    assert exact(program(*commands, buffers=buffers, hbm_bytes=64)).objective_ns == 400
    assert exact(program(*commands, buffers=buffers, hbm_bytes=128)).objective_ns == 200


@needs_ortools
def test_blocks_that_come_one_by_one_may_leave_a_core_to_others() -> None:
    """Four cores. a: six blocks of 50; b: two of 50 at once, then c: 100 on one core.

    ::

        core 0     | a | a
        core 1     | a | a        a waits for c, or it would take all cores from 50 on
        core 2   b | a | a
        core 3   b | c ..         150
    """
    case = program(vector("a", 50, blocks=6), wide("b", 50, 2), vector("c", 100, after=("b",)), streams=3)
    found = exact(case)
    assert found.bound_ns == best_by_search(case) == 150
    assert found.objective_ns == makespan(case, found.actions)


@needs_ortools
def test_calls_of_the_host_come_one_after_another() -> None:
    """Calls of 5 ns for kernels; the long one is submitted first: 5 + 100 rather than 20 + 100."""
    case = program(*(vector(f"k{i}", 10) for i in range(3)), vector("long", 100), submission=Submission.EAGER)
    found = exact(case)
    assert found.bound_ns == found.objective_ns == 105


@needs_ortools
def test_kernels_of_one_command_run_back_to_back() -> None:
    """x holds one stream for cube 100 and then vector 100; y, a cube of 50, goes before or after."""
    pair = kernel_command(
        "x", toy_kernel("cube", 100, blocks=2, scheme=Scheme.BATCH), toy_kernel("vector", 100)
    )
    other = kernel_command("y", toy_kernel("cube", 50))
    found = exact(program(pair, other))
    assert found.bound_ns == found.objective_ns == 200


# --- against brute force ------------------------------------------------------------------------------


def equals_brute_force(seed: int) -> None:
    """Graphs of up to six commands that start as a whole: proved, and played to the nanosecond."""
    rng = np.random.default_rng(seed)
    streams = int(rng.integers(1, 5))
    graph, jobs = random_problem(rng, int(rng.integers(2, 7)))
    case = compile_graph(graph, DEVICE, RunOptions(streams=streams, commands=8, run_ahead=16))
    found = exact(case)
    assert found.objective_ns == found.bound_ns == best_by_hand(jobs, streams)
    assert found.status is Proof.OPTIMAL
    assert makespan(case, found.actions) == found.objective_ns


@needs_ortools
@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_brute_force_finds(seed: int) -> None:
    equals_brute_force(seed)


@needs_ortools
@pytest.mark.thorough
def test_it_finds_what_brute_force_finds_at_length() -> None:
    for seed in range(6, 300):
        equals_brute_force(seed)


def spread_problem(rng: np.random.Generator) -> Program:
    """Up to four kernels of several blocks, launches included, and perhaps a copy."""
    commands: list[Command] = []
    for i in range(int(rng.integers(2, 5))):
        after = tuple(f"c{j}" for j in range(i) if rng.random() < 0.3)
        draw = rng.random()
        if draw < 0.2:
            commands.append(copy_in(f"c{i}", int(rng.integers(1, 60)), after=after))
            continue
        make: Callable[..., Command] = vector if draw < 0.7 else mix
        commands.append(make(f"c{i}", int(rng.integers(1, 60)), blocks=int(rng.integers(1, 7)), after=after))
    return program(*commands, device=toy_device(), streams=int(rng.integers(1, 4)))


def scarce_problem(rng: np.random.Generator) -> Program:
    """Up to four kernels, with weights and what others made as operands, or copies; and little memory."""
    buffers = [
        managed(f"w{i}", 64 * int(rng.integers(1, 4)), Level.HBM if rng.random() < 0.25 else Level.HOST)
        for i in range(int(rng.integers(1, 4)))
    ]
    weights = [buffer.name for buffer in buffers]
    commands: list[Command] = []
    for i in range(int(rng.integers(2, 5))):
        after = tuple(f"c{j}" for j in range(i) if rng.random() < 0.2)
        if rng.random() < 0.15:
            commands.append(copy_in(f"c{i}", int(rng.integers(1, 200)), after=after))
            continue
        reads = [name for name in weights if rng.random() < 0.5]
        writes = [name for name in weights if rng.random() < 0.1]
        if len(buffers) > len(weights) and rng.random() < 0.5:
            reads.append(buffers[-1].name)
        if rng.random() < 0.4:
            kind = BufferKind.MANAGED if rng.random() < 0.5 else BufferKind.DEVICE
            buffers.append(Buffer(name=f"x{i}", size_bytes=64 * int(rng.integers(1, 3)), kind=kind))
            writes.append(f"x{i}")
        fields = {"reads": tuple(reads), "writes": tuple(writes), "after": after}
        commands.append(vector(f"c{i}", int(rng.integers(1, 120)), blocks=int(rng.integers(1, 3)), **fields))
    options = RunOptions(
        streams=2,
        prefetches=3,
        l2_prefetches=0,
        offloads=int(rng.integers(0, 2)),
        prefetch_mask=PrefetchMask.FREE,
        prefetch_streams=int(rng.integers(1, 3)),
    )
    device = FREE if rng.random() < 0.5 else toy_device()
    return tight(CommandGraph("scarce", tuple(commands), tuple(buffers)), device, options, rng)


PROBLEMS = (spread_problem, scarce_problem)


def stays_below_the_best_of_the_engine(case: Program) -> bool:
    """Whatever the engine can do at all is no shorter than the bound, nor than what was found.

    Returns:
        Whether the bound is the best that the engine can do.
    """
    found = exact(case)
    best = best_by_search(case)
    assert found.objective_ns is not None
    assert strong_bounds(case).lower_bound_ns <= found.bound_ns <= best <= found.objective_ns
    return found.bound_ns == best


@needs_ortools
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_sequence_of_decisions_beats_the_bound(
    problem: Callable[[np.random.Generator], Program], seed: int
) -> None:
    stays_below_the_best_of_the_engine(problem(np.random.default_rng(seed)))


@needs_ortools
@pytest.mark.thorough
@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_sequence_of_decisions_beats_the_bound_at_length(
    problem: Callable[[np.random.Generator], Program],
) -> None:
    """And in most cases none is left to be found."""
    tight_ones = [
        stays_below_the_best_of_the_engine(problem(np.random.default_rng(seed))) for seed in range(5, 155)
    ]
    assert np.mean(tight_ones) > 0.5


@needs_ortools
def test_a_model_that_is_too_strict_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: blocks that come one by one are taken to start together."""

    def together(*values: Any) -> Kernels:
        kernels = real(*values)
        return kernels._replace(rigid=kernels.rigid | (kernels.work_class >= 0))

    real = model.kernels_of
    monkeypatch.setattr(model, "kernels_of", together)
    with pytest.raises(Exception, match=r"assert|no schedule of"):
        for seed in range(40):
            stays_below_the_best_of_the_engine(spread_problem(np.random.default_rng(seed)))


@needs_ortools
def test_loads_that_take_up_space_too_long_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what is loaded stays to the end, as if nothing could ever be evicted."""

    def for_ever(cp: Any, times: residence.Times, *values: Any) -> Any:
        stay = real(cp, times, *values)
        cp.add(stay.end_expr() == times.horizon)
        return stay

    real = residence._stay
    monkeypatch.setattr(residence, "_stay", for_ever)
    with pytest.raises(Exception, match=r"assert|no schedule of"):
        for seed in range(40):
            stays_below_the_best_of_the_engine(scarce_problem(np.random.default_rng(seed)))


# --- laws ---------------------------------------------------------------------------------------------


def bound_exact_schedulers(seed: int) -> None:
    """bound <= exact <= every scheduler, with all that a program may have."""
    case = make_case(seed, plain=True, most=8).program
    found = solve(case, seconds=0.03, deterministic=True)
    assert found.objective_ns is not None
    ends = [decide(case, make()).end_ns for make in ORDERS.values()]
    assert strong_bounds(case).lower_bound_ns <= found.bound_ns <= min(found.objective_ns, *ends)
    assert (found.status is Proof.OPTIMAL) == (found.objective_ns == found.bound_ns)
    assert makespan(case, found.actions) == found.objective_ns


@needs_ortools
@pytest.mark.parametrize("seed", range(4))
def test_bounds_stay_below_all_schedulers(seed: int) -> None:
    bound_exact_schedulers(seed)


@needs_ortools
@pytest.mark.thorough
def test_bounds_stay_below_all_schedulers_at_length() -> None:
    for seed in range(4, 300):
        bound_exact_schedulers(seed)


@needs_ortools
@pytest.mark.parametrize(("kernels", "loads"), [(8, 0.0), (8, 1.0), (14, 0.5)])
def test_planted_optima_are_found_and_played(kernels: int, loads: float) -> None:
    """With cold weights that keep the link busy, and just as much memory as the planted schedule needs."""
    drawn = planted(
        np.random.default_rng(kernels), kernels=kernels, cores={"aic": 4, "aiv": 6}, length=40, loads=loads
    ).problem
    case = compile_graph(drawn.graph, drawn.device, drawn.options)
    found = exact(case)
    assert (found.status, found.objective_ns) == (Proof.OPTIMAL, drawn.optimum_ns)
    assert makespan(case, found.actions) == drawn.optimum_ns


# --- how it is asked ----------------------------------------------------------------------------------


def hard(kernels: int = 24) -> Program:
    """A problem that the first list does not solve."""
    drawn = planted(np.random.default_rng(5), kernels=kernels, cores={"aiv": 9}, length=60).problem
    return compile_graph(drawn.graph, drawn.device, drawn.options)


@needs_ortools
def test_it_is_the_same_every_time() -> None:
    first, second = (replace(exact(hard(), seed=3), seconds=0.0) for _ in range(2))
    assert first == second


@needs_ortools
def test_it_says_so_when_time_is_out() -> None:
    case = hard(60)
    found = solve(case, seconds=0.001, deterministic=True)
    assert found.status is Proof.FEASIBLE
    assert found.objective_ns is not None
    assert found.bound_ns < found.objective_ns == makespan(case, found.actions)
    assert found.gap == found.objective_ns / found.bound_ns - 1.0 > 0.0


@needs_ortools
def test_a_hint_is_never_lost() -> None:
    case = hard()
    best = exact(case)
    again = solve(case, seconds=0.001, deterministic=True, hint=best.actions)
    assert again.objective_ns == best.objective_ns


@needs_ortools
def test_a_hint_that_does_not_finish_is_refused() -> None:
    with pytest.raises(InputError, match="2 decisions that do not finish"):
        exact(hard(), hint=(0, 0))


@needs_ortools
def test_progress_and_log_are_told() -> None:
    told: list[Progress] = []
    lines: list[str] = []
    found = exact(hard(), progress=told.append, log=lines.append)
    assert lines
    assert told
    assert all(step.bound_ns <= found.bound_ns for step in told)
    assert [step.makespan_ns for step in told if step.makespan_ns is not None][-1] == found.relaxed_ns


@needs_ortools
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seconds": 0.0}, "seconds is 0.0"),
        ({"seconds": math.nan}, "seconds is nan"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_numbers_out_of_range_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        solve(program(vector("a")), **fields)


@needs_ortools
def test_latencies_are_not_proved() -> None:
    with pytest.raises(InputError, match="'latency'"):
        solve(program(vector("a"), objective=Objective.LATENCY))


def test_without_ortools_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(InputError, match=r"cann-env\[exact\]"):
        solve(program(vector("a")))


# --- the literature -----------------------------------------------------------------------------------


@needs_ortools
@pytest.mark.thorough
def test_published_optima_are_proved() -> None:
    """All of PSPLIB's j30 (Kolisch and Sprecher 1997): 470 proved in a minute each, none against the file."""
    folder = os.environ.get("CANN_ENV_PSPLIB")
    if folder is None:
        pytest.skip("set CANN_ENV_PSPLIB to a folder with j30.tar.gz")
    proved = 0
    for name in problem_names(Path(folder) / "j30.tar.gz"):
        problem = from_psplib(name)
        found = solve(compile_graph(problem.graph, problem.device, problem.options), seconds=60.0, workers=2)
        assert found.objective_ns is not None
        assert problem.best_ns is not None
        assert found.bound_ns <= problem.best_ns <= found.objective_ns, name
        proved += found.status is Proof.OPTIMAL
    assert proved >= 470


def test_the_search_and_the_solver_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds: the search may take five; it takes four, then twelve, so the solver has six, then one."""
    case, given = hard(), []
    first = Search(schedules=0).plan(case)

    class Fake:
        def __init__(self, **limits: Any) -> None:
            given.append(limits["seconds"])

        def plan(self, _: Program) -> Any:
            return first

    def solved(_: Program, **options: Any) -> Any:
        given.append(options["seconds"])
        return SimpleNamespace(bound_ns=1, actions=options["hint"])

    monkeypatch.setattr(scheduler, "Search", Fake)
    monkeypatch.setattr(scheduler, "solve", solved)
    monkeypatch.setattr(scheduler, "monotonic", iter([0.0, 4.0, 100.0, 112.0]).__next__)
    for _ in range(2):
        assert scheduler.Exact(seconds=10.0).plan(case).actions == first.actions
    assert given == [5.0, 6.0, 5.0, 1.0]
