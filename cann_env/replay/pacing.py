"""Replays from which something recorded is taken away: the times of the launches, or delays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cann_env.graph import CommandGraph
from cann_env.units import InputError
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from cann_env.workloads.from_profiler import Imported


def paced(imported: Imported, call_ns: int) -> Imported:
    """The same commands, launched in the recorded order by a host that does nothing but launch.

    A recorded time of launch says when the host was ready, for whatever reason, and so decides much of a
    replay. Here the first launch comes at 0 and each next one ``call_ns`` later; what was launched by one
    call stays together. All the host did in between, and waited for, is left out.

    Args:
        imported: From :func:`cann_env.workloads.from_profiler.from_profiler`.
        call_ns: What one launch takes of the host; 0 for a device that never waits for it.

    Raises:
        InputError: ``call_ns`` is negative.
    """
    if call_ns < 0:
        raise InputError(f"a launch cannot take {call_ns} ns of the host; write 0 or more")
    times = sorted({command.release_ns for command in imported.graph.commands})
    paces = {time: number * call_ns for number, time in enumerate(times)}
    commands = tuple(
        replace(command, release_ns=paces[command.release_ns]) for command in imported.graph.commands
    )
    graph = CommandGraph(imported.graph.name, commands, imported.graph.buffers)
    return replace(imported, graph=graph)


def undelayed(imported: Imported) -> Imported:
    """The same commands without the idle time that nothing explains; of each delay a nanosecond stays."""
    commands = tuple(
        replace(command, duration_ns=1) if role is Role.DELAY else command
        for command, role in zip(imported.graph.commands, imported.roles, strict=True)
    )
    graph = CommandGraph(imported.graph.name, commands, imported.graph.buffers)
    return replace(imported, graph=graph)
