"""List scheduling of shops: the papers' own examples, plain oracles, laws of timelines and of Graphene."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import machines as plain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cann_env.schedulers.etf import dls, etf, latest_starts, mcp
from cann_env.schedulers.graphene import fragmenting, graphene
from cann_env.schedulers.heft import (
    cpop,
    critical_tasks,
    heft,
    optimistic_costs,
    peft,
    upward_ranks,
)
from cann_env.schedulers.shop import Shop, unit_machines
from cann_env.schedulers.timeline import FAR, Timeline
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedulers.shop import Placed

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=40, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)


def shop(costs: list[list[int]], edges: dict[tuple[int, int], int]) -> Shop:
    """A shop whose tasks count from 1 in the papers."""
    return unit_machines(costs, {(a - 1, b - 1): delay for (a, b), delay in edges.items()})


def topcuoglu() -> Shop:
    """Figure 2 of the paper on HEFT: ten tasks, three machines.

    ::

        1 -> 2, 3, 4, 5, 6;  2, 4, 6 -> 8;  2, 4, 5 -> 9;  3 -> 7;  7, 8, 9 -> 10
    """
    costs = [
        [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
        [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
    ]  # fmt: skip
    edges = {
        (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
        (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
    }  # fmt: skip
    return shop(costs, edges)


def arabnejad() -> Shop:
    """The example of the paper on PEFT: the same arrows, other numbers."""
    costs = [
        [22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35],
        [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33],
    ]  # fmt: skip
    edges = {
        (1, 2): 17, (1, 3): 31, (1, 4): 29, (1, 5): 13, (1, 6): 7, (2, 8): 3, (2, 9): 30, (3, 7): 16,
        (4, 8): 11, (4, 9): 7, (5, 9): 57, (6, 8): 5, (7, 10): 9, (8, 10): 42, (9, 10): 7,
    }  # fmt: skip
    return shop(costs, edges)


# --- the papers' examples -----------------------------------------------------------------------------


def test_heft_schedules_its_paper_s_example() -> None:
    """Ranks 108, 77, 80, 80, 69, 63.3, 42.7, 35.7, 44.3, 14.7; makespan 80; 10 on the second machine."""
    example = topcuoglu()
    ranks = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert upward_ranks(example) == pytest.approx(ranks, abs=1e-3)
    placed = heft(example)
    assert placed.makespan_ns == 80
    assert placed.processor == (2, 0, 2, 1, 2, 1, 2, 0, 1, 1)
    assert placed.start_ns == (0, 27, 9, 18, 28, 26, 38, 57, 56, 73)


def test_cpop_schedules_the_same_example() -> None:
    """Its critical path 1, 2, 9, 10 takes 66, 54 and 63: the second machine; makespan 86."""
    example = topcuoglu()
    assert [task + 1 for task in critical_tasks(example)] == [1, 2, 9, 10]
    placed = cpop(example)
    assert [placed.processor[task] for task in critical_tasks(example)] == [1, 1, 1, 1]
    assert placed.makespan_ns == 86


def test_peft_schedules_its_paper_s_example() -> None:
    """First rows of its table 64, 68, 86 and 42, 39, 42; makespan 122, where HEFT takes 133."""
    example = arabnejad()
    table = optimistic_costs(example)
    assert table[0] == [64, 68, 86]
    assert table[1] == [42, 39, 42]
    assert table[9] == [0, 0, 0]
    assert peft(example).makespan_ns == 122
    assert heft(example).makespan_ns == 133


def test_a_chain_keeps_to_the_machine_that_saves_the_transfer() -> None:
    """::

    0 -> 1, 5 on either machine, 3 between them: both on the first, 10 in all.
    """
    placed = heft(unit_machines([[5, 5], [5, 5]], {(0, 1): 3}))
    assert (placed.processor, placed.start_ns) == ((0, 0), (0, 5))


def test_heft_fills_the_gap_before_a_task_that_waits_for_its_data() -> None:
    """Task 0 ends at 4 and its data take 6::

    m0: | 2: 0-5 |    | 1: 10-20 |
    m1: | 0: 0-4 |
    """
    example = unit_machines([[-1, 4], [10, -1], [5, -1]], {(0, 1): 6})
    assert heft(example).start_ns == (0, 10, 0)


def test_dls_lets_a_long_path_go_before_what_could_start_sooner() -> None:
    """One machine: task 2 (level 100) has its data at 2, task 1 (level 10) could start at 0::

    dynamic levels: 2: 100 - 2 = 98 > 1: 10 - 0, so 2 runs 2-102 and 1 follows; ETF starts 1 first.
    """
    example = unit_machines([[-1, 1], [10, -1], [100, -1]], {(0, 2): 1})
    assert dls(example).start_ns == (0, 102, 2)
    assert etf(example).start_ns == (0, 0, 10)


def test_mcp_compares_what_comes_after_where_own_starts_are_equal() -> None:
    """Two trees of one root and two leaves; both roots start at 0 at the latest::

    0 (5) -> 2 (5), 3 (4): list 0, 5, 6
    1 (5) -> 4 (5), 5 (5): list 0, 5, 5, which is the smaller, so 1 goes first
    """
    costs = [[5], [5], [5], [4], [5], [5]]
    example = unit_machines(costs, {(0, 2): 0, (0, 3): 0, (1, 4): 0, (1, 5): 0})
    assert latest_starts(example) == [0, 0, 5, 6, 5, 5]
    assert mcp(example).start_ns[:2] == (5, 0)


def test_a_shop_that_cannot_be_run_is_refused() -> None:
    with pytest.raises(InputError, match="the 2 edges of a shop of 2 tasks form a cycle"):
        unit_machines([[1], [1]], {(0, 1): 0, (1, 0): 0})
    with pytest.raises(InputError, match="task 1 of a shop runs on no machine"):
        unit_machines([[1], [-1]], {})


# --- against plain oracles ----------------------------------------------------------------------------

PAIRS: dict[str, tuple[Callable[[Shop], Placed], Callable[[plain.Costs, plain.Edges], plain.Times]]] = {
    "heft": (heft, plain.heft),
    "cpop": (cpop, plain.cpop),
    "peft": (peft, plain.peft),
    "etf": (etf, plain.etf),
    "dls": (dls, plain.dls),
    "mcp": (mcp, plain.mcp),
}


def agrees(name: str, seed: int) -> None:
    """Machine and times of every task are the same; no two numbers are equal, so ties do not matter."""
    costs, edges = plain.random_instance(np.random.default_rng(seed))
    ours, theirs = PAIRS[name]
    placed, times = ours(unit_machines(costs, edges)), theirs(costs, edges)
    for task in range(len(costs)):
        assert (placed.processor[task], placed.start_ns[task], placed.finish_ns[task]) == times[task]


@pytest.mark.parametrize("name", ["heft", "cpop", "peft", "dls"])
@FAST
@given(seed=SEEDS)
def test_a_plain_reading_of_the_paper_agrees(name: str, seed: int) -> None:
    agrees(name, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["heft", "cpop", "peft", "dls"])
@LONG
@given(seed=SEEDS)
def test_a_plain_reading_of_the_paper_agrees_many_times(name: str, seed: int) -> None:
    agrees(name, seed)


@pytest.mark.parametrize("name", ["etf", "mcp"])
@FAST
@given(seed=SEEDS)
def test_so_it_does_where_several_machines_are_as_good(name: str, seed: int) -> None:
    """At the beginning all machines are free: both take the lowest of equals."""
    agrees(name, seed)


def paper_s_downward_rank(network: Any, graph: Any) -> dict[str, float]:
    """Longest path to the start of a task; saga's own counts the task and not the first one of the path."""
    mean = {task.name: np.mean([task.cost / node.speed for node in network.nodes]) for task in graph.tasks}
    rank: dict[str, float] = {}
    for task in graph.topological_sort():
        into = [edge.source for edge in graph.in_edges(task.name)]
        rank[task.name] = max((rank[name] + mean[name] for name in into), default=0.0)
    return rank


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["Heft", "Cpop", "PEFT"])
def test_saga_agrees(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines of different speed; with transfers only PEFT, as saga's mean delays count staying as well.

    Transfers are short beside the work: were they so long that nothing ever moves, ranks would be equal.
    """
    saga = pytest.importorskip("saga")
    import saga.schedulers.cpop as of_cpop

    monkeypatch.setattr(of_cpop, "downward_rank", paper_s_downward_rank)
    rng = np.random.default_rng(seed)
    tasks, machines = 12, 3
    work, speed = rng.integers(10**6, 10**7, tasks), [1, 2, 4]
    inner = range(1, tasks - 1)
    pairs = [(0, b) for b in inner] + [(a, tasks - 1) for a in inner]
    pairs += [(a, b) for a, b in product(inner, repeat=2) if a < b and rng.random() < 0.3]
    edges = {pair: int(rng.integers(1, 10**5)) if name == "PEFT" else 0 for pair in pairs}
    network = saga.Network.create(
        [(f"m{m}", float(speed[m])) for m in range(machines)],
        [(f"m{a}", f"m{b}", 1.0) for a in range(machines) for b in range(a)],
    )
    graph = saga.TaskGraph.create(
        [(f"t{t:02}", 4.0 * float(w)) for t, w in enumerate(work)],
        [(f"t{a:02}", f"t{b:02}", float(delay)) for (a, b), delay in edges.items()],
    )
    theirs = getattr(saga.schedulers, f"{name}Scheduler")().schedule(network, graph)
    ends = {task.name: task.end for _, own in theirs.items() for task in own}
    ours = PAIRS[name.lower()][0](unit_machines([[4 * int(w) // s for s in speed] for w in work], edges))
    assert [ends[f"t{t:02}"] for t in range(tasks)] == pytest.approx(ours.finish_ns, abs=1e-3)


# --- timelines ----------------------------------------------------------------------------------------


@FAST
@given(seed=SEEDS)
def test_a_timeline_finds_what_trying_every_instant_finds(seed: int) -> None:
    """Times from 0 to 40, two resources of 4 units; -1 and 100 stand for before and after everything."""
    rng = np.random.default_rng(seed)
    line, free = Timeline(np.array([4, 4])), np.full((100, 2), 4)
    for _ in range(8):
        demand, length = rng.integers(0, 3, 2), int(rng.integers(1, 8))
        ready = int(rng.integers(0, 30))
        fits = [t for t in range(90) if (free[t : t + length] >= demand).all()]
        assert line.earliest(demand, length, ready) == min(t for t in fits if t >= ready)
        due = int(rng.integers(length, 60))
        early = [t for t in fits if t + length <= due]
        latest = line.latest(demand, length, due)
        assert latest == max(early) if early else latest < 0
        last = np.flatnonzero((free < demand).any(axis=1))
        assert line.behind(demand, ready) == max(ready, int(last[-1]) + 1 if last.size else 0)
        start = line.earliest(demand, length, ready)
        line.take(demand, start, start + length)
        free[start : start + length] -= demand


def test_a_timeline_holds_any_number_of_tasks() -> None:
    """Busy from 2 to 3, 4 to 5, ... 200 to 201: one ns fits at once, two only before and after."""
    line, one = Timeline(np.array([1])), np.array([1])
    for start in range(200, 0, -2):
        line.take(one, start, start + 1)
    assert [line.earliest(one, length, 2) for length in (1, 2)] == [3, 201]
    assert [line.latest(one, length, 201) for length in (1, 2)] == [199, 0]
    assert line.behind(one, 0) == 201


def test_times_before_everything_are_free() -> None:
    line = Timeline(np.array([1]))
    line.take(np.array([1]), 0, 10)
    assert line.latest(np.array([1]), 5, 10) == -5
    assert line.earliest(np.array([1]), 5, -3) == 10
    assert line.earliest(np.array([1]), 5, -FAR // 2) == -FAR // 2


# --- Graphene -----------------------------------------------------------------------------------------


def cumulative(costs: list[int], demand: list[int], capacity: int, edges: set[tuple[int, int]]) -> Shop:
    """One processor with several units."""
    base = unit_machines([[cost] for cost in costs], dict.fromkeys(edges, 0))
    return Shop(
        cost_ns=base.cost_ns,
        demand=np.array(demand, np.int64).reshape(-1, 1, 1),
        capacity=np.array([capacity]),
        before=base.before,
        after=base.after,
        delay_ns=base.delay_ns,
        release_ns=base.release_ns,
        allowed=base.allowed,
        preferred=base.preferred,
        order=base.order,
    )


def test_graphene_starts_trouble_first() -> None:
    """Four units; 0 takes two for 5, 1 one for 2, 2 three for 1, and 3 after 2 two for 3.

    By longest path 0 comes first, and 2, which is the hardest to place, has to wait for it until 5; Graphene
    places 2 and what follows it first::

        0 0-5, 1 0-2 | 2 5-6 | 3 6-9        2 0-1, 1 0-2 | 0 1-6 | 3 2-5
    """
    example = cumulative([5, 2, 1, 3], [2, 1, 3, 2], 4, {(2, 3)})
    assert heft(example).makespan_ns == 9
    assert graphene(example) == (2, 0, 3, 1)


def test_what_cannot_be_filled_up_is_fragmenting() -> None:
    """Of 10 units 6 leave 4 idle, 5 none, 3 one, 0 nothing to fill."""
    assert fragmenting(np.array([[6], [5], [3], [0]]), np.array([10])).tolist() == [0.6, 1.0, 0.9, 1.0]


@settings(FAST, max_examples=8)
@given(seed=SEEDS)
def test_graphene_s_order_has_every_task_after_its_predecessors(seed: int) -> None:
    costs, edges = plain.random_instance(np.random.default_rng(seed))
    example = unit_machines(costs, edges)
    order = graphene(example)
    place = {task: at for at, task in enumerate(order)}
    assert sorted(order) == list(range(len(costs)))
    assert all(place[a] < place[b] for a, b in edges)
