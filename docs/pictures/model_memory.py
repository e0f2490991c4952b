"""Examples behind docs/model/memory.md: faults, the line of prefetches, eviction, L2, places used again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_host import span
from model_rules import ROUND, Example, Hand, ends, host, makespan, output, run, starts, weights, work

from cann_env.graph import Level
from cann_env.options import Allocator, Submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedule import Schedule


def fault() -> Schedule:
    """A kernel reads 400 B of weights that lie on the host: four pages, each after a fault."""
    return host("fault", run("a", reads=("w",)), buffers=(weights("w"),)).issue("a").schedule()


def prefetch() -> Schedule:
    """The weights of b come while a runs."""
    commands = (run("a", work("a", 400)), run("b", reads=("w",)))
    return host("prefetch", *commands, buffers=(weights("w"),)).prefetch("w").issue("a", "b").schedule()


def line() -> Schedule:
    """Three prefetches wait in one line and move one after another."""
    commands = (run("a", reads=("w0",)), run("b", reads=("w1",)), run("c", reads=("w2",)))
    buffers = tuple(weights(f"w{i}") for i in range(3))
    graph = host("line", *commands, buffers=buffers, streams=1)
    return graph.prefetch("w0", "w1", "w2").issue("a", "b", "c").schedule()


def shared_line() -> Schedule:
    """Two at once share the link, so that the first comes later."""
    commands = (run("a", reads=("w0",)), run("b", reads=("w1",)))
    buffers = tuple(weights(f"w{i}") for i in range(2))
    channels = replace(ROUND, pools={**ROUND.pools, "h2d": 2})
    graph = host("two at once", *commands, buffers=buffers, device=channels, prefetch_streams=2)
    return graph.prefetch("w0", "w1").issue("a", "b").schedule()


def written_back() -> Schedule:
    """Room for one buffer: x was written, so it is copied back before w can come."""
    x = replace(weights("x"), level=Level.HBM)
    commands = (run("a", writes=("x",), reads=("x",)), run("b", reads=("w",)), run("c", reads=("x",)))
    graph = host("write-back", *commands, buffers=(x, weights("w")), hbm_bytes=400, run_ahead=1)
    return graph.issue("a").issue_when_legal("b").issue_when_legal("c").schedule()


def l2() -> Schedule:
    """B reads what a has just written and finds it in L2; c reads what never was there."""
    commands = (
        run("a", work("a", 0, bytes_written=400), writes=("x",)),
        run("b", work("b", 0, bytes_read=400), reads=("x",)),
        run("c", work("c", 0, bytes_read=400), reads=("y",), after=("b",)),
    )
    buffers = (output("x", 400), replace(output("y", 400), level=Level.HBM))
    return host("l2", *commands, buffers=buffers).issue("a", "b", "c").schedule()


def lift() -> Schedule:
    """Y is lifted into L2 while a computes."""
    commands = (run("a", work("a", 300)), run("b", work("b", 0, bytes_read=400), reads=("y",)))
    buffers = (replace(output("y", 400), level=Level.HBM),)
    return host("lift", *commands, buffers=buffers).lift("y").issue("a", "b").schedule()


def reuse() -> Schedule:
    """Y takes the place that x has left on another stream, and waits for the event behind it."""
    commands = (run("a", writes=("x",)), run("c"), run("b", writes=("y",)))
    buffers = (output("x", 400), output("y", 400))
    graph = host("reuse", *commands, buffers=buffers, hbm_bytes=400, pool_block_bytes=100, streams=2)
    return graph.issue("a", "c").issue_when_legal("b", stream=1).schedule()


def malloc() -> Schedule:
    """In eager mode an allocation costs the host time; that of a pool hardly any."""
    commands = (run("a", writes=("x",)), run("b", writes=("y",)))
    buffers = (output("x", 400), output("y", 400))
    graph = host(
        "malloc", *commands, buffers=buffers, submission=Submission.EAGER, allocator=Allocator.MALLOC
    )
    return graph.issue("a", "b").schedule()


def _arrives(name: str) -> Callable[[Schedule], int]:
    def arrival(schedule: Schedule) -> int:
        index = schedule.graph.buffer_index[name]
        causes = ("fault", "prefetch", "lift")
        return next(m.finish_ns for m in schedule.transfers if m.buffer == index and m.cause in causes)

    return arrival


def _lasts(name: str) -> Callable[[Schedule], int]:
    return lambda schedule: span(schedule, name)[1] - span(schedule, name)[0]


def _left(name: str) -> Callable[[Schedule], int]:
    def left(schedule: Schedule) -> int:
        index = schedule.graph.buffer_index[name]
        return next(m.finish_ns for m in schedule.transfers if m.buffer == index and m.cause == "writeback")

    return left


EXAMPLES = (
    Example(
        "fault",
        fault,
        (
            Hand("`w` has arrived", "5 + 4 * (100 + 100)", _arrives("w")),
            Hand("`a` ends", "805 + 110", ends("a")),
        ),
    ),
    Example(
        "prefetch",
        prefetch,
        (
            Hand("`w` has arrived", "5 + 400", _arrives("w")),
            Hand("`b` starts behind `a`, with nothing to wait for", "410 + 2", starts("b")),
        ),
    ),
    Example(
        "line",
        line,
        (
            Hand("`w0` has arrived", "5 + 400", _arrives("w0")),
            Hand("`w1` has arrived", "405 + 5 + 400", _arrives("w1")),
            Hand("`w2` has arrived", "810 + 5 + 400", _arrives("w2")),
            Hand("all is done", "1215 + 110", makespan),
        ),
    ),
    Example(
        "shared_line",
        shared_line,
        (
            Hand("`w0` and `w1` have arrived", "5 + 2 * 400", _arrives("w0")),
            Hand("all is done", "805 + 110 + 2 + 110", makespan),
        ),
    ),
    Example(
        "written_back",
        written_back,
        (
            Hand("`x` has left", "110 + 2 + 5 + 400", _left("x")),
            Hand("`w` has arrived", "517 + 5 + 4 * 200", _arrives("w")),
        ),
    ),
    Example(
        "l2",
        l2,
        (
            Hand("`b` takes its bytes from L2, 4 B a nanosecond", "10 + 400 / 4", _lasts("b")),
            Hand("`c` takes its bytes from HBM, 2 B a nanosecond", "10 + 400 / 2", _lasts("c")),
        ),
    ),
    Example(
        "lift",
        lift,
        (
            Hand("`y` is in L2", "400 / 2", _arrives("y")),
            Hand("`b` takes its bytes from L2, 4 B a nanosecond", "10 + 400 / 4", _lasts("b")),
        ),
    ),
    Example(
        "reuse",
        reuse,
        (
            Hand("`a` ends", "110", ends("a")),
            Hand("`b` starts after record and wake", "110 + 1 + 4", starts("b")),
        ),
    ),
    Example(
        "malloc",
        malloc,
        (
            Hand("`a` starts after malloc, free and launch", "20 + 10 + 20", starts("a")),
            Hand("`b` starts behind it", "50 + 110 + 2", starts("b")),
        ),
    ),
)
