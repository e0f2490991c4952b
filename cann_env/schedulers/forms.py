"""Forms of list scheduling: rules and orders that are worth a try on any program, and how they are tried.

List scheduling has several forms, none of which is always best: start only what can start now, demand that
all its blocks fit, wait for operands that are on their way, queue behind predecessors, keep one stream an
engine, take streams in turn; urgent commands first, or old ones, or those that an abstract schedule starts
first. A trial plays a form through the engine, which takes about as long as the decisions of one episode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.engine import wishes as by
from cann_env.generation import Population
from cann_env.options import Objective
from cann_env.schedulers.assignment import Assignment, Decoder, Fetch, Launch, Rule, link_labels, notes_of
from cann_env.tasks import tasks_of

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.tasks import Tasks


class Form(NamedTuple):
    """One way to schedule a program.

    Attributes:
        rule: How commands come to streams, and when buffers move.
        keys: (n,) whole numbers: the command with the smallest goes first, of equals the one with the longer
            tail.
        labels: (n,) labels, for the rule that asks for them.
        choosy: (n,) 1 for commands that wait for their preferred class.
    """

    rule: Rule
    keys: Image
    labels: Image
    choosy: Image

    def order(self, program: Program) -> Image:
        """(n,) indices of the commands, the first to go first."""
        return np.lexsort((_column(program, at.PC_RANK), self.keys))

    def assignment(self, program: Program) -> Assignment:
        """The form as an assignment of a program."""
        return Assignment(
            order=tuple(self.order(program).tolist()),
            labels=tuple(self.labels.tolist()),
            choosy=tuple((self.choosy > 0).tolist()),
            rule=self.rule,
        )


@dataclass(frozen=True)
class Bench:
    """A program, and what trying forms on it needs again and again.

    Attributes:
        program: The program, with its expected durations.
    """

    program: Program

    @cached_property
    def decoder(self) -> Decoder:
        """Plays assignments."""
        return Decoder(self.program)

    @cached_property
    def tasks(self) -> Tasks:
        """The program as a project."""
        return tasks_of(self.program)

    @cached_property
    def nothing(self) -> Image:
        """(n,) zeros."""
        return np.zeros(len(self.program.graph.commands), np.int64)

    @cached_property
    def engines(self) -> Image:
        """(n,) the engine of each command's first kernel, numbered without gaps, folded into the streams."""
        image = self.program.image
        first = int(image[at.P_AT_KERNEL]) + _column(self.program, at.PC_KERNEL) * at.PK_WIDTH
        _, engine = np.unique(np.minimum(image[first + at.PK_CLASS], 6), return_inverse=True)
        return np.asarray(engine % self.program.options.streams, np.int64)

    def form(self, rule: Rule, keys: Image | None = None, labels: Image | None = None) -> Form:
        """A form of a rule; by descending tail unless keys are given."""
        keys = self.tasks.rank if keys is None else keys
        return Form(rule, keys, self.nothing if labels is None else labels, self.nothing)

    def value(self, form: Form) -> int:
        """The objective of a form (ns), or -1 if its episode does not finish."""
        wishes = np.zeros((len(form.keys), by.D_WIDTH), np.int64)
        wishes[form.order(self.program), by.D_PLACE] = np.arange(len(form.keys))
        wishes[:, by.D_LABEL] = form.labels
        wishes[:, by.D_CHOOSY] = form.choosy
        if form.rule.launch is Launch.LABELS and form.rule.fifo:
            link_labels(wishes)
        notes = notes_of(self.program, wishes)
        return self.decoder.play(form.rule.words(self.program), wishes.ravel(), notes)

    @property
    def starts(self) -> Image:
        """(n,) when each command started in the last trial (ns)."""
        return self.decoder.starts


class Trial(NamedTuple):
    """A form and what it came to (ns)."""

    objective_ns: int
    form: Form


def tried(bench: Bench, forms: list[Form]) -> list[Trial]:
    """Those forms that finish, the best first, of equals the first."""
    trials = [Trial(bench.value(form), form) for form in forms]
    return sorted((trial for trial in trials if trial.objective_ns >= 0), key=_value)


def _value(trial: Trial) -> int:
    return trial.objective_ns


