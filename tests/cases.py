"""Random cases for laws: a seed decides graph, device, options and noise; a digest sums up what they do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from episodes import actions_of, legal_actions
from random_graphs import random_graph, with_own_demands
from toys import toy_device

from cann_env.engine import layout as at
from cann_env.engine.observe import observe
from cann_env.engine.step import step
from cann_env.lowering import Needs
from cann_env.options import (
    Allocator,
    Eviction,
    Objective,
    PrefetchMask,
    RunOptions,
    Submission,
    Window,
)
from cann_env.program import Program, compile_graph
from cann_env.schedulers.recording import record_schedule
from cann_env.units import MemoryAllocationError

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
        """Any legal action; with half the budget gone, buffers are left alone if anything else is legal."""
        legal = np.asarray(legal_actions(self.program, state))
        if state[at.S_STEPS] > self.program.image[at.P_STEP_BUDGET] // 2:
            first = self.program.action_count - self.program.options.slots - 1
            others = legal[(legal < first) | (legal == self.program.action_count - 1)]
            legal = others if others.size else legal
        return int(self.rng.choice(legal))

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
    l2 = int(rng.choice([0, 0, 300, 1000, 5000]))
    return toy_device(
        dies=2 if rng.random() < 0.3 else 1,
        memory={
            "l2_bytes": l2,
            "l2_bandwidth_bytes_per_s": int(rng.choice([8, 13])) * 10**9,
            "l2_prefetch_max_bytes": int(rng.choice([0, 100, 512])),
            "host_shares_dram": bool(rng.random() < 0.1),
            "fault_group_pages": int(rng.integers(1, 3)),
        },
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
        links={
            "h2d": {"shares_hbm": bool(rng.integers(0, 2))},
            "d2h": {"shares_hbm": bool(rng.integers(0, 2)), "latency_ns": int(rng.choice([0, 5, 9]))},
        },
        pools={"h2d": int(rng.integers(1, 3)), "sdma": int(rng.integers(1, 3))},
    )


def tight(
    program: CommandGraph, device: DeviceSpec, options: RunOptions, rng: np.random.Generator
) -> Program:
    """A program with hardly more memory than it needs, or somewhat more."""
    least = Needs(program, device, options).least
    for factor in (float(rng.choice([1.0, 1.1, 1.5, 3.0])), 1.2, 1.5, 2.0, 4.0, 8.0):
        hbm_bytes = max(64, least, int(least * factor))
        try:
            return compile_graph(program, device, replace(options, hbm_bytes=hbm_bytes))
        except MemoryAllocationError:  # places do not fit as tightly as bytes
            continue
    raise AssertionError(f"{least} bytes are not enough eight times over")


def make_case(seed: int, *, most: int = 16, plain: bool = False, own: bool = False) -> Case:
    """The case of a seed.

    Args:
        seed: Decides everything.
        most: Most commands.
        plain: True for expected durations and the makespan as objective.
        own: True for kernels that state what their blocks hold, of pools that only they know among others.
    """
    rng = np.random.default_rng(seed)
    device = random_device(rng)
    graph = random_graph(
        rng, most=most, late=bool(rng.integers(0, 2)), memory=rng.random() < 0.8, dies=device.dies
    )
    if own:
        device = replace(device, pools={**device.pools, "gate": 1, "lane": 5})
        graph = with_own_demands(graph, device, rng)
    streams = int(rng.integers(1, 6))
    options = RunOptions(
        streams=streams,
        stream_priorities=tuple(rng.integers(0, 3, streams).tolist()) if rng.random() < 0.3 else (),
        submission=Submission(str(rng.choice(["eager", "sink"]))),
        allocator=Allocator(str(rng.choice(["pool", "malloc"]))),
        window=Window(str(rng.choice(["issuable", "startable"]))),
        commands=int(rng.choice([1, 2, 4, 16])),
        prefetches=int(rng.choice([0, 1, 4])),
        l2_prefetches=int(rng.choice([0, 0, 3])),
        offloads=int(rng.choice([0, 0, 2])),
        prefetch_streams=int(rng.choice([1, 1, 3])),
        prefetch_mask=PrefetchMask(str(rng.choice(["strict", "free"]))),
        eviction=Eviction(str(rng.choice(["lru", "furthest"]))),
        stream_dies=tuple(rng.integers(0, device.dies, streams).tolist()) if rng.random() < 0.5 else (),
        run_ahead=[None, 1, 3, 50][int(rng.integers(0, 4))],
        noise=0.0 if plain else float(rng.choice([0.0, 0.3])),
        objective=Objective.MAKESPAN if plain else Objective(str(rng.choice(["makespan", "latency"]))),
    )
    if options.allocator is Allocator.POOL and rng.random() < 0.3:
        options = replace(options, pool_bytes=64 * int(rng.integers(60, 200)))
    if options.allocator is Allocator.POOL and rng.random() < 0.4:
        options = replace(options, pool_block_bytes=128)
    program = tight(graph, device, options, rng)
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
