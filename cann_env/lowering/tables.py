"""Tables of a graph: commands, kernels, edges, operands, buffers and their users."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine import layout as at
from cann_env.graph import CommandGraph, CommandKind, HostMemory, Level
from cann_env.lowering.kernels import KernelRows, first_mix
from cann_env.options import Allocator, Objective, RunOptions, Submission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.lowering.needs import Needs

_LEVELS = {Level.ABSENT: at.NOWHERE, Level.HOST: at.ON_HOST, Level.HBM: at.IN_HBM}


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a graph. Numbers that may be too large for 64 bits are Python's integers until checked.

    Attributes:
        columns: For each field of a command's row its value in each command.
        tails, ranks, release_ns, requests, host_ns: Some of these columns.
        managed_bytes: Bytes that migrate of all commands together.
        kernel_rows: Distinct rows of kernels.
        class_rows: Classes of work: those of the device, then those of kernels with a demand of their own.
        kernels: Place in ``kernel_rows`` of each kernel.
        preds, succs: Commands.
        operands: (operands, 2).
        buffers: (buffers, PB_WIDTH).
        users: (operands, 2).
    """

    columns: dict[int, Sequence[int] | Image]
    tails: list[int]
    ranks: Image
    release_ns: list[int]
    requests: list[int]
    host_ns: list[int]
    managed_bytes: int
    kernel_rows: list[list[int]]
    class_rows: list[list[int]]
    kernels: list[int]
    preds: list[int]
    succs: Image
    operands: Image
    buffers: list[Sequence[int] | Image]
    users: Image


def tails(graph: CommandGraph, durations: Sequence[int], *, within_request: bool) -> list[int]:
    """Longest optimistic path from the start of each command to the end of the graph (or of its request)."""
    out = [0] * len(durations)
    commands, predecessors = graph.commands, graph.predecessors
    for c in reversed(graph.topological_order):
        tail = out[c] = out[c] + durations[c]
        for before in predecessors[c]:
            if tail > out[before] and not (
                within_request and commands[before].request != commands[c].request
            ):
                out[before] = tail
    return out


def _host_ns(needs: Needs, outputs: Sequence[int]) -> list[int]:
    """Host time of submitting each command, its allocations and their release included, events not."""
    if needs.options.submission is Submission.SINK:
        return [0] * len(outputs)
    host, memory = needs.device.host, needs.device.memory
    call = {
        CommandKind.KERNEL: host.launch_kernel_ns,
        CommandKind.COPY: host.memcpy_async_ns,
        CommandKind.CALLBACK: host.launch_callback_ns,
        CommandKind.COLLECTIVE: host.launch_kernel_ns,
    }
    pooled = needs.options.allocator is Allocator.POOL
    each = memory.pool_malloc_ns + memory.pool_free_ns if pooled else memory.malloc_ns + memory.free_ns
    return [
        call[command.kind] + count * each
        for command, count in zip(needs.graph.commands, outputs, strict=True)
    ]


def _blocks_host(graph: CommandGraph) -> list[bool]:
    """For each command whether it is a copy of pageable memory, which blocks the host."""
    pageable = HostMemory.PAGEABLE
    return [command.host_memory is pageable for command in graph.commands]


def _request_numbers(graph: CommandGraph) -> list[int]:
    """For each command the number of its request, in the order in which they first occur."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(command.request, len(numbers)) for command in graph.commands]


def _traffic(needs: Needs) -> tuple[NDArray[np.int64], list[int]]:
    """For each command the bytes its operands have, and the largest part of them that L2 may hold (2**-20).

    Both are 0 for what is no kernel. Outputs of kernels enter L2 whole if they fit, what else is read up to
    the cap of a prefetch.
    """
    graph, operands = needs.graph, needs.operands
    commands = len(graph.commands)
    capacity = l2_bytes(needs.device, needs.options)
    kind = CommandKind.KERNEL
    kernels = np.array([command.kind is kind for command in graph.commands])
    of_kernel = kernels[operands.command]
    reads = (operands.mode & at.READ != 0) & of_kernel
    writes = (operands.mode & at.WRITE != 0) & of_kernel
    sizes = np.array(needs.sizes, needs.amounts.dtype)
    written = np.zeros(sizes.size, bool)
    written[operands.buffer[writes]] = True
    whole = written & (sizes <= capacity)
    most = np.where(whole, sizes, np.minimum(sizes, min(lift_cap(needs.device, needs.options), capacity)))
    read = operands.at(reads)
    traffic = read.sums(sizes, commands) + operands.at(writes).sums(sizes, commands)
    hit = np.minimum(read.sums(most, commands), capacity * needs.device.dies)
    return traffic, (hit * at.Q20 // np.maximum(traffic, 1)).tolist()


def l2_bytes(device: DeviceSpec, options: RunOptions) -> int:
    """L2 of a die in this run."""
    return device.memory.l2_bytes if options.l2_bytes is None else options.l2_bytes


def lift_cap(device: DeviceSpec, options: RunOptions) -> int:
    """Most bytes that one prefetch lifts into L2 in this run; 0 where there is none."""
    if options.l2_prefetches == 0 or l2_bytes(device, options) == 0:
        return 0
    cap = options.l2_prefetch_bytes
    return device.memory.l2_prefetch_max_bytes if cap is None else cap


def _buffer_columns(needs: Needs, users: Image) -> list[Sequence[int] | Image]:
    """For each field of a buffer's row its value in each buffer; ``users`` are the numbers of its users."""
    operands, buffers = needs.operands, needs.graph.buffers
    allocates = operands.mode & at.ALLOCATE != 0
    writer = np.full(len(buffers), -1, np.int64)
    writer[operands.buffer[allocates]] = operands.command[allocates]
    levels = np.array([_LEVELS[buffer.level] for buffer in buffers], np.int64)
    levels[needs.lasting] = at.IN_HBM
    pageable = HostMemory.PAGEABLE
    return [
        needs.sizes,
        needs.taken,
        needs.charges,
        needs.moving,
        levels,
        [buffer.host_memory is pageable for buffer in buffers],
        needs.dies,
        writer,
        _starts(users),
        users,
    ]


