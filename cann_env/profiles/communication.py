"""``communication.json`` of the Ascend PyTorch profiler: what each collective moved and how long it waited.

The layout is that of the profiler's documentation: by step, by kind (``p2p``, ``collective``), by name of the
operation with its group behind an ``@``, times in milliseconds, sizes in megabytes (10**6 bytes) by link.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.profiles.fields import is_missing, number, shown, time_ns
from cann_env.profiles.json_files import read_json
from cann_env.profiles.recording import Task, TaskKind, Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cann_env.profiles.recording import Report

_TOTAL = "Total Op Info"
_TIMES = "Communication Time Info"
_LINKS = "Communication Bandwidth Info"
_NEAR_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the file says of one operation.

    Attributes:
        name: Without its group.
        start_ns: On the recorder's clock, to the microsecond or so; None if not stated.
        elapsed_ns, transit_ns, wait_ns: In all, moving bytes, waiting for others.
        size_bytes: Bytes over links.
        place: File and key, for messages.
    """

    name: str
    start_ns: int | None
    elapsed_ns: int
    transit_ns: int
    wait_ns: int
    size_bytes: int
    place: str


def read_communication(path: Path) -> list[Figures]:
    """All operations of a file.

    Raises:
        InputError: Not such a file, or a value in it is not what its name says.
    """
    content = read_json(path)
    found = []
    for step, kinds in _object(content, path.name).items():
        for kind, operations in _object(kinds, f"{path.name}, {step}").items():
            for name, figures in _object(operations, f"{path.name}, {step}, {kind}").items():
                place = f"{path.name}, {step}, {kind}, {name}"
                if name != _TOTAL:
                    found.append(_figures(name, _object(figures, place), place))
    return found


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} is not an object of operations by step, kind and name")
    return value


def _figures(name: str, figures: Mapping[str, object], place: str) -> Figures:
    times = _object(figures.get(_TIMES, {}), f"{place}, {_TIMES}")
    links = _object(figures.get(_LINKS, {}), f"{place}, {_LINKS}")
    start = times.get("Start Timestamp(us)")
    return Figures(
        name=name.partition("@")[0],
        start_ns=None if is_missing(start) else time_ns(start, f"{place}, Start Timestamp(us)"),
        elapsed_ns=_milliseconds(times, "Elapse Time(ms)", place),
        transit_ns=_milliseconds(times, "Transit Time(ms)", place),
        wait_ns=_milliseconds(times, "Wait Time(ms)", place),
        size_bytes=_bytes(links, place),
        place=place,
    )


def _milliseconds(times: Mapping[str, object], key: str, place: str) -> int:
    value = times.get(key)
    return 0 if is_missing(value) else max(time_ns(value, f"{place}, {key}", "ms"), 0)


def _bytes(links: Mapping[str, object], place: str) -> int:
    """Bytes over RDMA and over SDMA, which is the sum of the links that it drives."""
    sizes = {}
    for link, figures in links.items():
        value = _object(figures, f"{place}, {link}").get("Transit Size(MB)")
        if not is_missing(value):
            size = number(value, f"{place}, {link}, Transit Size(MB)", "a size in megabytes")
            sizes[link] = max(round(size * 10**6), 0)
    driven = sum(size for link, size in sizes.items() if link not in ("SDMA", "RDMA"))
    return max(sizes.get("SDMA", 0), driven) + sizes.get("RDMA", 0)


def with_figures(
    tasks: Sequence[Task], figures: Sequence[Figures], origin_ns: int, report: Report
) -> list[Task]:
    """Completes collectives with bytes and with waits for peers that no task of the timeline shows.

    A collective in one piece gets its bytes. Of one that is only a span, without a task of the hardware, what
    it waited stands in front of its own part: where in it the device waited is not recorded, and a device
    whose peers come late waits before it does anything.
    ``origin_ns`` is what was taken off the starts of the tasks.
    """
    named: dict[str, list[Figures]] = defaultdict(list)
    for one in figures:
        named[one.name].append(one)
    pieces = Counter(_operation(task) for task in tasks)
    found: list[Task] = []
    for task in tasks:
        own = named.get(task.name, []) if task.kind is TaskKind.COLLECTIVE else []
        figure = _nearest(own, task.start_ns + origin_ns)
        if figure is None or (task.task_id is not None and pieces[_operation(task)] > 1):
            found.append(task)
        else:
            found += _completed(task, figure, report)
    return found


def _operation(task: Task) -> tuple[str, int, int | None, int | None]:
    return task.name, task.stream, task.task_id, task.launch_ns


def _nearest(figures: Sequence[Figures], at_ns: int) -> Figures | None:
    """The operation that began then; names come again in every step."""

    def distance(one: Figures) -> int:
        return 0 if one.start_ns is None else abs(one.start_ns - at_ns)

    best = min(figures, key=distance, default=None)
    return best if best is not None and distance(best) <= _NEAR_NS else None


def _completed(task: Task, one: Figures, report: Report) -> list[Task]:
    size = task.size_bytes or one.size_bytes
    wait = min(one.wait_ns, task.duration_ns) if task.task_id is None else 0
    report.note(Verdict.RECOGNISED, "collectives with sizes and waits of communication.json", one.place)
    own = replace(task, size_bytes=size, start_ns=task.start_ns + wait, duration_ns=task.duration_ns - wait)
    if not wait:
        return [own]
    report.note(Verdict.GUESSED, "waits for peers, put in front of their collective", one.place)
    return [replace(task, kind=TaskKind.PEER_WAIT, duration_ns=wait, size_bytes=0), own]
