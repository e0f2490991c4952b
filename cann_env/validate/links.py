"""Links: no more bytes cross a link within any stretch of time than its bandwidth can carry in it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.device.cost import link_rate_q20
from cann_env.validate.case import Q20, Case, Violation
from cann_env.validate.cores import crossing, work_start_ns

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flow(NamedTuple):
    """Bytes, in units of 2**-20, that ``parts`` blocks move over a link; ``command`` may be -1."""

    start_ns: int
    finish_ns: int
    bytes_q20: int
    parts: int
    command: int


def flows(case: Case) -> dict[str, list[Flow]]:
    """What crosses each link."""
    device = case.schedule.device
    found: dict[str, list[Flow]] = defaultdict(list)
    for row in case.schedule.blocks:
        link, times = crossing(row)
        amount = case.scaled(row.command, case.cost(row).bytes_q20) * row.blocks * times
        flow = Flow(work_start_ns(case, row), row.finish_ns, amount, row.blocks, row.command)
        found[link].append(flow)
        if link != "hbm" and device.links[link].shares_hbm:
            found["hbm"].append(flow)
    for move in case.schedule.transfers:
        link = "d2h" if move.cause == "evict" else "h2d"
        if move.cause == "evict" and move.start_ns == move.finish_ns:
            continue  # the host's copy was still good
        amount = case.unit_bytes(case.schedule.graph.buffers[move.buffer]) * Q20
        flow = Flow(move.start_ns + device.links[link].latency_ns, move.finish_ns, amount, 1, -1)
        found[link].append(flow)
        if device.links[link].shares_hbm:
            found["hbm"].append(flow)
    return {link: [flow for flow in found[link] if flow.bytes_q20] for link in sorted(found)}


class Overrun(NamedTuple):
    """The flows within a window, ``last`` the one that ends it, move more than the link carries in it."""

    begin_ns: int
    last: Flow
    bytes_q20: int
    parts: int


def link_bytes(case: Case) -> Iterator[Violation]:
    """What moves within a window of time fits the bandwidth of the link.

    For copies between host and device every window from one's start to another's end is looked at. For
    HBM, with its many flows, only windows that begin when it comes into use. Whether one block or one
    transfer alone is too fast is asked elsewhere.
    """
    for link, found in flows(case).items():
        rate = link_rate_q20(case.schedule.device, link)
        for stretch in _stretches(found):
            begins = sorted({flow.start_ns for flow in stretch}) if link != "hbm" else [stretch[0].start_ns]
            over = _overrun(stretch, begins, rate)
            if over is not None:
                begin, last, total, parts = over
                message = (
                    f"{parts} blocks or transfers move {total // Q20} bytes over link {link} from "
                    f"{begin} to {last.finish_ns} ns; it carries {rate * (last.finish_ns - begin) // Q20} "
                    "in that time"
                )
                commands = (last.command,) if last.command >= 0 else ()
                yield Violation("link-bytes", message, commands, last.finish_ns)


def _overrun(stretch: list[Flow], begins: list[int], rate: int) -> Overrun | None:
    """The first window, by its beginning, in which several flows together are too fast."""
    ordered = sorted(stretch, key=lambda flow: flow.finish_ns)
    exact = sum(flow.bytes_q20 for flow in ordered) < 2**62
    starts = np.array([flow.start_ns for flow in ordered], np.int64)
    finishes = np.array([flow.finish_ns for flow in ordered], np.int64)
    amounts = np.array([flow.bytes_q20 for flow in ordered], np.int64 if exact else object)
    parts = np.array([flow.parts for flow in ordered], np.int64)
    for begin in begins:
        within = starts >= begin
        total, count = np.cumsum(amounts * within), np.cumsum(parts * within)
        least = -(-total // rate)
        wrong = np.flatnonzero(within & (count > 1) & (least > finishes - begin))
        if wrong.size:
            i = int(wrong[0])
            return Overrun(begin, ordered[i], int(total[i]), int(count[i]))
    return None


def _stretches(found: list[Flow]) -> Iterator[list[Flow]]:
    """Flows grouped so that between two groups nothing crosses the link."""
    stretch: list[Flow] = []
    end = -1
    for flow in sorted(found):
        if stretch and flow.start_ns >= end:
            yield stretch
            stretch = []
        stretch.append(flow)
        end = max(end, flow.finish_ns)
    if stretch:
        yield stretch
