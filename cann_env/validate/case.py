"""What every rule looks at: one schedule with its rows indexed, and the shape of an objection to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cann_env.capacity import aligned_bytes, capacity_bytes, is_resident
from cann_env.device.cost import KernelCost, cost_of, kernel_cost
from cann_env.graph import BufferKind, Command, CommandKind, CopyKind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Buffer
    from cann_env.schedule import BlockRun, CommandRun, Schedule

Q20 = 2**20
"""Noise factors and byte counts come in units of 2**-20."""

FOREVER = 2**62
"""Later than anything that happens."""

_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_ENGINE_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing a schedule does that the device would not.

    Attributes:
        rule: Name of the rule, one of those in the table of :mod:`cann_env.validate`.
        message: For people: names commands, streams, buffers and times.
        commands: Indices of the commands concerned, possibly none.
        at_ns: When it happens; 0 where it has no time.
    """

    rule: str
    message: str
    commands: tuple[int, ...]
    at_ns: int


class Overload(NamedTuple):
    """A moment from which more is taken than there is: ``commands`` hold ``total`` at ``at_ns``."""

    at_ns: int
    total: int
    commands: tuple[int, ...]


class Load(NamedTuple):
    """``amount`` of something, held from ``start_ns`` until just before ``end_ns`` for ``command``."""

    start_ns: int
    end_ns: int
    amount: int
    command: int


def overloads(loads: Sequence[Load], capacity: int) -> list[Overload]:
    """Moments at which the sum of the loads climbs over the capacity.

    What ends at an instant is given back before anything is taken at it, and a load that ends when it
    starts takes nothing. A load that belongs to no command has a negative ``command``.
    """
    events = [(load.start_ns, 1, i) for i, load in enumerate(loads) if load.end_ns > load.start_ns]
    events += [(load.end_ns, 0, i) for i, load in enumerate(loads) if load.end_ns > load.start_ns]
    events.sort()
    active: set[int] = set()
    total, was_over = 0, False
    found = []
    for at, (time, takes, i) in enumerate(events):
        if takes:
            active.add(i)
            total += loads[i].amount
        else:
            active.remove(i)
            total -= loads[i].amount
        if at + 1 < len(events) and events[at + 1][0] == time:
            continue
        if total > capacity and not was_over:
            holders = sorted({loads[j].command for j in active if loads[j].command >= 0})
            found.append(Overload(time, total, tuple(holders)))
        was_over = total > capacity
    return found


def when(at_ns: int) -> str:
    """A time as messages call it."""
    return "the end" if at_ns == FOREVER else f"{at_ns} ns"


def work_classes(command: Command, kernel: int) -> tuple[str, ...]:
    """Classes this part of a command may run as, the preferred one first."""
    if command.kind is CommandKind.KERNEL:
        spec = command.kernels[kernel]
        return (spec.kernel_class,) if spec.fallback is None else (spec.kernel_class, spec.fallback)
    if command.copy is not None:
        return (_COPY_CLASS[command.copy],)
    return (_ENGINE_CLASS[command.kind],)


