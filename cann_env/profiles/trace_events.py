"""Chrome trace events of one file, sorted by what process wrote them: hardware, host, collectives.

Processes are told by the names that the file itself gives them, never by their numbers.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from cann_env.profiles.fields import duration_ns, integer, is_missing, shown, time_ns
from cann_env.profiles.json_files import read_json
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Layer(enum.StrEnum):
    """Who wrote an event."""

    HARDWARE = "hardware"
    HOST = "host"
    COLLECTIVES = "collectives"
    FRAMEWORK = "framework"
    CLOCK = "clock"
    NONE = "none"


_MOST = 2**63 - 1
_LAYERS = {
    "ascend hardware": Layer.HARDWARE,
    "task scheduler": Layer.HARDWARE,
    "npu": Layer.HARDWARE,
    "cann": Layer.HOST,
    "ascendcl": Layer.HOST,
    "acl": Layer.HOST,
    "runtime": Layer.HOST,
    "node": Layer.HOST,
    "ge": Layer.HOST,
    "hccl": Layer.COLLECTIVES,
    "communication": Layer.COLLECTIVES,
    "python": Layer.FRAMEWORK,
    "pytorch": Layer.FRAMEWORK,
    "mindspore": Layer.FRAMEWORK,
    "ai core freq": Layer.CLOCK,
    "aicore freq": Layer.CLOCK,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name, category, process, thread: As written.
        start_ns, duration_ns: On the recorder's clock.
        args: As written, names in lower case without blanks and underscores.
        place: File and number of the event, from 0.
    """

    name: str
    category: str
    process: object
    thread: object
    start_ns: int
    duration_ns: int
    args: dict[str, object]
    place: str

    @property
    def finish_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns

    def arg(self, *names: str) -> object:
        """The first of some arguments that says anything, however its name is spelt; None if none does."""
        for name in names:
            value = self.args.get(_plain(name))
            if not is_missing(value):
                return value
        return None

    def number(self, *names: str, least: int | None = None) -> int | None:
        """The first of some arguments that says anything, as a whole number; None if none does.

        Raises:
            InputError: Not a whole number of at least ``least``.
        """
        value = self.arg(*names)
        if value is None or (type(value) is int and (least or 0) <= value <= _MOST):
            return value
        return integer(value, f"{self.place}, argument {names[0]!r}", least=least)


