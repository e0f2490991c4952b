"""Hand-computed observations: every column of every part, on one small graph whose lower bound is 400 ns.

``a`` (200 ns, two vector blocks, 80 bytes) writes x; ``b`` (200 ns, cube) reads x and the managed w, which
lies on the host; ``c`` (100 ns, mix) is alone. Sizes are divided by 6400 bytes of HBM, commands in flight
by 8, streams by 4, blocks by 2 aic and 4 aiv.

::

    a --x--> b <--w      c
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from episodes import Host
from toys import callback, copy_in, kernel_command, managed, mix, toy_kernel, vector

from cann_env.engine import layout as at
from cann_env.engine import observe as observation
from cann_env.engine.observe_graph import OBS_NODE, observe_graph
from cann_env.graph import Buffer, CommandGraph
from cann_env.options import Objective, Submission

GRAPH = CommandGraph(
    "seen",
    (
        kernel_command("a", toy_kernel("vector", 190, blocks=2, size_bytes=80), writes=("x",)),
        kernel_command("b", toy_kernel("cube", 190), reads=("x", "w")),
        mix("c", 90),
    ),
    (Buffer(name="x", size_bytes=640), managed("w")),
)


def row(length: int, **columns: float) -> list[float]:
    """A row that is zero but for some columns, named ``c<number>``."""
    values = [0.0] * length
    for name, value in columns.items():
        values[int(name[1:])] = value
    return values


def command_row(**columns: float) -> list[float]:
    return row(observation.OBS_COMMAND, **columns)


def test_the_graph_is_as_drawn() -> None:
    assert Host(GRAPH).program.lower_bound_ns == 400


def test_commands_at_time_zero() -> None:
    """a: tail 400, 200 ns, vector, 2 of 4 aiv, 20 ns of HBM, 640 bytes, one successor. c: 100 ns, mix."""
    seen = Host(GRAPH).observe()["commands"]
    expected = [
        command_row(c0=1, c1=1, c2=0.5, c4=1, c10=0.5, c11=1, c12=0.1, c13=1, c16=0.1, c18=0.125),
        command_row(c0=1, c1=0.25, c2=0.25, c5=1, c10=0.5, c11=1, c13=1),
    ]
    np.testing.assert_allclose(seen[:2], expected, rtol=1e-6)
    assert not seen[2:].any()


def test_a_command_whose_predecessor_runs() -> None:
    """b may be expected to start in 200 ns, needs 64 ns of transfer, and its predecessor is on stream 0."""
    seen = Host(GRAPH).issue("a", 0).observe()["commands"]
    b = command_row(c0=1, c1=0.5, c2=0.5, c3=1, c10=0.5, c11=1, c14=0.5, c15=0.16, c17=0.25)
    np.testing.assert_allclose(seen[0], b, rtol=1e-6)


def test_too_few_cores_show() -> None:
    """With a on two of the four aiv, three of five blocks find none."""
    drawn = CommandGraph("few", (vector("a", 190, blocks=2), vector("d", 90, blocks=5)))
    seen = Host(drawn).issue("a", 0).observe()["commands"][0]
    assert seen[[10, 11, 13]].tolist() == pytest.approx([5 / 4, 2 / 5, 1])


def test_a_full_pool_shows() -> None:
    drawn = CommandGraph("full", (vector("a", 190, blocks=4), vector("d", 90)))
    seen = Host(drawn).issue("a", 0).observe()["commands"][0]
    assert seen[[11, 13]].tolist() == [0, 0]


def test_age_counts_from_the_release() -> None:
    """d was released at 100 ns; a is done at 200, which is the lower bound."""
    drawn = CommandGraph("aged", (vector("a", 190), vector("d", 50, release_ns=100)))
    host = Host(drawn).issue("a", 0)
    assert (host.now_ns, host.observe()["commands"][0, 19]) == (100, 0)
    host.wait()
    assert (host.now_ns, host.observe()["commands"][0, 19]) == (200, 0.5)


def test_copies_and_other_engines_have_columns_of_their_own() -> None:
    """h2d is class 4 of 7, a callback any other engine."""
    seen = Host(CommandGraph("engines", (copy_in("i", 640), callback("x", 10)))).observe()["commands"]
    assert seen[0, 3:10].tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert seen[1, 3:10].tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_streams() -> None:
    """Stream 0 runs a (vector) until 200 ns, then b queues behind it for 200 more; 1 is the lowest idle."""
    host = Host(GRAPH, stream_priorities=(0, 0, 0, 4)).issue("a", 0)
    expected = [
        row(observation.OBS_STREAM, c0=1, c1=0.125, c2=0.5, c3=1, c5=1),
        row(observation.OBS_STREAM, c0=1),
        row(observation.OBS_STREAM),
        row(observation.OBS_STREAM, c0=1, c11=0.5),
    ]
    np.testing.assert_allclose(host.observe()["streams"], expected, rtol=1e-6)
    seen = host.issue("b", 0).observe()["streams"][0]
    np.testing.assert_allclose(seen[:4], [1, 0.25, 1.0, 1], rtol=1e-6)


def test_a_head_that_waits_does_not_run() -> None:
    """b stands at the front of stream 1 until a is done, and is expected to end after 400 ns."""
    seen = Host(GRAPH).issue("a", 0).issue("b", 1).observe()["streams"][1]
    np.testing.assert_allclose(seen, row(observation.OBS_STREAM, c0=1, c1=0.125, c2=1.0, c4=1), rtol=1e-6)


def test_moves() -> None:
    """w: 64 bytes, 64 ns of transfer, its user's tail 200 ns; b is not issued at first, then it is."""
    host = Host(GRAPH).issue("a", 0)
    w = row(observation.OBS_BUFFER, c0=1, c1=0.01, c2=0.16, c3=0.5, c5=1)
    np.testing.assert_allclose(host.observe()["moves"], [w] + [row(observation.OBS_BUFFER)] * 7, rtol=1e-6)
    assert host.issue("b", 0).observe()["moves"][0, 4] == 1
    assert not host.prefetch("w").observe()["moves"].any()


