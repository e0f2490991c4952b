"""CANN's allocations: path cover, scores and streams worked out by hand, and laws on random programs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from toys import (
    collective,
    copy_in,
    cube,
    kernel_command,
    toy_chain,
    toy_device,
    toy_kernel,
    toy_squeeze,
    vector,
)

from cann_env.graph import Command, CommandGraph
from cann_env.options import RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers import decide, record_schedule
from cann_env.schedulers.assignment import Fetch, carry_out
from cann_env.schedulers.cann import (
    BY_STREAMS,
    CANN,
    Allocation,
    Autotune,
    Mode,
    allocate,
    allocation,
    fetches,
    in_program_order,
    sweep,
)
from cann_env.schedulers.cann_engines import cube_vector_streams, default_streams, within
from cann_env.schedulers.cann_merge import (
    Streams,
    balance_score,
    by_duration,
    by_level,
    choose_weighted,
    load_balance,
    main_score,
    main_stream,
    ranked,
    weighted_score,
)
from cann_env.schedulers.cann_replay import Queues, Replay
from cann_env.schedulers.cann_units import bridged, dag_of, levels, maximum_matching, units_of
from cann_env.units import InputError
from cann_env.validate import validate

MODES = [(Mode.DEFAULT, 1), (Mode.DEFAULT, 2), (Mode.CV, 8)]
MODES += [(mode, n) for mode in list(Mode)[2:] for n in (1, 2, 8)]
SEEDS = st.integers(0, 2**32 - 1)


def compiled(*commands: Command, streams: int = 8) -> Program:
    graph = CommandGraph("hand", commands)
    return compile_graph(graph, toy_device(), RunOptions(streams=streams, commands=64, run_ahead=256))


def aicpu(name: str, **fields: tuple[str, ...]) -> Command:
    return kernel_command(name, toy_kernel("aicpu", 100), **fields)


def random_program(seed: int, most: int = 25) -> Program:
    graph = random_graph(np.random.default_rng(seed), most=most, memory=False)
    return compile_graph(graph, toy_device(), RunOptions(streams=8, commands=64, run_ahead=256))


# --- chains -------------------------------------------------------------------------------------------


def members(program: Program) -> list[str]:
    """The commands of each unit, joined."""
    names = [command.name for command in program.graph.commands]
    return ["".join(names[v] for v in unit.members) for unit in units_of(dag_of(program))]


def test_diamond_is_covered_by_two_chains() -> None:
    """::

        .-> b --.
    a --         >--> d      a has one successor of its own, d one predecessor: abd and c
        '-> c --'
    """
    after_a = {"after": ("a",)}
    program = compiled(
        vector("a"), vector("b", **after_a), vector("c", **after_a), vector("d", after=("b", "c"))
    )
    assert members(program) == ["abd", "c"]
    assert dag_of(program).level == (0, 1, 1, 2)


def test_matching_takes_back_what_stands_in_the_way() -> None:
    """::

    0 --> 2     0 would take 2 first, but then nothing is left for 1
      \\  ^
       v  |
       3  1
    """
    assert maximum_matching([(2, 3), (2,), (), ()]) == [3, 2, -1, -1]


def test_a_unit_knows_its_levels_its_durations_and_its_edges() -> None:
    """::

    a --> b --> c      abc on levels 0, 1, 2; one edge from d, which is a unit of its own
                ^
    d ----------'
    """
    program = entangled()
    long, short = units_of(dag_of(program))
    assert (long.levels, long.total_ns, long.cross, long.first_level, long.peak) == (
        {0: 1, 1: 1, 2: 1},
        3000,
        1,
        0,
        1,
    )
    assert (short.members, short.times_ns, short.cross) == ((3,), {0: 1000}, 1)


def test_commands_without_duration_are_bridged() -> None:
    """``a -> (x) -> (y) -> b``: both in brackets take no time, so that b follows a on the next level."""
    before = bridged([(), (0,), (1,), (2,)], range(4), [False, True, True, False])
    assert before == ((), (0,), (0,), (0,))
    assert levels(before, range(4))[3] == 1
    free = kernel_command("x", toy_kernel("aicpu", 0), after=("a",))
    graph = CommandGraph("free", (vector("a"), free, vector("b", after=("x",))))
    program = compile_graph(graph, toy_device(classes={"aicpu": {"launch_base_ns": 0}}), RunOptions())
    assert members(program) == ["ab"]
    assert allocate(program, Mode.LOAD_BALANCE, 4) == (0, 0, 0)


def test_labelled_commands_are_no_part_of_chains_but_count_as_levels() -> None:
    """``a -> (x) -> b`` where x has a label: a and b are units, b on level 2, x alone on a stream."""
    program = compiled(vector("a"), vector("x", after=("a",), stream_hint=7), vector("b", after=("x",)))
    assert members(program) == ["a", "b"]
    assert dag_of(program).level == (0, 1, 2)
    streams = allocate(program, Mode.LOAD_BALANCE, 2)
    assert streams[1] not in (streams[0], streams[2])


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_path_cover_is_minimal_and_follows_edges(seed: int) -> None:
    """As many chains as commands less a maximum matching, which networkx finds too; each command once."""
    dag = dag_of(random_program(seed))
    units = units_of(dag)
    assert sorted(v for unit in units for v in unit.members) == sorted(dag.order)
    for unit in units:
        assert all(v in dag.successors[u] for u, v in pairwise(unit.members))
    halves = nx.Graph()
    halves.add_nodes_from(("tail", v) for v in dag.order)
    halves.add_edges_from((("tail", u), ("head", v)) for u in dag.order for v in dag.successors[u])
    matching = nx.bipartite.hopcroft_karp_matching(halves, [("tail", v) for v in dag.order])
    assert len(units) == len(dag.order) - len(matching) // 2


# --- scores -------------------------------------------------------------------------------------------


def entangled() -> Program:
    """::

    a --> b --> c      1000 ns each; units abc and d
                ^
    d ----------'
    """
    return compiled(
        vector("a", 990),
        vector("b", 990, after=("a",)),
        vector("c", 990, after=("b", "d")),
        vector("d", 990),
    )


def first_placed() -> tuple[Program, Streams]:
    """The chain abc of :func:`entangled` on stream 0 of two, d not yet."""
    program = entangled()
    dag = dag_of(program)
    streams = Streams(dag, 2)
    streams.place(units_of(dag)[0], 0)
    return program, streams


def test_order_of_chains() -> None:
    """Of two chains on level 0 the longer one; by duration the one that takes longer."""
    program = compiled(
        vector("s", 900), vector("a"), vector("b", after=("a",)), vector("t", 10, after=("s", "b"))
    )
    units = units_of(dag_of(program))
    assert [unit.members[0] for unit in units] == [0, 1]
    assert [len(unit.members) for unit in units] == [2, 2]
    assert [unit.index for unit in by_level(units)] == [0, 1]
    assert [unit.index for unit in by_duration(units)] == [0, 1]
    pair = units_of(dag_of(compiled(vector("s", 900), vector("a"), vector("b", after=("a",)))))
    assert [unit.index for unit in by_level(pair)] == [1, 0]
    assert [unit.index for unit in by_duration(pair)] == [0, 1]


def test_candidates_share_edges_or_are_among_the_three_lightest_or_new() -> None:
    """Five streams of one command each; e depends on the one of stream 4, and load falls with the number."""
    first = [vector(f"k{i}") for i in range(5)]
    dag = dag_of(compiled(*first, vector("e", after=("k4",)), vector("f", after=("k4",))))
    units = units_of(dag)
    alone = next(unit for unit in units if unit.members == (6,))
    streams = Streams(dag, 6)
    for stream in range(5):
        streams.place(units[stream], stream)
    assert streams.candidates(alone, lambda stream: stream, 6) == [4, 0, 1, 2, 5]
    assert streams.candidates(alone, lambda stream: -stream, 6) == [4, 3, 2, 5]
    assert streams.candidates(alone, lambda stream: stream, 3) == [4, 0, 1]


def test_load_balance_score_by_hand() -> None:
    """d on stream 0: levels hold 2, 1, 1, 0, 0, 0, so the peak is 2 and the variance 6/6 - (4/6)^2 = 5/9;
    4 * (2 + 5/9) + 4 commands = 128/9. On a new one: one edge 3, 4 * (1 + 1/6 - 1/36), 1 command, 2: 95/9.
    """
    program, streams = first_placed()
    unit = units_of(dag_of(program))[1]
    assert streams.candidates(unit, lambda stream: 0, 6) == [0, 1]
    assert balance_score(streams, unit, 0) == Fraction(128, 9)
    assert balance_score(streams, unit, 1) == Fraction(95, 9)
    assert load_balance(streams.dag, units_of(streams.dag), 2) == {0: 0, 1: 0, 2: 0, 3: 1}


def test_main_stream_score_by_hand() -> None:
    """d on the main stream: one pair on level 0, 4 * 1; on a new one: one edge 3, and 2. It goes to main.

    abc before it: b and c are alone on their levels, so main scores -8 and a new one 2.
    """
    program, streams = first_placed()
    long, short = units_of(dag_of(program))
    assert (main_score(streams, short, 0, 0), main_score(streams, short, 1, 0)) == (4, 5)
    empty = Streams(streams.dag, 2)
    empty.open()
    assert (main_score(empty, long, 0, 2), main_score(empty, long, 1, 2)) == (-8, 2)
    assert main_stream(streams.dag, (long, short), 2) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_a_chain_that_is_alone_on_its_levels_goes_to_the_main_stream() -> None:
    """The join of many branches is alone on its level; it has an edge to each stream."""
    branches = [vector(f"b{i}") for i in range(3)]
    program = compiled(*branches, vector("t", after=("b0", "b1", "b2")), vector("u", after=("t",)))
    streams = allocate(program, Mode.MAIN_STREAM, 4)
    assert streams[3] == streams[4] == 0


def test_weighted_score_by_hand() -> None:
    """In microseconds: d on stream 0 4 * (1 * 1) + 2 * (3 + 1) = 12; on a new one 3 + 2 * (0 + 1) + 2 = 7."""
    program, streams = first_placed()
    unit = units_of(dag_of(program))[1]
    assert (weighted_score(streams, unit, 0), weighted_score(streams, unit, 1)) == (12_000_000, 7_000_000)
    assert ranked(streams, unit) == [1, 0]


def test_only_levels_in_the_window_count() -> None:
    """A chain of eight on stream 0 and another beside it: six pairs, not eight."""
    names = "abcdefgh"
    first = [vector(f"{x}0", after=(f"{names[i - 1]}0",) if i else ()) for i, x in enumerate(names)]
    second = [vector(f"{x}1", after=(f"{names[i - 1]}1",) if i else ()) for i, x in enumerate(names)]
    dag = dag_of(compiled(*first, *second))
    one, two = units_of(dag)
    streams = Streams(dag, 2)
    streams.place(one, 0)
    assert main_score(streams, two, 0, 0) == 4 * 6


def test_the_best_three_candidates_are_simulated_and_the_shortest_wins() -> None:
    program, streams = first_placed()
    unit = units_of(dag_of(program))[1]
    assert choose_weighted(streams, unit, lambda streams, unit, stream: 5) == 1
    assert choose_weighted(streams, unit, lambda streams, unit, stream: 5 + stream) == 0


# --- simulations --------------------------------------------------------------------------------------


def test_honest_simulation_counts_cores() -> None:
    """Three cube kernels on two cores: one block each makes two waves, two blocks each three.

    In one queue: 1 ns between two of them. As the graph engine plays it they never overlap.
    """
    narrow = compiled(*(cube(f"k{i}") for i in range(3)))
    wide = compiled(*(cube(f"k{i}", blocks=2) for i in range(3)))
    assert Queues(narrow, honest=True).makespan_ns([0, 1, 2]) == 220
    assert Queues(wide, honest=True).makespan_ns([0, 1, 2]) == 330
    assert Queues(narrow, honest=True).makespan_ns([0, 0, 0]) == 332
    assert Queues(narrow, honest=False).makespan_ns([0, 1, 2]) == 330
    assert Queues(narrow, honest=True).makespan_ns([0, -1, -1]) == 110


def test_a_queue_runs_in_order_and_an_event_takes_its_time() -> None:
    """::

    queue 0: a 0-110 |b 110+9
    queue 1: c 0-410 |d         b waits for c: 410 + 9 to 529; d starts behind c, at 411
    """
    graph = CommandGraph(
        "order", (vector("a"), vector("c", 400), vector("b", after=("c",)), vector("d", after=("a",)))
    )
    device = toy_device(dispatch={"wake_ns": 9})
    queues = Queues(compile_graph(graph, device, RunOptions()), honest=True)
    assert queues.makespan_ns([0, 1, 0, 1]) == 529
    assert queues.makespan_ns([0, 1, 1, 0]) == 411 + 110


def test_chains_that_are_not_placed_run_on_queues_of_their_own() -> None:
    """``a -> b`` waits 1 ns between the two, not 9 for an event, while c takes its place on stream 0."""
    graph = CommandGraph("rest", (vector("a"), vector("b", after=("a",)), vector("c")))
    program = compile_graph(graph, toy_device(dispatch={"wake_ns": 9}), RunOptions())
    dag = dag_of(program)
    units = units_of(dag)
    assert Replay(program, units, honest=True)(Streams(dag, 2), units[1], 0) == 221
    assert Replay(program, units, honest=False)(Streams(dag, 2), units[1], 0) == 110


def test_queues_that_wait_for_each_other_are_noticed() -> None:
    """``c`` stands in front of what it waits for: program order is the only order queues have."""
    graph = CommandGraph("late", (vector("a"), vector("b", after=("a",))))
    queues = Queues(compile_graph(graph, toy_device(), RunOptions()), honest=True)
    queues._order = np.array([1, 0])
    assert queues.makespan_ns([0, 0]) == -1


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_the_graph_engines_simulation_cannot_tell_candidates_apart(seed: int) -> None:
    """Whatever the streams, its makespan is the sum of all durations: the score alone decides."""
    program = random_program(seed)
    rng = np.random.default_rng(seed)
    queues = Queues(program, honest=False)
    queue_of = rng.integers(-1, 4, len(program.graph.commands))
    queue_of[0] = 0
    total = sum(ns for ns, queue in zip(dag_of(program).duration_ns, queue_of, strict=True) if queue >= 0)
    assert queues.makespan_ns(queue_of) == total


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_honest_choice_is_never_longer_than_the_best_score_in_its_own_measure(seed: int) -> None:
    """At every chain; and the measure never falls below the longest path or the busiest queue."""
    program = random_program(seed)
    dag = dag_of(program)
    units = units_of(dag)
    streams = Streams(dag, 3)
    replay = Replay(program, units, honest=True)
    for unit in by_duration(units):
        chosen = choose_weighted(streams, unit, replay)
        assert 0 <= replay(streams, unit, chosen) <= replay(streams, unit, ranked(streams, unit)[0])
        streams.place(unit, chosen)
    whole = replay(streams, units[0], streams.stream_of[units[0].members[0]])
    assert whole >= max(streams.total_ns(stream) for stream in range(len(streams.levels)))


# --- engines ------------------------------------------------------------------------------------------


def streams_of(*commands: Command, parallel: int = 1) -> dict[str, int]:
    """Stream of each command of the default allocation, numbered by appearance."""
    program = compiled(*commands)
    streams = default_streams(program, parallel)
    first = list(dict.fromkeys(streams))
    return {command.name: first.index(s) for command, s in zip(commands, streams, strict=True)}


def test_each_engine_has_its_stream() -> None:
    """Two cubes that know nothing of each other share one; so do two copies in, on another."""
    found = streams_of(cube("a"), cube("b"), vector("v"), copy_in("c"), copy_in("d"))
    assert found == {"a": 0, "b": 0, "v": 1, "c": 2, "d": 2}


def test_an_engine_may_take_streams_in_turn() -> None:
    found = streams_of(cube("a"), cube("b"), cube("c"), cube("d", after=("c",)), parallel=2)
    assert found == {"a": 0, "b": 1, "c": 0, "d": 0}


def test_ai_cpu_work_attaches_to_its_predecessor() -> None:
    """``v -> x``: on the vector stream; without a predecessor it has a stream of its own."""
    assert streams_of(cube("a"), vector("v"), aicpu("x", after=("v",))) == {"a": 0, "v": 1, "x": 1}
    assert streams_of(cube("a"), aicpu("x")) == {"a": 0, "x": 1}


def test_ai_cpu_work_attaches_to_the_cheapest_of_its_predecessors() -> None:
    assert streams_of(vector("v"), cube("a"), aicpu("x", after=("a", "v"))) == {"v": 0, "a": 1, "x": 1}


def test_two_of_one_engine_behind_one_predecessor_do_not_attach() -> None:
    """``v -> x``, ``v -> y``: each would block the other; both go to the AI CPU's stream."""
    found = streams_of(vector("v"), aicpu("x", after=("v",)), aicpu("y", after=("v",)))
    assert found == {"v": 0, "x": 1, "y": 1}


