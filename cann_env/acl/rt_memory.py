"""Memory: allocations of the device and the host, copies, managed memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.memory import Space
from cann_env.acl.rt_device import wait_for
from cann_env.acl.work import Touch
from cann_env.commands import Command, CommandKind, CopyKind, Kernel, KernelClass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cann_env.acl.memory import Allocation, Range
    from cann_env.acl.objects import Stream
    from cann_env.acl.simulator import Simulator
    from cann_env.acl.work import Work

_GUARD: Final = 32
_PAGE, _HUGE, _GIANT = 4 << 10, 2 << 20, 1 << 30
_HUGE_FROM: Final = 1 << 20

_P2P: Final = {
    const.ACL_MEM_MALLOC_HUGE_FIRST_P2P: const.ACL_MEM_MALLOC_HUGE_FIRST,
    const.ACL_MEM_MALLOC_HUGE_ONLY_P2P: const.ACL_MEM_MALLOC_HUGE_ONLY,
    const.ACL_MEM_MALLOC_NORMAL_ONLY_P2P: const.ACL_MEM_MALLOC_NORMAL_ONLY,
    const.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: const.ACL_MEM_MALLOC_HUGE1G_ONLY,
}


def _pages(size: int, policy: object) -> int:
    """Bytes that an allocation takes from the device: whole pages, with a guard."""
    policy = _P2P.get(policy, policy) if isinstance(policy, int) else policy
    if policy == const.ACL_MEM_MALLOC_HUGE_FIRST:
        page = _HUGE if size > _HUGE_FROM else _PAGE
    elif policy == const.ACL_MEM_MALLOC_HUGE_ONLY:
        page = _HUGE
    elif policy == const.ACL_MEM_MALLOC_NORMAL_ONLY:
        page = _PAGE
    elif policy == const.ACL_MEM_MALLOC_HUGE1G_ONLY:
        page = _GIANT
    else:
        raise Refused(codes.RT_PARAM_INVALID, f"policy is {policy!r}; pass one of ACL_MEM_MALLOC_, 0 to 7")
    return -(-(-(-size // 32) * 32 + _GUARD) // page) * page


def check_size(size: object) -> int:
    """A size that can be allocated.

    Raises:
        Refused: No whole number above 0.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise Refused(codes.RT_PARAM_INVALID, f"size is {size!r}; pass a whole number of bytes above 0")
    return size


def take(run: Simulator, size: int, taken: int, line: str) -> Allocation:
    """Memory of the current device.

    Raises:
        Refused: There is not so much left.
    """
    device = run.device(run.context().device)
    free = device.spec.memory.hbm_bytes - device.used_bytes
    if taken > free:
        raise Refused(
            codes.RT_MEMORY_ALLOCATION,
            f"{size} bytes ({taken} in pages) do not fit: device {device.number} ({device.spec.name}) has "
            f"{device.spec.memory.hbm_bytes} bytes, of which {free} are free",
        )
    allocation = run.memory.device(device.number, size, taken, line)
    device.used_bytes += taken
    device.peak_bytes = max(device.peak_bytes, device.used_bytes)
    return allocation


@call(1, cost="malloc_ns")
def malloc(run: Simulator, size: int, policy: int) -> int:
    """Device memory; in pages of 4 KiB, 2 MiB or 1 GiB as the policy says."""
    check_size(size)
    return take(run, size, _pages(size, policy), site()).address


malloc_cached = malloc
malloc_align32 = malloc


@call(1, cost="malloc_ns")
def malloc_with_cfg(run: Simulator, size: int, policy: int, cfg: object = None) -> int:
    """The same; the configuration has no effect."""
    del cfg
    check_size(size)
    return take(run, size, _pages(size, policy), site()).address


@call(cost="free_ns")
def free(run: Simulator, dev_ptr: int) -> None:
    """Give device or managed memory back; nothing waits for work that still uses it."""
    found = _whole(run, dev_ptr, (Space.DEVICE, Space.MANAGED), "free")
    give_back(run, found, site())


def give_back(run: Simulator, found: Allocation, line: str) -> None:
    """Memory is gone for the program; whoever still uses it has a problem."""
    run.evidence.free(found, run.users.get(found.number, ()), run.seen_by_host, line)
    run.memory.free(found, line, run.clock_ns)
    if found.space is Space.DEVICE and not found.pool:
        run.device(found.device).used_bytes -= found.taken


