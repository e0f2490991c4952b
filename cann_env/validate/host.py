"""The host thread: one call after another, each as long as the runtime's call takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.graph import CommandKind, CopyKind, HostMemory
from cann_env.options import Allocator, Submission
from cann_env.validate.case import Case, Violation, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import HostCall

_OFFLOADING = ("evict", "writeback")
_HOST_COPIES = (CopyKind.H2D, CopyKind.D2H)


def host_thread(case: Case) -> Iterator[Violation]:
    """Host calls follow one another, and each command and prefetch comes from one of them."""
    calls = case.schedule.host
    for first, second in pairwise(calls):
        if second.start_ns < first.end_ns:
            message = (
                f"the host's {second.call} of {second.target} starts at {second.start_ns} ns; "
                f"its {first.call} of {first.target} ends at {first.end_ns} ns"
            )
            yield Violation("host-thread", message, (), second.start_ns)
    yield from _issues(case)
    yield from _requests(case)
    yield from _pageable(case)
    if case.schedule.options.submission is Submission.EAGER:
        yield from _durations(case)


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


def _requests(case: Case) -> Iterator[Violation]:
    """An offload is decided when the host's call begins; a prefetch may wait for space, a lift its turn."""
    if not case.schedule.host:
        return
    left = {(row.buffer, row.reserve_ns) for row in case.schedule.transfers if row.cause in _OFFLOADING}
    yield from _prefetches(case)
    yield from _lifts(case)
    for call in case.schedule.host:
        if call.call == "offload" and (call.target, call.start_ns) not in left:
            message = f"the host offloads {_buffer(case, call.target)} at {call.start_ns} ns; it stays"
            yield Violation("host-thread", message, (), call.start_ns)


def _calls(case: Case, name: str) -> dict[int, list[int]]:
    """When calls of one name begin, by their target and in their order."""
    calls: dict[int, list[int]] = defaultdict(list)
    for call in case.schedule.host:
        if call.call == name:
            calls[call.target].append(call.start_ns)
    return calls


def _prefetches(case: Case) -> Iterator[Violation]:
    """Each prefetch has a call of its own, and gets its space when that begins or write-backs give it free.

    Calls before that one have been answered otherwise: a command needed the buffer at once and faulted it.
    """
    calls = _calls(case, "prefetch")
    for row in sorted(case.schedule.transfers, key=lambda row: row.reserve_ns):
        if row.cause != "prefetch":
            continue
        begun = [at_ns for at_ns in calls[row.buffer] if at_ns <= row.reserve_ns]
        calls[row.buffer] = calls[row.buffer][len(begun) :]
        if not begun or row.reserve_ns > _space_ns(case, row.buffer, begun[-1]):
            message = (
                f"the prefetch of {_buffer(case, row.buffer)} is reserved at "
                f"{when(row.reserve_ns)}; no call of the host for it begins then"
            )
            yield Violation("host-thread", message, (), row.reserve_ns)


def _space_ns(case: Case, buffer: int, since_ns: int) -> int:
    """How long what is reserved on the die of a buffer from some time on may wait for space."""
    buffers = case.schedule.graph.buffers
    saved = [row for row in case.schedule.transfers if row.cause == "writeback"]
    spans = [(r.reserve_ns, r.finish_ns) for r in saved if buffers[r.buffer].die == buffers[buffer].die]
    for begin_ns, end_ns in sorted(spans):
        since_ns = max(since_ns, end_ns) if begin_ns <= since_ns else since_ns
    return since_ns


def _lifts(case: Case) -> Iterator[Violation]:
    """Each lift of a buffer has a call of its own that began before it."""
    calls = _calls(case, "lift")
    for row in sorted(case.schedule.transfers, key=lambda row: row.reserve_ns):
        if row.cause == "lift":
            begun = calls[row.buffer].pop(0) if calls[row.buffer] else None
            if begun is None or row.reserve_ns < begun:
                message = (
                    f"the lift of {_buffer(case, row.buffer)} starts at {row.start_ns} ns; "
                    "no call of the host for it begins before that"
                )
                yield Violation("host-thread", message, (), row.start_ns)


def _buffer(case: Case, i: int) -> str:
    return f"buffer {case.schedule.graph.buffers[i].name!r}"


