"""Modelled times of recorded kernels, where their order on the device is the recorded one.

Without buffers the engine does not know what a kernel finds in L2. The recorded order tells it, so kernels
get the time that the cost model gives them in this order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.device.in_order import in_order_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Command, Kernel
    from cann_env.device.spec import DeviceSpec


def priced_in_order(
    commands: Sequence[Command], starts_ns: Sequence[int], device: DeviceSpec
) -> list[Command]:
    """Commands whose kernels last what the cost model says of them in the order of their start.

    Args:
        commands: Of a recording; kernels that have a duration keep it.
        starts_ns: When each began.
        device: Where they ran.

    Raises:
        InputError: The device cannot run one of the kernels.
    """
    order = sorted((i for i, command in enumerate(commands) if command.kernels), key=starts_ns.__getitem__)
    kernels = [kernel for i in order for kernel in commands[i].kernels]
    times = iter(zip(kernels, in_order_ns(device, kernels), strict=True))
    priced = list(commands)
    for i in order:
        own = tuple(_lasting(*next(times)) for _ in commands[i].kernels)
        priced[i] = commands[i] if own == commands[i].kernels else replace(commands[i], kernels=own)
    return priced


def _lasting(kernel: Kernel, duration_ns: int) -> Kernel:
    return kernel if kernel.duration_ns is not None else replace(kernel, duration_ns=max(1, duration_ns))
