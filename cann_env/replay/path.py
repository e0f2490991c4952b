"""What the makespan of a replay consists of, along the chain of commands that made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.profiles.recording import TaskKind
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from cann_env.schedule import CommandRun, Schedule
    from cann_env.workloads.from_profiler import Imported


@dataclass(frozen=True, slots=True)
class Path:
    """The chain that ends last, each command behind the one of those it waited for that ended last (ns).

    Attributes:
        work_ns: Kernels, copies and callbacks.
        other_ns: Tasks of which the recording does not say what they were, of recorded length. Some may
            have waited for others.
        peer_ns: Collectives and waits for other devices, of recorded length.
        delay_ns: Idle time that nothing explains, of recorded length.
        profiler_ns: Gaps of the profiler.
        launch_ns: Nothing was left to do until the host launched the next, at a recorded time.
        dispatch_ns: The rest: gaps and events, as the device file has them, and waiting for cores.
    """

    work_ns: int
    other_ns: int
    peer_ns: int
    delay_ns: int
    profiler_ns: int
    launch_ns: int
    dispatch_ns: int

    @property
    def pinned(self) -> float:
        """The part of it that no known work of this device stands for, with its length from the recording."""
        total = self.other_ns + self.peer_ns + self.delay_ns + self.profiler_ns + self.launch_ns
        whole = total + self.work_ns + self.dispatch_ns
        return total / whole if whole else 0.0


def critical_path(imported: Imported, schedule: Schedule) -> Path:
    """The chain that made the makespan of a replay."""
    runs = {run.command: run for run in schedule.commands}
    spent = dict.fromkeys(Role, 0)
    launch = dispatch = other = 0
    last: CommandRun | None = max(
        (run for run in schedule.commands if imported.roles[run.command] in (Role.WORK, Role.PEER)),
        key=lambda run: (run.finish_ns, run.command),
    )
    while last is not None:
        spent[imported.roles[last.command]] += last.finish_ns - last.start_ns
        if _is_unknown(imported, last.command):
            other += last.finish_ns - last.start_ns
        before = [runs[i] for i in imported.graph.predecessors[last.command]]
        previous = max(before, key=lambda run: (run.finish_ns, run.command), default=None)
        ended = 0 if previous is None else previous.finish_ns
        late = max(0, imported.graph.commands[last.command].release_ns - ended)
        launch += late
        dispatch += last.start_ns - ended - late
        last = previous
    return Path(
        work_ns=spent[Role.WORK] - other,
        other_ns=other,
        peer_ns=spent[Role.PEER],
        delay_ns=spent[Role.DELAY],
        profiler_ns=spent[Role.PROFILER],
        launch_ns=launch,
        dispatch_ns=dispatch,
    )


def _is_unknown(imported: Imported, command: int) -> bool:
    kind = imported.recording.tasks[imported.tasks[command]].kind
    return imported.roles[command] is Role.WORK and kind is TaskKind.OTHER
