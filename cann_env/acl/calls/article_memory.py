"""Memory as the article has it: shared with the host, prefetched, and pools of fixed blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_memory import check_size, pages, take_pages
from cann_env.acl.calls.rt_pool import drop_pool, find_pool, make_pool, pooled, take_block
from cann_env.acl.codes import Refused
from cann_env.acl.state.managed import prefetch
from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import Way

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.simulator import Simulator


@call(
    1, cost="malloc_ns", c_name="", article="aclrtMallocCached",
    differs="The real aclrtMallocCached (acl.rt.malloc_cached) gives plain device memory that no host sees. "
    "Counterpart: aclrtMemAllocManaged on 910B and later, which moves whole pages and copies nothing "
    "on write; where host and device share one memory (310B) any address is good for both, and "
    "nothing moves.",
)  # fmt: skip
def malloc_cached(run: Simulator, size: int, policy: int = const.ACL_MEM_MALLOC_HUGE_FIRST) -> int:
    """Memory that host and device share; it moves to whom touches it, unless it is there already."""
    pages(check_size(size), policy)
    if run.spec.memory.host_shares_dram:
        found = take_pages(run, size, policy, site())
    elif run.spec.memory.managed_prefetch:
        found = run.memory.managed(run.context().device, size, site())
    else:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT,
            f"{run.spec.name} has no memory that host and device share: neither managed memory (910B "
            "and later) nor one DRAM for both (310B); call malloc and memcpy_async",
        )
    run.cached[found.address] = 1
    return found.address


@call(
    c_name="", article="aclrtMemPrefetchAsync",
    differs="Counterpart: aclrtMemManagedPrefetchAsync (910B and later), whose location is a struct. Whole "
    "allocations move. Where host and device share one memory the call is accepted and nothing moves.",
)  # fmt: skip
def mem_prefetch_async(
    run: Simulator, ptr: int, size: int, device: int, stream: int = const.ACL_STREAM_DEFAULT
) -> None:
    """Bring shared memory to a device, or with ``ACL_DEVICE_TO_HOST`` to the host, in a stream's order."""
    where = run.stream(stream)
    found = _shared(run, ptr)
    memory = run.memory.range(ptr, check_size(size), "ptr")
    way = Way.OFFLOAD
    if device != const.ACL_DEVICE_TO_HOST:
        run.device(device)
        way = Way.PREFETCH
    run.pay("prefetch_ns")
    if found.space is Space.MANAGED and not run.spec.memory.host_shares_dram:
        prefetch(run, where, memory, way, site(), "mem_prefetch_async")


@call(
    1, c_name="",
    differs="No counterpart: the runtime counts no references, and aclrtFree waits for nobody.",
)  # fmt: skip
def retain_cached(run: Simulator, ptr: int) -> int:
    """Count one more holder of shared memory; gives their number."""
    found = _shared(run, ptr)
    run.cached[found.address] += 1
    return run.cached[found.address]


@call(
    cost="free_ns", c_name="", article="aclrtFreeCached",
    differs="Counterpart: aclrtFree, which counts no references: memory in use goes at once.",
)  # fmt: skip
def free_cached(run: Simulator, ptr: int) -> None:
    """Let go of shared memory; the last holder frees it, and work that was submitted keeps it to its end."""
    found = _shared(run, ptr)
    if found.address != ptr:
        raise Refused(codes.RT_PARAM_INVALID, f"0x{ptr:x} lies within {found.name}; pass 0x{found.address:x}")
    run.cached[found.address] -= 1
    if run.cached[found.address]:
        return
    del run.cached[found.address]
    run.memory.free(found, site(), run.clock_ns)
    _give_back_after_use(run, found)


def _give_back_after_use(run: Simulator, found: Allocation) -> None:
    """The device has the memory back when the last work that touches it has ended."""
    if found.space is not Space.DEVICE:
        return
    run.settle()
    device = run.device(found.device)
    users = [work for work in run.users.get(found.number, ()) if not work.ended]
    left = len(users)

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            device.used_bytes -= found.taken

    if not users:
        one_less()
    for work in users:
        work.end = _both(work.end, one_less)


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    def end() -> None:
        if first is not None:
            first()
        second()

    return end


def _shared(run: Simulator, ptr: object) -> Allocation:
    found = run.memory.range(ptr, 0, "ptr").allocation
    if found.address not in run.cached:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"{ptr!r} lies in {found.name}, {found.space.value} memory that malloc_cached did not give",
        )
    return found


@call(
    1, cost="malloc_ns", c_name="", article="aclrtCreateMemPool",
    differs="Counterpart: aclrtMemPoolCreate (910B, experimental), whose pools grow, give any size in the "
    "order of streams and know no blocks.",
)  # fmt: skip
def create_mem_pool(run: Simulator, size: int, block: int) -> int:
    """A pool of fixed blocks of device memory, all of it taken at once."""
    check_size(block)
    count = check_size(size) // block
    if count == 0:
        raise Refused(codes.RT_PARAM_INVALID, f"a pool of {size} bytes has no block of {block}")
    return make_pool(run, count * block, block, fixed=True, line=site()).handle


@call(
    1, cost="pool_malloc_ns", c_name="", article="aclrtMallocFromMemPool",
    differs="Counterpart: aclrtMemPoolMallocAsync. The article's call does not name the pool; this one does. "
    "A request takes one block, so that nothing can be in pieces; a larger one is refused (107000).",
)  # fmt: skip
def malloc_from_mem_pool(run: Simulator, pool: int, size: int) -> int:
    """A block of a pool, in nanoseconds instead of microseconds."""
    found = find_pool(run, pool)
    if not found.fixed or check_size(size) > found.block:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"size is {size!r}; pool {pool} (made at {found.site}) gives blocks of {found.block} bytes"
            if found.fixed
            else f"pool {pool} has no blocks; call mem_pool_malloc_async",
        )
    return take_block(run, found, size, site()).address


@call(
    cost="pool_free_ns", c_name="", article="aclrtFreeToMemPool",
    differs="Counterpart: aclrtMemPoolFreeAsync, which gives back in the order of a stream. This one gives "
    "back at once, and like free it waits for nobody.",
)  # fmt: skip
def free_to_mem_pool(run: Simulator, ptr: int) -> None:
    """Give a block back to its pool, where it can be used again."""
    found = pooled(run, ptr)
    pool = run.pools[found.pool]
    line = site()
    run.evidence.free(found, run.users.get(found.number, ()), run.seen_by_host, line)
    run.memory.free(found, line, run.clock_ns)
    pool.live.remove(found)
    pool.used -= found.taken


@call(
    cost="free_ns", c_name="", article="aclrtDestroyMemPool",
    differs="Counterpart: aclrtMemPoolDestroy. Blocks that are still held keep it from going.",
)  # fmt: skip
def destroy_mem_pool(run: Simulator, pool: int) -> None:
    """End a pool and give its memory back to the device; all its blocks must be back."""
    drop_pool(run, find_pool(run, pool), site())