def _whole(run: Simulator, address: object, spaces: tuple[Space, ...], what: str) -> Allocation:
    found = run.memory.range(address, 0, "address").allocation
    if found.address != address or found.space not in spaces:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"{what} of 0x{address:x}, which lies in {found.name} (0x{found.address:x}, "
            f"{found.space.value} memory); "
            f"pass an address that an allocation of {' or '.join(spaces)} memory gave",
        )
    return found


@call(1)
def malloc_host(run: Simulator, size: int) -> int:
    """Host memory that the device reaches by itself (pinned)."""
    return run.memory.pinned(check_size(size), site()).address


malloc_host_with_cfg = malloc_host


@call()
def free_host(run: Simulator, host_ptr: int) -> None:
    """Give pinned host memory back."""
    give_back(run, _whole(run, host_ptr, (Space.PINNED,), "free_host"), site())


@call(1)
def host_register(run: Simulator, ptr: int, size: int, kind: int = 0) -> int:
    """Pin host memory of the program; the device reaches it under the address that is returned."""
    del kind
    found = run.memory.host_range(ptr, size, "ptr")
    if found.allocation.space is not Space.PAGEABLE:
        raise Refused(codes.RT_PARAM_INVALID, f"0x{ptr:x} is {found.allocation.space.value} memory already")
    found.allocation.space = Space.PINNED
    return ptr


@call()
def host_unregister(run: Simulator, ptr: int) -> None:
    """Undo :func:`host_register`."""
    found = _whole(run, ptr, (Space.PINNED,), "host_unregister")
    found.space = Space.PAGEABLE


@call(2)
def get_mem_info(run: Simulator, attr: int) -> tuple[int, int]:
    """Free and total bytes of the current device."""
    if attr not in range(6):
        raise Refused(
            codes.RT_PARAM_INVALID, f"attr is {attr!r}; pass one of ACL_DDR_MEM ... ACL_HBM_MEM_NORMAL"
        )
    device = run.device(run.context().device)
    total = device.spec.memory.hbm_bytes
    return total - device.used_bytes, total


@call(1)
def pointer_get_attributes(run: Simulator, ptr: int) -> dict[str, int | str]:
    """Where an address lies."""
    found = run.memory.range(ptr, 0, "ptr").allocation
    return {"type": found.space.value, "device": found.device, "address": found.address, "size": found.size}


@call()
def mem_flush(run: Simulator, ptr: int, size: int) -> None:
    """Write the cache back; there is nothing to do."""
    run.memory.range(ptr, size, "ptr")


mem_invalidate = mem_flush


# Setting and copying.


@call()
def memset(run: Simulator, ptr: int, max_count: int, value: int, count: int) -> None:
    """Set bytes, and wait until they are set."""
    target = _settable(run, ptr, max_count, value, count)
    line = site()
    if target.allocation.space in (Space.PINNED, Space.PAGEABLE):
        run.touch_by_host(target, writes=True, site=line, what="memset")
        target.view()[:] = value
        return
    work = _set(run, run.copy_stream(), target, value, line)
    wait_for(run, [work.index], "memset")


@call()
def memset_async(run: Simulator, ptr: int, max_count: int, value: int, count: int, stream: int) -> None:
    """Set bytes in the order of a stream."""
    where = run.stream(stream)
    target = _settable(run, ptr, max_count, value, count)
    if target.allocation.space in (Space.PINNED, Space.PAGEABLE):
        raise Refused(codes.RT_PARAM_INVALID, f"0x{ptr:x} is host memory; memset_async sets device memory")
    run.pay("launch_kernel_ns")
    _set(run, where, target, value, site())


def _settable(run: Simulator, ptr: int, max_count: int, value: int, count: int) -> Range:
    if not isinstance(value, int):
        raise Refused(codes.RT_PARAM_INVALID, f"value is {value!r}; pass a whole number")
    if not isinstance(count, int) or not isinstance(max_count, int) or not 0 < count <= max_count:
        raise Refused(
            codes.RT_PARAM_INVALID, f"count is {count!r} with max_count {max_count!r}; count is at most that"
        )
    return run.memory.range(ptr, count, "ptr")


