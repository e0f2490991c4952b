"""Static stream allocations: hand-made graphs, and what each promises, against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import toy_device, vector

from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers.assignment import carry_out
from cann_env.schedulers.chains import chains, closure, matching, members, reduction
from cann_env.schedulers.policy import replay
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.streams import (
    STREAMS,
    Allocation,
    Static,
    as_known,
    fold,
    level_round_robin,
    memory_bound,
    modulo,
    nimble,
    nimble_fewest,
    opara,
    opara_overlap,
    smallest_free,
    topological_orders,
)
from cann_env.tasks import FULL_RATE, Tasks, tasks_of
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.schedulers.streams import Allocator

Edges = list[tuple[int, int]]

HOURGLASS: Edges = [(0, 2), (1, 2), (2, 3), (2, 4)]
DIAMOND: Edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]
FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def tasks_from(
    edges: Edges,
    count: int,
    *,
    duration_ns: Sequence[int] = (),
    cores: Sequence[int] = (),
    hbm: Sequence[int] = (),
) -> Tasks:
    """Tasks numbered in a topological order, on one pool of 8 cores."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    before = [sorted(graph.predecessors(task)) for task in range(count)]
    after = [sorted(graph.successors(task)) for task in range(count)]
    demand = np.ones((count, 3), np.int64)
    demand[:, 0] = cores or [1] * count
    demand[:, 1] = hbm or [0] * count
    return Tasks(
        duration_ns=np.asarray(duration_ns or [1] * count, np.int64),
        tail_ns=np.zeros(count, np.int64),
        release_ns=np.zeros(count, np.int64),
        resources=("aiv", "hbm", "slots"),
        capacity=np.array([8, FULL_RATE, 4]),
        demand=demand,
        pred_at=np.cumsum([0, *map(len, before)]),
        pred=np.array([task for row in before for task in row], np.int64),
        succ_at=np.cumsum([0, *map(len, after)]),
        succ=np.array([task for row in after for task in row], np.int64),
        rank=np.arange(count),
    )


def random_edges(rng: np.random.Generator, count: int) -> Edges:
    density = float(rng.choice([0.1, 0.3, 0.6]))
    return [pair for pair in combinations(range(count), 2) if rng.random() < density]


def sets_of(edges: Edges, count: int) -> list[int]:
    return [sum(1 << b for a, b in edges if a == vertex) for vertex in range(count)]


def digraph(edges: Edges, count: int) -> nx.DiGraph:
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(count))
    return graph


def edges_of(sets: Sequence[int]) -> set[tuple[int, int]]:
    return {(vertex, after) for vertex, reached in enumerate(sets) for after in members(reached)}


# --- by hand ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocator", "streams"),
    [
        (nimble, (0, 1, 0, 0, 2)),
        (nimble_fewest, (0, 1, 0, 1, 0)),
        (opara, (0, 1, 0, 0, 2)),
        (level_round_robin, (0, 1, 0, 0, 1)),
        (smallest_free, (0, 1, 0, 0, 1)),
    ],
)
def test_an_hourglass(allocator: Allocator, streams: tuple[int, ...]) -> None:
    r"""Two inputs, a waist, two outputs::

        0   1
         \ /
          2
         / \
        3   4

    Nimble matches 0-2 and 2-3, which leaves 1 and 4 alone: three streams, two waits. On the closure 1 goes
    on with 3, and 2 with 4. In Opara 2 is the first consumer of both its inputs and follows the first, 3 is
    that of 2; 4 comes too late.
    """
    assert allocator(tasks_from(HOURGLASS, 5), range(5)) == ((0, 1, 2, 3, 4), streams)


def test_an_edge_beside_a_path_needs_no_wait() -> None:
    r"""A diamond whose first command also precedes its last directly::

    0 -> 1 -> 3      0 -> 3 says nothing new
     \-> 2 ->/
    """
    assert edges_of(reduction(sets_of(DIAMOND, 4))) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert nimble(tasks_from(DIAMOND, 4), range(4)).streams == (0, 0, 1, 0)


def test_a_matching_that_only_an_augmenting_path_finds() -> None:
    """0 takes 4 first and must leave it to 1, then 5 to 2: 0-6, 1-4, 2-5."""
    assert matching([0b1110000, 0b0010000, 0b0110000, 0, 0, 0, 0]) == [6, 4, 5, -1, -1, -1, -1]


