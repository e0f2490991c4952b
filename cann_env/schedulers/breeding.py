"""Breeding forms of list scheduling: each child is played in the engine and takes the place of a worse form.

A member's order is not the keys that made it but the starts that came of it, so that crossing two of them
crosses what really happened. A child keeps the starts of its mother within one interval, and what its father
does before and after it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.generation import Population
from cann_env.schedulers.assignment import Fetch, Launch
from cann_env.schedulers.forms import Form, Trial

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.schedulers.assignment import Rule
    from cann_env.schedulers.forms import Bench

_SIZE = 24
_AHEAD = (None, 2, 4, 8, 16, 32)


class _Member(NamedTuple):
    objective_ns: int
    form: Form
    starts: Image


class Breeder:
    """A population of forms of one program.

    Args:
        bench: The program.
        trials: At least one form that finishes.
        rng: Source of all random numbers.
    """

    def __init__(self, bench: Bench, trials: list[Trial], rng: np.random.Generator) -> None:
        self._bench = bench
        self._rng = rng
        self._seen: set[tuple[int, bytes]] = set()
        self._members: list[_Member] = []
        for trial in sorted(trials, key=lambda trial: trial.objective_ns)[: 2 * _SIZE]:
            self._admit(trial.objective_ns, trial.form, self._starts_of(trial.form))
        self._choosy = _replaceable(bench)
        self._project = Population(bench.tasks)

    @property
    def best(self) -> Trial:
        """The best form so far."""
        member = self._members[0]
        return Trial(member.objective_ns, member.form)

    def breed(self) -> None:
        """Make one child and play it."""
        form = self._child()
        objective = self._bench.value(form)
        if objective >= 0:
            self._admit(objective, form, self._bench.starts)

    def _starts_of(self, form: Form) -> Image:
        self._bench.value(form)
        return self._bench.starts

    def _admit(self, objective: int, form: Form, starts: Image) -> None:
        """Keep a form if it is among the best, and no other one does the same."""
        mark = (objective, starts.tobytes())
        if mark in self._seen:
            return
        self._seen.add(mark)
        if len(self._members) >= _SIZE and objective > self._members[-1].objective_ns:
            return
        place = len(self._members)
        while place > 0 and objective <= self._members[place - 1].objective_ns:
            place -= 1
        self._members.insert(place, _Member(objective, form, starts))
        del self._members[_SIZE:]

    def _chosen(self) -> _Member:
        """The better of two at random."""
        one, two = self._rng.integers(len(self._members), size=2)
        better: _Member = self._members[int(min(one, two))]
        return better

    def _child(self) -> Form:
        mother, father = self._chosen(), self._chosen()
        draw = self._rng.random()
        if draw < 0.45:
            keys = self._crossed(mother, father)
        elif draw < 0.6:
            keys = self._project.justified(mother.starts)
        elif draw < 0.8:
            keys = self._shuffled(mother)
        else:
            keys = mother.form.keys
        form = mother.form._replace(keys=self._disturbed(keys))
        if draw >= 0.8 or self._rng.random() < 0.15:
            form = form._replace(rule=self._changed(form.rule))
        if form.rule.launch is Launch.LABELS and self._rng.random() < 0.5:
            form = form._replace(labels=self._relabelled(form.labels))
        if self._choosy.size and self._rng.random() < 0.3:
            form = form._replace(choosy=self._toggled(form.choosy))
        return form

    def _crossed(self, mother: _Member, father: _Member) -> Image:
        """What starts in one interval of the mother stays as it is; the rest goes before or behind."""
        first, last = self._interval(mother.starts, 0.25, 0.75)
        inside = (mother.starts >= first) & (mother.starts < last)
        span = int(max(mother.starts.max(), father.starts.max())) + 1
        outside = father.starts + np.where(father.starts < first, -span, span)
        return np.where(inside, mother.starts, outside)

    def _shuffled(self, mother: _Member) -> Image:
        """What starts in a short interval is put into another order."""
        first, last = self._interval(mother.starts, 0.03, 0.3)
        inside = np.flatnonzero((mother.starts >= first) & (mother.starts < last))
        keys = mother.starts.copy()
        keys[inside] = self._rng.permutation(keys[inside])
        return keys

    def _interval(self, starts: Image, least: float, most: float) -> tuple[int, int]:
        span = int(starts.max()) + 1
        length = max(int(span * self._rng.uniform(least, most)), 1)
        first = int(self._rng.integers(span - length + 1))
        return first, first + length

    def _disturbed(self, keys: Image) -> Image:
        """Keys of which about one is moved by up to an eighth of their range."""
        moved = self._rng.random(keys.size) < 1.0 / keys.size
        count = int(moved.sum())
        if count == 0:
            return keys
        reach = max(int(keys.max() - keys.min()) // 8, 1)
        changed = keys.copy()
        changed[moved] += self._rng.integers(-reach, reach + 1, size=count)
        return changed

    def _changed(self, rule: Rule) -> Rule:
        """The rule with one of its fields drawn anew."""
        options = self._bench.program.options
        changes: list[dict[str, Any]] = [
            {"launch": Launch.JUST_IN_TIME, "fit": float(self._rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]))},
            {"launch": Launch.JUST_IN_TIME, "patient": not rule.patient},
            {"launch": Launch.JUST_IN_TIME, "strict": not rule.strict},
            {"launch": Launch.CHAINED, "depth": int(self._rng.integers(1, 9))},
            {"launch": Launch.EAGER, "depth": int(self._rng.integers(1, options.in_flight_limit + 1))},
            {"streams": int(self._rng.integers(1, options.streams + 1))},
            {"streams": None},
        ]
        if options.prefetches > 0 and self._bench.program.moves_buffers:
            changes += [{"fetch": fetch} for fetch in Fetch]
            changes += [{"ahead": _AHEAD[int(self._rng.integers(len(_AHEAD)))]}]
        if options.l2_prefetches > 0 and self._bench.program.has_l2:
            changes += [{"lift": not rule.lift}]
        return replace(rule, **changes[int(self._rng.integers(len(changes)))])

    def _relabelled(self, labels: Image) -> Image:
        """Some commands that follow each other in the program go to another stream."""
        count = int(self._rng.integers(1, max(labels.size // 8, 1) + 1))
        first = int(self._rng.integers(labels.size))
        label = int(self._rng.integers(self._bench.program.options.streams))
        changed = labels.copy()
        same = np.flatnonzero(labels == labels[first])
        changed[same[same >= first][:count]] = label
        return changed

    def _toggled(self, choosy: Image) -> Image:
        changed = choosy.copy()
        changed[self._rng.choice(self._choosy)] ^= 1
        return changed


def _replaceable(bench: Bench) -> Image:
    """Commands whose first kernel may run as either of two classes."""
    image, count = bench.program.image, len(bench.nothing)
    first = int(image[at.P_AT_COMMAND])
    kernels = image[first : first + count * at.PC_WIDTH].reshape(count, at.PC_WIDTH)[:, at.PC_KERNEL]
    return np.flatnonzero(image[int(image[at.P_AT_KERNEL]) + kernels * at.PK_WIDTH + at.PK_FALLBACK] >= 0)
