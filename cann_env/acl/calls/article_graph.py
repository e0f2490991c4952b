"""A graph cut into commands on streams, as the article on the runtime says that the graph compiler does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.article import CommandObject
from cann_env.acl.calls.rt_memory import pages, take
from cann_env.acl.codes import Refused
from cann_env.acl.plans.plan import plan_of
from cann_env.acl.state.managed import prefetch
from cann_env.acl.state.work import Touch, Way
from cann_env.graph import BufferKind, CommandGraph, CommandKind, CopyKind, Level
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.schedulers import run_scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.objects import Record, Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.schedule import Schedule

_SLOTS: Final = 8
_WAYS: Final = {"prefetch": Way.PREFETCH, "lift": Way.LIFT, "offload": Way.OFFLOAD}


@call(
    1, c_name="",
    differs="Counterpart: aclmdlLoadFromFile and aclmdlExecuteAsync of a model that ATC compiled: there the "
    "graph engine chose streams and events beforehand. Work is simulated, values are not computed.",
)  # fmt: skip
def run_graph(
    run: Simulator,
    graph: CommandGraph | str | Path,
    scheduler: str = "reference",
    streams: Sequence[int] = (const.ACL_STREAM_DEFAULT,),
) -> int:
    """Let a scheduler cut a graph into work on streams, and submit all of it; gives a command to wait for.

    The memory of the graph belongs to the command, and goes away with :func:`destroy_command`.

    Args:
        run: The run.
        graph: A graph, an ONNX file, or the short name of a light model such as ``"resnet50"``.
        scheduler: As :func:`cann_env.schedulers.make_scheduler` takes it.
        streams: Where to submit; no more are used.
    """
    places = [run.stream(handle) for handle in streams]
    if not places or len({place.handle for place in places}) < len(places):
        raise Refused(codes.RT_PARAM_INVALID, f"streams is {streams!r}; pass one or more, each once")
    found = graph if isinstance(graph, CommandGraph) else _of_model(run, graph)
    schedule = _scheduled(run, found, scheduler, places)
    command = CommandObject(run.new_handle(), site())
    ranges = [_memory(run, schedule, i, command) for i in range(len(found.buffers))]
    run.things[command.handle] = command
    _Submission(run, schedule, places, ranges, command).all()
    return command.handle


def _of_model(run: Simulator, path: str | Path) -> CommandGraph:
    from cann_env.workloads.from_onnx import from_onnx

    memory = run.spec.memory
    moves = memory.managed_prefetch or memory.host_shares_dram
    return from_onnx(path, run.spec, weights=Level.HOST if moves else Level.HBM)


def _scheduled(run: Simulator, graph: CommandGraph, scheduler: str, places: Sequence[Stream]) -> Schedule:
    managed = any(buffer.kind is BufferKind.MANAGED for buffer in graph.buffers)
    moves = managed and run.spec.memory.managed_prefetch
    levels = run.spec.limits.stream_priorities
    options = RunOptions(
        streams=len(places),
        stream_priorities=tuple(min(place.priority, levels - 1) for place in places),
        submission=Submission(run.submission),
        prefetches=_SLOTS if moves else 0,
    )
    return run_scheduler(compile_graph(graph, run.spec, options), scheduler)


def _memory(run: Simulator, schedule: Schedule, index: int, command: CommandObject) -> Range:
    buffer = schedule.graph.buffers[index]
    if buffer.kind is BufferKind.MANAGED:
        allocation = run.memory.managed(run.context().device, buffer.size_bytes, command.site)
        allocation.on_device = buffer.level is Level.HBM
    else:
        taken = pages(buffer.size_bytes, const.ACL_MEM_MALLOC_HUGE_FIRST)
        allocation = take(run, buffer.size_bytes, taken, command.site)
    command.owned.append(allocation.address)
    return run.memory.range(allocation.address, buffer.size_bytes, "buffer")


class _Submission:
    """Submits the commands of a schedule in its order, with the events it needs."""

    def __init__(
        self,
        run: Simulator,
        schedule: Schedule,
        places: Sequence[Stream],
        ranges: Sequence[Range],
        command: CommandObject,
    ) -> None:
        self._run, self._schedule, self._places = run, schedule, places
        self._ranges, self._command = ranges, command
        self._waits: dict[int, list[int]] = {}
        for wait in schedule.waits:
            self._waits.setdefault(wait.consumer, []).append(wait.producer)
        self._recorded = {wait.producer for wait in schedule.waits}
        self._records: dict[int, Record] = {}

    def all(self) -> None:
        run, graph = self._run, self._schedule.graph
        for decision in plan_of(self._schedule).steps:
            if decision.call == "issue":
                self._issue(decision.target, self._places[decision.stream])
                continue
            run.pay("prefetch_ns")
            memory, way = self._ranges[decision.target], _WAYS[decision.call]
            name = f"{decision.call} {graph.buffers[decision.target].name}"
            prefetch(run, run.copy_stream(), memory, way, self._command.site, name)

    def _issue(self, number: int, where: Stream) -> None:
        run, graph, line = self._run, self._schedule.graph, self._command.site
        for producer in self._waits.get(number, ()):
            run.pay("wait_event_ns")
            run.wait(where, self._records[producer])
        command = graph.commands[number]
        touches = [
            Touch(self._ranges[graph.buffer_index[name]], writes)
            for names, writes in ((command.reads, False), (command.writes, True))
            for name in names
        ]
        copy = command.kind is CommandKind.COPY and command.copy is not CopyKind.D2D
        run.pay("memcpy_async_ns" if copy else "launch_kernel_ns")
        bare = replace(command, reads=(), writes=(), after=(), release_ns=0, stream_hint=None)
        work = run.submit("run_graph", where, bare, touches, site=line, label=command.name)
        self._command.work.append(work.index)
        if number in self._recorded:
            run.pay("record_event_ns")
            self._records[number] = run.record(where, line)
