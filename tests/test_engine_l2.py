"""Hand-computed episodes of L2: what stays there, what is pushed out, what it saves, and lifts into it.

On the device used here an L2 holds 256 bytes and moves 16 bytes a nanosecond, so a vector block takes 4 from
it and 2 from HBM. A lift takes 5 ns and then 2 bytes a nanosecond: 69 ns for 128 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from episodes import Host, moves, times
from toys import copy_in, copy_inside, copy_out, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.engine import layout as at
from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import PrefetchMask, Submission
from cann_env.schedule import CacheHit, HostCall, TransferRun

if TYPE_CHECKING:
    from typing import Any

    from cann_env.graph import Command

MEMORY = {"l2_bytes": 256, "l2_bandwidth_bytes_per_s": 16 * 10**9}
PORT = {"sdma": {"bytes_per_cycle": 2.0}}
CACHED = toy_device(memory=MEMORY, classes=PORT)


def graph(commands: tuple[Command, ...], *buffers: Buffer) -> CommandGraph:
    return CommandGraph("cached", commands, buffers)


def whole(names: str, size_bytes: int = 128, **fields: Any) -> tuple[Buffer, ...]:
    """Device buffers."""
    return tuple(Buffer(name=name, size_bytes=size_bytes, **fields) for name in names)


def moving(name: str, size_bytes: int, *, blocks: int = 1, **fields: Any) -> Command:
    """A vector kernel that moves bytes and computes nothing."""
    return kernel_command(name, toy_kernel("vector", 0, blocks=blocks, size_bytes=size_bytes), **fields)


# --- what a hit saves ---------------------------------------------------------------------------------


def written_then_read() -> CommandGraph:
    return graph((vector("a", writes=("x",)), moving("b", 128, reads=("x",))), *whole("x"))


@pytest.mark.parametrize("lifts", [0, 4])
def test_an_output_is_read_from_l2_at_its_speed(lifts: int) -> None:
    """Whether or not there are lifts.

    ::

        s0: a 0-110 | b 111: launch until 121, 128 bytes of x from L2 in 32 ns, ends at 153
    """
    schedule = Host(written_then_read(), CACHED, l2_prefetches=lifts).issue("a").issue("b").schedule()
    assert times(schedule) == {"a": (0, 110), "b": (111, 153)}
    assert schedule.hits == (CacheHit(1, 0, 111, 128),)


def test_without_l2_all_comes_from_hbm() -> None:
    """The same 128 bytes take 64 ns, with an L2 that is switched off and on a device that has none."""
    for host in (Host(written_then_read(), CACHED, l2_bytes=0), Host(written_then_read(), toy_device())):
        assert host.liftable == {}
        schedule = host.issue("a").issue("b").schedule()
        assert times(schedule) == {"a": (0, 110), "b": (111, 185)}
        assert schedule.hits == ()


def test_hbm_comes_first_and_l2_after_it() -> None:
    """b moves 256 bytes for x, in L2, and r, of the same size: 128 in 64 ns, then 128 in 32.

    ::

        s0: a 0-110 | b 111: launch until 121, HBM until 185, L2 until 217
    """
    drawn = graph(
        (vector("a", writes=("x",)), moving("b", 256, reads=("x", "r"))),
        *whole("x"),
        *whole("r", level=Level.HBM),
    )
    assert Host(drawn, CACHED).issue("a").issue("b").times()["b"] == (111, 217)


def test_the_bound_knows_how_fast_l2_is() -> None:
    """At 150 ns b still has its 128 bytes in L2 before it: B is its true end."""
    drawn = graph(
        (
            vector("a", writes=("x",)),
            moving("b", 256, reads=("x", "r")),
            vector("c", 140),
            vector("d", 1, after=("c",)),
        ),
        *whole("x"),
        *whole("r", level=Level.HBM),
    )
    host = Host(drawn, CACHED).issue("a", 0).issue("b", 0).issue("c", 1).until(150)
    assert host.bound_ns == 217
    assert host.issue("d", 1).times()["b"] == (111, 217)


def test_what_is_written_is_no_hit() -> None:
    """b reads 128 bytes that are in L2 and writes 128: 64 of its 128 bytes hit (16 ns), 64 go to HBM (32)."""
    drawn = graph((vector("a", writes=("x",)), moving("b", 128, reads=("x",), writes=("y",))), *whole("xy"))
    assert Host(drawn, CACHED).issue("a").issue("b").times()["b"] == (111, 169)


def test_blocks_share_l2() -> None:
    """Two cubes on two cores of 8 bytes a ns each fill the L2; a third reader beside them gets its part.

    Each block of c has 128 bytes, the one of v 64. Caps 8, 8 and 4 exceed 16: filled evenly, v stops at 4 and
    the others get 6. v is through after 16 ns, when c has 32 bytes a block left: 4 ns more.

    ::

        s0: a 0-110 | c 111-141
        s1:           v 111-137
    """
    drawn = graph(
        (
            vector("a", writes=("x",)),
            kernel_command("c", toy_kernel("cube", 0, blocks=2, size_bytes=256), reads=("x",)),
            moving("v", 64, reads=("x",)),
        ),
        *whole("x", 256),
    )
    device = toy_device(memory=MEMORY, classes=PORT, dispatch={"wake_ns": 1})
    host = Host(drawn, device).issue("a", 0).issue("c", 0).issue("v", 1)
    assert host.times() == {"a": (0, 110), "c": (111, 141), "v": (111, 137)}


# --- what stays ---------------------------------------------------------------------------------------


def pairs(last_bytes: int) -> CommandGraph:
    """x and y, 128 bytes each, fill the L2; then z is written, and all are read.

    ::

        a (x) -> b (y) -> r (reads x) -> d (z) -> e (reads x, y, z)
    """
    return graph(
        (
            vector("a", writes=("x",)),
            vector("b", writes=("y",), after=("a",)),
            vector("r", reads=("x",), after=("b",)),
            vector("d", writes=("z",), after=("r",)),
            vector("e", reads=("x", "y", "z"), after=("d",)),
        ),
        *whole("xy"),
        *whole("z", last_bytes),
    )


@pytest.mark.parametrize(
    ("last_bytes", "kept"),
    [
        (128, {"x": 128, "z": 128}),  # y goes: r has read x after it came
        (64, {"x": 128, "y": 64, "z": 64}),  # half of y is enough
        (192, {"x": 64, "z": 192}),  # all of y and half of x
        (256, {"z": 256}),
        (320, {}),  # larger than the L2: it runs through
    ],
)
def test_who_enters_pushes_out_what_was_used_longest_ago(last_bytes: int, kept: dict[str, int]) -> None:
    host = Host(pairs(last_bytes), CACHED).issue("a").issue("b").issue("r").until(332)
    assert host.l2 == {"x": 128, "y": 128}
    assert host.issue("d").until(443).l2 == kept
    schedule = host.issue("e").schedule()
    found = {hit.command: hit.hit_bytes for hit in schedule.hits}
    assert found == {2: 128} | ({4: sum(kept.values())} if kept else {})


def test_reading_does_not_allocate() -> None:
    drawn = graph(
        (moving("a", 128, reads=("r",)), moving("b", 128, reads=("r",), after=("a",))),
        *whole("r", level=Level.HBM),
    )
    schedule = Host(drawn, CACHED).issue("a").issue("b").schedule()
    assert times(schedule) == {"a": (0, 74), "b": (75, 149)}
    assert schedule.hits == ()


def test_what_is_freed_leaves() -> None:
    """Room is made without pushing anything out: x is gone when b ends, so y and z fit together."""
    drawn = graph(
        (
            vector("a", writes=("x", "y")),
            vector("b", reads=("x",)),
            vector("c", after=("b",), writes=("z",)),
            vector("d", reads=("y", "z")),
        ),
        *whole("xyz"),
    )
    host = Host(drawn, CACHED).issue("a").until(110)
    assert host.l2 == {"x": 128, "y": 128}
    assert host.issue("b").until(221).l2 == {"y": 128}
    assert host.issue("c").until(332).l2 == {"y": 128, "z": 128}
    assert host.issue("d").schedule().hits[-1].hit_bytes == 256


def test_copies_neither_hit_nor_enter_nor_renew() -> None:
    """in writes w, out reads x: w does not enter, out takes 133 ns; x is still the oldest, z replaces it."""
    drawn = graph(
        (
            vector("a", writes=("x", "y")),
            copy_in("in", 128, writes=("w",), after=("a",)),
            copy_out("out", 128, reads=("x",), after=("in",)),
            vector("d", writes=("z",), after=("out",)),
            vector("e", reads=("w", "x", "y", "z")),
        ),
        *whole("wxyz"),
    )
    host = Host(drawn, CACHED).issue("a").issue("in").until(244)
    assert host.l2 == {"x": 128, "y": 128}
    host.issue("out").issue("d").until(489)
    assert host.l2 == {"y": 128, "z": 128}
    schedule = host.issue("e").schedule()
    assert times(schedule)["out"] == (245, 378)
    assert [(hit.command, hit.hit_bytes) for hit in schedule.hits] == [(4, 256)]


def test_a_buffer_that_leaves_hbm_leaves_l2() -> None:
    """Memory for one. v, written by a and so in L2, is written back for w; it returns to HBM only."""
    drawn = graph(
        (
            vector("a", writes=("v",)),
            vector("b", reads=("w",), after=("a",)),
            moving("c", 128, reads=("v",), after=("b",)),
        ),
        managed("v", 128),
        managed("w", 128),
    )
    host = Host(drawn, CACHED, hbm_bytes=128).issue("a").until(110)
    assert host.l2 == {"v": 128}
    host.issue("b").wait()
    assert host.l2 == {}
    schedule = host.issue("c").schedule()
    assert schedule.hits == ()
    assert schedule.commands[-1].finish_ns - schedule.commands[-1].start_ns == 10 + 64


def test_a_clean_buffer_that_is_evicted_leaves_l2_too() -> None:
    """w was only read, and lifted; for v, which a writes, it vanishes from both."""
    drawn = graph(
        (vector("a", writes=("v",)), vector("b", reads=("w",), after=("a",))),
        managed("v", 128),
        managed("w", 128, Level.HBM),
    )
    host = Host(drawn, CACHED, hbm_bytes=128).lift("w").wait()
    assert host.l2 == {"w": 128}
    assert host.issue("a").l2 == {}
    assert host.wait().l2 == {"v": 128}


# --- lifts --------------------------------------------------------------------------------------------


def lonely(size_bytes: int = 256) -> CommandGraph:
    return graph((moving("b", 256, reads=("r",)),), *whole("r", size_bytes, level=Level.HBM))


@pytest.mark.parametrize(("cap", "end_ns", "b_end_ns"), [(None, 133, 207), (100, 55, 168)])
def test_a_lift_takes_latency_and_its_bytes_up_to_a_cap(cap: int | None, end_ns: int, b_end_ns: int) -> None:
    """All of r: 5 + 128 ns, then b takes 64 ns from L2. Of 100 bytes: 5 + 50, then HBM takes 78 and L2 25.

    ::

        r:  lift 0-133
        s0:           b 133: launch until 143, L2 until 207
    """
    host = Host(lonely(), CACHED, l2_prefetch_bytes=cap).lift("r").wait()
    assert (host.now_ns, host.l2) == (end_ns, {"r": cap or 256})
    schedule = host.issue("b").schedule()
    assert schedule.transfers == (TransferRun(0, "lift", 0, 0, end_ns, cap or 256),)
    assert times(schedule)["b"] == (end_ns, b_end_ns)
    assert schedule.hits == (CacheHit(0, 0, end_ns, cap or 256),)


def test_a_lift_pays_the_latency_of_hbm() -> None:
    """Not that of a link to the host: 9 + 128 ns."""
    device = toy_device(memory=MEMORY, classes=PORT, links={"hbm": {"latency_ns": 9}})
    assert Host(lonely(), device).lift("r").wait().now_ns == 137


def test_the_cap_of_the_device_holds_where_the_run_has_none() -> None:
    device = toy_device(memory={**MEMORY, "l2_prefetch_max_bytes": 64}, classes=PORT)
    assert Host(lonely(), device).lift("r").wait().l2 == {"r": 64}


def test_a_lift_call_takes_the_host_time() -> None:
    schedule = Host(lonely(), CACHED, submission=Submission.EAGER).lift("r").issue("b").schedule()
    assert schedule.host == (HostCall("lift", 0, 0, 2), HostCall("issue", 0, 2, 7))
    assert moves(schedule) == [("r", "lift", 0, 133)]


def test_who_starts_before_the_lift_has_ended_finds_nothing() -> None:
    """b runs 0-143 from 10 ns on beside the lift, which leaves enough of HBM."""
    schedule = Host(lonely(), CACHED).lift("r").issue("b").schedule()
    assert times(schedule) == {"b": (0, 138)}
    assert schedule.hits == ()


def two_readers() -> CommandGraph:
    return graph(
        (moving("b", 128, reads=("r",)), moving("c", 128, reads=("t",))),
        *whole("rt", level=Level.HBM),
    )


@pytest.mark.parametrize(
    ("lanes", "channels", "second"), [(1, 2, (69, 138)), (2, 2, (0, 69)), (2, 1, (69, 138))]
)
def test_lifts_stand_in_line(lanes: int, channels: int, second: tuple[int, int]) -> None:
    """Two move at once only where both lanes and sdma channels allow it; each takes half of HBM's 4 bytes."""
    device = toy_device(memory=MEMORY, classes=PORT, pools={"sdma": channels})
    host = Host(two_readers(), device, prefetch_streams=lanes).lift("r").lift("t")
    schedule = host.until(second[1]).issue("b", 0).issue("c", 1).schedule()
    assert moves(schedule) == [("r", "lift", 0, 69), ("t", "lift", *second)]


