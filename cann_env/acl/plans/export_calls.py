"""Commands of a graph as calls of ``acl``: launches, copies, operations, and what they need beforehand."""

from __future__ import annotations

import ast
from dataclasses import fields
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import constants as const
from cann_env.acl.plans.record import Place, RecordedGraph
from cann_env.acl.state.kernels import KERNELS
from cann_env.graph import CommandKind, CopyKind, HostMemory, Kernel
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.acl.plans.plan import Plan
    from cann_env.acl.plans.record import CallOf, LaunchOf
    from cann_env.graph import Command

_KINDS: Final = {
    CopyKind.H2D: const.ACL_MEMCPY_HOST_TO_DEVICE,
    CopyKind.D2H: const.ACL_MEMCPY_DEVICE_TO_HOST,
    CopyKind.D2D: const.ACL_MEMCPY_DEVICE_TO_DEVICE,
}
_ENDS: Final = {CopyKind.H2D: (0, 1), CopyKind.D2H: (1, 0), CopyKind.D2D: (1, 1)}
"""Buffers that a copy reads and writes."""


class Calls:
    """The calls of one plan, and the kernels and host memory that they name."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._graph = plan.graph
        self._kernels: dict[tuple[Kernel, int, int], str] = {}
        self._functions: dict[str, str] = {}
        self._host: dict[str, tuple[int, bool]] = {}
        self._recorded = plan.graph.calls if isinstance(plan.graph, RecordedGraph) else ()
        if isinstance(plan.graph, RecordedGraph):
            self._host = {place.name: (place.size, place.pinned) for place in plan.graph.host}

    # What comes beforehand; asked for when all commands have been written.

    def definitions(self) -> Iterator[str]:
        """Stand-ins of the kernels."""
        for (kernel, reads, writes), name in self._kernels.items():
            touched = f"reads={tuple(range(reads))}, writes={tuple(range(reads, reads + writes))}"
            yield f"acl.define_kernel({name!r}, exact={_literal(kernel)}, {touched})"

    def functions(self) -> Iterator[str]:
        """Kernels that are looked up."""
        found = {**dict.fromkeys(self._kernels.values()), **dict.fromkeys(self._functions)}
        if not found:
            return
        yield 'binary = value(acl.rt.binary_load_from_file("kernels.o"))'
        for name in found:
            variable = self._functions.get(name, name)
            yield f"{variable} = value(acl.rt.binary_get_function(binary, {name!r}))"

    def host_memory(self) -> Iterator[str]:
        """Memory of the host that copies read and write."""
        for name, (size, pinned) in self._host.items():
            if pinned:
                yield f"{name} = value(acl.rt.malloc_host({size}))"
            else:
                yield f"{name}_array = np.zeros({size}, np.uint8)"
                yield f"{name} = acl.util.numpy_to_ptr({name}_array)"
        if self._recorded:
            yield f"host = {{{', '.join(f'{n!r}: ({n}, {size})' for n, (size, _) in self._host.items())}}}"
            yield "for name, data in dict(given).items():"
            yield "    view(*host[name])[:] = data"

    @property
    def pinned(self) -> list[str]:
        """Names of the memory of the host that has to be given back."""
        return [name for name, (_, pinned) in self._host.items() if pinned]

    # Commands.

    def issue(self, c: int, stream: int) -> list[str]:
        """A command, and what its stream waits for."""
        command = self._graph.commands[c]
        lines = [f"# {' '.join(command.name.split())}"]
        for word, waits in (("wait", self._plan.waits), ("reuse", self._plan.reuse)):
            if c in waits:
                lines.append(f"{word}(s{stream}, {', '.join(f'e{producer}' for producer in waits[c])})")
        if self._recorded:
            return [*lines, self._again(command, self._recorded[c], stream)]
        index = self._graph.buffer_index
        reads = [f"b{index[name]}" for name in command.reads]
        writes = [f"b{index[name]}" for name in command.writes]
        if command.kind is CommandKind.KERNEL:
            return [*lines, self._kernel(command, reads, writes, stream)]
        if command.kind is CommandKind.COPY:
            return [*lines, self._copy(c, command, reads, writes, stream)]
        return [*lines, _operation(command, reads, writes, stream)]

    def _kernel(self, command: Command, reads: list[str], writes: list[str], stream: int) -> str:
        launches = []
        for place, kernel in enumerate(command.kernels):
            given = (reads, writes) if place == 0 else ([], [])
            key = kernel, len(given[0]), len(given[1])
            name = self._kernels.setdefault(key, f"k{len(self._kernels)}")
            launches.append(f"{name}, {kernel.blocks}, [{', '.join([*given[0], *given[1]])}]")
        return _submission(launches, stream)

    def _copy(self, c: int, command: Command, reads: list[str], writes: list[str], stream: int) -> str:
        assert command.copy is not None  # a graph admits no copy without direction
        size = command.size_bytes
        held = [self._graph.buffers[self._graph.buffer_index[n]] for n in (*command.reads, *command.writes)]
        plain = (len(reads), len(writes)) == _ENDS[command.copy] and not command.duration_ns
        if not plain or any(buffer.size_bytes != size for buffer in held):
            return _operation(command, reads, writes, stream)
        host = f"h{c}"
        if command.copy is not CopyKind.D2D:
            self._host[host] = size, command.host_memory is not HostMemory.PAGEABLE
        source, target = (*reads, host)[0], (*writes, host)[0]
        return f"copy({target}, {source}, {size}, {_KINDS[command.copy]}, s{stream})"

    # Commands of a program that was recorded.

    def _again(self, command: Command, call: CallOf, stream: int) -> str:
        """The call that the program made, on another stream."""
        if call.launches:
            launches = [self._launch(command, launch) for launch in call.launches]
            return _submission(launches, stream)
        if call.value is not None:
            (place,) = call.places
            target, size = self._address(place), place.size
            return f"works(acl.rt.memset_async({target}, {size}, {call.value}, {size}, s{stream}))"
        if command.copy is not None and len(call.places) == 2 and call.call.startswith("rt.memcpy"):
            source, target = (self._address(place) for place in call.places)
            kind = _KINDS[command.copy]
            if call.shape:
                to, of, width, height = call.shape
                sizes = f"{target}, {to}, {source}, {of}, {width}, {height}"
                return f"works(acl.rt.memcpy2d_async({sizes}, {kind}, s{stream}))"
            return f"copy({target}, {source}, {command.size_bytes}, {kind}, s{stream})"
        index = self._graph.buffer_index
        reads, writes = ([f"b{index[name]}" for name in names] for names in (command.reads, command.writes))
        if command.kind is CommandKind.KERNEL:  # of a model, or of a library: its time, not its values
            return self._kernel(command, reads, writes, stream)
        return _operation(command, reads, writes, stream)

    def _launch(self, command: Command, launch: LaunchOf) -> str:
        model = KERNELS.find(launch.kernel)
        if model is None or (model.scheme is not launch.scheme and model.exact is None):
            why = (
                "is not defined any more" if model is None else f"was launched with scheme {launch.scheme!s}"
            )
            raise InputError(
                f"graph {self._graph.name!r}, command {command.name!r}: kernel {launch.kernel!r} {why}; "
                "define it as it was launched"
            )
        variable = launch.kernel if _is_free(launch.kernel) else f"k{len(self._functions)}"
        self._functions.setdefault(launch.kernel, variable)
        args = ", ".join(self._argument(command, given) for given in launch.args)
        return f"{self._functions[launch.kernel]}, {launch.blocks}, [{args}]"

    def _argument(self, command: Command, given: Any) -> str:
        if isinstance(given, Place):
            return f"({self._address(given)}, {given.size})"
        try:
            ast.literal_eval(repr(given))
        except (ValueError, SyntaxError):
            raise InputError(
                f"graph {self._graph.name!r}, command {command.name!r} was launched with {given!r}, which "
                "cannot be written down; pass numbers and addresses"
            ) from None
        return repr(given)

    def _address(self, place: Place) -> str:
        b = self._graph.buffer_index.get(place.memory)
        base = place.memory if b is None else f"b{b}"
        return f"{base} + {place.first}" if place.first else base


_TAKEN: Final = frozenset(
    (
        "acl", "np", "works", "value", "until", "wait", "reuse", "record", "launch", "fused", "copy",
        "give_back", "bring", "view", "stand_ins", "main", "given", "host", "name", "data", "pool",
        "mover", "last", "binary", "BY_TIME", "ORDER", "EDGES", "RELEASES", "Kernel", "KernelClass",
        "Operand", "Scheme",
    )
)  # fmt: skip
"""Names that mean something else in a program."""


def _is_free(name: str) -> bool:
    """Whether a kernel's name can be the name of a variable."""
    numbered = name[:1] in "sebhk" and name[1:].isdecimal()
    return name.isidentifier() and not iskeyword(name) and name not in _TAKEN and not numbered


