"""A program as a graph: what it submitted, without the streams and the order it chose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import TOUCHED_BY_HOST
from cann_env.graph import Buffer, BufferKind, CommandGraph, HostMemory, Level
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.memory import Allocation, Range
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work
    from cann_env.graph import Scheme

_HOST = (Space.PINNED, Space.PAGEABLE)


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of some memory, by its name."""

    memory: str
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class LaunchOf:
    """A kernel as a program launched it: its name, blocks, arguments, and how its blocks start."""

    kernel: str
    blocks: int
    args: tuple[Any, ...]
    scheme: Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOf:
    """The call behind a command.

    Attributes:
        call: As the program made it.
        launches: Kernels, those of a fused command in order.
        places: What it touches: of a copy where it reads, then where it writes.
        value: What memory was set to.
        shape: Of a copied rectangle: pitches of target and source, width, height.
    """

    call: str
    launches: tuple[LaunchOf, ...] = ()
    places: tuple[Place, ...] = ()
    value: int | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Memory of the host that copies read or write."""

    name: str
    size: int
    pinned: bool


@dataclass(frozen=True)
class RecordedGraph(CommandGraph):
    """A graph that came of a program.

    Args:
        calls: The call behind each command, so that the graph can become a program again.
        host: Memory of the host that they touch.
    """

    calls: tuple[CallOf, ...] = field(default=(), compare=False)
    host: tuple[HostPlace, ...] = field(default=(), compare=False)


def record(run: Simulator, *, device: int = 0, name: str = "program") -> RecordedGraph:
    """What a program gave a device to do, as a graph.

    Commands depend on each other by the memory they touch, in the order of the program; what touches none
    (callbacks among it) keeps its place in its stream, and behind the events that stream waited for.
    Prefetches are left out: they are decisions, not work; so is what the host did in between, that managed
    memory came back to it included.

    Args:
        run: The run.
        device: Number of the device.
        name: Of the graph.

    Raises:
        InputError: The program gave the device nothing to do.
    """
    works = [
        work
        for work in run.log
        if work.device == device and work.prefetch is None and work.call != TOUCHED_BY_HOST
    ]
    if not works:
        raise InputError(f"the program submitted no work to device {device}; there is nothing to record")
    names = {work.index: f"{i}:{work.label or work.call}" for i, work in enumerate(works)}
    order = _Order()
    used: dict[int, Allocation] = {}
    host: dict[int, Allocation] = {}
    commands = []
    for work in works:
        reads, writes = _buffers(work, used, host)
        after = [names[j] for j in order.before(work) if j in names]
        commands.append(
            replace(
                work.command, name=names[work.index], reads=reads, writes=writes,
                after=tuple(dict.fromkeys(after)), stream_hint=None, host_memory=_side(work),
            )
        )  # fmt: skip
    first = _first_modes(works)
    buffers = tuple(_buffer(allocation, first[allocation.number]) for allocation in used.values())
    return RecordedGraph(
        name,
        tuple(commands),
        buffers,
        calls=tuple(map(_call_of, works)),
        host=tuple(HostPlace(a.name, a.size, a.space is Space.PINNED) for a in host.values()),
    )


class _Order:
    """Edges that no buffer of the graph tells: by host memory, and around work that touches nothing."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._opaque: dict[int, int] = {}

    def before(self, work: Work) -> list[int]:
        found: list[int] = []
        for touch in work.touches:
            if touch.range.allocation.space not in _HOST:
                continue
            number = touch.range.allocation.number
            if number in self._writer:
                found.append(self._writer[number])
            if touch.writes:
                found += self._readers.pop(number, [])
                self._writer[number] = work.index
            else:
                self._readers.setdefault(number, []).append(work.index)
        if work.stream in self._opaque:
            found.append(self._opaque.pop(work.stream))
        if not work.touches:
            found += [j for j in (work.previous, *work.all_waits) if j >= 0]
            self._opaque[work.stream] = work.index
        return [j for j in found if j != work.index]


def _side(work: Work) -> HostMemory:
    """The host's side of a copy: pageable memory blocks the host."""
    spaces = {touch.range.allocation.space for touch in work.touches}
    pageable = work.command.copy is not None and Space.PAGEABLE in spaces
    return HostMemory.PAGEABLE if pageable else HostMemory.PINNED


def _call_of(work: Work) -> CallOf:
    """What a program called, from what its work remembers."""
    places = tuple(_place(touch.range) for touch in work.touches)
    launches = tuple(
        LaunchOf(
            part.model.name,
            kernel.blocks,
            tuple(_place(ranges[i]) if i in ranges else given for i, given in enumerate(part.args)),
            kernel.scheme,
        )
        for (part, ranges), kernel in zip(work.kernels, work.command.kernels, strict=False)
    )
    return CallOf(call=work.call, launches=launches, places=places, value=work.value, shape=work.shape)


def _place(memory: Range) -> Place:
    return Place(memory.allocation.name, memory.first, memory.size)


def _buffers(
    work: Work, used: dict[int, Allocation], host: dict[int, Allocation]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for touch in work.touches:
        allocation = touch.range.allocation
        if allocation.space in _HOST:
            host[allocation.number] = allocation
        elif allocation.size > 0:
            used[allocation.number] = allocation
            (writes if touch.writes else reads)[allocation.name] = None
    return tuple(reads), tuple(writes)


def _first_modes(works: Sequence[Work]) -> dict[int, set[bool]]:
    """How the first who touches an allocation touches it: only to write all of it, or otherwise."""
    first: dict[int, set[bool]] = {}
    for work in works:
        modes: dict[int, set[bool]] = {}
        for touch in work.touches:
            whole = touch.range.size == touch.range.allocation.size
            modes.setdefault(touch.range.allocation.number, set()).add(touch.writes and whole)
        for number, kinds in modes.items():
            first.setdefault(number, kinds)
    return first


def _buffer(allocation: Allocation, modes: set[bool]) -> Buffer:
    managed = allocation.space is Space.MANAGED
    absent = modes == {True} and not managed
    level = Level.HOST if managed else Level.ABSENT if absent else Level.HBM
    return Buffer(
        name=allocation.name,
        size_bytes=allocation.size,
        kind=BufferKind.MANAGED if managed else BufferKind.DEVICE,
        level=level,
    )
