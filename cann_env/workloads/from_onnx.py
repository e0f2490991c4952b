"""ONNX models as command graphs: a model file or the name of a light model in, a :class:`CommandGraph` out.

Every operator that runs is one kernel command: nothing is fused, so a BatchNormalization behind a Conv is
a vector kernel of its own. Views (Reshape, Flatten, ...) cost nothing. Weights are managed buffers, one for
each tensor however often it is read; what is computed from weights alone is a weight. Each input is one copy
to the device, each output one copy back; an input that no output depends on is not copied.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cann_env.device.cost import cores_of_class
from cann_env.device.products import likely_product_blocks, product_of
from cann_env.device.work import likely_blocks
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    Kernel,
    KernelClass,
    Level,
)
from cann_env.spelling import did_you_mean
from cann_env.units import InputError
from cann_env.workloads.onnx_cann import seen_by_cann
from cann_env.workloads.onnx_model import light_folder, read_model
from cann_env.workloads.onnx_ops import CONSTANT_VIEWS, Rule, find_rule, is_view
from cann_env.workloads.onnx_walk import Walk, input_shapes
from cann_env.workloads.onnx_work import movement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cann_env.device.spec import DeviceSpec
    from cann_env.workloads.onnx_model import OnnxModel
    from cann_env.workloads.onnx_tensors import Operator, Tensor

DTYPES = ("float16", "bfloat16", "float32")
"""Types in which a model's floating point tensors may be stored and computed."""

_FALLBACK = Rule(KernelClass.VECTOR, movement)


def light_models() -> dict[str, Path]:
    """The networks that come with the ``onnx`` package, by short name; files without weights, of a few KB.

    Raises:
        InputError: The package is not installed.
    """
    files = sorted(light_folder().glob("light_*.onnx"))
    return {_short_name(path): path for path in files}


