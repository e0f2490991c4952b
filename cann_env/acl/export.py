"""A schedule as a program: its streams, events, prefetches and order, in calls of the interface."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine.layout import RUNNING, S_NOW_NS, S_STATUS
from cann_env.engine.observe import copy_mask
from cann_env.engine.step import step
from cann_env.graph import BufferKind, CommandKind, CopyKind, HostMemory, Kernel, Level
from cann_env.program import compile_graph
from cann_env.schedulers.policy import episode_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.graph import Buffer, Command
    from cann_env.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Decision:
    """What the host does, and when: issue a command on a stream, or move a buffer."""

    at_ns: int
    call: str
    target: int
    stream: int = -1


def decisions(schedule: Schedule) -> list[Decision]:
    """The decisions of a schedule, waits left out: each carries its time instead.

    ``call`` is ``issue``, ``prefetch``, ``lift`` or ``offload``.
    """
    program = compile_graph(schedule.graph, schedule.device, schedule.options)
    state = program.new_state(np.asarray(schedule.noise, np.int64))
    info = episode_info(program, state)
    mask = np.zeros(program.action_count, np.int8)
    streams = {run.command: run.stream for run in schedule.commands}
    window = info["window"] * info["choices"]
    kinds = [
        *["prefetch"] * info["prefetches"],
        *["lift"] * info["l2_prefetches"],
        *["offload"] * info["offloads"],
    ]
    found: list[Decision] = []
    for action in schedule.actions:
        if state[S_STATUS] != RUNNING:
            break
        copy_mask(program.image, state, mask)
        now = int(state[S_NOW_NS])
        if action < window:
            command = int(info["ready"][action // info["choices"]])
            found.append(Decision(now, "issue", command, streams[command]))
        elif action < program.action_count - 1:
            slot = action - window
            found.append(Decision(now, kinds[slot], int(info["movable"][slot])))
        step(program.image, state, action)
    return found


def acl_program(schedule: Schedule) -> str:
    """A program in Python that carries a schedule out through ``acl``.

    Run by the simulator on the schedule's device with ``submission="sink"`` it has the same timeline. For a
    device, the stand-ins of its kernels are to be replaced by what loads the real ones.
    """
    return "\n".join(_Writer(schedule).lines()) + "\n"


_HEAD = '''\
"""Schedule of {graph!r} for {device}: {commands} commands on {streams} streams, {makespan} ns.

