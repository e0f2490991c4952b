"""How fast a chain of commands can be at best when memory is short: the bound that the links to the host set.

When a command starts, what is needed from then on and does not fit into memory is on the host. What was
computed on the device has crossed the link to the host by then, but not before it was computed; all of it
comes back afterwards, each buffer before the command that needs it next. So between two starts passes at
least the time of the commands between them, and at least that of what has to cross a link between them. The
bound is the longest chain of such distances. It holds for every choice of what to move and when; the times of
the commands are those of a run without limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.device.cost import Q20, link_rate_q20
from cann_env.graph import Level
from cann_env.schedulers.usage import Usage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedule import Schedule


class LinkBound(NamedTuple):
    """What no plan can beat.

    Attributes:
        bound_ns: Least time of all commands.
        out_bytes: Bytes that have to cross the link to the host in any case.
        in_bytes: Bytes that have to cross the link from the host in any case.
    """

    bound_ns: int
    out_bytes: int
    in_bytes: int


def link_bound(program: Program, unlimited: Schedule) -> LinkBound:
    """The bound of a chain of commands on one stream and one die.

    Args:
        program: With the memory that is asked about.
        unlimited: A run of the same chain in which nothing has to move.
    """
    usage = Usage.of(program, [run.command for run in unlimited.commands])
    live = _Live.of(usage)
    needed, dead = live.bytes_of(live.needed), live.bytes_of(live.dead)
    over = needed + dead + usage.device_bytes(0) - usage.capacity_bytes
    leave = np.maximum(over - live.bytes_of(live.clean), 0)
    back = np.maximum(over - dead, 0)
    spans = np.diff([*(run.start_ns for run in unlimited.commands), unlimited.makespan_ns])
    out_rate, in_rate = (link_rate_q20(program.device, link) / Q20 for link in ("d2h", "h2d"))
    starts, rests = np.zeros(spans.size), np.zeros(spans.size + 1)
    for i in range(1, spans.size):
        crossing = np.maximum(leave[i] - live.sendable(i), 0) / out_rate
        starts[i] = max(starts[i - 1] + spans[i - 1], (starts[:i] + crossing).max())
    for i in range(spans.size - 1, -1, -1):
        crossing = np.maximum(back[i] - live.not_before(i), 0) / in_rate
        rests[i] = max(spans[i] + rests[i + 1], (crossing + rests[i + 1 :]).max())
    return LinkBound(int((starts + rests[:-1]).max()), int(leave.max()), int(back.max()))


@dataclass(frozen=True, slots=True)
class _Live:
    """Managed buffers at the start of each command; tables have the shape (buffers, commands).

    Attributes:
        sizes: Bytes of each buffer.
        needed: That command or a later one uses the buffer, and it exists or the command makes it.
        dead: No command uses it any more, but it was changed, and so is not to be dropped.
        changed: A command before that one has written it.
        clean: It is needed, was not changed, and that command does not use it.
        next_use: Place of the first command from that one on that uses it.
    """

    sizes: NDArray[np.int64]
    needed: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    clean: NDArray[np.bool_]
    next_use: NDArray[np.int64]

    @classmethod
    def of(cls, usage: Usage) -> _Live:
        """Those of an order of commands."""
        places = np.arange(len(usage.sequence))
        used = np.zeros((len(usage.sizes), places.size), bool)
        written = np.zeros_like(used)
        for b, uses in enumerate(usage.positions):
            used[b, list(uses)] = True
            written[b, [i for i in uses if b in usage.written_by[usage.sequence[i]]]] = True
        next_use = np.where(used, places, places.size)
        next_use = np.minimum.accumulate(next_use[:, ::-1], axis=1)[:, ::-1]
        changed = np.cumsum(written, axis=1) - written > 0
        absent = np.array([buffer.level is Level.ABSENT for buffer in usage.program.graph.buffers])
        begun = np.maximum.accumulate(used, axis=1) | ~absent[:, None]
        needed = (next_use < places.size) & begun
        dead = (next_use == places.size) & changed & ~absent[:, None]
        clean = needed & ~changed & ~used
        return cls(np.array(usage.sizes, np.int64), needed, dead, changed, clean, next_use)

    def bytes_of(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Bytes at the start of each command, shape (commands,)."""
        return self.sizes @ which

    def sendable(self, place: int) -> NDArray[np.int64]:
        """Bytes that can have left for good by the start of each command before ``place``, shape (place,)."""
        wanted = self.sizes * (self.needed[:, place] | self.dead[:, place])
        return wanted @ self.changed[:, :place]

    def not_before(self, place: int) -> NDArray[np.int64]:
        """Bytes needed from ``place`` on, but only behind each later command or the end, shape (rest,)."""
        count = self.next_use.shape[1]
        needed = self.needed[:, place]
        uses = self.next_use[needed, place]
        up_to = np.cumsum(np.bincount(uses, self.sizes[needed], count + 1)).astype(np.int64)
        return up_to[count] - up_to[place + 1 :]