def test_nothing_attaches_to_a_collective_or_a_labelled_command() -> None:
    assert streams_of(collective("c"), aicpu("x", after=("c",))) == {"c": 0, "x": 1}
    assert streams_of(vector("v", stream_hint=1), aicpu("x", after=("v",))) == {"v": 0, "x": 1}


def test_a_collective_keeps_its_stream() -> None:
    """``a -> c -> b``: it would be a detour for any other engine."""
    chain = [cube("a"), collective("c", after=("a",)), cube("b", after=("c",))]
    assert streams_of(*chain) == {"a": 0, "c": 1, "b": 0}


def test_a_detour_is_removed() -> None:
    """``a -> v -> b`` with nothing between a and b on their stream; with x between them it stays."""
    chain = [cube("a"), vector("v", after=("a",)), cube("b", after=("v",))]
    assert streams_of(*chain) == {"a": 0, "v": 0, "b": 0}
    between = [chain[0], chain[1], cube("x", after=("a",)), replace(chain[2], after=("v", "x"))]
    assert streams_of(*between) == {"a": 0, "v": 1, "x": 0, "b": 0}


def test_equal_labels_share_a_stream_of_their_own() -> None:
    found = streams_of(
        cube("a"), cube("b", stream_hint=4), vector("c", stream_hint=4), vector("d", stream_hint=2)
    )
    assert found == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_cv_moves_vector_work_that_the_next_cubes_do_not_know() -> None:
    """``a -> v``, ``a -> b``, w alone: v stays with the cubes, w leaves; the default moves both."""
    commands = (cube("a"), vector("v", after=("a",)), vector("w"), cube("b", after=("a",)))
    program = compiled(*commands)
    a, v, w, b = cube_vector_streams(program)
    assert a == b == v != w
    a, v, w, b = default_streams(program)
    assert a == b != v == w


