"""A recording beside its replay: errors of times, and how much work overlapped on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Spread(NamedTuple):
    """Of a set of times or errors (ns): how many, the median and the 90th percentile."""

    count: int
    median_ns: float
    p90_ns: float


class Segment(NamedTuple):
    """The work of all streams between two waits for something outside.

    Attributes:
        stream: Recorded number of the stream.
        tasks: How many.
        recorded_ns, simulated_ns: From the end of the wait before to the last finish.
        error: ``simulated / recorded - 1``.
    """

    stream: int
    tasks: int
    recorded_ns: int
    simulated_ns: int
    error: float


class OperatorRow(NamedTuple):
    """Tasks of one operator type: how many, their time on both sides, and the error of single durations."""

    op: str
    count: int
    recorded_ns: int
    simulated_ns: int
    median_error: float
    p90_error: float


class GapRow(NamedTuple):
    """Idle time between neighbours of a stream, by their kinds (``"kernel > copy"``), on both sides."""

    pair: str
    recorded: Spread
    simulated: Spread


class Overlap(NamedTuple):
    """Sum of busy times, their union (ns), and the first over the second."""

    busy_ns: int
    union_ns: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A recording and its replay side by side.

    Attributes:
        recorded_ns, simulated_ns: Makespans.
        error: ``simulated / recorded - 1``.
        starts: Absolute errors of starts, both sides counted from their first start.
        starts_between_waits: The same, each counted from the end of the last external wait or delay before it
            on its side, so that a wait for others does not hide errors.
        segments: See :class:`Segment`.
        operators: By type, the longest first.
        gaps: See :class:`GapRow`.
        overlap_recorded, overlap_simulated: Of all that works; waits do not.
        external_ns: Sum of external delays that no task stands for.
        external: How many of them.
        profiler_ns: Sum of the profiler's own gaps.
        guessed_edges, recorded_edges: Edges between streams.
    """

    recorded_ns: int
    simulated_ns: int
    error: float
    starts: Spread
    starts_between_waits: Spread
    segments: tuple[Segment, ...]
    operators: tuple[OperatorRow, ...]
    gaps: tuple[GapRow, ...]
    overlap_recorded: Overlap
    overlap_simulated: Overlap
    external_ns: int
    external: int
    profiler_ns: int
    guessed_edges: int
    recorded_edges: int
