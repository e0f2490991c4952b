"""Graphs from profiles: the commands that a device was recorded running, their lengths and what they waited for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Recording, Report

if TYPE_CHECKING:
    from cann_env.graph import CommandGraph


class Durations(enum.StrEnum):
    """How long commands take: as recorded, or what the cost model says of their operator and tensors.

    Collectives, waits for other devices and delays keep their recorded length either way.
    """

    RECORDED = "recorded"
    MODELLED = "modelled"


class Dependencies(enum.StrEnum):
    """What commands wait for.

    ``recorded``: those before them on their stream, and what events show. ``inferred``: whoever last wrote a
    tensor equal to one they read (a guess by shape and type); the streams are free then.
    """

    RECORDED = "recorded"
    INFERRED = "inferred"


class Role(enum.StrEnum):
    """What a command of an imported graph stands for.

    ``work``: a task that ran. ``external``: a wait for another device, or idle time that nothing explains.
    ``profiler``: idle time that the profiler itself put behind a kernel.
    """

    WORK = "work"
    EXTERNAL = "external"
    PROFILER = "profiler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A graph that was made of a recording, and how the two belong together.

    Attributes:
        graph: In order of submission; each command has the recorded stream as its ``stream_hint``, renumbered.
        recording: What it was made of.
        tasks: For each command the index in ``recording.tasks`` of the task that it is, or which it delays.
        roles: For each command what it stands for.
        streams: The recorded number of each stream of the ``stream_hint``.
        origin_ns: Start of the first task of the graph, on the recording's clock.
        report: What was recognised, guessed and dropped, those of the reader included.
    """

    graph: CommandGraph
    recording: Recording
    tasks: tuple[int, ...]
    roles: tuple[Role, ...]
    streams: tuple[int, ...]
    origin_ns: int
    report: Report


def from_profiler(
    source: str | Path | Recording,
    *,
    step: int | None = None,
    durations: Durations = Durations.RECORDED,
    dependencies: Dependencies = Dependencies.RECORDED,
    profiler_gap_ns: int | None = None,
    like: int | None = None,
) -> Imported:
    """Make a graph of a profile.

    Args:
        source: A file or folder (see :func:`cann_env.profiles.read.read_profile`), or what was read of one.
        step: Keep only the tasks of this step; None for all.
        durations: See :class:`Durations`.
        dependencies: See :class:`Dependencies`.
        profiler_gap_ns: Idle time that the profiler puts behind every kernel; None to find it out.
        like: Take the edges and delays that had to be guessed from this other step of the recording, in place
            of the step's own; None for its own.

    Raises:
        InputError: The file cannot be read, there is no such step, or nothing is left to run.
    """
    raise NotImplementedError
