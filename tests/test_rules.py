"""List schedulers on devices: shops of programs, how schedules are played, what memory and data decide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import machines as plain
import numpy as np
import pytest
from cases import make_case, running
from episodes import times
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import kernel_command, managed, toy_chain, toy_device, toy_kernel, vector

from cann_env.device.spec import CLASSES
from cann_env.engine import layout as at
from cann_env.engine.step import run_actions
from cann_env.generation import generate
from cann_env.graph import Buffer, CommandGraph, KernelClass, Level, Scheme
from cann_env.options import RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers.assignment import carry_out
from cann_env.schedulers.darts import data_order
from cann_env.schedulers.dmdas import Dmdas
from cann_env.schedulers.heft import heft, upward_ranks
from cann_env.schedulers.listed import Listed
from cann_env.schedulers.mem_cp import Admission, Memory
from cann_env.schedulers.online import JustInTime
from cann_env.schedulers.policy import decide, episode_info, rollout
from cann_env.schedulers.prefetch import Move
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

    from cann_env.schedulers.policy import Policy
    from cann_env.tasks import Tasks

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=10, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)

IDEAL = toy_device(
    pools={"aiv": 4},
    dispatch={"gap_ns": 0, "mix_switch_ns": 0},
    limits={"max_concurrent_streams": 16},
    classes={name: {"max_active": 16} for name in CLASSES},
)
"""Nothing costs time but the kernels."""

ROOMY = replace(IDEAL, pools={**IDEAL.pools, "aiv": 16})
"""The same with a core for everybody."""


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


# --- memory -------------------------------------------------------------------------------------------


def users_of(program: Program, *, writers: bool = False) -> list[list[int]]:
    """Commands that read or write each buffer, or only those that write it."""
    graph = program.graph
    touched = [command.writes if writers else (*command.reads, *command.writes) for command in graph.commands]
    return [[c for c, names in enumerate(touched) if buffer.name in names] for buffer in graph.buffers]


def follows_the_memory(seed: int) -> None:
    """What the policy believes to be free or droppable is so in the engine, at every decision."""
    case = make_case(seed)
    image = case.program.image
    memory, state = Memory(case.program), case.new_state()
    info = episode_info(case.program, state)
    dies, writers = int(image[at.P_DIES]), users_of(case.program, writers=True)
    while running(state):
        memory.see(info["phases"], info["residency"])
        rows = state[image[at.P_STATE_DIE] :][: dies * at.SD_WIDTH].reshape(dies, at.SD_WIDTH)
        free = image[at.P_HBM_BYTES] - rows[:, at.SD_BYTES]
        assert (memory.free >= free).all()
        assert (memory.free == free).all() or case.program.options.l2_prefetches  # which keep what is copied
        for b, users in enumerate(users_of(case.program)):
            busy = any(at.UNISSUED < info["phases"][c] < at.DONE for c in users)
            if info["residency"][b] == at.VALID and not busy:
                dirty = state[image[at.P_STATE_BUFFER] + b * at.SB_WIDTH + at.SB_DIRTY]
                managed = image[image[at.P_AT_BUFFER] + b * at.PB_WIDTH + at.PB_MANAGED]
                clean = managed == 1 and dirty == 0
                assert clean or not memory.droppable[b]
                written = any(info["phases"][c] >= at.STARTED for c in writers[b])
                assert memory.droppable[b] or written or not clean
        case.step(state, case.random_action(state))


@FAST
@given(seed=SEEDS)
def test_the_memory_is_read_off_phases_and_residency(seed: int) -> None:
    follows_the_memory(seed)


@pytest.mark.slow
@LONG
@given(seed=SEEDS)
def test_the_memory_is_read_off_phases_and_residency_many_times(seed: int) -> None:
    follows_the_memory(seed)


def test_what_was_written_back_can_be_dropped() -> None:
    """k0 writes w0, which is brought back from the host for k1; in use it cannot be dropped."""
    graph = CommandGraph(
        "back", (vector("k0", writes=("w0",)), vector("k1", reads=("w0",))), (managed("w0", level=Level.HBM),)
    )
    memory = Memory(compile_graph(graph, ROOMY, RunOptions(streams=1)))
    found = []
    for first, second, residency in (
        (at.UNISSUED, at.UNISSUED, at.VALID),
        (at.STARTED, at.UNISSUED, at.VALID),
        (at.DONE, at.UNISSUED, at.VALID),
        (at.DONE, at.UNISSUED, at.ABSENT),
        (at.DONE, at.UNISSUED, at.VALID),
        (at.DONE, at.QUEUED, at.VALID),
    ):
        memory.see(np.array([first, second]), np.array([residency]))
        found.append(bool(memory.droppable[0]))
    assert found == [True, False, False, False, True, False]


def crowded() -> Program:
    """Room for 256 bytes; ``big`` has a long path behind it, but becomes ready when four others hold it all.

    ::

        p 0-110 -> big, 192 bytes -> end, long
        s0 to s5: 300, 280, 260, 240, 220, 200 ns, 64 bytes each
    """
    smalls = {f"s{i}": 290 - 20 * i for i in range(6)}
    commands = (
        vector("p"),
        vector("big", writes=("xbig",), after=("p",)),
        vector("end", 2000, after=("big",)),
        *(vector(name, length, writes=(f"x{name}",)) for name, length in smalls.items()),
    )
    buffers = (
        Buffer(name="xbig", size_bytes=192),
        *(Buffer(name=f"x{name}", size_bytes=64) for name in smalls),
    )
    graph = CommandGraph("crowded", commands, buffers)
    return compile_graph(graph, ROOMY, RunOptions(streams=9, hbm_bytes=256))


def played(program: Program, policy: Policy) -> dict[str, tuple[int, int]]:
    """Start and finish of each command; what was done passes the judge."""
    schedule = record_schedule(program, rollout(program, policy).actions)
    assert validate(schedule) == ()
    return times(schedule)


def test_small_commands_do_not_starve_a_large_one() -> None:
    """It starts when three of four have ended; without its reservation s4 and s5 take what s3 and s2 give."""
    program = crowded()
    rush = played(program, JustInTime())
    assert rush["s4"][0] == 240
    assert rush["s5"][0] == 260
    asked = played(program, Admission(program))
    assert asked["big"][0] == 280
    assert asked["s4"][0] == 280 + 20


def test_what_needs_nothing_overtakes_what_waits_for_memory() -> None:
    """A command without memory starts at once beside one that is refused."""
    program = crowded()
    commands = (*program.graph.commands, vector("free", 10, after=("p",)))
    graph = CommandGraph("crowded", commands, program.graph.buffers)
    more = compile_graph(graph, ROOMY, RunOptions(streams=9, hbm_bytes=256))
    assert played(more, Admission(more))["free"][0] == 110


# --- dmdas --------------------------------------------------------------------------------------------


def test_dmdas_fetches_what_is_mapped_and_nothing_else() -> None:
    """k0 has the longer path, but is not ready before r is done at 310; w1 comes at 0, w0 then::

    r -> k0 (reads w0) -> z;   k1 (reads w1)
    """
    graph = CommandGraph(
        "mapped",
        (
            vector("r", 300),
            vector("k0", reads=("w0",), after=("r",)),
            vector("z", 500, after=("k0",)),
            vector("k1", reads=("w1",)),
        ),
        (managed("w0"), managed("w1")),
    )
    program = compile_graph(graph, ROOMY, RunOptions(streams=4))
    schedule = record_schedule(program, rollout(program, Dmdas(program)).actions)
    fetched = {graph.buffers[row.buffer].name: (row.cause, row.reserve_ns) for row in schedule.transfers}
    assert fetched == {"w1": ("prefetch", 0), "w0": ("prefetch", 310)}
    assert validate(schedule) == ()


def test_a_worker_s_queue_is_sorted() -> None:
    """One stream: d becomes ready after b and c were mapped, and goes before them, as its path is longer."""
    graph = CommandGraph(
        "sorted", (vector("a"), vector("b", 90), vector("c", 80), vector("d", 500, after=("a",)))
    )
    program = compile_graph(graph, ROOMY, RunOptions(streams=1))
    found = played(program, Dmdas(program, pipeline=1))
    assert sorted(found, key=lambda name: found[name]) == ["a", "d", "b", "c"]


def test_a_command_goes_to_the_worker_that_would_end_it_first() -> None:
    """a 310 | b 110, c 60, d 50 behind it: 110 + 60 + 50 < 310."""
    graph = CommandGraph("loads", (vector("a", 300), vector("b"), vector("c", 50), vector("d", 40)))
    program = compile_graph(graph, ROOMY, RunOptions(streams=2))
    found = played(program, Dmdas(program, pipeline=1))
    assert found == {"a": (0, 310), "b": (0, 110), "c": (110, 170), "d": (170, 220)}


# --- DARTS --------------------------------------------------------------------------------------------


def shared(hbm_bytes: int) -> Program:
    """Weights of 64 bytes; k0 has the longest path, w1 the most users::

    k0 (500): w0    k1, k2: w1    k3 (10): w0 and w2    k4 (5): w3 and w4
    """
    graph = CommandGraph(
        "shared",
        (
            vector("k0", 500, reads=("w0",)),
            vector("k1", 200, reads=("w1",)),
            vector("k2", 100, reads=("w1",)),
            vector("k3", 10, reads=("w0", "w2")),
            vector("k4", 5, reads=("w3", "w4")),
        ),
        tuple(managed(f"w{i}") for i in range(5)),
    )
    return compile_graph(graph, ROOMY, RunOptions(streams=4, hbm_bytes=hbm_bytes))


def test_the_datum_that_frees_most_comes_first_and_the_least_used_leaves() -> None:
    """Room for two: w1 for k1 and k2, then w0 for k0; w2 takes the place of w1, which nobody needs any more.

    No single weight frees k4; both of its weights come at last, each in the place of one that is used up.
    """
    sequence, fetches, evicted = data_order(shared(128))
    assert sequence == (1, 2, 0, 3, 4)
    assert fetches == (Move(1, 1), Move(0, 0), Move(2, 3, (2,)), Move(3, 4, (3,)), Move(4, 4, (3,)))
    assert [(move.buffer, move.done) for move in evicted] == [(1, (2,)), (0, (3,)), (2, (3,))]


def test_what_is_used_again_stays() -> None:
    """Room for two. c takes the place of b, as k4 still reads a, and d that of c::

    k0, k1: a    k2: b    k3: c    k4: a and d
    """
    reads = {"k0": "a", "k1": "a", "k2": "b", "k3": "c", "k4": "ad"}
    lengths = {"k0": 500, "k1": 400, "k2": 300, "k3": 50, "k4": 40}
    commands = tuple(vector(name, lengths[name], reads=tuple(own)) for name, own in reads.items())
    graph = CommandGraph("again", commands, tuple(managed(name) for name in "abcd"))
    program = compile_graph(graph, ROOMY, RunOptions(streams=4, hbm_bytes=128))
    sequence, fetches, evicted = data_order(program)
    assert sequence == (0, 1, 2, 3, 4)
    assert fetches == (Move(0, 0), Move(1, 2), Move(2, 3, (2,)), Move(3, 4, (3,)))
    assert [move.buffer for move in evicted] == [1, 2]


def test_a_listed_order_is_followed() -> None:
    """One core: the order is c, a, b."""
    graph = CommandGraph("listed", (vector("a", 300), vector("b", 200), vector("c")))
    program = compile_graph(graph, replace(IDEAL, pools={**IDEAL.pools, "aiv": 1}), RunOptions(streams=3))
    found = played(program, Listed((1, 2, 0)))
    assert sorted(found, key=lambda name: found[name]) == ["c", "a", "b"]


def test_with_room_for_all_nothing_waits_for_anything() -> None:
    sequence, fetches, evicted = data_order(shared(640))
    assert sequence == (1, 2, 0, 3, 4)
    assert all(move.done == () for move in fetches)
    assert evicted == ()


def test_without_data_darts_lists_by_longest_path() -> None:
    program = compile_graph(toy_chain(3), IDEAL, RunOptions(streams=1))
    assert data_order(program) == ((0, 1, 2), (), ())


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


@pytest.mark.slow
@LONG
@given(seed=SEEDS)
def test_every_rule_passes_the_judge_many_times(seed: int) -> None:
    passes_the_judge(seed)


@pytest.mark.parametrize("name", ALL)
def test_a_rule_always_decides_the_same(name: str) -> None:
    program = crowded()
    assert decide(program, RULES[name](0)) == decide(program, RULES[name](1))
