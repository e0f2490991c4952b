"""Read a profile, whatever wrote it: looks at what a path holds and calls the reader of that format."""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cann_env.profiles.msprof_folder import OPERATORS, TASKS, msprof_files
from cann_env.profiles.tables import plain, read_lines
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cann_env.profiles.recording import Recording


@dataclass(frozen=True, slots=True)
class Format:
    """A format and its reader, which is imported only when it is needed.

    Attributes:
        words: For people: what it is and what it is told by.
        module: Of the reader, in this room.
        reader: Its name.
        devices: Whether it takes a ``device``.
    """

    words: str
    module: str
    reader: str
    devices: bool = False


KERNEL_DETAILS = Format(
    "kernel_details.csv of the Ascend PyTorch profiler ('Name', 'Start Time(us)', 'Duration(us)')",
    "kernel_details",
    "read_kernel_details",
    devices=True,
)
OP_SUMMARY = Format(
    "op_summary_*.csv of msprof ('Op Name', 'Task Start Time(us)', 'Task Duration(us)')",
    "op_summary",
    "read_op_summary",
    devices=True,
)
TASK_TIME = Format(
    "task_time_*.csv of msprof ('kernel_type', 'task_start(us)', 'task_time(us)')",
    "task_time",
    "read_task_time",
    devices=True,
)
TIDY = Format("a tidy table of tasks ('stream', 'start_us', 'dur_us')", "tidy", "read_tidy")
ASCEND_FOLDER = Format(
    "trace_view.json of the Ascend PyTorch profiler, or its folder", "ascend_folder", "read_folder"
)
DATABASE = Format(
    "a database of a profiler (ascend_pytorch_profiler*.db)", "sqlite", "read_database", devices=True
)
KINETO = Format("a Chrome trace of the PyTorch profiler", "kineto", "read_kineto", devices=True)
OWN_TRACE = Format("a Chrome trace of a simulated run", "own_trace", "read_own_trace")
MSPROF_FOLDER = Format(
    f"a folder of msprof ({OPERATORS}, {TASKS})", "msprof_folder", "read_msprof_folder", devices=True
)

# A title or two by which the header of a table is known, in the order to try.
_TITLES: tuple[tuple[Format, tuple[frozenset[str], ...]], ...] = (
    (TASK_TIME, (frozenset({"kernel type"}), frozenset({"task start"}))),
    (OP_SUMMARY, (frozenset({"op name", "task start time"}), frozenset({"op name", "task duration"}))),
    (KERNEL_DETAILS, (frozenset({"accelerator core"}), frozenset({"name", "start time", "duration"}))),
    (TIDY, (frozenset({"start us", "dur us"}),)),
)
_MARKS: tuple[tuple[Format, re.Pattern[str]], ...] = (
    (OWN_TRACE, re.compile(r'"writer"\s*:\s*"cann_env"')),
    (ASCEND_FOLDER, re.compile(r'"(?:Ascend Hardware|Physic Stream Id|async_npu)|"cat"\s*:\s*"HostToDevice')),
    (
        KINETO,
        re.compile(
            r'"deviceProperties"|"baseTimeNanoseconds"|"cat"\s*:\s*"(?:kernel|(?:gpu_)?mem(?:cpy|set))"',
            re.IGNORECASE,
        ),
    ),
)
_HEADER_LINES = 20
_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_ASCEND_PLACES = ("", _OUTPUT, f"*/{_OUTPUT}", f"*/*/{_OUTPUT}")
_ASCEND_FILES = ("trace_view.json", "trace_view.json.gz", "kernel_details.csv")
_DATABASES = ("ascend_pytorch_profiler*.db", "ascend_mindspore_profiler*.db", "msprof_*.db")
_DATABASE_PLACES = (*_ASCEND_PLACES, "PROF_*")
_LONE_FILES = ("*.json", "*.json.gz", "*.csv", "*.db")
_LISTED = 8


