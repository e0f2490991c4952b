"""Streams, events and notifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.evidence import Rerecorded, Unrecorded
from cann_env.acl.objects import Event, Notify, Signal
from cann_env.acl.rt_device import check_cores, find_context, wait_for

if TYPE_CHECKING:
    from cann_env.acl.objects import Record
    from cann_env.acl.simulator import Simulator

_NEW_FLAGS: Final = const.ACL_EVENT_SYNC | const.ACL_EVENT_TIME_LINE | const.ACL_EVENT_CAPTURE_STREAM_PROGRESS
_ALL_FLAGS: Final = (
    _NEW_FLAGS | const.ACL_EVENT_DEVICE_USE_ONLY | const.ACL_EVENT_EXTERNAL | const.ACL_EVENT_IPC
)
_WAITS_AHEAD: Final = const.ACL_EVENT_SYNC | const.ACL_EVENT_EXTERNAL


@call(1)
def create_stream(run: Simulator) -> int:
    """A stream of the current context."""
    return run.make_stream(0, 0, site()).handle


@call(1)
def create_stream_with_config(run: Simulator, priority: int, flag: int) -> int:
    """A stream with a priority, from 0 (first) to 7, and flags."""
    if not isinstance(priority, int) or not 0 <= priority <= 7:
        raise Refused(codes.RT_PARAM_INVALID, f"priority is {priority!r}; priorities go from 0 to 7")
    if not isinstance(flag, int) or flag < 0 or flag > 0x3F:
        raise Refused(codes.RT_PARAM_INVALID, f"flag is {flag!r}; it is a sum of ACL_STREAM_ flags")
    return run.make_stream(priority, flag, site()).handle


@call()
def destroy_stream(run: Simulator, stream: int) -> None:
    """End a stream, once its work is done."""
    found = run.stream(stream)
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream of a context cannot be destroyed")
    if not run.advance_to(found.work):
        raise Refused(codes.RT_STREAM_SYNC_TIMEOUT, f"stream {stream} never gets done")
    run.seen(found.work)
    run.bury(found.handle, "stream", site())
    del run.streams[found.handle]


@call()
def destroy_stream_force(run: Simulator, stream: int) -> None:
    """End a stream at once; work that has not begun never will."""
    found = run.stream(stream)
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream of a context cannot be destroyed")
    run.settle()
    run.abandon(found)
    run.bury(found.handle, "stream", site())
    del run.streams[found.handle]


@call()
def synchronize_stream(run: Simulator, stream: int) -> None:
    """Wait until all work of a stream is done."""
    found = run.stream(stream)
    wait_for(run, found.tail, f"stream {found.handle}")


@call()
def synchronize_stream_with_timeout(run: Simulator, stream: int, timeout: int) -> None:
    """The same, for at most so many milliseconds; -1 for as long as it takes."""
    found = run.stream(stream)
    if not isinstance(timeout, int) or timeout < -1:
        raise Refused(codes.RT_PARAM_INVALID, f"timeout is {timeout!r}; pass milliseconds from 0, or -1")
    run.settle()
    work = [run.log[i] for i in found.tail]
    latest = max((w.finish_ns for w in work), default=0)
    limit = run.clock_ns + timeout * 1_000_000
    if timeout >= 0 and latest > limit:
        run.clock_ns = limit
        run.settle()
        raise Refused(codes.RT_STREAM_SYNC_TIMEOUT, f"stream {found.handle} is not done after {timeout} ms")
    wait_for(run, found.tail, f"stream {found.handle}")


@call(1)
def stream_query(run: Simulator, stream: int) -> int:
    """0 if all work of a stream is done, 1 if not."""
    found = run.stream(stream)
    run.settle()
    if all(run.log[i].ended for i in found.tail):
        run.seen(found.tail)
        return const.ACL_STREAM_STATUS_COMPLETE
    return const.ACL_STREAM_STATUS_NOT_READY


@call()
def stream_abort(run: Simulator, stream: int) -> None:
    """Drop work of a stream that has not begun."""
    found = run.stream(stream)
    run.settle()
    run.abandon(found)


@call()
def set_stream_failure_mode(run: Simulator, stream: int, mode: int) -> None:
    """What a failed task does to its stream; kept, since nothing fails here."""
    found = run.stream(stream)
    if mode not in (const.ACL_CONTINUE_ON_FAILURE, const.ACL_STOP_ON_FAILURE):
        raise Refused(codes.RT_PARAM_INVALID, f"failure mode is {mode!r}; pass 0 (continue) or 1 (stop)")
    if found.default:
        raise Refused(codes.RT_PARAM_INVALID, "the default stream keeps its failure mode")
    found.failure_mode = mode


@call(1)
def get_stream_priority(run: Simulator, stream: int) -> int:
    """Priority of a stream."""
    return run.stream(stream).priority


@call(1)
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


@call()
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


@call(1)
def get_context_of_stream(run: Simulator, stream: int) -> int:
    """The context that a stream was made in."""
    return find_context(run, run.stream(stream).context).handle


# Events.


@call(1)
def create_event(run: Simulator) -> int:
    """An event with the older rules: waits before a record are refused."""
    return _event(run, 0, legacy=True)


@call(1)
def create_event_with_flag(run: Simulator, flag: int) -> int:
    """The same with flags; with ``ACL_EVENT_SYNC`` or ``_EXTERNAL`` a wait may come before its record."""
    return _event(run, _flags(flag), legacy=True)


@call(1)
def create_event_ex_with_flag(run: Simulator, flag: int) -> int:
    """An event with the newer rules: recorded again at will, a wait binds to the latest record."""
    return _event(run, _flags(flag), legacy=False)


def _flags(flag: object) -> int:
    if not isinstance(flag, int) or flag < 0 or flag & ~_ALL_FLAGS:
        raise Refused(codes.RT_PARAM_INVALID, f"flag is {flag!r}; it is a sum of ACL_EVENT_ flags")
    return flag


def _event(run: Simulator, flags: int, *, legacy: bool) -> int:
    run.context()
    most = run.spec.limits.max_events
    held = sum(event.legacy or event.record is not None for event in run.events.values())
    if legacy and held >= most:
        raise Refused(codes.RT_NO_EVENT_RESOURCE, f"{held} events are held; {run.spec.name} has {most}")
    event = Event(run.new_handle(), flags, legacy, site())
    run.events[event.handle] = event
    return event.handle


@call()
def destroy_event(run: Simulator, event: int) -> None:
    """End an event; waits that are queued already keep what they wait for."""
    found = run.event(event)
    run.bury(found.handle, "event", site())
    del run.events[found.handle]


@call()
def record_event(run: Simulator, event: int, stream: int) -> None:
    """Record an event behind everything submitted to a stream so far."""
    found, where = run.event(event), run.stream(stream)
    if not found.legacy and found.record is None:
        most = run.spec.limits.max_events
        held = sum(e.legacy or e.record is not None for e in run.events.values())
        if held >= most:
            raise Refused(codes.RT_NO_EVENT_RESOURCE, f"{held} events are held; {run.spec.name} has {most}")
    run.pay("record_event_ns")
    line = site()
    open_waits = [w for w in found.waits if found.record and w[2] == found.record.number]
    if found.record is not None and open_waits and not _passed(run, found, open_waits):
        run.evidence.rerecorded.append(Rerecorded(found, found.record, *open_waits[-1][:2], line))
    record = run.record(where, line)
    found.record = record
    run.resolve(found.waiting, record)
    found.waiting = []


def _passed(run: Simulator, event: Event, waits: list[tuple[int, str, int]]) -> bool:
    """Whether what waits for an event has certainly gone on, as far as the host knows.

    A wait of the newer kind is bound to its record when it is called, so that nothing can go wrong.
    """
    if not event.legacy:
        return True
    for stream, _, _ in waits:
        where = run.streams.get(stream)
        if where is not None and run.seen_by_host.get(stream, -1) < len(where.work) - 1:
            return False
    return True


@call()
def stream_wait_event(run: Simulator, stream: int, event: int) -> None:
    """Further work on a stream waits for what an event recorded last."""
    where, found = run.stream(stream), run.event(event)
    run.pay("wait_event_ns")
    line = site()
    if found.record is None:
        found.waits.append((where.handle, line, -1))
        run.evidence.unrecorded.append(Unrecorded(found, where.handle, line))
        if found.legacy and not found.flags & _WAITS_AHEAD:
            raise Refused(
                codes.RT_PARAM_INVALID,
                f"event {event} (made at {found.site}) was never recorded; record it before a stream waits "
                "for it",
            )
        if found.legacy:
            signal = Signal(found.handle, where.handle, line)
            found.waiting.append(signal)
            where.unresolved.append(signal)
        return
    found.waits.append((where.handle, line, found.record.number))
    run.wait(where, found.record)


@call()
def reset_event(run: Simulator, event: int, stream: int) -> None:
    """Forget what an event recorded; only those of the older kind can be reset."""
    found = run.event(event)
    run.stream(stream)
    if not found.legacy:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT, f"event {event} is of the newer kind, which is never reset"
        )
    found.record = None


@call()
def synchronize_event(run: Simulator, event: int) -> None:
    """Wait until what an event recorded is done; at once if it recorded nothing."""
    found = run.event(event)
    if found.record is None:
        if found.legacy:
            raise Refused(codes.RT_PARAM_INVALID, f"event {event} (made at {found.site}) was never recorded")
        return
    wait_for(run, list(found.record.after), f"event {event}", codes.RT_EVENT_SYNC_TIMEOUT)


@call()
def synchronize_event_with_timeout(run: Simulator, event: int, timeout: int) -> None:
    """The same, for at most so many milliseconds; -1 for as long as it takes."""
    found = run.event(event)
    if not isinstance(timeout, int) or timeout < -1:
        raise Refused(codes.RT_PARAM_INVALID, f"timeout is {timeout!r}; pass milliseconds from 0, or -1")
    if found.record is None:
        return
    run.settle()
    latest = max((run.log[i].finish_ns for i in found.record.after), default=0)
    limit = run.clock_ns + timeout * 1_000_000
    if timeout >= 0 and latest > limit:
        run.clock_ns = limit
        run.settle()
        raise Refused(codes.RT_EVENT_SYNC_TIMEOUT, f"event {event} is not done after {timeout} ms")
    wait_for(run, list(found.record.after), f"event {event}", codes.RT_EVENT_SYNC_TIMEOUT)


@call(1)
def query_event(run: Simulator, event: int) -> int:
    """0 if what an event recorded is done (or it recorded nothing), 1 if not."""
    return (
        const.ACL_EVENT_STATUS_COMPLETE
        if _is_done(run, run.event(event))
        else const.ACL_EVENT_STATUS_NOT_READY
    )


@call(1)
def query_event_status(run: Simulator, event: int) -> int:
    """1 if what an event recorded is done (or it recorded nothing), 0 if not."""
    done = _is_done(run, run.event(event))
    return const.ACL_EVENT_RECORDED_STATUS_COMPLETE if done else const.ACL_EVENT_RECORDED_STATUS_NOT_READY


@call(1)
def query_event_wait_status(run: Simulator, event: int) -> int:
    """0 if all that waited for an event has gone on, 1 if not; only for those of the older kind."""
    found = run.event(event)
    if not found.legacy:
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, f"event {event} is of the newer kind, which cannot tell")
    done = not found.waiting and _is_done(run, found)
    return const.ACL_EVENT_WAIT_STATUS_COMPLETE if done else const.ACL_EVENT_WAIT_STATUS_NOT_READY


def _is_done(run: Simulator, event: Event) -> bool:
    if event.record is None:
        return True
    run.settle()
    done = all(run.log[i].ended for i in event.record.after)
    if done:
        run.seen(event.record.after)
    return done


@call(1)
def event_elapsed_time(run: Simulator, start_event: int, end_event: int) -> float:
    """Milliseconds between two recorded events that are done."""
    times = [_time_of(run, run.event(event), event) for event in (start_event, end_event)]
    if times[1] < times[0]:
        raise Refused(
            codes.RT_EVENT_TIMESTAMP_REVERSAL, f"event {end_event} was recorded before event {start_event}"
        )
    return (times[1] - times[0]) / 1e6


@call(1)
def event_get_timestamp(run: Simulator, event: int) -> int:
    """When what an event recorded was done, in microseconds."""
    return _time_of(run, run.event(event), event) // 1000


def _time_of(run: Simulator, event: Event, handle: int) -> int:
    record = event.record
    if record is None:
        raise Refused(
            codes.RT_EVENT_TIMESTAMP_INVALID, f"event {handle} (made at {event.site}) was never recorded"
        )
    run.settle()
    if not all(run.log[i].ended for i in record.after):
        raise Refused(
            codes.RT_EVENT_TIMESTAMP_INVALID,
            f"event {handle}, recorded at {record.site}, is not done; synchronise before its time is asked "
            "for",
        )
    return record_ns(run, record)


def record_ns(run: Simulator, record: Record) -> int:
    """When a record was made on the device."""
    done = max([run.log[i].finish_ns for i in record.after], default=0)
    return max(done, record.at_ns) + run.spec.dispatch.record_ns


# Notifies.


@call(1)
def create_notify(run: Simulator, flag: int = 0) -> int:
    """A notify of the current device: each record lets one wait pass."""
    if flag != 0:
        raise Refused(codes.RT_PARAM_INVALID, f"flag is {flag!r}; pass 0")
    notify = Notify(run.new_handle(), run.context().device, site())
    run.notifies[notify.handle] = notify
    return notify.handle


@call()
def destroy_notify(run: Simulator, notify: int) -> None:
    """End a notify."""
    found = _notify(run, notify)
    run.bury(found.handle, "notify", site())
    del run.notifies[found.handle]


@call()
def record_notify(run: Simulator, notify: int, stream: int) -> None:
    """Behind everything submitted to a stream so far, let one wait pass."""
    found, where = _notify(run, notify), run.stream(stream)
    run.pay("record_event_ns")
    record = run.record(where, site())
    run.evidence.release(found, where)
    if found.waiting:
        signal = found.waiting.pop(0)
        run.resolve([signal], record)
    else:
        found.records.append(record)


@call()
def wait_and_reset_notify(run: Simulator, notify: int, stream: int, timeout: int = 0) -> None:
    """Further work on a stream waits for a record of a notify, and uses it up."""
    del timeout
    found, where = _notify(run, notify), run.stream(stream)
    run.pay("wait_event_ns")
    line = site()
    run.evidence.take(found, where, line)
    if found.records:
        run.wait(where, found.records.pop(0))
        return
    signal = Signal(found.handle, where.handle, line)
    found.waiting.append(signal)
    where.unresolved.append(signal)


@call(1)
def get_notify_id(run: Simulator, notify: int) -> int:
    """Number of a notify on its device."""
    found = _notify(run, notify)
    return sorted(n.handle for n in run.notifies.values() if n.device == found.device).index(found.handle)


def _notify(run: Simulator, handle: object) -> Notify:
    found = run.notifies.get(handle) if isinstance(handle, int) else None
    if found is None:
        raise Refused(codes.RT_PARAM_INVALID, f"notify {handle!r} does not exist{run.gone(handle)}")
    return found
