"""Sound schedules on a toy device with an L2 of 1,024 bytes that gives 32 bytes a ns.

A vector block gets 32 / 4 = 8 bytes a ns from there, against 2 from HBM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hand_made_memory import EAGER, mover, whole
from toys import copy_in, hand_schedule, kernel_command, managed, toy_device, toy_kernel, vector

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.schedule import CacheHit, HostCall, Schedule, TransferRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec

_L2 = {"l2_bytes": 1024, "l2_bandwidth_bytes_per_s": 32 * 10**9, "fault_ns": 0}
WITH_L2 = toy_device(memory=_L2)
X = whole("x", 128, Level.HBM)


def lift(buffer: int, start_ns: int, finish_ns: int, size_bytes: int = 128) -> TransferRun:
    return TransferRun(buffer, "lift", start_ns, start_ns, finish_ns, size_bytes)


def lifted(
    finish_ns: int = 63, hit: int = 128, row: TransferRun | None = None, buffer: Buffer = X, **fields: Any
) -> Schedule:
    """x is lifted, 5 + 128 / 4 ns; a kernel reads it from L2: 10 + 128 / 8 ns::

    x: lifted 0-37 |
    s0:            | a 37-63
    """
    graph = CommandGraph("lifted", (mover("a", reads=("x",)),), (buffer,))
    hits = (CacheHit(0, 0, 37, hit),) if hit else ()
    values = {"device": WITH_L2, "transfers": (row or lift(0, 0, 37),), "hits": hits} | fields
    return hand_schedule(graph, [("a", 0, 0, 37, finish_ns)], **values)


def in_part(hit: int = 64, finish_ns: int = 87) -> Schedule:
    """No more than 64 bytes are lifted; of the kernel's 128, half comes from HBM: 10 + 32 + 8 ns."""
    return lifted(finish_ns, hit, lift(0, 0, 21, 64), options=RunOptions(l2_prefetch_bytes=64))


def two_lifts(finish_ns: int = 69, channels: int = 2, lanes: int = 2) -> Schedule:
    """Two lifts of 128 bytes share HBM: 5 + 256 / 4 ns."""
    buffers = (X, whole("y", 128, Level.HBM))
    device = toy_device(memory=_L2, pools={"sdma": channels})
    rows = (lift(0, 0, finish_ns), lift(1, 0, finish_ns))
    options = RunOptions(prefetch_streams=lanes)
    graph = CommandGraph("lifts", (vector("a", reads=("x", "y")),), buffers)
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], transfers=rows, device=device, options=options)


def lifted_output(start_ns: int = 110) -> Schedule:
    """a's output is in L2 at once; a lift of it, once written, does no more than renew it."""
    graph = CommandGraph("output", (vector("a", writes=("x",)), mover("b", reads=("x",))), (whole("x", 128),))
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 150, 176)]
    rows, hits = (lift(0, start_ns, start_ns + 37),), (CacheHit(1, 0, 150, 128),)
    return hand_schedule(graph, runs, transfers=rows, hits=hits, device=WITH_L2)


def asked(start_ns: int = 2) -> Schedule:
    """The host asks for the lift at 2 ns, before it issues the kernel."""
    host = (HostCall("lift", 0, 2, 4), HostCall("issue", 0, 4, 9))
    hits = (CacheHit(0, 0, 40, 128),)
    graph = CommandGraph("asked", (mover("a", reads=("x",)),), (X,))
    rows = (lift(0, start_ns, start_ns + 37),)
    values = {"host": host, "transfers": rows, "hits": hits, "device": WITH_L2, "options": EAGER}
    return hand_schedule(graph, [("a", 0, 9, 40, 66)], **values)


def lifted_in_vain(free_ns: int = 187, lifted_ns: int = 187) -> Schedule:
    """b, the last to read x, ends at 176 ns while x is lifted from 150 to 187: it is freed then."""
    schedule = lifted_output(150)
    (place,) = schedule.allocations
    row = lift(0, 150, lifted_ns)
    return replace(schedule, transfers=(row,), allocations=(place._replace(free_ns=free_ns),))


