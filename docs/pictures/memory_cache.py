"""Small runs behind docs/memory.md about the L2 and about dies; lines that hold the figures of the page."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from memory_host import B2, MIB, WEIGHT, Host, duration, kernel, rate
from memory_host import device_buffer as device

from cann_env.device.cost import l2_rate_q20, link_rate_q20, sdma_rate_q20
from cann_env.device.load import load_device
from cann_env.graph import CommandGraph, KernelClass, Level
from cann_env.metrics import metrics
from cann_env.options import PrefetchMask
from cann_env.units import InputError, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.schedule import Schedule

LAYERS = 8
ACTIVATION = 16
SMALL_L2 = 32 * MIB


def one_reader(*, l2_bytes: int | None = None, lift: bool = False) -> Schedule:
    """A kernel writes x; the next reads x and w and writes y."""
    commands = (
        kernel("make x", 200, writes=("x",)),
        kernel(
            "read x w", cores=KernelClass.CUBE, reads=("x", "w"), writes=("y",),
            bytes_read=64 * MIB, bytes_written=32 * MIB,
        ),
    )  # fmt: skip
    buffers = (device("x", 48), device("w", 16, Level.HBM), device("y", 32))
    host = Host(CommandGraph("one reader", commands, buffers), l2_bytes=l2_bytes).issue("make x")
    return (host.lift("w") if lift else host).issue("read x w").schedule()


def show_hits() -> Iterable[str]:
    """A block moves its bytes in stages."""
    cores, part = 24, 48 * MIB // 24
    port = B2.classes["cube"].bytes_per_cycle * B2.clock_hz * 2**20 / 1e9
    hbm = link_rate_q20(B2, "hbm")
    own, l2 = min(hbm / cores, port), l2_rate_q20(B2) / cores
    yield f"rates: HBM {rate(hbm)}, L2 {rate(l2_rate_q20(B2))}, lift {rate(sdma_rate_q20(B2))}"
    yield f"stages: a block of 4.0 MiB, half of it in L2, by HBM at {rate(own)}, by L2 at {rate(l2)}"
    times = (part * 2**20 / own, part * 2**20 / l2, 2 * part * 2**20 / own)
    yield (
        f"stages: {format_size(part)} by HBM {format_time(times[0])}, by L2 {format_time(times[1])}; "
        f"all by HBM {format_time(times[2])}"
    )
    forms = {"without L2": one_reader(l2_bytes=0), "x found": one_reader(), "x and w": one_reader(lift=True)}
    for name, schedule in forms.items():
        found = format_size(metrics(schedule).l2_hit_bytes)
        yield f"hits, {name}: {found} of 96.0 MiB; the kernel takes {duration(schedule, 'read x w')}"
    lift = next(move for move in forms["x and w"].transfers if move.cause == "lift")
    yield f"lift: {format_size(lift.size_bytes)} of w in {format_time(lift.finish_ns - lift.start_ns)}"


# --- lifting ahead ------------------------------------------------------------------------------------


def layers() -> CommandGraph:
    """Layers of a kernel that computes for 60 us, and one that reads a weight of 16 MiB and an activation."""
    commands, buffers = [], [device("x0", ACTIVATION)]
    commands.append(kernel("make x0", 60, writes=("x0",)))
    for i in range(LAYERS):
        commands.append(kernel(f"c{i}", 60, after=(f"m{i - 1}" if i else "make x0",)))
        size = {"bytes_read": (16 + ACTIVATION) * MIB, "bytes_written": ACTIVATION * MIB}
        names = {"reads": (f"x{i}", f"w{i}"), "writes": (f"x{i + 1}",)}
        commands.append(kernel(f"m{i}", cores=KernelClass.CUBE, after=(f"c{i}",), **names, **size))
        buffers += [device(f"w{i}", WEIGHT // MIB, Level.HBM), device(f"x{i + 1}", ACTIVATION)]
    return CommandGraph("layers", tuple(commands), tuple(buffers))


def lifted(ahead: int) -> Schedule:
    """As ``c`` of a layer is issued, ask for the weights of this layer and the next: ``ahead`` in all."""
    host = Host(
        layers(), run_ahead=1, prefetch_mask=PrefetchMask.FREE, l2_bytes=SMALL_L2, l2_prefetches=2 * LAYERS
    )
    asked = 0
    host.issue("make x0")
    for i in range(LAYERS):
        host.issue_when_legal(f"c{i}")
        last = min(LAYERS, i + ahead) if ahead else 0
        host.lift(*(f"w{j}" for j in range(asked, last)))
        asked = max(asked, last)
        host.issue_when_legal(f"m{i}")
    return host.schedule()


AHEAD = (0, 1, 2, 3, 4)


def show_lifts() -> Iterable[str]:
    """How much helps and how much hurts."""
    sizes = ", ".join(format_size(size) for size in (WEIGHT, ACTIVATION * MIB, SMALL_L2))
    yield f"lifting ahead: weights, activations and L2 have {sizes}; 60.00 us of compute before each reader"
    for ahead in AHEAD:
        schedule = lifted(ahead)
        figures = metrics(schedule)
        occupancy(schedule, SMALL_L2)
        yield (
            f"lifting ahead, {ahead} weights: makespan {format_time(schedule.makespan_ns)}, "
            f"hit rate {100 * figures.l2_hit_rate:.1f} %"
        )


def _changes(schedule: Schedule) -> list[tuple[int, int, str, str, int]]:
    """What happens in L2: time, turn within an instant, what, buffer, and bytes or who uses it."""
    graph = schedule.graph
    found = []
    for run in schedule.commands:
        command = graph.commands[run.command]
        found += [(run.start_ns, 2, "use", name, run.command) for name in command.reads]
        for name in command.writes:
            size = graph.buffers[graph.buffer_index[name]].size_bytes
            found.append((run.finish_ns, 0, "enter", name, size))
    for move in schedule.transfers:
        if move.cause == "lift":
            found.append((move.finish_ns, 0, "enter", graph.buffers[move.buffer].name, move.size_bytes))
    for row in schedule.allocations:
        found.append((row.free_ns, 1, "leave", graph.buffers[row.buffer].name, 0))
    end = schedule.makespan_ns  # what is later was not over when the run was
    return sorted((change for change in found if change[0] <= end), key=lambda change: change[:2])


def occupancy(schedule: Schedule, capacity: int) -> list[tuple[int, dict[str, int]]]:
    """Bytes of each buffer in the L2 of die 0 after each change, the one that goes first in front.

    It is replayed from the schedule by the rule of the page.

    Raises:
        InputError: The replay does not find what the kernels found.
    """
    held: OrderedDict[str, int] = OrderedDict()
    found = dict.fromkeys(range(len(schedule.graph.commands)), 0)
    curve = [(0, dict(held))]
    for time, _, what, name, value in _changes(schedule):
        if what == "enter":
            _enter(held, name, value, capacity)
        elif what == "leave":
            held.pop(name, None)
        elif name in held:
            held.move_to_end(name)
            found[value] += held[name]
        curve.append((time, dict(held)))
    if any(found[i] != sum(h.hit_bytes for h in schedule.hits if h.command == i) for i in found):
        raise InputError(
            f"the replay of the L2 of {schedule.graph.name!r} does not find what its kernels found"
        )
    return curve


def _enter(held: OrderedDict[str, int], name: str, size: int, capacity: int) -> None:
    wanted = max(size, held.pop(name, 0))
    excess = sum(held.values()) + wanted - capacity
    while excess > 0 and held:
        victim = next(iter(held))
        going = min(held[victim], excess)
        excess -= going
        held[victim] -= going
        if held[victim] == 0:
            del held[victim]
    if wanted <= capacity:
        held[name] = wanted


# --- dies ---------------------------------------------------------------------------------------------


def show_dies() -> Iterable[str]:
    """A kernel of die 0 that reads 64 MiB from its own die, and from the other one."""
    two = load_device("ascend910_93")
    yield f"dies: the link between them carries {rate(link_rate_q20(two, 'die'))}"
    for die in (0, 1):
        reader = kernel("k", cores=KernelClass.CUBE, reads=("x",), bytes_read=64 * MIB)
        graph = CommandGraph("dies", (reader,), (device("x", 64, Level.HBM, die),))
        schedule = Host(graph, two).issue("k").schedule()
        yield f"dies: 64.0 MiB on die {die} take a kernel of die 0 {duration(schedule, 'k')}"
