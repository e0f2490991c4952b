"""From what an Ascend profile says to tasks of a recording: kinds, copies, collectives, launches, steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.commands import CopyKind
from cann_env.profiles.collectives import collective_tasks, covers, split
from cann_env.profiles.launches import Launched, by_call, clock_offset, on_device_clock, step_of, with_steps
from cann_env.profiles.recording import Task, TaskKind, Verdict
from cann_env.profiles.streams import NO_STREAM, give_streams
from cann_env.profiles.subtasks import collapse
from cann_env.profiles.words import Meaning, meaning

if TYPE_CHECKING:
    from cann_env.profiles.ascend import DeviceTask, Operation, Profile
    from cann_env.profiles.recording import Report

# Records that nobody waits for are placeholders in the queue; the host's call says what they are.
_CALLS = {
    "aclrtRecordEvent": TaskKind.RECORD,
    "EventRecord": TaskKind.RECORD,
    "aclrtStreamWaitEvent": TaskKind.WAIT,
    "StreamWaitEvent": TaskKind.WAIT,
    "aclrtResetEvent": TaskKind.RESET,
    "EventReset": TaskKind.RESET,
}
_UNSPLIT = frozenset({"AI_CORE", "KERNEL_AICORE", "AICORE"})
_TO_DEVICE = ("host_to_device", "h2d")
_TO_HOST = ("device_to_host", "d2h", "aten::item", "_local_scalar_dense")
_ARGUMENTS = ("aclnn", "aclop", "launch")


def device_tasks(profile: Profile, report: Report) -> list[Task]:
    """Tasks of a profile on the recorder's clock, in no order; what was made of them goes to the report."""
    launches = by_call(profile)
    plain, parts = split(profile)
    launched = _one_by_one(
        [Launched(_plain(one, profile, launches, report), one.call, _launch(one, launches)) for one in plain],
        [one.subtask for one in plain],
        report,
    )
    joined = collective_tasks(parts, profile.operations, report)
    for task, one, operation in joined:
        source = one if operation is None or _launch(operation, launches) is None else operation
        launched.append(Launched(task, source.call, _launch(source, launches)))
    launched += _lone(profile, [operation for _, _, operation in joined if operation], launches, report)
    offset = clock_offset(launched, report)
    steps = sorted(profile.steps, key=lambda step: step.start_ns)
    found = []
    for known in launched:
        report.note(Verdict.RECOGNISED, f"{known.task.kind} tasks", known.task.place)
        step = step_of(known, steps, launches)
        found.append(replace(known.task, launch_ns=on_device_clock(known, offset, report), step=step))
    found += [_loose(task, report) for task in profile.loose]
    found = give_streams(found, report)
    return found if profile.steps else with_steps(found, report)


def direction_of(text: str) -> CopyKind | None:
    """The way of a copy in the recorder's words: ``host to device``, ``device to host ex``, ..."""
    words = " ".join(text.lower().split())
    for start, kind in (
        ("host to device", CopyKind.H2D),
        ("device to host", CopyKind.D2H),
        ("device to device", CopyKind.D2D),
        ("addr device to device", CopyKind.D2D),
    ):
        if words.startswith(start):
            return kind
    return None


def _launch(one: DeviceTask | Operation, launches: dict[int, int]) -> int | None:
    if one.launch_ns is not None:
        return one.launch_ns
    return None if one.call is None else launches.get(one.call)


def _one_by_one(launched: list[Launched], subtasks: list[int | None], report: Report) -> list[Launched]:
    """Makes one kernel of the subtasks of a task that overlap."""
    apart = [
        (one, subtask)
        for one, subtask in zip(launched, subtasks, strict=True)
        if subtask is not None and one.task.kind is TaskKind.KERNEL
    ]
    placed = {one.task.place: one for one, _ in apart}
    kernels = collapse([one.task for one, _ in apart], [subtask for _, subtask in apart], report)
    whole = [one for one in launched if one.task.place not in placed]
    return whole + [replace(placed[kernel.place], task=kernel) for kernel in kernels]


def _plain(one: DeviceTask, profile: Profile, launches: dict[int, int], report: Report) -> Task:
    """A task that is no part of a collective."""
    said = _meaning(one, profile, report)
    if said.kind is TaskKind.KERNEL or one.detail is not None:
        return _kernel(one, said, report)
    task = Task(
        name=one.name,
        kind=said.kind,
        stream=one.stream,
        start_ns=one.start_ns,
        duration_ns=one.duration_ns,
        task_id=one.task_id,
        event=one.event,
        place=one.place,
    )
    if said.kind is not TaskKind.COPY:
        return task
    copy = direction_of(one.direction)
    if copy is None:
        copy = said.copy or _guess(one, profile, launches, report)
    if not one.size_bytes:
        report.note(Verdict.DROPPED, "sizes of copies, not recorded", one.place)
    return replace(task, copy=copy, size_bytes=one.size_bytes)


