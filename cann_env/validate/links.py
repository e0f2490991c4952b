"""Links: no more bytes cross a link within any stretch of time than its bandwidth can carry in it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.validate.case import FOREVER, Q20, Case, Violation
from cann_env.validate.cores import work_start_ns
from cann_env.validate.shares import crossing, parts, rate_q20, remote_sizes, stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import BlockRun, TransferRun

_LINKS = {"fault": "h2d", "prefetch": "h2d", "writeback": "d2h", "lift": "hbm"}
"""The link that the bytes of a transfer cross; those of other causes move none."""


class Flow(NamedTuple):
    """Bytes, in units of 2**-20, that ``parts`` blocks move over a link; ``command`` may be -1."""

    start_ns: int
    finish_ns: int
    bytes_q20: int
    parts: int
    command: int


Lane = tuple[str, int]
"""A link of a die."""


def flows(case: Case) -> dict[Lane, list[Flow]]:
    """What crosses each link of each die."""
    found: dict[Lane, list[Flow]] = defaultdict(list)
    for row in case.schedule.blocks:
        for lane, flow in _of_blocks(case, row):
            found[lane].append(flow)
    for move in case.schedule.transfers:
        for lane, flow in _of_transfer(case, move):
            found[lane].append(flow)
    return {lane: [flow for flow in found[lane] if flow.bytes_q20] for lane in sorted(found)}


def _of_blocks(case: Case, row: BlockRun) -> Iterator[tuple[Lane, Flow]]:
    """The parts of a block move in a row, so each leaves time for the others."""
    amounts, (own_ns, remote_ns, l2_ns) = parts(case, row), stages(case, row)
    begin, end, n = work_start_ns(case, row), row.finish_ns, row.blocks
    link, times = crossing(row)
    own = Flow(begin, end - remote_ns - l2_ns, amounts.own_q20 * n * times, n, row.command)
    yield (link, row.die), own
    if link != "hbm" and case.schedule.device.links[link].shares_hbm:
        yield ("hbm", row.die), own
    if amounts.remote_q20:
        remote = Flow(begin + own_ns, end - l2_ns, amounts.remote_q20 * n, n, row.command)
        yield ("die", row.die), remote
        others = remote_sizes(case, row.command)
        if len(others) == 1:  # of several, the rows do not tell how much each one sends
            yield ("hbm", next(iter(others))), remote
    yield ("l2", row.die), Flow(begin + own_ns + remote_ns, end, amounts.l2_q20 * n, n, row.command)


def _of_transfer(case: Case, move: TransferRun) -> Iterator[tuple[Lane, Flow]]:
    if move.cause not in _LINKS or move.finish_ns == FOREVER:  # nobody knows how far it has come
        return
    links, buffer = case.schedule.device.links, case.schedule.graph.buffers[move.buffer]
    link = _LINKS[move.cause]
    size = move.size_bytes if move.cause == "lift" else case.unit_bytes(buffer)
    flow = Flow(move.start_ns + links[link].latency_ns, move.finish_ns, size * Q20, 1, -1)
    yield (link, buffer.die), flow
    if link != "hbm" and links[link].shares_hbm:
        yield ("hbm", buffer.die), flow


class Overrun(NamedTuple):
    """The flows within a window, ``last`` the one that ends it, move more than the link carries in it."""

    begin_ns: int
    last: Flow
    bytes_q20: int
    parts: int


def link_bytes(case: Case) -> Iterator[Violation]:
    """What moves within a window of time fits the bandwidth of the link.

    For links between host, device and dies every window from one's start to another's end is looked at. For
    HBM and L2, with their many flows, only windows that begin when they come into use. Whether one block or
    one transfer alone is too fast is asked elsewhere.
    """
    for (link, die), found in flows(case).items():
        rate = rate_q20(case.schedule.device, link)
        for stretch in _stretches(found):
            begins = sorted({flow.start_ns for flow in stretch})
            begins = begins[:1] if link in ("hbm", "l2") else begins
            over = _overrun(stretch, begins, rate)
            if over is not None:
                begin, last, total, count = over
                message = (
                    f"{count} blocks or transfers move {total // Q20} bytes over link {link} of die {die} "
                    f"from {begin} to {last.finish_ns} ns; "
                    f"it carries {rate * (last.finish_ns - begin) // Q20} in that time"
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
