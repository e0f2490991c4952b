"""A tiny device with round numbers and tiny graphs, so that expected times can be computed by hand.

On the toy device a cycle lasts 1 ns, a core does one operation a cycle and moves at most 2 bytes a
cycle, HBM moves 4 bytes a nanosecond, a copy between host and device 1 byte a nanosecond after 5 ns,
and every kernel first pays 10 ns of launch. Two commands of one stream are 1 ns apart, 3 ns where
exactly one of them is a mix kernel. So ``vector("a", 100)`` takes 110 ns and ``copy_in("c", 64)`` 69 ns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from places import with_consequences

from cann_env.device.spec import (
    CLASSES,
    ClassSpec,
    DeviceSpec,
    DispatchSpec,
    HostSpec,
    LimitSpec,
    LinkSpec,
    MemorySpec,
)
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    Kernel,
    KernelClass,
    Level,
)
from cann_env.options import RunOptions
from cann_env.schedule import BlockRun, CommandRun, EventWait, Schedule, Stall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LAUNCH_NS = 10
LINK_NS = 5

DEMAND: dict[str, dict[str, int]] = {
    "cube": {"aic": 1},
    "vector": {"aiv": 1},
    "mix": {"aic": 1, "aiv": 2},
    "aicpu": {"aicpu": 1},
    "h2d": {"h2d": 1},
    "d2h": {"d2h": 1},
    "sdma": {"sdma": 1},
    "callback": {"callback": 1},
    "hcom": {"hcom": 1},
}


def _toy_class(name: str) -> ClassSpec:
    on_cores = name in {"cube", "vector", "mix", "aicpu"}
    return ClassSpec(
        demand=DEMAND[name],
        max_active=4,
        flops_per_cycle={"float16": 1.0} if on_cores else {},
        compute_efficiency=1.0,
        bytes_per_cycle=2.0 if on_cores else 0.0,
        launch_base_ns=LAUNCH_NS if on_cores else 0,
        launch_per_block_ns=0,
    )


def _toy_link(bytes_per_ns: int, latency_ns: int) -> LinkSpec:
    return LinkSpec(
        bandwidth_bytes_per_s=bytes_per_ns * 10**9, efficiency=1.0, latency_ns=latency_ns, shares_hbm=False
    )


_TOY = DeviceSpec(
    name="toy",
    title="Toy",
    dies=1,
    clock_hz=10**9,
    pools={"aic": 2, "aiv": 4, "aicpu": 1, "h2d": 1, "d2h": 1, "sdma": 1, "callback": 1, "hcom": 1},
    classes={name: _toy_class(name) for name in CLASSES},
    links={
        "hbm": _toy_link(4, LINK_NS),
        "h2d": _toy_link(1, LINK_NS),
        "d2h": _toy_link(1, LINK_NS),
        "die": _toy_link(1, LINK_NS),
    },
    memory=MemorySpec(
        hbm_bytes=6400,
        l2_bytes=0,
        l2_bandwidth_bytes_per_s=8 * 10**9,
        l2_prefetch_max_bytes=512,
        page_bytes=64,
        fault_ns=20,
        fault_group_pages=1,
        alignment_bytes=64,
        malloc_ns=20,
        free_ns=10,
        pool_malloc_ns=1,
        pool_free_ns=1,
        pool_min_block_bytes=64,
        host_shares_dram=False,
        managed_prefetch=True,
    ),
    limits=LimitSpec(
        max_streams=16,
        max_concurrent_streams=8,
        queue_depth=32,
        max_events=16,
        max_notifies=16,
        stream_priorities=8,
    ),
    host=HostSpec(
        launch_kernel_ns=5,
        memcpy_async_ns=4,
        launch_callback_ns=3,
        record_event_ns=1,
        wait_event_ns=1,
        prefetch_ns=2,
        sync_ns=2,
    ),
    dispatch=DispatchSpec(gap_ns=1, mix_switch_ns=3, record_ns=0, wait_ns=0, wake_ns=0),
    sources={},
    calibrated=False,
)


def toy_device(
    *,
    pools: Mapping[str, int] | None = None,
    classes: Mapping[str, Mapping[str, Any]] | None = None,
    links: Mapping[str, Mapping[str, Any]] | None = None,
    memory: Mapping[str, int] | None = None,
    limits: Mapping[str, int] | None = None,
    host: Mapping[str, int] | None = None,
    dispatch: Mapping[str, int] | None = None,
    **fields: Any,
) -> DeviceSpec:
    """The toy device with values changed: ``toy_device(pools={"aic": 1}, memory={"hbm_bytes": 640})``."""
    return replace(
        _TOY,
        pools={**_TOY.pools, **(pools or {})},
        classes={name: replace(spec, **(classes or {}).get(name, {})) for name, spec in _TOY.classes.items()},
        links={name: replace(spec, **(links or {}).get(name, {})) for name, spec in _TOY.links.items()},
        memory=replace(_TOY.memory, **(memory or {})),
        limits=replace(_TOY.limits, **(limits or {})),
        host=replace(_TOY.host, **(host or {})),
        dispatch=replace(_TOY.dispatch, **(dispatch or {})),
        **fields,
    )


# --- commands -----------------------------------------------------------------------------------------


def toy_kernel(
    work_class: str, block_ns: int, *, blocks: int = 1, size_bytes: int = 0, **fields: Any
) -> Kernel:
    """A kernel whose every block computes for ``block_ns``; ``size_bytes`` are those of the whole kernel."""
    return Kernel(
        name=work_class,
        kernel_class=KernelClass(work_class),
        blocks=blocks,
        flops=block_ns * blocks,
        bytes_read=size_bytes,
        **fields,
    )


def kernel_command(name: str, *kernels: Kernel, **fields: Any) -> Command:
    return Command(name=name, kind=CommandKind.KERNEL, kernels=kernels, **fields)


def vector(name: str, block_ns: int = 100, *, blocks: int = 1, **fields: Any) -> Command:
    """A command of one vector kernel: ``10 + block_ns`` on each of ``blocks`` aiv cores."""
    return kernel_command(name, toy_kernel("vector", block_ns, blocks=blocks), **fields)


def cube(name: str, block_ns: int = 100, *, blocks: int = 1, **fields: Any) -> Command:
    """A command of one cube kernel: ``10 + block_ns`` on each of ``blocks`` aic cores."""
    return kernel_command(name, toy_kernel("cube", block_ns, blocks=blocks), **fields)


def mix(name: str, block_ns: int = 100, *, blocks: int = 1, **fields: Any) -> Command:
    """A command of one mix kernel: each block takes one aic and two aiv."""
    return kernel_command(name, toy_kernel("mix", block_ns, blocks=blocks), **fields)


def copy_in(name: str, size_bytes: int = 64, **fields: Any) -> Command:
    """A copy from host to device: ``5 + size_bytes`` ns alone."""
    return Command(name=name, kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=size_bytes, **fields)


def copy_out(name: str, size_bytes: int = 64, **fields: Any) -> Command:
    """A copy from device to host: ``5 + size_bytes`` ns alone."""
    return Command(name=name, kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=size_bytes, **fields)


def copy_inside(name: str, size_bytes: int = 64, **fields: Any) -> Command:
    """A copy within HBM, which reads and writes it: ``5 + size_bytes / 2`` ns alone."""
    return Command(name=name, kind=CommandKind.COPY, copy=CopyKind.D2D, size_bytes=size_bytes, **fields)


def callback(name: str, duration_ns: int = 50, **fields: Any) -> Command:
    return Command(name=name, kind=CommandKind.CALLBACK, duration_ns=duration_ns, **fields)


def collective(name: str, duration_ns: int = 50, **fields: Any) -> Command:
    return Command(name=name, kind=CommandKind.COLLECTIVE, duration_ns=duration_ns, **fields)


def managed(name: str, size_bytes: int = 64, level: Level = Level.HOST) -> Buffer:
    return Buffer(name=name, size_bytes=size_bytes, kind=BufferKind.MANAGED, level=level)


# --- graphs -------------------------------------------------------------------------------------------


def toy_chain(length: int = 3, block_ns: int = 100) -> CommandGraph:
    """``a -> b -> c ...``, one vector block each, bound by ``after``."""
    names = [chr(ord("a") + i) for i in range(length)]
    commands = [vector(name, block_ns, after=(names[i - 1],) if i else ()) for i, name in enumerate(names)]
    return CommandGraph("chain", tuple(commands))


def toy_diamond() -> CommandGraph:
    """Two vector branches between one head and one tail, through device buffers of 64 bytes.

    ::

             .-> b --.
        a --x         >--> d
             '-> c --'
    """
    return CommandGraph(
        "diamond",
        (
            vector("a", writes=("x",)),
            vector("b", reads=("x",), writes=("y",)),
            vector("c", 200, reads=("x",), writes=("z",)),
            vector("d", reads=("y", "z")),
        ),
        tuple(Buffer(name=name, size_bytes=64) for name in "xyz"),
    )


def toy_pipeline(batches: int = 2, size_bytes: int = 64, block_ns: int = 100) -> CommandGraph:
    """Independent batches of copy in, one cube block, copy out: ``in0 -> k0 -> out0``, ``in1 -> ...``."""
    commands: list[Command] = []
    buffers: list[Buffer] = []
    for i in range(batches):
        commands += [
            copy_in(f"in{i}", size_bytes, writes=(f"x{i}",)),
            cube(f"k{i}", block_ns, reads=(f"x{i}",), writes=(f"y{i}",)),
            copy_out(f"out{i}", size_bytes, reads=(f"y{i}",)),
        ]
        buffers += [Buffer(name=f"{letter}{i}", size_bytes=size_bytes) for letter in "xy"]
    return CommandGraph("pipeline", tuple(commands), tuple(buffers))


def toy_squeeze(weights: int = 3, size_bytes: int = 64) -> CommandGraph:
    """A chain of vector kernels, each reading a managed buffer of its own that starts on the host.

    ::

        w0    w1    w2
        |     |     |
        v     v     v
        k0 -> k1 -> k2
    """
    commands = tuple(
        vector(f"k{i}", reads=(f"w{i}",), after=(f"k{i - 1}",) if i else ()) for i in range(weights)
    )
    return CommandGraph("squeeze", commands, tuple(managed(f"w{i}", size_bytes) for i in range(weights)))


# --- schedules ----------------------------------------------------------------------------------------

_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_OTHER_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}


def class_of(command: Command, kernel: int = 0) -> str:
    """The class a command's kernel prefers, or the engine of a command without kernels."""
    if command.kernels:
        return command.kernels[kernel].kernel_class.value
    return _COPY_CLASS[command.copy] if command.copy else _OTHER_CLASS[command.kind]


