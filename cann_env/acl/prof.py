"""``acl.prof``: profiles and marks are accepted, and nothing is written: the run itself has all times.

What reads profiles of a model back is refused.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_types import text, thing, whole
from cann_env.acl.calls.refused import refused
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator

_INSTEAD: Final = "acl.save_trace(path) writes the times of everything, acl.simulator().schedules() has them"
_NOTHING: Final = "No profile is written."


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What a profile would have to hold."""

    devices: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Stamp:
    """A mark of the program's."""

    message: str = ""


@call(initialised=False, differs=_NOTHING)
def init(run: Simulator, prof_result_path: str) -> None:
    """Begin to profile."""
    text(prof_result_path, "prof_result_path")
    if "acl.prof" not in run.refused:
        run.refused.add("acl.prof")
        warnings.warn(f"acl.prof writes no profile: {_INSTEAD}", stacklevel=3)


@getter(differs=_NOTHING)
def create_config(
    run: Simulator, device_list: list[int], aicore_metrics: int, aicore_events: int, data_type_config: int
) -> int:
    """What is to be profiled, on which devices."""
    del aicore_metrics, aicore_events, data_type_config
    devices = tuple(whole(number, "device") for number in device_list)
    if any(number >= run.count for number in devices):
        raise Refused(codes.RT_INVALID_DEVICE_ID, f"devices are {devices}; there are 0 to {run.count - 1}")
    handle = run.new_handle()
    run.things[handle] = Profile(devices)
    return handle


@call(initialised=False, differs=_NOTHING)
def set_config(run: Simulator, config_type: int, config: str) -> None:
    """Set how often something is asked, which has no effect."""
    del run
    whole(config_type, "config_type")
    text(config, "config")


@call(initialised=False, differs=_NOTHING)
def start(run: Simulator, profiler_config: int) -> None:
    """Start to profile."""
    thing(run, profiler_config, Profile, "profile")


@call(initialised=False, differs=_NOTHING)
def stop(run: Simulator, profiler_config: int) -> None:
    """Stop to profile."""
    thing(run, profiler_config, Profile, "profile")


@call(initialised=False)
def destroy_config(run: Simulator, profiler_config: int) -> None:
    """End a description of what is profiled."""
    thing(run, profiler_config, Profile, "profile")
    run.bury(profiler_config, "profile", site())
    del run.things[profiler_config]


@call(initialised=False, differs=_NOTHING)
def finalize(run: Simulator) -> None:
    """End profiling."""
    del run


@getter()
def create_stamp(run: Simulator) -> int:
    """A mark; 0 on failure."""
    handle = run.new_handle()
    run.things[handle] = Stamp()
    return handle


@getter(failed=None)
def destroy_stamp(run: Simulator, stamp: int) -> None:
    """End a mark."""
    thing(run, stamp, Stamp, "stamp")
    run.bury(stamp, "stamp", site())
    del run.things[stamp]


@call(initialised=False)
def set_stamp_trace_message(run: Simulator, stamp: int, message: str, message_length: int) -> None:
    """Give a mark its text."""
    thing(run, stamp, Stamp, "stamp").message = str(message)[:message_length]


@call(initialised=False, differs=_NOTHING)
def mark(run: Simulator, stamp: int) -> None:
    """Mark this moment."""
    thing(run, stamp, Stamp, "stamp")


@call(initialised=False, differs=_NOTHING)
def push(run: Simulator, stamp: int) -> None:
    """Begin a span of time of this thread."""
    thing(run, stamp, Stamp, "stamp")


@call(initialised=False, differs=_NOTHING)
def pop(run: Simulator) -> None:
    """End the span of time of this thread that began last."""
    del run


@call(1, initialised=False, failed=0, differs=_NOTHING)
def range_start(run: Simulator, stamp: int) -> int:
    """Begin a span of time, and give its number."""
    thing(run, stamp, Stamp, "stamp")
    return run.new_handle() & 0xFFFFFFFF


@call(initialised=False, differs=_NOTHING)
def range_stop(run: Simulator, range_id: int) -> None:
    """End a span of time by its number."""
    del run
    whole(range_id, "range_id")


def __getattr__(name: str) -> Any:
    return refused("acl.prof", name, _INSTEAD)
