"""DARTS with least-used-in-future: choose data, not tasks (Gonthier, Marchal and Thibault, IPDPS 2022).

As long as a command is ready whose weights are there, it goes next, by longest path to the end. When none
is, that weight is loaded which makes most ready commands runnable at once; if no single one makes any, all
that the most urgent ready command lacks. What makes room is the weight that fewest of the commands still to
come use. This is worked out beforehand with memory and data alone; then commands are started in the order
found, and weights fetched in the order found as soon as the last users of what makes room for them are done.
The source has one memory for each processor; here it is that of a die. Where no weights move, or all fit from
the beginning, what remains is list scheduling by longest path to the end.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from cann_env.graph import Level
from cann_env.schedulers.listed import Listed, best_policy
from cann_env.schedulers.policy import Plan, rollout
from cann_env.schedulers.prefetch import Aggressive, Follow, Move
from cann_env.schedulers.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.program import Program
    from cann_env.schedulers.policy import Policy


@dataclass(slots=True)
class _Desk:
    """Commands in the order in which data allow them, and what is loaded meanwhile.

    Attributes:
        usage: Uses of managed buffers, by descending tail.
        sequence, fetches, offloads: What was found so far.
    """

    usage: Usage
    sequence: list[int] = field(default_factory=list)
    fetches: list[Move] = field(default_factory=list)
    offloads: list[Move] = field(default_factory=list)
    _rank: dict[int, int] = field(default_factory=dict)
    _needs: list[frozenset[int]] = field(default_factory=list)
    _left: list[int] = field(default_factory=list)  # of each buffer, users that are not in the sequence
    _last: dict[int, int] = field(default_factory=dict)  # of each buffer, its last user in the sequence
    _loaded: set[int] = field(default_factory=set)
    _room: dict[int, int] = field(default_factory=dict)  # of each die, bytes that are free
    _waiting: list[int] = field(default_factory=list)
    _available: set[int] = field(default_factory=set)  # ready, but some weight is missing
    _free: list[tuple[int, int]] = field(default_factory=list)  # ready, and all weights are there

    def __post_init__(self) -> None:
        graph = self.usage.program.graph
        self._rank = {c: place for place, c in enumerate(self.usage.sequence)}
        inputs = {
            b
            for b, own in enumerate(self.usage.managed)
            if own and graph.buffers[b].level is not Level.ABSENT
        }
        self._needs = [frozenset(own) & inputs for own in self.usage.managed_of]
        self._left = [len(self.usage.positions[b]) for b in range(len(graph.buffers))]
        self._loaded = {b for b in inputs if graph.buffers[b].level is Level.HBM}
        for die in self.usage.dies:
            held = sum(self.usage.sizes[b] for b in self._loaded if graph.buffers[b].die == die)
            beside = int(self.usage.device_bytes(die).max(initial=0))
            self._room[die] = self.usage.capacity_bytes - beside - held
        self._waiting = [len(before) for before in graph.predecessors]
        self._offer(c for c, count in enumerate(self._waiting) if count == 0)

    def run(self) -> None:
        """Put all commands into the sequence."""
        while self._free or self._available:
            if self._free:
                self._take(heapq.heappop(self._free)[1])
            else:
                self._load()

    def _offer(self, commands: Iterable[int]) -> None:
        for c in commands:
            if self._needs[c] <= self._loaded:
                heapq.heappush(self._free, (self._rank[c], c))
            else:
                self._available.add(c)

    def _take(self, command: int) -> None:
        """The next command of the sequence."""
        self.sequence.append(command)
        for b in self._needs[command]:
            self._left[b] -= 1
            self._last[b] = command
        ready = []
        for later in self.usage.program.graph.successors[command]:
            self._waiting[later] -= 1
            if self._waiting[later] == 0:
                ready.append(later)
        self._offer(ready)

    def _load(self) -> None:
        """Load the datum that frees most ready commands, or all that the most urgent one lacks."""
        frees: dict[int, list[int]] = {}
        for c in self._available:
            missing = self._needs[c] - self._loaded
            if len(missing) == 1:
                frees.setdefault(next(iter(missing)), []).append(c)
        if frees:
            datum = min(frees, key=lambda b: (-len(frees[b]), -self._left[b], self._urgency(frees[b])))
            freed, data = frees[datum], [datum]
        else:
            urgent = min(self._available, key=self._rank.__getitem__)
            freed, data = [urgent], sorted(self._needs[urgent] - self._loaded)
        first = min(freed, key=self._rank.__getitem__)
        kept = frozenset(data) | self._needs[first]
        for b in data:
            self._fetch(b, first, kept)
        self._available.difference_update(freed)
        self._offer(freed)

    def _urgency(self, commands: list[int]) -> int:
        return min(self._rank[c] for c in commands)

    def _fetch(self, buffer: int, user: int, kept: frozenset[int]) -> None:
        """Load a buffer for a command; what fewest commands still use makes room, of equals the largest."""
        graph, sizes = self.usage.program.graph, self.usage.sizes
        die = graph.buffers[buffer].die
        gates: set[int] = set()
        while self._room[die] < sizes[buffer]:
            victims = [b for b in self._loaded if b not in kept and graph.buffers[b].die == die]
            if not victims:
                break
            victim = min(victims, key=lambda b: (self._left[b], -sizes[b], b))
            self._loaded.remove(victim)
            self._room[die] += sizes[victim]
            done = (self._last[victim],) if victim in self._last else ()
            gates.update(done)
            self.offloads.append(Move(victim, -1, done))
        self._loaded.add(buffer)
        self._room[die] -= sizes[buffer]
        self.fetches.append(Move(buffer, user, tuple(sorted(gates))))


def data_order(program: Program) -> tuple[tuple[int, ...], tuple[Move, ...], tuple[Move, ...]]:
    """The order of the commands, the fetches in order, and what makes room for them, in order."""
    desk = _Desk(Usage.of(program))
    desk.run()
    return tuple(desk.sequence), tuple(desk.fetches), tuple(desk.offloads)


@dataclass(frozen=True, slots=True)
class Darts:
    """Follows the order of commands and data, in the way that does best.

    Tried are: to wait for operands on their way or not; to fetch strictly in order, or the most urgent of
    what is due; where options have slots for it, to evict as planned, else whoever is needed last by the
    engine's own order makes room. What commands have made and lost again is none of the data to choose from;
    where there is nothing else, it is fetched by urgency.
    """

    def choose(self, program: Program) -> Policy:
        """The policy for a program.

        Raises:
            EpisodeError: No form finishes.
        """
        sequence, fetches, offloads = data_order(program)
        places = [0] * len(sequence)
        for place, c in enumerate(sequence):
            places[c] = place
        leaving = ((), offloads) if program.options.offloads and offloads else ((),)
        forms: list[Policy] = []
        for order in (Listed(tuple(places)), Listed(tuple(places), patient=True)):
            if not fetches:
                forms += [order, Aggressive(order)] if program.moves_buffers else [order]
                continue
            for leave, strict in product(leaving, (True, False)):
                forms.append(Follow(order, fetches, leave, in_order=strict))
        return best_policy(program, forms)

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
