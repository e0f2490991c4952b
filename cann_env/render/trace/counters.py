"""Step functions of a schedule that only traces show, beside those of :mod:`cann_env.render.series`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cann_env.render.moves import CARRIERS, seen
from cann_env.render.series import Series, from_changes
from cann_env.validate.case import Case
from cann_env.validate.links import flows

if TYPE_CHECKING:
    from cann_env.schedule import Schedule

_Q20 = 1 << 20


def moving(schedule: Schedule, pool: str) -> Series:
    """How many transfers the engine of a pool moves."""
    moves = [m for m in seen(schedule.transfers, schedule.makespan_ns) if CARRIERS.get(m.cause) == pool]
    return from_changes([(m.start_ns, 1) for m in moves] + [(m.finish_ns, -1) for m in moves])


def queued(schedule: Schedule) -> dict[int, Series]:
    """Commands that each used stream holds, from their submission to their finish."""
    changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for run in schedule.commands:
        changes[run.stream] += [(run.issue_ns, 1), (run.finish_ns, -1)]
    return {stream: from_changes(changes[stream]) for stream in sorted(changes)}


def found_in_l2(schedule: Schedule) -> Series:
    """Bytes that kernels have found in L2 so far, all dies together."""
    return from_changes([(hit.at_ns, hit.hit_bytes) for hit in schedule.hits])


def link_rates(schedule: Schedule) -> dict[tuple[str, int], Series]:
    """Bytes a second over each link of each die, by link and die; links that carry nothing are left out.

    Rows say how much a block or a transfer moved and when, not how its share changed meanwhile: each one
    counts with its mean rate.
    """
    rates = {}
    last_ns = schedule.makespan_ns
    for lane, found in flows(Case(schedule)).items():
        changes = []
        for flow in found:
            end = min(flow.finish_ns, last_ns)
            if end > flow.start_ns:
                rate = flow.bytes_q20 * 10**9 // (_Q20 * (flow.finish_ns - flow.start_ns))
                changes += [(flow.start_ns, rate), (end, -rate)]
        if changes:
            rates[lane] = from_changes(changes)
    return rates
