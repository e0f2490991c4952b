"""StarPU's dmdas: map a task to a worker as soon as it is ready, fetch its data at once, sort the queues.

From Augonnet, Thibault, Namyst and Wacrenier (Concurrency and Computation 2011). A worker here is a stream,
as where StarPU drives one device through several of them. A ready command goes to the worker on which it is
expected to end first: what is mapped there, plus the transfer of its data, plus its own time. Workers share
their memory and cores, so the last two are the same on all and the least loaded takes the command; what
remains of the algorithm is the moment of mapping, and with it the order of prefetching. A worker's queue is
kept on the host, sorted by longest path to the end; few commands are on the stream itself.
"""

from __future__ import annotations

import heapq
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cann_env.engine import layout as at
from cann_env.schedulers.listed import best_policy, idle_stream, wait_or_first
from cann_env.schedulers.policy import Plan, rollout
from cann_env.schedulers.prefetch import legal_slots
from cann_env.schedulers.usage import Usage
from cann_env.tasks import Tasks, tasks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedulers.policy import Observation, Policy


@dataclass(slots=True)
class _Worker:
    """One stream: commands mapped to it and not issued (by rank), issued and not done, and which it is."""

    queue: list[tuple[int, int]] = field(default_factory=list)
    issued: list[int] = field(default_factory=list)
    stream: int = -1


@dataclass(slots=True)
class Dmdas:
    """The policy; see the top of this file.

    Attributes:
        program: The program that is run.
        pipeline: Most commands on a worker's stream at once; StarPU's default is two.
        fetch: Prefetch what is mapped.
    """

    program: Program
    pipeline: int = 2
    fetch: bool = True
    _tasks: Tasks = field(init=False)
    _usage: Usage = field(init=False)
    _workers: list[_Worker] = field(init=False)
    _mapped: dict[int, int] = field(default_factory=dict)  # turn of each command
    _cost_ns: dict[int, int] = field(default_factory=dict)  # of each command, as estimated when it was mapped

    def __post_init__(self) -> None:
        self._tasks = tasks_of(self.program)
        self._usage = Usage.of(self.program)
        self._workers = [_Worker() for _ in range(self.program.options.streams)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Dmdas:
        return Dmdas(self.program, self.pipeline, self.fetch)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Map what has become ready; then prefetch for what is mapped, issue for a free worker, or wait."""
        self._settle(info["phases"])
        self._map(info)
        slot = self._wanted(mask, info) if self.fetch else -1
        if slot >= 0:
            return int(info["window"] * info["choices"] + slot)
        slots = {int(c): k for k, c in enumerate(info["ready"].tolist()) if c >= 0}
        for worker in self._workers:
            if worker.queue and len(worker.issued) < self.pipeline:
                action = self._issue(worker, slots, observation, mask, info)
                if action >= 0:
                    return action
        return wait_or_first(mask)

    def _settle(self, phases: NDArray[np.int64]) -> None:
        """Forget what has finished; what was issued in another way than planned counts as issued."""
        for worker in self._workers:
            gone = [entry for entry in worker.queue if phases[entry[1]] > at.UNISSUED]
            if gone:
                worker.queue = [entry for entry in worker.queue if entry not in gone]
                heapq.heapify(worker.queue)
                worker.issued += [c for _, c in gone]
            worker.issued = [c for c in worker.issued if phases[c] != at.DONE]
            if not worker.issued:
                worker.stream = -1

    def _map(self, info: Mapping[str, Any]) -> None:
        """Give each command that has become ready to the worker that would end it first."""
        phases = info["phases"]
        for c in info["ready"].tolist():
            if c < 0 or c in self._mapped:
                continue
            if any(phases[pred] != at.DONE for pred in self._tasks.predecessors(c)):
                continue
            worker = min(self._workers, key=self._load_ns)
            self._cost_ns[c] = int(self._tasks.duration_ns[c]) + self._transfer_ns(c, info)
            heapq.heappush(worker.queue, (int(self._tasks.rank[c]), c))
            self._mapped[c] = len(self._mapped)

    def _load_ns(self, worker: _Worker) -> int:
        """Expected time of all that is mapped to a worker and has not finished."""
        own = [*worker.issued, *(c for _, c in worker.queue)]
        return sum(self._cost_ns.get(c, 0) for c in own)

    def _transfer_ns(self, command: int, info: Mapping[str, Any]) -> int:
        """Time of bringing what a command reads that is not there and not on its way."""
        residency = info["residency"]
        missing = [b for b in self._usage.read_by[command] if residency[b] == at.ABSENT]
        return sum(self._usage.transfer_ns(b, "h2d") for b in missing)

    def _wanted(self, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The slot of the buffer whose reader was mapped first; -1 if what is mapped reads none of them."""
        legal = legal_slots(mask, info).tolist()
        if not legal:
            return -1
        first: dict[int, int] = {}
        for c, turn in self._mapped.items():
            if info["phases"][c] < at.STARTED:
                for b in self._usage.read_by[c]:
                    first[b] = min(first.get(b, turn), turn)
        wanted = [slot for slot in legal if int(info["movable"][slot]) in first]
        return min(wanted, key=lambda slot: (first[int(info["movable"][slot])], slot), default=-1)

    def _issue(
        self,
        worker: _Worker,
        slots: Mapping[int, int],
        observation: Observation,
        mask: NDArray[np.int8],
        info: Mapping[str, Any],
    ) -> int:
        """The issue of the first command of a worker's queue that its stream takes; -1 if there is none."""
        choices = int(info["choices"])
        for entry in sorted(worker.queue):
            k = slots.get(entry[1], -1)
            if k < 0:
                continue
            if worker.stream >= 0 and choices > 1:
                stream = worker.stream if mask[k * choices + worker.stream] else -1
            else:
                stream = idle_stream(k, observation, mask, info)
            if stream >= 0:
                worker.stream = stream
                worker.queue.remove(entry)
                heapq.heapify(worker.queue)
                worker.issued.append(entry[1])
                return k * choices + stream
        return -1


@dataclass(frozen=True, slots=True)
class StarPU:
    """The best of dmdas with one and with two commands on a stream."""

    def choose(self, program: Program) -> Policy:
        """The policy for a program.

        Raises:
            EpisodeError: Neither finishes.
        """
        return deepcopy(best_policy(program, [Dmdas(program, pipeline=depth) for depth in (1, 2)]))

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
