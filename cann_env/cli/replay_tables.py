"""Tables of replays: recorded, simulated and the error side by side."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from cann_env.cli.tables import plain_table, verdict
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from cann_env.replay import Replay
    from cann_env.replay.anchors import Segment
    from cann_env.replay.comparison import OperatorRow, Spread
    from cann_env.validate import Violation
    from cann_env.workloads.from_profiler import Imported

_OPERATORS_SHOWN = 15
_GAPS_SHOWN = 10
_LONG_NS = 100_000
_ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The replay of one step, or of a recording without steps.

    Attributes:
        step: Its number; None for a whole recording.
        replay: What came of it.
        violations: What the judge found.
    """

    step: int | None
    replay: Replay
    violations: tuple[Violation, ...]

    @property
    def name(self) -> str:
        """What its row is called."""
        return _ALL if self.step is None else f"step {self.step}"


def replay_tables(played: Sequence[Played]) -> Iterator[Table]:
    """All tables, of all steps together where that makes sense, else of each."""
    yield makespan_table(played)
    yield path_table(played)
    yield start_table(played)
    yield segment_table(played)
    yield operator_table(played)
    yield overlap_table(played)
    yield from gap_tables(played)


def percent(error: float) -> str:
    """A signed error; small ones with one more digit."""
    return f"{error:+.2%}" if abs(error) < 0.1 else f"{error:+.1%}"


def makespan_table(played: Sequence[Played]) -> Table:
    """Makespans, and how much of them is delay from outside or from the profiler; the sum if several."""
    table = plain_table(
        "Makespan",
        "step",
        "commands",
        "recorded",
        "simulated",
        "error",
        "peers",
        "delays",
        "profiler",
        "judge",
    )
    for each in played:
        compared = each.replay.comparison
        table.add_row(
            each.name,
            str(len(each.replay.schedule.commands)),
            format_time(compared.recorded_ns),
            format_time(compared.simulated_ns),
            percent(compared.error),
            format_time(compared.peer_ns),
            format_time(compared.delay_ns),
            format_time(compared.profiler_ns),
            verdict(len(each.violations)),
        )
    if len(played) > 1:
        total = total_row(played)
        table.add_row(
            _ALL,
            str(total["commands"]),
            format_time(total["recorded_ns"]),
            format_time(total["simulated_ns"]),
            percent(total["error"]),
            format_time(total["peer_ns"]),
            format_time(total["delay_ns"]),
            format_time(total["profiler_ns"]),
            verdict(sum(len(each.violations) for each in played)),
        )
    table.caption = (
        "Sums over streams. Peers: collectives and waits for other devices. Delays: idle time that nothing "
        "recorded explains. Profiler: its own gaps. All three keep their recorded length."
    )
    return table


def total_row(played: Sequence[Played]) -> dict[str, Any]:
    """Sums over steps, and the error of the sum of their makespans."""
    compared = [each.replay.comparison for each in played]
    recorded = sum(each.recorded_ns for each in compared)
    simulated = sum(each.simulated_ns for each in compared)
    return {
        "commands": sum(len(each.replay.schedule.commands) for each in played),
        "recorded_ns": recorded,
        "simulated_ns": simulated,
        "error": simulated / max(recorded, 1) - 1,
        "peer_ns": sum(each.peer_ns for each in compared),
        "delay_ns": sum(each.delay_ns for each in compared),
        "profiler_ns": sum(each.profiler_ns for each in compared),
    }


def path_table(played: Sequence[Played]) -> Table:
    """What the chain of commands that ends last consists of, and how much is pinned to the recording."""
    table = plain_table(
        "What the simulated makespan consists of",
        "step", "work", "other tasks", "peers", "delays", "profiler", "launches", "dispatch", "pinned",
    )  # fmt: skip
    for each in played:
        path = each.replay.comparison.path
        table.add_row(
            each.name,
            *(format_time(ns) for ns in astuple(path)),
            f"{path.pinned:.1%}",
        )
    table.caption = (
        "Along the chain that ends last. Pinned: tasks of unknown kind (other tasks; some may have waited), "
        "peers, delays, gaps of the profiler and launches, which keep their recorded length or time, so that "
        "they hide errors."
    )
    return table


def start_table(played: Sequence[Played]) -> Table:
    """Absolute errors of starts, from the first start and from the last external wait before each."""
    table = plain_table(
        "Start error per task, absolute",
        "step", "tasks", "median", "9 of 10 within", "median between waits", "9 of 10",
    )  # fmt: skip
    for each in played:
        whole, between = each.replay.comparison.starts, each.replay.comparison.starts_between_waits
        table.add_row(each.name, str(whole.count), *_spread(whole), *_spread(between))
    table.caption = "Between waits: both sides count from the end of the last external wait before the task."
    return table


def _spread(spread: Spread) -> tuple[str, str]:
    return format_time(spread.median_ns), format_time(spread.p90_ns)


