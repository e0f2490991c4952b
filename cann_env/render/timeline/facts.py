"""What is to be said of each command beside its times: bytes, and where its operands came from."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from cann_env.commands import CommandKind, CopyKind, Level
from cann_env.render.rows import command_classes, kernel_spans

if TYPE_CHECKING:
    from cann_env.commands import Command
    from cann_env.schedule import Schedule, TransferRun


class Operand(NamedTuple):
    """A buffer that a command reads.

    ``origin`` is ``command`` (``producer`` wrote it), ``fault`` or ``prefetch`` (it was moved from the host,
    until ``arrived_ns``), ``hbm`` or ``host`` (it lay there from the start).
    """

    buffer: int
    origin: str
    producer: int | None
    arrived_ns: int | None


class Facts(NamedTuple):
    """What a command is, by its index.

    ``work_class`` is the class that it mostly ran as; ``read_bytes`` and ``written_bytes`` are what its
    kernels or its copy move, ``l2_bytes`` the part of its operands that was found in L2.
    """

    work_class: str
    blocks: int
    read_bytes: int
    written_bytes: int
    l2_bytes: int
    operands: tuple[Operand, ...]


def facts(schedule: Schedule) -> tuple[Facts, ...]:
    """The facts of each command of a schedule, by its index."""
    classes = command_classes(kernel_spans(schedule.blocks))
    found: dict[int, int] = defaultdict(int)
    for hit in schedule.hits:
        found[hit.command] += hit.hit_bytes
    operands = _operands(schedule)
    rows = []
    for i, command in enumerate(schedule.graph.commands):
        read, written = _bytes(command)
        blocks = sum(kernel.blocks for kernel in command.kernels) if command.kernels else 1
        rows.append(Facts(classes.get(i, command.kind.value), blocks, read, written, found[i], operands[i]))
    return tuple(rows)


def _bytes(command: Command) -> tuple[int, int]:
    """Bytes that a command reads from device memory and writes to it."""
    if command.kind is CommandKind.COPY:
        into, out_of = command.copy is not CopyKind.D2H, command.copy is not CopyKind.H2D
        return command.size_bytes * out_of, command.size_bytes * into
    return (
        sum(kernel.bytes_read for kernel in command.kernels),
        sum(kernel.bytes_written for kernel in command.kernels),
    )


def _operands(schedule: Schedule) -> list[tuple[Operand, ...]]:
    """Where the operands of each command came from last before it started."""
    graph = schedule.graph
    arrivals: dict[int, list[TransferRun]] = defaultdict(list)
    for move in schedule.transfers:
        if move.cause in ("fault", "prefetch"):
            arrivals[move.buffer].append(move)
    runs = sorted(schedule.commands)
    writer: dict[str, int] = {}
    rows = []
    for i, command in enumerate(graph.commands):
        found = []
        for name in dict.fromkeys(command.reads):
            b = graph.buffer_index[name]
            moves = [move for move in arrivals.get(b, ()) if move.finish_ns <= runs[i].start_ns]
            wrote = writer.get(name)
            since = runs[wrote].finish_ns if wrote is not None else 0
            if moves and moves[-1].finish_ns >= since:
                found.append(Operand(b, moves[-1].cause, wrote, moves[-1].finish_ns))
            elif wrote is not None:
                found.append(Operand(b, "command", wrote, None))
            else:
                level = graph.buffers[b].level
                found.append(Operand(b, "host" if level is Level.HOST else "hbm", None, None))
        rows.append(tuple(found))
        writer.update(dict.fromkeys(command.writes, i))
    return rows