def test_opara_launches_what_holds_least_first() -> None:
    """Of 0, 1, 2, which hold 4, 2 and 2 cores, 1 comes first; 3 follows 1 and holds a single one."""
    tasks = tasks_from([(1, 3)], 4, cores=[4, 2, 2, 1])
    assert opara(tasks, range(4)).order == (1, 3, 2, 0)


def test_opara_overlaps_memory_with_compute() -> None:
    """0 and 1 are bound by memory, 2 and 3 are not; the smallest first, then one of the other kind."""
    tasks = tasks_from([], 4, cores=[1, 2, 3, 4], hbm=[FULL_RATE, FULL_RATE // 2, FULL_RATE // 2 - 1, 0])
    assert memory_bound(tasks) == [True, True, False, False]
    assert opara_overlap(tasks, range(4)).order == (0, 2, 1, 3)
    assert opara(tasks, range(4)).order == (0, 1, 2, 3)


def test_levels_are_launched_one_after_another() -> None:
    """0 -> 3 and 1 -> 2: 0, 1 on level 0, then 2, 3 on level 1, each from stream 0 on."""
    allocation = level_round_robin(tasks_from([(0, 3), (1, 2)], 4), (0, 3, 1, 2))
    assert allocation == ((0, 1, 3, 2), (0, 1, 1, 0))


def test_consumers_beyond_the_streams_given_back_open_new_ones() -> None:
    """0 gives back stream 0, which 1 takes; 2 and 3 open 1 and 2. 1 gives 0 back to 4."""
    assert smallest_free(tasks_from([(0, 1), (0, 2), (0, 3), (1, 4)], 5), range(5)).streams == (0, 0, 1, 2, 0)


def test_streams_beyond_those_of_the_run_are_folded() -> None:
    """Work of 10, 3, 4 and 4 on two streams: the first alone, the others on the second, up to 11."""
    allocation = Allocation((0, 1, 2, 3, 4), (0, 1, 2, 3, 4))
    tasks = tasks_from([], 5, duration_ns=[10, 3, 4, 4, 9])
    assert fold(tasks, allocation, 2) == (0, 1, 1, 1, 0)
    assert fold(tasks, allocation, 5) == (0, 1, 2, 3, 4)
    assert modulo(tasks, allocation, 2) == (0, 1, 0, 1, 0)


def test_what_becomes_known_later_is_launched_later() -> None:
    """0 -> 1 is known at 50 ns, 2 at once, 3 at 20 ns; 4 follows 1 and is known no earlier."""
    tasks = replace(tasks_from([(0, 1), (1, 4)], 5), release_ns=np.array([50, 0, 0, 20, 0]))
    assert as_known(tasks, range(5)) == (2, 3, 0, 1, 4)


@pytest.mark.parametrize("name", ["nimble", "nimble_fewest", "opara", "level_round_robin", "smallest_free"])
def test_branches_run_side_by_side(name: str) -> None:
    """a (110 ns), then b and c at once, one of them 1 ns behind a on its stream: 110 + 1 + 110."""
    commands = (vector("a"), vector("b", after=("a",)), vector("c", after=("a",)))
    program = compile_graph(CommandGraph("fork", commands), toy_device(), RunOptions(streams=2))
    assert replay(program, STREAMS[name](0).plan(program).actions).objective_ns == 221  # type: ignore[union-attr]


# --- laws ---------------------------------------------------------------------------------------------


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_closure_and_reduction_are_those_of_networkx(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = random_edges(rng, count)
    graph = digraph(edges, count)
    assert edges_of(closure(sets_of(edges, count))) == set(nx.transitive_closure_dag(graph).edges)
    assert edges_of(reduction(sets_of(edges, count))) == set(nx.transitive_reduction(graph).edges)


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_a_matching_is_as_large_as_networkx_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = random_edges(rng, count)
    partner = matching(sets_of(edges, count))
    matched = [(left, right) for left, right in enumerate(partner) if right >= 0]
    assert set(matched) <= set(edges)
    assert len({right for _, right in matched}) == len(matched)
    both = nx.Graph([(("left", a), ("right", b)) for a, b in edges])
    left = [("left", a) for a in range(count) if both.has_node(("left", a))]
    both.add_nodes_from(left)
    assert 2 * len(matched) == len(nx.bipartite.hopcroft_karp_matching(both, left))
    chain = chains(partner)
    assert len(set(chain)) == count - len(matched)
    assert all(chain[a] == chain[b] for a, b in matched)


@FAST
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("allocator", [nimble, nimble_fewest])
def test_streams_are_shared_only_along_a_path(allocator: Allocator, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = random_edges(rng, count)
    joined = set(nx.transitive_closure_dag(digraph(edges, count)).edges)
    streams = allocator(tasks_from(edges, count), range(count)).streams
    assert all(
        pair in joined for pair in combinations(range(count), 2) if streams[pair[0]] == streams[pair[1]]
    )


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """All ways to share streams, numbered by their first command."""

    def extend(streams: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(streams) == count:
            yield streams
            return
        for stream in range(max(streams, default=-1) + 2):
            yield from extend((*streams, stream))

    return extend(())


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_no_concurrent_allocation_has_fewer_waits_than_nimble(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    edges = random_edges(rng, count)
    graph = digraph(edges, count)
    joined = set(nx.transitive_closure_dag(graph).edges)
    needed = list(nx.transitive_reduction(graph).edges)

    def concurrent(streams: tuple[int, ...]) -> bool:
        pairs = combinations(range(count), 2)
        return all((a, b) in joined for a, b in pairs if streams[a] == streams[b])

    def waits(streams: tuple[int, ...]) -> int:
        return sum(streams[a] != streams[b] for a, b in needed)

    fewest = min(waits(streams) for streams in partitions(count) if concurrent(streams))
    streams = nimble(tasks_from(edges, count), range(count)).streams
    assert waits(streams) == fewest == len(needed) - (count - len(set(streams)))
    few = nimble_fewest(tasks_from(edges, count), range(count)).streams
    assert len(set(few)) == min(len(set(s)) for s in partitions(count) if concurrent(s))


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_the_fewest_streams_are_as_many_as_commands_that_no_path_joins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 11))
    edges = random_edges(rng, count)
    joined = set(nx.transitive_closure_dag(digraph(edges, count)).edges)
    width = max(
        size
        for size in range(1, count + 1)
        for chosen in combinations(range(count), size)
        if not any(pair in joined for pair in combinations(chosen, 2))
    )
    assert len(set(nimble_fewest(tasks_from(edges, count), range(count)).streams)) == width


@FAST
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("allocator", [opara, opara_overlap, level_round_robin, smallest_free])
def test_orders_of_launch_are_topological(allocator: Allocator, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = random_edges(rng, count)
    cores = rng.integers(1, 9, count).tolist()
    hbm = rng.choice([0, FULL_RATE], count).tolist()
    order, streams = allocator(tasks_from(edges, count, cores=cores, hbm=hbm), range(count))
    assert sorted(order) == list(range(count))
    assert all(order.index(a) < order.index(b) for a, b in edges)
    assert set(streams) == set(range(max(streams) + 1))


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_an_input_hands_its_stream_to_its_first_consumer_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = random_edges(rng, count)
    streams = opara(tasks_from(edges, count), range(count)).streams
    graph = digraph(edges, count)
    first = {task: min(graph.successors(task)) for task in graph if graph.out_degree(task)}
    for task in range(count):
        heir_of = [before for before in sorted(graph.predecessors(task)) if first[before] == task]
        older = set(streams[:task])
        assert streams[task] == streams[heir_of[0]] if heir_of else streams[task] not in older


@pytest.mark.parametrize("name", sorted(set(STREAMS) - {"ios"}))
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_schedule_passes_the_judge(name: str, seed: int) -> None:
    program = make_case(seed, plain=True).program
    plan = STREAMS[name](0).plan(program)  # type: ignore[union-attr]
    schedule = record_schedule(program, plan.actions)
    assert validate(schedule) == ()
    assert STREAMS[name](0).plan(program) == plan  # type: ignore[union-attr]


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_both_orders_of_launch_are_played(seed: int) -> None:
    """The result is the better of playing the order of the program and that of descending tails."""
    program = make_case(seed, plain=True).program
    static = Static(nimble)
    orders = topological_orders(program, tasks_of(program))
    launched = [as_known(tasks_of(program), order) for order in orders]
    assert [assignment.order for assignment in static.assignments(program)] == launched
    played = [carry_out(program, assignment).objective_ns for assignment in static.assignments(program)]
    assert static.best(program).objective_ns == min(played)
