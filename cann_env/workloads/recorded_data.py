"""Dependencies by data, guessed: a reader waits for the last writer of a tensor of its shape and type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.graph import Buffer, Command, CommandGraph, Level
from cann_env.profiles.recording import Verdict
from cann_env.workloads.recorded_commands import size_of
from cann_env.workloads.recorded_graph import Written
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Operand
    from cann_env.profiles.recording import Report

_KEPT = (Role.WORK, Role.PEER)
_Tensor = tuple[tuple[int, ...], str]


class _Tensors:
    """Buffers of the tensors that were seen so far, each writing of one a buffer of its own."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._last: dict[_Tensor, str] = {}

    def read(self, operands: Sequence[Operand]) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for operand in operands:
            if size_of(operand):
                key = operand.shape, operand.dtype
                names[self._last.get(key) or self._new(operand, Level.HBM)] = None
        return tuple(names)

    def write(self, operands: Sequence[Operand]) -> tuple[str, ...]:
        return tuple([self._new(operand, Level.ABSENT) for operand in operands if size_of(operand)])

    def _new(self, operand: Operand, level: Level) -> str:
        shape = "x".join(map(str, operand.shape)) or "scalar"
        name = f"{operand.dtype or 'tensor'} {shape} #{len(self.buffers)}"
        self.buffers.append(Buffer(name=name, size_bytes=size_of(operand), level=level))
        self._last[operand.shape, operand.dtype] = name
        return name


class _Streams:
    """What each stream has run so far: commands whose data are known, and those that all others wait for."""

    def __init__(self, commands: Sequence[Command]) -> None:
        hints = {command.name: command.stream_hint for command in commands}
        self._cross = {
            command.name: [name for name in command.after if hints[name] != command.stream_hint]
            for command in commands
        }
        self._awaited = {name for names in self._cross.values() for name in names}
        self._stands_for: dict[str, tuple[str, ...]] = {}
        self._barrier: dict[int | None, dict[str, None]] = {hint: {} for hint in hints.values()}
        self._open: dict[int | None, list[str]] = {hint: [] for hint in hints.values()}

    def before(self, command: Command, *, everything: bool) -> tuple[str, ...]:
        """What a command waits for on its stream and on others; all that ran on it, if wanted."""
        barrier = self._barrier[command.stream_hint]
        for name in self._cross[command.name]:
            barrier.update(dict.fromkeys(self._stands_for[name]))
        own = self._open[command.stream_hint] if everything else []
        return tuple(dict.fromkeys([*barrier, *own]))

    def add(self, command: Command, *, runs: bool, alone: bool) -> None:
        """A command takes its place; ``alone`` if everything later on its stream waits for it."""
        hint = command.stream_hint
        if runs and alone:
            self._barrier[hint], self._open[hint] = {command.name: None}, []
        elif runs:
            self._open[hint].append(command.name)
        if command.name in self._awaited:
            self._stands_for[command.name] = (*self._barrier[hint], *self._open[hint])


def by_data(graph: CommandGraph, written: Written, report: Report) -> tuple[CommandGraph, Written]:
    """A graph in which kernels wait for data, not for their stream.

    Kernels whose tensors are known read and write buffers. All other commands, whose data nobody knows, keep
    their place: they wait for all that stood before them on their stream, and all that comes later there
    waits for them. Edges between streams stay. Delays and gaps of the profiler are left out.
    """
    tensors, streams = _Tensors(), _Streams(written.commands)
    kept = Written([], [], [])
    for command, entry, role in zip(written.commands, written.entries, written.roles, strict=True):
        kernel = command.kernels[0] if command.kernels else None
        known = kernel is not None and bool(kernel.inputs or kernel.outputs)
        before = streams.before(command, everything=not known)
        streams.add(command, runs=role in _KEPT, alone=not known)
        if role not in _KEPT:
            continue
        placed = replace(command, after=before)
        if kernel is not None and known:
            reads, writes = tensors.read(kernel.inputs), tensors.write(kernel.outputs)
            placed = replace(placed, reads=reads, writes=writes)
            report.note(Verdict.GUESSED, "reads of tensors, by shape and type", count=len(reads))
        kept.commands.append(placed)
        kept.entries.append(entry)
        kept.roles.append(role)
    return CommandGraph(graph.name, tuple(kept.commands), tuple(tensors.buffers)), kept
