"""A schedule as the Ascend PyTorch profiler would have recorded it: the events of ``trace_view.json``.

Layers, keys and words are those of recorded files, so that MindStudio Insight and tools that read profiles
take a simulated run for a recorded one: *Python* and *CANN* (the host), *Ascend Hardware* (a track a stream),
*Communication*, *Overlap Analysis*, counters of the core clock and of device memory. Start times are text in
microseconds with three decimals.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from cann_env.archive import EVENT_NAME, archive_of, to_json
from cann_env.commands import CommandKind, CopyKind
from cann_env.render.rows import pack
from cann_env.render.series import hbm_in_use
from cann_env.render.trace.events import Event, Timed, in_order, us
from cann_env.render.trace.overlap import overlap
from cann_env.render.trace.tasks import DeviceTask, TaskType, device_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import Schedule

ORIGIN_NS: Final = 10**9
"""Time zero of the run on the clock of the trace: late enough that no reader takes it for no time at all."""

_NO_MODEL: Final = 2**32 - 1
_HOST_THREAD: Final = 1


class Layer(IntEnum):
    """The layers of a profile; the value is the ``pid``, ``_LAYERS`` says how each is shown."""

    PYTHON = 1
    CANN = 2
    HARDWARE = 3
    CLOCK = 4
    COMMUNICATION = 5
    MEMORY = 6
    OVERLAP = 7


_LAYERS: Final = {
    Layer.PYTHON: ("Python", "CPU", 0),
    Layer.CANN: ("CANN", "CPU", 7),
    Layer.HARDWARE: ("Ascend Hardware", "NPU", 13),
    Layer.CLOCK: ("AI Core Freq", "NPU", 14),
    Layer.COMMUNICATION: ("Communication", "NPU", 15),
    Layer.MEMORY: ("NPU MEM", "NPU", 19),
    Layer.OVERLAP: ("Overlap Analysis", "NPU", 23),
}
"""Name, label and place of each layer."""

_OVERLAP: Final = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")


def mindstudio_trace(schedule: Schedule) -> list[Event]:
    """The schedule as the events of a profiler's ``trace_view.json``.

    Each command is a task of its stream (a fused one as many as it has kernels), each event wait a record and
    a wait; ``connection_id`` and the arrows ``HostToDevice`` lead to it from the call that submitted it, and
    ``async_npu`` from the host's operator. Moves of managed buffers belong to no stream: they are left out.
    The last event is metadata of the simulator's own, which readers pass over.

    Returns:
        Metadata first, then the rest by time, ready for ``json.dump``.
    """
    tasks = device_tasks(schedule)
    host = _counters(schedule), _python(schedule, tasks), _cann(schedule, tasks)
    device = _hardware(schedule, tasks), _communication(tasks), _overlap(schedule)
    return [*_layers(schedule, tasks), *in_order([*host, *device]), _archive(schedule)]


def text_us(ns: int) -> str:
    """A time as the profiler writes it: microseconds with three decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _archive(schedule: Schedule) -> Event:
    args = {"origin_ns": ORIGIN_NS, "archive": to_json(archive_of(schedule))}
    return {"name": EVENT_NAME, "ph": "M", "pid": int(Layer.HARDWARE), "tid": 0, "args": args}


# --- layers -----------------------------------------------------------------------------------------------


def _layers(schedule: Schedule, tasks: list[DeviceTask]) -> Iterator[Event]:
    groups = 1 + max((group for group, _ in _groups(tasks)), default=-1)
    streams = sorted({run.stream for run in schedule.commands})
    tracks = {
        Layer.PYTHON: {_HOST_THREAD: f"Thread {_HOST_THREAD}"},
        Layer.CANN: {_HOST_THREAD: f"Thread {_HOST_THREAD}"},
        Layer.HARDWARE: {stream: f"Stream {stream}" for stream in streams},
        Layer.COMMUNICATION: {group: f"Group {group} Communication" for group in range(groups)},
        Layer.OVERLAP: dict(enumerate(_OVERLAP)),
    }
    for layer, (name, label, place) in _LAYERS.items():
        if layer is Layer.COMMUNICATION and not groups:
            continue
        yield _metadata("process_name", layer, 0, name=name)
        yield _metadata("process_labels", layer, 0, labels=label)
        yield _metadata("process_sort_index", layer, 0, sort_index=place)
        for track, title in tracks.get(layer, {}).items():
            yield _metadata("thread_name", layer, track, name=title)
            yield _metadata("thread_sort_index", layer, track, sort_index=track)


