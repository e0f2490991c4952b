"""A program as it was written, set against several schedules of its work, in the same engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.acl.plans.improve import improve
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.simulator import Simulator
    from cann_env.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Row:
    """One way to do the work.

    Attributes:
        name: ``as it ran``, ``as written`` (in the program's order, host calls free), or a scheduler.
        makespan_ns: How long it takes.
        streams: How many it uses.
        ratio: Part of the written time that it takes.
        schedule: What can be drawn or exported; None for what ran with the time of the host's calls.
    """

    name: str
    makespan_ns: int
    streams: int
    ratio: float
    schedule: Schedule | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The work of a program, done in several ways.

    Attributes:
        rows: As it ran, as written, and one row a scheduler.
        lower_bound_ns: No schedule is shorter.
    """

    rows: tuple[Row, ...]
    lower_bound_ns: int

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [
            f"{row.name:<{width}}  {row.streams:>2} streams  {format_time(row.makespan_ns):>10}  "
            f"{row.ratio:.3f}"
            for row in self.rows
        ]
        return "\n".join([*lines, f"no schedule is shorter than {format_time(self.lower_bound_ns)}"])


def compare(
    run: Simulator, schedulers: Sequence[str] = ("reference",), *, device: int = 0, streams: int = 8
) -> Comparison:
    """Set a program against schedulers; what is compared with what, says :class:`~cann_env.acl.Improvement`.

    Args:
        run: The run.
        schedulers: Names.
        device: Number of the device.
        streams: Streams that schedulers may use.

    Raises:
        InputError: No scheduler is named, there is none of a name, or there is nothing to compare.
    """
    if not schedulers:
        raise InputError("schedulers is empty; name at least one to compare the program with")
    found = [improve(run, name, device=device, streams=streams) for name in schedulers]
    written = found[0].written
    rows = [
        Row("as it ran", found[0].ran_ns, found[0].streams, found[0].ran_ns / written.makespan_ns),
        Row("as written", written.makespan_ns, found[0].streams, 1.0, written),
    ]
    for each in found:
        used = len({command.stream for command in each.scheduled.commands})
        rows.append(Row(each.scheduler, each.scheduled_ns, used, each.ratio, each.scheduled))
    return Comparison(tuple(rows), found[0].scheduled.lower_bound_ns)