def read(
    steps: Sequence[tuple[str, int, int]],
    hits: Sequence[int],
    *,
    sizes: Sequence[int] = (128, 128, 64),
    device: DeviceSpec = WITH_L2,
    **fields: Any,
) -> Schedule:
    """Writers wx wy wz of three buffers and readers rx ry rz of all their bytes.

    Args:
        steps: ``(name, stream, start_ns)``; what follows the two letters only makes names differ. A writer
            takes 110 ns, a reader of n bytes with h of them in L2 10 + (n - h) / 2 + h / 8.
        hits: Bytes that each reader found, in order.
        sizes: Bytes of x, y and z.
        device: The device with an L2.
        **fields: Of the schedule.
    """
    commands, runs, rows = [], [], []
    left = list(hits)
    for i, (name, stream, start_ns) in enumerate(steps):
        buffer, size = name[1], sizes["xyz".index(name[1])]
        if name[0] == "w":
            commands.append(vector(name, writes=(buffer,)))
            runs.append((name, stream, 0, start_ns, start_ns + 110))
            continue
        hit = left.pop(0)
        commands.append(mover(name, size, reads=(buffer,)))
        runs.append((name, stream, 0, start_ns, start_ns + 10 + (size - hit) // 2 + hit // 8))
        rows += [CacheHit(i, 0, start_ns, hit)] if hit else []
    # resident, so that nothing leaves when its last user ends
    buffers = tuple(whole(letter, size, Level.HBM) for letter, size in zip("xyz", sizes, strict=True))
    return hand_schedule(
        CommandGraph("read", tuple(commands), buffers), runs, hits=rows, device=device, **fields
    )


def small_l2(size_bytes: int) -> DeviceSpec:
    return toy_device(memory={**_L2, "l2_bytes": size_bytes})


ONE_BY_ONE = (("wx", 0, 0), ("wy", 0, 111), ("wz", 0, 222), ("rx", 0, 333))


def pushed_out(hit: int = 64) -> Schedule:
    """x, y and z enter an L2 of 256 bytes; z takes the 64 it needs from x, the least recent."""
    return read(ONE_BY_ONE, [hit], device=small_l2(256))


def renewed(hit: int = 64) -> Schedule:
    """x is read before z enters, so y gives way and has 64 bytes left when it is read; x is whole."""
    steps = (("wx", 0, 0), ("wy", 0, 111), ("rx", 0, 222), ("wz", 0, 249), ("ry", 0, 360))
    return read(steps, [128, hit], device=small_l2(256))


def too_large(hit: int = 0) -> Schedule:
    """y is larger than the L2: it empties it and does not stay, so neither it nor x is found."""
    steps = (("wx", 0, 0), ("wy", 0, 111), ("ry", 0, 222), ("rx", 0, 841))
    return read(steps, [0, hit], sizes=(128, 1216, 64))


def tied(first: int = 64, second: int = 128) -> Schedule:
    """x and y enter an L2 of 192 bytes at one instant; whoever came first has lost 64 bytes to the other."""
    steps = (("wx", 0, 0), ("wy", 1, 0), ("rx", 0, 200), ("ry", 1, 300))
    return read(steps, [first, second], device=small_l2(192))


def tied_otherwise() -> Schedule:
    return tied(128, 64)


def copied(hit: int = 0, finish_ns: int = 212) -> Schedule:
    """What a copy brings does not enter L2."""
    graph = CommandGraph("copied", (copy_in("c", 128, writes=("x",)), mover("a", reads=("x",))), (X,))
    runs = [("c", 0, 0, 0, 133), ("a", 0, 0, 138, finish_ns)]
    hits = (CacheHit(1, 0, 138, hit),) if hit else ()
    return hand_schedule(graph, runs, hits=hits, device=WITH_L2)


def forgotten(hit: int = 0, finish_ns: int = 474) -> Schedule:
    """w is in L2 when a has written it, is written back at 110 ns, comes back, and L2 has nothing of it."""
    graph = CommandGraph("gone", (vector("a", writes=("w",)), mover("b", reads=("w",))), (managed("w", 128),))
    rows = (
        TransferRun(0, "touch", 0, 0, 0),
        TransferRun(0, "writeback", 110, 110, 243),
        TransferRun(0, "fault", 243, 243, 376),
    )
    hits = (CacheHit(1, 0, 400, hit),) if hit else ()
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 400, finish_ns)]
    return hand_schedule(graph, runs, hits=hits, transfers=rows, device=WITH_L2)


def touched(start_ns: int = 110) -> Schedule:
    """w is touched, written by 110 ns and lifted after that."""
    graph = CommandGraph("touched", (vector("a", writes=("w",)),), (managed("w", 128),))
    rows = (TransferRun(0, "touch", 0, 0, 0), lift(0, start_ns, start_ns + 37))
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], transfers=rows, device=WITH_L2)


def crowd(lasts_ns: int = 50) -> Schedule:
    """Five kernels read 256 bytes of x each from an L2 of 32 bytes a ns: 1,280 bytes take 40 ns after launch.

    A vector block alone would get 8 of them, a cube block 16.
    """
    kernel = toy_kernel("cube", 0, size_bytes=256)
    commands = (
        vector("w", writes=("x",)),
        *(mover(name, 256, reads=("x",)) for name in "abcd"),
        kernel_command("e", kernel, reads=("x",)),
    )
    graph = CommandGraph("crowd", commands, (whole("x", 256, Level.HBM),))
    runs = [("w", 0, 0, 0, 110)] + [(name, i, 0, 111, 111 + lasts_ns) for i, name in enumerate("abcde")]
    hits = tuple(CacheHit(i, 0, 111, 256) for i in range(1, 6))
    waits = [("w", name) for name in "bcde"]
    options = RunOptions(streams=5)
    return hand_schedule(graph, runs, hits=hits, waits=waits, device=WITH_L2, options=options)


SOUND: list[Callable[[], Schedule]] = [
    lifted,
    in_part,
    two_lifts,
    lifted_output,
    lifted_in_vain,
    asked,
    pushed_out,
]
SOUND += [renewed, too_large, tied, tied_otherwise, copied, forgotten, touched, crowd]
