"""What a profiler of the device would have seen of a schedule: tasks on streams, and the calls behind them.

Each kernel of a command is a task, and so is each copy, callback and collective; each event wait adds a
record behind its producer and a wait in front of its consumer. The rows say when a stream was free and when
a wait was over; within that the tasks of one stream follow one another.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.commands import CommandKind, CopyKind
from cann_env.options import Submission
from cann_env.render.rows import kernel_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.graph import Command
    from cann_env.schedule import CommandRun, Schedule


class TaskType(enum.StrEnum):
    """The profiler's words for what takes a task."""

    CUBE = "AI_CORE"
    VECTOR = "AI_VECTOR_CORE"
    MIX_CUBE = "MIX_AIC"
    MIX_VECTOR = "MIX_AIV"
    AI_CPU = "AI_CPU"
    PCIE = "PCIE_DMA_SQE"
    SDMA = "SDMA_SQE"
    HOST = "HOST_CPU_SQE"
    COLLECTIVE = "COMMUNICATION"
    RECORD = "EVENT_RECORD_SQE"
    WAIT = "EVENT_WAIT_SQE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """One task of a stream.

    Attributes:
        connection: Number of the call that submitted it, from 1; kernels of one command share theirs.
        name: Of the kernel or command, or the profiler's name of the kind of task.
        kind: What took it.
        stream, task_id: Where it ran, and its number there.
        start_ns, finish_ns: When.
        command: Index of the command it belongs to.
        caller: Index of the command whose submission made it: of a record, that of the command that waits.
        kernel: Index of the kernel within the command; None for other tasks.
        event: EVENT_RECORD, EVENT_WAIT: number of the event wait it belongs to, from 1.
        call_start_ns, call_end_ns: The call that submitted it.
        launch_ns: When the stream had it: a command, its waits and the records for them get there together.
            A record that is asked for when its producer has long finished stands behind the producer all the
            same, before its launch.
    """

    connection: int
    name: str
    kind: TaskType
    stream: int
    task_id: int
    start_ns: int
    finish_ns: int
    command: int
    caller: int
    kernel: int | None = None
    event: int | None = None
    call_start_ns: int
    call_end_ns: int
    launch_ns: int


@dataclass(frozen=True, slots=True)
class _Draft:
    name: str
    kind: TaskType
    start_ns: int
    finish_ns: int
    command: int
    caller: int
    kernel: int | None = None
    event: int | None = None


_COPIES: Final = {
    CopyKind.H2D: TaskType.PCIE,
    CopyKind.D2H: TaskType.PCIE,
    CopyKind.D2D: TaskType.SDMA,
}
_CLASSES: Final = {"cube": TaskType.CUBE, "vector": TaskType.VECTOR, "aicpu": TaskType.AI_CPU}


def device_tasks(schedule: Schedule) -> list[DeviceTask]:
    """All tasks of a schedule, stream by stream, in the order in which each stream took them."""
    queues: dict[int, list[CommandRun]] = defaultdict(list)
    for run in sorted(schedule.commands, key=lambda run: (run.stream, run.position)):
        queues[run.stream].append(run)
    events = _events(schedule, queues.values())
    drafts = {stream: [*_of_stream(schedule, queue, events)] for stream, queue in queues.items()}
    calls = _calls(schedule, [draft for stream in drafts.values() for draft in stream])
    tasks: list[DeviceTask] = []
    connection = 0
    for stream, found in drafts.items():
        for task_id, draft in enumerate(found):
            start, end = calls[draft]
            connection += not draft.kernel
            tasks.append(
                DeviceTask(
                    connection=connection,
                    name=draft.name,
                    kind=draft.kind,
                    stream=stream,
                    task_id=task_id,
                    start_ns=draft.start_ns,
                    finish_ns=draft.finish_ns,
                    command=draft.command,
                    caller=draft.caller,
                    kernel=draft.kernel,
                    event=draft.event,
                    call_start_ns=start,
                    call_end_ns=end,
                    launch_ns=events.submitted[draft.caller],
                )
            )
    return tasks


def _of_stream(schedule: Schedule, queue: list[CommandRun], events: _Events) -> Iterator[_Draft]:
    dispatch = schedule.device.dispatch
    spans = _spans(schedule)
    free = 0
    for run in queue:
        reached = min(max(free, events.submitted[run.command]), run.start_ns)
        at = reached
        for event in events.waits[run.command]:
            over = at + dispatch.wait_ns
            if events.recorded[event] > reached:
                over = max(over, events.recorded[event] + dispatch.wake_ns)
            over = min(max(over, events.records[event][1]), run.start_ns)
            yield _Draft("EVENT_WAIT", TaskType.WAIT, at, over, run.command, run.command, event=event)
            at = over
        yield from _work(schedule, run, spans)
        free = run.finish_ns
        for event, consumer in events.asked[run.command]:
            start, free = events.records[event]
            yield _Draft("EVENT_RECORD", TaskType.RECORD, start, free, run.command, consumer, event=event)


class _Events(NamedTuple):
    """Records and waits of a schedule; events are numbered from 1 in the order of its waits.

    Attributes:
        asked: Events recorded behind each command, with the command that waits.
        waits: Events that each command waits for, the earliest first.
        recorded: When each event counts as recorded: all behind one command do when the first is.
        records: Start and finish of each record: they follow one another on their stream.
        submitted: When each command reached its stream.
    """

    asked: dict[int, list[tuple[int, int]]]
    waits: dict[int, list[int]]
    recorded: dict[int, int]
    records: dict[int, tuple[int, int]]
    submitted: dict[int, int]


def _events(schedule: Schedule, queues: Iterable[list[CommandRun]]) -> _Events:
    record_ns = schedule.device.dispatch.record_ns
    calls = {call.target: call.end_ns for call in schedule.host if call.call == "issue"}
    found = _Events(defaultdict(list), defaultdict(list), {}, {}, {})
    for event, wait in enumerate(schedule.waits, start=1):
        found.asked[wait.producer].append((event, wait.consumer))
        found.waits[wait.consumer].append(event)
    for queue in queues:
        for run, after in zip(queue, [*queue[1:], None], strict=True):
            called = calls.get(run.command, run.issue_ns)
            # A call that waits for its own work ends later than it submits.
            found.submitted[run.command] = called if called <= run.start_ns else run.issue_ns
            at = run.finish_ns
            for event, _ in found.asked[run.command]:
                # A record that came too late to hold up the stream takes what room there is.
                done = at + record_ns if after is None else min(at + record_ns, after.start_ns)
                found.records[event] = at, done
                found.recorded[event] = run.finish_ns + record_ns
                at = done
    for events in found.waits.values():
        events.sort(key=lambda event: (found.records[event][1], event))
    return found


_Spans = dict[tuple[int, int], tuple[int, int, str]]
"""Start, finish and class of each kernel, by command and kernel."""


def _spans(schedule: Schedule) -> _Spans:
    return {
        (span.command, span.kernel): (span.start_ns, span.finish_ns, span.work_class)
        for span in kernel_spans(schedule.blocks)
    }


def _work(schedule: Schedule, run: CommandRun, spans: _Spans) -> Iterator[_Draft]:
    command = schedule.graph.commands[run.command]
    if command.kind is not CommandKind.KERNEL:
        name, kind = _plain(command)
        yield _Draft(name, kind, run.start_ns, run.finish_ns, run.command, run.command)
        return
    last = len(command.kernels) - 1
    for k, kernel in enumerate(command.kernels):
        start, finish, work_class = spans[run.command, k]
        # The stream is taken from the moment its head starts, be it to wait for pages or for cores.
        start = run.start_ns if k == 0 else start
        finish = run.finish_ns if k == last else finish
        kind = _CLASSES.get(work_class) or _mix(schedule, work_class)
        yield _Draft(kernel.name, kind, start, finish, run.command, run.command, kernel=k)


def _plain(command: Command) -> tuple[str, TaskType]:
    if command.kind is CommandKind.COPY:
        return "MEMCPY_ASYNC", _COPIES[command.copy or CopyKind.D2D]
    if command.kind is CommandKind.COLLECTIVE:
        return command.name, TaskType.COLLECTIVE
    return command.name, TaskType.HOST


def _mix(schedule: Schedule, work_class: str) -> TaskType:
    """A mix kernel is named after the core that leads it: the cube core wherever it has one."""
    demand = schedule.device.classes[work_class].demand
    return TaskType.MIX_CUBE if demand.get("aic", 0) else TaskType.MIX_VECTOR


def _calls(schedule: Schedule, drafts: list[_Draft]) -> dict[_Draft, tuple[int, int]]:
    """When the host made the call behind each task.

    One decision submits the waits of a command, the records they need, and the command itself: the calls
    follow one another within the time it took, each at the device file's cost, and the last takes the rest.
    """
    host = schedule.device.host
    eager = schedule.options.submission is Submission.EAGER
    cost = {TaskType.RECORD: host.record_event_ns, TaskType.WAIT: host.wait_event_ns} if eager else {}
    spans = {run.command: (run.issue_ns, run.issue_ns) for run in schedule.commands}
    spans |= {call.target: (call.start_ns, call.end_ns) for call in schedule.host if call.call == "issue"}
    by_caller: dict[int, list[_Draft]] = defaultdict(list)
    for draft in drafts:
        by_caller[draft.caller].append(draft)
    found = {}
    for caller, group in by_caller.items():
        at, end = spans[caller]
        group.sort(key=lambda d: (d.event is None, d.event or 0, d.kind is TaskType.WAIT, d.kernel or 0))
        for draft in group:
            later = min(at + cost.get(draft.kind, 0), end) if draft.event is not None else end
            found[draft] = (at, later)
            at = later if draft.event is not None else at
    return found
