"""From the rows of a :class:`~cann_env.schedule.Schedule` to things that can be drawn.

Everything here is exact integer work on rows: which spans a kernel covers, which class a command
mostly was, and how overlapping spans are laid into lanes. It draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.schedule import BlockRun, CommandRun, Schedule


class Rows(NamedTuple):
    """What a picture of a finished or a running program needs.

    Attributes:
        blocks: Block rows so far.
        runs: Command rows so far. A command that is still running has a ``finish_ns`` in the future,
            or one before its start if the finish is not known yet.
        streams: Streams to show.
        now_ns: Where the picture ends.
    """

    blocks: Sequence[BlockRun]
    runs: Sequence[CommandRun]
    streams: int
    now_ns: int


class KernelSpan(NamedTuple):
    """All the blocks of one kernel: from its first block's start to its last block's finish."""

    command: int
    kernel: int
    work_class: str
    blocks: int
    start_ns: int
    finish_ns: int


def rows_of(schedule: Schedule) -> Rows:
    """The rows of a finished schedule, with as many streams as it used."""
    streams = 1 + max(run.stream for run in schedule.commands)
    return Rows(schedule.blocks, schedule.commands, streams, schedule.makespan_ns)


def clip(start_ns: int, finish_ns: int, now_ns: int) -> tuple[int, int]:
    """The part of a span that lies before ``now_ns``; an unknown finish counts as not yet."""
    finish = now_ns if finish_ns < start_ns else min(finish_ns, now_ns)
    return start_ns, max(start_ns, finish)


def kernel_spans(blocks: Iterable[BlockRun]) -> tuple[KernelSpan, ...]:
    """One span for each kernel, ordered by (start, command, kernel).

    A kernel whose blocks ran as two classes (a fallback) takes the class that held the most block time.
    """
    groups: dict[tuple[int, int], list[BlockRun]] = defaultdict(list)
    for block in blocks:
        groups[block.command, block.kernel].append(block)
    spans = [_span(command, kernel, group) for (command, kernel), group in groups.items()]
    return tuple(sorted(spans, key=lambda span: (span.start_ns, span.command, span.kernel)))


def _span(command: int, kernel: int, group: list[BlockRun]) -> KernelSpan:
    held: dict[str, int] = defaultdict(int)
    for block in group:
        held[block.work_class] += block.blocks * max(1, block.finish_ns - block.start_ns)
    return KernelSpan(
        command,
        kernel,
        max(held, key=lambda name: held[name]),
        sum(block.blocks for block in group),
        min(min(block.start_ns, block.kernel_start_ns) for block in group),
        max(block.finish_ns for block in group),
    )


def command_classes(spans: Iterable[KernelSpan]) -> dict[int, str]:
    """For each command the class of its longest kernel; the earlier one where two are equally long."""
    best: dict[int, KernelSpan] = {}
    for span in spans:
        known = best.get(span.command)
        if known is None or span.finish_ns - span.start_ns > known.finish_ns - known.start_ns:
            best[span.command] = span
    return {command: span.work_class for command, span in best.items()}


def pack(spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Lay spans ``(start_ns, finish_ns)`` into the fewest lanes in which none overlap.

    Args:
        spans: Sorted by start.

    Returns:
        The lane of each span; always the lowest one that is free at its start.
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes: list[int] = []
    for start, finish in spans:
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (finish, lane))
        lanes.append(lane)
    return tuple(lanes)
