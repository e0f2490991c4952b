"""Examples behind docs/model/host.md: who pays for calls, how far the host runs ahead, what stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_host import Host
from model_rules import ROUND, Example, Hand, copy, ends, makespan, run, starts, work

from cann_env.graph import CommandGraph, HostMemory
from cann_env.options import Submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.graph import Command
    from cann_env.schedule import Schedule

EAGER = Submission.EAGER


def _host(name: str, *commands: Command, **options: object) -> Host:
    return Host(CommandGraph(name, commands), ROUND, **{"submission": EAGER, **options})


def eager() -> Schedule:
    """Three short kernels, and 20 ns of the host for each."""
    commands = (run(name, work(name, 5)) for name in "abc")
    return _host("eager", *commands).issue("a", "b", "c").schedule()


def sink() -> Schedule:
    """The same, handed over beforehand."""
    commands = (run(name, work(name, 5)) for name in "abc")
    return _host("sink", *commands, submission=Submission.SINK).issue("a", "b", "c").schedule()


def paid_events() -> Schedule:
    """A dependency across streams costs the host a record and a wait."""
    commands = (run("a"), run("b", after=("a",)))
    return _host("paid events", *commands, streams=2).issue("a").issue("b", stream=1).schedule()


def run_ahead() -> Schedule:
    """At most two commands in flight: the third is submitted when the first is done."""
    commands = (run(name) for name in "abcd")
    host = _host("run ahead", *commands, run_ahead=2).issue("a", "b")
    return host.issue_when_legal("c").issue_when_legal("d").schedule()


def pageable() -> Schedule:
    """A copy from pageable memory stops the host until it is over; one from pinned memory does not."""
    commands = (copy("slow", 200, host_memory=HostMemory.PAGEABLE), run("a"))
    return _host("pageable", *commands).issue("slow", "a").schedule()


def pinned() -> Schedule:
    """The same from pinned memory."""
    commands = (copy("free", 200), run("a"))
    return _host("pinned", *commands, streams=2).issue("free").issue("a", stream=1).schedule()


def released() -> Schedule:
    """B becomes known at 300; until then the host can only wait."""
    commands = (run("a"), run("b", release_ns=300))
    return _host("released", *commands).issue("a").issue_when_legal("b").schedule()


def _submitted(name: str) -> Callable[[Schedule], int]:
    def issue(schedule: Schedule) -> int:
        index = schedule.graph.command_index[name]
        return next(run.issue_ns for run in schedule.commands if run.command == index)

    return issue


EXAMPLES = (
    Example(
        "eager",
        eager,
        (
            Hand("`a` starts when its call is over", "20", starts("a")),
            Hand("`c` starts: the host is late, not the device", "3 * 20", starts("c")),
            Hand("all is done", "60 + 10 + 5", makespan),
        ),
    ),
    Example(
        "sink",
        sink,
        (
            Hand("`a` starts", "0", starts("a")),
            Hand("all is done: three kernels, two gaps", "3 * 15 + 2 * 2", makespan),
        ),
    ),
    Example(
        "paid_events",
        paid_events,
        (
            Hand("`a` starts", "20", starts("a")),
            Hand("`b` starts after `a`, the record and the wake", "20 + 110 + 1 + 4", starts("b")),
        ),
    ),
    Example(
        "run_ahead",
        run_ahead,
        (
            Hand("`a` ends", "20 + 110", ends("a")),
            Hand("`c` is submitted after a synchronisation and its call", "130 + 10 + 20", _submitted("c")),
            Hand("`c` starts behind `b`", "130 + 2 + 110 + 2", starts("c")),
        ),
    ),
    Example(
        "pageable",
        pageable,
        (
            Hand("`slow` ends", "20 + 5 + 200", ends("slow")),
            Hand("`a` starts: the host was stopped", "225 + 20", starts("a")),
        ),
    ),
    Example(
        "pinned",
        pinned,
        (
            Hand("`free` ends", "20 + 5 + 200", ends("free")),
            Hand("`a` starts", "20 + 20", starts("a")),
        ),
    ),
    Example(
        "released",
        released,
        (
            Hand("`a` ends", "20 + 110", ends("a")),
            Hand("`b` starts: a wait, then its call", "300 + 10 + 20", starts("b")),
        ),
    ),
)
