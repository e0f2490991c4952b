"""Links: no more bytes have arrived at any instant than the bandwidth could have carried until then."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

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


def link_bytes(case: Case) -> Iterator[Violation]:
    """In every stretch in which a link is in use, what has arrived by an instant fits its bandwidth.

    Whether one block or one transfer alone is too fast is asked elsewhere.
    """
    for link, found in flows(case).items():
        rate = link_rate_q20(case.schedule.device, link)
        for stretch in _stretches(found):
            begin, total, parts = stretch[0].start_ns, 0, 0
            for flow in sorted(stretch, key=lambda flow: flow.finish_ns):
                total += flow.bytes_q20
                parts += flow.parts
                if parts > 1 and total > rate * (flow.finish_ns - begin):
                    carried = rate * (flow.finish_ns - begin) // Q20
                    message = (
                        f"{parts} blocks or transfers move {total // Q20} bytes over link {link} from "
                        f"{begin} to {flow.finish_ns} ns; it carries {carried} in that time"
                    )
                    commands = (flow.command,) if flow.command >= 0 else ()
                    yield Violation("link-bytes", message, commands, flow.finish_ns)
                    break


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
