"""Single commands of a recording: what each task is in a graph, and what its tensors say of its work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cann_env.commands import Command, CommandKind, CopyKind, Kernel, KernelClass
from cann_env.profiles.recording import TaskKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.commands import Operand
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


def kernel_of(task: Task, *, measured: bool, report: Report) -> Kernel:
    """The kernel that a task ran.

    Args:
        task: Of kind KERNEL.
        measured: Keep its recorded time even where its tensors are known.
        report: Takes what was guessed.
    """
    known = bool(task.op) and bool(task.inputs or task.outputs)
    if not measured and not known:
        report.note(Verdict.GUESSED, "kernels without tensors keep their recorded time", task.place)
    if task.blocks is None:
        report.note(Verdict.GUESSED, "kernels of unknown block count, taken for one block", task.place)
    kernel_class = task.kernel_class
    if kernel_class is None:
        kernel_class = _class_by_operator(task.op)
        report.note(Verdict.GUESSED, "classes of kernels, by their operator", task.place)
    types = [operand.dtype for operand in task.inputs if operand.dtype in _ARITHMETIC]
    flops = matrix_flops(task.inputs, task.outputs) if types and is_matrix_product(task.op) else 0
    return Kernel(
        name=task.name,
        kernel_class=kernel_class,
        blocks=task.blocks or 1,
        flops=flops,
        dtype=types[0] if types else "float16",
        bytes_read=bytes_of(task.inputs),
        bytes_written=bytes_of(task.outputs),
        duration_ns=max(1, task.duration_ns) if measured or not known else None,
        op=task.op,
        inputs=task.inputs,
        outputs=task.outputs,
    )


def command_of(task: Task, *, measured: bool, report: Report) -> Command:
    """The command that a task was, with its own name and no place in a graph yet.

    What neither computes nor copies occupies its stream for the recorded time.
    """
    if task.kind is TaskKind.KERNEL:
        kernel = kernel_of(task, measured=measured, report=report)
        return Command(name=task.name, kind=CommandKind.KERNEL, kernels=(kernel,))
    if task.kind is TaskKind.COPY:
        return _copy(task, measured=measured, report=report)
    kind = CommandKind.CALLBACK if task.kind is TaskKind.CALLBACK else CommandKind.COLLECTIVE
    return Command(name=task.name, kind=kind, duration_ns=max(1, task.duration_ns))


def _copy(task: Task, *, measured: bool, report: Report) -> Command:
    if not task.size_bytes:
        report.note(Verdict.GUESSED, "copies of unknown size keep their recorded time", task.place)
    if task.copy is None:
        report.note(Verdict.GUESSED, "copies of unknown direction, taken to stay on the device", task.place)
    return Command(
        name=task.name,
        kind=CommandKind.COPY,
        copy=task.copy or CopyKind.D2D,
        size_bytes=max(1, task.size_bytes),
        duration_ns=max(1, task.duration_ns) if measured or not task.size_bytes else 0,
    )


def _class_by_operator(op: str) -> KernelClass:
    cube = any(word in op.lower() for word in _CUBE_WORDS)
    return KernelClass.CUBE if cube else KernelClass.VECTOR
