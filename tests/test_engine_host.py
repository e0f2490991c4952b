"""Hand-computed episodes of the host thread: what calls cost, what may be decided, what the bound says."""

from __future__ import annotations

import numpy as np
import pytest
from episodes import Host, actions_of, legal_actions, times
from toys import (
    callback,
    collective,
    copy_in,
    cube,
    kernel_command,
    managed,
    toy_chain,
    toy_device,
    toy_kernel,
    toy_squeeze,
    vector,
)

from cann_env.engine import groups
from cann_env.engine import layout as at
from cann_env.engine.arithmetic import ceil_div, scaled
from cann_env.engine.step import run_actions, step
from cann_env.graph import Buffer, Command, CommandGraph, HostMemory, KernelClass, Level
from cann_env.options import Allocator, Objective, Submission, Window
from cann_env.schedule import HostCall


def graph(*commands: Command, buffers: tuple[Buffer, ...] = ()) -> CommandGraph:
    return CommandGraph("drawn", commands, buffers)


# --- the host -----------------------------------------------------------------------------------------


def test_each_call_takes_the_host_time() -> None:
    """Kernel 5, copy 4, callback 3, collective 5 ns; each command starts when its call ends."""
    drawn = graph(vector("k"), copy_in("i"), callback("x"), collective("y"))
    host = Host(drawn, submission=Submission.EAGER).issue("k", 0).issue("i", 1).issue("x", 2).issue("y", 3)
    assert {name: start for name, (start, _) in host.times().items()} == {"k": 5, "i": 9, "x": 12, "y": 17}


@pytest.mark.parametrize(("allocator", "start_ns"), [(Allocator.POOL, 7), (Allocator.MALLOC, 35)])
def test_allocations_take_the_host_time(allocator: Allocator, start_ns: int) -> None:
    """A buffer costs 1 + 1 ns from a pool, 20 + 10 through the runtime, its release included."""
    drawn = graph(vector("a", writes=("x",)), buffers=(Buffer(name="x", size_bytes=64),))
    host = Host(drawn, submission=Submission.EAGER, allocator=allocator).issue("a")
    assert host.times()["a"][0] == start_ns


def test_waiting_takes_the_host_time_of_a_synchronisation() -> None:
    """a is there at 5 and done at 115 ns; the wait returns at 117, the next call ends at 122."""
    schedule = (
        Host(graph(vector("a"), vector("b")), submission=Submission.EAGER)
        .issue("a")
        .wait()
        .issue("b")
        .schedule()
    )
    assert schedule.host == (
        HostCall("issue", 0, 0, 5),
        HostCall("wait", -1, 5, 117),
        HostCall("issue", 1, 117, 122),
    )
    assert times(schedule)["b"] == (122, 232)


def test_the_host_costs_nothing_once_the_graph_is_sunk() -> None:
    drawn = graph(vector("a"), vector("b", after=("a",)), copy_in("c"))
    schedule = Host(drawn).issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert {(call.start_ns, call.end_ns) for call in schedule.host} == {(0, 0)}


@pytest.mark.parametrize(
    ("submission", "copied", "started"),
    [(Submission.SINK, (0, 69), 70), (Submission.EAGER, (4, 73), 78)],
)
def test_a_pageable_copy_blocks_the_host(
    submission: Submission, copied: tuple[int, int], started: int
) -> None:
    """The call returns when the copy is done; only then is k issued: after a gap, or after its own call."""
    drawn = graph(copy_in("c", host_memory=HostMemory.PAGEABLE), vector("k"))
    host = Host(drawn, submission=submission).issue("c", 0)
    assert host.now_ns == copied[1]
    schedule = host.issue("k", 0).schedule()
    assert times(schedule) == {"c": copied, "k": (started, started + 110)}


def test_commands_become_known_at_their_release() -> None:
    """b is not offered before 100 ns; waiting wakes for it while a still runs."""
    host = Host(graph(vector("a", 200), vector("b", release_ns=100)))
    assert host.window == ["a"]
    host.issue("a", 0)  # nothing is left but to wait, so that was done
    assert (host.now_ns, host.window) == (100, ["b"])
    assert host.issue("b", 1).times() == {"a": (0, 210), "b": (100, 210)}


def test_release_alone_can_be_waited_for() -> None:
    host = Host(graph(vector("b", release_ns=100)))
    assert (host.now_ns, host.window) == (100, ["b"])
    assert host.issue("b").times() == {"b": (100, 210)}


