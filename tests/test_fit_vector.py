"""The fit of vector and AI CPU kernels on made-up recordings: planted constants, and what it reports."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.graph import Kernel, KernelClass, Operand

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CHIP = "ascend910b4"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a module of the benchmarks as if it was run from its folder."""
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def sample(bench: Callable[[str], Any], op: str, elements: int, blocks: int, **fields: Any) -> Any:
    """An operator with one input and one output of float16, at a time of its own."""
    tensor = Operand((elements,), "float16")
    kernel = Kernel(
        name=op, kernel_class=KernelClass.VECTOR, blocks=blocks, op=op, inputs=(tensor,), outputs=(tensor,),
        bytes_read=2 * elements, bytes_written=2 * elements,
    )  # fmt: skip
    known = {"core_ns": None, "start_ns": elements, "core": "AI_VECTOR_CORE", "duration_ns": 1000}
    return bench("kernel_samples").Sample("made_up", CHIP, kernel, **(known | fields))


@pytest.mark.slow
def test_the_fit_finds_planted_constants(bench) -> None:
    """Forty kernels last what the model says with other constants than the device file's."""
    fit_vector = bench("fit_vector")
    planted = fit_vector.START | {"launch_ns": 2500.0, "mixed_efficiency": 0.5, "fill_ns": 3000.0}
    ops = ("Add", "ZerosLike", "LpNormV2", "Cos", "GatherV2")
    samples = [
        sample(bench, op, 64 << i, min(40, 1 << i)) for op in ops for i in (0, 4, 8, 12, 16, 18, 20, 22)
    ]
    samples = [
        replace(one, duration_ns=fit_vector.time_ns(case, planted))
        for one, case in zip(samples, fit_vector.cases(samples), strict=True)
    ]
    found = fit_vector.fit(samples)
    assert found.own[CHIP]["launch_ns"] == pytest.approx(2500, rel=0.05)
    assert found.shared["mixed_efficiency"] == pytest.approx(0.5, rel=0.1)
    errors = [abs(p / s.duration_ns - 1) for p, s in zip(found.predict(samples), samples, strict=True)]
    assert max(errors) < 0.1
    assert {row.chip for row in found.rows()} == {"all", CHIP}


def test_other_families_are_passed_over(bench) -> None:
    fit_vector, fit_aicpu = bench("fit_vector"), bench("fit_aicpu")
    mixed = sample(bench, "Add", 64, 4)
    cube = replace(mixed, kernel=replace(mixed.kernel, op="MatMulV2", kernel_class=KernelClass.CUBE))
    slow = replace(
        mixed, kernel=replace(mixed.kernel, kernel_class=KernelClass.AICPU), core="AI_CPU", duration_ns=90_000
    )
    cases = fit_vector.cases([mixed, cube, slow])
    assert [case is None for case in cases] == [False, True, True]
    found = fit_aicpu.fit(
        [mixed, slow, replace(slow, duration_ns=110_000), replace(slow, duration_ns=70_000)]
    )
    assert found.predict([mixed, cube, slow]) == [None, None, 90_000]
    assert fit_aicpu.fit([]).predict([slow]) == [None]


def test_a_table_without_types_is_read_by_who_reads_it(bench) -> None:
    """A Cast from float32 whose output is read as float16 wrote float16; what nobody reads keeps its type."""
    fit_vector = bench("fit_vector")
    wide, half = Operand((8,), "float32"), Operand((2, 4), "float16")
    made = sample(bench, "Cast", 8, 1, blocks_known=False)
    first = replace(made, kernel=replace(made.kernel, inputs=(wide,), outputs=(wide,)))
    then = replace(made, kernel=replace(made.kernel, op="Relu", inputs=(half,), outputs=(half,)))
    typed = fit_vector.with_types([first, then])
    assert [one.kernel.outputs[0].dtype for one in typed] == ["float16", "float16"]
    alone = fit_vector.with_types([first])
    assert alone[0].kernel.outputs[0].dtype == "float32"


def test_bandwidths_by_size(bench) -> None:
    """20 MB in 20 us are 1000 GB/s beside a modelled 500; of 4 kB the time counts; Softmax is not listed."""
    fit_cost, table = bench("fit_cost"), bench("bandwidths")
    large = sample(bench, "Add", 5_000_000, 40, duration_ns=20_000)
    small = sample(bench, "Add", 1000, 1, duration_ns=1500)
    other = sample(bench, "Softmax", 5_000_000, 40, start_ns=7)
    priced = [
        fit_cost.Priced(large, "vector", 40_000),
        fit_cost.Priced(small, "vector", 3000),
        fit_cost.Priced(other, "vector", 1),
    ]
    rows = table.bandwidths(priced, [fit_cost.Priced(one.sample, "vector", 1000) for one in priced])
    assert [(row.kernels_of, row.unit, row.measured, row.left_out) for row in rows] == [
        ("10 to 200 MB", "GB/s", 1000, 500),
        ("below 10 kB", "us", 1.5, 3),
    ]
    assert rows[0].fitted == 20_000
