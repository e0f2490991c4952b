"""A plan as a program in Python that carries it out through ``acl``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl.plans.export_calls import Calls
from cann_env.acl.plans.export_text import HEAD, HELPERS
from cann_env.acl.plans.plan import is_pooled, needs_graph, plan_of, settings, stream_die
from cann_env.acl.plans.record import RecordedGraph
from cann_env.graph import BufferKind, HostMemory, Level
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.acl.plans.plan import Plan, Step
    from cann_env.graph import Buffer
    from cann_env.schedule import Schedule


def acl_program(schedule: Schedule) -> str:
    """A program in Python that carries a schedule out through ``acl``.

    Run by the simulator as :func:`~cann_env.acl.run_as` prepares it, its timeline is that of the schedule.
    For a device, the stand-ins of its kernels are to be replaced by what loads the real ones, and ``BY_TIME``
    is to be False.

    Raises:
        InputError: There is no program that would do the same; names the command or the buffer.
    """
    plan = plan_of(schedule)
    _check(plan)
    return "\n".join(_Writer(plan).lines()) + "\n"


def _check(plan: Plan) -> None:
    memory = plan.schedule.device.memory
    if memory.managed_prefetch:
        return
    for buffer in plan.graph.buffers:
        moves = plan.graph.buffer_index[buffer.name] in plan.moved
        away = buffer.level is Level.HOST and not memory.host_shares_dram
        if buffer.kind is BufferKind.MANAGED and (away or moves):
            users = [c.name for c in plan.graph.commands if buffer.name in (*c.reads, *c.writes)]
            raise InputError(
                f"graph {plan.graph.name!r}, buffer {buffer.name!r} (used by command {users[0]!r}) moves "
                f"between host and device, and {plan.schedule.device.name} has no managed memory; put it "
                "into device memory beforehand (level 'hbm'), or export for another device"
            )
    lifts = [taken.target for taken in plan.steps if taken.call == "lift"]
    if lifts:
        raise InputError(
            f"graph {plan.graph.name!r}, buffer {plan.graph.buffers[lifts[0]].name!r} is prefetched into L2, "
            f"for which {plan.schedule.device.name} has no call; schedule with l2_prefetches=0"
        )


class _Writer:
    """Writes the program of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._graph = plan.graph
        self._last = _last_users(plan)
        keepers = {user for users in self._last.values() for user in users}
        self._noted = (plan.recorded | keepers | set(self._host_waits())) - {-1}
        self._calls = Calls(plan)
        self._written_first = _written_first(plan)

    def lines(self) -> Iterator[str]:
        """The program."""
        work = list(self._work())
        body = [*self._setting_up(), *work, *self._ending()]
        text = "\n".join(body)
        definitions = list(self._calls.definitions())
        schedule = self._plan.schedule
        yield HEAD.format(
            graph=self._graph.name, device=schedule.device.name, commands=len(schedule.commands),
            streams=len({run.stream for run in schedule.commands}), makespan=schedule.makespan_ns,
            settings=settings(schedule), numpy="import numpy as np\n\n" if "np." in text else "",
            names=_imports(definitions), order=self._order(),
        )  # fmt: skip
        for word, helper in HELPERS.items():
            if f"\n{word}" in text:
                yield helper
        if definitions:
            yield from ("", "def stand_ins():")
            yield '    """What the kernels cost; on a device they are loaded from their binary."""'
            yield from (f"    {line}" for line in definitions)
            yield ""
        yield ""
        yield f"def main({'given=()' if isinstance(self._graph, RecordedGraph) else ''}):"
        if definitions:
            yield "    stand_ins()"
        yield from (f"    {line}" if line else "" for line in body)
        yield from ("", "", 'if __name__ == "__main__":', "    main()")

    # Sections.

    def _setting_up(self) -> Iterator[str]:
        yield "works(acl.init())"
        yield "works(acl.rt.set_device(0))"
        if self._order():
            yield "works(acl.graph_order(ORDER, EDGES, RELEASES))"
        yield from _section("Streams", self._streams())
        yield from _section("Events", self._events())
        yield from _section("Kernels", self._calls.functions())
        yield from _section("Memory", self._memory())
        yield from _section("Memory of the host", self._calls.host_memory())
        yield from ("", "# Work.")

    def _order(self) -> str:
        """What a runtime that was handed the graph knows of it, where that matters."""
        if not needs_graph(self._plan.schedule):
            return ""
        order = ", ".join(str(taken.target) for taken in self._plan.steps if taken.call == "issue")
        releases = {
            c: command.release_ns for c, command in enumerate(self._graph.commands) if command.release_ns
        }
        return (
            "\n# The graph that was handed over: places of what is submitted, what comes before beyond what"
            "\n# events and data tell, and when what is late becomes known (ns)."
            f"\nORDER = ({order},)\nEDGES = {self._edges()}\nRELEASES = {releases}\n"
        )

    def _edges(self) -> dict[int, tuple[int, ...]]:
        """What commands are to come after, as far as neither events nor data tell."""
        graph, found = self._graph, {}
        for c, command in enumerate(graph.commands):
            told = self._plan.waits.get(c, ())
            untold = tuple(u for u in map(graph.command_index.__getitem__, command.after) if u not in told)
            if untold:
                found[c] = untold
        return found

    def _streams(self) -> Iterator[str]:
        schedule = self._plan.schedule
        priorities, dies = schedule.options.stream_priorities, schedule.device.dies
        for stream in range(self._plan.streams):
            if dies > 1:
                yield f"works(acl.use_die({stream_die(schedule, stream)}))"
            made = f"create_stream_with_config({priorities[stream]}, 0)" if priorities else "create_stream()"
            yield f"s{stream} = value(acl.rt.{made})"
        if any(taken.call != "issue" for taken in self._plan.steps):
            yield "mover = value(acl.rt.create_stream())  # moves memory"
        if self._last:
            yield "last = value(acl.rt.create_stream())  # what is given back waits here"

    def _events(self) -> Iterator[str]:
        for command in sorted(self._recorded()):
            yield f"e{command} = value(acl.rt.create_event_ex_with_flag(0))"

    def _memory(self) -> Iterator[str]:
        if any(map(is_pooled, self._graph.buffers)):
            yield "pool = value(acl.rt.mem_pool_create(0))"
        for i, buffer in enumerate(self._graph.buffers):
            if not is_pooled(buffer):
                yield from self._allocation(i, buffer)

    def _allocation(self, i: int, buffer: Buffer) -> Iterator[str]:
        device = self._plan.schedule.device
        movable = device.memory.managed_prefetch or device.memory.host_shares_dram
        if device.dies > 1:
            yield f"works(acl.use_die({buffer.die}))"
        if is_pooled(buffer):
            made = f"mem_pool_malloc_async(pool, {buffer.size_bytes}, s0)"
        elif buffer.kind is BufferKind.MANAGED and movable:
            made = f"mem_alloc_managed({buffer.size_bytes}, 0)"
        else:
            made = f"malloc({buffer.size_bytes}, acl.ACL_MEM_MALLOC_HUGE_FIRST)"
        yield f"b{i} = value(acl.rt.{made})  # {buffer.name}"
        pageable = buffer.host_memory is HostMemory.PAGEABLE
        if buffer.kind is BufferKind.MANAGED and movable and (buffer.level is not Level.ABSENT or pageable):
            place = "host" if buffer.level is Level.HOST else "device"
            told = ", pageable=True" if pageable else ""
            if place == "device" or pageable or i in self._written_first:
                yield f"works(acl.begins(b{i}, {place!r}{told}))"

    def _work(self) -> Iterator[str]:
        plan = self._plan
        last_place = {b: place for place, taken in enumerate(plan.steps) for b in plan.touched(taken)}
        there: set[int] = set()
        issued: list[int] = []
        now = 0
        units = [self._unit(taken) for taken in plan.steps]
        for place, (taken, unit) in enumerate(zip(plan.steps, units, strict=True)):
            if taken.at_ns > now:
                now = taken.at_ns
                yield self._until(now, issued)
                yield from self._coming(place, there)
            elif place == 0:
                yield from self._coming(0, there)
            yield from unit
            if taken.call == "issue":
                issued.append(taken.target)
                if taken.target in self._recorded():
                    yield f"record(e{taken.target}, s{taken.stream})"
            for b in plan.touched(taken):
                if b in self._last and last_place[b] == place:
                    users = ", ".join(f"e{user}" for user in self._last[b])
                    yield f"give_back(b{b}, last, {users})"

    def _coming(self, place: int, there: set[int]) -> Iterator[str]:
        """Memory for what follows at the same instant."""
        steps = self._plan.steps
        end = place
        while end < len(steps) and steps[end].at_ns == steps[place].at_ns:
            end += 1
        for taken in steps[place:end]:
            for b in self._plan.touched(taken):
                if b not in there and is_pooled(self._graph.buffers[b]):
                    there.add(b)
                    yield from self._allocation(b, self._graph.buffers[b])

    def _unit(self, taken: Step) -> list[str]:
        if taken.call == "issue":
            return self._calls.issue(taken.target, taken.stream)
        size = self._graph.buffers[taken.target].size_bytes
        if taken.call == "lift":
            return [f"works(acl.rt.cmo_async(b{taken.target}, {size}, 0, mover))"]
        place = "(1, 0)" if taken.call == "prefetch" else "(0, 0)"
        return [f"bring(b{taken.target}, {size}, {place}, mover)"]

    def _until(self, time_ns: int, issued: list[int]) -> str:
        """The host waits for what ends at an instant; for the instant itself, where nothing does."""
        event = self._event_at(time_ns, issued)
        return f"until({time_ns})" if event < 0 else f"until({time_ns}, e{event})"

    def _event_at(self, time_ns: int, issued: Iterable[int]) -> int:
        done = [c for c in issued if self._plan.finish_ns[c] == time_ns]
        return done[-1] if done else -1

    def _host_waits(self) -> Iterator[int]:
        issued: list[int] = []
        now = 0
        for taken in self._plan.steps:
            if taken.at_ns > now:
                now = taken.at_ns
                yield self._event_at(now, issued)
            if taken.call == "issue":
                issued.append(taken.target)

    def _recorded(self) -> frozenset[int]:
        """Commands with an event behind them."""
        return self._noted

    def _ending(self) -> Iterator[str]:
        yield from ("", "# End.", "works(acl.rt.synchronize_device())")
        recorded = isinstance(self._graph, RecordedGraph)
        if recorded:
            yield "seen = {name: view(*memory).copy() for name, memory in host.items()}"
        events = [f"e{command}" for command in sorted(self._recorded())]
        streams = [line.partition(" =")[0] for line in self._streams() if " = " in line]
        memory = [f"b{i}" for i, buffer in enumerate(self._graph.buffers) if not is_pooled(buffer)]
        for what, call, names in (
            ("event", "destroy_event", events),
            ("stream", "destroy_stream", streams),
            ("memory", "free", memory),
            ("memory", "free_host", self._calls.pinned),
        ):
            if names:
                yield f"for {what} in [{', '.join(names)}]:"
                yield f"    works(acl.rt.{call}({what}))"
        if any(map(is_pooled, self._graph.buffers)):
            yield "works(acl.rt.mem_pool_destroy(pool))"
        yield from ("works(acl.rt.reset_device(0))", "works(acl.finalize())")
        if recorded:
            yield "return seen"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield from ("", f"# {title}.")
        yield from found


