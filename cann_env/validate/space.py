"""The address space of each die: where device buffers lie, and who may follow whom in the same bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from cann_env.capacity import taken_bytes
from cann_env.options import Submission
from cann_env.validate.case import Case, Violation
from cann_env.validate.order import order_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import Allocation
    from cann_env.validate.order import Order


def allocations(case: Case) -> Iterator[Violation]:
    """Each buffer absent at first has one place from its first writer's issue to its last user's finish."""
    rows = Counter(row.buffer for row in case.schedule.allocations)
    for i, buffer in enumerate(case.schedule.graph.buffers):
        if case.is_placed(buffer) and rows[i] != 1:
            trouble = "allocated and freed once (double free)" if rows[i] else "allocated"
            message = f"buffer {buffer.name!r} has {rows[i]} places; it must be {trouble}"
            yield Violation("allocation", message, case.users[buffer.name], 0)
    for row in case.schedule.allocations:
        why = _misplaced(case, row) or _mistimed(case, row)
        if why:
            buffer = case.schedule.graph.buffers[row.buffer]
            message = f"the place of buffer {buffer.name!r} at address {row.address}: {why}"
            yield Violation("allocation", message, (row.command,), row.issue_ns)


def _misplaced(case: Case, row: Allocation) -> str:
    buffer = case.schedule.graph.buffers[row.buffer]
    first, size = case.users[buffer.name][0], taken_bytes(buffer, case.schedule.device, case.schedule.options)
    if row.command != first:
        return f"it is taken for {case.name(row.command)}; {case.name(first)} writes it first"
    if row.size_bytes != size:
        return f"it has {row.size_bytes} bytes; for {buffer.size_bytes} the allocator takes {size}"
    return ""


def _mistimed(case: Case, row: Allocation) -> str:
    run = case.runs[row.command]
    users = case.users[case.schedule.graph.buffers[row.buffer].name]
    last = max(users, key=lambda i: case.runs[i].finish_ns)
    end = case.runs[last].finish_ns
    begin = case.called_ns.get(row.command, run.issue_ns)
    if not begin <= row.issue_ns <= run.issue_ns:
        when = f"from {begin} to {run.issue_ns}" if begin < run.issue_ns else f"at {begin}"
        return f"it is chosen at {row.issue_ns} ns; {case.name(row.command)} is issued {when} ns"
    if not row.issue_ns <= row.grant_ns <= run.start_ns:
        return (
            f"its bytes are there at {row.grant_ns} ns; {case.name(row.command)} starts at {run.start_ns} ns"
        )
    if row.free_ns < end:
        return f"it is freed at {row.free_ns} ns; {case.placed(last)} uses it until {end} ns (use after free)"
    if row.free_ns > max(end, case.lift_ends.get(row.buffer, 0)):
        return f"it is freed at {row.free_ns} ns; {case.placed(last)}, its last user, ends at {end} ns (leak)"
    return ""


def _by_die(case: Case) -> dict[int, list[Allocation]]:
    """Allocations of each die in the order in which their places are chosen."""
    rows: dict[int, list[Allocation]] = defaultdict(list)
    for row in sorted(case.schedule.allocations, key=lambda row: (row.issue_ns, row.address)):
        rows[case.schedule.graph.buffers[row.buffer].die].append(row)
    return rows


def _name(case: Case, row: Allocation) -> str:
    return repr(case.schedule.graph.buffers[row.buffer].name)


def address_space(case: Case) -> Iterator[Violation]:
    """Places lie within the space, above what is resident, and no two share a byte at one time."""
    pool = case.schedule.options.pool_bytes
    for die, rows in _by_die(case).items():
        resident = [b for b in case.schedule.graph.buffers if b.die == die and case.is_resident(b)]
        bottom = sum(case.unit_bytes(buffer) for buffer in resident)
        end = case.capacity if pool is None else bottom + pool
        live: list[Allocation] = []
        for row in rows:
            top = row.address + row.size_bytes
            if row.address < bottom or top > end:
                message = (
                    f"buffer {_name(case, row)} lies from {row.address} to {top}; those of die {die} that "
                    f"come and go lie between {bottom} and {end}"
                )
                yield Violation("address-space", message, (row.command,), row.issue_ns)
            live = [other for other in live if other.free_ns > row.issue_ns]
            for other in live:
                if other.address < top and row.address < other.address + other.size_bytes:
                    message = (
                        f"buffer {_name(case, row)} lies from {row.address} to {top} at {row.issue_ns} ns; "
                        f"there {_name(case, other)} lies until {other.free_ns} ns"
                    )
                    yield Violation("address-space", message, (other.command, row.command), row.issue_ns)
            live.append(row)


class _Tenants:
    """Who was the last to have each byte: segments ``[start, next start)`` that cover all addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._tenants: list[Allocation | None] = [None]

    def _cut(self, address: int) -> int:
        """Make a segment begin at an address; returns its place."""
        i = bisect_right(self._starts, address) - 1
        if self._starts[i] == address:
            return i
        self._starts.insert(i + 1, address)
        self._tenants.insert(i + 1, self._tenants[i])
        return i + 1

    def move_in(self, row: Allocation) -> list[Allocation]:
        """Give its bytes to a tenant; returns those that had some of them before."""
        first, last = self._cut(row.address), self._cut(row.address + row.size_bytes)
        former = {tenant for tenant in self._tenants[first:last] if tenant is not None}
        self._starts[first:last] = [row.address]
        self._tenants[first:last] = [row]
        return sorted(former)


def reuse_waits(case: Case) -> Iterator[Violation]:
    """If no host looks, streams and events alone keep a new tenant behind the users of the former."""
    schedule = case.schedule
    if schedule.options.submission is not Submission.SINK:
        return
    order = order_of(list(case.queues.values()), schedule.waits, len(schedule.graph.commands))
    for rows in [] if order.stuck else _by_die(case).values():
        tenants = _Tenants()
        for row in rows:
            for former in tenants.move_in(row):
                if former.free_ns <= row.issue_ns:
                    yield from _unordered(case, order, former, row)


def _unordered(case: Case, order: Order, former: Allocation, row: Allocation) -> Iterator[Violation]:
    for user in case.users[case.schedule.graph.buffers[former.buffer].name]:
        if not order.holds(user, row.command):
            message = (
                f"{case.placed(row.command)} writes {_name(case, row)} where {_name(case, former)} lay; "
                f"neither streams nor any event wait put it behind {case.placed(user)}, which used that"
            )
            commands = (user, row.command)
            yield Violation("reuse-wait", message, commands, case.runs[row.command].start_ns)
