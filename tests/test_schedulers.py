"""Schedulers on shipped scenarios and on random cases: sound, bounded, repeatable, true to their names."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import Case, make_case, running
from episodes import actions_of, rows_of, times
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    copy_in,
    copy_out,
    cube,
    mix,
    toy_chain,
    toy_device,
    toy_diamond,
    toy_pipeline,
    toy_squeeze,
    vector,
)

from cann_env.engine import layout as at
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.step import run_actions, step
from cann_env.graph import CommandGraph
from cann_env.metrics import metrics
from cann_env.options import PrefetchMask, RunOptions, Submission, Window
from cann_env.program import Program, compile_graph
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import (
    ORDERS,
    PREFETCHERS,
    SCHEDULERS,
    SHORT_LIST,
    EpisodeError,
    check_scheduler,
    decide,
    is_scheduler,
    make_scheduler,
    record_schedule,
    replay,
    rollout,
    run_scheduler,
)
from cann_env.schedulers.policy import action_info, episode_info
from cann_env.schedulers.search import Search
from cann_env.units import InputError
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from cann_env.schedule import Schedule
    from cann_env.schedulers import Policy

ALL = sorted(set(SCHEDULERS) - {"exact"})  # which is known once the solvers are imported, and has a clock
SHORT = ["search:100" if name == "search" else name for name in ALL]
# These take their time on graphs of some size; the search does not if it is a short one.
LONG = {"ios", "mem_cp", "search"}
NAMES = [
    *(pytest.param(name, marks=[pytest.mark.thorough] if name in LONG else []) for name in ALL),
    "search:20",
]
PARTS = 6  # the laws try every sixth scheduler on a case, and so on
LIGHT = [name for name in scenario_names() if "onnx" not in name]
SCENARIOS = [
    pytest.param(name, marks=[] if name in LIGHT else [pytest.mark.thorough]) for name in scenario_names()
]


@cache
def program_of(scenario: str, episode: int = 0) -> Program:
    """A compiled instance of a scenario."""
    if "onnx" in scenario:
        pytest.importorskip("onnx")
    loaded = load_scenario(scenario)
    return compile_graph(loaded.graph(0, 0, episode), loaded.device, loaded.options)


@cache
def schedule_of(scenario: str, scheduler: str, episode: int = 0) -> Schedule:
    return run_scheduler(program_of(scenario, episode), scheduler)


def objective_of(schedule: Schedule) -> int:
    if schedule.options.objective == "latency":
        return sum(metrics(schedule).latency_ns.values())
    return schedule.makespan_ns


# --- on every shipped scenario ------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_schedule_is_sound(scenario: str, scheduler: str) -> None:
    schedule = schedule_of(scenario, scheduler)
    assert validate(schedule) == ()
    assert schedule.makespan_ns >= schedule.lower_bound_ns
    assert {run.stream for run in schedule.commands} <= set(range(schedule.options.streams))


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scheduler_is_deterministic(scenario: str, scheduler: str) -> None:
    assert run_scheduler(program_of(scenario), scheduler) == schedule_of(scenario, scheduler)


@pytest.mark.parametrize("episode", [0, 1])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_reference_is_never_worse_than_another(scenario: str, episode: int) -> None:
    """Than a single stream and streams in turn by construction, than one stream an engine in fact."""
    reference = objective_of(schedule_of(scenario, "reference", episode))
    for scheduler in ("single_stream", "per_engine", "round_robin"):
        assert reference <= objective_of(schedule_of(scenario, scheduler, episode)), scheduler


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_outcome_replays_to_itself(scenario: str) -> None:
    program = program_of(scenario)
    outcome = decide(program, make_scheduler("reference"))
    assert replay(program, outcome.actions) == outcome
    assert outcome.end_ns == schedule_of(scenario, "reference").makespan_ns
    assert outcome.objective_ns == objective_of(schedule_of(scenario, "reference"))


# --- on random cases ----------------------------------------------------------------------------------


def every_scheduler_finishes(seed: int, names: list[str]) -> None:
    """With odd windows, streams, memory and noise; what it has done passes the judge."""
    case = make_case(seed)
    for name in names:
        schedule = run_scheduler(case.program, name, seed=seed % 100, noise=case.noise)
        assert validate(schedule) == (), name


def no_scheduler_names_an_illegal_action(seed: int, names: list[str]) -> None:
    """None relies on being repaired, whether it decides as it goes, writes a plan or follows a rule."""
    case = make_case(seed)
    for name in names:
        scheduler = make_scheduler(name, seed % 100)
        if hasattr(scheduler, "choose"):
            scheduler = scheduler.choose(case.program)
        if hasattr(scheduler, "act"):
            assert illegal_actions(case, scheduler) == 0, name
        else:
            state = case.new_state()
            actions = decide(case.program, scheduler, noise=case.noise).actions
            assert run_actions(case.program.image, state, np.asarray(actions, np.int64)) == len(actions)
            assert not state[at.S_INVALID], name
            assert not running(state), name


def illegal_actions(case: Case, policy: Policy) -> int:
    flat = np.zeros(case.program.observation_size, np.float32)
    seen = case.program.split_observation(flat)
    mask = np.zeros(case.program.action_count, np.int8)
    state = case.new_state()
    info = episode_info(case.program, state)
    while running(state):
        observe(case.program.image, state, flat)
        copy_mask(case.program.image, state, mask)
        case.step(state, policy.act(seen, mask, info))
    return int(state[at.S_INVALID])


def no_order_of_issue_names_an_illegal_action(seed: int) -> None:
    """Not those either that exist only joined with a prefetcher."""
    case = make_case(seed)
    for name, order in ORDERS.items():
        assert illegal_actions(case, order()) == 0, name


def a_reference_is_never_worse_than_a_single_stream(seed: int) -> None:
    case = make_case(seed)
    expected = replace(case.program.options, noise=0.0)
    program = compile_graph(case.program.graph, case.program.device, expected)
    reference, single = (run_scheduler(program, name) for name in ("reference", "single_stream"))
    assert objective_of(reference) <= objective_of(single)


LAWS_OF_ALL = (every_scheduler_finishes, no_scheduler_names_an_illegal_action)
LAWS = (no_order_of_issue_names_an_illegal_action, a_reference_is_never_worse_than_a_single_stream)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("law", LAWS_OF_ALL, ids=lambda law: law.__name__)
@settings(max_examples=3, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law_of_all(law: Callable[[int, list[str]], None], part: int, seed: int) -> None:
    law(seed, SHORT[part::PARTS])


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS_OF_ALL, ids=lambda law: law.__name__)
@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law_of_all_at_length(law: Callable[[int, list[str]], None], seed: int) -> None:
    law(seed, SHORT)


@pytest.mark.parametrize("name", ["mem_cp", "dmdas", "darts"])
def test_rules_of_memory_do_not_lift_in_circles(name: str) -> None:
    """Free mask, noise: what is lifted into L2 pushes out what was lifted before."""
    case = make_case(138368)
    assert case.program.options.prefetch_mask is PrefetchMask.FREE
    assert validate(run_scheduler(case.program, name, noise=case.noise)) == ()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


# --- each by its name ---------------------------------------------------------------------------------


def run(graph: CommandGraph, scheduler: str, **options: Any) -> Schedule:
    program = compile_graph(graph, toy_device(), RunOptions(**{"streams": 4, **options}))
    schedule = run_scheduler(program, scheduler)
    assert validate(schedule) == ()
    return schedule


def streams_of(schedule: Schedule) -> dict[str, int]:
    names = [command.name for command in schedule.graph.commands]
    return {names[row.command]: row.stream for row in sorted(schedule.commands)}


def test_single_stream_uses_stream_0_in_the_order_of_the_tails() -> None:
    """a, then c, whose tail is longer, then b, then d."""
    schedule = run(toy_diamond(), "single_stream")
    assert set(streams_of(schedule).values()) == {0}
    assert times(schedule) == {"a": (0, 110), "c": (111, 321), "b": (322, 432), "d": (433, 543)}


def test_single_stream_moves_weights_on_demand() -> None:
    schedule = run(toy_squeeze(2), "single_stream")
    assert {move.cause for move in schedule.transfers} == {"fault"}


def test_round_robin_takes_the_streams_in_turn() -> None:
    graph = CommandGraph("five", tuple(vector(name, 500 - 10 * i) for i, name in enumerate("abcde")))
    assert streams_of(run(graph, "round_robin", streams=3)) == {"a": 0, "b": 1, "c": 2, "d": 0, "e": 1}


def test_per_engine_keeps_one_stream_an_engine() -> None:
    """Copies in, cube and copies out of two batches: three streams, the second batch behind the first.

    ::

        s0: in0 0-69 | in1 70-139
        s1:            k0 69-179  | k1 180-290
        s2:                         out0 179-248 | out1 290-359
    """
    schedule = run(toy_pipeline(2), "per_engine")
    assert streams_of(schedule) == {"in0": 0, "in1": 0, "k0": 1, "k1": 1, "out0": 2, "out1": 2}
    assert times(schedule)["out1"] == (290, 359)


def engines_in_flight(program: Program, state: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Engine and stream of every command in flight."""
    first = int(program.image[at.P_STATE_FLIGHT])
    found = []
    for c in state[first : first + int(state[at.S_FLIGHT])].tolist():
        kernel = int(program.image[int(program.image[at.P_AT_COMMAND]) + c * at.PC_WIDTH + at.PC_KERNEL])
        engine = int(program.image[int(program.image[at.P_AT_KERNEL]) + kernel * at.PK_WIDTH + at.PK_CLASS])
        found.append(
            (
                min(engine, 6),
                int(state[int(program.image[at.P_STATE_COMMAND]) + c * at.SC_WIDTH + at.SC_STREAM]),
            )
        )
    return found