# --- what may be decided ------------------------------------------------------------------------------


def test_run_ahead_bounds_the_commands_in_flight() -> None:
    """With two in flight c cannot be issued; the step goes on to the first completion at 110 ns."""
    host = Host(graph(vector("a"), vector("b", 200), vector("c")), run_ahead=2).issue("a", 0).issue("b", 1)
    assert host.now_ns == 110
    assert host.issue("c", 0).times()["c"] == (111, 221)


def test_a_full_queue_takes_no_more() -> None:
    """Depth 2 counts the head that runs: s0 is full, s1 is the lowest idle stream."""
    host = Host(toy_chain(3), toy_device(limits={"queue_depth": 2})).issue("a", 0).issue("b", 0)
    assert host.streams("c") == [1]
    host.wait()
    assert (host.now_ns, host.streams("c")) == (110, [0, 1])


def test_only_the_lowest_idle_stream_may_be_named() -> None:
    host = Host(toy_chain(4))
    assert host.streams("a") == [0]
    host.issue("a", 0)
    assert host.streams("b") == [0, 1]
    host.issue("b", 1)
    assert host.streams("c") == [0, 1, 2]


def test_the_window_holds_the_most_urgent_commands() -> None:
    """K is 2: by descending tail, ties in program order."""
    host = Host(graph(vector("a", 100), vector("b", 300), vector("c", 200), vector("d", 200)), commands=2)
    assert host.window == ["b", "c"]
    assert host.issue("b", 0).window == ["c", "d"]


def test_a_command_is_offered_once_its_predecessors_are_issued() -> None:
    host = Host(toy_chain(3))
    assert host.window == ["a"]
    assert host.issue("a").window == ["b"]
    assert host.now_ns == 0


def test_waiting_needs_something_to_wait_for() -> None:
    host = Host(toy_chain(2))
    assert not host.can_wait
    assert host.issue("a").can_wait


def test_the_startable_window_holds_what_can_start_now_and_implies_the_stream() -> None:
    """b needs a; c finds no free aiv beside a. After a, both can start.

    ::

        s0: a 0-110 | b 111-221      (b goes to the lowest idle stream)
        s1:         c 110-220
    """
    drawn = graph(vector("a", 200, blocks=4), vector("b", after=("a",)), vector("c"), cube("d"))
    host = Host(drawn, window=Window.STARTABLE)
    assert (host.choices, host.window) == (1, ["a", "c", "d"])
    host.issue("a")
    assert host.window == ["d"]
    host.issue("d")  # the stream of d is idle at 110 ns, but nothing could start
    assert (host.now_ns, host.window) == (210, ["b", "c"])
    assert host.issue("b").issue("c").times() == {
        "a": (0, 210),
        "d": (0, 110),
        "b": (211, 321),
        "c": (210, 320),
    }


def test_with_every_slot_taken_the_startable_window_is_empty() -> None:
    """One active head is all the device can have: b has cores and a stream, but no slot until 110 ns."""
    device = toy_device(limits={"max_concurrent_streams": 1})
    host = Host(graph(vector("a"), cube("b")), device, window=Window.STARTABLE).issue("a")
    assert (host.now_ns, host.window) == (110, ["b"])


def test_with_every_stream_busy_the_startable_window_is_empty() -> None:
    """One stream: b has cores but no stream until a is done."""
    host = Host(graph(vector("a"), vector("b")), window=Window.STARTABLE, streams=1).issue("a")
    assert (host.now_ns, host.window) == (110, ["b"])


def test_the_prefetch_window_is_filled_by_urgency_not_by_number() -> None:
    """The user of w2 has the longest tail, that of w0 the shortest."""
    commands = [vector(f"k{i}", 100 * (i + 1), reads=(f"w{i}",)) for i in range(3)]
    drawn = graph(*commands, buffers=tuple(managed(f"w{i}") for i in range(3)))
    assert list(Host(drawn, prefetches=2).prefetchable) == ["w2", "w1"]


def test_the_one_safe_command_is_offered_though_it_lies_beyond_the_window() -> None:
    """K is 1 and there is room for two buffers. After a only b is safe, but c is more urgent than b.

    ::

        a 0-1010 --w--> b 1011-1121 --x-->      c --y--> d --z-->
    """
    drawn = graph(
        vector("a", 1000, writes=("w",)),
        vector("b", 100, reads=("w",), writes=("x",)),
        vector("c", 100, writes=("y",)),
        vector("d", 500, reads=("y",), writes=("z",)),
        buffers=tuple(Buffer(name=name, size_bytes=64) for name in "wxyz"),
    )
    host = Host(drawn, commands=1, hbm_bytes=128).issue("a")
    assert (host.now_ns, host.window) == (1010, ["b"])
    host.issue("b")
    assert (host.now_ns, host.window) == (1121, ["c"])
    assert host.issue("c").issue("d").times()["d"] == (1233, 1743)