def plain_forms(bench: Bench) -> list[Form]:
    """All forms but those that prefetch into L2, in the order in which ties are decided."""
    orders = _orders(bench)
    if not _fetches(bench.program):
        return [*orders, *_on_demand(bench)[:1]]
    # Where memory is short, even a prefetch that does no harm may cost more than it brings.
    return [
        *(_with(form, fetch=Fetch.WHILE_FREE) for form in orders),
        *(_with(form, fetch=Fetch.ALL_AT_ONCE) for form in orders),
        *_on_demand(bench),
    ]


def lifted(bench: Bench, trials: list[Trial], count: int) -> list[Form]:
    """The best forms with prefetches into L2; none if the program can make none."""
    program = bench.program
    if program.options.l2_prefetches == 0 or not program.has_l2:
        return []
    return [_with(trial.form, lift=True) for trial in trials[:count]]


def abstract_orders(bench: Bench, schedules: int, seed: int = 0) -> list[Image]:
    """Keys from the best schedules of a population search on the program as a project, the best first.

    Each schedule gives two orders: by start, and by start once it is pushed to the right, which tells apart
    what is urgent and what is not. None if the objective is not the makespan.
    """
    if bench.program.options.objective is Objective.LATENCY or schedules == 0:
        return []
    population = Population(bench.tasks, seed=seed)
    population.run(schedules)
    starts = population.starts
    return [starts, population.justified(starts)]


def _orders(bench: Bench) -> list[Form]:
    """Launches by each key, buffers fetched on demand."""
    demand = Rule(fetch=Fetch.ON_DEMAND)
    engines = replace(demand, launch=Launch.LABELS, fifo=False)
    forms = [
        bench.form(engines, labels=bench.engines),
        bench.form(replace(demand, launch=Launch.ROUND_ROBIN)),
    ]
    for keys in _keys(bench):
        forms += [bench.form(rule, keys) for rule in launches(bench.program)]
    return forms


def launches(program: Program, fetch: Fetch | None = None) -> list[Rule]:
    """The rules that decide by key; buffers are fetched on demand unless something else is asked for."""
    demand = Rule(fetch=Fetch.ON_DEMAND if fetch is None else fetch)
    just_in_time = replace(demand, launch=Launch.JUST_IN_TIME)
    chained = replace(demand, launch=Launch.CHAINED)
    half = program.options.in_flight_limit // 2
    return [
        just_in_time,
        replace(just_in_time, fit=1.0),
        replace(just_in_time, fit=0.5, patient=True),
        chained,
        replace(chained, depth=4),
        replace(demand, launch=Launch.EAGER, depth=half),
    ]


def _keys(bench: Bench) -> list[Image]:
    keys = [bench.tasks.rank]
    if bench.program.options.objective is Objective.LATENCY:
        release, count = bench.tasks.release_ns, len(bench.nothing)
        shortest = np.empty(count, np.int64)
        shortest[np.lexsort((bench.tasks.rank, bench.tasks.tail_ns))] = np.arange(count)
        oldest = np.empty(count, np.int64)
        oldest[np.lexsort((bench.tasks.rank, release))] = np.arange(count)
        keys += [oldest, shortest]
    return keys


def _on_demand(bench: Bench) -> list[Form]:
    demand = Rule(fetch=Fetch.ON_DEMAND)
    single = replace(demand, launch=Launch.LABELS, fifo=False, streams=1)
    rules = [launches(bench.program)[0], launches(bench.program)[-1]]
    return [
        bench.form(single),
        bench.form(replace(demand, launch=Launch.ROUND_ROBIN)),
        *(bench.form(rule) for rule in rules),
    ]


def _fetches(program: Program) -> bool:
    return program.options.prefetches > 0 and program.moves_buffers


def _with(form: Form, **changes: object) -> Form:
    return form._replace(rule=replace(form.rule, **changes))  # type: ignore[arg-type]


def _column(program: Program, column: int) -> Image:
    first, count = int(program.image[at.P_AT_COMMAND]), len(program.graph.commands)
    return program.image[first : first + count * at.PC_WIDTH].reshape(count, at.PC_WIDTH)[:, column].copy()
