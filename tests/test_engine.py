"""Hand-computed episodes of the device: streams, events, cores, slots, shared bandwidth.

Every number was worked out on paper from the rules of the model and the round numbers of the toy device,
and every schedule goes past the judge before its times are looked at.
"""

from __future__ import annotations

from typing import Any

import pytest
from episodes import Host, rows_of, times
from toys import (
    callback,
    collective,
    copy_in,
    copy_inside,
    copy_out,
    cube,
    kernel_command,
    mix,
    toy_chain,
    toy_device,
    toy_kernel,
    vector,
)

from cann_env.graph import Buffer, Command, CommandGraph, KernelClass, Scheme
from cann_env.options import Submission
from cann_env.schedule import EventWait, Stall
from cann_env.units import EventResourceError

EVENTS = {"record_ns": 2, "wait_ns": 3, "wake_ns": 7}


def graph(*commands: Command, buffers: tuple[Buffer, ...] = ()) -> CommandGraph:
    return CommandGraph("drawn", commands, buffers)


def mover(
    name: str, size_bytes: int, *, work: str = "vector", compute_ns: int = 0, blocks: int = 1
) -> Command:
    """A command of one kernel that moves bytes: 10 ns of launch, then at most 2 bytes a ns and core."""
    return kernel_command(name, toy_kernel(work, compute_ns, blocks=blocks, size_bytes=size_bytes))


def hbm(bytes_per_ns: int) -> dict[str, dict[str, Any]]:
    return {"hbm": {"bandwidth_bytes_per_s": bytes_per_ns * 10**9}}


# --- streams ------------------------------------------------------------------------------------------


def test_commands_of_one_stream_follow_after_a_gap() -> None:
    """::

    s0: a 0-110 | b 111-221 | c 222-332
    """
    host = Host(toy_chain(3)).issue("a").issue("b").issue("c")
    assert host.times() == {"a": (0, 110), "b": (111, 221), "c": (222, 332)}


def test_the_gap_passes_while_a_stream_waits() -> None:
    """Events cost nothing here, so each stream takes over at once; s0 could have gone on from 111 ns.

    ::

        s0: a 0-110             c 220-330
        s1:         b 110-220
    """
    host = Host(toy_chain(3)).issue("a", 0).issue("b", 1).issue("c", 0)
    assert host.times() == {"a": (0, 110), "b": (110, 220), "c": (220, 330)}


def test_a_command_waits_behind_another_that_is_blocked() -> None:
    """z needs nothing, but stands behind x, which waits for y.

    ::

        s0: x ........... 210-320 | z 321-431
        s1: y 0-210
    """
    drawn = graph(vector("y", 200), vector("x", after=("y",)), vector("z"))
    host = Host(drawn).issue("y", 0).issue("x", 1).issue("z", 1)
    assert host.times() == {"y": (0, 210), "x": (210, 320), "z": (321, 431)}


def test_priority_goes_before_age() -> None:
    """a fills the aiv; b has waited as long as c and was issued first, but its stream has priority 1.

    ::

        s0: a 0-110
        s1:                     b 220-330
        s2:         c 110-220
    """
    drawn = graph(*(vector(name, blocks=4) for name in "abc"))
    host = Host(drawn, streams=3, stream_priorities=(0, 1, 0))
    assert host.streams("a") == [0, 1]  # of the idle streams the lowest of each priority
    host.issue("a", 0).issue("b", 1).issue("c", 2)
    assert host.times() == {"a": (0, 110), "b": (220, 330), "c": (110, 220)}


def test_a_device_without_priorities_ignores_them() -> None:
    drawn = graph(*(vector(name, blocks=4) for name in "abc"))
    device = toy_device(limits={"stream_priorities": 1})
    host = Host(drawn, device, streams=3, stream_priorities=(0, 1, 0))
    assert host.streams("a") == [0]
    host.issue("a", 0).issue("b", 1).issue("c", 2)
    assert host.times() == {"a": (0, 110), "b": (110, 220), "c": (220, 330)}


