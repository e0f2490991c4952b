"""Device memory: what lies there when, whether it fits, and whether it is there when it is needed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from cann_env.device.cost import link_rate_q20
from cann_env.graph import BufferKind, Level
from cann_env.validate.case import Q20, Case, Load, Violation, overloads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Buffer
    from cann_env.schedule import TransferRun

FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay of a managed buffer in HBM: space from ``reserve_ns``, bytes there from ``valid_ns``."""

    reserve_ns: int
    valid_ns: int
    end_ns: int


def transfers(case: Case) -> Iterator[Violation]:
    """Managed buffers move no faster than they can, prefetches where they exist and one at a time."""
    device, buffers = case.schedule.device, case.schedule.graph.buffers
    for row in case.schedule.transfers:
        what = f"the {row.cause} of buffer {buffers[row.buffer].name!r}"
        least = _least_ns(case, row)
        if row.finish_ns - row.start_ns < least:
            message = f"{what} goes from {row.start_ns} to {row.finish_ns} ns; it takes at least {least} ns"
            yield Violation("transfers", message, (), row.start_ns)
        if row.cause == "prefetch" and not device.memory.managed_prefetch:
            message = f"{what} at {row.start_ns} ns: {device.name} cannot prefetch managed memory"
            yield Violation("transfers", message, (), row.start_ns)
    queue = sorted(row[2:] + row[:1] for row in case.schedule.transfers if row.cause == "prefetch")
    for (_, _, end, first), (_, start, _, second) in pairwise(queue):
        if start < end:
            message = (
                f"the prefetch of buffer {buffers[second].name!r} starts at {start} ns; "
                f"that of {buffers[first].name!r} before it ends at {end} ns"
            )
            yield Violation("transfers", message, (), start)