def test_a_buffer_counts_users_still_to_start() -> None:
    """w has two users; a has started, b has not; w was evicted meanwhile for d's output."""
    drawn = CommandGraph(
        "users",
        (
            vector("a", reads=("w",)),
            vector("d", after=("a",), writes=("x",)),
            vector("b", reads=("w",), after=("d",)),
        ),
        (managed("w"), Buffer(name="x", size_bytes=64)),
    )
    host = Host(drawn, hbm_bytes=64).issue("a").issue("d")
    assert host.observe()["moves"][0, 5] == 0.5


def test_device() -> None:
    """After the issue of a, at 0 ns, 400 expected.

    Counts: 1 of 3 issued, 1 of 8 in flight, 1 of 8 active, b and c of 16 ready, 640 of 6400 bytes reserved
    and bound, 1 of 4 * (3 + 2) steps. Free: both aic, 2 of 4 aiv, the AI CPU, one of each channel. Core
    time left: (190 + 90) / 2 aic, (2 * 200 + 2 * 90) / 4 aiv. Links: a's 80 bytes at 4, w's 64 at 1.
    """
    seen = Host(GRAPH).issue("a", 0).observe()["device"]
    expected = [
        *(0, 1, 0, 0),
        *(1 / 3, 0, 1 / 8, 1 / 8, 2 / 16),
        *(0.1, 0.1, 0, 1 / 20),
        *(1, 0.5, 1),
        *(140 / 400, 145 / 400, 0),
        *(1, 1, 1),
        *(20 / 400, 64 / 400),
    ]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_device_later() -> None:
    """a and c are done at 200 ns, b is in flight and waits for w until 269; d, behind b, is ready.

    ::

        s0: a 0-200 | b ..... (fault from 201)
        s1: c 0-100
    """
    tail = replace(GRAPH.commands[2], name="d", after=("b",))
    host = Host(replace(GRAPH, commands=(*GRAPH.commands, tail))).issue("a", 0).issue("c", 1).issue("b", 0)
    host.wait().wait()
    seen = host.observe()["device"]
    assert host.now_ns == 200
    assert host.program.lower_bound_ns == 500
    np.testing.assert_allclose(seen[[0, 4, 5, 6, 7]], [200 / 500, 3 / 4, 2 / 4, 1 / 8, 0], rtol=1e-6)
    assert seen[1] == pytest.approx((host.bound_ns - 200) / 500)
    np.testing.assert_allclose(seen[[8, 9, 12]], [1 / 16, 0.1, 5 / 24], rtol=1e-6)