def test_age_goes_before_submission() -> None:
    """c was submitted before b but is eligible only from 51 ns, behind the callback; b since 0.

    ::

        s0: x 0-50 | c                   220-330
        s1: a 0-110
        s2: b              110-220
    """
    drawn = graph(callback("x", 50), *(vector(name, blocks=4) for name in "cab"))
    host = Host(drawn).issue("x", 0).issue("c", 0).issue("a", 1).issue("b", 2)
    assert host.times() == {"x": (0, 50), "a": (0, 110), "b": (110, 220), "c": (220, 330)}


def test_submission_decides_between_equals() -> None:
    drawn = graph(*(vector(name, blocks=4) for name in "abc"))
    host = Host(drawn).issue("a", 0).issue("c", 1).issue("b", 2)
    assert host.times() == {"a": (0, 110), "c": (110, 220), "b": (220, 330)}


def test_all_completions_of_an_instant_come_before_the_next_start() -> None:
    """a and b end together at 110 ns and free four aiv, so c, which needs all at once, beats d.

    ::

        s0: a 0-110
        s1: b 0-110
        s2: c         110-220
        s3: d                  220-330
    """
    wide = toy_kernel("vector", 100, blocks=4, scheme=Scheme.BATCH)
    drawn = graph(vector("a", blocks=2), vector("b", blocks=2), kernel_command("c", wide), vector("d"))
    host = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2).issue("d", 3)
    assert host.times() == {"a": (0, 110), "b": (0, 110), "c": (110, 220), "d": (220, 330)}


# --- events -------------------------------------------------------------------------------------------


def test_record_and_wake_take_device_time() -> None:
    """The record behind a takes 2 ns of s0, and b wakes 7 ns after it; c comes a gap behind the record.

    ::

        s0: a 0-110 |r| c 113-223
        s1:            b 119-229
    """
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c"))
    host = Host(drawn, toy_device(dispatch=EVENTS)).issue("a", 0).issue("b", 1).issue("c", 0)
    assert host.times() == {"a": (0, 110), "b": (119, 229), "c": (113, 223)}


def test_a_satisfied_wait_takes_its_stream_a_little_time() -> None:
    """s1 reaches b at 211 ns, when the records of a (112 ns) and e (62 ns) are long there: two waits of 3 ns.

    ::

        s0: a 0-110
        s1: d 0-210 |ww| b 217-327
        s2: e 0-60
    """
    drawn = graph(vector("d", 200), vector("a"), vector("e", 50), vector("b", after=("a", "e")))
    host = Host(drawn, toy_device(dispatch=EVENTS)).issue("a", 0).issue("d", 1).issue("e", 2).issue("b", 1)
    schedule = host.schedule()
    assert times(schedule)["b"] == (217, 327)
    assert schedule.stall.event == 6


def test_the_later_of_two_records_wakes() -> None:
    """b needs a (recorded at 112 ns) and d (at 212 ns): it wakes at 219 ns."""
    drawn = graph(vector("d", 200), vector("a"), vector("b", after=("a", "d")))
    host = Host(drawn, toy_device(dispatch=EVENTS)).issue("a", 0).issue("d", 1).issue("b", 2)
    assert host.times()["b"] == (219, 329)


def test_each_consumer_elsewhere_costs_a_record() -> None:
    """b and c each wait for a: two records of 2 ns, then the gap."""
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c", after=("a",)), vector("d"))
    host = Host(drawn, toy_device(dispatch=EVENTS))
    host.issue("a", 0).issue("b", 1).issue("c", 2).issue("d", 0)
    assert host.times()["d"] == (115, 225)


def test_dependencies_within_a_stream_need_no_event() -> None:
    host = Host(toy_chain(3), toy_device(dispatch=EVENTS)).issue("a").issue("b").issue("c")
    schedule = host.schedule()
    assert schedule.waits == ()
    assert schedule.makespan_ns == 332


