"""Prefetchers: against exact optima of paging, sound on random cases, and each true to its name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import Case, make_case, running
from hypothesis import given, settings
from hypothesis import strategies as st
from paging import brute_force, optimum
from toys import managed, toy_device, toy_pipeline, toy_squeeze, vector

from cann_env.engine import layout as at
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.step import step
from cann_env.graph import CommandGraph, Level
from cann_env.options import PrefetchMask, RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers import decide, record_schedule, replay, rollout
from cann_env.schedulers.feedback import Feedback
from cann_env.schedulers.migration import Migration, migration_moves, unlimited
from cann_env.schedulers.online import Chained, Eager, JustInTime, PerEngine, RoundRobin, SingleStream
from cann_env.schedulers.paging import CircularPool, belady, circular
from cann_env.schedulers.policy import EpisodeError, episode_info
from cann_env.schedulers.prefetch import Aggressive, DoNoHarm, Follow, LookAhead, Move
from cann_env.schedulers.prefetchers import PREFETCHERS, make_prefetcher
from cann_env.schedulers.usage import Usage
from cann_env.units import InputError
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.schedule import Schedule
    from cann_env.schedulers import Policy

ALL = list(PREFETCHERS)
ORDERS: tuple[Callable[[], Policy], ...] = (SingleStream, RoundRobin, PerEngine, JustInTime, Chained, Eager)
SLOT = 64  # ns and bytes: a block of F slots has F * 64 bytes, the link moves 1 byte a ns


# --- against exact optima -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_rules_of_optima_lose_nothing(seed: int) -> None:
    """On tiny cases the optimum by the rules is that of every fetch and eviction in every slot."""
    rng = np.random.default_rng(seed)
    blocks, fetch = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    sequence = tuple(rng.integers(0, blocks, int(rng.integers(3, 9))).tolist())
    places = int(rng.integers(1, blocks + 1))
    assert optimum(sequence, places, fetch) == brute_force(sequence, places, fetch)


def test_an_optimum_by_hand() -> None:
    """Two places, three slots a fetch, requests 0 1 0 2.

    ::

        link  0 0 0 1 1 1 2 2 2
        used        0     1 0   2      0 is used as it arrives, 1 after 6; 2 takes the place of 1
    """
    assert optimum((0, 1, 0, 2), 2, 3) == brute_force((0, 1, 0, 2), 2, 3) == 11


@cache
def paging_device() -> Any:
    return toy_device(
        dispatch={"gap_ns": 0, "mix_switch_ns": 0},
        links={"h2d": {"latency_ns": 0}},
        classes={"vector": {"launch_base_ns": 0}},
        memory={"fault_ns": 0},
    )


def paging_program(sequence: Sequence[int], places: int, fetch: int, policy: str) -> Program:
    """A chain whose commands take a slot and read a block each, and two that read none, on one stream."""
    n = len(sequence)
    commands = [
        vector(
            f"k{i}",
            SLOT,
            reads=(f"w{sequence[i]}",) if i < n else (),
            after=(f"k{i - 1}",) if i else (),
        )
        for i in range(n + 2)
    ]
    blocks = tuple(managed(f"w{b}", SLOT * fetch) for b in sorted(set(sequence)))
    options = RunOptions(
        streams=1, run_ahead=2, prefetches=len(blocks), hbm_bytes=places * fetch * SLOT, l2_prefetches=0
    )
    graph = CommandGraph("paging", tuple(commands), blocks)
    return compile_graph(graph, paging_device(), PREFETCHERS[policy].adapt(options))


def slots(sequence: Sequence[int], places: int, fetch: int, policy: str) -> float:
    """Slots in which a prefetcher serves a sequence."""
    program = paging_program(sequence, places, fetch, policy)
    return decide(program, make_prefetcher(policy, SingleStream())).end_ns / SLOT - 2


def requests(blocks: int, seed: int, length: int = 40) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, blocks, length).tolist())


@cache
def ratios(blocks: int, places: int, fetch: int, policy: str) -> tuple[float, ...]:
    """Time over the optimum, of some random sequences."""
    drawn = [requests(blocks, seed) for seed in range(4)]
    best = [_optimum(sequence, places, fetch) for sequence in drawn]
    return tuple(slots(s, places, fetch, policy) / b for s, b in zip(drawn, best, strict=True))


_optimum = cache(optimum)
FAST_LINK = [(8, 4, 3), (8, 5, 3), (10, 5, 4), (9, 4, 2)]  # blocks, places, slots a fetch: F < k
SLOW_LINK = [(8, 4, 6), (8, 3, 5)]


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("case", FAST_LINK + SLOW_LINK)
def test_nothing_beats_the_optimum(case: tuple[int, int, int], policy: str) -> None:
    assert min(ratios(*case, policy)) >= 1.0


def test_aggressive_is_within_3_percent_of_the_optimum() -> None:
    """In the mean over regimes in which a fetch is shorter than the memory is wide."""
    assert np.mean([ratios(*case, "aggressive") for case in FAST_LINK]) <= 1.03


@pytest.mark.parametrize("case", FAST_LINK + SLOW_LINK)
def test_aggressive_and_conservative_keep_what_is_proved_of_them(case: tuple[int, int, int]) -> None:
    """At most min(1 + F/k, 2) and 2 times the optimum (Cao, Felten, Karlin, Li)."""
    _, places, fetch = case
    assert max(ratios(*case, "aggressive")) <= min(1 + fetch / places, 2)
    assert max(ratios(*case, "conservative")) <= 2


@pytest.mark.parametrize("case", FAST_LINK)
def test_demand_with_lru_is_worst(case: tuple[int, int, int]) -> None:
    worst = np.mean(ratios(*case, "on_demand_lru"))
    for policy in ALL:
        if policy != "at_once":  # it also evicts what is needed next
            assert np.mean(ratios(*case, policy)) <= worst, policy


@pytest.mark.parametrize("case", FAST_LINK + SLOW_LINK)
def test_a_longer_look_ahead_ends_as_aggressive(case: tuple[int, int, int]) -> None:
    """Looking at everything is to prefetch whatever does no harm."""
    sequence = requests(case[0], 9)
    program = paging_program(sequence, *case[1:], "aggressive")
    everything = rollout(program, LookAhead(SingleStream(), len(sequence) + 2).choose(program))
    assert everything == rollout(program, Aggressive(SingleStream()))


@pytest.mark.parametrize("case", FAST_LINK + SLOW_LINK)
def test_conservative_fetches_as_rarely_as_belady(case: tuple[int, int, int]) -> None:
    """Its fetches are those of demand paging with the furthest next use evicted, counted by hand here."""
    sequence = requests(case[0], 5)
    program = paging_program(sequence, *case[1:], "conservative")
    outcome = decide(program, make_prefetcher("conservative", SingleStream()))
    moved = [
        m for m in record_schedule(program, outcome.actions).transfers if m.cause in ("fault", "prefetch")
    ]
    held: set[int] = set()
    misses = 0
    for i, block in enumerate(sequence):
        if block not in held:
            misses += 1
            if len(held) == case[1]:
                rest = sequence[i:]
                held.remove(max(held, key=lambda b: rest.index(b) if b in rest else len(rest)))
            held.add(block)
    assert len(moved) == misses == len(belady(Usage.of(program)))


# --- sound on random cases ----------------------------------------------------------------------------


def fit_for(case: Case) -> list[str]:
    """All; under the free mask those that are not meant for the strict one."""
    free = case.program.options.prefetch_mask is PrefetchMask.FREE
    return [n for n in ALL if not free or PREFETCHERS[n].options.get("prefetch_mask") != PrefetchMask.STRICT]


def every_prefetcher_finishes(seed: int) -> None:
    """Around any order, with odd windows, streams, memory and noise; what it has done passes the judge."""
    case = make_case(seed)
    order = ORDERS[seed % len(ORDERS)]
    for name in fit_for(case):
        outcome = decide(case.program, make_prefetcher(name, order()), noise=case.noise)
        schedule = record_schedule(case.program, outcome.actions, noise=case.noise)
        assert validate(schedule) == (), name


def no_prefetcher_names_an_illegal_action(seed: int) -> None:
    """None relies on being repaired; a wait that the order asks for where there is none does not count."""
    case = make_case(seed)
    for name in fit_for(case):
        maker = make_prefetcher(name, Eager())
        policy = maker.choose(case.program) if hasattr(maker, "choose") else maker
        state = case.new_state()
        info = episode_info(case.program, state)
        flat = np.zeros(case.program.observation_size, np.float32)
        seen = case.program.split_observation(flat)
        mask = np.zeros(case.program.action_count, np.int8)
        while running(state):
            observe(case.program.image, state, flat)
            copy_mask(case.program.image, state, mask)
            step(case.program.image, state, policy.act(seen, mask, info))
            assert not state[at.S_INVALID], name


def every_prefetcher_is_deterministic(seed: int) -> None:
    """And neither it nor the order it is given remembers an episode."""
    case = make_case(seed)
    for name in fit_for(case):
        first, second = (
            decide(case.program, make_prefetcher(name, ORDERS[seed % len(ORDERS)]()), noise=case.noise)
            for _ in range(2)
        )
        assert first == second, name


def feedback_is_never_worse_than_its_start(seed: int) -> None:
    case = make_case(seed, plain=True)
    order = ORDERS[seed % len(ORDERS)]
    learned = decide(case.program, Feedback(order()))
    assert learned.objective_ns <= decide(case.program, order()).objective_ns


def more_rounds_of_planning_are_never_worse(seed: int) -> None:
    case = make_case(seed, plain=True)
    order = ORDERS[seed % len(ORDERS)]
    once, often = (decide(case.program, Migration(order(), rounds=rounds)) for rounds in (1, 3))
    assert often.objective_ns <= once.objective_ns


def a_plan_replays_to_what_its_policy_does(seed: int) -> None:
    case = make_case(seed, plain=True)
    for planner in (Migration(Eager()), Feedback(Eager(), rounds=2)):
        assert replay(case.program, planner.plan(case.program).actions) == decide(case.program, planner)


def a_circular_pool_never_holds_more_than_its_budget(seed: int) -> None:
    """Counting from the decision to prefetch to the end of the command for which it was."""
    rng = np.random.default_rng(seed)
    sequence = requests(6, seed, 20)
    budget = int(rng.integers(2, 6)) * 3 * SLOT
    program = paging_program(sequence, int(rng.integers(2, 7)), 3, "circular_pool")
    for schedule in (
        schedule_of(program, CircularPool(SingleStream(), budget)),
        schedule_of(program, CircularPool(Eager(), budget)),
    ):
        assert most_held(schedule) <= budget


LAWS = (
    every_prefetcher_finishes,
    no_prefetcher_names_an_illegal_action,
    every_prefetcher_is_deterministic,
    feedback_is_never_worse_than_its_start,
    more_rounds_of_planning_are_never_worse,
    a_plan_replays_to_what_its_policy_does,
    a_circular_pool_never_holds_more_than_its_budget,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


def schedule_of(program: Program, prefetcher: Any) -> Schedule:
    return record_schedule(program, decide(program, prefetcher).actions)


def most_held(schedule: Schedule) -> int:
    """Most bytes that were prefetched for commands not yet finished, at any time."""
    runs = {run.command: run for run in schedule.commands}
    changes = []
    for move in schedule.transfers:
        if move.cause == "prefetch":
            name = schedule.graph.buffers[move.buffer].name
            users = [c for c, command in enumerate(schedule.graph.commands) if name in command.reads]
            user = min(
                (runs[c] for c in users if runs[c].start_ns >= move.finish_ns), key=lambda r: r.start_ns
            )
            size = schedule.graph.buffers[move.buffer].size_bytes
            changes += [(move.reserve_ns, 1, size), (user.finish_ns, 0, -size)]
    held = most = 0
    for *_, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


# --- each by its name ---------------------------------------------------------------------------------


def squeezed(prefetcher: Any, **options: Any) -> Schedule:
    """Six kernels of 110 ns, each with a weight of its own that takes 69 ns; room for two weights."""
    values: dict[str, Any] = {"streams": 1, "run_ahead": 2, "hbm_bytes": 128, "prefetches": 6, **options}
    program = compile_graph(toy_squeeze(6), toy_device(), RunOptions(**values))
    schedule = schedule_of(program, prefetcher)
    assert validate(schedule) == ()
    return schedule


def causes(schedule: Schedule) -> list[str]:
    return [move.cause for move in schedule.transfers if move.cause != "evict"]


def test_on_demand_never_prefetches() -> None:
    for name in ("on_demand", "on_demand_lru"):
        assert causes(squeezed(make_prefetcher(name, SingleStream()))) == ["fault"] * 6


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("on_demand")])
def test_every_other_one_hides_transfers_behind_kernels(name: str) -> None:
    """Six faults of 69 ns come one after another on demand; at least three of them disappear."""
    on_demand = squeezed(SingleStream()).makespan_ns
    assert squeezed(make_prefetcher(name, SingleStream())).makespan_ns < on_demand - 3 * 69


def test_aggressive_has_one_under_way_and_do_no_harm_has_many() -> None:
    """With room for all: each asked for when the last has arrived, or all at the first decision."""
    one = squeezed(Aggressive(SingleStream()), hbm_bytes=6400)
    many = squeezed(DoNoHarm(SingleStream()), hbm_bytes=6400)
    assert [m.reserve_ns for m in one.transfers] == [m.start_ns for m in one.transfers]
    assert [m.reserve_ns for m in many.transfers] == [0] * 6
    assert [m.start_ns for m in one.transfers] == [m.start_ns for m in many.transfers]


def test_look_ahead_leaves_later_commands_alone() -> None:
    """With room for all, the next two that have not started: k2's weight waits for the start of k0."""
    schedule = squeezed(LookAhead(SingleStream(), 2), hbm_bytes=6400)
    start = {run.command: run.start_ns for run in schedule.commands}
    for move in schedule.transfers:
        if move.buffer >= 2:
            assert move.reserve_ns >= start[move.buffer - 2]
    assert sorted(m.buffer for m in schedule.transfers if m.reserve_ns <= start[0]) == [0, 1]


