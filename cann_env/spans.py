"""Sets of moments as spans: pairs (start, finish) of whole nanoseconds, of which ``finish`` is left out.

A span that does not finish behind its start holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> list[Span]:
    """The same moments as spans in order, of which no two touch."""
    merged: list[Span] = []
    for start, finish in sorted(spans):
        if finish <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], finish)
        else:
            merged.append((start, finish))
    return merged


def without(spans: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    """What is left of ``spans`` when ``others`` are cut out; both in order and apart, as of :func:`union`."""
    left: list[Span] = []
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


def covered_ns(spans: Iterable[Span]) -> int:
    """How many moments at least one span holds, in ns."""
    return sum(finish - start for start, finish in union(spans))