def test_streams_beyond_the_options_join_the_least_busy() -> None:
    """Busy for 110, 210, 110, 310: two are kept, numbers 1 and 3; the other two join number 1."""
    program = compiled(vector("a"), vector("b", 200), vector("c"), vector("d", 300))
    assert within(program, (5, 6, 7, 8), 2) == (0, 0, 1, 1)
    assert within(program, (5, 6, 7, 8), 4) == (0, 1, 2, 3)


# --- laws ---------------------------------------------------------------------------------------------


@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_streams_are_within_range_and_repeatable(seed: int) -> None:
    """Also with labels, and never more than the options or the mode allow."""
    graph = random_graph(np.random.default_rng(seed), most=15, memory=False)
    hinted = tuple(
        replace(command, stream_hint=i % 2) if i % 5 == 4 else command
        for i, command in enumerate(graph.commands)
    )
    limit = seed % 4 + 1
    for commands in (graph.commands, hinted):
        program = compile_graph(CommandGraph("g", commands), toy_device(), RunOptions(streams=limit))
        for mode, streams in MODES:
            found = allocate(program, mode, streams)
            assert sorted(set(found)) == list(range(max(found) + 1))
            assert max(found) < limit
            assert found == allocate(program, mode, streams)
            if commands is graph.commands and mode in (Mode.LOAD_BALANCE, Mode.MAIN_STREAM):
                assert max(found) < streams