def test_the_host_has_less_to_submit_with_every_call() -> None:
    """Two calls of 5 ns: half is left."""
    seen = Host(CommandGraph("two", (vector("a"), vector("b"))), submission=Submission.EAGER).issue("a")
    assert seen.observe()["device"][3] == 0.5


def test_the_prefetch_queue_shows() -> None:
    """One of two is under way, so one waits, of 4 slots."""
    drawn = CommandGraph(
        "queue",
        (vector("a", reads=("v",)), vector("b", reads=("w",))),
        (managed("v"), managed("w")),
    )
    assert Host(drawn).prefetch("v").prefetch("w").observe()["device"][11] == 0.25


def test_features_are_cut() -> None:
    """c is 5 us old in a graph whose bound is 10 ns: ten times the bound is all that shows."""
    drawn = CommandGraph("cut", (vector("a", 0, blocks=4), vector("b", 0, blocks=4), vector("c", 0)))
    host = Host(drawn, noise=(500 * 2**20, 2**20, 2**20)).issue("a", 0).issue("b", 1).wait()
    assert host.now_ns == 5000
    assert host.observe()["commands"][0, 19] == observation.OBS_HIGH


def test_the_mask_of_every_slot_shows_as_filled() -> None:
    host = Host(GRAPH, commands=2, prefetches=1)
    assert host.observe()["commands"][:, 0].tolist() == [1, 1]
    assert host.issue("c", 0).observe()["commands"][:, 0].tolist() == [1, 0]


def test_windows_are_empty_once_the_episode_is_over() -> None:
    """Nothing can be decided any more, so nothing is offered."""
    host = Host(GRAPH).issue("a", 0).issue("c", 1).issue("b", 0)
    assert host.state[at.S_STATUS] == at.FINISHED
    seen = host.observe()
    assert not seen["commands"].any()
    assert not seen["moves"].any()
    assert (host.window, host.prefetchable, host.can_wait) == ([], {}, False)
    np.testing.assert_allclose(seen["device"][[4, 5, 6]], [1, 1, 0])


# --- the whole graph ----------------------------------------------------------------------------------


def seen_graph(host: Host, nodes: int, edges: int) -> tuple[np.ndarray, ...]:
    arrays = (
        np.full((nodes, OBS_NODE), np.nan, np.float32),
        np.full(nodes, np.nan, np.float32),
        np.full((2, edges), np.nan, np.float32),
        np.full(edges, np.nan, np.float32),
        np.full(host.program.options.commands, np.nan, np.float32),
    )
    observe_graph(host.program.image, host.state, *arrays)
    return arrays


def test_the_whole_graph_is_padded() -> None:
    """a runs on stream 0, b and c wait; b is window slot 0 (node 1 plus one), c slot 1."""
    host = Host(GRAPH, commands=3).issue("a", 0)
    nodes, node_mask, edge_index, edge_mask, window = seen_graph(host, 5, 2)
    expected = [
        row(OBS_NODE, c2=1, c4=1, c5=0.5, c7=1, c13=0.5, c15=0.25),
        row(OBS_NODE, c0=1, c4=0.5, c5=0.5, c6=1, c13=0.5, c14=0.16),
        row(OBS_NODE, c0=1, c4=0.25, c5=0.25, c8=1, c13=0.5),
        row(OBS_NODE),
        row(OBS_NODE),
    ]
    np.testing.assert_allclose(nodes, expected, rtol=1e-6)
    assert node_mask.tolist() == [1, 1, 1, 0, 0]
    assert edge_index.tolist() == [[0, 0], [1, 0]]
    assert edge_mask.tolist() == [1, 0]
    assert window.tolist() == [2, 3, 0]


