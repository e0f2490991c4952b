"""What a program's work takes as it was written, and what a scheduler would make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cann_env.acl.plans.record import record
from cann_env.acl.state.play import play
from cann_env.acl.state.score import Move, Score
from cann_env.acl.state.work import TOUCHED_BY_HOST
from cann_env.graph import BufferKind, CommandGraph
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work
    from cann_env.graph import Command
    from cann_env.schedule import Schedule

_SLOTS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """Three times of the same work in the same engine.

    Attributes:
        ran_ns: As it ran: from the first submission to the end of the last work, with the time that calls of
            the host took, and what the host did between them.
        written: Played again in the order, on the streams, with the events, prefetches and synchronisations
            of the program, by a host whose calls take no time.
        scheduled: The same work, ordered by its data alone, as the scheduler places it; its calls take no
            time either, so that it is to be compared with ``written``.
        scheduler: Its name.
        streams: How many the program used.
    """

    ran_ns: int
    written: Schedule
    scheduled: Schedule
    scheduler: str
    streams: int

    @property
    def written_ns(self) -> int:
        """Makespan of :attr:`written`."""
        return self.written.makespan_ns

    @property
    def scheduled_ns(self) -> int:
        """Makespan of :attr:`scheduled`."""
        return self.scheduled.makespan_ns

    @property
    def ratio(self) -> float:
        """How much of the written time the scheduler needs; above 1 it is worse than the program."""
        return self.scheduled_ns / self.written_ns

    def __str__(self) -> str:
        plural = "s" if self.streams != 1 else ""
        used = 1 + max(run.stream for run in self.scheduled.commands)
        rows = [
            ("as it ran, host calls included", self.ran_ns, ""),
            (f"as written on {self.streams} stream{plural}, host calls free", self.written_ns, ""),
            (
                f"{self.scheduler} on {used} stream{'s' if used != 1 else ''}, host calls free",
                self.scheduled_ns,
                f"  {self.ratio:.3f} of the written time",
            ),
            ("no schedule is shorter than", self.scheduled.lower_bound_ns, ""),
        ]
        width = max(len(title) for title, _, _ in rows)
        return "\n".join(f"{title:<{width}}  {format_time(time):>10}{note}" for title, time, note in rows)


def improve(
    run: Simulator, scheduler: str = "reference", *, device: int = 0, streams: int = 8
) -> Improvement:
    """Tell how long a program's work takes as written, and how long as a scheduler would have it.

    What the host did with results in between is not part of the work: a scheduler may move work across a
    synchronisation, where the data allow it.

    Args:
        run: The run.
        scheduler: As :func:`cann_env.schedulers.make_scheduler` takes it.
        device: Number of the device.
        streams: Streams the scheduler may use.

    Raises:
        InputError: The device had nothing to do, some of its work never ends, or there is no such scheduler.
    """
    graph = record(run, device=device)
    works = [work for work in run.log if work.device == device and work.call != TOUCHED_BY_HOST]
    run.advance_to([work.index for work in works])
    unended = [work for work in works if not work.ended]
    if unended:
        raise InputError(
            f"{len(unended)} pieces of work never end, the first is {unended[0].label} of {unended[0].site}; "
            "there is no time to compare with"
        )
    spec = run.spec
    managed = any(buffer.kind is BufferKind.MANAGED for buffer in graph.buffers)
    options = RunOptions(
        streams=streams,
        submission=Submission.SINK,
        prefetches=_SLOTS if managed and spec.memory.managed_prefetch else 0,
    )
    begin = min(work.submitted_ns for work in works)
    written = _Written(run, works, graph)
    return Improvement(
        ran_ns=max(work.finish_ns for work in works) - begin,
        written=play(written.score(), spec),
        scheduled=run_scheduler(compile_graph(graph, spec, options), scheduler),
        scheduler=scheduler,
        streams=len({work.stream for work in works if work.prefetch is None}),
    )


class _Written:
    """The graph of a program together with the order that the program chose."""

    def __init__(self, run: Simulator, works: list[Work], graph: CommandGraph) -> None:
        self._run, self._works, self._graph = run, works, graph
        commands = [work for work in works if work.prefetch is None]
        self._places = {work.index: i for i, work in enumerate(commands)}
        self._at = {(work.stream, work.position): work for work in works}

    def score(self) -> Score:
        """What the engine is to play."""
        run, graph = self._run, self._graph
        commands: list[Command] = []
        streams: list[int] = []
        moves: list[Move] = []
        labels: dict[int, int] = {}
        for work in self._works:
            before = self._before(work)
            if work.prefetch is not None:
                memory, way = work.prefetch
                buffer = graph.buffer_index.get(memory.allocation.name)
                if buffer is not None:
                    moves.append(Move(buffer, way, tuple(before), 0, len(commands)))
                continue
            command = graph.commands[len(commands)]
            names = [graph.commands[place].name for place in before]
            after = tuple(dict.fromkeys((*command.after, *names)))
            commands.append(replace(command, after=after))
            streams.append(labels.setdefault(work.stream, len(labels)))
        handles = [run.streams.get(handle) for handle in labels]
        return Score(
            graph=CommandGraph(graph.name, tuple(commands), graph.buffers),
            streams=tuple(streams),
            priorities=tuple(stream.priority if stream else 0 for stream in handles),
            moves=tuple(moves),
        )

    def _before(self, work: Work) -> list[int]:
        """Places of the commands that the program made a piece of work wait for."""
        seen = [
            self._at[stream, position].index
            for stream, position in work.host.items()
            if (stream, position) in self._at and stream != work.stream
        ]
        sources = [*work.all_waits, *seen]
        if work.prefetch is not None and work.previous >= 0:
            sources.append(work.previous)
        found = (self._command_at_or_before(index) for index in sources)
        return sorted({place for place in found if place is not None})

    def _command_at_or_before(self, index: int) -> int | None:
        """A prefetch is no command; what stands before it on its stream is."""
        while index >= 0 and index not in self._places:
            index = self._run.log[index].previous
        return self._places.get(index)