def test_the_one_safe_command_is_offered_beside_a_prefetch() -> None:
    """The same; that the weight of b could be prefetched is no reason to leave nothing else."""
    drawn = graph(
        vector("a", 1000, writes=("w",)),
        vector("b", 100, reads=("w", "v"), writes=("x",)),
        vector("c", 100, writes=("y",)),
        vector("d", 500, reads=("y",), writes=("z",)),
        buffers=(managed("v"), *(Buffer(name=name, size_bytes=64) for name in "wxyz")),
    )
    host = Host(drawn, commands=1, hbm_bytes=192).issue("a").wait()
    assert (host.now_ns, host.window, host.streams("b")) == (1010, ["b"], [0])
    assert (host.can_wait, host.prefetchable) == (False, {"v": True})


def test_commands_that_have_not_come_lend_no_urgency() -> None:
    """w0 has a long user that is released at 500 ns; until then w1, whose user is shorter, goes first."""
    drawn = graph(
        vector("late", 900, reads=("w0",), release_ns=500),
        vector("soon", 50, reads=("w0",)),
        vector("b", 100, reads=("w1",)),
        buffers=(managed("w0"), managed("w1")),
    )
    host = Host(drawn)
    assert list(host.prefetchable) == ["w1", "w0"]
    host.wait()
    assert (host.now_ns, list(host.prefetchable)) == (500, ["w0", "w1"])


# --- what may not be decided --------------------------------------------------------------------------


def test_an_illegal_action_becomes_a_wait() -> None:
    """b may go to streams 0 and 1; named for stream 3, it stays where it is and a's completion is awaited."""
    host = Host(graph(vector("a"), vector("b"))).issue("a", 0)
    step(host.program.image, host.state, host.window.index("b") * 4 + 3)
    assert (host.now_ns, host.window, int(host.state[at.S_INVALID])) == (110, ["b"], 1)
    assert actions_of(host.state)[-1] == host.program.action_count - 1


@pytest.mark.parametrize("action", [1, 4 * 15, -1, 10**6])
def test_with_nothing_to_wait_for_it_becomes_the_first_legal_action(action: int) -> None:
    """At time zero: another stream, an empty slot, numbers outside."""
    host = Host(toy_chain(2))
    step(host.program.image, host.state, action)
    assert (host.window, int(host.state[at.S_INVALID]), actions_of(host.state)) == (["b"], 1, (0,))


def test_the_list_of_actions_holds_what_was_really_done() -> None:
    host = Host(graph(vector("a"), vector("b")))
    for action in (3, 7, 0):
        step(host.program.image, host.state, action)
    assert host.state[at.S_STATUS] == at.FINISHED
    assert times(host.schedule()) == {"a": (0, 110), "b": (111, 221)}


def test_steps_are_budgeted() -> None:
    """Waiting is the only way to waste a step, and for that something must end.

    Room for one buffer. Prefetched in turn, the least urgent first, each makes way for a more urgent one, and
    all but the most urgent can come again once its command is through: with 20 that is beyond 4 * (20 + 20).
    """
    host = Host(toy_squeeze(20), hbm_bytes=64, prefetches=20)
    while host.state[at.S_STATUS] == at.RUNNING:
        last = [name for name, legal in host.prefetchable.items() if legal]
        if last:
            host.prefetch(last[-1])
        elif host.can_wait:
            host.wait()
        else:
            host.issue(host.window[0])
    assert int(host.state[at.S_STATUS]) == at.OUT_OF_STEPS
    assert int(host.state[at.S_STEPS]) == 4 * (20 + 20)
    assert host.bound_ns <= int(host.program.image[at.P_WORST_NS])


def test_run_actions_is_step_after_step() -> None:
    host = Host(toy_chain(3)).issue("a", 0).issue("b", 1)
    other = Host(toy_chain(3))
    assert run_actions(other.program.image, other.state, np.asarray(actions_of(host.state))) == 2
    assert (other.state == host.state).all()


