"""List scheduling by longest path to the end that asks the memory first.

Parallel schedule generation in which a command is admitted only if its working set fits into what is free
and what can be dropped without a copy. One that does not fit reserves its bytes, and keeps its operands
there, so that smaller ones with a shorter path cannot starve it: a banker's reservation. The admission test
is that of the memory-aware list schedulers (HEFTM of Kulagina, Benoit and Meyerhenke, 2025, refuses likewise
what does not fit); there is no processor in it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.engine import layout as at
from cann_env.schedulers.listed import best_policy, idle_stream, startable, wait_or_first
from cann_env.schedulers.policy import Plan, rollout
from cann_env.schedulers.prefetch import Aggressive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedulers.policy import Observation, Policy


class Memory:
    """HBM of each die, read off the phases of commands and the residency of buffers.

    A device buffer that a copy into L2 keeps beyond its last user is taken to be gone.

    Args:
        program: The program that is run.

    Attributes:
        operands: Buffers that each command reads or writes.
        held: (buffers,) which take space.
        droppable: (buffers,) which can make room at once: unchanged and not in use. What was written back and
            brought in again between two looks still counts as changed.
    """

    def __init__(self, program: Program) -> None:
        image, graph = program.image, program.graph
        index, self._dies = graph.buffer_index, int(image[at.P_DIES])
        first, count = int(image[at.P_AT_BUFFER]), len(graph.buffers)
        table = image[first : first + count * at.PB_WIDTH].reshape(count, at.PB_WIDTH)
        self._die = table[:, at.PB_DIE]
        self._managed = table[:, at.PB_MANAGED] == 1
        self._bytes = np.where(self._managed, table[:, at.PB_BYTES], table[:, at.PB_CHARGE])
        self._writer = table[:, at.PB_WRITER]
        begin = int(image[at.P_AT_DIE])
        rows = image[begin : begin + self._dies * at.PD_WIDTH].reshape(self._dies, at.PD_WIDTH)
        self._room = int(image[at.P_HBM_BYTES]) - rows[:, at.PD_FIXED_BYTES]
        self.operands = tuple(
            np.array(sorted({index[name] for name in (*c.reads, *c.writes)}), np.int64)
            for c in graph.commands
        )
        self._written = tuple([index[name] for name in c.writes] for c in graph.commands)
        self._outputs = np.flatnonzero(~self._managed & (self._writer >= 0))
        self._left = np.bincount(np.concatenate(self.operands), minlength=count)  # users not done
        self._phases = np.zeros(len(graph.commands), np.int64)
        self._residency = np.full(count, -1, np.int64)
        self._dirty = np.zeros(count, bool)
        self.held = np.zeros(count, bool)
        self.droppable = np.zeros(count, bool)

    def see(self, phases: NDArray[np.int64], residency: NDArray[np.int64]) -> None:
        """Look at a run."""
        if np.array_equal(phases, self._phases) and np.array_equal(residency, self._residency):
            return
        for c in np.flatnonzero((phases >= at.STARTED) & (self._phases < at.STARTED)).tolist():
            self._dirty[self._written[c]] = True
        for c in np.flatnonzero((phases == at.DONE) & (self._phases != at.DONE)).tolist():
            self._left[self.operands[c]] -= 1
        self._phases, self._residency = phases.copy(), residency.copy()
        self._dirty &= residency != at.ABSENT
        self.held = self._managed & (residency != at.ABSENT)
        written = phases[self._writer[self._outputs]] > at.UNISSUED
        self.held[self._outputs] = written & (self._left[self._outputs] > 0)
        self.droppable = self._managed & (residency == at.VALID) & ~self._dirty
        for c in np.flatnonzero((phases > at.UNISSUED) & (phases < at.DONE)).tolist():
            self.droppable[self.operands[c]] = False

    @property
    def free(self) -> NDArray[np.int64]:
        """Bytes on each die that nothing takes, shape (dies,)."""
        return self._room - self._sum(np.flatnonzero(self.held))

    def needed(self, command: int) -> NDArray[np.int64]:
        """Bytes on each die that a command needs and that are not there, shape (dies,)."""
        own = self.operands[command]
        comes = self._managed[own] | (self._writer[own] == command)
        return self._sum(own[comes & ~self.held[own]])

    def available(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes on each die that are free or can be dropped, other than some buffers, shape (dies,)."""
        droppable = self.droppable.copy()
        droppable[kept] = False
        return self.free + self._sum(np.flatnonzero(droppable))

    def _sum(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        amounts = np.zeros(self._dies, np.int64)
        np.add.at(amounts, self._die[chosen], self._bytes[chosen])
        return amounts


@dataclass(slots=True)
class Admission:
    """The policy: by longest path to the end, what is admitted and can start; see the top of this file.

    Attributes:
        program: The program that is run.
        patient: Wait for operands that are on their way.
        memory: What the policy knows of the memory.
    """

    program: Program
    patient: bool = False
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.program)

    def __deepcopy__(self, memo: dict[int, Any]) -> Admission:
        return Admission(self.program, self.patient)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Start the first command that is admitted and can start, else wait."""
        phases = info["phases"]
        self.memory.see(phases, info["residency"])
        ready = startable(observation, patient=self.patient)
        refused: list[int] = []
        for k, c in self._candidates(info):
            if not self._admits(c, refused):
                refused.append(c)
                continue
            stream = idle_stream(k, observation, mask, info) if ready[k] else -1
            if stream >= 0:
                return int(k * info["choices"] + stream)
        if refused and not self._moving(info):
            return self._force(observation, mask, info)
        return wait_or_first(mask)

    def _candidates(self, info: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Slots and commands whose predecessors are done; the window has them by longest path already."""
        before, phases = self.program.graph.predecessors, info["phases"]
        return [
            (k, c)
            for k, c in enumerate(info["ready"].tolist())
            if c >= 0 and all(phases[pred] == at.DONE for pred in before[c])
        ]

    def _admits(self, command: int, refused: list[int]) -> bool:
        """Whether the working set of a command fits beside what was reserved before it."""
        need = self.memory.needed(command)
        if self.program.image[at.P_AMPLE] or not need.any():
            return True
        kept = np.concatenate([self.memory.operands[c] for c in (command, *refused)])
        reserved = sum((self.memory.needed(c) for c in refused), np.zeros_like(need))
        return bool((need <= self.memory.available(kept) - reserved)[need > 0].all())

    def _moving(self, info: Mapping[str, Any]) -> bool:
        """Whether something is under way whose end may make room."""
        phases, residency = info["phases"], info["residency"]
        on_way = (residency > at.ABSENT) & (residency < at.VALID)
        return bool(((phases > at.UNISSUED) & (phases < at.DONE)).any() or on_way.any())

    def _force(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Nothing moves: the first command that is legal goes, though it has to copy something away."""
        for k, _ in self._candidates(info):
            stream = idle_stream(k, observation, mask, info)
            if stream >= 0:
                return int(k * info["choices"] + stream)
        return wait_or_first(mask)


@dataclass(frozen=True, slots=True)
class MemCP:
    """The best of admission with and without waiting for operands, with and without prefetching."""

    def choose(self, program: Program) -> Policy:
        """The policy for a program.

        Raises:
            EpisodeError: No form finishes.
        """
        orders: list[Policy] = [Admission(program), Admission(program, patient=True)]
        if program.options.prefetches == 0 or not program.moves_buffers:
            return best_policy(program, orders)
        return best_policy(program, [*(Aggressive(deepcopy(order)) for order in orders), *orders])

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
