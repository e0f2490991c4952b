"""Functions of the program that a stream calls."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl.api import call, simulator, site
from cann_env.acl.calls.rt_device import ask
from cann_env.acl.codes import Refused
from cann_env.acl.facts import helper
from cann_env.acl.state.kernels import of_program
from cann_env.acl.state.objects import Callback
from cann_env.acl.state.order import join, told
from cann_env.acl.state.threads import Adopted, Worker
from cann_env.commands import Command, CommandKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work

_HELD_NS: Final = 1 << 44
"""Time that a function takes whose stream waits for it, as long as it has not returned: some hours."""


@call(differs="0 means the calling thread.")
def subscribe_report(run: Simulator, thread_id: int, stream: int) -> None:
    """Callbacks of a stream are run by a thread; 0 means this one."""
    where = run.stream(stream)
    if not isinstance(thread_id, int) or thread_id < 0:
        raise Refused(codes.RT_PARAM_INVALID, f"thread_id is {thread_id!r}; pass what start_thread gave")
    if where.thread:
        raise Refused(
            codes.RT_STREAM_SUBSCRIBE, f"stream {where.handle} has a thread already; unsubscribe it first"
        )
    where.thread = thread_id or threading.get_ident()
    if where.thread != threading.get_ident():
        made = [thread for thread in threading.enumerate() if thread.ident == where.thread]
        _adopt(run, made)


def _adopt(run: Simulator, threads: Sequence[threading.Thread]) -> Worker | None:
    """The worker of a thread; one that the program made by itself is adopted."""
    for thread in threads:
        ident = thread.ident or 0
        known = run.workers.get(ident)
        if known is None or (isinstance(known, Adopted) and not known.serves(thread)):
            run.workers[ident] = Adopted(thread)
        return run.workers[ident]
    return None


@call()
def unsubscribe_report(run: Simulator, thread_id: int, stream: int) -> None:
    """Undo :func:`subscribe_report`."""
    where = run.stream(stream)
    if not where.thread or where.thread != (thread_id or threading.get_ident()):
        raise Refused(
            codes.RT_STREAM_SUBSCRIBE, f"thread {thread_id} is not subscribed to stream {where.handle}"
        )
    where.thread = 0


@call(
    article="aclrtLaunchCallback",
    differs="The thread of the callback runs while its stream is at that point of simulated time, never "
    "beside the program.",
)  # fmt: skip
def launch_callback(
    run: Simulator, function: Callable[[Any], Any], user_data: object, block_type: int, stream: int
) -> None:
    """Let a stream call a function in its order; with ``block_type`` 1 the stream waits until it returns."""
    where = run.stream(stream)
    if not callable(function):
        raise Refused(codes.RT_PARAM_INVALID, f"function is {function!r}; pass something that can be called")
    if block_type not in (0, 1):
        raise Refused(codes.RT_PARAM_INVALID, f"block_type is {block_type!r}; pass 0 (no block) or 1 (block)")
    if not where.thread:
        raise Refused(
            codes.RT_STREAM_NO_CALLBACK_REGISTERED,
            f"stream {where.handle} has no thread for callbacks; call subscribe_report first",
        )
    run.pay("launch_callback_ns")
    length = run.spec.host.launch_callback_ns if block_type else 1
    command = Command(name="callback", kind=CommandKind.CALLBACK, duration_ns=max(1, length))
    label = getattr(function, "__name__", "callback")
    work = run.submit("rt.launch_callback", where, command, [], site=site(), label=label)
    called = Callback(function, user_data, where.thread)

    def begin() -> None:
        _deliver(run, called, work, blocks=block_type == 1)

    work.begin = begin


@helper("aclrtProcessReport", differs="A time limit is simulated time.")
def process_report(timeout: int) -> int:
    """Run one callback that is due, or wait for one; called by the thread that was subscribed.

    Returns:
        0, or 507012 if none came within ``timeout`` milliseconds.
    """
    run = simulator()
    own = threading.current_thread()
    worker = run.workers.get(own.ident or 0)
    if (worker is None or isinstance(worker, Adopted)) and own.ident != run.home:
        worker = _adopt(run, [own])
    if worker is not None:
        return codes.SUCCESS if worker.ask() else codes.RT_REPORT_TIMEOUT
    return int(_process_own(timeout))


@call()
def _process_own(run: Simulator, timeout: int) -> None:
    if not isinstance(timeout, int) or timeout < -1:
        raise Refused(codes.RT_PARAM_INVALID, f"timeout is {timeout!r}; pass milliseconds from 0, or -1")
    own = threading.get_ident()
    ask(run)
    waiting = run.due.get(own, [])
    if not waiting:
        times = [work.start_ns for work in _callbacks(run, own) if not work.begun and work.start_ns >= 0]
        limit = run.clock_ns + timeout * 1_000_000
        if not times or (timeout >= 0 and min(times) > limit):
            run.clock_ns = max(run.clock_ns, limit)
            run.settle()
            raise Refused(codes.RT_REPORT_TIMEOUT, f"no callback came within {timeout} ms")
        run.clock_ns = max(run.clock_ns, min(times))
        run.settle()
    run.due[own].pop(0)()
    run.minds.asked()


def _deliver(run: Simulator, called: Callback, work: Work, *, blocks: bool) -> None:
    """A stream calls a function of the program now."""
    worker = run.workers.get(called.thread)

    def task() -> None:
        clock = told(run.log, [*work.all_waits, *([work.previous] if work.previous >= 0 else [])], {})
        join(clock, work.host)
        for signal in work.signals:
            join(clock, signal.known)
        with run.minds.callback(None if worker is None else called.thread, work, clock, blocks=blocks):
            of_program(called.function, called.argument)
        ended.append(run.clock_ns)

    ended: list[int] = []
    if worker is None:
        run.due.setdefault(called.thread, []).append(task)
        return
    length = work.command.duration_ns or 1
    if blocks:
        _take_time(run, work, _HELD_NS)

    def serve(not_before: int) -> int:
        run.clock_ns = max(work.start_ns, not_before)
        with run.guest(called.thread):
            worker.hand_over(task)
        # What the thread did since, until it asked again, is no part of the callback.
        run.clock_ns = ended.pop() if ended else run.clock_ns
        if blocks:
            _take_time(run, work, max(length, run.clock_ns - work.start_ns))
        return run.clock_ns

    if worker.busy:
        worker.waiting.append(serve)
        return
    later, worker.busy = run.clock_ns, True
    try:
        done = serve(0)
        while worker.waiting:
            done = worker.waiting.pop(0)(done)
    finally:
        worker.busy = False
    run.clock_ns = max(later, done)


def _take_time(run: Simulator, work: Work, length: int) -> None:
    """A function that its stream waits for takes so long; what comes after it is played again."""
    work.command = replace(work.command, duration_ns=length)
    run.devices[work.device].stale = True


def _callbacks(run: Simulator, thread: int) -> list[Work]:
    """Callbacks that have not begun and that a thread is to run."""
    streams = {stream.handle for stream in run.streams.values() if stream.thread == thread}
    return [
        run.log[i]
        for device in run.devices.values()
        for i in device.works
        if run.log[i].stream in streams and run.log[i].call == "rt.launch_callback"
    ]
