"""What a program submitted: pieces of work on streams, and what the host did."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.kernels import Part
    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.objects import Signal
    from cann_env.acl.state.order import Clock
    from cann_env.commands import Command


class Way(enum.StrEnum):
    """Where a prefetch brings memory: from the host to the device, from there into the cache, or back."""

    PREFETCH = "prefetch"
    LIFT = "lift"
    OFFLOAD = "offload"


TOUCHED_BY_HOST: Final = "touched by the host"
"""In place of a call: managed memory came back because the host touched it."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Memory that a piece of work touches.

    Attributes:
        range: From the first byte to the last.
        writes: Whether it changes it.
        rows: Distance and length of the pieces of it that are touched; None if all of it is.
    """

    range: Range
    writes: bool
    rows: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Work:
    """One entry of a stream's queue.

    Attributes:
        index: In the program's log.
        call: The call that submitted it.
        device: Number of the device.
        stream: Handle.
        position: On its stream.
        command: What the engine runs; its name, order and buffers are filled in when it does.
        waits: Indices of work on other streams that events make it wait for.
        submitted_ns: When the call ended.
        touches: What it reads and writes.
        host: What the host had seen done when it submitted it.
        previous: Index of the work before it on its stream; -1 for none.
        begin, end: What happens to the bytes when it starts and when it ends.
        site: Line of the program.
        prefetch: A move of memory between levels: what, and which way; None for others.
        label: For people.
        start_ns, finish_ns: When it ran; -1 while that is not known.
        begun, ended: Its effects have happened.
        signals: Waits for what was not recorded when it was submitted.
        at_once: A prefetch that nothing in its stream comes before.
        told: What else is done when it is: a callback that a stream waits for knows what its thread did.
        launched: For work of a graph, the line and the stream that the graph was launched on, and the stream
            that was captured.
        others_ns: When the work of other devices that it waits for has ended, as far as that is known.
        loose: Those of ``waits`` that only notifies make it wait for.
        kernels: As they were launched: stand-in, blocks, arguments; and memory by argument.
        reuse: Those of ``waits`` that are there because memory is used again, and for nothing else.
        value: What memory is set to.
        shape: Of a copied rectangle: pitches of target and source, width, height.
    """

    index: int
    call: str
    device: int
    stream: int
    position: int
    command: Command
    waits: tuple[int, ...]
    submitted_ns: int
    touches: tuple[Touch, ...] = ()
    host: Clock = field(default_factory=dict)
    previous: int = -1
    begin: Callable[[], None] | None = None
    end: Callable[[], None] | None = None
    site: str = ""
    prefetch: tuple[Range, Way] | None = None
    label: str = ""
    start_ns: int = -1
    finish_ns: int = -1
    begun: bool = False
    ended: bool = False
    signals: list[Signal] = field(default_factory=list)
    at_once: bool = False
    told: Clock = field(default_factory=dict)
    loose: frozenset[int] = frozenset()
    others_ns: int = 0
    launched: tuple[str, int, int] | None = None
    kernels: tuple[tuple[Part, dict[int, Range]], ...] = ()
    reuse: frozenset[int] = frozenset()
    value: int | None = None
    shape: tuple[int, ...] = ()

    @property
    def all_waits(self) -> tuple[int, ...]:
        """Work it waits for, that of records which came later included."""
        later = [index for signal in self.signals for index in signal.after or ()]
        return (*self.waits, *later)

    @property
    def firm_waits(self) -> tuple[int, ...]:
        """The same without what only notifies make it wait for."""
        later = [index for signal in self.signals if not signal.notify for index in signal.after or ()]
        return (*(index for index in self.waits if index not in self.loose), *later)

    @property
    def ready_ns(self) -> int:
        """Not before it was submitted, nor before what it waits for was recorded."""
        return max([self.submitted_ns, self.others_ns, *(signal.at_ns for signal in self.signals)])


@dataclass(frozen=True, slots=True)
class HostCall:
    """Time of the host thread: one call of the interface."""

    call: str
    start_ns: int
    end_ns: int
    site: str
    code: int
