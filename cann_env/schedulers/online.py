"""Online rules that read only what an agent sees. They issue and wait, and never prefetch.

Streams that are idle are treated as interchangeable: only the lowest idle one is ever offered. A rule that
wants a stream "of its own" remembers which one it got and asks again once that has run empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.schedulers.policy import Observation

# Columns of the observation that the rules read.
_TAIL, _CLASS, _FREE, _STARTABLE, _ARRIVES, _AWAITED, _ORIGIN, _AGE = 1, slice(3, 10), 11, 13, 14, 15, 17, 19
_LENGTH, _BACKLOG = 1, 2
_BUDGET = 12
_EQUAL = 1e-6


def _window(mask: NDArray[np.int8], info: Mapping[str, Any]) -> NDArray[np.int8]:
    """The mask of the issues, shape (K, choices)."""
    return mask[: info["window"] * info["choices"]].reshape(info["window"], info["choices"])


@dataclass(slots=True)
class SingleStream:
    """Everything on stream 0, by descending tail."""

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Issue the first command that may go to stream 0, else wait."""
        legal = np.flatnonzero(_window(mask, info)[:, 0])
        return int(legal[0]) * int(info["choices"]) if legal.size else mask.size - 1


@dataclass(slots=True)
class RoundRobin:
    """Commands by descending tail, streams in turn."""

    turn: int = 0

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Issue the first command to the next stream that takes it, else wait."""
        for k, row in enumerate(_window(mask, info)):
            legal = np.flatnonzero(row)
            if legal.size:
                later = legal[legal >= self.turn % row.size]
                stream = int(later[0]) if later.size else int(legal[0])
                self.turn = stream + 1
                return int(k * row.size + stream)
        return mask.size - 1


@dataclass(slots=True)
class PerEngine:
    """One stream for each engine (cube, vector, mix, AI CPU, each copy direction), by descending tail."""

    stream_of: dict[int, int] = field(default_factory=dict)

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Issue the first command whose engine's stream takes it, else wait."""
        streams = observation["streams"]
        self.stream_of = {e: s for e, s in self.stream_of.items() if streams[s, _LENGTH] > 0}
        for k, row in enumerate(_window(mask, info)):
            if not row.any():
                continue
            engine = int(np.argmax(observation["commands"][k, _CLASS]))
            stream = self._stream(engine, row, streams)
            if stream >= 0:
                self.stream_of[engine] = stream
                return int(k * row.size + stream)
        return mask.size - 1

    def _stream(self, engine: int, row: NDArray[np.int8], streams: NDArray[np.float32]) -> int:
        if row.size == 1:
            return 0
        if engine in self.stream_of:
            return self.stream_of[engine] if row[self.stream_of[engine]] else -1
        idle = np.flatnonzero((row > 0) & (streams[:, _LENGTH] == 0))
        if idle.size:
            return int(idle[0])
        shared = [s for s in self.stream_of.values() if row[s]]  # fewer streams than engines
        return min(shared, key=lambda s: float(streams[s, _BACKLOG]), default=-1)


@dataclass(slots=True)
class Random:
    """Any legal action, all equally likely; once half the steps are used up, buffers are left alone."""

    rng: np.random.Generator

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Draw a legal action."""
        legal = np.flatnonzero(mask)
        if observation["device"][_BUDGET] > 0.5:
            others = legal[(legal < info["window"] * info["choices"]) | (legal == mask.size - 1)]
            legal = others if others.size else legal
        return int(self.rng.choice(legal))


Key = Callable[["NDArray[np.float32]"], "NDArray[np.float32]"]
"""From the rows of the ready window to one number each; the largest goes first."""


def by_tail(commands: NDArray[np.float32]) -> NDArray[np.float32]:
    """Longest path to the end first."""
    return commands[:, _TAIL]


def by_age(commands: NDArray[np.float32]) -> NDArray[np.float32]:
    """Oldest request first."""
    return commands[:, _AGE]


def by_shortest(commands: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shortest remaining request first."""
    return -commands[:, _TAIL]