@pytest.mark.parametrize("scenario", LIGHT)
def test_per_engine_uses_at_most_one_stream_an_engine_at_a_time(scenario: str) -> None:
    """Seven engines, eight streams: what is in flight of one engine is always on a stream of its own."""
    wide = replace(program_of(scenario).options, streams=8, stream_priorities=())
    program = compile_graph(program_of(scenario).graph, program_of(scenario).device, wide)
    state = program.new_state()
    for action in rollout(program, make_scheduler("per_engine")).actions:
        step(program.image, state, action)
        pairs = set(engines_in_flight(program, state))
        assert len({engine for engine, _ in pairs}) == len({stream for _, stream in pairs}) == len(pairs)


def test_per_engine_shares_streams_when_there_are_too_few() -> None:
    """Five engines on two streams."""
    graph = CommandGraph("five", (vector("v"), cube("c"), mix("m"), copy_in("i"), copy_out("o")))
    assert set(streams_of(run(graph, "per_engine", streams=2)).values()) == {0, 1}


def test_random_draws_legal_actions_from_its_seed() -> None:
    program = program_of("layered")
    first, again, other = (run_scheduler(program, "random", seed=seed).actions for seed in (1, 1, 2))
    assert first == again != other


def test_the_reference_prefetches_what_does_no_harm() -> None:
    """w0 0-69 and w1 69-138 while k0 runs 69-179; k1 follows at once on another stream: the best there is."""
    schedule = run(toy_squeeze(2), "reference")
    assert {move.cause for move in schedule.transfers} == {"prefetch"}
    assert schedule.makespan_ns == 289


