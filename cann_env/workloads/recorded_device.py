"""The device file that fits a recording."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from cann_env.device.load import device_names, load_device
from cann_env.device.spec import DispatchSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.profiles.recording import Recording

FREE = DispatchSpec(gap_ns=0, mix_switch_ns=0, record_ns=0, wait_ns=0, wake_ns=0)
"""Costs of a device about which nothing is known."""

_CHIP = re.compile(r"(?:ascend)?[ _-]?(910_93|910a|910b[1-4]?|310p[0-9]?|310b[0-9]?)(?![0-9])")
_CLOCK_MATCH = 0.15
_OFTEN = 3


def device_of(recording: Recording) -> str | None:
    """Name of the device file that fits a recording's chip, cores and clock; None if no single one does.

    The chip's name comes first, or that in the name of the file. A family such as ``Ascend910B``, which
    stands for several parts, is settled by the number of cores, or else by the largest number of blocks that
    kernels have again and again; then by the nearest clock, of those that are equally near the
    slower, and the one of fewer dies.
    """
    found = fitting_devices(recording)
    return found[0] if len(found) == 1 else None


def likely_device(recording: Recording) -> DeviceSpec | None:
    """A device that a recording may come from, where several may the first; None where none is known to."""
    found = fitting_devices(recording)
    return load_device(found[0]) if found else None


def fitting_devices(recording: Recording) -> tuple[str, ...]:
    """Names of all device files that a recording may come from; see :func:`device_of`."""
    named = _by_name(recording)
    if len(named) == 1:
        return tuple(named)
    told = bool(named) or recording.cube_cores is not None or recording.clock_hz is not None
    if not told:
        return ()
    devices = [load_device(name) for name in named or device_names()]
    devices = _by_clock(_by_cores(devices, recording), recording.clock_hz)
    return tuple(device.name for device in devices)


def _by_name(recording: Recording) -> list[str]:
    for text in (recording.chip, recording.name):
        found = _CHIP.search(text.lower())
        if found:
            word = f"ascend{found.group(1)}"
            exact = [name for name in device_names() if name == word]
            return exact or [name for name in device_names() if name.startswith(word)]
    return []


def _by_cores(devices: Sequence[DeviceSpec], recording: Recording) -> list[DeviceSpec]:
    known = [("aic", recording.cube_cores), ("aiv", recording.vector_cores)]
    fit = [d for d in devices if all(count in (None, d.pools[pool]) for pool, count in known)]
    if recording.cube_cores is not None or not fit:
        return fit or list(devices)
    blocks = Counter(task.blocks for task in recording.tasks if task.blocks)
    for count in sorted((count for count, times in blocks.items() if times >= _OFTEN), reverse=True):
        found = [d for d in fit if count in (d.pools["aic"], d.pools["aiv"])]
        if found:
            return found
    return fit


def _by_clock(devices: Sequence[DeviceSpec], clock_hz: int | None) -> list[DeviceSpec]:
    if clock_hz is None or len(devices) < 2:
        return list(devices)
    nearest = min(devices, key=lambda d: (abs(d.clock_hz - clock_hz), d.clock_hz, d.dies))
    near = abs(nearest.clock_hz - clock_hz) <= _CLOCK_MATCH * clock_hz
    return [nearest] if near else list(devices)
