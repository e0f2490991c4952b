"""Who ran where and when: the finished :class:`Schedule` and the figures people read off it.

Rows are plain integers (nanoseconds, bytes, indices into the graph), in the order things started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions


class CommandRun(NamedTuple):
    """One command: its stream, its place in that stream's queue, and its times."""

    command: int
    stream: int
    position: int
    issue_ns: int
    start_ns: int
    finish_ns: int


class BlockRun(NamedTuple):
    """Blocks of one kernel that started together.

    ``kernel`` counts within the command (0 for copies, callbacks and collectives); ``work_class`` is one of
    ``device.spec.CLASSES``, the class it really ran as; each block occupies that class's demand from
    ``start_ns`` to ``finish_ns``. ``kernel_start_ns`` is when the first blocks of this kernel started.
    """

    command: int
    kernel: int
    work_class: str
    blocks: int
    die: int
    start_ns: int
    finish_ns: int
    kernel_start_ns: int


class TransferRun(NamedTuple):
    """A managed buffer that moved: ``cause`` is ``fault``, ``prefetch`` or ``evict``.

    Space in HBM is taken from ``reserve_ns`` (fault and prefetch); an eviction of a clean buffer takes no
    time.
    """

    buffer: int
    cause: str
    reserve_ns: int
    start_ns: int
    finish_ns: int


class EventWait(NamedTuple):
    """``consumer``'s stream waits for an event recorded right behind ``producer``."""

    producer: int
    consumer: int


class HostCall(NamedTuple):
    """Time of the host thread.

    ``call`` is ``issue``, ``prefetch`` or ``wait``; ``target`` a command, a buffer or -1.
    """

    call: str
    target: int
    start_ns: int
    end_ns: int


class Stall(NamedTuple):
    """Waiting time summed over commands, by what a head at the front of its stream was waiting for (ns)."""

    event: int
    fault: int
    slot: int
    cores: int
    dma: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What remains of a run.

    Attributes:
        graph, device, options: What was run, on what, and how.
        actions: The decisions that made it, in order; replaying them makes the same schedule.
        commands: One row a command, in order of start.
        blocks: See :class:`BlockRun`.
        transfers: See :class:`TransferRun`.
        waits: Event waits that were really submitted (implied ones are pruned).
        host: What the host thread did.
        stall: Sums of waiting by cause.
        lower_bound_ns: The bound at time zero, for expected durations.
        peak_hbm_bytes: Most HBM reserved at one instant.
        noise: Factor on each command's duration, in units of 2**-20 (all 2**20 without noise).
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    actions: tuple[int, ...]
    commands: tuple[CommandRun, ...]
    blocks: tuple[BlockRun, ...]
    transfers: tuple[TransferRun, ...]
    waits: tuple[EventWait, ...]
    host: tuple[HostCall, ...]
    stall: Stall
    lower_bound_ns: int
    peak_hbm_bytes: int
    noise: tuple[int, ...]

    @property
    def makespan_ns(self) -> int:
        """When the last command finished."""
        return max(run.finish_ns for run in self.commands)
