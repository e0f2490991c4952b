"""Streams that wait for each other, or could: for work, for records, for each other's locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.acl.state.order import clocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.acl.state.evidence import Hold
    from cann_env.acl.state.objects import Signal
    from cann_env.acl.state.order import Clock
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work

_LONGEST = 4
"""Most streams of a circle that is looked for."""


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Streams that wait for each other; see :class:`~cann_env.acl.checks.hazards.Hazard`."""

    what: str
    first: str
    second: str
    streams: tuple[int, ...]
    fix: str
    circle: bool = False


def stuck(run: Simulator) -> Iterator[Deadlock]:
    """Work that never starts: the first of each stream."""
    works = [run.log[i] for device in run.devices.values() for i in sorted(device.stuck)]
    inside = {work.index for work in works}
    told: set[int] = set()
    for work in works:
        if work.stream in told:
            continue
        told.add(work.stream)
        missing = [signal for signal in work.signals if signal.after is None]
        if missing:
            if missing[0].notify:
                yield _never_recorded(
                    missing[0], f"{work.label} on stream {work.stream} never starts", work.site
                )
            continue
        others = {run.log[j].stream: run.log[j] for j in work.all_waits if j in inside}
        if not others:
            continue
        circle = _circle(run, work, inside)
        names = ", ".join(map(str, sorted(others)))
        why = f"which wait{'s' if len(others) == 1 else ''} for it in turn" if circle else "which never comes"
        other = next(iter(others.values()))
        yield Deadlock(
            f"{work.label} on stream {work.stream} never starts: it waits for work on stream {names}, {why}",
            work.site,
            other.site,
            (work.stream, *sorted(others)),
            "record before waiting on one of the streams, or take exclusive resources in the same order on "
            "all of them",
            circle,
        )


def _circle(run: Simulator, work: Work, inside: set[int]) -> bool:
    """Whether a piece of work waits for itself in the end."""
    open_ones, seen = [work.index], set()
    while open_ones:
        at = run.log[open_ones.pop()]
        for j in (at.previous, *at.all_waits):
            if j == work.index:
                return True
            if j >= 0 and j in inside and j not in seen:
                seen.add(j)
                open_ones.append(j)
    return False


def _never_recorded(signal: Signal, what: str, second: str) -> Deadlock:
    return Deadlock(
        f"{what}: stream {signal.stream} waits since {signal.site} for a record of notify {signal.owner} "
        "that never comes",
        signal.site,
        second,
        (signal.stream,),
        f"record notify {signal.owner} on a stream that does not wait for this one itself",
    )


def lost(run: Simulator) -> Iterator[Deadlock]:
    """Synchronisations of the host that nothing ends, although the streams go on later."""
    never = {i for device in run.devices.values() for i in device.stuck}
    for wait in run.evidence.stuck:
        if wait.circles:
            yield from wait.circles
        elif wait.work is not None and wait.work.index not in never:
            yield Deadlock(
                f"the host waits for {wait.what} at {wait.site}, and {wait.work.label} there waits for what "
                "the host submits only later",
                wait.work.site,
                wait.site,
                (wait.work.stream, -1),
                f"submit what is waited for before {wait.site}",
            )
        elif wait.signal is not None and wait.signal.notify and wait.signal.after is None:
            yield _never_recorded(wait.signal, f"the host waits for {wait.what} at {wait.site}", wait.site)
        elif wait.signal is not None and wait.signal.after is not None:
            yield Deadlock(
                f"the host waits for {wait.what} at {wait.site}, whose wait of {wait.signal.site} is for "
                "what is recorded only later",
                wait.signal.site,
                wait.site,
                (wait.signal.stream, -1),
                f"record what is waited for before {wait.site}",
            )


def crossed(run: Simulator) -> Iterator[Deadlock]:
    """Exclusive resources that streams take in different orders, whether or not it went well this time.

    A notify is a resource where the stream that waited for it records it afterwards, that is, gives it back.
    """
    edges: dict[int, list[tuple[Hold, Hold]]] = {}
    for taken in run.evidence.holds:
        for held in taken.held:
            if taken.last is not None and held.last is not None:
                edges.setdefault(held.resource.handle, []).append((held, taken))
    if not edges:
        return
    known = clocks(run.log, run.log, locks=False)
    told: set[frozenset[int]] = set()
    for start in edges:
        for path in _paths(edges, start):
            resources = frozenset(held.resource.handle for held, _ in path)
            if resources not in told and _together(run, path, known):
                told.add(resources)
                yield _told_of(path)


def _paths(edges: dict[int, list[tuple[Hold, Hold]]], start: int) -> Iterator[tuple[tuple[Hold, Hold], ...]]:
    """Circles of resources, each held while the next is taken, on streams that differ."""
    open_ones: list[tuple[tuple[Hold, Hold], ...]] = [(edge,) for edge in edges[start]]
    while open_ones:
        path = open_ones.pop()
        at = path[-1][1].resource.handle
        if at == start:
            yield path
            continue
        if len(path) == _LONGEST:
            continue
        streams = {held.stream for held, _ in path}
        open_ones += [(*path, edge) for edge in edges.get(at, ()) if edge[0].stream not in streams]


def _together(run: Simulator, path: Sequence[tuple[Hold, Hold]], known: dict[int, Clock]) -> bool:
    """Whether nothing else keeps the streams of a circle from holding their resources at the same time."""
    if len(path) < 2 or set.intersection(*({h.resource.handle for h in _gates(edge)} for edge in path)):
        return False
    holds = [held for held, _ in path]
    return not any(
        _ends_before(run, one, other, known) for one in holds for other in holds if one is not other
    )


def _gates(edge: tuple[Hold, Hold]) -> list[Hold]:
    held, taken = edge
    return [other for other in taken.held if other is not held]


def _ends_before(run: Simulator, one: Hold, other: Hold, known: dict[int, Clock]) -> bool:
    """Whether one is given back before the other is taken, by something that is not itself a resource."""
    work = next((w for w in run.log if w.stream == other.stream and w.position >= other.first), None)
    if work is None or one.last is None:
        return False
    return known[work.index].get(one.stream, -1) >= one.last


def _told_of(path: Sequence[tuple[Hold, Hold]]) -> Deadlock:
    (held, taken), *_, (other_held, other_taken) = path
    orders = "; ".join(
        f"stream {one.stream} takes notify {one.resource.handle} (at {one.site}) and then "
        f"{two.resource.handle} (at {two.site})"
        for one, two in path
    )
    return Deadlock(
        f"{orders}: each can hold what the next one waits for",
        taken.site,
        other_taken.site,
        tuple(one.stream for one, _ in path),
        f"take notify {held.resource.handle} before {other_held.resource.handle} on both streams"
        if len(path) == 2
        else "take them in the same order on all streams",
    )