@pytest.mark.parametrize(
    ("streams", "waits"),
    [
        ((0, 1, 2), [(0, 1), (1, 2)]),  # c waits for b, which waited for a
        ((0, 1, 1), [(0, 1)]),  # b stands before c
        ((0, 1, 0), [(0, 1), (1, 2)]),  # a stands before c
        ((0, 0, 1), [(1, 2)]),  # b stands behind a
    ],
)
def test_implied_waits_are_not_submitted(streams: tuple[int, ...], waits: list[tuple[int, int]]) -> None:
    """c depends on a and on b, b on a."""
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c", after=("a", "b")))
    host = Host(drawn)
    for name, stream in zip("abc", streams, strict=True):
        host.issue(name, stream)
    assert list(host.schedule().waits) == [EventWait(*pair) for pair in waits]


def test_independent_producers_need_a_wait_each() -> None:
    drawn = graph(vector("a"), vector("b"), vector("c", after=("a", "b")))
    schedule = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert set(schedule.waits) == {EventWait(0, 2), EventWait(1, 2)}


def test_an_earlier_wait_of_the_stream_is_remembered() -> None:
    """s1 waits for b, the last of s0, before c; so d, behind c, is ordered after a already.

    ::

        s0: a | b
        s1:      (b) c | d
    """
    drawn = graph(vector("a"), vector("b"), vector("c", after=("b",)), vector("d", after=("a",)))
    host = Host(drawn).issue("a", 0).issue("b", 0).issue("c", 1).issue("d", 1)
    assert host.schedule().waits == (EventWait(1, 2),)


def test_a_pruned_wait_costs_the_host_nothing() -> None:
    """Calls of 5 ns, and 1 + 1 for each record and wait: only b's for a and c's for b."""
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c", after=("a", "b")))
    host = Host(drawn, submission=Submission.EAGER).issue("a", 0).issue("b", 1).issue("c", 2)
    calls = [(call.start_ns, call.end_ns) for call in host.schedule().host]
    assert calls == [(0, 5), (5, 12), (12, 19)]


def test_event_ids_limit_what_may_be_issued() -> None:
    """One event id, held from the issue of b: c may go behind a or b, where it needs none, not to stream 2.

    ::

        s0: a 0-110 c 111-221
        s1: b      110-220
    """
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c", after=("a",)), vector("d"))
    host = Host(drawn, toy_device(limits={"max_events": 1})).issue("a", 0).issue("b", 1)
    assert host.streams("c") == [0, 1]  # behind b, too, it would be ordered after a
    assert host.streams("d") == [0, 1, 2]
    host.issue("c", 0).issue("d", 2)
    assert host.times()["c"] == (111, 221)


def test_event_ids_are_free_when_the_wait_is_over() -> None:
    """b waits for x until 20, then for the one aiv until 1010; its event id serves c2 meanwhile.

    ::

        s0: big (vector) 0 ----------------- 1010
        s1: x (cube) 0-20 .................. b 1010
        s2:               big2 (cube) 0-15
    """
    drawn = graph(
        cube("x", 10),
        vector("big", 1000),
        vector("b", after=("x",)),
        cube("big2", 5),
        cube("c2", after=("big2",)),
    )
    device = toy_device(pools={"aiv": 1}, limits={"max_events": 1})
    host = Host(drawn, device).issue("big", 0).issue("x", 1).issue("b", 2).issue("big2", 3)
    assert 0 not in host.streams("c2")
    host.wait()
    assert host.now_ns == 15
    assert 0 not in host.streams("c2")
    host.wait()
    assert host.now_ns == 20
    assert 0 in host.streams("c2")


def test_a_join_of_many_needs_no_more_ids_than_other_streams() -> None:
    """On one stream it needs none, however few ids there are."""
    drawn = graph(vector("a"), vector("b"), vector("c", after=("a", "b")))
    host = Host(drawn, toy_device(limits={"max_events": 1}), streams=1)
    assert host.issue("a").issue("b").issue("c").times()["c"] == (222, 332)


def test_more_predecessors_than_event_ids_are_refused() -> None:
    drawn = graph(vector("a"), vector("b"), vector("c", after=("a", "b")))
    with pytest.raises(EventResourceError, match=r"207007.*'c' may have to wait for 2 events.*1 event ids"):
        Host(drawn, toy_device(limits={"max_events": 1}))


# --- cores --------------------------------------------------------------------------------------------


