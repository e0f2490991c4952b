"""Managed memory: what lies in HBM when, and whether it is there, with its content, when it is needed.

A buffer's rows make its *stays*: one begins with a fault, a prefetch or a touch and ends with an eviction, a
write-back or by being freed. While it is written back nothing may use it, but it still takes space.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import Level
from cann_env.validate.case import FOREVER, Case, Load, Violation, overloads, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.graph import Buffer
    from cann_env.schedule import TransferRun

_LEAVING = {"evict": "evicted", "writeback": "written back", "free": "freed"}


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay of a managed buffer in HBM.

    Attributes:
        reserve_ns: Space is reserved for it.
        start_ns: It surely takes that space.
        valid_ns: Its bytes are there; after a touch they only come from the next writer.
        leave_ns: Nothing may use it from then.
        end_ns: Its space is given back.
        came, left: Causes of its rows; empty if it was there from the start or stays to the end.
    """

    reserve_ns: int = 0
    start_ns: int = 0
    valid_ns: int = 0
    leave_ns: int = FOREVER
    end_ns: int = FOREVER
    came: str = ""
    left: str = ""


def _timeline(rows: list[TransferRun]) -> list[TransferRun]:
    """By when they reserve space or stop the use of it, which comes first."""
    return sorted(rows, key=lambda row: (row.reserve_ns, row.cause not in _LEAVING))


def _rows(case: Case) -> dict[int, list[TransferRun]]:
    rows: dict[int, list[TransferRun]] = defaultdict(list)
    for row in case.schedule.transfers:
        if row.cause != "lift":
            rows[row.buffer].append(row)
    return rows


def _stays(case: Case, buffer: Buffer, rows: list[TransferRun]) -> tuple[list[Stay], list[Violation]]:
    """The stays of one buffer in HBM, and objections to rows that make no sense after those before them."""
    stays = [Stay()] if buffer.level is Level.HBM else []
    wrong = []
    for row in _timeline(rows):
        leaves = row.cause in _LEAVING
        why = _bad_departure(case, buffer, stays, row) if leaves else _bad_arrival(case, buffer, stays, row)
        if why:
            message = f"{row.cause} of buffer {buffer.name!r} at {row.reserve_ns} ns: {why}"
            wrong.append(Violation("moves", message, (), row.reserve_ns))
        present = bool(stays) and not stays[-1].left
        if leaves and present:
            stays[-1] = replace(stays[-1], leave_ns=row.reserve_ns, end_ns=row.finish_ns, left=row.cause)
        elif not leaves and not present:
            stays.append(Stay(row.reserve_ns, row.start_ns, row.finish_ns, came=row.cause))
    return stays, wrong


def _bad_arrival(case: Case, buffer: Buffer, stays: list[Stay], row: TransferRun) -> str:
    if stays and not stays[-1].left:
        return "it is already there"
    if stays and stays[-1].end_ns > row.reserve_ns:
        return f"it is being written back until {when(stays[-1].end_ns)}"
    if row.cause == "touch":
        later = [i for i in case.users[buffer.name] if case.runs[i].start_ns >= row.finish_ns]
        user = min(later, key=lambda i: case.runs[i].start_ns, default=None)
        if user is None:
            return "nobody writes it after that"
        return f"{case.placed(user)} reads it next" if buffer.name in case.command(user).reads else ""
    on_host = buffer.level is not Level.ABSENT or any(stay.left == "writeback" for stay in stays)
    return "" if on_host else "the host has nothing of it"


def _bad_departure(case: Case, buffer: Buffer, stays: list[Stay], row: TransferRun) -> str:
    if not stays or stays[-1].left:
        return "it is not there"
    if row.cause == "free" and buffer.level is not Level.ABSENT:
        return "it was there before the first command, so it is never freed"
    if row.cause == "writeback" and stays[-1].came == "touch":
        since = [i for i in _writers(case, buffer) if stays[-1].valid_ns <= case.runs[i].start_ns]
        if not any(case.runs[i].start_ns <= row.reserve_ns for i in since):
            return "nobody has written it"
    return ""


def _writers(case: Case, buffer: Buffer) -> list[int]:
    return [i for i in case.users[buffer.name] if buffer.name in case.command(i).writes]


def residency(case: Case) -> dict[int, list[Stay]]:
    """The stays of every buffer that migrates, by buffer index."""
    rows = _rows(case)
    return {
        i: _stays(case, buffer, rows[i])[0]
        for i, buffer in enumerate(case.schedule.graph.buffers)
        if case.moves(buffer)
    }


def moves(case: Case) -> Iterator[Violation]:
    """A buffer arrives where it is not, from where it is, and leaves from where it is."""
    rows = _rows(case)
    for i, buffer in enumerate(case.schedule.graph.buffers):
        if case.moves(buffer):
            yield from _stays(case, buffer, rows[i])[1]


def use_before_arrival(case: Case) -> Iterator[Violation]:
    """A command starts only when all its managed operands have arrived."""
    for i, stays in residency(case).items():
        buffer = case.schedule.graph.buffers[i]
        for user in case.users[buffer.name]:
            start = case.runs[user].start_ns
            if not any(stay.valid_ns <= start <= stay.leave_ns for stay in stays):
                message = (
                    f"{case.placed(user)} starts at {start} ns; its buffer {buffer.name!r} is not in HBM"
                )
                yield Violation("use-before-arrival", message, (user,), start)