def _set(run: Simulator, where: Stream, target: Range, value: int, line: str) -> Work:
    kernel = Kernel(name="memset", kernel_class=KernelClass.VECTOR, bytes_written=target.size, op="ZerosLike")
    command = Command(name="memset", kind=CommandKind.KERNEL, kernels=(kernel,))
    work = run.submit("rt.memset", where, command, [Touch(target, True)], site=line)

    def end() -> None:
        target.view()[:] = value & 0xFF

    work.end = end
    return work


@call()
def memcpy(run: Simulator, dst: int, dest_max: int, src: int, count: int, kind: int) -> None:
    """Copy bytes, and wait until they are there."""
    target, source, way = _ends(run, dst, dest_max, src, count, kind)
    line = site()
    if way is None:
        run.touch_by_host(source, writes=False, site=line, what="memcpy")
        run.touch_by_host(target, writes=True, site=line, what="memcpy")
        run.settle()
        target.view()[:] = source.view()
        return
    work = _copy(run, run.copy_stream(), target, source, way, line, "rt.memcpy")
    wait_for(run, [work.index], "memcpy")


@call()
def memcpy_async(
    run: Simulator, dst: int, dest_max: int, src: int, count: int, kind: int, stream: int
) -> None:
    """Copy bytes in the order of a stream; where the host's side is pageable, the host waits."""
    where = run.stream(stream)
    target, source, way = _ends(run, dst, dest_max, src, count, kind)
    if way is None:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT, "copies from host to host are not asynchronous; call memcpy"
        )
    run.pay("memcpy_async_ns")
    work = _copy(run, where, target, source, way, site(), "rt.memcpy_async")
    if Space.PAGEABLE in (target.allocation.space, source.allocation.space):
        wait_for(run, [work.index], "memcpy_async with pageable memory")


@call()
def memcpy2d(
    run: Simulator, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
) -> None:
    """Copy a rectangle, and wait until it is there."""
    _rectangle(run, run.copy_stream(), dst, dpitch, src, spitch, width, height, kind, site(), wait=True)


@call()
def memcpy2d_async(
    run: Simulator,
    dst: int,
    dpitch: int,
    src: int,
    spitch: int,
    width: int,
    height: int,
    kind: int,
    stream: int,
) -> None:
    """Copy a rectangle in the order of a stream."""
    where = run.stream(stream)
    run.pay("memcpy_async_ns")
    _rectangle(run, where, dst, dpitch, src, spitch, width, height, kind, site(), wait=False)


memcpy_2d, memcpy_2d_async = memcpy2d, memcpy2d_async


def _rectangle(
    run: Simulator, where: Stream, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int,
    kind: int, line: str, *, wait: bool,
) -> None:  # fmt: skip
    if not (0 < width <= dpitch and width <= spitch and height > 0):
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"width {width} and height {height} with pitches {dpitch} and {spitch}: width is at most "
            "either pitch, "
            "and both are above 0",
        )
    span_to, span_from = dpitch * (height - 1) + width, spitch * (height - 1) + width
    target, source, way = _ends(run, dst, span_to, src, span_from, kind, span_to)
    if way is None:
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, "rectangles are copied to, from or within a device")
    work = _copy(run, where, target, source, way, line, "rt.memcpy2d", size=width * height)
    held: list[list[NDArray[np.uint8]]] = []

    def begin() -> None:
        rows = source.view()
        held.append([rows[r * spitch : r * spitch + width].copy() for r in range(height)])

    def end() -> None:
        rows = target.view()
        for r, row in enumerate(held.pop()):
            rows[r * dpitch : r * dpitch + width] = row

    work.begin, work.end = begin, end
    if wait or Space.PAGEABLE in (target.allocation.space, source.allocation.space):
        wait_for(run, [work.index], "memcpy2d")


_HOST_SPACES: Final = (Space.PINNED, Space.PAGEABLE)
_WAYS: Final[dict[int, tuple[bool, bool]]] = {
    const.ACL_MEMCPY_HOST_TO_HOST: (False, False),
    const.ACL_MEMCPY_HOST_TO_DEVICE: (False, True),
    const.ACL_MEMCPY_DEVICE_TO_HOST: (True, False),
    const.ACL_MEMCPY_DEVICE_TO_DEVICE: (True, True),
    const.ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: (True, True),
    const.ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: (True, True),
}


