"""List schedulers on devices: shops of programs, how schedules are played, and what all of them hold to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import machines as plain
import numpy as np
import pytest
from cases import make_case
from episodes import times
from hypothesis import given, settings
from hypothesis import strategies as st
from ideal import IDEAL, crowded
from toys import kernel_command, toy_device, toy_kernel, vector

from cann_env.device.spec import CLASSES
from cann_env.engine import layout as at
from cann_env.engine.step import run_actions
from cann_env.generation import generate
from cann_env.graph import CommandGraph, KernelClass, Scheme
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers.assignment import carry_out
from cann_env.schedulers.heft import heft, upward_ranks
from cann_env.schedulers.policy import decide
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.rules import (
    RULES,
    best_fit,
    critical_path,
    in_order,
    longest_first,
    most_successors,
    on_streams,
    ordered,
    shortest_first,
)
from cann_env.schedulers.shop import Placed, shop_of
from cann_env.tasks import tasks_of
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.tasks import Tasks

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=10, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)


def random_vectors(rng: np.random.Generator, *, widest: int, most: int = 14) -> CommandGraph:
    """Vector commands of up to ``widest`` blocks, batch where it is more than one, no two of one length."""
    names = [f"c{i}" for i in range(int(rng.integers(2, most + 1)))]
    lengths = rng.choice(np.arange(20, 2000), len(names), replace=False).tolist()
    commands = []
    for i, name in enumerate(names):
        after = tuple(other for other in names[:i] if rng.random() < 0.2)
        kernel = toy_kernel(
            "vector", lengths[i], blocks=int(rng.integers(1, widest + 1)), scheme=_scheme(widest)
        )
        commands.append(kernel_command(name, kernel, after=after))
    return CommandGraph("vectors", tuple(commands))


def _scheme(widest: int) -> Scheme:
    return Scheme.BATCH if widest > 1 else Scheme.NORMAL


# --- shops of programs --------------------------------------------------------------------------------


def test_a_fallback_is_a_second_processor() -> None:
    """A cube kernel of two blocks of 100 ns, 110 in all, may run on the one AI CPU core, 210 there."""
    kernel = toy_kernel("cube", 100, blocks=2, fallback=KernelClass.AICPU)
    graph = CommandGraph("two", (kernel_command("a", kernel), vector("b", after=("a",))))
    device = toy_device(dispatch={"record_ns": 2, "wake_ns": 3})
    shop = shop_of(compile_graph(graph, device, RunOptions(streams=1)))
    cubes, vectors, cpu = (CLASSES.index(name) for name in ("cube", "vector", "aicpu"))
    assert shop.allowed == ((cubes, cpu), (vectors,))
    assert shop.preferred == (cubes, vectors)
    assert (shop.cost_ns[0, cubes], shop.cost_ns[0, cpu]) == (110, 210)
    assert shop.delay_ns == {(0, 1): 5}
    assert shop.capacity.tolist() == [1]  # slots only: nothing else can run short
    placed = heft(shop)
    assert (placed.start_ns, placed.finish_ns) == ((0, 115), (110, 225))


def feasible(seed: int) -> None:
    """Precedence, events between classes and every capacity, over all instants."""
    program = make_case(seed, plain=True).program
    shop = shop_of(program)
    placed = heft(shop)
    for task, own in enumerate(shop.before):
        assert placed.start_ns[task] >= shop.release_ns[task]
        assert placed.finish_ns[task] - placed.start_ns[task] == shop.cost_ns[task, placed.processor[task]]
        for pred in own:
            apart = placed.processor[pred] != placed.processor[task]
            assert placed.start_ns[task] >= placed.finish_ns[pred] + apart * shop.delay_ns[pred, task]
    for now in placed.start_ns:
        held = sum(
            shop.demand[t, p]
            for t, p in enumerate(placed.processor)
            if placed.start_ns[t] <= now < placed.finish_ns[t]
        )
        assert (held <= shop.capacity).all()


@FAST
@given(seed=SEEDS)
def test_a_schedule_of_a_shop_keeps_to_what_there_is(seed: int) -> None:
    feasible(seed)


def generated_alike(seed: int) -> None:
    """Where every command has one class and events cost nothing, HEFT is serial schedule generation."""
    program = make_case(seed, plain=True).program
    shop = shop_of(program)
    alone = tuple((p,) for p in shop.preferred)
    shop = replace(shop, delay_ns={}, allowed=alone)
    tasks = replace(tasks_of(program), duration_ns=shop.cost_ns[np.arange(shop.tasks), shop.preferred])
    rank = upward_ranks(shop)
    keys = np.argsort(sorted(range(shop.tasks), key=lambda task: (-rank[task], task)))
    assert heft(shop).start_ns == tuple(generate(tasks, keys).tolist())


@FAST
@given(seed=SEEDS)
def test_with_one_class_each_heft_is_serial_schedule_generation(seed: int) -> None:
    generated_alike(seed)


# --- playing schedules --------------------------------------------------------------------------------


def test_best_fit_takes_the_stream_that_was_busy_last() -> None:
    """Of those that start together the shorter comes first::

    s0: b 0-4 | c 5-12 | d 12-20
    s1: a 0-10         |
    """
    placed = Placed((0, 0, 0, 0), (0, 0, 5, 12), (10, 4, 12, 20))
    assert best_fit(placed, ((), (), (), ()), 2) == (1, 0, 0, 0)
    assert best_fit(placed, ((), (), (), ()), 3) == (1, 0, 0, 0)


def test_best_fit_prefers_the_stream_of_a_predecessor_among_equals() -> None:
    placed = Placed((0, 0, 0), (0, 0, 10), (10, 10, 20))
    assert best_fit(placed, ((), (), (1,)), 2) == (0, 1, 1)
    assert best_fit(placed, ((), (), (0,)), 2) == (0, 1, 0)


@FAST
@given(seed=SEEDS)
def test_a_schedule_with_insertion_replays_exactly_where_nothing_else_costs_time(seed: int) -> None:
    """Rigid vector kernels of up to four of four cores, on the streams of best fit."""
    graph = random_vectors(np.random.default_rng(seed), widest=4)
    program = compile_graph(graph, IDEAL, RunOptions(streams=14, commands=64))
    shop = shop_of(program)
    placed = heft(shop)
    way = on_streams(program, shop, placed)[0]
    held = way.__class__(order=way.order, labels=way.labels, starts_ns=placed.start_ns, rule=way.rule)
    result = carry_out(program, held)
    assert result.strayed == 0
    starts = times(record_schedule(program, result.plan.actions))
    assert [starts[command.name] for command in graph.commands] == list(
        zip(placed.start_ns, placed.finish_ns, strict=True)
    )


KEYS: dict[str, Callable[[Tasks], Sequence[int]]] = {
    "critical_path": critical_path,
    "shortest_first": shortest_first,
    "longest_first": longest_first,
    "most_successors": most_successors,
}


@pytest.mark.parametrize("name", KEYS)
@FAST
@given(seed=SEEDS)
def test_a_priority_rule_is_parallel_schedule_generation(name: str, seed: int) -> None:
    """On four cores and kernels of one block; the oracle has numbers of its own."""
    graph = random_vectors(np.random.default_rng(seed), widest=1)
    program = compile_graph(graph, IDEAL, RunOptions(streams=14, commands=64))
    durations = [kernel.flops + 10 for command in graph.commands for kernel in command.kernels]
    edges = {(a, b): 0 for b, before in enumerate(graph.predecessors) for a in before}
    tail, behind = [0] * len(durations), [set[int]() for _ in durations]
    for a in reversed(range(len(durations))):
        after = [b for pred, b in edges if pred == a]
        tail[a] = durations[a] + max((tail[b] for b in after), default=0)
        behind[a] = set(after).union(*(behind[b] for b in after))
    numbers = {
        "critical_path": [-own for own in tail],
        "shortest_first": durations,
        "longest_first": [-own for own in durations],
        "most_successors": [-len(own) for own in behind],
    }[name]
    order = sorted(range(len(durations)), key=lambda t: (numbers[t], -tail[t], t))
    key = [order.index(t) for t in range(len(durations))]
    assert ordered(tasks_of(program), KEYS[name]) == tuple(order)
    result = carry_out(program, in_order(tuple(order))[0])
    found = times(record_schedule(program, result.plan.actions))
    expected = plain.parallel(durations, edges, 4, key)
    assert [found[command.name][0] for command in graph.commands] == expected


def test_a_command_placed_on_its_preferred_class_waits_for_that() -> None:
    """Two cube kernels that may fall back; the first place is worth waiting for, so both are choosy."""
    kernel = toy_kernel("cube", 100, blocks=2, fallback=KernelClass.AICPU)
    graph = CommandGraph("two", (kernel_command("a", kernel), kernel_command("b", kernel)))
    program = compile_graph(graph, IDEAL, RunOptions(streams=2))
    shop = shop_of(program)
    cubes, cpu = CLASSES.index("cube"), CLASSES.index("aicpu")
    both = Placed((cubes, cubes), (0, 110), (110, 220))
    assert [way.choosy for way in on_streams(program, shop, both)] == [(), (), (), (), *[(True, True)] * 3]
    fallen = Placed((cpu, cpu), (0, 210), (210, 420))
    assert len(on_streams(program, shop, fallen)) == 4


# --- all of them --------------------------------------------------------------------------------------

ALL = sorted(RULES)


def passes_the_judge(seed: int) -> None:
    """With odd windows, streams, links and memory; no decision is illegal."""
    program = make_case(seed, plain=True).program
    for name in ALL:
        outcome = decide(program, RULES[name](seed))
        schedule = record_schedule(program, outcome.actions)
        assert validate(schedule) == (), name
        assert schedule.makespan_ns >= schedule.lower_bound_ns
        state = program.new_state()
        run_actions(program.image, state, np.asarray(outcome.actions, np.int64))
        assert state[at.S_INVALID] == 0, name


@settings(FAST, max_examples=2)
@given(seed=SEEDS)
def test_every_rule_passes_the_judge(seed: int) -> None:
    passes_the_judge(seed)


@pytest.mark.thorough
@LONG
@given(seed=SEEDS)
def test_every_rule_passes_the_judge_many_times(seed: int) -> None:
    passes_the_judge(seed)


@pytest.mark.parametrize("name", ALL)
def test_a_rule_always_decides_the_same(name: str) -> None:
    program = crowded()
    assert decide(program, RULES[name](0)) == decide(program, RULES[name](1))
