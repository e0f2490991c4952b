"""Who ran where and when: the finished :class:`Schedule`; :mod:`cann_env.metrics` reads figures off it.

Rows are plain integers (nanoseconds, bytes, indices into the graph), in the order things started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

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


FAR: Final = 1 << 62
"""In place of a time: not before the run was over."""


class TransferRun(NamedTuple):
    """A buffer that moved between levels, or came to be or ceased to be in HBM; ``cause`` says how.

    ============= ======================================================================================
    cause         meaning
    ============= ======================================================================================
    ``fault``     migrates from the host because a command touches it; space is held from ``reserve_ns``
    ``prefetch``  the same because it was asked for beforehand
    ``touch``     takes space, at one instant, because a command is about to write all of it
    ``evict``     makes room at one instant: the host's copy is good
    ``writeback`` makes room: chosen at ``reserve_ns``, copied to the host, space given back at ``finish_ns``
    ``free``      gives its space back at one instant: nobody needs it any more
    ``lift``      ``size_bytes`` of it are copied from HBM into L2
    ============= ======================================================================================

    What was still under way when the last command finished, a write-back or a lift, has :data:`FAR` as
    ``finish_ns``; if it waited for its turn, as ``start_ns`` too, and a lift then as ``reserve_ns`` as well.
    """

    buffer: int
    cause: str
    reserve_ns: int
    start_ns: int
    finish_ns: int
    size_bytes: int = 0


class Allocation(NamedTuple):
    """Where a device buffer lay in the address space of its home die.

    ``command`` is the first writer: the place is chosen when it is issued (``issue_ns``), the bytes are there
    from ``grant_ns`` (later only where something was still being written back) and given back at ``free_ns``,
    when the last user has finished (:data:`FAR` where a lift kept it to the end). ``size_bytes`` is what the
    allocator took, rounding included.
    """

    buffer: int
    command: int
    address: int
    size_bytes: int
    issue_ns: int
    grant_ns: int
    free_ns: int


class CacheHit(NamedTuple):
    """What the kernel of a command found in L2 when it started: bytes of the operands it reads."""

    command: int
    kernel: int
    at_ns: int
    hit_bytes: int


class EventWait(NamedTuple):
    """``consumer``'s stream waits for an event recorded right behind ``producer``."""

    producer: int
    consumer: int


class HostCall(NamedTuple):
    """Time of the host thread.

    ``call`` is ``issue``, ``prefetch``, ``lift``, ``offload`` or ``wait``; ``target`` a command, a buffer or
    -1. In the timeline of a program ``call`` is also any other call, which has no target.
    """

    call: str
    target: int
    start_ns: int
    end_ns: int


class Waiting(NamedTuple):
    """A command at the front of its stream waited for one thing.

    ``cause`` is one of the first five of :class:`Stall`; the rows of a cause sum to its field there.
    """

    command: int
    cause: str
    start_ns: int
    finish_ns: int


class Stall(NamedTuple):
    """Waiting time summed over commands, by cause (ns).

    The first five are what a head at the front of its stream was waiting for; ``host`` is how long a command
    whose predecessors were done, and which was released, had not been submitted.
    """

    event: int
    fault: int
    slot: int
    cores: int
    dma: int
    host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What remains of a run.

    Attributes:
        graph, device, options: What was run, on what, and how.
        actions: The decisions that made it, in order; replaying them makes the same schedule.
        commands: One row a command, in order of start.
        blocks: See :class:`BlockRun`.
        transfers: See :class:`TransferRun`.
        allocations: Where each device buffer lay that some command allocated.
        hits: Kernels that found something in L2.
        waiting: What heads of streams waited for, by time; empty in a schedule that was not simulated.
        waits: Event waits that were really submitted (implied ones are pruned), those for the reuse of memory
            included.
        host: What the host thread did.
        stall: Sums of waiting by cause.
        lower_bound_ns: The bound at time zero, for expected durations.
        peak_hbm_bytes: Most HBM of one die reserved at one instant.
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
    allocations: tuple[Allocation, ...] = ()
    hits: tuple[CacheHit, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def makespan_ns(self) -> int:
        """When the last command finished."""
        return max(run.finish_ns for run in self.commands)

    def demand_of(self, row: BlockRun) -> Mapping[str, int]:
        """What each block of a row holds, by pool: what its kernel states, or else what its class takes."""
        kernels = self.graph.commands[row.command].kernels
        own = kernels[row.kernel].demand if kernels else None
        return self.device.classes[row.work_class].demand if own is None else dict(own)
