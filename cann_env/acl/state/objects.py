"""Contexts, streams, events and notifies: what handles stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.capture import Capture
    from cann_env.acl.state.order import Clock


@dataclass(slots=True, eq=False)
class Context:
    """A context of a device: the streams made in it belong to it.

    Attributes:
        handle: As the program knows it.
        device: Number of the device.
        default_stream: Handle of the stream that a null stream means.
        implicit: Made by ``set_device``, not by the program.
        failure_mode: See ``set_stream_failure_mode``.
        site: Where it was made.
    """

    handle: int
    device: int
    default_stream: int
    implicit: bool
    failure_mode: int = 0
    site: str = ""


@dataclass(slots=True, eq=False)
class Stream:
    """A stream.

    Attributes:
        handle: As the program knows it.
        context: Handle of its context.
        device: Number of the device.
        priority: 0 first.
        flags: As given.
        site: Where it was made.
        default: It is the default stream of its context.
        work: Indices of its work so far.
        pending: Work that events make its next piece of work wait for.
        unresolved: Events and notifies, not yet recorded, that its next piece of work waits for.
        cores: Limits of cores by kind, for kernels launched on it.
        capture: The capture it takes part in; None for none.
        failure_mode: See ``set_stream_failure_mode``.
        thread: Id of the thread that handles its callbacks; 0 for none.
        inner: Pieces of its work that take no entry of its queue.
        known: What the hosts had seen that made the records its next piece of work waits for.
        waits: How many waits were put in it.
        loose: Those of ``pending`` that only notifies put there.
        hidden: The program does not know it.
        die: Home die; -1 if the program did not say.
        reuse: Work among ``pending`` that is waited for because memory is used again, and for nothing else.
    """

    handle: int
    context: int
    device: int
    priority: int = 0
    flags: int = 0
    site: str = ""
    default: bool = False
    work: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    unresolved: list[Signal] = field(default_factory=list)
    cores: dict[int, int] = field(default_factory=dict)
    capture: Capture | None = None
    failure_mode: int = 0
    thread: int = 0
    inner: int = 0
    known: Clock = field(default_factory=dict)
    waits: int = 0
    loose: set[int] = field(default_factory=set)
    hidden: bool = False
    die: int = -1
    reuse: set[int] = field(default_factory=set)

    @property
    def tail(self) -> list[int]:
        """Work that is done when all of the stream is: the last piece, and what a next one waits for."""
        later = [index for signal in self.unresolved for index in signal.after or ()]
        return [*self.pending, *later, *self.work[-1:]]


@dataclass(frozen=True, slots=True)
class Record:
    """What an event recorded.

    Attributes:
        stream: Where.
        after: Work that must be done.
        at_ns: When the call ended.
        site: Where in the program.
        number: Counts records of all events, in order.
        known: What the host had seen done, and what the stream had passed.
    """

    stream: int
    after: tuple[int, ...]
    at_ns: int
    site: str
    number: int
    known: Clock = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Signal:
    """A wait for something that is not recorded yet: resolved by the next record.

    Attributes:
        owner: Handle of the event or notify.
        stream: Who waits.
        site: Where in the program.
        after: Work that the record turned out to stand behind; None until then.
        known: What the record knew.
        at_ns: When it was made.
        notify: It is a notify.
    """

    owner: int
    stream: int
    site: str
    after: tuple[int, ...] | None = None
    known: Clock = field(default_factory=dict)
    at_ns: int = 0
    notify: bool = False


@dataclass(slots=True, eq=False)
class Event:
    """An event.

    Attributes:
        handle: As the program knows it.
        flags: As given.
        legacy: Made by ``create_event``, with the older rules.
        site: Where it was made.
        record: The latest one; None before the first, or after a reset.
        waiting: Waits that no record has met yet.
        waits: Every wait: stream, site, number of the record it bound to (-1 for none), and which of the
            waits of its stream it is.
        capture: The capture in which it was last recorded, and behind which pieces of it; None for none.
        first: The first record it ever had.
    """

    handle: int
    flags: int
    legacy: bool
    site: str
    record: Record | None = None
    waiting: list[Signal] = field(default_factory=list)
    waits: list[tuple[int, str, int, int]] = field(default_factory=list)
    capture: tuple[Capture, tuple[int, ...]] | None = None
    first: Record | None = None


@dataclass(slots=True, eq=False)
class Notify:
    """A notify: each record lets one wait pass.

    Attributes:
        handle: As the program knows it.
        device: Number of the device.
        site: Where it was made.
        records: Those that no wait has used up.
        waiting: Waits that no record has met yet.
        holder: Stream that used up the last record, as the holder of a resource; 0 for none.
    """

    handle: int
    device: int
    site: str
    records: list[Record] = field(default_factory=list)
    waiting: list[Signal] = field(default_factory=list)
    holder: int = 0


@dataclass(slots=True, eq=False)
class Callback:
    """A function of the program that a stream calls."""

    function: Callable[..., Any]
    argument: object
    thread: int
