"""Stages with barriers: hand-made graphs, and the cheapest row against all there are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import toy_device, vector

from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers.assignment import carry_out
from cann_env.schedulers.chains import members
from cann_env.schedulers.ios import Costs, Stages, block_of, cut
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.stages import Block, Limits, cheapest_row, groups_after, stages_after
from cann_env.tasks import tasks_of
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cann_env.program import Program
    from cann_env.schedulers.stages import Stage

Edges = list[tuple[int, int]]

EXACT = Limits(stages=10**9, states=10**9)
QUICK = Limits(stages=8, states=2)
FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def block_from(edges: Edges, duration_ns: list[int]) -> Block:
    count = len(duration_ns)
    return Block(
        tuple(sum(1 << a for a, b in edges if b == vertex) for vertex in range(count)),
        tuple(sum(1 << b for a, b in edges if a == vertex) for vertex in range(count)),
        tuple(duration_ns),
    )


def random_block(rng: np.random.Generator, most: int) -> Block:
    count = int(rng.integers(1, most + 1))
    density = float(rng.choice([0.1, 0.3, 0.6]))
    edges = [pair for pair in combinations(range(count), 2) if rng.random() < density]
    return block_from(edges, rng.integers(1, 20, count).tolist())


def bits(*vertices: int) -> int:
    return sum(1 << vertex for vertex in vertices)


def crowded(block: Block, free: int) -> Callable[[Stage], int]:
    """Groups take turns if they are more than ``free``; 5 ns for the barrier."""

    def cost(stage: Stage) -> int:
        works = [block.work_ns(group) for group in stage]
        return 5 + max(max(works), -(-sum(works) // free))

    return cost


def all_stages(block: Block, done: int, limits: Limits) -> Iterator[Stage]:
    """From the definition: any set that holds its predecessors, taken apart into connected parts."""
    count = len(block.duration_ns)
    graph = nx.Graph([(v, after) for v in range(count) for after in members(block.successors[v])])
    graph.add_nodes_from(range(count))
    for chosen in range(1, 1 << count):
        held = chosen | done
        if chosen & done or any(block.predecessors[vertex] & ~held for vertex in members(chosen)):
            continue
        parts = [bits(*part) for part in nx.connected_components(graph.subgraph(members(chosen)))]
        if len(parts) <= limits.groups and max(part.bit_count() for part in parts) <= limits.commands:
            yield tuple(sorted(parts))


def cheapest_of_all(block: Block, cost: Callable[[Stage], int], limits: Limits) -> int:
    @cache
    def rest(done: int) -> int:
        if done == block.everything:
            return 0
        return min(cost(stage) + rest(done | sum(stage)) for stage in all_stages(block, done, limits))

    return rest(0)


# --- by hand ------------------------------------------------------------------------------------------


def test_a_group_holds_what_it_needs() -> None:
    r"""A join and a loose end; nothing is done::

        0   1   3
         \ /
          2

    {0, 1} is no group: no edge joins them. {0, 2} is none: 2 also needs 1.
    """
    block = block_from([(0, 2), (1, 2)], [1, 1, 1, 1])
    assert groups_after(block, 0, 3) == [bits(0, 1, 2), bits(0), bits(1), bits(3)]
    assert groups_after(block, 0, 2) == [bits(0), bits(1), bits(3)]
    assert groups_after(block, bits(1), 3) == [bits(0, 2), bits(0), bits(3)]


def test_the_most_urgent_stages_come_first() -> None:
    """Chains 0 -> 1 and 2 -> 3: pairs, the first pair, single commands, the first, then what is left."""
    block = block_from([(0, 1), (2, 3)], [1, 1, 1, 1])
    pairs, singles = (bits(0, 1), bits(2, 3)), (bits(0), bits(2))
    stages = list(stages_after(block, 0, 2, 2))
    assert stages[:4] == [pairs, pairs[:1], singles, singles[:1]]
    assert set(stages[4:]) == {pairs[1:], singles[1:], (pairs[0], singles[1]), (singles[0], pairs[1])}


def test_a_long_command_is_not_held_up_by_a_barrier() -> None:
    r"""A long command beside three short ones in a row::

        0 (30)        1 (10) -> 2 (10) -> 3 (10)

    One stage of two groups: 5 + 30. With two commands a group a second stage is needed: 5 + 30 and 5 + 10.
    Alone each takes 35 or 15, together 80.
    """
    block = block_from([(1, 2), (2, 3)], [30, 10, 10, 10])
    cost = crowded(block, 2)
    assert cheapest_row(block, cost, EXACT) == (((bits(0), bits(1, 2, 3)),), 35)
    assert cheapest_row(block, cost, replace(EXACT, commands=2)).cost_ns == 50
    assert cheapest_row(block, cost, replace(EXACT, commands=1)).cost_ns == 35 + 15 + 15
    assert cheapest_row(block, cost, replace(EXACT, groups=1)).cost_ns == 70


def fork() -> CommandGraph:
    """a (110 ns), then b and c (110 ns each); beside them d (60 ns), then e (30 ns)."""
    return CommandGraph(
        "fork",
        (
            vector("a"),
            vector("b", after=("a",)),
            vector("c", after=("a",)),
            vector("d", 50),
            vector("e", 20, after=("d",)),
        ),
    )


def test_stages_cost_what_the_engine_says() -> None:
    """One after another on a stream: 110 + 1 + 110; side by side 110, as there are cores for both."""
    program = compile_graph(fork(), toy_device(), RunOptions(streams=2))
    costs, tasks = Costs(program), tasks_of(program)
    assert costs.of([[0]], tasks) == 110
    assert costs.of([[0, 1]], tasks) == 221
    assert costs.of([[1], [2]], tasks) == 110
    assert costs.of([[3, 4], [1]], tasks) == 110
    assert costs.of([[3, 4]], tasks) == 91


def test_a_stage_begins_when_the_one_before_is_done() -> None:
    """d could start at once, but its stage comes after that of a: at 110 ns on the idle stream."""
    program = compile_graph(fork(), toy_device(), RunOptions(streams=3))
    assignment = replace(Stages(EXACT).assign(program), stages=(0, 1, 1, 1, 2), labels=(0, 0, 1, 2, 2))
    result = carry_out(program, assignment)
    runs = {run.command: run for run in record_schedule(program, result.plan.actions).commands}
    assert result.strayed == 0
    assert [runs[task].issue_ns for task in range(5)] == [0, 110, 110, 110, 221]
    free = carry_out(program, replace(assignment, stages=()))
    runs = {run.command: run for run in record_schedule(program, free.plan.actions).commands}
    assert runs[3].start_ns == 0


def test_blocks_are_cut_where_fewest_edges_cross() -> None:
    r"""Two diamonds in a row, of which at most six commands go in a block: cut behind the first diamond::

    a -> b -> d -> e -> f -> h
     \-> c ->/      \-> g ->/
    """
    after = {"b": "a", "c": "a", "d": "bc", "e": "d", "f": "e", "g": "e", "h": "fg"}
    commands = tuple(vector(name, after=tuple(after.get(name, ""))) for name in "abcdefgh")
    tasks = tasks_of(compile_graph(CommandGraph("diamonds", commands), toy_device(), RunOptions()))
    assert cut(tasks, 6) == [[0, 1, 2, 3, 4], [5, 6, 7]]
    assert cut(tasks, 8) == [list(range(8))]


def test_what_is_known_at_different_times_is_in_different_blocks() -> None:
    """b is known at 40 ns, and so c, which follows it; a and d at once."""
    commands = (vector("a"), vector("b", release_ns=40), vector("c", after=("a", "b")), vector("d", 50))
    tasks = tasks_of(compile_graph(CommandGraph("late", commands), toy_device(), RunOptions()))
    assert cut(tasks, 4) == [[0, 3], [1, 2]]


# --- laws ---------------------------------------------------------------------------------------------


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_stages_are_all_there_are_and_each_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = random_block(rng, 7)
    limits = Limits(groups=int(rng.integers(1, 4)), commands=int(rng.integers(1, 6)))
    done = 0
    while done != block.everything:
        found = list(stages_after(block, done, limits.groups, limits.commands))
        kinds = [tuple(sorted(stage)) for stage in found]
        assert len(set(kinds)) == len(kinds)
        assert set(kinds) == set(all_stages(block, done, limits))
        done |= sum(found[int(rng.integers(0, len(found)))])


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_no_row_of_stages_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = random_block(rng, 6)
    limits = replace(EXACT, groups=int(rng.integers(1, 4)), commands=int(rng.integers(1, 4)))
    cost = crowded(block, int(rng.integers(1, 4)))
    row = cheapest_row(block, cost, limits)
    assert row.cost_ns == cheapest_of_all(block, cost, limits) == sum(map(cost, row.stages))


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_are_complete_and_never_worse_than_one_command_a_stage(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = random_block(rng, 20)
    cost = crowded(block, int(rng.integers(1, 4)))
    row = cheapest_row(block, cost, QUICK)
    done = 0
    for stage in row.stages:
        for group in stage:
            assert not group & done
            assert not any(block.predecessors[vertex] & ~(done | group) for vertex in members(group))
        done |= sum(stage)
    assert done == block.everything
    assert row.cost_ns == sum(map(cost, row.stages))
    assert row.cost_ns <= sum(cost((1 << vertex,)) for vertex in members(done))


@settings(max_examples=6, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_row_is_cheaper_in_the_engine(seed: int) -> None:
    """The least times by which the search is cut short hold for what the engine says, too."""
    program = make_case(seed, most=5, plain=True).program
    tasks, costs = tasks_of(program), Costs(program)
    chosen = sorted(range(len(tasks.rank)), key=tasks.rank.__getitem__)
    block = block_of(tasks, chosen)

    def cost(stage: Stage) -> int:
        return costs.of([[chosen[vertex] for vertex in members(group)] for group in stage], tasks)

    limits = replace(EXACT, groups=min(2, program.options.streams))
    assert cheapest_row(block, cost, limits).cost_ns == cheapest_of_all(block, cost, limits)


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_blocks_hold_every_command_once_and_in_order(seed: int) -> None:
    program = make_case(seed, most=25, plain=True).program
    tasks = tasks_of(program)
    most = 1 + seed % 7
    blocks = cut(tasks, most)
    home = {task: at for at, block in enumerate(blocks) for task in block}
    assert sorted(home) == list(range(len(tasks.rank)))
    assert sum(map(len, blocks)) == len(home)
    assert all(len(block) <= most for block in blocks)
    release = tasks.release_ns
    if not release.any():
        assert all(2 * len(block) >= most for block in blocks[:-1])
    assert all(home[before] <= home[task] for task in home for before in tasks.predecessors(task))


def barriers_hold(program: Program, stages: tuple[int, ...], actions: tuple[int, ...]) -> bool:
    runs = record_schedule(program, actions).commands
    return all(
        one.finish_ns <= other.issue_ns
        for one in runs
        for other in runs
        if stages[one.command] < stages[other.command]
    )


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_schedule_passes_the_judge_and_keeps_the_barriers(seed: int) -> None:
    program = make_case(seed, most=10, plain=True).program
    planner = Stages(QUICK, block=6)
    assignment = planner.assign(program)
    result = carry_out(program, assignment)
    assert validate(record_schedule(program, result.plan.actions)) == ()
    assert result.strayed or barriers_hold(program, assignment.stages, result.plan.actions)
    assert planner.plan(program) == result.plan
