"""What names and arguments of a Kineto trace say of a kernel, a copy or a collective."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from cann_env.commands import CopyKind
from cann_env.profiles.chrome import Place
from cann_env.profiles.fields import integer, is_missing, number
from cann_env.units import InputError

if TYPE_CHECKING:
    from typing import Any

_COLLECTIVE = re.compile(r"(?<![a-z])[nr]ccl", re.IGNORECASE)
_WAYS = {
    "htod": CopyKind.H2D,
    "hosttodevice": CopyKind.H2D,
    "h2d": CopyKind.H2D,
    "m2d": CopyKind.H2D,
    "dtoh": CopyKind.D2H,
    "devicetohost": CopyKind.D2H,
    "d2h": CopyKind.D2H,
    "d2m": CopyKind.D2H,
    "dtod": CopyKind.D2D,
    "devicetodevice": CopyKind.D2D,
    "d2d": CopyKind.D2D,
    "ptop": CopyKind.D2D,
    "p2p": CopyKind.D2D,
}
_WAY = re.compile("|".join(sorted(_WAYS, key=len, reverse=True)), re.IGNORECASE)
_ENDS = re.compile(r"\(\s*(\w+)\s*->\s*(\w+)\s*\)")
_HOST_ENDS = frozenset({"pinned", "pageable", "host"})
_NUMBERED_WAYS = {1: CopyKind.H2D, 2: CopyKind.D2H, 3: CopyKind.D2D}  # hipMemcpyKind and cudaMemcpyKind
_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2,
    "float": 4, "int": 4, "float32": 4, "int32": 4,
    "double": 8, "long": 8, "float64": 8, "int64": 8, "complexfloat": 8,
}  # fmt: skip


def is_collective(name: str, args: dict[str, Any]) -> bool:
    """Whether a kernel is one of NCCL's or RCCL's."""
    return "Collective name" in args or _COLLECTIVE.search(name) is not None


def collective_bytes(args: dict[str, Any], place: Place) -> int:
    """Bytes of a collective's larger side; 0 where they are not recorded."""
    size = _SIZES.get(str(args.get("dtype", "")).lower(), 0)
    keys = [key for key in ("In msg nelems", "Out msg nelems") if not is_missing(args.get(key))]
    counts = [integer(args[key], Place(place.file, place.index, f"args.{key}"), least=0) for key in keys]
    return size * max(counts, default=0)


def way_of(name: str, *details: dict[str, Any]) -> CopyKind | None:
    """Direction of a copy, by its name or what it and its call say beside; None if nothing does."""
    match = _WAY.search(name)
    if match:
        return _WAYS[match[0].lower()]
    ends = _ENDS.search(name)
    if ends and {ends[1].lower(), ends[2].lower()} & {"device", *_HOST_ENDS}:
        return _between(ends[1].lower(), ends[2].lower())
    for args in details:
        kind = str(args.get("kind", "")).strip()
        match = _WAY.search(kind)
        if match:
            return _WAYS[match[0].lower()]
        if kind.isdigit() and int(kind) in _NUMBERED_WAYS:
            return _NUMBERED_WAYS[int(kind)]
    return None


def _between(source: str, target: str) -> CopyKind | None:
    if source in _HOST_ENDS and target in _HOST_ENDS:
        return None
    if source in _HOST_ENDS:
        return CopyKind.H2D
    return CopyKind.D2H if target in _HOST_ENDS else CopyKind.D2D


def copied_bytes(place: Place, *details: dict[str, Any]) -> int:
    """Bytes of a copy, from what it or its call says; 0 where neither does."""
    for args in details:
        for key in ("bytes", "size"):
            if not is_missing(args.get(key)):
                return integer(args[key], Place(place.file, place.index, f"args.{key}"), least=0)
    return 0


def blocks_of(place: Place, *details: dict[str, Any]) -> int | None:
    """Blocks of a kernel's grid, from what it or its call says; None where neither does."""
    for args in details:
        grid = args.get("grid")
        if is_missing(grid) or grid == []:
            continue
        where = Place(place.file, place.index, "args.grid")
        if not isinstance(grid, list) or len(grid) > 3:
            raise InputError(f"{where}: {grid!r} is not a grid; write up to three sizes")
        blocks = 1
        for size in grid:
            blocks *= integer(size, where, "a size of a grid", least=0)
        return blocks or None
    return None


def occupancy_of(args: dict[str, Any], place: Place) -> float | None:
    """How full a kernel's multiprocessors were (percent), as the profiler estimated; None if it did not."""
    value = args.get("est. achieved occupancy %")
    if is_missing(value):
        return None
    return float(number(value, Place(place.file, place.index, "args.est. achieved occupancy %")))


@lru_cache(maxsize=4096)
def operator_of(name: str) -> str:
    """The function that a kernel's demangled name is about, without templates, arguments and result type."""
    plain = name.replace("(anonymous namespace)", "anonymous").split("[clone")[0]
    kept, depth = [], 0
    for letter in plain:
        if letter in "<({":
            depth += 1
        elif letter in ">)}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1] if words else name
