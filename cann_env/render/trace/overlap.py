"""Computing against communication, as the profiler's *Overlap Analysis* shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.commands import CommandKind
from cann_env.spans import union, without

if TYPE_CHECKING:
    from cann_env.schedule import Schedule
    from cann_env.spans import Span


def overlap(schedule: Schedule) -> tuple[list[Span], list[Span], list[Span], list[Span]]:
    """When the device computes, communicates, only communicates, and does neither.

    Returns:
        Four lists of spans (ns): kernels; collectives; collectives without a kernel beside them; and the rest
        of the run up to its makespan.
    """
    kinds = {i: command.kind for i, command in enumerate(schedule.graph.commands)}
    computing = union(_runs(schedule, kinds, CommandKind.KERNEL))
    communicating = union(_runs(schedule, kinds, CommandKind.COLLECTIVE))
    alone = without(communicating, computing)
    free = without([(0, schedule.makespan_ns)], union([*computing, *communicating]))
    return computing, communicating, alone, free


def _runs(schedule: Schedule, kinds: dict[int, CommandKind], kind: CommandKind) -> list[Span]:
    return [(run.start_ns, run.finish_ns) for run in schedule.commands if kinds[run.command] is kind]
