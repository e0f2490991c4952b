"""Streams, events and notifies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_device import (
    ask,
    check_cores,
    check_timeout,
    find_context,
    refuse_lost_waits,
    wait_at_most,
    wait_for,
)
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator


@call(1, article="aclrtCreateStream", differs="Takes no time.")
def create_stream(run: Simulator) -> int:
    """A stream of the current context."""
    return run.make_stream(0, 0, site()).handle


@call(1, differs="Flags are kept without effect; priorities count where the device honours them.")
def create_stream_with_config(run: Simulator, priority: int, flag: int) -> int:
    """A stream with a priority, from 0 (first) to 7, and flags."""
    if not isinstance(priority, int) or not 0 <= priority <= 7:
        raise Refused(codes.RT_PARAM_INVALID, f"priority is {priority!r}; priorities go from 0 to 7")
    if not isinstance(flag, int) or flag < 0 or flag > 0x3F:
        raise Refused(codes.RT_PARAM_INVALID, f"flag is {flag!r}; it is a sum of ACL_STREAM_ flags")
    return run.make_stream(priority, flag, site()).handle


@call(article="aclrtDestroyStream")
def destroy_stream(run: Simulator, stream: int) -> None:
    """End a stream, once its work is done."""
    found = run.stream(stream)
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream of a context cannot be destroyed")
    if found.capture is not None:
        raise Refused(codes.RT_STREAM_CAPTURED, f"stream {stream} is captured; end the capture first")
    if not run.advance_to(found.tail):
        raise Refused(codes.RT_STREAM_SYNC_TIMEOUT, f"stream {stream} never gets done")
    run.seen_stream(found)
    run.bury(found.handle, "stream", site())
    del run.streams[found.handle]


@call(differs="Work that has begun is not stopped.")
def destroy_stream_force(run: Simulator, stream: int) -> None:
    """End a stream at once; work that has not begun never will."""
    found = run.stream(stream)
    run.captures.refuse_captured(found, "destruction")
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream of a context cannot be destroyed")
    run.settle()
    run.abandon(found)
    run.bury(found.handle, "stream", site())
    del run.streams[found.handle]


@call(
    article="aclrtSynchronizeStream",
    differs="What can never end is reported (507046) instead of waiting for ever.",
)  # fmt: skip
def synchronize_stream(run: Simulator, stream: int) -> None:
    """Wait until all work of a stream is done."""
    found = run.stream(stream)
    _wait_for_stream(run, found)


def _wait_for_stream(run: Simulator, found: Stream) -> None:
    run.captures.refuse_captured(found, "synchronisation")
    refuse_lost_waits(run, [found], f"stream {found.handle}")
    wait_for(run, found.tail, f"stream {found.handle}")
    run.seen_stream(found)


@call()
def synchronize_stream_with_timeout(run: Simulator, stream: int, timeout: int) -> None:
    """The same, for at most so many milliseconds; -1 for as long as it takes."""
    found = run.stream(stream)
    check_timeout(timeout)
    run.captures.refuse_captured(found, "synchronisation")
    wait_at_most(run, found.tail, timeout, f"stream {found.handle}", codes.RT_STREAM_SYNC_TIMEOUT)
    _wait_for_stream(run, found)


@call(1)
def stream_query(run: Simulator, stream: int) -> int:
    """0 if all work of a stream is done, 1 if not."""
    found = run.stream(stream)
    run.captures.refuse_captured(found, "query")
    ask(run)
    lost = any(signal.after is None for signal in found.unresolved)
    if not lost and all(run.log[i].ended for i in found.tail):
        run.seen_stream(found)
        return const.ACL_STREAM_STATUS_COMPLETE
    return const.ACL_STREAM_STATUS_NOT_READY


@call(differs="Work that has begun is not stopped.")
def stream_abort(run: Simulator, stream: int) -> None:
    """Drop work of a stream that has not begun."""
    found = run.stream(stream)
    run.settle()
    run.abandon(found)


@call(differs="Kept without effect: no task fails.")
def set_stream_failure_mode(run: Simulator, stream: int, mode: int) -> None:
    """What a failed task does to its stream; kept, since nothing fails here."""
    found = run.stream(stream)
    if mode not in (const.ACL_CONTINUE_ON_FAILURE, const.ACL_STOP_ON_FAILURE):
        raise Refused(codes.RT_PARAM_INVALID, f"failure mode is {mode!r}; pass 0 (continue) or 1 (stop)")
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream keeps its failure mode")
    found.failure_mode = mode


@call(1, c_name="aclrtStreamGetPriority")
def get_stream_priority(run: Simulator, stream: int) -> int:
    """Priority of a stream."""
    return run.stream(stream).priority


@call(1, c_name="aclrtStreamGetFlags")
def get_stream_flags(run: Simulator, stream: int) -> int:
    """Flags of a stream."""
    return run.stream(stream).flags


@call(1)
def stream_get_id(run: Simulator, stream: int) -> int:
    """Number of a stream on its device."""
    found = run.stream(stream)
    return sorted(s.handle for s in run.streams.values() if s.device == found.device).index(found.handle)


@call(2)
def device_get_stream_priority_range(run: Simulator) -> tuple[int, int]:
    """Lowest and highest priority: 7 and 0 where priorities are honoured, else 0 and 0."""
    return run.spec.limits.stream_priorities - 1, 0


@call(1)
def get_stream_available_num(run: Simulator) -> int:
    """Streams that can still be made on the current device."""
    device = run.context().device
    held = sum(stream.device == device for stream in run.streams.values())
    return run.spec.limits.max_streams - held


@call(differs="Cuts the blocks of launches, as tiling on a device would.")
def set_stream_res_limit(run: Simulator, stream: int, kind: int, value: int) -> None:
    """Most cores of a kind that kernels on a stream get blocks for; goes before the device's limit."""
    run.stream(stream).cores[kind] = check_cores(run, kind, value)


@call(1)
def get_stream_res_limit(run: Simulator, stream: int, kind: int) -> int:
    """See :func:`set_stream_res_limit`."""
    found = run.stream(stream)
    everywhere = run.device(found.device).limits
    return found.cores.get(kind, everywhere.get(kind, check_cores(run, kind, None)))


@call()
def reset_stream_res_limit(run: Simulator, stream: int) -> None:
    """Lift all limits of a stream."""
    run.stream(stream).cores.clear()


@call(1, c_name="", differs="The runtime has no such call.")
def get_context_of_stream(run: Simulator, stream: int) -> int:
    """The context that a stream was made in."""
    return find_context(run, run.stream(stream).context).handle
