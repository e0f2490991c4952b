"""A model as the runtime sees it: its inputs and outputs, the sizes they may have, its kernels and memory.

Models are ONNX files. What a converter for the device is told besides - fixed sizes, or the sizes to choose
from - is in the notes of the file, under the names of the converter's options:
:func:`cann_env.acl.convert_model` writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cann_env.acl import codes
from cann_env.acl.calls.mdl_types import TYPES, Tensor
from cann_env.acl.codes import Refused
from cann_env.graph import BufferKind, CommandKind, Level
from cann_env.units import InputError
from cann_env.workloads.from_onnx import macs, trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Command, CommandGraph
    from cann_env.workloads.onnx_model import OnnxModel

CHOICE: Final = "ascend_mbatch_shape_data"
"""Name of the input through which sizes are chosen, in models that have sizes to choose from."""

OPTIONS: Final = ("input_shape", "dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
"""Options of the converter that are understood, by the name under which a file notes them."""

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in their order."""


class Plan(NamedTuple):
    """A model at fixed sizes.

    Attributes:
        shapes: Of its inputs.
        outputs: Shapes of its outputs.
        types: Their types.
        kernels: In the order of execution; buffers by the names of tensors.
        roots: The buffer that each output lies in; empty for one that no kernel writes.
        sizes: Bytes of every buffer that is neither input nor output.
        weights: Those of them that are weights.
        work_bytes: Most bytes of the others that are needed at once.
        macs: Multiply-adds.
    """

    shapes: Shapes
    outputs: Shapes
    types: tuple[str, ...]
    kernels: tuple[Command, ...]
    roots: tuple[str, ...]
    sizes: Mapping[str, int]
    weights: frozenset[str]
    work_bytes: int
    macs: int


