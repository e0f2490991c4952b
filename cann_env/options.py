"""How a graph is run on a device: streams, submission, windows, objective, noise."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cann_env.units import InputError


class Submission(enum.StrEnum):
    """Who pays for submitting a command.

    ``eager``: the host calls the runtime for each command and each event, at the device file's cost.
    ``sink``: the whole graph was handed over beforehand (graph mode); nothing costs host time.
    """

    EAGER = "eager"
    SINK = "sink"


class Allocator(enum.StrEnum):
    """Where device buffers come from; decides how sizes are rounded and what an allocation costs the host.

    ``malloc``: the runtime, to the device's alignment, in microseconds. ``pool``: size classes or fixed
    blocks of memory that was taken beforehand, in nanoseconds. Either places buffers by best fit.
    """

    MALLOC = "malloc"
    POOL = "pool"


class Eviction(enum.StrEnum):
    """Which managed buffer makes room: the one whose last use is longest ago, or whose next use is latest."""

    LRU = "lru"
    FURTHEST = "furthest"


class PrefetchMask(enum.StrEnum):
    """Which prefetches are legal.

    ``strict``: those that do no harm, that is evict nothing which is needed sooner than what they bring.
    ``free``: all for which there is room once everything unused is evicted, and prefetches into L2 of what is
    there already.
    """

    STRICT = "strict"
    FREE = "free"


class Window(enum.StrEnum):
    """Which commands an agent may choose from.

    ``issuable``: released commands whose predecessors have all been issued; the agent names the stream.
    ``startable``: released commands whose predecessors are done and for which a slot and cores are free this
    instant; the stream is the lowest idle one. Operands may still have to move, and a stream's gap between
    two commands may still have to pass, before such a command really starts.
    """

    ISSUABLE = "issuable"
    STARTABLE = "startable"


class Objective(enum.StrEnum):
    """What the reward sums to: the makespan, or the sum of the latencies of all requests."""

    MAKESPAN = "makespan"
    LATENCY = "latency"


_MOST_SLOTS, _LARGEST = 4096, 2**60

_RANGES = (
    ("streams", 1, _MOST_SLOTS),
    ("commands", 1, _MOST_SLOTS),
    ("prefetches", 0, _MOST_SLOTS),
    ("l2_prefetches", 0, _MOST_SLOTS),
    ("offloads", 0, _MOST_SLOTS),
    ("prefetch_streams", 1, _MOST_SLOTS),
    ("run_ahead", 1, _LARGEST),
    ("hbm_bytes", 1, _LARGEST),
    ("l2_bytes", 0, _LARGEST),
    ("l2_prefetch_bytes", 0, _LARGEST),
    ("pool_bytes", 1, _LARGEST),
    ("pool_block_bytes", 1, _LARGEST),
)
"""Options that are whole numbers: name, least, most."""

_OPTIONAL = ("run_ahead", "hbm_bytes", "l2_bytes", "l2_prefetch_bytes", "pool_bytes", "pool_block_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Everything about a run that is neither the graph nor the device.

    Attributes:
        streams: Streams the host may use (S), from 1 to 4096.
        stream_priorities: Priority of each stream, 0 first; empty for all equal.
        submission: See :class:`Submission`.
        run_ahead: Most commands issued and not finished, up to 2**60; None for twice the streams.
        allocator: See :class:`Allocator`.
        pool_bytes: Size of a pool that is taken from each die's memory before the run, beside device buffers
            that lie there already, up to 2**60; None for one that grows and shrinks.
        pool_block_bytes: The pool hands out multiples of this; None for size classes.
        eviction: See :class:`Eviction`.
        window: See :class:`Window`.
        commands: Slots of the ready window (K), from 1 to 4096.
        prefetches: Slots for prefetches from the host into HBM, up to 4096; 0 to switch them off.
        l2_prefetches: Slots for prefetches from HBM into L2.
        offloads: Slots for moving managed buffers from HBM to the host ahead of need.
        prefetch_streams: Prefetches of one kind that move at once; more wait in line.
        prefetch_mask: See :class:`PrefetchMask`.
        objective: See :class:`Objective`.
        noise: Sigma of the lognormal factor on realised durations; 0 for none.
        invalid_penalty: Subtracted from the reward for each illegal action.
        hbm_bytes: Memory of a die to use instead of the device's, up to 2**60; None for the device's.
        memory_factor: Memory of a die as a multiple of what the graph needs to keep every buffer from its
            first to its last use in program order; None to take ``hbm_bytes``.
        l2_bytes: L2 of a die to use instead of the device's; 0 for none, None for the device's.
        l2_prefetch_bytes: Most bytes that one prefetch lifts into L2; None for the device's cap.
        stream_dies: Home die of each stream; empty to take dies in turn.
    """

    streams: int = 8
    stream_priorities: tuple[int, ...] = ()
    submission: Submission = Submission.SINK
    run_ahead: int | None = None
    allocator: Allocator = Allocator.POOL
    pool_bytes: int | None = None
    pool_block_bytes: int | None = None
    eviction: Eviction = Eviction.FURTHEST
    window: Window = Window.ISSUABLE
    commands: int = 16
    prefetches: int = 4
    l2_prefetches: int = 4
    offloads: int = 0
    prefetch_streams: int = 1
    prefetch_mask: PrefetchMask = PrefetchMask.STRICT
    objective: Objective = Objective.MAKESPAN
    noise: float = 0.0
    invalid_penalty: float = 0.01
    hbm_bytes: int | None = None
    memory_factor: float | None = None
    l2_bytes: int | None = None
    l2_prefetch_bytes: int | None = None
    stream_dies: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            _within(name, getattr(self, name), least, most)
        if self.stream_priorities and len(self.stream_priorities) != self.streams:
            raise InputError(
                f"option 'stream_priorities' has {len(self.stream_priorities)} entries; "
                f"write one for each of the {self.streams} streams, or none"
            )
        if any(not 0 <= p <= 7 for p in self.stream_priorities):
            raise InputError(
                f"option 'stream_priorities' is {list(self.stream_priorities)}; priorities go from 0 to 7"
            )
        if self.stream_dies and len(self.stream_dies) != self.streams:
            raise InputError(
                f"option 'stream_dies' has {len(self.stream_dies)} entries; "
                f"write one for each of the {self.streams} streams, or none"
            )
        if self.memory_factor is not None and not 0.0 < self.memory_factor <= 1e6:
            raise InputError(f"option 'memory_factor' is {self.memory_factor!r}; write a number > 0")
        if self.memory_factor is not None and self.hbm_bytes is not None:
            raise InputError(
                f"options 'memory_factor' ({self.memory_factor}) and 'hbm_bytes' ({self.hbm_bytes}) both set "
                "the memory; write one of them"
            )
        if not 0.0 <= self.noise <= 2.0:
            raise InputError(f"option 'noise' is {self.noise!r}; write a sigma from 0 to 2")
        if not 0.0 <= self.invalid_penalty <= 1e6:
            raise InputError(f"option 'invalid_penalty' is {self.invalid_penalty!r}; write a number >= 0")

    @property
    def slots(self) -> int:
        """All slots of the prefetch window (P): host to HBM, then HBM to L2, then HBM to host."""
        return self.prefetches + self.l2_prefetches + self.offloads

    @property
    def in_flight_limit(self) -> int:
        """Most commands that may be issued and not finished."""
        return 2 * self.streams if self.run_ahead is None else self.run_ahead


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"option {name!r} is {value!r}; write a whole number of at least {least}")
    if value > most:
        limit = most if most < _LARGEST else "2**60"
        raise InputError(f"option {name!r} is {value}; write a whole number of at most {limit}")
