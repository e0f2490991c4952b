"""Buffers on the move as pictures show them: which engine carries them, and how much is seen of them.

Rows of transfers go in, rows cut at the end of the picture come out, sorted into the rows they are drawn in.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.render.rows import pack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.schedule import Schedule, TransferRun

CARRIERS: Final = {"fault": "h2d", "prefetch": "h2d", "writeback": "d2h", "lift": "sdma"}
"""Pool of the engine that moves the bytes, by cause; the other causes move none."""

TITLES: Final = {"h2d": "from host", "d2h": "to host", "sdma": "into L2"}
"""What a row of moves is called, by pool, in the order of the rows."""

_MOST_LANES = 8


def seen(transfers: Iterable[TransferRun], end_ns: int) -> list[TransferRun]:
    """What has begun by the end of a picture, as far as it goes."""
    return [row._replace(finish_ns=min(row.finish_ns, end_ns)) for row in transfers if row.start_ns <= end_ns]


class Lane(NamedTuple):
    """One row of moves of which no two overlap; ``label`` is empty below the first of its kind."""

    label: str
    moves: tuple[TransferRun, ...]


def lanes_of(schedule: Schedule) -> list[Lane]:
    """Rows of moves: from the host, to the host, into L2; each for every die on which something moves.

    What moves at once is drawn one below the other, up to eight. A move that begins while eight others are
    under way is left out, and the label of the first row says how many are.
    """
    groups: dict[tuple[int, int], list[TransferRun]] = defaultdict(list)
    for move in seen(schedule.transfers, schedule.makespan_ns):
        if move.finish_ns > move.start_ns and move.cause in CARRIERS:
            kind = list(TITLES).index(CARRIERS[move.cause])
            groups[kind, schedule.graph.buffers[move.buffer].die].append(move)
    several = len({die for _, die in groups}) > 1
    lanes = []
    for kind, die in sorted(groups):
        title = list(TITLES.values())[kind]
        lanes += _lanes(f"die {die} {title}" if several else title, groups[kind, die])
    return lanes


def _lanes(label: str, moves: list[TransferRun]) -> list[Lane]:
    ordered = sorted(moves, key=lambda move: (move.start_ns, move.finish_ns, move.buffer))
    places = pack([(move.start_ns, move.finish_ns) for move in ordered])
    more = sum(place >= _MOST_LANES for place in places)
    title = f"{label}, +{more} more" if more else label
    return [
        Lane(
            "" if lane else title,
            tuple(move for place, move in zip(places, ordered, strict=True) if place == lane),
        )
        for lane in range(min(max(places) + 1, _MOST_LANES))
    ]
