"""A plan as stream code of PyTorch on an Ascend device: a template that calls the user's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl.plans.plan import plan_of
from cann_env.graph import CommandKind, CopyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.acl.plans.plan import Plan, Step
    from cann_env.graph import Command
    from cann_env.schedule import Schedule

_HEAD: Final = '''\
"""Schedule of {graph!r} for {device}: {commands} commands on {streams} streams.

Simulated, it takes {makespan} ns. A template: each command is a function of yours.
"""

import torch
import torch_npu{why}


def run(f, t, host):
    """Submit everything.

    Args:
        f: Has a function for each command, named after it; it gets the tensors that it reads, then those it
            writes.
        t: Tensors on the device, by the name of the buffer.
        host: Tensors in pinned memory of the host, by the name of the buffer.
    """'''


def torch_program(schedule: Schedule) -> str:
    """Stream code with ``torch.npu``: streams, events, prefetches, copies that do not block.

    What the runtime would move when it is touched is copied from ``host`` where the schedule asks for it, on
    a stream of its own, and whoever needs it waits; what the schedule leaves to faults is copied right
    before its first user, on that user's stream. The host waits for events where the schedule's host did.

    Raises:
        InputError: The schedule's durations were drawn at random.
    """
    return "\n".join(_Writer(plan_of(schedule)).lines()) + "\n"


class _Writer:
    """Writes the code of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names = function_names(plan)
        self._asked = {taken.target for taken in plan.steps if taken.call == "prefetch"}
        self._faulted: dict[int, list[int]] = {}
        self._there: set[int] = set()
        for row in plan.schedule.transfers:
            if row.cause == "fault":
                self._faulted.setdefault(row.buffer, []).append(row.start_ns)

    def lines(self) -> Iterator[str]:
        """The code."""
        plan, schedule = self._plan, self._plan.schedule
        work = list(self._work())
        lifts = any(taken.call == "lift" for taken in plan.steps)
        yield _HEAD.format(
            graph=plan.graph.name, device=schedule.device.name, commands=len(schedule.commands),
            streams=len({run.stream for run in schedule.commands}), makespan=schedule.makespan_ns,
            why="" if lifts else "  # noqa: F401 - makes torch.npu",
        )  # fmt: skip
        yield "    # Streams."
        priorities = schedule.options.stream_priorities
        for stream in range(plan.streams):
            given = f"priority={priorities[stream]}" if priorities else ""
            yield f"    s{stream} = torch.npu.Stream({given})"
        if any(taken.call != "issue" for taken in plan.steps):
            yield "    mover = torch.npu.Stream()  # moves memory"
        yield ""
        yield "    # Events."
        text = "\n".join(work)
        for command in range(len(plan.graph.commands)):
            if f" e{command}.record" in text:
                yield f"    e{command} = torch.npu.Event()"
        for buffer in sorted(self._asked):
            yield f"    m{buffer} = torch.npu.Event()"
        yield ""
        yield "    # Work."
        yield from work
        yield ""
        yield "    # End."
        yield "    torch.npu.synchronize()"

    def _work(self) -> Iterator[str]:
        issued: list[int] = []
        awaited = set(_host_waits(self._plan))
        now = 0
        for taken in self._plan.steps:
            if taken.at_ns > now:
                now = taken.at_ns
                done = [c for c in issued if self._plan.finish_ns[c] == now]
                yield f"    e{done[-1]}.synchronize()  # {now} ns" if done else f"    # not before {now} ns"
            if taken.call == "issue":
                issued.append(taken.target)
                yield from self._issue(taken, noted=taken.target in self._plan.recorded | awaited)
            else:
                yield from self._move(taken)

    def _issue(self, taken: Step, *, noted: bool) -> Iterator[str]:
        c, stream = taken.target, f"s{taken.stream}"
        command = self._plan.graph.commands[c]
        yield f"    with torch.npu.stream({stream}):  # {' '.join(command.name.split())}"
        for producer in self._plan.waits.get(c, ()):
            yield f"        {stream}.wait_event(e{producer})"
        for producer in self._plan.reuse.get(c, ()):
            yield f"        {stream}.wait_event(e{producer})  # memory is used again"
        yield from (f"        {line}" for line in self._arrivals(taken))
        yield f"        {self._call(c, command)}"
        if noted:
            yield f"        e{c}.record({stream})"

    def _arrivals(self, taken: Step) -> Iterator[str]:
        """Whoever needs memory that moves waits for it, or fetches it."""
        graph = self._plan.graph
        for name in graph.commands[taken.target].reads:
            b = graph.buffer_index[name]
            if b in self._there:
                yield f"s{taken.stream}.wait_event(m{b})"
            elif b in self._faulted and b not in self._asked:
                yield f"t[{name!r}].copy_(host[{name!r}], non_blocking=True)"

    def _call(self, c: int, command: Command) -> str:
        if command.kind is CommandKind.COPY and len(command.reads) + len(command.writes) == 1:
            name = (*command.reads, *command.writes)[0]
            if command.copy is CopyKind.H2D and command.writes:
                return f"t[{name!r}].copy_(host[{name!r}], non_blocking=True)"
            if command.copy is CopyKind.D2H and command.reads:
                return f"host[{name!r}].copy_(t[{name!r}], non_blocking=True)"
        args = ", ".join(f"t[{name!r}]" for name in (*command.reads, *command.writes))
        notes = {
            CommandKind.COLLECTIVE: "  # a collective, as torch.distributed's with async_op=True",
            CommandKind.CALLBACK: "  # a function of the host, in the order of the stream",
        }
        return f"f.{self._names[c]}({args}){notes.get(command.kind, '')}"

    def _move(self, taken: Step) -> Iterator[str]:
        name = self._plan.graph.buffers[taken.target].name
        size = self._plan.graph.buffers[taken.target].size_bytes
        yield f"    with torch.npu.stream(mover):  # {taken.call} {' '.join(name.split())}"
        if taken.call == "prefetch":
            self._there.add(taken.target)
            yield f"        t[{name!r}].copy_(host[{name!r}], non_blocking=True)"
            yield f"        m{taken.target}.record(mover)"
        elif taken.call == "lift":
            yield f"        torch_npu.npu_prefetch(t[{name!r}], None, {size})"
        else:
            self._there.discard(taken.target)
            yield f"        host[{name!r}].copy_(t[{name!r}], non_blocking=True)"


def function_names(plan: Plan) -> list[str]:
    """A name for each command that Python admits and no other has."""
    found: dict[str, None] = {}
    for command in plan.graph.commands:
        plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in command.name)
        plain = plain.strip("_") or "command"
        plain = f"c_{plain}" if plain[0].isdecimal() else plain
        name, number = plain, 2
        while name in found:
            name, number = f"{plain}_{number}", number + 1
        found[name] = None
    return list(found)


def _host_waits(plan: Plan) -> Iterator[int]:
    """Commands that the host waits for."""
    issued: list[int] = []
    now = 0
    for taken in plan.steps:
        if taken.at_ns > now:
            now = taken.at_ns
            yield from [c for c in issued if plan.finish_ns[c] == now][-1:]
        if taken.call == "issue":
            issued.append(taken.target)