def _ends(
    run: Simulator, dst: int, dest_max: int, src: int, count: int, kind: int, target_size: int | None = None
) -> tuple[Range, Range, CopyKind | None]:
    """Both ends of a copy and its direction; None from host to host."""
    if not isinstance(count, int) or count <= 0 or not isinstance(dest_max, int):
        raise Refused(
            codes.RT_PARAM_INVALID, f"count is {count!r} with dest_max {dest_max!r}; pass bytes above 0"
        )
    if target_size is None and count > dest_max:
        raise Refused(codes.RT_PARAM_INVALID, f"count {count} is more than dest_max {dest_max}")
    target = run.memory.host_range(dst, target_size or count, "dst")
    source = run.memory.host_range(src, count, "src")
    on_device = tuple(r.allocation.space not in _HOST_SPACES for r in (source, target))
    shared = run.spec.memory.host_shares_dram
    if kind != const.ACL_MEMCPY_DEFAULT and not shared:
        if kind not in _WAYS:
            raise Refused(codes.RT_PARAM_INVALID, f"kind is {kind!r}; pass one of ACL_MEMCPY_, 0 to 7")
        managed = tuple(r.allocation.space is Space.MANAGED for r in (source, target))
        wrong = [
            name
            for name, there, wanted, either in zip(
                ("src", "dst"), on_device, _WAYS[kind], managed, strict=True
            )
            if there != wanted and not either
        ]
        if wrong:
            place = (source if wrong[0] == "src" else target).allocation
            raise Refused(
                codes.RT_PARAM_INVALID,
                f"kind {kind} wants {wrong[0]} "
                f"{'on the device' if _WAYS[kind][wrong[0] == 'dst'] else 'on the host'}, "
                f"but it lies in {place.name} ({place.space.value} memory)",
            )
    if on_device == (False, False):
        return target, source, None
    if on_device == (True, True) or shared:
        return target, source, CopyKind.D2D
    return target, source, CopyKind.D2H if on_device[0] else CopyKind.H2D


def _copy(
    run: Simulator, where: Stream, target: Range, source: Range, way: CopyKind, line: str, name: str,
    size: int | None = None,
) -> Work:  # fmt: skip
    command = Command(
        name=f"copy {way.value}", kind=CommandKind.COPY, copy=way, size_bytes=size or source.size
    )
    touches = [Touch(source, False), Touch(target, True)]
    work = run.submit(name, where, command, touches, site=line)
    held: list[NDArray[np.uint8]] = []

    def begin() -> None:
        run.evidence.check(work, source)
        held.append(source.view().copy())

    def end() -> None:
        target.view()[:] = held.pop()

    work.begin, work.end = begin, end
    if source.allocation.space in _HOST_SPACES:
        run.evidence.watch(work, source)
    return work


# Managed memory.


@call(1, cost="malloc_ns")
def mem_alloc_managed(run: Simulator, size: int, flag: int = 0) -> int:
    """Memory with one address for host and device, which moves when it is touched."""
    del flag
    context = run.context()
    if not run.spec.memory.managed_prefetch and not run.spec.memory.host_shares_dram:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT,
            f"{run.spec.name} has no managed memory; it comes with 910B and its followers",
        )
    return run.memory.managed(context.device, check_size(size), site()).address


@call()
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
    to_device = _location(run, location)
    run.pay("prefetch_ns")
    prefetch(run, where, memory, to_device, site(), "rt.mem_managed_prefetch_async")


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


def prefetch(run: Simulator, where: Stream, memory: Range, to_device: bool, line: str, name: str) -> Work:
    """Submit a prefetch: an instant in its stream at which the move is asked for."""
    command = Command(name="prefetch" if to_device else "offload", kind=CommandKind.COLLECTIVE, duration_ns=1)
    work = run.submit(name, where, command, [], site=line)
    work.prefetch = memory, to_device
    before = run.log[work.previous] if work.previous >= 0 else None
    work.at_once = not work.waits and not work.signals and (before is None or before.ended or before.at_once)
    return work


@call()
def mem_managed_advise(run: Simulator, ptr: int, size: int, advise: int, location: object = None) -> None:
    """Accepted without effect."""
    del advise, location
    run.memory.range(ptr, size, "ptr")


@call()
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
    command = Command(name="prefetch L2", kind=CommandKind.COPY, copy=CopyKind.D2D, size_bytes=size)
    run.submit("rt.cmo_async", where, command, [Touch(memory, False)], site=site())
