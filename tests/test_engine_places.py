"""Hand-computed places of device buffers: best fit, rounding, holes, pools, reuse, and the banker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from episodes import Host, times
from toys import managed, toy_device, vector

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import Allocator, Submission
from cann_env.schedule import EventWait
from cann_env.units import MemoryAllocationError

if TYPE_CHECKING:
    from typing import Any

    from cann_env.graph import Command
    from cann_env.schedule import Schedule

LATE = toy_device(dispatch={"record_ns": 2, "wait_ns": 3, "wake_ns": 7})


def graph(commands: tuple[Command, ...], sizes: dict[str, int], *others: Buffer) -> CommandGraph:
    """A graph over device buffers of some sizes, and others."""
    buffers = tuple(Buffer(name=name, size_bytes=size) for name, size in sizes.items())
    return CommandGraph("places", commands, (*buffers, *others))


def places(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """Address and size of each device buffer."""
    names = [buffer.name for buffer in schedule.graph.buffers]
    return {names[row.buffer]: (row.address, row.size_bytes) for row in schedule.allocations}


# --- sizes and addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"allocator": Allocator.MALLOC}, [64, 64, 128, 576, 1152]),
        ({"allocator": Allocator.POOL}, [64, 64, 128, 640, 1280]),  # 4, 5, 6 or 7 times a power of two
        ({"allocator": Allocator.POOL, "pool_block_bytes": 256}, [256, 256, 256, 768, 1280]),
    ],
)
def test_the_allocator_rounds_sizes(options: dict[str, Any], sizes: list[int]) -> None:
    """One kernel writes buffers of 1, 64, 65, 576 and 1100 bytes, which lie one above the other."""
    asked = {"a": 1, "b": 64, "c": 65, "d": 576, "e": 1100}
    host = Host(graph((vector("k", writes=tuple(asked)), vector("end", after=("k",))), asked), **options)
    host.issue("k")
    assert host.hbm_bytes == sum(sizes)
    schedule = host.issue("end").schedule()
    assert list(places(schedule).values()) == [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    assert (schedule.peak_hbm_bytes, host.hbm_bytes) == (sum(sizes), 0)


def test_the_least_block_of_the_pool() -> None:
    device = toy_device(memory={"pool_min_block_bytes": 512})
    drawn = graph((vector("k", writes=("a", "b")),), {"a": 1, "b": 520})
    assert places(Host(drawn, device).issue("k").schedule()) == {"a": (0, 512), "b": (512, 640)}


def test_the_smallest_hole_that_fits_is_taken() -> None:
    """a and c are gone after 110 ns. e fits c's hole exactly; f and g go into that of a, the smaller one.

    ::

        at 110:  a 0-256 | B 256-384 | c 384-576 | D 576-640 | free 640-1024      (small letters: holes)
        then:    F 0-128, G 128-256  |  E 384-576
    """
    commands = (
        *(vector(f"w{name}", writes=(name,)) for name in "abcdefg"),
        vector("end", reads=("b", "d"), after=("wa", "wc")),
    )
    sizes = {"a": 256, "b": 128, "c": 192, "d": 64, "e": 192, "f": 128, "g": 128}
    host = Host(graph(commands, sizes), hbm_bytes=1024)
    host.issue("wa", 0).issue("wb", 1).issue("wc", 2).issue("wd", 3).until(110)
    schedule = host.issue("we", 0).issue("wf", 1).issue("wg", 2).issue("end", 3).schedule()
    assert places(schedule) == {
        "a": (0, 256),
        "b": (256, 128),
        "c": (384, 192),
        "d": (576, 64),
        "e": (384, 192),
        "f": (0, 128),
        "g": (128, 128),
    }


def test_where_all_have_room_at_once_nobody_waits_for_a_place() -> None:
    """Of 320 bytes each buffer has its own 64, and with a byte less e goes where a was, ordered behind it."""
    commands = (*(vector(f"w{name}", writes=(name,)) for name in "abcde"), vector("end", reads=("b", "d")))
    drawn = graph(commands, dict.fromkeys("abcde", 64))
    for hbm_bytes, place, waits in ((320, 256, 0), (319, 0, 1)):
        host = Host(drawn, LATE, hbm_bytes=hbm_bytes)
        host.issue("wa", 0).issue("wb", 1).issue("wc", 2).issue("wd", 3).until(110)
        schedule = host.issue("end", 0).issue("we", 1).schedule()
        assert places(schedule)["e"] == (place, 64)
        assert sum(wait.consumer == drawn.command_index["we"] for wait in schedule.waits) == waits


def test_among_equal_holes_the_lowest_is_taken() -> None:
    """a and c leave holes of 64 bytes on either side of b."""
    commands = (*(vector(f"w{name}", writes=(name,)) for name in "abcde"), vector("end", reads=("b", "d")))
    host = Host(graph(commands, dict.fromkeys("abcde", 64)), hbm_bytes=256)
    host.issue("wa", 0).issue("wb", 1).issue("wc", 2).issue("wd", 3).until(110)
    assert places(host.issue("we", 0).issue("end", 1).schedule())["e"] == (0, 64)


def test_what_is_there_from_the_start_lies_at_the_bottom() -> None:
    """r and t in order of index, rounded to 128 and 64; the rest above. Managed memory has no address."""
    resident = (
        Buffer(name="r", size_bytes=100, level=Level.HBM),
        managed("m", 256, Level.HBM),
        Buffer(name="t", size_bytes=64, level=Level.HBM),
    )
    drawn = graph((vector("k", reads=("r", "m", "t"), writes=("x",)),), {"x": 64}, *resident)
    host = Host(drawn)
    assert host.hbm_bytes == 128 + 256 + 64
    assert places(host.issue("k").schedule()) == {"x": (192, 64)}
    assert host.hbm_bytes == 128 + 256 + 64


def test_a_hole_that_is_too_small_makes_an_issue_wait() -> None:
    """Of 256 bytes 128 are free from 110 ns on, but in two pieces, until b is gone at 221.

    ::

        at 110:  a 0-64 | B 64-128 | c 128-192 | D 192-256
        at 221:  free 0-192                    | D
        then:    E 0-128
    """
    commands = (
        *(vector(f"w{name}", writes=(name,)) for name in "abcd"),
        vector("rb", reads=("b",)),
        vector("we", writes=("e",)),
        vector("end", reads=("d", "e")),
    )
    drawn = graph(commands, {**dict.fromkeys("abcd", 64), "e": 128})
    host = Host(drawn, hbm_bytes=256).issue("wa", 0).issue("wb", 1).issue("wc", 2).issue("wd", 3).until(110)
    assert (host.hbm_bytes, host.streams("rb"), host.streams("we")) == (128, [0], [])
    host.issue("rb", 0)
    assert (host.now_ns, host.hbm_bytes, host.streams("we")) == (221, 64, [0])
    assert places(host.issue("we", 0).issue("end", 0).schedule())["e"] == (0, 128)


# --- pools --------------------------------------------------------------------------------------------


def test_a_pool_is_reserved_beforehand() -> None:
    """Above r, which is resident: 256 bytes, however few of them are in use."""
    drawn = graph(
        (vector("k", reads=("r",), writes=("x",)), vector("l", reads=("x",), writes=("y",)), vector("m")),
        {"x": 64, "y": 64},
        Buffer(name="r", size_bytes=64, level=Level.HBM),
    )
    host = Host(drawn, pool_bytes=256)
    assert host.hbm_bytes == 64 + 256
    assert host.issue("k").issue("l").hbm_bytes == 64 + 256
    schedule = host.issue("m").schedule()
    assert places(schedule) == {"x": (64, 64), "y": (128, 64)}
    assert (schedule.peak_hbm_bytes, host.hbm_bytes) == (64 + 256, 64 + 256)


def test_all_of_a_pool_can_be_used_above_what_is_resident() -> None:
    drawn = graph(
        (vector("k", reads=("r",), writes=("x",)),),
        {"x": 256},
        Buffer(name="r", size_bytes=64, level=Level.HBM),
    )
    assert places(Host(drawn, pool_bytes=256).issue("k").schedule()) == {"x": (64, 256)}


def test_device_buffers_must_fit_into_the_pool() -> None:
    """There is memory enough beside it; y takes its turn when x is gone."""
    drawn = graph((vector("k", writes=("x",)), vector("l", writes=("y",))), {"x": 128, "y": 64})
    host = Host(drawn, hbm_bytes=640, pool_bytes=128).issue("k")
    assert host.issue("l").times()["l"] == (111, 221)
    with pytest.raises(MemoryAllocationError, match=r"'k' requested 128 bytes.*64 bytes are free"):
        Host(drawn, hbm_bytes=640, pool_bytes=64)


def test_managed_memory_cannot_use_the_pool() -> None:
    """192 bytes, 64 of them a pool: v and w do not fit together, though the pool is empty."""
    drawn = graph(
        (vector("k", reads=("v",)), vector("l", reads=("w",), after=("k",)), vector("m", writes=("x",))),
        {"x": 64},
        managed("v", 128, Level.HBM),
        managed("w", 64),
    )
    assert Host(drawn, hbm_bytes=192, pool_bytes=64).prefetchable == {"w": False}
    assert Host(drawn, hbm_bytes=192).prefetchable == {"w": True}


# --- reuse --------------------------------------------------------------------------------------------


def tenants() -> CommandGraph:
    """a writes x, which nobody reads; k follows on its stream; b writes y, in the same place."""
    commands = (vector("a", writes=("x",)), vector("k", 300, after=("a",)), vector("b", writes=("y",)))
    return graph(commands, {"x": 64, "y": 64})


def test_the_next_tenant_on_another_stream_waits_for_an_event() -> None:
    """a's event is recorded at 112, so b's stream, which came to it at 110, wakes at 119.

    ::

        s0: a 0-110 | (record 112) | k ...
        s1:                 b 119-229
    """
    host = Host(tenants(), LATE, hbm_bytes=64).issue("a", 0).issue("k", 0)
    assert host.now_ns == 110
    schedule = host.issue("b", 1).schedule()
    assert places(schedule) == {"x": (0, 64), "y": (0, 64)}
    assert schedule.waits == (EventWait(0, 2),)
    assert times(schedule)["b"] == (119, 229)
    assert schedule.stall.event == 9


def test_an_event_that_is_there_already_takes_the_time_of_a_wait() -> None:
    """b is issued at 421, when k is done and l follows it: 3 ns."""
    drawn = graph((*tenants().commands, vector("l", after=("k",))), {"x": 64, "y": 64})
    host = Host(drawn, LATE, hbm_bytes=64).issue("a", 0).issue("k", 0).until(421).issue("l", 0)
    schedule = host.issue("b", 1).schedule()
    assert schedule.waits == (EventWait(0, 2),)
    assert times(schedule)["b"] == (424, 534)


def test_on_the_same_stream_nobody_waits() -> None:
    """The one event is k's, for a; b follows its record at 112 and the gap."""
    schedule = Host(tenants(), LATE, hbm_bytes=64).issue("a", 0).issue("k", 1).issue("b", 0).schedule()
    assert places(schedule) == {"x": (0, 64), "y": (0, 64)}
    assert schedule.waits == (EventWait(0, 1),)
    assert times(schedule)["b"] == (113, 223)