def test_a_lift_holds_an_sdma_channel() -> None:
    """The copy inside the device waits for it: 37 ns from 69 on."""
    drawn = graph((copy_inside("c"), moving("b", 128, reads=("r",))), *whole("r", level=Level.HBM))
    assert Host(drawn, CACHED).lift("r").issue("c", 0).issue("b", 1).times()["c"] == (69, 106)


def test_a_lift_waits_for_an_sdma_channel() -> None:
    drawn = graph((copy_inside("c"), moving("b", 128, reads=("r",))), *whole("r", level=Level.HBM))
    schedule = Host(drawn, CACHED).issue("c", 0).lift("r").until(106).issue("b", 0).schedule()
    assert moves(schedule) == [("r", "lift", 37, 106)]


def test_a_lift_slows_a_kernel_that_uses_hbm() -> None:
    """k's three blocks of 100 bytes have 4/3 byte a ns each alone: 75 ns. Beside the lift, of 64, all get 1.

    By 10 ns the lift has moved 10 bytes, the other 54 end at 64; k has 46 a block left then: 35 ns.

    ::

        r:  lift 0-64
        s0: k 0: launch until 10, shares until 64, alone until 99
    """
    drawn = graph(
        (moving("k", 300, blocks=3), moving("b", 64, reads=("r",))), *whole("r", 64, level=Level.HBM)
    )
    alone = Host(drawn, CACHED).issue("k", 0).until(86)
    assert alone.issue("b", 0).times()["k"] == (0, 86)  # 75 and a rounding up
    schedule = Host(drawn, CACHED).lift("r").issue("k", 0).until(99).issue("b", 0).schedule()
    assert moves(schedule) == [("r", "lift", 0, 64)]
    assert times(schedule)["k"] == (0, 99)


