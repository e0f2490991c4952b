"""Lower bounds of the makespan, worked out from the graph in plain Python.

Graph, device and options go in, the terms of the bound come out. The engine works out the same number
from its arrays when it starts; this is the independent second account of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from cann_env.capacity import aligned_bytes, gets_place
from cann_env.device.cost import (
    KernelCost,
    cores_of_class,
    cost_of,
    kernel_cost,
    l2_rate_q20,
    link_rate_q20,
    minimum_kernel_ns,
)
from cann_env.graph import BufferKind, CommandKind, CopyKind, Level, Scheme
from cann_env.options import Allocator, Submission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Command, CommandGraph, Kernel
    from cann_env.options import RunOptions

_Q20 = 2**20
_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_FIXED_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """No schedule with the expected durations ends before any of these instants (ns).

    Attributes:
        critical_path_ns: The longest chain of commands that need each other.
        area_ns: By pool, its work spread over all its cores.
        link_ns: By link, its bytes at full speed.
        host_ns: Every submission, one after another.
        lower_bound_ns: The largest of them, at least 1.
    """

    critical_path_ns: int
    area_ns: dict[str, int]
    link_ns: dict[str, int]
    host_ns: int
    lower_bound_ns: int

    @property
    def terms(self) -> dict[str, int]:
        """All terms by name: ``critical path``, the pools, ``link`` and its name, ``host``."""
        links = {f"link {name}": ns for name, ns in self.link_ns.items()}
        return {"critical path": self.critical_path_ns, **self.area_ns, **links, "host": self.host_ns}

    @property
    def binding(self) -> str:
        """The term that makes the bound."""
        return max(self.terms, key=self.terms.__getitem__)


class _Work(NamedTuple):
    """What a kernel, copy, callback or collective surely takes, whichever class it runs as.

    ``block_ns`` is the time one block works, launch or latency left out; ``held`` is what it holds of each
    pool in that time, empty if it has a choice; ``bytes_q20`` are those of all blocks on ``link``.
    """

    least_ns: int
    blocks: int
    block_ns: int
    held: Mapping[str, int]
    link: str
    bytes_q20: int


def lower_bounds(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> Bounds:
    """Bound the makespan from below.

    What counts:

    - *Critical path.* A kernel takes the least of :func:`~cann_env.device.cost.minimum_kernel_ns` over its
      class and its fallback (those the device has, and wide enough for a batch kernel), a command the sum
      of its kernels, a copy its latency and its bytes at the lesser of its engine's and its link's speed, a
      callback or collective its duration. Of what a kernel reads as much comes from L2 as may ever lie
      there: outputs of kernels that fit, of other buffers what one prefetch lifts. Nothing starts before its
      release. What could be issued at time zero (released, depends on nothing) starts no earlier than its
      own host call ends, nor than its managed buffers that begin on the host and are read could have
      crossed the h2d links of all dies. Dispatch gaps, event costs and later arrivals do not count.
    - *Area.* Blocks times the time one works (compute, or bytes at its own cap if that is longer; neither
      launch nor latency) times its demand, over the capacity of the pool on all dies, rounded up. Kernels
      that may run as two classes do not count.
    - *Links.* Bytes over the rate of all dies, rounded up. ``hbm``: bytes of kernels (the lesser of its
      classes) that L2 cannot hold, copies where their link shares HBM, twice the bytes of copies within HBM.
      ``h2d``: copies, and each managed buffer that begins on the host and whose first user reads it, once, in
      whole allocation units. ``d2h``: copies.
    - *Host.* In eager mode the calls of all commands, with an allocation and a release for each device
      buffer that is not there from the start; events and prefetches do not count. Zero in sink mode.

    Raises:
        InputError: The device cannot run some kernel in any way.
    """
    hits = _most_hits(graph, device, options)
    works = [_works(command, device, hit) for command, hit in zip(graph.commands, hits, strict=True)]
    cold = _cold_bytes(graph, device)
    calls = _calls_ns(graph, device, options)
    critical = _critical_path_ns(graph, device, works, calls, cold)
    area = _area_ns(device, works)
    links = _link_ns(graph, device, works, cold)
    largest = max(critical, *area.values(), *links.values(), sum(calls), 1)
    return Bounds(
        critical_path_ns=critical,
        area_ns=area,
        link_ns=links,
        host_ns=sum(calls),
        lower_bound_ns=largest,
    )


def _most_hits(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> list[int]:
    """For each command the largest part of its kernels' bytes that L2 may hold (2**-20)."""
    l2 = device.memory.l2_bytes if options.l2_bytes is None else options.l2_bytes
    lift = options.l2_prefetch_bytes
    lift = device.memory.l2_prefetch_max_bytes if lift is None else lift
    lift = min(lift, l2) if options.l2_prefetches else 0
    size = {buffer.name: aligned_bytes(buffer, device) for buffer in graph.buffers}
    made = {name for command in graph.commands if command.kernels for name in command.writes}
    most = {name: n if name in made and n <= l2 else min(n, lift) for name, n in size.items()}
    hits = []
    for command in graph.commands:
        total = sum(size[name] for name in (*command.reads, *command.writes)) if command.kernels else 0
        found = min(sum(most[name] for name in command.reads), l2 * device.dies)
        hits.append(found * _Q20 // total if total else 0)
    return hits


def _works(command: Command, device: DeviceSpec, hit: int) -> list[_Work]:
    if command.kind is CommandKind.KERNEL:
        return [_kernel_work(kernel, device, hit) for kernel in command.kernels]
    if command.copy is None:
        fixed = command.duration_ns
        return [_Work(fixed, 1, fixed, device.classes[_FIXED_CLASS[command.kind]].demand, "hbm", 0)]
    engine = _COPY_CLASS[command.copy]
    size, times, link = command.size_bytes, 1, str(command.copy)
    if command.copy is CopyKind.D2D:
        times, link = 2, "hbm"
    measured = command.duration_ns or None
    cost = kernel_cost(device, engine, flops=0, dtype="", size_bytes=size, blocks=1, duration_ns=measured)
    least = minimum_kernel_ns(device, engine, cost, 1)
    held = device.classes[engine].demand
    return [_Work(least, 1, _block_ns(cost), held, link, cost.bytes_q20 * times)]


def _kernel_work(kernel: Kernel, device: DeviceSpec, hit: int) -> _Work:
    names = [str(name) for name in (kernel.kernel_class, kernel.fallback) if name is not None]
    width = kernel.blocks if kernel.scheme is Scheme.BATCH else 1
    cores = {name: cores_of_class(device, name, kernel.demand) for name in names}
    fitting = [name for name in names if cores[name] >= width] or names
    costs = {name: cost_of(device, name, kernel) for name in fitting}
    cold = {
        name: replace(cost, bytes_q20=cost.bytes_q20 - -(-cost.bytes_q20 * hit // _Q20))
        for name, cost in costs.items()
    }
    blocks_ns = {name: _hit_block_ns(device, cores[name], cost, cold[name]) for name, cost in costs.items()}
    waves = {name: -(-kernel.blocks // cores[name]) for name in costs}
    held = device.classes[fitting[0]].demand if kernel.demand is None else dict(kernel.demand)
    return _Work(
        least_ns=min(
            max(
                minimum_kernel_ns(device, name, cold[name], kernel.blocks, kernel.demand),
                cost.launch_ns + waves[name] * blocks_ns[name],
            )
            for name, cost in costs.items()
        ),
        blocks=kernel.blocks,
        block_ns=min(blocks_ns.values()),
        held=held if len(fitting) == 1 else {},
        link="hbm",
        bytes_q20=min(cost.bytes_q20 for cost in cold.values()) * kernel.blocks,
    )


def _hit_block_ns(device: DeviceSpec, cores: int, cost: KernelCost, cold: KernelCost) -> int:
    """Least time of a block that finds all bytes of ``cost`` but those of ``cold`` in L2."""
    fast = max(cost.rate_q20, l2_rate_q20(device) // cores)
    moved = Fraction(cold.bytes_q20, cost.rate_q20) + Fraction(cost.bytes_q20 - cold.bytes_q20, fast)
    return max(cost.compute_ns, ceil(moved))


def _block_ns(cost: KernelCost) -> int:
    return max(cost.compute_ns, -(-cost.bytes_q20 // cost.rate_q20))


def _critical_path_ns(
    graph: CommandGraph,
    device: DeviceSpec,
    works: list[list[_Work]],
    calls: list[int],
    cold: dict[str, int],
) -> int:
    finish = [0] * len(graph.commands)
    for i in graph.topological_order:
        command, before = graph.commands[i], graph.predecessors[i]
        start = max((finish[j] for j in before), default=0)
        if not before and command.release_ns == 0:
            start = max(calls[i], _arrival_ns(command, device, cold))
        finish[i] = max(start, command.release_ns) + sum(work.least_ns for work in works[i])
    return max(finish)


def _cold_bytes(graph: CommandGraph, device: DeviceSpec) -> dict[str, int]:
    """Allocation units, in bytes, of the managed buffers that begin on the host."""
    if device.memory.host_shares_dram:
        return {}
    return {
        buffer.name: aligned_bytes(buffer, device)
        for buffer in graph.buffers
        if buffer.kind is BufferKind.MANAGED and buffer.level is Level.HOST
    }


def _arrival_ns(command: Command, device: DeviceSpec, cold: dict[str, int]) -> int:
    size = sum(cold.get(name, 0) for name in command.reads)
    if not size:
        return 0
    rate = link_rate_q20(device, "h2d") * device.dies
    return device.links["h2d"].latency_ns - (-size * _Q20 // rate)


def _area_ns(device: DeviceSpec, works: list[list[_Work]]) -> dict[str, int]:
    held = dict.fromkeys(device.pools, 0)
    for work in (work for own in works for work in own):
        for pool, demand in work.held.items():
            held[pool] += work.blocks * work.block_ns * demand
    return {
        pool: -(-held[pool] // (cores * device.dies)) if cores else 0 for pool, cores in device.pools.items()
    }


def _link_ns(
    graph: CommandGraph, device: DeviceSpec, works: list[list[_Work]], cold: dict[str, int]
) -> dict[str, int]:
    moved: dict[str, int] = defaultdict(int)
    for work in (work for own in works for work in own):
        moved[work.link] += work.bytes_q20
        if work.link != "hbm" and device.links[work.link].shares_hbm:
            moved["hbm"] += work.bytes_q20
    read_first: dict[str, bool] = {}
    for command in graph.commands:
        for name in (*command.reads, *command.writes):
            read_first.setdefault(name, name in command.reads)
    moved["h2d"] += sum(size * _Q20 for name, size in cold.items() if read_first.get(name, False))
    return {link: -(-moved[link] // (link_rate_q20(device, link) * device.dies)) for link in device.links}


def _calls_ns(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> list[int]:
    if options.submission is Submission.SINK:
        return [0] * len(graph.commands)
    host, memory = device.host, device.memory
    call = {
        CommandKind.KERNEL: host.launch_kernel_ns,
        CommandKind.COPY: host.memcpy_async_ns,
        CommandKind.CALLBACK: host.launch_callback_ns,
        CommandKind.COLLECTIVE: host.launch_kernel_ns,
    }
    buffer_ns = memory.malloc_ns + memory.free_ns
    if options.allocator is Allocator.POOL:
        buffer_ns = memory.pool_malloc_ns + memory.pool_free_ns
    outputs = _outputs(graph, device)
    return [
        call[command.kind] + buffer_ns * count for command, count in zip(graph.commands, outputs, strict=True)
    ]


def _outputs(graph: CommandGraph, device: DeviceSpec) -> list[int]:
    """For how many buffers each command takes a place, being the first to write them."""
    fresh = {buffer.name for buffer in graph.buffers if gets_place(buffer, device)}
    counts = []
    for command in graph.commands:
        first = fresh.intersection(command.writes)
        counts.append(len(first))
        fresh -= first
    return counts
