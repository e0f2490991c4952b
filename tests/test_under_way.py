"""What is still on its way when the last command finishes: hand-computed episodes, then the judge's view."""

from __future__ import annotations

from dataclasses import replace

from cases import make_case
from episodes import Host, actions_of
from toys import managed, toy_device, vector

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.schedule import FAR, Schedule, TransferRun
from cann_env.schedulers.recording import record_schedule
from cann_env.validate import validate

WITH_L2 = toy_device(memory={"l2_bytes": 2048, "l2_bandwidth_bytes_per_s": 8 * 10**9})


def written_back() -> Schedule:
    """The host moves out what a wrote, and b has no use for it. x takes 5 + 640 ns, y is to follow::

    s0: a 0-110 | b 111-221
    x:          | 110 -----------------> 755
    y:          | waits for x
    """
    graph = CommandGraph(
        "out",
        (vector("a", writes=("x", "y")), vector("b", after=("a",))),
        (managed("x", 640), managed("y")),
    )
    host = Host(graph, offloads=2).issue("a").until(110)
    return host.offload("x").offload("y").issue("b").schedule()


def test_write_backs_under_way_have_rows() -> None:
    left = [row for row in written_back().transfers if row.cause == "writeback"]
    assert left == [TransferRun(0, "writeback", 110, 110, FAR), TransferRun(1, "writeback", 110, FAR, FAR)]


def test_what_has_not_left_does_not_come_back() -> None:
    """The judge takes such rows for what they are."""
    schedule = written_back()
    assert validate(schedule) == ()
    back = TransferRun(1, "fault", 200, 200, FAR)
    assert {v.rule for v in validate(replace(schedule, transfers=(*schedule.transfers, back)))} == {"moves"}


def test_lifts_under_way_have_rows() -> None:
    """Both readers end at 110 ns; x, of which 512 bytes are lifted, takes longer, and y is in line."""
    names = ("x", "y")
    commands = tuple(vector(f"k{n}", reads=(n,)) for n in names)
    buffers = tuple(Buffer(name=n, size_bytes=1024, level=Level.HBM) for n in names)
    host = Host(CommandGraph("up", commands, buffers), WITH_L2, l2_prefetches=2).lift("x").lift("y")
    schedule = host.issue("kx", 0).issue("ky", 1).schedule()
    assert schedule.makespan_ns == 110
    assert schedule.transfers == (
        TransferRun(0, "lift", 0, 0, FAR, 512), TransferRun(1, "lift", FAR, FAR, FAR, 512)
    )  # fmt: skip


def test_random_runs_that_end_too_soon_are_sound() -> None:
    """Seeds whose last rows are of lifts and of a write-back."""
    left = []
    for seed in (1388, 2531, 919):
        case = make_case(seed)
        schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
        assert validate(schedule) == ()
        left += [row.cause for row in schedule.transfers if row.finish_ns == FAR]
    assert set(left) == {"lift", "writeback"}
