"""How a graph is run on a device: streams, submission, windows, objective, noise."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import cast

from cann_env.spelling import did_you_mean
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

_WORDS: dict[str, type[enum.StrEnum]] = {
    "submission": Submission,
    "allocator": Allocator,
    "eviction": Eviction,
    "window": Window,
    "prefetch_mask": PrefetchMask,
    "objective": Objective,
}

_NUMBERS = (
    ("memory_factor", 1e6, "a number above 0"),
    ("noise", 2.0, "a sigma from 0"),
    ("invalid_penalty", 1e6, "a number from 0"),
)
"""Options that are numbers: name, most, what to write."""

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
        """Check every option; words and numpy's numbers become what the fields hold."""
        for name, members in _WORDS.items():
            object.__setattr__(self, name, _member(name, getattr(self, name), members))
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if not isinstance(value, bool) and isinstance(value, Integral):
                object.__setattr__(self, name, int(value))
            _within(name, getattr(self, name), least, most)
        for name in ("stream_priorities", "stream_dies"):
            object.__setattr__(self, name, _whole_numbers(name, getattr(self, name)))
        for name, limit, what in _NUMBERS:
            object.__setattr__(self, name, _number(name, getattr(self, name), limit, what))
        self._check_streams()
        self._check_memory()

    def _check_streams(self) -> None:
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

    def _check_memory(self) -> None:
        if self.memory_factor == 0.0:
            raise InputError("option 'memory_factor' is 0.0; write a number above 0 to 1e+06")
        if self.memory_factor is not None and self.hbm_bytes is not None:
            raise InputError(
                f"options 'memory_factor' ({self.memory_factor}) and 'hbm_bytes' ({self.hbm_bytes}) both set "
                "the memory; write one of them"
            )
        for name in ("pool_bytes", "pool_block_bytes"):
            value = getattr(self, name)
            if value is not None and self.allocator is Allocator.MALLOC:
                raise InputError(
                    f"option {name!r} is {value}, but 'allocator' is 'malloc', which has no pool; write "
                    "allocator = 'pool', or leave it out"
                )

    @property
    def slots(self) -> int:
        """All slots of the prefetch window (P): host to HBM, then HBM to L2, then HBM to host."""
        return self.prefetches + self.l2_prefetches + self.offloads

    @property
    def in_flight_limit(self) -> int:
        """Most commands that may be issued and not finished."""
        return 2 * self.streams if self.run_ahead is None else self.run_ahead


def _member(name: str, value: object, members: type[enum.StrEnum]) -> enum.StrEnum:
    if not isinstance(value, str) or value not in tuple(members):
        words = ", ".join(repr(str(member)) for member in members)
        near = did_you_mean(value, members)
        raise InputError(f"option {name!r} is {value!r}; {near}write one of {words}")
    return members(value)


def _whole_numbers(name: str, values: object) -> tuple[int, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InputError(f"option {name!r} is {values!r}; write a list of whole numbers, one for each stream")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InputError(f"option {name!r} holds {value!r}; write whole numbers")
    return tuple(int(value) for value in values)


def _number(name: str, value: object, most: float, what: str) -> float | None:
    if value is None and name == "memory_factor":
        return None
    number = -1.0 if isinstance(value, bool) or not isinstance(value, Real) else cast("float", value)
    if not 0.0 <= number <= most:
        raise InputError(f"option {name!r} is {value!r}; write {what} to {most:g}")
    return float(number)


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"option {name!r} is {value!r}; write a whole number of at least {least}")
    if value > most:
        limit = most if most < _LARGEST else "2**60"
        raise InputError(f"option {name!r} is {value}; write a whole number of at most {limit}")
