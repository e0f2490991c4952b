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
    """Where device buffers come from; decides the host time of an allocation in eager mode."""

    MALLOC = "malloc"
    POOL = "pool"


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
    ("run_ahead", 1, _LARGEST),
    ("hbm_bytes", 1, _LARGEST),
)
"""Options that are whole numbers: name, least, most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Everything about a run that is neither the graph nor the device.

    Attributes:
        streams: Streams the host may use (S), from 1 to 4096.
        stream_priorities: Priority of each stream, 0 first; empty for all equal.
        submission: See :class:`Submission`.
        run_ahead: Most commands issued and not finished, up to 2**60; None for twice the streams.
        allocator: See :class:`Allocator`.
        window: See :class:`Window`.
        commands: Slots of the ready window (K), from 1 to 4096.
        prefetches: Slots of the prefetch window (P), up to 4096; 0 to switch prefetching off.
        objective: See :class:`Objective`.
        noise: Sigma of the lognormal factor on realised durations; 0 for none.
        invalid_penalty: Subtracted from the reward for each illegal action.
        hbm_bytes: Device memory to use instead of the device's, up to 2**60; None for the device's.
    """

    streams: int = 8
    stream_priorities: tuple[int, ...] = ()
    submission: Submission = Submission.SINK
    run_ahead: int | None = None
    allocator: Allocator = Allocator.POOL
    window: Window = Window.ISSUABLE
    commands: int = 16
    prefetches: int = 4
    objective: Objective = Objective.MAKESPAN
    noise: float = 0.0
    invalid_penalty: float = 0.01
    hbm_bytes: int | None = None

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
        if not 0.0 <= self.noise <= 2.0:
            raise InputError(f"option 'noise' is {self.noise!r}; write a sigma from 0 to 2")
        if not 0.0 <= self.invalid_penalty <= 1e6:
            raise InputError(f"option 'invalid_penalty' is {self.invalid_penalty!r}; write a number >= 0")

    @property
    def in_flight_limit(self) -> int:
        """Most commands that may be issued and not finished."""
        return 2 * self.streams if self.run_ahead is None else self.run_ahead


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is None and name in ("run_ahead", "hbm_bytes"):
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"option {name!r} is {value!r}; write a whole number of at least {least}")
    if value > most:
        limit = most if most < _LARGEST else "2**60"
        raise InputError(f"option {name!r} is {value}; write a whole number of at most {limit}")