def read_profile(path: str | Path, device: int | None = None) -> Recording:
    """Read a recording of what one device did.

    Args:
        path: A file or the folder that a profiler wrote.
        device: Number of the device, where there are several.

    Raises:
        InputError: There is nothing there, it is no profile of a known format, or it is garbage: names the
            file and, where it can, the line and column.
    """
    path = Path(path)
    found, place = _folder(path) if path.is_dir() else (_file(path), path)
    if device is not None and not found.devices:
        raise InputError(
            f"device is {device}, but {place} is {found.words}, which holds one; leave device out"
        )
    module = import_module(f"cann_env.profiles.{found.module}")
    reader = cast("Callable[..., Recording]", getattr(module, found.reader))
    return reader(place) if device is None else reader(place, device=device)


def _file(path: Path) -> Format:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except (OSError, ValueError) as error:  # a path may hold a byte that none can
        raise InputError(f"profile {str(path)!r} cannot be read: {error}") from error
    if not head.strip():
        raise InputError(f"profile {str(path)!r} is empty")
    if head.startswith(_SQLITE):
        return DATABASE
    if head.startswith(_GZIP) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return _json(path)
    return _table(path)


def _table(path: Path) -> Format:
    lines = read_lines(path, _HEADER_LINES)
    for _, cells in lines:
        titles = {plain(cell) for cell in cells}
        for found, signs in _TITLES:
            if any(sign <= titles for sign in signs):
                return found
    first = next((cells for _, cells in lines if any(cell.strip() for cell in cells)), [])
    more = " ..." if len(first) > _LISTED else ""
    shown = ", ".join(repr(cell.strip()[:40]) for cell in first[:_LISTED]) + more
    raise InputError(
        f"{path} is no profile: its first lines are no header of a table of tasks, and begin with {shown}; "
        f"tables that are read: {_words(found for found, _ in _TITLES)}"
    )


def _json(path: Path) -> Format:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"profile {str(path)!r} cannot be read: {error}") from error
    for found, mark in _MARKS:
        if mark.search(text):
            return found
    raise InputError(
        f"{path} is no profile: it names no work of a device; traces that are read: "
        f"{_words(found for found, _ in _MARKS)}"
    )


def _folder(path: Path) -> tuple[Format, Path]:
    """What a folder holds, and the path to give its reader."""
    if _matches(path, _ASCEND_PLACES, _ASCEND_FILES):
        return ASCEND_FOLDER, path
    if folders := [folder for folder in (path, *_matches(path, ("",), ("PROF_*",))) if _has_msprof(folder)]:
        return MSPROF_FOLDER, _only(path, folders)
    if databases := _matches(path, _DATABASE_PLACES, _DATABASES):
        return DATABASE, _only(path, databases)
    lone = _matches(path, ("",), _LONE_FILES)
    if len(lone) == 1:
        return _file(lone[0]), lone[0]
    looked = ", ".join((*_ASCEND_FILES, OPERATORS, TASKS, *_DATABASES))
    raise InputError(
        f"profile folder {str(path)!r} holds no profile; looked for {looked} in it, in {_OUTPUT}, "
        f"mindstudio_profiler_output, summary and PROF_* below it, and for a single file of a known format"
    )


def _has_msprof(folder: Path) -> bool:
    return bool(msprof_files(folder, OPERATORS) or msprof_files(folder, TASKS))


def _matches(path: Path, places: Sequence[str], patterns: Sequence[str]) -> list[Path]:
    found = [
        file
        for place in places
        for name in patterns
        for file in path.glob(f"{place}/{name}" if place else name)
    ]
    return sorted(set(found))


def _only(path: Path, found: Sequence[Path]) -> Path:
    if len(found) == 1:
        return found[0]
    listed = ", ".join(str(item.relative_to(path)) for item in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    raise InputError(
        f"profile folder {str(path)!r} holds several profiles: {listed}{more}; give the path of one"
    )


def _words(formats: Iterable[Format]) -> str:
    return "; ".join(found.words for found in formats)
