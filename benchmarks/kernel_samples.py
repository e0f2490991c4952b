"""Kernels that profilers recorded with the shapes of their tensors: what the cost model is fitted to.

:func:`load_samples` reads every file of a folder that names shapes: ``kernel_details.csv`` of the Ascend
PyTorch profiler (all its column sets) and tidy tables with one row a task. It is a module of the other
benchmarks, not a command.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from cann_env.device.load import device_names, load_device
from cann_env.graph import Kernel, KernelClass, Operand
from cann_env.profiles.read import read_profile
from cann_env.units import InputError
from cann_env.workloads.recorded_device import device_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CLASS_OF_CORE = {
    "AI_CORE": KernelClass.CUBE,
    "AI_VECTOR_CORE": KernelClass.VECTOR,
    "MIX_AIC": KernelClass.MIX,
    "MIX_AIV": KernelClass.MIX,
    "AI_CPU": KernelClass.AICPU,
}
"""Class by the accelerator core of the profiler; what is not here (collectives, DSA) is no kernel."""

_PRODUCTS = """
    MatMul MatMulV2 MatMulV3 BatchMatMul BatchMatMulV2 BatchMatMulV3 Gemm GEMM GroupedMatmul
    Conv2D Conv2DBackpropInput Conv2DBackpropInputD Conv2DBackpropFilter Conv2DBackpropFilterD
"""
MATMUL_LIKE = frozenset(_PRODUCTS.split())
"""Operators whose work is a product of matrices."""

DTYPES = {
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "HALF": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
    "DOUBLE": "float64",
    "FLOAT64": "float64",
}
SIZE_OF = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "bfloat16": 2}
SIZE_OF |= {"float16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8}

_CHIP = re.compile(r"_(9\d\d[A-Z]\d?)(?:_|$)")
_CLASS_ON_910A = {True: KernelClass.CUBE, False: KernelClass.VECTOR}


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded kernel.

    Attributes:
        file: The recording it is of, a short name.
        chip: Name of a device file.
        kernel: What ran; its blocks are all cores of its class where the recording does not say.
        duration_ns: As recorded, launch and drain included.
        core_ns: Time its cores counted; None if not recorded.
        start_ns: From the earliest kernel of the file.
        core: The profiler's word for the kind of core (``AI_CORE``, ``MIX_AIV``, ...); empty if not recorded.
        blocks_known: Whether the recording says how many blocks there were.
        mix_blocks: Blocks on the other kind of core.
        counters: What the cores counted, by column; for understanding, never an input of the model.
    """

    file: str
    chip: str
    kernel: Kernel
    duration_ns: int
    core_ns: int | None
    start_ns: int
    core: str = ""
    blocks_known: bool = True
    mix_blocks: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)


def load_samples(data: Path) -> list[Sample]:
    """Samples of every file under a folder that names shapes, by file and start.

    Raises:
        InputError: There is none.
    """
    files = [*sorted(data.glob("**/kernel_details.csv")), *sorted(data.glob("**/*.csv"))]
    samples: list[Sample] = []
    for path in dict.fromkeys(files):
        samples += _read(path)
    if not samples:
        raise InputError(f"{data}: holds no recording with the shapes of kernels")
    return samples


def size_bytes(operand: Operand) -> int:
    """Bytes of a tensor."""
    return prod(operand.shape) * SIZE_OF.get(operand.dtype, 4)


def _read(path: Path) -> list[Sample]:
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        columns = set(reader.fieldnames or ())
        if {"Accelerator Core", "Input Shapes", "Type"} <= columns:
            outer = path.parent.parent if path.parent.name == "ASCEND_PROFILER_OUTPUT" else path.parent
            name = outer.name
            samples = list(_of_profiler(name, chip_of(path, name), reader))
        elif {"op_type", "input_shapes", "dur_us"} <= columns and "910A" in path.stem:
            samples = list(_of_table(path.stem, chip_of(path, path.stem), reader))
        else:
            return []
    origin = min((sample.start_ns for sample in samples), default=0)
    shifted = [replace(sample, start_ns=sample.start_ns - origin) for sample in samples]
    return sorted(shifted, key=lambda sample: sample.start_ns)


def chip_of(path: Path, name: str) -> str:
    """Device file of the chip in a recording's name (``qwen3_train_910B4_rank0``), or that its contents fit.

    Raises:
        InputError: Neither tells a chip that has a device file.
    """
    found = _CHIP.search(name)
    chip = f"ascend{found[1].lower()}" if found else device_of(read_profile(path))
    if chip not in device_names():
        raise InputError(f"{path}: names no chip; put one in the folder's name, such as _910B4")
    return chip