def test_look_ahead_follows_a_given_order() -> None:
    """Told to look at the last two first, it brings their weights first."""
    program = compile_graph(
        toy_squeeze(4), toy_device(), RunOptions(streams=1, run_ahead=1, prefetches=4, hbm_bytes=6400)
    )
    schedule = schedule_of(program, LookAhead(SingleStream(), 2, sequence=(2, 3, 0, 1)))
    assert [m.buffer for m in schedule.transfers if m.cause == "prefetch"][:2] == [2, 3]


def test_a_move_waits_for_what_it_is_told() -> None:
    """w2 at once, w3 when k1 has finished; what was not planned is fetched on demand."""
    moves = (Move(2, 2), Move(3, 3, done=(1,)))
    schedule = squeezed(Follow(SingleStream(), moves), hbm_bytes=6400)
    run = {r.command: r for r in schedule.commands}
    row = {m.buffer: m for m in schedule.transfers}
    assert row[2].cause == row[3].cause == "prefetch"
    assert row[2].reserve_ns <= run[0].start_ns
    assert row[3].reserve_ns == run[1].finish_ns
    assert [row[b].cause for b in (0, 1, 4, 5)] == ["fault"] * 4


def test_moves_in_order_wait_for_each_other() -> None:
    """w2 may not come before w3, which may come only when k1 is done: w3 then w2, or w2 on demand."""
    moves = (Move(3, 3, done=(1,)), Move(2, 2))
    schedule = squeezed(Follow(SingleStream(), moves, in_order=True), hbm_bytes=6400)
    run = {r.command: r for r in schedule.commands}
    row = {m.buffer: m for m in schedule.transfers}
    assert row[3].reserve_ns >= run[1].finish_ns
    assert row[2].reserve_ns >= run[1].finish_ns
    free = squeezed(Follow(SingleStream(), moves), hbm_bytes=6400)
    assert {m.buffer: m for m in free.transfers}[2].reserve_ns < run[1].finish_ns