def _metadata(name: str, layer: Layer, track: int, /, **args: Any) -> Event:
    return {"name": name, "ph": "M", "pid": int(layer), "tid": track, "args": args}


def _slice(layer: Layer, track: int, name: str, start_ns: int, finish_ns: int, **more: Any) -> Timed:
    event = {
        "name": name,
        "ph": "X",
        "pid": int(layer),
        "tid": track,
        "ts": text_us(ORIGIN_NS + start_ns),
        "dur": us(finish_ns - start_ns),
        **more,
    }
    return Timed(start_ns, event)


def _flow(
    phase: str, category: str, name: str, number: int | str, layer: Layer, track: int, at_ns: int
) -> Timed:
    event = {
        "name": name,
        "ph": phase,
        "cat": category,
        "id": number,
        "bp": "e",
        "pid": int(layer),
        "tid": track,
        "ts": text_us(ORIGIN_NS + at_ns),
    }
    return Timed(at_ns, event)


def _submission(phase: str, layer: Layer, track: int, task: DeviceTask, at_ns: int) -> Timed:
    name = f"HostToDevice{task.connection}"
    return _flow(phase, "HostToDevice", name, str(task.connection), layer, track, at_ns)


def _from_operator(phase: str, layer: Layer, track: int, task: DeviceTask, at_ns: int) -> Timed:
    return _flow(phase, "async_npu", "torch_to_npu", task.connection, layer, track, at_ns)


# --- host -------------------------------------------------------------------------------------------------

_CALLS: Final = {
    TaskType.PCIE: ("aclrtMemcpyAsync", "Runtime@MemcpyAsync", "runtime"),
    TaskType.SDMA: ("aclrtMemcpyAsync", "Runtime@MemcpyAsync", "runtime"),
    TaskType.HOST: ("aclrtLaunchCallback", "Runtime@CallbackLaunch", "runtime"),
    TaskType.COLLECTIVE: ("HcclOp", "Hccl@Launch", "hccl"),
    TaskType.RECORD: ("aclrtRecordEvent", "Runtime@EventRecord", "runtime"),
    TaskType.WAIT: ("aclrtStreamWaitEvent", "Runtime@StreamWaitEvent", "runtime"),
}
"""Name of the call, of the launch within it and of the launch's level, where it is not that of a kernel."""

_OWN_CALLS: Final = {
    "prefetch": "aclrtMemManagedPrefetchAsync",
    "offload": "aclrtMemManagedPrefetchAsync",
    "lift": "aclrtCmoAsync",
    "wait": "aclrtSynchronizeDevice",
}


def _python(schedule: Schedule, tasks: list[DeviceTask]) -> Iterator[Timed]:
    """An operator of the framework for each submission of a command."""
    first = {task.command: task for task in reversed(tasks) if task.event is None}
    for call in schedule.host:
        if call.call == "issue":
            task, name = first[call.target], schedule.graph.commands[call.target].name
            args = {"Sequence number": -1, "Fwd thread id": 0}
            yield _slice(
                Layer.PYTHON, _HOST_THREAD, name, call.start_ns, call.end_ns, cat="cpu_op", args=args
            )
            yield _from_operator("s", Layer.PYTHON, _HOST_THREAD, task, call.start_ns)


def _cann(schedule: Schedule, tasks: list[DeviceTask]) -> Iterator[Timed]:
    """The calls of the runtime, in the order in which the host made them."""
    turn = {call.target: place for place, call in enumerate(schedule.host) if call.call == "issue"}
    made: list[tuple[int, int, list[Timed]]] = []
    count = max(task.connection for task in tasks)
    for task in tasks:
        if not task.kernel:
            place, last = turn.get(task.caller, len(turn)), 2 * len(tasks)
            within = last if task.event is None else 2 * task.event + (task.kind is TaskType.WAIT)
            made.append((place, within, _calls(task, count + task.connection)))
            made.append((place, last + within + 1, _launch(task)))
    for place, call in enumerate(schedule.host):
        if call.call in _OWN_CALLS:
            made.append((place, 0, [_call(_OWN_CALLS[call.call], call.start_ns, call.end_ns)]))
    for _, _, events in sorted(made, key=lambda each: each[:2]):
        yield from events


def _call(api: str, start_ns: int, end_ns: int, **more: int) -> Timed:
    args = {"Thread Id": _HOST_THREAD, "Mode": "ACL_RTS", "level": "acl", "id": api, "item_id": "0", **more}
    return _slice(Layer.CANN, _HOST_THREAD, f"AscendCL@{api}", start_ns, end_ns, args=args)


