"""Chrome traces of PyTorch's profiler (Kineto): what a GPU did, stream by stream, and when it was submitted.

Kernels, copies and memsets stand on their streams; the call of the host that submitted each is found by its
correlation. NCCL's kernels become collectives, whose length contains what they waited for their peers. Waits
of streams for events stand where the device came to them (:mod:`cann_env.profiles.kineto_marks`), work that
overlaps on one stream is laid side by side (:mod:`cann_env.profiles.lanes`).
"""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles.chrome import load_trace
from cann_env.profiles.fields import integer, is_missing
from cann_env.profiles.kineto_file import Call, Device, Events, Work, sort_events
from cann_env.profiles.kineto_header import base_ns, traits_of
from cann_env.profiles.kineto_marks import STREAM_WAIT, place_marks
from cann_env.profiles.kineto_words import (
    blocks_of,
    collective_bytes,
    copied_bytes,
    is_collective,
    operator_of,
    way_of,
)
from cann_env.profiles.lanes import lay_out
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict, ordered
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FORMAT = "PyTorch profiler trace (Kineto)"

MOST_BLOCKS = 2**20
"""Most blocks that a kernel of a graph may have."""

_BLOCKING = ("Synchronize", "cudaMemcpy", "hipMemcpy", "cuMemcpy")
_HELD_NS, _HELD_TIMES = 1_000_000, 10  # beyond both a call that launches is held up by something
_FEW = 100  # of so many launches one may lie after its start before the clocks are taken to be apart
_LONGEST_ID = 18  # digits


def read_kineto(path: str | Path, device: int | None = None) -> Recording:
    """Read a Kineto trace.

    Args:
        path: ``.json``, plain or compressed with gzip: an object with ``traceEvents``, or a bare list.
        device: Number of the GPU to keep; None if the trace has only one.

    Returns:
        The work of one device. ``traits`` may hold ``device``, ``rank``, ``world_size``, ``sm_count``,
        ``threads_per_sm``, ``occupancy_percent`` (mean over kernel time, as the profiler estimated it),
        ``graph_launches``, ``launch_shift_ns`` (by how much launches were moved, where clocks were apart).

    Raises:
        InputError: The file is no trace, holds no work of the device or that of several and ``device`` is
            None, or an event is broken: names file, index and key.
    """
    file = Path(path)
    header, listed = load_trace(file)
    events = sort_events(file.name, header, listed)
    chosen = _choose(events, device)
    report = Report()
    work = [each for each in events.work if each.device == chosen]
    traits = traits_of(header, chosen, work)
    tasks = _aligned(_tasks(events, work, report), report, traits)
    syncs = [sync for sync in events.syncs if sync.device == chosen]
    marks = place_marks(events, syncs, tasks, report)
    tasks = lay_out(tasks + marks, report)
    _note_host(events, syncs, report)
    kept, origin = ordered(_with_steps(tasks, events.steps))
    return Recording(
        name=file.name.removesuffix(".gz").removesuffix(".json"),
        format=FORMAT,
        tasks=kept,
        origin_ns=origin + base_ns(header, file.name),
        chip=traits.pop("chip", ""),
        traits=traits,
        report=report,
    )


def _choose(events: Events, device: int | None) -> int:
    """The device to keep."""
    counts = Counter(work.device for work in events.work)
    listed = ", ".join(f"{number} ({count} tasks)" for number, count in sorted(counts.items()))
    if not counts:
        raise InputError(
            f"{events.file}: holds no work of a GPU (events of category kernel, gpu_memcpy or gpu_memset); "
            "record with ProfilerActivity.CUDA"
        )
    if device is None and len(counts) > 1:
        raise InputError(
            f"{events.file}: holds work of several devices; choose one with device (--recorded-device on the "
            f"command line): {listed}"
        )
    if device is not None and device not in counts:
        raise InputError(f"{events.file}: holds no work of device {device}; it has {listed}")
    return next(iter(counts)) if device is None else device


def _tasks(events: Events, work: Sequence[Work], report: Report) -> list[Task]:
    """What the device did, each with the time of the call that submitted it."""
    calls: dict[int, Call] = {}
    for call in events.calls:
        if call.correlation is not None:
            earlier = calls.setdefault(call.correlation, call)
            if call.start_ns < earlier.start_ns:
                calls[call.correlation] = call
    work = [_numbered(each, events) for each in work]
    times = Counter(each.correlation for each in work)
    typical = _typical_ns(work, calls)
    tasks = [_task(each, calls.get(each.correlation or 0), events, typical, report) for each in work]
    # A number that the kernels of a graph share tells none of them from the others.
    return [task if times[task.task_id] == 1 else replace(task, task_id=None) for task in tasks]


def _typical_ns(work: Sequence[Work], calls: Mapping[int, Call]) -> int:
    """Median length of a call that launches a kernel (ns); 0 if there are none."""
    used = {each.correlation for each in work if each.kind is not Device.COPY}
    lengths = [calls[number].duration_ns for number in used if number is not None and number in calls]
    return int(statistics.median(lengths)) if lengths else 0


def _submitted_ns(work: Work, call: Call, typical_ns: int, report: Report) -> int:
    """When a call handed its work over: as it began, or at the end of one that was held up for long.

    A launch that loads its module first, or finds the queue full, lasts and then submits. Whether it did so
    shows in the work: it has not begun by then.
    """
    is_launch = work.kind is not Device.COPY and "GraphLaunch" not in call.name
    late = call.start_ns + call.duration_ns - typical_ns
    held = call.duration_ns > max(_HELD_NS, _HELD_TIMES * typical_ns)
    if not (is_launch and held) or late > work.start_ns:
        return call.start_ns
    text = "launches taken to be made at the end of a call that was held up"
    report.note(Verdict.GUESSED, text, str(work.place))
    return late