def segment_table(played: Sequence[Played]) -> Table:
    """Pieces of streams between waits for other devices: how many, their time on both sides, their errors."""
    table = plain_table(
        "Segments between waits for other devices",
        "step", "segments", "recorded", "simulated", "error", "median", "worst",
    )  # fmt: skip
    for each in played:
        table.add_row(each.name, *_segment_cells(each.replay.comparison.segments))
    if len(played) > 1:
        together = [segment for each in played for segment in each.replay.comparison.segments]
        table.add_row(_ALL, *_segment_cells(together))
    table.caption = (
        "Pieces of streams between waits for other devices: how many, their times on both sides; median and "
        "worst error of those that take 100 us or more."
    )
    return table


def _segment_cells(segments: Sequence[Segment]) -> tuple[str, ...]:
    if not segments:
        return "0", "-", "-", "-", "-", "-"
    recorded = sum(each.recorded_ns for each in segments)
    simulated = sum(each.simulated_ns for each in segments)
    long = [abs(each.error) for each in segments if each.recorded_ns >= _LONG_NS]
    return (
        str(len(segments)),
        format_time(recorded),
        format_time(simulated),
        percent(simulated / max(recorded, 1) - 1),
        *((f"{median(long):.2%}", f"{max(long):.2%}") if long else ("-", "-")),
    )


def operator_table(played: Sequence[Played]) -> Table:
    """Durations by type of operator, those that take longest first."""
    rows = operators_of(played)
    table = plain_table(
        "Durations by operator", "operator", "count", "recorded", "simulated", "error", "median", "p90"
    )
    for row in rows[:_OPERATORS_SHOWN]:
        table.add_row(
            escape(row.op or "(unnamed)"),
            str(row.count),
            format_time(row.recorded_ns),
            format_time(row.simulated_ns),
            percent(row.simulated_ns / max(row.recorded_ns, 1) - 1),
            f"{row.median_error:.2%}",
            f"{row.p90_error:.2%}",
        )
    rest = rows[_OPERATORS_SHOWN:]
    if rest:
        recorded, simulated = sum(r.recorded_ns for r in rest), sum(r.simulated_ns for r in rest)
        table.add_row(
            f"{len(rest)} more", str(sum(r.count for r in rest)), format_time(recorded),
            format_time(simulated), percent(simulated / max(recorded, 1) - 1), "", "",
        )  # fmt: skip
    return table


def operators_of(played: Sequence[Played]) -> list[OperatorRow]:
    """Rows of all steps by operator; errors of several steps are means, weighted by their counts."""
    groups: dict[str, list[OperatorRow]] = defaultdict(list)
    for each in played:
        for row in each.replay.comparison.operators:
            groups[row.op].append(row)
    merged = [_merged(rows) for rows in groups.values()]
    return sorted(merged, key=lambda row: (-row.recorded_ns, row.op))


def _merged(rows: Sequence[OperatorRow]) -> OperatorRow:
    count = sum(row.count for row in rows)
    return replace(
        rows[0],
        count=count,
        recorded_ns=sum(row.recorded_ns for row in rows),
        simulated_ns=sum(row.simulated_ns for row in rows),
        median_error=sum(row.median_error * row.count for row in rows) / count,
        p90_error=sum(row.p90_error * row.count for row in rows) / count,
    )


def overlap_table(played: Sequence[Played]) -> Table:
    """How much work ran at once: sum of busy times over their union."""
    table = plain_table(
        "Overlap of work", "step", "busy, recorded", "simulated", "union, recorded", "simulated",
        "busy/union, recorded", "simulated",
    )  # fmt: skip
    for each in played:
        left, right = each.replay.comparison.overlap_recorded, each.replay.comparison.overlap_simulated
        table.add_row(
            each.name,
            format_time(left.busy_ns), format_time(right.busy_ns),
            format_time(left.union_ns), format_time(right.union_ns),
            f"{left.factor:.3f}", f"{right.factor:.3f}",
        )  # fmt: skip
    return table


def gap_tables(played: Sequence[Played]) -> Iterator[Table]:
    """Idle time between neighbours of a stream; of the only step, or of the first one."""
    first = played[0]
    rows = sorted(first.replay.comparison.gaps, key=lambda row: -row.recorded.count)[:_GAPS_SHOWN]
    if not rows:
        return
    title = "Gaps between neighbours of a stream"
    table = plain_table(
        title if len(played) == 1 else f"{title}, {first.name}",
        "pair", "count", "median, recorded", "simulated", "9 of 10 within, recorded", "simulated",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            escape(row.pair), str(row.recorded.count),
            format_time(row.recorded.median_ns), format_time(row.simulated.median_ns),
            format_time(row.recorded.p90_ns), format_time(row.simulated.p90_ns),
        )  # fmt: skip
    yield table


def report_table(imported: Imported) -> Table | None:
    """What became of what was read; None if there is nothing to say."""
    rows = imported.report.rows()
    if not rows:
        return None
    table = plain_table("What was read", "what", "count", "became")
    for row in rows:
        table.add_row(escape(str(row["what"])), str(row["count"]), str(row["verdict"]))
    return table
