"""Cores, engines and slots: nothing runs faster than it can, and nothing is held by more than there is."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cann_env.graph import CommandKind, Scheme
from cann_env.validate.case import Case, Load, Violation, overloads
from cann_env.validate.shares import stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import BlockRun


_CHANNELS = {"prefetch": "h2d", "writeback": "d2h", "lift": "sdma"}
"""The pool of which a transfer of each cause takes one; migration on demand takes none."""


def block_time(case: Case) -> Iterator[Violation]:
    """No block takes less than its launch part and then its computing or its bytes at full speed."""
    for row in case.schedule.blocks:
        earliest = _earliest_finish(case, row)
        if row.finish_ns < earliest:
            message = (
                f"{case.name(row.command)} ran blocks of kernel {row.kernel} as {row.work_class} from "
                f"{row.start_ns} to {row.finish_ns} ns; they cannot end before {earliest} ns"
            )
            yield Violation("block-time", message, (row.command,), row.finish_ns)


def work_start_ns(case: Case, row: BlockRun) -> int:
    """When blocks begin to compute and to move bytes: after launch, or after the latency of a copy."""
    return max(row.start_ns, row.kernel_start_ns + case.scaled(row.command, case.cost(row).launch_ns))


def _earliest_finish(case: Case, row: BlockRun) -> int:
    computing = case.scaled(row.command, case.cost(row).compute_ns)
    return work_start_ns(case, row) + max(computing, sum(stages(case, row)))


def dies(case: Case) -> Iterator[Violation]:
    """A command runs on the die of its stream."""
    for row in case.schedule.blocks:
        home = case.die_of(row.command)
        if row.die != home:
            message = (
                f"{case.placed(row.command)} ran blocks on die {row.die} at {row.start_ns} ns; "
                f"its stream belongs to die {home}"
            )
            yield Violation("dies", message, (row.command,), row.start_ns)


def kernel_order(case: Case) -> Iterator[Violation]:
    """A command runs one kernel at a time, in their order."""
    ends: dict[int, int] = {}
    for (i, k), rows in case.kernels.items():
        start = rows[0].start_ns
        if start < ends.get(i, 0):
            message = (
                f"{case.name(i)} starts kernel {k} at {start} ns; its kernel {k - 1} ends at {ends[i]} ns"
            )
            yield Violation("kernel-order", message, (i,), start)
        ends[i] = max(row.finish_ns for row in rows)


def batch(case: Case) -> Iterator[Violation]:
    """All blocks of a kernel of the batch scheme start at one instant."""
    for (i, k), rows in case.kernels.items():
        command = case.command(i)
        if command.kind is not CommandKind.KERNEL or command.kernels[k].scheme is not Scheme.BATCH:
            continue
        starts = sorted({row.start_ns for row in rows})
        if len(starts) > 1:
            message = f"{case.name(i)} starts blocks of its batch kernel {k} at {starts} ns, not all at once"
            yield Violation("batch", message, (i,), starts[1])


def capacity(case: Case) -> Iterator[Violation]:
    """The blocks that run at any instant, and the transfers that take a channel, fit into every pool."""
    device, buffers = case.schedule.device, case.schedule.graph.buffers
    loads: dict[tuple[int, str], list[Load]] = defaultdict(list)
    for row in case.schedule.blocks:
        for pool, demand in case.schedule.demand_of(row).items():
            load = Load(row.start_ns, row.finish_ns, demand * row.blocks, row.command)
            loads[row.die, pool].append(load)
    for move in case.schedule.transfers:
        if move.cause in _CHANNELS:
            load = Load(move.start_ns, move.finish_ns, 1, -1)
            loads[buffers[move.buffer].die, _CHANNELS[move.cause]].append(load)
    for (die, pool), held in sorted(loads.items()):
        for over in overloads(held, device.pools[pool]):
            message = (
                f"at {over.at_ns} ns {case.names(over.commands) or 'no command'}"
                f"{' and transfers' if pool in _CHANNELS.values() else ''} hold {over.total} of the "
                f"{device.pools[pool]} {pool} of die {die}"
            )
            yield Violation("capacity", message, over.commands, over.at_ns)


def slots(case: Case) -> Iterator[Violation]:
    """No more stream heads are active on a die than it has slots for."""
    limit = case.schedule.device.limits.max_concurrent_streams
    active: dict[int, list[Load]] = defaultdict(list)
    for run in case.runs:
        active[case.die_of(run.command)].append(Load(run.start_ns, run.finish_ns, 1, run.command))
    for die, loads in sorted(active.items()):
        for over in overloads(loads, limit):
            message = (
                f"at {over.at_ns} ns {over.total} stream heads are active on die {die}, "
                f"{case.names(over.commands)}; at most {limit} may be"
            )
            yield Violation("slots", message, over.commands, over.at_ns)


def class_slots(case: Case) -> Iterator[Violation]:
    """No more stream heads of a die run a kernel of one class than this class has slots for."""
    active: dict[tuple[str, int], list[Load]] = defaultdict(list)
    for (i, _), rows in case.kernels.items():
        end = max(row.finish_ns for row in rows)
        active[rows[0].work_class, case.die_of(i)].append(Load(rows[0].start_ns, end, 1, i))
    for (name, die), loads in sorted(active.items()):
        limit = case.schedule.device.classes[name].max_active
        for over in overloads(loads, limit):
            message = (
                f"at {over.at_ns} ns {over.total} stream heads of class {name} are active on die {die}, "
                f"{case.names(over.commands)}; at most {limit} may be"
            )
            yield Violation("class-slots", message, over.commands, over.at_ns)
