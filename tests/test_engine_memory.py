"""Hand-computed episodes of device memory: reservation, migration on demand, prefetch, eviction, stalls.

On the device used here a page of 64 bytes takes 64 ns of link and 64 ns of fault, so a migration on demand
moves half a byte a nanosecond after 5 ns: a buffer of 64 bytes takes 133 ns. Prefetched, it takes 69.
"""

from __future__ import annotations

import pytest
from episodes import Host, moves, times
from toys import copy_in, managed, toy_device, toy_diamond, toy_squeeze, vector

from cann_env.engine import layout as at
from cann_env.graph import Buffer, Command, CommandGraph, Level
from cann_env.options import Submission
from cann_env.schedule import HostCall, Stall
from cann_env.units import MemoryAllocationError

FAULTY = toy_device(memory={"fault_ns": 64})


def graph(commands: tuple[Command, ...], buffers: tuple[Buffer, ...]) -> CommandGraph:
    return CommandGraph("drawn", commands, buffers)


def device_buffers(names: str, size_bytes: int = 64) -> tuple[Buffer, ...]:
    return tuple(Buffer(name=name, size_bytes=size_bytes) for name in names)


# --- device buffers -----------------------------------------------------------------------------------


def test_buffers_are_reserved_at_issue_and_freed_after_their_last_use() -> None:
    """x is read by b and c, so it goes when c ends; y and z go with d.

    ::

        s0: a 0-110 | b 111-221   | d 320-430
        s1:         c 110-320
        x:  0.................320
        y:  0.........................430
        z:  0.........................430
    """
    host = Host(toy_diamond()).issue("a", 0)
    assert host.hbm_bytes == 64
    host.issue("b", 0).issue("c", 1)
    assert (host.now_ns, host.hbm_bytes) == (0, 192)
    host.wait().wait()
    assert (host.now_ns, host.hbm_bytes) == (221, 192)
    host.wait()
    assert (host.now_ns, host.hbm_bytes) == (320, 128)
    schedule = host.issue("d", 0).schedule()
    assert times(schedule) == {"a": (0, 110), "b": (111, 221), "c": (110, 320), "d": (320, 430)}
    assert (schedule.peak_hbm_bytes, host.hbm_bytes) == (192, 0)


def test_issue_waits_for_memory() -> None:
    """Room for two of x, y, z: c, which writes z, may be issued once b is done and x is gone.

    ::

        s0: a 0-110 | b 111-221 | c 222-332 | d 333-443
        x:  0...............221
        y:  0........................332
        z:                    221.........443
    """
    chain = (
        vector("a", writes=("x",)),
        vector("b", reads=("x",), writes=("y",)),
        vector("c", reads=("y",), writes=("z",)),
        vector("d", reads=("z",)),
    )
    host = Host(graph(chain, device_buffers("xyz")), hbm_bytes=128).issue("a").issue("b")
    assert (host.now_ns, host.window) == (221, ["c"])  # all waits until then were forced
    schedule = host.issue("c").issue("d").schedule()
    assert times(schedule)["c"] == (222, 332)
    assert schedule.peak_hbm_bytes == 128


def two_chains() -> CommandGraph:
    """``a -> b`` and ``c -> d``: each writes a buffer, reads it and writes another."""
    commands = (
        vector("a", writes=("w",)),
        vector("b", reads=("w",), writes=("x",)),
        vector("c", writes=("y",)),
        vector("d", reads=("y",), writes=("z",)),
    )
    return graph(commands, device_buffers("wxyz"))


def test_the_banker_forbids_what_could_end_in_a_deadlock() -> None:
    """Room for two: with w and y both there neither b nor d could ever start, so c must wait for b.

    ::

        s0: a 0-110 | b 111-221 | c 222-332 | d 333-443
    """
    host = Host(two_chains(), hbm_bytes=128).issue("a", 0)
    assert (host.streams("b"), host.streams("c")) == ([0, 1], [])
    host.issue("b", 0)
    assert (host.now_ns, host.window) == (221, ["c"])
    assert host.issue("c", 0).issue("d", 0).times()["d"] == (333, 443)


def test_with_room_for_three_the_banker_lets_them_overlap() -> None:
    host = Host(two_chains(), hbm_bytes=192).issue("a", 0)
    assert host.streams("c") == [0, 1]
    host.issue("c", 1)
    assert (host.streams("b"), host.streams("d")) == ([0, 1, 2], [0, 1, 2])
    host.issue("b", 0)
    assert host.now_ns == 221  # d had to wait for w
    assert host.issue("d", 0).times()["d"] == (222, 332)


