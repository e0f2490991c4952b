"""Sound schedules on the toy device: space comes late, is taken again at once, or is never given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hand_made_memory import EAGER, FREE_FAULTS, ROOM_FOR_ONE, at
from toys import copy_out, hand_schedule, managed, toy_device, vector

from cann_env.graph import CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.schedule import FAR, HostCall, Schedule, TransferRun

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVING = TransferRun(0, "writeback", 150, 150, FAR)
"""x moves to the host when the last command finishes."""

IN_LINE = TransferRun(1, "writeback", 160, FAR, FAR)
"""y is to follow it."""

NO_SPACE = TransferRun(2, "prefetch", FAR, FAR, FAR)
"""w has a place of theirs, and waits until one of them has left it."""


def under_way(*transfers: TransferRun, channels: int = 1) -> Schedule:
    """Two buffers are on their way to the host at the end, and one waits for their space::

    x:  touched at 0          | written back 150 --------->
    y:  touched at 0            | to be written back 160 ->
    w:                             wanted ----------------->
    s0: a 0 ---- 110 | b 111 ------------ 221
    """
    graph = CommandGraph(
        "under way",
        (vector("a", writes=("x", "y")), vector("b", after=("a",))),
        (managed("x"), managed("y"), managed("w")),
    )
    rows = (at(0, "touch", 0), at(1, "touch", 0), *(transfers or (LEAVING, IN_LINE, NO_SPACE)))
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 111, 221)]
    device, options = toy_device(pools={"d2h": channels}), RunOptions(hbm_bytes=128)
    return hand_schedule(graph, runs, transfers=rows, device=device, options=options, peak_hbm_bytes=128)


def leaves_beside_copy(channels: int = 2) -> Schedule:
    """A write-back and a copy, both on channels to the host; one is over before the last command is."""
    graph = CommandGraph("out", (vector("a", writes=("x",)), copy_out("b")), (managed("x"),))
    rows = (at(0, "touch", 0), TransferRun(0, "writeback", 110, 110, FAR))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 110, 243)]
    return hand_schedule(graph, runs, transfers=rows, device=toy_device(pools={"d2h": channels}))


def taken_again(*transfers: TransferRun) -> Schedule:
    """x gives way to nobody in the end: it is evicted, touched and written from one instant on."""
    graph = CommandGraph("again", (vector("a", writes=("x",)),), (managed("x", level=Level.HBM),))
    rows = transfers or (at(0, "evict", 0), at(0, "touch", 0))
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], transfers=rows)


def space_comes_late(reserve_ns: int = 189, cause: str = "prefetch") -> Schedule:
    """Room for one: w is asked for at 120 ns and gets its space when x has been written back, at 189::

    host: issue a | prefetch w 120-122 | issue b 122-127
    x:    touched at 5  | written back 120-189 |
    w:                  | wanted               | comes 189-258
    s0:   a 5 ---- 115 |                                      | b 258-368
    """
    graph = CommandGraph(
        "late", (vector("a", writes=("x",)), vector("b", reads=("w",))), (managed("x"), managed("w"))
    )
    host = (HostCall("issue", 0, 0, 5), HostCall("prefetch", 1, 120, 122), HostCall("issue", 1, 122, 127))
    rows = (
        at(0, "touch", 5),
        TransferRun(0, "writeback", 120, 120, 189),
        TransferRun(1, cause, reserve_ns, reserve_ns, reserve_ns + 69),
    )
    start = reserve_ns + 69
    runs = [("a", 0, 5, 5, 115), ("b", 0, 127, start, start + 110)]
    options = RunOptions(streams=4, submission=EAGER.submission, hbm_bytes=ROOM_FOR_ONE.hbm_bytes)
    return hand_schedule(graph, runs, host=host, transfers=rows, device=FREE_FAULTS, options=options)


def needed_at_once() -> Schedule:
    """The same where b needs w before its turn has come: it faults, whatever the host said."""
    return space_comes_late(cause="fault")


def asked_once(calls: int = 1) -> Schedule:
    """b faults w, which the host had asked for; it goes, and the host asks again for c, or does not."""
    graph = CommandGraph("asked", tuple(vector(n, reads=("w",)) for n in "bc"), (managed("w"),))
    again = HostCall("prefetch", 0, 189, 191)
    host = (HostCall("prefetch", 0, 0, 2), HostCall("issue", 0, 2, 7), *[again] * (calls - 1))
    host += (HostCall("issue", 1, 191, 196),)
    rows = (
        TransferRun(0, "fault", 0, 7, 76),
        at(0, "evict", 188),
        TransferRun(0, "prefetch", 189, 189, 258),
    )
    runs = [("b", 0, 7, 76, 186), ("c", 0, 196, 258, 368)]
    return hand_schedule(graph, runs, host=host, transfers=rows, device=FREE_FAULTS, options=EAGER)


def asked_twice() -> Schedule:
    return asked_once(2)


SOUND: list[Callable[[], Schedule]] = [under_way, leaves_beside_copy, taken_again, space_comes_late]
SOUND += [needed_at_once, asked_twice]
