"""Computing against communication, as the profiler's *Overlap Analysis* shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.commands import CommandKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.schedule import Schedule

Spans = list[tuple[int, int]]
"""Pairs (start, finish) in order, of which no two touch."""


def overlap(schedule: Schedule) -> tuple[Spans, Spans, Spans, Spans]:
    """When the device computes, communicates, only communicates, and does neither.

    Returns:
        Four lists of spans (ns): kernels; collectives; collectives without a kernel beside them; and the rest
        of the run up to its makespan.
    """
    kinds = {i: command.kind for i, command in enumerate(schedule.graph.commands)}
    computing = _union(_runs(schedule, kinds, CommandKind.KERNEL))
    communicating = _union(_runs(schedule, kinds, CommandKind.COLLECTIVE))
    alone = _without(communicating, computing)
    free = _without([(0, schedule.makespan_ns)], _union([*computing, *communicating]))
    return computing, communicating, alone, free


def _runs(schedule: Schedule, kinds: dict[int, CommandKind], kind: CommandKind) -> Spans:
    return [(run.start_ns, run.finish_ns) for run in schedule.commands if kinds[run.command] is kind]


def _union(spans: Iterable[tuple[int, int]]) -> Spans:
    merged: Spans = []
    for start, finish in sorted(spans):
        if start == finish:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], finish)
        else:
            merged.append((start, finish))
    return merged


def _without(spans: Spans, others: Spans) -> Spans:
    """What is left of ``spans`` when ``others`` are cut out; both in order and apart."""
    left: Spans = []
    for start, finish in spans:
        at = start
        for begin, end in others:
            if end <= at or begin >= finish:
                continue
            if begin > at:
                left.append((at, begin))
            at = max(at, end)
        if at < finish:
            left.append((at, finish))
    return left
