"""Allocations of the device and the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.state.frames import FRAME, PAGE
from cann_env.acl.state.memory import Space

if TYPE_CHECKING:
    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.simulator import Simulator

_GUARD: Final = 32
_GIANT: Final = 1 << 30
_HUGE_FROM: Final = 1 << 20

_P2P: Final = {
    const.ACL_MEM_MALLOC_HUGE_FIRST_P2P: const.ACL_MEM_MALLOC_HUGE_FIRST,
    const.ACL_MEM_MALLOC_HUGE_ONLY_P2P: const.ACL_MEM_MALLOC_HUGE_ONLY,
    const.ACL_MEM_MALLOC_NORMAL_ONLY_P2P: const.ACL_MEM_MALLOC_NORMAL_ONLY,
    const.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: const.ACL_MEM_MALLOC_HUGE1G_ONLY,
}


def pages(size: int, policy: object) -> int:
    """Bytes that an allocation takes from the device: whole pages, with a guard."""
    return _rounded(size, _page(size, policy))


def _page(size: int, policy: object) -> int:
    policy = _P2P.get(policy, policy) if isinstance(policy, int) else policy
    if policy == const.ACL_MEM_MALLOC_HUGE_FIRST:
        return FRAME if size > _HUGE_FROM else PAGE
    if policy == const.ACL_MEM_MALLOC_HUGE_ONLY:
        return FRAME
    if policy == const.ACL_MEM_MALLOC_NORMAL_ONLY:
        return PAGE
    if policy == const.ACL_MEM_MALLOC_HUGE1G_ONLY:
        return _GIANT
    raise Refused(codes.RT_PARAM_INVALID, f"policy is {policy!r}; pass one of ACL_MEM_MALLOC_, 0 to 7")


def _rounded(size: int, page: int) -> int:
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
    if taken > free and run.runtime.options is None:  # else the engine has the memory and says so
        raise Refused(
            codes.RT_MEMORY_ALLOCATION,
            f"{size} bytes ({taken} in pages) do not fit: device {device.number} ({device.spec.name}) has "
            f"{device.spec.memory.hbm_bytes} bytes, of which {free} are free",
        )
    allocation = run.memory.device(device.number, size, taken, line)
    allocation.die = run.die
    device.used_bytes += taken
    device.peak_bytes = max(device.peak_bytes, device.used_bytes)
    return allocation


def take_pages(run: Simulator, size: int, policy: int, line: str) -> Allocation:
    """Memory of the current device, in pages as a policy says.

    Raises:
        Refused: There is not so much left, or not in whole pages of 2 MiB.
    """
    device = run.device(run.context().device)
    page = _page(size, policy)
    whole = device.spec.memory.hbm_bytes - device.used_bytes - device.frames.loose_bytes
    huge_first = _P2P.get(policy, policy) == const.ACL_MEM_MALLOC_HUGE_FIRST
    if page == FRAME and huge_first and _rounded(size, page) > whole:
        page = PAGE
    taken = _rounded(size, page)
    if page != PAGE and whole < taken <= whole + device.frames.loose_bytes:
        raise Refused(
            codes.RT_MEMORY_ALLOCATION,
            f"{size} bytes do not fit in pages of {page >> 20} MiB: device {device.number} "
            f"({device.spec.name}) has {whole + device.frames.loose_bytes} bytes free, but only {whole} of "
            "them in frames that no smaller allocation uses a part of; let small pieces share a pool",
        )
    allocation = take(run, size, taken, line)
    if page == PAGE:
        held, frames = device.frames.take(taken), device.frames
        allocation.given_back = lambda: frames.give_back(held)
    return allocation


@call(
    1, cost="malloc_ns",
    differs="Which pages are taken is assumed: those of 4 KiB fill frames of 2 MiB that are in use already.",
)  # fmt: skip
def malloc(run: Simulator, size: int, policy: int) -> int:
    """Device memory; in pages of 4 KiB, 2 MiB or 1 GiB as the policy says."""
    return take_pages(run, check_size(size), policy, site()).address


malloc_cached = malloc
malloc_align32 = malloc


@call(1, cost="malloc_ns", differs="The configuration has no effect.")
def malloc_with_cfg(run: Simulator, size: int, policy: int, cfg: object = None) -> int:
    """The same; the configuration has no effect."""
    del cfg
    return take_pages(run, check_size(size), policy, site()).address


malloc_for_task_scheduler = malloc_with_cfg


@call(cost="free_ns", differs="Memory in use goes at once, as on a device; here it is also reported.")
def free(run: Simulator, dev_ptr: int) -> None:
    """Give device or managed memory back; nothing waits for work that still uses it."""
    found = _whole(run, dev_ptr, (Space.DEVICE, Space.MANAGED), "free")
    give_back(run, found, site())


def give_back(run: Simulator, found: Allocation, line: str) -> None:
    """Memory is gone for the program; whoever still uses it has a problem."""
    run.evidence.free(found, run.users.get(found.number, ()), run.seen_by_host, line)
    run.evidence.forget(found)
    put_back(run, found, line)


def put_back(run: Simulator, found: Allocation, line: str) -> None:
    """The device has memory back, whoever took it."""
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


@call(1, differs="Takes no time that is known.")
def malloc_host(run: Simulator, size: int) -> int:
    """Host memory that the device reaches by itself (pinned)."""
    return run.memory.pinned(check_size(size), site()).address


malloc_host_with_cfg = malloc_host


@call()
def free_host(run: Simulator, host_ptr: int) -> None:
    """Give pinned host memory back."""
    give_back(run, _whole(run, host_ptr, (Space.PINNED,), "free_host"), site())


@call(1, differs="The address is the same for host and device.")
def host_register(run: Simulator, ptr: int, size: int, kind: int = 0) -> int:
    """Pin host memory of the program; the device reaches it under the address that is returned."""
    del kind
    found = run.memory.host_range(ptr, size, "ptr")
    if found.allocation.space is not Space.PAGEABLE:
        raise Refused(codes.RT_PARAM_INVALID, f"0x{ptr:x} is {found.allocation.space.value} memory already")
    found.allocation.space, found.allocation.registered = Space.PINNED, True
    return ptr


@call()
def host_unregister(run: Simulator, ptr: int) -> None:
    """Undo :func:`host_register`."""
    found = _whole(run, ptr, (Space.PINNED,), "host_unregister")
    found.space, found.registered = Space.PAGEABLE, False


@call(2, differs="One memory, whatever the attribute.")
def get_mem_info(run: Simulator, attr: int) -> tuple[int, int]:
    """Free and total bytes of the current device."""
    if attr not in range(6):
        raise Refused(
            codes.RT_PARAM_INVALID, f"attr is {attr!r}; pass one of ACL_DDR_MEM ... ACL_HBM_MEM_NORMAL"
        )
    device = run.device(run.context().device)
    total = device.spec.memory.hbm_bytes
    return total - device.used_bytes, total


@call(1, differs="A mapping instead of a struct.")
def pointer_get_attributes(run: Simulator, ptr: int) -> dict[str, int | str]:
    """Where an address lies."""
    found = run.memory.range(ptr, 0, "ptr").allocation
    return {"type": found.space.value, "device": found.device, "address": found.address, "size": found.size}


@call(differs="Without effect: caches of the host are always coherent.")
def mem_flush(run: Simulator, ptr: int, size: int) -> None:
    """Write the cache back; there is nothing to do."""
    run.memory.range(ptr, size, "ptr")


mem_invalidate = mem_flush