def _last_users(plan: Plan) -> dict[int, list[int]]:
    """Of each buffer that is given back, the last command of each stream that touches it."""
    found: dict[int, dict[int, int]] = {}
    for taken in plan.steps:
        if taken.call != "issue":
            continue
        for b in plan.touched(taken):
            if is_pooled(plan.graph.buffers[b]):
                found.setdefault(b, {})[taken.stream] = taken.target
    return {b: list(users.values()) for b, users in found.items()}


def _written_first(plan: Plan) -> frozenset[int]:
    """Buffers whose first user in the order of the steps writes them and does not read them."""
    first: dict[int, bool] = {}
    for taken in plan.steps:
        if taken.call == "issue":
            command = plan.graph.commands[taken.target]
            for b in plan.touched(taken):
                first.setdefault(b, plan.graph.buffers[b].name not in command.reads)
    return frozenset(b for b, written in first.items() if written)


def _imports(definitions: list[str]) -> str:
    text = "\n".join(definitions)
    names = [
        name
        for name in ("Kernel", "KernelClass", "Operand", "Scheme")
        if f"{name}(" in text or f"{name}." in text
    ]
    return (
        f"from cann_env.graph import {', '.join(names)}  # for the stand-ins of the kernels\n"
        if names
        else ""
    )
