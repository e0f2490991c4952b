"""The nouns of a graph: buffers, kernels and commands, and the enums that say what kind they are.

Plain frozen data, checked as a whole when a :class:`~cann_env.graph.CommandGraph` is made of it. Users import
them from :mod:`cann_env.graph`, which gives them all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class KernelClass(enum.StrEnum):
    """The kind of core a kernel is built for."""

    CUBE = "cube"
    VECTOR = "vector"
    MIX = "mix"
    AICPU = "aicpu"


class Scheme(enum.StrEnum):
    """How blocks are launched: as cores free up, or all at once."""

    NORMAL = "normal"
    BATCH = "batch"


class CommandKind(enum.StrEnum):
    """What a command is: it decides which engine takes it."""

    KERNEL = "kernel"
    COPY = "copy"
    CALLBACK = "callback"
    COLLECTIVE = "collective"


class CopyKind(enum.StrEnum):
    """Direction of a copy, which decides its DMA engine."""

    H2D = "h2d"
    D2H = "d2h"
    D2D = "d2d"


class HostMemory(enum.StrEnum):
    """Host side of a copy or of a managed buffer: moving pageable memory blocks the host."""

    PINNED = "pinned"
    PAGEABLE = "pageable"


class BufferKind(enum.StrEnum):
    """Who moves the buffer: nobody (device memory) or the runtime (managed memory)."""

    DEVICE = "device"
    MANAGED = "managed"


class Level(enum.StrEnum):
    """Where the bytes of a buffer lie before the first command runs."""

    ABSENT = "absent"
    HOST = "host"
    HBM = "hbm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A piece of memory that commands read and write.

    Attributes:
        name: Unique in its graph.
        size_bytes: Greater than zero.
        kind: Device buffers are reserved when their first writer is issued and freed after their
            last use; managed buffers migrate between host and HBM.
        level: Where the bytes lie at time zero. ``absent``: nowhere, some command writes them first, and they
            are freed after their last use. ``hbm``: in device memory; a device buffer stays there to the end.
            ``host``: on the host, managed buffers only.
        die: Home die.
        host_memory: Host side of a managed buffer: moving pageable memory on request blocks the host.
    """

    name: str
    size_bytes: int
    kind: BufferKind = BufferKind.DEVICE
    level: Level = Level.ABSENT
    die: int = 0
    host_memory: HostMemory = HostMemory.PINNED


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a kernel reads or writes, as far as its cost depends on it.

    Attributes:
        shape: Sizes, outermost first; empty for a scalar.
        dtype: ``float16``, ``bfloat16``, ``float32``, ``int64``, ``bool``, ...; empty if it is not known.
        layout: How the elements lie in memory, in CANN's words (``ND``, ``NCHW``, ``NC1HWC0``, ``FRACTAL_Z``,
            ``FRACTAL_NZ``, ...).
    """

    shape: tuple[int, ...]
    dtype: str = ""
    layout: str = "ND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch on a pool of cores, in equal blocks, one block a core.

    Attributes:
        name: For people; need not be unique.
        kernel_class: The class of core it is built for.
        fallback: A class it may run on when the preferred one has no free core; None if there is none.
        blocks: Number of logical blocks (blockDim), at least one. More blocks than cores run in waves.
        scheme: ``normal`` starts with any free core, ``batch`` waits for all its blocks at once.
        flops: Floating point operations of the whole kernel (a multiply-add counts two).
        dtype: Type of the arithmetic, ``float16``, ``bfloat16``, ``float32``, ``int8``, ...
        bytes_read: Bytes the whole kernel reads from memory.
        bytes_written: Bytes the whole kernel writes.
        duration_ns: Measured time of the whole kernel. When given, it replaces the cost model, and
            the bytes still load the memory.
        demand: What one block holds of each pool, as pairs of a pool's name and units, in place of what its
            class takes; at most four pools. None for what the class takes. The class still says how fast it
            goes and whose slots it takes.
        op: Type of the operator, in CANN's words (``MatMulV2``, ``Add``, ``FlashAttentionScore``); empty if
            it is not known. With the operands it tells the cost model more than operations and bytes do.
        inputs: The tensors it reads, in the operator's order.
        outputs: The tensors it writes.
    """

    name: str
    kernel_class: KernelClass
    fallback: KernelClass | None = None
    blocks: int = 1
    scheme: Scheme = Scheme.NORMAL
    flops: int = 0
    dtype: str = "float16"
    bytes_read: int = 0
    bytes_written: int = 0
    duration_ns: int | None = None
    demand: tuple[tuple[str, int], ...] | None = None
    op: str = ""
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One entry of a stream's queue.

    Attributes:
        name: Unique in its graph.
        kind: Which of the groups of fields below applies.
        kernels: KERNEL: one or more, run back to back as one submission (task-level fusion).
        copy: COPY: its direction.
        size_bytes: COPY: bytes moved.
        host_memory: COPY to or from the host: pinned, or pageable (blocks the host).
        duration_ns: CALLBACK and COLLECTIVE: how long it takes. COPY: the measured time, which replaces the
            cost model, and the bytes still load the links; 0 if it was not measured.
        reads: Names of buffers it reads.
        writes: Names of buffers it writes.
        after: Names of commands that must finish first, beyond what the data demands.
        release_ns: It becomes known to the host only at this time.
        request: The request it belongs to, for latencies; empty if there is only one.
        stream_hint: The stream it ran on when recorded; None if it was not recorded.
    """

    name: str
    kind: CommandKind
    kernels: tuple[Kernel, ...] = ()
    copy: CopyKind | None = None
    size_bytes: int = 0
    host_memory: HostMemory = HostMemory.PINNED
    duration_ns: int = 0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    release_ns: int = 0
    request: str = ""
    stream_hint: int | None = None
