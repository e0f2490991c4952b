"""Hand-computed episodes on two dies: cores, memory and links of their own, operands that lie on the other.

Streams take dies in turn: 0 and 2 run on die 0, 1 and 3 on die 1. The link between dies moves 1 byte a ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from episodes import Host, moves, times
from toys import copy_in, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import Window
from cann_env.units import MemoryAllocationError

if TYPE_CHECKING:
    from typing import Any

    from cann_env.graph import Command

TWO = toy_device(dies=2, memory={"fault_ns": 64})


def graph(commands: tuple[Command, ...], *buffers: Buffer) -> CommandGraph:
    return CommandGraph("dies", commands, buffers)


def whole(name: str, die: int, size_bytes: int = 64, **fields: Any) -> Buffer:
    """A device buffer."""
    return Buffer(name=name, size_bytes=size_bytes, die=die, **fields)


def resident(name: str, die: int, size_bytes: int = 64) -> Buffer:
    return whole(name, die, size_bytes, level=Level.HBM)


def migrating(name: str, die: int, size_bytes: int = 64, level: Level = Level.HOST) -> Buffer:
    plain = managed(name, size_bytes, level)
    return Buffer(name=name, size_bytes=size_bytes, kind=plain.kind, level=level, die=die)


def moving(name: str, size_bytes: int, *, blocks: int = 1, **fields: Any) -> Command:
    """A vector kernel that moves bytes and computes nothing."""
    return kernel_command(name, toy_kernel("vector", 0, blocks=blocks, size_bytes=size_bytes), **fields)


# --- cores and memory of their own --------------------------------------------------------------------


@pytest.mark.parametrize(("homes", "second"), [((0, 1), (0, 110)), ((1, 1), (110, 220))])
def test_a_stream_uses_the_cores_of_its_die(homes: tuple[int, ...], second: tuple[int, int]) -> None:
    """Four blocks fill a die: side by side on two, one after the other on one."""
    drawn = graph((vector("a", blocks=4), vector("b", blocks=4)))
    schedule = Host(drawn, TWO, streams=2, stream_dies=homes).issue("a", 0).issue("b", 1).schedule()
    assert times(schedule) == {"a": (0, 110), "b": second}
    assert [row.die for row in schedule.blocks] == list(homes)
    assert schedule.stall.cores == second[0]


@pytest.mark.parametrize(("homes", "end_ns"), [((0, 1), 110), ((0, 0), 210)])
def test_a_stream_uses_the_hbm_of_its_die(homes: tuple[int, ...], end_ns: int) -> None:
    """Two blocks of 200 bytes take all 4 bytes a ns for 100 ns; four on one die take twice as long."""
    drawn = graph((moving("a", 400, blocks=2), moving("b", 400, blocks=2)))
    host = Host(drawn, TWO, streams=2, stream_dies=homes).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, end_ns), "b": (0, end_ns)}


def test_each_die_has_slots_of_its_own() -> None:
    """One vector command at a time: c, on die 0 as a is, waits for it; b, on die 1, does not."""
    device = toy_device(dies=2, classes={"vector": {"max_active": 1}})
    host = Host(graph((vector("a"), vector("b"), vector("c"))), device)
    assert host.issue("a", 0).issue("b", 1).issue("c", 2).times() == {
        "a": (0, 110),
        "b": (0, 110),
        "c": (110, 220),
    }


@pytest.mark.parametrize(("die", "second"), [(1, (0, 69)), (0, (69, 138))])
def test_each_die_has_channels_to_the_host_of_its_own(die: int, second: tuple[int, int]) -> None:
    drawn = graph((copy_in("a"), copy_in("b")))
    host = Host(drawn, TWO, streams=2, stream_dies=(0, die)).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, 69), "b": second}


def test_the_lowest_idle_stream_of_each_die_is_offered() -> None:
    host = Host(graph(tuple(vector(name) for name in "abcde")), TWO)
    assert host.streams("a") == [0, 1]
    assert host.issue("a", 1).streams("b") == [0, 1, 3]
    assert host.issue("b", 0).streams("c") == [0, 1, 2, 3]
    grouped = Host(graph((vector("a"), vector("b"))), TWO, stream_dies=(0, 0, 1, 1))
    assert grouped.streams("a") == [0, 2]


def test_a_command_that_can_start_goes_where_it_can() -> None:
    """a fills die 0, so b goes past the idle stream 1 to stream 2, on die 1; c can start nowhere."""
    drawn = graph(tuple(vector(name, blocks=4) for name in "abc"))
    host = Host(drawn, TWO, window=Window.STARTABLE, streams=3, stream_dies=(0, 0, 1)).issue("a")
    assert host.window == ["b", "c"]
    schedule = host.issue("b").issue("c").schedule()
    assert times(schedule) == {"a": (0, 110), "b": (0, 110), "c": (111, 221)}
    assert [run.stream for run in sorted(schedule.commands)] == [0, 2, 0]


# --- operands on the other die ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "end_ns"),
    [
        ({"reads": ("r0",)}, 10 + 64),
        ({"reads": ("r1",)}, 10 + 128),
        ({"writes": ("r1",)}, 10 + 128),
        ({"reads": ("r0", "r1")}, 10 + 32 + 64),
        ({"reads": ("r0",), "writes": ("r1",)}, 10 + 32 + 64),
        ({"reads": ("r1",), "writes": ("r1",)}, 10 + 128),
        ({"reads": ("r0", "r1"), "writes": ("r0", "s0")}, 10 + 48 + 32),
        ({}, 10 + 64),
    ],
)
def test_what_lies_on_the_other_die_crosses_the_link_between_them(
    use: dict[str, tuple[str, ...]], end_ns: int
) -> None:
    """A kernel on die 0 moves 128 bytes: its own part at 2 bytes a ns, then the part of die 1 at 1."""
    drawn = graph((moving("a", 128, **use),), resident("r0", 0), resident("r1", 1), resident("s0", 0))
    assert Host(drawn, TWO).issue("a", 0).times()["a"] == (0, end_ns)


def test_two_readers_share_the_link_of_their_die() -> None:
    """64 bytes each at half a byte a ns."""
    drawn = graph((moving("a", 64, reads=("r",)), moving("b", 64, reads=("r",))), resident("r", 1))
    assert Host(drawn, TWO).issue("a", 0).issue("b", 2).times() == {"a": (0, 138), "b": (0, 138)}


def test_the_two_directions_do_not_share() -> None:
    drawn = graph(
        (moving("a", 128, reads=("r",)), moving("b", 128, reads=("t",))), resident("r", 1), resident("t", 0)
    )
    assert Host(drawn, TWO).issue("a", 0).issue("b", 1).times() == {"a": (0, 138), "b": (0, 138)}


@pytest.mark.parametrize(("home", "k_end_ns", "b_end_ns"), [(0, 102, 74), (1, 86, 42)])
def test_a_reader_from_the_other_die_loads_the_hbm_it_reads(home: int, k_end_ns: int, b_end_ns: int) -> None:
    """k's three blocks of 100 bytes on die 0 have 4/3 byte a ns each alone: 75 ns.

    Beside b on die 1, which reads 64 bytes of die 0, all four get 1 until 74; then k has 36 left: 27 ns.
    That its rate is rounded down makes it 28.
    """
    drawn = graph((moving("k", 300, blocks=3), moving("b", 64, reads=("r",))), resident("r", home))
    host = Host(drawn, TWO).issue("k", 0).issue("b", 1)
    assert host.times() == {"k": (0, k_end_ns), "b": (0, b_end_ns)}


# --- memory of their own ------------------------------------------------------------------------------


def test_each_die_has_its_own_memory() -> None:
    """Memory for one on each: x and y fit side by side, z, on die 0 as x is, waits until x is gone.

    ::

        x (die 0): 0-110          z (die 0): 110-220
        y (die 1): 0-110
    """
    drawn = graph(
        (vector("a", writes=("x",)), vector("b", writes=("y",)), vector("c", writes=("z",))),
        whole("x", 0),
        whole("y", 1),
        whole("z", 0),
    )
    host = Host(drawn, TWO, hbm_bytes=64).issue("a", 0)
    assert (host.streams("b"), host.streams("c")) == ([0, 1, 2], [])
    host.issue("b", 1)
    assert (host.now_ns, host.streams("c")) == (110, [0, 1])
    schedule = host.issue("c", 1).schedule()  # on die 1, but z lies on die 0
    assert schedule.peak_hbm_bytes == 64
    assert [row.address for row in schedule.allocations] == [0, 0, 0]
    assert (host.hbm_of(0), host.hbm_of(1)) == (0, 0)


def test_what_one_die_lacks_the_other_cannot_give() -> None:
    drawn = graph((vector("a", writes=("x", "y")),), whole("x", 1), whole("y", 1))
    with pytest.raises(MemoryAllocationError, match="requested 128 bytes"):
        Host(drawn, TWO, hbm_bytes=64)
    spread = graph(drawn.commands, whole("x", 0), whole("y", 1))
    assert Host(spread, TWO, hbm_bytes=64).issue("a", 0).schedule().peak_hbm_bytes == 64


def test_room_is_made_on_the_die_that_needs_it() -> None:
    """Memory for one on each. w, of die 1, takes the place of u there; v on die 0 stays, though needed later.

    ::

        die 0: v ....................................................... in use
        die 1: u in use 0-110 | out 111, w in 111-244 | in use | w out, u in
    """
    drawn = graph(
        (
            vector("a", reads=("u",)),
            vector("b", reads=("w",), after=("a",)),
            vector("c", reads=("u",), after=("b",)),
            vector("d", reads=("v",), after=("c",)),
        ),
        migrating("v", 0, 64, Level.HBM),
        migrating("u", 1, 64, Level.HBM),
        migrating("w", 1),
    )
    host = Host(drawn, TWO, hbm_bytes=64).issue("a", 1).issue("b", 1).issue("c", 1).issue("d", 1)
    schedule = host.schedule()
    assert moves(schedule)[:2] == [("u", "evict", 111, 111), ("w", "fault", 111, 244)]
    assert "v" not in [name for name, *_ in moves(schedule)]


@pytest.mark.parametrize(("die", "second"), [(1, (0, 69)), (0, (69, 138))])
def test_prefetches_to_two_dies_move_at_once(die: int, second: tuple[int, int]) -> None:
    """Each die has its own line, channel and link."""
    drawn = graph(
        (vector("a", reads=("v",)), vector("b", reads=("w",))), migrating("v", 0), migrating("w", die)
    )
    host = Host(drawn, TWO).prefetch("v").prefetch("w").until(second[1])
    schedule = host.issue("a", 0).issue("b", 1).schedule()
    assert moves(schedule) == [("v", "prefetch", 0, 69), ("w", "prefetch", *second)]


@pytest.mark.parametrize(("die", "second"), [(1, (110, 179)), (0, (179, 248))])
def test_write_backs_of_two_dies_move_at_once(die: int, second: tuple[int, int]) -> None:
    drawn = graph(
        (vector("a", writes=("v", "w")), vector("b", 400, after=("a",))),
        migrating("v", 0, 64, Level.HBM),
        migrating("w", die, 64, Level.HBM),
    )
    host = Host(drawn, TWO, offloads=2).issue("a", 0).until(110).offload("v").offload("w")
    schedule = host.issue("b", 0).schedule()
    assert moves(schedule) == [("v", "writeback", 110, 179), ("w", "writeback", *second)]


def test_a_fault_goes_to_the_home_of_the_buffer_not_of_the_reader() -> None:
    """a on die 1 needs w, whose home is die 0: it takes space there, and a reads it over the link.

    ::

        w:  0-133
        s1:       a 133: launch until 143, 64 bytes over the link until 207
    """
    drawn = graph((moving("a", 64, reads=("w",)),), migrating("w", 0))
    host = Host(drawn, TWO).issue("a", 1)
    assert times(host.schedule())["a"] == (133, 207)
    assert (host.hbm_of(0), host.hbm_of(1)) == (64, 0)