def every_allocation_passes_the_judge(seed: int) -> None:
    """With odd windows, streams, devices and memory, and under noise."""
    case = make_case(seed)
    for mode, streams in MODES:
        plan = Allocation(mode, streams).plan(case.program)
        schedule = record_schedule(case.program, plan.actions)
        assert validate(schedule) == (), (mode, streams)


def autotune_is_at_least_as_good_as_each_of_its_members(seed: int) -> None:
    program = make_case(seed, plain=True).program
    best = decide(program, Autotune()).objective_ns
    assert all(best <= decide(program, member).objective_ns for member in sweep(program))
    assert decide(program, Autotune(core_aware=True)).objective_ns <= best


@pytest.mark.parametrize("seed", range(4))
def test_laws(seed: int) -> None:
    every_allocation_passes_the_judge(seed)
    autotune_is_at_least_as_good_as_each_of_its_members(seed)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_laws_on_many_programs(seed: int) -> None:
    every_allocation_passes_the_judge(seed)
    autotune_is_at_least_as_good_as_each_of_its_members(seed)


# --- schedulers ---------------------------------------------------------------------------------------


def test_static_allocation_is_played_as_written() -> None:
    """Two chains on two streams: nothing strays, and both run side by side."""
    program = compiled(
        vector("a"), vector("b", after=("a",)), vector("c"), vector("d", after=("c",)), streams=2
    )
    result = carry_out(program, in_program_order(program, (0, 0, 1, 1), Fetch.ON_DEMAND))
    schedule = record_schedule(program, result.plan.actions)
    assert (result.strayed, result.objective_ns) == (0, 221)
    assert {run.command: run.stream for run in schedule.commands} == {0: 0, 1: 0, 2: 1, 3: 1}