def test_more_blocks_than_cores_run_in_waves_and_launch_once() -> None:
    """Six blocks on four aiv: 10 ns of launch, 100 ns, 100 ns."""
    schedule = Host(graph(vector("a", blocks=6))).issue("a").schedule()
    assert rows_of(schedule, "a") == [(0, "vector", 4, 0, 110), (0, "vector", 2, 110, 210)]


def test_blocks_of_a_started_kernel_go_before_heads() -> None:
    """At 110 ns the last two blocks of a start before b, at 210 ns the last two of b.

    ::

        aiv: a a a a | a a b b | b b
             0-110     110-210
                       110-220   210-310
    """
    drawn = graph(vector("a", blocks=6), vector("b", blocks=4))
    schedule = Host(drawn).issue("a", 0).issue("b", 1).schedule()
    assert rows_of(schedule, "a") == [(0, "vector", 4, 0, 110), (0, "vector", 2, 110, 210)]
    assert rows_of(schedule, "b") == [(0, "vector", 2, 110, 220), (0, "vector", 2, 210, 310)]


def test_a_normal_kernel_starts_with_any_free_core() -> None:
    drawn = graph(vector("a", blocks=2), vector("b", blocks=3))
    schedule = Host(drawn).issue("a", 0).issue("b", 1).schedule()
    assert rows_of(schedule, "b") == [(0, "vector", 2, 0, 110), (0, "vector", 1, 110, 210)]


def test_a_batch_kernel_waits_for_all_its_cores_and_lets_others_pass() -> None:
    """::

    s0: a (2 aiv) 0-110
    s1: b (3 at once)      110-220
    s2: c (1)     0-110
    """
    batch = toy_kernel("vector", 100, blocks=3, scheme=Scheme.BATCH)
    drawn = graph(vector("a", blocks=2), kernel_command("b", batch), vector("c"))
    schedule = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert rows_of(schedule, "b") == [(0, "vector", 3, 110, 220)]
    assert times(schedule)["c"] == (0, 110)
    assert schedule.stall == Stall(0, 0, 0, 110, 0)


def test_a_mix_block_takes_one_aic_and_two_aiv() -> None:
    """Beside one mix block there is room for one cube block and two vector blocks.

    ::

        aic: m c | c
        aiv: m m v v | v v
    """
    drawn = graph(mix("m"), cube("c", blocks=2), vector("v", blocks=4))
    schedule = Host(drawn).issue("m", 0).issue("c", 1).issue("v", 2).schedule()
    assert rows_of(schedule, "m") == [(0, "mix", 1, 0, 110)]
    assert rows_of(schedule, "c") == [(0, "cube", 1, 0, 110), (0, "cube", 1, 110, 210)]
    assert rows_of(schedule, "v") == [(0, "vector", 2, 0, 110), (0, "vector", 2, 110, 210)]


def test_the_scarcer_pool_limits_mix_blocks() -> None:
    """With three aiv only one mix block runs at a time, though there are two aic."""
    schedule = Host(graph(mix("m", blocks=2)), toy_device(pools={"aiv": 3})).issue("m").schedule()
    assert rows_of(schedule, "m") == [(0, "mix", 1, 0, 110), (0, "mix", 1, 110, 210)]


def test_switching_to_and_from_mix_takes_longer() -> None:
    """3 ns where exactly one of two commands is a mix kernel, else 1 ns.

    ::

        s0: v 0-110 | m 113-223 | n 224-334 | w 337-447
    """
    drawn = graph(vector("v"), mix("m"), mix("n"), vector("w"))
    host = Host(drawn).issue("v").issue("m").issue("n").issue("w")
    assert host.times() == {"v": (0, 110), "m": (113, 223), "n": (224, 334), "w": (337, 447)}


def test_the_switch_looks_at_the_last_kernel_before_and_the_first_behind() -> None:
    """x ends with mix and y begins with it, so 1 ns between them; z follows the vector end of y by 1 ns.

    ::

        s0: x vm 0-220 | y mv 221-441 | z 442-552
    """
    parts = {work: toy_kernel(work, 100) for work in ("vector", "mix")}
    drawn = graph(
        kernel_command("x", parts["vector"], parts["mix"]),
        kernel_command("y", parts["mix"], parts["vector"]),
        vector("z"),
    )
    host = Host(drawn).issue("x").issue("y").issue("z")
    assert host.times() == {"x": (0, 220), "y": (221, 441), "z": (442, 552)}


