"""Where the bytes of a block come from: its own HBM, another die, L2; and how fast each part can move."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.cost import cores_of_class, link_rate_q20
from cann_env.graph import CommandKind
from cann_env.units import NS_PER_S
from cann_env.validate.case import Q20, Case

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import BlockRun


class Parts(NamedTuple):
    """Bytes of one block in units of 2**-20, in the order they move."""

    own_q20: int
    remote_q20: int
    l2_q20: int


class Stages(NamedTuple):
    """Least time of each part (ns); one follows the other."""

    own_ns: int
    remote_ns: int
    l2_ns: int


def rate_q20(device: DeviceSpec, link: str) -> int:
    """What a link carries per nanosecond in units of 2**-20 byte; the L2 counts as a link."""
    if link == "l2":
        return max(1, device.memory.l2_bandwidth_bytes_per_s * Q20 // NS_PER_S)
    return link_rate_q20(device, link)


def crossing(row: BlockRun) -> tuple[str, int]:
    """The link that limits a class of work, and how often each byte crosses it: d2d copies read and write."""
    if row.work_class in {"h2d", "d2h"}:
        return row.work_class, 1
    return "hbm", 2 if row.work_class == "sdma" else 1


def remote_sizes(case: Case, i: int) -> dict[int, int]:
    """Bytes of the operands of a command on each other die; what it reads and writes counts twice."""
    graph, here = case.schedule.graph, case.die_of(i)
    found: dict[int, int] = {}
    for name in (*case.command(i).reads, *case.command(i).writes):
        buffer = graph.buffers[graph.buffer_index[name]]
        if buffer.die != here:
            found[buffer.die] = found.get(buffer.die, 0) + case.unit_bytes(buffer)
    return found


def parts(case: Case, row: BlockRun) -> Parts:
    """How the bytes of one block split: first what L2 has, then what lies on other dies, the rest is at home.

    Only kernels find anything in L2 or reach for another die.
    """
    command = case.command(row.command)
    moved = case.scaled(row.command, case.cost(row).bytes_q20)
    hit, remote = case.hits.get((row.command, row.kernel), 0), remote_sizes(case, row.command)
    if command.kind is not CommandKind.KERNEL or not (hit or remote):
        return Parts(moved, 0, 0)
    graph = case.schedule.graph
    total = sum(
        case.unit_bytes(graph.buffers[graph.buffer_index[name]]) for name in (*command.reads, *command.writes)
    )
    found = min(moved, _share(moved, hit * Q20 // total))
    away = min(moved - found, _share(moved, sum(remote.values()) * Q20 // total))
    return Parts(moved - found - away, away, found)


def _share(amount: int, part_q20: int) -> int:
    return -(-amount * part_q20 // Q20)


def stages(case: Case, row: BlockRun) -> Stages:
    """Least time of the parts of one block that has all links to itself."""
    device, cap = case.schedule.device, case.cost(row).rate_q20
    own, remote, found = parts(case, row)
    link, times = crossing(row)
    own_ns = max(-(-own // cap), -(-own * times // rate_q20(device, link)))
    away = min(cap, rate_q20(device, "die"), rate_q20(device, "hbm")) if remote else 1
    l2_rate = rate_q20(device, "l2")
    kernels = case.command(row.command).kernels
    cores = cores_of_class(device, row.work_class, kernels[row.kernel].demand if kernels else None)
    near = min(l2_rate, max(cap, l2_rate // cores))
    return Stages(own_ns, -(-remote // away), -(-found // near))
