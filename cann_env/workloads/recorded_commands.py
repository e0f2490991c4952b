"""Single commands of a recording: what each task is in a graph, and what its tensors say of its work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cann_env.commands import Command, CommandKind, CopyKind, Kernel, KernelClass
from cann_env.device.cost import cores_of_class, cost_of
from cann_env.profiles.recording import TaskKind, Verdict
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Operand
    from cann_env.device.spec import DeviceSpec
    from cann_env.profiles.recording import Report, Task

_MATRIX_WORDS = ("matmul", "batchmatmul", "gemm", "addmm", "bmm")
_CUBE_WORDS = (*_MATRIX_WORDS, "conv", "flashattention", "fusedattention")
_ARITHMETIC = ("float16", "bfloat16", "float32", "int8")
_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_USUAL_BYTES = 4
_USUAL_TYPE = "float16"
_BYTES_OF_A_BLOCK = 16 << 10  # operators leave cores idle before they give them less than some kilobytes


def bytes_of(operands: Sequence[Operand]) -> int:
    """Bytes of some tensors; elements of an unknown type count four each, tensors without a type nothing."""
    return sum(size_of(operand) for operand in operands)


def size_of(operand: Operand) -> int:
    """Bytes of a tensor; see :func:`bytes_of`."""
    if not operand.shape and not operand.dtype:
        return 0
    return math.prod(operand.shape) * _BYTES.get(operand.dtype, _USUAL_BYTES)


def is_matrix_product(op: str) -> bool:
    """Whether an operator type is a product of two matrices."""
    return any(word in op.lower() for word in _MATRIX_WORDS)


def matrix_flops(inputs: Sequence[Operand], outputs: Sequence[Operand]) -> int:
    """Operations of ``(b, m, k) x (b, k, n) -> (b, m, n)``, 2·b·m·k·n; 0 if the shapes do not tell.

    Either matrix may lie transposed or in fractals, so the length that both share comes from the numbers of
    elements: with a, b and c of them, and matrices in a batch, it is the root of a·b / (c·batch).
    """
    if len(inputs) < 2 or not outputs:
        return 0
    first, second, result = (operand.shape for operand in (inputs[0], inputs[1], outputs[0]))
    if min(len(first), len(second), len(result)) < 2:
        return 0
    plain = inputs[1].layout == "ND" and outputs[0].layout == "ND"
    batch = math.prod(result[:-2]) if plain and len(second) == len(result) else 1
    elements = math.prod(result) * batch
    if elements == 0:
        return 0
    shared = math.sqrt(math.prod(first) * math.prod(second) / elements)
    return round(2 * math.prod(result) * shared)


class Pricing(NamedTuple):
    """How tasks become commands.

    Attributes:
        measured: Keep recorded times even where tensors are known.
        device: Where they ran; None if that is not known.
        report: Takes what was guessed.
    """

    measured: bool
    device: DeviceSpec | None
    report: Report

    def guess(self, what: str, task: Task) -> None:
        """Note a guess."""
        self.report.note(Verdict.GUESSED, what, task.place)


def kernel_of(task: Task, pricing: Pricing) -> Kernel:
    """The kernel that a task of kind KERNEL ran."""
    known = bool(task.op) and bool(task.inputs or task.outputs)
    if not pricing.measured and not known:
        pricing.guess("kernels without tensors keep their recorded time", task)
    kernel_class = task.kernel_class
    if kernel_class is None:
        kernel_class = _class_by_operator(task.op)
        pricing.guess("classes of kernels, by their operator", task)
    measured = pricing.measured or not known
    task = _with_types(task, pricing)
    types = [operand.dtype for operand in task.inputs if operand.dtype in _ARITHMETIC]
    flops = matrix_flops(task.inputs, task.outputs) if types and is_matrix_product(task.op) else 0
    kernel = Kernel(
        name=task.name,
        kernel_class=kernel_class,
        blocks=task.blocks or _blocks(task, kernel_class, pricing, measured=measured),
        flops=flops,
        dtype=types[0] if types else "float16",
        bytes_read=bytes_of(task.inputs),
        bytes_written=bytes_of(task.outputs),
        duration_ns=max(1, task.duration_ns) if measured else None,
        op=task.op,
        inputs=task.inputs,
        outputs=task.outputs,
    )
    if measured or pricing.device is None or _has_price(kernel, pricing.device):
        return kernel
    pricing.guess("kernels that the device has no price for keep their recorded time", task)
    return replace(kernel, duration_ns=max(1, task.duration_ns))


def _with_types(task: Task, pricing: Pricing) -> Task:
    """The task with a type for every tensor that has elements."""
    types = [operand.dtype for operand in task.inputs if operand.dtype in _ARITHMETIC]
    if types and any(not operand.dtype for operand in task.outputs):
        pricing.guess("types of results, as of the first operand with a rate", task)
        outputs = tuple(replace(operand, dtype=operand.dtype or types[0]) for operand in task.outputs)
        task = replace(task, outputs=outputs)
    if pricing.measured or not any(map(_lacks_type, task.inputs + task.outputs)):
        return task
    pricing.guess(f"types of tensors that were not recorded, taken for {_USUAL_TYPE}", task)
    inputs, outputs = (
        tuple(replace(one, dtype=_USUAL_TYPE) if _lacks_type(one) else one for one in side)
        for side in (task.inputs, task.outputs)
    )
    return replace(task, inputs=inputs, outputs=outputs)


def _lacks_type(operand: Operand) -> bool:
    return bool(operand.shape) and not operand.dtype


def _has_price(kernel: Kernel, device: DeviceSpec) -> bool:
    try:
        cost_of(device, kernel.kernel_class.value, kernel)
    except InputError:
        return False
    return True


def command_of(task: Task, pricing: Pricing) -> Command:
    """The command that a task was, with its own name (or its operator or kind) and no place in a graph yet.

    What neither computes nor copies occupies its stream for the recorded time.
    """
    task = replace(task, name=task.name or task.op or task.kind.value)
    if task.kind is TaskKind.KERNEL:
        return Command(name=task.name, kind=CommandKind.KERNEL, kernels=(kernel_of(task, pricing),))
    if task.kind is TaskKind.COPY:
        return _copy(task, pricing)
    kind = CommandKind.CALLBACK if task.kind is TaskKind.CALLBACK else CommandKind.COLLECTIVE
    return Command(name=task.name, kind=kind, duration_ns=max(1, task.duration_ns))


def _blocks(task: Task, kernel_class: KernelClass, pricing: Pricing, *, measured: bool) -> int:
    """Blocks of a kernel for which none were recorded."""
    if measured or pricing.device is None:
        pricing.guess("kernels of unknown block count, taken for one block", task)
        return 1
    pricing.guess("kernels of unknown block count, as their bytes fill cores", task)
    filled = (bytes_of(task.inputs) + bytes_of(task.outputs)) // _BYTES_OF_A_BLOCK
    return max(1, min(filled, cores_of_class(pricing.device, kernel_class.value)))


def _copy(task: Task, pricing: Pricing) -> Command:
    if not task.size_bytes:
        pricing.guess("copies of unknown size keep their recorded time", task)
    if task.copy is None:
        pricing.guess("copies of unknown direction, taken to stay on the device", task)
    return Command(
        name=task.name,
        kind=CommandKind.COPY,
        copy=task.copy or CopyKind.D2D,
        size_bytes=max(1, task.size_bytes),
        duration_ns=max(1, task.duration_ns) if pricing.measured or not task.size_bytes else 0,
    )


def _class_by_operator(op: str) -> KernelClass:
    cube = any(word in op.lower() for word in _CUBE_WORDS)
    return KernelClass.CUBE if cube else KernelClass.VECTOR
