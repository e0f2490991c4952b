"""Memory in the exact model: when buffers come from the host, and how long they take up space.

A device buffer takes up its bytes from the start of the command that writes it first to the end of its last
user. A managed buffer may come and go: each of its *stays* begins with the first command that uses it then,
its *opener*, and serves that and other users. A stay that an opener reads begins with an arrival over the
link; one that it writes whole begins with its start.

Bytes from the host move one buffer after another, at any time at all before they are needed. That is a
relaxation however many transfers share the link: what is served in order of completion, one by one from time
zero, is served no later than if it shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cann_env.engine import layout as at
from cann_env.solvers.pieces import buffer_rows, load_ns, user_rows

if TYPE_CHECKING:
    from cann_env.engine import Image
    from cann_env.program import Program

_MOST_USERS = 12  # a buffer with more is taken to take up no space: its stays would be too many


class Arrival(NamedTuple):
    """A buffer that comes from the host.

    Attributes:
        buffer: Its index.
        start: When it begins to move.
        interval: Its time on the link.
        happens: Whether it does; 1 if it has to.
        space: Since when it takes up space; 0 where that does not matter. It may move before, as transfers
            that share the link may.
    """

    buffer: int
    start: Any
    interval: Any
    happens: Any
    space: Any


class Moving(NamedTuple):
    """A managed buffer in use: its index, bytes, die, where it begins, and its users with their modes."""

    buffer: int
    size_bytes: int
    die: int
    level: int
    users: list[tuple[int, int]]


class Placed(NamedTuple):
    """A device buffer that some command writes first: bytes of HBM and of the address space."""

    charge: int
    taken: int
    die: int
    writer: int
    users: list[int]


class Memory(NamedTuple):
    """All buffers that come and go."""

    moving: list[Moving]
    placed: list[Placed]

    @classmethod
    def of(cls, program: Program) -> Memory:
        """Those of a program."""
        moving, placed = [], []
        for index, row in enumerate(buffer_rows(program)):
            users = user_rows(program, row)
            die = int(row[at.PB_DIE])
            if len(users) and row[at.PB_MANAGED] == 1:
                modes = [(command, mode) for command, mode in users.tolist()]
                moving.append(Moving(index, int(row[at.PB_BYTES]), die, int(row[at.PB_LEVEL]), modes))
            elif row[at.PB_WRITER] >= 0:
                sizes = int(row[at.PB_CHARGE]), int(row[at.PB_TAKEN])
                placed.append(Placed(*sizes, die, int(row[at.PB_WRITER]), users[:, 0].tolist()))
        return cls(moving, placed)


class Times(NamedTuple):
    """What of the model memory refers to: starts and ends of commands, the horizon, ns in a unit."""

    start: list[Any]
    end: list[Any]
    horizon: int
    unit: int


def is_short(program: Program) -> bool:
    """Whether some die could not hold all buffers at once."""
    return bool(program.image[at.P_AMPLE] == 0)


def add_arrival(
    cp: Any, program: Program, times: Times, moving: Moving, *, happens: Any = 1, space: Any = 0
) -> Arrival:
    """A buffer comes over the link at some time."""
    size = load_ns(program, moving.size_bytes) // times.unit
    latency = int(program.image[at.P_LINK_LATENCY_NS]) // times.unit
    name = f"arrival {moving.buffer}"
    start = cp.new_int_var(min(latency, times.horizon), times.horizon, name)
    interval = cp.new_optional_fixed_size_interval_var(start, size, happens, name)
    return Arrival(moving.buffer, start, interval, happens, space)


def add_residence(cp: Any, program: Program, times: Times) -> list[Arrival]:
    """Stays of all buffers within the memory of their dies; returns what comes over the link."""
    memory = Memory.of(program)
    arrivals: list[Arrival] = []
    held: list[tuple[int, Any, int, int]] = []  # die, interval, bytes of HBM, bytes of the address space
    for moving in memory.moving:
        if len(moving.users) <= _MOST_USERS:
            came, stays = _stays(cp, program, times, moving)
            arrivals += came
            held += [(moving.die, stay, moving.size_bytes, 0) for stay in stays]
        elif moving.level == at.ON_HOST and moving.users[0][1] & at.READ:
            arrivals.append(must_arrive(cp, program, times, moving))
    for placed in memory.placed:
        begin, gone = times.start[placed.writer], cp.new_int_var(0, times.horizon, "gone")
        for user in placed.users:
            cp.add(gone >= times.end[user])
        size = cp.new_int_var(0, times.horizon, "kept")
        held.append((placed.die, cp.new_interval_var(begin, size, gone, "kept"), placed.charge, placed.taken))
    for die in range(int(program.image[at.P_DIES])):
        _limit(cp, program.image, die, [row[1:] for row in held if row[0] == die])
    return arrivals


def must_arrive(cp: Any, program: Program, times: Times, moving: Moving) -> Arrival:
    """A buffer comes in before any of its users starts."""
    arrival = add_arrival(cp, program, times, moving)
    size = load_ns(program, moving.size_bytes) // times.unit
    for user, _ in moving.users:
        cp.add(times.start[user] >= arrival.start + size)
    return arrival


def _limit(cp: Any, image: Image, die: int, held: list[tuple[Any, int, int]]) -> None:
    """What is held at once fits the HBM of a die, and its address space."""
    row = int(image[at.P_AT_DIE]) + die * at.PD_WIDTH
    free = int(image[at.P_HBM_BYTES]) - int(image[row + at.PD_FIXED_BYTES])
    if sum(charge for _, charge, _ in held) > free:
        cp.add_cumulative([stay for stay, _, _ in held], [charge for _, charge, _ in held], free)
    if int(image[row + at.PD_TAKEN_BYTES]) > int(image[row + at.PD_SPACE_BYTES]):
        takers = [(stay, taken) for stay, _, taken in held if taken]
        space = int(image[row + at.PD_SPACE_BYTES])
        cp.add_cumulative([stay for stay, _ in takers], [taken for _, taken in takers], space)


def _stays(cp: Any, program: Program, times: Times, moving: Moving) -> tuple[list[Arrival], list[Any]]:
    """Stays of a managed buffer: one for each user that may open it, one from the start if it is there."""
    size = load_ns(program, moving.size_bytes) // times.unit
    latency = int(program.image[at.P_LINK_LATENCY_NS]) // times.unit
    served: dict[int, list[Any]] = {user: [] for user, _ in moving.users}
    arrivals, stays = [], []
    for opener, mode in moving.users:
        opens = cp.new_bool_var("opens")
        begin = cp.new_int_var(0, times.horizon, "begin")
        if mode & at.READ:
            arrival = add_arrival(cp, program, times, moving, happens=opens, space=begin)
            arrivals.append(arrival)
            cp.add(times.start[opener] >= arrival.start + size).only_enforce_if(opens)
            cp.add(times.start[opener] >= begin + latency + size).only_enforce_if(opens)
        else:
            cp.add(times.start[opener] >= begin).only_enforce_if(opens)
        stays.append(_stay(cp, times, begin, opens, served, opener))
    if moving.level == at.IN_HBM:
        stays.append(_stay(cp, times, 0, cp.new_bool_var("stays"), served, -1))
    for choices in served.values():
        cp.add_exactly_one(choices)
    return arrivals, stays


def _stay(cp: Any, times: Times, begin: Any, opens: Any, served: dict[int, list[Any]], opener: int) -> Any:
    """One stay: whom it serves, none of which starts before its opener, and until when it lasts."""
    gone = cp.new_int_var(0, times.horizon, "leaves")
    for user, choices in served.items():
        serves = opens if user == opener else cp.new_bool_var("serves")
        choices.append(serves)
        if user != opener:
            cp.add_implication(serves, opens)
            if opener >= 0:
                cp.add(times.start[user] >= times.start[opener]).only_enforce_if(serves)
        cp.add(gone >= times.end[user]).only_enforce_if(serves)
    size = cp.new_int_var(0, times.horizon, "stay")
    return cp.new_optional_interval_var(begin, size, gone, opens, "stay")
