"""Examples behind docs/model/kernels.md: blocks and waves, classes, fused kernels, shared bandwidth, dies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_host import span
from model_rules import TWO_DIES, Example, Hand, copy, ends, host, output, run, starts, work

from cann_env.graph import KernelClass, Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedule import Schedule

CUBE, VECTOR, MIX = KernelClass.CUBE, KernelClass.VECTOR, KernelClass.MIX


def waves() -> Schedule:
    """Six blocks on four cores."""
    return host("waves", run("a", work("a", blocks=6))).issue("a").schedule()


def filling() -> Schedule:
    """The last wave of a leaves two cores to b."""
    commands = (run("a", work("a", blocks=6)), run("b", work("b", 50, blocks=2)))
    return host("filling", *commands, streams=2).issue("a").issue("b", stream=1).schedule()


def classes() -> Schedule:
    """A mix kernel takes one cube and two vector cores a block; what is left runs beside it."""
    commands = (
        run("mix", work("mix", cores=MIX)),
        run("cube", work("cube", cores=CUBE)),
        run("vector", work("vector", blocks=4)),
    )
    graph = host("classes", *commands, streams=3)
    return graph.issue("mix").issue("cube", stream=1).issue("vector", stream=2).schedule()


def switched() -> Schedule:
    """Between a mix kernel and one that is none, a stream pauses longer."""
    return (
        host("switch", run("mix", work("mix", cores=MIX)), run("a"), run("b"))
        .issue("mix", "a", "b")
        .schedule()
    )


def fallback() -> Schedule:
    """A kernel for cube cores that may also run on vector cores, while the cube cores are taken."""
    commands = (
        run("hold", work("hold", cores=CUBE, blocks=2)),
        run("a", work("a", cores=CUBE, fallback=VECTOR)),
    )
    return host("fallback", *commands, streams=2).issue("hold").issue("a", stream=1).schedule()


def fused() -> Schedule:
    """Two kernels in one command, and beside them the same two as two commands."""
    commands = (run("fused", work("f0"), work("f1")), run("a"), run("b"))
    return host("fused", *commands, streams=2).issue("fused").issue("a", "b", stream=1).schedule()


def roofline() -> Schedule:
    """The longer of arithmetic and bytes decides."""
    commands = (
        run("computes", work("computes", 100, bytes_read=100)),
        run("reads", work("reads", 100, bytes_read=400)),
    )
    return host("roofline", *commands).issue("computes", "reads").schedule()


def max_min() -> Schedule:
    """Four readers want 2 bytes a nanosecond each, HBM gives 4."""
    sizes = {"a": 100, "b": 100, "c": 300, "d": 300}
    commands = (run(name, work(name, 0, bytes_read=size)) for name, size in sizes.items())
    graph = host("max-min", *commands, streams=4)
    for stream, name in enumerate(sizes):
        graph.issue(name, stream=stream)
    return graph.schedule()


def copy_shares() -> Schedule:
    """A copy crosses its link and HBM: it takes one of the four bytes a nanosecond."""
    commands = (copy("in", 500), run("a", work("a", 0, blocks=2, bytes_read=1200)))
    return host("copy shares", *commands, streams=2).issue("in").issue("a", stream=1).schedule()


def dies() -> Schedule:
    """Two kernels that read a buffer of die 0, one on each die."""
    buffers = (replace(output("x", 400), level=Level.HBM, die=0),)
    commands = (
        run("near", work("near", 0, bytes_read=400), reads=("x",)),
        run("far", work("far", 0, bytes_read=400), reads=("x",)),
    )
    graph = host("dies", *commands, buffers=buffers, device=TWO_DIES, streams=2, l2_prefetches=0)
    return graph.issue("near").issue("far", stream=1).schedule()


def _blocks_of(name: str, wave: int) -> Callable[[Schedule], int]:
    """When the blocks of a wave start."""

    def start(schedule: Schedule) -> int:
        command = schedule.graph.command_index[name]
        return sorted({row.start_ns for row in schedule.blocks if row.command == command})[wave]

    return start


EXAMPLES = (
    Example(
        "waves",
        waves,
        (
            Hand("the second wave starts", "10 + 100", _blocks_of("a", 1)),
            Hand("the kernel ends: one launch, two waves", "10 + 2 * 100", ends("a")),
        ),
    ),
    Example(
        "filling",
        filling,
        (
            Hand("`b` starts beside the second wave", "110", starts("b")),
            Hand("`b` ends", "110 + 10 + 50", ends("b")),
            Hand("`a` ends as if alone", "210", ends("a")),
        ),
    ),
    Example(
        "classes",
        classes,
        (
            Hand("`mix` and `cube` start together", "0", starts("cube")),
            Hand("two blocks of `vector` start on the two vector cores left", "0", _blocks_of("vector", 0)),
            Hand("its other two start", "110", _blocks_of("vector", 1)),
        ),
    ),
    Example(
        "switched",
        switched,
        (
            Hand("`a` starts after the switch away from mix", "110 + 6", starts("a")),
            Hand("`b` starts after the usual gap", "116 + 110 + 2", starts("b")),
        ),
    ),
    Example(
        "fallback",
        fallback,
        (
            Hand("`a` starts on a vector core", "0", starts("a")),
            Hand("`a` ends", "10 + 100", ends("a")),
        ),
    ),
    Example(
        "fused",
        fused,
        (
            Hand("`fused` ends: two launches, no gap", "110 + 110", ends("fused")),
            Hand("the same as two commands", "110 + 2 + 110", ends("b")),
        ),
    ),
    Example(
        "roofline",
        roofline,
        (
            Hand("`computes` takes its arithmetic, 100 B need only 50", "10 + 100", ends("computes")),
            Hand(
                "`reads` takes its bytes at 2 B a nanosecond",
                "10 + 400 / 2",
                lambda s: span(s, "reads")[1] - span(s, "reads")[0],
            ),
        ),
    ),
    Example(
        "max_min",
        max_min,
        (
            Hand("`a` and `b` end: each of four gets 1 B a nanosecond", "10 + 100 / 1", ends("a")),
            Hand("`c` and `d` end: 200 B are left of each, and each gets 2 B", "110 + 200 / 2", ends("d")),
        ),
    ),
    Example(
        "copy_shares",
        copy_shares,
        (
            Hand("`in` ends: latency, then a byte a nanosecond", "5 + 500", ends("in")),
            Hand("`a` ends: 3 B a nanosecond are left for its two blocks", "10 + 1200 / 3", ends("a")),
        ),
    ),
    Example(
        "dies",
        dies,
        (
            Hand("`near` ends at 2 B a nanosecond", "10 + 400 / 2", ends("near")),
            Hand("`far` ends: the link between dies carries 1 B a nanosecond", "10 + 400 / 1", ends("far")),
        ),
    ),
)