def test_belady_by_hand() -> None:
    """Two places, requests 0 1 2 0 1: 2 takes the place of 1, needed later than 0; 1 that of 0."""
    usage = Usage.of(paging_program((0, 1, 2, 0, 1), 2, 1, "conservative"))
    assert [(m.buffer, m.user, m.done) for m in belady(usage)] == [
        (0, 0, ()),
        (1, 1, ()),
        (2, 2, (1,)),
        (1, 4, (3,)),
    ]


def test_a_circular_pool_by_hand() -> None:
    """Blocks of 192 bytes through 400: two fit, the third takes the place of the first."""
    usage = Usage.of(paging_program((0, 1, 2, 1, 0), 5, 3, "circular_pool"))
    moves = circular(usage, 400)
    assert [(m.buffer, m.user, m.done) for m in moves] == [
        (0, 0, ()),
        (1, 1, ()),
        (2, 2, (0,)),
        (1, 3, (1,)),
        (0, 4, (2,)),
    ]


def test_a_pool_that_is_too_small_is_refused() -> None:
    program = paging_program((0, 1), 2, 3, "circular_pool")
    with pytest.raises(
        InputError, match=r"pool has .*\(191 bytes\); command 'k0' of graph 'paging' needs 192"
    ):
        CircularPool(SingleStream(), 191).choose(program)


