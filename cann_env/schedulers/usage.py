"""Who uses which managed buffer in a given order of commands, and how much memory device buffers leave.

What the policies and planners of prefetching know of a program. Positions count commands in the order.
"""

from __future__ import annotations

from bisect import bisect_right
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine import layout as at
from cann_env.graph import BufferKind, Level
from cann_env.schedulers.policy import rollout
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedule import Schedule
    from cann_env.schedulers.policy import Policy


def simulate(program: Program, policy: Policy) -> Schedule:
    """The schedule of a policy under expected durations; the policy itself stays as it is.

    Raises:
        EpisodeError: It does not finish.
    """
    return record_schedule(program, rollout(program, deepcopy(policy)).actions)


@dataclass(frozen=True, slots=True)
class Milestones:
    """Finishes of commands in a schedule, ascending: the instants at which a host can react.

    Attributes:
        times_ns: When.
        commands: Of which command.
    """

    times_ns: tuple[int, ...]
    commands: tuple[int, ...]

    @classmethod
    def of(cls, schedule: Schedule) -> Milestones:
        """Those of a schedule."""
        rows = sorted((run.finish_ns, run.command) for run in schedule.commands)
        return cls(tuple(finish for finish, _ in rows), tuple(c for _, c in rows))

    def before(self, time_ns: int) -> tuple[int, ...]:
        """The last command that had finished by a time; none if there was none."""
        place = bisect_right(self.times_ns, time_ns)
        return (self.commands[place - 1],) if place else ()


@dataclass(frozen=True)
class Usage:
    """Uses of the managed buffers of a program in one order of its commands.

    Attributes:
        program: The program.
        sequence: Commands in order.
        issued: For each position, the first one that had not finished when its command was issued and its
            device buffers were reserved; empty for its own.
    """

    program: Program
    sequence: tuple[int, ...]
    issued: tuple[int, ...] = ()

    @classmethod
    def of(cls, program: Program, sequence: Sequence[int] = ()) -> Usage:
        """Uses in an order of all commands; without one, by descending tail."""
        if not sequence:
            first = int(program.image[at.P_AT_RANKED])
            sequence = program.image[first : first + len(program.graph.commands)].tolist()
        return cls(program, tuple(sequence))

    @classmethod
    def in_schedule(cls, program: Program, schedule: Schedule) -> Usage:
        """Uses in the order in which the commands of a schedule started."""
        done = list(accumulate((run.finish_ns for run in schedule.commands), max))
        issued = tuple(bisect_right(done, run.issue_ns) for run in schedule.commands)
        return cls(program, tuple(run.command for run in schedule.commands), issued)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes that each buffer takes in HBM."""
        first, count = int(self.program.image[at.P_AT_BUFFER]), len(self.program.graph.buffers)
        table = self.program.image[first : first + count * at.PB_WIDTH].reshape(count, at.PB_WIDTH)
        return tuple(table[:, at.PB_BYTES].tolist())

    @cached_property
    def managed(self) -> tuple[bool, ...]:
        """Which buffers are managed."""
        return tuple(buffer.kind is BufferKind.MANAGED for buffer in self.program.graph.buffers)

    @cached_property
    def managed_of(self) -> tuple[tuple[int, ...], ...]:
        """Managed operands of each command, those it reads first."""
        index = self.program.graph.buffer_index
        return tuple(
            tuple(b for b in dict.fromkeys(index[name] for name in (*c.reads, *c.writes)) if self.managed[b])
            for c in self.program.graph.commands
        )

    @cached_property
    def read_by(self) -> tuple[frozenset[int], ...]:
        """Managed operands that each command reads."""
        index = self.program.graph.buffer_index
        return tuple(
            frozenset(b for b in (index[name] for name in c.reads) if self.managed[b])
            for c in self.program.graph.commands
        )

    @cached_property
    def written_by(self) -> tuple[frozenset[int], ...]:
        """Managed operands that each command writes."""
        index = self.program.graph.buffer_index
        return tuple(
            frozenset(b for b in (index[name] for name in c.writes) if self.managed[b])
            for c in self.program.graph.commands
        )

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """Positions at which each managed buffer is used, ascending; none for device buffers."""
        uses: list[list[int]] = [[] for _ in self.program.graph.buffers]
        for place, c in enumerate(self.sequence):
            for b in self.managed_of[c]:
                uses[b].append(place)
        return tuple(tuple(own) for own in uses)

    @cached_property
    def dies(self) -> tuple[int, ...]:
        """Dies on which some buffer has its home."""
        return tuple(sorted({buffer.die for buffer in self.program.graph.buffers}))

    def device_bytes(self, die: int) -> NDArray[np.int64]:
        """Bytes taken by device buffers on a die while each position runs, shape (commands,)."""
        if self.program.options.pool_bytes is not None:
            return np.full(len(self.sequence), self.program.options.pool_bytes, np.int64)
        graph = self.program.graph
        index = graph.buffer_index
        first = [len(self.sequence)] * len(graph.buffers)
        last = [-1] * len(graph.buffers)
        for place, c in enumerate(self.sequence):
            for name in (*graph.commands[c].reads, *graph.commands[c].writes):
                reserved = min(self.issued[place], place) if self.issued else place
                first[index[name]] = min(first[index[name]], reserved)
                last[index[name]] = place
        change = np.zeros(len(self.sequence) + 1, np.int64)
        for b, buffer in enumerate(graph.buffers):
            if self.managed[b] or buffer.die != die:
                continue
            if buffer.level is Level.HBM:
                change[0] += self.sizes[b]
            elif last[b] >= 0:
                change[first[b]] += self.sizes[b]
                change[last[b] + 1] -= self.sizes[b]
        return np.cumsum(change)[:-1]

    @property
    def capacity_bytes(self) -> int:
        """Bytes of HBM of a die."""
        return int(self.program.image[at.P_HBM_BYTES])

    def uses_started(self, buffer: int, phases: NDArray[np.int64]) -> int:
        """How many users of a managed buffer have started."""
        return sum(phases[self.sequence[place]] >= at.STARTED for place in self.positions[buffer])

    def transfer_ns(self, buffer: int, link: str) -> int:
        """Time of moving a buffer alone over a link, ``h2d`` or ``d2h``."""
        spec = self.program.device.links[link]
        rate = spec.bandwidth_bytes_per_s * spec.efficiency / 1e9
        return spec.latency_ns + int(self.sizes[buffer] / rate)
