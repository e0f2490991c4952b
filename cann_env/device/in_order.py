"""How long kernels last that run one after another in a known order, L2 as the order leaves it.

The engine follows L2 by the buffers of a graph. A recording names none, but its order and the shapes of
tensors tell much the same, see :mod:`cann_env.device.residency`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.device.cost import cost_of, is_streamed, minimum_kernel_ns
from cann_env.device.cost_vector import alone_ns, vector_model
from cann_env.device.residency import found_bytes
from cann_env.device.typed import typed_in_order
from cann_env.device.work import work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Kernel
    from cann_env.device.spec import DeviceSpec


def in_order_ns(device: DeviceSpec, kernels: Sequence[Kernel]) -> list[int]:
    """Modelled time of each kernel with the die to itself, in nanoseconds.

    Vector work on tensors of known shape finds in L2 what kernels before it wrote; what products and
    attention find there their own models say. A measured duration stands, and an output whose type was not
    recorded is of the type as which it is read next.

    Args:
        device: Where.
        kernels: In the order of their start.

    Raises:
        InputError: The device cannot run one of them, see :func:`~cann_env.device.cost.kernel_cost`.
    """
    model = vector_model(device)
    capacity = int(model.l2_bytes) if model is not None else 0
    known = typed_in_order(kernels)
    times = []
    for kernel, found in zip(known, found_bytes(known, capacity), strict=True):
        work_class = kernel.kernel_class.value
        cost = cost_of(device, work_class, kernel)
        if model is not None and is_streamed(device, work_class, kernel):
            times.append(alone_ns(model, work_of(kernel), kernel.blocks, found))
        else:
            times.append(minimum_kernel_ns(device, work_class, cost, kernel.blocks, kernel.demand))
    return times