def offloading(prefetcher: Any, hbm_bytes: int = 192) -> Schedule:
    """Kernels of 110 ns, a nanosecond apart; x and y have 128 bytes, which take 133 ns each way.

    ::

        k0   k1   k2   k3   k4   k5   k6   k7
        x -------------------------------> x      x and y do not fit together
                       y -> y
    """
    writes, reads = {0: "x", 3: "y"}, {4: "y", 7: "x"}
    commands = tuple(
        vector(
            f"k{i}",
            reads=(reads[i],) if i in reads else (),
            writes=(writes[i],) if i in writes else (),
            after=(f"k{i - 1}",) if i else (),
        )
        for i in range(8)
    )
    graph = CommandGraph("offloading", commands, tuple(managed(n, 128, Level.ABSENT) for n in "xy"))
    options = RunOptions(streams=1, run_ahead=2, hbm_bytes=hbm_bytes, offloads=2)
    schedule = schedule_of(compile_graph(graph, toy_device(), options), prefetcher)
    assert validate(schedule) == ()
    return schedule


def test_a_migration_plan_by_hand() -> None:
    """x leaves after k0 and is away from k3 on; 133 ns before k7 is during k5; it starts when k4 frees y."""
    policy = Migration(SingleStream()).choose(
        compile_graph(
            offloading(SingleStream()).graph,
            toy_device(),
            RunOptions(streams=1, run_ahead=2, hbm_bytes=192, offloads=2),
        )
    )
    assert isinstance(policy, Follow)
    assert policy.fetches == (Move(0, 7, done=(0, 4)),)
    assert policy.offloads == (Move(0, 7, done=(0,)),)


