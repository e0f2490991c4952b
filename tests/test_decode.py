"""Deciding by rule: the same as the policies that say it step by step, and hand-computed fields of a rule."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import make_case, random_device, running
from episodes import rows_of, times
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from toys import toy_device, toy_kernel, toy_squeeze, vector

from cann_env.engine import layout as at
from cann_env.engine.step import step
from cann_env.graph import Buffer, CommandGraph, KernelClass
from cann_env.options import PrefetchMask, RunOptions, Submission, Window
from cann_env.program import Program, compile_graph
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import EpisodeError, record_schedule, replay, rollout
from cann_env.schedulers.assignment import Assignment, Decoder, Fetch, Launch, Rule, best_of, carry_out
from cann_env.schedulers.forms import Bench, launches
from cann_env.schedulers.online import Chained, Eager, JustInTime, PerEngine, RoundRobin, SingleStream
from cann_env.schedulers.prefetch import Aggressive, DoNoHarm
from cann_env.tasks import tasks_of
from cann_env.units import InputError
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.graph import Command
    from cann_env.schedule import Schedule
    from cann_env.schedulers import Policy

SEEDS = st.integers(0, 2**32 - 1)
FAST = settings(max_examples=20, deadline=None, derandomize=True, database=None)
LIGHT = [name for name in scenario_names() if "onnx" not in name]


def order_of(program: Program) -> tuple[int, ...]:
    """All commands by descending tail."""
    return tuple(np.argsort(tasks_of(program).rank).tolist())


def engines_of(graph: CommandGraph) -> tuple[int, ...]:
    """The engine of each command, numbered in order of appearance; from the graph alone."""
    names = [
        command.kernels[0].kernel_class.value if command.kernels else command.copy or command.kind
        for command in graph.commands
    ]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)


# --- rules and policies -------------------------------------------------------------------------------

FORMS: dict[str, tuple[Callable[[], Policy], dict[str, Any]]] = {
    "just_in_time": (JustInTime, {"launch": Launch.JUST_IN_TIME}),
    "fitting": (lambda: JustInTime(fit=1.0), {"launch": Launch.JUST_IN_TIME, "fit": 1.0}),
    "patient": (
        lambda: JustInTime(fit=0.5, patient=True),
        {"launch": Launch.JUST_IN_TIME, "fit": 0.5, "patient": True},
    ),
    "chained": (Chained, {"launch": Launch.CHAINED}),
    "chained_4": (lambda: Chained(depth=4), {"launch": Launch.CHAINED, "depth": 4}),
    "eager": (Eager, {"launch": Launch.EAGER}),
    "round_robin": (RoundRobin, {"launch": Launch.ROUND_ROBIN}),
    "per_engine": (PerEngine, {"launch": Launch.LABELS, "fifo": False}),
    "single_stream": (SingleStream, {"launch": Launch.LABELS, "fifo": False, "streams": 1}),
}
FETCHES: dict[Fetch, Callable[[Policy], Policy]] = {
    Fetch.ON_DEMAND: lambda policy: policy,
    Fetch.WHILE_FREE: Aggressive,
    Fetch.ALL_AT_ONCE: DoNoHarm,
}


def same_decisions(program: Program, form: str, noise: np.ndarray[Any, Any] | None = None) -> None:
    """A rule takes the decisions of its policy one by one, whatever brings the buffers."""
    make, fields = FORMS[form]
    labels: tuple[int, ...] = ()
    if form == "eager":
        fields = {**fields, "depth": program.options.in_flight_limit // 2}
    if form == "per_engine":
        labels = engines_of(program.graph)
        if max(labels) >= program.options.streams:
            return  # with more engines than streams the policy lets them share as it goes
    for fetch, wrapped in FETCHES.items():
        assignment = Assignment(order=order_of(program), labels=labels, rule=Rule(fetch=fetch, **fields))
        found = carry_out(program, assignment, noise=noise)
        assert replay(program, found.plan.actions, noise=noise).objective_ns == found.objective_ns
        if fetch is not Fetch.ON_DEMAND and program.options.prefetch_mask is PrefetchMask.FREE:
            continue  # where prefetches may do harm, the policies fetch in circles
        outcome = rollout(program, wrapped(deepcopy(make())), noise=noise)
        assert found.plan.actions == outcome.actions, fetch
        assert (found.objective_ns, found.end_ns) == (outcome.objective_ns, outcome.end_ns), fetch


@pytest.mark.parametrize("form", FORMS)
@FAST
@given(seed=SEEDS)
def test_a_rule_decides_as_its_policy(form: str, seed: int) -> None:
    """Both windows, one die or two, noise, little memory, any number of streams."""
    case = make_case(seed)
    same_decisions(case.program, form, case.noise)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_a_rule_decides_as_its_policy_at_length(form: str, seed: int) -> None:
    case = make_case(seed)
    same_decisions(case.program, form, case.noise)


@cache
def program_of(scenario: str) -> Program:
    loaded = load_scenario(scenario)
    return compile_graph(loaded.graph(0, 0, 0), loaded.device, loaded.options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scenario", LIGHT)
def test_a_rule_decides_as_its_policy_on_shipped_scenarios(scenario: str, form: str) -> None:
    same_decisions(program_of(scenario), form)


# --- any rule -----------------------------------------------------------------------------------------


def random_assignment(rng: np.random.Generator, program: Program) -> Assignment:
    """Every field of every table and of the rule drawn, sensible or not."""
    count = len(program.graph.commands)
    rule = Rule(
        launch=Launch(int(rng.integers(0, 5))),
        fifo=bool(rng.integers(0, 2)),
        fit=float(rng.choice([0.0, 0.5, 1.0])),
        patient=bool(rng.integers(0, 2)),
        strict=bool(rng.integers(0, 2)),
        depth=int(rng.integers(0, 6)),
        streams=[None, 1, 2][int(rng.integers(0, 3))],
        fetch=Fetch(int(rng.integers(0, 3))),
        ahead=[None, 0, 1, 4][int(rng.integers(0, 4))],
        lift=bool(rng.integers(0, 2)),
    )
    labels = tuple(rng.integers(0, program.options.streams, count).tolist())
    starts = tuple(rng.integers(0, 2000, count).tolist())
    stages = tuple(rng.integers(0, count, count).tolist())
    return Assignment(
        order=tuple(rng.permutation(count).tolist()),
        labels=labels if rng.random() < 0.8 else (),
        starts_ns=starts if rng.random() < 0.3 else (),
        choosy=tuple((rng.random(count) < 0.5).tolist()) if rng.random() < 0.5 else (),
        stages=stages if rng.random() < 0.3 else (),
        rule=rule,
    )


def any_rule_finishes_legally_and_replays(seed: int) -> None:
    """The judge finds nothing, nothing illegal is asked for, and no scratch is left from the play before."""
    case = make_case(seed)
    program = case.program
    used = Decoder(program, case.noise)
    for _ in range(3):
        assignment = random_assignment(case.rng, program)
        found = carry_out(program, assignment, noise=case.noise)
        assert used.carry_out(assignment) == found
        state = case.new_state()
        for action in found.plan.actions:
            case.step(state, action)
        assert not state[at.S_INVALID]
        assert not running(state)
        assert (used.starts == start_column(program, state)).all()
        schedule = record_schedule(program, found.plan.actions, noise=case.noise)
        assert validate(schedule) == ()
        assert schedule.makespan_ns == found.end_ns
        if assignment.rule.streams is not None and program.options.window is Window.ISSUABLE:
            used_streams = {run.stream for run in schedule.commands}
            assert found.strayed or used_streams <= set(range(assignment.rule.streams))


def start_column(program: Program, state: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    first, count = int(program.image[at.P_STATE_COMMAND]), len(program.graph.commands)
    return state[first : first + count * at.SC_WIDTH].reshape(count, at.SC_WIDTH)[:, at.SC_START_NS]


def labels_in_order_never_stray(seed: int) -> None:
    """With memory for all, room for all in the window and predecessors first, every decision is asked for;
    commands of one label are issued in their order, and a stream that never runs empty keeps its label.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, most=16, late=bool(rng.integers(0, 2)), memory=False)
    options = RunOptions(
        streams=int(rng.integers(1, 6)), submission=Submission(str(rng.choice(["eager", "sink"])))
    )
    program = compile_graph(graph, random_device(rng), options)
    order = order_of(program)
    labels = tuple(rng.integers(0, options.streams, len(order)).tolist())
    found = carry_out(program, Assignment(order=order, labels=labels))
    assert found.strayed == 0
    issued = by_issue(program, found.plan.actions)
    for label in set(labels):
        assert [c for c in issued if labels[c] == label] == [c for c in order if labels[c] == label]
    runs = {(run.stream, run.position): run for run in record_schedule(program, found.plan.actions).commands}
    for (stream, position), run in runs.items():
        behind = runs.get((stream, position + 1))
        if behind is not None and behind.issue_ns < run.finish_ns:
            assert labels[behind.command] == labels[run.command]


