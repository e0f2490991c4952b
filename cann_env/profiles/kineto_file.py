"""The events of a Kineto trace, sorted by what they say: work of devices, calls of the host, events, steps.

Kineto is PyTorch's profiler; it writes Chrome trace events as JSON. The words for the same thing changed
over the years (``Kernel`` became ``kernel``, ``Runtime`` ``cuda_runtime``) and differ between makers; all
known ones are read. Times are microseconds, with up to three digits behind the point.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import Any

from cann_env.profiles.chrome import Place
from cann_env.profiles.fields import bare, duration_ns, integer, is_missing, shown, time_ns
from cann_env.units import InputError

_STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")
_LAST_NUMBER = re.compile(r"(-?[0-9]{1,18})\s*$")
_LARGEST_STREAM = 2**32 - 1  # what an unsigned -1 was written as


class Device(enum.Enum):
    """What kind of work of a device an event is."""

    KERNEL = "kernel"
    COPY = "gpu_memcpy"
    SET = "gpu_memset"


_WORK = {
    "kernel": Device.KERNEL,
    "concurrent_kernel": Device.KERNEL,
    "gpu_memcpy": Device.COPY,
    "memcpy": Device.COPY,
    "gpu_memset": Device.SET,
    "memset": Device.SET,
}
_HOST = frozenset({
    "cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver",
    "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "mtia_runtime", "glow_runtime",
})  # fmt: skip
_SYNC, _EVENT = "cuda_sync", "cuda_event"
_STEP_CATEGORIES = frozenset({"user_annotation", "cpu_op", "operator", "python_function", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Something that a device did.

    Attributes:
        kind, name: What.
        device: Its number.
        stream: Its number, as recorded.
        start_ns, duration_ns: When, on the trace's clock.
        correlation: Number of the host's call that submitted it; None if it is not recorded.
        args: The rest, as recorded.
        place: Where it stands.
    """

    kind: Device
    name: str
    device: int
    stream: int
    start_ns: int
    duration_ns: int
    correlation: int | None
    args: dict[str, Any]
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the runtime or driver by the host, on one of its threads."""

    name: str
    thread: str
    start_ns: int
    duration_ns: int
    correlation: int | None
    args: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A wait, of a stream for an event or of the host for the device, as the profiler describes it.

    Attributes:
        kind: ``Stream Wait Event``, ``Event Sync``, ``Stream Sync`` or ``Context Sync``.
        device, stream: Who waits; the stream is None for the host.
        on_stream: Stream of the event's record; None if it is not known.
        record: Correlation of the record; None if it is not known.
        event: Number of the event, used again and again; None if it is not recorded.
        start_ns: When, on the trace's clock.
        correlation: Of the host's call.
        place: Where it stands.
    """

    kind: str
    device: int
    stream: int | None
    on_stream: int | None
    record: int | None
    event: int | None
    start_ns: int
    correlation: int | None
    place: Place


@dataclass(slots=True)
class Events:
    """What a file says, in the order of the file.

    Attributes:
        file: Its name.
        header: What stands beside the events.
        work, calls, syncs: See there.
        records: Records of events: correlation, to stream and event, where the profiler describes them.
        steps: Start, end (ns) and number of each profiler step.
        flows: Starts of arrows by their id (ns), and ids of arrows that end at a device's work by place and
            time (pid, tid, ns): older files say only so what submitted what.
    """

    file: str
    header: dict[str, Any]
    work: list[Work] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    records: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    flow_starts: dict[str, int] = field(default_factory=dict)
    flow_ends: dict[tuple[str, str, int], str] = field(default_factory=dict)


def sort_events(file: str, header: dict[str, Any], events: list[Any]) -> Events:
    """Sort the events of a trace by what they say; what says nothing about device or host is left out.

    Raises:
        InputError: An event is none, or lacks what its category needs: names file, index and key.
    """
    found = Events(file, header)
    for index, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"{Place(file, index)}: {shown(event)} is not an event; write an object")
        phase = event.get("ph", "X")
        if phase == "X":
            _sort_span(found, event, Place(file, index))
        elif phase in ("s", "f"):
            _sort_flow(found, event, Place(file, index))
    return found


def _sort_span(found: Events, event: dict[str, Any], place: Place) -> None:
    category = _category(event)
    if category in _WORK:
        found.work.append(_work(event, _WORK[category], place))
    elif category in _HOST:
        found.calls.append(_call(event, place))
    elif category == _SYNC:
        found.syncs.append(_sync(event, place))
    elif category == _EVENT:
        _take_record(found, event, place)
    elif category in _STEP_CATEGORIES:
        _take_step(found, event, place)


def _category(event: dict[str, Any]) -> str:
    category = event.get("cat")
    return category.lower() if isinstance(category, str) else ""


