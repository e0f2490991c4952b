"""Small runs behind docs/memory.md about HBM and the host: schedules, and lines with its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_host import B2, MIB, WEIGHT, Host, count, device_buffer, duration, kernel, managed, rate

from cann_env.device.cost import link_rate_q20
from cann_env.device.load import load_device
from cann_env.graph import Buffer, CommandGraph, HostMemory, Level
from cann_env.metrics import metrics
from cann_env.options import Allocator, Eviction, PrefetchMask
from cann_env.units import MemoryAllocationError, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule


ACTIVATIONS, ROOM = 5, 3 * WEIGHT

# --- device buffers -----------------------------------------------------------------------------------


def places_before_z() -> Host:
    """Holes of 4, 3 and 5 MiB in 16 MiB; x and y have found room, z is to come."""
    commands = (
        kernel("fill", 100, writes=("a", "b", "c", "d")),
        kernel("drop ac", 100, reads=("a", "c")),
        kernel("put x", 100, after=("drop ac",), writes=("x",)),
        kernel("put y", 100, after=("put x",), writes=("y",)),
        kernel("drop d", 100, after=("put y",), reads=("d",)),
        kernel("put z", 100, after=("put y",), writes=("z",)),
        kernel("end", 100, after=("drop d",), reads=("b", "x", "y", "z")),
    )
    sizes = {"a": 4, "b": 2, "c": 3, "d": 2, "x": 3, "y": 3, "z": 6}
    graph = CommandGraph("places", commands, tuple(device_buffer(*item) for item in sizes.items()))
    host = Host(graph, run_ahead=1, allocator=Allocator.MALLOC, hbm_bytes=16 * MIB)
    return host.issue("fill", "drop ac", "put x", "put y")


def places() -> Schedule:
    """The same to the end: z goes where d was."""
    return places_before_z().issue_when_legal("drop d").issue_when_legal("put z").issue("end").schedule()


def show_device() -> Iterable[str]:
    """What the 910B2 has."""
    memory = B2.memory
    sizes = {
        "HBM": memory.hbm_bytes,
        "L2": memory.l2_bytes,
        "alignment": memory.alignment_bytes,
        "least block of the pool": memory.pool_min_block_bytes,
        "page": memory.page_bytes,
    }
    yield "910B2: " + ", ".join(f"{name} {format_size(size)}" for name, size in sizes.items())
    yield f"910B2: at most {memory.l2_prefetch_max_bytes / 1e6:.0f} MB for one lift into L2"


def show_places() -> Iterable[str]:
    """Best fit, fragmentation, and what does not fit."""
    schedule, host = places(), places_before_z()
    for row in schedule.allocations:
        name = schedule.graph.buffers[row.buffer].name
        yield f"places: {name} of {format_size(row.size_bytes)} at {format_size(row.address)}"
    free, hole = format_size(host.free_bytes), format_size(host.hole_bytes)
    yield f"places: after y {free} are free, the largest hole has {hole}; z may go: {host.may_issue('put z')}"
    yield f"places: fragmentation {100 * metrics(schedule).fragmentation:.1f} %"
    graph = CommandGraph("large", (kernel("k", 100, writes=("x", "y")),), tuple(map(_five, "xy")))
    try:
        Host(graph, hbm_bytes=8 * MIB)
    except MemoryAllocationError as error:
        yield f"too large: {error}"


def _five(name: str) -> Buffer:
    return device_buffer(name, 5)


def show_sizes() -> Iterable[str]:
    """What each allocator takes for 9 MiB."""
    forms: tuple[tuple[str, dict[str, Any]], ...] = (
        ("malloc", {"allocator": Allocator.MALLOC}),
        ("pool, size classes", {"allocator": Allocator.POOL}),
        ("pool, blocks of 4.0 MiB", {"allocator": Allocator.POOL, "pool_block_bytes": 4 * MIB}),
    )
    graph = CommandGraph("sizes", (kernel("k", 100, writes=("x",)),), (device_buffer("x", 9),))
    for name, options in forms:
        schedule = Host(graph, **options).issue("k").schedule()
        taken = format_size(schedule.allocations[0].size_bytes)
        yield f"sizes: 9.0 MiB take {taken} of {name}; rounding {100 * metrics(schedule).rounding:.1f} %"


def show_reuse() -> Iterable[str]:
    """Let c take on stream 1 the place that a and b used on stream 0."""
    commands = (
        kernel("a", 100, writes=("x",)),
        kernel("b", 100, reads=("x",)),
        kernel("c", 100, writes=("y",)),
        kernel("d", 300),
    )
    graph = CommandGraph("reuse", commands, (device_buffer("x", 4), device_buffer("y", 4)))
    host = Host(graph, streams=2, hbm_bytes=6 * MIB).issue("a", "b")
    yield f"reuse: c may be issued while x is there: {host.may_issue('c', 1)}"
    same = host.issue_when_legal("c").issue("d").schedule()
    host = Host(graph, streams=2, hbm_bytes=6 * MIB).issue("a", "b").issue_when_legal("d")
    other = host.issue_when_legal("c", stream=1).schedule()
    names = [command.name for command in commands]
    waits = ", ".join(f"{names[row.consumer]} behind {names[row.producer]}" for row in other.waits)
    yield f"reuse: on the same stream {len(same.waits)} events, on another: {waits}"


def show_banker() -> Iterable[str]:
    """Two chains, a -> b and c -> d, each with a buffer between and one at the end, in room for two."""
    commands = (
        kernel("a", 100, writes=("w",)),
        kernel("b", 100, reads=("w",), writes=("x",)),
        kernel("c", 100, writes=("y",)),
        kernel("d", 100, reads=("y",), writes=("z",)),
    )
    graph = CommandGraph("banker", commands, tuple(device_buffer(name, 4) for name in "wxyz"))
    for mib in (8, 12):
        host = Host(graph, streams=2, hbm_bytes=mib * MIB, run_ahead=8).issue("a")
        yield f"banker: in {format_size(mib * MIB)} c may be issued beside a: {host.may_issue('c', 1)}"


# --- managed buffers ----------------------------------------------------------------------------------


def three_weights(**fields: Any) -> CommandGraph:
    """A chain of three kernels of 600 us, each reading 16 MiB that lie on the host."""
    commands = tuple(
        kernel(f"k{i}", 600, reads=(f"w{i}",), after=(f"k{i - 1}",) if i else ()) for i in range(3)
    )
    return CommandGraph("three weights", commands, tuple(managed(f"w{i}", **fields) for i in range(3)))


def on_demand(device: DeviceSpec | None = None) -> Schedule:
    """Each weight comes when its kernel is at the front."""
    return Host(three_weights(), device).issue("k0", "k1", "k2").schedule()


def prefetched(**options: Any) -> Schedule:
    """All weights are asked for at the start."""
    return Host(three_weights(), **options).prefetch("w0", "w1", "w2").issue("k0", "k1", "k2").schedule()


def show_faults() -> Iterable[str]:
    """Migration on demand against prefetches, step by step on the 910B2."""
    link, group = link_rate_q20(B2, "h2d"), B2.memory.page_bytes * B2.memory.fault_group_pages
    plain = group * 2**20 / link
    fault = B2.memory.fault_ns
    yield f"kernels: {duration(on_demand(), 'k0')} each"
    yield f"link: {rate(link)} after {format_time(B2.links['h2d'].latency_ns)}"
    yield f"fault: {format_size(group)} take {format_time(plain)} of link and {format_time(fault)} of fault"
    yield f"fault: together {format_time(plain + fault)}, that is {rate(group * 2**20 / (plain + fault))}"
    demand, early = on_demand(), prefetched()
    for name, schedule in (("on demand", demand), ("prefetched", early)):
        moves = ", ".join(format_time(m.finish_ns - m.start_ns) for m in schedule.transfers)
        makespan = format_time(schedule.makespan_ns)
        stall = format_time(schedule.stall.fault)
        yield f"{name}: {format_size(WEIGHT)} each take {moves}; makespan {makespan}, stall.fault {stall}"
    both = prefetched(prefetch_streams=2)
    ends = ", ".join(format_time(move.finish_ns) for move in both.transfers)
    yield f"prefetch_streams 2: they arrive at {ends}; makespan {format_time(both.makespan_ns)}"
    host = Host(three_weights(host_memory=HostMemory.PAGEABLE)).prefetch("w0")
    yield f"pageable: after the call for w0 it is {format_time(host.now_ns)}"
    ready = on_demand(load_device("ascend310b1"))
    moved, makespan = len(ready.transfers), format_time(ready.makespan_ns)
    yield f"zero copy: on the 310B1 {moved} buffers move; makespan {makespan}"


def there_and_back(**options: Any) -> Host:
    """Forward writes a0 to a4, backward reads them in reverse; memory for three of them."""
    forward = [
        kernel(f"f{i}", 500, reads=(f"a{i - 1}",) if i else (), writes=(f"a{i}",)) for i in range(ACTIVATIONS)
    ]
    backward = [
        kernel(f"b{i}", 500, reads=(f"a{i}",), after=(f"b{i + 1}" if i < ACTIVATIONS - 1 else f"f{i}",))
        for i in reversed(range(ACTIVATIONS))
    ]
    buffers = tuple(managed(f"a{i}", level=Level.ABSENT) for i in range(ACTIVATIONS))
    graph = CommandGraph("there and back", (*forward, *backward), buffers)
    return Host(graph, hbm_bytes=ROOM, **options)


def written_back() -> Schedule:
    """Nothing is moved beforehand."""
    host = there_and_back()
    return host.issue(*(command.name for command in host.graph.commands)).schedule()


def moved_early() -> Schedule:
    """The first two are offloaded as soon as nobody uses them, and fetched as soon as there is room."""
    host = there_and_back(offloads=2, run_ahead=1)
    for name in ("f0", "f1", "f2"):
        host.issue_when_legal(name)
    host.offload("a0").issue_when_legal("f3").offload("a1").issue_when_legal("f4").issue_when_legal("b4")
    coming = ["a1", "a0"]
    for name in ("b3", "b2", "b1", "b0"):
        while not host.may_issue(name):
            host.wait()
        if coming and host.may_prefetch(coming[0]):
            host.prefetch(coming.pop(0))
        host.issue(name)
    return host.schedule()


def show_writebacks() -> Iterable[str]:
    """What leaves, and who waits for it."""
    for name, schedule in (
        ("there and back, on demand", written_back()),
        ("there and back, moved early", moved_early()),
    ):
        moved = ", ".join(
            f"{count(schedule, cause)} by {cause}" for cause in ("touch", "writeback", "fault", "prefetch")
        )
        yield f"{name}, {format_size(WEIGHT)} each in {format_size(ROOM)}: {moved}"
        makespan, stall = format_time(schedule.makespan_ns), format_time(schedule.stall.fault)
        yield f"{name}, kernels of {duration(schedule, 'f0')}: makespan {makespan}, stall.fault {stall}"


def round_robin(eviction: Eviction) -> Schedule:
    """Three weights in turn, twice, in room for two."""
    commands = tuple(
        kernel(f"k{i}", 600, reads=(f"w{i % 3}",), after=(f"k{i - 1}",) if i else ()) for i in range(6)
    )
    graph = CommandGraph("in turn", commands, tuple(managed(f"w{i}") for i in range(3)))
    return Host(graph, hbm_bytes=2 * WEIGHT, eviction=eviction).issue(*(f"k{i}" for i in range(6))).schedule()


def show_evictions() -> Iterable[str]:
    """LRU against the furthest next use; strict against free."""
    for eviction in (Eviction.LRU, Eviction.FURTHEST):
        yield f"eviction: {eviction.value} {count(round_robin(eviction), 'fault')} faults"
    for mask in (PrefetchMask.STRICT, PrefetchMask.FREE):
        host = Host(three_weights(), hbm_bytes=2 * WEIGHT, prefetch_mask=mask).prefetch("w0", "w1")
        while host.now_ns < 1_400_000:
            host.wait()
        yield f"mask: {mask.value}, both places taken by what is needed sooner; w2: {host.may_prefetch('w2')}"