def test_a_patient_plan_by_hand() -> None:
    """x takes 133 ns each way, and there are 220 ns between its uses: too few, unless commands wait.

    ::

        k0   k1   k2   k3
        x -----------> x      x and y do not fit together
             y -> y
    """
    uses = {0: ((), ("x",)), 1: ((), ("y",)), 2: (("y",), ()), 3: (("x",), ())}
    commands = tuple(
        vector(f"k{i}", reads=reads, writes=writes, after=(f"k{i - 1}",) if i else ())
        for i, (reads, writes) in uses.items()
    )
    graph = CommandGraph("waiting", commands, tuple(managed(n, 128, Level.ABSENT) for n in "xy"))
    program = compile_graph(graph, toy_device(), RunOptions(streams=1, hbm_bytes=192, offloads=2))
    ideal = schedule_of(unlimited(program), SingleStream())
    usage = Usage.in_schedule(program, ideal)
    assert migration_moves(usage, ideal, 192)[1] == ()
    fetches, offloads = migration_moves(usage, ideal, 192, patient=True)
    assert fetches == (Move(0, 3, done=(0, 2)),)
    assert offloads == (Move(0, 3, done=(0,)),)


def test_device_buffers_count_from_when_they_are_reserved() -> None:
    """Of a pipeline of two batches on one stream, all six commands are issued at once, or one by one."""
    for run_ahead, most in ((6, 4 * 64), (1, 3 * 64)):
        options = RunOptions(streams=1, run_ahead=run_ahead)
        program = compile_graph(toy_pipeline(2), toy_device(), options)
        usage = Usage.in_schedule(program, schedule_of(program, SingleStream()))
        assert usage.device_bytes(0).max() == most == schedule_of(program, SingleStream()).peak_hbm_bytes


