"""What each command waited for, stretch by stretch, until it started.

Stretches begin when a command was submitted, or might have been. Those of a head are the rows that the
engine wrote. What lies before them follows from when predecessors were done, when the host submitted the
command and when its stream had come to it.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from cann_env.waiting.givers import Givers

if TYPE_CHECKING:
    from cann_env.schedule import CommandRun, Schedule, Waiting


class Cause(enum.StrEnum):
    """Why a command had not started.

    ``host``: nothing stood in its way, but it had not been submitted. ``dependency``: a predecessor was
    not done, or its event had not arrived. ``stream``: those before it on its stream were not done, or
    the gap behind them had not passed. ``memory``: operands or space had not arrived. ``slot``: as many
    streams as the device allows, in all or of its class, were active. ``cores``: too few cores.
    ``link``: its copy engine, its callback thread or its collective engine was taken.
    """

    HOST = "host"
    DEPENDENCY = "dependency"
    STREAM = "stream"
    MEMORY = "memory"
    SLOT = "slot"
    CORES = "cores"
    LINK = "link"


_CAUSE_OF_ROW = {
    "event": Cause.DEPENDENCY,
    "fault": Cause.MEMORY,
    "slot": Cause.SLOT,
    "cores": Cause.CORES,
    "dma": Cause.LINK,
}


class Stretch(NamedTuple):
    """A stretch of waiting; ``behind`` is the command that ended it, None where no single one did."""

    cause: Cause
    start_ns: int
    finish_ns: int
    behind: int | None


class Delay(NamedTuple):
    """How a command came to its start.

    Attributes:
        ready_ns: It was released and its predecessors were done.
        reached_ns: Its stream had come to it.
        eligible_ns: Its event waits were over; from here on it lacked nothing but resources.
        stretches: What it waited for, without gaps, from when it was submitted, or when it might have been,
            until it started.
    """

    ready_ns: int
    reached_ns: int
    eligible_ns: int
    stretches: tuple[Stretch, ...]


def delays(schedule: Schedule) -> tuple[Delay, ...]:
    """The delay of each command, by its index.

    Times of ``host`` and of what heads waited for sum to :attr:`~cann_env.schedule.Schedule.stall`. Without
    rows of waiting what a head waited for counts as ``stream``.
    """
    rows: dict[int, list[Waiting]] = defaultdict(list)
    for row in schedule.waiting:
        rows[row.command].append(row)
    awaited: dict[int, list[int]] = defaultdict(list)
    for producer, consumer in schedule.waits:
        awaited[consumer].append(producer)
    runs = {run.command: run for run in schedule.commands}
    places = {(run.stream, run.position): run.command for run in schedule.commands}
    givers = Givers(schedule)
    found = []
    for c in range(len(schedule.graph.commands)):
        run = runs[c]
        front = places.get((run.stream, run.position - 1))
        found.append(_delay(schedule, runs, run, front, rows[c], awaited[c], givers))
    return tuple(found)


def _delay(
    schedule: Schedule,
    runs: dict[int, CommandRun],
    run: CommandRun,
    front: int | None,
    rows: list[Waiting],
    awaited: list[int],
    givers: Givers,
) -> Delay:
    c = run.command
    producer, ready = None, schedule.graph.commands[c].release_ns
    for before in schedule.graph.predecessors[c]:
        if runs[before].finish_ns >= max(ready, 1):
            producer, ready = before, runs[before].finish_ns
    lacked = [row for row in rows if row.cause != "event"]
    eligible = lacked[0].start_ns if lacked else run.start_ns
    reached = next((row.start_ns for row in rows if row.cause == "event"), eligible)
    done, submitted = min(max(ready, 0), run.start_ns), run.issue_ns
    event = max(awaited, key=lambda p: (runs[p].finish_ns, -p), default=None)
    stretches = (
        Stretch(Cause.DEPENDENCY, submitted, done, producer),
        Stretch(Cause.HOST, done, submitted, None),
        Stretch(Cause.STREAM, max(submitted, done), reached, front),
        Stretch(Cause.DEPENDENCY, max(submitted, done, reached), eligible, event),
        *(Stretch(_CAUSE_OF_ROW[row.cause], row[2], row[3], givers.command(row)) for row in lacked),
    )
    return Delay(ready, reached, eligible, tuple(each for each in stretches if each[2] > each[1]))