def test_the_reference_overlaps_a_pipeline() -> None:
    """Kernels of 110 ns back to back behind the first copy, the last copy behind them, three gaps."""
    assert run(toy_pipeline(4), "reference").makespan_ns <= 69 + 4 * 110 + 3 + 69


def test_the_reference_takes_both_branches_of_a_diamond() -> None:
    """a 0-110, b and c side by side, d after c: within two gaps of the critical path of 430."""
    assert run(toy_diamond(), "reference").makespan_ns <= 432


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize("window", list(Window))
def test_every_scheduler_can_do_with_one_of_everything(scheduler: str, window: Window) -> None:
    schedule = run(toy_pipeline(3), scheduler, streams=1, commands=1, prefetches=0, window=window)
    assert set(streams_of(schedule).values()) == {0}


@pytest.mark.parametrize("scheduler", ["reference", "per_engine"])
def test_the_host_is_paid_in_eager_mode(scheduler: str) -> None:
    schedule = run(toy_chain(3), scheduler, submission=Submission.EAGER)
    assert schedule.makespan_ns >= 3 * 5 + 110


# --- the protocol -------------------------------------------------------------------------------------


def test_the_short_list_is_of_schedulers() -> None:
    """With what all are measured against, and each once."""
    assert set(SHORT_LIST) <= set(SCHEDULERS)
    assert len(set(SHORT_LIST)) == len(SHORT_LIST)
    assert {"single_stream", "reference", "search"} <= set(SHORT_LIST)


