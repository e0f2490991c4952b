"""Chrome traces that this package wrote, read as recordings: what each stream ran, and when.

Only what a profiler could have seen is taken: the slices of the streams and what they say of themselves. A
command of several kernels is one task, an event wait a record behind its producer and a wait before its
consumer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cann_env.commands import CopyKind, KernelClass
from cann_env.profiles.fields import duration_ns as length_ns
from cann_env.profiles.fields import integer, shown, time_ns
from cann_env.profiles.json_files import read_json
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_W = TypeVar("_W", KernelClass, CopyKind)
_WRITER = "cann_env"
_STREAMS = "Streams"
_STREAM = re.compile(r"stream ([0-9]{1,9})")
_KINDS = {
    "kernel": TaskKind.KERNEL,
    "copy": TaskKind.COPY,
    "callback": TaskKind.CALLBACK,
    "collective": TaskKind.COLLECTIVE,
}


class _Run(NamedTuple):
    """A slice of a stream that stands for a command."""

    command: int
    position: int
    waits_for: tuple[int, ...]
    task: Task


def read_own_trace(path: str | Path) -> Recording:
    """Read a trace of the form ``chrome`` as a profile; what it carries of the run itself is left aside.

    Raises:
        InputError: It is no such trace, or one of its slices lacks something; names the event.
    """
    path = Path(path)
    data = read_json(path)
    other = data.get("otherData") if isinstance(data, dict) else None
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(other, dict) or other.get("writer") != _WRITER or not isinstance(events, list):
        raise InputError(
            f"{path} is no Chrome trace of this package; its otherData name no writer {_WRITER!r}"
        )
    report = Report()
    runs = list(_runs(path.name, events))
    if not runs:
        raise InputError(f"{path} shows no command on a stream")
    record_ns = integer(other.get("record_ns", 0), f"{path.name}, record_ns", least=0)
    found = [*_with_events(runs, record_ns)]
    for task in found:
        report.note(Verdict.RECOGNISED, f"{task.kind} tasks", task.place)
    tasks, origin_ns = ordered(found)
    return Recording(
        name=str(other.get("graph") or path.name),
        format="Chrome trace of a simulated run",
        tasks=tasks,
        origin_ns=origin_ns,
        traits={"device": str(other.get("device", ""))},
        report=report,
    )


def _runs(name: str, events: Sequence[object]) -> Iterator[_Run]:
    streams = _streams(events)
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        stream = streams.get((str(event.get("pid")), str(event.get("tid"))))
        args = event.get("args")
        if stream is not None and isinstance(args, dict) and "kernel" not in args:
            yield _run(event, args, stream, f"{name}, event {number}")


def _streams(events: Sequence[object]) -> dict[tuple[str, str], int]:
    """Number of the stream that each track shows."""
    shown_by: set[str] = set()
    tracks: dict[tuple[str, str], int] = {}
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "M" or not isinstance(event.get("args"), dict):
            continue
        title, pid = str(event["args"].get("name")), str(event.get("pid"))
        stream = _STREAM.fullmatch(title)
        if event.get("name") == "process_name" and title == _STREAMS:
            shown_by.add(pid)
        elif event.get("name") == "thread_name" and stream:
            tracks[pid, str(event.get("tid"))] = int(stream[1])
    return {track: stream for track, stream in tracks.items() if track[0] in shown_by}


def _run(event: Mapping[str, object], args: Mapping[str, object], stream: int, place: str) -> _Run:
    kind = _KINDS.get(str(event.get("cat")))
    if kind is None:
        raise InputError(
            f"{place}: category {shown(event.get('cat'))} is none of a command; there are {', '.join(_KINDS)}"
        )
    waits = args.get("waits_for", [])
    if not isinstance(waits, list):
        raise InputError(f"{place}, waits_for: {shown(waits)} is not a list of commands")
    blocks = args.get("blocks")
    task = Task(
        name=str(event.get("name")),
        kind=kind,
        stream=stream,
        start_ns=time_ns(event.get("ts"), f"{place}, ts"),
        duration_ns=length_ns(event.get("dur"), f"{place}, dur"),
        op=str(args.get("op", "")),
        kernel_class=_word(KernelClass, args.get("work_class")),
        blocks=None if blocks is None else integer(blocks, f"{place}, blocks", least=1),
        copy=_word(CopyKind, args.get("copy")),
        size_bytes=integer(args.get("size_bytes", 0), f"{place}, size_bytes", least=0),
        launch_ns=integer(args.get("issue_ns"), f"{place}, issue_ns"),
        place=place,
    )
    return _Run(
        command=integer(args.get("command"), f"{place}, command", least=0),
        position=integer(args.get("position"), f"{place}, position", least=0),
        waits_for=tuple(integer(wait, f"{place}, waits_for", least=0) for wait in waits),
        task=task,
    )


def _word(words: type[_W], value: object) -> _W | None:
    return words(value) if isinstance(value, str) and value in tuple(words) else None


def _with_events(runs: Sequence[_Run], record_ns: int) -> Iterator[Task]:
    """The tasks of all streams with records and waits among them, numbered in the order of their stream."""
    known = {run.command: run.task for run in runs}
    awaited: dict[int, list[int]] = defaultdict(list)
    for run in runs:
        for producer in run.waits_for:
            if producer not in known:
                raise InputError(f"{run.task.place}: it waits for command {producer}, which is not shown")
            awaited[producer].append(run.command)
    lines: dict[int, list[Task]] = defaultdict(list)
    queue = sorted(runs, key=lambda run: (run.task.stream, run.position))
    for run, after in zip(queue, [*queue[1:], None], strict=True):
        line, task = lines[run.task.stream], run.task
        line += _waits(run, known, line[-1].finish_ns if line else 0, record_ns)
        line.append(task)
        follows = after is not None and after.task.stream == task.stream
        room = after.task.start_ns - task.finish_ns if after is not None and follows else record_ns
        line += [
            _event(task, TaskKind.RECORD, task.finish_ns, run.command, consumer, max(0, min(record_ns, room)))
            for consumer in awaited[run.command]
        ]
    for line in lines.values():
        for number, task in enumerate(line):
            yield replace(task, task_id=number)


def _waits(run: _Run, known: Mapping[int, Task], free_ns: int, record_ns: int) -> Iterator[Task]:
    """From when the stream gets there; each ends with its record, the last when the stream goes on."""
    task = run.task
    at = min(max(free_ns, task.launch_ns or 0), task.start_ns)
    order = sorted(run.waits_for, key=lambda producer: known[producer].finish_ns)
    for producer in order:
        over = max(at, known[producer].finish_ns + record_ns)
        over = task.start_ns if producer == order[-1] else min(over, task.start_ns)
        yield _event(task, TaskKind.WAIT, at, producer, run.command, over - at)
        at = over


def _event(
    task: Task, kind: TaskKind, at_ns: int, producer: int, consumer: int, duration_ns: int = 0
) -> Task:
    return Task(
        name=f"EVENT_{kind.value.upper()}",
        kind=kind,
        stream=task.stream,
        start_ns=at_ns,
        duration_ns=duration_ns,
        launch_ns=task.launch_ns if kind is TaskKind.WAIT else None,
        event=f"{producer} to {consumer}",
        place=task.place,
    )