def _least_ns(case: Case, row: TransferRun) -> int:
    if row.cause == "evict" and row.start_ns == row.finish_ns:
        return 0  # the host's copy was still good
    device, link = case.schedule.device, "d2h" if row.cause == "evict" else "h2d"
    size = case.unit_bytes(case.schedule.graph.buffers[row.buffer])
    rate = link_rate_q20(device, link)
    if row.cause == "fault":
        rate = min(rate, _fault_rate_q20(device, rate))
    return device.links[link].latency_ns - (-size * Q20 // rate)


def _fault_rate_q20(device: DeviceSpec, link_rate: int) -> int:
    """Migration on demand: the pages of one group cross the link, then the next fault has to be served."""
    group = device.memory.page_bytes * device.memory.fault_group_pages * Q20
    return max(1, group // (-(-group // link_rate) + device.memory.fault_ns))


def _timeline(rows: list[TransferRun]) -> list[TransferRun]:
    """Fetches by when they take space, evictions by when they give it back, which comes first."""
    return sorted(rows, key=lambda row: (row.finish_ns, 0) if row.cause == "evict" else (row.reserve_ns, 1))


def _stays(buffer: Buffer, rows: list[TransferRun]) -> tuple[list[Stay], list[tuple[TransferRun, str]]]:
    """The stays of one buffer in HBM, and the rows that make no sense after those before them."""
    stays = [Stay(0, 0, FOREVER)] if buffer.level is Level.HBM else []
    wrong = []
    for row in _timeline(rows):
        present = bool(stays) and stays[-1].end_ns == FOREVER
        if row.cause == "evict" and present:
            stays[-1] = replace(stays[-1], end_ns=row.finish_ns)
        elif row.cause == "evict":
            wrong.append((row, "is not there"))
        elif present:
            wrong.append((row, "is already there"))
        else:
            stays.append(Stay(row.reserve_ns, row.finish_ns, FOREVER))
    return stays, wrong


def residency(case: Case) -> dict[int, list[Stay]]:
    """The stays of every managed buffer, by buffer index."""
    rows: dict[int, list[TransferRun]] = defaultdict(list)
    for row in case.schedule.transfers:
        rows[row.buffer].append(row)
    return {
        i: _stays(buffer, rows[i])[0]
        for i, buffer in enumerate(case.schedule.graph.buffers)
        if buffer.kind is BufferKind.MANAGED
    }


def moves(case: Case) -> Iterator[Violation]:
    """A buffer arrives where it is not and is evicted where it is."""
    rows: dict[int, list[TransferRun]] = defaultdict(list)
    for row in case.schedule.transfers:
        rows[row.buffer].append(row)
    for i, buffer in enumerate(case.schedule.graph.buffers):
        if buffer.kind is BufferKind.MANAGED:
            for row, why in _stays(buffer, rows[i])[1]:
                message = f"{row.cause} of buffer {buffer.name!r} at {row.reserve_ns} ns: it {why}"
                yield Violation("moves", message, (), row.reserve_ns)


def _users(case: Case) -> dict[str, list[int]]:
    users: dict[str, list[int]] = defaultdict(list)
    for i, command in enumerate(case.schedule.graph.commands):
        for name in sorted({*command.reads, *command.writes}):
            users[name].append(i)
    return users


def use_before_arrival(case: Case) -> Iterator[Violation]:
    """A command starts only when all its managed operands have arrived."""
    users, stays = _users(case), residency(case)
    for i, buffer in enumerate(case.schedule.graph.buffers):
        for user in users[buffer.name] if i in stays else ():
            start = case.runs[user].start_ns
            if not any(stay.valid_ns <= start <= stay.end_ns for stay in stays[i]):
                message = (
                    f"{case.placed(user)} starts at {start} ns; its buffer {buffer.name!r} is not in HBM"
                )
                yield Violation("use-before-arrival", message, (user,), start)


def evictions(case: Case) -> Iterator[Violation]:
    """Nothing is evicted while it arrives or is in use, and nothing that was written while it was there."""
    users, stays = _users(case), residency(case)
    for i, buffer in enumerate(case.schedule.graph.buffers):
        for stay in stays.get(i, ()):
            if stay.end_ns < stay.valid_ns:
                message = (
                    f"buffer {buffer.name!r} is evicted at {stay.end_ns} ns; it arrives at {stay.valid_ns} ns"
                )
                yield Violation("evicted-in-use", message, (), stay.end_ns)
            for user in users[buffer.name]:
                yield from _eviction(case, buffer, stay, user)


def _eviction(case: Case, buffer: Buffer, stay: Stay, user: int) -> Iterator[Violation]:
    run = case.runs[user]
    if run.start_ns < stay.valid_ns or stay.end_ns == FOREVER:
        return
    if run.start_ns <= stay.end_ns < run.finish_ns:
        message = (
            f"buffer {buffer.name!r} is evicted at {stay.end_ns} ns; "
            f"{case.placed(user)} uses it from {run.start_ns} to {run.finish_ns} ns"
        )
        yield Violation("evicted-in-use", message, (user,), stay.end_ns)
    elif run.finish_ns <= stay.end_ns and buffer.name in case.command(user).writes:
        message = (
            f"buffer {buffer.name!r} is evicted at {stay.end_ns} ns; {case.placed(user)} wrote it at "
            f"{run.finish_ns} ns and the host's copy is stale"
        )
        yield Violation("evicted-dirty", message, (user,), stay.end_ns)


def hbm_loads(case: Case) -> list[Load]:
    """What every buffer takes of HBM and when; ``command`` is the first writer of a device buffer or -1."""
    users, stays = _users(case), residency(case)
    loads = []
    for i, buffer in enumerate(case.schedule.graph.buffers):
        size = case.unit_bytes(buffer)
        if i in stays:
            loads += [Load(stay.reserve_ns, stay.end_ns, size, -1) for stay in stays[i]]
        elif buffer.level is Level.HBM:
            loads.append(Load(0, FOREVER, size, -1))
        elif users[buffer.name]:
            writers = [u for u in users[buffer.name] if buffer.name in case.command(u).writes]
            first = min(writers or users[buffer.name], key=lambda u: (case.runs[u].issue_ns, u))
            last = max(case.runs[u].finish_ns for u in users[buffer.name])
            loads.append(Load(case.runs[first].issue_ns, last, size, first))
    return loads


def hbm_capacity(case: Case) -> Iterator[Violation]:
    """What is reserved in HBM at any instant fits, and the recorded peak does not belittle it."""
    schedule = case.schedule
    limit = schedule.options.hbm_bytes or schedule.device.memory.hbm_bytes
    loads = hbm_loads(case)
    above = overloads(loads, limit)
    for over in above:
        message = (
            f"at {over.at_ns} ns {over.total} bytes of HBM are reserved, device buffers first written by "
            f"{case.names(over.commands) or 'nobody'} among them; there are {limit}"
        )
        yield Violation("hbm-capacity", message, over.commands, over.at_ns)
    peak = schedule.peak_hbm_bytes
    if not above and (peak > limit or overloads(loads, peak)):
        message = f"the recorded peak of HBM, {peak} bytes, is below what was reserved or above {limit}"
        yield Violation("hbm-peak", message, (), 0)
