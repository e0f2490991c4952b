"""Events of CANN's static allocations: inserted, pruned and split by hand, and held against the engine."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from toys import toy_chain, toy_device, vector

from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers import record_schedule
from cann_env.schedulers.assignment import Fetch, carry_out
from cann_env.schedulers.cann import in_program_order
from cann_env.schedulers.cann_events import (
    Event,
    events_of,
    first_received,
    inserted_events,
    last_sent,
    split_streams,
)
from cann_env.units import InputError

WIDE = RunOptions(streams=8, commands=64, run_ahead=256)


def test_only_dependencies_between_streams_cost_an_event() -> None:
    """``0 -> 1`` on one stream, ``1 -> 2`` on to another."""
    assert inserted_events([(), (0,), (1,)], range(3), (0, 0, 1)) == (Event(1, 2),)


def test_of_several_waits_for_one_sender_the_first_is_kept() -> None:
    """::

    s0: 0 --.----.
             v    v
    s1:      1    2     2 comes after 1, which has waited already
    """
    events = inserted_events([(), (0,), (0,)], range(3), (0, 1, 1))
    assert events == (Event(0, 1), Event(0, 2))
    assert first_received(events, range(3), (0, 1, 1)) == (Event(0, 1),)
    assert first_received(events, (0, 2, 1), (0, 1, 1)) == (Event(0, 2),)
    assert first_received(events, range(3), (0, 1, 2)) == events


def test_of_several_records_for_one_receiver_the_last_is_kept() -> None:
    """::

      s0: 0    1
           \\    \\
            v    v
      s1:        2       1 comes after 0, so its event implies the other
    """
    events = inserted_events([(), (), (0, 1)], range(3), (0, 0, 1))
    assert events == (Event(0, 2), Event(1, 2))
    assert last_sent(events, range(3), (0, 0, 1)) == (Event(1, 2),)
    assert last_sent(events, (1, 0, 2), (0, 0, 1)) == (Event(0, 2),)
    assert last_sent(events, range(3), (0, 1, 2)) == events


def test_the_engine_waits_as_often() -> None:
    """::

    s0: a ---. b       c depends on a, d on a and b; their stream has waited for a before d comes:
        |    |  \\      three are inserted, two are kept
    s1: '--> c   d
    """
    graph = CommandGraph(
        "pairs", (vector("a"), vector("b"), vector("c", after=("a",)), vector("d", after=("a", "b")))
    )
    program = compile_graph(graph, toy_device(), WIDE)
    streams = (0, 0, 1, 1)
    events = events_of(program, streams)
    assert events.inserted == (Event(0, 2), Event(0, 3), Event(1, 3))
    assert events.received_once == events.kept == (Event(0, 2), Event(1, 3))
    schedule = record_schedule(
        program, carry_out(program, in_program_order(program, streams, Fetch.ON_DEMAND)).plan.actions
    )
    assert [tuple(wait) for wait in schedule.waits] == [(0, 2), (1, 3)]


def implied(streams: tuple[int, ...], order: tuple[int, ...], events: tuple[Event, ...]) -> list[int]:
    """For each command, as bits, all that surely come before it: by its stream's order and by events."""
    before = [0] * len(order)
    last: dict[int, int] = {}
    for v in order:
        near = [event.sender for event in events if event.receiver == v]
        near += [last[streams[v]]] if streams[v] in last else []
        for u in near:
            before[v] |= before[u] | 1 << u
        last[streams[v]] = v
    return before


def random_allocation(seed: int) -> tuple[Program, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, most=25, memory=False)
    program = compile_graph(graph, toy_device(), WIDE)
    return program, tuple(rng.integers(0, 4, len(graph.commands)).tolist())


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_pruned_events_still_imply_every_dependency(seed: int) -> None:
    program, streams = random_allocation(seed)
    order = program.graph.topological_order
    events = events_of(program, streams)
    assert set(events.kept) <= set(events.received_once) <= set(events.inserted)
    for stage in (events.inserted, events.received_once, events.kept):
        before = implied(streams, order, stage)
        for v, needed in enumerate(program.graph.predecessors):
            assert all(before[v] >> u & 1 for u in needed)
    if events.kept:  # and without any event something is missing
        fewer = implied(streams, order, ())
        assert any(
            not fewer[v] >> u & 1 for v, needed in enumerate(program.graph.predecessors) for u in needed
        )


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_split_streams_fit_and_stay_in_order(seed: int) -> None:
    """No part holds more than the queue less the reserve, parts of a stream are linked end to end."""
    program, streams = random_allocation(seed)
    order = program.graph.topological_order
    split = split_streams(program, streams, most=27 + 4)
    parts = [[v for v in order if split.streams[v] == part] for part in sorted(set(split.streams))]
    assert all(len(part) <= 4 for part in parts)
    assert all(len({streams[v] for v in part}) == 1 for part in parts)
    assert len(split.links) == len(parts) - len(set(streams))
    before = implied(split.streams, order, split.links)
    for stream in set(streams):
        line = [v for v in order if streams[v] == stream]
        assert all(before[v] >> u & 1 for u, v in pairwise(line))


def test_split_by_hand() -> None:
    """Seven commands, three a queue: 0-2, 3-5, 6; the events that a command sends and awaits count too."""
    program = compile_graph(toy_chain(7), toy_device(), WIDE)
    split = split_streams(program, (0,) * 7, most=30)
    assert split.streams == (0, 0, 0, 1, 1, 1, 2)
    assert split.links == (Event(2, 3), Event(5, 6))
    assert split_streams(program, (0,) * 7, [Event(0, 1)], most=30).streams == (0, 1, 1, 2, 2, 2, 3)
    assert split_streams(program, (0,) * 5 + (1,) * 2).streams == (0,) * 5 + (1,) * 2


def test_a_queue_without_room_is_refused() -> None:
    program = compile_graph(toy_chain(2), toy_device(), WIDE)
    with pytest.raises(InputError, match=r"a queue of 27 tasks on toy: 27 are reserved"):
        split_streams(program, (0, 0), most=27)
