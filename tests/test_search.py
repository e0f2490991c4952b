"""Search: never worse than the reference, repeatable, a longer one never worse than a shorter one."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from brute import least_makespan
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_files import SM
from projects import optimum
from toys import callback, collective, kernel_command, toy_device, toy_kernel, toy_pipeline, toy_squeeze

from cann_env.generation import Population
from cann_env.graph import CommandGraph, Scheme
from cann_env.options import Objective, RunOptions
from cann_env.program import Program, compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import carry_out, decide, make_scheduler, replay
from cann_env.schedulers.assignment import Rule
from cann_env.schedulers.breeding import Breeder
from cann_env.schedulers.forms import Bench, abstract_orders, plain_forms, tried
from cann_env.schedulers.reference import Reference, best_trials
from cann_env.schedulers.search import Search
from cann_env.tasks import tasks_of
from cann_env.units import InputError
from cann_env.workloads.planted import planted
from cann_env.workloads.project import Optimum, pose
from cann_env.workloads.project_files import read_sm

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.graph import Command

SEEDS = st.integers(0, 2**32 - 1)


def expected(seed: int) -> Program:
    """A random case with expected durations, whatever its objective."""
    case = make_case(seed)
    return compile_graph(case.program.graph, case.program.device, replace(case.program.options, noise=0.0))


def value(program: Program, **limits: Any) -> int:
    return carry_out(program, Search(**limits).assign(program)).objective_ns


# --- laws ---------------------------------------------------------------------------------------------


def never_worse_than_the_reference(seed: int) -> None:
    """Whatever the number of schedules, none among them; what it returns replays."""
    program = expected(seed)
    reference = decide(program, Reference())
    for schedules in (0, 1, 60):
        found = decide(program, Search(schedules=schedules, seed=seed % 7))
        assert found.objective_ns <= reference.objective_ns
        assert replay(program, found.actions).objective_ns == found.objective_ns


def a_longer_search_is_never_worse(seed: int) -> None:
    """It has tried all that the shorter one has, however that ended."""
    program = expected(seed)
    numbers = np.sort(np.random.default_rng(seed).integers(0, 700, 5)).tolist()
    values = [value(program, schedules=number, seed=1) for number in numbers]
    assert values == sorted(values, reverse=True)


def the_same_search_finds_the_same(seed: int) -> None:
    program = expected(seed)
    first, again = (Search(schedules=100, seed=seed % 5).assign(program) for _ in range(2))
    assert first == again


LAWS = (never_worse_than_the_reference, a_longer_search_is_never_worse, the_same_search_finds_the_same)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=3, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


# --- by hand ------------------------------------------------------------------------------------------


def whole(name: str, block_ns: int, blocks: int, *after: str) -> Command:
    """A vector kernel whose blocks start all at once."""
    return kernel_command(
        name, toy_kernel("vector", block_ns, blocks=blocks, scheme=Scheme.BATCH), after=after
    )


def waiting() -> Program:
    """Four cores, three streams. The best schedule leaves two cores idle though ``c`` could start.

    ::

        who never waits        a 0-100, two cores | b 1000-1100, all | d 1100-2100
                               c 0-1000, two cores
        the best               a 0-100 | b 100-200 | c, d 200-1200
    """
    commands = (
        whole("a", 90, 2),
        whole("b", 90, 4, "a"),
        whole("c", 990, 2),
        whole("d", 990, 2, "b"),
    )
    return compile_graph(CommandGraph("waiting", commands), toy_device(), RunOptions(streams=3))


def test_search_finds_what_no_form_of_the_reference_does() -> None:
    """Trying all decisions proves that there is nothing better."""
    program = waiting()
    assert carry_out(program, Reference().assign(program)).objective_ns == 2100
    assert best_trials(Bench(program))[0].objective_ns == 2100
    assert value(program, schedules=500) == 1200
    assert least_makespan(program, 1201) == 1200


def test_brute_force_knows_the_best() -> None:
    """Of two streams and four copies of 110 ns on two cores: two each, 221."""
    commands = tuple(kernel_command(name, toy_kernel("cube", 100)) for name in "abcd")
    program = compile_graph(CommandGraph("four", commands), toy_device(), RunOptions(streams=2))
    assert least_makespan(program, 10**9) == 221
    assert least_makespan(program, 200) == 200


@cache
def small_project() -> Program:
    """A project of activities on an ideal device, where the engine does what the project promises."""
    posed = pose(read_sm(SM, "small.sm"), Optimum(least=9, best=9))
    return compile_graph(posed.graph, posed.device, posed.options)


def test_on_an_ideal_device_the_project_is_all_there_is() -> None:
    program = small_project()
    assert value(program, schedules=2000) == 9000
    assert optimum(scaled(program)) == 9


def scaled(program: Program) -> Any:
    """The tasks of a program in units of a microsecond."""
    tasks = tasks_of(program)
    assert not (tasks.duration_ns % 1000).any()
    return replace(tasks, duration_ns=tasks.duration_ns // 1000, tail_ns=tasks.tail_ns // 1000)


def cut(seed: int) -> Program:
    """An ideal device: the population goes on."""
    posed = planted(np.random.default_rng(seed), kernels=40, cores={"aic": 6}, length=100).problem
    return compile_graph(posed.graph, posed.device, posed.options)


@pytest.mark.parametrize("seed", range(8))
def test_the_exact_branch_is_the_population(seed: int) -> None:
    """Same seed, same number of schedules: the search is exactly as good, and not better than can be.

    Also where the best schedule was found backwards and starts activities when nothing ends.
    """
    program = cut(seed)
    population = Population(tasks_of(program), seed=seed, bound=program.lower_bound_ns)
    population.run(700)
    reference = carry_out(program, Reference().assign(program)).objective_ns
    found = value(program, schedules=700, seed=seed)
    assert found == min(population.makespan, reference)
    assert found >= 100_000


def test_latency_is_searched_too() -> None:
    """There is no project for it: forms are bred from the first schedule on."""
    program = load_scenario("serving_arrivals")
    graph = program.graph(0, 0, 0)
    compiled = compile_graph(graph, program.device, program.options)
    assert compiled.options.objective is Objective.LATENCY
    assert abstract_orders(Bench(compiled), 400) == []
    reference = decide(compiled, Reference()).objective_ns
    assert value(compiled, schedules=40) <= reference


# --- breeding -----------------------------------------------------------------------------------------


def test_breeding_keeps_the_best_and_never_loses_it() -> None:
    """Its best is what playing that form comes to, and it does not rise."""
    graph = load_scenario("layered").graph(0, 0, 0)
    scenario = load_scenario("layered")
    bench = Bench(compile_graph(graph, scenario.device, scenario.options))
    trials = tried(bench, plain_forms(bench))
    breeder = Breeder(bench, trials, np.random.default_rng(0))
    last = breeder.best.objective_ns
    assert last == trials[0].objective_ns
    for _ in range(200):
        breeder.breed()
        assert breeder.best.objective_ns <= last
        last = breeder.best.objective_ns
    assert bench.value(breeder.best.form) == last
    assignment = breeder.best.form.assignment(bench.program)
    assert carry_out(bench.program, assignment).objective_ns == last
    assert last < trials[0].objective_ns


@pytest.mark.parametrize("scenario", ["oversubscribed", "pipeline", "serving_arrivals"])
def test_a_form_comes_to_the_same_as_its_assignment(scenario: str) -> None:
    """Trying forms takes a short cut past the assignment, which must not show."""
    loaded = load_scenario(scenario)
    bench = Bench(compile_graph(loaded.graph(0, 0, 1), loaded.device, loaded.options))
    breeder = Breeder(bench, tried(bench, plain_forms(bench)), np.random.default_rng(1))
    forms = plain_forms(bench) + [breeder._child() for _ in range(30)]
    forms.append(bench.form(Rule(), labels=bench.engines))  # in order within a label
    for form in forms:
        objective = bench.value(form)
        result = bench.decoder.carry_out(form.assignment(bench.program))
        assert (result.objective_ns if result else -1) == objective, form.rule


def test_breeding_tries_every_field_of_a_rule() -> None:
    """Fields that a program has no use for stay as they are."""
    for name, fixed in (("training", {"fifo"}), ("layered", {"fifo", "fetch", "ahead", "lift"})):
        scenario = load_scenario(name)
        bench = Bench(compile_graph(scenario.graph(0, 0, 0), scenario.device, scenario.options))
        breeder = Breeder(bench, tried(bench, plain_forms(bench)[:3]), np.random.default_rng(0))
        rule = plain_forms(bench)[0].rule
        drawn = [breeder._changed(rule) for _ in range(400)]
        changed = {
            field.name
            for field in fields(Rule)
            if any(getattr(each, field.name) != getattr(rule, field.name) for each in drawn)
        }
        assert changed == {field.name for field in fields(Rule)} - fixed


# --- limits and progress ------------------------------------------------------------------------------


def squeezed() -> Program:
    """Six weights, of which two fit: forms are bred."""
    return compile_graph(toy_squeeze(6), toy_device(), RunOptions(streams=2, hbm_bytes=128))


@pytest.mark.parametrize(("program", "least"), [(squeezed(), 5), (cut(0), 1)], ids=["bred", "exact"])
def test_progress_rises_to_at_most_one_and_the_objective_falls(program: Program, least: int) -> None:
    """It is told every 64 schedules that are played, or every 2000 that are only generated."""
    seen: list[tuple[float, int]] = []
    schedules = 1000 if least == 5 else 6000
    best = value(program, schedules=schedules, watch=lambda part, objective: seen.append((part, objective)))
    parts, objectives = [part for part, _ in seen], [objective for _, objective in seen]
    assert least <= len(seen) <= 20
    assert parts == sorted(parts)
    assert parts[0] < 0.5
    assert parts[-1] <= 1.0
    assert least == 1 or parts[-1] > 0.9
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] >= best


def test_a_time_ends_the_search() -> None:
    """It ends, and is as good as the reference; how long it takes is not asked."""
    program = compile_graph(toy_pipeline(4), toy_device(), RunOptions(streams=4))
    seen: list[float] = []
    found = value(program, schedules=None, seconds=0.05, watch=lambda part, objective: seen.append(part))
    assert found <= decide(program, Reference()).objective_ns
    assert all(0.0 <= part <= 1.0 for part in seen)
    both = value(program, schedules=5, seconds=60.0)
    assert both == value(program, schedules=5)


def test_a_search_without_limit_or_sense_is_refused() -> None:
    for limits, message in (
        ({"schedules": None}, "search has neither a number of schedules nor a time; write one of them"),
        ({"schedules": -1}, "search takes -1 schedules; write a number from 0"),
        ({"seconds": 0.0}, r"search takes 0\.0 seconds; write a number above 0"),
        ({"seconds": -2.0}, r"search takes -2\.0 seconds; write a number above 0"),
    ):
        with pytest.raises(InputError, match=message):
            Search(**limits)  # type: ignore[arg-type]


# --- orders to begin with -----------------------------------------------------------------------------


def two_machines() -> tuple[Program, tuple[int, ...]]:
    """Five collectives, each followed by a callback, and the order of Johnson's rule, which is optimal.

    Job, collective and callback in us: 2 (1, 2), 1 (7, 9), 3 (8, 9), 0 (5, 5), 4 (3, 3) in this order; the
    callbacks end at 3, 17, 26, 31 and 34 us.
    """
    jobs = ((5, 5), (7, 9), (1, 2), (8, 9), (3, 3))
    commands = []
    for job, (first, second) in enumerate(jobs):
        commands.append(collective(f"first_{job}", 1000 * first))
        commands.append(callback(f"second_{job}", 1000 * second, after=(f"first_{job}",)))
    places = {2: 0, 1: 1, 3: 2, 0: 3, 4: 4}
    order = tuple(2 * places[job] + half for job in range(5) for half in range(2))
    options = RunOptions(streams=5, commands=10)
    return compile_graph(CommandGraph("two_machines", tuple(commands)), toy_device(), options), order


def test_a_good_order_to_begin_with_is_not_lost() -> None:
    """Not even without further schedules, and behind another order."""
    program, order = two_machines()
    assert value(program, schedules=0) == 35_000
    assert value(program, schedules=0, orders=(order,)) == 34_000
    backwards = tuple(-place for place in order)
    assert value(program, schedules=20, orders=(backwards, order)) == 34_000


def test_a_bad_order_to_begin_with_loses_nothing() -> None:
    program, order = two_machines()
    backwards = tuple(-place for place in order)
    assert value(program, schedules=0, orders=(backwards,)) == 35_000


def test_a_search_without_orders_is_what_it_was_before_there_were_any() -> None:
    program = waiting()
    found = [value(program, schedules=number, seed=seed) for number in (0, 7, 64) for seed in (0, 4)]
    assert found == [2100, 2100, 1202, 1202, 1200, 1201]


def test_an_order_of_another_graph_is_refused() -> None:
    with pytest.raises(InputError, match="has 3 numbers; it needs one for each of the 4 commands"):
        Search(schedules=0, orders=((0, 1, 2, 3), (0, 1, 2))).assign(waiting())


def test_the_argument_of_a_name_is_its_number() -> None:
    program = waiting()
    named = decide(program, make_scheduler("search:500", 3))
    assert named == decide(program, Search(schedules=500, seed=3))
