"""What lies beside an Ascend profile: the device's own description, the profiler's settings, host call costs.

``PROF_*/device_*/info.json.*`` (msprof) states cores and clocks, ``profiler_info*.json`` (torch_npu) the
level and the rank, ``api_statistic.csv`` the mean cost of each host call. None of them has to be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.profiles.fields import integer, is_missing, number
from cann_env.profiles.json_files import read_json
from cann_env.profiles.recording import Report, Verdict
from cann_env.profiles.tables import Column, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_API = (
    Column("level", ("Level",)),
    Column("name", ("API Name", "Name"), required=True),
    Column("mean", ("Avg",), required=True),
    Column("count", ("Count",)),
)


@dataclass(slots=True)
class Metadata:
    """Cores, clock and name of the device, None or empty where not stated, and traits of the recording."""

    cube_cores: int | None = None
    vector_cores: int | None = None
    clock_hz: int | None = None
    chip: str = ""
    traits: dict[str, str] = field(default_factory=dict)


def read_metadata(folder: Path, report: Report) -> Metadata:
    """Reads what stands in a folder of results and in the one around it.

    Raises:
        InputError: One of the files is not JSON, or states a number that is none.
    """
    found = Metadata()
    for place in (folder, folder.parent):
        for path in sorted(place.glob("profiler_info*.json")):
            _settings(path, found)
        for path in sorted(place.glob("profiler_metadata.json")):
            _ranks(path, found)
        _device(place, found, report)
    return found


def read_api_costs(path: Path) -> dict[str, str]:
    """Mean of each host call (ns) by ``api.<level>.<name>``, and how often by ``calls.<level>.<name>``.

    Raises:
        InputError: Not such a table, or a field of it is garbage.
    """
    traits = {}
    for row in read_table(path, _API, Report()).rows:
        name = ".".join(part for part in (row.text("level"), row.text("name")) if part)
        traits[f"api.{name}"] = str(row.duration_ns("mean"))
        count = row.integer("count")
        if count is not None:
            traits[f"calls.{name}"] = str(count)
    return traits


def _objects(path: Path) -> Iterator[Mapping[str, object]]:
    """The object of a file and all objects within it."""
    left = [read_json(path)]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _settings(path: Path, found: Metadata) -> None:
    for settings in _objects(path):
        level = settings.get("_profiler_level", settings.get("profiler_level"))
        if isinstance(level, str):
            digits = "".join(letter for letter in level if letter.isdigit())
            found.traits.setdefault("level", digits or level)
        for key, trait in (("rank_id", "rank"), ("cann_version", "cann"), ("torch_npu_version", "torch_npu")):
            value = settings.get(key)
            if not is_missing(value) and not isinstance(value, dict | list):
                found.traits.setdefault(trait, str(value))


def _ranks(path: Path, found: Metadata) -> None:
    for settings in _objects(path):
        size = settings.get("world_size", settings.get("WORLD_SIZE"))
        if not is_missing(size) and not isinstance(size, dict | list):
            found.traits.setdefault("world_size", str(size))


def _device(place: Path, found: Metadata, report: Report) -> None:
    paths = [
        path
        for pattern in ("info.json", "info.json.*", "PROF_*/device_*/info.json*", "device_*/info.json*")
        for path in sorted(place.glob(pattern))
        if not path.name.endswith(".done")
    ]
    for path in paths:
        for device in _objects(path):
            if "ai_core_num" not in device:
                continue
            if found.cube_cores is not None:
                report.note(Verdict.DROPPED, "descriptions of further devices", str(path))
                return
            where = path.name
            found.cube_cores = integer(device["ai_core_num"], f"{where}, ai_core_num", least=0) or None
            vector = device.get("aiv_num")
            if not is_missing(vector):
                found.vector_cores = integer(vector, f"{where}, aiv_num", least=0) or None
            clock = device.get("aic_frequency")
            if not is_missing(clock):
                found.clock_hz = (
                    round(number(clock, f"{where}, aic_frequency", "a clock in MHz") * 10**6) or None
                )
