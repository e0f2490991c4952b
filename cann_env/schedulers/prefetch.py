"""When to prefetch, for any order of issue: each policy here wraps one that issues and never prefetches.

:class:`IntoL2` lifts weights into L2; the others bring buffers from the host.
:class:`DoNoHarm` asks for all it may, :class:`Aggressive` for one at a time, :class:`AtOnce` does not mind
what it evicts, :class:`LookAhead` looks at the next commands only. All but :class:`AtOnce` need the strict
mask: where a prefetch may evict what was just fetched, they fetch in circles. :class:`Follow` carries out
moves planned beforehand: a move waits for commands, not for a time, so that it makes sense under noise too.
Plans come from the choosers of :mod:`~cann_env.schedulers.paging`, :mod:`~cann_env.schedulers.migration` and
:mod:`~cann_env.schedulers.feedback`.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cann_env.engine.layout import ABSENT, ARRIVING, DONE, IN_QUEUE, STARTED
from cann_env.schedulers.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedulers.policy import Observation, Policy


_BUDGET, _FREE_SDMA = 12, 21  # columns of the observation of the device


def legal_slots(mask: NDArray[np.int8], info: Mapping[str, Any]) -> NDArray[np.intp]:
    """Slots from which a buffer may be brought from the host now, the most urgent first."""
    first = info["window"] * info["choices"]
    return np.flatnonzero(mask[first : first + info["prefetches"]])


def legal_offloads(mask: NDArray[np.int8], info: Mapping[str, Any]) -> NDArray[np.intp]:
    """Slots from which a buffer may be sent to the host now, counted from the first slot of all."""
    first = int(info["window"] * info["choices"])
    skip = int(info["prefetches"] + info["l2_prefetches"])
    return np.flatnonzero(mask[:-1][first + skip : first + skip + info["offloads"]]) + skip


def link_busy(info: Mapping[str, Any]) -> bool:
    """Whether as many buffers as may move at once are on their way from the host, or wait for that."""
    residency = info["residency"]
    return int(((residency == IN_QUEUE) | (residency == ARRIVING)).sum()) >= int(info["prefetch_streams"])


@dataclass(slots=True)
class IntoL2:
    """Whenever the buffer that is read soonest may be copied into L2 and no copy is under way, do that first.

    It reads only what an agent sees. Once half of the steps are used up it leaves L2 alone: where the mask is
    free, buffers that push each other out could be copied for ever.

    Attributes:
        order: The policy that decides everything else.
    """

    order: Policy

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first legal prefetch into L2 while all its channels are free, else what the order says."""
        first = int(info["window"] * info["choices"] + info["prefetches"])
        legal = np.flatnonzero(mask[first : first + info["l2_prefetches"]])
        device = observation["device"]
        if legal.size and device[_FREE_SDMA] == 1.0 and device[_BUDGET] <= 0.5:
            return first + int(legal[0])
        return self.order.act(observation, mask, info)


@dataclass(slots=True)
class DoNoHarm:
    """Whenever the most urgent buffer can be prefetched, do that first, however many wait in line already.

    Meant for the strict mask, under which a prefetch is legal only if it evicts nothing that is needed
    sooner. It reads only what an agent sees.

    Attributes:
        order: The policy that decides everything else.
    """

    order: Policy

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first legal prefetch, else what the order says."""
        legal = legal_slots(mask, info)
        if legal.size:
            return int(info["window"] * info["choices"] + legal[0])
        return self.order.act(observation, mask, info)


@dataclass(slots=True)
class Aggressive:
    """The same, but only while the link is free: nothing makes room earlier than the transfer needs it.

    With equal buffers, a fixed order and one at a time, that is the aggressive algorithm of Cao, Felten,
    Karlin and Li (SIGMETRICS 1995): at most min(1 + F/k, 2) times as long as the optimum where a transfer
    takes as long as F commands and k buffers fit.

    Attributes:
        order: The policy that decides everything else.
    """

    order: Policy

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first legal prefetch while the link is free, else what the order says."""
        legal = legal_slots(mask, info)
        if legal.size and not link_busy(info):
            return int(info["window"] * info["choices"] + legal[0])
        return self.order.act(observation, mask, info)


@dataclass(slots=True)
class _AtOnce:
    order: Policy
    usage: Usage
    asked: set[tuple[int, int]] = field(default_factory=set)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first legal prefetch that was not asked for since its last use, else what the order says."""
        for slot in legal_slots(mask, info).tolist():
            buffer = int(info["movable"][slot])
            use = (buffer, self.usage.uses_started(buffer, info["phases"]))
            if use not in self.asked:
                self.asked.add(use)
                return int(info["window"] * info["choices"] + slot)
        return self.order.act(observation, mask, info)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Everything as soon as it is legal, in the order of the window, once for each use.

    Under the free mask this evicts what is needed sooner. What was evicted before it was used is not asked
    for again: its user fetches it.

    Attributes:
        order: The policy that decides everything else.
    """

    order: Policy

    def choose(self, program: Program) -> Policy:
        """The policy for a program."""
        return _AtOnce(deepcopy(self.order), Usage.of(program))


