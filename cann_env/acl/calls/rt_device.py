"""Devices and contexts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, getter, site
from cann_env.acl.codes import Refused
from cann_env.acl.state.deadlocks import stuck
from cann_env.acl.state.evidence import Stuck, note_leaks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.objects import Context, Stream
    from cann_env.acl.state.simulator import Simulator

_CORES: Final = {const.ACL_RT_DEV_RES_CUBE_CORE: "aic", const.ACL_RT_DEV_RES_VECTOR_CORE: "aiv"}


@call(article="aclrtSetDevice", differs="Takes no time; on a device the first one takes seconds.")
def set_device(run: Simulator, device_id: int) -> None:
    """Use a device in this thread: its default context becomes current, and is made when first asked for."""
    device = run.device(device_id)
    for context in run.contexts.values():
        if context.implicit and context.device == device.number:
            run.current[threading.get_ident()] = context.handle
            return
    run.make_context(device.number, implicit=True, site=site())


@call(article="aclrtResetDevice", differs="Waits for all work of the device.")
def reset_device(run: Simulator, device_id: int) -> None:
    """Give everything back that was made on a device, once all its work is done."""
    device = run.device(device_id)
    run.advance_to(list(device.works))
    streams = [stream for stream in run.streams.values() if stream.device == device.number]
    for stream in streams:
        run.seen_stream(stream)
    note_leaks(run, site(), device.number)
    for pool in [pool for pool in run.pools.values() if pool.device == device.number]:
        run.bury(pool.handle, "pool", site())
        del run.pools[pool.handle]
    for context in [c for c in run.contexts.values() if c.device == device.number]:
        drop_context(run, context, site())
    for allocation in [a for a in run.memory.allocations if not a.freed and a.device == device.number]:
        run.memory.free(allocation, site(), run.clock_ns)
    device.used_bytes = 0


reset_device_force = reset_device


@call(1)
def get_device(run: Simulator) -> int:
    """Number of the device of the current context."""
    return run.context().device


@call(1, differs="As many as acl.simulate was told, 8 by default.")
def get_device_count(run: Simulator) -> int:
    """Devices of the machine."""
    return run.count


@call(1, differs="Where no stream is left for its default stream: 207008, as of the driver.")
def create_context(run: Simulator, device_id: int) -> int:
    """A context of a device, current for this thread."""
    return run.make_context(run.device(device_id).number, implicit=False, site=site()).handle


@call()
def destroy_context(run: Simulator, context: int) -> None:
    """End a context with its streams, once all their work is done."""
    found = find_context(run, context)
    if found.implicit:
        raise Refused(
            codes.RT_PARAM_INVALID, f"context {context} is the device's own; call reset_device instead"
        )
    streams = [s for s in run.streams.values() if s.context == found.handle]
    run.advance_to([i for stream in streams for i in stream.work])
    for stream in streams:
        run.seen_stream(stream)
    drop_context(run, found, site())


@call(c_name="aclrtSetCurrentContext")
def set_context(run: Simulator, context: int) -> None:
    """Make a context current for this thread."""
    run.current[threading.get_ident()] = find_context(run, context).handle


@call(1, c_name="aclrtGetCurrentContext")
def get_context(run: Simulator) -> int:
    """The current context of this thread."""
    return run.context().handle


@call(1, differs="Follows from the device file: where host and device share memory, ACL_DEVICE.")
def get_run_mode(run: Simulator) -> int:
    """Whether the program runs on a host, or on the device's own processors (310B development boards)."""
    return const.ACL_DEVICE if run.spec.memory.host_shares_dram else const.ACL_HOST


@call(differs="What can never end is reported (507046) instead of waiting for ever.")
def synchronize_device(run: Simulator) -> None:
    """Wait until all work of the current device is done."""
    _wait_for_device(run)


def _wait_for_device(run: Simulator) -> None:
    number = run.context().device
    streams = [stream for stream in run.streams.values() if stream.device == number]
    for stream in streams:
        run.captures.refuse_captured(stream, "synchronisation with its device")
    refuse_lost_waits(run, streams, f"device {number}")
    wait_for(run, list(run.device(number).works), f"device {number}")
    for stream in streams:
        run.seen_stream(stream)


@call()
def synchronize_device_with_timeout(run: Simulator, timeout: int) -> None:
    """The same, for at most so many milliseconds; -1 for as long as it takes."""
    check_timeout(timeout)
    device = run.device(run.context().device)
    wait_at_most(run, list(device.works), timeout, f"device {device.number}", codes.RT_STREAM_SYNC_TIMEOUT)
    _wait_for_device(run)


@getter(failed="")
def get_soc_name(run: Simulator) -> str:
    """Name of the chip."""
    return run.spec.name.replace("ascend", "Ascend", 1)


@call(differs="Without effect.")
def set_ts_device(run: Simulator, ts_id: int) -> None:
    """Accepted without effect: there is one scheduler to a device here."""
    del run, ts_id


