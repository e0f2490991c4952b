"""What the engine is to play: submitted work as a graph, with the streams and instants that were chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.acl.state.memory import Allocation, Space
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cann_env.acl.state.work import Way, Work
    from cann_env.device.spec import DeviceSpec
    from cann_env.options import RunOptions

LATER_NS: Final = 1 << 45
"""When everything is over: half a day."""

_READER: Final = Kernel(name="reader", kernel_class=KernelClass.VECTOR, bytes_read=1, duration_ns=1)
"""Who reads then."""

_OVER, _ASKED, _TICKS = "over", "asked for", "ticks"
"""Streams of commands that stand for no work."""


class Move(NamedTuple):
    """A prefetch of a buffer, to be decided when its time has come.

    Attributes:
        buffer: Index in the graph.
        way: To the device, into its cache, or back to the host.
        after: Commands that must be done.
        at_ns: Not before.
        place: Commands before this one were submitted earlier.
    """

    buffer: int
    way: Way
    after: tuple[int, ...]
    at_ns: int
    place: int


@dataclass(slots=True)
class Runtime:
    """How the runtime behaves, and what it was told of the graph that a program carries out.

    Attributes:
        known: The device knows of all work from the beginning, as of a graph that was handed over.
        options: What was prescribed, which then has all memory for the buffers of the work; None for nothing.
        order: Place of each piece of work, as it is submitted, in that graph; empty for as submitted.
        edges: For such places, others that come before.
        releases: For such places, when work becomes known (ns).
    """

    known: bool = False
    options: RunOptions | None = None
    order: tuple[int, ...] = ()
    edges: dict[int, tuple[int, ...]] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the engine is to play.

    Attributes:
        graph: Commands in the order in which they were submitted.
        streams: Label of the stream of each command.
        priorities: Priority of each label.
        moves: Prefetches, by the command that stands for the call in its stream.
        gates_ns: Instant before which the host does not hand over each command.
        hbm_bytes: Memory of the device, as far as the buffers of the graph are concerned.
        works: What each command was; None for one that only marks the instant of a prefetch.
        dies: Home die of each label.
        options: How the runtime behaves; None for as it does by itself.
        turns: When each command was submitted, counted from 0; the place of a move is meant so too.
        ticks: Commands that do nothing, at the end of the graph: they wake the host at instants at which it
            hands something over though nothing ends.
    """

    graph: CommandGraph
    streams: tuple[int, ...]
    priorities: tuple[int, ...]
    moves: tuple[Move, ...] = ()
    gates_ns: tuple[int, ...] = ()
    hbm_bytes: int | None = None
    works: tuple[Work | None, ...] = ()
    dies: tuple[int, ...] = ()
    options: RunOptions | None = None
    turns: tuple[int, ...] = ()
    ticks: int = 0


def score_of(
    works: Sequence[Work],
    *,
    device: DeviceSpec,
    base_ns: int,
    priorities: Mapping[int, int],
    live_bytes: int,
    dies: Mapping[int, int],
    runtime: Runtime,
    ranks: Mapping[int, int],
    held: Sequence[Allocation] = (),
) -> Score:
    """Write down what the engine is to play.

    Args:
        works: In the order of submission.
        device: Where.
        base_ns: Time zero of the graph.
        priorities: Of each stream, by handle.
        live_bytes: Most device memory held at once by the program meanwhile.
        dies: Home die of each stream, by handle; those that are not named take dies in turn.
        runtime: How the runtime behaves.
        ranks: Place of work in the graph that was handed over, by index; empty for as submitted.
        held: Memory that takes room, whether or not work touches it.
    """
    known, options = runtime.known, runtime.options
    streams = {work.stream for work in works if not work.at_once}
    labels = {stream: i for i, stream in enumerate(sorted(streams))}
    used: dict[int, Allocation] = {}
    operands = [_operands(work, used) for work in works]
    written = _written_first(works)
    used |= {allocation.number: allocation for allocation in held}
    used = dict(sorted(used.items()))
    buffers = [_buffer(allocation, written) for allocation in used.values()]
    places = {number: i for i, number in enumerate(used)}
    rows = _Rows(labels, known=known)
    for work, (reads, writes) in zip(works, operands, strict=True):
        at_ns = max(0, work.ready_ns - base_ns)
        if work.prefetch is not None:
            rows.move(work, places, at_ns)
        if not work.at_once:
            known_ns = runtime.releases.get(ranks.get(work.index, -1), 0) if known else at_ns
            rows.add(work, reads, writes, at_ns, known_ns)
    # A runtime whose behaviour was prescribed knows that the graph is all there is.
    rows.use_later(_wanted_later(works, buffers, known=known) if options is None else [])
    rows.complete(ranks, runtime.edges)
    ticks = rows.tick(_instants(works, base_ns)) if known and not ranks else 0
    turns = rows.put_in_order(ranks) if ranks else ()
    return Score(
        graph=CommandGraph("program", tuple(rows.commands), tuple(buffers)),
        streams=tuple(rows.streams),
        priorities=(*(priorities.get(stream, 0) for stream in labels), *([0] * rows.own_streams)),
        moves=tuple(rows.moves),
        gates_ns=tuple(rows.gates) if known else (),
        hbm_bytes=_memory_for(buffers, device, live_bytes) if options is None else options.hbm_bytes,
        works=tuple(rows.works),
        dies=(*(_die(dies, stream, i, device) for stream, i in labels.items()), *([0] * rows.own_streams)),
        options=options,
        turns=turns,
        ticks=ticks,
    )


