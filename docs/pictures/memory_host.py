"""Play the host thread by names, and write small graphs down: what the examples of docs/memory.md share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.device.load import load_device
from cann_env.engine import layout as at
from cann_env.engine.observe import copy_mask
from cann_env.engine.step import step
from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, CommandKind, Kernel, KernelClass, Level
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import record_schedule
from cann_env.units import InputError, format_bandwidth, format_time

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.schedule import Schedule

MIB = 2**20
WEIGHT = 16 * MIB
B2 = load_device("ascend910b2")


class Host:
    """The host thread by names: what is asked for must be legal.

    Args:
        graph: What is submitted.
        device: The 910B2 if None.
        **options: Of the run; one stream and no run-ahead limit that binds unless said otherwise.
    """

    def __init__(self, graph: CommandGraph, device: DeviceSpec | None = None, **options: Any) -> None:
        self.graph = graph
        self.options = RunOptions(**{"streams": 1, "run_ahead": 64, "prefetches": 8, **options})
        self.program = compile_graph(graph, device or B2, self.options)
        self.state = self.program.new_state()

    def _slots(self, where: int, first: int, count: int) -> list[int]:
        start = int(self.program.image[where]) + first
        return [int(i) for i in self.state[start : start + count]]

    def _legal(self, action: int) -> bool:
        mask = np.zeros(self.program.action_count, np.int8)
        copy_mask(self.program.image, self.state, mask)
        return bool(mask[action])

    def _take(self, action: int, what: str) -> Host:
        if not self._legal(action):
            raise InputError(f"{what} is not legal at {self.now_ns} ns; wait, or choose another")
        step(self.program.image, self.state, action)
        return self

    def _issue(self, name: str, stream: int) -> int:
        window = self._slots(at.P_STATE_WINDOW, 0, self.options.commands)
        command = self.graph.command_index[name]
        if command not in window:
            return -1
        return window.index(command) * int(self.program.image[at.P_CHOICES]) + stream

    def may_issue(self, name: str, stream: int = 0) -> bool:
        """Whether a command may go to a stream now."""
        action = self._issue(name, stream)
        return action >= 0 and self._legal(action)

    def issue(self, *names: str, stream: int = 0) -> Host:
        """Issue commands, one after another."""
        for name in names:
            self._take(self._issue(name, stream), name)
        return self

    def issue_when_legal(self, name: str, stream: int = 0) -> Host:
        """Wait until a command may go to a stream, then issue it."""
        while not self.may_issue(name, stream):
            self.wait()
        return self.issue(name, stream=stream)

    def _move(self, first: int, count: int, name: str) -> int:
        window = self._slots(at.P_STATE_PREFETCH, first, count)
        buffer = self.graph.buffer_index[name]
        if buffer not in window:
            return -1
        issues = self.options.commands * int(self.program.image[at.P_CHOICES])
        return issues + first + window.index(buffer)

    def may_prefetch(self, name: str) -> bool:
        """Whether a buffer may be moved from the host into HBM now."""
        action = self._move(0, self.options.prefetches, name)
        return action >= 0 and self._legal(action)

    def prefetch(self, *names: str) -> Host:
        """Move buffers from the host into HBM."""
        for name in names:
            self._take(self._move(0, self.options.prefetches, name), f"prefetch of {name}")
        return self

    def lift(self, *names: str) -> Host:
        """Copy buffers from HBM into L2."""
        for name in names:
            action = self._move(self.options.prefetches, self.options.l2_prefetches, name)
            self._take(action, f"lift of {name}")
        return self

    def offload(self, name: str) -> Host:
        """Move a buffer from HBM to the host."""
        first = self.options.prefetches + self.options.l2_prefetches
        return self._take(self._move(first, self.options.offloads, name), f"offload of {name}")

    def wait(self) -> Host:
        """Wait for the next completion."""
        return self._take(self.program.action_count - 1, "waiting")

    @property
    def now_ns(self) -> int:
        """The clock."""
        return int(self.state[at.S_NOW_NS])

    @property
    def free_bytes(self) -> int:
        """Bytes of HBM that nobody has reserved, on die 0."""
        die = int(self.program.image[at.P_STATE_DIE])
        return int(self.program.image[at.P_HBM_BYTES] - self.state[die + at.SD_BYTES])

    @property
    def hole_bytes(self) -> int:
        """Bytes of the largest hole of the address space, on die 0."""
        return int(self.state[int(self.program.image[at.P_STATE_DIE]) + at.SD_HOLE_BYTES])

    def schedule(self) -> Schedule:
        """What happened; all commands have been issued."""
        first = int(self.state[at.S_AT_ACTION])
        actions = self.state[first : first + int(self.state[at.S_STEPS])].tolist()
        return record_schedule(self.program, tuple(actions))


def kernel(
    name: str, duration_us: int = 0, *, cores: KernelClass = KernelClass.VECTOR, **fields: Any
) -> Command:
    """A kernel on all cores of its kind; without a duration its bytes decide."""
    size = {key: fields.pop(key, 0) for key in ("bytes_read", "bytes_written")}
    time = {"duration_ns": duration_us * 1000} if duration_us else {}
    work = Kernel(
        name=name, kernel_class=cores, blocks=48 if cores is KernelClass.VECTOR else 24, **size, **time
    )
    return Command(name=name, kind=CommandKind.KERNEL, kernels=(work,), **fields)


def device_buffer(name: str, mib: int, level: Level = Level.ABSENT, die: int = 0) -> Buffer:
    """Memory that nobody moves."""
    return Buffer(name=name, size_bytes=mib * MIB, level=level, die=die)


def managed(name: str, size: int = WEIGHT, level: Level = Level.HOST, **fields: Any) -> Buffer:
    """Memory that the runtime moves."""
    return Buffer(name=name, size_bytes=size, kind=BufferKind.MANAGED, level=level, **fields)


def span(schedule: Schedule, name: str) -> tuple[int, int]:
    """Start and finish of a command."""
    index = schedule.graph.command_index[name]
    return next((run.start_ns, run.finish_ns) for run in schedule.commands if run.command == index)


def duration(schedule: Schedule, name: str) -> str:
    """How long a command took."""
    start, finish = span(schedule, name)
    return format_time(finish - start)


def count(schedule: Schedule, cause: str) -> int:
    """Moves of one cause."""
    return sum(move.cause == cause for move in schedule.transfers)


def rate(q20_per_ns: float) -> str:
    """A rate of the engine for people."""
    return format_bandwidth(q20_per_ns * 1e9 / 2**20)