@dataclass(slots=True, eq=False)
class Model:
    """A model that was read.

    Attributes:
        name: For people.
        source: The file.
        device: For which it is.
        inputs: Without the one through which sizes are chosen.
        outputs: In the order of the file.
        option: Under which option its sizes are chosen; empty if they are fixed.
        gears: The sizes there are to choose from, each a list for all that is -1, in the order of inputs.
    """

    name: str
    source: OnnxModel
    device: DeviceSpec
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    option: str = ""
    gears: tuple[tuple[int, ...], ...] = ()
    _plans: dict[Shapes, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find out what it takes and gives."""
        given = _options(self.source.notes)
        self.option, self.gears = _gears(given)
        written = _shapes(given.get("input_shape", ""))
        unknown = set(written) - set(self.source.inputs)
        if unknown:
            raise InputError(
                f"input_shape names {min(unknown)!r}; the inputs are {', '.join(self.source.inputs)}"
            )
        self.inputs = tuple(
            Tensor(name, declared.dtype, self._shape(name, declared.shape, written.get(name)))
            for name, declared in self.source.inputs.items()
        )
        plan = self.plan(self.default)
        self.outputs = tuple(
            Tensor(name, dtype, shape)
            for name, dtype, shape in zip(self.source.outputs, plan.types, plan.outputs, strict=True)
        )
        for tensor in (*self.inputs, *self.outputs):
            if tensor.dtype not in TYPES:
                raise InputError(f"tensor {tensor.name!r} has the type {tensor.dtype}, which is no number")

    def _shape(
        self, name: str, declared: Sequence[int | str] | None, written: tuple[int, ...] | None
    ) -> tuple[int, ...]:
        if declared is None:
            raise InputError(f"input {name!r} has no rank; export the model with shapes")
        if written is not None:
            if len(written) != len(declared):
                raise InputError(
                    f"input_shape gives {name!r} {len(written)} dimensions; it has {len(declared)}"
                )
            return written
        sizes: list[int] = []
        for axis, size in enumerate(declared):
            if isinstance(size, int):
                sizes.append(size)
            elif self._chosen(axis, len(declared)):
                sizes.append(-1)
            elif axis == 0:
                sizes.append(1)
            else:
                raise InputError(
                    f"input {name!r} is dynamic in dimension {axis} ({size!r}); give its size with "
                    f"convert_model(..., input_shape=...)"
                )
        return tuple(sizes)

    def _chosen(self, axis: int, rank: int) -> bool:
        """Whether a dimension without a size is one that is chosen, if nothing else is said."""
        if self.option == "dynamic_batch_size":
            return axis == 0
        if self.option == "dynamic_image_size":
            return rank == 4 and axis > 0
        return self.option == "dynamic_dims"

    @property
    def default(self) -> Shapes:
        """The fixed sizes, or the largest there are to choose."""
        if not self.gears:
            return tuple(tuple(max(size, 1) for size in tensor.shape) for tensor in self.inputs)
        return self.at(max(self.gears, key=lambda gear: (math.prod(gear), gear)))

    def at(self, gear: tuple[int, ...]) -> Shapes:
        """Shapes of the inputs at chosen sizes."""
        values = iter(gear if self.option == "dynamic_dims" else ())
        shapes = []
        for tensor in self.inputs:
            if self.option != "dynamic_dims":
                values = iter(gear if self.option == "dynamic_image_size" else gear * len(tensor.shape))
            shapes.append(tuple(next(values, 1) if size == -1 else size for size in tensor.shape))
        return tuple(shapes)

    def plan(self, shapes: Shapes) -> Plan:
        """The model at fixed sizes.

        Raises:
            InputError: It cannot have them, or cannot run on the device.
        """
        if shapes not in self._plans:
            self._plans[shapes] = self._made(shapes)
        return self._plans[shapes]

    def _made(self, shapes: Shapes) -> Plan:
        dims: dict[str, int] = {}
        batch = None
        for tensor, shape in zip(self.source.inputs.items(), shapes, strict=True):
            name, declared = tensor
            for axis, (label, size) in enumerate(zip(declared.shape or (), shape, strict=True)):
                if isinstance(label, str):
                    if dims.setdefault(label, size) != size:
                        raise InputError(f"dimension {label!r} cannot be both {dims[label]} and {size}")
                elif label != size:
                    if axis:
                        raise InputError(f"dimension {axis} of input {name!r} is {label}, and not {size}")
                    batch = size
        traced = trace(
            self.source, self.device, name=self.name, batch=batch, dims=dims, fallback=True, weights=Level.HBM
        )
        outputs = tuple(tuple(traced.walk.tensors[name].shape) for name in self.source.outputs)
        types = tuple(traced.walk.type_of(name) for name in self.source.outputs)
        return _plan(traced.graph, self.source, shapes, outputs, types)


def _plan(
    graph: CommandGraph, source: OnnxModel, shapes: Shapes, outputs: Shapes, types: tuple[str, ...]
) -> Plan:
    kernels = tuple(command for command in graph.commands if command.kind is CommandKind.KERNEL)
    back = {command.name.removeprefix("d2h/"): command for command in graph.commands if command.copy == "d2h"}
    roots = tuple(back[name].reads[0] if name in back else "" for name in source.outputs)
    outside = {*source.inputs, *roots}
    sizes = {b.name: b.size_bytes for b in graph.buffers if b.name not in outside}
    weights = frozenset(b.name for b in graph.buffers if b.kind is BufferKind.MANAGED and b.name in sizes)
    inner = {name: size for name, size in sizes.items() if name not in weights}
    return Plan(shapes, outputs, types, kernels, roots, sizes, weights, _most(kernels, inner), macs(graph))


def _most(kernels: Sequence[Command], inner: Mapping[str, int]) -> int:
    """Most bytes of intermediate tensors at once, each from the kernel that makes it to its last reader."""
    last = {name: i for i, kernel in enumerate(kernels) for name in (*kernel.writes, *kernel.reads)}
    held: set[str] = set()
    most = now = 0
    for i, kernel in enumerate(kernels):
        for name in kernel.writes:
            if name in inner and name not in held:
                held.add(name)
                now += -(-inner[name] // 512) * 512
        most = max(most, now)
        for name in [name for name in held if last[name] <= i]:
            held.discard(name)
            now -= -(-inner[name] // 512) * 512
    return most


def _options(notes: Mapping[str, str]) -> dict[str, str]:
    return {name: notes[name].strip() for name in OPTIONS if notes.get(name, "").strip()}


def _gears(given: Mapping[str, str]) -> tuple[str, tuple[tuple[int, ...], ...]]:
    named = [name for name in OPTIONS[1:] if name in given]
    if len(named) > 1:
        raise InputError(f"{named[0]} and {named[1]} are both given; a model has one of them")
    if not named:
        return "", ()
    rows = given[named[0]].split("," if named[0] == "dynamic_batch_size" else ";")
    gears = tuple(_numbers(row, named[0]) for row in rows if row.strip())
    if named[0] == "dynamic_image_size" and any(len(gear) != 2 for gear in gears):
        raise InputError(f"dynamic_image_size is {given[named[0]]!r}; write height,width;height,width")
    return named[0], gears


def _shapes(text: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, sizes = part.rpartition(":")
        if not colon:
            raise InputError(f"input_shape holds {part!r}; write name:size,size")
        found[name.strip()] = _numbers(sizes, "input_shape")
    return found


def _numbers(text: str, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise InputError(f"{what} holds {text!r}; write whole numbers with commas between them") from None


def refuse_shape(message: str) -> Refused:
    """Sizes that the model cannot have."""
    return Refused(codes.GE_SHAPE_INVALID, message)


def values_of(plan: Plan, model: Model, given: Sequence[Any]) -> list[Any]:
    """Results of an execution, by ONNX's reference evaluator.

    Raises:
        ValueError: The evaluator cannot run the model.
    """
    arrays = {
        tensor.name: data.view(TYPES[tensor.dtype].held).reshape(shape)
        for tensor, data, shape in zip(model.inputs, given, plan.shapes, strict=True)
    }
    if any(tensor.dtype == "bfloat16" for tensor in (*model.inputs, *model.outputs)):
        raise ValueError("numpy has no bfloat16")
    return model.source.compute(arrays)