def _submission(launches: list[str], stream: int) -> str:
    if len(launches) == 1:
        return f"launch({launches[0]}, s{stream})"
    return f"fused([{', '.join(f'({launch})' for launch in launches)}], s{stream})"


def _operation(command: Command, reads: list[str], writes: list[str], stream: int) -> str:
    kind = command.kind.value if command.copy is None else command.copy.value
    amount = command.duration_ns if command.copy is None else command.size_bytes
    listed = f"[{', '.join(reads)}], [{', '.join(writes)}]"
    measured = f", {command.duration_ns}" if command.copy is not None and command.duration_ns else ""
    if command.copy is not None and command.host_memory is HostMemory.PAGEABLE:
        measured += ", pageable=True"
    return f"works(acl.operation({kind!r}, {amount}, s{stream}, {listed}{measured}))"


def _literal(kernel: Kernel) -> str:
    """A kernel as an expression; what is as by default is left out."""
    parts = []
    for field in fields(Kernel):
        held = getattr(kernel, field.name)
        if held == field.default and field.name not in ("name", "kernel_class"):
            continue
        parts.append(f"{field.name}={_expression(held)}")
    return f"Kernel({', '.join(parts)})"


def _expression(held: object) -> str:
    kind = type(held).__name__
    if kind in ("KernelClass", "Scheme"):
        return f"{kind}.{held.name}"  # type: ignore[attr-defined]
    return repr(held)
