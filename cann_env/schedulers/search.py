"""Anytime search: a population of schedules on the program as a project, then one in the engine itself.

It begins with all that the reference tries. What it goes on with depends on how much of the device the
project knows. Where the best schedule of the project, started at its instants, takes exactly as long in the
engine, the project is all there is: the whole effort goes into :class:`~cann_env.generation.Population`.
Elsewhere - queues, events, the host, shared bandwidth, memory - forms of list scheduling are bred by playing
them: their orders are crossed, pushed to the right and disturbed, and so are the way of launching, how many
streams there are, how far prefetching looks ahead, and which commands wait for their preferred class.

The same seed and number of schedules give the same plan; with a limit of time the same sequence is cut off.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cann_env.generation import Population
from cann_env.options import Objective
from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, carry_out
from cann_env.schedulers.breeding import Breeder
from cann_env.schedulers.forms import Bench, Form, Trial
from cann_env.schedulers.policy import EpisodeError
from cann_env.schedulers.reference import best_trials
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedulers.policy import Plan, Watch

_PROBE, _PROBES = 50, 8
_CHUNK = 2000
_RULES_OF_GIVEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Best schedule found within a number of schedules or a time.

    Attributes:
        schedules: Most schedules, generated or played, after those of the reference and of the given orders;
            None for no limit.
        seconds: Most wall time, those of the reference included; None for no limit.
        seed: Of the random numbers.
        watch: Told how far it is; None for nobody.
        orders: Orders to begin with beside those of the reference, such as a trained policy found: for each
            command, by its index, a number that is smaller the earlier it goes, for instance its start.
    """

    schedules: int | None = 5000
    seconds: float | None = None
    seed: int = 0
    watch: Watch | None = None
    orders: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a search that would never end, or never begin."""
        if self.schedules is None and self.seconds is None:
            raise InputError("search has neither a number of schedules nor a time; write one of them")
        if self.schedules is not None and self.schedules < 0:
            raise InputError(f"search takes {self.schedules} schedules; write a number from 0")
        if self.seconds is not None and self.seconds <= 0:
            raise InputError(f"search takes {self.seconds} seconds; write a number above 0")

    def check_orders(self, commands: int) -> None:
        """Refuse an order of another graph.

        Raises:
            InputError: It has not one number for each command.
        """
        for order in self.orders:
            if len(order) != commands:
                raise InputError(
                    f"an order that search is to begin with has {len(order)} numbers; it needs one for each "
                    f"of the {commands} commands"
                )

    def assign(self, program: Program) -> Assignment:
        """The best assignment found, under expected durations.

        Raises:
            InputError: An order to begin with belongs to another graph.
            EpisodeError: No form of list scheduling finishes.
        """
        self.check_orders(len(program.graph.commands))
        return _Run(self, program).best()

    def watched(self, watch: Watch) -> Search:
        """The same search, with somebody to tell how far it is."""
        return replace(self, watch=watch)

    def plan(self, program: Program) -> Plan:
        """All decisions of the best assignment under expected durations."""
        return carry_out(program, self.assign(program)).plan


class _Run:
    """One search: what is left of its limits, and the best so far."""

    def __init__(self, search: Search, program: Program) -> None:
        self._search = search
        self._began = time.monotonic()
        self._used = 0
        self._program = program
        self._bench = Bench(program)
        self._trials = best_trials(self._bench)
        self._objective = self._trials[0].objective_ns
        self._assignment = self._trials[0].form.assignment(program)

    def best(self) -> Assignment:
        """Search until a limit or the lower bound is reached."""
        self._try_given()
        if self._program.options.objective is Objective.MAKESPAN:
            seed, bound = self._search.seed, self._program.lower_bound_ns
            population = Population(self._bench.tasks, seed=seed, bound=bound)
            if self._is_exact(population):
                self._extend(population)
                return self._assignment
            self._seed_with(population)
        self._breed()
        return self._assignment

    def _left(self) -> bool:
        limit = self._search.schedules
        return (limit is None or self._used < limit) and self._in_time()

    def _in_time(self) -> bool:
        limit = self._search.seconds
        return limit is None or time.monotonic() - self._began < limit

    def _report(self) -> None:
        search = self._search
        if search.watch is None:
            return
        parts = []
        if search.schedules is not None:
            parts.append(self._used / max(search.schedules, 1))
        if search.seconds is not None:
            parts.append((time.monotonic() - self._began) / search.seconds)
        search.watch(min(max(parts), 1.0), self._objective)

    def _generate(self, population: Population, schedules: int) -> None:
        limit = self._search.schedules
        count = schedules if limit is None else min(schedules, limit - self._used)
        before = population.generated
        population.run(max(count, 0))
        self._used += population.generated - before

    def _is_exact(self, population: Population) -> bool:
        """Whether the engine does in exactly the same time what the project promises.

        It is asked at fixed numbers of schedules, so that a longer search has tried all that a shorter has.
        """
        objective = shortest = -1
        for _ in range(_PROBES):
            self._generate(population, _PROBE)
            if population.generated % _PROBE and not population.done:
                return False
            if population.generated and population.makespan != shortest:
                shortest = population.makespan
                objective = self._replay(population)
        return objective == shortest >= 0

    def _replay(self, population: Population) -> int:
        """Objective of the best schedule of the project when it is started at its instants; kept if best."""
        starts = population.starts
        order = np.lexsort((self._bench.tasks.rank, starts))
        assignment = Assignment(
            order=tuple(order.tolist()),
            starts_ns=tuple(starts.tolist()),
            rule=Rule(launch=Launch.JUST_IN_TIME, fetch=Fetch.WHILE_FREE),
        )
        try:
            objective = carry_out(self._program, assignment).objective_ns
        except EpisodeError:
            return -1
        if objective < self._objective:
            self._objective, self._assignment = objective, assignment
        return objective

    def _extend(self, population: Population) -> None:
        """Put all that is left into the population."""
        while self._left() and not population.done:
            before = population.makespan
            self._generate(population, _CHUNK)
            if population.makespan < before:
                self._replay(population)
            self._report()
        self._report()

    def _try_given(self) -> None:
        """Play the given orders by the best rules."""
        rules = list(dict.fromkeys(trial.form.rule for trial in self._trials[:_RULES_OF_GIVEN]))
        for order in self._search.orders:
            keys = np.asarray(order, np.int64)
            for rule in rules:
                if self._in_time():
                    self._try(self._bench.form(rule, keys))
        self._trials.sort(key=lambda trial: trial.objective_ns)
        self._keep(self._trials[0])

    def _seed_with(self, population: Population) -> None:
        """Play the orders of the population by the best rules."""
        rules = list(dict.fromkeys(trial.form.rule for trial in self._trials[:3]))
        for starts in population.members()[:8]:
            for rule in rules:
                if not self._left():
                    return
                self._try(self._bench.form(rule, starts))
                self._used += 1

    def _try(self, form: Form) -> None:
        value = self._bench.value(form)
        if value >= 0:
            self._trials.append(Trial(value, form))

    def _breed(self) -> None:
        """Breed forms in the engine."""
        breeder = Breeder(self._bench, self._trials, np.random.default_rng(self._search.seed))
        self._keep(breeder.best)
        while self._left() and self._objective > self._program.norm_ns:
            breeder.breed()
            self._used += 1
            if breeder.best.objective_ns < self._objective:
                self._keep(breeder.best)
            if self._used % 64 == 0:
                self._report()

    def _keep(self, trial: Trial) -> None:
        if trial.objective_ns < self._objective:
            self._objective = trial.objective_ns
            self._assignment = trial.form.assignment(self._program)
