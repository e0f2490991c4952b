"""A graph while it is drawn: commands and buffers are added one by one, then become a CommandGraph.

Generators call the verbs (:meth:`Sketch.upload`, :meth:`Sketch.launch`, ...), each of which returns the name
of what later commands read; :meth:`Sketch.graph` gives the immutable graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, CommandKind, CopyKind, Kernel, Level

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Sketch:
    """Collects the commands and buffers of one graph in program order.

    Attributes:
        name: Of the graph.
    """

    name: str
    _commands: list[Command] = field(default_factory=list, init=False)
    _buffers: dict[str, Buffer] = field(default_factory=dict, init=False)

    def weights(self, name: str, size_bytes: int, level: Level) -> str:
        """Add a managed buffer that lies on the host (cold) or in device memory (resident)."""
        self._buffers[name] = Buffer(name=name, size_bytes=size_bytes, kind=BufferKind.MANAGED, level=level)
        return name

    def activation(self, name: str, size_bytes: int) -> str:
        """Add a managed buffer that lies nowhere until a command added after it writes it, by the same name.

        It may be moved to the host and back between its uses, and is freed after the last one.
        """
        self._buffers[name] = Buffer(
            name=name, size_bytes=size_bytes, kind=BufferKind.MANAGED, level=Level.ABSENT
        )
        return name

    def resident(self, name: str, size_bytes: int) -> str:
        """Add a device buffer that lies in device memory before the first command and after the last."""
        self._buffers[name] = Buffer(name=name, size_bytes=size_bytes, level=Level.HBM)
        return name

    def upload(self, name: str, size_bytes: int, *, into: str = "") -> str:
        """Add a copy from the host; returns the buffer it fills: ``into``, or a new one of its own name."""
        target = self._device(into or name, size_bytes)
        self._copy(name, CopyKind.H2D, size_bytes, reads=(), writes=(target,))
        return target

    def download(self, name: str, source: str) -> str:
        """Add a copy of a whole buffer to the host; returns the command's name."""
        self._copy(name, CopyKind.D2H, self.size_bytes(source), reads=(source,), writes=())
        return name

    def duplicate(self, name: str, source: str, after: Sequence[str] = ()) -> str:
        """Add a copy of a whole buffer inside the device; returns the new buffer."""
        target = self._device(name, self.size_bytes(source))
        self._copy(name, CopyKind.D2D, self.size_bytes(source), (source,), (target,), tuple(after))
        return target

    def launch(
        self,
        name: str,
        kernels: Sequence[Kernel],
        reads: Sequence[str],
        output_bytes: int,
        *,
        into: str = "",
        after: Sequence[str] = (),
    ) -> str:
        """Add a kernel command; returns the buffer it writes: ``into``, or one of its own name.

        A buffer that has not been added before is a device buffer of ``output_bytes``.
        """
        target = self._device(into or name, output_bytes)
        self._commands.append(
            Command(
                name=name,
                kind=CommandKind.KERNEL,
                kernels=tuple(kernels),
                reads=tuple(dict.fromkeys(reads)),
                writes=(target,),
                after=tuple(after),
            )
        )
        return target

    def update(
        self, name: str, kernels: Sequence[Kernel], reads: Sequence[str], changes: Sequence[str]
    ) -> str:
        """Add a kernel command that reads and writes buffers added before; returns the command's name."""
        self._commands.append(
            Command(
                name=name,
                kind=CommandKind.KERNEL,
                kernels=tuple(kernels),
                reads=(*reads, *changes),
                writes=tuple(changes),
            )
        )
        return name

    def reduce(self, name: str, duration_ns: int, buffer: str) -> str:
        """Add a collective that sums a buffer over all devices, in place; returns the command's name."""
        self._commands.append(
            Command(
                name=name,
                kind=CommandKind.COLLECTIVE,
                duration_ns=duration_ns,
                reads=(buffer,),
                writes=(buffer,),
            )
        )
        return name

    def callback(self, name: str, duration_ns: int, after: Sequence[str]) -> str:
        """Add a host function that runs after some commands; returns the command's name."""
        self._commands.append(
            Command(name=name, kind=CommandKind.CALLBACK, duration_ns=duration_ns, after=tuple(after))
        )
        return name

    def size_bytes(self, buffer: str) -> int:
        """Size of a buffer added before."""
        return self._buffers[buffer].size_bytes

    def graph(self) -> CommandGraph:
        """Give the finished graph."""
        return CommandGraph(self.name, tuple(self._commands), tuple(self._buffers.values()))

    def _device(self, name: str, size_bytes: int) -> str:
        self._buffers.setdefault(name, Buffer(name=name, size_bytes=size_bytes, level=Level.ABSENT))
        return name

    def _copy(
        self,
        name: str,
        copy: CopyKind,
        size_bytes: int,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        after: tuple[str, ...] = (),
    ) -> None:
        self._commands.append(
            Command(
                name=name,
                kind=CommandKind.COPY,
                copy=copy,
                size_bytes=size_bytes,
                reads=reads,
                writes=writes,
                after=after,
            )
        )