def test_buffers_take_whole_allocation_units() -> None:
    drawn = graph((vector("a", writes=("x",)), vector("b", reads=("x",))), device_buffers("x", 65))
    assert Host(drawn).issue("a").hbm_bytes == 128


def test_what_never_fits_is_refused() -> None:
    drawn = graph((vector("a", writes=("x", "y")),), device_buffers("xy"))
    words = r"207001.*command 'a' requested 128 bytes.*127 bytes are free.*free block has 127"
    with pytest.raises(MemoryAllocationError, match=words):
        Host(drawn, hbm_bytes=127)


def test_the_banker_counts_on_all_that_is_in_flight() -> None:
    """Room for four, x and y are there. Once a and b have freed them, d has room for its four beside nothing.

    So c may go ahead with z: a, b and c will be through before d, which the graph runs last.
    """
    drawn = graph(
        (
            vector("p", writes=("x",)),
            vector("q", writes=("y",)),
            vector("a", reads=("x",)),
            vector("b", reads=("y",)),
            vector("c", writes=("z",)),
            vector("d", after=("c",), writes=("r", "s", "t", "u")),
        ),
        device_buffers("xyzrstu"),
    )
    host = Host(drawn, hbm_bytes=256).issue("p", 0).issue("q", 1).issue("a", 0).issue("b", 1)
    assert host.streams("c") == [0, 1, 2]
    assert host.issue("c", 2).now_ns == 221  # d has to wait for a and b
    assert host.issue("d", 0).schedule().peak_hbm_bytes == 256


def test_the_banker_counts_on_what_is_written_back() -> None:
    """Room for four. d keeps z there for long; c, which alone frees x and y, stands behind b, which reads w.

    While a uses v there are v, x, y and z, and w has no place. But v, once written, can go back to the host,
    so d may go ahead.

    ::

        v:  in use                 | back 510-579
        w:                                       | 579-712
        s0: p 0-110 | d 111-1121
        s1: a 0 ------------ 510 |
        s2:                                                b 712-822 | c 823-933
    """
    drawn = graph(
        (
            vector("p", writes=("x", "y")),
            vector("a", 500, writes=("v",)),
            vector("b", after=("p",), reads=("w",)),
            vector("c", reads=("x", "y")),
            vector("d", 1000, after=("p",), writes=("z",)),
        ),
        (managed("v", level=Level.HBM), managed("w"), *device_buffers("xyz")),
    )
    host = Host(drawn, FAULTY, hbm_bytes=256).issue("p", 0).issue("a", 1).issue("d", 0).issue("b", 2)
    schedule = host.issue("c", 2).schedule()
    assert moves(schedule) == [("v", "writeback", 510, 579), ("w", "fault", 579, 712)]
    assert times(schedule)["c"] == (823, 933)


def test_the_banker_counts_what_is_there_before_its_turn() -> None:
    """Room for three. In program order x and w are there, then y and z; so y may come early, but not z too.

    With y and z there is no place for both x and w, and who would free y and z runs only after them.
    """
    drawn = graph(
        (
            vector("a", writes=("x",)),
            vector("b", reads=("x", "w")),
            vector("c", writes=("y",)),
            vector("d", writes=("z",)),
            vector("e", after=("b",), reads=("y", "z")),
        ),
        (managed("w"), *device_buffers("xyz")),
    )
    host = Host(drawn, FAULTY, hbm_bytes=192).issue("c", 0)
    assert (host.window, host.streams("a"), host.streams("d")) == (["a", "d"], [0, 1], [])
    host.issue("a", 0).issue("b", 0)
    assert host.streams("d") == []
    assert host.until(465).streams("d") == [0]
    assert host.issue("d", 0).issue("e", 0).schedule().peak_hbm_bytes == 192


# --- migration ----------------------------------------------------------------------------------------


def test_a_missing_operand_migrates_when_its_command_comes_to_the_front() -> None:
    """::

    w0: 0-133             w1: 244-377
    s0:       k0 133-243 |            k1 377-487
    """
    schedule = Host(toy_squeeze(2), FAULTY).issue("k0").issue("k1").schedule()
    assert moves(schedule) == [("w0", "fault", 0, 133), ("w1", "fault", 244, 377)]
    assert times(schedule) == {"k0": (133, 243), "k1": (377, 487)}
    assert schedule.stall == Stall(0, 133 + 133, 0, 0, 0)


def test_a_larger_fault_group_is_faster() -> None:
    """Two pages a fault: 128 bytes in 64 + 128 ns, so 2/3 byte a ns; 128 bytes take 5 + 192 (193 rounded)."""
    device = toy_device(memory={"fault_ns": 64, "fault_group_pages": 2})
    schedule = Host(toy_squeeze(1, 128), device).issue("k0").schedule()
    assert moves(schedule) == [("w0", "fault", 0, 198)]


