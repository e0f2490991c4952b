"""How many units of each resource are free over time, and where a task fits in.

Resources are cumulative: several tasks hold units of one at once. With one unit it is a machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAR: Final = 1 << 62
"""Later than any time that occurs; its negative is earlier."""

_ROOM = 64  # steps to begin with


class Timeline:
    """Free units of r resources, as steps.

    Args:
        capacity: (r,) units there are.
    """

    def __init__(self, capacity: NDArray[np.int64]) -> None:
        self._room = np.full(_ROOM, FAR, np.int64), np.tile(capacity, (_ROOM, 1))
        self._steps = 1
        self._room[0][0] = -FAR
        self._times, self._free = (words[:1] for words in self._room)

    def earliest(self, demand: NDArray[np.int64], length_ns: int, ready_ns: int) -> int:
        """The first instant, from one on, at which a task finds its units for its whole length.

        Args:
            demand: (r,) units it holds, at most those there are.
            length_ns: How long.
            ready_ns: Not before.
        """
        first = int(self._times.searchsorted(ready_ns, "right")) - 1
        lacking = np.flatnonzero((self._free[first:] < demand).any(axis=1)) + first
        if not lacking.size:
            return ready_ns
        begins = np.append(ready_ns, self._times[lacking + 1])
        ends = np.append(self._times[lacking], FAR)
        return int(begins[(ends - begins >= max(length_ns, 1)).argmax()])

    def latest(self, demand: NDArray[np.int64], length_ns: int, due_ns: int) -> int:
        """The last instant at which a task can start and be done by another one; see :meth:`earliest`."""
        last = int(self._times.searchsorted(due_ns, "left"))
        lacking = np.flatnonzero((self._free[:last] < demand).any(axis=1))
        if not lacking.size:
            return due_ns - length_ns
        ends = np.append(self._times[lacking], due_ns)
        begins = np.append(-FAR, np.minimum(np.append(self._times, FAR)[lacking + 1], due_ns))
        fits = np.flatnonzero(ends - begins >= max(length_ns, 1))
        return int(ends[fits[-1]]) - length_ns

    def behind(self, demand: NDArray[np.int64], ready_ns: int) -> int:
        """The first instant, from one on, after which a task finds its units for ever."""
        lacking = np.flatnonzero((self._free < demand).any(axis=1))
        return max(ready_ns, int(self._times[lacking[-1] + 1])) if lacking.size else ready_ns

    def take(self, demand: NDArray[np.int64], start_ns: int, finish_ns: int) -> None:
        """Hold units from one instant to another."""
        if finish_ns > start_ns:
            first, last = self._step_at(start_ns), self._step_at(finish_ns)
            self._free[first:last] -= demand

    def _step_at(self, time_ns: int) -> int:
        """The step that begins at an instant; there is one afterwards."""
        step = int(self._times.searchsorted(time_ns))
        if step == self._steps or self._times[step] != time_ns:
            self._widen()
            self._times[step + 1 :] = self._times[step:-1]
            self._free[step + 1 :] = self._free[step:-1]
            self._times[step] = time_ns
            self._free[step] = self._free[step - 1]
        return step

    def _widen(self) -> None:
        """One step more, at the end."""
        if self._steps == len(self._room[0]):
            times, free = self._room
            self._room = np.concatenate([times, times]), np.concatenate([free, free])
        self._steps += 1
        self._times, self._free = (words[: self._steps] for words in self._room)