def hand_schedule(
    graph: CommandGraph,
    runs: Sequence[tuple[str, int, int, int, int]],
    *,
    device: DeviceSpec | None = None,
    options: RunOptions | None = None,
    waits: Sequence[tuple[str, str]] = (),
    blocks: Sequence[BlockRun] | None = None,
    **fields: Any,
) -> Schedule:
    """A schedule written down by hand.

    Args:
        graph: What was run.
        runs: ``(name, stream, issue_ns, start_ns, finish_ns)`` for each command, in order of issue.
        device: The toy device if None.
        options: Four streams in sink mode if None.
        waits: ``(producer, consumer)`` by name.
        blocks: All block rows; if None, each command is one kernel whose blocks start and finish with it.
        **fields: Any other field of the schedule. Those that follow from the others, places in memory and the
            wait for the host, are worked out where they are not given.
    """
    index = graph.command_index
    length: dict[int, int] = {}
    commands = []
    for name, stream, issue_ns, start_ns, finish_ns in runs:
        position = length.setdefault(stream, 0)
        length[stream] += 1
        commands.append(CommandRun(index[name], stream, position, issue_ns, start_ns, finish_ns))
    if blocks is None:
        blocks = [whole_kernel(graph, run.command, run.start_ns, run.finish_ns) for run in commands]
    values: dict[str, Any] = {
        "actions": (),
        "transfers": (),
        "host": (),
        "stall": Stall(0, 0, 0, 0, 0),
        "lower_bound_ns": 1,
        "peak_hbm_bytes": (options or RunOptions()).hbm_bytes or (device or _TOY).memory.hbm_bytes,
        "noise": (2**20,) * len(graph.commands),
    }
    schedule = Schedule(
        graph=graph,
        device=device or _TOY,
        options=options or RunOptions(streams=4),
        commands=tuple(sorted(commands, key=lambda run: run.start_ns)),
        blocks=tuple(blocks),
        waits=tuple(EventWait(index[producer], index[consumer]) for producer, consumer in waits),
        **{**values, **fields},
    )
    return with_consequences(schedule, keep=fields)


def whole_kernel(
    graph: CommandGraph, command: int, start_ns: int, finish_ns: int, kernel: int = 0
) -> BlockRun:
    """All blocks of one kernel, started at once."""
    spec = graph.commands[command]
    count = spec.kernels[kernel].blocks if spec.kernels else 1
    return BlockRun(command, kernel, class_of(spec, kernel), count, 0, start_ns, finish_ns, start_ns)