SLOW_AICPU = {"aicpu": {"flops_per_cycle": {"float16": 0.5}}}


def falling_back(name: str, blocks: int = 1) -> Command:
    return kernel_command(name, toy_kernel("cube", 100, blocks=blocks, fallback=KernelClass.AICPU))


def test_a_kernel_falls_back_when_its_class_is_busy() -> None:
    """b prefers aic and takes it when free; c finds it taken and runs at half speed on the AI CPU.

    ::

        aic:   a a 0-110   d d 110-210 (two more waves)
        aicpu: c   0-210
    """
    drawn = graph(cube("a", blocks=2), falling_back("c"), falling_back("d"))
    schedule = (
        Host(drawn, toy_device(classes=SLOW_AICPU)).issue("a", 0).issue("c", 1).issue("d", 2).schedule()
    )
    assert rows_of(schedule, "c") == [(0, "aicpu", 1, 0, 210)]
    assert rows_of(schedule, "d") == [(0, "cube", 1, 110, 220)]


def test_a_kernel_with_a_fallback_never_splits() -> None:
    """Three blocks: two on aic, then one more on aic, though the AI CPU is free."""
    schedule = Host(graph(falling_back("a", 3)), toy_device(classes=SLOW_AICPU)).issue("a").schedule()
    assert rows_of(schedule, "a") == [(0, "cube", 2, 0, 110), (0, "cube", 1, 110, 210)]


def test_a_class_slot_sends_a_kernel_to_its_fallback() -> None:
    """One aic is free, but the one slot of the class is not."""
    device = toy_device(classes={"cube": {"max_active": 1}, **SLOW_AICPU})
    schedule = Host(graph(cube("a"), falling_back("b")), device).issue("a", 0).issue("b", 1).schedule()
    assert rows_of(schedule, "b") == [(0, "aicpu", 1, 0, 210)]


def test_kernels_of_a_command_run_back_to_back_and_launch_once_each() -> None:
    """cube in two waves, 10 + 100 + 100, then vector, 10 + 50; one call of 5 ns submits both.

    ::

        s0: a (cube 5-215, vector 215-275) | b 276-386
    """
    drawn = graph(
        kernel_command("a", toy_kernel("cube", 100, blocks=4), toy_kernel("vector", 50)), vector("b")
    )
    schedule = Host(drawn, submission=Submission.EAGER).issue("a").issue("b").schedule()
    assert rows_of(schedule, "a") == [
        (0, "cube", 2, 5, 115),
        (0, "cube", 2, 115, 215),
        (1, "vector", 1, 215, 275),
    ]
    assert times(schedule)["b"] == (276, 386)
    assert [call[:2] for call in schedule.host] == [("issue", 0), ("issue", 1)]


def test_the_next_kernel_of_a_command_goes_before_heads() -> None:
    """At 110 ns the aiv are free: the second kernel of a takes them before c, which has waited since 0.

    ::

        s0: a (cube 0-110, vector 110-170)
        s1: b 0-110
        s2: c                            170-280
    """
    drawn = graph(
        kernel_command("a", toy_kernel("cube", 100), toy_kernel("vector", 50, blocks=4)),
        vector("b", blocks=4),
        vector("c", blocks=4),
    )
    host = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2)
    assert host.times() == {"a": (0, 170), "b": (0, 110), "c": (170, 280)}


@pytest.mark.parametrize("first", ["a", "b"])
def test_started_commands_are_served_in_the_order_in_which_they_started(first: str) -> None:
    """Both start at 0 ns. At 110 ns the second kernel of a and the last blocks of b want all four aiv.

    ::

        s0: a (cube 0-110, vector 110-170)       or  210-270
        s1: b 0-110, 170-270                     or  110-210
    """
    commands = {
        "a": kernel_command("a", toy_kernel("cube", 100), toy_kernel("vector", 50, blocks=4)),
        "b": vector("b", blocks=8),
    }
    host = Host(graph(*commands.values()))
    for stream, name in enumerate(sorted(commands, key=lambda name: name != first)):
        host.issue(name, stream)
    assert host.times() == (
        {"a": (0, 170), "b": (0, 270)} if first == "a" else {"a": (0, 270), "b": (0, 210)}
    )


