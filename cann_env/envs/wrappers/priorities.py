"""From priorities and knobs to list scheduling: orders and rules, many of which are played in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.engine import wishes as by
from cann_env.schedulers.assignment import Assignment, Decoder, Fetch, Launch, Rule, fetch_of, notes_of
from cann_env.tasks import tasks_of
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.options import RunOptions
    from cann_env.program import Program

_LAUNCHES = {launch.name.lower(): launch for launch in Launch if launch is not Launch.LABELS}
_HEEDED = {
    Launch.JUST_IN_TIME: ("fit",),
    Launch.CHAINED: ("depth",),
    Launch.EAGER: ("depth",),
    Launch.ROUND_ROBIN: (),
}
_OF_ALL = ("streams", "ahead", "lift")


def launch_of(name: Any) -> Launch:
    """A launch rule by name.

    Raises:
        InputError: There is none of that name that decides by priority.
    """
    if not isinstance(name, str) or name not in _LAUNCHES:
        known = ", ".join(repr(each) for each in _LAUNCHES)
        raise InputError(f"launch is {name!r}; write one of {known}")
    return _LAUNCHES[name]


def knobs_of(launch: Launch, names: Sequence[str] | None, options: RunOptions) -> tuple[str, ...]:
    """The knobs that are asked for, or those that matter.

    Raises:
        InputError: A knob that the launch rule does not heed, or one that is named twice.
    """
    if names is None:
        return (*_HEEDED[launch], *(("ahead",) if options.prefetches else ()))
    known = (*_HEEDED[launch], *_OF_ALL)
    for name in names:
        if name not in known or list(names).count(name) > 1:
            words = ", ".join(repr(each) for each in known)
            raise InputError(
                f"knobs are {list(names)!r}; with launch {launch.name.lower()!r} write some of {words}, "
                "each once"
            )
    return tuple(names)


class Priorities:
    """Plays priorities on one program.

    Args:
        program: What is scheduled.
        launch: How commands come to streams.
        knobs: Names of the entries behind the priorities.
        rows: Entries before them; those behind the last command are ignored.
        noise: Realised durations, see :meth:`Program.new_state`.
    """

    def __init__(
        self, program: Program, launch: Launch, knobs: tuple[str, ...], *, rows: int, noise: Image | None
    ) -> None:
        self._program = program
        self._launch = launch
        self._knobs = knobs
        self._rows = rows
        self._decoder = Decoder(program, noise)
        self._by_rank = np.argsort(tasks_of(program).rank)

    def assignment(self, action: NDArray[np.float64]) -> Assignment:
        """What an action (N + J,) means."""
        order = self._orders(action[np.newaxis])[0]
        return Assignment(order=tuple(order.tolist()), rule=self._rule(action[self._rows :]))

    def play(self, action: NDArray[np.float64]) -> Image:
        """The state at the end of the episode that an action (N + J,) comes to."""
        rules, wishes = self._tables(action[np.newaxis])
        self._decoder.play(rules[0], wishes.ravel(), notes_of(self._program, wishes[0]))
        return self._decoder.state

    def play_many(self, actions: NDArray[np.float64]) -> Image:
        """(M,) objectives at the end of the episodes that actions (M, N + J) come to (ns)."""
        return self._decoder.play_many(*self._tables(actions))[:, 0]

    def _orders(self, actions: NDArray[np.float64]) -> NDArray[np.int64]:
        """(M, n) commands by descending priority, of equals by descending tail."""
        priorities = actions[:, self._by_rank]
        return np.asarray(self._by_rank[np.argsort(-priorities, axis=1, kind="stable")], np.int64)

    def _tables(self, actions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rules (M, RULE_WIDTH) and wishes (M, n, D_WIDTH) as the engine reads them."""
        orders = self._orders(actions)
        count, commands = orders.shape
        wishes = np.zeros((count, commands, by.D_WIDTH), np.int64)
        wishes[np.arange(count)[:, np.newaxis], orders, by.D_PLACE] = np.arange(commands)
        knobs = actions[:, self._rows :]
        if not self._knobs:
            return np.tile(self._rule(knobs[0]).words(self._program), (count, 1)), wishes
        rules = np.array([self._rule(each).words(self._program) for each in knobs])
        return rules.reshape(count, by.RULE_WIDTH), wishes

    def _rule(self, knobs: NDArray[np.float64]) -> Rule:
        """The rule that knobs from -1 to 1 mean."""
        options = self._program.options
        part = dict(zip(self._knobs, ((np.clip(knobs, -1.0, 1.0) + 1.0) / 2.0).tolist(), strict=True))
        fields: dict[str, Any] = {"launch": self._launch, "fetch": fetch_of(self._program)}
        if "fit" in part:
            fields["fit"] = part["fit"]
        if "depth" in part:
            fields["depth"] = round(part["depth"] * options.in_flight_limit)
        elif self._launch in (Launch.CHAINED, Launch.EAGER):
            fields["depth"] = options.in_flight_limit // 2
        if "streams" in part:
            fields["streams"] = 1 + round(part["streams"] * (options.streams - 1))
        if "ahead" in part:
            commands = len(self._program.graph.commands)
            fields["fetch"] = Fetch.WHILE_FREE
            fields["ahead"] = None if part["ahead"] == 1.0 else round((commands + 1) ** part["ahead"]) - 1
        if "lift" in part:
            fields["lift"] = part["lift"] > 0.5
        return Rule(**fields)