def test_prefetches_move_one_after_another_while_kernels_run() -> None:
    """::

    w0: 0-69 | w1: 69-138
    s0:      | k0 69-179 | k1 180-290
    """
    host = Host(toy_squeeze(2), FAULTY).prefetch("w0").prefetch("w1").issue("k0").issue("k1")
    schedule = host.schedule()
    assert moves(schedule) == [("w0", "prefetch", 0, 69), ("w1", "prefetch", 69, 138)]
    assert times(schedule) == {"k0": (69, 179), "k1": (180, 290)}
    assert [row.reserve_ns for row in schedule.transfers] == [0, 0]


def test_a_prefetch_call_takes_the_host_time() -> None:
    """2 ns; the buffer sets out at once."""
    schedule = Host(toy_squeeze(1), FAULTY, submission=Submission.EAGER).prefetch("w0").issue("k0").schedule()
    assert schedule.host == (HostCall("prefetch", 0, 0, 2), HostCall("issue", 0, 2, 7))
    assert moves(schedule) == [("w0", "prefetch", 0, 69)]


def test_a_prefetch_takes_a_channel_and_a_fault_none() -> None:
    """One h2d channel: the copy waits for the prefetch, but shares its link with a migration on demand.

    With k at 0 ns, w moves at its cap of 0.5 and the copy takes the other 0.5: both need 128 ns.
    """
    drawn = graph((copy_in("c"), vector("k", reads=("w",))), (managed("w"),))
    prefetched = Host(drawn, FAULTY).prefetch("w").issue("c", 0).issue("k", 1)
    assert prefetched.times() == {"c": (69, 138), "k": (69, 179)}
    on_demand = Host(drawn, FAULTY).issue("c", 0).issue("k", 1)
    assert on_demand.times() == {"c": (0, 133), "k": (133, 243)}


def test_a_head_overtakes_the_prefetch_queue() -> None:
    """w1 stands behind the long w0; k1 comes to the front at 0 ns and fetches it on demand.

    Half a byte a ns each until w1 is there at 133 ns; w0 has 576 of 640 bytes left then, at full speed.

    ::

        w0: 0-709 (prefetch)
        w1: 0-133 (fault)
        s0:      k1 133-243
        s1:                   k0 709-819
    """
    drawn = graph(
        (vector("k0", reads=("w0",)), vector("k1", reads=("w1",))), (managed("w0", 640), managed("w1"))
    )
    host = Host(drawn, FAULTY).prefetch("w0").prefetch("w1").issue("k1", 0).issue("k0", 1)
    schedule = host.schedule()
    assert moves(schedule) == [("w1", "fault", 0, 133), ("w0", "prefetch", 0, 709)]
    assert times(schedule) == {"k0": (709, 819), "k1": (133, 243)}


def test_a_head_overtakes_from_any_place_of_the_queue() -> None:
    """w2 leaves the queue from between w1 and w3, which then move one after the other."""
    drawn = graph(
        tuple(vector(f"k{i}", reads=(f"w{i}",)) for i in range(4)), tuple(managed(f"w{i}") for i in range(4))
    )
    host = Host(drawn, FAULTY).prefetch("w0").prefetch("w1").prefetch("w2").prefetch("w3")
    schedule = host.issue("k2").issue("k1").issue("k0").issue("k3").schedule()
    assert moves(schedule) == [
        ("w0", "prefetch", 0, 133),
        ("w2", "fault", 0, 133),
        ("w1", "prefetch", 133, 202),
        ("w3", "prefetch", 202, 271),
    ]


def test_a_device_without_prefetch_offers_none() -> None:
    device = toy_device(memory={"managed_prefetch": False})
    assert Host(toy_squeeze(2), device).prefetchable == {}


def test_the_prefetch_window_holds_the_most_urgent_absent_buffers() -> None:
    """w2 is there already; of the other three the two whose users have the longest tails."""
    squeeze = toy_squeeze(4)
    buffers = tuple(managed(f"w{i}", level=Level.HBM if i == 2 else Level.HOST) for i in range(4))
    host = Host(graph(squeeze.commands, buffers), prefetches=2)
    assert list(host.prefetchable) == ["w0", "w1"]
    assert list(host.prefetch("w0").prefetchable) == ["w1", "w3"]


# --- eviction -----------------------------------------------------------------------------------------


