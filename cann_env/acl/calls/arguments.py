"""Arguments of a launch as the device gets them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cann_env.acl.calls.mdl_types import whole

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator


@dataclass(slots=True, eq=False)
class Arguments:
    """Arguments of a launch under the making."""

    function: int
    values: list[int] = field(default_factory=list)
    complete: bool = False


def number_at(run: Simulator, param: object, size: object) -> int:
    """A number in host memory."""
    data = run.memory.host_range(param, whole(size, "param_size", 1), "param").view().tobytes()
    return int.from_bytes(data, "little")


def unpacked(run: Simulator, args: Any, size: object) -> list[int]:
    """Arguments of a launch as the device gets them: a handle of a list, or 64-bit numbers in host memory."""
    found = run.things.get(args)
    if isinstance(found, Arguments):
        return list(found.values)
    count = whole(size, "args_size", 8) // 8
    data = run.memory.host_range(args, count * 8, "args").view().tobytes()
    return list(struct.unpack(f"<{count}q", data))
