"""The curves under a timeline: memory of each die, bytes found in L2, busy cores and channels, links."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.rates import Q20
from cann_env.render import palette
from cann_env.render.series import busy, capacity, hbm_capacity, hbm_in_use
from cann_env.render.trace.counters import found_in_l2, link_rates
from cann_env.units import NS_PER_S
from cann_env.validate.shares import rate_q20

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.render.series import Series
    from cann_env.schedule import Schedule


class Curve(NamedTuple):
    """A step function over time, what it counts, and the most that there can be (0 if there is no such).

    ``unit`` is ``bytes``, ``bytes/s`` or a word for things that are counted.
    """

    key: str
    title: str
    unit: str
    colour: str
    most: int
    series: Series


def curves(schedule: Schedule) -> list[Curve]:
    """The curves of a schedule, in the order in which they are drawn; those that stay 0 are left out."""
    found = [*_memory(schedule), *_busy(schedule), *_links(schedule)]
    return [curve for curve in found if curve.series.values.max() > 0]


def _of_die(schedule: Schedule, title: str, die: int) -> str:
    return f"{title}, die {die}" if schedule.device.dies > 1 else title


def _memory(schedule: Schedule) -> Iterator[Curve]:
    for die in range(schedule.device.dies):
        yield Curve(
            f"hbm/{die}",
            _of_die(schedule, "HBM in use", die),
            "bytes",
            palette.HBM[die % len(palette.HBM)],
            hbm_capacity(schedule),
            hbm_in_use(schedule, die),
        )
    if schedule.hits:
        yield Curve(
            "l2", "found in L2 so far", "bytes", palette.CAUSE_COLOURS["lift"], 0, found_in_l2(schedule)
        )


def _busy(schedule: Schedule) -> Iterator[Curve]:
    for pool in schedule.device.pool_names:
        yield Curve(
            f"busy/{pool}",
            f"{palette.POOL_TITLES.get(pool, pool)} busy",
            "of",
            palette.POOL_COLOURS.get(pool, palette.OTHER),
            capacity(schedule, pool),
            busy(schedule, pool),
        )


def _links(schedule: Schedule) -> Iterator[Curve]:
    for (link, die), series in link_rates(schedule).items():
        yield Curve(
            f"link/{link}/{die}",
            _of_die(schedule, f"link {link}", die),
            "bytes/s",
            palette.CAUSE_COLOURS.get({"h2d": "prefetch", "d2h": "writeback"}.get(link, ""), palette.HBM[0]),
            rate_q20(schedule.device, link) * NS_PER_S // Q20,
            series,
        )
