"""Events: what orders streams and tells the host how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_device import ask, check_timeout, wait_at_most, wait_for
from cann_env.acl.codes import Refused
from cann_env.acl.state.evidence import Rerecorded, Unrecorded
from cann_env.acl.state.objects import Event, Signal
from cann_env.acl.state.order import waits_of

if TYPE_CHECKING:
    from cann_env.acl.state.objects import Record, Stream
    from cann_env.acl.state.simulator import Simulator

_NEW_FLAGS: Final = const.ACL_EVENT_SYNC | const.ACL_EVENT_TIME_LINE | const.ACL_EVENT_CAPTURE_STREAM_PROGRESS
_ALL_FLAGS: Final = (
    _NEW_FLAGS | const.ACL_EVENT_DEVICE_USE_ONLY | const.ACL_EVENT_EXTERNAL | const.ACL_EVENT_IPC
)
_WAITS_AHEAD: Final = const.ACL_EVENT_SYNC | const.ACL_EVENT_EXTERNAL


@call(1, differs="Older rules: waiting before a record is refused (107000), as it is on a device.")
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
    if legacy:
        _check_room(run)
    event = Event(run.new_handle(), flags, legacy, site())
    run.events[event.handle] = event
    return event.handle


def _check_room(run: Simulator) -> None:
    """Events of the older kind are held while they exist, others once they have recorded something."""
    most = run.spec.limits.max_events
    if len(run.events) < most:
        return
    held = sum(event.legacy or event.record is not None for event in run.events.values())
    if held >= most:
        raise Refused(codes.RT_NO_EVENT_RESOURCE, f"{held} events are held; {run.spec.name} has {most}")


@call()
def destroy_event(run: Simulator, event: int) -> None:
    """End an event; waits that are queued already keep what they wait for."""
    found = run.event(event)
    run.bury(found.handle, "event", site())
    del run.events[found.handle]


@call(
    article="aclrtRecordEvent",
    differs="The article passes a pointer to the event; the call takes the event.",
)  # fmt: skip
def record_event(run: Simulator, event: int, stream: int) -> None:
    """Record an event behind everything submitted to a stream so far."""
    found, where = run.event(event), run.stream(stream)
    if not found.legacy and found.record is None:
        _check_room(run)
    run.pay("record_event_ns")
    if where.capture is not None:
        found.record, found.capture = None, (where.capture, where.capture.tail(where))
        return
    found.capture = None
    line = site()
    _note_open_waits(run, found, where, line)
    record = run.record(where, line)
    found.record = record
    found.first = found.first or record
    run.resolve(found.waiting, record)
    found.waiting = []


def _note_open_waits(run: Simulator, event: Event, where: Stream, line: str, *, reset: bool = False) -> None:
    """An event changes: what waits for it has to have gone on, as far as the stream knows that changes it.

    A wait of the newer kind is bound to its record when it is called, so that nothing can go wrong.
    """
    record = event.record
    if record is None or not event.legacy:
        return
    known = run.knows(where)
    for stream, site_of_wait, number, count in event.waits:
        if number == record.number and stream != record.stream and known.get(waits_of(stream), 0) < count:
            run.evidence.rerecorded.append(Rerecorded(event, record, stream, site_of_wait, line, reset))


@call(
    article="aclrtStreamWaitEvent",
    differs="A wait for an event that recorded nothing does nothing, as on a device; here it is also "
    "reported.",
)  # fmt: skip
def stream_wait_event(run: Simulator, stream: int, event: int) -> None:
    """Further work on a stream waits for what an event recorded last."""
    where, found = run.stream(stream), run.event(event)
    if where.capture is not None or found.capture is not None:
        _wait_captured(run, where, found)
        run.pay("wait_event_ns")
        return
    line = site()
    if found.record is None:
        refused = found.legacy and not found.flags & _WAITS_AHEAD
        signal = Signal(found.handle, where.handle, line)
        run.evidence.unrecorded.append(
            Unrecorded(found, where.handle, line, len(where.work), refused, signal)
        )
        if refused:
            raise Refused(
                codes.RT_PARAM_INVALID,
                f"event {event} (made at {found.site}) was never recorded; record it before a stream waits "
                "for it",
            )
        run.pay("wait_event_ns")
        if found.legacy:
            found.waiting.append(signal)
            run.wait_ahead(where, signal)
        return
    run.pay("wait_event_ns")
    run.wait(where, found.record)
    found.waits.append((where.handle, line, found.record.number, where.waits))


def _wait_captured(run: Simulator, where: Stream, event: Event) -> None:
    """A stream waits for an event, and one of the two is captured."""
    if event.capture is None:
        raise Refused(
            codes.RT_CAPTURE_DEPENDENCY,
            f"stream {where.handle} is captured, and event {event.handle} (made at {event.site}) was not "
            "recorded in its capture; record it there, or wait before the capture begins",
        )
    capture, places = event.capture
    if capture.handle not in run.captures.open:
        raise Refused(
            codes.RT_EVENT_CAPTURED,
            f"event {event.handle} was recorded in a capture that is over (begun at {capture.site}); record "
            "it again",
        )
    if where.capture not in (None, capture):
        raise Refused(
            codes.RT_STREAM_CAPTURE_CONFLICT,
            f"event {event.handle} was recorded in the capture begun at {capture.site}, and stream "
            f"{where.handle} takes part in another; let them share one capture",
        )
    if where.default:
        raise Refused(
            codes.RT_STREAM_CAPTURE_IMPLICIT,
            f"event {event.handle} was recorded in a capture, which a default stream cannot take part in",
        )
    capture.wait(where, places)


def _refuse_captured(event: Event, what: str) -> None:
    if event.capture is not None:
        raise Refused(
            codes.RT_EVENT_CAPTURED,
            f"{what} of event {event.handle}, which was recorded in the capture begun at "
            f"{event.capture[0].site}: it stands for nothing that runs now",
        )


@call()
def reset_event(run: Simulator, event: int, stream: int) -> None:
    """Forget what an event recorded; only those of the older kind can be reset."""
    found, where = run.event(event), run.stream(stream)
    if not found.legacy:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT, f"event {event} is of the newer kind, which is never reset"
        )
    run.pay("record_event_ns")
    _note_open_waits(run, found, where, site(), reset=True)
    found.record = None


@call(differs="What can never end is reported (507047).")
def synchronize_event(run: Simulator, event: int) -> None:
    """Wait until what an event recorded is done; at once if it recorded nothing."""
    found = run.event(event)
    _refuse_captured(found, "synchronisation")
    if found.record is None:
        if found.legacy:
            raise Refused(codes.RT_PARAM_INVALID, f"event {event} (made at {found.site}) was never recorded")
        return
    _wait_for_record(run, found.record, event)


def _wait_for_record(run: Simulator, record: Record, event: int) -> None:
    wait_for(run, list(record.after), f"event {event}", codes.RT_EVENT_SYNC_TIMEOUT)
    run.learn(record.known)


@call()
def synchronize_event_with_timeout(run: Simulator, event: int, timeout: int) -> None:
    """The same, for at most so many milliseconds; -1 for as long as it takes."""
    found = run.event(event)
    check_timeout(timeout)
    _refuse_captured(found, "synchronisation")
    if found.record is None:
        return
    wait_at_most(run, list(found.record.after), timeout, f"event {event}", codes.RT_EVENT_SYNC_TIMEOUT)
    _wait_for_record(run, found.record, event)


@call(1, differs="Works for events of either kind.")
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
    _refuse_captured(event, "query")
    ask(run)
    if event.record is None:
        return True
    done = all(run.log[i].ended for i in event.record.after)
    if done:
        run.seen(event.record.after)
        run.learn(event.record.known)
    return done


@call(1, differs="To the nanosecond; devices count in steps of 20 ns and more.")
def event_elapsed_time(run: Simulator, start_event: int, end_event: int) -> float:
    """Milliseconds between two recorded events that are done."""
    times = [_time_of(run, run.event(event), event) for event in (start_event, end_event)]
    if times[1] < times[0]:
        raise Refused(
            codes.RT_EVENT_TIMESTAMP_REVERSAL, f"event {end_event} was recorded before event {start_event}"
        )
    return (times[1] - times[0]) / 1e6


@call(1, differs="From the start of the run.")
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
