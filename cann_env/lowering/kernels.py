"""Rows of the kernel table: what each kernel, copy, callback or collective does to the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.device.cost import (
    KernelCost,
    cores_of_class,
    kernel_cost,
    l2_rate_q20,
    minimum_kernel_ns,
)
from cann_env.device.spec import CLASSES, LINKS
from cann_env.engine import layout as at
from cann_env.graph import Command, CommandKind, CopyKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Kernel

_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_KIND_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}
_HBM = 1 << LINKS.index("hbm")


def _cost_row(cost: KernelCost, l2_rate: int) -> list[int]:
    return [cost.launch_ns, cost.compute_ns, cost.bytes_q20, cost.rate_q20, l2_rate]


def _block_ns(cost: KernelCost) -> int:
    return max(cost.compute_ns, -(-cost.bytes_q20 // cost.rate_q20))


def _l2_rate(device: DeviceSpec, work_class: str, rate_q20: int) -> int:
    """Most that one block takes from L2 (q20/ns): all cores of its class together load it fully."""
    return max(rate_q20, l2_rate_q20(device) // cores_of_class(device, work_class))


def _least(
    device: DeviceSpec, work_class: str, cost: KernelCost, l2_rate: int, blocks: int, hit: int
) -> tuple[int, int, int]:
    """The least that one block needs of time (ns) and of HBM (q20), and the least time of the whole kernel.

    As much as can be is found in L2, and the kernel has all dies' L2 and one die's cores to itself.

    Args:
        device: Where it runs.
        work_class: As what.
        cost: Of the kernel.
        l2_rate: Of one block.
        blocks: Blocks.
        hit: Most of its bytes that may be found in L2, in 2**-20.
    """
    found = -(-cost.bytes_q20 * hit // at.Q20)
    rest = cost.bytes_q20 - found
    moved = -(-(rest * l2_rate + found * cost.rate_q20) // (cost.rate_q20 * l2_rate))
    block = max(cost.compute_ns, moved)
    alone = replace(cost, bytes_q20=rest)
    whole = minimum_kernel_ns(device, work_class, alone, blocks)
    waves = -(-blocks // cores_of_class(device, work_class))
    return block, rest, max(whole, cost.launch_ns + waves * block)


def _compute_row(kernel: Kernel, device: DeviceSpec, hit: int) -> list[int]:
    """Row of a kernel that runs on cores."""
    classes = [
        str(name) for name in (kernel.kernel_class, kernel.fallback) if name and cores_of_class(device, name)
    ]
    if kernel.scheme == "batch":
        classes = [name for name in classes if cores_of_class(device, name) >= kernel.blocks]
    costs = [
        kernel_cost(
            device,
            name,
            flops=kernel.flops,
            dtype=kernel.dtype,
            size_bytes=kernel.bytes_read + kernel.bytes_written,
            blocks=kernel.blocks,
            duration_ns=kernel.duration_ns,
        )
        for name in classes
    ]
    l2_rates = [_l2_rate(device, name, cost.rate_q20) for name, cost in zip(classes, costs, strict=True)]
    least = [
        _least(device, name, cost, l2_rate, kernel.blocks, hit)
        for name, cost, l2_rate in zip(classes, costs, l2_rates, strict=True)
    ]
    alone = len(classes) == 1
    return [
        CLASSES.index(classes[0]),
        -1 if alone else CLASSES.index(classes[1]),
        kernel.blocks,
        1 if kernel.scheme == "batch" else 0,
        *_cost_row(costs[0], l2_rates[0]),
        *_cost_row(costs[-1], l2_rates[-1]),
        _HBM,
        1,
        min(rest for _, rest, _ in least),
        min(whole for _, _, whole in least),
        least[0][0] if alone else 0,
    ]


def _copy_row(command: Command, device: DeviceSpec) -> list[int]:
    """Row of a copy: one block on a DMA channel, whose bytes cross its link and the device memory."""
    assert command.copy is not None  # a graph admits no copy without direction
    engine = _COPY_CLASS[command.copy]
    cost = kernel_cost(
        device, engine, flops=0, dtype="", size_bytes=command.size_bytes, blocks=1, duration_ns=None
    )
    flow, weight = _HBM, 2
    if command.copy is not CopyKind.D2D:
        flow = 1 << LINKS.index(engine) | (_HBM if device.links[engine].shares_hbm else 0)
        weight = 1
    least = cost.launch_ns + _block_ns(cost)
    figures = _cost_row(cost, cost.rate_q20)
    return [
        CLASSES.index(engine), -1, 1, 0, *figures, *figures,
        flow, weight, cost.bytes_q20, least, _block_ns(cost),
    ]  # fmt: skip


def _fixed_row(command: Command) -> list[int]:
    """Row of a callback or a collective: one block that takes a given time."""
    figures = [0, command.duration_ns, 0, 1, 1]
    engine = CLASSES.index(_KIND_CLASS[command.kind])
    return [engine, -1, 1, 0, *figures, *figures, 0, 0, 0, command.duration_ns, command.duration_ns]


def kernel_rows(command: Command, device: DeviceSpec, hit: int) -> list[list[int]]:
    """Kernel rows of one command, in the order in which they run.

    Args:
        command: What runs.
        device: Where.
        hit: Most of a kernel's bytes that may be found in L2, in 2**-20.
    """
    if command.kind is CommandKind.KERNEL:
        return [_compute_row(kernel, device, hit) for kernel in command.kernels]
    if command.kind is CommandKind.COPY:
        return [_copy_row(command, device)]
    return [_fixed_row(command)]


def first_mix(row: Sequence[int]) -> int:
    """1 if a command begins with a mix kernel, 0 if not, 2 if that depends on which class is free."""
    mix = CLASSES.index("mix")
    if row[at.PK_FALLBACK] >= 0 and mix in (row[at.PK_CLASS], row[at.PK_FALLBACK]):
        return 2
    return int(row[at.PK_CLASS] == mix)
