"""What a profiler's database says beside its tasks: host calls, steps, the device, the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cann_env.profiles.ascend import NO_NUMBER, Span, Step
from cann_env.profiles.ascend_tasks import is_hint
from cann_env.profiles.fields import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.profiles.sqlite_names import Names
    from cann_env.profiles.sqlite_tables import Database, Record

_STEP = re.compile(r"^ProfilerStep\s*#\s*([0-9]{1,18})$")
_VERSIONS = {
    "SCHEMA_VERSION": "schema",
    "torch_npu_version": "torch_npu",
    "cann_version": "cann",
    "profiler_level": "level",
}


def calls(database: Database, names: Names) -> dict[int, Span]:
    """Host calls by the number that tasks refer to; of several, the earliest, which encloses the others."""
    found: dict[int, Span] = {}
    for row in database.rows("CANN_API", ("name", "globalTid", "connectionId"), ("startNs", "endNs")):
        key = number_or_none(row, "connectionId")
        if key is None:
            continue
        start, length = row.span_ns()
        if key not in found or start < found[key].start_ns:
            found[key] = Span(
                name=names.string(row, "name"),
                thread=row.raw("globalTid"),
                start_ns=start,
                finish_ns=start + length,
            )
    return found


def hints(database: Database, names: Names) -> list[Span]:
    """Ranges of the framework whose names tell which way a copy inside them goes."""
    return [span for span in _ranges(database, names) if is_hint(span.name)]


def steps(database: Database, names: Names) -> list[Step]:
    """Steps of STEP_TIME, else the framework's own ranges."""
    found = []
    for row in database.rows("STEP_TIME", (), ("id", "startNs", "endNs")):
        start, length = row.span_ns()
        key = row.integer("id")
        if key is not None:
            found.append(Step(number=key, start_ns=start, finish_ns=start + length))
    if found:
        return found
    for span in _ranges(database, names):
        step = _STEP.match(span.name)
        if step:
            found.append(Step(number=int(step[1]), start_ns=span.start_ns, finish_ns=span.finish_ns))
    return found


def clock_hz(database: Database, device: int | None) -> int | None:
    """The highest clock of the cores that was seen; None if it was not sampled."""
    found = [
        round(number(row.raw("freq"), f"{row.place}, column freq", "a clock in MHz") * 10**6)
        for row in database.rows("AICORE_FREQ", ("deviceId",), ("freq",))
        if is_of(row, device) and row.raw("freq") is not None
    ]
    return max(found, default=0) or None


def chip(database: Database, device: int | None) -> str:
    """The device's name; empty if it is not recorded."""
    found = {
        row.integer("id"): str(row.raw("name") or "") for row in database.rows("NPU_INFO", ("id", "name"))
    }
    return found.get(device) or next(iter(found.values()), "")


def traits(database: Database, device: int | None) -> dict[str, str]:
    """The rank, the device and the versions, where stated."""
    found = {} if device is None else {"device": str(device)}
    for row in database.rows("RANK_DEVICE_MAP", ("rankId", "deviceId")):
        if is_of(row, device) and row.raw("rankId") is not None:
            found.setdefault("rank", str(row.raw("rankId")))
    for row in database.rows("META_DATA", ("name", "value")):
        trait = _VERSIONS.get(str(row.raw("name")))
        if trait and row.raw("value") is not None:
            found[trait] = str(row.raw("value"))
    return found


def is_of(row: Record, device: int | None) -> bool:
    """Whether a row is about a device, or names none."""
    return device is None or row.integer("deviceId") in (None, device)


def number_or_none(row: Record, column: str) -> int | None:
    """A number of something; None where the tools write that there is none."""
    value = row.integer(column)
    return None if value is None or value < 0 or value == NO_NUMBER else value


def _ranges(database: Database, names: Names) -> Iterator[Span]:
    for row in database.rows("PYTORCH_API", ("name", "globalTid"), ("startNs", "endNs")):
        name = names.string(row, "name")
        if is_hint(name) or _STEP.match(name):
            start, length = row.span_ns()
            yield Span(name=name, thread=row.raw("globalTid"), start_ns=start, finish_ns=start + length)
