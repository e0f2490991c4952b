"""Causes and delays of one step carried over to another step of the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.profiles.recording import Verdict
from cann_env.workloads.recorded_links import Links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.profiles.recording import Report
    from cann_env.workloads.recorded_tasks import Entry

_Key = tuple[int, int | str, int]


def carried_over(links: Links, origin: Sequence[Entry], target: Sequence[Entry], report: Report) -> Links:
    """The same links between the tasks of another step with the same streams and task ids (or names).

    Edges and delays come from the origin; what the profiler puts in and the latency of launches, which
    ``links`` has for the origin, are not carried over.

    Args:
        links: Of the origin.
        origin: Tasks of the step that they come from.
        target: Tasks of the step that takes them.
        report: Takes how much found its counterpart.
    """
    keys, places = _keys(origin), {key: i for i, key in enumerate(_keys(target))}
    there = [places.get(key) for key in keys]
    edges = [
        edge._replace(cause=cause, task=task)
        for edge in links.edges
        if (cause := there[edge.cause]) is not None and (task := there[edge.task]) is not None
    ]
    delays = {place: idle for i, idle in links.delays.items() if (place := there[i]) is not None}
    lost = len(links.edges) - len(edges) + len(links.delays) - len(delays)
    report.note(Verdict.GUESSED, "edges and delays taken from another step", count=len(edges) + len(delays))
    if lost:
        report.note(Verdict.DROPPED, "edges and delays of another step without a counterpart", count=lost)
    return Links(tuple(edges), delays, {}, 0)


def _keys(entries: Sequence[Entry]) -> list[_Key]:
    """Stream, task id or name, and how often that came before."""
    counts: dict[tuple[int, int | str], int] = {}
    keys = []
    for entry in entries:
        task = entry.task
        name = task.stream, task.name if task.task_id is None else task.task_id
        counts[name] = counts.get(name, 0) + 1
        keys.append((*name, counts[name]))
    return keys
