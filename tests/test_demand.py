"""Kernels that state what each of their blocks holds, of up to four pools at once.

Engine, bounds, judge and figures must all go by what the kernel states and not by what its class takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cases import make_case, running
from episodes import Host, actions_of, rows_of, times
from hand_made import moved
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import hand_schedule, kernel_command, toy_device, toy_kernel, vector

from cann_env.engine import layout as at
from cann_env.graph import CommandGraph, KernelClass, Scheme, from_networkx
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render.series import busy
from cann_env.schedulers.recording import record_schedule
from cann_env.solvers.bounds import lower_bounds
from cann_env.units import InputError
from cann_env.validate import validate

if TYPE_CHECKING:
    from cann_env.graph import Command
    from cann_env.schedule import Schedule

FAST = settings(max_examples=30, deadline=None, derandomize=True, database=None)

FOUR = toy_device(pools={"aic": 4, "aiv": 4, "aicpu": 3, "sdma": 2})


def holds(
    name: str, block_ns: int = 100, *, blocks: int = 1, after: tuple[str, ...] = (), **of: int
) -> Command:
    """A command of one vector kernel, ``10 + block_ns``, whose blocks hold ``of`` the pools."""
    kernel = toy_kernel("vector", block_ns, blocks=blocks, demand=tuple(of.items()))
    return kernel_command(name, kernel, after=after)


def four_pools() -> CommandGraph:
    """``a`` and ``b`` fit together in all pools but ``sdma``, the fourth; ``c`` fits beside either."""
    return CommandGraph(
        "four",
        (
            holds("a", aic=2, aiv=1, aicpu=1, sdma=2),
            holds("b", aic=2, aiv=2, aicpu=1, sdma=1),
            holds("c", 300, aiv=1, aicpu=1),
        ),
    )


def four_in_turn(**fields: object) -> Schedule:
    """::

    s0: a 0-110 |
    s1: .       | b 110-220          (the sdma has 2: a holds both)
    s2: c 0 ----------------- 310
    """
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 110, 220), ("c", 2, 0, 0, 310)]
    return hand_schedule(four_pools(), runs, device=FOUR, **fields)  # type: ignore[arg-type]


def test_a_kernel_waits_for_the_fourth_pool() -> None:
    host = Host(four_pools(), FOUR, submission="sink")
    schedule = host.issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert times(schedule) == times(four_in_turn()) == {"a": (0, 110), "b": (110, 220), "c": (0, 310)}


def test_a_block_holds_what_it_states_and_not_what_its_class_takes() -> None:
    """Of 4 aiv three blocks of 1 and 2 aic would fit, of 4 aic only two: two waves, then the last block."""
    graph = CommandGraph("waves", (holds("a", blocks=5, aiv=1, aic=2),))
    schedule = Host(graph, FOUR, submission="sink").issue("a").schedule()
    assert rows_of(schedule, "a") == [
        (0, "vector", 2, 0, 110),
        (0, "vector", 2, 110, 210),
        (0, "vector", 1, 210, 310),
    ]


def test_own_demands_share_the_slots_of_their_class() -> None:
    """One vector head may be active at once: what it holds of other pools makes no class of its own."""
    device = toy_device(classes={"vector": {"max_active": 1}})
    graph = CommandGraph("slots", (holds("a", aic=1), vector("b"), holds("c", aicpu=1)))
    host = Host(graph, device, submission="sink")
    assert times(host.issue("a", 0).issue("b", 1).issue("c", 2).schedule()) == {
        "a": (0, 110),
        "b": (110, 220),
        "c": (220, 330),
    }


def test_a_batch_kernel_waits_for_all_its_blocks() -> None:
    """``b`` wants 2 blocks of 2 aic at once, ``a`` holds 1 of 4."""
    wide = replace(holds("b", blocks=2, aic=2).kernels[0], scheme=Scheme.BATCH)
    graph = CommandGraph("batch", (holds("a", aic=1), kernel_command("b", wide)))
    host = Host(graph, FOUR, submission="sink")
    assert times(host.issue("a", 0).issue("b", 1).schedule()) == {"a": (0, 110), "b": (110, 220)}


def test_bounds_count_each_pool() -> None:
    """Launch holds cores too but does not count: 300 * 2 / 2 of the sdma, 300 * 3 / 4 of the aic."""
    graph = CommandGraph("area", tuple(holds(name, aic=3, sdma=2) for name in "abc"))
    options = RunOptions(streams=4)
    found = lower_bounds(graph, FOUR, options)
    assert {pool: ns for pool, ns in found.area_ns.items() if ns} == {"aic": 225, "sdma": 300}
    assert found.lower_bound_ns == compile_graph(graph, FOUR, options).lower_bound_ns == 300


def test_an_agent_sees_the_named_class() -> None:
    """One-hot in places 3 to 9: vector is the second; 2 of 2 sdma is what is scarce."""
    seen = Host(four_pools(), FOUR).observe()["commands"]
    assert (seen[:3, 3:10] == np.eye(7)[[1, 1, 1]]).all()
    assert seen[1, 10] == 1.0  # a, the second by tail


def test_figures_count_what_is_held() -> None:
    schedule = four_in_turn()
    figures = metrics(schedule)
    held = 2 * 110 + 1 * 110
    assert figures.utilisation["sdma"] == held / (2 * 310)
    assert figures.ai_core_busy == 1.0
    assert busy(schedule, "sdma").values.tolist() == [2, 1, 0]


def test_own_demand_survives_networkx() -> None:
    graph = four_pools()
    assert from_networkx(graph.to_networkx()) == graph


# --- the judge ----------------------------------------------------------------------------------------


def test_the_judge_accepts_the_hand_made_schedule() -> None:
    assert validate(four_in_turn()) == ()


@pytest.mark.parametrize("pool", ["aic", "aiv", "aicpu", "sdma"])
def test_the_judge_catches_too_much_of_any_pool(pool: str) -> None:
    """``a`` and ``c`` run together; ``c`` holds one unit more of one of the pools of ``a`` than it leaves."""
    graph = four_pools()
    left = FOUR.pools[pool] - dict(graph.commands[0].kernels[0].demand or ())[pool]
    greedy = holds("c", 300, **{"aiv": 1, "aicpu": 1, pool: left + 1})
    found = validate(replace(four_in_turn(), graph=replace(graph, commands=(*graph.commands[:2], greedy))))
    assert [violation.rule for violation in found] == ["capacity"]
    assert f"hold {FOUR.pools[pool] + 1} of the {FOUR.pools[pool]} {pool} of die 0" in found[0].message


def test_the_judge_catches_what_could_never_start() -> None:
    graph = four_pools()
    huge = holds("c", 300, sdma=3)
    found = validate(replace(four_in_turn(), graph=replace(graph, commands=(*graph.commands[:2], huge))))
    assert [violation.rule for violation in found] == ["class"]


def test_the_judge_catches_two_holders_of_the_fourth_pool() -> None:
    found = validate(moved(four_in_turn(), "b", 50, 160))
    assert [violation.rule for violation in found] == ["capacity"]
    assert "'a', 'b' and transfers hold 3 of the 2 sdma" in found[0].message


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ((), "demand is \\(\\); write 1 to 4 pairs"),
        (tuple((f"p{i}", 1) for i in range(5)), "demand is .*; write 1 to 4 pairs"),
        ((("aic",),), "demand holds \\('aic',\\); write 1 to 4 pairs"),
        ((("aic", 0),), "demand of pool 'aic' is 0; write a whole number"),
        ((("aic", 1), ("aic", 2)), "demand names the pool 'aic' twice; name it once"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused(demand: tuple[tuple[str, int], ...], message: str) -> None:
    kernel = replace(toy_kernel("vector", 100), demand=demand)
    with pytest.raises(InputError, match=message):
        CommandGraph("bad", (kernel_command("a", kernel),))


def test_a_demand_and_a_fallback_exclude_each_other() -> None:
    kernel = replace(toy_kernel("vector", 100), demand=(("aic", 1),), fallback=KernelClass.AICPU)
    with pytest.raises(InputError, match="fallback, 'aicpu', and a demand of its own"):
        CommandGraph("bad", (kernel_command("a", kernel),))


def test_what_can_never_start_is_refused() -> None:
    for command, message in (
        (holds("a", gate=1), "demands the pool 'gate'; toy has aic, aiv"),
        (holds("a", aic=1, sdma=3), "1 blocks at once that hold 3 of pool 'sdma' each; toy has 2"),
    ):
        with pytest.raises(InputError, match=message):
            compile_graph(CommandGraph("bad", (command,)), FOUR, RunOptions())
    wide = replace(holds("a", blocks=3, aic=2).kernels[0], scheme=Scheme.BATCH)
    with pytest.raises(InputError, match="starts 3 blocks at once that hold 2 of pool 'aic' each"):
        compile_graph(CommandGraph("bad", (kernel_command("a", wide),)), FOUR, RunOptions())


def test_a_device_may_have_pools_of_its_own() -> None:
    """Behind the usual ones, for kernels that name them: 2 gates, so the third kernel waits."""
    device = toy_device(pools={"gate": 2})
    graph = CommandGraph("gates", tuple(holds(name, gate=1) for name in "abc"))
    host = Host(graph, device, submission="sink")
    schedule = host.issue("a", 0).issue("b", 1).issue("c", 2).schedule()
    assert times(schedule) == {"a": (0, 110), "b": (0, 110), "c": (110, 220)}
    assert metrics(schedule).utilisation["gate"] == 330 / 440


# --- laws ---------------------------------------------------------------------------------------------


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_the_judge_finds_nothing(seed: int) -> None:
    case = make_case(seed, own=True)
    state = case.play()
    assert validate(record_schedule(case.program, actions_of(state), noise=case.noise)) == ()


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_bounds_stay_below_the_makespan_and_agree(seed: int) -> None:
    case = make_case(seed, plain=True, own=True)
    state = case.new_state()
    bounds = [case.program.lower_bound_ns, int(state[at.S_BOUND_NS])]
    while running(state):
        case.step(state, case.random_action(state))
        bounds.append(int(state[at.S_BOUND_NS]))
    assert max(bounds) <= int(state[at.S_NOW_NS]) == bounds[-1]
    program = case.program
    assert lower_bounds(program.graph, program.device, program.options).lower_bound_ns == bounds[0]


@FAST
@given(seed=st.integers(0, 2**32 - 1))
def test_all_that_was_held_is_given_back(seed: int) -> None:
    """At the end every pool is as free as it was, and no core time is left."""
    case = make_case(seed, own=True)
    image, state = case.program.image, case.play()
    first, pools = int(image[at.P_STATE_POOL]), case.program.device.pool_names
    rows = state[first : first + case.program.device.dies * len(pools) * at.SP_WIDTH].reshape(-1, at.SP_WIDTH)
    free = rows[:, at.SP_FREE].reshape(-1, len(pools))
    used = {"sdma", "d2h", "h2d"}  # a transfer may outlive the last command
    for i, name in enumerate(pools):
        assert name in used or (free[:, i] == case.program.device.pools[name]).all()
    assert not rows[:, at.SP_AREA_NS].any()