def test_an_argument_follows_a_colon() -> None:
    """Two streams, though there are four."""
    graph = CommandGraph("five", tuple(vector(name) for name in "abcde"))
    assert set(streams_of(run(graph, "load_balance:2")).values()) == {0, 1}
    assert is_scheduler("load_balance:2")
    for wrong in ("", "x", "-1", "1.5", "9" * 5000):
        with pytest.raises(InputError, match=rf"'load_balance:{wrong}' has .*; write a number of streams"):
            make_scheduler(f"load_balance:{wrong}")


@pytest.mark.parametrize("check", [make_scheduler, check_scheduler], ids=["make", "check"])
def test_a_wrong_argument_is_refused(check: Callable[[str], Any]) -> None:
    for wrong in (
        "",
        "many",
        "-1",
        "schedules=",
        "seconds=",
        "seconds=x",
        "plays=3",
        "1=2=3",
        "9" * 5000,
        f"seconds={'9' * 400}",
    ):
        with pytest.raises(InputError, match=rf"'search:{wrong}' has the argument '{wrong}'; write a "):
            check(f"search:{wrong}")
    with pytest.raises(InputError, match=r"search takes 0\.0 seconds; write a number above 0"):
        check("search:seconds=0")
    with pytest.raises(InputError, match=r"'reference' takes no argument, but 'reference:3' has one; .*load"):
        check("reference:3")
    with pytest.raises(InputError, match=r"'serch:3' is not known; did you mean 'search:3'\?"):
        check("serch:3")


def test_an_argument_of_the_search_is_a_number_or_a_time() -> None:
    assert make_scheduler("search:7", 3) == Search(schedules=7, seed=3)
    assert make_scheduler("search:schedules=7") == Search(schedules=7)
    assert make_scheduler("search:seconds=0.5", 2) == Search(schedules=None, seconds=0.5, seed=2)
    assert make_scheduler("search", 4) == Search(seed=4)


def test_an_unknown_name_is_refused() -> None:
    names = re.escape(", ".join(SCHEDULERS))
    with pytest.raises(InputError, match=f"scheduler 'fifo' is not known; there are {names}"):
        make_scheduler("fifo")
    with pytest.raises(InputError, match="scheduler 'fifo' is not known"):
        run_scheduler(program_of("pipeline"), "fifo")


def test_an_order_and_a_prefetcher_may_be_joined() -> None:
    """Fetching on demand changes nothing; prefetching hides the transfers of the weights."""
    schedule = run(toy_squeeze(3), "eager+on_demand", run_ahead=2)
    assert {move.cause for move in schedule.transfers} == {"fault"}
    assert {move.cause for move in run(toy_squeeze(3), "eager+aggressive", run_ahead=2).transfers} == {
        "prefetch"
    }
    for name in ("eager+", "+aggressive", "eager+eager", "reference+aggressive"):
        assert not is_scheduler(name)
        with pytest.raises(InputError, match=r"is not known; .*there are .*; or join one of single_stream, "):
            make_scheduler(name)
    for name in ("eager", "aggressive"):
        assert not is_scheduler(name)
        with pytest.raises(InputError, match=r"joined with .*, e\.g\. 'eager\+aggressive'; there are "):
            make_scheduler(name)


