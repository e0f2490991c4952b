"""The events of a trace as plain dicts: names of tracks, slices, ends of arrows, counters.

Times are microseconds, written so that whole nanoseconds survive.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cann_env.render.series import Series

Event = dict[str, Any]


class Process(IntEnum):
    """The groups of tracks, in the order they are shown; the value is the trace's ``pid``."""

    STREAMS = 1
    ENGINES = 2
    HOST = 3
    TRANSFERS = 4


class Timed(NamedTuple):
    """An event and its exact time."""

    at_ns: int
    event: Event


_TRACKS_PER_PROCESS = 1_000_000


def in_order(parts: Iterable[Iterable[Timed]]) -> list[Event]:
    """The events of all parts by time; within an instant the parts as they come, each in its own order.

    Viewers bind the end of an arrow to the slice that was opened last, so a part lists such an end right
    behind its slice, and a part that arrows leave stands before the parts where they arrive.
    """
    timed = [event for part in parts for event in part]
    return [event for _, event in sorted(timed, key=lambda each: each.at_ns)]


def us(ns: int) -> float:
    """Microseconds that give back ``ns`` whether a viewer rounds the thousandfold or cuts it off."""
    value = ns / 1000
    return value if int(value * 1000) == ns else math.nextafter(value, math.inf)


def track(process: Process, row: int) -> dict[str, int]:
    """Where a slice stands."""
    return {"pid": int(process), "tid": process * _TRACKS_PER_PROCESS + row}


def piece(
    process: Process, row: int, name: str, start_ns: int, finish_ns: int, category: str, **args: Any
) -> Timed:
    """A slice."""
    event = {
        "ph": "X",
        **track(process, row),
        "ts": us(start_ns),
        "dur": us(finish_ns - start_ns),
        "name": name,
        "cat": category,
        "args": args,
    }
    return Timed(start_ns, event)


def arrow_end(process: Process, row: int, at_ns: int, number: int, category: str, *, head: bool) -> Timed:
    """One end of an arrow; it belongs to the slice that is open there."""
    event = {
        "ph": "f" if head else "s",
        "id": number,
        **track(process, row),
        "ts": us(at_ns),
        "name": category,
        "cat": category,
    }
    return Timed(at_ns, {**event, "bp": "e"} if head else event)


def process_name(process: Process) -> Event:
    """What a group of tracks is called."""
    return {
        "ph": "M",
        "pid": int(process),
        "name": "process_name",
        "args": {"name": process.name.capitalize()},
    }


def track_names(process: Process, names: Sequence[str]) -> Iterator[Event]:
    """What the tracks of a group are called, in the order they are shown."""
    yield {"ph": "M", "pid": int(process), "name": "process_sort_index", "args": {"sort_index": int(process)}}
    for row, name in enumerate(names):
        yield {"ph": "M", **track(process, row), "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", **track(process, row), "name": "thread_sort_index", "args": {"sort_index": row}}


def counter(process: Process, name: str, unit: str, series: Series) -> Iterator[Timed]:
    """A step function as a counter."""
    for time, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
        event = {"ph": "C", "pid": int(process), "name": name, "ts": us(time), "args": {unit: value}}
        yield Timed(time, event)
