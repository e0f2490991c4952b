"""A program as the exact model and its bounds see it: what surely holds which resource how long.

Everything here is optimistic, so that what follows from it holds for every schedule that the engine can make:
shared bandwidth, waits, events, misses in L2 and distant dies only make things longer. A kernel whose blocks
start together (scheme ``batch``, or one block) holds all its cores from its start to its end. The blocks of
any other kernel come one by one to whatever core is free: there each block counts by itself. A kernel with a
fallback may run on either class, and counts on neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine import layout as at
from cann_env.lowering.classes import PAIRS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Paths(NamedTuple):
    """Times of the n commands along the longest paths; int64 arrays of ns.

    Attributes:
        duration: (n,) a command alone on the device.
        head: (n,) it starts no earlier: predecessors, release, host calls, weights that begin on the host.
        tail: (n,) from its start to the end of the graph.
        call: (n,) host time of its submission.
        release: (n,) when it becomes known.
    """

    duration: Image
    head: Image
    tail: Image
    call: Image
    release: Image


class Kernels(NamedTuple):
    """The m kernels, copies, callbacks and collectives; arrays over them, times in ns.

    Attributes:
        command: (m,) whose it is; those of a command stand in the order in which they run.
        work_class: (m,) class of the device whose slot it takes; -1 if it has a choice.
        length: (m,) least time from its start to its end.
        launch: (m,) part of that before its blocks work.
        block: (m,) least time that one block works.
        blocks: (m,)
        rigid: (m,) whether all its blocks start together.
        units: (m, pools) what one block holds; 0 if it has a choice.
        head: (m,) it starts no earlier.
        tail: (m,) from its end to the end of the graph.
        flow: (m,) bit set of the links that it crosses.
        bytes: (m,) q20 that it moves at the least, all blocks together.
    """

    command: Image
    work_class: Image
    length: Image
    launch: Image
    block: Image
    blocks: Image
    rigid: NDArray[np.bool_]
    units: NDArray[np.int64]
    head: Image
    tail: Image
    flow: Image
    bytes: Image


class Load(NamedTuple):
    """A managed buffer that begins on the host and is read before it is written: it has to come in.

    Attributes:
        buffer: Its index.
        users: Commands that use it, none of which starts before it has arrived.
        size: Bytes.
    """

    buffer: int
    users: tuple[int, ...]
    size: int


class Holds(NamedTuple):
    """Intervals in which cores are surely held; int64 arrays over them.

    Attributes:
        kernel: Whose they are, as index of :class:`Kernels`.
        number: How many of this kind.
        length, head, tail: As there.
    """

    kernel: Image
    number: Image
    length: Image
    head: Image
    tail: Image


def command_rows(program: Program) -> NDArray[np.int64]:
    """Rows of the table of commands, shape (n, PC_WIDTH)."""
    return _rows(program.image, at.P_AT_COMMAND, len(program.graph.commands), at.PC_WIDTH)


def kernel_rows(program: Program) -> NDArray[np.int64]:
    """Rows of the table of kernels, those of a command one after another, shape (m, PK_WIDTH)."""
    return _rows(
        program.image, at.P_AT_KERNEL, int(command_rows(program)[:, at.PC_KERNELS].sum()), at.PK_WIDTH
    )


def buffer_rows(program: Program) -> NDArray[np.int64]:
    """Rows of the table of buffers, shape (buffers, PB_WIDTH)."""
    return _rows(program.image, at.P_AT_BUFFER, int(program.image[at.P_BUFFERS]), at.PB_WIDTH)


def user_rows(program: Program, buffer: Image) -> NDArray[np.int64]:
    """Users of a buffer in program order: command and mode; ``buffer`` is its row."""
    first = int(program.image[at.P_AT_USER]) + int(buffer[at.PB_USER]) * at.PV_WIDTH
    count = int(buffer[at.PB_USERS])
    rows = program.image[first : first + count * at.PV_WIDTH].reshape(count, at.PV_WIDTH)
    return rows[np.argsort(rows[:, at.PV_COMMAND], kind="stable")]


def pool_capacity(program: Program) -> Image:
    """Units of each pool of one die."""
    pools = int(program.image[at.P_POOLS])
    return _rows(program.image, at.P_AT_POOL, pools, at.PP_WIDTH)[:, at.PP_CAPACITY]


def link_rate(program: Program, kind: int) -> int:
    """What a kind of link carries on all dies together (q20/ns)."""
    image = program.image
    first = int(image[at.P_AT_LINK]) + kind * at.PL_WIDTH
    return int(image[first + at.PL_RATE]) * int(image[at.P_DIES])


def loads_of(program: Program) -> tuple[Load, ...]:
    """All managed buffers that have to come in at least once."""
    found = []
    for index, row in enumerate(buffer_rows(program)):
        if row[at.PB_MANAGED] != 1 or row[at.PB_LEVEL] != at.ON_HOST or row[at.PB_USERS] == 0:
            continue
        users = user_rows(program, row)
        if users[0, at.PV_MODE] & at.READ:
            found.append(Load(index, tuple(users[:, at.PV_COMMAND].tolist()), int(row[at.PB_BYTES])))
    return tuple(found)


def load_ns(program: Program, size: int) -> int:
    """Least time that bytes take over the links from the host of all dies, latency left out."""
    return size * at.Q20 // link_rate(program, at.LINK_H2D)


def paths_of(program: Program, loads: tuple[Load, ...]) -> Paths:
    """Heads and tails of all commands."""
    rows = command_rows(program)
    duration = np.add.reduceat(_lengths(program), rows[:, at.PC_KERNEL])
    release, call = rows[:, at.PC_RELEASE_NS], rows[:, at.PC_HOST_NS]
    head, called = _arrivals(program, loads), np.zeros_like(release)
    tail = duration.copy()
    order, before = program.graph.topological_order, program.graph.predecessors
    for i in order:
        mine = list(before[i])
        known = max(release[i], called[mine].max(initial=0))
        called[i] = known + call[i]
        head[i] = max(head[i], called[i], (head[mine] + duration[mine]).max(initial=0))
    for i in reversed(order):
        mine = list(before[i])
        tail[mine] = np.maximum(tail[mine], duration[mine] + tail[i])
    return Paths(duration, head, tail, call, release)


def _arrivals(program: Program, loads: tuple[Load, ...]) -> Image:
    """For each command the earliest instant at which its weights from the host can all be there."""
    size = np.zeros(len(program.graph.commands), np.int64)
    for load in loads:
        size[list(load.users)] += load.size
    latency = int(program.image[at.P_LINK_LATENCY_NS])
    rate = link_rate(program, at.LINK_H2D)
    there = [latency - -bytes_ * at.Q20 // rate if bytes_ else 0 for bytes_ in size.tolist()]
    return np.array(there, np.int64)


def kernels_of(program: Program, paths: Paths) -> Kernels:
    """All kernels, copies, callbacks and collectives."""
    commands, rows = command_rows(program), kernel_rows(program)
    command = np.repeat(np.arange(len(commands)), commands[:, at.PC_KERNELS])
    length, fixed = _lengths(program), rows[:, at.PK_FALLBACK] < 0
    before = np.cumsum(length) - length
    before -= before[commands[:, at.PC_KERNEL]][command]
    demand = _class_demand(program)
    return Kernels(
        command=command,
        work_class=np.where(fixed, _class_rows(program)[rows[:, at.PK_CLASS], at.PW_NAMED], -1),
        length=length,
        launch=np.where(fixed, rows[:, at.PK_LAUNCH_NS], 0),
        block=rows[:, at.PK_AREA_NS],
        blocks=rows[:, at.PK_BLOCKS],
        rigid=fixed & ((rows[:, at.PK_BATCH] == 1) | (rows[:, at.PK_BLOCKS] == 1)),
        units=np.where(fixed[:, None], demand[rows[:, at.PK_CLASS]], 0),
        head=paths.head[command] + before,
        tail=paths.tail[command] - before - length,
        flow=rows[:, at.PK_FLOW],
        bytes=rows[:, at.PK_LEAST_BYTES] * rows[:, at.PK_BLOCKS],
    )


def _lengths(program: Program) -> Image:
    """Least time of each kernel and copy: what its row says; its launch, then its bytes over each link."""
    image, rows = program.image, kernel_rows(program)
    moved = rows[:, at.PK_LEAST_BYTES] * rows[:, at.PK_BLOCKS]
    launch = np.where(rows[:, at.PK_FALLBACK] < 0, rows[:, at.PK_LAUNCH_NS], 0)
    length = rows[:, at.PK_MIN_NS]
    for kind in range(at.LINK_DIE):
        rate = int(image[int(image[at.P_AT_LINK]) + kind * at.PL_WIDTH + at.PL_RATE])
        times = rows[:, at.PK_HBM_WEIGHT] if kind == at.LINK_HBM else 1
        crossing = launch - (-moved * times // rate)
        length = np.where((rows[:, at.PK_FLOW] >> kind) & 1, np.maximum(length, crossing), length)
    return length


def holds_of(kernels: Kernels) -> Holds:
    """Intervals in which blocks hold cores: one for all blocks that start together, else one a block.

    Of the blocks of a kernel that come one by one the first also holds its core during the launch.
    """
    every = np.arange(kernels.command.size)
    rest = every[~kernels.rigid & (kernels.blocks > 1)]
    count = np.where(kernels.rigid, kernels.blocks, 1)
    first = np.where(kernels.rigid, kernels.length, kernels.launch + kernels.block)
    return Holds(
        kernel=np.append(every, rest),
        number=np.append(count, kernels.blocks[rest] - 1),
        length=np.append(first, kernels.block[rest]),
        head=np.append(kernels.head, kernels.head[rest] + kernels.launch[rest]),
        tail=np.append(kernels.tail, kernels.tail[rest]),
    )


def needs_of(program: Program) -> NDArray[np.bool_]:
    """For each command which pools, slots of classes and slots it may have to wait for, shape (n, needs).

    A command with a choice of class is taken to need all pools.
    """
    kernels = kernels_of(program, paths_of(program, ()))
    choice = (kernels.work_class < 0)[:, None]
    classes = np.array(list(class_slots(program, kernels)), np.int64)
    used = np.hstack([(kernels.units > 0) | choice, (kernels.work_class[:, None] == classes) | choice])
    count = len(program.graph.commands)
    needs = np.zeros((count, used.shape[1] + 1), bool)
    np.logical_or.at(needs[:, :-1], kernels.command, used)
    needs[:, -1] = slot_count(program) < count
    return needs


def slot_count(program: Program) -> int:
    """Most commands that run at once: streams, active heads, commands in flight."""
    image = program.image
    return min(program.options.streams, int(image[at.P_MAX_ACTIVE]), int(image[at.P_RUN_AHEAD]))


def class_slots(program: Program, kernels: Kernels) -> dict[int, int]:
    """For each class whose kernels may have to wait for a slot of it: how many run at once on all dies."""
    used, count = np.unique(kernels.work_class[kernels.work_class >= 0], return_counts=True)
    most = _class_rows(program)[used, at.PW_MAX_ACTIVE] * int(program.image[at.P_DIES])
    short = most < count
    return dict(zip(used[short].tolist(), most[short].tolist(), strict=True))


def _class_rows(program: Program) -> NDArray[np.int64]:
    image = program.image
    return _rows(image, at.P_AT_CLASS, int(image[at.P_CLASSES]), at.PW_WIDTH)


def _class_demand(program: Program) -> NDArray[np.int64]:
    rows = _class_rows(program)
    demand = np.zeros((len(rows), int(program.image[at.P_POOLS])), np.int64)
    every = np.arange(len(rows))
    for pool in PAIRS:
        demand[every, rows[:, pool]] += rows[:, pool + 1]
    return demand


def _rows(image: Image, table: int, count: int, width: int) -> NDArray[np.int64]:
    first = int(image[table])
    return image[first : first + count * width].reshape(count, width)
