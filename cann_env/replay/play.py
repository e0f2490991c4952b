"""Play an imported graph in the engine, each stream and its order as they were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.profiles.recording import Recording
    from cann_env.replay.comparison import Comparison
    from cann_env.schedule import Schedule
    from cann_env.workloads.from_profiler import Imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A recording that was played again.

    Attributes:
        imported: What was played.
        schedule: What came of it; it passes :func:`cann_env.validate.validate`.
        comparison: Both sides.
    """

    imported: Imported
    schedule: Schedule
    comparison: Comparison


def replay(imported: Imported, device: DeviceSpec, *, l2: bool = False) -> Replay:
    """Play the recorded streams and order in the engine.

    Args:
        imported: From :func:`cann_env.workloads.from_profiler.from_profiler`.
        device: Where.
        l2: Whether kernels whose time is modelled may find their operands in L2.

    Raises:
        InputError: The device cannot run something, or has too few streams.
        EpisodeError: The engine could not finish.
    """
    raise NotImplementedError


def device_of(recording: Recording) -> str | None:
    """Name of the device file that fits a recording's chip, cores and clock; None if none is known to."""
    raise NotImplementedError