def test_only_programs_that_migrate_prefetch() -> None:
    assert fetches(compiled(vector("a"))) == (Fetch.ON_DEMAND,)
    cold = compile_graph(toy_squeeze(), toy_device(), RunOptions())
    assert fetches(cold) == (Fetch.WHILE_FREE, Fetch.ON_DEMAND, Fetch.ALL_AT_ONCE)
    played = [
        carry_out(cold, in_program_order(cold, (0, 0, 0), fetch)).objective_ns for fetch in fetches(cold)
    ]
    assert decide(cold, Autotune()).objective_ns <= min(played) < max(played)


def test_the_sweep_holds_every_mode_of_the_graph_engine_and_respects_the_streams() -> None:
    """Two defaults more for engines that take streams in turn; sizes beyond the options shrink."""
    members = sweep(compile_graph(toy_chain(2), toy_device(), RunOptions(streams=3)))
    assert {member.mode for member in members} == set(Mode) - {Mode.CORE_AWARE}
    assert {member.streams for member in members if member.mode is Mode.WEIGHTED} == {2, 3}


def test_names_and_arguments() -> None:
    assert set(BY_STREAMS) < set(CANN)
    assert CANN["load_balance"](0) == Allocation(Mode.LOAD_BALANCE, 8)
    assert BY_STREAMS["main_stream"](4)(0) == Allocation(Mode.MAIN_STREAM, 4)
    for wrong in (0, 65):
        with pytest.raises(InputError, match=f"{wrong} streams; write a whole number from 1 to 64"):
            allocation(Mode.LOAD_BALANCE, wrong)