def _allocations(case: Case) -> Counter[int]:
    """How many device buffers each command is the first to write."""
    graph = case.schedule.graph
    first: dict[str, int] = {}
    for i, command in enumerate(graph.commands):
        for name in command.writes:
            first.setdefault(name, i)
    return Counter(
        first[buffer.name] for buffer in graph.buffers if buffer.name in first and case.is_placed(buffer)
    )


def _issue_ns(case: Case) -> list[int]:
    """Least time of each command's issue: its call, its events, its allocations and their release."""
    host, memory = case.schedule.device.host, case.schedule.device.memory
    cost = {
        CommandKind.KERNEL: host.launch_kernel_ns,
        CommandKind.COPY: host.memcpy_async_ns,
        CommandKind.CALLBACK: host.launch_callback_ns,
        CommandKind.COLLECTIVE: host.launch_kernel_ns,
    }
    event = host.record_event_ns + host.wait_event_ns
    allocation = memory.pool_malloc_ns + memory.pool_free_ns
    if case.schedule.options.allocator is Allocator.MALLOC:
        allocation = memory.malloc_ns + memory.free_ns
    waits, allocations = Counter(consumer for _, consumer in case.schedule.waits), _allocations(case)
    return [
        cost[command.kind] + waits[i] * event + allocations[i] * allocation
        for i, command in enumerate(case.schedule.graph.commands)
    ]


def _durations(case: Case) -> Iterator[Violation]:
    issue_ns, host = _issue_ns(case), case.schedule.device.host
    for call in case.schedule.host:
        commands: tuple[int, ...] = ()
        if call.call == "issue":
            least, commands = issue_ns[call.target], (call.target,)
            what = f"issue of {case.name(call.target)}"
        elif call.call != "wait":
            least, what = host.prefetch_ns, f"{call.call} of {_buffer(case, call.target)}"
        else:
            least, what = host.sync_ns, "wait"
        if call.end_ns - call.start_ns < least:
            message = (
                f"the host's {what} goes from {call.start_ns} to {call.end_ns} ns; the call takes {least} ns"
            )
            yield Violation("host-thread", message, commands, call.start_ns)


def _pageable(case: Case) -> Iterator[Violation]:
    """A copy of pageable memory returns when it is done, however it was submitted; so do its transfers."""
    for first, second in pairwise(case.schedule.host):
        if first.call == "wait" or not _is_pageable(case, first):
            continue
        commands: tuple[int, ...] = ()
        if first.call == "issue":
            commands, end = (first.target,), case.runs[first.target].finish_ns
            what = case.placed(first.target)
        else:
            end = _transfer_end_ns(case, first)
            what = f"the {first.call} of {_buffer(case, first.target)}"
        if second.start_ns < end:
            message = (
                f"the host's {second.call} of {second.target} starts at {second.start_ns} ns; "
                f"{what} is pageable and blocks it until {when(end)}"
            )
            yield Violation("host-thread", message, commands, second.start_ns)


def _transfer_end_ns(case: Case, call: HostCall) -> int:
    """When the transfer that a call asks for is over: of what arrives, the first that gets its space then."""
    rows = [row for row in case.schedule.transfers if row.buffer == call.target]
    if call.call == "offload":
        saved = (r for r in rows if r.cause == "writeback" and r.reserve_ns == call.start_ns)
        return next((row.finish_ns for row in saved), 0)
    come = [r for r in rows if r.cause in ("prefetch", "fault") and r.reserve_ns >= call.start_ns]
    return min(come, key=lambda row: row.reserve_ns).finish_ns if come else 0


def _is_pageable(case: Case, call: HostCall) -> bool:
    if call.call == "issue":
        command = case.command(call.target)
        return command.copy in _HOST_COPIES and command.host_memory is HostMemory.PAGEABLE
    buffer = case.schedule.graph.buffers[call.target]
    return call.call != "lift" and buffer.host_memory is HostMemory.PAGEABLE


def host_stall(case: Case) -> Iterator[Violation]:
    """The recorded wait for the host is that of all commands that could have started had they been issued."""
    waited = 0
    for i, run in enumerate(case.runs):
        before = [case.runs[p].finish_ns for p in case.schedule.graph.predecessors[i]]
        waited += max(run.issue_ns - max(case.command(i).release_ns, *before, 0), 0)
    recorded = case.schedule.stall.host
    if recorded != waited:
        message = f"commands wait {waited} ns to be issued, together; {recorded} ns are recorded"
        yield Violation("host-stall", message, (), 0)