def test_a_prefetch_evicts_nothing_that_is_needed_sooner() -> None:
    """Room for two. w2 may come once k0, the only user of w0, is done; w0 makes room for it.

    ::

        w0: 0-69        out 179
        w1:  69-138
        w2:                 179-248
        s0: k0 69-179 | k1 180-290 | k2 291-401
    """
    host = Host(toy_squeeze(3), FAULTY, hbm_bytes=128).prefetch("w0").prefetch("w1").issue("k0")
    assert host.prefetchable == {"w2": False}
    host.wait().wait()
    assert (host.now_ns, host.prefetchable) == (138, {"w2": False})  # k0 is still using w0
    host.wait()
    assert (host.now_ns, host.prefetchable) == (179, {"w2": True})
    schedule = host.prefetch("w2").issue("k1").issue("k2").schedule()
    assert moves(schedule) == [
        ("w0", "prefetch", 0, 69),
        ("w1", "prefetch", 69, 138),
        ("w0", "evict", 179, 179),
        ("w2", "prefetch", 179, 248),
    ]
    assert times(schedule) == {"k0": (69, 179), "k1": (180, 290), "k2": (291, 401)}


def test_a_prefetch_may_evict_what_is_needed_later() -> None:
    """Room for one, and w1 is there: w0 is needed sooner and may take its place, w2 may not."""
    host = Host(toy_squeeze(3), FAULTY, hbm_bytes=64).prefetch("w1").wait()
    assert (host.now_ns, host.prefetchable) == (69, {"w0": True, "w2": False})


def test_what_is_still_on_its_way_is_not_evicted() -> None:
    host = Host(toy_squeeze(3), FAULTY, hbm_bytes=64).prefetch("w1")
    assert host.prefetchable == {"w0": False, "w2": False}


def test_a_fault_evicts_what_is_needed_furthest_in_the_future() -> None:
    """Room for two, and w1 and w2 are there: w2, needed last, makes room for w0 and comes back later.

    ::

        w0: 0-133                             out 355
        w2: out 0                             355-488
        s0:      k0 133-243 | k1 244-354 |            k2 488-598
    """
    squeeze = toy_squeeze(3)
    buffers = tuple(managed(f"w{i}", level=Level.HBM if i else Level.HOST) for i in range(3))
    host = Host(graph(squeeze.commands, buffers), FAULTY, hbm_bytes=128).issue("k0").issue("k1").issue("k2")
    schedule = host.schedule()
    assert moves(schedule) == [
        ("w2", "evict", 0, 0),
        ("w0", "fault", 0, 133),
        ("w0", "evict", 355, 355),
        ("w2", "fault", 355, 488),
    ]
    assert times(schedule) == {"k0": (133, 243), "k1": (244, 354), "k2": (488, 598)}


def test_an_allocation_evicts_too() -> None:
    """b's output takes the place of w, which nobody needs any more.

    ::

        s0: a 0-110 | b 111-221
        w:  in use    out when b is issued at 110
    """
    drawn = graph(
        (vector("a", reads=("w",)), vector("b", writes=("x",))),
        (managed("w", level=Level.HBM), *device_buffers("x")),
    )
    host = Host(drawn, FAULTY, hbm_bytes=64)
    assert host.issue("a").now_ns == 110
    schedule = host.issue("b").schedule()
    assert moves(schedule) == [("w", "evict", 110, 110)]
    assert times(schedule)["b"] == (111, 221)


def test_what_was_written_stays() -> None:
    """v is dirty after a, so only w can make room for b's x; c then fetches it again.

    ::

        s0: a 0-110 | b 111-221 |            c 355-465
        v:  in use    stays
        w:  out 0                   222-355
    """
    drawn = graph(
        (
            vector("a", writes=("v",)),
            vector("b", reads=("v",), writes=("x",)),
            vector("c", reads=("w",), after=("b",)),
        ),
        (managed("v", level=Level.HBM), managed("w", level=Level.HBM), *device_buffers("x")),
    )
    schedule = Host(drawn, FAULTY, hbm_bytes=128).issue("a").issue("b").issue("c").schedule()
    assert moves(schedule) == [("w", "evict", 0, 0), ("w", "fault", 222, 355)]
    assert times(schedule)["c"] == (355, 465)


