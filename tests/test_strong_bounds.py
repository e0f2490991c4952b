"""Bounds that look at heads and tails: each term by hand, none above any schedule, planted faults caught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    copy_in,
    copy_inside,
    copy_out,
    cube,
    kernel_command,
    managed,
    mix,
    toy_device,
    toy_kernel,
    vector,
)

from cann_env.engine import layout as at
from cann_env.graph import Buffer, Command, CommandGraph, KernelClass, Level, Scheme
from cann_env.options import RunOptions, Submission
from cann_env.program import Program, compile_graph
from cann_env.solvers import pieces, strong
from cann_env.solvers.strong import StrongBounds, strong_bounds

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)


def program(
    *commands: Command,
    buffers: tuple[Buffer, ...] = (),
    streams: int = 16,
    submission: str = "sink",
    **device: Any,
) -> Program:
    graph = CommandGraph("bounded", commands, buffers)
    options = RunOptions(streams=streams, submission=Submission(submission))
    return compile_graph(graph, toy_device(**device), options)


def bounds(*commands: Command, **fields: Any) -> StrongBounds:
    return strong_bounds(program(*commands, **fields))


def batch(name: str, block_ns: int, blocks: int, work: str = "vector", **fields: Any) -> Command:
    return kernel_command(name, toy_kernel(work, block_ns, blocks=blocks, scheme=Scheme.BATCH), **fields)


# --- terms by hand ------------------------------------------------------------------------------------


def test_the_path_counts_weights_that_have_to_come_in() -> None:
    """b comes after a, 110, and needs 192 bytes: not before 5 + 192. Then 110, where the engine says 220."""
    found = bounds(
        vector("a"), vector("b", reads=("w",), after=("a",)), buffers=(managed("w", 192),), streams=2
    )
    assert found.terms["path"] == 5 + 192 + 110
    assert found.terms["engine"] == 220
    assert found.lower_bound_ns == 307
    assert found.binding == "path"


def test_weights_that_are_written_first_do_not_have_to_come_in() -> None:
    """a writes w whole before b reads it."""
    found = bounds(vector("a", writes=("w",)), vector("b", reads=("w",)), buffers=(managed("w", 192),))
    assert found.terms["path"] == 220
    assert "link h2d" not in found.terms


def test_a_pool_waits_for_its_first_work_and_is_followed_by_what_comes_last() -> None:
    """Five cube kernels of 110 on two cores between two vector kernels: 110 + 550 / 2 + 110.

    ::

        a --> b0 .. b4 --> c        a, c: 110 on aiv
    """
    names = tuple(f"b{i}" for i in range(5))
    found = bounds(vector("a"), *(cube(name, after=("a",)) for name in names), vector("c", after=names))
    assert found.terms["pool aic"] == 110 + 275 + 110
    assert found.terms["engine"] == 330
    assert found.binding == "pool aic"


def test_blocks_that_come_one_by_one_count_the_launch_once() -> None:
    """Five blocks of 100 with a launch of 10: 510 on two cores. As a batch of two it holds both for 110."""
    assert bounds(cube("a", blocks=5)).terms["pool aic"] == 255
    assert bounds(batch("a", 100, 2, "cube")).terms["pool aic"] == 110


def test_mix_blocks_load_both_pools() -> None:
    """Three mix blocks, 310 in all: of 2 aic, and twice of 4 aiv."""
    found = bounds(mix("a", blocks=3))
    assert (found.terms["pool aic"], found.terms["pool aiv"]) == (155, 155)


def test_a_kernel_with_a_choice_loads_no_pool() -> None:
    kernel = toy_kernel("cube", 100, blocks=4, fallback=KernelClass.VECTOR)
    assert not [name for name in bounds(kernel_command("a", kernel)).terms if name.startswith("pool")]


def test_kernels_that_do_not_fit_together_run_one_by_one() -> None:
    """Three batches of three blocks on four aiv: 3 * 110, though the area is 3 * 330 / 4."""
    found = bounds(*(batch(f"k{i}", 100, 3) for i in range(3)))
    assert found.terms["one by one aiv"] == 330
    assert found.terms["pool aiv"] == 248


def test_two_dies_run_two_at_once() -> None:
    found = bounds(*(batch(f"k{i}", 100, 3) for i in range(3)), dies=2)
    assert "one by one aiv" not in found.terms
    assert found.terms["pool aiv"] == 124


def test_windows_count_what_cannot_keep_out_of_them() -> None:
    """If it took 330, b0 and b1 would fill [110, 220] on both aic, and half of x could not keep out.

    ::

        a0 --> b0 --> c0       110 each, b on aic        b0  ###########
        a1 --> b1 --> c1                                 b1  ###########
        x                      210 on aic            x  .....  100  .....

    So 2 * 110 + 100 of 2 * 110 core times have to lie there: 50 ns too little. If it took 380, the same holds
    of [160, 220], and so on up to 430, where x goes first and one chain follows on its core.
    """
    chains = [
        command
        for i in range(2)
        for command in (
            vector(f"a{i}"),
            cube(f"b{i}", after=(f"a{i}",)),
            vector(f"c{i}", after=(f"b{i}",)),
        )
    ]
    case = program(*chains, cube("x", 200))
    found = strong_bounds(case)
    assert found.terms["pool aic"] == 330
    kernels = pieces.kernels_of(case, pieces.paths_of(case, ()))
    holds = pieces.holds_of(kernels)
    assert strong.windows(holds, kernels.units[holds.kernel, 0], 2, 330) == 380
    assert found.terms["windows aic"] == found.lower_bound_ns == 430


def test_slots_and_streams_serialise_commands() -> None:
    """Three commands of 110 on one stream, 1 ns apart; on three streams of which one may be active."""
    commands = [vector(f"k{i}") for i in range(3)]
    found = bounds(*commands, streams=1)
    assert (found.terms["slots"], found.terms["streams"]) == (330, 332)
    found = bounds(*commands, limits={"max_concurrent_streams": 1})
    assert found.terms["slots"] == 330


def test_slots_of_a_class_serialise_its_kernels() -> None:
    found = bounds(*(vector(f"k{i}") for i in range(3)), cube("c"), classes={"vector": {"max_active": 1}})
    assert found.terms["class vector"] == 330
    assert "class cube" not in found.terms


def test_what_comes_in_is_followed_by_what_needs_it() -> None:
    """w0 (64 bytes, then 110) and w1 (128 bytes, then 30): 5 + 192 + 30, where the engine says 192."""
    found = bounds(
        vector("k0", reads=("w0",)),
        vector("k1", 20, reads=("w1",)),
        buffers=(managed("w0", 64), managed("w1", 128)),
    )
    assert found.terms["link h2d"] == 5 + 192 + 30
    assert found.terms["engine"] == 192


def test_copies_move_after_their_latency() -> None:
    """Two copies in of 64 bytes, then 110: 5 + 128 + 110."""
    found = bounds(copy_in("a"), copy_in("b"), vector("c", after=("a", "b")))
    assert found.terms["link h2d"] == 5 + 128 + 110


def test_what_goes_out_waits_for_what_makes_it() -> None:
    """Two copies out of 64 bytes behind a kernel of 110: 110 + 5 + 128."""
    found = bounds(vector("a"), copy_out("b", after=("a",)), copy_out("c", after=("a",)))
    assert found.terms["link d2h"] == 110 + 5 + 128


def test_bytes_of_kernels_move_after_their_launch() -> None:
    """Three kernels of 400 bytes, 4 bytes a ns for all: 10 + 300. A copy inside moves its bytes twice."""
    kernels = [kernel_command(f"k{i}", toy_kernel("vector", 0, blocks=2, size_bytes=400)) for i in range(3)]
    assert bounds(*kernels).terms["link hbm"] == 310
    assert bounds(copy_inside("a", 400)).terms["path"] == 5 + 200


def test_calls_are_followed_by_what_they_submit() -> None:
    """Three calls of 5 ns, then 110."""
    assert bounds(*(vector(f"k{i}") for i in range(3)), submission="eager").terms["host"] == 15 + 110


def test_resident_weights_do_not_move() -> None:
    found = bounds(vector("a", reads=("w",)), buffers=(managed("w", 192, Level.HBM),))
    assert found.lower_bound_ns == 110


# --- laws ---------------------------------------------------------------------------------------------


def never_above_a_schedule(seed: int) -> None:
    """Random decisions, with little memory, two dies, late releases and L2 among them: no term lies above."""
    case = make_case(seed, plain=True)
    terms = strong_bounds(case.program).terms
    makespan = int(case.play()[at.S_NOW_NS])
    assert {name: ns for name, ns in terms.items() if ns > makespan} == {}


@FAST
@given(seed=SEEDS)
def test_no_term_is_above_a_schedule(seed: int) -> None:
    never_above_a_schedule(seed)


@pytest.mark.thorough
@LONG
@given(seed=SEEDS)
def test_no_term_is_above_a_schedule_at_length(seed: int) -> None:
    never_above_a_schedule(seed)


@FAST
@given(seed=SEEDS)
def test_the_largest_term_is_the_bound(seed: int) -> None:
    case = make_case(seed, plain=True)
    found = strong_bounds(case.program)
    assert found.lower_bound_ns == found.terms[found.binding] >= case.program.lower_bound_ns


# --- planted faults -----------------------------------------------------------------------------------


def one_die(found: Callable[..., int]) -> Callable[..., int]:
    return lambda head, tail, work, capacity: found(head, tail, work, max(capacity // 2, 1))


def twice(found: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: 2 * found(*values)


def rigid(found: Callable[..., Any]) -> Callable[..., Any]:
    """All blocks of every kernel from its start to its end, waves or not."""

    def holds(kernels: pieces.Kernels) -> pieces.Holds:
        whole = found(kernels._replace(rigid=kernels.blocks > 0))
        return whole._replace(length=kernels.length)

    return holds


def all_come_in(found: Callable[..., Any]) -> Callable[..., Any]:
    """Every managed buffer, whether it is written first or lies there."""

    def loads(program: Program) -> tuple[pieces.Load, ...]:
        every = []
        for index, row in enumerate(pieces.buffer_rows(program)):
            users = pieces.user_rows(program, row)
            if row[at.PB_MANAGED] == 1 and len(users):
                every.append(pieces.Load(index, tuple(users[:, 0].tolist()), int(row[at.PB_BYTES])))
        return tuple(every)

    return loads


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("carried", one_die),
        ("carried", twice),
        ("windows", twice),
        ("holds_of", rigid),
        ("loads_of", all_come_in),
    ],
)
def test_a_planted_fault_breaks_the_law(
    where: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strong, where, fault(getattr(strong, where)))
    with pytest.raises(AssertionError, match="assert"):
        for seed in range(200):
            never_above_a_schedule(seed)
