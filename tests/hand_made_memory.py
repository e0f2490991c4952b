"""Sound schedules on the toy device about HBM: write-backs, places of device buffers, dies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toys import copy_out, hand_schedule, kernel_command, managed, toy_device, toy_kernel, toy_squeeze, vector

from cann_env.graph import Buffer, CommandGraph, HostMemory, Level
from cann_env.options import Allocator, RunOptions, Submission
from cann_env.schedule import Allocation, BlockRun, HostCall, Schedule, TransferRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.graph import Command

FREE_FAULTS = toy_device(memory={"fault_ns": 0})
ROOM_FOR_ONE = RunOptions(streams=4, hbm_bytes=64)
EAGER = RunOptions(streams=4, submission=Submission.EAGER)


def at(buffer: int, cause: str, at_ns: int) -> TransferRun:
    """A transfer that takes no time."""
    return TransferRun(buffer, cause, at_ns, at_ns, at_ns)


def whole(name: str, size_bytes: int = 64, level: Level = Level.ABSENT, die: int = 0) -> Buffer:
    """A device buffer."""
    return Buffer(name=name, size_bytes=size_bytes, level=level, die=die)


# --- managed buffers that are written -----------------------------------------------------------------


def born(start_ns: int, *transfers: TransferRun) -> Schedule:
    """A kernel writes a managed buffer that nobody reads; by default it is freed when the kernel ends."""
    graph = CommandGraph("born", (vector("a", writes=("x",)),), (managed("x", level=Level.ABSENT),))
    rows = transfers or (at(0, "touch", start_ns), at(0, "free", start_ns + 110))
    runs = [("a", 0, 0, start_ns, start_ns + 110)]
    return hand_schedule(graph, runs, transfers=rows, device=FREE_FAULTS)


def childless() -> Schedule:
    return born(0)


TOUCHED, BACK, FREED = at(0, "touch", 0), TransferRun(0, "fault", 300, 300, 369), at(0, "free", 479)
SAVED = TransferRun(0, "writeback", 110, 110, 179)


def spilled(*transfers: TransferRun) -> Schedule:
    """An activation goes to the host and comes back::

    x:    touched at 0 | written back 110-179 | back 300-369 | freed at 479
    s0:   a 0 ---- 110 |                                     | c 369-479
    """
    graph = CommandGraph(
        "spilled",
        (vector("a", writes=("x",)), vector("c", reads=("x",))),
        (managed("x", level=Level.ABSENT),),
    )
    rows = transfers or (TOUCHED, SAVED, BACK, FREED)
    runs = [("a", 0, 0, 0, 110), ("c", 0, 0, 369, 479)]
    return hand_schedule(graph, runs, transfers=rows, device=FREE_FAULTS)


def two_saved(*second: int, channels: int = 1, first_ns: int = 110) -> Schedule:
    """Two buffers that a kernel wrote are written back one after the other: 110-179, 179-248."""
    graph = CommandGraph("saved", (vector("a", writes=("x", "y")),), (managed("x"), managed("y")))
    length = 133 if second[1:2] == (110,) else 69
    rows = (
        at(0, "touch", 0),
        at(1, "touch", 0),
        TransferRun(0, "writeback", 110, first_ns, first_ns + length),
        TransferRun(1, "writeback", *(second or (110, 179, 248))),
    )
    device = toy_device(pools={"d2h": channels})
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], transfers=rows, device=device)


def beside_copy_out(finish_ns: int = 243, channels: int = 2) -> Schedule:
    """A write-back and a copy share the link to the host from 110 ns: 128 bytes after 5 ns."""
    graph = CommandGraph("out", (vector("a", writes=("x",)), copy_out("b")), (managed("x"),))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 110, finish_ns)]
    rows = (at(0, "touch", 0), TransferRun(0, "writeback", 110, 110, finish_ns))
    return hand_schedule(graph, runs, transfers=rows, device=toy_device(pools={"d2h": channels}))


def swapped(early_ns: int = 0) -> Schedule:
    """Room for one buffer: w is reserved at 110 ns and comes when x has left, at 179 ns::

    x: touched at 0 | written back 110-179 |
    w:              | reserved 110         | comes 179-248
    s0: a 0 --- 110 |                                     | b 248-358
    """
    graph = CommandGraph(
        "swapped", (vector("a", writes=("x",)), vector("b", reads=("w",))), (managed("x"), managed("w"))
    )
    come = TransferRun(1, "fault", 110, 179 - early_ns, 248)
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 248, 358)]
    rows = (at(0, "touch", 0), SAVED, come)
    return hand_schedule(graph, runs, transfers=rows, device=FREE_FAULTS, options=ROOM_FOR_ONE)


def granted(grant_ns: int = 179, start_ns: int = 179) -> Schedule:
    """The same where the output y of b takes the place of x: reserved when b is issued, there at 179 ns."""
    graph = CommandGraph(
        "granted", (vector("a", writes=("x",)), vector("b", writes=("y",))), (managed("x"), whole("y"))
    )
    runs = [("a", 0, 0, 0, 110), ("b", 0, 110, start_ns, start_ns + 110)]
    rows = (at(0, "touch", 0), SAVED)
    places = (Allocation(1, 1, 0, 64, 110, grant_ns, start_ns + 110),)
    return hand_schedule(graph, runs, transfers=rows, allocations=places, options=ROOM_FOR_ONE)


def beside_weight(hbm_bytes: int = 128, **options: Any) -> Schedule:
    """An output and a weight that a kernel has at once; the pool takes a whole 64 bytes for 40."""
    graph = CommandGraph(
        "beside", (vector("a", reads=("w",), writes=("y",)),), (managed("w"), whole("y", 40))
    )
    rows = (TransferRun(0, "fault", 0, 0, 69),)
    chosen = RunOptions(hbm_bytes=hbm_bytes, **options)
    return hand_schedule(
        graph, [("a", 0, 0, 69, 179)], transfers=rows, device=FREE_FAULTS, options=chosen, peak_hbm_bytes=128
    )


def multiple(factor: float = 2.0) -> Schedule:
    """Three weights, each needed by itself: 64 bytes. With twice as much two have room."""
    rows = (
        TransferRun(0, "fault", 0, 0, 69),
        TransferRun(1, "prefetch", 0, 69, 138),
        at(0, "evict", 179),
        TransferRun(2, "fault", 179, 179, 248),
    )
    runs = [("k0", 0, 0, 69, 179), ("k1", 0, 0, 180, 290), ("k2", 0, 0, 291, 401)]
    options = RunOptions(memory_factor=factor)
    values = {"transfers": rows, "device": FREE_FAULTS, "options": options, "peak_hbm_bytes": 128}
    return hand_schedule(toy_squeeze(3), runs, **values)


def two_lanes(options: RunOptions | None = None, channels: int = 2) -> Schedule:
    """Two weights are prefetched together, at half the speed each: 5 + 128 ns."""
    rows = [TransferRun(i, "prefetch", 0, 0, 133) for i in (0, 1)]
    runs = [("k0", 0, 0, 133, 243), ("k1", 0, 0, 244, 354)]
    device = toy_device(pools={"h2d": channels})
    options = options or RunOptions(prefetch_streams=2)
    return hand_schedule(toy_squeeze(2), runs, transfers=tuple(rows), device=device, options=options)


def shared(*transfers: TransferRun) -> Schedule:
    """Host and device share one memory: a weight is where it is used, an activation is just placed."""
    graph = CommandGraph(
        "shared",
        (vector("a", reads=("w",), writes=("x",)), vector("b", reads=("x",))),
        (managed("w"), managed("x", level=Level.ABSENT)),
    )
    device = toy_device(memory={"host_shares_dram": True})
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 111, 221)]
    return hand_schedule(graph, runs, device=device, transfers=transfers, options=RunOptions(hbm_bytes=128))


def on_demand() -> Schedule:
    """A device that cannot prefetch managed memory still migrates it on demand."""
    device = toy_device(memory={"fault_ns": 0, "managed_prefetch": False})
    rows = (TransferRun(0, "fault", 0, 0, 69),)
    return hand_schedule(toy_squeeze(1), [("k0", 0, 0, 69, 179)], transfers=rows, device=device)


# --- the address space --------------------------------------------------------------------------------


def tenants(*waits: tuple[str, str], **fields: Any) -> Schedule:
    """There is one place. x is freed at 221 ns, when c has read it; then b, on another stream, gets it::

    s0: a 0-110 |
    s1:         | c 111-221 |
    s2:                     | b 221-331
    """
    graph = CommandGraph(
        "tenants",
        (vector("a", writes=("x",)), vector("c", reads=("x",)), vector("b", writes=("y",))),
        (whole("x"), whole("y")),
    )
    runs = [("a", 0, 0, 0, 110), ("c", 1, 0, 111, 221), ("b", 2, 221, 221, 331)]
    chosen = waits or (("a", "c"), ("c", "b"))
    return hand_schedule(graph, runs, waits=chosen, **{"options": ROOM_FOR_ONE, **fields})


def seen() -> Schedule:
    """The host has seen a finish before it gives its place to b: no event is needed."""
    graph = CommandGraph(
        "seen", (vector("a", writes=("x",)), vector("b", writes=("y",))), (whole("x"), whole("y"))
    )
    runs = [("a", 0, 7, 7, 117), ("b", 1, 124, 124, 234)]
    host = (HostCall("issue", 0, 0, 7), HostCall("issue", 1, 117, 124))
    return hand_schedule(graph, runs, host=host, options=replace(EAGER, hbm_bytes=64))


def in_the_call(chosen_ns: int = 117, early_ns: int = 0) -> Schedule:
    """The host chooses the place when its call begins; ``early_ns`` sooner, a had not ended."""
    schedule = seen()
    first, second = schedule.allocations
    second = second._replace(address=64 if early_ns else 0, issue_ns=chosen_ns, grant_ns=chosen_ns)
    options = replace(schedule.options, hbm_bytes=128)
    schedule = replace(schedule, allocations=(first, second))
    return replace(schedule, options=options, peak_hbm_bytes=128) if early_ns else schedule


def split(**fields: Any) -> Schedule:
    """y takes the upper half of x, which another stream used, z the lower half; both wait::

    s0: a 0-110 |
    s1:         | b 110-220
    s2:           | c 115-225
    """
    graph = CommandGraph(
        "split",
        (vector("a", writes=("x",)), vector("b", writes=("y",)), vector("c", writes=("z",))),
        (whole("x", 128), whole("y"), whole("z")),
    )
    runs = [("a", 0, 0, 0, 110), ("b", 1, 110, 110, 220), ("c", 2, 115, 115, 225)]
    places = (
        Allocation(0, 0, 64, 128, 0, 0, 110),
        Allocation(1, 1, 128, 64, 110, 110, 220),
        Allocation(2, 2, 64, 64, 115, 115, 225),
    )
    values = {"waits": [("a", "b"), ("a", "c")], "allocations": places} | fields
    return hand_schedule(graph, runs, **values)


def classes(size_bytes: int = 576, taken: int = 640, **options: Any) -> Schedule:
    """An output whose size is between two classes of the pool, 512 and 640; z lies in HBM, below it."""
    graph = CommandGraph(
        "classes",
        (vector("a", reads=("z",), writes=("x",)),),
        (whole("x", size_bytes), whole("z", 64, Level.HBM)),
    )
    places = (Allocation(0, 0, 64, taken, 0, 0, 110),)
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], allocations=places, options=RunOptions(**options))


def exact() -> Schedule:
    return classes(taken=576, allocator=Allocator.MALLOC)


def in_blocks() -> Schedule:
    return classes(taken=600, pool_block_bytes=200, pool_bytes=600, hbm_bytes=664)


# --- dies ---------------------------------------------------------------------------------------------

TWO_DIES = toy_device(dies=2)


def mover(name: str, size_bytes: int = 128, blocks: int = 1, **fields: Any) -> Command:
    """A kernel that only moves bytes, 2 a ns a block after 10 ns."""
    return kernel_command(name, toy_kernel("vector", 0, blocks=blocks, size_bytes=size_bytes), **fields)


def remote(finish_ns: int = 138, die: int = 1, blocks: int = 1) -> Schedule:
    """A kernel on die 1 reads x from die 0: 128 bytes at 1 a ns after 10 ns."""
    graph = CommandGraph("remote", (mover("a", blocks=blocks, reads=("x",)),), (whole("x", 128, Level.HBM),))
    rows = [BlockRun(0, 0, "vector", blocks, die, 0, finish_ns, 0)]
    return hand_schedule(graph, [("a", 1, 0, 0, finish_ns)], blocks=rows, device=TWO_DIES)


def half_remote(finish_ns: int = 106) -> Schedule:
    """Half of 128 bytes lies at home, at 2 a ns: 10 + 32 + 64 ns."""
    graph = CommandGraph(
        "half",
        (mover("a", reads=("x", "y")),),
        (whole("x", 64, Level.HBM), whole("y", 64, Level.HBM, die=1)),
    )
    rows = [BlockRun(0, 0, "vector", 1, 1, 0, finish_ns, 0)]
    return hand_schedule(graph, [("a", 1, 0, 0, finish_ns)], blocks=rows, device=TWO_DIES)


def two_remote() -> Schedule:
    """Two blocks share the link between the dies."""
    return remote(blocks=2)


def on_both_dies(second: int = 1, **options: Any) -> Schedule:
    """Each die has room for one output and four vector cores, and is given as much."""
    graph = CommandGraph(
        "both",
        (vector("a", blocks=4, writes=("x",)), vector("b", blocks=4, writes=("y",))),
        (whole("x"), whole("y", die=1)),
    )
    rows = [BlockRun(i, 0, "vector", 4, die, 0, 110, 0) for i, die in ((0, 0), (1, second))]
    chosen = RunOptions(**{"streams": 4, "hbm_bytes": 64, **options})
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 0, 110)]
    return hand_schedule(graph, runs, blocks=rows, device=TWO_DIES, options=chosen)


# --- the host -----------------------------------------------------------------------------------------


def slow_weight(second_ns: int = 69, **buffer: Any) -> Schedule:
    """A pageable weight keeps the host in its call until it has arrived, at 69 ns."""
    fields = {"host_memory": HostMemory.PAGEABLE, **buffer}
    graph = toy_squeeze(1)
    graph = CommandGraph("slow", graph.commands, (replace(graph.buffers[0], **fields),))
    host = (HostCall("prefetch", 0, 0, 2), HostCall("issue", 0, second_ns, second_ns + 5))
    start = max(second_ns + 5, 69)
    runs = [("k0", 0, second_ns + 5, start, start + 110)]
    rows = (TransferRun(0, "prefetch", 0, 0, 69),)
    return hand_schedule(graph, runs, host=host, transfers=rows, options=EAGER)


def offloaded(
    cause: str = "writeback", call_ns: int = 2, at_ns: int = 120, pageable: bool = False
) -> Schedule:
    """A weight that was written leaves at the host's word, at 120 ns; then, at 122, the host goes on."""
    memory = HostMemory.PAGEABLE if pageable else HostMemory.PINNED
    graph = CommandGraph(
        "offloaded",
        (vector("a", writes=("x",)), vector("b", after=("a",))),
        (replace(managed("x"), host_memory=memory),),
    )
    host = (
        HostCall("issue", 0, 0, 5),
        HostCall("offload", 0, 120, 120 + call_ns),
        HostCall("issue", 1, 122, 127),
    )
    runs = [("a", 0, 5, 5, 115), ("b", 0, 127, 127, 237)]
    rows = (at(0, "touch", 5), TransferRun(0, cause, at_ns, at_ns, at_ns + 69))
    return hand_schedule(graph, runs, host=host, transfers=rows, options=EAGER)


SOUND: list[Callable[[], Schedule]] = [childless, spilled, two_saved, beside_copy_out, swapped, granted]
SOUND += [
    beside_weight,
    multiple,
    two_lanes,
    shared,
    tenants,
    seen,
    in_the_call,
    split,
    classes,
    exact,
    in_blocks,
]
SOUND += [on_demand, remote, half_remote, on_both_dies, slow_weight, offloaded]
