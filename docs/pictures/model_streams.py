"""Examples behind docs/model/streams.md: order, events, slots, priorities, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model_rules import (
    Example,
    Hand,
    collective,
    copy,
    ends,
    host,
    host_function,
    makespan,
    run,
    starts,
    work,
)

from cann_env.graph import CopyKind, KernelClass, Scheme

if TYPE_CHECKING:
    from cann_env.schedule import Schedule


def in_order() -> Schedule:
    """Four kernels, two on each of two streams."""
    graph = host("in order", *(run(name) for name in "abcd"), streams=2)
    return graph.issue("a", "b").issue("c", "d", stream=1).schedule()


def event() -> Schedule:
    """A kernel that waits for an event of another stream; d has nothing to wait for."""
    graph = host("event", run("a"), run("b", after=("a",)), run("d"), streams=3)
    return graph.issue("a").issue("b", stream=1).issue("d", stream=2).schedule()


def pruned() -> Schedule:
    """C waits for b, which waited for a: the order of a and c is known, and needs no event of its own."""
    commands = (run("a"), run("b", after=("a",)), run("c", after=("a", "b")))
    return host("implied", *commands, streams=2).issue("a").issue("b", "c", stream=1).schedule()


def slots() -> Schedule:
    """Two AI CPU cores are there, but one stream of that class may be active."""
    commands = (run(name, work(name, cores=KernelClass.AICPU)) for name in "ab")
    return host("slots", *commands, streams=2).issue("a").issue("b", stream=1).schedule()


def priority() -> Schedule:
    """Both low and high wait for cores; high was submitted later and goes first."""
    commands = (run(name, work(name, blocks=4)) for name in ("first", "low", "high"))
    graph = host("priority", *commands, streams=3, stream_priorities=(0, 1, 0))
    return graph.issue("first").issue("low", stream=1).issue("high", stream=2).schedule()


def batch() -> Schedule:
    """Two cores are free at first: a normal kernel takes them, a batch kernel would wait for four."""
    commands = (
        run("hold", work("hold", blocks=2)),
        run("gang", work("gang", blocks=4, scheme=Scheme.BATCH)),
        run("late", work("late", 50, blocks=2)),
    )
    graph = host("batch", *commands, streams=3)
    return graph.issue("hold").issue("gang", stream=1).issue("late", stream=2).schedule()


def callback() -> Schedule:
    """A host function holds its stream; other streams go on."""
    commands = (run("a"), host_function("post", 200, after=("a",)), run("b"), run("c"), run("d"))
    graph = host("callback", *commands, streams=2)
    return graph.issue("a", "post", "b").issue("c", "d", stream=1).schedule()


def collectives() -> Schedule:
    """Collectives share one engine, and run beside kernels."""
    commands = (collective("reduce 0", 150), collective("reduce 1", 150), run("a"), run("b"))
    graph = host("collectives", *commands, streams=3)
    return graph.issue("reduce 0").issue("reduce 1", stream=1).issue("a", "b", stream=2).schedule()


def engines() -> Schedule:
    """Copies in, copies out and kernels have engines of their own."""
    commands = (copy("in 0", 200), copy("in 1", 200), copy("out", 200, CopyKind.D2H), run("a"))
    graph = host("engines", *commands, streams=4)
    graph.issue("in 0").issue("in 1", stream=1).issue("out", stream=2).issue("a", stream=3)
    return graph.schedule()


EXAMPLES = (
    Example(
        "in_order",
        in_order,
        (
            Hand("`a` and `c` end", "10 + 100", ends("c")),
            Hand("`b` starts behind `a`, after the gap of a stream", "110 + 2", starts("b")),
            Hand("all is done", "110 + 2 + 110", makespan),
        ),
    ),
    Example(
        "event",
        event,
        (
            Hand("`a` ends", "10 + 100", ends("a")),
            Hand("`b` starts after the record and the wake", "110 + 1 + 4", starts("b")),
            Hand("`d` waits for nothing and starts", "0", starts("d")),
        ),
    ),
    Example(
        "pruned",
        pruned,
        (
            Hand("`b` ends", "115 + 110", ends("b")),
            Hand("`c` starts after the gap of its stream alone", "225 + 2", starts("c")),
        ),
    ),
    Example(
        "slots",
        slots,
        (
            Hand("`b` starts when `a` has left its slot", "10 + 100", starts("b")),
            Hand("waiting booked as `slot`", "110", lambda s: s.stall.slot),
        ),
    ),
    Example(
        "priority",
        priority,
        (
            Hand("`high` starts", "110", starts("high")),
            Hand("`low` starts", "110 + 110", starts("low")),
        ),
    ),
    Example(
        "batch",
        batch,
        (
            Hand("`gang` starts with all its blocks", "110", starts("gang")),
            Hand("`late` takes the two free cores and ends", "10 + 50", ends("late")),
        ),
    ),
    Example(
        "callback",
        callback,
        (
            Hand("`post` starts on the host's thread", "110 + 2", starts("post")),
            Hand("`b` starts behind it", "112 + 200 + 2", starts("b")),
            Hand("the other stream is done", "110 + 2 + 110", ends("d")),
        ),
    ),
    Example(
        "collectives",
        collectives,
        (
            Hand("`reduce 1` starts when the engine is free", "150", starts("reduce 1")),
            Hand("`b` ends meanwhile", "110 + 2 + 110", ends("b")),
        ),
    ),
    Example(
        "engines",
        engines,
        (
            Hand("`in 0` ends: latency, then a byte a nanosecond", "5 + 200", ends("in 0")),
            Hand("`in 1` starts when the channel is free", "205", starts("in 1")),
            Hand("`out` ends on the other channel", "5 + 200", ends("out")),
            Hand("`a` ends on a core", "10 + 100", ends("a")),
        ),
    ),
)