def _calls(task: DeviceTask, connection: int) -> list[Timed]:
    """The call, where it takes time."""
    if task.call_end_ns == task.call_start_ns:
        return []
    return [_call(_called(task)[0], task.call_start_ns, task.call_end_ns, connection_id=connection)]


def _launch(task: DeviceTask) -> list[Timed]:
    """The instant at which the stream has the task, from which the arrow leaves."""
    if task.launch_ns > task.start_ns:
        return []
    _, name, level = _called(task)
    args = {"Thread Id": _HOST_THREAD, "Mode": "launch", "level": level, "id": "0", "item_id": task.name,
            "connection_id": task.connection}  # fmt: skip
    at = task.launch_ns
    launch = _slice(Layer.CANN, _HOST_THREAD, name, at, at, args=args)
    return [launch, _submission("s", Layer.CANN, _HOST_THREAD, task, at)]


def _called(task: DeviceTask) -> tuple[str, str, str]:
    return _CALLS.get(task.kind, ("aclrtLaunchKernel", "Node@launch", "node"))


# --- device -----------------------------------------------------------------------------------------------

_DIRECTIONS: Final = {
    CopyKind.H2D: "host to device",
    CopyKind.D2H: "device to host",
    CopyKind.D2D: "device to device",
}


def _hardware(schedule: Schedule, tasks: list[DeviceTask]) -> Iterator[Timed]:
    for task in tasks:
        args: dict[str, Any] = {
            "Model Id": _NO_MODEL,
            "Task Type": str(task.kind),
            "Physic Stream Id": task.stream,
            "Task Id": task.task_id,
            "Batch Id": 0,
            "Subtask Id": _NO_MODEL,
            "connection_id": task.connection,
        }
        command = schedule.graph.commands[task.command]
        if command.kind is CommandKind.COPY and task.event is None:
            args["data size(Byte)"] = command.size_bytes
            args["memcpy direction"] = _DIRECTIONS[command.copy or CopyKind.D2D]
        if task.event is not None:
            args["event_id"] = task.event
        args["command"] = task.command
        yield _slice(Layer.HARDWARE, task.stream, task.name, task.start_ns, task.finish_ns, args=args)
        if not task.kernel and task.launch_ns <= task.start_ns:
            yield _submission("f", Layer.HARDWARE, task.stream, task, task.start_ns)
            if task.event is None:
                yield _from_operator("f", Layer.HARDWARE, task.stream, task, task.start_ns)


def _communication(tasks: list[DeviceTask]) -> Iterator[Timed]:
    for group, task in _groups(tasks):
        args = {"connection_id": task.connection, "model id": _NO_MODEL}
        yield _slice(Layer.COMMUNICATION, group, task.name, task.start_ns, task.finish_ns, args=args)


def _groups(tasks: list[DeviceTask]) -> list[tuple[int, DeviceTask]]:
    """Collectives by start, each with a group in which no other runs beside it."""
    found = [task for task in tasks if task.kind is TaskType.COLLECTIVE]
    found.sort(key=lambda task: (task.start_ns, task.stream, task.task_id))
    rows = pack([(task.start_ns, task.finish_ns) for task in found])
    return list(zip(rows, found, strict=True))


def _overlap(schedule: Schedule) -> Iterator[Timed]:
    for row, spans in enumerate(overlap(schedule)):
        for start, finish in spans:
            yield _slice(Layer.OVERLAP, row, _OVERLAP[row], start, finish)


def _counters(schedule: Schedule) -> Iterator[Timed]:
    clock = {"MHz": schedule.device.clock_hz // 10**6}
    yield _counter(Layer.CLOCK, "AI Core Freq", 0, clock)
    yield _counter(Layer.CLOCK, "AI Core Freq", schedule.makespan_ns, clock)
    for die in range(schedule.device.dies):
        name = "APP/HBM" if schedule.device.dies == 1 else f"APP/HBM {die}"
        series = hbm_in_use(schedule, die)
        for time, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
            yield _counter(Layer.MEMORY, name, time, {"KB": value / 1024})


def _counter(layer: Layer, name: str, at_ns: int, args: dict[str, Any]) -> Timed:
    event = {"name": name, "ts": text_us(ORIGIN_NS + at_ns), "pid": int(layer), "tid": 0, "args": args}
    return Timed(at_ns, {**event, "ph": "C"})