def _meaning(one: DeviceTask, profile: Profile, report: Report) -> Meaning:
    """What a task is: by its name if that is a word of the runtime, else by the word of its queue entry."""
    typed = meaning(one.word)
    for said in (meaning(one.name), typed):
        if said is not None and said.kind is not TaskKind.OTHER:
            return typed if said.kind is TaskKind.COPY and typed and typed.copy else said
    call = profile.calls.get(one.call) if one.call is not None else None
    kind = _CALLS.get(call.name.rpartition("@")[2]) if call else None
    if kind is not None:
        return Meaning(kind)
    if typed is None and one.detail is None:
        report.note(Verdict.GUESSED, f"tasks of the unknown type {one.word!r}, taken as other", one.place)
    return Meaning(TaskKind.OTHER)


def _kernel(one: DeviceTask, said: Meaning, report: Report) -> Task:
    if one.detail is not None:
        return replace(
            one.detail,
            stream=one.stream,
            start_ns=one.start_ns,
            duration_ns=one.duration_ns,
            task_id=one.task_id,
            place=one.place,
        )
    core = said.kernel_class
    if one.word.strip().upper() in _UNSPLIT:
        # Timelines call both kinds of core by this word; only operator tables tell them apart.
        core = None
        report.note(Verdict.GUESSED, "kernels whose kind of core is not recorded", one.place)
    report.note(Verdict.DROPPED, "shapes and blocks of kernels, not recorded", one.place)
    return Task(
        name=one.name,
        kind=TaskKind.KERNEL,
        stream=one.stream,
        start_ns=one.start_ns,
        duration_ns=one.duration_ns,
        task_id=one.task_id,
        kernel_class=core,
        place=one.place,
    )


def _guess(one: DeviceTask, profile: Profile, launches: dict[int, int], report: Report) -> CopyKind:
    """The way of a copy over PCIe that is not recorded."""
    call = profile.calls.get(one.call) if one.call is not None else None
    name = call.name.rpartition("@")[2].lower() if call else ""
    around = [name] if name else []
    if call is not None:
        at = launches.get(one.call, call.start_ns) if one.call is not None else call.start_ns
        around += [
            hint.name.lower()
            for hint in profile.hints
            if hint.thread == call.thread and hint.start_ns <= at <= hint.finish_ns
        ]
    for text in around:
        if any(word in text for word in _TO_DEVICE):
            report.note(Verdict.GUESSED, "directions of copies, from the host's call", one.place)
            return CopyKind.H2D
        if any(word in text for word in _TO_HOST):
            report.note(Verdict.GUESSED, "directions of copies, from the host's call", one.place)
            return CopyKind.D2H
    if any(word in name for word in _ARGUMENTS):
        # What goes along with the launch of a kernel are its arguments.
        report.note(Verdict.GUESSED, "directions of copies, from the host's call", one.place)
        return CopyKind.H2D
    report.note(Verdict.GUESSED, "directions of copies, from the order", one.place)
    before = any(
        other.stream == one.stream and other.start_ns < one.start_ns and other.detail is not None
        for other in profile.tasks
    )
    synchronous = "async" not in name
    return CopyKind.D2H if before and synchronous else CopyKind.H2D


def is_hint(name: str) -> bool:
    """Whether the name of a range on the host tells which way a copy inside it goes."""
    lower = name.lower()
    return any(word in lower for word in (*_TO_DEVICE, *_TO_HOST))


def _lone(
    profile: Profile, joined: list[Operation], launches: dict[int, int], report: Report
) -> list[Launched]:
    """Operations of which no task of the hardware was recorded, on a stream of their own."""
    done = {id(operation) for operation in joined}
    launched: dict[int | None, list[DeviceTask]] = defaultdict(list)
    for one in profile.tasks:
        launched[one.call].append(one)
    found = []
    for operation in profile.operations:
        if id(operation) in done:
            continue
        if any(covers(operation, one) for one in launched[operation.call]):
            report.note(Verdict.RECOGNISED, "collectives run by kernels", operation.place)
            continue
        task = Task(
            name=operation.name,
            kind=TaskKind.COLLECTIVE,
            stream=NO_STREAM,
            start_ns=operation.start_ns,
            duration_ns=operation.duration_ns,
            op=operation.op,
            step=operation.step,
            place=operation.place,
        )
        found.append(Launched(task, operation.call, _launch(operation, launches)))
    return found


def _loose(task: Task, report: Report) -> Task:
    report.note(Verdict.GUESSED, "rows of operator tables that no task of the timeline is", task.place)
    return task
