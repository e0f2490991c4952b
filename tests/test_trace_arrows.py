"""Arrows and counters of traces: what leads to what, and what is held, queued and moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import make_case
from episodes import actions_of
from pictures import Arrow, Trace, drawn_schedule, read, spilling_schedule

from cann_env.graph import CommandKind, CopyKind
from cann_env.render.trace import Process
from cann_env.render.trace.arrows import copied
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from cann_env.schedule import Schedule


def ends(trace: Trace, category: str) -> list[tuple[str, int, str, int]]:
    return [(a.tail.name, a.leave, a.head.name, a.arrive) for a in trace.arrows_of(category)]


def case_schedule(seed: int) -> Schedule:
    case = make_case(seed)
    return record_schedule(case.program, actions_of(case.play()), noise=case.noise)


def test_copies_lead_to_their_readers_and_producers_to_copies() -> None:
    """``load`` brings x to the fused command and to the mix kernel; the former makes y for ``out``."""
    assert ends(read(drawn_schedule()), "data") == [
        ("load", 999, "net/fused", 1001),
        ("load", 999, "net/mix", 1400),
        ("vector", 3000, "out", 3001),  # the end of the fused command lies in its last kernel
    ]


def test_a_buffer_moved_leads_to_whoever_works_on_it() -> None:
    """w is there at 500; the mix kernel that reads it takes its place at 1400, and starts at 1500."""
    assert ends(read(drawn_schedule()), "move") == [("w", 499, "net/mix", 1500)]


def test_calls_lead_to_what_they_submit() -> None:
    """The prefetch of the drawn schedule was under way before its call, so nothing leads back to it."""
    assert ends(read(drawn_schedule()), "HostToDevice") == [
        ("issue load", 0, "load", 0),
        ("issue net/fused", 10, "net/fused", 1001),
        ("issue net/mix", 20, "net/mix", 1400),
        ("issue out", 30, "out", 3001),
    ]
    # b is lifted at 100, w written back at 200; a lift that never begins has no slice; k1 began too early.
    assert ends(read(spilling_schedule()), "HostToDevice") == [
        ("issue k0", 0, "k0", 0),
        ("lift b", 10, "b", 100),
        ("offload w", 200, "w", 200),
    ]


@pytest.mark.parametrize("seed", range(60, 72))
def test_arrows_of_random_runs(seed: int) -> None:
    """Never back in time; one submission a command; copies as program order says; moves while they last."""
    schedule = case_schedule(seed)
    trace = read(schedule)
    assert all(arrow.leave <= arrow.arrive for arrow in trace.arrows)
    submitted = [a.head.args["command"] for a in trace.arrows_of("HostToDevice") if "command" in a.head.args]
    assert sorted(submitted) == list(range(len(schedule.commands)))
    found = sorted((a.tail.args["command"], a.head.args["command"]) for a in trace.arrows_of("data"))
    assert found == sorted(copied(schedule)) == sorted(copies_by_hand(schedule))
    waits = sorted((a.tail.args["command"], a.head.args["command"]) for a in trace.arrows_of("event"))
    assert waits == sorted((wait.producer, wait.consumer) for wait in schedule.waits)
    for arrow in trace.arrows_of("move"):
        check_move(schedule, arrow)


def copies_by_hand(schedule: Schedule) -> set[tuple[int, int]]:
    """For each reader the last command before it that writes what it reads, if either of them is a copy."""
    commands = schedule.graph.commands
    pairs = set()
    for i, reader in enumerate(commands):
        for name in reader.reads:
            before = [j for j in range(i) if name in commands[j].writes]
            to_copy = reader.kind is CommandKind.COPY and reader.copy is not CopyKind.H2D
            if before and (to_copy or commands[before[-1]].kind is CommandKind.COPY):
                pairs.add((before[-1], i))
    return pairs


def check_move(schedule: Schedule, arrow: Arrow) -> None:
    buffer = arrow.tail.args["buffer"]
    assert schedule.graph.buffers[buffer].name in schedule.graph.commands[arrow.head.args["command"]].reads
    assert arrow.tail.end <= arrow.arrive
    gone = [
        move.reserve_ns
        for move in schedule.transfers
        if move.buffer == buffer and move.cause in ("evict", "writeback", "free")
    ]
    assert not [time for time in gone if arrow.tail.end <= time <= arrow.arrive]


def test_random_runs_have_arrows_of_every_kind() -> None:
    """The law above says something only if there is something to say."""
    kinds = {a.category for seed in range(60, 72) for a in read(case_schedule(seed)).arrows}
    assert kinds == {"event", "data", "move", "HostToDevice"}


# --- counters -------------------------------------------------------------------------------------------


def test_queues_hold_commands_from_their_submission_to_their_finish() -> None:
    counters = read(drawn_schedule()).counters
    assert counters[Process.STREAMS, "queue of stream 0"] == [(0, 1), (10, 2), (1000, 1), (3001, 0)]
    assert counters[Process.STREAMS, "queue of stream 1"] == [(0, 0), (20, 1), (30, 2), (2500, 1), (4000, 0)]


def test_links_show_mean_rates_of_what_crosses_them() -> None:
    """995 bytes of ``load`` from 5 to 1000, 2048 of w from 5 to 500, 600 of ``out`` from 3006 to 4000."""
    counters = read(drawn_schedule()).counters
    w = 2048 * 10**9 // 495
    assert counters[Process.TRANSFERS, "rate of link h2d"] == [
        (0, 0), (5, 10**9 + w), (500, 10**9), (1000, 0)
    ]  # fmt: skip
    out = 600 * 10**9 // 994
    assert counters[Process.TRANSFERS, "rate of link d2h"] == [(0, 0), (3006, out), (4000, 0)]


@pytest.mark.parametrize("seed", range(72, 84))
def test_counters_of_random_runs_begin_and_end_well(seed: int) -> None:
    """Nothing is ever negative; queues, busy cores and links are empty at the end, and L2 sums its hits."""
    schedule = case_schedule(seed)
    counters = read(schedule).counters
    for (_, name), points in counters.items():
        times = [time for time, _ in points]
        assert times == sorted(set(times)), name
        assert min(value for _, value in points) >= 0, name
        if name.startswith(("queue", "busy", "rate")):
            assert points[-1][1] == 0, name
            assert points[-1][0] <= schedule.makespan_ns, name
    found = [points[-1][1] for (_, name), points in counters.items() if name == "found in L2"]
    assert sum(found) == sum(hit.hit_bytes for hit in schedule.hits)
    queued = [max(v for _, v in points) for (_, name), points in counters.items() if name.startswith("queue")]
    assert len(queued) == len({run.stream for run in schedule.commands})
    assert max(queued) <= schedule.device.limits.queue_depth


def test_some_random_run_finds_something_in_l2() -> None:
    assert any(case_schedule(seed).hits for seed in range(72, 84))