@call(1, differs="Exact, over the whole run, instead of sampled.")
def get_device_utilization_rate(run: Simulator, device_id: int) -> dict[str, int]:
    """Part of the time until now that each kind of core was busy, in per cent."""
    run.settle()
    device = run.device(device_id)
    rates = {}
    for key, pool in (
        ("cube_utilization", "aic"),
        ("vector_utilization", "aiv"),
        ("aicpu_utilization", "aicpu"),
    ):
        busy = 0
        for epoch in [*device.epochs, *([device.current] if device.current else [])]:
            for row in epoch.schedule.blocks:
                units = epoch.schedule.demand_of(row).get(pool, 0) * row.blocks
                busy += units * (row.finish_ns - row.start_ns)
        total = device.spec.pools.get(pool, 0) * run.clock_ns
        rates[key] = round(100 * busy / total) if total else 0
    return rates


@call(differs="Cuts the blocks of launches, as tiling on a device would.")
def set_device_res_limit(run: Simulator, device_id: int, kind: int, value: int) -> None:
    """Most cores of a kind that kernels on a device are cut into blocks for."""
    device = run.device(device_id)
    device.limits[kind] = check_cores(run, kind, value)


@call(1)
def get_device_res_limit(run: Simulator, device_id: int, kind: int) -> int:
    """See :func:`set_device_res_limit`."""
    device = run.device(device_id)
    return device.limits.get(kind, check_cores(run, kind, None))


@call()
def reset_device_res_limit(run: Simulator, device_id: int) -> None:
    """Lift all limits of a device."""
    run.device(device_id).limits.clear()


def check_cores(run: Simulator, kind: object, value: int | None) -> int:
    """A limit of cores; all there are if None."""
    if kind not in _CORES:
        raise Refused(codes.RT_PARAM_INVALID, f"kind of core is {kind!r}; pass 0 (cube) or 1 (vector)")
    most = run.spec.pools[_CORES[kind]]
    if value is None:
        return most
    if not isinstance(value, int) or not 1 <= value <= most:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"limit of {_CORES[kind]} cores is {value!r}; {run.spec.name} has 1 to {most}",
        )
    return value


def find_context(run: Simulator, handle: object) -> Context:
    """A context by handle."""
    found = run.contexts.get(handle) if isinstance(handle, int) else None
    if found is None:
        raise Refused(codes.RT_CONTEXT_NULL, f"context {handle!r} does not exist{run.gone(handle)}")
    return found


def drop_context(run: Simulator, context: Context, line: str) -> None:
    """Forget a context and its streams."""
    for stream in [s for s in run.streams.values() if s.context == context.handle]:
        run.bury(stream.handle, "stream", line)
        del run.streams[stream.handle]
    run.bury(context.handle, "context", line)
    del run.contexts[context.handle]
    for thread in [t for t, current in run.current.items() if current == context.handle]:
        del run.current[thread]


def wait_for(run: Simulator, work: list[int], what: str, code: int = codes.RT_STREAM_SYNC_TIMEOUT) -> None:
    """The host waits for work, and pays for a synchronisation.

    Raises:
        Refused: Some of it can never end.
    """
    ended = run.advance_to(work)
    if not ended:
        open_ones = [run.log[i] for i in work if not run.log[i].ended]
        first = open_ones[0]
        circles = tuple(deadlock for deadlock in stuck(run) if deadlock.circle)
        run.evidence.stuck.append(Stuck(what, site(), first, None, circles))
        raise Refused(
            code,
            f"{what} never gets done: {len(open_ones)} pieces of work wait for ever, the first is "
            f"{first.label} submitted at {first.site}",
        )
    run.seen(work)
    run.pay("sync_ns")


def wait_at_most(run: Simulator, work: list[int], timeout: int, what: str, code: int) -> None:
    """The host waits for work, but not longer than so many milliseconds; -1 for ever.

    Raises:
        Refused: The time is over; the host's clock has gone on.
    """
    if timeout < 0:
        return
    run.settle()
    limit = run.clock_ns + timeout * 1_000_000
    open_ones = [run.log[i] for i in work if not run.log[i].ended]
    if any(piece.finish_ns > limit or piece.index in run.devices[piece.device].stuck for piece in open_ones):
        run.clock_ns = limit
        run.settle()
        raise Refused(code, f"{what} is not done after {timeout} ms")


def check_timeout(timeout: object) -> None:
    """A timeout in milliseconds.

    Raises:
        Refused: It is none.
    """
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not -1 <= timeout <= 0x7FFF_FFFF:
        raise Refused(
            codes.RT_PARAM_INVALID, f"timeout is {timeout!r}; pass milliseconds from 0, or -1 for ever"
        )


def ask(run: Simulator) -> None:
    """The host asks how far something is, which takes time, so that asking again and again has an end."""
    run.spend("sync_ns")
    run.settle()
    run.minds.asked()


def refuse_lost_waits(run: Simulator, streams: Sequence[Stream], what: str) -> None:
    """A stream whose last wait is for what nobody recorded is never done.

    Raises:
        Refused: One of the streams is such.
    """
    for stream in streams:
        lost = [signal for signal in stream.unresolved if signal.after is None]
        if lost:
            run.evidence.stuck.append(Stuck(what, site(), None, lost[0]))
            raise Refused(
                codes.RT_STREAM_SYNC_TIMEOUT,
                f"{what} never gets done: stream {stream.handle} waits since {lost[0].site} for a record of "
                f"{lost[0].owner}",
            )
