"""Compile a graph for a device: names become indices, work becomes nanoseconds and bytes.

The result is a :class:`Program`, one flat array that the engine reads and never writes. What can never run
- a class the device lacks, a batch kernel wider than its pool, a working set larger than the memory - is
refused here, before any time has passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cann_env.device.cost import cores_of_class
from cann_env.engine import start
from cann_env.engine.choices import wait_action
from cann_env.engine.layout import (
    BEGIN,
    P_AT_BUFFER,
    P_BOUND_NS,
    P_BUFFERS,
    P_LIFT_BYTES,
    P_NORM_NS,
    P_STATE_WORDS,
    PB_MANAGED,
    PB_WIDTH,
    Q20,
    S_FIRST_BOUND_NS,
    S_OBJECTIVE_NS,
)
from cann_env.engine.observe import OBS_BUFFER, OBS_COMMAND, OBS_DEVICE, OBS_STREAM, fill_features
from cann_env.engine.step import step
from cann_env.engine.tables import lay_out
from cann_env.engine.trace import T_WIDTH
from cann_env.engine.warm import warm_up
from cann_env.graph import KernelClass, Scheme
from cann_env.lowering import Needs, lower, serial_run
from cann_env.options import RunOptions, Submission
from cann_env.units import (
    EventResourceError,
    InputError,
    ResourceAllocationError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import CommandGraph, Kernel


@dataclass(frozen=True, eq=False)
class Program:
    """A graph compiled for a device.

    Attributes:
        graph, device, options: What was compiled, for what, and how it will run.
        image: int64, laid out as :mod:`cann_env.engine.layout` says. Never write to it.
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    image: Image

    @property
    def lower_bound_ns(self) -> int:
        """No schedule with the expected durations ends earlier; at least 1."""
        return int(self.image[P_BOUND_NS])

    @property
    def norm_ns(self) -> int:
        """What rewards are divided by: the lower bound of the objective, at least 1."""
        return int(self.image[P_NORM_NS])

    @cached_property
    def moves_buffers(self) -> bool:
        """Whether some buffer migrates between host and HBM."""
        first = int(self.image[P_AT_BUFFER])
        rows = self.image[first : first + int(self.image[P_BUFFERS]) * PB_WIDTH].reshape(-1, PB_WIDTH)
        return bool(rows[:, PB_MANAGED].any())

    @property
    def has_l2(self) -> bool:
        """Whether buffers can be lifted into L2 in this run."""
        return bool(self.image[P_LIFT_BYTES] > 0)

    @cached_property
    def action_count(self) -> int:
        """Actions: K*S issues (K where the stream is implied), P prefetches and one wait."""
        return int(wait_action(self.image)) + 1

    @cached_property
    def observation_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each part of the observation, in the order in which the engine writes them."""
        options = self.options
        return {
            "commands": (options.commands, OBS_COMMAND),
            "streams": (options.streams, OBS_STREAM),
            "moves": (options.slots, OBS_BUFFER),
            "device": (OBS_DEVICE,),
        }

    @cached_property
    def observation_size(self) -> int:
        """Length of a flat observation (float32)."""
        return sum(math.prod(shape) for shape in self.observation_shapes.values())

    def split_observation(self, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """The parts of a flat observation, as views into it."""
        parts = {}
        at = 0
        for name, shape in self.observation_shapes.items():
            size = math.prod(shape)
            parts[name] = flat[at : at + size].reshape(shape)
            at += size
        return parts

    def new_state(self, noise: Sequence[int] | Image | None = None, *, trace_rows: int = 0) -> Image:
        """A state at the first decision.

        Args:
            noise: Factor on each command's realised durations in units of 2**-20; None for none.
            trace_rows: Rows of the trace to keep room for; 0 records nothing.

        Raises:
            InputError: ``noise`` has not one entry a command, or one below 1.
        """
        state = np.zeros(self.state_words(trace_rows), np.int64)
        self.reset_state(state, noise)
        return state

    def state_words(self, trace_rows: int = 0) -> int:
        """Length of a state image (int64 words)."""
        return int(self.image[P_STATE_WORDS]) + trace_rows * T_WIDTH

    def reset_state(self, state: Image, noise: Sequence[int] | Image | None = None) -> None:
        """Bring a state image back to the first decision, in place; see :meth:`new_state`."""
        factors = np.zeros(0, np.int64) if noise is None else np.asarray(noise, np.int64)
        if factors.size and (factors.size != len(self.graph.commands) or int(factors.min()) < 1):
            raise InputError(
                f"noise for graph {self.graph.name!r} has {factors.size} entries; it needs one factor >= 1 "
                f"(in 2**-20) for each of its {len(self.graph.commands)} commands"
            )
        start.prepare(self.image, state, factors)
        step(self.image, state, BEGIN)

    def draw_noise(self, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """Draw the lognormal factors that the options ask for (mean 1); None without noise."""
        sigma = self.options.noise
        if sigma == 0.0:
            return None
        factors = rng.lognormal(-0.5 * sigma * sigma, sigma, len(self.graph.commands))
        return np.maximum(np.rint(factors * Q20), 1).astype(np.int64)


def compile_graph(graph: CommandGraph, device: DeviceSpec, options: RunOptions | None = None) -> Program:
    """Compile a graph for a device.

    Raises:
        InputError: Work that the device can never run; names the command, the value and the limit.
        ResourceAllocationError: More streams than can be created (207005).
        EventResourceError: A command that needs more event ids than there are (207007).
        MemoryAllocationError: Even one command at a time the graph does not fit (207001).
    """
    options = RunOptions() if options is None else options
    _check_streams(device, options)
    _check_kernels(graph, device)
    _check_events(graph, device, options)
    _check_dies(graph, device, options)
    needs = Needs(graph, device, options)
    image = lower(needs, serial_run(needs))
    warm_up()
    lay_out(image)
    fill_features(image, image.view(np.float32))
    program = Program(graph, device, options, image)
    state = program.new_state()
    image[P_BOUND_NS] = max(1, int(state[S_FIRST_BOUND_NS]))
    image[P_NORM_NS] = max(1, int(state[S_OBJECTIVE_NS]))
    return program


def _check_streams(device: DeviceSpec, options: RunOptions) -> None:
    if options.streams > device.limits.max_streams:
        raise ResourceAllocationError(
            f"{options.streams} streams on {device.name}, which can create {device.limits.max_streams}"
        )


def _check_kernels(graph: CommandGraph, device: DeviceSpec) -> None:
    cores = {name: cores_of_class(device, name) for name in KernelClass}
    for command in graph.commands:
        for kernel in command.kernels:
            if kernel.demand is not None:
                _check_demand(graph, command.name, kernel, device)
                continue
            widest = cores[kernel.kernel_class]
            if kernel.fallback is not None:
                widest = max(widest, cores[kernel.fallback])
            if widest == 0 or (kernel.blocks > widest and kernel.scheme is Scheme.BATCH):
                raise _cannot_run(graph, command.name, kernel, device, widest)


def _check_demand(graph: CommandGraph, command: str, kernel: Kernel, device: DeviceSpec) -> None:
    """Refuse a kernel with a demand of its own that can never start, and say which pool is in the way."""
    if not cores_of_class(device, kernel.kernel_class):
        raise _cannot_run(graph, command, kernel, device, 0)
    at_once = kernel.blocks if kernel.scheme is Scheme.BATCH else 1
    where = f"kernel {kernel.name!r} of command {command!r} in graph {graph.name!r}"
    for pool, units in kernel.demand or ():
        if pool not in device.pools:
            raise InputError(
                f"{where} demands the pool {pool!r}; {device.name} has {', '.join(device.pool_names)}"
            )
        if at_once * units > device.pools[pool]:
            raise InputError(
                f"{where} starts {at_once} blocks at once that hold {units} of pool {pool!r} each; "
                f"{device.name} has {device.pools[pool]}"
            )


def _cannot_run(
    graph: CommandGraph, command: str, kernel: Kernel, device: DeviceSpec, widest: int
) -> InputError:
    where = f"kernel {kernel.name!r} of command {command!r} in graph {graph.name!r}"
    if widest == 0:
        runs = [name for name in ("cube", "vector", "mix", "aicpu") if cores_of_class(device, name)]
        return InputError(
            f"{where} is of class {kernel.kernel_class.value!r}, which {device.name} cannot run; "
            f"it runs {', '.join(runs)}"
        )
    return InputError(
        f"{where} starts {kernel.blocks} blocks at once; {device.name} has {widest} cores of class "
        f"{kernel.kernel_class.value!r}"
    )


def _check_events(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> None:
    """A command needs at most one wait for each other stream, whatever the order of issue."""
    if options.streams - 1 <= device.limits.max_events:
        return
    for command, before in zip(graph.commands, graph.predecessors, strict=True):
        reuses = options.submission is Submission.SINK and command.writes
        waits = options.streams - 1 if reuses else min(len(before), options.streams - 1)
        if waits > device.limits.max_events:
            raise EventResourceError(
                f"command {command.name!r} may have to wait for {waits} events at once; {device.name} has "
                f"{device.limits.max_events} event ids; use fewer streams"
            )


def _check_dies(graph: CommandGraph, device: DeviceSpec, options: RunOptions) -> None:
    for buffer in graph.buffers:
        if buffer.die >= device.dies:
            raise InputError(
                f"buffer {buffer.name!r} of graph {graph.name!r} lies on die {buffer.die}; {device.name} has "
                f"dies 0 to {device.dies - 1}"
            )
    for stream, die in enumerate(options.stream_dies):
        if not 0 <= die < device.dies:
            raise InputError(
                f"option 'stream_dies' puts stream {stream} on die {die}; {device.name} has dies 0 to "
                f"{device.dies - 1}"
            )
