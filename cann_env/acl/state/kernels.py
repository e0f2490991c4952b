"""Kernels that programs launch: what they cost, and what they do to the bytes.

A compiled kernel of a device cannot run here. Its stand-in says which of its arguments it reads and writes,
how much work that is, and, if values matter, computes them with numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cann_env.graph import Kernel, KernelClass, Operand, Scheme
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """The stand-in of a kernel.

    Attributes:
        name: Under which programs find it.
        reads, writes: Places of the arguments that are addresses and are read or written; one may be both.
        kernel_class: The core it is built for.
        flops: Operations of a launch: a number, or a function of the sizes in bytes of the arguments.
        dtype: Type of its arguments.
        op: Type of the operator in CANN's words, for the cost model; empty if it has none.
        shapes: Shapes of the arguments that are addresses, by place; flat if not given.
        scheme: Whether all its blocks start together.
        duration_ns: Measured time of a launch, in place of the cost model.
        exact: What a launch is to the engine, in place of all of the above but its places and blocks.
        function: Called with one array for each address and the other arguments as they are; it writes in
            place. None computes nothing.
        fallback: A class that a launch may run on when its own has no free core.
    """

    name: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    kernel_class: KernelClass = KernelClass.VECTOR
    flops: int | Callable[[tuple[int, ...]], int] = 0
    dtype: str = "float16"
    op: str = ""
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    scheme: Scheme = Scheme.NORMAL
    duration_ns: int | None = None
    exact: Kernel | None = None
    function: Callable[..., Any] | None = None
    fallback: KernelClass | None = None

    def kernel(self, sizes: dict[int, int], blocks: int) -> Kernel:
        """A launch as the engine runs it.

        Args:
            sizes: Bytes of each argument that is an address, by place.
            blocks: Blocks it is launched with.
        """
        if self.exact is not None:
            return replace(self.exact, blocks=blocks)
        flops = self.flops(tuple(sizes.values())) if callable(self.flops) else self.flops
        return Kernel(
            name=self.name,
            kernel_class=self.kernel_class,
            fallback=self.fallback,
            blocks=blocks,
            scheme=self.scheme,
            flops=flops,
            dtype=self.dtype,
            bytes_read=sum(sizes.get(place, 0) for place in self.reads),
            bytes_written=sum(sizes.get(place, 0) for place in self.writes),
            duration_ns=self.duration_ns,
            op=self.op,
            inputs=self._operands(self.reads),
            outputs=self._operands(self.writes),
        )

    def _operands(self, places: tuple[int, ...]) -> tuple[Operand, ...]:
        if not all(place in self.shapes for place in places):
            return ()
        return tuple(Operand(self.shapes[place], self.dtype) for place in places)


def of_program(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the program; what it raises is the program's own failure, not a call's."""
    try:
        return function(*args)
    except Exception as error:
        error.of_program = True  # type: ignore[attr-defined]
        raise


class Part(NamedTuple):
    """One kernel of a submission."""

    model: KernelModel
    blocks: int
    args: tuple[Any, ...]


class Kernels:
    """The stand-ins that are known, by name."""

    def __init__(self) -> None:
        self._known: dict[str, KernelModel] = {}

    def define(self, model: KernelModel) -> KernelModel:
        """Know a kernel; one of the same name is replaced."""
        if not model.name:
            raise InputError("a kernel has no name; give it the name that programs look it up by")
        self._known[model.name] = model
        return model

    def find(self, name: str) -> KernelModel | None:
        """A kernel by name."""
        return self._known.get(name)

    def of_operator(self, op: str) -> KernelModel | None:
        """The first kernel that computes an operator."""
        return next((model for model in self._known.values() if op and model.op == op), None)

    def names(self) -> tuple[str, ...]:
        """Names of all kernels."""
        return tuple(self._known)


KERNELS = Kernels()
"""All kernels of this process; they outlive a run, as files on a disk do."""


def define_kernel(name: str, **fields: Any) -> KernelModel:
    """Say what a kernel costs and does, see :class:`KernelModel`.

    Raises:
        InputError: Something is wrong with it.
    """
    exact = fields.get("exact")
    if exact is not None:
        fields.setdefault("kernel_class", exact.kernel_class)
        fields.setdefault("dtype", exact.dtype)
    try:
        fields["kernel_class"] = KernelClass(fields.get("kernel_class", KernelClass.VECTOR))
    except ValueError:
        words = ", ".join(KernelClass)
        raise InputError(
            f"kernel {name!r} has kernel_class {fields['kernel_class']!r}; write one of {words}"
        ) from None
    return KERNELS.define(KernelModel(name=name, **fields))
