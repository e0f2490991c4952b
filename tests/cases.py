"""Random cases for laws: a seed decides graph, device, options and noise; a digest sums up what they do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from episodes import actions_of, legal_actions
from random_graphs import random_graph
from toys import toy_device

from cann_env.engine import layout as at
from cann_env.engine.observe import observe
from cann_env.engine.step import step
from cann_env.lowering import Needs
from cann_env.options import Allocator, Objective, RunOptions, Submission, Window
from cann_env.program import Program, compile_graph
from cann_env.schedulers.recording import record_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph


@dataclass(frozen=True)
class Case:
    """A program, the noise of its episode, and a generator for whoever plays it."""

    program: Program
    noise: NDArray[np.int64] | None
    rng: np.random.Generator

    def new_state(self) -> NDArray[np.int64]:
        return self.program.new_state(self.noise)

    def step(self, state: NDArray[np.int64], action: int) -> int:
        return int(step(self.program.image, state, action))

    def random_action(self, state: NDArray[np.int64]) -> int:
        return int(self.rng.choice(legal_actions(self.program, state)))

    def observe(self, state: NDArray[np.int64]) -> NDArray[np.float32]:
        flat = np.full(self.program.observation_size, np.nan, np.float32)
        observe(self.program.image, state, flat)
        return flat

    def play(self) -> NDArray[np.int64]:
        """The final state of an episode of random legal actions."""
        state = self.new_state()
        while running(state):
            self.step(state, self.random_action(state))
        assert state[at.S_STATUS] == at.FINISHED
        return state


def running(state: NDArray[np.int64]) -> bool:
    return bool(state[at.S_STATUS] == at.RUNNING)


def random_device(rng: np.random.Generator) -> DeviceSpec:
    return toy_device(
        dispatch={
            "record_ns": int(rng.integers(0, 3)),
            "wait_ns": int(rng.integers(0, 3)),
            "wake_ns": int(rng.integers(0, 20)),
        },
        limits={
            "max_concurrent_streams": int(rng.integers(1, 9)),
            "max_events": int(rng.integers(16, 40)),
            "queue_depth": int(rng.choice([2, 32])),
        },
        links={"h2d": {"shares_hbm": bool(rng.integers(0, 2))}},
        pools={"h2d": int(rng.integers(1, 3))},
    )


def tight_hbm(graph: CommandGraph, device: DeviceSpec, rng: np.random.Generator) -> int:
    """Bytes of HBM that the graph can just do with, or somewhat more."""
    least = Needs(graph, device, RunOptions()).least
    return max(64, least, int(least * float(rng.choice([1.0, 1.1, 1.5, 3.0]))))


def make_case(seed: int, *, most: int = 16, plain: bool = False) -> Case:
    """The case of a seed.

    Args:
        seed: Decides everything.
        most: Most commands.
        plain: True for expected durations and the makespan as objective.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, most=most, late=bool(rng.integers(0, 2)), memory=rng.random() < 0.8)
    device = random_device(rng)
    streams = int(rng.integers(1, 6))
    options = RunOptions(
        streams=streams,
        stream_priorities=tuple(rng.integers(0, 3, streams).tolist()) if rng.random() < 0.3 else (),
        submission=Submission(str(rng.choice(["eager", "sink"]))),
        allocator=Allocator(str(rng.choice(["pool", "malloc"]))),
        window=Window(str(rng.choice(["issuable", "startable"]))),
        commands=int(rng.choice([1, 2, 4, 16])),
        prefetches=int(rng.choice([0, 1, 4])),
        run_ahead=[None, 1, 3, 50][int(rng.integers(0, 4))],
        hbm_bytes=tight_hbm(graph, device, rng),
        noise=0.0 if plain else float(rng.choice([0.0, 0.3])),
        objective=Objective.MAKESPAN if plain else Objective(str(rng.choice(["makespan", "latency"]))),
    )
    program = compile_graph(graph, device, options)
    return Case(program, program.draw_noise(rng), rng)


def digest(seeds: Iterable[int], most: int = 16) -> str:
    """SHA-256 over the observations, masks and schedules of random episodes of some cases."""
    total = hashlib.sha256()
    for seed in seeds:
        case = make_case(seed, most=most)
        state = case.new_state()
        while running(state):
            total.update(case.observe(state).tobytes())
            total.update(repr(legal_actions(case.program, state)).encode())
            case.step(state, case.random_action(state))
        total.update(state.tobytes())
        schedule = record_schedule(case.program, actions_of(state), noise=case.noise)
        total.update(repr(schedule).encode())
    return total.hexdigest()