# --- slots --------------------------------------------------------------------------------------------


def test_heads_active_at_once_are_limited_in_total() -> None:
    device = toy_device(limits={"max_concurrent_streams": 1})
    schedule = Host(graph(vector("a"), cube("b")), device).issue("a", 0).issue("b", 1).schedule()
    assert times(schedule) == {"a": (0, 110), "b": (110, 220)}
    assert schedule.stall == Stall(0, 0, 110, 0, 0)


def test_heads_active_at_once_are_limited_by_class() -> None:
    device = toy_device(classes={"vector": {"max_active": 1}})
    drawn = graph(vector("a"), vector("b"), cube("c"))
    schedule = Host(drawn, device).issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert times(schedule) == {"a": (0, 110), "b": (110, 220), "c": (0, 110)}
    assert schedule.stall == Stall(0, 0, 110, 0, 0)


def test_a_head_that_waits_holds_no_slot() -> None:
    """Two slots: a has one, b only waits for a, so c has the other.

    ::

        s0: a 0-110
        s1: b      110-220
        s2: c 0-310
    """
    device = toy_device(limits={"max_concurrent_streams": 2})
    drawn = graph(vector("a"), vector("b", after=("a",)), vector("c", 300))
    host = Host(drawn, device).issue("a", 0).issue("b", 1).issue("c", 2)
    assert host.times() == {"a": (0, 110), "b": (110, 220), "c": (0, 310)}


# --- shared bandwidth ---------------------------------------------------------------------------------


def test_two_flows_share_and_the_last_one_speeds_up() -> None:
    """HBM of 3 bytes a ns: 1.5 each. a is through at 10 + 100; b has 150 left, at its own cap of 2: 75 ns."""
    device = toy_device(links=hbm(3))
    host = Host(graph(mover("a", 150), mover("b", 300)), device).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, 110), "b": (0, 185)}


def test_a_flow_below_its_share_leaves_the_rest_to_the_others() -> None:
    """The AI CPU takes only 0.5 of 4 bytes a ns, so aic and aiv get 1.75 each, not 1.33.

    a: 100 bytes at 0.5 and b: 350 at 1.75 take 200 ns; c has 175 of 525 left then, at 2: 87.5 ns.
    """
    device = toy_device(classes={"aicpu": {"bytes_per_cycle": 0.5}})
    drawn = graph(mover("a", 100, work="aicpu"), mover("b", 350, work="cube"), mover("c", 525))
    host = Host(drawn, device).issue("a", 0).issue("b", 1).issue("c", 2)
    assert host.times() == {"a": (0, 210), "b": (0, 210), "c": (0, 298)}


def test_rates_round_down_and_times_up() -> None:
    """A third of 4 bytes a ns is 1398101 / 2**20: 400 bytes take 300.00007 ns, that is 301."""
    drawn = graph(mover("a", 400), mover("b", 400), mover("c", 400))
    host = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2)
    assert set(host.times().values()) == {(0, 311)}


def test_every_block_has_a_share_of_its_own() -> None:
    """Four blocks at 1 byte a ns each, whosever they are: 100 bytes a block take 100 ns."""
    drawn = graph(mover("a", 300, blocks=3), mover("b", 100))
    host = Host(drawn).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, 110), "b": (0, 110)}


def test_later_waves_move_their_bytes_too() -> None:
    """Six blocks of 100 bytes: four at 1 byte a ns, then two at 2."""
    schedule = Host(graph(mover("a", 600, blocks=6))).issue("a").schedule()
    assert rows_of(schedule, "a") == [(0, "vector", 4, 0, 110), (0, "vector", 2, 110, 160)]