def test_a_second_lift_of_the_same_costs_bandwidth_and_changes_nothing() -> None:
    """Legal where the mask is free, not even offered where it is strict."""
    host = Host(two_readers(), CACHED, prefetch_mask=PrefetchMask.FREE).lift("r").lift("r").wait().wait()
    assert (host.now_ns, host.l2) == (138, {"r": 128})
    schedule = host.issue("b", 0).issue("c", 1).schedule()
    assert moves(schedule) == [("r", "lift", 0, 69), ("r", "lift", 69, 138)]
    strict = Host(two_readers(), CACHED).lift("r")
    assert strict.liftable == {"t": True}
    assert strict.wait().liftable == {"t": True}


def test_a_lift_takes_nothing_away_from_what_is_there() -> None:
    """x is there whole; a lift of at most 64 bytes leaves all 128."""
    drawn = graph((vector("a", writes=("x",)), vector("c"), moving("b", 128, reads=("x",))), *whole("x"))
    host = Host(drawn, CACHED, prefetch_mask=PrefetchMask.FREE, l2_prefetch_bytes=64).issue("a").until(110)
    host.lift("x").wait()
    assert (host.now_ns, host.l2) == (110 + 37, {"x": 128})


def test_only_what_will_be_read_and_is_there_is_offered() -> None:
    """x has not been written, w is on the host, z is only written; r and v can move up."""
    drawn = graph(
        (
            vector("a", writes=("x",)),
            vector("b", reads=("x", "w", "r", "v")),
            vector("c", writes=("z",)),
        ),
        *whole("x"),
        managed("w", 128),
        *whole("r", level=Level.HBM),
        managed("v", 128, Level.HBM),
        managed("z", 128, Level.HBM),
    )
    host = Host(drawn, CACHED, prefetches=0)
    assert host.liftable == {"r": True, "v": True}
    assert host.issue("a").wait().liftable == {"r": True, "v": True}  # x lies there whole