def test_where_the_host_waits_for_memory_the_device_does_not() -> None:
    """Eager: the host has seen a end before it gives its memory away."""
    options = {"hbm_bytes": 64, "submission": Submission.EAGER}
    schedule = Host(tenants(), LATE, **options).issue("a", 0).issue("k", 0).issue("b", 1).schedule()
    assert schedule.waits == ()
    issued = next(row for row in schedule.commands if row.command == 2)
    assert issued.start_ns == issued.issue_ns > 110


def test_who_is_ordered_behind_the_former_tenant_needs_no_event_for_it() -> None:
    """b waits for k, which runs behind a."""
    drawn = graph(
        (vector("a", writes=("x",)), vector("k", after=("a",)), vector("b", writes=("y",), after=("k",))),
        {"x": 64, "y": 64},
    )
    host = Host(drawn, hbm_bytes=64).issue("a", 0).issue("k", 0).issue("b", 1)
    assert host.schedule().waits == (EventWait(1, 2),)


@pytest.mark.parametrize(("size_bytes", "waits"), [(64, [0]), (128, [0, 1])])
def test_a_tenant_waits_for_those_who_used_its_own_bytes(size_bytes: int, waits: list[int]) -> None:
    """a used 0-64 on s0, b 64-128 on s1; c on s2 takes the low end, or both."""
    drawn = graph(
        (
            vector("a", writes=("x",)),
            vector("b", writes=("y",)),
            vector("ka", 300, after=("a",)),
            vector("kb", 300, after=("b",)),
            vector("c", writes=("z",)),
        ),
        {"x": 64, "y": 64, "z": size_bytes},
    )
    host = Host(drawn, hbm_bytes=128).issue("a", 0).issue("b", 1).issue("ka", 0).issue("kb", 1).until(110)
    schedule = host.issue("c", 2).schedule()
    assert places(schedule)["z"] == (0, size_bytes)
    assert schedule.waits == tuple(EventWait(producer, 4) for producer in waits)


