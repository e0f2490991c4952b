"""Explains one schedule: which bound binds, what its critical chain consists of, its longest stalls.

A :class:`~cann_env.schedule.Schedule` goes in, an :class:`Explanation` comes out; nothing is run.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cann_env.graph import CommandKind
from cann_env.solvers.bounds import lower_bounds
from cann_env.waiting import Part, critical_chain, holders, stalls

if TYPE_CHECKING:
    from cann_env.graph import Command
    from cann_env.schedule import Schedule
    from cann_env.waiting import Chain, Holder, StallOf

STALLS = 3
"""Longest stalls that are told."""


class Group(enum.StrEnum):
    """What a schedule is held up by: its chain's parts, those put together that have one remedy.

    Commands that ran because the next one needs them count by their kind. Those that only stood in front of
    it are the order of the streams, except where both are copies of one direction: without the order they
    would wait for the same engine.
    """

    KERNELS = "kernels"
    COPIES = "copies"
    ORDER = "order"
    HELD = "held"
    CORES = "cores"
    SLOTS = "slots"
    MEMORY = "memory"
    EVENTS = "events"
    HOST = "host"
    ARRIVALS = "arrivals"
    OTHER = "other"


_GROUP_OF_PART = {
    Part.QUEUE: Group.ORDER,
    Part.HELD: Group.HELD,
    Part.CORES: Group.CORES,
    Part.LINK: Group.COPIES,
    Part.SLOT: Group.SLOTS,
    Part.MEMORY: Group.MEMORY,
    Part.EVENT: Group.EVENTS,
    Part.DISPATCH: Group.EVENTS,
    Part.HOST: Group.HOST,
    Part.ARRIVAL: Group.ARRIVALS,
}

_GROUP_OF_KIND = {CommandKind.KERNEL: Group.KERNELS, CommandKind.COPY: Group.COPIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One of the longest stalls.

    Attributes:
        command: Name of the command that waited.
        stream: Where it stood.
        cause: A field of :class:`~cann_env.schedule.Stall`.
        start_ns: From when.
        waited_ns: How long.
        held_by: Who had meanwhile what it waited for.
    """

    command: str
    stream: int
    cause: str
    start_ns: int
    waited_ns: int
    held_by: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is to be said about a schedule.

    Attributes:
        graph: Name of the graph.
        device: Name of the device.
        commands: How many the graph has.
        makespan_ns: When the last one finished.
        lower_bound_ns: What no schedule undercuts, for expected durations.
        gap: Makespan over lower bound, less one.
        bound: The term that makes the lower bound: ``critical path``, a pool, ``link`` and its name,
            or ``host``.
        bounds_ns: All terms.
        parts_ns: The critical chain by part, see :class:`~cann_env.waiting.chain.Part`; sums to the makespan.
        groups_ns: The same by group, see :class:`Group`.
        held_up_by: The largest group.
        chain: Names of the commands that ran on the chain, in order.
        stall_ns: Waiting summed over all commands, by cause.
        waits: The longest stalls, the longest first.
    """

    graph: str
    device: str
    commands: int
    makespan_ns: int
    lower_bound_ns: int
    gap: float
    bound: str
    bounds_ns: dict[str, int]
    parts_ns: dict[str, int]
    groups_ns: dict[str, int]
    held_up_by: Group
    chain: tuple[str, ...]
    stall_ns: dict[str, int]
    waits: tuple[Wait, ...]

    def share(self, *parts: Part) -> float:
        """The part of the makespan that the chain spends on some parts."""
        return sum(self.parts_ns[part] for part in parts) / max(self.makespan_ns, 1)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers and dictionaries, ready for ``json.dumps``."""
        return asdict(self)


def explain(schedule: Schedule) -> Explanation:
    """Explain a schedule.

    Raises:
        InputError: Its device cannot run its graph, so that there is no bound.
    """
    bounds = lower_bounds(schedule.graph, schedule.device, schedule.options)
    chain = critical_chain(schedule)
    groups = _groups(schedule, chain)
    names = [command.name for command in schedule.graph.commands]
    return Explanation(
        graph=schedule.graph.name,
        device=schedule.device.name,
        commands=len(schedule.commands),
        makespan_ns=schedule.makespan_ns,
        lower_bound_ns=bounds.lower_bound_ns,
        gap=schedule.makespan_ns / bounds.lower_bound_ns - 1.0,
        bound=bounds.binding,
        bounds_ns=bounds.terms,
        parts_ns={part.value: ns for part, ns in chain.parts_ns.items()},
        groups_ns={group.value: ns for group, ns in groups.items()},
        held_up_by=max(groups, key=lambda group: groups[group]),
        chain=tuple(names[command] for command in chain.commands),
        stall_ns=schedule.stall._asdict(),
        waits=tuple(_wait(schedule, stall) for stall in stalls(schedule)[:STALLS]),
    )


def _groups(schedule: Schedule, chain: Chain) -> dict[Group, int]:
    total = dict.fromkeys(Group, 0)
    commands = schedule.graph.commands
    following: Command | None = None
    for link in reversed(chain.links):
        command = None if link.command is None else commands[link.command]
        group = _GROUP_OF_PART.get(link.part)
        by_kind = group is None or (group is Group.ORDER and _same_way(command, following))
        if command is not None and by_kind:
            group = _GROUP_OF_KIND.get(command.kind)
        total[group or Group.OTHER] += link.finish_ns - link.start_ns
        following = command or following
    return total


def _same_way(command: Command | None, following: Command | None) -> bool:
    """Whether both are copies of one direction."""
    if command is None or following is None or command.copy is None:
        return False
    return command.copy == following.copy


def _wait(schedule: Schedule, stall: StallOf) -> Wait:
    stream = next(run.stream for run in schedule.commands if run.command == stall.command)
    return Wait(
        command=schedule.graph.commands[stall.command].name,
        stream=stream,
        cause=stall.cause,
        start_ns=stall.start_ns,
        waited_ns=stall.waited_ns,
        held_by=holders(schedule, stall),
    )
