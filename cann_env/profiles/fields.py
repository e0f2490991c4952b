"""Single fields of profiler files: numbers, times, shapes, types and layouts, as text or as JSON values.

Times become whole nanoseconds by decimal arithmetic: a recorder's clock counts microseconds since 1970, whose
digits below the microsecond a float does not hold. ``where`` is anything whose text names
the place (``"kernel_details.csv, line 12, column 'Duration(us)'"``); it is formatted only in an error.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from cann_env.commands import Operand
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = frozenset({"", "N/A", "NA", "NULL", "NONE", "NAN", "-"})
_PLACES = {"ns": 0, "us": 3, "ms": 6, "s": 9}
_EXAMPLES = {
    "ns": "nanoseconds such as 12500",
    "us": "microseconds such as 12.5",
    "ms": "milliseconds such as 0.0125",
    "s": "seconds such as 0.0000125",
}
_LONGEST = 60
_PLAIN_DIGITS = 18
_WIDE = Context(prec=2 * _LONGEST, rounding=ROUND_HALF_EVEN)
_MOST = 2**63 - 1
_PREFIXES = re.compile(r"^(?:GE::|TORCH\.|ACL_|DT_|NUMBER_TYPE_|KNUMBERTYPE)")
_NO_LAYOUT = frozenset({"UNDEFINED", "DEFAULTFORMAT", "RESERVED"})
_DTYPES = {
    "": "",
    "UNDEFINED": "",
    "UNKNOWN": "",
    "UNKNOWN_TYPE": "",
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FP32": "float32",
    "F32": "float32",
    "FLOAT16": "float16",
    "FP16": "float16",
    "F16": "float16",
    "HALF": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
    "FLOAT64": "float64",
    "DOUBLE": "float64",
    "LONG": "int64",
    "INT": "int32",
    "SHORT": "int16",
    "CHAR": "int8",
}


def is_missing(value: object) -> bool:
    """Whether a field says nothing: absent, empty, or a word such as ``N/A`` or ``null``."""
    return value is None or (isinstance(value, str) and bare(value).upper() in _MISSING)


def number(value: object, where: object, what: str = "a number") -> Decimal:
    """A decimal number, exactly as written; ``what`` says in the error what it should have been.

    Raises:
        InputError: Not a finite number.
    """
    if isinstance(value, str):
        text = bare(value)
        if len(text) <= _LONGEST and _NUMBER.fullmatch(text):
            return Decimal(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    elif isinstance(value, Decimal) and value.is_finite():
        return value
    elif isinstance(value, float) and Decimal(value).is_finite():
        return Decimal(repr(value))  # its shortest text, not the digits of its binary fraction
    raise InputError(f"{where}: {shown(value)} is not {what}")


def integer(value: object, where: object, what: str = "", *, least: int | None = None) -> int:
    """A whole number (``12``, ``"12"``, also ``"12.0"`` as some tools write it), at least ``least``.

    Args:
        value: Text or a JSON number.
        where: The place, for the message.
        what: What the message says it should have been; empty to say the bounds.
        least: Smallest that is allowed; None for any.

    Raises:
        InputError: Not a whole number, of more than 63 bits, or below ``least``.
    """
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < _PLAIN_DIGITS:
        whole = int(value)
        if least is None or whole >= least:
            return whole
    what = what or ("a whole number" if least is None else f"a whole number of at least {least}")
    found = number(value, where, what)
    if found.adjusted() <= _LONGEST and found == found.to_integral_value():
        whole = int(found)
        if -_MOST <= whole <= _MOST and (least is None or whole >= least):
            return whole
    raise InputError(f"{where}: {shown(value)} is not {what}")


def time_ns(value: object, where: object, unit: str = "us") -> int:
    """A time in ``unit`` (``ns``, ``us``, ``ms``, ``s``) as whole nanoseconds, half of one to the even.

    Raises:
        InputError: Not a number, or of more than 63 bits.
    """
    what = f"a time; write {_EXAMPLES[unit]}"
    found = number(value, where, what)
    if not found:
        return 0
    if found.adjusted() > _LONGEST:
        raise InputError(f"{where}: {shown(value)} is not {what}")
    whole = int(found.scaleb(_PLACES[unit], _WIDE).to_integral_value(context=_WIDE))
    if not -_MOST <= whole <= _MOST:
        raise InputError(f"{where}: {shown(value)} is not {what}")
    return whole


def duration_ns(value: object, where: object, unit: str = "us") -> int:
    """A length of time as whole nanoseconds; see :func:`time_ns`.

    Raises:
        InputError: Not a number, or below zero.
    """
    found = time_ns(value, where, unit)
    if found < 0:
        raise InputError(f"{where}: {shown(value)} is a negative duration; write {_EXAMPLES[unit]}")
    return found


def shapes(value: object, where: object) -> tuple[tuple[int, ...], ...]:
    """Shapes separated by ``;``, sizes by ``,``: ``"32,3,224,224;64"`` with any quotes; nothing is a scalar.

    Raises:
        InputError: A size is not a whole number of at least zero.
    """
    if is_missing(value):
        return ()
    text = bare(value) if isinstance(value, str) else str(value)
    return tuple(_shape(part, where) for part in text.split(";"))


@lru_cache(maxsize=1024)
def dtype(word: str) -> str:
    """Name of an element type: ``FLOAT16``, ``DT_FLOAT16`` and ``NUMBER_TYPE_FLOAT16`` are ``float16``.

    Empty for one that is undefined or missing; a word that has no other name is its own, in lower case.
    """
    upper = bare(word).upper()
    if upper in _MISSING:
        return ""
    upper = _PREFIXES.sub("", upper)
    return _DTYPES.get(upper, upper.lower())


@lru_cache(maxsize=1024)
def layout(word: str) -> str:
    """Name of a layout: ``FORMAT_ND`` is ``ND``, ``NC1HWC0:1`` is ``NC1HWC0``, none at all is ``ND``."""
    upper = bare(word).upper().partition(":")[0].removeprefix("FORMAT_")
    return "ND" if upper in _MISSING or upper in _NO_LAYOUT else upper


def operands(
    shape_list: object, dtype_list: object, layout_list: object, where: object
) -> tuple[Operand, ...]:
    """The tensors of three columns of a table, each separated by ``;``.

    An operand that the kernel was called without (no shape, no type) keeps its place between others, with an
    empty type, and is left out after the last.

    Raises:
        InputError: A size is not a whole number of at least zero.
    """
    texts = ["" if is_missing(value) else bare(str(value)) for value in (shape_list, dtype_list, layout_list)]
    try:
        return _operands(*texts)
    except InputError:
        shapes(shape_list, where)
        raise


def shown(value: object) -> str:
    """A value for a message, cut where it is too long to read."""
    text = repr(value)
    return text if len(text) <= 2 * _LONGEST else f"{text[:_LONGEST]}...{text[-1]}"


def bare(text: str) -> str:
    """Text without the blanks, tabs and quotes around it."""
    return text.strip().strip("\"'").strip()


@lru_cache(maxsize=4096)
def _operands(shape_list: str, dtype_list: str, layout_list: str) -> tuple[Operand, ...]:
    """Tables say the same of many kernels: remembered, and without the place, which is said on failure."""
    sizes = shapes(shape_list, "shapes")
    types = [dtype(word) for word in dtype_list.split(";")] if dtype_list else []
    layouts = [layout(word) for word in layout_list.split(";")] if layout_list else []
    found = [
        Operand(_at(sizes, index, ()), _at(types, index, ""), _at(layouts, index, "ND"))
        for index in range(max(len(sizes), len(types)))
    ]
    while found and not found[-1].shape and not found[-1].dtype:
        found.pop()
    return tuple(found)


def _at(values: Sequence[_T], index: int, default: _T) -> _T:
    return values[index] if index < len(values) else default


def _shape(text: str, where: object) -> tuple[int, ...]:
    inner = bare(text).strip("[]()").strip()
    if inner.upper() in _MISSING:
        return ()
    sizes = inner.split(",")
    if len(sizes) > 1 and not sizes[-1].strip():
        sizes.pop()  # a tuple of one, as Python prints it
    what = "a size; write shapes such as 32,64;64,16"
    return tuple(integer(size, where, what, least=0) for size in sizes)
