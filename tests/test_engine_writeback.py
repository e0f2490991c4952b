"""Hand-computed episodes of what is written and has to go back to the host, or never has to come from there.

On the device used here a buffer of 64 bytes takes 133 ns on demand, 69 prefetched and 69 to the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from episodes import Host, moves, times
from toys import copy_out, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.graph import Buffer, CommandGraph, HostMemory, Level
from cann_env.options import Eviction, PrefetchMask, Submission
from cann_env.schedule import HostCall, Stall

if TYPE_CHECKING:
    from cann_env.graph import Command

FAULTY = toy_device(memory={"fault_ns": 64})


def graph(commands: tuple[Command, ...], *buffers: Buffer) -> CommandGraph:
    return CommandGraph("written", commands, buffers)


def chain(*steps: Command) -> tuple[Command, ...]:
    """Commands one after the other."""
    return tuple(replace(step, after=(steps[i - 1].name,) if i else ()) for i, step in enumerate(steps))


def pageable(name: str, size_bytes: int = 64, level: Level = Level.HOST) -> Buffer:
    return replace(managed(name, size_bytes, level), host_memory=HostMemory.PAGEABLE)


def use_then_other(**use: tuple[str, ...]) -> CommandGraph:
    """a uses v, which is there; b reads w, which is not."""
    return graph(
        chain(vector("a", **use), vector("b", reads=("w",))), managed("v", 64, Level.HBM), managed("w")
    )


# --- eviction -----------------------------------------------------------------------------------------


def test_what_was_written_goes_back_and_the_newcomer_waits_for_its_space() -> None:
    """Memory for one.

    ::

        v:  in use  | back to the host 111-180
        w:                                    180-313
        s0: a 0-110 |                                 b 313-423
    """
    schedule = Host(use_then_other(writes=("v",)), FAULTY, hbm_bytes=64).issue("a").issue("b").schedule()
    assert moves(schedule) == [("v", "writeback", 111, 180), ("w", "fault", 180, 313)]
    assert [row.reserve_ns for row in schedule.transfers] == [111, 180]
    assert times(schedule) == {"a": (0, 110), "b": (313, 423)}
    assert schedule.stall == Stall(0, 313 - 111, 0, 0, 0, 0)
    assert schedule.peak_hbm_bytes == 64


def test_what_was_only_read_vanishes_at_once() -> None:
    schedule = Host(use_then_other(reads=("v",)), FAULTY, hbm_bytes=64).issue("a").issue("b").schedule()
    assert moves(schedule) == [("v", "evict", 111, 111), ("w", "fault", 111, 244)]
    assert times(schedule) == {"a": (0, 110), "b": (244, 354)}


def test_what_has_been_written_back_is_clean() -> None:
    """v is written, goes back, is fetched to be read, and then vanishes: its host copy is still good.

    ::

        v:  in use  | back 111-180             | 424-557            out 668
        w:                        180-313      out 424              668-801
        s0: a 0-110                    b 313-423       c 557-667             d 801-911
    """
    drawn = graph(
        chain(
            vector("a", writes=("v",)),
            vector("b", reads=("w",)),
            vector("c", reads=("v",)),
            vector("d", reads=("w",)),
        ),
        managed("v", 64, Level.HBM),
        managed("w"),
    )
    host = Host(drawn, FAULTY, hbm_bytes=64)
    schedule = host.issue("a").issue("b").issue("c").issue("d").schedule()
    assert moves(schedule) == [
        ("v", "writeback", 111, 180),
        ("w", "fault", 180, 313),
        ("w", "evict", 424, 424),
        ("v", "fault", 424, 557),
        ("v", "evict", 668, 668),
        ("w", "fault", 668, 801),
    ]
    assert times(schedule)["d"] == (801, 911)


def test_a_write_back_takes_bandwidth_of_hbm_where_the_link_shares_it() -> None:
    """k's three blocks have 4/3 byte a ns each alone; beside the write-back all four get 1.

    That lasts from 122, when k is launched, to 181: 59 of 100 bytes a block. The last 41 take 31 ns.

    ::

        v:  in use  | back 112-181
        s0: a 0-110 |            b ...
        s1: e 0-111 | k 112: launch until 122, shares until 181, ends at 212
    """
    drawn = graph(
        (
            vector("a", 101, writes=("v",)),
            vector("e", 101),
            vector("b", reads=("w",), after=("a",)),
            kernel_command("k", toy_kernel("vector", 0, blocks=3, size_bytes=300), after=("e",)),
        ),
        managed("v", 64, Level.HBM),
        managed("w"),
    )
    device = toy_device(memory={"fault_ns": 64}, links={"d2h": {"shares_hbm": True}})
    host = Host(drawn, device, hbm_bytes=64).issue("a", 0).issue("e", 1).issue("b", 0).issue("k", 1)
    schedule = host.schedule()
    assert moves(schedule)[0] == ("v", "writeback", 112, 181)
    assert times(schedule)["k"] == (112, 122 + 59 + 31)


# --- activations --------------------------------------------------------------------------------------


def test_an_activation_takes_space_when_it_is_written_and_gives_it_back_after_its_last_use() -> None:
    """Nothing moves: x is touched by a and freed when c ends.

    ::

        s0: a 0-110 | b 111-221 | c 222-332
        x:  0........................332
    """
    drawn = graph(
        (vector("a", writes=("x",)), vector("b", reads=("x",)), vector("c", reads=("x",), after=("b",))),
        managed("x", 64, Level.ABSENT),
    )
    host = Host(drawn, FAULTY)
    assert host.hbm_bytes == 0
    assert host.issue("a").hbm_bytes == 64
    schedule = host.issue("b").issue("c").schedule()
    assert moves(schedule) == [("x", "touch", 0, 0), ("x", "free", 332, 332)]
    assert (times(schedule)["c"], host.hbm_bytes) == ((222, 332), 0)
    assert schedule.allocations == ()


def test_an_activation_takes_no_space_before_its_command_comes_to_the_front() -> None:
    """b, behind a, has been issued, but y takes its space only at 111 ns."""
    drawn = graph(chain(vector("a"), vector("b", writes=("y",)), vector("c")), managed("y", 64, Level.ABSENT))
    host = Host(drawn, FAULTY).issue("a").issue("b")
    assert host.hbm_bytes == 0
    assert moves(host.issue("c").schedule()) == [("y", "touch", 111, 111), ("y", "free", 221, 221)]


def test_an_activation_that_has_to_make_room_goes_to_the_host_and_comes_back() -> None:
    """Memory for one: x is not needed by b, but by c.

    ::

        x:  0 touched | back 111-180           | 424-557            freed 667
        w:                          180-313    out 424
        s0: a 0-110                      b 313-423      c 557-667
    """
    drawn = graph(
        chain(vector("a", writes=("x",)), vector("b", reads=("w",)), vector("c", reads=("x",))),
        managed("x", 64, Level.ABSENT),
        managed("w"),
    )
    host = Host(drawn, FAULTY, hbm_bytes=64).issue("a").issue("b").issue("c")
    schedule = host.schedule()
    assert moves(schedule) == [
        ("x", "touch", 0, 0),
        ("x", "writeback", 111, 180),
        ("w", "fault", 180, 313),
        ("w", "evict", 424, 424),
        ("x", "fault", 424, 557),
        ("x", "free", 667, 667),
    ]
    assert (times(schedule)["c"], host.hbm_bytes) == ((557, 667), 0)


def test_what_is_written_whole_is_not_fetched() -> None:
    """a only writes v, so it starts at once; b reads and writes w, which has to come first."""
    drawn = graph(
        (vector("a", writes=("v",)), vector("b", reads=("w",), writes=("w",))), managed("v"), managed("w")
    )
    host = Host(drawn, FAULTY)
    assert list(host.prefetchable) == ["w"]
    schedule = host.issue("a", 0).issue("b", 1).schedule()
    assert moves(schedule) == [("v", "touch", 0, 0), ("w", "fault", 0, 133)]
    assert times(schedule) == {"a": (0, 110), "b": (133, 243)}


# --- who makes room -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eviction", "expected", "end_ns"),
    [
        (Eviction.FURTHEST, [("w", 222), ("u", 222), ("u", 577), ("w", 577)], 820),
        (Eviction.LRU, [("v", 222), ("u", 222), ("w", 466), ("v", 466), ("u", 710), ("w", 710)], 953),
    ],
)
def test_two_rules_choose_different_victims(
    eviction: Eviction, expected: list[tuple[str, int]], end_ns: int
) -> None:
    """Memory for two; a chain reads v, w, u, v, w. Before u comes, v was used longest ago, w is needed last.

    ::

        furthest: v 0-110 | w 111-221 | (w out, u in) u 355-465 | v 466-576               | (u out) w 710-820
        lru:      v 0-110 | w 111-221 | (v out, u in) u 355-465 | (w out, v in) v 599-709 | (u out) w 843-953
    """
    drawn = graph(
        chain(*(vector(f"k{i}", reads=(name,)) for i, name in enumerate("vwuvw"))),
        managed("u"),
        managed("v", 64, Level.HBM),
        managed("w", 64, Level.HBM),
    )
    host = Host(drawn, FAULTY, hbm_bytes=128, eviction=eviction)
    for i in range(5):
        host.issue(f"k{i}")
    schedule = host.schedule()
    assert [(name, start) for name, _, start, _ in moves(schedule)] == expected
    assert [cause for _, cause, _, _ in moves(schedule)] == ["evict", "fault"] * (len(expected) // 2)
    assert schedule.makespan_ns == end_ns


def test_write_backs_go_one_by_one_in_order() -> None:
    """Three go at once for the large w: the link would carry them together, and there are channels enough.

    ::

        x, y, z:  in use | 111-180, 180-249, 249-318
        w:                                          318-(5 + 384)
    """
    drawn = graph(
        chain(vector("a", writes=("x", "y", "z")), vector("b", reads=("w",))),
        *(managed(name, 64, Level.HBM) for name in "xyz"),
        managed("w", 192),
    )
    device = toy_device(memory={"fault_ns": 64}, pools={"d2h": 3})
    schedule = Host(drawn, device, hbm_bytes=192, prefetch_streams=3).issue("a").issue("b").schedule()
    assert moves(schedule) == [
        ("x", "writeback", 111, 180),
        ("y", "writeback", 180, 249),
        ("z", "writeback", 249, 318),
        ("w", "fault", 318, 318 + 5 + 384),
    ]
    assert [row.reserve_ns for row in schedule.transfers[:3]] == [111, 111, 111]


def test_a_write_back_waits_for_a_channel_to_the_host() -> None:
    """The copy has the only one until 205 ns."""
    drawn = graph(
        (vector("a", writes=("v",)), copy_out("c", 200), vector("b", reads=("w",), after=("a",))),
        managed("v", 64, Level.HBM),
        managed("w"),
    )
    schedule = Host(drawn, FAULTY, hbm_bytes=64).issue("a", 0).issue("c", 1).issue("b", 0).schedule()
    assert moves(schedule)[0] == ("v", "writeback", 205, 274)
    assert schedule.transfers[0].reserve_ns == 111


def test_device_buffers_wait_for_their_space_too() -> None:
    """x takes the place of v, which a has written: it is granted at 179 ns, and b starts then.

    ::

        v:  in use  | back 110-179
        s0: a 0-110               | b 179-289
    """
    drawn = graph(
        (vector("a", writes=("v",)), vector("b", writes=("x",), after=("a",))),
        managed("v", 64, Level.HBM),
        Buffer(name="x", size_bytes=64),
    )
    host = Host(drawn, FAULTY, hbm_bytes=64).issue("a").until(110).issue("b")
    schedule = host.schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179)]
    (place,) = schedule.allocations
    assert (place.issue_ns, place.grant_ns, place.free_ns) == (110, 179, 289)
    assert times(schedule)["b"] == (179, 289)
    assert schedule.stall.fault == 179 - 111


# --- offloads -----------------------------------------------------------------------------------------


def test_an_offload_hides_a_write_back_behind_other_work() -> None:
    """v goes while e runs, so w finds its place free.

    ::

        v:  in use  | back 110-179
        s0: a 0-110 | e 111-221 |               b 355-465
        w:                       222-355
    """
    drawn = graph(
        chain(vector("a", writes=("v",)), vector("e"), vector("b", reads=("w",))),
        managed("v", 64, Level.HBM),
        managed("w"),
    )
    host = Host(drawn, FAULTY, hbm_bytes=64, offloads=2, prefetches=0)
    assert host.offloadable == {"v": True}
    host.issue("a")
    assert host.offloadable == {}  # a holds it
    host.until(110)
    assert host.offloadable == {"v": True}
    host.offload("v")
    assert (host.now_ns, host.hbm_bytes, host.offloadable) == (110, 0, {})
    schedule = host.issue("e").issue("b").schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179), ("w", "fault", 222, 355)]
    assert times(schedule)["b"] == (355, 465)


def test_an_offload_of_what_is_clean_takes_no_time() -> None:
    host = Host(use_then_other(reads=("v",)), FAULTY, hbm_bytes=64, offloads=1, prefetches=0).offload("v")
    assert (host.now_ns, host.hbm_bytes) == (0, 0)
    schedule = host.issue("a").issue("b").schedule()
    assert moves(schedule)[:2] == [("v", "evict", 0, 0), ("v", "fault", 0, 133)]


def test_the_bound_does_not_count_on_what_need_not_end() -> None:
    """v takes 645 ns to the host, but b ends at 221."""
    drawn = graph(chain(vector("a", writes=("v",)), vector("b")), managed("v", 640, Level.HBM))
    host = Host(drawn, FAULTY, offloads=1).issue("a").until(110).offload("v")
    assert host.bound_ns <= 221
    schedule = host.issue("b").schedule()
    assert schedule.makespan_ns == 221
    assert moves(schedule)[0][:3] == ("v", "writeback", 110)


def test_the_bound_counts_what_has_to_come_back() -> None:
    """Two buffers of 640 bytes are sent away before their use: the link is busy for 1280 ns."""
    drawn = graph(
        (vector("a", reads=("v",)), vector("b", reads=("w",))),
        managed("v", 640, Level.HBM),
        managed("w", 640, Level.HBM),
    )
    host = Host(drawn, FAULTY, offloads=2)
    assert host.bound_ns == 110
    assert host.offload("v").bound_ns == 645 + 110
    assert host.offload("w").bound_ns == 1280
    assert host.issue("a", 0).issue("b", 1).schedule().makespan_ns >= 1280


def test_the_bound_does_not_count_on_what_will_be_written_whole() -> None:
    """v, 640 bytes on the host, never comes: a, queued behind p, writes all of it before b reads it.

    ::

        s0: p 0-110 | a 111-221 | b 222-332
    """
    drawn = graph((vector("p"), vector("a", writes=("v",)), vector("b", reads=("v",))), managed("v", 640))
    host = Host(drawn, FAULTY).issue("p").issue("a")
    assert host.bound_ns <= 332
    assert host.issue("b").schedule().makespan_ns == 332


def test_an_offload_call_takes_the_host_time() -> None:
    options = {"submission": Submission.EAGER, "offloads": 1, "prefetches": 0}
    host = Host(use_then_other(reads=("v",)), FAULTY, **options).offload("v").issue("a").issue("b")
    assert host.schedule().host[0] == HostCall("offload", 0, 0, 2)


def test_what_is_on_its_way_to_the_host_comes_back_only_after_that() -> None:
    """There is room for both, but v is needed again while it is written back.

    ::

        v:  in use  | back 110-179 | 179-312
        s0: a 0-110                        | b 312-422
    """
    drawn = graph(chain(vector("a", writes=("v",)), vector("b", reads=("v",))), managed("v", 64, Level.HBM))
    host = Host(drawn, FAULTY, offloads=1, prefetches=4).issue("a").until(110).offload("v")
    assert host.prefetchable == {}
    schedule = host.issue("b").schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179), ("v", "fault", 179, 312)]
    assert times(schedule)["b"] == (312, 422)


@pytest.mark.parametrize(
    ("buffer", "later_ns"), [(pageable("v", 64, Level.HBM), 179), (managed("v", 64, Level.HBM), 110)]
)
def test_a_pageable_buffer_keeps_the_host_until_it_is_written_back(buffer: Buffer, later_ns: int) -> None:
    drawn = graph(chain(vector("a", writes=("v",)), vector("b")), buffer)
    host = Host(drawn, FAULTY, offloads=1).issue("a").until(110).offload("v")
    assert host.now_ns == later_ns
    assert host.issue("b").times()["b"] == (max(later_ns, 111), max(later_ns, 111) + 110)


@pytest.mark.parametrize(("buffer", "later_ns"), [(pageable("w"), 69), (managed("w"), 0)])
def test_a_pageable_buffer_keeps_the_host_until_it_has_arrived(buffer: Buffer, later_ns: int) -> None:
    """The independent b starts that much later."""
    drawn = graph((vector("a", reads=("w",)), vector("b")), buffer)
    host = Host(drawn, FAULTY).prefetch("w")
    assert host.now_ns == later_ns
    assert host.issue("b", 0).issue("a", 1).times() == {"a": (69, 179), "b": (later_ns, later_ns + 110)}


# --- prefetches that wait -----------------------------------------------------------------------------


def test_a_prefetch_waits_for_space_that_is_written_back() -> None:
    """::

    v:  in use  | back 110-179 |
    w:                         | 179-248
    s0: a 0-110                         | b 248-358
    """
    host = Host(use_then_other(writes=("v",)), FAULTY, hbm_bytes=64).issue("a").until(110).prefetch("w")
    assert (host.hbm_bytes, host.prefetchable) == (64, {})
    schedule = host.until(248).issue("b").schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179), ("w", "prefetch", 179, 248)]
    assert times(schedule)["b"] == (248, 358)
    assert schedule.transfers[1].reserve_ns == 179


def test_a_head_turns_a_prefetch_that_waits_into_a_fault() -> None:
    """b comes to the front at 111 ns, while w has no space yet: it will come page by page."""
    host = Host(use_then_other(writes=("v",)), FAULTY, hbm_bytes=64).issue("a").until(110).prefetch("w")
    schedule = host.issue("b").schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179), ("w", "fault", 179, 312)]
    assert times(schedule)["b"] == (312, 422)


def test_space_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    """192 bytes: v takes 128. w is to take its place and asks first, so t waits though 64 bytes are free.

    ::

        v:  in use  | back 110-243 |
        w:                         | 243-...
        t:                         | 243-...
        s0: a 0-110 | c 111: waits for t
    """
    drawn = graph(
        (
            vector("a", writes=("v",)),
            vector("b", reads=("w",), after=("a",)),
            vector("c", reads=("t",), after=("a",)),
        ),
        managed("v", 128, Level.HBM),
        managed("w", 128),
        managed("t"),
    )
    host = Host(drawn, FAULTY, hbm_bytes=192).issue("a", 0).until(110).prefetch("w").issue("c", 0)
    schedule = host.issue("b", 1).schedule()
    assert [row[:3] for row in sorted(moves(schedule))] == [
        ("t", "fault", 243),
        ("v", "writeback", 110),
        ("w", "fault", 243),
    ]
    alone = Host(drawn, FAULTY, hbm_bytes=192).issue("a", 0).until(110).issue("c", 0).until(354)
    assert ("t", "fault", 111, 244) in moves(alone.issue("b", 0).schedule())


@pytest.mark.parametrize(
    ("lanes", "channels", "first", "second"),
    [(2, 2, (0, 133), (0, 133)), (1, 2, (0, 69), (69, 138)), (2, 1, (0, 69), (69, 138))],
)
def test_prefetches_move_at_once_where_lanes_and_channels_allow(
    lanes: int, channels: int, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Two at once share the link: 5 + 2 * 64 ns."""
    drawn = graph((vector("a", reads=("v",)), vector("b", reads=("w",))), managed("v"), managed("w"))
    device = toy_device(memory={"fault_ns": 64}, pools={"h2d": channels})
    host = Host(drawn, device, prefetch_streams=lanes).prefetch("v").prefetch("w").until(second[1])
    schedule = host.issue("a", 0).issue("b", 1).schedule()
    assert moves(schedule) == [("v", "prefetch", *first), ("w", "prefetch", *second)]


