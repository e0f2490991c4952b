"""The timeline of the Ascend PyTorch profiler (``trace_view.json``): tasks, collectives, host calls, steps.

The layout is that of the profiler's documentation (trace_view.json, CANN commercial edition, "Ascend PyTorch
Profiler"): a process of hardware streams, one of CANN's calls, one of collectives by group and plane, one of
the framework, joined by arrows of the category HostToDevice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cann_env.profiles.ascend import NO_NUMBER, DeviceTask, Operation, Part, Profile, Span, Step
from cann_env.profiles.ascend_tasks import is_hint
from cann_env.profiles.collectives import is_entry
from cann_env.profiles.fields import integer
from cann_env.profiles.recording import Verdict
from cann_env.profiles.trace_events import Layer, read_trace

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles.recording import Report
    from cann_env.profiles.trace_events import Event, Trace

_STEP = re.compile(r"^ProfilerStep\s*#\s*([0-9]{1,18})$")
_STREAM = re.compile(r"^Stream\s*(?:ID|:)?\s*([0-9]{1,9})$", re.IGNORECASE)
ON_CHIP = frozenset({"ON_CHIP", "LOCAL"})
"""Kinds of links whose bytes stay on the device."""
_PARTS = re.compile(r"^(?:notify|memcpy|reduce|inline_reduce|rdma|sdma|write|wait|post)", re.IGNORECASE)


def read_timeline(path: Path, report: Report) -> tuple[Profile, int | None]:
    """What a timeline says, and the clock of its cores (Hz); None if it does not say.

    Raises:
        InputError: Not a trace, or an event in it is not one.
    """
    trace = read_trace(path)
    operations, parts = _collectives(trace)
    profile = Profile(
        name=path.name,
        tasks=_tasks(trace, parts),
        operations=operations,
        calls=_calls(trace),
        hints=[
            Span(name=event.name, thread=event.thread, start_ns=event.start_ns, finish_ns=event.finish_ns)
            for layer in (Layer.FRAMEWORK, Layer.HOST)
            for event in trace.ranges[layer]
            if is_hint(event.name)
        ],
        steps=_steps(trace),
    )
    _note(trace, path.name, report)
    return profile, _clock(trace)


def _note(trace: Trace, name: str, report: Report) -> None:
    if trace.headless:
        report.note(Verdict.DROPPED, "arrows that start nowhere", name, trace.headless)
    if trace.ignored:
        report.note(Verdict.DROPPED, "events of other processes", name, trace.ignored)
    if trace.devices > 1:
        report.note(Verdict.DROPPED, "devices beside the busiest", name, trace.devices - 1)
    if not trace.arrows.get("HostToDevice") and trace.arrows.get("async_npu"):
        report.note(Verdict.GUESSED, "launch times, from the framework's operators", name)


def _tasks(trace: Trace, parts: list[Event]) -> list[DeviceTask]:
    """Entries of hardware streams with what the planes of collectives say of them, and parts only those show.

    Parts are found by their numbers, or by their very start in releases and levels that write none.
    """
    hardware = trace.ranges[Layer.HARDWARE]
    numbered = {_key_of_part(part): part for part in parts}
    started = {part.start_ns: part for part in parts if part.number("task id") is None}
    found = []
    for event in hardware:
        part = numbered.pop(_key_of_task(event, trace), None)
        if part is None and event.start_ns in started and is_entry(str(event.arg("Task Type") or event.name)):
            part = started.pop(event.start_ns)
            numbered.pop(_key_of_part(part), None)
        found.append(_task(event, trace, part))
    stream = 1 + max((task.stream for task in found), default=-1)
    return found + [_task_of_part(part, index, stream) for index, part in enumerate(numbered.values())]


def _key_of_task(event: Event, trace: Trace) -> tuple[object, ...]:
    subtask = _or_none(event.number("Subtask Id", "context id"))
    return _stream(event, trace), event.number("Task Id"), subtask, event.start_ns, None


def _key_of_part(event: Event) -> tuple[object, ...]:
    """Numbers and start; of parts without numbers, those of the same start have their planes."""
    number = event.number("task id")
    plane = event.thread if number is None else None
    return event.number("stream id"), number, _or_none(event.number("context id")), event.start_ns, plane


def _task(event: Event, trace: Trace, part: Event | None) -> DeviceTask:
    direction = event.arg("memcpy direction", "memcpy kind")
    recorded = event.arg("event_id", "event id")
    return DeviceTask(
        name=event.name,
        word=str(event.arg("Task Type") or event.name),
        stream=_stream(event, trace),
        start_ns=event.start_ns,
        duration_ns=event.duration_ns,
        task_id=event.number("Task Id"),
        subtask=_or_none(event.number("Subtask Id", "context id")),
        call=event.number("connection_id"),
        launch_ns=_launch(event, trace),
        size_bytes=event.number("data size(Byte)", "size(Byte)", "data_size", least=0) or 0,
        direction=str(direction or ""),
        event=None if recorded is None else str(recorded),
        part=None if part is None else _part(part),
        place=event.place,
    )


def _task_of_part(event: Event, index: int, stream: int) -> DeviceTask:
    """A part of a collective that the hardware's streams do not show; ``stream`` if it names none."""
    stated, number = event.number("stream id"), event.number("task id")
    context = _or_none(event.number("context id"))
    return DeviceTask(
        name=event.name,
        word=event.name,
        stream=stream if stated is None else stated,
        start_ns=event.start_ns,
        duration_ns=event.duration_ns,
        task_id=number,
        subtask=index if number is None else context,
        part=_part(event),
        place=event.place,
    )


