"""Transfers one by one and in their lines: how fast they move, how many at once, in which order."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.device.cost import cores_of_class, kernel_cost, link_rate_q20
from cann_env.validate.case import FOREVER, Q20, Case, Load, Violation, overloads, when
from cann_env.validate.memory import residency

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import TransferRun

_AT_ONE_INSTANT = ("touch", "evict", "free")


def transfers(case: Case) -> Iterator[Violation]:
    """Managed buffers move no faster than they can, where they can, and no more at once than may."""
    memory, name = case.schedule.device.memory, case.schedule.device.name
    for row in case.schedule.transfers:
        if row.cause == "lift":
            continue
        what = f"the {row.cause} of {_buffer(case, row)}"
        if memory.host_shares_dram:
            message = f"{what} at {row.start_ns} ns: {name} shares its memory with the host, nothing moves"
            yield Violation("transfers", message, (), row.start_ns)
            continue
        yield from _speed(case, row, what)
        if row.cause == "prefetch" and not memory.managed_prefetch:
            message = f"{what} at {row.start_ns} ns: {name} cannot prefetch managed memory"
            yield Violation("transfers", message, (), row.start_ns)
    yield from _at_once(case, "transfers", "prefetch")
    yield from _writebacks(case)


def _buffer(case: Case, row: TransferRun) -> str:
    return f"buffer {case.schedule.graph.buffers[row.buffer].name!r}"


def _speed(case: Case, row: TransferRun, what: str) -> Iterator[Violation]:
    if row.finish_ns == FOREVER and row.cause not in _AT_ONE_INSTANT:
        return  # still under way at the end
    taken, least = row.finish_ns - row.start_ns, _least_ns(case, row)
    if taken < least:
        message = f"{what} goes from {row.start_ns} to {row.finish_ns} ns; it takes at least {least} ns"
        yield Violation("transfers", message, (), row.start_ns)
    elif taken and row.cause in _AT_ONE_INSTANT:
        message = f"{what} goes from {row.start_ns} to {row.finish_ns} ns; it takes no time"
        yield Violation("transfers", message, (), row.start_ns)


def _least_ns(case: Case, row: TransferRun) -> int:
    if row.cause in _AT_ONE_INSTANT:
        return 0
    device, link = case.schedule.device, "d2h" if row.cause == "writeback" else "h2d"
    size = case.unit_bytes(case.schedule.graph.buffers[row.buffer])
    rate = link_rate_q20(device, link)
    if row.cause == "fault":
        rate = min(rate, _fault_rate_q20(device, rate))
    return device.links[link].latency_ns - (-size * Q20 // rate)


def _fault_rate_q20(device: DeviceSpec, link_rate: int) -> int:
    """Migration on demand: the pages of one group cross the link, then the next fault has to be served."""
    group = device.memory.page_bytes * device.memory.fault_group_pages * Q20
    return max(1, group // (-(-group // link_rate) + device.memory.fault_ns))


def _by_die(case: Case, cause: str) -> dict[int, list[TransferRun]]:
    rows: dict[int, list[TransferRun]] = defaultdict(list)
    for row in case.schedule.transfers:
        if row.cause == cause:
            rows[case.schedule.graph.buffers[row.buffer].die].append(row)
    return rows


def _at_once(case: Case, rule: str, cause: str) -> Iterator[Violation]:
    limit = case.schedule.options.prefetch_streams
    for die, rows in _by_die(case, cause).items():
        for over in overloads([Load(row.start_ns, row.finish_ns, 1, -1) for row in rows], limit):
            message = (
                f"at {over.at_ns} ns {over.total} transfers of the cause {cause} move on die {die}; "
                f"at most {limit} may"
            )
            yield Violation(rule, message, (), over.at_ns)


def _writebacks(case: Case) -> Iterator[Violation]:
    """One at a time on each die, in the order in which they were chosen."""
    for rows in _by_die(case, "writeback").values():
        ordered = sorted(rows, key=lambda row: (row.reserve_ns, row.start_ns))
        for first, second in pairwise(ordered):
            if second.start_ns < first.finish_ns:
                message = (
                    f"the writeback of {_buffer(case, second)} starts at {second.start_ns} ns; that of "
                    f"{_buffer(case, first)}, chosen before it, ends at {when(first.finish_ns)}"
                )
                yield Violation("transfers", message, (), second.start_ns)


# --- from HBM into L2 ---------------------------------------------------------------------------------


def lifts(case: Case) -> Iterator[Violation]:
    """What is lifted into L2 lies in HBM, is no larger than the cap, and moves no faster than it can."""
    there = _content(case)
    for row in case.schedule.transfers:
        if row.cause == "lift":
            why = _bad_lift(case, row, there)
            if why:
                span = f"from {when(row.start_ns)} to {when(row.finish_ns)}"
                message = f"the lift of {_buffer(case, row)} {span}: {why}"
                yield Violation("lifts", message, (), row.start_ns)
    yield from _at_once(case, "lifts", "lift")


def _bad_lift(case: Case, row: TransferRun, there: dict[int, list[tuple[int, int]]]) -> str:
    device, buffer = case.schedule.device, case.schedule.graph.buffers[row.buffer]
    chosen = case.schedule.options.l2_prefetch_bytes
    size = min(case.unit_bytes(buffer), device.memory.l2_prefetch_max_bytes if chosen is None else chosen)
    if not case.l2_bytes:
        return "there is no L2"
    if row.size_bytes != size:
        return f"it moves {row.size_bytes} bytes; {size} are right"
    if not cores_of_class(device, "sdma"):
        return "there is no channel for it"
    copy = kernel_cost(device, "sdma", flops=0, dtype="", size_bytes=size, blocks=1, duration_ns=None)
    rate = min(copy.rate_q20, link_rate_q20(device, "hbm"))  # it reads HBM and does not write it
    least = copy.launch_ns - (-size * Q20 // rate)
    if row.finish_ns < FOREVER and row.finish_ns - row.start_ns < least:
        return f"it takes at least {least} ns"
    if not any(begin <= row.start_ns and row.finish_ns <= end for begin, end in there[row.buffer]):
        return "its content is not in HBM all that time"
    return ""


def _content(case: Case) -> dict[int, list[tuple[int, int]]]:
    """When each buffer lies in HBM with something in it."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i, stays in residency(case).items():
        buffer = case.schedule.graph.buffers[i]
        for stay in stays:
            begin = stay.valid_ns
            if stay.came == "touch":
                begin = _first_write_ns(case, buffer.name, begin)
            spans[i].append((begin, stay.leave_ns))
    for row in case.schedule.allocations:
        name = case.schedule.graph.buffers[row.buffer].name
        spans[row.buffer].append((_first_write_ns(case, name, row.issue_ns), row.free_ns))
    for i, buffer in enumerate(case.schedule.graph.buffers):
        if case.is_resident(buffer):
            spans[i].append((0, FOREVER))
    return spans


def _first_write_ns(case: Case, buffer: str, since_ns: int) -> int:
    """When the first writer that starts at ``since_ns`` or later finishes."""
    ends = [
        case.runs[i].finish_ns
        for i in case.users[buffer]
        if buffer in case.command(i).writes and case.runs[i].start_ns >= since_ns
    ]
    return min(ends, default=FOREVER)