def test_a_head_claims_all_its_operands_or_holds_none() -> None:
    """Room for three. a claims its two, which share the link; b finds room for one only and takes none.

    ::

        w0, w1: 0-133        out 243
        w2, w3:                  243-376
        s0:    a 133-243
        s1:                             b 376-486
    """
    drawn = graph(
        (vector("a", reads=("w0", "w1")), vector("b", reads=("w2", "w3"))),
        tuple(managed(f"w{i}") for i in range(4)),
    )
    schedule = Host(drawn, FAULTY, hbm_bytes=192).issue("a", 0).issue("b", 1).schedule()
    assert moves(schedule) == [
        ("w0", "fault", 0, 133),
        ("w1", "fault", 0, 133),
        ("w0", "evict", 243, 243),
        ("w2", "fault", 243, 376),
        ("w3", "fault", 243, 376),
    ]
    assert times(schedule) == {"a": (133, 243), "b": (376, 486)}
    assert schedule.peak_hbm_bytes == 192


def test_a_head_does_not_make_room_with_its_own_operands() -> None:
    """Room for two: v, which b needs beside w, is all that could go while a holds t, so b has to wait for a.

    ::

        t: in use    out 110
        w:           110-243
        s0: a 0-110
        s1:                  b 243-353
    """
    drawn = graph(
        (vector("a", reads=("t",)), vector("b", reads=("v", "w"))),
        (managed("t", level=Level.HBM), managed("v", level=Level.HBM), managed("w")),
    )
    schedule = Host(drawn, FAULTY, hbm_bytes=128).issue("a", 0).issue("b", 1).schedule()
    assert moves(schedule) == [("t", "evict", 110, 110), ("w", "fault", 110, 243)]
    assert times(schedule)["b"] == (243, 353)


# --- stalls -------------------------------------------------------------------------------------------


def test_a_head_is_charged_for_what_it_lacks_at_each_moment() -> None:
    """k waits for w until 133 ns, then for the cores that a holds until 210.

    ::

        s0: a 0-210
        s1: k  fault 0-133, cores 133-210, runs 210-320
    """
    drawn = graph((vector("a", 200, blocks=4), vector("k", reads=("w",))), (managed("w"),))
    schedule = Host(drawn, FAULTY).issue("a", 0).issue("k", 1).schedule()
    assert times(schedule)["k"] == (210, 320)
    assert schedule.stall == Stall(0, 133, 0, 77, 0)


def test_waiting_for_an_event_is_charged_from_when_the_stream_is_there() -> None:
    """b stands at the front of s1 from 0 ns and may start at 110."""
    drawn = graph((vector("a"), vector("b", after=("a",))), ())
    assert Host(drawn).issue("a", 0).issue("b", 1).schedule().stall == Stall(110, 0, 0, 0, 0)


def test_waiting_in_a_queue_is_charged_to_nobody() -> None:
    drawn = graph((vector("a"), vector("b", after=("a",))), ())
    assert Host(drawn).issue("a", 0).issue("b", 0).schedule().stall == Stall(0, 0, 0, 0, 0)


def test_a_graph_that_fits_only_when_it_frees_early_is_accepted() -> None:
    """In program order x and y live together (6464 bytes); a, ra, b, rb needs 3264 at most.

    ::

        a --x--> ra
        '-> b --y--> rb
    """
    drawn = CommandGraph(
        "frugal",
        (
            vector("a", writes=("x",)),
            vector("b", writes=("y",), after=("a",)),
            vector("ra", reads=("x",)),
            vector("rb", reads=("y",)),
        ),
        (Buffer(name="x", size_bytes=3264), Buffer(name="y", size_bytes=3200)),
    )
    host = Host(drawn, hbm_bytes=6400).issue("a", 0)
    assert host.streams("b") == []
    assert host.issue("ra", 0).issue("b", 0).issue("rb", 0).times()["b"][0] >= 221  # after x is freed


def test_the_bound_counts_what_waits_in_the_prefetch_queue() -> None:
    """v waits behind u: it needs 645 ns at the least, then b 110; the link alone would be done at 704."""
    drawn = CommandGraph(
        "queue",
        (vector("b", reads=("v",)), vector("c", reads=("u",))),
        (managed("u", 64), managed("v", 640)),
    )
    assert Host(drawn).prefetch("u").prefetch("v").bound_ns == 645 + 110


def test_every_pin_is_taken_back() -> None:
    """A command that claims w pins no device buffer, and nothing is pinned when all is done."""
    drawn = CommandGraph(
        "pins",
        (vector("a", reads=("w",), writes=("x",)), vector("b", reads=("w", "x"))),
        (managed("w"), Buffer(name="x", size_bytes=64)),
    )
    host = Host(drawn).issue("a", 0).issue("b", 0)
    first = int(host.program.image[at.P_STATE_BUFFER])
    pins = host.state[first : first + 2 * at.SB_WIDTH].reshape(2, at.SB_WIDTH)[:, at.SB_PINS]
    assert pins.tolist() == [0, 0]