@dataclass(slots=True)
class _LookAhead:
    order: Policy
    usage: Usage
    commands: int
    first: int = 0  # all commands before this place have started

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """The first legal prefetch for one of the next commands, else what the order says."""
        legal = legal_slots(mask, info)
        if legal.size and not link_busy(info):
            wanted = self._wanted(info["phases"])
            for slot in legal.tolist():
                if int(info["movable"][slot]) in wanted:
                    return int(info["window"] * info["choices"] + slot)
        return self.order.act(observation, mask, info)

    def _wanted(self, phases: NDArray[np.int64]) -> set[int]:
        """Buffers of the next commands that have not started."""
        sequence = self.usage.sequence
        while self.first < len(sequence) and phases[sequence[self.first]] >= STARTED:
            self.first += 1
        wanted: set[int] = set()
        left, place = self.commands, self.first
        while left and place < len(sequence):
            c = sequence[place]
            if phases[c] < STARTED:
                wanted.update(self.usage.managed_of[c])
                left -= 1
            place += 1
        return wanted


@dataclass(frozen=True, slots=True)
class LookAhead:
    """While the link is free, prefetch only what one of the next commands needs that have not started.

    Attributes:
        order: The policy that decides everything else.
        commands: How many commands to look at.
        sequence: Order in which to look at them; empty for descending tail.
    """

    order: Policy
    commands: int = 4
    sequence: tuple[int, ...] = ()

    def choose(self, program: Program) -> Policy:
        """The policy for a program."""
        return _LookAhead(deepcopy(self.order), Usage.of(program, self.sequence), self.commands)


class Move(NamedTuple):
    """A planned move of a managed buffer.

    It is due once the commands ``done`` have finished. It lapses when ``user``, the command for which it is
    made, starts (-1: nobody uses the buffer again).
    """

    buffer: int
    user: int
    done: tuple[int, ...] = ()

    def due(self, phases: NDArray[np.int64]) -> bool:
        """Whether everything it waits for has happened."""
        return all(phases[c] == DONE for c in self.done)

    def lapsed(self, phases: NDArray[np.int64]) -> bool:
        """Whether it would come too late."""
        return self.user >= 0 and bool(phases[self.user] >= STARTED)


def _by_buffer(moves: tuple[Move, ...]) -> dict[int, deque[Move]]:
    queues: dict[int, deque[Move]] = {}
    for move in moves:
        queues.setdefault(move.buffer, deque()).append(move)
    return queues


@dataclass(slots=True)
class Follow:
    """Any order of issue with planned moves: each is made as soon as it is due and legal.

    Attributes:
        order: The policy that decides everything else.
        fetches: Prefetches from the host, those of one buffer in the order of use.
        offloads: Moves to the host, those of one buffer in the order of use.
        in_order: Make no fetch before the one listed before it was made or has become needless.
    """

    order: Policy
    fetches: tuple[Move, ...]
    offloads: tuple[Move, ...] = ()
    in_order: bool = False
    _next: int = 0
    _fetches: dict[int, deque[Move]] = field(default_factory=dict)
    _offloads: dict[int, deque[Move]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fetches = _by_buffer(self.fetches)
        self._offloads = _by_buffer(self.offloads)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """An offload or prefetch that is due, else what the order says."""
        first = int(info["window"] * info["choices"])
        slot = self._pick(self._offloads, legal_offloads(mask, info), info)
        legal = legal_slots(mask, info)
        if slot < 0 and legal.size and not link_busy(info):
            slot = self._head(legal, info) if self.in_order else self._pick(self._fetches, legal, info)
        return first + slot if slot >= 0 else self.order.act(observation, mask, info)

    def _pick(
        self, queues: Mapping[int, deque[Move]], legal: NDArray[np.intp], info: Mapping[str, Any]
    ) -> int:
        """The first slot whose buffer has a move that is due; -1 if there is none."""
        phases = info["phases"]
        for slot in legal.tolist():
            queue = queues.get(int(info["movable"][slot]))
            while queue and queue[0].lapsed(phases):
                queue.popleft()
            if queue and queue[0].due(phases):
                if queue[0].user < 0 or queues is self._offloads:
                    queue.popleft()
                return int(slot)
        return -1

    def _head(self, legal: NDArray[np.intp], info: Mapping[str, Any]) -> int:
        """The slot of the next fetch in order, if that is due; -1 if not."""
        phases, residency = info["phases"], info["residency"]
        while self._next < len(self.fetches):
            move = self.fetches[self._next]
            if not move.lapsed(phases):
                if not move.due(phases):
                    return -1
                if residency[move.buffer] == ABSENT:
                    break
            self._next += 1
        else:
            return -1
        for slot in legal.tolist():
            if info["movable"][slot] == self.fetches[self._next].buffer:
                return int(slot)
        return -1
