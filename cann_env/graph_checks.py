"""What makes a graph sound: every check that :class:`~cann_env.graph.CommandGraph` runs when it is made.

Commands and buffers go in, an :class:`~cann_env.units.InputError` comes out or nothing. Each message names
the graph, the object, the value, and what would be right.

Graphs are made by the thousand and almost all are sound. So each object is first asked in one expression
whether it plainly is (``_is_plain_...``), and only of the others is every field looked at, for the message.
What is not plain may still be sound, for example a number of a type derived from int.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.commands import (
    Buffer,
    BufferKind,
    Command,
    CommandKind,
    CopyKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
    Operand,
    Scheme,
)
from cann_env.units import InputError

if TYPE_CHECKING:
    import enum
    from collections.abc import Sequence

LONGEST_NS = 2**50
"""The latest release and the longest duration."""

_LARGEST = 2**60
_MOST_BLOCKS = 2**20
_MOST_POOLS = 4
_LIMITS = {
    "release_ns": (LONGEST_NS, "2**50 ns (13 days)"),
    "duration_ns": (LONGEST_NS, "2**50 ns (13 days)"),
    "blocks": (_MOST_BLOCKS, "2**20"),
}
"""The largest value of a field and its name, where that is not 2**60."""

_START_LEVELS = {
    BufferKind.DEVICE: (Level.ABSENT, Level.HBM),
    BufferKind.MANAGED: (Level.ABSENT, Level.HOST, Level.HBM),
}

_FIELDS = {
    CommandKind.KERNEL: {"kernels": "one kernel or more"},
    CommandKind.COPY: {"copy": "a CopyKind", "size_bytes": "its bytes"},
    CommandKind.CALLBACK: {"duration_ns": "its time"},
    CommandKind.COLLECTIVE: {"duration_ns": "its time"},
}
"""The fields that make a command of each kind; the fields of the other kinds stay empty."""

_PINNED, _COPY, _KERNEL = HostMemory.PINNED, CommandKind.COPY, CommandKind.KERNEL
"""At hand, for to ask an enum for a member takes longer than all else that is asked of a command."""

_OPTIONAL = {CommandKind.COPY: ("duration_ns",)}
"""Fields that a command of a kind may also have."""

_EMPTY = {"kernels": (), "copy": None, "size_bytes": 0, "duration_ns": 0}


def check_graph(name: str, commands: Sequence[Command], buffers: Sequence[Buffer]) -> None:
    """Check everything but the order of the commands.

    Raises:
        InputError: The first fault found, in the order buffers, commands, data.
    """
    where = f"graph {name!r}"
    if not commands:
        raise InputError(f"{where} has no commands; it needs at least one")
    _check_names(where, "buffer", [buffer.name for buffer in buffers])
    _check_names(where, "command", [command.name for command in commands])
    for buffer in buffers:
        if not _is_plain_buffer(buffer):
            _check_buffer(where, buffer)
    for command in commands:
        if not (_is_plain_command(command) and all(map(_is_plain_kernel, command.kernels))):
            _check_command(where, command)
    _check_references(where, commands, {buffer.name for buffer in buffers})
    _check_first_writers(where, commands, buffers)


def check_acyclic(
    name: str, names: Sequence[str], predecessors: Sequence[Sequence[int]], order: Sequence[int]
) -> None:
    """Check that a topological order reached every command.

    Args:
        name: The graph's.
        names: Names of the commands.
        predecessors: For each command the indices of those it depends on.
        order: Indices that Kahn's algorithm could place.

    Raises:
        InputError: Prints one circle as ``a -> b -> c -> a``, each finishing before the next.
    """
    left = set(range(len(names))) - set(order)
    if not left:
        return
    trail = [min(left)]
    while True:
        before = min(i for i in predecessors[trail[-1]] if i in left)
        if before in trail:
            break
        trail.append(before)
    circle = trail[trail.index(before) :][::-1]
    first = circle.index(min(circle))
    circle = circle[first:] + circle[: first + 1]
    path = " -> ".join(names[i] for i in circle)
    raise InputError(
        f"graph {name!r}: commands wait for each other in a cycle: {path}; "
        "remove one of these dependencies (a name in 'after', or a buffer both touch)"
    )


def _check_names(where: str, what: str, names: Sequence[str]) -> None:
    if {str}.issuperset(map(type, names)) and all(names) and len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{where}: a {what} is named {name!r}; a name is a text of at least one character"
            )
        if name in seen:
            raise InputError(f"{where}: two {what}s are named {name!r}; give each {what} a name of its own")
        seen.add(name)


def _is_plain_buffer(buffer: Buffer) -> bool:
    return (
        type(buffer.size_bytes) is int
        and 1 <= buffer.size_bytes <= _LARGEST
        and type(buffer.die) is int
        and 0 <= buffer.die <= _LARGEST
        and type(buffer.kind) is BufferKind
        and type(buffer.level) is Level
        and type(buffer.host_memory) is HostMemory
        and buffer.level in _START_LEVELS[buffer.kind]
    )


def _is_plain_command(command: Command) -> bool:
    """Whether a command is sound, its kernels, its lists and a hint aside."""
    lists = command.kernels, command.reads, command.writes, command.after
    if not (
        type(command.release_ns) is int
        and 0 <= command.release_ns <= LONGEST_NS
        and command.stream_hint is None
        and {tuple}.issuperset(map(type, lists))
    ):
        return False
    if command.kind is _COPY:
        return (
            type(command.copy) is CopyKind
            and type(command.size_bytes) is int
            and 1 <= command.size_bytes <= _LARGEST
            and command.host_memory is _PINNED
            and not command.kernels
            and type(command.duration_ns) is int
            and 0 <= command.duration_ns <= LONGEST_NS
        )
    if command.copy is not None or command.host_memory is not _PINNED or command.size_bytes != 0:
        return False
    if command.kind is _KERNEL:
        return bool(command.kernels) and command.duration_ns == 0
    return (
        isinstance(command.kind, CommandKind)
        and type(command.duration_ns) is int
        and 1 <= command.duration_ns <= LONGEST_NS
        and not command.kernels
    )


def _is_plain_kernel(kernel: Kernel) -> bool:
    return (
        type(kernel.kernel_class) is KernelClass
        and type(kernel.scheme) is Scheme
        and type(kernel.blocks)
        is type(kernel.flops)
        is type(kernel.bytes_read)
        is type(kernel.bytes_written)
        is int
        and 1 <= kernel.blocks <= _MOST_BLOCKS
        and 0 <= kernel.flops <= _LARGEST
        and 0 <= kernel.bytes_read <= _LARGEST
        and 0 <= kernel.bytes_written <= _LARGEST
        and kernel.duration_ns is None
        and kernel.fallback is None
        and kernel.demand is None
        and type(kernel.op) is str
        and type(kernel.inputs) is type(kernel.outputs) is tuple
        and all(map(_is_plain_operand, kernel.inputs))
        and all(map(_is_plain_operand, kernel.outputs))
    )


def _is_plain_operand(operand: object) -> bool:
    return (
        type(operand) is Operand
        and type(operand.dtype) is type(operand.layout) is str
        and type(operand.shape) is tuple
        and all([type(size) is int and 0 <= size <= _LARGEST for size in operand.shape])
    )


def _check_number(owner: str, field: str, value: object, least: int) -> None:
    largest, limit = _LIMITS.get(field, (_LARGEST, "2**60"))
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
        raise InputError(f"{owner}: {field} is {value!r}; write a whole number (int) from {least} to {limit}")


def _check_member(owner: str, field: str, value: object, choices: type[enum.StrEnum]) -> None:
    if not isinstance(value, choices):
        members = ", ".join(f"{choices.__name__}.{member.name}" for member in choices)
        raise InputError(f"{owner}: {field} is {value!r}; write one of {members}")


def _check_buffer(where: str, buffer: Buffer) -> None:
    owner = f"{where}, buffer {buffer.name!r}"
    _check_number(owner, "size_bytes", buffer.size_bytes, 1)
    _check_number(owner, "die", buffer.die, 0)
    _check_member(owner, "kind", buffer.kind, BufferKind)
    _check_member(owner, "level", buffer.level, Level)
    _check_member(owner, "host_memory", buffer.host_memory, HostMemory)
    levels = _START_LEVELS[buffer.kind]
    if buffer.level not in levels:
        raise InputError(
            f"{owner}: level is {buffer.level.value!r}, unreachable for a {buffer.kind.value} buffer; "
            f"write {' or '.join(repr(level.value) for level in levels)}"
        )


def _check_command(where: str, command: Command) -> None:
    owner = f"{where}, command {command.name!r}"
    _check_member(owner, "kind", command.kind, CommandKind)
    _check_member(owner, "host_memory", command.host_memory, HostMemory)
    _check_number(owner, "release_ns", command.release_ns, 0)
    if command.stream_hint is not None:
        _check_number(owner, "stream_hint", command.stream_hint, 0)
    for field in ("kernels", "reads", "writes", "after"):
        value = getattr(command, field)
        if not isinstance(value, tuple):
            raise InputError(f"{owner}: {field} is {value!r}; write a tuple, even of one")
    _check_fields(owner, command)
    for kernel in command.kernels:
        _check_kernel(owner, kernel)


def _check_fields(owner: str, command: Command) -> None:
    wanted = _FIELDS[command.kind]
    for field, empty in _EMPTY.items():
        value = getattr(command, field)
        if field in wanted and value == empty:
            raise InputError(
                f"{owner}: a {command.kind.value} command has {field} {value!r}; give {wanted[field]}"
            )
        if field not in wanted and value != empty and field not in _OPTIONAL.get(command.kind, ()):
            raise InputError(
                f"{owner}: a {command.kind.value} command has {field} {value!r}; leave it {empty!r}, "
                f"a {command.kind.value} command is described by {' and '.join(wanted)}"
            )
    if "size_bytes" in wanted:
        _check_member(owner, "copy", command.copy, CopyKind)
        _check_number(owner, "size_bytes", command.size_bytes, 1)
        _check_number(owner, "duration_ns", command.duration_ns, 0)
    if "duration_ns" in wanted:
        _check_number(owner, "duration_ns", command.duration_ns, 1)
    if command.host_memory != HostMemory.PINNED and command.copy not in (CopyKind.H2D, CopyKind.D2H):
        raise InputError(
            f"{owner}: host_memory is {command.host_memory.value!r}, but only a copy to or from the host "
            f"has a host side; leave it {HostMemory.PINNED.value!r}"
        )


def _check_kernel(owner: str, kernel: Kernel) -> None:
    owner = f"{owner}, kernel {kernel.name!r}"
    _check_member(owner, "kernel_class", kernel.kernel_class, KernelClass)
    _check_member(owner, "scheme", kernel.scheme, Scheme)
    _check_number(owner, "blocks", kernel.blocks, 1)
    for field in ("flops", "bytes_read", "bytes_written"):
        _check_number(owner, field, getattr(kernel, field), 0)
    if kernel.duration_ns is not None:
        _check_number(owner, "duration_ns", kernel.duration_ns, 1)
    if kernel.demand is not None:
        _check_demand(owner, kernel.demand)
    _check_operands(owner, kernel)
    if kernel.fallback is None:
        return
    _check_member(owner, "fallback", kernel.fallback, KernelClass)
    if kernel.fallback == kernel.kernel_class:
        raise InputError(
            f"{owner}: fallback is {kernel.fallback.value!r}, the kernel's own class; "
            "write another class or None"
        )
    if kernel.demand is not None:
        raise InputError(
            f"{owner}: it has a fallback, {kernel.fallback.value!r}, and a demand of its own, which would "
            "make both classes hold the same; leave one of them None"
        )


def _check_operands(owner: str, kernel: Kernel) -> None:
    if not isinstance(kernel.op, str):
        raise InputError(f"{owner}: op is {kernel.op!r}; write the operator's type, or leave it empty")
    for field in ("inputs", "outputs"):
        listed = getattr(kernel, field)
        if not isinstance(listed, tuple):
            raise InputError(f"{owner}: {field} is {listed!r}; write a tuple of Operand")
        for operand in listed:
            if not _is_plain_operand(operand):
                raise InputError(
                    f"{owner}: {field} holds {operand!r}; write Operand(shape, dtype, layout), the shape a "
                    "tuple of whole numbers from 0, the rest text"
                )


def _check_demand(owner: str, demand: object) -> None:
    right = f"write 1 to {_MOST_POOLS} pairs of a pool and its units, such as (('aic', 2), ('aiv', 1))"
    if not isinstance(demand, tuple) or not 1 <= len(demand) <= _MOST_POOLS:
        raise InputError(f"{owner}: demand is {demand!r}; {right}")
    for pair in demand:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(f"{owner}: demand holds {pair!r}; {right}")
        _check_number(owner, f"demand of pool {pair[0]!r}", pair[1], 1)
    names = [pool for pool, _ in demand]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{owner}: demand names the pool {twice!r} twice; name it once")


def _check_references(where: str, commands: Sequence[Command], buffers: set[str]) -> None:
    names = {command.name for command in commands}
    for command in commands:
        if _has_plain_lists(command, buffers, names):
            continue
        owner = f"{where}, command {command.name!r}"
        for field, known, what in (
            ("reads", buffers, "buffer"),
            ("writes", buffers, "buffer"),
            ("after", names, "command"),
        ):
            _check_listed(owner, field, getattr(command, field), known, what)
        if command.name in command.after:
            raise InputError(
                f"{owner}: after names the command itself; a command cannot wait for itself, remove it"
            )


def _has_plain_lists(command: Command, buffers: set[str], names: set[str]) -> bool:
    reads, writes, after = command.reads, command.writes, command.after
    if after and not (
        names.issuperset(after) and len(set(after)) == len(after) and command.name not in after
    ):
        return False
    return (
        buffers.issuperset(reads)
        and buffers.issuperset(writes)
        and len(set(reads)) == len(reads)
        and len(set(writes)) == len(writes)
    )


def _check_listed(owner: str, field: str, listed: Sequence[str], known: set[str], what: str) -> None:
    for name in listed:
        if name not in known:
            raise InputError(
                f"{owner}: {field} names the {what} {name!r}, which is unknown; add it to the {what}s"
            )
    if len(set(listed)) < len(listed):
        twice = next(name for name in listed if listed.count(name) > 1)
        raise InputError(f"{owner}: {field} names the {what} {twice!r} twice; name it once")


def _check_first_writers(where: str, commands: Sequence[Command], buffers: Sequence[Buffer]) -> None:
    absent = {buffer.name for buffer in buffers if buffer.level is Level.ABSENT}
    for command in commands:
        if not absent.isdisjoint(command.reads):
            name = next(name for name in command.reads if name in absent)
            raise InputError(
                f"{where}, command {command.name!r} reads the buffer {name!r}, which is absent and "
                "no command before it in program order writes; put its writer first, or start it "
                "at level 'hbm'"
            )
        absent.difference_update(command.writes)
