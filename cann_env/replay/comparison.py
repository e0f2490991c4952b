"""A recording beside its replay: errors of times, and how much work overlapped on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.replay.anchors import anchored_errors, segments
from cann_env.replay.path import critical_path
from cann_env.spans import covered_ns
from cann_env.workloads.recorded_links import Evidence
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.replay.anchors import Segment
    from cann_env.replay.path import Path
    from cann_env.schedule import Schedule
    from cann_env.workloads.from_profiler import Imported


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a set of times or errors (ns): how many, the median and the 90th percentile."""

    count: int
    median_ns: float
    p90_ns: float


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Commands of one operator type, or of one kind where they have none.

    Attributes:
        op: The type or kind.
        count: How many.
        recorded_ns, simulated_ns: Sums.
        median_error, p90_error: Of single commands, ``|simulated / recorded - 1|``.
    """

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
    """Sum of busy times and their union (ns), and the first over the second."""

    busy_ns: int
    union_ns: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A recording and its replay side by side; on each side times count from its first start.

    Attributes:
        recorded_ns, simulated_ns: Makespans.
        error: ``simulated / recorded - 1``.
        starts: Absolute errors of starts of all that was recorded.
        starts_between_waits: The same of work, each from the end of the last external wait or delay that it
            comes after on its side, so that waiting for others does not hide errors.
        segments: See :class:`~cann_env.replay.anchors.Segment`.
        operators: By type, the longest first; waits and delays aside.
        gaps: See :class:`GapRow`, the most frequent first.
        overlap_recorded, overlap_simulated: Of work; collectives, waits and delays aside.
        path: What the simulated makespan consists of.
        delays, delay_ns: Idle times beyond what streams, launches and edges explain, and their sum.
        edge_delays, edge_delay_ns: Those of them that follow an edge: only the time beyond it is pinned.
        peers, peer_ns: Collectives and waits for other devices, whose length was recorded, and their sum.
        profiler_ns: Sum of the profiler's own gaps.
        recorded_edges, event_edges, rest_edges: Edges between streams, by how they are known, see
            :class:`~cann_env.workloads.recorded_links.Evidence`.
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
    path: Path
    delays: int
    delay_ns: int
    edge_delays: int
    edge_delay_ns: int
    peers: int
    peer_ns: int
    profiler_ns: int
    recorded_edges: int
    event_edges: int
    rest_edges: int


class Side(NamedTuple):
    """Starts and finishes of all commands (ns), from the first start."""

    starts: Sequence[int]
    finishes: Sequence[int]


def compare(imported: Imported, schedule: Schedule) -> Comparison:
    """Compare a recording with the schedule of its replay, whose commands stand in the same order."""
    recorded = _from_first(imported.starts_ns, imported.finishes_ns, imported.roles)
    runs = sorted(schedule.commands, key=lambda run: run.command)
    simulated = _from_first([r.start_ns for r in runs], [r.finish_ns for r in runs], imported.roles)
    real = [i for i, role in enumerate(imported.roles) if role in (Role.WORK, Role.PEER)]
    work = [i for i in real if imported.roles[i] is Role.WORK]
    ends = max(recorded.finishes[i] for i in real), max(simulated.finishes[i] for i in real)
    evidence = [edge.evidence for edge in imported.links.edges]
    followed = {edge.task for edge in imported.links.edges}
    behind = [idle for i, idle in imported.links.delays.items() if i in followed]
    return Comparison(
        recorded_ns=ends[0],
        simulated_ns=ends[1],
        error=_error(*ends),
        starts=spread(abs(simulated.starts[i] - recorded.starts[i]) for i in real),
        starts_between_waits=spread(anchored_errors(imported, recorded, simulated)),
        segments=segments(imported, recorded, simulated),
        operators=_operators(imported, recorded, simulated, work),
        gaps=_gaps(imported, recorded, simulated, real),
        overlap_recorded=_overlap(recorded, work),
        overlap_simulated=_overlap(simulated, work),
        path=critical_path(imported, schedule),
        delays=imported.roles.count(Role.DELAY),
        delay_ns=imported.total_ns(Role.DELAY),
        edge_delays=len(behind),
        edge_delay_ns=sum(behind),
        peers=imported.roles.count(Role.PEER),
        peer_ns=imported.total_ns(Role.PEER),
        profiler_ns=imported.total_ns(Role.PROFILER),
        recorded_edges=evidence.count(Evidence.RECORDED),
        event_edges=evidence.count(Evidence.EVENT),
        rest_edges=evidence.count(Evidence.REST),
    )


def spread(values: Iterable[float]) -> Spread:
    """Count, median and 90th percentile; zeros of nothing."""
    found = np.fromiter(values, np.float64)
    if not found.size:
        return Spread(0, 0.0, 0.0)
    return Spread(int(found.size), float(np.median(found)), float(np.percentile(found, 90)))


def _from_first(starts: Sequence[int], finishes: Sequence[int], roles: Sequence[Role]) -> Side:
    first = min(s for s, role in zip(starts, roles, strict=True) if role in (Role.WORK, Role.PEER))
    return Side([s - first for s in starts], [f - first for f in finishes])


def _error(recorded: int, simulated: int) -> float:
    return simulated / recorded - 1 if recorded else 0.0


def _operators(
    imported: Imported, recorded: Side, simulated: Side, work: Sequence[int]
) -> tuple[OperatorRow, ...]:
    groups: dict[str, list[tuple[int, int]]] = {}
    for i in work:
        command = imported.graph.commands[i]
        op = command.kernels[0].op if command.kernels else ""
        lengths = recorded.finishes[i] - recorded.starts[i], simulated.finishes[i] - simulated.starts[i]
        groups.setdefault(op or _kind(imported, i), []).append(lengths)
    rows = [_row(op, pairs) for op, pairs in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.recorded_ns, row.op)))


def _row(op: str, lengths: Sequence[tuple[int, int]]) -> OperatorRow:
    errors = [abs(_error(*pair)) for pair in lengths]
    return OperatorRow(
        op=op,
        count=len(lengths),
        recorded_ns=sum(recorded for recorded, _ in lengths),
        simulated_ns=sum(simulated for _, simulated in lengths),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
    )


def _kind(imported: Imported, i: int) -> str:
    return imported.recording.tasks[imported.tasks[i]].kind.value


def _gaps(imported: Imported, recorded: Side, simulated: Side, real: Sequence[int]) -> tuple[GapRow, ...]:
    last: dict[int | None, int] = {}
    groups: dict[str, list[tuple[int, int]]] = {}
    for i in real:
        hint = imported.graph.commands[i].stream_hint
        before = last.get(hint)
        last[hint] = i
        if before is not None:
            pair = f"{_kind(imported, before)} > {_kind(imported, i)}"
            idle = [side.starts[i] - side.finishes[before] for side in (recorded, simulated)]
            groups.setdefault(pair, []).append((idle[0], idle[1]))
    rows = [
        GapRow(pair, spread(a for a, _ in idle), spread(b for _, b in idle)) for pair, idle in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.recorded.count, row.pair)))


def _overlap(side: Side, work: Sequence[int]) -> Overlap:
    spans = [(side.starts[i], side.finishes[i]) for i in work]
    busy, union = sum(finish - start for start, finish in spans), covered_ns(spans)
    return Overlap(busy, union, busy / union if union else 1.0)