@pytest.mark.parametrize(("writes", "legal"), [(("x", "y"), False), (("y", "x"), True)])
def test_a_lift_does_no_harm(writes: tuple[str, ...], legal: bool) -> None:
    """b, c, d read x, r, y in this order. L2 is full; the older of x and y would have to go for r."""
    drawn = graph(
        (
            vector("a", writes=writes),
            vector("b", reads=("x",), after=("a",)),
            vector("c", reads=("r",), after=("b",)),
            vector("d", reads=("y",), after=("c",)),
        ),
        *whole("xy"),
        *whole("r", level=Level.HBM),
    )
    host = Host(drawn, CACHED).issue("a").until(110)
    assert (host.l2, host.liftable) == ({"x": 128, "y": 128}, {"r": legal})
    free = Host(drawn, CACHED, prefetch_mask=PrefetchMask.FREE).issue("a").until(110)
    assert free.liftable == {"x": True, "r": True, "y": True}
    assert free.lift("r").wait().l2 == {"r": 128, writes[1]: 128}


def test_a_lift_larger_than_l2_does_harm() -> None:
    assert Host(lonely(320), CACHED).liftable == {"r": False}


def test_a_buffer_on_its_way_up_is_not_evicted() -> None:
    """w is being lifted until 69 ns, so v's space has to wait for that; then w may go."""
    drawn = graph(
        (vector("a", writes=("v",)), vector("b", reads=("w",), after=("a",))),
        managed("v", 128),
        managed("w", 128, Level.HBM),
    )
    host = Host(drawn, CACHED, hbm_bytes=128).lift("w").issue("a").issue("b")
    assert host.times()["a"] == (69, 179)