def test_a_reader_is_a_tenant_too() -> None:
    """x is written on s0 and read last on s1, so y on s2 waits for the reader there."""
    drawn = graph(
        (
            vector("a", writes=("x",)),
            vector("r", reads=("x",)),
            vector("ka", 900, after=("a",)),
            vector("kr", 900, after=("r",)),
            vector("b", writes=("y",)),
        ),
        {"x": 64, "y": 64},
    )
    host = Host(drawn, hbm_bytes=64).issue("a", 0).issue("r", 1).issue("ka", 0).issue("kr", 1)
    schedule = host.issue("b", 2).schedule()
    assert EventWait(1, 4) in schedule.waits
    assert times(schedule)["b"] == (220, 330)


# --- what cannot be placed ----------------------------------------------------------------------------


def scattered() -> CommandGraph:
    """One by one: a, b, c, d; then a and c go; then e, twice as large, while b and d stay."""
    names = ("wa", "wb", "wc", "wd", "ra", "rc", "we", "end")
    uses: dict[str, dict[str, tuple[str, ...]]] = {
        **{f"w{name}": {"writes": (name,)} for name in "abcde"},
        **{f"r{name}": {"reads": (name,)} for name in "ac"},
        "end": {"reads": ("b", "d", "e")},
    }
    commands = tuple(
        vector(name, after=(names[i - 1],) if i else (), **uses[name]) for i, name in enumerate(names)
    )
    return graph(commands, {**dict.fromkeys("abcd", 64), "e": 128})


