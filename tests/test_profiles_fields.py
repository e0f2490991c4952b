"""Fields of profiler files: exact times, shapes, types and layouts, and what is refused of them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cann_env.commands import CopyKind, KernelClass, Operand
from cann_env.profiles.fields import (
    dtype,
    duration_ns,
    integer,
    is_missing,
    layout,
    number,
    operands,
    shapes,
    time_ns,
)
from cann_env.profiles.recording import TaskKind
from cann_env.profiles.words import kernel_class, meaning
from cann_env.units import InputError

WHERE = "some.csv, line 3, column 'Duration(us)'"
FAR_NS = 2**62


@given(st.integers(-FAR_NS, FAR_NS), st.sampled_from(["{}", "{}\t", ' "{}" ', '"{}\t"', "  {}"]))
def test_times_keep_every_nanosecond(ns: int, form: str) -> None:
    sign, whole, part = "-" if ns < 0 else "", *divmod(abs(ns), 1000)
    text = f"{sign}{whole}.{part:03d}"
    assert time_ns(form.format(text), WHERE) == ns
    assert time_ns(form.format(text + "000"), WHERE) == ns
    assert time_ns(form.format(str(ns)), WHERE, "ns") == ns


@given(st.integers(0, FAR_NS))
def test_json_numbers_are_as_exact_as_they_are_read(ns: int) -> None:
    text = f"[{ns // 1000}.{ns % 1000:03d}]"
    assert time_ns(json.loads(text, parse_float=Decimal)[0], WHERE) == ns
    if ns < 2**53:  # a float holds fifteen digits
        assert time_ns(json.loads(text)[0], WHERE) == ns


@pytest.mark.parametrize(
    ("value", "unit", "ns"),
    [
        ("1.5", "ms", 1_500_000),
        ("2", "s", 2_000_000_000),
        (7, "us", 7000),
        ("1e3", "us", 1_000_000),
        ("1.7E+15", "us", 1_700_000_000_000_000_000),
        (".5", "us", 500),
        ("0.0004", "us", 0),
        ("0.0015", "us", 2),
        ("0.0025", "us", 2),
        (-0.0, "us", 0),
    ],
)
def test_times_in_other_forms(value: object, unit: str, ns: int) -> None:
    assert time_ns(value, WHERE, unit) == ns


@pytest.mark.parametrize(
    "value",
    [
        "abc",
        "",
        "N/A",
        None,
        True,
        [],
        "1_000",
        "1,5",
        "nan",
        "inf",
        float("nan"),
        float("inf"),
        "1e999",
        "12 us",
        "0x10",
        "--1",
        "1.2.3",
        "\u0663",
        10**40,
        Decimal("NaN"),
        "9" * 80,
        Decimal("1e400"),
    ],
)
def test_what_is_no_time_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(
        InputError, match=r"some\.csv, line 3, column 'Duration\(us\)': .* is not a time; write"
    ) as caught:
        time_ns(value, WHERE)
    assert "microseconds such as 12.5" in str(caught.value)
    assert len(str(caught.value)) < 250


def test_durations_are_not_negative() -> None:
    assert duration_ns("0.0", WHERE) == 0
    with pytest.raises(InputError, match=r"'-0.5' is a negative duration; write microseconds such as 12.5"):
        duration_ns("-0.5", WHERE)


@pytest.mark.parametrize(
    ("value", "whole"), [("12", 12), (12, 12), ("12.0", 12), (12.0, 12), (" 4294967295\t", 2**32 - 1)]
)
def test_whole_numbers(value: object, whole: int) -> None:
    assert integer(value, WHERE) == whole
    assert number(value, WHERE) == whole


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("12.5", "'12.5' is not a whole number of at least 0"),
        ("-1", "'-1' is not a whole number of at least 0"),
        (-1, "-1 is not a whole number of at least 0"),
        (2**64, "18446744073709551616 is not a whole number of at least 0"),
        ("1e99", "'1e99' is not a whole number of at least 0"),
        ("x" * 500, "xxx...' is not a whole number of at least 0"),
    ],
)
def test_what_is_no_whole_number_is_refused(value: object, words: str) -> None:
    with pytest.raises(InputError, match=r"some\.csv, line 3") as caught:
        integer(value, WHERE, least=0)
    assert words in str(caught.value)


def test_numbers_below_the_least_are_refused() -> None:
    assert integer("1", WHERE, least=1) == 1
    with pytest.raises(InputError, match="'0' is not a whole number of at least 1"):
        integer("0", WHERE, least=1)
    assert integer("-3", WHERE) == -3


@pytest.mark.parametrize("value", [None, "", "N/A", " n/a\t", '"N/A"', '""', "NULL", "nan", "-"])
def test_what_says_nothing(value: object) -> None:
    assert is_missing(value)


@pytest.mark.parametrize("value", [0, "0", False, "N", [], 0.0])
def test_what_says_something(value: object) -> None:
    assert not is_missing(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"32,3,224,224;64,3,11,11"', ((32, 3, 224, 224), (64, 3, 11, 11))),
        ('"""32,3"""', ((32, 3),)),
        ('"4096;1;"', ((4096,), (1,), ())),
        ('";8"', ((), (8,))),
        ("[[2,3];[4,]]", ((2, 3), (4,))),
        ("0,4", ((0, 4),)),
        ('""', ()),
        ("N/A", ()),
        (None, ()),
    ],
)
def test_shapes(text: object, expected: tuple[tuple[int, ...], ...]) -> None:
    assert shapes(text, WHERE) == expected


@pytest.mark.parametrize("text", ["3,x", "3,-1", "3,,4", "2.5", "3 4"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"some\.csv, line 3.*is not a size; write shapes such as 32,64;64,16"
    ):
        shapes(text, WHERE)
    with pytest.raises(InputError, match=r"some\.csv, line 3"):
        operands(text, "FLOAT", "ND", WHERE)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("FLOAT16", "float16"),
        ("DT_FLOAT16", "float16"),
        ("NUMBER_TYPE_FLOAT16", "float16"),
        ("FLOAT", "float32"),
        ("DT_FLOAT", "float32"),
        ("NUMBER_TYPE_FLOAT32", "float32"),
        ("DT_BF16", "bfloat16"),
        ("torch.bfloat16", "bfloat16"),
        ("INT64", "int64"),
        ("DT_BOOL", "bool"),
        ("UINT8", "uint8"),
        ("DOUBLE", "float64"),
        ("FLOAT8_E4M3FN", "float8_e4m3fn"),
        ("UNDEFINED", ""),
        ("DT_UNDEFINED", ""),
        ("N/A", ""),
    ],
)
def test_types(word: str, name: str) -> None:
    assert dtype(word) == name


@pytest.mark.parametrize(
    ("word", "name"),
    [("FORMAT_ND", "ND"), ("NC1HWC0:1", "NC1HWC0"), ("FRACTAL_NZ", "FRACTAL_NZ"), ("NULL", "ND"), ("", "ND")],
)
def test_layouts(word: str, name: str) -> None:
    assert layout(word) == name


def test_operands_keep_their_place() -> None:
    """An operand that is not given holds its place between others, and is nothing at the end."""
    found = operands('"4,8;;8,2;"', "DT_BF16;DT_UNDEFINED;FLOAT;UNDEFINED", "ND;NULL;FRACTAL_NZ;NULL", WHERE)
    assert found == (Operand((4, 8), "bfloat16"), Operand((), ""), Operand((8, 2), "float32", "FRACTAL_NZ"))


def test_operands_of_uneven_lists() -> None:
    assert operands('""', "FLOAT", "ND", WHERE) == (Operand((), "float32"),)
    assert operands("5", "", "", WHERE) == (Operand((5,)),)
    assert operands("N/A", "N/A", "N/A", WHERE) == ()


@pytest.mark.parametrize(
    ("word", "kind", "detail"),
    [
        ("AI_CORE", TaskKind.KERNEL, KernelClass.CUBE),
        ("AI_VECTOR_CORE", TaskKind.KERNEL, KernelClass.VECTOR),
        ("MIX_AIC", TaskKind.KERNEL, KernelClass.MIX),
        ("mix_aiv", TaskKind.KERNEL, KernelClass.MIX),
        ("AI_CPU", TaskKind.KERNEL, KernelClass.AICPU),
        ("KERNEL_AICPU", TaskKind.KERNEL, KernelClass.AICPU),
        ("DSA_SQE", TaskKind.KERNEL, None),
        ("FFTS_PLUS", TaskKind.KERNEL, None),
        ("HCCL", TaskKind.COLLECTIVE, None),
        ("COMMUNICATION", TaskKind.COLLECTIVE, None),
        ("EVENT_RECORD_SQE", TaskKind.RECORD, None),
        ("DAVID_EVENT_WAIT", TaskKind.WAIT, None),
        ("CAPTURE_WAIT", TaskKind.WAIT, None),
        ("EVENT_RESET", TaskKind.RESET, None),
        ("Notify Wait", TaskKind.PEER_WAIT, None),
        ("Write Value", TaskKind.OTHER, None),
        ("PLACE_HOLDER_SQE", TaskKind.OTHER, None),
        ("MODEL_MAINTAINCE", TaskKind.OTHER, None),
        ("MEMCPY_ASYNC", TaskKind.COPY, None),
        ("PCIE_DMA_SQE", TaskKind.COPY, None),
        ("SDMA_SQE", TaskKind.COPY, CopyKind.D2D),
        ("HOST_CPU_SQE", TaskKind.CALLBACK, None),
    ],
)
def test_words_for_tasks(word: str, kind: TaskKind, detail: KernelClass | CopyKind | None) -> None:
    found = meaning(word)
    assert found is not None
    assert (found.kind, found.kernel_class or found.copy) == (kind, detail)
    assert kernel_class(word) == (detail if kind == TaskKind.KERNEL else None)


def test_unknown_words_have_no_meaning() -> None:
    assert meaning("TELEPORT") is None
    assert kernel_class("TELEPORT") is None
