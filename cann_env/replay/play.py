"""Play an imported graph in the engine, each stream and its order as they were recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.commands import CommandKind
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.replay.comparison import compare
from cann_env.replay.prices import priced_in_order
from cann_env.schedulers.assignment import Assignment, Fetch, Launch, Rule, carry_out
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.commands import Command
    from cann_env.device.spec import DeviceSpec
    from cann_env.replay.comparison import Comparison
    from cann_env.schedule import Schedule
    from cann_env.workloads.from_profiler import Imported

_MOST_STREAMS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A recording that was played again.

    Attributes:
        imported: What was played.
        schedule: What came of it; it passes :func:`cann_env.validate.validate`. Its graph has the same
            commands in the same order, but what has a recorded time there loads no memory, see
            :func:`replay`.
        comparison: Both sides.
    """

    imported: Imported
    schedule: Schedule
    comparison: Comparison


def replay(imported: Imported, device: DeviceSpec, *, l2: bool = False) -> Replay:
    """Play the recorded streams and order in the engine.

    Every stream of the recording is one of the engine, and its commands run there in their order. The whole
    graph was handed over beforehand, and what the host launched becomes known when it did.

    A recorded time holds what bandwidth its task had to share. It is therefore played without loading the
    memory, and kernels that were recorded side by side hold one core each, not to queue for what they shared.

    Args:
        imported: From :func:`cann_env.workloads.from_profiler.from_profiler`.
        device: Where.
        l2: Whether kernels whose time is modelled may find their operands in L2, of a graph with buffers; one
            without has no other order than the recorded one, and what that leaves in L2 is found in any case.

    Raises:
        InputError: The device cannot run something, or there are more streams than the engine has.
        EpisodeError: The engine could not finish.
    """
    count = len(imported.streams)
    if count > _MOST_STREAMS:
        raise InputError(
            f"{imported.graph.name} uses {count} streams; the engine has {_MOST_STREAMS}, replay one step"
        )
    schedule = play_streams(with_prices(as_recorded(imported), imported, device), device, l2=l2)
    return Replay(imported=imported, schedule=schedule, comparison=compare(imported, schedule))


def play_streams(
    graph: CommandGraph, device: DeviceSpec, *, submission: Submission = Submission.SINK, l2: bool = False
) -> Schedule:
    """Play every command on the stream of its hint, in the order of the graph.

    Raises:
        InputError: The device cannot run something.
        EpisodeError: The engine could not finish.
    """
    count = 1 + max(command.stream_hint or 0 for command in graph.commands)
    options = RunOptions(
        streams=count,
        submission=submission,
        run_ahead=len(graph.commands),
        commands=min(_MOST_STREAMS, max(count, 1)),
        prefetches=0,
        l2_prefetches=0,
        l2_bytes=None if l2 else 0,
    )
    program = compile_graph(graph, device, options)
    assignment = Assignment(
        order=tuple(range(len(graph.commands))),
        labels=tuple(command.stream_hint or 0 for command in graph.commands),
        rule=Rule(launch=Launch.LABELS, fifo=True, fetch=Fetch.ON_DEMAND),
    )
    return record_schedule(program, carry_out(program, assignment).plan.actions)


def with_prices(graph: CommandGraph, imported: Imported, device: DeviceSpec) -> CommandGraph:
    """A graph of an import with what its kernels last, L2 as the recorded order leaves it.

    One with buffers stays as it is: the engine follows its L2.

    Raises:
        InputError: The device cannot run one of the kernels.
    """
    if graph.buffers:
        return graph
    return CommandGraph(graph.name, tuple(priced_in_order(graph.commands, imported.starts_ns, device)))


def as_recorded(imported: Imported) -> CommandGraph:
    """The graph as it is replayed, see :func:`replay`: what has a recorded time loads no memory."""
    shared = side_by_side(imported)
    commands = [unloaded(command, alone=i not in shared) for i, command in enumerate(imported.graph.commands)]
    return CommandGraph(imported.graph.name, tuple(commands), imported.graph.buffers)


def unloaded(command: Command, *, alone: bool) -> Command:
    """A command whose recorded time is not stretched a second time by what it shares with others."""
    if command.kind is CommandKind.COPY and command.duration_ns:
        return replace(command, size_bytes=1)
    if not command.kernels or command.kernels[0].duration_ns is None:
        return command
    kernels = [
        replace(kernel, bytes_read=0, bytes_written=0, blocks=kernel.blocks if alone else 1)
        for kernel in command.kernels
    ]
    return replace(command, kernels=tuple(kernels))


def side_by_side(imported: Imported) -> set[int]:
    """Kernels that were recorded while another one ran."""
    kernels = sorted(
        (i for i, command in enumerate(imported.graph.commands) if command.kernels),
        key=lambda i: imported.starts_ns[i],
    )
    shared: set[int] = set()
    running: list[int] = []
    for i in kernels:
        running = [j for j in running if imported.finishes_ns[j] > imported.starts_ns[i]]
        if running:
            shared.update([i, *running])
        running.append(i)
    return shared