def test_run_actions_ends_with_the_episode() -> None:
    host = Host(toy_chain(2))
    assert run_actions(host.program.image, host.state, np.zeros(9, np.int64)) == 2
    assert int(host.state[at.S_STATUS]) == at.FINISHED


# --- noise and the bound ------------------------------------------------------------------------------


def test_noise_scales_what_really_happens_and_nothing_that_is_expected() -> None:
    """a takes twice its 110 ns, b half; the bound stays that of the expected durations."""
    host = Host(toy_chain(2), noise=(2 * 2**20, 2**19)).issue("a")
    assert host.bound_ns == host.program.lower_bound_ns == 220
    assert host.issue("b").times() == {"a": (0, 220), "b": (221, 276)}


def test_the_bound_counts_the_stream_order_decided_so_far() -> None:
    """Three times 110 ns side by side; with b behind a at least 220; the gap shows when it has happened."""
    host = Host(graph(vector("a"), vector("b"), vector("c")))
    assert host.bound_ns == 110
    assert host.issue("a", 0).bound_ns == 110
    assert host.issue("b", 0).bound_ns == 220
    assert host.issue("c", 1).bound_ns == 221


def test_the_bound_knows_what_a_flow_has_moved() -> None:
    """400 bytes at 2 a ns from 10 ns on; at 50 ns there are 320 left, so 210 ns stays the earliest end."""
    moving = kernel_command("a", toy_kernel("vector", 0, size_bytes=400))
    host = Host(graph(moving, callback("x", 50), vector("c", 0))).issue("a", 0).issue("x", 1).wait()
    assert (host.now_ns, host.bound_ns) == (50, 210)
    hbm_ns = host.observe()["device"][22] * host.program.lower_bound_ns
    assert hbm_ns == pytest.approx(320 / 4)


def test_the_bound_counts_what_a_link_still_has_to_carry() -> None:
    """Three times 400 bytes at 4 a ns: 300 ns without launch; alone each would take 210."""
    movers = [kernel_command(name, toy_kernel("vector", 0, size_bytes=400)) for name in "abc"]
    host = Host(graph(*movers))
    assert host.bound_ns == 300
    assert host.issue("a", 0).issue("b", 1).issue("c", 2).bound_ns == 311


def test_the_bound_counts_copies_on_their_link() -> None:
    """Three copies of 64 bytes over one link of 1 byte a ns, on three channels: 192 ns, and so it stays.

    Each then has a third of the link after its latency of 5 ns; rates round down, so they end at 198.
    """
    host = Host(graph(*(copy_in(name) for name in "abc")), toy_device(pools={"h2d": 3}))
    assert host.bound_ns == 192
    assert host.issue("a", 0).bound_ns == 192
    assert host.issue("b", 1).bound_ns == 192
    assert host.issue("c", 2).bound_ns == 198


def test_the_bound_counts_evicted_buffers_that_must_come_back() -> None:
    """Room for w0, of 640 bytes, or for w1, which is there: it is evicted at once and has to return.

    So 704 bytes have to cross the link instead of 640, and the kernels take no time to speak of.
    """
    drawn = graph(
        vector("k0", 0, reads=("w0",)),
        vector("k1", 0, reads=("w1",)),
        vector("z", 0),
        buffers=(managed("w0", 640), managed("w1", level=Level.HBM)),
    )
    host = Host(drawn, hbm_bytes=640)
    assert host.bound_ns == 5 + 640 + 10
    assert host.issue("k0").bound_ns == 640 + 64


def test_the_bound_counts_waves_that_wait() -> None:
    """Six blocks on four aiv end at 210 ns; starting them does not lower the bound."""
    host = Host(graph(vector("a", blocks=6), vector("b", after=("a",))))
    assert host.bound_ns == 210 + 110
    assert host.issue("a").bound_ns == 210 + 110


def test_the_bound_counts_the_bytes_of_a_running_kernel_at_the_speed_of_its_link() -> None:
    """Four blocks of 400 bytes: 200 ns each at 2 a ns, but 400 ns together at 4."""
    wide = kernel_command("a", toy_kernel("vector", 0, blocks=4, size_bytes=1600))
    host = Host(graph(wide, vector("b", after=("a",))))
    assert host.bound_ns == 400 + 110
    assert host.issue("a").bound_ns == 400 + 110


