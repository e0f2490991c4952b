"""The host touches managed memory: pages that lie on the device come back, and the host waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import TOUCHED_BY_HOST, Touch, Way
from cann_env.commands import Command, CommandKind, CopyKind
from cann_env.options import Submission

if TYPE_CHECKING:
    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work


def come_to_host(run: Simulator, memory: Range, site: str) -> None:
    """Bring managed memory back that the host touches: all of an allocation, as kernels do.

    The engine moves it; the page faults of the host cost as much as those of the device.
    """
    allocation = memory.allocation
    if allocation.space is not Space.MANAGED or run.spec.memory.host_shares_dram:
        return
    run.settle()
    users = [run.log[i] for i in run.device(allocation.device).works if _uses(run.log[i], memory)]
    if users:
        last = users[-1]
        if not last.ended or (last.prefetch is not None and last.prefetch[1] is Way.OFFLOAD):
            return  # a race, which is found where nothing orders it; or it has come back already
    elif not allocation.on_device:
        return
    whole = run.memory.range(allocation.address, allocation.size, "managed memory")
    if not users:
        _copy_back(run, whole, site)
    work = prefetch(run, run.copy_stream(), whole, Way.OFFLOAD, site, TOUCHED_BY_HOST)
    run.advance_to([work.index])
    run.seen([work.index])
    if run.submission is not Submission.SINK:
        spec = run.spec.memory
        run.clock_ns += -(-allocation.size // (spec.page_bytes * spec.fault_group_pages)) * spec.fault_ns
        run.settle()


def _copy_back(run: Simulator, whole: Range, site: str) -> None:
    """The engine takes what lies on the device when it begins anew as good on the host too; it is not."""
    command = Command(
        name="pages back", kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=whole.allocation.size
    )
    touched = [Touch(whole, False)]
    run.submit(TOUCHED_BY_HOST, run.copy_stream(), command, touched, site=site)


def _uses(work: Work, memory: Range) -> bool:
    if work.prefetch is not None:
        return work.prefetch[0].allocation is memory.allocation
    return any(touch.range.allocation is memory.allocation for touch in work.touches)


def prefetch(run: Simulator, where: Stream, memory: Range, way: Way, line: str, name: str) -> Work:
    """Submit a prefetch: an instant in its stream at which the move is asked for."""
    command = Command(name=way.value, kind=CommandKind.COLLECTIVE, duration_ns=1)
    work = run.submit(name, where, command, [], site=line)
    work.prefetch = memory, way
    before = run.log[work.previous] if work.previous >= 0 else None
    work.at_once = not work.waits and not work.signals and (before is None or before.ended or before.at_once)
    return work