def _memory_for(buffers: Sequence[Buffer], device: DeviceSpec, live_bytes: int) -> int:
    """What is left of a device's memory beside what the program holds, for the buffers of its work."""
    held = [b for b in buffers if b.kind is BufferKind.DEVICE and b.level is Level.HBM]
    return max(1, device.memory.hbm_bytes - live_bytes) + sum(b.size_bytes + 512 for b in held)


def _die(dies: Mapping[int, int] | None, stream: int, label: int, device: DeviceSpec) -> int:
    given = (dies or {}).get(stream, -1)
    return given if given >= 0 else label % device.dies


def _instants(works: Sequence[Work], base_ns: int) -> list[int]:
    """Instants at which something was handed over though, for all that is known, nothing ends then."""
    ends = {work.finish_ns for work in works if work.ended}
    return sorted({work.submitted_ns - base_ns for work in works if work.submitted_ns not in ends} - {0})


class _Rows:
    """Commands of a graph under the making."""

    def __init__(self, labels: Mapping[int, int], *, known: bool) -> None:
        self.gates: list[int] = []
        self._known = known
        self.commands: list[Command] = []
        self.streams: list[int] = []
        self.works: list[Work | None] = []
        self.moves: list[Move] = []
        self._own: dict[str, int] = {}
        self._labels = labels
        self._places: dict[int, int] = {}

    @property
    def own_streams(self) -> int:
        """Streams that no program knows."""
        return len(self._own)

    def add(
        self, work: Work, reads: tuple[str, ...], writes: tuple[str, ...], at_ns: int, known_ns: int
    ) -> None:
        """A piece of work, when it is handed over, and when the engine knows of it."""
        place = len(self.commands)
        self._places[work.index] = place
        self.commands.append(
            replace(
                work.command,
                name=f"{place}:{work.label or work.call}",
                reads=reads,
                writes=writes,
                release_ns=known_ns,
                stream_hint=self._labels[work.stream],
            )
        )
        self.streams.append(self._labels[work.stream])
        self.gates.append(at_ns)
        self.works.append(work)

    def move(self, work: Work, places: Mapping[int, int], at_ns: int) -> None:
        """A prefetch; where nothing is before it in its stream, something must end when it is asked for."""
        assert work.prefetch is not None
        memory, way = work.prefetch
        place = len(self.commands)
        if work.at_once and at_ns > 0 and not self._known:
            # The engine decides when something ends, so that something has to.
            self._stand_in(
                replace(work.command, name=f"{place}:{work.label} asked for", release_ns=at_ns - 1), _ASKED
            )
            place += 1
        after = () if work.at_once else (place,)
        self.moves.append(Move(places[memory.allocation.number], way, after, at_ns, place))

    def tick(self, instants: Sequence[int]) -> int:
        """Wake the host at instants; returns how many commands that takes."""
        for at_ns in instants:
            # Nothing is before it, so that how urgent the work is stays as it is.
            name = f"tick {at_ns}"
            self._stand_in(
                Command(name=name, kind=CommandKind.COLLECTIVE, duration_ns=1, release_ns=at_ns), _TICKS
            )
        return len(instants)

    def put_in_order(self, ranks: Mapping[int, int]) -> tuple[int, ...]:
        """Bring commands into the order of the graph they come from; returns when each was submitted."""
        last = len(ranks) + len(self.works)
        places = [ranks.get(work.index, last) if work is not None else last + 1 for work in self.works]
        turns = sorted(range(len(places)), key=lambda turn: (places[turn], turn))
        now_at = {turn: place for place, turn in enumerate(turns)}
        self.commands = [self.commands[turn] for turn in turns]
        self.streams = [self.streams[turn] for turn in turns]
        self.gates = [self.gates[turn] for turn in turns]
        self.works = [self.works[turn] for turn in turns]
        self.moves = [move._replace(after=tuple(now_at[c] for c in move.after)) for move in self.moves]
        return tuple(turns)

    def use_later(self, buffers: Sequence[str]) -> None:
        """Somebody reads these when all is over: the engine moves and keeps nothing for nobody."""
        if not buffers:
            return
        self._stand_in(
            Command(name="over", kind=CommandKind.COLLECTIVE, duration_ns=1, release_ns=LATER_NS), _OVER
        )
        for buffer in buffers:
            self._stand_in(
                Command(
                    name=f"{buffer} used", kind=CommandKind.KERNEL, kernels=(_READER,),
                    reads=(buffer,), after=("over",),
                ),
                _OVER,
            )  # fmt: skip

    def _stand_in(self, command: Command, stream: str) -> None:
        """A command of no work, on a stream of its own."""
        self.commands.append(command)
        self.streams.append(self._own.setdefault(stream, len(self._labels) + len(self._own)))
        self.gates.append(0)
        self.works.append(None)

    def complete(self, ranks: Mapping[int, int], edges: Mapping[int, Sequence[int]]) -> None:
        """Names of what each command waits for, now that all have one."""
        index_of = {rank: index for index, rank in ranks.items()}
        for place, work in enumerate(self.works):
            if work is None:
                continue
            told = [index_of[rank] for rank in edges.get(ranks.get(work.index, -1), ()) if rank in index_of]
            waits = [
                self._places[j]
                for j in dict.fromkeys((*work.all_waits, *told))
                if j in self._places and j not in work.reuse
            ]
            names = tuple(self.commands[j].name for j in waits if j != place)
            self.commands[place] = replace(self.commands[place], after=names)


