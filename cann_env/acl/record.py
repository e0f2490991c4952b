"""A program as a graph: what it submitted, without the streams and the order it chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.acl.memory import Space
from cann_env.acl.work import TOUCHED_BY_HOST
from cann_env.graph import Buffer, BufferKind, CommandGraph, Level
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.memory import Allocation
    from cann_env.acl.simulator import Simulator
    from cann_env.acl.work import Work

_HOST = (Space.PINNED, Space.PAGEABLE)


def record(run: Simulator, *, device: int = 0, name: str = "program") -> CommandGraph:
    """What a program gave a device to do, as a graph.

    Commands depend on each other by the memory they touch, in the order of the program; what touches none
    keeps its place in its stream. Prefetches are left out: they are decisions, not work; so is what the host
    did in between, that managed memory came back to it included.

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
    commands = []
    for work in works:
        reads, writes = _buffers(work, used)
        after = [names[j] for j in order.before(work) if j in names]
        commands.append(
            replace(
                work.command, name=names[work.index], reads=reads, writes=writes,
                after=tuple(dict.fromkeys(after)), stream_hint=None,
            )
        )  # fmt: skip
    first = _first_modes(works)
    buffers = tuple(_buffer(allocation, first[allocation.number]) for allocation in used.values())
    return CommandGraph(name, tuple(commands), buffers)


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


def _buffers(work: Work, used: dict[int, Allocation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for touch in work.touches:
        allocation = touch.range.allocation
        if allocation.space not in _HOST and allocation.size > 0:
            used[allocation.number] = allocation
            (writes if touch.writes else reads)[allocation.name] = None
    return tuple(reads), tuple(writes)


def _first_modes(works: Sequence[Work]) -> dict[int, set[bool]]:
    """How the first who touches an allocation touches it."""
    first: dict[int, set[bool]] = {}
    for work in works:
        modes: dict[int, set[bool]] = {}
        for touch in work.touches:
            modes.setdefault(touch.range.allocation.number, set()).add(touch.writes)
        for number, kinds in modes.items():
            first.setdefault(number, kinds)
    return first


def _buffer(allocation: Allocation, modes: set[bool]) -> Buffer:
    managed = allocation.space is Space.MANAGED
    level = Level.HOST if managed else Level.ABSENT if modes == {True} else Level.HBM
    return Buffer(
        name=allocation.name,
        size_bytes=allocation.size,
        kind=BufferKind.MANAGED if managed else BufferKind.DEVICE,
        level=level,
    )