@dataclass(slots=True)
class Trace:
    """The events of a file.

    Attributes:
        ranges: Complete events by layer.
        counters: Counter events of the clock.
        threads: Names of threads by process and thread.
        arrows: Where arrows end, by process, thread and time, to where they start (ns); of each category.
        headless: Ends of arrows without a start.
        ignored: Events of processes that say nothing about tasks.
        devices: Number of hardware processes that were there; the fullest is kept.
    """

    ranges: dict[Layer, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counters: list[Event] = field(default_factory=list)
    threads: dict[tuple[object, object], str] = field(default_factory=dict)
    arrows: dict[str, dict[tuple[object, object, int], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    headless: int = 0
    ignored: int = 0
    devices: int = 0


def read_trace(path: Path) -> Trace:
    """Reads a Chrome trace: a list of events, or an object with ``traceEvents``.

    Raises:
        InputError: Not such a file, or an event in it is not one: names its number.
    """
    content = read_json(path)
    if isinstance(content, dict):
        content = content.get("traceEvents")
    if not isinstance(content, list):
        raise InputError(
            f"{path}: not a trace; it should be a list of events or an object with one called traceEvents"
        )
    events = list(_objects(content, path))
    layers = _layers(events)
    trace = Trace(threads=_threads(events), devices=sum(one is Layer.HARDWARE for one in layers.values()))
    kept = _fullest(events, layers)
    arrows = [found for found in events if found[0].get("ph") in ("s", "f")]
    for event, place in events:
        if event.get("ph") not in ("X", "C"):
            continue
        layer = layers.get(event.get("pid"), Layer.NONE)
        if layer is Layer.NONE or (layer is Layer.HARDWARE and event.get("pid") != kept):
            trace.ignored += 1
        elif event.get("ph") == "X":
            trace.ranges[layer].append(_event(event, place))
        elif layer is Layer.CLOCK:
            trace.counters.append(_event(event, place))
    _join(arrows, trace)
    return trace


def _objects(content: list[object], path: Path) -> Iterator[tuple[dict[str, object], str]]:
    for index, event in enumerate(content):
        if not isinstance(event, dict):
            raise InputError(f"{path}, event {index}: {shown(event)} is not an event; write an object")
        for key in ("pid", "tid"):
            if not isinstance(event.get(key, 0), int | str | None):
                what = "the number or name of a process"
                raise InputError(f"{path}, event {index}, {key}: {shown(event[key])} is not {what}")
        if not isinstance(event.get("args", {}), dict | None):
            raise InputError(f"{path}, event {index}, args: {shown(event['args'])} is not an object")
        yield event, f"{path.name}, event {index}"


def _layers(events: list[tuple[dict[str, object], str]]) -> dict[object, Layer]:
    found = {}
    for event, _ in events:
        if event.get("ph") == "M" and event.get("name") == "process_name":
            args = event.get("args")
            name = str(args.get("name", "")) if isinstance(args, dict) else ""
            found[event.get("pid")] = _layer(name)
    return found


def _layer(name: str) -> Layer:
    """The layer of a process: by its whole name, or by its name before a number or a bracket."""
    words = " ".join(name.lower().replace("_", " ").split())
    while words and words not in _LAYERS:
        shorter = words.rstrip("0123456789()[]:- ")
        if shorter == words:
            shorter = words.rpartition("(")[0].rstrip()
        words = shorter
    return _LAYERS.get(words, Layer.NONE)


def _threads(events: list[tuple[dict[str, object], str]]) -> dict[tuple[object, object], str]:
    found = {}
    for event, _ in events:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            args = event.get("args")
            if isinstance(args, dict):
                found[event.get("pid"), event.get("tid")] = str(args.get("name", ""))
    return found


def _fullest(events: list[tuple[dict[str, object], str]], layers: dict[object, Layer]) -> object:
    """The hardware process with most events: a recording is of one device."""
    count = Counter(
        event.get("pid")
        for event, _ in events
        if event.get("ph") == "X" and layers.get(event.get("pid")) is Layer.HARDWARE
    )
    return count.most_common(1)[0][0] if count else None


def _join(arrows: list[tuple[dict[str, object], str]], trace: Trace) -> None:
    """Joins the ends of arrows to their starts, by category and number."""
    starts: dict[tuple[str, str], int] = {}
    ends: list[tuple[tuple[str, str], tuple[object, object, int]]] = []
    for event, place in arrows:
        key = _category(event), str(event.get("id"))
        at = time_ns(event.get("ts"), f"{place}, ts")
        if event.get("ph") == "s":
            starts.setdefault(key, at)
        else:
            ends.append((key, (event.get("pid"), event.get("tid"), at)))
    for key, end in ends:
        if key in starts:
            trace.arrows[key[0]][end] = starts[key]
        else:
            trace.headless += 1


def _category(event: dict[str, object]) -> str:
    """The category of an arrow; early releases have it as a part of the name only, before a number."""
    return str(event.get("cat") or str(event.get("name", "")).rstrip("0123456789_ "))


def _event(event: dict[str, object], place: str) -> Event:
    args = event.get("args")
    is_range = event.get("ph") == "X"
    return Event(
        name=str(event.get("name", "")),
        category=str(event.get("cat", "")),
        process=event.get("pid"),
        thread=event.get("tid"),
        start_ns=time_ns(event.get("ts"), f"{place}, ts"),
        duration_ns=duration_ns(event.get("dur"), f"{place}, dur") if is_range else 0,
        args={_plain(key): value for key, value in args.items()} if isinstance(args, dict) else {},
        place=place,
    )


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in " _-")