def test_planned_and_learnt_offloads_hide_what_eviction_does_not() -> None:
    """On demand y waits for x to be written back, x for its way back: 133 ns more and 138 to 150 ns more."""
    never = 8 * 110 + 7
    assert offloading(SingleStream(), hbm_bytes=6400).makespan_ns == never
    assert offloading(SingleStream()).makespan_ns >= never + 2 * 133
    assert offloading(Migration(SingleStream())).makespan_ns == never
    assert offloading(Feedback(SingleStream())).makespan_ns <= never + 25


def test_feedback_moves_a_trigger_that_came_too_late() -> None:
    """Transfers of 69 ns hide behind kernels of 110: after some rounds only the first is waited for."""
    schedule = squeezed(Feedback(SingleStream()), hbm_bytes=6400)
    assert causes(schedule)[1:] == ["prefetch"] * 5
    assert schedule.makespan_ns <= squeezed(Aggressive(SingleStream()), hbm_bytes=6400).makespan_ns + 69 + 20


def test_a_failing_order_is_not_hidden() -> None:
    """A chooser whose order of issue cannot finish says so."""

    class Stuck:
        def act(self, observation: Any, mask: Any, info: Any) -> int:
            moves = np.flatnonzero(mask[info["window"] * info["choices"] : -1])
            return int(info["window"] * info["choices"] + moves[-1]) if moves.size else int(mask.size - 1)

    program = compile_graph(
        toy_squeeze(20), toy_device(), RunOptions(hbm_bytes=64, prefetches=20, streams=1, run_ahead=1)
    )
    for name in ("conservative", "circular_pool", "feedback"):
        with pytest.raises(EpisodeError):
            decide(program, make_prefetcher(name, Stuck()))


def test_prefetchers_set_the_options_they_are_meant_for() -> None:
    options = RunOptions(streams=3)
    assert PREFETCHERS["at_once"].adapt(options) == replace(options, prefetch_mask="free", eviction="lru")
    assert PREFETCHERS["migration"].adapt(options).offloads > 0
    assert PREFETCHERS["aggressive"].adapt(options) == options


def test_an_unknown_prefetcher_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"prefetcher 'fifo' is not known; there are on_demand_lru, on_demand,"
    ):
        make_prefetcher("fifo", Eager())