@dataclass(frozen=True)
class Case:
    """A schedule whose rows are well formed, as the rules read it.

    Attributes:
        schedule: What is judged.
        costs: Cache of kernel costs by (command, kernel, class).
    """

    schedule: Schedule
    costs: dict[tuple[int, int, str], KernelCost] = field(default_factory=dict)

    @cached_property
    def called_ns(self) -> dict[int, int]:
        """When the host began to issue each command."""
        return {call.target: call.start_ns for call in self.schedule.host if call.call == "issue"}

    @cached_property
    def runs(self) -> tuple[CommandRun, ...]:
        """The row of each command, by command index."""
        return tuple(sorted(self.schedule.commands))

    @cached_property
    def queues(self) -> dict[int, tuple[int, ...]]:
        """Commands of each stream in the order of their positions."""
        rows: dict[int, list[CommandRun]] = defaultdict(list)
        for run in self.schedule.commands:
            rows[run.stream].append(run)
        return {
            stream: tuple(run.command for run in sorted(rows[stream], key=lambda run: run.position))
            for stream in sorted(rows)
        }

    @cached_property
    def kernels(self) -> dict[tuple[int, int], tuple[BlockRun, ...]]:
        """Block rows of each (command, kernel), by start; copies and the like count as kernel 0."""
        rows: dict[tuple[int, int], list[BlockRun]] = defaultdict(list)
        for row in self.schedule.blocks:
            rows[row.command, row.kernel].append(row)
        return {key: tuple(sorted(rows[key], key=lambda row: row.start_ns)) for key in sorted(rows)}

    def command(self, i: int) -> Command:
        """The command itself."""
        return self.schedule.graph.commands[i]

    def name(self, i: int) -> str:
        """A command as messages call it."""
        return f"command {self.command(i).name!r}"

    def placed(self, i: int) -> str:
        """A command and its stream as messages call them."""
        return f"{self.name(i)} on stream {self.runs[i].stream}"

    def names(self, commands: Sequence[int]) -> str:
        """Some commands as messages call them, at most six by name."""
        listed = ", ".join(repr(self.command(i).name) for i in commands[:6])
        return listed if len(commands) <= 6 else f"{listed} and {len(commands) - 6} more"

    def scaled(self, i: int, amount: int) -> int:
        """An amount of time or bytes of a command with its noise, rounded up."""
        return -(-amount * self.schedule.noise[i] // Q20)

    @cached_property
    def hits(self) -> dict[tuple[int, int], int]:
        """Bytes that each (command, kernel) says it found in L2, where it found any."""
        return {(row.command, row.kernel): row.hit_bytes for row in self.schedule.hits}

    @cached_property
    def users(self) -> dict[str, tuple[int, ...]]:
        """Commands that read or write each buffer, by its name and in program order."""
        found: dict[str, list[int]] = {buffer.name: [] for buffer in self.schedule.graph.buffers}
        for i, command in enumerate(self.schedule.graph.commands):
            for name in dict.fromkeys((*command.reads, *command.writes)):
                found[name].append(i)
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def lift_ends(self) -> dict[int, int]:
        """When the last lift of each buffer that was lifted ended; FOREVER if the run ended before."""
        ends: dict[int, int] = {}
        for row in self.schedule.transfers:
            if row.cause == "lift":
                ends[row.buffer] = max(ends.get(row.buffer, 0), row.finish_ns)
        return ends

    @cached_property
    def capacity(self) -> int:
        """Bytes of HBM of each die."""
        schedule = self.schedule
        return capacity_bytes(schedule.graph, schedule.device, schedule.options)

    @cached_property
    def l2_bytes(self) -> int:
        """Bytes of L2 of each die; 0 for none."""
        chosen = self.schedule.options.l2_bytes
        return self.schedule.device.memory.l2_bytes if chosen is None else chosen

    def die_of(self, i: int) -> int:
        """Die of the stream a command ran on, if the run may use that stream."""
        stream, dies = self.runs[i].stream, self.schedule.options.stream_dies
        return dies[stream] if 0 <= stream < len(dies) else stream % self.schedule.device.dies

    def is_resident(self, buffer: Buffer) -> bool:
        """Whether a buffer lies in device memory from the start to the end."""
        return is_resident(buffer, self.schedule.device)

    def moves(self, buffer: Buffer) -> bool:
        """Whether a buffer migrates: managed ones do, unless host and device share their memory."""
        return buffer.kind is BufferKind.MANAGED and not self.schedule.device.memory.host_shares_dram

    def is_placed(self, buffer: Buffer) -> bool:
        """Whether some command allocates a buffer in the address space, and its last user frees it."""
        written = bool(self.users[buffer.name])
        return written and buffer.level is Level.ABSENT and not self.moves(buffer)

    def unit_bytes(self, buffer: Buffer) -> int:
        """Whole allocation units of a buffer: what it takes of HBM and L2, and what moves of it."""
        return aligned_bytes(buffer, self.schedule.device)

    def cost(self, row: BlockRun) -> KernelCost:
        """Expected cost of the kernel, copy, callback or collective a row belongs to, as the class it ran."""
        key = (row.command, row.kernel, row.work_class)
        if key not in self.costs:
            self.costs[key] = _cost(
                self.schedule.device, row.work_class, self.command(row.command), row.kernel
            )
        return self.costs[key]


def _cost(device: DeviceSpec, work_class: str, command: Command, kernel: int) -> KernelCost:
    if command.kind is CommandKind.KERNEL:
        return cost_of(device, work_class, command.kernels[kernel])
    measured = command.kind is not CommandKind.COPY or command.duration_ns > 0
    return kernel_cost(
        device,
        work_class,
        flops=0,
        dtype="",
        size_bytes=command.size_bytes,
        blocks=1,
        duration_ns=command.duration_ns if measured else None,
    )
