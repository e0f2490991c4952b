"""Random toy graphs with everything in them, drawn from a numpy generator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
    Scheme,
)

if TYPE_CHECKING:
    import numpy as np

    from cann_env.device.spec import DeviceSpec

_CORES = {"cube": 2, "vector": 4, "mix": 2, "aicpu": 1}


def _kernel(rng: np.random.Generator, name: str) -> Kernel:
    work = KernelClass(str(rng.choice(["cube", "vector", "mix", "aicpu"])))
    batch = rng.random() < 0.2
    blocks = int(rng.integers(1, _CORES[work] + 1 if batch else 9))
    fallback = None
    if work in ("cube", "vector") and not batch and rng.random() < 0.2:
        fallback = KernelClass.AICPU
    return Kernel(
        name=name,
        kernel_class=work,
        fallback=fallback,
        blocks=blocks,
        scheme=Scheme.BATCH if batch else Scheme.NORMAL,
        flops=int(rng.integers(0, 200)) * blocks,
        bytes_read=int(rng.choice([0, 0, rng.integers(1, 2000)])),
        bytes_written=int(rng.choice([0, rng.integers(1, 500)])),
    )


def _command(rng: np.random.Generator, i: int, after: tuple[str, ...], late: bool) -> Command:
    name = f"c{i}"
    release = int(rng.integers(0, 600)) if late and rng.random() < 0.3 else 0
    draw = rng.random()
    if draw < 0.7:
        kernels = tuple(_kernel(rng, f"k{i}.{j}") for j in range(1 + int(rng.random() < 0.2)))
        return Command(name=name, kind=CommandKind.KERNEL, kernels=kernels, after=after, release_ns=release)
    if draw < 0.9:
        copy = CopyKind(str(rng.choice(["h2d", "d2h", "d2d"])))
        pageable = copy is not CopyKind.D2D and rng.random() < 0.1
        return Command(
            name=name,
            kind=CommandKind.COPY,
            copy=copy,
            size_bytes=int(rng.integers(1, 300)),
            host_memory=HostMemory.PAGEABLE if pageable else HostMemory.PINNED,
            after=after,
            release_ns=release,
        )
    kind = CommandKind.CALLBACK if draw < 0.95 else CommandKind.COLLECTIVE
    return Command(
        name=name, kind=kind, duration_ns=int(rng.integers(1, 100)), after=after, release_ns=release
    )


def random_graph(
    rng: np.random.Generator, *, most: int = 25, late: bool = False, memory: bool = True, dies: int = 1
) -> CommandGraph:
    """A graph of up to ``most`` commands; with ``memory`` they read and write device and managed buffers."""
    managed = float(rng.choice([0.0, 0.5, 0.9]))  # part of what is written that migrates
    n = int(rng.integers(1, most + 1))
    weights = [
        Buffer(
            name=f"w{i}",
            size_bytes=int(rng.integers(1, 400)),
            kind=BufferKind.MANAGED,
            level=Level.HBM if rng.random() < 0.2 else Level.HOST,
            die=int(rng.integers(0, dies)),
            host_memory=HostMemory.PAGEABLE if rng.random() < 0.1 else HostMemory.PINNED,
        )
        for i in range(int(rng.integers(0, 5)))
    ]
    buffers: list[Buffer] = list(weights) if memory else []
    if memory and rng.random() < 0.3:
        resident = Buffer(name="r", size_bytes=int(rng.integers(1, 300)), level=Level.HBM)
        buffers.append(resident)
        weights.append(resident)
    written: list[str] = []
    commands = []
    for i in range(n):
        count = int(rng.integers(0, min(i, 3) + 1))
        after = tuple(sorted({f"c{int(j)}" for j in rng.integers(0, i, count)})) if i else ()
        command = _command(rng, i, after, late)
        reads: list[str] = []
        writes: list[str] = []
        if memory and command.kind is not CommandKind.CALLBACK:
            if written and rng.random() < 0.6:
                reads.append(written[int(rng.integers(0, len(written)))])
            if weights and command.kind is CommandKind.KERNEL and rng.random() < 0.4:
                reads.append(weights[int(rng.integers(0, len(weights)))].name)
            if weights and command.kind is CommandKind.KERNEL and rng.random() < 0.1:
                writes.append(weights[int(rng.integers(0, len(weights)))].name)
            if rng.random() < 0.6:
                name = f"b{i}"
                kind = BufferKind.MANAGED if rng.random() < managed else BufferKind.DEVICE
                size = int(rng.integers(1, 500))
                buffers.append(Buffer(name=name, size_bytes=size, kind=kind, die=int(rng.integers(0, dies))))
                written.append(name)
                writes.append(name)
        fields = {slot: getattr(command, slot) for slot in Command.__slots__}
        fields.update(reads=tuple(dict.fromkeys(reads)), writes=tuple(dict.fromkeys(writes)))
        commands.append(Command(**fields))
    return CommandGraph("random", tuple(commands), tuple(buffers))


def with_own_demands(graph: CommandGraph, device: DeviceSpec, rng: np.random.Generator) -> CommandGraph:
    """The graph where most kernels state what each block holds of one to four pools, whichever."""
    commands = []
    for command in graph.commands:
        kernels = tuple(
            _with_own_demand(kernel, device, rng) if rng.random() < 0.7 else kernel
            for kernel in command.kernels
        )
        commands.append(replace(command, kernels=kernels))
    return replace(graph, commands=tuple(commands))


def _with_own_demand(kernel: Kernel, device: DeviceSpec, rng: np.random.Generator) -> Kernel:
    pools = [str(name) for name in rng.permutation(device.pool_names)[: int(rng.integers(1, 5))]]
    demand = tuple((pool, int(rng.integers(1, device.pools[pool] + 1))) for pool in pools)
    at_once = min(device.pools[pool] // units for pool, units in demand)
    blocks = min(kernel.blocks, at_once) if kernel.scheme is Scheme.BATCH else kernel.blocks
    return replace(kernel, demand=demand, blocks=blocks, fallback=None)