def test_a_free_mask_allows_what_does_harm() -> None:
    """Memory for one, and w0 is there. To fetch w1 first makes k0 fetch w0 back.

    ::

        w1: 0-69                       out 69
        w0: out 0                      69-202
        s0:                                  k0 202-312 | k1 446-556
    """
    drawn = graph(
        chain(vector("k0", reads=("w0",)), vector("k1", reads=("w1",))),
        managed("w0", 64, Level.HBM),
        managed("w1"),
    )
    assert Host(drawn, FAULTY, hbm_bytes=64).prefetchable == {"w1": False}
    host = Host(drawn, FAULTY, hbm_bytes=64, prefetch_mask=PrefetchMask.FREE)
    assert host.prefetchable == {"w1": True}
    host.prefetch("w1")
    assert host.prefetchable == {"w0": False}  # what is on its way cannot go
    schedule = host.issue("k0").issue("k1").schedule()
    assert moves(schedule) == [
        ("w0", "evict", 0, 0),
        ("w1", "prefetch", 0, 69),
        ("w1", "evict", 69, 69),
        ("w0", "fault", 69, 202),
        ("w0", "evict", 313, 313),
        ("w1", "fault", 313, 446),
    ]
    assert times(schedule) == {"k0": (202, 312), "k1": (446, 556)}


# --- one memory for host and device -------------------------------------------------------------------


def test_where_host_and_device_share_memory_nothing_moves() -> None:
    """v and w lie in it from the start to the end, x has a place while it is in use.

    ::

        s0: a 0-110 | b 111-221
        x:  0...............221
    """
    drawn = graph(
        (vector("a", reads=("w",), writes=("x", "v")), vector("b", reads=("x",))),
        managed("w"),
        managed("v", 64, Level.HBM),
        managed("x", 64, Level.ABSENT),
    )
    device = toy_device(memory={"host_shares_dram": True})
    host = Host(drawn, device, offloads=2)
    assert (host.prefetchable, host.offloadable, host.hbm_bytes) == ({}, {}, 128)
    assert host.issue("a").hbm_bytes == 192
    schedule = host.issue("b").schedule()
    assert (schedule.transfers, times(schedule)) == ((), {"a": (0, 110), "b": (111, 221)})
    assert [(row.buffer, row.address, row.free_ns) for row in schedule.allocations] == [(2, 128, 221)]
    assert host.hbm_bytes == 128
