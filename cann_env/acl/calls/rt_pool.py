"""Stream-ordered pools of device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_memory import check_size
from cann_env.acl.codes import Refused
from cann_env.acl.state.order import join
from cann_env.acl.state.pools import Place, Pool, refuse_growth
from cann_env.options import Submission

if TYPE_CHECKING:
    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator

_BLOCK: Final = 512
"""Bytes to which sizes are rounded up, as torch_npu's caching allocator does."""


@call(1, differs="The properties are the bytes to take beforehand. On a device experimental, 910B only.")
def mem_pool_create(run: Simulator, props: int = 0) -> int:
    """A pool of the current device, which grows as it must; ``props`` bytes are taken beforehand."""
    return make_pool(run, props, _BLOCK, fixed=False, line=site()).handle


@call()
def mem_pool_destroy(run: Simulator, pool: int) -> None:
    """End a pool; what it gave out must be back."""
    drop_pool(run, find_pool(run, pool), site())


@call(1, differs="Best fit of sizes in steps of 512 bytes; the reserve stays until it is trimmed.")
def mem_pool_malloc_async(run: Simulator, pool: int, size: int, stream: int) -> int:
    """Memory of a pool, for work that comes later on a stream."""
    where, found = run.stream(stream), find_pool(run, pool)
    taken = take_from_pool(run, found, check_size(size), where, site())
    run.pay("pool_malloc_ns")
    return taken.address


@call()
def mem_pool_free_async(run: Simulator, ptr: int, stream: int) -> None:
    """Give memory of a pool back behind everything submitted to a stream so far."""
    where = run.stream(stream)
    found = pooled(run, ptr)
    run.pay("pool_free_ns")
    give_to_pool(run, found, where, site())


@call()
def mem_pool_trim_to(run: Simulator, pool: int, min_bytes_to_keep: int) -> None:
    """Give memory that a pool holds for nobody back to the device, down to so much."""
    found = find_pool(run, pool)
    if not isinstance(min_bytes_to_keep, int) or min_bytes_to_keep < 0:
        raise Refused(
            codes.RT_PARAM_INVALID, f"min_bytes_to_keep is {min_bytes_to_keep!r}; pass bytes from 0"
        )
    run.settle()
    for place in sorted(found.places, key=lambda place: -place.size):
        if found.reserved - place.size >= min_bytes_to_keep and run.is_over(place.clock):
            found.places.remove(place)
            found.reserved -= place.size
            run.device(found.device).used_bytes -= place.size


@call(1, differs="Attributes by word, reserved or used.")
def mem_pool_get_attr(run: Simulator, pool: int, attr: str) -> int:
    """``reserved`` or ``used`` bytes of a pool."""
    found = find_pool(run, pool)
    if attr not in ("reserved", "used"):
        raise Refused(codes.RT_PARAM_INVALID, f"attr is {attr!r}; pass 'reserved' or 'used'")
    return found.reserved if attr == "reserved" else found.used


def make_pool(run: Simulator, reserved: int, block: int, *, fixed: bool, line: str) -> Pool:
    """A pool of the current device."""
    if not isinstance(reserved, int) or reserved < 0:
        raise Refused(codes.RT_PARAM_INVALID, f"size of a pool is {reserved!r}; pass bytes from 0")
    device = run.device(run.context().device)
    pool = Pool(run.new_handle(), device.number, block, 0, line, fixed)
    _grow(run, pool, reserved)
    run.pools[pool.handle] = pool
    return pool


def find_pool(run: Simulator, handle: object) -> Pool:
    """A pool by handle."""
    found = run.pools.get(handle) if isinstance(handle, int) else None
    if found is None:
        raise Refused(codes.RT_PARAM_INVALID, f"pool {handle!r} does not exist{run.gone(handle)}")
    return found


def pooled(run: Simulator, ptr: object) -> Allocation:
    """Memory that a pool gave."""
    found = run.memory.range(ptr, 0, "ptr").allocation
    if not found.pool or found.address != ptr:
        raise Refused(codes.RT_PARAM_INVALID, f"{ptr!r} lies in {found.name}, which no pool gave; call free")
    return found


def drop_pool(run: Simulator, pool: Pool, line: str) -> None:
    """End a pool.

    Raises:
        Refused: Some of its memory is still held.
    """
    if pool.live:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"pool {pool.handle} cannot be destroyed: {len(pool.live)} allocations of it are held, the "
            "first since "
            f"{pool.live[0].site}",
        )
    run.device(pool.device).used_bytes -= pool.reserved
    run.bury(pool.handle, "pool", line)
    del run.pools[pool.handle]


def take_from_pool(run: Simulator, pool: Pool, size: int, where: Stream, line: str) -> Allocation:
    """Memory of a pool for work on a stream.

    Raises:
        Refused: No free piece fits, and the pool cannot grow.
    """
    taken = pool.rounded(size)
    place = pool.fitting(taken, where.handle, run.knows(where))
    if place is None and not _may_grow(run, pool, taken):
        run.settle()
        known = run.knows(where)
        join(known, run.over())
        place = pool.fitting(taken, where.handle, known)
    if place is None:
        if pool.fixed:
            raise refuse_growth(pool, taken, 0)
        _grow(run, pool, taken)
        place = pool.places[-1]
    pool.places.remove(place)
    if place.size > taken:
        pool.places.append(Place(place.size - taken, place.stream, place.clock, place.users))
    allocation = run.memory.device(pool.device, size, taken, line)
    allocation.pool, allocation.stream, allocation.die = pool.handle, where.handle, run.die
    allocation.prior = place.users if place.stream == where.handle else ()
    pool.live.append(allocation)
    pool.used += taken
    pool.served += 1
    return allocation


def take_block(run: Simulator, pool: Pool, size: int, line: str) -> Allocation:
    """A block of a pool that never grows.

    Raises:
        Refused: All are held.
    """
    if pool.used + pool.block > pool.reserved:
        raise refuse_growth(pool, pool.block, 0)
    allocation = run.memory.device(pool.device, size, pool.block, line)
    allocation.pool = pool.handle
    pool.live.append(allocation)
    pool.used += pool.block
    pool.served += 1
    return allocation


def give_to_pool(run: Simulator, found: Allocation, where: Stream, line: str) -> None:
    """Memory goes back to its pool behind the work of a stream."""
    pool = run.pools[found.pool]
    clock = run.knows(where)
    run.evidence.free(found, run.users.get(found.number, ()), clock, line, where)
    run.memory.free(found, line, run.clock_ns)
    pool.live.remove(found)
    pool.used -= found.taken
    last = {work.stream: work for work in (*found.prior, *run.users.get(found.number, ()))}
    pool.places.append(Place(found.taken, where.handle, clock, tuple(last.values())))


def _may_grow(run: Simulator, pool: Pool, size: int) -> bool:
    """Whether a pool takes more memory before it looks what has ended: where calls take no time."""
    device = run.device(pool.device)
    room = run.runtime.options is not None or device.spec.memory.hbm_bytes - device.used_bytes >= size
    return run.submission is Submission.SINK and not pool.fixed and room


def _grow(run: Simulator, pool: Pool, size: int) -> None:
    if size == 0:
        return
    device = run.device(pool.device)
    free = device.spec.memory.hbm_bytes - device.used_bytes
    if size > free and run.runtime.options is None:  # else the engine has the memory and says so
        raise refuse_growth(pool, size, free)
    device.used_bytes += size
    device.peak_bytes = max(device.peak_bytes, device.used_bytes)
    pool.reserved += size
    pool.places.append(Place(size, 0, {}))
