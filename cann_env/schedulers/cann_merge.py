"""Merging chains into few streams, as the modes of CANN's automatic multi-stream do, and a mode of ours.

Chains are placed one after another and never moved again. For each, a few streams are candidates, each has a
score, and the smallest score wins, the lower stream among equals:

- ``LoadBalance``: 3 * new edges between streams + 4 * (peak + variance of the commands on each level of the
  window) + commands of the stream + 2 if it is new;
- ``MainStream``: 3 * new edges + 4 * conflict + 2 if it is new, where the conflict sums over the levels of
  the window the commands of the chain times those of the stream; on the main stream, number 0, less 4 for
  each command that is alone on its level. A chain all of such commands goes there without a choice;
- ``WeightedLoadBalance``: 3 * new edges + 4 * conflict of durations + 2 * duration of the stream + 2 if it is
  new, in microseconds; then the three best are simulated and the shortest wins, among equals the better
  score.

The window is the first six levels of the chain. Where the public description leaves open how the window's
peak and variance are taken, they are those of the candidate stream with the chain on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.schedulers.cann_units import Dag, Unit

WINDOW = 6
"""Levels that count, from the first one of a chain."""
CANDIDATES = 6
CANDIDATES_WEIGHTED = 8
CLOSEST = 3
"""Streams that are candidates though they share no edge with the chain: those with least in their way."""
SIMULATED = 3
"""Best candidates by score that are simulated."""
EDGE, SHAPE, NEW, SOLO = 3, 4, 2, 4
"""Weights of the scores."""
_NS = 1000


@dataclass(slots=True)
class Streams:
    """Streams as they fill up with chains.

    Attributes:
        dag: What lies between commands.
        most: Streams there may be.
        stream_of: Stream of each command that has been placed.
        levels: Of each stream, its commands on each level.
        times_ns: Of each stream, the durations on each level.
    """

    dag: Dag
    most: int
    stream_of: dict[int, int] = field(default_factory=dict)
    levels: list[Counter[int]] = field(default_factory=list)
    times_ns: list[Counter[int]] = field(default_factory=list)

    def open(self) -> int:
        """Add an empty stream."""
        self.levels.append(Counter())
        self.times_ns.append(Counter())
        return len(self.levels) - 1

    def place(self, unit: Unit, stream: int) -> None:
        """Put a chain on a stream, which may be the next new one."""
        if stream == len(self.levels):
            self.open()
        self.levels[stream].update(unit.levels)
        self.times_ns[stream].update(unit.times_ns)
        for v in unit.members:
            self.stream_of[v] = stream

    def edges(self, unit: Unit) -> Counter[int]:
        """Dependencies between a chain and each stream."""
        return Counter(
            self.stream_of[u]
            for v in unit.members
            for u in (*self.dag.predecessors[v], *self.dag.successors[v])
            if u in self.stream_of
        )

    def candidates(self, unit: Unit, load: Callable[[int], int], limit: int) -> list[int]:
        """Streams that a chain may go to: those it has edges with, those with least load, a new one.

        Args:
            unit: The chain.
            load: What of a stream is in the way of the chain.
            limit: Most candidates.
        """
        edges = self.edges(unit)
        near = sorted(edges, key=lambda stream: (-edges[stream], load(stream), stream))
        light = sorted(range(len(self.levels)), key=lambda stream: (load(stream), stream))[:CLOSEST]
        fresh = [len(self.levels)] if len(self.levels) < self.most else []
        return list(dict.fromkeys([*near, *light, *fresh]))[:limit]

    def is_new(self, stream: int) -> bool:
        """Whether a stream would have to be opened."""
        return stream == len(self.levels)

    def lost(self, unit: Unit, stream: int) -> int:
        """Edges between streams that come about if a chain goes to a stream."""
        edges = self.edges(unit)
        return edges.total() - edges[stream]

    def size(self, stream: int) -> int:
        """Commands on a stream."""
        return 0 if self.is_new(stream) else self.levels[stream].total()

    def level_count(self, stream: int, level: int) -> int:
        """Commands of a stream on a level."""
        return 0 if self.is_new(stream) else self.levels[stream][level]

    def level_ns(self, stream: int, level: int) -> int:
        """Durations of a stream on a level."""
        return 0 if self.is_new(stream) else self.times_ns[stream][level]

    def total_ns(self, stream: int) -> int:
        """Durations on a stream."""
        return 0 if self.is_new(stream) else self.times_ns[stream].total()


def window(unit: Unit) -> range:
    """Levels in which a chain is weighed."""
    return range(unit.first_level, unit.first_level + WINDOW)


def by_level(units: Sequence[Unit]) -> list[Unit]:
    """Chains from early to late; of one level the longest first, then the most entangled, the widest."""
    return sorted(units, key=lambda u: (u.first_level, -len(u.members), -u.cross, -u.peak, u.index))


def by_duration(units: Sequence[Unit]) -> list[Unit]:
    """Chains from long to short."""
    return sorted(units, key=lambda u: (-u.total_ns, u.index))


def balance_score(streams: Streams, unit: Unit, stream: int) -> Fraction:
    """The score of ``LoadBalance``."""
    loads = [streams.level_count(stream, at) + unit.levels[at] for at in window(unit)]
    mean = Fraction(sum(loads), WINDOW)
    variance = sum(((load - mean) ** 2 for load in loads), Fraction(0)) / WINDOW
    return (
        EDGE * streams.lost(unit, stream)
        + SHAPE * (max(loads) + variance)
        + streams.size(stream)
        + len(unit.members)
        + NEW * streams.is_new(stream)
    )


def conflict(streams: Streams, unit: Unit, stream: int) -> int:
    """Pairs of a command of a chain and one of a stream on a level of the window."""
    return sum(unit.levels[at] * streams.level_count(stream, at) for at in window(unit))


def main_score(streams: Streams, unit: Unit, stream: int, solo: int) -> int:
    """The score of ``MainStream``; ``solo`` commands of the chain are alone on their levels."""
    return (
        EDGE * streams.lost(unit, stream)
        + SHAPE * conflict(streams, unit, stream)
        + NEW * streams.is_new(stream)
        - SOLO * solo * (stream == 0)
    )


def conflict_ns2(streams: Streams, unit: Unit, stream: int) -> int:
    """Duration of a chain times that of a stream, summed over the levels of the window (ns * ns)."""
    return sum(unit.times_ns[at] * streams.level_ns(stream, at) for at in window(unit))


def weighted_score(streams: Streams, unit: Unit, stream: int) -> int:
    """The score of ``WeightedLoadBalance`` in millionths."""
    return (
        EDGE * streams.lost(unit, stream) * _NS * _NS
        + SHAPE * conflict_ns2(streams, unit, stream)
        + 2 * (streams.total_ns(stream) + unit.total_ns) * _NS
        + NEW * streams.is_new(stream) * _NS * _NS
    )


def load_balance(dag: Dag, units: Sequence[Unit], most: int) -> dict[int, int]:
    """Stream of each distributed command in the mode ``LoadBalance``."""
    streams = Streams(dag, most)
    for unit in by_level(units):
        span = window(unit)
        load = _loads(streams, span)
        found = streams.candidates(unit, load, CANDIDATES)
        streams.place(unit, min(found, key=lambda s: (balance_score(streams, unit, s), s)))
    return streams.stream_of


def _loads(streams: Streams, span: range) -> Callable[[int], int]:
    return lambda stream: sum(streams.level_count(stream, at) for at in span)


def main_stream(dag: Dag, units: Sequence[Unit], most: int) -> dict[int, int]:
    """Stream of each distributed command in the mode ``MainStream``."""
    streams = Streams(dag, most)
    streams.open()
    crowd = Counter(dag.level[v] for v in dag.order)
    for unit in by_level(units):
        solo = sum(crowd[dag.level[v]] == 1 for v in unit.members)
        if solo == len(unit.members):
            streams.place(unit, 0)
            continue
        found = streams.candidates(unit, _conflicts(streams, unit), CANDIDATES)
        found = list(dict.fromkeys([0, *found]))[:CANDIDATES]
        scores = {stream: main_score(streams, unit, stream, solo) for stream in found}
        streams.place(unit, min(found, key=lambda s: (scores[s], s)))
    return streams.stream_of


def _conflicts(streams: Streams, unit: Unit) -> Callable[[int], int]:
    return lambda stream: conflict(streams, unit, stream)


def weighted(
    dag: Dag, units: Sequence[Unit], most: int, simulate: Callable[[Streams, Unit, int], int]
) -> dict[int, int]:
    """Stream of each distributed command in the mode ``WeightedLoadBalance``.

    Args:
        dag: What lies between commands.
        units: All chains.
        most: Streams there may be.
        simulate: Makespan (ns) of what lies on streams if a chain goes to one of them.
    """
    streams = Streams(dag, most)
    for unit in by_duration(units):
        streams.place(unit, choose_weighted(streams, unit, simulate))
    return streams.stream_of


def choose_weighted(streams: Streams, unit: Unit, simulate: Callable[[Streams, Unit, int], int]) -> int:
    """The stream that a chain goes to: of the best by score the one that simulates shortest."""
    best = ranked(streams, unit)[:SIMULATED]
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda stream: simulate(streams, unit, stream))


def ranked(streams: Streams, unit: Unit) -> list[int]:
    """Candidates of a chain by the score of ``WeightedLoadBalance``, the best first."""

    def load(stream: int) -> int:
        return conflict_ns2(streams, unit, stream)

    found = streams.candidates(unit, load, CANDIDATES_WEIGHTED)
    return sorted(found, key=lambda stream: (weighted_score(streams, unit, stream), stream))