def test_a_device_buffer_lives_until_its_lift_has_ended() -> None:
    """b, the last user of x, ends at 121 ns, the lift of x at 147: then x is freed and leaves L2.

    ::

        s0: a 0-110 | b 111-121
        x:             lift 110-147
    """
    drawn = graph(
        (vector("a", writes=("x",)), vector("b", 0, reads=("x",)), vector("c", after=("b",)), vector("d")),
        *whole("x", 64),
    )
    host = Host(drawn, CACHED, prefetch_mask=PrefetchMask.FREE, run_ahead=1).issue("a").until(110)
    host.lift("x").issue("b").until(121)
    assert (host.now_ns, host.hbm_bytes, host.l2) == (121, 64, {"x": 64})
    host.wait()
    assert (host.now_ns, host.hbm_bytes, host.l2) == (147, 0, {})
    assert host.issue("c").issue("d").schedule().allocations[0].free_ns == 147


def test_a_lift_pins_managed_buffers_only() -> None:
    host = Host(lonely(), CACHED).lift("r").wait().issue("b")
    assert host.state[int(host.program.image[at.P_STATE_BUFFER]) + at.SB_PINS] == 0


# --- dies ---------------------------------------------------------------------------------------------


def test_each_die_has_an_l2_of_its_own() -> None:
    """a on die 0 and b on die 1 write 256 bytes each: both stay. What another die reads or writes is no hit.

    c on die 1 reads x, which lies in the L2 of die 0: 64 bytes over the die link take 64 ns. d on die 1
    writes z, whose home is die 0: it does not enter.
    """
    drawn = graph(
        (
            vector("a", writes=("x",)),
            vector("b", writes=("y",)),
            moving("c", 64, reads=("x",)),
            vector("d", writes=("z",), after=("c",)),
            vector("e", reads=("x", "y", "z")),
        ),
        *whole("x", 256),
        *whole("y", 256, die=1),
        *whole("z", 64),
    )
    device = toy_device(memory=MEMORY, classes=PORT, dies=2)
    host = Host(drawn, device, streams=2).issue("a", 0).issue("b", 1).wait()
    assert (host.now_ns, host.l2) == (110, {"x": 256, "y": 256})
    host.issue("c", 1).issue("d", 1).until(296)
    assert host.l2 == {"x": 256, "y": 256}
    schedule = host.issue("e", 1).schedule()
    assert times(schedule)["c"] == (111, 185)
    assert [(hit.command, hit.hit_bytes) for hit in schedule.hits] == [(4, 256)]


def test_lifts_of_two_dies_move_at_once() -> None:
    """Each die has its own queue, channel and HBM."""
    drawn = graph(
        (moving("b", 128, reads=("r",)), moving("c", 128, reads=("t",))),
        *whole("r", level=Level.HBM),
        *whole("t", level=Level.HBM, die=1),
    )
    host = Host(drawn, toy_device(memory=MEMORY, classes=PORT, dies=2), streams=2).lift("r").lift("t").wait()
    schedule = host.issue("b", 0).issue("c", 1).schedule()
    assert moves(schedule) == [("r", "lift", 0, 69), ("t", "lift", 0, 69)]
    assert times(schedule) == {"b": (69, 111), "c": (69, 111)}
