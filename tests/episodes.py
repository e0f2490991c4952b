"""Play the host thread by names: a compiled graph, one decision at a time, judged at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from toys import toy_device

from cann_env.engine import layout as at
from cann_env.engine.observe import copy_mask, observe
from cann_env.engine.step import step
from cann_env.options import RunOptions
from cann_env.program import Program, compile_graph
from cann_env.schedulers.recording import record_schedule
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.schedule import Schedule


def legal_actions(program: Program, state: NDArray[np.int64]) -> list[int]:
    """Numbers of the actions that the mask of a state allows."""
    mask = np.zeros(program.action_count, np.int8)
    copy_mask(program.image, state, mask)
    return [int(action) for action in np.flatnonzero(mask)]


def actions_of(state: NDArray[np.int64]) -> tuple[int, ...]:
    """Decisions taken so far."""
    first = int(state[at.S_AT_ACTION])
    return tuple(state[first : first + int(state[at.S_STEPS])].tolist())


def play_random(program: Program, seed: int, noise: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The final state of an episode of random legal actions."""
    rng = np.random.default_rng(seed)
    state = program.new_state(noise)
    while state[at.S_STATUS] == at.RUNNING:
        step(program.image, state, int(rng.choice(legal_actions(program, state))))
    return state


class Host:
    """The host thread of one episode.

    Args:
        graph: What is submitted.
        device: The toy device if None.
        noise: Factors in 2**-20, one a command.
        **options: Of the run; four streams unless said otherwise.
    """

    def __init__(
        self,
        graph: CommandGraph,
        device: DeviceSpec | None = None,
        *,
        noise: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        self.graph = graph
        self.noise = None if noise is None else np.asarray(noise, np.int64)
        drawn = {} if noise is None else {"noise": 0.5}  # the judge wants to know that durations vary
        self.program = compile_graph(
            graph, device or toy_device(), RunOptions(**{"streams": 4, **drawn, **options})
        )
        self.state = self.program.new_state(self.noise)
        self.bounds = [self.program.lower_bound_ns, self.bound_ns]

    # --- decisions ----------------------------------------------------------------------------------

    def issue(self, name: str, stream: int = 0) -> Host:
        """Issue a command; it must be legal."""
        assert stream in self.streams(name), f"{name!r} may go to {self.streams(name)} at {self.now_ns} ns"
        return self._step(self.window.index(name) * self.choices + stream)

    def prefetch(self, name: str) -> Host:
        """Prefetch a managed buffer; it must be legal."""
        return self._move(name, self.prefetchable, 0)

    def lift(self, name: str) -> Host:
        """Prefetch a buffer from HBM into L2; it must be legal."""
        return self._move(name, self.liftable, self.program.options.prefetches)

    def offload(self, name: str) -> Host:
        """Move a managed buffer to the host; it must be legal."""
        options = self.program.options
        return self._move(name, self.offloadable, options.prefetches + options.l2_prefetches)

    def _move(self, name: str, slots: dict[str, bool], first: int) -> Host:
        assert slots.get(name), f"{name!r} is not among {slots} at {self.now_ns} ns"
        return self._step(self.program.options.commands * self.choices + first + list(slots).index(name))

    def wait(self) -> Host:
        """Wait for the next completion, arrival or release; it must be legal."""
        assert self.can_wait, f"nothing to wait for at {self.now_ns} ns"
        return self._step(self.program.action_count - 1)

    def until(self, at_ns: int) -> Host:
        """Wait until an instant at which something is completed, arrives or is released."""
        while self.now_ns < at_ns:
            self.wait()
        assert self.now_ns == at_ns
        return self

    def _step(self, action: int) -> Host:
        assert self.state[at.S_STATUS] == at.RUNNING
        step(self.program.image, self.state, action)
        assert self.state[at.S_INVALID] == 0
        self.bounds.append(self.bound_ns)
        return self

    # --- what may be decided ------------------------------------------------------------------------

    @property
    def choices(self) -> int:
        """Streams that an action names."""
        return int(self.program.image[at.P_CHOICES])

    @property
    def window(self) -> list[str]:
        """Names in the ready window, in order."""
        first = int(self.program.image[at.P_STATE_WINDOW])
        slots = self.state[first : first + self.program.options.commands].tolist()
        return [self.graph.commands[c].name for c in slots if c >= 0]

    def streams(self, name: str) -> list[int]:
        """Streams to which a command may go now."""
        if name not in self.window:
            return []
        first = self.window.index(name) * self.choices
        legal = legal_actions(self.program, self.state)
        return [stream for stream in range(self.choices) if first + stream in legal]

    @property
    def prefetchable(self) -> dict[str, bool]:
        """Buffers in the prefetch window, in order, and whether they may be prefetched now."""
        return self._slots(0, self.program.options.prefetches)

    @property
    def liftable(self) -> dict[str, bool]:
        """The same for prefetches into L2."""
        options = self.program.options
        return self._slots(options.prefetches, options.l2_prefetches)

    @property
    def offloadable(self) -> dict[str, bool]:
        """The same for moves to the host."""
        options = self.program.options
        return self._slots(options.prefetches + options.l2_prefetches, options.offloads)

    def _slots(self, skipped: int, count: int) -> dict[str, bool]:
        first = int(self.program.image[at.P_STATE_PREFETCH]) + skipped
        slots = self.state[first : first + count].tolist()
        action = self.program.options.commands * self.choices + skipped
        legal = legal_actions(self.program, self.state)
        return {self.graph.buffers[b].name: action + p in legal for p, b in enumerate(slots) if b >= 0}

    @property
    def can_wait(self) -> bool:
        """Whether waiting is legal."""
        return self.program.action_count - 1 in legal_actions(self.program, self.state)

    # --- what has happened --------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The device clock."""
        return int(self.state[at.S_NOW_NS])

    @property
    def bound_ns(self) -> int:
        """B of the present state."""
        return int(self.state[at.S_BOUND_NS])

    @property
    def hbm_bytes(self) -> int:
        """Device memory reserved now, on die 0."""
        return self.hbm_of(0)

    def hbm_of(self, die: int) -> int:
        """Device memory reserved now."""
        return int(self.state[int(self.program.image[at.P_STATE_DIE]) + die * at.SD_WIDTH + at.SD_BYTES])

    @property
    def l2(self) -> dict[str, int]:
        """Bytes in L2 of each buffer that has any there, whatever the die."""
        first = int(self.program.image[at.P_STATE_BUFFER])
        rows = self.state[first : first + len(self.graph.buffers) * at.SB_WIDTH].reshape(-1, at.SB_WIDTH)
        names = [buffer.name for buffer in self.graph.buffers]
        return {n: b for n, b in zip(names, rows[:, at.SB_L2_BYTES].tolist(), strict=True) if b > 0}

    def observe(self) -> dict[str, NDArray[np.float32]]:
        """The observation of the present state."""
        flat = np.full(self.program.observation_size, np.nan, np.float32)
        observe(self.program.image, self.state, flat)
        return self.program.split_observation(flat)

    def schedule(self) -> Schedule:
        """The finished schedule: the judge finds nothing wrong with it, and B was never beyond its end."""
        assert self.state[at.S_STATUS] == at.FINISHED, f"{self.window} is still to be issued"
        schedule = record_schedule(self.program, actions_of(self.state), noise=self.noise)
        assert (found := validate(schedule)) == (), found
        assert schedule.makespan_ns == self.now_ns
        assert self.noise is not None or max(self.bounds) <= self.now_ns, self.bounds
        return schedule

    def times(self) -> dict[str, tuple[int, int]]:
        """Start and finish of every command of the finished schedule."""
        return times(self.schedule())


def times(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """Start and finish of every command by name."""
    names = [command.name for command in schedule.graph.commands]
    return {names[run.command]: (run.start_ns, run.finish_ns) for run in sorted(schedule.commands)}


def rows_of(schedule: Schedule, name: str) -> list[tuple[int, str, int, int, int]]:
    """Block rows of a command: kernel, class it ran as, blocks, start, finish."""
    index = schedule.graph.command_index[name]
    return [
        (row.kernel, row.work_class, row.blocks, row.start_ns, row.finish_ns)
        for row in schedule.blocks
        if row.command == index
    ]


def moves(schedule: Schedule) -> list[tuple[str, str, int, int]]:
    """Moves of managed buffers: name, cause, start, finish."""
    names = [buffer.name for buffer in schedule.graph.buffers]
    return [(names[row.buffer], row.cause, row.start_ns, row.finish_ns) for row in schedule.transfers]
