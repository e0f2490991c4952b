"""What a Kineto trace says beside its events: the devices and their sizes, the rank, the clock's origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.profiles.fields import integer, is_missing
from cann_env.profiles.kineto_words import occupancy_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cann_env.profiles.kineto_file import Work

_PROPERTIES = (
    ("name", "chip"),
    ("numSms", "sm_count"),
    ("maxThreadsPerMultiprocessor", "threads_per_sm"),
)


def traits_of(header: Mapping[str, Any], device: int, work: Sequence[Work]) -> dict[str, str]:
    """What is known of a device and its run, by the names of :func:`~cann_env.profiles.kineto.read_kineto`.

    Args:
        header: What stands beside the events.
        device: Its number.
        work: What it did.
    """
    traits = {"profiler": "Kineto", "device": str(device)}
    info = header.get("distributedInfo")
    if isinstance(info, dict):
        traits |= {key: str(info[key]) for key in ("rank", "world_size", "backend") if key in info}
    properties = _properties(header, device)
    for key, trait in (
        ("name", "chip"),
        ("numSms", "sm_count"),
        ("maxThreadsPerMultiprocessor", "threads_per_sm"),
    ):
        if not is_missing(properties.get(key)):
            traits[trait] = str(properties[key])
    pairs = [(each.duration_ns, occupancy_of(each.args, each.place)) for each in work]
    known = [(ns, percent) for ns, percent in pairs if percent is not None]
    total = sum(ns for ns, _ in known)
    if total:
        traits["occupancy_percent"] = f"{sum(ns * percent for ns, percent in known) / total:.1f}"
    launches = {each.correlation for each in work if "graph node id" in each.args}
    if launches - {None}:
        traits["graph_launches"] = str(len(launches - {None}))
    return traits


def _properties(header: Mapping[str, Any], device: int) -> Mapping[str, Any]:
    listed = header.get("deviceProperties")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return next((entry for entry in entries if entry.get("id") == device), {})


def base_ns(header: Mapping[str, Any], file: str) -> int:
    """What the trace's times count from (ns); 0 where it is not told."""
    value = header.get("baseTimeNanoseconds")
    return 0 if is_missing(value) else integer(value, f"{file}, baseTimeNanoseconds", "a time in nanoseconds")