def evictions(case: Case) -> Iterator[Violation]:
    """Nothing leaves while it arrives or is in use, and what was written is not just thrown away."""
    for i, stays in residency(case).items():
        buffer = case.schedule.graph.buffers[i]
        for n, stay in enumerate(stays):
            if stay.leave_ns < stay.valid_ns:
                message = (
                    f"buffer {buffer.name!r} is {_LEAVING[stay.left]} at {stay.leave_ns} ns; "
                    f"it arrives at {stay.valid_ns} ns"
                )
                yield Violation("evicted-in-use", message, (), stay.leave_ns)
            for user in case.users[buffer.name] if stay.left else ():
                yield from _eviction(case, buffer, stays[n:], user)


def _eviction(case: Case, buffer: Buffer, stays: list[Stay], user: int) -> Iterator[Violation]:
    """Whether the first of some stays ends while a command uses it that does not begin in a later stay."""
    run, stay = case.runs[user], stays[0]
    if run.start_ns < stay.valid_ns:
        return
    renewed = any(later.valid_ns <= run.start_ns <= later.leave_ns for later in stays[1:])
    if run.start_ns <= stay.leave_ns < run.finish_ns and not renewed:
        message = (
            f"buffer {buffer.name!r} is {_LEAVING[stay.left]} at {stay.leave_ns} ns; "
            f"{case.placed(user)} uses it from {run.start_ns} to {run.finish_ns} ns"
        )
        yield Violation("evicted-in-use", message, (user,), stay.leave_ns)
    elif stay.left == "evict" and run.finish_ns <= stay.leave_ns and buffer.name in case.command(user).writes:
        message = (
            f"buffer {buffer.name!r} is evicted at {stay.leave_ns} ns; {case.placed(user)} wrote it at "
            f"{run.finish_ns} ns and the host's copy is stale"
        )
        yield Violation("evicted-dirty", message, (user,), stay.leave_ns)


def leaks(case: Case) -> Iterator[Violation]:
    """What some command wrote first is freed the instant its last user finishes, if it is there.

    A lift that is under way keeps it until that ends.
    """
    for i, stays in residency(case).items():
        buffer = case.schedule.graph.buffers[i]
        users = case.users[buffer.name]
        if buffer.level is not Level.ABSENT or not users or not stays:
            continue
        last, stay = max(users, key=lambda u: case.runs[u].finish_ns), stays[-1]
        dead_ns = case.runs[last].finish_ns
        lifted_ns = max(dead_ns, case.lift_ends.get(i, 0))
        if stay.leave_ns > lifted_ns or (stay.leave_ns >= dead_ns and stay.left not in ("", "free")):
            how = f"is only {_LEAVING[stay.left]} at {stay.leave_ns} ns" if stay.left else "stays to the end"
            how = how if stay.left in ("", "free") else f"is {_LEAVING[stay.left]} instead of freed then"
            message = f"buffer {buffer.name!r} {how}; its last user, {case.name(last)}, ends at {dead_ns} ns"
            yield Violation("leak", message, (last,), dead_ns)


# --- how much there is --------------------------------------------------------------------------------


def hbm_loads(case: Case, *, physical: bool) -> dict[int, list[Load]]:
    """What every buffer takes of the HBM of each die and when.

    Args:
        case: Schedule.
        physical: Count the bytes that lie there, not those that are reserved. These differ while something is
            written back: it is no longer reserved, and whoever took its place is still without space.
    """
    schedule, stays = case.schedule, residency(case)
    pool = schedule.options.pool_bytes
    loads: dict[int, list[Load]] = {die: [] for die in range(schedule.device.dies)}
    for i, buffer in enumerate(schedule.graph.buffers):
        size = case.unit_bytes(buffer)
        for stay in stays.get(i, ()):
            span = (stay.start_ns, stay.end_ns) if physical else (stay.reserve_ns, stay.leave_ns)
            loads[buffer.die].append(Load(*span, size, -1))
        if case.is_resident(buffer):
            loads[buffer.die].append(Load(0, FOREVER, size, -1))
    if pool is not None:
        return {die: [*held, Load(0, FOREVER, pool, -1)] for die, held in loads.items()}
    for row in schedule.allocations:
        begin = row.grant_ns if physical else row.issue_ns
        die = schedule.graph.buffers[row.buffer].die
        loads[die].append(Load(begin, row.free_ns, row.size_bytes, row.command))
    return loads


def hbm_capacity(case: Case) -> Iterator[Violation]:
    """What is reserved and what lies in the HBM of a die fits, and the recorded peak does not belittle it."""
    schedule, limit = case.schedule, case.capacity
    reserved = hbm_loads(case, physical=False)
    found = []
    for what, loads in (("reserved", reserved), ("taken", hbm_loads(case, physical=True))):
        for die, held in loads.items():
            for over in overloads(held, limit):
                message = (
                    f"at {over.at_ns} ns {over.total} bytes of the HBM of die {die} are {what}, "
                    f"device buffers first written by {case.names(over.commands) or 'nobody'} among them; "
                    f"there are {limit}"
                )
                found.append(Violation("hbm-capacity", message, over.commands, over.at_ns))
    yield from found
    peak = schedule.peak_hbm_bytes
    if not found and (peak > limit or any(overloads(held, peak) for held in reserved.values())):
        message = f"the recorded peak of HBM, {peak} bytes, is below what was reserved or above {limit}"
        yield Violation("hbm-peak", message, (), 0)
