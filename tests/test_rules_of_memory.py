"""List schedulers that ask the memory or the data: admission, dmdas and DARTS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cases import make_case, running
from episodes import times
from hypothesis import given, settings
from hypothesis import strategies as st
from ideal import IDEAL, ROOMY, crowded
from toys import managed, toy_chain, vector

from cann_env.engine import layout as at
from cann_env.graph import CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers.darts import data_order
from cann_env.schedulers.dmdas import Dmdas
from cann_env.schedulers.listed import Listed
from cann_env.schedulers.mem_cp import Admission, Memory
from cann_env.schedulers.online import JustInTime
from cann_env.schedulers.policy import episode_info, rollout
from cann_env.schedulers.prefetch import Move
from cann_env.schedulers.recording import record_schedule
from cann_env.validate import validate

if TYPE_CHECKING:
    from cann_env.schedulers.policy import Policy

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=10, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)


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


@pytest.mark.thorough
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
