"""A trace that this package wrote, read back into the schedule that it shows.

The trace carries what made the schedule. That is run once more, and every slice of the trace must stand where
the new run puts it, to the nanosecond: the file either tells of exactly this schedule or is refused.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from cann_env.archive import EVENT_NAME, FORMAT, from_json
from cann_env.program import compile_graph
from cann_env.replay.own_slices import EVENTS, Slice, made_chrome, made_mindstudio, shown
from cann_env.schedulers.policy import EpisodeError
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cann_env.archive import Archive
    from cann_env.schedule import Schedule

_TRACE_FILES: Final = ("ASCEND_PROFILER_OUTPUT/trace_view.json", "trace_view.json")


class _Trace(NamedTuple):
    file: str
    events: list[Any]
    archive: object
    origin_ns: int | None


def read_trace(path: str | Path) -> Schedule:
    """Read a trace written by :func:`cann_env.render.trace.write_trace`, in either of its forms.

    Args:
        path: The JSON file (it may be compressed, ``.json.gz``), or the folder that holds it.

    Returns:
        The schedule that was written, equal in every row.

    Raises:
        InputError: The file cannot be read, carries no archive of a run, the archive holds something unknown,
            or a slice stands elsewhere than the run puts it; names the first one.
    """
    trace = _open(Path(path))
    archive = from_json(trace.archive)
    schedule = _run(trace.file, archive)
    _check(trace, schedule)
    return schedule


def read_run(path: str | Path) -> Schedule | None:
    """Read a saved run: a trace as :func:`read_trace` takes it, or an archive that stands alone.

    Returns:
        Its schedule; None if the file or folder holds something else.

    Raises:
        InputError: It is a saved run, and something about it is wrong; or it cannot be read, or is no JSON.
    """
    file = Path(path)
    if file.is_dir() and not any((file / name).is_file() for name in _TRACE_FILES):
        return None
    data = _load(_file_of(file))
    if isinstance(data, dict) and data.get("format") == FORMAT:
        return _run(str(file), from_json(data))
    return read_trace(file) if _parts(data) is not None else None


def carries_archive(path: str | Path) -> bool:
    """Whether a file or folder is a trace that :func:`read_trace` can read.

    Raises:
        InputError: It cannot be read, or is no JSON.
    """
    return _parts(_load(_file_of(Path(path)))) is not None


# --- the file -------------------------------------------------------------------------------------------


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _TRACE_FILES:
        if (path / name).is_file():
            return path / name
    raise InputError(f"folder {str(path)!r} holds no trace; looked for {' and '.join(_TRACE_FILES)}")


def _load(file: Path) -> Any:
    try:
        data = file.read_bytes()
        return json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"trace {str(file)!r} cannot be read: {error}") from error
    except ValueError as error:
        raise InputError(f"trace {str(file)!r} is no JSON: {error}") from error


def _open(path: Path) -> _Trace:
    file = _file_of(path)
    parts = _parts(_load(file))
    if parts is None:
        raise InputError(f"trace {str(file)!r} carries no archive of a run; read it as a recorded profile")
    events, archive, origin_ns = parts
    return _Trace(str(file), events, archive, origin_ns)


def _parts(data: Any) -> tuple[list[Any], object, int | None] | None:
    """Events, archive and time zero of a trace; None for what carries no archive.

    Only the form ``mindstudio`` has a time zero of its own; that of the other is None.
    """
    if isinstance(data, dict):
        other, events = data.get("otherData"), data.get("traceEvents")
        if isinstance(other, dict) and "archive" in other and isinstance(events, list):
            return events, other["archive"], None
        return None
    for event in data if isinstance(data, list) else ():
        if isinstance(event, dict) and event.get("ph") == "M" and event.get("name") == EVENT_NAME:
            args = event.get("args")
            if isinstance(args, dict) and "archive" in args and type(args.get("origin_ns")) is int:
                return data, args["archive"], args["origin_ns"]
    return None


def _run(file: str, archive: Archive) -> Schedule:
    try:
        program = compile_graph(archive.graph, archive.device, archive.options)
    except (ArithmeticError, LookupError) as error:
        # Device files are checked where they are loaded; what an archive holds of one was not.
        raise InputError(
            f"trace {file!r}: its device {archive.device.name!r} is unsound: {error!r}"
        ) from error
    for action in archive.actions:
        if not 0 <= action < program.action_count:
            raise InputError(
                f"trace {file!r}: its decision {action} is none of the {program.action_count} there are"
            )
    if len(archive.noise) != len(archive.graph.commands):
        raise InputError(
            f"trace {file!r}: it has noise for {len(archive.noise)} of {len(archive.graph.commands)} commands"
        )
    try:
        return record_schedule(program, archive.actions, noise=np.asarray(archive.noise, np.int64))
    except EpisodeError as error:
        raise InputError(f"trace {file!r}: {error}") from error


# --- what must agree ------------------------------------------------------------------------------------


def _check(trace: _Trace, schedule: Schedule) -> None:
    found = shown(trace.file, trace.events, trace.origin_ns or 0)
    chrome = trace.origin_ns is None
    expected = made_chrome(schedule) if chrome else made_mindstudio(schedule)
    for process, slices in expected.items():
        _compare(trace.file, process, found.get(process, ()), slices)
    if not chrome:
        _check_events(trace.file, schedule, found.get(EVENTS, ()))


def _compare(file: str, process: str, found: Iterable[Slice], expected: Iterable[Slice]) -> None:
    """Both must be the same, in whatever order; else the earliest difference is named."""
    here, there = Counter(found), Counter(expected)
    extra, lacking = sorted((here - there).elements()), sorted((there - here).elements())
    if not extra and not lacking:
        return
    what = min([*extra[:1], *lacking[:1]]).what
    shows = next((item for item in extra if item.what == what), None)
    made = next((item for item in lacking if item.what == what), None)
    where = f"trace {file!r}, {process}"
    if shows is None and made is not None:
        raise InputError(f"{where}: it lacks {_words(made)}")
    if made is None and shows is not None:
        raise InputError(f"{where}: it shows {_words(shows)}, which the run that it carries has not")
    if made is not None and shows is not None:
        raise InputError(
            f"{where}: it shows {_words(shows)}; the run that it carries has it from {made.start_ns} to "
            f"{made.finish_ns} ns"
        )


def _words(item: Slice) -> str:
    return f"{item.what} from {item.start_ns} to {item.finish_ns} ns"


def _check_events(file: str, schedule: Schedule, found: Iterable[Slice]) -> None:
    """Each wait has a record behind its producer and a wait that is over when its consumer starts."""
    tasks = {item.what: item for item in found}
    runs = {run.command: run for run in schedule.commands}
    for number, wait in enumerate(schedule.waits, start=1):
        record, over = tasks.pop(f"EVENT_RECORD {number}", None), tasks.pop(f"EVENT_WAIT {number}", None)
        if record is None or over is None:
            raise InputError(f"trace {file!r}, Ascend Hardware: event {number} lacks its record or its wait")
        if record.start_ns < runs[wait.producer].finish_ns:
            raise InputError(f"trace {file!r}, Ascend Hardware: {_words(record)} begins too early")
        if over.finish_ns > runs[wait.consumer].start_ns:
            raise InputError(f"trace {file!r}, Ascend Hardware: {_words(over)} ends too late")
    for item in tasks.values():
        raise InputError(f"trace {file!r}, Ascend Hardware: it shows {_words(item)}, which the run has not")
