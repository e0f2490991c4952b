"""The host thread: one call after another, each as long as the runtime's call takes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.graph import CommandKind, HostMemory
from cann_env.options import Submission
from cann_env.validate.case import Case, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import HostCall


def host_thread(case: Case) -> Iterator[Violation]:
    """Host calls follow one another, and each command is issued by one of them."""
    calls = case.schedule.host
    for first, second in pairwise(calls):
        if second.start_ns < first.end_ns:
            message = (
                f"the host's {second.call} of {second.target} starts at {second.start_ns} ns; "
                f"its {first.call} of {first.target} ends at {first.end_ns} ns"
            )
            yield Violation("host-thread", message, (), second.start_ns)
    yield from _issues(case)
    if case.schedule.options.submission is Submission.EAGER:
        yield from _durations(case)
        yield from _pageable(case)


def _issues(case: Case) -> Iterator[Violation]:
    issued: dict[int, list[HostCall]] = {}
    for call in case.schedule.host:
        if call.call == "issue":
            issued.setdefault(call.target, []).append(call)
    if not issued and case.schedule.options.submission is Submission.SINK:
        return
    for i, run in enumerate(case.runs):
        calls = issued.get(i, [])
        if len(calls) != 1:
            yield Violation("host-thread", f"{case.placed(i)} is issued by {len(calls)} calls", (i,), 0)
        elif not calls[0].start_ns <= run.issue_ns <= calls[0].end_ns:
            message = (
                f"{case.placed(i)} is issued at {run.issue_ns} ns; the call that issues it goes from "
                f"{calls[0].start_ns} to {calls[0].end_ns} ns"
            )
            yield Violation("host-thread", message, (i,), run.issue_ns)


def _durations(case: Case) -> Iterator[Violation]:
    host = case.schedule.device.host
    cost = {
        CommandKind.KERNEL: host.launch_kernel_ns,
        CommandKind.COPY: host.memcpy_async_ns,
        CommandKind.CALLBACK: host.launch_callback_ns,
        CommandKind.COLLECTIVE: host.launch_kernel_ns,
    }
    for call in case.schedule.host:
        if call.call == "issue":
            least, commands = cost[case.command(call.target).kind], [call.target]
        else:
            least, commands = host.prefetch_ns if call.call == "prefetch" else 0, []
        if call.end_ns - call.start_ns < least:
            what = case.names(commands) or f"buffer {call.target}"
            message = (
                f"the host's {call.call} of {what} goes from {call.start_ns} to {call.end_ns} ns; "
                f"the call takes {least} ns"
            )
            yield Violation("host-thread", message, tuple(commands), call.start_ns)


def _pageable(case: Case) -> Iterator[Violation]:
    for first, second in pairwise(case.schedule.host):
        if first.call != "issue":
            continue
        command, run = case.command(first.target), case.runs[first.target]
        blocks = command.kind is CommandKind.COPY and command.host_memory is HostMemory.PAGEABLE
        if blocks and second.start_ns < run.finish_ns:
            message = (
                f"the host's {second.call} of {second.target} starts at {second.start_ns} ns; "
                f"{case.placed(first.target)} is pageable and blocks it until {run.finish_ns} ns"
            )
            yield Violation("host-thread", message, (first.target,), second.start_ns)
