"""Sound schedules written by hand on the toy device, drawn in their docstrings, and ways to spoil them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hand_made_links import beside, copies, crowded, enormous, inside, one_mover, two_movers
from places import with_consequences
from toys import (
    callback,
    collective,
    copy_in,
    cube,
    hand_schedule,
    kernel_command,
    mix,
    toy_chain,
    toy_device,
    toy_diamond,
    toy_kernel,
    toy_pipeline,
    toy_squeeze,
    vector,
    whole_kernel,
)

from cann_env.graph import Buffer, CommandGraph, HostMemory, KernelClass, Level, Scheme
from cann_env.options import Allocator, RunOptions, Submission
from cann_env.schedule import BlockRun, HostCall, Schedule, TransferRun

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Command

FREE_FAULTS = toy_device(memory={"fault_ns": 0})
"""Migration on demand costs nothing but the link: a buffer of 64 bytes arrives in 69 ns."""


def edited(schedule: Schedule, field: str, row: int, **values: Any) -> Schedule:
    """The schedule with some values of one row changed."""
    rows = list(getattr(schedule, field))
    rows[row] = rows[row]._replace(**values)
    changed = replace(schedule, **{field: tuple(rows)})
    return with_consequences(changed) if field == "commands" else changed


def moved(schedule: Schedule, name: str, start_ns: int, finish_ns: int) -> Schedule:
    """The schedule with one command, of one kernel in one wave, at another time."""
    i = schedule.graph.command_index[name]
    commands = [
        run._replace(start_ns=start_ns, finish_ns=finish_ns) if run.command == i else run
        for run in schedule.commands
    ]
    times = {"start_ns": start_ns, "finish_ns": finish_ns, "kernel_start_ns": start_ns}
    blocks = [row._replace(**times) if row.command == i else row for row in schedule.blocks]
    return with_consequences(replace(schedule, commands=tuple(commands), blocks=tuple(blocks)))


def chain(**fields: Any) -> Schedule:
    """::

    s0: a 0-110 | b 111-221 | c 222-332
    """
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 111, 221), ("c", 0, 0, 222, 332)]
    return hand_schedule(toy_chain(3), fields.pop("runs", runs), **fields)


def diamond(**fields: Any) -> Schedule:
    """Events go from a to c and from c to d::

    s0: a 0-110 | b 111-221           | d 320-430
    s1:         | c 110 --------- 320 |
    """
    runs = [("a", 0, 0, 0, 110), ("b", 0, 0, 111, 221), ("c", 1, 0, 110, 320), ("d", 0, 0, 320, 430)]
    values: dict[str, Any] = {"waits": [("a", "c"), ("c", "d")]} | fields
    return hand_schedule(toy_diamond(), runs, **values)


def pipeline() -> Schedule:
    """Three streams, an event for every arrow from one to the next::

    s0: in0 0-69 | in1 70-139
    s1:          | k0 69 --- 179 | k1 180 ---- 290 |
    s2:                          | out0 179-248    | out1 290-359
    """
    runs = [
        ("in0", 0, 0, 0, 69),
        ("k0", 1, 0, 69, 179),
        ("in1", 0, 0, 70, 139),
        ("out0", 2, 0, 179, 248),
        ("k1", 1, 0, 180, 290),
        ("out1", 2, 0, 290, 359),
    ]
    waits = [("in0", "k0"), ("in1", "k1"), ("k0", "out0"), ("k1", "out1")]
    return hand_schedule(toy_pipeline(2), runs, waits=waits)


def pair(first: Command | None = None, second: Command | None = None, **fields: Any) -> Schedule:
    """Two independent commands on two streams, both from 0 to 110 ns."""
    commands = (first or vector("a"), second or vector("b"))
    runs = [(command.name, stream, 0, 0, 110) for stream, command in enumerate(commands)]
    return hand_schedule(CommandGraph("pair", commands), runs, **fields)


def waves(**fields: Any) -> Schedule:
    """Five cube blocks of 100 on two cores; only the first wave pays launch::

    0-110: 2 blocks | 110-210: 2 blocks | 210-310: 1 block
    """
    blocks = [
        BlockRun(0, 0, "cube", 2, 0, 0, 110, 0),
        BlockRun(0, 0, "cube", 2, 0, 110, 210, 0),
        BlockRun(0, 0, "cube", 1, 0, 210, 310, 0),
    ]
    graph = CommandGraph("waves", (cube("a", blocks=5),))
    return hand_schedule(graph, [("a", 0, 0, 0, 310)], **{"blocks": blocks, **fields})


def joined(finish_ns: int = 110) -> Schedule:
    """A block that joins at 5 ns begins to work with the first one, when launch ends at 10 ns."""
    blocks = [BlockRun(0, 0, "cube", 1, 0, 0, 110, 0), BlockRun(0, 0, "cube", 1, 0, 5, finish_ns, 0)]
    return hand_schedule(CommandGraph("joined", (cube("a", blocks=2),)), [("a", 0, 0, 0, 110)], blocks=blocks)


def fused(second_ns: int = 110) -> Schedule:
    """One command of two kernels back to back: vector 0-110, cube 110-220."""
    graph = CommandGraph("fused", (kernel_command("a", toy_kernel("vector", 100), toy_kernel("cube", 100)),))
    blocks = [whole_kernel(graph, 0, 0, 110), whole_kernel(graph, 0, second_ns, second_ns + 110, kernel=1)]
    return hand_schedule(graph, [("a", 0, 0, 0, second_ns + 110)], blocks=blocks)


def batched(late_ns: int = 0) -> Schedule:
    """Two blocks of a batch kernel, the second ``late_ns`` after the first."""
    kernel = toy_kernel("vector", 100, blocks=2, scheme=Scheme.BATCH)
    ends = 110 + late_ns
    blocks = [BlockRun(0, 0, "vector", 1, 0, t, t + 110, 0) for t in (0, late_ns)]
    graph = CommandGraph("batched", (kernel_command("a", kernel),))
    return hand_schedule(graph, [("a", 0, 0, 0, ends)], blocks=blocks)


def mixed(gap_ns: int = 3) -> Schedule:
    """A mix kernel starts 3 ns after a vector kernel, not 1."""
    graph = CommandGraph("mixed", (vector("a"), mix("b")))
    return hand_schedule(graph, [("a", 0, 0, 0, 110), ("b", 0, 0, 110 + gap_ns, 220 + gap_ns)])


def fallback(*classes: str) -> Schedule:
    """A cube kernel of two blocks that ran on vector cores, as it may."""
    kernel = toy_kernel("cube", 100, blocks=2, fallback=KernelClass.VECTOR)
    blocks = [BlockRun(0, 0, name, 1, 0, 0, 110, 0) for name in classes or ("vector", "vector")]
    graph = CommandGraph("fallback", (kernel_command("a", kernel),))
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], blocks=blocks)


def noisy(finish_ns: int = 165) -> Schedule:
    """One kernel that takes half as long again: 1.5 * 110 ns."""
    options = RunOptions(noise=0.5)
    return hand_schedule(toy_chain(1), [("a", 0, 0, 0, finish_ns)], options=options, noise=(3 * 2**19,))


def fork(**fields: Any) -> Schedule:
    """b and c, on streams of their own, hold one event id each while a runs."""
    graph = CommandGraph("fork", (vector("a"), vector("b", after=("a",)), vector("c", after=("a",))))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 110, 220), ("c", 2, 0, 110, 220)]
    return hand_schedule(graph, runs, waits=[("a", "b"), ("a", "c")], **fields)


def woken(start_ns: int = 116) -> Schedule:
    """c is blocked: a ends at 110 ns, its event is recorded at 112, and it takes 4 ns to wake the stream."""
    device = toy_device(dispatch={"record_ns": 2, "wake_ns": 4})
    runs = [("a", 0, 0, 0, 110), ("c", 1, 0, start_ns, start_ns + 110)]
    graph = CommandGraph("woken", (vector("a"), vector("c", after=("a",))))
    return hand_schedule(graph, runs, waits=[("a", "c")], device=device)


def waiting(start_ns: int = 205) -> Schedule:
    """c is issued at 200 ns, long after a: its wait is satisfied and takes 5 ns."""
    device = toy_device(dispatch={"wait_ns": 5})
    runs = [("a", 0, 0, 0, 110), ("c", 1, 200, start_ns, start_ns + 110)]
    graph = CommandGraph("waiting", (vector("a"), vector("c", after=("a",))))
    return hand_schedule(graph, runs, waits=[("a", "c")], device=device)


def freed(second_issue_ns: int = 110) -> Schedule:
    """There is one event id. b has waited for a at 110 ns, though it starts later; then c can have it::

    s0: a 0-110 |
    s1:         |          b 300-410
    s2:         | c 120-230
    """
    graph = CommandGraph("freed", (vector("a"), vector("b", after=("a",)), vector("c", after=("a",))))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 300, 410), ("c", 2, second_issue_ns, 120, 230)]
    device = toy_device(limits={"max_events": 1})
    return hand_schedule(graph, runs, waits=[("a", "b"), ("a", "c")], device=device)


def undecided() -> Schedule:
    """c may run as vector or as mix, so its stream keeps the longer gap of 3 ns though it runs as vector::

    s0: a 0-110 |
    s1: b 0-110 | c 118-228

    The stream comes to c at 113 ns. The event of a, recorded at 112 ns, is there and wakes nobody (7 ns);
    the wait takes 5 ns.
    """
    kernel = toy_kernel("vector", 100, fallback=KernelClass.MIX)
    graph = CommandGraph("undecided", (vector("a"), vector("b"), kernel_command("c", kernel, after=("a",))))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 0, 110), ("c", 1, 0, 118, 228)]
    device = toy_device(dispatch={"record_ns": 2, "wait_ns": 5, "wake_ns": 7})
    return hand_schedule(graph, runs, waits=[("a", "c")], device=device)


def late(issue_ns: int = 5) -> Schedule:
    """A command that is released at 5 ns."""
    graph = CommandGraph("late", (vector("a", release_ns=5),))
    return hand_schedule(graph, [("a", 0, issue_ns, 5, 115)])


# --- host ---------------------------------------------------------------------------------------------

EAGER = RunOptions(streams=4, submission=Submission.EAGER)
CALLS = (
    HostCall("issue", 0, 0, 5),
    HostCall("issue", 1, 5, 10),
    HostCall("wait", -1, 10, 12),
    HostCall("issue", 2, 12, 17),
)


def eager(*host: HostCall) -> Schedule:
    """A chain whose commands are issued at 5, 10 and 17 ns."""
    runs = [("a", 0, 5, 5, 115), ("b", 0, 10, 116, 226), ("c", 0, 17, 227, 337)]
    return chain(runs=runs, options=EAGER, host=host or CALLS)


def pageable(second_ns: int = 73, options: RunOptions = EAGER) -> Schedule:
    """A pageable copy from 4 to 73 ns keeps the host from issuing the kernel before it ends."""
    graph = CommandGraph("pageable", (copy_in("in", host_memory=HostMemory.PAGEABLE), vector("k")))
    host = (HostCall("issue", 0, 0, 4), HostCall("issue", 1, second_ns, second_ns + 5))
    runs = [("in", 0, 4, 4, 73), ("k", 1, second_ns + 5, second_ns + 5, second_ns + 115)]
    return hand_schedule(graph, runs, options=options, host=host)


def submitted(*short: int, allocator: Allocator = Allocator.POOL) -> Schedule:
    """One call of each kind; the calls named in ``short`` take a nanosecond less than they must.

    =======  ====================================================  ========
    call     what it takes                                         ns
    =======  ====================================================  ========
    0        copy 4, first to write x: 1 + 1 from the pool          6
    1        kernel 5, one wait: record 1 and wait 1                7
    2        callback 3                                             3
    3        collective 5, a wait, and y: 2                         9
    4        copy 4; x is written before and z lies in HBM          4
    =======  ====================================================  ========

    Without the pool an allocation and its release take 20 + 10 ns.
    """
    graph = CommandGraph(
        "submitted",
        (
            copy_in("a", writes=("x",)),
            vector("b", after=("a",)),
            callback("c"),
            collective("d", after=("b",), writes=("y",)),
            copy_in("e", writes=("x", "z"), after=("a",)),
        ),
        (
            *(Buffer(name=name, size_bytes=64) for name in "xy"),
            Buffer(name="z", size_bytes=64, level=Level.HBM),
        ),
    )
    extra = 28 if allocator is Allocator.MALLOC else 0
    least = [6 + extra, 7, 3, 9 + extra, 4]
    host, runs, ends = [], [], [0]
    for i, call_ns in enumerate(least):
        ends.append(ends[-1] + call_ns - (i in short))
        host.append(HostCall("issue", i, ends[i], ends[i + 1]))
    durations, streams = [69, 110, 50, 50, 69], [0, 1, 2, 3, 0]
    for i, name in enumerate("abcde"):
        start = {0: ends[1], 1: 200, 2: 200, 3: 400, 4: 400}[i]
        runs.append((name, streams[i], ends[i + 1], start, start + durations[i]))
    options = replace(EAGER, allocator=allocator)
    waits = [("a", "b"), ("b", "d")]
    return hand_schedule(graph, runs, options=options, host=tuple(host), waits=waits)


# --- memory -------------------------------------------------------------------------------------------


def outputs(size_bytes: int = 64, second_issue_ns: int = 110) -> Schedule:
    """Two kernels in a row, each writing a buffer nobody reads: never more than one is reserved."""
    graph = CommandGraph(
        "outputs",
        (vector("a", writes=("x",)), vector("b", writes=("y",))),
        tuple(Buffer(name=name, size_bytes=size_bytes) for name in "xy"),
    )
    runs = [("a", 0, 0, 0, 110), ("b", 0, second_issue_ns, 111, 221)]
    return hand_schedule(graph, runs, options=RunOptions(hbm_bytes=64))


def resident(hbm_bytes: int = 64) -> Schedule:
    """One buffer that lies in HBM from the start."""
    buffer = Buffer(name="x", size_bytes=64, level=Level.HBM)
    graph = CommandGraph("resident", (vector("a", reads=("x",)),), (buffer,))
    return hand_schedule(graph, [("a", 0, 0, 0, 110)], options=RunOptions(hbm_bytes=hbm_bytes))


W0 = TransferRun(0, "fault", 0, 0, 69)
W1 = TransferRun(1, "prefetch", 0, 69, 138)
GONE = TransferRun(0, "evict", 179, 179, 179)
W2 = TransferRun(2, "fault", 179, 179, 248)


def squeeze(*transfers: TransferRun, **fields: Any) -> Schedule:
    """Room for two of three weights of 64 bytes; w0 goes when k0 is done, so that w2 can come::

    link: w0 0-69 | w1 69-138 |        | w2 179-248
    s0:           | k0 69 ------- 179 | k1 180 ---- 290 | k2 291-401
    """
    runs = [("k0", 0, 0, 69, 179), ("k1", 0, 0, 180, 290), ("k2", 0, 0, 291, 401)]
    values: dict[str, Any] = {"options": RunOptions(hbm_bytes=128), "device": FREE_FAULTS} | fields
    values.setdefault("transfers", (W0, W1, GONE, W2))
    if transfers:
        values["transfers"] = transfers
    return hand_schedule(toy_squeeze(3), runs, **values)


def one_weight(
    start_ns: int, *transfers: TransferRun, size_bytes: int = 64, device: DeviceSpec = FREE_FAULTS
) -> Schedule:
    """A kernel that reads one weight."""
    runs = [("k0", 0, 0, start_ns, start_ns + 110)]
    return hand_schedule(toy_squeeze(1, size_bytes), runs, transfers=transfers, device=device)


def faulting(fetch_ns: int = 174, size_bytes: int = 128, **memory: int) -> Schedule:
    """A weight of 128 bytes comes on demand, 64 bytes at a time: 5 + 2 * (64 + 20) ns.

    In whole units of 2**-20 byte a ns the rate is a little below 64 / 84, which takes another ns.
    """
    device = toy_device(memory=memory)
    return one_weight(200, TransferRun(0, "fault", 0, 0, fetch_ns), size_bytes=size_bytes, device=device)


def grouped(fetch_ns: int = 154) -> Schedule:
    """The same where one fault brings both pages: 5 + 128 + 20 ns, and one for rounding."""
    return faulting(fetch_ns, fault_group_pages=2)


def fetched(call_ns: int = 2, reserve_ns: int = 0, buffer: int = 0) -> Schedule:
    """One weight, prefetched by a call of 2 ns at the beginning; its kernel is issued after it."""
    schedule = one_weight(80, TransferRun(0, "prefetch", reserve_ns, reserve_ns, 75))
    calls = (HostCall("prefetch", buffer, 0, call_ns), HostCall("issue", 0, call_ns, call_ns + 5))
    return edited(replace(schedule, options=EAGER, host=calls), "commands", 0, issue_ns=call_ns + 5)


def whole_units(fetch_ns: int = 133) -> Schedule:
    """A weight of 65 bytes moves as two units of 64."""
    return one_weight(140, TransferRun(0, "fault", 0, 0, fetch_ns), size_bytes=65)


SOUND = [chain, diamond, pipeline, pair, waves, joined, fused, batched, mixed, fallback, noisy, fork, late]
SOUND += [woken, waiting, freed, undecided]
SOUND += [
    eager,
    pageable,
    submitted,
    faulting,
    grouped,
    fetched,
    crowded,
    enormous,
    one_mover,
    two_movers,
    copies,
    inside,
    beside,
    outputs,
    resident,
    squeeze,
    whole_units,
]
