"""Sound schedules on the toy device in which several share a bandwidth; a nanosecond less is a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toys import copy_in, copy_inside, hand_schedule, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.graph import CommandGraph
from cann_env.schedule import Schedule, TransferRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.graph import Command


def one_mover(finish_ns: int = 42) -> Schedule:
    """64 bytes at 2 a ns after 10 ns of launch."""
    graph = CommandGraph("mover", (kernel_command("a", toy_kernel("vector", 0, size_bytes=64)),))
    return hand_schedule(graph, [("a", 0, 0, 0, finish_ns)])


def two_movers(finish_ns: int = 74) -> Schedule:
    """Two kernels of two blocks move 128 bytes each after launch: 256 bytes at 4 a ns take 64 ns."""
    kernel = toy_kernel("vector", 0, blocks=2, size_bytes=128)
    commands = tuple(kernel_command(name, kernel) for name in "ab")
    runs = [("a", 0, 0, 0, finish_ns), ("b", 1, 0, 0, finish_ns)]
    return hand_schedule(CommandGraph("movers", commands), runs)


def copies(finish_ns: int = 133, **changes: Any) -> Schedule:
    """Two copies of 64 bytes share the link of 1 byte a ns after 5 ns of latency."""
    graph = CommandGraph("copies", (copy_in("a"), copy_in("b")))
    device = toy_device(**{"pools": {"h2d": 2}, **changes})
    return hand_schedule(graph, [("a", 0, 0, 0, finish_ns), ("b", 1, 0, 0, finish_ns)], device=device)


def crowded(finish_ns: int = 405, copy: Callable[..., Command] = copy_in) -> Schedule:
    """Three copies of 100 bytes; after 205 ns two of them share the link of 1 byte a ns::

    a 0 ------------- 305
    b          200 --------- 405
    c          200 --------- 405

    At 305 ns not even 300 bytes would be too many since 5 ns, but 200 are too many since 205 ns.
    """
    graph = CommandGraph("crowded", tuple(copy(name, 100) for name in "abc"))
    runs = [("a", 0, 0, 0, 305), ("b", 1, 0, 200, finish_ns), ("c", 2, 0, 200, finish_ns)]
    return hand_schedule(graph, runs, device=toy_device(pools={"h2d": 3, "d2h": 3}))


def enormous(early_ns: int = 0) -> Schedule:
    """Three copies of four terabytes, whose sum in units of 2**-20 byte exceeds an int64."""
    size = 2**42 - 1
    finish_ns = 5 + 3 * size - early_ns
    graph = CommandGraph("enormous", tuple(copy_in(name, size) for name in "abc"))
    runs = [(name, stream, 0, 0, finish_ns) for stream, name in enumerate("abc")]
    return hand_schedule(graph, runs, device=toy_device(pools={"h2d": 3}))


def inside(finish_ns: int = 37) -> Schedule:
    """A copy within HBM reads and writes 64 bytes at 4 a ns after 5 ns."""
    return hand_schedule(CommandGraph("inside", (copy_inside("a"),)), [("a", 0, 0, 0, finish_ns)])


def beside(finish_ns: int = 133, channels: int = 2) -> Schedule:
    """A copy and a prefetch of 64 bytes each share the link, on a channel each: 128 bytes after 5 ns."""
    graph = CommandGraph("beside", (copy_in("a"), vector("k", reads=("w",))), (managed("w"),))
    runs = [("a", 0, 0, 0, finish_ns), ("k", 1, 0, 140, 250)]
    device = toy_device(pools={"h2d": channels})
    transfers = (TransferRun(0, "prefetch", 0, 0, finish_ns),)
    return hand_schedule(graph, runs, transfers=transfers, device=device)