def test_nodes_go_through_their_phases() -> None:
    """c is done, a runs, b is queued behind it."""
    host = Host(GRAPH).issue("a", 0).issue("b", 0)
    assert seen_graph(host, 3, 1)[0][:, :4].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    tail = replace(GRAPH.commands[2], name="d", after=("b",))
    host = (
        Host(replace(GRAPH, commands=(*GRAPH.commands, tail)))
        .issue("a", 0)
        .issue("c", 1)
        .issue("b", 0)
        .wait()
    )
    phases = [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert seen_graph(host, 4, 2)[0][:, :4].tolist() == phases


def test_what_is_not_released_is_hidden() -> None:
    """b and c arrive at 100 ns: before, neither they nor the edges from a and b are there."""
    drawn = CommandGraph(
        "hidden",
        (
            vector("a", 190),
            vector("b", after=("a",), release_ns=100),
            vector("c", after=("b",), release_ns=100),
        ),
    )
    host = Host(drawn, run_ahead=1)
    nodes, node_mask, edge_index, edge_mask, _ = seen_graph(host, 3, 2)
    assert (node_mask.tolist(), edge_mask.tolist()) == ([1, 0, 0], [0, 0])
    assert not edge_index.any()
    assert not nodes[1:].any()
    host.issue("a", 0)
    _, node_mask, edge_index, edge_mask, _ = seen_graph(host, 3, 2)
    assert host.now_ns >= 100
    assert (node_mask.tolist(), edge_mask.tolist()) == ([1, 1, 1], [1, 1])
    assert edge_index.tolist() == [[0, 1], [1, 2]]


def test_edges_appear_with_their_later_end() -> None:
    """b is there from the start, c at 100 ns: the edge from b to c comes with c."""
    drawn = CommandGraph("later", (vector("a", 190), vector("b"), vector("c", after=("b",), release_ns=100)))
    host = Host(drawn)
    assert seen_graph(host, 3, 1)[3].tolist() == [0]
    host.wait()
    _, _, edge_index, edge_mask, _ = seen_graph(host, 3, 1)
    assert (host.now_ns, edge_mask.tolist(), edge_index.tolist()) == (100, [1], [[1], [2]])


# --- what must not be seen ------------------------------------------------------------------------------


def with_late(late: int, block_ns: int) -> CommandGraph:
    """``a`` now and some commands of another request at 900 ns."""
    later = [vector(f"l{i}", block_ns, release_ns=900, request="r") for i in range(late)]
    return CommandGraph("late", (vector("a", 1000, blocks=4), *later))


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("submission", Submission)
def test_nothing_is_seen_of_what_is_not_released(objective: Objective, submission: Submission) -> None:
    """However many late commands there are and however long: before 900 ns every observation is the same."""
    seen = []
    for late, block_ns in ((1, 10), (1, 5000), (3, 10)):
        host = Host(with_late(late, block_ns), streams=2, objective=objective, submission=submission)
        seen.append(host.observe())
    for other in seen[1:]:
        for name, part in seen[0].items():
            np.testing.assert_array_equal(other[name], part, err_msg=name)


def test_a_release_shows_what_was_hidden() -> None:
    """At 900 ns the late command stands in the window, and times are divided by the longest path known."""
    host = Host(with_late(1, 5000), streams=2).issue("a", 0)
    host_seen = host.observe()["commands"]
    assert host.now_ns == 900  # waiting was the only choice
    np.testing.assert_allclose(host_seen[0, 1], 1.0)


def test_nothing_is_seen_of_durations_that_are_drawn() -> None:
    """a is expected to take 110 ns whether it will take four times that or a quarter."""
    seen = []
    for factor in (2**18, 2**22):
        host = Host(
            CommandGraph("drawn", (vector("a"), vector("b", after=("a",)))),
            noise=(factor, 2**20),
            streams=2,
        ).issue("a", 0)
        seen.append(host.observe())
        assert seen[-1]["streams"][0, 2] * host.program.lower_bound_ns == pytest.approx(110)
    for name, part in seen[0].items():
        np.testing.assert_array_equal(seen[1][name], part, err_msg=name)