def test_a_core_moves_no_more_than_its_port() -> None:
    """Alone on 4 bytes a ns, one core takes 2."""
    assert Host(graph(mover("a", 400))).issue("a").times() == {"a": (0, 210)}


def test_a_late_flow_takes_its_share_after_its_launch() -> None:
    """HBM of 2. From 61 ns a (102 of 400 bytes moved) and b share; at 261 ns a has 98 left, at 2: 49 ns.

    ::

        s0: a 0-310
        s1: x 0-50 | b 51-261 (launch to 61)
    """
    drawn = graph(mover("a", 400), callback("x", 50), mover("b", 200))
    host = Host(drawn, toy_device(links=hbm(2))).issue("a", 0).issue("x", 1).issue("b", 1)
    assert host.times() == {"a": (0, 310), "x": (0, 50), "b": (51, 261)}


def test_a_block_takes_the_longer_of_arithmetic_and_bytes() -> None:
    """HBM of 2: a's 100 bytes are through at 110 ns, b's last 100 then move at 2; a computes on to 310."""
    drawn = graph(mover("a", 100, compute_ns=300), mover("b", 200))
    host = Host(drawn, toy_device(links=hbm(2))).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, 310), "b": (0, 160)}


def test_copies_have_links_of_their_own() -> None:
    """In and out at 1 byte a ns after 5 ns, within HBM at 4 for each way: all at once."""
    drawn = graph(copy_in("i"), copy_out("o"), copy_inside("d"))
    host = Host(drawn).issue("i", 0).issue("o", 1).issue("d", 2)
    assert host.times() == {"i": (0, 69), "o": (0, 69), "d": (0, 37)}


def test_copies_wait_for_their_channel() -> None:
    schedule = Host(graph(copy_in("a"), copy_in("b"))).issue("a", 0).issue("b", 1).schedule()
    assert times(schedule) == {"a": (0, 69), "b": (69, 138)}
    assert schedule.stall == Stall(0, 0, 0, 0, 69)


def test_two_channels_share_their_link() -> None:
    """Half a byte a ns each: b's 32 bytes to 69 ns; a's last 32 at full speed to 101."""
    drawn = graph(copy_in("a", 64), copy_in("b", 32))
    host = Host(drawn, toy_device(pools={"h2d": 2})).issue("a", 0).issue("b", 1)
    assert host.times() == {"a": (0, 101), "b": (0, 69)}


@pytest.mark.parametrize(("shared", "finish_ns"), [(False, 110), (True, 140)])
def test_copies_may_load_the_device_memory(shared: bool, finish_ns: int) -> None:
    """HBM of 2 bytes a ns, k wants 2, the copy 1.

    Where the copy shares HBM, both move at 1 from 10 ns on; at 69 ns k has 141 of 200 left, at 2: 70.5 ns.
    """
    device = toy_device(links={**hbm(2), "h2d": {"shares_hbm": shared}})
    host = Host(graph(copy_in("c", 64), mover("k", 200)), device).issue("c", 0).issue("k", 1)
    assert host.times() == {"c": (0, 69), "k": (0, finish_ns)}


def test_a_flow_stops_at_the_narrower_of_two_links() -> None:
    """HBM of 4: the copy cannot take its third, its own link carries 1; the kernels share the other 3."""
    device = toy_device(links={"h2d": {"shares_hbm": True}})
    drawn = graph(copy_in("c", 205), mover("k", 300), mover("l", 300))
    host = Host(drawn, device).issue("c", 0).issue("k", 1).issue("l", 2)
    assert host.times() == {"c": (0, 210), "k": (0, 210), "l": (0, 210)}


# --- callbacks and collectives ------------------------------------------------------------------------


@pytest.mark.parametrize("make", [callback, collective])
def test_callbacks_and_collectives_occupy_their_stream_and_engine(make: Any) -> None:
    """::

    s0: a 0-50 | k 51-161
    s1:     b 50-110
    """
    drawn = graph(make("a", 50), vector("k"), make("b", 60))
    host = Host(drawn).issue("a", 0).issue("k", 0).issue("b", 1)
    assert host.times() == {"a": (0, 50), "k": (51, 161), "b": (50, 110)}
