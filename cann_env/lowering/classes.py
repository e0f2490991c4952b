"""Rows of the class table: what a block of each class of work holds, and whose slots it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.device.spec import CLASSES
from cann_env.engine import layout as at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.device.cost import Demand
    from cann_env.device.spec import DeviceSpec

PAIRS = (at.PW_POOL, at.PW_POOL_2, at.PW_POOL_3, at.PW_POOL_4)
"""Fields of a row that name a pool; what a block holds of it stands right behind."""


def class_row(device: DeviceSpec, named: int, demand: Iterable[tuple[str, int]]) -> list[int]:
    """Row of a class of work.

    Args:
        device: Where.
        named: The class of the device, by its place in :data:`~cann_env.device.spec.CLASSES`.
        demand: What one block holds.
    """
    row = [0] * at.PW_WIDTH
    row[at.PW_MAX_ACTIVE] = device.classes[CLASSES[named]].max_active
    row[at.PW_MIX] = int(CLASSES[named] == "mix")
    row[at.PW_NAMED] = named
    names = device.pool_names
    for pair, (pool, units) in zip(PAIRS, demand, strict=False):
        row[pair : pair + 2] = names.index(pool), units
    return row


def named_rows(device: DeviceSpec) -> list[list[int]]:
    """Rows of the classes of the device, in the order of :data:`~cann_env.device.spec.CLASSES`."""
    return [class_row(device, i, device.classes[name].demand.items()) for i, name in enumerate(CLASSES)]


def own_row(device: DeviceSpec, named: int, demand: Demand) -> list[int]:
    """Row of kernels that state what their blocks hold.

    The pool that lets the fewest blocks run at once stands first: bounds of what is running look at it alone.
    """
    scarce = sorted(demand, key=lambda pair: (device.pools[pair[0]] // pair[1], pair[0]))
    return class_row(device, named, scarce)