def _work(event: dict[str, Any], kind: Device, place: Place) -> Work:
    args = _args(event, place)
    start, duration = _span(event, place)
    return Work(
        kind=kind,
        name=_text(event, place),
        device=_device(event, args, place),
        stream=_stream(event, args, place),
        start_ns=start,
        duration_ns=duration,
        correlation=_correlation(args, place),
        args=args,
        place=place,
    )


def _call(event: dict[str, Any], place: Place) -> Call:
    args = _args(event, place)
    start, duration = _span(event, place)
    return Call(
        name=_text(event, place),
        thread=f"{event.get('pid')}/{event.get('tid')}",
        start_ns=start,
        duration_ns=duration,
        correlation=_correlation(args, place),
        args=args,
    )


def _sync(event: dict[str, Any], place: Place) -> Sync:
    args = _args(event, place)
    stream = _known(args, "stream", place)
    return Sync(
        kind=str(args.get("cuda_sync_kind") or event.get("name", "")),
        device=_device(event, args, place),
        stream=stream,
        on_stream=_known(args, "wait_on_stream", place),
        record=_known(args, "wait_on_cuda_event_record_corr_id", place),
        event=_known(args, "wait_on_cuda_event_id", place),
        start_ns=time_ns(event.get("ts"), Place(place.file, place.index, "ts")),
        correlation=_correlation(args, place),
        place=place,
    )


def _take_record(found: Events, event: dict[str, Any], place: Place) -> None:
    args = _args(event, place)
    correlation, stream = _correlation(args, place), _known(args, "stream", place)
    if correlation is not None and stream is not None:
        found.records[correlation] = stream, _known(args, "event_id", place)


def _take_step(found: Events, event: dict[str, Any], place: Place) -> None:
    name = event.get("name")
    match = _STEP.match(name) if isinstance(name, str) else None
    if match:
        start, duration = _span(event, place)
        found.steps.append((start, start + duration, int(match[1])))


def _sort_flow(found: Events, event: dict[str, Any], place: Place) -> None:
    if "id" not in event or "ts" not in event:
        return
    at = time_ns(event["ts"], Place(place.file, place.index, "ts"))
    if event["ph"] == "s":
        found.flow_starts.setdefault(str(event["id"]), at)
    else:
        found.flow_ends[str(event.get("pid")), str(event.get("tid")), at] = str(event["id"])


def _args(event: dict[str, Any], place: Place) -> dict[str, Any]:
    args = event.get("args")
    if args is None:
        return {}
    if not isinstance(args, dict):
        raise InputError(f"{Place(place.file, place.index, 'args')}: {shown(args)} is not an object")
    return args


def _text(event: dict[str, Any], place: Place) -> str:
    name = event.get("name")
    if not isinstance(name, str) or not name:
        where = Place(place.file, place.index, "name")
        raise InputError(f"{where}: {shown(name)} is not the name of work or of a call; write text")
    return name


def _span(event: dict[str, Any], place: Place) -> tuple[int, int]:
    start = time_ns(event.get("ts"), Place(place.file, place.index, "ts"))
    return start, duration_ns(event.get("dur"), Place(place.file, place.index, "dur"))


def _correlation(args: dict[str, Any], place: Place) -> int | None:
    """Number of the host's call; 0 and below stand for none."""
    value = args.get("correlation")
    if is_missing(value):
        return None
    number = integer(value, Place(place.file, place.index, "args.correlation"))
    return number if number > 0 else None


def _known(args: dict[str, Any], key: str, place: Place) -> int | None:
    """A number of which -1, in whichever width, says that it is not known."""
    value = args.get(key)
    if is_missing(value):
        return None
    number = _whole(value, Place(place.file, place.index, f"args.{key}"))
    return None if number < 0 or number >= _LARGEST_STREAM else number


def _device(event: dict[str, Any], args: dict[str, Any], place: Place) -> int:
    for key in ("device", "inDevice"):
        if not is_missing(args.get(key)):
            return integer(args[key], Place(place.file, place.index, f"args.{key}"))
    return _named(event.get("pid"), Place(place.file, place.index, "pid"), "of a device")


def _stream(event: dict[str, Any], args: dict[str, Any], place: Place) -> int:
    for key in ("stream", "hipStream"):
        if not is_missing(args.get(key)):
            return _whole(args[key], Place(place.file, place.index, f"args.{key}"))
    return _named(event.get("tid"), Place(place.file, place.index, "tid"), "of a stream")


def _named(value: object, where: Place, what: str) -> int:
    """A number that stands in place of a name, or at its end, as in ``stream 7``."""
    match = _LAST_NUMBER.search(bare(value)) if isinstance(value, str) else None
    return integer(match[1] if match else value, where, f"the number {what}")


def _whole(value: object, where: Place) -> int:
    """A whole number, or an address such as ``0x7f``."""
    text = bare(value).lower() if isinstance(value, str) else ""
    if text.startswith("0x") and 2 < len(text) <= 18 and all(c in "0123456789abcdef" for c in text[2:]):
        return int(text, 16)
    return integer(value, where)
