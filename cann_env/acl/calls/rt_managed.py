"""Managed memory, and prefetches into the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_memory import check_size
from cann_env.acl.codes import Refused
from cann_env.acl.state.managed import prefetch
from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import Way

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator


@call(
    1, cost="malloc_ns",
    differs="Refused (207000) where the device has none; allowed where host and device share memory, "
    "which a 310B refuses.",
)  # fmt: skip
def mem_alloc_managed(run: Simulator, size: int, flag: int = 0) -> int:
    """Memory with one address for host and device, which moves when it is touched."""
    del flag
    context = run.context()
    if not run.spec.memory.managed_prefetch and not run.spec.memory.host_shares_dram:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT,
            f"{run.spec.name} has no managed memory; it comes with 910B and its followers",
        )
    allocation = run.memory.managed(context.device, check_size(size), site())
    allocation.die = run.die
    return allocation.address


@call(differs="The location is a pair, a mapping or a number instead of a struct. Whole allocations move.")
def mem_managed_prefetch_async(
    run: Simulator, ptr: int, size: int, location: object, flags: int = 0, stream: int = 0
) -> None:
    """Bring managed memory to a device, or to the host, in the order of a stream.

    Args:
        run: The run.
        ptr: Managed memory.
        size: Bytes of it.
        location: A pair of kind (0 host, 1 device) and number, or the number of a device, or -1 for the host.
        flags: Not looked at.
        stream: In whose order.
    """
    del flags
    where = run.stream(stream)
    memory = run.memory.range(ptr, size, "ptr")
    if memory.allocation.space is not Space.MANAGED:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"0x{ptr:x} lies in {memory.allocation.name}, {memory.allocation.space.value} memory; only "
            "managed memory "
            "is prefetched",
        )
    way = Way.PREFETCH if _location(run, location) else Way.OFFLOAD
    run.pay("prefetch_ns")
    prefetch(run, where, memory, way, site(), "rt.mem_managed_prefetch_async")


def _location(run: Simulator, location: object) -> bool:
    if isinstance(location, (tuple, list)) and len(location) == 2:
        kind, number = location
    elif isinstance(location, dict):
        kind, number = location.get("type"), location.get("id", 0)
    else:
        kind, number = (0, 0) if location == const.ACL_DEVICE_TO_HOST else (1, location)
    if kind == const.ACL_MEM_LOCATION_TYPE_HOST:
        return False
    if kind != const.ACL_MEM_LOCATION_TYPE_DEVICE:
        raise Refused(
            codes.RT_PARAM_INVALID, f"location {location!r} has kind {kind!r}; pass 0 (host) or 1 (device)"
        )
    run.device(number)
    return True


@call(differs="Without effect.")
def mem_managed_advise(run: Simulator, ptr: int, size: int, advise: int, location: object = None) -> None:
    """Accepted without effect."""
    del advise, location
    run.memory.range(ptr, size, "ptr")


@call(differs="Only prefetches; whole allocations, up to the cap of the device file.")
def cmo_async(run: Simulator, src: int, size: int, cmo_type: int, stream: int) -> None:
    """Bring device memory into the L2 cache, in the order of a stream (type 0, prefetch)."""
    where = run.stream(stream)
    memory = run.memory.range(src, size, "src")
    if cmo_type != 0:
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, f"cmo_type is {cmo_type!r}; 0 (prefetch) is simulated")
    if not run.spec.memory.managed_prefetch:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT, f"{run.spec.name} has no prefetch into L2 outside of models"
        )
    run.pay("prefetch_ns")
    prefetch(run, where, memory, Way.LIFT, site(), "rt.cmo_async")
