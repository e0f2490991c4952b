"""The exact model: a program as intervals on resources, for a constraint solver.

It is a relaxation of the engine, so that its optimum, and every bound of it, bounds every schedule of the
engine. Streams need no names in it: any schedule with at most S commands at once can be dealt out to S queues
in order of start. Time is counted in the largest unit that all times are multiples of.

What it holds: fixed intervals for what starts as a whole, an interval a block for what does not, cumulative
pools and slots, calls one after another on the host, bytes from the host over one link, and where memory is
short the residence of every buffer, from each arrival until it leaves again. What it leaves out only makes
things longer: the division of bandwidth, write-backs, event costs, holes between addresses, L2.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.solvers.pieces import (
    Holds,
    Kernels,
    Load,
    Paths,
    class_slots,
    holds_of,
    kernels_of,
    load_ns,
    loads_of,
    paths_of,
    pool_capacity,
    slot_count,
)
from cann_env.solvers.residence import Arrival, Memory, Times, add_residence, is_short, must_arrive

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.solvers.strong import StrongBounds

_MOST_BLOCKS = 400  # beyond that the blocks of no kernel are told apart, and the bounds have to do
_LOOSE = ("engine", "streams", "link", "host")


class Model(NamedTuple):
    """Variables of the model of a program.

    Attributes:
        cp: The ``ortools`` model they belong to.
        unit: ns in a unit of its time.
        start, end: Of each command.
        makespan: What is minimised.
        arrivals: Buffers that come from the host.
    """

    cp: Any
    unit: int
    start: list[Any]
    end: list[Any]
    makespan: Any
    arrivals: list[Arrival]


class _Parts(NamedTuple):
    program: Program
    loads: tuple[Load, ...]
    paths: Paths
    kernels: Kernels
    holds: Holds
    unit: int
    horizon: int


def build(cp: Any, program: Program, bounds: StrongBounds, horizon_ns: int) -> Model:
    """Write the model of a program.

    Args:
        cp: An empty ``ortools.sat.python.cp_model.CpModel``.
        program: The program.
        bounds: Of it.
        horizon_ns: Makespan of some schedule of the engine: nothing longer is looked for.
    """
    parts = _parts_of(program, horizon_ns)
    unit, horizon = parts.unit, parts.horizon
    # In units a bound may be rounded up where it follows from the model alone, whose times are all multiples.
    inside = [ns for name, ns in bounds.terms.items() if unit == 1 or name.split()[0] not in _LOOSE]
    makespan = cp.new_int_var(min(-(-max(inside) // unit), horizon), horizon, "makespan")
    start, end = _commands(cp, parts)
    before = program.graph.predecessors
    for i, mine in enumerate(before):
        for j in mine:
            cp.add(start[i] >= end[j])
        if not program.graph.successors[i]:
            cp.add(makespan >= end[i])
    _pools(cp, parts, start, end)
    _slots(cp, parts, start, end)
    _host(cp, parts, start)
    arrivals = _data(cp, parts, start, end)
    cp.minimize(makespan)
    return Model(cp, unit, start, end, makespan, arrivals)


def _parts_of(program: Program, horizon_ns: int) -> _Parts:
    loads = loads_of(program)
    paths = paths_of(program, loads)
    kernels = kernels_of(program, paths)
    unit = _unit(program, loads, paths, kernels)
    return _Parts(program, loads, paths, kernels, holds_of(kernels), unit, horizon_ns // unit)


def _unit(program: Program, loads: tuple[Load, ...], paths: Paths, kernels: Kernels) -> int:
    """Greatest common divisor of all times that occur, ns."""
    loose = ~kernels.rigid & (kernels.work_class >= 0)
    times = [
        paths.head,
        paths.call,
        paths.release,
        kernels.length,
        kernels.launch[loose],
        kernels.block[loose],
    ]
    numbers = set(chain.from_iterable(map(np.ndarray.tolist, times)))
    if is_short(program) or loads:
        numbers |= {int(program.image[at.P_LINK_LATENCY_NS])}
        numbers |= {load_ns(program, buffer.size_bytes) for buffer in Memory.of(program).moving}
        numbers |= {load_ns(program, int(kernels.bytes[k]) // at.Q20) for k in _copies_in(kernels)}
    return math.gcd(*numbers) or 1


def _copies_in(kernels: Kernels) -> list[int]:
    """Copies from the host."""
    found: list[int] = np.flatnonzero((kernels.flow >> at.LINK_H2D) & 1).tolist()
    return found


def _commands(cp: Any, parts: _Parts) -> tuple[list[Any], list[Any]]:
    """Start and end of each command; the end follows from the start where all parts of it are rigid."""
    unit, horizon, paths, kernels = parts.unit, parts.horizon, parts.paths, parts.kernels
    count = np.bincount(kernels.command)
    loose = set(kernels.command[~kernels.rigid].tolist())
    if parts.loads or is_short(parts.program):  # they share the link, and may end later than they would alone
        loose |= set(kernels.command[_copies_in(kernels)].tolist())
    start, end = [], []
    for i in range(count.size):
        length, head = int(paths.duration[i]) // unit, int(paths.head[i]) // unit
        latest = horizon - int(paths.tail[i]) // unit
        start.append(cp.new_int_var(head, latest, f"start {i}"))
        if count[i] == 1 and i not in loose:
            end.append(start[i] + length)
        else:
            after = int(paths.tail[i] - paths.duration[i]) // unit
            end.append(cp.new_int_var(head + length, horizon - after, f"end {i}"))
            cp.add(end[i] >= start[i] + length)
    return start, end


def _pools(cp: Any, parts: _Parts, start: list[Any], end: list[Any]) -> None:
    """What kernels hold of pools and slots of their class, those of a command one after another."""
    kernels, holds = parts.kernels, parts.holds
    begins = _kernel_starts(cp, parts, start, end)
    for work, most in class_slots(parts.program, kernels).items():
        mine = np.flatnonzero(kernels.work_class == work).tolist()
        _cumulative(cp, [(_kernel(cp, parts, k, begins[k]), 1) for k in mine], most)
    held: list[tuple[Any, int, int]] = []  # an interval, the kernel, and how many blocks it stands for
    each = int(holds.number[len(begins) :].sum()) <= _MOST_BLOCKS
    for row, k in enumerate(holds.kernel.tolist()):
        number, size = int(holds.number[row]), int(holds.length[row]) // parts.unit
        if not kernels.units[k].any():
            continue
        if row < len(begins):
            held.append((cp.new_fixed_size_interval_var(begins[k], size, f"kernel {k}"), k, number))
        elif each:
            held += [(block, k, 1) for block in _blocks(cp, parts, k, begins[k], end)]
    dies = int(parts.program.image[at.P_DIES])
    for pool, capacity in enumerate((pool_capacity(parts.program) * dies).tolist()):
        units = [(interval, int(kernels.units[k, pool]) * number) for interval, k, number in held]
        _cumulative(cp, [(interval, demand) for interval, demand in units if demand], capacity)


def _kernel_starts(cp: Any, parts: _Parts, start: list[Any], end: list[Any]) -> list[Any]:
    """Start of each kernel: that of its command, or some time after the one before it."""
    kernels = parts.kernels
    last = np.append(kernels.command[1:] != kernels.command[:-1], True)
    begins: list[Any] = []
    for k, command in enumerate(kernels.command.tolist()):
        first = k == 0 or bool(last[k - 1])
        length = int(kernels.length[k]) // parts.unit
        if first:
            begins.append(start[command])
        else:
            before = begins[-1] + int(kernels.length[k - 1]) // parts.unit
            begins.append(cp.new_int_var(0, parts.horizon, f"kernel {k}"))
            cp.add(begins[-1] >= before)
        if not (first and last[k]):
            cp.add(end[command] >= begins[-1] + length)
    return begins


def _kernel(cp: Any, parts: _Parts, k: int, begin: Any) -> Any:
    """The least time that a kernel takes from its start."""
    return cp.new_fixed_size_interval_var(begin, int(parts.kernels.length[k]) // parts.unit, f"kernel {k}")


def _blocks(cp: Any, parts: _Parts, k: int, begin: Any, end: list[Any]) -> list[Any]:
    """All blocks but the first of a kernel that come one by one: in order, each on a core as it gets one."""
    kernels, unit = parts.kernels, parts.unit
    launch, block = int(kernels.launch[k]) // unit, int(kernels.block[k]) // unit
    command = int(kernels.command[k])
    horizon, found, before = parts.horizon, [], begin
    for _ in range(int(kernels.blocks[k]) - 1):
        at_core = cp.new_int_var(0, horizon, "block")
        done, size = cp.new_int_var(0, horizon, "done"), cp.new_int_var(block, horizon, "held")
        cp.add(at_core >= before)
        cp.add(done >= begin + launch + block)
        cp.add(end[command] >= done)
        found.append(cp.new_interval_var(at_core, size, done, "block"))
        before = at_core
    return found


def _slots(cp: Any, parts: _Parts, start: list[Any], end: list[Any]) -> None:
    """Commands in flight, and streams, of which each is ready for the next command a gap after the last."""
    program, commands = parts.program, range(len(start))

    def running(gap: int) -> list[tuple[Any, int]]:
        return [(_between(cp, start[i], end[i] + gap, parts.horizon + gap), 1) for i in commands]

    slots = slot_count(program)
    if slots < len(commands):
        _cumulative(cp, running(0), slots)
    gap = min(int(program.image[at.P_GAP_NS]), int(program.image[at.P_MIX_SWITCH_NS])) // parts.unit
    if gap > 0 and program.options.streams < len(commands):
        _cumulative(cp, running(gap), program.options.streams)


def _between(cp: Any, start: Any, end: Any, most: int) -> Any:
    """An interval from a start to an end."""
    return cp.new_interval_var(start, cp.new_int_var(0, most, "size"), end, "slot")


def _host(cp: Any, parts: _Parts, start: list[Any]) -> None:
    """Calls one after another, none before its command is known and those before it are submitted."""
    call, release = parts.paths.call // parts.unit, parts.paths.release // parts.unit
    if not call.any():
        return
    calls = [cp.new_int_var(known, parts.horizon, "call") for known in release.tolist()]
    for i, before in enumerate(parts.program.graph.predecessors):
        cp.add(start[i] >= calls[i] + int(call[i]))
        for j in before:
            cp.add(calls[i] >= calls[j] + int(call[j]))
    cp.add_no_overlap(
        [cp.new_fixed_size_interval_var(calls[i], int(call[i]), "call") for i in range(len(calls))]
    )


def _data(cp: Any, parts: _Parts, start: list[Any], end: list[Any]) -> list[Arrival]:
    """What comes from the host, over one link; where memory is short also how long it stays."""
    program, times = parts.program, Times(start, end, parts.horizon, parts.unit)
    if is_short(program):
        arrivals = add_residence(cp, program, times)
    else:
        cold = {load.buffer for load in parts.loads}
        moving = [buffer for buffer in Memory.of(program).moving if buffer.buffer in cold]
        arrivals = [must_arrive(cp, program, times, buffer) for buffer in moving]
    if not arrivals:
        return []
    moves = [arrival.interval for arrival in arrivals]
    for k in _copies_in(parts.kernels):
        size = load_ns(program, int(parts.kernels.bytes[k]) // at.Q20) // parts.unit
        begin = cp.new_int_var(0, parts.horizon, f"copy {k}")
        cp.add(end[int(parts.kernels.command[k])] >= begin + size)
        moves.append(cp.new_fixed_size_interval_var(begin, size, f"copy {k}"))
    cp.add_no_overlap(moves)
    return arrivals


def _cumulative(cp: Any, held: list[tuple[Any, int]], capacity: int) -> None:
    """Intervals with what they hold of a resource, unless all of them fit at once."""
    if sum(demand for _, demand in held) > capacity:
        cp.add_cumulative([interval for interval, _ in held], [demand for _, demand in held], capacity)