def _starts(counts: Sequence[int] | Image) -> Image:
    """Where each of several parts of these lengths begins if they stand one behind the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    return ends - counts


def _places(order: Sequence[int]) -> Image:
    """For each command its place in an order."""
    place = np.empty(len(order), np.int64)
    place[np.array(order)] = np.arange(len(order))
    return place


def gather(needs: Needs, order: Sequence[int]) -> Tables:
    """All tables that depend on the graph; ``order`` is the serial order."""
    graph, options, operands = needs.graph, needs.options, needs.operands
    commands = graph.commands
    everyone = range(len(commands))
    traffic, hits = _traffic(needs)
    prices = KernelRows(needs.device)
    own = [prices.of_command(command, hit) for command, hit in zip(commands, hits, strict=True)]
    minimum = [row[at.PK_MIN_NS] for row in prices.rows]
    mixes = [first_mix(row, prices.classes) for row in prices.rows]
    least = [sum([minimum[k] for k in mine]) for mine in own]
    tail = tails(graph, least, within_request=options.objective is Objective.LATENCY)
    ranks = _places(sorted(everyone, key=tail.__getitem__, reverse=True))
    preds = list(chain.from_iterable(graph.predecessors))
    pred_counts, kernel_counts = list(map(len, graph.predecessors)), list(map(len, own))
    succ_counts = np.bincount(np.array(preds, np.int64), minlength=len(commands))
    used = np.bincount(operands.command, minlength=len(commands))
    outputs: NDArray[np.int64] = np.sum([claims.outputs for claims in needs.claims], axis=0)
    managed: NDArray[np.int64] = np.sum([claims.managed for claims in needs.claims], axis=0)
    host_ns = _host_ns(needs, outputs[2].tolist())
    release_ns = [command.release_ns for command in commands]
    requests = _request_numbers(graph)
    by_rank = np.lexsort((ranks[operands.command], operands.buffer))
    return Tables(
        columns={
            at.PC_KERNEL: _starts(kernel_counts), at.PC_KERNELS: kernel_counts,
            at.PC_PRED: _starts(pred_counts), at.PC_PREDS: pred_counts,
            at.PC_SUCC: _starts(succ_counts), at.PC_SUCCS: succ_counts,
            at.PC_OPERAND: _starts(used), at.PC_OPERANDS: used,
            at.PC_TAIL_NS: tail, at.PC_MIN_NS: least, at.PC_RELEASE_NS: release_ns, at.PC_HOST_NS: host_ns,
            at.PC_SERIAL: _places(order), at.PC_RANK: ranks, at.PC_REQUEST: requests,
            at.PC_BLOCKING: _blocks_host(graph), at.PC_FIRST_MIX: [mixes[mine[0]] for mine in own],
            at.PC_OUTPUT_BYTES: outputs[1], at.PC_MANAGED_BYTES: managed, at.PC_TRAFFIC_BYTES: traffic,
        },
        tails=tail,
        ranks=ranks,
        release_ns=release_ns,
        requests=requests,
        host_ns=host_ns,
        managed_bytes=sum(managed.tolist()),
        kernel_rows=prices.rows,
        class_rows=prices.classes,
        kernels=list(chain.from_iterable(own)),
        preds=preds,
        succs=np.repeat(np.arange(len(commands)), pred_counts)[np.argsort(preds, kind="stable")],
        operands=np.column_stack((operands.buffer, operands.mode)),
        buffers=_buffer_columns(needs, np.bincount(operands.buffer, minlength=len(graph.buffers))),
        users=np.column_stack((operands.command, operands.mode))[by_rank],
    )  # fmt: skip