def test_a_joined_prefetcher_needs_slots() -> None:
    """Without any it would fetch on demand and not say so; what fetches on demand by intent may."""
    run(toy_squeeze(3), "eager+on_demand", run_ahead=2, prefetches=0)
    for name in set(PREFETCHERS) - {"on_demand", "on_demand_lru"}:
        with pytest.raises(InputError, match=f"option 'prefetches' is 0, .*; prefetcher '{name}' needs"):
            run(toy_squeeze(3), f"eager+{name}", run_ahead=2, prefetches=0, offloads=4)


def test_what_does_not_decide_is_no_scheduler() -> None:
    with pytest.raises(
        InputError, match="is no scheduler; it needs a method 'act', 'choose', 'assign' or 'plan'"
    ):
        decide(program_of("pipeline"), object())  # type: ignore[arg-type]


def test_a_plan_that_ends_early_is_refused() -> None:
    program = compile_graph(toy_chain(3), toy_device(), RunOptions(streams=1))
    with pytest.raises(EpisodeError, match=r"'chain' on toy was not finished: its decisions ended after 2"):
        replay(program, (0, 0))
    with pytest.raises(EpisodeError, match="2 actions do not finish graph 'chain' on toy"):
        record_schedule(program, (0, 0))


def test_a_policy_that_only_wastes_steps_runs_out_of_them() -> None:
    """Twenty weights and room for one, prefetched in turn, the least urgent first."""

    class Waster:
        def act(self, observation: Any, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
            first = info["window"] * info["choices"]
            moves = np.flatnonzero(mask[first:-1])
            if moves.size:
                return first + int(moves[-1])
            return mask.size - 1 if mask[-1] else int(np.flatnonzero(mask)[0])

    program = compile_graph(toy_squeeze(20), toy_device(), RunOptions(hbm_bytes=64, prefetches=20))
    with pytest.raises(EpisodeError, match="it ran out of steps after 160 decisions"):
        decide(program, Waster())


@pytest.mark.parametrize("window", list(Window))
def test_policies_see_what_agents_see(window: Window) -> None:
    """The same observation and mask, and the sizes with which to read them."""
    program = compile_graph(toy_squeeze(3), toy_device(), RunOptions(streams=3, commands=5, window=window))
    state = program.new_state()
    flat, mask = np.zeros(program.observation_size, np.float32), np.zeros(program.action_count, np.int8)

    class Onlooker:
        def act(
            self,
            observation: Mapping[str, NDArray[np.float32]],
            seen: NDArray[np.int8],
            info: Mapping[str, Any],
        ) -> int:
            observe(program.image, state, flat)
            copy_mask(program.image, state, mask)
            assert (seen == mask).all()
            for name, part in program.split_observation(flat).items():
                assert (observation[name] == part).all()
            slots = info["prefetches"] + info["l2_prefetches"] + info["offloads"]
            assert info["window"] * info["choices"] + slots + 1 == seen.size
            assert info["choices"] == (1 if window is Window.STARTABLE else 3)
            action = int(np.flatnonzero(seen)[-1])
            step(program.image, state, action)
            return action

    outcome = rollout(program, Onlooker())
    assert outcome.actions == actions_of(state)
    assert not running(state)
    assert action_info(program)["window"] == 5


def test_noise_is_not_known_beforehand() -> None:
    """A surprise in the last command changes no decision of a rule, only the end."""
    program = compile_graph(toy_chain(3), toy_device(), RunOptions(streams=2))
    expected = run_scheduler(program, "round_robin")
    surprised = run_scheduler(program, "round_robin", noise=np.array([2**20, 2**20, 2**21]))
    assert surprised.actions == expected.actions
    assert surprised.makespan_ns == expected.makespan_ns + 110
    assert rows_of(surprised, "c")[0][4] - rows_of(surprised, "c")[0][3] == 220


def test_a_list_of_actions_is_all_there_is_to_a_schedule() -> None:
    program = program_of("pipeline")
    schedule = schedule_of("pipeline", "reference")
    state = program.new_state()
    run_actions(program.image, state, np.asarray(schedule.actions, np.int64))
    assert int(state[at.S_NOW_NS]) == schedule.makespan_ns
    assert int(state[at.S_INVALID]) == 0