def _task(work: Work, call: Call | None, events: Events, typical_ns: int, report: Report) -> Task:
    launch = _flow_ns(work, events) if call is None else _submitted_ns(work, call, typical_ns, report)
    place = str(work.place)
    if launch is None:
        report.note(Verdict.DROPPED, "work whose submission by the host is not recorded", place)
    if _of_graph(work, call):
        report.note(Verdict.RECOGNISED, "work that a graph launch submitted", place)
    details = [work.args] if call is None else [work.args, call.args]
    common = Task(
        name=work.name,
        kind=TaskKind.KERNEL,
        stream=work.stream,
        start_ns=work.start_ns,
        duration_ns=work.duration_ns,
        task_id=work.correlation,
        op=operator_of(work.name),
        launch_ns=launch,
        place=place,
    )
    if work.kind is Device.COPY:
        return _copy(common, work, details, report)
    if work.kind is Device.SET:
        report.note(Verdict.GUESSED, "memsets taken as kernels", place)
        return replace(common, op="Memset")
    if is_collective(work.name, work.args):
        report.note(Verdict.RECOGNISED, "collectives, whose length holds what they waited for peers", place)
        return replace(common, kind=TaskKind.COLLECTIVE, size_bytes=collective_bytes(work.args, work.place))
    report.note(Verdict.RECOGNISED, "kernels", place)
    blocks = blocks_of(work.place, *details)
    if blocks is not None and blocks > MOST_BLOCKS:
        report.note(Verdict.GUESSED, f"grids cut to {MOST_BLOCKS} blocks", place)
        blocks = MOST_BLOCKS
    return replace(common, blocks=blocks)


def _of_graph(work: Work, call: Call | None) -> bool:
    if call is not None and "GraphLaunch" in call.name:
        return True
    node = work.args.get("graph node id")
    return not is_missing(node) and integer(node, f"{work.place}.args.graph node id") > 0


def _copy(task: Task, work: Work, details: Sequence[dict[str, Any]], report: Report) -> Task:
    way = way_of(work.name, *details)
    kind = "copies of pageable memory" if "pageable" in work.name.lower() else "copies"
    what = kind if way else "copies whose direction is not recorded"
    report.note(Verdict.RECOGNISED if way else Verdict.GUESSED, what, task.place)
    size = copied_bytes(work.place, *details)
    if not size:
        report.note(Verdict.GUESSED, "copies whose bytes are not recorded", task.place)
    return replace(task, kind=TaskKind.COPY, op="Memcpy", copy=way, size_bytes=size)


def _arrow(work: Work, events: Events) -> str | None:
    """Id of the arrow that ends at a device's work; None if there is none."""
    return events.flow_ends.get((str(work.device), str(work.stream), work.start_ns))


def _numbered(work: Work, events: Events) -> Work:
    """Work with the number of its call: an arrow's id is just that, where the work does not say it."""
    arrow = _arrow(work, events) if work.correlation is None else None
    known = arrow is not None and arrow.isdecimal() and len(arrow) <= _LONGEST_ID
    return replace(work, correlation=int(arrow or 0) or None) if known else work


def _flow_ns(work: Work, events: Events) -> int | None:
    """When the arrow starts that ends at a device's work; None if there is none."""
    arrow = _arrow(work, events)
    return None if arrow is None else events.flow_starts.get(arrow)


def _aligned(tasks: list[Task], report: Report, traits: dict[str, str]) -> list[Task]:
    """Tasks none of which starts before it was submitted.

    Where that is rare the submission is left out. Where it is not, the clocks of host and device are apart:
    all submissions move by the least that leaves it rare.
    """
    late = sorted(
        (task.launch_ns - task.start_ns for task in tasks if task.launch_ns is not None), reverse=True
    )
    rare = len(tasks) // _FEW
    shift = max(0, late[rare]) if len(late) > rare else 0
    if shift:
        traits["launch_shift_ns"] = str(shift)
        report.note(Verdict.GUESSED, "submissions moved, since the clocks are apart", count=len(late))
    aligned = []
    for task in tasks:
        launch = None if task.launch_ns is None else task.launch_ns - shift
        if launch is not None and launch > task.start_ns:
            report.note(Verdict.DROPPED, "submissions after the start", task.place)
            launch = None
        aligned.append(replace(task, launch_ns=launch))
    return aligned


def _with_steps(tasks: list[Task], steps: list[tuple[int, int, int]]) -> list[Task]:
    """Tasks with the profiler step during which they were submitted, or began if that is not known."""
    if not steps:
        return tasks
    steps = sorted(steps)
    starts = [start for start, _, _ in steps]
    stepped = []
    for task in tasks:
        at = task.start_ns if task.launch_ns is None else task.launch_ns
        found = bisect.bisect_right(starts, at) - 1
        inside = found >= 0 and at < steps[found][1]
        stepped.append(replace(task, step=steps[found][2]) if inside else task)
    return stepped


def _note_host(events: Events, syncs: Sequence[Any], report: Report) -> None:
    blocking = [call for call in events.calls if any(word in call.name for word in _BLOCKING)]
    blocking = [call for call in blocking if not call.name.endswith("Async")]
    if blocking:
        what = "host calls that wait for the device, which the times of submission reflect"
        report.note(Verdict.RECOGNISED, what, blocking[0].name, len(blocking))
    other = [sync for sync in syncs if sync.kind != STREAM_WAIT]
    if other:
        report.note(Verdict.RECOGNISED, "records of such waits", str(other[0].place), len(other))