@dataclass(slots=True)
class Eager:
    """List scheduling with queues: issue at once, behind a predecessor or to the emptiest stream."""

    key: Key = by_tail

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Issue the first command by key, else wait."""
        window = _window(mask, info)
        order = np.argsort(-self.key(observation["commands"]), kind="stable")
        for k in order:
            legal = np.flatnonzero(window[k])
            if legal.size:
                return int(k * window.shape[1] + self._stream(observation, int(k), legal))
        return mask.size - 1

    def _stream(self, observation: Observation, k: int, legal: NDArray[np.intp]) -> int:
        streams = observation["streams"]
        origin = round(float(observation["commands"][k, _ORIGIN]) * len(streams)) - 1
        if origin in legal and streams[origin, _LENGTH] <= 0.5:
            return origin
        if legal.size == 1:
            return int(legal[0])
        return int(min(legal, key=lambda s: (float(streams[s, _BACKLOG]), int(s))))


@dataclass(slots=True)
class JustInTime:
    """List scheduling without queues: only what can start now, on an idle stream, else wait.

    Attributes:
        key: Which startable command goes first.
        fit: Least part of its blocks that must find a free core, from 0 (any) to 1 (all).
    """

    key: Key = by_tail
    fit: float = 0.0
    patient: bool = False

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Start the first command by key, else wait."""
        commands, streams = observation["commands"], observation["streams"]
        window = _window(mask, info)
        idle = streams[:, _LENGTH] == 0 if window.shape[1] > 1 else np.ones(1, bool)
        legal = window.astype(bool) & idle[None, :]
        ready = (commands[:, _STARTABLE] > 0) & legal.any(axis=1) & (commands[:, _FREE] >= self.fit)
        if self.patient:
            ready &= commands[:, _AWAITED] == 0
        if ready.any():
            scores = np.where(ready, self.key(commands), -np.inf)
            k = int(np.argmax(scores))
            return int(k * window.shape[1] + np.flatnonzero(legal[k])[0])
        if mask[-1]:
            return mask.size - 1
        return int(np.flatnonzero(mask)[0])  # nothing runs and nothing fits well: take the most urgent


@dataclass(slots=True)
class Chained:
    """List scheduling that avoids event latency: a command may queue right behind its last predecessor.

    What can start now goes to an idle stream. What waits for the last command of a stream, and for nothing
    that ends later, is queued behind it, so that it follows without an event and without asking the host.

    Attributes:
        key: Which command goes first.
        depth: Most commands on a stream that another one may queue behind.
    """

    key: Key = by_tail
    depth: int = 1

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Start or chain the first command by key, else wait."""
        commands, streams = observation["commands"], observation["streams"]
        window = _window(mask, info)
        if window.shape[1] == 1:  # the window holds only what can start now
            return JustInTime(self.key).act(observation, mask, info)
        most = self.depth / info["in_flight_limit"]
        for k in np.argsort(-self.key(commands), kind="stable"):
            stream = self._stream(commands[k], streams, window[k], most)
            if stream >= 0:
                return int(k * window.shape[1] + stream)
        return mask.size - 1 if mask[-1] else int(np.flatnonzero(mask)[0])

    def _stream(
        self,
        command: NDArray[np.float32],
        streams: NDArray[np.float32],
        row: NDArray[np.int8],
        most: float,
    ) -> int:
        """The stream that a command may go to; -1 if it had better wait."""
        idle = streams[:, _LENGTH] == 0
        if command[_STARTABLE] > 0:
            legal = np.flatnonzero((row > 0) & idle)
            return int(legal[0]) if legal.size else -1
        origin = round(float(command[_ORIGIN]) * len(streams)) - 1
        if origin < 0 or not row[origin] or idle[origin] or streams[origin, _LENGTH] > most + _EQUAL:
            return -1
        return origin if abs(command[_ARRIVES] - streams[origin, _BACKLOG]) < _EQUAL else -1
