"""The judge of memory against accounts done in another way: least recent first, size classes, peak need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hand_made import edited, outputs
from hand_made_cache import read, small_l2
from hand_made_memory import mover, on_both_dies, shared, spilled, tenants, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import hand_schedule, managed, toy_device, vector

from cann_env.capacity import capacity_bytes, peak_need_bytes, taken_bytes
from cann_env.graph import CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.schedule import CacheHit
from cann_env.validate import validate
from cann_env.validate.case import Case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.schedule import Schedule


def messages(schedule: Schedule) -> list[str]:
    return [violation.message for violation in validate(schedule)]


# --- places -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoilt", [outputs(second_issue_ns=109), outputs(size_bytes=65)])
def test_outputs_without_room_share_bytes_or_lie_outside(spoilt: Schedule) -> None:
    """Device buffers alone that are too much have no sound place either."""
    assert {violation.rule for violation in validate(spoilt)} == {"address-space", "hbm-capacity"}


def test_a_second_place_is_a_double_free() -> None:
    schedule = tenants()
    double = replace(schedule, allocations=(*schedule.allocations, schedule.allocations[0]))
    assert "buffer 'x' has 2 places; it must be allocated and freed once (double free)" in messages(double)


def test_messages_name_use_after_free_and_leaks() -> None:
    early, late = (edited(tenants(), "allocations", 0, free_ns=at_ns) for at_ns in (220, 222))
    assert messages(early) == [
        "the place of buffer 'x' at address 0: it is freed at 220 ns; "
        "command 'c' on stream 1 uses it until 221 ns (use after free)"
    ]
    assert (
        "the place of buffer 'x' at address 0: it is freed at 222 ns; "
        "command 'c' on stream 1, its last user, ends at 221 ns (leak)"
    ) in messages(late)


def test_the_message_of_a_missing_reuse_wait_names_both_commands() -> None:
    (message,) = messages(tenants(("a", "c"), ("a", "b")))
    assert message == (
        "command 'b' on stream 2 writes 'y' where 'x' lay; "
        "neither streams nor any event wait put it behind command 'c' on stream 1, which used that"
    )


def test_a_die_has_no_use_for_the_memory_of_another() -> None:
    """Both outputs on die 0: its 64 bytes are too few, though die 1 has as many free."""
    schedule = on_both_dies()
    graph = schedule.graph
    moved = replace(schedule, graph=CommandGraph("one", graph.commands, (graph.buffers[0], whole("y"))))
    assert {violation.rule for violation in validate(moved)} == {"address-space", "hbm-capacity"}


@given(st.integers(1, 2**40), st.sampled_from([64, 512, 4096]))
def test_the_pool_takes_the_least_class_that_is_enough(size_bytes: int, least: int) -> None:
    """Classes are 2**k * {4, 5, 6, 7} / 4."""
    graph = CommandGraph("one", (vector("a", writes=("x",)),), (whole("x", size_bytes),))
    device = toy_device(memory={"pool_min_block_bytes": least})
    case = Case(hand_schedule(graph, [("a", 0, 0, 0, 110)], device=device))
    aligned = -(-size_bytes // 64) * 64
    every = [2**k * quarters // 4 for k in range(2, 50) for quarters in (4, 5, 6, 7)]
    assert taken_bytes(graph.buffers[0], case.schedule.device, case.schedule.options) == min(
        c for c in every if c >= max(aligned, least)
    )


# --- capacity -----------------------------------------------------------------------------------------

programs = st.lists(
    st.tuples(st.sets(st.integers(0, 4), max_size=3), st.sets(st.integers(0, 4), max_size=3)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=50)
@given(programs, st.lists(st.integers(1, 200), min_size=5, max_size=5), st.sampled_from([0.5, 0.7, 1.0, 1.9]))
def test_need_is_what_lives_at_each_command(
    uses: list[tuple[set[int], set[int]]], sizes: list[int], factor: float
) -> None:
    """Buffers 0 and 1 are managed, 2 is resident, 3 and 4 come and go; odd ones belong to die 1."""
    absent = {3, 4}
    commands = []
    for i, (reads, writes) in enumerate(uses):
        reads = reads - absent
        absent = absent - writes
        names = [tuple(f"b{b}" for b in sorted(some)) for some in (reads, writes)]
        commands.append(vector(f"k{i}", reads=names[0], writes=names[1]))
    buffers = tuple(
        replace(managed(f"b{b}", size), die=b % 2)
        if b < 2
        else whole(f"b{b}", size, Level.HBM if b == 2 else Level.ABSENT, die=b % 2)
        for b, size in enumerate(sizes)
    )
    graph, device = CommandGraph("need", tuple(commands), buffers), toy_device(dies=2)
    most = 0
    for at in range(len(commands)):
        live = [0, 0]
        for buffer in buffers:
            used = [i for i, c in enumerate(commands) if buffer.name in (*c.reads, *c.writes)]
            if buffer.name == "b2" or (used and used[0] <= at <= used[-1]):
                live[buffer.die] += -(-buffer.size_bytes // 64) * 64
        most = max(most, *live)
    assert peak_need_bytes(graph, device, RunOptions()) == most
    tenths = {0.5: 5, 0.7: 7, 1.0: 10, 1.9: 19}[factor]
    chosen = capacity_bytes(graph, device, RunOptions(memory_factor=factor))
    assert chosen == max(most * tenths // 10 // 64 * 64, 64)


def test_shared_memory_holds_weights_from_start_to_end() -> None:
    """A weight and an activation of 64 bytes: 128 are just enough."""
    assert validate(shared()) == ()
    small = replace(shared(), options=RunOptions(hbm_bytes=127), peak_hbm_bytes=127)
    assert {violation.rule for violation in validate(small)} == {"address-space", "hbm-capacity"}
    pool = replace(shared(), options=RunOptions(hbm_bytes=128, pool_bytes=64))  # above what is resident
    assert validate(pool) == ()


def test_a_spilled_buffer_is_told_by_what_happens_to_it() -> None:
    late = spilled(*spilled().transfers[:3])
    assert messages(late) == ["buffer 'x' stays to the end; its last user, command 'c', ends at 479 ns"]


# --- L2 -----------------------------------------------------------------------------------------------


def least_recent_first(steps: Sequence[str], sizes: dict[str, int], capacity: int) -> list[int]:
    """What each reader finds, by a list of (buffer, bytes) with the least recent first."""
    lies: list[tuple[str, int]] = []
    found = []
    for kind, buffer in steps:
        held = dict(lies).get(buffer, 0)
        if kind == "r":
            found.append(held)
        size = held if kind == "r" else sizes[buffer]
        if not size:
            continue
        lies = [entry for entry in lies if entry[0] != buffer]
        excess = sum(n for _, n in lies) + size - capacity
        while excess > 0 and lies:
            (victim, n), *lies = lies
            lies = [(victim, n - excess), *lies] if n > excess else lies
            excess -= n
        lies += [(buffer, size)] if size <= capacity else []
    return found


one_by_one = st.lists(st.sampled_from(["wx", "wy", "wz", "rx", "ry", "rz"]), min_size=1, max_size=12)


@settings(max_examples=50)
@given(one_by_one, st.sampled_from([64, 128, 192, 256, 1024]), st.data())
def test_hits_are_what_a_list_by_recency_finds(names: list[str], capacity: int, data: st.DataObject) -> None:
    """Commands one after another, so that nothing is ambiguous; any other number of bytes is a fault."""
    sizes = {"x": 128, "y": 256, "z": 64}
    found = least_recent_first(names, sizes, capacity)
    steps = [(name, 0, 1000 * i) for i, name in enumerate(names)]
    schedule = renamed(steps, found, tuple(sizes.values()), capacity)
    assert validate(schedule) == ()
    if found:
        i = data.draw(st.integers(0, len(found) - 1))
        reader = [name for name in names if name[0] == "r"][i]
        others = [n for n in (0, 32, 64, 128, 192, 256) if n != found[i] and n <= sizes[reader[1]]]
        other = data.draw(st.sampled_from(others))
        changed = [*found[:i], other, *found[i + 1 :]]
        spoilt = renamed(steps, changed, tuple(sizes.values()), capacity)
        assert "l2-hits" in {violation.rule for violation in validate(spoilt)}


def renamed(
    steps: list[tuple[str, int, int]], hits: list[int], sizes: tuple[int, ...], capacity: int
) -> Schedule:
    """Like ``read``, where a name may come several times."""
    once = [(f"{name}{i}", stream, at_ns) for i, (name, stream, at_ns) in enumerate(steps)]
    return read(once, hits, sizes=sizes, device=small_l2(capacity), options=RunOptions(run_ahead=99))


def test_outputs_at_one_instant_leave_any_of_them_out() -> None:
    """Four writers end together in an L2 with room for two; what one wrote is there whole or not at all."""
    names = "abcd"
    commands = (*(vector(f"w{n}", writes=(n,)) for n in names), mover("r", 128, reads=("a",)))
    graph = CommandGraph("instant", commands, tuple(whole(n, 128, Level.HBM) for n in names))
    writers = [(f"w{n}", i, 0, 0, 110) for i, n in enumerate(names)]
    for hit, rules in ((128, set()), (0, set()), (64, {"l2-hits"})):
        runs = [*writers, ("r", 0, 0, 200, 210 + (128 - hit) // 2 + hit // 8)]
        hits = (CacheHit(4, 0, 200, hit),) if hit else ()
        schedule = hand_schedule(graph, runs, hits=hits, device=small_l2(256))
        assert {violation.rule for violation in validate(schedule)} == rules, hit


def freed_as_another_enters(hit: int) -> Schedule:
    """An L2 of 256 bytes holds x and z when a, the last to read x, writes y.

    Either x is freed first and z stays, or y comes first and z, least recent, gives way.
    """
    commands = (
        vector("wx", writes=("x",)),
        vector("wz", writes=("z",)),
        mover("a", 128, reads=("x",), writes=("y",)),
        mover("rz", 128, reads=("z",)),
    )
    buffers = (whole("x", 128), whole("y", 128, Level.HBM), whole("z", 128, Level.HBM))
    runs = [("wx", 0, 0, 0, 110), ("wz", 0, 0, 111, 221), ("a", 0, 0, 222, 272)]
    runs.append(("rz", 0, 0, 300, 310 + (128 - hit) // 2 + hit // 8))
    hits = [CacheHit(2, 0, 222, 128)] + ([CacheHit(3, 0, 300, hit)] if hit else [])
    graph = CommandGraph("freed", commands, buffers)
    return hand_schedule(graph, runs, hits=tuple(hits), device=small_l2(256))


@pytest.mark.parametrize(("hit", "rules"), [(128, set()), (0, set()), (64, {"l2-hits"})])
def test_what_is_freed_may_go_before_or_after_what_enters(hit: int, rules: set[str]) -> None:
    assert {violation.rule for violation in validate(freed_as_another_enters(hit))} == rules


def test_many_that_finish_together_are_judged_in_time() -> None:
    """Twelve outputs at one instant, in an L2 with room for ten: which two are gone is anybody's guess."""
    names = [f"b{i}" for i in range(12)]
    commands = (*(vector(f"w{n}", writes=(n,)) for n in names), mover("r", 64, reads=("b0",)))
    graph = CommandGraph("many", commands, tuple(whole(n, 64, Level.HBM) for n in names))
    device = small_l2(640)
    device = replace(device, pools={**device.pools, "aiv": 12})
    device = replace(device, classes={n: replace(c, max_active=12) for n, c in device.classes.items()})
    device = replace(device, limits=replace(device.limits, max_concurrent_streams=12))
    runs = [(f"w{n}", i, 0, 0, 110) for i, n in enumerate(names)] + [("r", 0, 0, 111, 153)]
    schedule = hand_schedule(graph, runs, device=device, options=RunOptions(streams=12))
    assert validate(schedule) == ()