def resolve_model(name_or_path: str | Path) -> Path:
    """Path of a model: a file, or the short name of one of :func:`light_models`.

    Raises:
        InputError: Neither.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    known = light_models()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    raise InputError(
        f"model {str(name_or_path)!r} is no file and no light model; the light models are {', '.join(known)}"
    )


def macs(graph: CommandGraph) -> int:
    """Multiply-adds of all matrix products of a graph."""
    products = (KernelClass.CUBE, KernelClass.MIX)
    kernels = (kernel for command in graph.commands for kernel in command.kernels)
    return sum(kernel.flops // 2 for kernel in kernels if kernel.kernel_class in products)


def from_onnx(
    path: str | Path,
    device: DeviceSpec,
    *,
    batch: int | None = None,
    dtype: str = "float16",
    dims: Mapping[str, int] | None = None,
    fallback: bool = False,
    weights: Level = Level.HOST,
    name: str | None = None,
) -> CommandGraph:
    """Make a command graph of a model.

    A kernel has as many blocks as there is work for, but no more than the device has cores of its class: one
    for 32 x 32 results of a matrix product, or for a KiB of the larger side of vector work. The operators and
    how their work is counted are the table in :mod:`cann_env.workloads.onnx_ops`; what they are for the
    device's cost model, that in :mod:`cann_env.workloads.onnx_cann`.

    Args:
        path: The file, or the short name of a light model such as ``"resnet50"``.
        device: Whose cores the blocks are cut for.
        batch: Size of the inputs' first dimension; None keeps the model's own, and 1 where that is dynamic.
            Reshapes with a fixed target follow.
        dtype: Type in which all floating point tensors are stored and computed, one of :data:`DTYPES`.
        dims: Sizes of dynamic dimensions, by their name or as ``<input>.<axis>``.
        fallback: Count an operator that is not supported as a vector kernel that moves its bytes.
        weights: Where the weights lie at first, on the host or in HBM.
        name: The graph's; the model's file name if None.

    Raises:
        InputError: The file cannot be read, a dimension is dynamic, an operator is not supported, does not
            fit its inputs or cannot run on the device: names the model and the input or the node.
    """
    _check(dtype, weights)
    found = resolve_model(path)
    try:
        return trace(
            read_model(found), device, name=name or _short_name(found), batch=batch, dtype=dtype, dims=dims,
            fallback=fallback, weights=weights,
        ).graph  # fmt: skip
    except InputError as error:
        raise InputError(f"model {found.name!r}: {error}") from error


class Traced(NamedTuple):
    """A model with every size known: its graph, and the walk that says what each tensor is."""

    graph: CommandGraph
    walk: Walk


def trace(
    model: OnnxModel,
    device: DeviceSpec,
    *,
    name: str,
    batch: int | None = None,
    dtype: str = "float16",
    dims: Mapping[str, int] | None = None,
    fallback: bool = False,
    weights: Level = Level.HOST,
) -> Traced:
    """The same of a model that was read already, see :func:`from_onnx`."""
    _check(dtype, weights)
    walk = _walk(model, batch, dims or {}, dtype, fallback)
    return Traced(_graph(name, walk, device, dtype, weights), walk)


def _check(dtype: str, weights: Level) -> None:
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; {did_you_mean(dtype, DTYPES)}write one of {', '.join(DTYPES)}")
    if weights not in (Level.HOST, Level.HBM):
        raise InputError(f"weights are at level {weights!r}; write Level.HOST or Level.HBM")


def _short_name(path: Path) -> str:
    return path.stem.removeprefix("light_").removeprefix("bvlc_")


def _walk(model: OnnxModel, batch: int | None, dims: Mapping[str, int], dtype: str, fallback: bool) -> Walk:
    shapes = input_shapes(model, batch, dims)
    own_shapes = input_shapes(model, None, dims)
    own = None if own_shapes == shapes else Walk(model, own_shapes, dtype, fallback)
    return Walk(model, shapes, dtype, fallback, own)


def _graph(name: str, walk: Walk, device: DeviceSpec, dtype: str, weights: Level) -> CommandGraph:
    operators = _needed(walk)
    roots = _roots([*(op for op in walk.folded if op.op in CONSTANT_VIEWS), *filter(is_view, operators)])
    kernels = [
        _kernel_command(op, roots, device, dtype) for op in operators if op.results and not is_view(op)
    ]
    results = [walk.tensors[output] for output in walk.model.outputs]
    back = [_copy_out(result, roots) for result in results if result.elements and not result.constant]
    read = {buffer for command in (*kernels, *back) for buffer in command.reads}
    given = [_copy_in(walk.tensors[source]) for source in walk.shapes if source in read]
    commands = (*given, *kernels, *back)
    touched = dict.fromkeys(buffer for command in commands for buffer in (*command.reads, *command.writes))
    buffers = tuple(_buffer(walk.tensors[buffer], weights) for buffer in touched)
    return CommandGraph(name, commands, buffers)


def _needed(walk: Walk) -> list[Operator]:
    """Operators that some output depends on, without those of their results that nobody reads."""
    live = set(walk.model.outputs)
    needed: list[Operator] = []
    for op in reversed(walk.operators):
        outputs = tuple(tensor if tensor and tensor.name in live else None for tensor in op.outputs)
        if any(outputs):
            needed.append(replace(op, outputs=outputs))
            live.update(tensor.name for tensor in op.inputs if tensor)
    return needed[::-1]


def _roots(views: Iterable[Operator]) -> dict[str, str]:
    """The tensor that owns the memory, for each tensor that is a view."""
    roots: dict[str, str] = {}
    for view in views:
        source = view.inputs[0].name if view.inputs[0] else ""
        roots.update((result.name, roots.get(source, source)) for result in view.outputs if result)
    return roots


def _kernel_command(op: Operator, roots: Mapping[str, str], device: DeviceSpec, dtype: str) -> Command:
    where = f"node {op.name!r} (operator {op.op})"
    rule = find_rule(op.domain, op.op) or _FALLBACK
    try:
        work, seen = rule.cost(op), seen_by_cann(op)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        shapes = ", ".join(f"{tensor.name!r} {tensor.shape}" for tensor in op.inputs if tensor)
        raise InputError(f"{where} does not fit its inputs {shapes}: {error}") from error
    cores = cores_of_class(device, rule.kernel_class)
    if cores == 0:
        raise InputError(
            f"{where} runs on {rule.kernel_class.value} cores, which {device.name} "
            "does not have; take another device"
        )
    kernel = Kernel(
        name=op.op,
        kernel_class=rule.kernel_class,
        flops=work.flops,
        dtype=_arithmetic(op, rule.kernel_class, dtype),
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        op=seen.op,
        inputs=seen.inputs,
        outputs=seen.outputs,
    )
    kernel = replace(kernel, blocks=_blocks(kernel, work.tiles, cores))
    reads = dict.fromkeys(roots.get(tensor.name, tensor.name) for tensor in op.data)
    return Command(
        name=op.name,
        kind=CommandKind.KERNEL,
        kernels=(kernel,),
        reads=tuple(reads),
        writes=tuple(tensor.name for tensor in op.results),
    )


def _blocks(kernel: Kernel, tiles: int, cores: int) -> int:
    product = product_of(kernel)
    if product is not None:
        return likely_product_blocks(product, cores)
    if kernel.kernel_class == KernelClass.VECTOR:
        return likely_blocks(kernel, cores)
    return min(tiles, cores)


def _arithmetic(op: Operator, kernel_class: KernelClass, dtype: str) -> str:
    """Products of integers are computed as such; all other work is timed at the rate of ``dtype``."""
    integers = op.needed(0).dtype in ("int8", "uint8") if op.inputs else False
    return "int8" if kernel_class == KernelClass.CUBE and integers else dtype


def _copy_in(tensor: Tensor) -> Command:
    return Command(
        name=f"h2d/{tensor.name}",
        kind=CommandKind.COPY,
        copy=CopyKind.H2D,
        size_bytes=tensor.size_bytes,
        writes=(tensor.name,),
    )


def _copy_out(tensor: Tensor, roots: Mapping[str, str]) -> Command:
    return Command(
        name=f"d2h/{tensor.name}",
        kind=CommandKind.COPY,
        copy=CopyKind.D2H,
        size_bytes=tensor.size_bytes,
        reads=(roots.get(tensor.name, tensor.name),),
    )


def _buffer(tensor: Tensor, weights: Level) -> Buffer:
    kind = BufferKind.MANAGED if tensor.constant else BufferKind.DEVICE
    level = weights if tensor.constant else Level.ABSENT
    return Buffer(name=tensor.name, size_bytes=tensor.size_bytes, kind=kind, level=level)
