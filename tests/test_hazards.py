"""Order by streams and events alone: what a judge calls a missing wait and a programmer a race."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import hand_schedule, toy_pipeline, vector

from cann_env.graph import Buffer, CommandGraph
from cann_env.units import InputError
from cann_env.validate import Hazard, hazards, validate

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPELINE = toy_pipeline(2)  # in0 k0 out0 in1 k1 out1
IN_ORDER = range(6)


def kinds(found: Sequence[Hazard]) -> list[tuple[str, str, str]]:
    names = [command.name for command in PIPELINE.commands]
    return [(names[h.producer], names[h.consumer], h.kind) for h in found]


def test_one_stream_has_no_hazard() -> None:
    assert hazards(PIPELINE, [0] * 6, IN_ORDER, []) == ()


def test_copy_back_that_does_not_wait_for_the_kernel_is_a_hazard() -> None:
    """Copies on one stream, kernels on another, an event only from copy to kernel::

    s0: in0 | out0 | in1 | out1
    s1:     '-> k0       '-> k1      out0 reads what k0 may not have written yet
    """
    found = hazards(PIPELINE, [0, 1, 0, 0, 1, 0], IN_ORDER, [(0, 1), (3, 4)])
    assert kinds(found) == [("k0", "out0", "read after write"), ("k1", "out1", "read after write")]
    assert [h.buffer for h in found] == ["y0", "y1"]
    assert hazards(PIPELINE, [0, 1, 0, 0, 1, 0], IN_ORDER, [(0, 1), (1, 2), (3, 4), (4, 5)]) == ()


def test_waiting_for_an_event_that_is_recorded_later_orders_nothing() -> None:
    """The host submits k0 before in0; its wait finds no event and returns at once."""
    streams = [0, 1, 1, 0, 1, 1]
    waits = [(0, 1), (3, 4)]
    assert hazards(PIPELINE, streams, IN_ORDER, waits) == ()
    assert kinds(hazards(PIPELINE, streams, [1, 0, 2, 3, 4, 5], waits)) == [("in0", "k0", "read after write")]


def test_every_kind_of_hazard_is_told() -> None:
    """One buffer: a writes it, b reads it, c writes it again, all on streams of their own."""
    graph = CommandGraph(
        "kinds",
        (vector("a", writes=("x",)), vector("b", reads=("x",)), vector("c", writes=("x",))),
        (Buffer(name="x", size_bytes=64),),
    )
    assert hazards(graph, [0, 1, 2], range(3), []) == (
        Hazard(0, 1, "x", "read after write"),
        Hazard(1, 2, "x", "write after read"),
        Hazard(0, 2, "x", "write after write"),
    )
    assert hazards(graph, [0, 1, 2], range(3), [(0, 1), (1, 2)]) == ()


def test_a_same_stream_in_the_wrong_order_is_a_hazard() -> None:
    assert kinds(hazards(PIPELINE, [0] * 6, [1, 0, 2, 3, 4, 5], [])) == [("in0", "k0", "read after write")]


@pytest.mark.parametrize(
    ("streams", "order", "waits", "named"),
    [
        ([0] * 6, [0, 1, 2, 3, 4, 4], [], "'order'"),
        ([0] * 5, range(6), [], "'stream_of' has 5"),
        ([0] * 6, range(6), [(0, 6)], "wait (0, 6)"),
    ],
)
def test_wrong_input_is_named(
    streams: list[int], order: Sequence[int], waits: list[tuple[int, int]], named: str
) -> None:
    with pytest.raises(InputError) as caught:
        hazards(PIPELINE, streams, order, waits)
    assert named in str(caught.value)


# --- against reachability in the whole graph of streams and events --------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> tuple[CommandGraph, list[int], list[tuple[int, int]]]:
    """Up to eight commands on up to three streams, with random ``after`` and random forward waits."""
    count = draw(st.integers(2, 8))
    pairs = [(p, c) for c in range(count) for p in range(c)]
    edges = draw(st.sets(st.sampled_from(pairs)))
    waits = draw(st.sets(st.sampled_from(pairs)))
    streams = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    commands = [
        vector(f"k{c}", after=tuple(f"k{p}" for p, consumer in sorted(edges) if consumer == c))
        for c in range(count)
    ]
    return CommandGraph("random", tuple(commands)), streams, sorted(waits)


def reaches(streams: list[int], waits: list[tuple[int, int]]) -> nx.DiGraph:
    """Which command surely ends before which starts, by transitive closure."""
    graph = nx.DiGraph(waits)
    graph.add_nodes_from(range(len(streams)))
    for stream in set(streams):
        nx.add_path(graph, [c for c, at in enumerate(streams) if at == stream])
    return nx.transitive_closure_dag(graph)


@settings(max_examples=50)
@given(programs())
def test_a_wait_is_missing_where_no_path_leads(
    program: tuple[CommandGraph, list[int], list[tuple[int, int]]],
) -> None:
    """One command after another in time, so that only the order by streams and events can be wrong."""
    graph, streams, waits = program
    runs = [(f"k{c}", stream, 111 * c, 111 * c, 111 * c + 110) for c, stream in enumerate(streams)]
    names = [command.name for command in graph.commands]
    schedule = hand_schedule(graph, runs, waits=[(names[p], names[c]) for p, c in waits])
    closure = reaches(streams, waits)
    expected = {
        (p, c) for c, before in enumerate(graph.predecessors) for p in before if not closure.has_edge(p, c)
    }
    found = validate(schedule)
    assert {violation.rule for violation in found} <= {"missing-wait"}
    assert {violation.commands for violation in found} == expected


@settings(max_examples=50)
@given(programs())
def test_hazards_are_the_data_dependencies_without_a_path(
    program: tuple[CommandGraph, list[int], list[tuple[int, int]]],
) -> None:
    """Every dependency carried by a buffer of its own."""
    plain, streams, waits = program
    edges = [(p, c) for c, before in enumerate(plain.predecessors) for p in before]
    commands = [
        vector(
            f"k{c}",
            reads=tuple(f"{p}-{c}" for p, consumer in edges if consumer == c),
            writes=tuple(f"{c}-{consumer}" for p, consumer in edges if p == c),
        )
        for c in range(len(streams))
    ]
    buffers = tuple(Buffer(name=f"{p}-{c}", size_bytes=1) for p, c in edges)
    graph = CommandGraph("data", tuple(commands), buffers)
    closure = reaches(streams, waits)
    found = hazards(graph, streams, range(len(streams)), waits)
    assert {(h.producer, h.consumer) for h in found} == {e for e in edges if not closure.has_edge(*e)}