def _stream(event: Event, trace: Trace) -> int:
    """By the name of its thread, else by an argument, else by the thread's number."""
    named = _STREAM.match(trace.threads.get((event.process, event.thread), "").strip())
    if named:
        return int(named[1])
    stated = event.number("Physic Stream Id", "Stream Id")
    if stated is not None:
        return stated
    return integer(event.thread, f"{event.place}, tid", "the number of a stream", least=0)


def _launch(event: Event, trace: Trace) -> int | None:
    end = event.process, event.thread, event.start_ns
    direct = trace.arrows.get("HostToDevice", {})
    if direct:
        return direct.get(end)
    return trace.arrows.get("async_npu", {}).get(end)


def _collectives(trace: Trace) -> tuple[list[Operation], list[Event]]:
    """Operations over whole collectives, and the parts that make them up."""
    operations, parts = [], []
    for event in trace.ranges[Layer.COLLECTIVES]:
        thread = trace.threads.get((event.process, event.thread), "")
        if _is_part(event, thread):
            parts.append(event)
            continue
        operations.append(
            Operation(
                name=event.name,
                op=operation_type(event.name),
                start_ns=event.start_ns,
                duration_ns=event.duration_ns,
                call=event.number("connection_id"),
                launch_ns=_launch(event, trace),
                place=event.place,
            )
        )
    return operations, parts


def _is_part(event: Event, thread: str) -> bool:
    if event.arg("task type", "transport type", "stream id") is not None:
        return True
    where = thread.lower()
    return where.startswith("plane") or (not where.startswith("group") and bool(_PARTS.match(event.name)))


def operation_type(name: str) -> str:
    """``hcom_allReduce_`` of ``hcom_allReduce__271_0_1``."""
    return re.sub(r"_[0-9]+(?:_[0-9]+)*$", "", name.partition("@")[0])


def _part(event: Event) -> Part:
    link = str(event.arg("link type") or "").upper()
    return Part(
        name=event.name,
        size_bytes=event.number("size(Byte)", least=0) or 0,
        on_chip=link in ON_CHIP,
    )


def _calls(trace: Trace) -> dict[int, Span]:
    """Host calls by number; of several, the earliest, which encloses the others."""
    found: dict[int, Span] = {}
    for event in trace.ranges[Layer.HOST]:
        number = event.number("connection_id")
        if number is None:
            continue
        if number not in found or event.start_ns < found[number].start_ns:
            found[number] = Span(
                name=event.name, thread=event.thread, start_ns=event.start_ns, finish_ns=event.finish_ns
            )
    return found


def _steps(trace: Trace) -> list[Step]:
    found = []
    for event in trace.ranges[Layer.FRAMEWORK]:
        step = _STEP.match(event.name)
        if step:
            found.append(Step(number=int(step[1]), start_ns=event.start_ns, finish_ns=event.finish_ns))
    return found


def _clock(trace: Trace) -> int | None:
    """The highest clock that the counter shows, which is what the cores run at under load."""
    found = [event.number("MHz", "value") for event in trace.counters]
    stated = [mhz for mhz in found if mhz and mhz > 0]
    return max(stated) * 1_000_000 if stated else None


def _or_none(number: int | None) -> int | None:
    return None if number is None or number in (-1, NO_NUMBER) else number
