"""Setting and copying memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_device import wait_for
from cann_env.acl.codes import Refused
from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import Touch
from cann_env.commands import Command, CommandKind, CopyKind, HostMemory, Kernel, KernelClass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work


@call()
def memset(run: Simulator, ptr: int, max_count: int, value: int, count: int) -> None:
    """Set bytes, and wait until they are set."""
    run.captures.refuse_unsafe("memset")
    target = _settable(run, ptr, max_count, value, count)
    line = site()
    if target.allocation.space in (Space.PINNED, Space.PAGEABLE):
        run.touch_by_host(target, writes=True, site=line, what="memset")
        target.view()[:] = value & 0xFF
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
    return run.memory.host_range(ptr, count, "ptr")


def _set(run: Simulator, where: Stream, target: Range, value: int, line: str) -> Work:
    kernel = Kernel(name="memset", kernel_class=KernelClass.VECTOR, bytes_written=target.size, op="ZerosLike")
    command = Command(name="memset", kind=CommandKind.KERNEL, kernels=(kernel,))
    work = run.submit("rt.memset", where, command, [Touch(target, True)], site=line)

    def end() -> None:
        target.view()[:] = value & 0xFF

    work.end, work.value = end, value
    return work


@call(differs="Directions are checked; where host and device share memory, any will do.")
def memcpy(run: Simulator, dst: int, dest_max: int, src: int, count: int, kind: int) -> None:
    """Copy bytes, and wait until they are there."""
    run.captures.refuse_unsafe("memcpy")
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


@call(article="aclrtMemcpyAsync", differs="With pageable host memory the host waits, as on a device.")
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
    _asynchronous(run, where, target, source)
    run.pay("memcpy_async_ns")
    work = _copy(run, where, target, source, way, site(), "rt.memcpy_async")
    if run.runtime.options is None and Space.PAGEABLE in (target.allocation.space, source.allocation.space):
        wait_for(run, [work.index], "memcpy_async with pageable memory")


memcpy_async_with_condition = memcpy_async


@call()
def memcpy2d(
    run: Simulator, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
) -> None:
    """Copy a rectangle, and wait until it is there."""
    run.captures.refuse_unsafe("memcpy2d")
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
    if not wait:
        _asynchronous(run, where, target, source)
    rows = (spitch, width), (dpitch, width)
    if not wait:
        run.pay("memcpy_async_ns")
    work = _copy(run, where, target, source, way, line, "rt.memcpy2d", size=width * height, rows=rows)
    held: list[list[NDArray[np.uint8]]] = []

    def begin() -> None:
        run.evidence.check(work, run)
        rows = source.view()
        held.append([rows[r * spitch : r * spitch + width].copy() for r in range(height)])

    def end() -> None:
        rows = target.view()
        for r, row in enumerate(held.pop()):
            rows[r * dpitch : r * dpitch + width] = row

    work.begin, work.end, work.shape = begin, end, (dpitch, spitch, width, height)
    if wait or Space.PAGEABLE in (target.allocation.space, source.allocation.space):
        wait_for(run, [work.index], "memcpy2d")


def _asynchronous(run: Simulator, where: Stream, target: Range, source: Range) -> None:
    """Refuse a copy with pageable memory, which is synchronous, in the midst of a capture."""
    if Space.PAGEABLE in (target.allocation.space, source.allocation.space):
        run.captures.refuse_unsafe("a copy with pageable memory")
        run.captures.refuse_captured(where, "a copy with pageable memory")


_HOST_SPACES: Final = (Space.PINNED, Space.PAGEABLE)
_BETWEEN: Final = (const.ACL_MEMCPY_HOST_TO_DEVICE, const.ACL_MEMCPY_DEVICE_TO_HOST)
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
    source = run.memory.source_range(src, count, "src")
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
    if on_device == (True, True) or (shared and kind not in _BETWEEN):
        return target, source, CopyKind.D2D
    return target, source, CopyKind.D2H if on_device[0] else CopyKind.H2D


def _copy(
    run: Simulator, where: Stream, target: Range, source: Range, way: CopyKind, line: str, name: str,
    size: int | None = None, rows: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Work:  # fmt: skip
    pageable = run.runtime.options is not None and Space.PAGEABLE in (
        target.allocation.space,
        source.allocation.space,
    )
    command = Command(
        name=f"copy {way.value}",
        kind=CommandKind.COPY,
        copy=way,
        size_bytes=size or source.size,
        # A host whose behaviour was prescribed waits in the engine; else the call waits.
        host_memory=HostMemory.PAGEABLE if pageable else HostMemory.PINNED,
    )
    pieces = rows or (None, None)
    touches = [Touch(source, False, pieces[0]), Touch(target, True, pieces[1])]
    work = run.submit(name, where, command, touches, site=line)
    held: list[NDArray[np.uint8]] = []

    def begin() -> None:
        run.evidence.check(work, run)
        held.append(source.view().copy())

    def end() -> None:
        target.view()[:] = held.pop()

    work.begin, work.end = begin, end
    if source.allocation.space in _HOST_SPACES and work.index >= 0:
        run.evidence.watch(work, source, run.users.get(source.allocation.number, ()))
    return work
