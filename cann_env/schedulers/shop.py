"""Tasks, and the processors that each may run on: what the list schedulers of the literature decide about.

A processor is a way of running a task: it fixes how long the task takes and which units of which resources
it holds meanwhile. With one resource of one unit for each processor these are the unlike machines of the
textbooks. On a device a processor is a class of work that a command can run as, with the cores of the class
as its resource, so that a processor runs as many commands at once as its cores allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.device.cost import cores_of_class
from cann_env.device.spec import CLASSES
from cann_env.engine import layout as at
from cann_env.schedulers.timeline import Timeline
from cann_env.tasks import tasks_of
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cann_env.program import Program


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Shop:
    """n tasks, m processors, r resources.

    Attributes:
        cost_ns: (n, m) int64, how long each task takes on each processor; -1 where it cannot run.
        demand: (n, m, r) int64, units it holds there.
        capacity: (r,) int64, units there are.
        before, after: For each task its predecessors and successors, ascending.
        delay_ns: From (predecessor, successor) to the time that must pass between the end of one and the
            start of the other if they run on different processors; 0 where missing.
        release_ns: (n,) int64, instant before which a task cannot start.
        allowed: For each task the processors it can run on, ascending, at least one.
        preferred: For each task the one of them that it is made for.
        order: All tasks, predecessors first.
    """

    cost_ns: NDArray[np.int64]
    demand: NDArray[np.int64]
    capacity: NDArray[np.int64]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    delay_ns: Mapping[tuple[int, int], int]
    release_ns: NDArray[np.int64]
    allowed: tuple[tuple[int, ...], ...]
    preferred: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.before)


class Placed(NamedTuple):
    """Where and when each task runs, by its index."""

    processor: tuple[int, ...]
    start_ns: tuple[int, ...]
    finish_ns: tuple[int, ...]

    @property
    def makespan_ns(self) -> int:
        """When the last task ends."""
        return max(self.finish_ns, default=0)


@dataclass(slots=True)
class Board:
    """A schedule in the making.

    Attributes:
        shop: What is scheduled.
        waiting: For each task how many predecessors are not placed.
    """

    shop: Shop
    waiting: list[int] = field(default_factory=list)
    _line: Timeline = field(init=False)
    _processor: list[int] = field(default_factory=list)
    _start: list[int] = field(default_factory=list)
    _finish: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._line = Timeline(self.shop.capacity)
        self.waiting = [len(before) for before in self.shop.before]
        self._processor, self._start, self._finish = ([-1] * self.shop.tasks for _ in range(3))

    def arrival_ns(self, task: int, processor: int) -> int:
        """When a task could start on a processor if that were free: all predecessors are placed."""
        latest = int(self.shop.release_ns[task])
        for pred in self.shop.before[task]:
            apart = self._processor[pred] != processor
            delay = self.shop.delay_ns.get((pred, task), 0) if apart else 0
            latest = max(latest, self._finish[pred] + delay)
        return latest

    def between_ns(self, task: int, processor: int) -> int:
        """Earliest start of a task on a processor, in a gap if there is one."""
        cost = int(self.shop.cost_ns[task, processor])
        return self._line.earliest(self.shop.demand[task, processor], cost, self.arrival_ns(task, processor))

    def behind_ns(self, task: int, processor: int) -> int:
        """Earliest start of a task on a processor, behind everything that is in its way there."""
        return self._line.behind(self.shop.demand[task, processor], self.arrival_ns(task, processor))

    def place(self, task: int, processor: int, start_ns: int) -> list[int]:
        """Place a task; returns the successors that have become ready by it."""
        finish = start_ns + int(self.shop.cost_ns[task, processor])
        self._line.take(self.shop.demand[task, processor], start_ns, finish)
        self._processor[task], self._start[task], self._finish[task] = processor, start_ns, finish
        ready = []
        for later in self.shop.after[task]:
            self.waiting[later] -= 1
            if self.waiting[later] == 0:
                ready.append(later)
        return ready

    def ready(self) -> list[int]:
        """Tasks without predecessors, ascending."""
        return [task for task, before in enumerate(self.shop.before) if not before]

    def placed(self) -> Placed:
        """The schedule as it is."""
        return Placed(tuple(self._processor), tuple(self._start), tuple(self._finish))


def _sorted_order(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> tuple[int, ...]:
    waiting = [len(own) for own in before]
    order = [task for task, count in enumerate(waiting) if count == 0]
    for task in order:
        for later in after[task]:
            waiting[later] -= 1
            if waiting[later] == 0:
                order.append(later)
    return tuple(order)


def _reversed(before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    after: list[list[int]] = [[] for _ in before]
    for task, own in enumerate(before):
        for pred in own:
            after[pred].append(task)
    return tuple(tuple(own) for own in after)


def _allowed(cost_ns: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(np.flatnonzero(row >= 0).tolist()) for row in cost_ns)


def unit_machines(
    cost_ns: Sequence[Sequence[int]] | NDArray[np.int64], delay_ns: Mapping[tuple[int, int], int]
) -> Shop:
    """The textbook case: each processor runs one task at a time.

    Args:
        cost_ns: n rows of m times; -1 where a task cannot run.
        delay_ns: The edges, from (predecessor, successor) to the time the data take between machines.

    Raises:
        InputError: A task that runs nowhere, or edges that form a cycle.
    """
    cost = np.asarray(cost_ns, np.int64)
    tasks, machines = cost.shape
    before = tuple(tuple(sorted(a for a, b in delay_ns if b == task)) for task in range(tasks))
    after = _reversed(before)
    order = _sorted_order(before, after)
    if len(order) < tasks:
        raise InputError(f"the {len(delay_ns)} edges of a shop of {tasks} tasks form a cycle")
    nowhere = np.flatnonzero((cost < 0).all(axis=1))
    if nowhere.size:
        raise InputError(f"task {int(nowhere[0])} of a shop runs on no machine; give it one cost from 0")
    return Shop(
        cost_ns=cost,
        demand=np.broadcast_to(np.eye(machines, dtype=np.int64), (tasks, machines, machines)),
        capacity=np.ones(machines, np.int64),
        before=before,
        after=after,
        delay_ns=dict(delay_ns),
        release_ns=np.zeros(tasks, np.int64),
        allowed=_allowed(cost),
        preferred=tuple(np.where(cost < 0, cost.max() + 1, cost).argmin(axis=1).tolist()),
        order=order,
    )


def shop_of(program: Program) -> Shop:
    """A program with the classes of work as processors.

    A command of one kernel that may fall back runs on two of them, any other on one, that of its first
    kernel. Between commands of different classes lies an event, as if each class had streams of its own: its
    record, and waking up who waits. Resources that can never run short are left out.
    """
    tasks = tasks_of(program)
    count = len(tasks.duration_ns)
    cost = np.full((count, len(CLASSES)), -1, np.int64)
    demand = np.zeros((count, len(CLASSES), len(tasks.capacity)), np.int64)
    first, second, slower_ns = _variants(program)
    every, other = np.arange(count), np.flatnonzero(second >= 0)
    cost[every, first] = tasks.duration_ns + np.maximum(-slower_ns, 0)
    demand[every, first] = tasks.demand
    cost[other, second[other]] = (tasks.duration_ns + np.maximum(slower_ns, 0))[other]
    demand[other, second[other]] = tasks.demand[other]
    for task in other.tolist():
        held = _held(program, task, CLASSES[second[task]])
        demand[task, second[task], : len(held)] = held
    binding = demand.max(axis=1).sum(axis=0) > tasks.capacity
    before = tuple(tuple(tasks.predecessors(task)) for task in range(count))
    event = program.device.dispatch.record_ns + program.device.dispatch.wake_ns
    return Shop(
        cost_ns=cost,
        demand=np.ascontiguousarray(demand[:, :, binding]),
        capacity=tasks.capacity[binding],
        before=before,
        after=tuple(tuple(tasks.successors(task)) for task in range(count)),
        delay_ns={(pred, task): event for task, own in enumerate(before) for pred in own},
        release_ns=tasks.release_ns,
        allowed=_allowed(cost),
        preferred=tuple(first.tolist()),
        order=tuple(np.argsort(tasks.rank).tolist()),
    )


def _variants(program: Program) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Preferred class of each command, its second one or -1, and how much slower (ns) it is on that."""
    image, count = program.image, len(program.graph.commands)
    begin = int(image[at.P_AT_COMMAND])
    commands = image[begin : begin + count * at.PC_WIDTH].reshape(count, at.PC_WIDTH)
    rows = int(image[at.P_AT_KERNEL]) + commands[:, at.PC_KERNEL, None] * at.PK_WIDTH
    kernels = image[rows + np.arange(at.PK_WIDTH)]
    classes = image[int(image[at.P_AT_CLASS]) :][: int(image[at.P_CLASSES]) * at.PW_WIDTH]
    first = classes.reshape(-1, at.PW_WIDTH)[kernels[:, at.PK_CLASS], at.PW_NAMED]
    second = np.where(commands[:, at.PC_KERNELS] == 1, kernels[:, at.PK_FALLBACK], -1)
    cores = np.array([max(1, cores_of_class(program.device, name)) for name in CLASSES], np.int64)
    alone = [_alone_ns(kernels, cores[first], 0), _alone_ns(kernels, cores[second], at.PK_VARIANT)]
    return first, second, np.where(second >= 0, alone[1] - alone[0], 0)


def _alone_ns(kernels: NDArray[np.int64], cores: NDArray[np.int64], variant: int) -> NDArray[np.int64]:
    """Least time of each kernel as one of its classes, in waves on so many cores."""
    moved = -(-kernels[:, at.PK_BYTES + variant] // np.maximum(kernels[:, at.PK_RATE + variant], 1))
    block = np.maximum(kernels[:, at.PK_COMPUTE_NS + variant], moved)
    alone: NDArray[np.int64] = (
        kernels[:, at.PK_LAUNCH_NS + variant] + -(-kernels[:, at.PK_BLOCKS] // cores) * block
    )
    return alone


def _held(program: Program, task: int, work_class: str) -> list[int]:
    """Units of each pool that a command of one kernel holds as a class of work."""
    device = program.device
    blocks = min(program.graph.commands[task].kernels[0].blocks, cores_of_class(device, work_class))
    return [blocks * device.classes[work_class].demand.get(pool, 0) for pool in device.pool_names]