def _of_profiler(file: str, chip: str, rows: Iterator[dict[str, str]]) -> Iterator[Sample]:
    for row in rows:
        core = row["Accelerator Core"]
        if core not in CLASS_OF_CORE:
            continue
        counters = {k: float(v) for k, v in row.items() if k and k.startswith(("aic", "aiv")) and _number(v)}
        core_us = max(counters.get("aicore_time(us)", 0.0), counters.get("aiv_time(us)", 0.0))
        yield Sample(
            file,
            chip,
            _kernel(
                row["Name"],
                CLASS_OF_CORE[core],
                int(row["Block Dim"]),
                row["Type"],
                _operands(row["Input Shapes"], row["Input Data Types"], row["Input Formats"]),
                _operands(row["Output Shapes"], row["Output Data Types"], row["Output Formats"]),
            ),
            _ns(row["Duration(us)"]),
            round(core_us * 1000) or None,
            _ns(row["Start Time(us)"]),
            core,
            True,
            int(row["Mix Block Dim"]) if _number(row.get("Mix Block Dim", "")) else 0,
            counters,
        )


def _of_table(file: str, chip: str, rows: Iterator[dict[str, str]]) -> Iterator[Sample]:
    pools = load_device(chip).pools
    for row in rows:
        op = row["op_type"]
        if not op:
            continue
        inputs = _operands(row["input_shapes"], row["input_types"], "")
        # No column tells the types of outputs; nearly all operators here keep that of their input.
        outputs = _operands(row["output_shapes"], row["input_types"].split(";")[0], "")
        kernel_class = _CLASS_ON_910A[op in MATMUL_LIKE]
        known = _number(row["block_dim"])
        blocks = int(row["block_dim"]) if known else pools["aic"]
        kernel = _kernel(row["name"], kernel_class, blocks, op, inputs, outputs)
        yield Sample(file, chip, kernel, _ns(row["dur_us"]), None, _ns(row["start_us"]), "AI_CORE", known)


def _kernel(
    name: str,
    kernel_class: KernelClass,
    blocks: int,
    op: str,
    inputs: tuple[Operand, ...],
    outputs: tuple[Operand, ...],
) -> Kernel:
    return Kernel(
        name=name,
        kernel_class=kernel_class,
        blocks=max(1, blocks),
        dtype=next((operand.dtype for operand in inputs if operand.dtype), "float16"),
        bytes_read=sum(map(size_bytes, inputs)),
        bytes_written=sum(map(size_bytes, outputs)),
        op=op,
        inputs=inputs,
        outputs=outputs,
    )


def _operands(shapes: str, types: str, layouts: str) -> tuple[Operand, ...]:
    """Tensors of one side. An empty shape among others is an operand that is not there, and keeps its place.

    A tensor of no dimensions is written the same way; where it is the only one, it is taken as a scalar.
    """
    texts = shapes.replace('"', "").strip()
    scalar = [""] if types not in ("", "N/A") else []
    words = scalar if texts in ("", "N/A") else texts.split(";")
    kinds, forms = types.split(";"), layouts.split(";")
    alone = len(words) == 1
    operands = []
    for place, word in enumerate(words):
        sizes = tuple(int(size) for size in word.split(",") if size.strip())
        kind = kinds[place] if place < len(kinds) else kinds[-1]
        form = forms[place] if place < len(forms) else ""
        shape = sizes if sizes or alone else (0,)
        operands.append(Operand(shape, _dtype(kind), form.removeprefix("FORMAT_") or _layout(sizes)))
    return tuple(operands)


def _layout(sizes: tuple[int, ...]) -> str:
    return "FRACTAL_NZ" if len(sizes) == 4 and sizes[-2:] == (16, 16) else "ND"


def _dtype(word: str) -> str:
    word = word.strip().removeprefix("DT_").removeprefix("NUMBER_TYPE_")
    return DTYPES.get(word, word.lower())


def _number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _ns(text: str) -> int:
    """Microseconds as written to whole nanoseconds, without a float's rounding of large times."""
    whole, _, part = text.strip().partition(".")
    sign = -1 if whole.startswith("-") else 1
    return int(whole or "0") * 1000 + sign * int((part + "000")[:3])