def _wanted_later(works: Sequence[Work], buffers: Iterable[Buffer], *, known: bool) -> list[str]:
    """Names of buffers that somebody may touch later, for all the device knows.

    They are those that the program has not given back, and those that are prefetched and that no work touches
    afterwards; all that are prefetched, if the device does not know of later work.
    """
    last = {touch.range.allocation.number: work.index for work in works for touch in work.touches}
    allocations = {
        touch.range.allocation.name: touch.range.allocation for work in works for touch in work.touches
    }
    wanted = {
        buffer.name: None
        for buffer in buffers
        if buffer.level is Level.ABSENT and not allocations[buffer.name].freed
    }
    for work in works:
        if work.prefetch is None:
            continue
        allocation = work.prefetch[0].allocation
        if not known or last.get(allocation.number, -1) < work.index:
            wanted[allocation.name] = None
    return list(wanted)


def _operands(work: Work, used: dict[int, Allocation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Buffers that a command reads and writes; host memory is none, nor is memory that a race is about."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    if work.prefetch is not None:
        used[work.prefetch[0].allocation.number] = work.prefetch[0].allocation
        return (), ()
    for touch in work.touches:
        allocation = touch.range.allocation
        if allocation.space in (Space.DEVICE, Space.MANAGED) and not allocation.racy and allocation.size > 0:
            used[allocation.number] = allocation
            (writes if touch.writes else reads)[allocation.name] = None
    return tuple(reads), tuple(writes)


def _buffer(allocation: Allocation, written_first: set[int]) -> Buffer:
    managed = allocation.space is Space.MANAGED
    level = Level.HBM
    if managed and allocation.on_device:
        pass
    elif managed:
        absent = allocation.number in written_first and not allocation.on_host
        level = Level.ABSENT if absent else Level.HOST
    elif allocation.stream and allocation.number in written_first:
        level = Level.ABSENT
    return Buffer(
        name=allocation.name,
        size_bytes=allocation.size,
        kind=BufferKind.MANAGED if managed else BufferKind.DEVICE,
        level=level,
        die=max(0, allocation.die),
        host_memory=HostMemory.PAGEABLE if allocation.pageable else HostMemory.PINNED,
    )


def _written_first(works: Sequence[Work]) -> set[int]:
    """Numbers of the allocations that are written, and only written, by the first who touches them.

    Memory that moves has to be written as a whole: else what lies on the host is needed too.
    """
    first: dict[int, set[bool]] = {}
    for work in works:
        modes: dict[int, set[bool]] = {}
        if work.prefetch is not None:
            modes[work.prefetch[0].allocation.number] = {False}
        for touch in work.touches:
            memory = touch.range
            moves = memory.allocation.space is Space.MANAGED
            whole = not moves or (memory.size == memory.allocation.size and not memory.allocation.racy)
            modes.setdefault(memory.allocation.number, set()).add(touch.writes and whole)
        for number, kinds in modes.items():
            first.setdefault(number, kinds)
    return {number for number, kinds in first.items() if kinds == {True}}