def test_the_bound_of_what_runs_does_not_know_the_durations_that_were_drawn() -> None:
    """a is expected to take 210 ns, in two waves; it takes half of that, which shows when it has ended."""
    drawn = graph(vector("a", blocks=6), vector("b", after=("a",)), vector("c", after=("b",)))
    host = Host(drawn, noise=(2**19, 2**20, 2**20)).issue("a")
    assert host.bound_ns == 210 + 110 + 110
    host.wait()
    assert host.now_ns == 105
    assert host.bound_ns == 105 + 110 + 110


def test_the_bound_counts_a_kernel_that_waits_for_cores() -> None:
    """The second kernel of a (60 ns) finds the aiv taken by b until 210 ns; at 110 it is known to need 60.

    ::

        s0: a (cube 0-110, vector 210-270)
        s1: b 0-210
        s2: d 0-110
    """
    drawn = graph(
        kernel_command("a", toy_kernel("cube", 100), toy_kernel("vector", 50)),
        vector("b", 200, blocks=4),
        cube("d"),
        vector("c", 90, after=("a",)),
    )
    host = Host(drawn).issue("a", 0).issue("b", 1).issue("d", 2).wait()
    assert (host.now_ns, host.bound_ns) == (110, 110 + 60 + 100)
    assert host.issue("c", 0).bound_ns == 371


def test_the_bound_takes_the_faster_class_of_a_fallback() -> None:
    """Three blocks take 210 ns on two aic, 110 as vector: no more is certain, even once they run as cube."""
    kernel = toy_kernel("cube", 100, blocks=3, fallback=KernelClass.VECTOR)
    host = Host(graph(kernel_command("a", kernel), vector("c", 0, after=("a",)))).issue("a")
    assert host.bound_ns == 110 + 10


def test_the_bound_waits_for_missing_operands() -> None:
    """w0 needs 69 ns at full speed, then 110; prefetched, its arrival is not counted again."""
    host = Host(toy_squeeze(1))
    assert host.bound_ns == 69 + 110
    assert host.prefetch("w0").bound_ns == 110
    assert host.issue("k0").bound_ns == 179


def test_the_bound_counts_what_the_host_still_has_to_submit() -> None:
    """Thirty calls of 5 ns are 150 ns; a kernel and its call only 15."""
    drawn = graph(*(vector(f"k{i}", 0) for i in range(30)))
    host = Host(drawn, submission=Submission.EAGER, commands=30)
    assert host.bound_ns == 150
    assert host.issue("k0").bound_ns == 150


def test_the_bound_counts_what_is_still_to_come() -> None:
    """b is released at 500 ns."""
    assert Host(graph(vector("a"), vector("b", release_ns=500))).bound_ns == 610


def test_latency_is_summed_over_requests() -> None:
    """Alone either request takes 110 ns; q comes at 100 ns and waits 10 ns for the cores.

    ::

        s0: a 0-110
        s1:         b 110-220
    """
    drawn = graph(vector("a", blocks=4, request="r"), vector("b", blocks=4, request="q", release_ns=100))
    host = Host(drawn, objective=Objective.LATENCY)
    assert host.program.norm_ns == 220
    rises = [step(host.program.image, host.state, action) for action in (0, 1)]
    assert host.state[at.S_STATUS] == at.FINISHED
    assert sum(rises) == 10
    assert int(host.state[at.S_OBJECTIVE_NS]) == 110 + 120


def test_a_request_ends_with_its_last_command() -> None:
    """b takes the cores to 210 ns, so a, of the same request, is expected at 320; c, of another, is late too.

    ::

        s0: b 0-210
        s1:         a 210-320
        s2:                   c 320-430
    """
    drawn = graph(
        vector("a", 100, blocks=4, request="r"),
        vector("b", 200, blocks=4, request="r"),
        vector("c", 100, blocks=4, request="q"),
    )
    host = Host(drawn, objective=Objective.LATENCY)
    assert int(host.state[at.S_OBJECTIVE_NS]) == 210 + 110
    host.issue("b", 0).issue("a", 1).wait()
    assert (host.now_ns, int(host.state[at.S_OBJECTIVE_NS])) == (210, 320 + 320)
    assert int(host.issue("c", 0).state[at.S_OBJECTIVE_NS]) == 320 + 430


def test_a_request_may_be_faster_than_its_best_under_noise() -> None:
    """Half of 110 ns: the sum of latencies is what was realised."""
    drawn = graph(vector("a", request="r"))
    host = Host(drawn, objective=Objective.LATENCY, noise=(2**19,))
    assert step(host.program.image, host.state, 0) == -55
    assert int(host.state[at.S_OBJECTIVE_NS]) == 55


