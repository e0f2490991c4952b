"""A trained policy as a scheduler like any other: greedy, the best of some samples, or the start of a search.

>>> from agents.schedulers import register_policy
>>> name = register_policy("agents/pretrained/standard_0.zip")

From then on ``standard_0`` decides greedily, ``standard_0:64`` takes the best of 64 episodes, and
``standard_0:search=2000`` and ``standard_0:seconds=2`` let a search begin with what the samples found.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agents.rollouts import best_of, play
from agents.shipping import Trained, load_policy
from cann_env.program import compile_graph
from cann_env.schedulers import (
    Assignment,
    EpisodeError,
    Launch,
    Outcome,
    Rule,
    record_schedule,
    register,
)
from cann_env.schedulers.search import Search
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program

_SAMPLES_BEFORE_SEARCH = 64
_PART_FOR_SAMPLES = 0.5
_BEST_OF_SAMPLES = 8  # orders that a search begins with

_KNOWN: dict[str, Path] = {}  # names that were given to files


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A trained policy with a window of its own.

    Attributes:
        trained: The policy.
        samples: Episodes to choose from, the greedy one among them.
        schedules: Schedules of a search that begins with the samples; None for no search.
        seconds: Wall time for samples and search together; None for no search by time.
        seed: Of the samples and the search.
    """

    trained: Trained
    samples: int = 1
    schedules: int | None = None
    seconds: float | None = None
    seed: int = 0

    def assign(self, program: Program) -> Learned:
        """What decides: this."""
        return self

    def play(self, program: Program, *, noise: Image | None = None) -> Outcome:
        """Run one episode.

        The greedy policy decides from what really happens. Samples are chosen, and a search is made, under
        expected durations, and commands then go in the order of the best.

        Raises:
            EpisodeError: The graph is not finished.
        """
        own = self.program_for(program)
        if self.samples == 1 and self.schedules is None and self.seconds is None:
            (outcome,) = play(self.trained.policy, [own], noises=[noise])
            if outcome is None:
                raise EpisodeError(f"the policy does not finish graph {program.graph.name!r}")
            return outcome._replace(program=own)
        if self.schedules is None and self.seconds is None:
            best = best_of(self.trained.policy, own, self.samples, seed=self.seed)
            return played_again(own, best, noise)._replace(program=own)
        return self._searched(program, own, noise)

    def program_for(self, program: Program) -> Program:
        """The same graph on the same device with the policy's window."""
        options = replace(program.options, window=self.trained.window, commands=self.trained.commands)
        return (
            program if options == program.options else compile_graph(program.graph, program.device, options)
        )

    def _searched(self, program: Program, own: Program, noise: Image | None) -> Outcome:
        """Search on from the starts of the best samples; the best of both."""
        began = time.monotonic()
        played = play(self.trained.policy, [own])
        sampled = 0
        while sampled == 0 or (
            self.seconds is not None and time.monotonic() - began < self.seconds * _PART_FOR_SAMPLES
        ):
            played += play(self.trained.policy, [own] * _SAMPLES_BEFORE_SEARCH, seed=self.seed + sampled)
            sampled += _SAMPLES_BEFORE_SEARCH
        finished = [outcome for outcome in played if outcome is not None]
        if not finished:
            raise EpisodeError(f"the policy does not finish graph {program.graph.name!r}")
        found = sorted(finished, key=lambda outcome: outcome.objective_ns)[:_BEST_OF_SAMPLES]
        orders = []
        for outcome in found:
            runs = record_schedule(own, outcome.actions).commands
            starts = {run.command: run.start_ns for run in runs}
            orders.append(tuple(starts[c] for c in range(len(starts))))
        left = None if self.seconds is None else max(self.seconds - (time.monotonic() - began), 1e-3)
        search = Search(schedules=self.schedules, seconds=left, seed=self.seed, orders=tuple(orders))
        assignment = search.assign(program)
        outcome = assignment.play(program)
        if outcome.objective_ns <= found[0].objective_ns:
            return outcome if noise is None else assignment.play(program, noise=noise)
        return played_again(own, found[0], noise)._replace(program=own)


def played_again(program: Program, outcome: Outcome, noise: Image | None) -> Outcome:
    """An episode under realised durations: commands in the same order, each as soon as it can start.

    Its very decisions make no sense when other durations come true; without noise they are what is played.
    """
    if noise is None:
        return outcome
    runs = record_schedule(program, outcome.actions).commands
    order = tuple(run.command for run in sorted(runs, key=lambda run: (run.start_ns, run.command)))
    return Assignment(order=order, rule=Rule(launch=Launch.JUST_IN_TIME)).play(program, noise=noise)


def register_policy(path: str | Path) -> str:
    """Make a trained policy known as a scheduler by the name of its file; returns that name.

    Raises:
        InputError: The file is no policy, or the name is taken.
    """
    trained = load_policy(path)
    name = Path(path).stem
    if _KNOWN.get(name) == Path(path).resolve():
        return name

    def with_argument(argument: str, seed: int) -> Learned:
        key, sign, value = argument.rpartition("=")
        try:
            if not sign and int(value) >= 1:
                return Learned(trained=trained, samples=int(value), seed=seed)
            if key == "search" and int(value) >= 1:
                return Learned(trained=trained, schedules=int(value), seed=seed)
            if key == "seconds" and 0.0 < float(value) < math.inf:
                return Learned(trained=trained, seconds=float(value), seed=seed)
        except ValueError:
            pass
        raise InputError(
            f"scheduler '{name}:{argument}' has the argument {argument!r}; write a number of samples, "
            f"'{name}:search=2000' or '{name}:seconds=2'"
        )

    register(name, lambda seed: Learned(trained=trained, seed=seed), argument=with_argument)
    _KNOWN[name] = Path(path).resolve()
    return name
