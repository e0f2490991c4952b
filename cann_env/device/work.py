"""What a vector kernel does, counted from its operator and tensors: bytes, cycles, requests, phases."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from cann_env.device.families import FAMILIES, SIMPLE, Access, Family
from cann_env.device.products import ELEMENT_BYTES, operand_bytes

if TYPE_CHECKING:
    from cann_env.commands import Kernel, Operand

BURST_BYTES = 512
"""Least that memory moves at once: a row that is shorter and stands alone costs as much as a full one."""

BLOCK_BYTES = 1024
"""Least that a block is usually given to move."""

_CAST_TO = {"float32": 2, "float16": 4, "bfloat16": 4}


@dataclass(frozen=True, slots=True)
class VectorWork:
    """What a kernel does, whichever core it runs on.

    Attributes:
        read_bytes: Read through the ports of the cores.
        written_bytes: Written the same way.
        fetched_bytes: What memory moves for the bytes read; more where rows are shorter than a burst.
        cycles: Arithmetic of all cores together, at the full width of a register.
        requests: Rows asked for one by one.
        phases: Parts that wait for each other.
    """

    read_bytes: int
    written_bytes: int
    fetched_bytes: int = 0
    cycles: float = 0.0
    requests: int = 0
    phases: int = 1


def likely_blocks(kernel: Kernel, cores: int) -> int:
    """Blocks of a vector kernel where they are not recorded: all cores, or one a KiB if that is less."""
    work = work_of(kernel)
    return max(1, min(cores, max(work.read_bytes, work.written_bytes) // BLOCK_BYTES))


def element_bytes(operand: Operand) -> int:
    """Bytes of an element of a tensor."""
    return ELEMENT_BYTES.get(operand.dtype, 1)


def family_of(op: str) -> Family:
    """Family of a type of operator; an unknown one is as simple as an addition."""
    return FAMILIES.get(op, SIMPLE)


def work_of(kernel: Kernel) -> VectorWork:
    """Count what a vector kernel does.

    Without tensors its own bytes count, and nothing is known of its arithmetic.
    """
    family = family_of(kernel.op)
    if not kernel.inputs and not kernel.outputs:
        read, written = kernel.bytes_read, kernel.bytes_written
        return VectorWork(read, written, read, 0.0, 0, family.phases)
    written = _written(kernel, family)
    return _COUNT[family.access](kernel, family, written)


def _written(kernel: Kernel, family: Family) -> int:
    """Bytes of the outputs; of a conversion whose table gives both sides one type, at the other width."""
    written = sum(map(operand_bytes, kernel.outputs))
    if not written and family.in_place:
        return sum(map(operand_bytes, kernel.inputs[: family.in_place]))
    if kernel.op == "Cast" and len(kernel.outputs) == 1 == len(kernel.inputs):
        source, target = kernel.inputs[0], kernel.outputs[0]
        if source.dtype == target.dtype in _CAST_TO:
            return prod(target.shape) * _CAST_TO[target.dtype]
    return written


def _elements(*operands: Operand) -> int:
    return max((prod(operand.shape) for operand in operands), default=0)


def _whole(kernel: Kernel, family: Family, written: int) -> VectorWork:
    inputs = kernel.inputs[: family.reads or None]
    read = sum(map(operand_bytes, inputs))
    cycles = 0.0 if _moves_rows(kernel) else family.cycles * _elements(*inputs, *kernel.outputs)
    return VectorWork(read, written, read, cycles + _ragged(kernel), 0, family.phases)


def _moves_rows(kernel: Kernel) -> bool:
    """Whether a transpose leaves the innermost dimension where it is, and that is a burst or more."""
    if kernel.op not in ("Transpose", "TransposeD") or not kernel.inputs or not kernel.outputs:
        return False
    last = kernel.inputs[0].shape[-1:]
    row = prod(last) * element_bytes(kernel.inputs[0])
    return last == kernel.outputs[0].shape[-1:] and row >= BURST_BYTES


def _ragged(kernel: Kernel) -> float:
    """Cycles of a change of layout whose rows are too short for a vector move."""
    if kernel.op == "TransData" and kernel.inputs and kernel.outputs:
        if "FRACTAL_Z" in (kernel.inputs[0].layout, kernel.outputs[0].layout):
            return 4.0 * _elements(kernel.inputs[0])
        plain = min(kernel.inputs[0], kernel.outputs[0], key=lambda operand: len(operand.shape))
        if len(plain.shape) == 2 and plain.shape[-1] * element_bytes(plain) < 32:
            return 130.0 * (prod(plain.shape) // max(plain.shape[-1], 1))
    return 0.0


def _write(kernel: Kernel, family: Family, written: int) -> VectorWork:
    return VectorWork(0, written, 0, family.cycles * _elements(*kernel.outputs), 0, family.phases)


def _clear(kernel: Kernel, family: Family, written: int) -> VectorWork:
    cleared = max(written, sum(map(operand_bytes, kernel.inputs)))
    return VectorWork(0, cleared, 0, 0.0, 0, family.phases)


def _row_bytes(whole: Operand, part: Operand) -> int:
    """Bytes that lie together in both a tensor and a part of it."""
    size = element_bytes(part)
    if len(whole.shape) != len(part.shape):
        return max(1, prod(part.shape[-1:])) * size
    differ = [i for i in range(len(part.shape)) if whole.shape[i] != part.shape[i]]
    return max(1, prod(part.shape[differ[-1] :])) * size if differ else prod(part.shape) * size


def _part(kernel: Kernel, family: Family, written: int) -> VectorWork:
    if not kernel.inputs or not kernel.outputs:
        return _whole(kernel, family, written)
    source, target = kernel.inputs[0], kernel.outputs[0]
    read = min(operand_bytes(source), written)
    row = max(1, _row_bytes(source, target))
    if row >= BURST_BYTES:
        return VectorWork(read, written, read, 0.0, 0, family.phases)
    rows = read // row
    fetched = max(read, min(operand_bytes(source), rows * BURST_BYTES))
    return VectorWork(read, written, fetched, family.row_cycles * rows, 0, family.phases)


def _rows(kernel: Kernel, family: Family, written: int) -> VectorWork:
    """A gather: as much is read as is written, whatever the size of the table."""
    source = kernel.inputs[0] if kernel.inputs else None
    if source is None:
        return _whole(kernel, family, written)
    row = max(1, prod(source.shape[1:]) if kernel.op != "Index" else 1) * element_bytes(source)
    rows = written // row
    indices = sum(map(operand_bytes, kernel.inputs[1:]))
    return VectorWork(
        written + indices, written, rows * max(row, BURST_BYTES) + indices, 0.0, rows, family.phases
    )


def _add_rows(kernel: Kernel, family: Family, written: int) -> VectorWork:
    """A scatter that adds: every row of the input is read and added to a row of the output."""
    if not kernel.inputs or not kernel.outputs:
        return _whole(kernel, family, written)
    read = sum(map(operand_bytes, kernel.inputs))
    added = operand_bytes(kernel.inputs[0])
    row = max(1, prod(kernel.outputs[0].shape[1:])) * element_bytes(kernel.inputs[0])
    rows = added // row
    touched = rows * max(row, BURST_BYTES)
    return VectorWork(read + added, added, read + touched, 0.0, rows, family.phases)


def _join(kernel: Kernel, family: Family, written: int) -> VectorWork:
    if not kernel.inputs or not kernel.outputs:
        return _whole(kernel, family, written)
    read = sum(map(operand_bytes, kernel.inputs))
    whole, parts = kernel.outputs[0], kernel.inputs
    if len(kernel.outputs) > 1:
        whole, parts = kernel.inputs[0], kernel.outputs
    # An axis or a list of sizes may be among the inputs: it is no part.
    row = min((_row_bytes(whole, part) for part in parts if len(part.shape) == len(whole.shape)), default=0)
    short = family.row_cycles * (min(read, written) // row) if 0 < row < BURST_BYTES else 0.0
    return VectorWork(read, written, read, short, 0, family.phases)


_COUNT = {
    Access.WHOLE: _whole,
    Access.WRITE: _write,
    Access.PART: _part,
    Access.ROWS: _rows,
    Access.ADD_ROWS: _add_rows,
    Access.JOIN: _join,
    Access.CLEAR: _clear,
}