def test_a_request_that_has_not_come_counts_with_its_best_latency() -> None:
    """After a alone: 110 and the 110 that q can at best hope for."""
    drawn = graph(vector("a", request="r"), vector("b", request="q", release_ns=1000))
    host = Host(drawn, objective=Objective.LATENCY).issue("a")
    assert host.now_ns == 1000  # nothing to decide before
    assert int(host.state[at.S_OBJECTIVE_NS]) == 220


def test_noise_may_make_the_return_positive() -> None:
    """The bound is that of expected durations: at half of them the objective falls by 55 ns."""
    host = Host(toy_chain(1), noise=(2**19,))
    assert step(host.program.image, host.state, 0) == -55


def test_the_first_action_of_a_fresh_episode_is_always_legal() -> None:
    assert legal_actions(Host(toy_chain(1)).program, Host(toy_chain(1)).state) == [0]


# --- numbers and room ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 10**9 + 7, 2**56])
@pytest.mark.parametrize("factor", [1, 2**19, 2**20, 2**20 + 1, 3 * 2**20 + 5])
def test_scaling_rounds_up_and_does_not_overflow(value: int, factor: int) -> None:
    assert scaled(value, factor) == -(-value * factor // 2**20)


@pytest.mark.parametrize(("a", "b", "up"), [(0, 3, 0), (1, 3, 1), (3, 3, 1), (4, 3, 2), (2**61, 2, 2**60)])
def test_division_rounds_up(a: int, b: int, up: int) -> None:
    assert ceil_div(a, b) == up


def test_every_table_of_a_state_has_room() -> None:
    """Tables follow each other without overlap, each with as many rows as can ever be needed."""
    host = Host(toy_squeeze(5), commands=3, prefetches=2, l2_prefetches=0, run_ahead=4)
    n, streams, buffers, flight = 5, 4, 5, 4
    image, state = host.program.image, host.state
    pools, links, classes = (int(image[word]) for word in (at.P_POOLS, at.P_LINKS, at.P_CLASSES))
    channels_and_cores = sum(toy_device().pools.values())
    needed = {
        at.P_STATE_STREAM: streams * at.SS_WIDTH,
        at.P_STATE_OPEN: streams,
        at.P_STATE_FLIGHT: flight,
        at.P_STATE_WINDOW: 3,
        at.P_STATE_SHOWN: 3,
        at.P_STATE_MASK: (3 * streams + 2 + 1) // 8,
        at.P_STATE_PREFETCH: 2,
        at.P_STATE_ELIGIBLE: streams,
        at.P_STATE_PENDING: flight,
        at.P_STATE_POOL: pools * at.SP_WIDTH,
        at.P_STATE_CLASS: classes * at.SW_WIDTH,
        at.P_STATE_LINK: links * at.SL_WIDTH,
        at.P_STATE_REQUEST: at.SR_WIDTH,
        at.P_STATE_STREAM_CLOCK: streams * streams,
        at.P_STATE_USED: streams,
        at.P_STATE_READY: n,
        at.P_STATE_COMMAND: n * at.SC_WIDTH,
        at.P_STATE_BUFFER: buffers * at.SB_WIDTH,
        at.P_STATE_CLOCK: n * streams,
        at.P_STATE_EDGE: n - 1,
        at.P_STATE_WANTED: buffers,
        at.P_STATE_LIFTABLE: buffers,
        at.P_STATE_LISTS: (at.SD_WIDTH - at.SD_AT_CLAIMS) * buffers,
        at.P_STATE_GROUP: (channels_and_cores + buffers) * groups.SG_WIDTH,
    }
    begins = [int(image[word]) for word in needed]
    begins.append(int(state[at.S_AT_ACTION]))
    needed[at.S_AT_ACTION] = 4 * (n + buffers)
    ends = [*begins[1:], int(state[at.S_AT_TRACE])]
    assert begins[0] == at.S_HEADER + at.SD_WIDTH
    for begin, end, (word, words) in zip(begins, ends, needed.items(), strict=True):
        assert end - begin >= words, word


def test_a_list_of_actions_cannot_begin_anew() -> None:
    """BEGIN among the actions is an illegal action like any other: repaired and counted."""
    host = Host(toy_chain(2))
    assert run_actions(host.program.image, host.state, np.array([at.BEGIN, 0, 0, 0])) > 1
    assert int(host.state[at.S_INVALID]) >= 1
    assert int(host.state[at.S_STATUS]) == at.FINISHED
