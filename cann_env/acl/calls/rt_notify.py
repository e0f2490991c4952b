"""Notifies: each record lets one wait pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.state.objects import Notify, Signal

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator


@call(1, differs="Within one device; used by the simulator for exclusive resources as well.")
def create_notify(run: Simulator, flag: int = 0) -> int:
    """A notify of the current device: each record lets one wait pass."""
    if flag != 0:
        raise Refused(codes.RT_PARAM_INVALID, f"flag is {flag!r}; pass 0")
    device = run.context().device
    most = run.spec.limits.max_notifies
    held = len(run.notifies)
    if held >= most:
        held = sum(notify.device == device for notify in run.notifies.values())
    if held >= most:
        raise Refused(
            codes.RT_NO_NOTIFY_RESOURCE, f"{held} notifies are held; a device of {run.spec.name} has {most}"
        )
    notify = Notify(run.new_handle(), device, site())
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
    run.captures.refuse_captured(where, "record of a notify")
    run.pay("record_event_ns")
    record = run.record(where, site())
    run.evidence.release(found, where)
    if found.waiting:
        signal = found.waiting.pop(0)
        run.resolve([signal], record)
    else:
        found.records.append(record)


@call(differs="The timeout is not looked at.")
def wait_and_reset_notify(run: Simulator, notify: int, stream: int, timeout: int = 0) -> None:
    """Further work on a stream waits for a record of a notify, and uses it up."""
    del timeout
    found, where = _notify(run, notify), run.stream(stream)
    run.captures.refuse_captured(where, "wait for a notify")
    run.pay("wait_event_ns")
    line = site()
    run.evidence.take(found, where, line)
    if found.records:
        run.wait(where, found.records.pop(0), notify=True)
        return
    signal = Signal(found.handle, where.handle, line, notify=True)
    found.waiting.append(signal)
    run.wait_ahead(where, signal)


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
