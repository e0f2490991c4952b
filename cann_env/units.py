"""Quantities: times are integer nanoseconds, sizes integer bytes, rates bytes per second.

Everything inside the package computes with these integers; this module is the only place that
reads quantities written for people (``"4 GiB"``, ``"1.6 TB/s"``, ``"0.4 us"``) and prints them.
Errors of the whole package have their roots here too, since every layer may raise them.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

NS_PER_S = 1_000_000_000

_TIME_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": NS_PER_S}
_SIZE_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NUMBER = re.compile(r"^\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*$")


class CannEnvError(Exception):
    """Root of every error this package raises on purpose."""


class InputError(CannEnvError, ValueError):
    """Input that cannot be used: names the object, the value, and what would be right."""


class AclError(CannEnvError):
    """A failure the runtime itself would report.

    Attributes:
        code: The runtime's numeric return code, for example 207001.
    """

    code: int = 500000

    def __init__(self, message: str) -> None:
        super().__init__(f"[{self.code}] {message}")


class InvalidParameterError(AclError):
    """ACL_ERROR_RT_PARAM_INVALID."""

    code = 107000


class StreamContextError(AclError):
    """ACL_ERROR_RT_STREAM_CONTEXT: the stream is not in the current context."""

    code = 107003


class MemoryAllocationError(AclError):
    """ACL_ERROR_RT_MEMORY_ALLOCATION: the device cannot hold what was asked for."""

    code = 207001


class ResourceAllocationError(AclError):
    """ACL_ERROR_RT_RESOURCE_ALLOC_FAIL: too many streams."""

    code = 207005


class EventResourceError(AclError):
    """ACL_ERROR_RT_NO_EVENT_RESOURCE: no event id is left."""

    code = 207007


class StreamResourceError(AclError):
    """ACL_ERROR_RT_NO_STREAM_RESOURCE: the driver has no stream left."""

    code = 207008


def _parse(text: str, scale: dict[str, int], what: str) -> Decimal:
    match = _NUMBER.match(text)
    units = ", ".join(scale)
    if match is None:
        raise InputError(f"{what} {text!r} is not a number with a unit; write one of {units}")
    number, unit = match.groups()
    if unit not in scale:
        raise InputError(f"{what} {text!r} has unit {unit!r}; write one of {units}")
    try:
        return Decimal(number.replace("_", "")) * scale[unit]
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only numbers
        raise InputError(f"{what} {text!r} is not a number") from error


def parse_time_ns(text: str) -> int:
    """Read a time such as ``"0.4 us"`` as whole nanoseconds.

    Raises:
        InputError: Not a number with one of the units ns, us, ms, s.
    """
    return round(_parse(text, _TIME_NS, "time"))


def parse_size_bytes(text: str) -> int:
    """Read a size such as ``"4 GiB"`` or ``"20 MB"`` as whole bytes.

    Raises:
        InputError: Not a number with a decimal (kB, MB, ...) or binary (KiB, MiB, ...) unit.
    """
    return round(_parse(text, _SIZE_BYTES, "size"))


def parse_bandwidth(text: str) -> int:
    """Read a bandwidth such as ``"1.6 TB/s"`` as whole bytes per second.

    Raises:
        InputError: Not a number with a size unit followed by ``/s``.
    """
    scale = {f"{unit}/s": factor for unit, factor in _SIZE_BYTES.items()}
    return round(_parse(text, scale, "bandwidth"))


def format_time(ns: float) -> str:
    """Print a time with the unit that keeps one to three digits before the point."""
    for unit, scale in (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000)):
        if abs(ns) >= scale:
            return f"{ns / scale:.2f} {unit}"
    return f"{ns:.0f} ns"


def format_size(size_bytes: float) -> str:
    """Print a size in binary units."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _SIZE_BYTES[unit]
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_bandwidth(bytes_per_s: float) -> str:
    """Print a bandwidth in decimal units, as data sheets do."""
    for unit in ("TB", "GB", "MB"):
        scale = _SIZE_BYTES[unit]
        if abs(bytes_per_s) >= scale:
            return f"{bytes_per_s / scale:.2f} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