def test_the_error_tells_free_bytes_from_the_largest_free_block() -> None:
    """256 bytes: b at 64 and d at 192 leave 128 in two pieces of 64."""
    words = (
        r"207001.*command 'we' requested 128 bytes \(128 B\), 128 bytes are free, "
        r"the largest free block has 64; toy has 256 bytes"
    )
    with pytest.raises(MemoryAllocationError, match=words) as caught:
        Host(scattered(), hbm_bytes=256)
    assert caught.value.code == 207001
    with pytest.raises(MemoryAllocationError, match="192 bytes are free, the largest free block has 64"):
        Host(scattered(), hbm_bytes=320)
    assert Host(scattered(), hbm_bytes=384).window == ["wa"]


def split() -> CommandGraph:
    """q, three times as large as x and p, is written when x is gone and p still needed."""
    commands = (
        vector("wx", writes=("x",)),
        vector("rx", reads=("x",)),
        vector("wp", writes=("p",)),
        vector("wq", writes=("q",), after=("rx", "wp")),
        vector("end", reads=("p", "q")),
    )
    return graph(commands, {"x": 64, "p": 64, "q": 192})


def test_the_banker_forbids_a_place_in_the_way_of_what_follows() -> None:
    """By bytes p fits beside x, and later q beside p. But at 64 it would leave no 192 in a row.

    ::

        x: 0-64             until 221
        p:        (64-128)  0-64 from 221
        q:                           64-256
    """
    host = Host(split(), hbm_bytes=256).issue("wx", 0)
    assert (host.window, host.streams("wp")) == (["rx", "wp"], [])
    assert host.issue("rx", 0).now_ns == 221
    schedule = host.issue("wp", 0).issue("wq", 0).issue("end", 0).schedule()
    assert places(schedule) == {"x": (0, 64), "p": (0, 64), "q": (64, 192)}


def test_with_64_bytes_more_it_is_not_in_the_way() -> None:
    host = Host(split(), hbm_bytes=320).issue("wx", 0)
    assert host.streams("wp") == [0, 1]
    schedule = host.issue("wp", 1).issue("rx", 0).issue("wq", 0).issue("end", 0).schedule()
    assert places(schedule) == {"x": (0, 64), "p": (64, 64), "q": (128, 192)}