def by_issue(program: Program, actions: tuple[int, ...]) -> list[int]:
    """Commands in the order in which they are issued."""
    state = program.new_state()
    choices = int(program.image[at.P_CHOICES])
    window = int(program.image[at.P_STATE_WINDOW])
    issued = []
    for action in actions:
        if action < program.options.commands * choices:
            issued.append(int(state[window + action // choices]))
        step(program.image, state, action)
    return issued


def no_command_is_issued_before_its_time_or_stage(seed: int) -> None:
    """But for decisions that are taken because nothing else is possible, which upset the count of a stage."""
    case = make_case(seed)
    program, count = case.program, len(case.program.graph.commands)
    starts = tuple(case.rng.integers(0, 1500, count).tolist())
    rank = tasks_of(program).rank
    stages = tuple((rank * 3 // count).tolist())
    launch = Launch(int(case.rng.integers(0, 5)))
    rule = Rule(launch=launch, fifo=False, fetch=Fetch.ON_DEMAND)
    for tables in ({"starts_ns": starts}, {"stages": stages}):
        assignment = Assignment(order=order_of(program), rule=rule, **tables)
        found = carry_out(program, assignment, noise=case.noise)
        schedule = record_schedule(program, found.plan.actions, noise=case.noise)
        finish = {run.command: run.finish_ns for run in schedule.commands}
        for run in schedule.commands:
            if "stages" in tables and found.strayed == 0:
                before = [finish[c] for c in range(count) if stages[c] < stages[run.command]]
                assert run.issue_ns >= max(before, default=0)
        if "starts_ns" in tables:
            early = [run for run in schedule.commands if run.issue_ns < starts[run.command]]
            assert len(early) <= found.strayed


LAWS = (
    any_rule_finishes_legally_and_replays,
    labels_in_order_never_stray,
    no_command_is_issued_before_its_time_or_stage,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=1500, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.parametrize("seed", [1, 47, 84, 198])
def test_a_rule_does_not_fetch_in_circles_to_the_end(seed: int) -> None:
    """Where prefetches evict each other, the policy runs out of steps; the rule stops in time."""
    case = make_case(seed)
    assert case.program.options.prefetch_mask is PrefetchMask.FREE
    with pytest.raises(EpisodeError, match="it ran out of steps"):
        rollout(case.program, Aggressive(JustInTime(fit=1.0)), noise=case.noise)
    rule = Rule(launch=Launch.JUST_IN_TIME, fit=1.0, fetch=Fetch.WHILE_FREE)
    assert carry_out(case.program, Assignment(order=order_of(case.program), rule=rule), noise=case.noise)


# --- by hand ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """A schedule, and how many decisions nobody asked for."""

    schedule: Schedule
    strayed: int

    @property
    def times(self) -> dict[str, tuple[int, int]]:
        return times(self.schedule)


def play(
    commands: tuple[Command, ...],
    order: str = "",
    *,
    buffers: tuple[Buffer, ...] = (),
    device: Any = None,
    options: dict[str, Any] | None = None,
    tables: dict[str, tuple[int, ...]] | None = None,
    **rule: Any,
) -> Played:
    """Play an order of names with a rule, without gaps; four streams unless said otherwise."""
    graph = CommandGraph("toy", commands, buffers)
    program = compile_graph(graph, device or QUICK, RunOptions(**{"streams": 4, **(options or {})}))
    indices = tuple(graph.command_index[name] for name in (order.split() or [c.name for c in commands]))
    found = carry_out(program, Assignment(order=indices, rule=Rule(**rule), **(tables or {})))
    schedule = record_schedule(program, found.plan.actions)
    assert validate(schedule) == ()
    return Played(schedule, found.strayed)


# Streams that are idle are used again at once.
QUICK = toy_device(dispatch={"gap_ns": 0, "mix_switch_ns": 0})

JUST = {"launch": Launch.JUST_IN_TIME, "fetch": Fetch.ON_DEMAND}


def test_a_label_keeps_its_order_or_lets_others_by() -> None:
    """``a`` and ``b`` share label 0, ``b`` comes first but needs ``c``, which is last of all.

    ::

        in order     s0: c 0-110                          out of order   s0: a 0-110 | b 110-220
                     s1:         b 110-220 | a 220-330                   s1: c 0-110
    """
    commands = (vector("a"), vector("b", after=("c",)), vector("c"))
    tables = {"labels": (0, 0, 1)}
    kept = play(commands, "b a c", tables=tables)
    assert kept.times == {"c": (0, 110), "b": (110, 220), "a": (220, 330)}
    assert kept.strayed == 0
    free = play(commands, "b a c", tables=tables, fifo=False)
    assert free.times == {"a": (0, 110), "b": (110, 220), "c": (0, 110)}


def test_what_nobody_asked_for_is_counted() -> None:
    """The window has one place, which the long ``a`` takes; its label wants ``b`` to go first.

    Nothing is under way, so waiting is impossible: ``a`` goes. With two places ``b`` goes first.
    """
    commands = (vector("a", 200), vector("b"))
    narrow = play(commands, "b a", options={"commands": 1})
    assert (narrow.times, narrow.strayed) == ({"a": (0, 210), "b": (210, 320)}, 1)
    wide = play(commands, "b a", options={"commands": 2})
    assert (wide.times, wide.strayed) == ({"b": (0, 110), "a": (110, 320)}, 0)


@pytest.mark.parametrize(("start_ns", "begins_ns"), [(0, 0), (1, 110), (110, 110), (111, 310), (311, 310)])
def test_a_command_waits_for_its_time(start_ns: int, begins_ns: int) -> None:
    """The host looks when something ends: ``a`` at 110, ``c`` at 310; then nothing else would ever happen.

    ::

        a 0-110
        c 0-310
        b from start_ns on
    """
    commands = (vector("a"), vector("b"), vector("c", 300))
    played = play(commands, tables={"starts_ns": (0, start_ns, 0)}, **JUST)
    assert played.times["b"] == (begins_ns, begins_ns + 110)
    assert played.strayed == (start_ns == 311)


def test_nothing_overtakes_if_the_rule_is_strict() -> None:
    """Four cores; ``wide`` needs all of them, ``small`` one.

    ::

        strict   a 0-210, two cores | wide 210-320, four | small 320-430
        loose    a 0-210, two cores | wide 210-320
                 small 0-110
    """
    commands = (vector("a", 200, blocks=2), vector("wide", blocks=4), vector("small"))
    strict = play(commands, strict=True, fit=1.0, **JUST)
    assert strict.times == {"a": (0, 210), "wide": (210, 320), "small": (320, 430)}
    loose = play(commands, fit=1.0, **JUST)
    assert loose.times == {"a": (0, 210), "wide": (210, 320), "small": (0, 110)}


def test_strictness_does_not_wait_for_what_is_not_ready() -> None:
    """``b`` needs ``a``; ``c`` comes behind it and goes at once."""
    commands = (vector("a", 200), vector("b", after=("a",)), vector("c"))
    played = play(commands, strict=True, **JUST)
    assert played.times == {"a": (0, 210), "b": (210, 320), "c": (0, 110)}


@pytest.mark.parametrize(("fit", "begins_ns"), [(0.0, 0), (0.5, 0), (0.75, 210)])
def test_a_command_waits_until_enough_of_it_fits(fit: float, begins_ns: int) -> None:
    """Two of four cores are free until 210."""
    commands = (vector("a", 200, blocks=2), vector("wide", blocks=4))
    assert play(commands, fit=fit, **JUST).times["wide"][0] == begins_ns


def test_a_choosy_command_waits_for_its_class() -> None:
    """``a`` holds all vector cores until 110; ``b`` may run on the AI CPU instead.

    ::

        aiv     a 0-110 |                     a 0-110 | b 110-220, choosy
        aicpu   b 0-110, not choosy
    """
    kernel = toy_kernel("vector", 100, fallback=KernelClass.AICPU)
    commands = (vector("a", blocks=4), replace(vector("b"), kernels=(kernel,)))
    for choosy, work_class, start_ns in ((False, "aicpu", 0), (True, "vector", 110)):
        schedule = play(commands, tables={"choosy": (False, choosy)}, **JUST).schedule
        assert [row[1:4] for row in rows_of(schedule, "b")] == [(work_class, 1, start_ns)]


@pytest.mark.parametrize("launch", list(Launch))
def test_a_stage_begins_when_those_before_it_are_done(launch: Launch) -> None:
    """No edges: ``a`` 0-110 and ``b`` 0-310, then ``c`` and ``d``, then ``e``."""
    commands = (vector("e"), vector("d"), vector("c"), vector("b", 300), vector("a"))
    tables = {"stages": (2, 1, 1, 0, 0), "labels": (4, 3, 2, 1, 0)}
    played = play(commands, tables=tables, options={"streams": 5}, launch=launch)
    found = {name: start for name, (start, _) in played.times.items()}
    assert (found["a"], found["b"]) == (0, 0)
    assert min(found["c"], found["d"]) >= 310
    assert found["e"] >= played.times["d"][1]
    assert found["e"] >= played.times["c"][1]
    assert played.strayed == 0


def test_numbers_of_stages_may_leave_gaps() -> None:
    played = play((vector("a"), vector("b")), tables={"stages": (2, 0)}, **JUST)
    assert played.times == {"b": (0, 110), "a": (110, 220)}


def prefetched(schedule: Schedule) -> dict[str, tuple[int, int]]:
    names = [buffer.name for buffer in schedule.graph.buffers]
    return {
        names[row.buffer]: (row.start_ns, row.finish_ns)
        for row in schedule.transfers
        if row.cause == "prefetch"
    }


ALL = {"launch": Launch.JUST_IN_TIME, "fetch": Fetch.ALL_AT_ONCE}


def test_prefetches_look_so_far_ahead() -> None:
    """A transfer takes 69 ns, a kernel 110; ``k0`` can start at 69, ``k1`` at 179 at the earliest.

    ::

        all at once   w0 0-69 | w1 69-138 | w2 138-207
        one ahead     w0 0-69 | w1 69-138, asked for when k0 has started | w2 179-248
        none          nothing
    """
    graph = toy_squeeze(3)
    for ahead, expected in (
        (None, {"w0": (0, 69), "w1": (69, 138), "w2": (138, 207)}),
        (2, {"w0": (0, 69), "w1": (69, 138), "w2": (138, 207)}),
        (1, {"w0": (0, 69), "w1": (69, 138), "w2": (179, 248)}),
        (0, {}),
    ):
        played = play(graph.commands, buffers=graph.buffers, ahead=ahead, **ALL)
        found = prefetched(played.schedule)
        assert found.keys() == expected.keys()
        assert found == expected, ahead


def lifts_of(schedule: Schedule) -> Counter[int]:
    return Counter(row.buffer for row in schedule.transfers if row.cause == "lift")


@pytest.mark.parametrize("launch", [Launch.JUST_IN_TIME, Launch.EAGER, Launch.LABELS])
def test_a_buffer_is_lifted_at_most_once_for_each_use(launch: Launch) -> None:
    """Where weights do not fit into L2, running kernels drive out again what was lifted."""
    program = program_of("training")
    graph = program.graph
    rule = Rule(launch=launch, lift=True)
    found = carry_out(program, Assignment(order=order_of(program), rule=rule))
    lifts = lifts_of(record_schedule(program, found.plan.actions))
    assert lifts.total() > 20
    for buffer, count in lifts.items():
        assert count <= sum(graph.buffers[buffer].name in command.reads for command in graph.commands)
    without = carry_out(program, Assignment(order=order_of(program), rule=replace(rule, lift=False)))
    assert not lifts_of(record_schedule(program, without.plan.actions))


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"order": (0, 1)},
            "the order of an assignment of graph 'toy' has 2 entries; it needs each of .* 0 to 2",
        ),
        ({"order": (0, 1, 1)}, "the order .* needs each of the indices 0 to 2 once"),
        ({"order": (1, 2, 3)}, "the order .* needs each of the indices 0 to 2 once"),
        ({"labels": (0, 4, 0)}, "labels .* is 4 for command 'b'; write a number from 0 to 3"),
        ({"labels": (0, 0)}, "labels .* has 2 entries; it needs one for each of its 3 commands"),
        ({"starts_ns": (0, 0, -1)}, "starts_ns .* is -1 for command 'c'; write a number from 0"),
        ({"starts_ns": (1,)}, "starts_ns .* has 1 entries; it needs one for each of its 3 commands"),
        ({"choosy": (2, 0, 0)}, "choosy .* is 2 for command 'a'; write a number from 0 to 1"),
        ({"stages": (0, 0, 4)}, "stages .* is 4 for command 'c'; write a number from 0 to 3"),
        ({"stages": (0, 0, 1, 1)}, "stages .* has 4 entries"),
    ],
)
def test_a_wrong_table_is_refused(tables: dict[str, Any], message: str) -> None:
    graph = CommandGraph("toy", (vector("a"), vector("b"), vector("c")))
    program = compile_graph(graph, toy_device(), RunOptions(streams=4))
    with pytest.raises(InputError, match=message):
        carry_out(program, Assignment(**{"order": (0, 1, 2), **tables}))


def starving() -> Program:
    """A program whose episodes end after two decisions."""
    graph = CommandGraph("toy", (vector("a"), vector("b"), vector("c")))
    program = compile_graph(graph, toy_device(), RunOptions(streams=4))
    image = program.image.copy()
    image[at.P_STEP_BUDGET] = 2
    return replace(program, image=image)


def test_an_assignment_that_does_not_finish_is_refused() -> None:
    program, assignment = starving(), Assignment(order=(0, 1, 2))
    assert Decoder(program).carry_out(assignment) is None
    with pytest.raises(
        EpisodeError, match="'toy' on toy was not finished by the assignment after 2 decisions"
    ):
        carry_out(program, assignment)
    with pytest.raises(EpisodeError, match="'toy' on toy was not finished by any of the assignments"):
        best_of(program, [assignment])


def test_the_best_of_several_is_the_first_of_equals() -> None:
    """On one stream 332 ns, on three 110: two ways, of which the first is kept."""
    graph = CommandGraph("toy", (vector("a"), vector("b"), vector("c")))
    program = compile_graph(graph, toy_device(), RunOptions(streams=4))
    single = Assignment(order=(0, 1, 2))
    three = Assignment(order=(0, 1, 2), labels=(0, 1, 2))
    other = Assignment(order=(2, 1, 0), labels=(0, 1, 2))
    assert carry_out(program, single).objective_ns == 332
    for order in ([single, three, other], [single, other, three]):
        best, result = best_of(program, order)
        assert best is order[1]
        assert result.objective_ns == 110


def test_more_streams_than_there_are_is_all_of_them() -> None:
    commands = tuple(vector(name) for name in "abc")
    for streams, used in ((9, {0, 1, 2}), (2, {0, 1}), (1, {0}), (None, {0, 1, 2})):
        schedule = play(commands, streams=streams, launch=Launch.ROUND_ROBIN).schedule
        assert {run.stream for run in schedule.commands} == used


@pytest.mark.parametrize("seed", range(8))
def test_a_form_is_worth_what_its_assignment_comes_to(seed: int) -> None:
    """Also where keys are equal and streams are named: the queue of a stream follows the longer tail."""
    case = make_case(seed, plain=True)
    program, rng = case.program, np.random.default_rng(seed)
    commands, bench = len(program.graph.commands), Bench(program)
    rules = [Rule(launch=Launch.LABELS, fifo=True), Rule(launch=Launch.LABELS), Rule(launch=Launch.CHAINED)]
    for rule in (*rules, *launches(program)):
        labels = rng.integers(0, program.options.streams, commands)
        form = bench.form(rule, rng.integers(-1, 2, commands), labels)
        result = Decoder(program).carry_out(form.assignment(program))
        assert bench.value(form) == (-1 if result is None else result.objective_ns)