cann-env: device={device} submission=sink
"""

import numpy as np

import cann_env.acl as acl  # on a device: import acl
from cann_env.graph import Kernel, KernelClass, Operand, Scheme  # for the stand-ins of the kernels


def works(code):
    if code != 0:
        raise RuntimeError(f"{{code}}: {{acl.get_recent_err_msg()}}")


def value(result):
    works(result[-1])
    return result[0]

'''


_LEAVES = ("fault", "prefetch", "evict", "writeback")


class _Writer:
    """Writes the program of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._graph = schedule.graph
        self._finish = {run.command: run.finish_ns for run in schedule.commands}
        self._stream = {run.command: run.stream for run in schedule.commands}
        self._kernels: dict[Kernel, str] = {}
        self._arity: dict[str, tuple[int, int]] = {}
        self._awaited: set[int] = set()
        self._recorded: set[int] = set()
        self._host_memory: list[str] = []
        self._waits: dict[int, list[int]] = {}
        for wait in schedule.waits:
            self._waits.setdefault(wait.consumer, []).append(wait.producer)
        self._decisions = decisions(schedule)
        self._moved = {
            self._graph.buffers[row.buffer].name for row in schedule.transfers if row.cause in _LEAVES
        }

    def lines(self) -> Iterator[str]:
        schedule = self._schedule
        body = list(self._body())
        yield _HEAD.format(
            graph=self._graph.name, device=schedule.device.name, commands=len(schedule.commands),
            streams=len(set(self._stream.values())), makespan=schedule.makespan_ns,
        )  # fmt: skip
        yield ""
        yield "def stand_ins():"
        yield '    """What the kernels cost; on a device they are loaded from their binary."""'
        for kernel, name in self._kernels.items():
            reads, writes = self._arity[name]
            places = f"reads={tuple(range(reads))}, writes={tuple(range(reads, reads + writes))}"
            yield f"    acl.define_kernel({name!r}, exact={_literal(kernel)}, {places})"
        if not self._kernels:
            yield "    pass"
        yield ""
        yield ""
        yield "def main():"
        yield "    stand_ins()"
        yield "    works(acl.init())"
        yield "    works(acl.rt.set_device(0))"
        yield from (f"    {line}" for line in body)
        yield "    works(acl.rt.synchronize_device())"
        yield ""
        yield ""
        yield 'if __name__ == "__main__":'
        yield "    main()"

    def _body(self) -> Iterator[str]:
        calls = list(self._calls())
        yield 'binary = value(acl.rt.binary_load_from_file("kernels.o"))'
        for name in self._kernels.values():
            yield f"{name} = value(acl.rt.binary_get_function(binary, {name!r}))"
        used = sorted(set(self._stream.values()))
        priorities = self._schedule.options.stream_priorities
        for stream in range(max(used) + 1):
            if priorities:
                yield f"s{stream} = value(acl.rt.create_stream_with_config({priorities[stream]}, 0))"
            else:
                yield f"s{stream} = value(acl.rt.create_stream())"
        if any(decision.call != "issue" for decision in self._decisions):
            yield "mover = value(acl.rt.create_stream())"
        if any(map(self._is_pooled, self._graph.buffers)):
            yield "last = value(acl.rt.create_stream())  # what is given back waits here"
        for command in sorted(self._recorded):
            yield f"e{command} = value(acl.rt.create_event_ex_with_flag(0))"
        if self._graph.buffers:
            yield "pool = value(acl.rt.mem_pool_create(0))"
        for i, buffer in enumerate(self._graph.buffers):
            yield f"b{i} = {self._memory(buffer)}  # {buffer.name}"
        yield from self._host_memory
        yield ""
        yield from calls

    def _memory(self, buffer: Buffer) -> str:
        if self._is_pooled(buffer):
            return f"value(acl.rt.mem_pool_malloc_async(pool, {buffer.size_bytes}, s0))"
        stays = buffer.level is Level.HBM and buffer.name not in self._moved
        if buffer.kind is BufferKind.MANAGED and not stays:
            return f"value(acl.rt.mem_alloc_managed({buffer.size_bytes}, 0))"
        return f"value(acl.rt.malloc({buffer.size_bytes}, acl.ACL_MEM_MALLOC_HUGE_FIRST))"

    @staticmethod
    def _is_pooled(buffer: Buffer) -> bool:
        return buffer.kind is BufferKind.DEVICE and buffer.level is Level.ABSENT

    def _calls(self) -> Iterator[str]:
        plan = self._plan()
        ends = self._last_users()
        self._recorded = self._awaited | {p for producers in self._waits.values() for p in producers}
        self._recorded.update(*ends.values())
        last = {}
        for place, (decision, _) in enumerate(plan):
            for buffer in self._touched(decision):
                last[buffer] = place
        for place, (decision, lines) in enumerate(plan):
            yield from lines
            c = decision.target
            if decision.call == "issue" and c in self._recorded:
                yield f"works(acl.rt.record_event(e{c}, s{decision.stream}))"
            for buffer in self._touched(decision):
                if buffer in ends and last[buffer] == place:
                    for user in ends[buffer]:
                        yield f"works(acl.rt.stream_wait_event(last, e{user}))"
                    yield f"works(acl.rt.mem_pool_free_async(b{buffer}, last))"

    def _plan(self) -> list[tuple[Decision, list[str]]]:
        """Each decision with its calls: to wait for its time, for its events, and to carry it out."""
        issued: list[int] = []
        now = 0
        plan: list[tuple[Decision, list[str]]] = []
        for decision in self._decisions:
            lines = self._until(decision.at_ns, issued) if decision.at_ns > now else []
            now = decision.at_ns
            if decision.call == "issue":
                for producer in self._waits.get(decision.target, []):
                    lines.append(f"works(acl.rt.stream_wait_event(s{decision.stream}, e{producer}))")
                lines += self._issue(decision.target, decision.stream)
                issued.append(decision.target)
            else:
                lines.append(self._move(decision))
            plan.append((decision, lines))
        return plan

    def _until(self, time_ns: int, issued: list[int]) -> list[str]:
        """The host waits for what ends at an instant; for the instant itself, where nothing does."""
        done = [c for c in issued if self._finish[c] == time_ns]
        if not done:
            return [f"works(acl.wait_until({time_ns}))"]
        self._awaited.add(done[-1])
        return [f"works(acl.rt.synchronize_event(e{done[-1]}))  # {time_ns} ns"]

    def _touched(self, decision: Decision) -> list[int]:
        """Buffers that a decision names."""
        if decision.call != "issue":
            return [decision.target]
        command = self._graph.commands[decision.target]
        return [self._graph.buffer_index[n] for n in dict.fromkeys((*command.reads, *command.writes))]

    def _last_users(self) -> dict[int, list[int]]:
        """Of each buffer that is given back, the last command of each stream that touches it."""
        found: dict[int, dict[int, int]] = {}
        for decision in self._decisions:
            if decision.call != "issue":
                continue
            for buffer in self._touched(decision):
                if self._is_pooled(self._graph.buffers[buffer]):
                    users = found.setdefault(buffer, {})
                    users[decision.stream] = decision.target
        return {buffer: list(users.values()) for buffer, users in found.items()}

    def _move(self, decision: Decision) -> str:
        buffer = self._graph.buffers[decision.target]
        if decision.call == "lift":
            return f"works(acl.rt.cmo_async(b{decision.target}, {buffer.size_bytes}, 0, mover))"
        place = "(1, 0)" if decision.call == "prefetch" else "(0, 0)"
        return (
            f"works(acl.rt.mem_managed_prefetch_async(b{decision.target}, {buffer.size_bytes}, {place}, 0, "
            "mover))"
        )

    def _issue(self, c: int, stream: int) -> list[str]:
        command = self._graph.commands[c]
        index = self._graph.buffer_index
        reads = [f"b{index[name]}" for name in command.reads]
        writes = [f"b{index[name]}" for name in command.writes]
        note = f"  # {command.name}"
        if command.kind is CommandKind.KERNEL:
            return self._kernel(command, reads, writes, stream, note)
        if command.kind is CommandKind.COPY:
            return [self._copy(c, command, reads, writes, stream) + note]
        listed = f"[{', '.join(reads)}], [{', '.join(writes)}]"
        kind = command.kind.value
        return [f"works(acl.operation({kind!r}, {command.duration_ns}, s{stream}, {listed})){note}"]

    def _kernel(
        self, command: Command, reads: list[str], writes: list[str], stream: int, note: str
    ) -> list[str]:
        args = f"[{', '.join([*reads, *writes])}]"
        names = []
        for place, kernel in enumerate(command.kernels):
            arity = (len(reads), len(writes)) if place == 0 else (0, 0)
            names.append(self._name_of(kernel, arity))
        if len(names) == 1:
            blocks = command.kernels[0].blocks
            return [f"works(acl.rt.launch_kernel({names[0]}, {blocks}, {args}, None, s{stream})){note}"]
        lines = [f"command = value(acl.create_command()){note}"]
        for name, kernel in zip(names, command.kernels, strict=True):
            given = args if name == names[0] else "[]"
            lines.append(f"works(acl.set_command_args(command, {name}, {kernel.blocks}, {given}))")
        lines.append(f"works(acl.submit_command(command, s{stream}))")
        lines.append("works(acl.destroy_command(command))")
        return lines

    def _name_of(self, kernel: Kernel, arity: tuple[int, int]) -> str:
        for known, name in self._kernels.items():
            if known is kernel and self._arity[name] == arity:
                return name
        name = f"k{len(self._arity)}"
        self._arity[name] = arity
        self._kernels[kernel] = name
        return name

    def _copy(self, c: int, command: Command, reads: list[str], writes: list[str], stream: int) -> str:
        assert command.copy is not None  # a graph admits no copy without direction
        size = command.size_bytes
        held = [
            self._graph.buffers[self._graph.buffer_index[name]] for name in (*command.reads, *command.writes)
        ]
        ends = {CopyKind.H2D: (0, 1), CopyKind.D2H: (1, 0), CopyKind.D2D: (1, 1)}[command.copy]
        if (len(reads), len(writes)) != ends or any(buffer.size_bytes != size for buffer in held):
            listed = f"[{', '.join(reads)}], [{', '.join(writes)}]"
            return f"works(acl.operation({command.copy.value!r}, {size}, s{stream}, {listed}))"
        if command.copy is CopyKind.D2D:
            return f"works(acl.rt.memcpy_async({writes[0]}, {size}, {reads[0]}, {size}, 3, s{stream}))"
        if command.host_memory is HostMemory.PAGEABLE:
            self._host_memory.append(f"a{c} = np.zeros({size}, np.uint8)")
            self._host_memory.append(f"h{c} = acl.util.numpy_to_ptr(a{c})")
        else:
            self._host_memory.append(f"h{c} = value(acl.rt.malloc_host({size}))")
        target, source, kind = f"h{c}", f"h{c}", 2
        if command.copy is CopyKind.H2D:
            target, kind = writes[0], 1
        else:
            source = reads[0]
        return f"works(acl.rt.memcpy_async({target}, {size}, {source}, {size}, {kind}, s{stream}))"


def _literal(kernel: Kernel) -> str:
    """A kernel as an expression; what is as by default is left out."""
    parts = []
    for field in fields(Kernel):
        held = getattr(kernel, field.name)
        if held == field.default and field.name not in ("name", "kernel_class"):
            continue
        parts.append(f"{field.name}={_expression(held)}")
    return f"Kernel({', '.join(parts)})"


def _expression(held: object) -> str:
    kind = type(held).__name__
    if kind in ("KernelClass", "Scheme"):
        return f"{kind}.{held.name}"  # type: ignore[attr-defined]
    return repr(held)
